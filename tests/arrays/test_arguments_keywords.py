"""PyTorch's keywords in functions of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
import fad.nn as fnn
import fad.numpy as fnp
from fad.arrays.arguments import aliases_of

A = jnp.array([[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]])


def test_which_keywords_stand_for_which() -> None:
    assert aliases_of(["a", "axis", "keepdims"]) == {
        "dim": "axis",
        "dims": "axis",
        "keepdim": "keepdims",
    }
    assert aliases_of(["x", "dim", "axis"]) == {"dims": "axis"}
    assert aliases_of(["a", "axes"]) == {"dim": "axes", "dims": "axes"}
    assert aliases_of(["x", "y"]) == {}


@pytest.mark.parametrize(
    ("name", "keywords", "expected"),
    [
        ("sum", {"dim": 1, "keepdim": True}, jnp.sum(A, 1, keepdims=True)),
        ("mean", {"dim": (0, 1)}, jnp.mean(A)),
        ("prod", {"dim": 0}, jnp.prod(A, 0)),
        ("argmax", {"dim": 1}, jnp.argmax(A, 1)),
        ("all", {"dim": 1, "keepdim": True}, jnp.all(A, 1, keepdims=True)),
        ("cumsum", {"dim": 1}, jnp.cumsum(A, 1)),
        ("concatenate", {"dim": 1}, jnp.sum(A) * 0),
        ("flip", {"dims": (0,)}, jnp.flip(A, 0)),
        ("roll", {"shifts": 1, "dims": 1}, jnp.roll(A, 1, 1)),
        ("diagonal", {"dim1": 1, "dim2": 0}, jnp.diagonal(A, axis1=1, axis2=0)),
        ("tril", {"diagonal": 1}, jnp.tril(A, 1)),
        ("expand_dims", {"dim": 0}, A[None]),
    ],
)
def test_functions_take_them_on_arrays_and_tensors(name, keywords, expected) -> None:
    if name == "concatenate":
        both = fnp.concatenate([A, fad.tensor(A)], dim=1)
        assert_close(both, jnp.concatenate([A, A], 1))
        return
    out = getattr(fnp, name)(A, **keywords)
    assert isinstance(out, jax.Array)
    for x in (A, fad.tensor(A)):
        for _ in range(2):  # found, and found again
            assert_close(getattr(fnp, name)(x, **keywords), expected)


def test_other_modules_take_them() -> None:
    assert_close(fnn.softmax(A, dim=0), jax.nn.softmax(A, 0))
    assert_close(fnp.linalg.norm(A, dim=1, keepdim=True), jnp.linalg.norm(A, axis=1, keepdims=True))
    assert_close(fnp.fft.fft(A, dim=0), jnp.fft.fft(A, axis=0))


def test_derivatives_and_lanes() -> None:
    f = lambda x: (fnp.mean(x, dim=0, keepdim=True) ** 2).sum()
    g = lambda x: (jnp.mean(x, axis=0, keepdims=True) ** 2).sum()
    assert_close(fad.grad(f)(A), jax.grad(g)(A))
    assert_close(fad.jit(fad.grad(f))(A), jax.grad(g)(A))
    assert_close(fad.vmap(lambda r: fnp.sum(r, dim=0))(A), jnp.sum(A, 1))


def test_wrong_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fad.numpy.sum\(\): a parameter is given twice"):
        fnp.sum(A, axis=0, dim=1)
    with pytest.raises(TypeError, match=r"fad.numpy.sum\(\): .*'dimension'"):
        fnp.sum(A, dimension=1)
    with pytest.raises(TypeError, match=r"fad.numpy.sin\(\): .*'dim'"):
        fnp.sin(A, dim=1)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmax", "std", "all"])
def test_a_bool_in_the_place_of_a_dtype_says_what_to_write(name: str) -> None:
    x = fad.tensor(A)
    with pytest.raises(TypeError, match=r"expected a (dtype|Tensor); .* write keepdims=True"):
        getattr(x, name)(1, True)
    assert getattr(x, name)(1, keepdim=True) is not None
