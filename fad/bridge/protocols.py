"""Tensors in the protocols of other array libraries: the array API, DLPack, and JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad import Tensor, asarray, stop_gradient
from fad.errors import HostValueError, TrackedValueError, attribute, describe
from fad.extend import layers
from fad.extend.types import PyTree

DeviceLike: TypeAlias = "jax.Device | jax.sharding.Sharding | str"


def from_dlpack(
    x: object, /, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """An array of another library as a Tensor, without a copy where its memory can be shared.

    What shares memory must not be written to by its owner while the Tensor is still used, for instance by a
    graph that has saved it: Tensors are immutable.

    Arguments:
        x: anything with ``__dlpack__``: an array of NumPy, PyTorch, CuPy, ...
        device: a ``jax.Device`` or sharding to put it on.
        copy: True always copies, False never does; None copies where it must.

    Returns:
        A Tensor that does not require grad.

    Raises:
        TypeError: x has no ``__dlpack__``.

    Source: ``jax.numpy.from_dlpack``, ``torch.from_dlpack``.

    >>> import fad, numpy as np
    >>> fad.from_dlpack(np.arange(3))
    Tensor([0, 1, 2], dtype=int32)
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: the argument must have __dlpack__, got {describe(x)}: write fad.tensor(x) "
            "for what is not an array"
        )
    if isinstance(x, np.ndarray) and jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype:
        return asarray(jnp.asarray(np.array(x), device=device))
    t: Tensor = fnp.from_dlpack(x, device=device, copy=copy)
    return t


def _value_of(x: Tensor) -> PyTree:
    """The array with the value of a Tensor."""
    return stop_gradient(x).array


def _leaving(x: Tensor, what: str) -> Any:
    """The value of a Tensor that leaves for another library."""
    value = _value_of(x)
    if isinstance(value, jax.core.Tracer):
        raise HostValueError(
            f"{what} of a Tensor ({describe(x)}) under a JAX trace: it has no value"
        )
    if any([t.requires_grad or t.level.tangent(t) is not None for t in layers(x)]):
        raise TrackedValueError(
            f"{what} of a Tensor that requires grad or has a tangent would lose its derivative: pass "
            "x.detach()"
        )
    return value


def _dlpack(
    self: Tensor,
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> PyTree:
    """A DLPack capsule of the value, for ``torch.from_dlpack(x)`` and its like.

    Raises:
        GradientError: the Tensor is tracked: pass ``x.detach()``.
    """
    value = _leaving(self, "__dlpack__")
    return value.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(self: Tensor) -> tuple[Any, int]:
    """Kind and number of the device of the value."""
    device: tuple[Any, int] = _leaving(self, "__dlpack_device__").__dlpack_device__()
    return device


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> ModuleType:
    """`fad.numpy`, the functions of the array API for Tensors.

    Raises:
        ValueError: it does not implement that version of the standard.
    """
    jnp.zeros(()).__array_namespace__(api_version=api_version)
    return fnp


def _to_device(self: Tensor, device: DeviceLike | None, /, *, stream: object = None) -> PyTree:
    """`Tensor.to` under the name that the array API gives it.

    Raises:
        ValueError: a stream was given; JAX has none.
    """
    if stream is not None:
        raise ValueError(
            f"to_device: stream must be None, got {describe(stream)}: JAX has no streams"
        )
    return self.to(device)


# Attributes and methods of a Tensor that are those of its JAX array.
_OF_THE_VALUE = """addressable_shards committed global_shards is_fully_addressable
is_fully_replicated""".split()
_METHODS_OF_THE_VALUE = "addressable_data copy_to_host_async is_deleted is_ready".split()


def _attribute(name: str) -> property:
    def read(self: Tensor) -> Any:
        return getattr(_value_of(self), name)

    read.__name__ = name
    read.__doc__ = f"``jax.Array.{name}`` of the array with the value."
    return attribute(read)


def _method(name: str) -> Callable[..., PyTree]:
    def method(self: Tensor, *args: PyTree) -> PyTree:
        return getattr(_value_of(self), name)(*args)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"``jax.Array.{name}`` of the array with the value."
    return method


MEMBERS: dict[str, Any] = {
    "__array_namespace__": _array_namespace,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "to_device": _to_device,
    **{name: _attribute(name) for name in _OF_THE_VALUE},
    **{name: _method(name) for name in _METHODS_OF_THE_VALUE},
}
