"""The primitive that stands for ``no_grad`` in traced code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.tape.staged import unrecorded


def test_tangents_pass_and_cotangents_do_not() -> None:
    f = lambda x: unrecorded(x * x) * x
    g = lambda x: unrecorded(x * x, 3.0 * x) * x  # the history of ``3 x``
    for run in (f, jax.jit(f)):
        assert [float(v) for v in jax.jvp(run, (2.0,), (1.0,))] == [8.0, 12.0]
        assert float(jax.grad(run)(2.0)) == 4.0
        assert float(jax.linearize(run, 2.0)[1](1.0)) == 12.0
    for run in (g, jax.jit(g)):
        assert [float(v) for v in jax.jvp(run, (2.0,), (1.0,))] == [8.0, 12.0]
        assert float(jax.grad(run)(2.0)) == 4.0 + 3.0 * 2.0


def test_orders_and_batches() -> None:
    f = lambda x: unrecorded(x * x) * x
    x = jnp.arange(1.0, 4.0)
    np.testing.assert_array_equal(jax.vmap(jax.grad(f))(x), x * x)
    np.testing.assert_array_equal(jax.grad(lambda x: jax.vmap(f)(x).sum())(x), x * x)
    mixed: Any = jax.vmap(lambda new, old: unrecorded(new, old * 1.0), (None, 1))
    pulled = jax.vjp(mixed, x, jnp.ones((3, 2)))[1](jnp.ones((2, 3)))
    assert not pulled[0].any() and (pulled[1] == 1.0).all()
    # The derivative of ``x**2`` (a constant) times x.
    assert float(jax.grad(jax.grad(f))(2.0)) == 0.0
    assert float(jax.jvp(jax.grad(f), (2.0,), (1.0,))[1]) == 4.0
    assert unrecorded(jnp.arange(3)).dtype == jnp.int32
