"""Conversion of dtypes."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np

from fad.core.primitive import Primitive
from fad.core.types import Array, DType


@functools.lru_cache(maxsize=64)
def cast_to(dtype: DType) -> Primitive:
    """The conversion to a dtype: to a real one, of the real part."""

    def cast(x: Array) -> Array:
        is_complex = jnp.issubdtype(x.dtype, np.complexfloating)
        if is_complex and not jnp.issubdtype(dtype, np.complexfloating):
            x = x.real
        return x.astype(dtype)

    return Primitive("astype", cast, deferrable=True)
