"""Views of another dtype."""

from __future__ import annotations

import jax.numpy as jnp
from helpers import leaf

import fad


def test_view_of_another_dtype():
    x = fad.tensor([1.0, 2.0])
    bits = x.view(jnp.int32)
    assert bits.is_view and bits.dtype == jnp.int32
    bits[0] = 0
    assert x.tolist() == [0.0, 2.0]
    x[1] = 1.0
    assert bits.tolist() == [0, 0x3F800000]
    y = leaf([1.0, 2.0]) * 1.0
    y.view(jnp.int32)[0] = 0
    assert y.tolist() == [0.0, 2.0] and y.requires_grad
