"""``functionalize``: the same results, and a program without writes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from helpers import assert_close

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


def test_functionalize_gives_the_functions_results() -> None:
    f = lambda x, k: {"y": fnp.sin(x) * k}
    assert_close(fad.functionalize(f)(X, k=2.0), {"y": jnp.sin(X) * 2.0})
    assert_close(fad.grad(fad.functionalize(lambda x: fnp.sum(x * x)))(X), 2.0 * X)
    assert_close(fad.vmap(fad.functionalize(fnp.sin))(X), jnp.sin(X))


V = jnp.array([0.5, -1.0, 2.0])


def test_functionalize_shows_its_program():
    def f(x):
        y = x * 1.0
        y[0] = 2.0
        y[1:] += x[:2]
        return y

    program = str(jax.make_jaxpr(fad.to_jax(fad.functionalize(f)))(V))
    assert "dynamic_update_slice" in program or "scatter" in program
    assert_close(jax.jit(fad.to_jax(f))(V), f(fad.asarray(V)))
