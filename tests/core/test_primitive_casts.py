"""Conversion of dtypes."""

from __future__ import annotations

import jax.numpy as jnp

from fad.core.level import bind
from fad.core.primitive import cast_to


def test_a_complex_value_becomes_its_real_part() -> None:
    z = jnp.array([1.0 + 2.0j, -3.0j])
    assert bind(cast_to(jnp.dtype("float32")), (z,)).tolist() == [1.0, 0.0]
    assert bind(cast_to(jnp.dtype("complex64")), (z.real,)).tolist() == [1.0 + 0.0j, 0.0j]
    assert cast_to(jnp.dtype("float32")) is cast_to(jnp.dtype("float32"))
