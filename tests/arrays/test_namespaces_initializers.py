"""Initializers give what JAX's give."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
from namespace_cases import assert_same

import fad
import fad.nn
import fad.nn.initializers

KEY = jax.random.key(3)


def test_initializers() -> None:
    x = fad.nn.initializers.normal(0.1)
    expected = jax.nn.initializers.normal(0.1)(KEY, (2, 3), jnp.float32)
    assert_same(x(KEY, (2, 3), jnp.float32), expected)
    drawn = x(fad.asarray(KEY), (2, 3), jnp.float32)
    assert isinstance(drawn, fad.Tensor)
    assert_same(drawn, expected)
    assert_same(
        fad.nn.initializers.he_normal()(KEY, (3, 4)), jax.nn.initializers.he_normal()(KEY, (3, 4))
    )
    assert_same(
        fad.nn.initializers.constant(2.0)(KEY, (2,)), jax.nn.initializers.constant(2.0)(KEY, (2,))
    )
    assert_same(fad.nn.initializers.zeros(KEY, (2,)), jnp.zeros((2,)))
    assert inspect.signature(x).parameters.keys() == {"key", "shape", "dtype", "out_sharding"}
