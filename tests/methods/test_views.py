"""Views of another dtype."""

from __future__ import annotations

import inspect

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


def test_unflatten_says_what_it_takes():
    method = fad.Tensor.unflatten
    assert list(inspect.signature(method).parameters) == ["self", "dim", "sizes"]
    assert method.__doc__.startswith("A view with one dimension as several")
    assert fad.tensor([1.0, 2.0, 3.0, 4.0]).unflatten(dim=0, sizes=[2, -1]).shape == (2, 2)
