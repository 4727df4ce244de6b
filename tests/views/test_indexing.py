"""Indices: integers, bools, and positions that are known when code is traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import fad


def test_positions_are_constants_in_traced_code() -> None:
    def f(x):
        x[2:5] = x[1:4] * 2.0
        x[3] += x[0]
        return x

    def names(jaxpr: Any) -> list[str]:
        return [e.primitive.name for e in jaxpr.eqns]

    plain = names(jax.make_jaxpr(fad.to_jax(f))(jnp.zeros(8)).jaxpr)
    assert "slice" in plain and "dynamic_slice" not in plain
    batched = names(jax.make_jaxpr(jax.vmap(fad.to_jax(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in batched
    inside = names(jax.make_jaxpr(fad.to_jax(fad.vmap(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in inside and "dynamic_slice" not in inside
