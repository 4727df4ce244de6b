"""Where and in which form a Tensor is stored: device, sharding, dtype, bytes; and moving it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.core.devices import device_of
from fad.core.jaxapi import is_tracing
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom
from fad.core.types import Array, DeviceLike, DTypeLike
from fad.errors import ArgumentError, attribute, describe
from fad.methods.values import unwrap
from fad.views.copying import clone


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


def _devices(self: Tensor) -> set[jax.Device]:
    """The devices that parts of the value are on."""
    found: set[jax.Device] = unwrap(self).devices()
    return found


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
    return clone(out) if copy and out is self else out


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
        known = jnp.dtype(target)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"x.to: a device, a sharding, a dtype or a Tensor is expected, got {describe(target)}: write "
            "x.to(y.dtype) or x.to(y.device); draws with a random key are "
            "fad.random.normal(key, x.shape, x.dtype)"
        ) from None
    return self if known == self.dtype else bind(_conversion(target), (self,))


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
        if isinstance(target, jax.sharding.NamedSharding) and is_tracing():
            # In compiled code JAX's device_put leaves the layout to XLA; this fixes it.
            return jax.lax.with_sharding_constraint(x, target)
        return jax.device_put(x, target)

    return Primitive("to", put, jit=False)


@functools.lru_cache(maxsize=256)
def _conversion(target: DTypeLike) -> Primitive:
    return Primitive("to", lambda x: jnp.astype(x, target), deferrable=True)


def _sharding(self: Tensor) -> Any:
    """How the value is laid out."""
    return unwrap(self).sharding


MEMBERS: dict[str, object] = {
    "astype": _astype,
    "device": attribute(_device),
    "devices": _devices,
    "itemsize": property(lambda self: self.dtype.itemsize, doc="Bytes of one element."),
    "nbytes": property(lambda self: self.size * self.dtype.itemsize, doc="Bytes of all."),
    "sharding": attribute(_sharding),
    "to": _to,
    "weak_type": property(lambda self: bool(self.aval.weak_type), doc="As in JAX."),
}
