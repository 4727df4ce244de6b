"""``linearize``: one run of the function, and a push that is its jvp."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from helpers import assert_close
from pytree_functions import PARAMS, f_layer, j_layer

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


def test_linearize_is_jvp() -> None:
    y, push = fad.linearize(f_layer, PARAMS, X)
    assert_close(y, j_layer(PARAMS, X))
    for k in (1.0, -2.0):
        t = jax.tree.map(lambda v, k=k: k * jnp.cos(v), (PARAMS, X))
        assert_close(push(*t), jax.jvp(j_layer, (PARAMS, X), t)[1])
        assert_close(push(*t), fad.jvp(f_layer, (PARAMS, X), t)[1])
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    assert_close(push(None, X), push(zero, X))


def test_linearize_runs_the_function_once_and_its_push_composes() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return fnp.sin(x) * fnp.cumsum(x)

    _, push = fad.linearize(f, X)
    _, jax_push = jax.linearize(lambda x: jnp.sin(x) * jnp.cumsum(x), X)
    assert_close(fad.vmap(push)(jnp.eye(3)), jax.vmap(jax_push)(jnp.eye(3)))
    assert_close(fad.jvp(push, (X,), (X,)), jax.jvp(jax_push, (X,), (X,)))
    # Transposed by grad, a push is a pullback.
    assert_close(fad.grad(lambda t: fnp.sum(push(t)))(X), fad.vjp(f, X)[1](jnp.ones(3))[0])
    assert len(runs) == 2
