"""Abstract values (shape, dtype, weak type), and Python scalars as cached arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from fad.core import jaxapi
from fad.core.caches import Table
from fad.core.jaxapi import shaped_array
from fad.core.types import Aval, Operand, Shape


class Count(int):
    """The number of elements of an array, ``x.size``; called, as PyTorch's ``x.size()``, its lengths.

    >>> n = Count(6)
    >>> n.shape = (2, 3)
    >>> n, n(), n(0)
    (6, (2, 3), 2)
    """

    shape: tuple[int, ...] = ()

    def __call__(self, dim: int | None = None) -> Shape | int:
        """The lengths of all dimensions, or that of one.

        Raises:
            IndexError: there is no such dimension.
        """
        if dim is None:
            return self.shape
        if not -len(self.shape) <= dim < len(self.shape):
            raise IndexError(f"size: dim {dim} is out of range for the shape {self.shape}")
        return self.shape[dim]

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


SCALARS: dict[type, type[np.generic]] = {
    bool: np.bool_,
    int: np.int32,
    Count: np.int32,
    float: np.float32,
    complex: np.complex64,
}

# The types of most values that are no Tensors: `isinstance` takes longer.
VALUES = frozenset([jaxapi.array_type, *SCALARS])

_constants = Table(4096)


def with_constants(values: Sequence[Operand]) -> list[Operand]:
    """The values, none of them tracers, with Python scalars replaced by cached, weakly typed arrays.

    To make an array of a number takes JAX microseconds.
    """
    return [constant(v) if type(v) in SCALARS else v for v in values]


def constant(x: Any) -> Any:
    """A cached, weakly typed array for a Python scalar.

    NaN, and a scalar that is not in the cache while JAX traces, is returned as it is.
    """
    # 0.0 and -0.0 are equal, and so are complex numbers with either in them.
    kind = type(x)
    key = kind, x if x and kind is not complex else str(x), jaxapi.x64_enabled()
    array = _constants.get(key)
    if array is None:
        if x != x or jaxapi.is_tracing():
            return x
        with np.errstate(over="ignore"):  # a number that is too large for 32 bits is infinite
            array = jax.device_put(x)
        array = _constants.put(key, array)
    return array


def aval_key(values: Sequence[Operand | Aval]) -> tuple[Hashable, ...]:
    """A hashable summary of the avals of ``values`` (arrays, Tensors, Python scalars)."""
    key: list[Any] = []
    scalars = False
    for v in values:
        if type(v) in SCALARS:
            key.append(type(v))
            scalars = True
        else:
            key.append(aval_of(v))
    if scalars:
        key.insert(0, jaxapi.x64_enabled())
    return tuple(key)


def aval_of(value: Operand | Aval) -> Any:
    """JAX's abstract value of an array, Tensor or Python scalar; itself, if it is one."""
    aval = getattr(value, "aval", None)
    if aval is None:
        return value if isinstance(value, shaped_array) else jax.typeof(value)
    return aval


def struct_of(aval: Aval) -> Aval:
    """``aval`` in the form that `jax.make_jaxpr` takes."""
    if isinstance(aval, shaped_array):
        return aval  # with its sharding, and the shard_map axes that it varies along
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
