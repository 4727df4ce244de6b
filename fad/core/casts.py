"""Conversion of dtypes."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad.core.primitive import Primitive

__all__ = ["cast_to"]


@functools.lru_cache(maxsize=64)
def cast_to(dtype: Any) -> Primitive:
    """The conversion to a dtype: to a real one, of the real part."""

    def cast(x: Any) -> Any:
        is_complex = jnp.issubdtype(x.dtype, np.complexfloating)
        if is_complex and not jnp.issubdtype(dtype, np.complexfloating):
            x = x.real
        return x.astype(dtype)

    return Primitive("astype", cast, deferrable=True)
