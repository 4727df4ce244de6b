"""Where and in which form a Tensor is stored: device, sharding, dtype; moving and converting it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

import fad
import fad.numpy as fnp
from fad import Tensor
from fad.errors import ArgumentError, attribute, describe
from fad.extend import Primitive, bind, bottom
from fad.extend.types import Array, PyTree
from fad.methods import functions
from fad.methods.functions import DeviceLike

# Where and in which form a Tensor is stored: device, sharding, dtype, bytes; and moving it.


def _astype(
    self: Tensor,
    dtype: DTypeLike | None,
    copy: bool = True,
    device: DeviceLike | None = None,
    *,
    casting: str = "unsafe",
    order: str = "K",
    subok: bool = True,
) -> Tensor:
    """Converted to ``dtype``, and on ``device``; with ``copy=False`` the Tensor itself, if it has this dtype.

    ``order`` and ``subok``, of NumPy's method, have no effect.
    """
    if casting != "unsafe" and not np.can_cast(self.dtype, jnp.dtype(dtype), casting):  # type: ignore[arg-type]
        raise TypeError(
            f"astype: cannot cast {describe(self)} to {jnp.dtype(dtype).name} by the rule {casting!r}"
        )
    out = fnp.astype(self, dtype) if copy else fnp.astype(self, dtype, copy=False)
    return out if device is None else out.to(device)


def _device(self: Tensor) -> Any:
    """Where the value is: a device, or the sharding where there are several.

    Inside ``vmap`` that of the whole batch. None in compiled code, which runs where its arguments are;
    and inside ``vmap`` where the batch has a sharding, which is none of one lane.
    """
    value = bottom(self)
    if isinstance(value, jax.core.Tracer):
        return None
    device = value.device
    return device if isinstance(device, jax.Device) or value.ndim == self.ndim else None


def _array_of(t: Tensor) -> jax.Array:
    """The array itself, which has no derivative to lose here."""
    return fad.stop_gradient(t).array


def _devices(self: Tensor) -> set[jax.Device]:
    """The devices that parts of the value are on."""
    devices: set[jax.Device] = _array_of(self).devices()
    return devices


def _to(
    self: Tensor,
    *targets: object,
    device: DeviceLike | None = None,
    dtype: DTypeLike | None = None,
    copy: bool = False,
    non_blocking: bool = False,
) -> Tensor:
    """The Tensor on another device or sharding, or in another dtype; derivatives are moved back.

    The Tensor itself if nothing changes. Its node is called CopyBackwards.

    Arguments:
        targets: one or two of a ``jax.Device`` or its name (``"cpu"``, ``"gpu:1"``), a
            ``jax.sharding.Sharding``, and a dtype; or a Tensor, whose device and dtype are meant; None, which
            is the ``device`` of Tensors in compiled code, changes nothing.
        device, dtype: the same, by name.
        copy: not the Tensor itself but a copy, where nothing changes.
        non_blocking: has no effect: transfers of JAX never block.

    Raises:
        ArgumentError: there is no such device or dtype, or an array or a random key is given.
    """
    out = self
    for target in (*targets, device, dtype):
        if isinstance(target, Tensor) and not jnp.issubdtype(target.dtype, jax.dtypes.prng_key):
            out = _to_one(_to_one(out, target.dtype), target.device)
        else:
            out = _to_one(out, target)
    return out.clone() if copy and out is self else out


def _to_one(self: Tensor, target: Any) -> Tensor:
    if target is None:
        return self
    if isinstance(target, str) and not _names_dtype(target):
        target = device_of(target)
    if isinstance(target, (jax.Device, jax.sharding.Sharding)):
        return self if _device(self) == target else bind(_moving(target), (self,))
    try:
        if isinstance(target, (Tensor, jax.Array, np.ndarray)):  # which has a dtype, but is none
            raise TypeError
        dtype = jnp.dtype(target)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"x.to: a device, a sharding, a dtype or a Tensor is expected, got {describe(target)}: write "
            "x.to(y.dtype) or x.to(y.device); draws with a random key are "
            "fad.random.normal(key, x.shape, x.dtype)"
        ) from None
    return self if dtype == self.dtype else bind(_conversion(target), (self,))


def _names_dtype(name: str) -> bool:
    try:
        jnp.dtype(name)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _moving(target: jax.Device | jax.sharding.Sharding) -> Primitive:
    """``jax.device_put``, or its equivalent in compiled code."""

    def put(x: Array) -> Array:
        if isinstance(target, jax.sharding.NamedSharding) and isinstance(
            jnp.empty(()), jax.core.Tracer
        ):
            # In compiled code, where all is traced, JAX's device_put leaves the layout to XLA; this fixes it.
            return jax.lax.with_sharding_constraint(x, target)
        return jax.device_put(x, target)

    return Primitive("to", put, jit=False)


@functools.lru_cache(maxsize=256)
def _conversion(target: DTypeLike) -> Primitive:
    return Primitive("to", lambda x: jnp.astype(x, target), deferrable=True)


def _sharding(self: Tensor) -> Any:
    """How the value is laid out."""
    return _array_of(self).sharding


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


# Methods that name a dtype or a device: ``x.float()``, ``x.cpu()``; and new Tensors of the kind of one.

# Method -> dtype. Without 64 bits (``jax_enable_x64``), JAX has those of 32 bits in place of wider ones.
DTYPES = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "byte": "uint8",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "char": "int8",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


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


def _is(kind: type[np.generic]) -> Callable[[Tensor], bool]:
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
            here = self.device
            device = here if isinstance(here, jax.Device) else None
        return make(*args, dtype=self.dtype if dtype is None else dtype, device=device, **kwargs)

    new.__doc__ = f"`fad.{make.__name__}`, with the dtype and on the device of this Tensor."
    return new


MEMBERS: dict[str, object] = {
    **{name: _to_dtype(dtype) for name, dtype in DTYPES.items()},
    "__round__": _round,
    "astype": _astype,
    "cpu": _cpu,
    "cuda": _cuda,
    "device": attribute(_device),
    "devices": _devices,
    "element_size": _element_size,
    "is_complex": _is(np.complexfloating),
    "is_floating_point": _is(np.floating),
    "is_nonzero": _is_nonzero,
    "is_same_size": _is_same_size,
    "is_signed": _is_signed,
    "itemsize": property(lambda self: self.dtype.itemsize, doc="Bytes of one element."),
    "nbytes": property(lambda self: self.size * self.dtype.itemsize, doc="Bytes of all."),
    "new_empty": _new(functions.empty),
    "new_full": _new(functions.full, 2),
    "new_ones": _new(functions.ones),
    "new_tensor": _new(functions.tensor, 1),
    "new_zeros": _new(functions.zeros),
    "resolve_conj": _itself,
    "resolve_neg": _itself,
    "sharding": attribute(_sharding),
    "to": _to,
    "type": _type,
    "type_as": _type_as,
    "weak_type": property(lambda self: bool(self.aval.weak_type), doc="As in JAX."),
}
