"""`eval_shape` and `make_jaxpr`, beside JAX's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import fad
import fad.numpy as fnp

X = jnp.arange(6.0).reshape(2, 3)


def test_eval_shape():
    f = lambda xp, x, scale, mode="sum": {"out": getattr(xp, mode)(x * scale, axis=0), "x": x}
    expected = jax.eval_shape(lambda x, s: f(jnp, x, s), X, 2.0)
    for x in (X, fad.tensor(X, requires_grad=True), jax.ShapeDtypeStruct(X.shape, X.dtype)):
        found = fad.eval_shape(lambda x, s, **k: f(fnp, x, s, **k), x, 2.0, mode="mean")
        assert found == expected
    ran = []
    fad.eval_shape(fad.grad(lambda x: (ran.append(1), fnp.sum(x))[1]), X)
    assert len(ran) == 1


def test_make_jaxpr():
    f = lambda xp, x, n: xp.sin(x) * n
    expected = str(jax.make_jaxpr(lambda x: f(jnp, x, 3))(X))
    ours = fad.make_jaxpr(lambda x, n: f(fnp, x, n), static_argnums=1)
    for x in (X, fad.tensor(X, requires_grad=True)):
        assert str(ours(x, 3)) == expected
    jaxpr, shape = fad.make_jaxpr(fad.grad(lambda x: fnp.sum(x * x)), return_shape=True)(X)
    assert shape == jax.ShapeDtypeStruct(X.shape, X.dtype)
    assert jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)[0].tolist() == (2 * X).tolist()


def test_what_is_no_function():
    with pytest.raises(TypeError, match="must be a function"):
        fad.eval_shape(3, X)
    with pytest.raises(TypeError, match="must be a function"):
        fad.make_jaxpr(3)
