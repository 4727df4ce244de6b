"""A Tensor with a new primal keeps its tangents and its history, at every level."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import LevelError
from fad.views.aliases import replace_primal

X = jnp.array([0.5, 2.0, 3.0])
NEW = jnp.array([7.0, 8.0, 9.0])


def replaced(x: Any) -> Any:
    """``NEW``, with the derivatives of 2 x."""
    y = fad.asarray(x) * 2.0
    replace_primal(y, NEW)
    return y


def test_a_recorded_tensor_keeps_its_node() -> None:
    x = leaf(X)
    y = x * 2.0
    node = y.grad_fn
    replace_primal(y, NEW)
    assert y.tolist() == NEW.tolist() and y.grad_fn is node
    y.sum().backward()
    assert_close(x.grad, jnp.full(3, 2.0))


@pytest.mark.parametrize(
    "transform, expected",
    [
        (lambda f: fad.grad(lambda x: f(x).sum())(X), jnp.full(3, 2.0)),
        (lambda f: fad.jvp(f, (X,), (X,)), (NEW, 2 * X)),
        (lambda f: fad.jvp(lambda x: fad.vjp(f, x)[1](X), (X,), (X,))[0], None),
        (lambda f: jax.jvp(fad.to_jax(f), (X,), (X,)), (NEW, 2 * X)),
        (lambda f: jax.grad(fad.to_jax(lambda x: f(x).sum()))(X), jnp.full(3, 2.0)),
        (lambda f: fad.jit(f)(X), NEW),
        (lambda f: fad.jit(lambda x: fad.jvp(f, (x,), (x,))[1])(X), 2 * X),
        # The value is new, so what comes after it is differentiated there.
        (lambda f: fad.grad(lambda x: (f(x) ** 2).sum())(X), 4 * NEW),
    ],
    ids=["grad", "jvp", "jvp of vjp", "jax.jvp", "jax.grad", "jit", "jit of jvp", "square"],
)
def test_derivatives_are_those_from_before(transform: Any, expected: Any) -> None:
    if expected is None:
        expected = jax.tree.map(lambda x: 2 * x, fad.vjp(lambda x: x, X)[1](X))
    assert_close(transform(replaced), expected)


def test_lanes_have_values_of_their_own() -> None:
    def f(x: Any, new: Any) -> Any:
        y = x * 2.0
        replace_primal(y, new)
        return y * 1.0

    assert_close(fad.vmap(f)(X, NEW), NEW)


def test_aliases_in_inner_levels_share_the_new_value() -> None:
    """As a write to a detached Tensor does it."""

    def f(x: Any) -> Any:
        y = x * 2.0
        y.detach().copy_(NEW)
        return (y * y).sum()

    assert_close(fad.grad(f)(X), 4 * NEW)
    assert_close(fad.jvp(f, (X,), (X,)), (NEW @ NEW, 4 * NEW @ X))
    assert_close(fad.vmap(lambda x: (x.detach().copy_(7.0), x)[1] * 1.0)(X), jnp.full(3, 7.0))


def test_a_value_of_a_transform_is_not_hidden_in_a_tensor_from_outside() -> None:
    outside = leaf(X)

    def f(z: Any) -> Any:
        replace_primal(outside, z)
        return z.sum()

    with pytest.raises(LevelError, match="write to that Tensor"):
        fad.grad(f)(X)
    assert_close(outside.detach(), X)  # a failed call changes nothing
