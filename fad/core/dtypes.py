"""Dtypes by name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fad.core.types import DType

# Dtypes under PyTorch's names, as NumPy's dtype objects: ``x.dtype is fad.float32``.
#
# Where 64 bits are off (``jax_enable_x64``), JAX warns and makes 32 of them.

bfloat16 = np.dtype(jnp.bfloat16)
float16 = half = np.dtype(np.float16)
float32 = float_ = np.dtype(np.float32)
float64 = double = np.dtype(np.float64)
complex64 = cfloat = np.dtype(np.complex64)
complex128 = cdouble = np.dtype(np.complex128)
int8 = np.dtype(np.int8)
int16 = short = np.dtype(np.int16)
int32 = int_ = np.dtype(np.int32)
int64 = long = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
bool_ = np.dtype(np.bool_)


_inexact: dict[DType, bool] = {}


def is_inexact(dtype: DType) -> bool:
    """Whether values of this dtype have derivatives: floating or complex."""
    inexact = _inexact.get(dtype)
    if inexact is None:
        inexact = _inexact[dtype] = bool(jnp.issubdtype(dtype, np.inexact))
    return inexact
