"""The laws between transforms, for functions of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import _is_tensor, assert_close
from pytree_functions import W

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: fnp.sin(x) * fnp.exp(-x * x),
    "reduction": lambda x: fnp.sum(x**3) * x,
    "matrix": lambda x: fnp.asarray(W) @ x,
    "indexing": lambda x: x[1:] * x[:-1],
    "sort": lambda x: fnp.sort(x) * fnp.arange(3.0),
    "where": lambda x: fnp.where(x > 0.5, x * x, fnp.tanh(x)),
    "softmax": lambda x: fad.nn.softmax(x),
    "solve": lambda x: fnp.linalg.solve(fnp.eye(3) + fnp.outer(x, x), x),
    "tree": lambda x: {"a": x * 2.0, "b": (fnp.cumsum(x), fnp.outer(x, x))},
    "scan": lambda x: fad.lax.scan(lambda c, v: (c * v + 1.0, fnp.sin(c)), 1.0 + 0.0 * x[0], x)[1],
}


@pytest.mark.sweep("name", list(FUNCTIONS), sample=3)
def test_laws(name: str, rng: np.random.Generator) -> None:
    f = FUNCTIONS[name]
    v = jnp.asarray(rng.normal(size=3), np.float32)
    y, y_t = fad.jvp(f, (X,), (v,))
    w = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), np.float32), y)
    _, pull = fad.vjp(f, X)
    # <w, J v> = <J^T w, v>
    left = sum(float(jnp.vdot(a, b)) for a, b in zip(*map(jax.tree.leaves, (w, y_t)), strict=True))
    np.testing.assert_allclose(left, float(jnp.vdot(pull(w)[0], v)), rtol=1e-4, atol=1e-5)
    # linearize = jvp
    y_lin, push = fad.linearize(f, X)
    assert_close((y_lin, push(v)), (y, y_t))
    # jacrev = jacfwd, and both give J v
    rev, fwd = fad.jacrev(f)(X), fad.jacfwd(f)(X)
    assert_close(rev, fwd)
    assert_close(jax.tree.map(lambda j: j @ v, fwd), y_t)
    # vmap = a stacked loop
    batch = jnp.stack([X, X * 0.5, v])
    loop = [fad.functionalize(f)(x) for x in batch]
    assert_close(fad.vmap(f)(batch), jax.tree.map(lambda *a: jnp.stack(a), *loop))
    # reverse over reverse = forward over reverse = reverse over forward
    scalar = lambda x: sum(fnp.sum(fnp.sin(a)) for a in jax.tree.leaves(f(x), is_leaf=_is_tensor))
    expected = fad.hessian(scalar)(X)
    assert_close(fad.jacrev(fad.jacrev(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jacrev(fad.jacfwd(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jacfwd(fad.jacfwd(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jit(fad.hessian(scalar))(X), expected, rtol=1e-3, atol=1e-4)
