"""What is added to an error of JAX in a function of a namespace."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import fad
import fad.numpy as fnp


def notes(program: Any) -> list[str]:
    with pytest.raises((TypeError, ValueError, NotImplementedError)) as caught:
        program()
    texts = [*str(caught.value).split("\n\n"), *getattr(caught.value, "__notes__", ())]
    return [text for text in texts if text.startswith("in fad.")]


X = fad.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (
            lambda: fnp.sum(X, input=0),
            "in fad.numpy.sum(Tensor float32[2], input=int 0): for 'input' wri",
        ),
        (lambda: fnp.sum(X, axs=0), "for 'axs' write axis"),
        (lambda: fnp.sin(X, zz=0), "it takes x"),
        (lambda: X @ fad.tensor([1.0, 2.0, 3.0]), "matmul(Tensor float32[2], Tensor float32[3])"),
        (lambda: fnp.concatenate([X, 2.0 * jnp.ones((2, 2))]), "list of Tensor float32[2], Array"),
        (lambda: fnp.fill_diagonal(fnp.eye(2), 2.0), "Tensor x, write x.fill_diagonal_(value)"),
        (lambda: fnp.put(X, [0], 2.0), "write x.put_(indices, values)"),
        (lambda: fnp.place(X, X > 1.0, fnp.ones(1)), "write x[mask] = values"),
        (lambda: fnp.add.at(X, fnp.array([0]), 1.0), "write x.index_put_((indices,), values, acc"),
        (lambda: fad.random.key(1.5), "a seed is one integer: write fad.random.key(0)"),
        (lambda: fad.random.normal((3,)), "write fad.random.normal(fad.random.key(0), ...)"),
    ],
)
def test_the_call_is_named(program: Any, text: str) -> None:
    (found,) = notes(program)
    assert text in found
    for transform in (fad.grad, fad.jit, fad.vmap):
        (again,) = notes(lambda: transform(lambda x: program())(jnp.ones(2)))
        assert text in again


def test_a_call_that_was_right_before_is_named_too() -> None:
    fnp.add(X, X)
    (found,) = notes(lambda: fnp.add(X, fad.tensor([1.0, 2.0, 3.0])))
    assert found.startswith(
        "in fad.numpy.add(Tensor float32[2], Tensor float32[3]): shapes are compared"
    )


def test_an_array_of_keys_and_a_key_in_the_wrong_place() -> None:
    key = fad.random.key(0)
    (found,) = notes(lambda: fad.random.normal(fad.random.split(key, 3)))
    assert "for an array of keys write fad.vmap(fad.random.normal)(keys)" in found
    (found,) = notes(lambda: fad.random.normal((3,), key))
    assert "write fad.random.normal(fad.random.key(0), ...)" in found


def test_errors_of_the_user_and_of_fad_are_left_alone() -> None:
    def body(carry: Any, x: Any) -> Any:
        raise ValueError("of the user")

    assert notes(lambda: fad.lax.scan(body, X, X)) == []
    assert notes(lambda: fad.vmap(fnp.nonzero)(jnp.ones((2, 3)))) == []


def test_an_argument_that_is_none() -> None:
    v = fad.tensor([1.0, 2.0], requires_grad=True)
    for call in (lambda: v.sub(v.grad, alpha=0.1), lambda: fnp.add(v, None)):
        with pytest.raises(TypeError, match=r"x\.grad is None until backward\(\) has reached x"):
            call()
