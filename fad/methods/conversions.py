"""Methods that name a dtype or a device: ``x.float()``, ``x.cpu()``; and new Tensors of the kind of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.tensor import Tensor
from fad.core.types import DeviceLike, DTypeLike, PyTree
from fad.methods import functions
from fad.methods.names import pairs
from fad.views.addresses import is_contiguous
from fad.views.copying import clone

# Method -> dtype. Without 64 bits (``jax_enable_x64``), JAX has those of 32 bits in place of wider ones.
DTYPES = pairs(
    """bfloat16 bool byte=uint8 cdouble=complex128 cfloat=complex64 char=int8 double=float64 float=float32
    half=float16 int=int32 long=int64 short=int16"""
)


def _to_dtype(dtype: str) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor) -> Tensor:
        return self.to(jax.dtypes.canonicalize_dtype(dtype))

    convert.__doc__ = f"Converted to {dtype}; the Tensor itself if it has this dtype."
    if dtype.endswith(("64", "128")) and dtype != "complex64":
        convert.__doc__ += " The 32-bit one, unless ``jax_enable_x64`` is on."
    return convert


def _cuda(self: Tensor, device: DeviceLike | None = None, non_blocking: bool = False) -> Tensor:
    """The Tensor on the first GPU, on that of a number, or on ``device``."""
    if isinstance(device, int):
        device = f"cuda:{device}"
    return self.to("cuda" if device is None else device)


def _cpu(self: Tensor) -> Tensor:
    """The Tensor in the memory of the host."""
    return self.to("cpu")


def _type(self: Tensor, dtype: DTypeLike | None, non_blocking: bool = False) -> Tensor:
    """Converted to ``dtype``; what the dtype is, ``x.dtype`` says."""
    return self.to(dtype=dtype)


def _round(self: Tensor, ndigits: int | None = None) -> Tensor:
    """``round(x, 2)`` is ``x.round(2)``, and ``round(x)`` the same with integers as dtype, as in JAX."""
    return self.round().astype(int) if ndigits is None else self.round(ndigits)


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """Converted to the dtype of ``other``."""
    return self.to(other.dtype)


def _itself(self: Tensor) -> Tensor:
    """The Tensor itself."""
    return self


def _contiguous(self: Tensor, memory_format: object = None) -> Tensor:
    """The Tensor itself if it is contiguous, see `is_contiguous`; else a copy."""
    return self if is_contiguous(self) else clone(self)


def _is_contiguous(self: Tensor, memory_format: object = None) -> bool:
    """Whether it is no view, or one of elements that are next to each other in row-major order."""
    return is_contiguous(self)


def _is(kind: Any) -> Callable[[Tensor], bool]:
    def holds(self: Tensor) -> bool:
        return bool(jnp.issubdtype(self.dtype, kind))

    holds.__doc__ = f"Whether the dtype is a {kind.__name__} one."
    return holds


def _is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype != bool and not jnp.issubdtype(self.dtype, np.unsignedinteger)


def _is_nonzero(self: Tensor) -> bool:
    """Whether the one element is not zero."""
    return bool(self)


def _is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether ``other`` has the same shape."""
    return self.shape == other.shape


def _element_size(self: Tensor) -> int:
    """Bytes of one element."""
    size: int = self.dtype.itemsize
    return size


# New Tensors of the dtype, and on the device, of this one


def _new(make: Callable[..., Tensor], most: int | None = None) -> Callable[..., Tensor]:
    """``make``, which takes at ``most`` so many arguments by position (None: any number), as a method."""

    def new(
        self: Tensor,
        *args: PyTree,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        **kwargs: PyTree,
    ) -> Tensor:
        if most is not None and len(args) > most:
            raise TypeError(
                f"new_{make.__name__}: got {len(args)} arguments by position, expected {most}: write "
                "dtype=..., device=... and requires_grad=... by name"
            )
        if device is None:
            own = self.device
            device = own if isinstance(own, jax.Device) else None
        return make(*args, dtype=self.dtype if dtype is None else dtype, device=device, **kwargs)

    new.__doc__ = f"`fad.{make.__name__}`, with the dtype and on the device of this Tensor."
    return new


MEMBERS: dict[str, object] = {
    **{name: _to_dtype(dtype) for name, dtype in DTYPES.items()},
    "__round__": _round,
    "contiguous": _contiguous,
    "cpu": _cpu,
    "cuda": _cuda,
    "element_size": _element_size,
    "is_complex": _is(np.complexfloating),
    "is_contiguous": _is_contiguous,
    "is_floating_point": _is(np.floating),
    "is_nonzero": _is_nonzero,
    "is_same_size": _is_same_size,
    "is_signed": _is_signed,
    "new_empty": _new(functions.empty),
    "new_full": _new(functions.full, 2),
    "new_ones": _new(functions.ones),
    "new_tensor": _new(functions.tensor, 1),
    "new_zeros": _new(functions.zeros),
    "resolve_conj": _itself,
    "resolve_neg": _itself,
    "type": _type,
    "type_as": _type_as,
}
