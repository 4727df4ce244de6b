"""Dual levels: tangents, levels inside of levels, and dual Tensors that require grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import assert_close, bare, is_idle

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


def test_a_dual_level_carries_a_tangent() -> None:
    with fad.dual_level() as level:
        x = fad.make_dual(fad.asarray(X), fad.asarray(X * 2.0))
        y = fnp.sin(x)
        primal, tangent = fad.unpack_dual(y)
        assert_close(tuple(fad.unpack_dual(y, level)), (primal, tangent))
        assert fad.unpack_dual(fad.asarray(X)).tangent is None
        assert fad.unpack_dual(y).primal is not y
    assert_close((primal, tangent), (jnp.sin(X), jnp.cos(X) * X * 2.0))
    assert isinstance(primal, fad.Tensor) and isinstance(tangent, fad.Tensor)
    # After the block the dual reads as its primal.
    assert_close(y, jnp.sin(X))
    assert_close(y + 1.0, jnp.sin(X) + 1.0)
    assert is_idle()


def test_dual_levels_nest() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x) * x

    with fad.dual_level() as outer:
        with fad.dual_level() as inner:
            x = fad.make_dual(fad.make_dual(0.5, 1.0, outer), 1.0, inner)
            y = f(x)
            first = fad.unpack_dual(y, inner).tangent
            assert fad.unpack_dual(first, inner).tangent is None
        second = fad.unpack_dual(first, outer).tangent
    g = jax.grad(lambda x: jnp.sin(x) * x)
    np.testing.assert_allclose(bare(first), g(0.5), rtol=1e-6)
    np.testing.assert_allclose(bare(second), jax.grad(g)(0.5), rtol=1e-6)


def test_dual_levels_nest_without_limit() -> None:
    def derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def d(x: Any) -> Any:
            with fad.dual_level():
                return fad.unpack_dual(f(fad.make_dual(x, 1.0))).tangent

        return d

    f: Callable[[Any], Any] = lambda x: x**6
    for _ in range(6):
        f = derivative(f)
    assert float(f(jnp.float32(1.5))) == 720.0


def test_the_outer_level_can_be_named_from_inside() -> None:
    with fad.dual_level() as outer:
        x = fad.make_dual(2.0, 1.0)
        with fad.dual_level():
            y = fad.make_dual(x * x, 1.0)
            z = y * x
            inner = fad.unpack_dual(z)
            assert inner.tangent.item() == 2.0
            assert fad.unpack_dual(inner.primal, outer).tangent.item() == 12.0
            assert fad.unpack_dual(inner.tangent, outer).tangent.item() == 1.0


def test_a_dual_tensor_that_requires_grad_is_forward_over_reverse() -> None:
    with fad.dual_level():
        x = fad.make_dual(fad.asarray(X), fad.asarray(jnp.cos(X))).requires_grad_()
        (g,) = fad.autograd.grad(fnp.sum(fnp.sin(x) * x), x)
        got = fad.unpack_dual(g)
    grad = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))
    assert_close(tuple(got), jax.jvp(grad, (X,), (jnp.cos(X),)))


def test_a_tracked_tensor_in_a_dual_level_is_reverse_over_forward() -> None:
    x = fad.tensor(X, requires_grad=True)
    with fad.dual_level():
        tangent = fad.unpack_dual(fnp.sin(fad.make_dual(x, jnp.cos(X))) * x).tangent
    assert tangent.requires_grad
    tangent.sum().backward()
    assert_close(x.grad, jax.grad(lambda x: jnp.sum(jnp.cos(x) * x * jnp.cos(X)))(X))


def test_make_dual_takes_tracked_tangents() -> None:
    t = fad.tensor(X, requires_grad=True)
    with fad.dual_level():
        out = fad.unpack_dual(fnp.sin(fad.make_dual(X, t))).tangent
    out.sum().backward()
    assert_close(t.grad, jnp.cos(X))
