"""Loops and branches as Python, in `fad.extend.uncompiled`: the same results and derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import errors, extend


def test_uncompiled_gives_what_compiled_gives():
    """Loops and branches as Python, and what `jit` and `checkpoint` would compile."""
    xs = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)

    def row(c, x):
        return c * 0.5 + x, (c, {"y": x * 2})

    programs = [
        lambda x: fad.lax.scan(row, x[0], x),
        lambda x: fad.lax.scan(row, x[0], x, reverse=True),
        lambda x: fad.lax.scan(lambda c, _: (c * 2, None), x[0], None, length=3)[0],
        lambda x: fad.lax.scan(row, x[0], x[:0])[0],
        lambda x: fad.lax.map(lambda r: r * r, x),
        lambda x: fad.lax.fori_loop(0, 3, lambda i, c: c * fnp.asarray(x)[i], x[0]),
        lambda x: fad.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + 1.0, x[0]),
        lambda x: fad.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + 1.0, x[0], max_steps=2),
        lambda x: fad.lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: a, x),
        lambda x: fad.lax.switch(5, [lambda a: a, lambda a: a * 3], x),
        lambda x: fad.vmap(lambda r: fad.lax.cond(r[0] > 0, lambda a: a * 2, lambda a: a, r))(x),
        lambda x: fad.vmap(
            lambda r: fad.lax.while_loop(lambda c: c.sum() < 9.0, lambda c: c + 1.0, r)
        )(x),
        lambda x: fad.jit(lambda a: fad.checkpoint(fnp.sin)(a))(x),
        lambda x: fad.grad(fad.jit(lambda a: fad.lax.scan(row, a[0], a)[0].sum()))(x),
    ]
    for f in programs:
        for g in (f, lambda x, f=f: fad.vjp(f, x)[0]):
            expected = g(xs)
            with extend.uncompiled():
                found = g(xs)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
            assert jax.tree.structure(found) == jax.tree.structure(expected)


def test_what_python_runs_is_seen():
    """Bodies run once for each step, on values; outside of the block they are traced."""
    seen = []

    def body(carry, x):
        seen.append(float(carry))
        return carry + x, None

    with extend.uncompiled():
        total, _ = fad.lax.scan(body, 0.0, jnp.arange(3.0))
    assert seen == [0.0, 0.0, 1.0] and total == 3.0 and isinstance(total, jax.Array)
    with pytest.raises(errors.HostValueError):
        fad.lax.scan(body, 0.0, jnp.arange(3.0))
    seen.clear()
    f = fad.jit(lambda x: seen.append(1) or x * 2)
    with extend.uncompiled():
        assert isinstance(f(jnp.ones(2)), jax.Array) and isinstance(f(fad.ones(2)), fad.Tensor)
    assert seen == [1, 1]
