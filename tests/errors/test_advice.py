"""What to write instead, where an error of Python or JAX shows that Tensors and arrays were mixed up."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fad
from fad.errors.advice import advise


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


def write(x: Any) -> Any:
    y = jnp.zeros(3)
    y[0] = x
    return y.sum()


def test_a_transform_adds_what_to_write_once() -> None:
    with pytest.raises(TypeError) as caught:
        fad.grad(fad.grad(write))(1.0)
    assert notes(caught.value).count("A Tensor can be written to") == 1
    with pytest.raises(TypeError) as caught:
        fad.grad(lambda x: (x**2).sum())([1.0, 2.0])
    assert "fad.tensor([...])" in notes(caught.value)


def test_errors_outside_of_transforms_are_told_apart() -> None:
    for program, words in (
        (lambda: jax.grad(lambda x: x.requires_grad_().sum())(jnp.ones(2)), "fad.to_jax(f)"),
        (lambda: jax.grad(lambda x: (x * x).sum())(fad.tensor([1.0])), "fad.to_jax(f)"),
        (lambda: jax.jit(write)(1.0), "A Tensor can be written to"),
        (lambda: [1.0] ** 2, ""),  # type: ignore[operator]
        (lambda: jnp.ones(2).no_such_name, ""),
    ):
        with pytest.raises((TypeError, AttributeError)) as caught:
            program()
        advise(caught.value)
        advise(caught.value)
        assert words in notes(caught.value) and bool(words) == bool(notes(caught.value))
        assert len(getattr(caught.value, "__notes__", [])) <= 2  # one may be of JAX


def test_other_errors_are_left_alone() -> None:
    for error in (KeyError("JAX arrays are immutable"), KeyboardInterrupt()):
        advise(error, inside=True)
        assert not notes(error)


def test_where_a_library_of_jax_is_given_tensors_its_own_way_out_is_said() -> None:
    optax = pytest.importorskip("optax")
    optimizer = optax.adam(0.1)
    leaf = fad.tensor([1.0, 2.0], requires_grad=True)

    @fad.jit
    def step(w: Any, memory: Any) -> Any:
        return optimizer.update(fad.grad(lambda w: (w * w).sum())(w), memory, w)

    for program in (
        lambda: step(jnp.ones(2), optimizer.init(jnp.ones(2))),
        lambda: optimizer.update(leaf, optimizer.init(jnp.ones(2)), leaf),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            program()
        advise(caught.value)
        assert "In fad.jit write fad.from_jax(optimizer.update)" in notes(caught.value)


def test_a_gradient_that_is_read_of_what_a_tree_holds() -> None:
    leaf = fad.tensor(1.0, requires_grad=True)
    with fad.no_grad(), pytest.raises(AttributeError) as caught:
        jax.tree.map(lambda p: p.grad, [leaf])
    advise(caught.value)
    assert "read x.grad before the no_grad block" in notes(caught.value)
