"""Dtypes and devices by name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.types import DType
from fad.errors import ArgumentError

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


# Devices by name: ``"cpu"``, ``"gpu:1"``, ``"cuda"``.

_PLATFORMS = {"cuda": "gpu", "mps": "METAL", "xla": "tpu"}


def device_of(device: Any) -> Any:
    """The device that a string names; anything but a string is returned as it is.

    Arguments:
        device: the platform, as JAX calls it (``"cuda"`` is ``"gpu"``), and behind a colon the number of
            the device; the first one if there is none.

    Raises:
        ArgumentError: there is no such device.

    >>> device_of("cpu").platform
    'cpu'
    >>> device_of("cpu:99")
    Traceback (most recent call last):
    fad.errors.ArgumentError: device 'cpu:99': there are ...
    """
    if not isinstance(device, str):
        return device
    name, colon, number = device.partition(":")
    try:
        if not name:  # which would be JAX's default
            raise RuntimeError
        devices = jax.local_devices(backend=_PLATFORMS.get(name, name))
    except RuntimeError:
        platforms = sorted({d.platform for d in jax.local_devices()} | {"cpu"})
        raise ArgumentError(
            f"device {device!r}: there is no {name!r} here, but {', '.join(map(repr, platforms))}. Leave the "
            "device out, which takes JAX's first, or install a JAX that has it (pip install 'jax[cuda12]')"
        ) from None
    try:
        return devices[int(number) if colon else 0]
    except (ValueError, IndexError):
        raise ArgumentError(
            f"device {device!r}: there are {[f'{name}:{k}' for k in range(len(devices))]}"
        ) from None
