"""Tensors in the protocols of other array libraries: the array API, DLPack, and NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.core.faces import tool
from fad.core.tensor import Tensor
from fad.core.types import DeviceLike, PyTree
from fad.errors import ArgumentError, HostValueError, TrackedValueError, attribute, describe
from fad.errors.missing_names import instead_in_module
from fad.methods.values import is_tracked, unwrap
from fad.tape.recorder import as_tensor


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
        return as_tensor(jnp.asarray(np.array(x), device=device))
    t: Tensor = fnp.from_dlpack(x, device=device, copy=copy)
    return t


def _leaving(x: Tensor, what: str) -> Any:
    """The value of a Tensor that leaves for another library."""
    value = unwrap(x)
    if isinstance(value, jax.core.Tracer):
        raise HostValueError(
            f"{what} of a Tensor ({describe(x)}) under a JAX trace: it has no value"
        )
    if is_tracked(x):
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


def _torch_function(
    cls: type, function: object, types: object, args: object = (), kwargs: object = None
) -> NoReturn:
    """Refuses a Tensor in a function of PyTorch, which calls this method.

    Raises:
        ArgumentError: always.
    """
    name = getattr(function, "__name__", "f").strip("_")
    here = f"write fad.numpy.{name}" if hasattr(fnp, name) else instead_in_module("fad.numpy", name)
    raise ArgumentError(
        f"torch.{name} was given a Tensor of fad: {here or 'write a function of fad.numpy'}, make the "
        "function one of fad, fad.from_torch(f), or pass torch.from_dlpack(x.detach()), which PyTorch then "
        "differentiates by itself"
    )


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


# NumPy's functions, see NOTE [NumPy and Tensors] in `fad.bridge.numpy_calls`.


def _array_ufunc(
    self: Tensor,
    ufunc: np.ufunc,
    method: str,
    /,
    *inputs: PyTree,
    out: PyTree = None,
    **kwargs: PyTree,
) -> PyTree:
    """NumPy's hook for ufuncs: the same in `fad.numpy`."""
    return tool("bridge.numpy_calls").call_of_ufunc(self, ufunc, method, *inputs, out=out, **kwargs)


def _array_function(
    self: Tensor,
    function: Callable[..., PyTree],
    types: tuple[type, ...],
    args: tuple[PyTree, ...],
    kwargs: dict[str, PyTree],
) -> PyTree:
    """NumPy's hook for its other functions: they convert Tensors; an error names the function of `fad.numpy`.

    Raises:
        TrackedValueError: the function was given a Tensor that requires grad or has a tangent.
        HostValueError: it is batched or being traced.
    """
    return tool("bridge.numpy_calls").call_of_function(function, types, args, kwargs)


# Attributes and methods of a Tensor that are those of its JAX array.
_OF_THE_VALUE = """addressable_shards committed global_shards is_fully_addressable
is_fully_replicated""".split()
_METHODS_OF_THE_VALUE = "addressable_data copy_to_host_async is_deleted is_ready".split()


def _attribute(name: str) -> property:
    def read(self: Tensor) -> Any:
        return getattr(unwrap(self), name)

    read.__name__ = name
    read.__doc__ = f"``jax.Array.{name}`` of the array with the value."
    return attribute(read)


def _method(name: str) -> Callable[..., PyTree]:
    def method(self: Tensor, *args: PyTree) -> PyTree:
        return getattr(unwrap(self), name)(*args)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"``jax.Array.{name}`` of the array with the value."
    return method


MEMBERS: dict[str, Any] = {
    "__array_function__": _array_function,
    "__array_namespace__": _array_namespace,
    "__array_ufunc__": _array_ufunc,
    "__dlpack__": _dlpack,
    "__dlpack_device__": _dlpack_device,
    "__torch_function__": classmethod(_torch_function),
    "to_device": _to_device,
    **{name: _attribute(name) for name in _OF_THE_VALUE},
    **{name: _method(name) for name in _METHODS_OF_THE_VALUE},
}
for _name, _member in MEMBERS.items():
    setattr(Tensor, _name, _member)
