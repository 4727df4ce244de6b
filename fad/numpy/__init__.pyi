"""The names of jax.numpy, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
import builtins
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    overload,
)

import jax
import numpy as np
from jax.numpy import ComplexWarning as ComplexWarning
from jax.numpy import finfo as finfo
from jax.numpy import iinfo as iinfo
from jax.numpy import ndarray as ndarray
from jax.numpy import ufunc as ufunc

from fad.arrays.annotations import (
    BinaryUfunc,
    DTypeLike,
    Indexer,
    IndexExpression,
    JaxValue,
    ListedValue,
    NumpyArray,
    PrecisionArgument,
    ScalarType,
    TensorValue,
    UnaryUfunc,
    Value,
)
from fad.core.tensor import Tensor
from fad.numpy import fft as fft
from fad.numpy import linalg as linalg

_ArrayT = TypeVar("_ArrayT")

class _UniqueAllResult(NamedTuple, Generic[_ArrayT]):
    values: _ArrayT
    indices: _ArrayT
    inverse_indices: _ArrayT
    counts: _ArrayT

class _UniqueCountsResult(NamedTuple, Generic[_ArrayT]):
    values: _ArrayT
    counts: _ArrayT

class _UniqueInverseResult(NamedTuple, Generic[_ArrayT]):
    values: _ArrayT
    inverse_indices: _ArrayT

@overload
def abs(x: TensorValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.absolute`."""

@overload
def abs(x: JaxValue, /) -> jax.Array: ...
@overload
def abs(x: ListedValue, /) -> Tensor: ...
@overload
def absolute(x: TensorValue, /) -> Tensor:
    """Calculate the absolute value element-wise."""

@overload
def absolute(x: JaxValue, /) -> jax.Array: ...
@overload
def absolute(x: ListedValue, /) -> Tensor: ...
@overload
def acos(x: TensorValue, /) -> Tensor: ...
@overload
def acos(x: JaxValue, /) -> jax.Array: ...
@overload
def acos(x: ListedValue, /) -> Tensor: ...
@overload
def acosh(x: TensorValue, /) -> Tensor: ...
@overload
def acosh(x: JaxValue, /) -> jax.Array: ...
@overload
def acosh(x: ListedValue, /) -> Tensor: ...

add: BinaryUfunc

@overload
def all(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor:
    """Test whether all array elements along a given axis evaluate to True."""

@overload
def all(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def all(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def all(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def all(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def all(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def all(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def all(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def all(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def all(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def all(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def all(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def allclose(
    a: TensorValue,
    b: ListedValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Check if two arrays are element-wise approximately equal within a tolerance."""

@overload
def allclose(
    a: ListedValue,
    b: TensorValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor: ...
@overload
def allclose(
    a: JaxValue,
    b: JaxValue,
    rtol: JaxValue = 1e-05,
    atol: JaxValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> jax.Array: ...
@overload
def allclose(
    a: ListedValue,
    b: ListedValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor: ...
@overload
def amax(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Alias of :func:`jax.numpy.max`."""

@overload
def amax(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def amax(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def amax(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def amax(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def amax(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def amax(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def amax(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def amax(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amax(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def amin(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Alias of :func:`jax.numpy.min`."""

@overload
def amin(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def amin(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def amin(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def amin(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def amin(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def amin(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def amin(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def amin(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def amin(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def angle(z: TensorValue, deg: builtins.bool = False) -> Tensor:
    """Return the angle of a complex valued number or array."""

@overload
def angle(z: JaxValue, deg: builtins.bool = False) -> jax.Array: ...
@overload
def angle(z: ListedValue, deg: builtins.bool = False) -> Tensor: ...
@overload
def any(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor:
    """Test whether any of the array elements along a given axis evaluate to True."""

@overload
def any(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def any(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def any(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def any(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def any(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def any(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def any(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def any(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def any(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def any(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def any(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def append(arr: TensorValue, values: ListedValue, axis: int | None = None) -> Tensor:
    """Return a new array with values appended to the end of the original array."""

@overload
def append(arr: ListedValue, values: TensorValue, axis: int | None = None) -> Tensor: ...
@overload
def append(arr: JaxValue, values: JaxValue, axis: int | None = None) -> jax.Array: ...
@overload
def append(arr: ListedValue, values: ListedValue, axis: int | None = None) -> Tensor: ...
@overload
def append(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def append(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: TensorValue, *args: ListedValue, **kwargs: Any
) -> Tensor:
    """Apply a function to 1D array slices along an axis."""

@overload
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: JaxValue, *args: JaxValue, **kwargs: Any
) -> jax.Array: ...
@overload
def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ListedValue, *args: ListedValue, **kwargs: Any
) -> Tensor: ...
@overload
def apply_along_axis(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def apply_along_axis(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def apply_over_axes(func: Callable[..., Any], a: TensorValue, axes: Sequence[int]) -> Tensor:
    """Apply a function repeatedly over specified axes."""

@overload
def apply_over_axes(func: Callable[..., Any], a: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def apply_over_axes(func: Callable[..., Any], a: ListedValue, axes: Sequence[int]) -> Tensor: ...
@overload
def apply_over_axes(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def apply_over_axes(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def arange(
    start: ListedValue,
    stop: ListedValue | None = None,
    step: ListedValue | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array of evenly-spaced values."""

@overload
def arccos(x: TensorValue, /) -> Tensor:
    """Compute element-wise inverse of trigonometric cosine of input."""

@overload
def arccos(x: JaxValue, /) -> jax.Array: ...
@overload
def arccos(x: ListedValue, /) -> Tensor: ...
@overload
def arccosh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise inverse of hyperbolic cosine of input."""

@overload
def arccosh(x: JaxValue, /) -> jax.Array: ...
@overload
def arccosh(x: ListedValue, /) -> Tensor: ...
@overload
def arcsin(x: TensorValue, /) -> Tensor:
    """Compute element-wise inverse of trigonometric sine of input."""

@overload
def arcsin(x: JaxValue, /) -> jax.Array: ...
@overload
def arcsin(x: ListedValue, /) -> Tensor: ...
@overload
def arcsinh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise inverse of hyperbolic sine of input."""

@overload
def arcsinh(x: JaxValue, /) -> jax.Array: ...
@overload
def arcsinh(x: ListedValue, /) -> Tensor: ...
@overload
def arctan(x: TensorValue, /) -> Tensor:
    """Compute element-wise inverse of trigonometric tangent of input."""

@overload
def arctan(x: JaxValue, /) -> jax.Array: ...
@overload
def arctan(x: ListedValue, /) -> Tensor: ...
@overload
def arctan2(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Compute the arctangent of x1/x2, choosing the correct quadrant."""

@overload
def arctan2(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def arctan2(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def arctan2(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def arctanh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise inverse of hyperbolic tangent of input."""

@overload
def arctanh(x: JaxValue, /) -> jax.Array: ...
@overload
def arctanh(x: ListedValue, /) -> Tensor: ...
@overload
def argmax(
    a: TensorValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor:
    """Return the index of the maximum value of an array."""

@overload
def argmax(
    a: JaxValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> jax.Array: ...
@overload
def argmax(
    a: ListedValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor: ...
@overload
def argmax(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmax(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argmax(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmax(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def argmax(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmax(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmax(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def argmin(
    a: TensorValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor:
    """Return the index of the minimum value of an array."""

@overload
def argmin(
    a: JaxValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> jax.Array: ...
@overload
def argmin(
    a: ListedValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor: ...
@overload
def argmin(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmin(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argmin(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmin(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def argmin(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmin(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmin(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def argpartition(a: TensorValue, kth: int, axis: int = -1) -> Tensor:
    """Returns indices that partially sort an array."""

@overload
def argpartition(a: JaxValue, kth: int, axis: int = -1) -> jax.Array: ...
@overload
def argpartition(a: ListedValue, kth: int, axis: int = -1) -> Tensor: ...
@overload
def argpartition(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argpartition(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argpartition(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argpartition(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argpartition(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argpartition(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def argsort(
    a: TensorValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Return indices that sort an array."""

@overload
def argsort(
    a: JaxValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
    dtype: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def argsort(
    a: ListedValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def argsort(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argsort(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argsort(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argsort(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argsort(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argsort(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def argwhere(
    a: TensorValue, *, size: int | None = None, fill_value: ListedValue | None = None
) -> Tensor: ...
@overload
def argwhere(
    a: JaxValue, *, size: int | None = None, fill_value: JaxValue | None = None
) -> jax.Array: ...
@overload
def argwhere(
    a: ListedValue, *, size: int | None = None, fill_value: ListedValue | None = None
) -> Tensor: ...
@overload
def around(a: TensorValue, decimals: int = 0) -> Tensor: ...
@overload
def around(a: JaxValue, decimals: int = 0) -> jax.Array: ...
@overload
def around(a: ListedValue, decimals: int = 0) -> Tensor: ...
def array(
    object: Any,
    dtype: DTypeLike | None = None,
    copy: builtins.bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Convert an object to a JAX array."""

@overload
def array_equal(a1: TensorValue, a2: ListedValue, equal_nan: builtins.bool = False) -> Tensor:
    """Check if two arrays are element-wise equal."""

@overload
def array_equal(a1: ListedValue, a2: TensorValue, equal_nan: builtins.bool = False) -> Tensor: ...
@overload
def array_equal(a1: JaxValue, a2: JaxValue, equal_nan: builtins.bool = False) -> jax.Array: ...
@overload
def array_equal(a1: ListedValue, a2: ListedValue, equal_nan: builtins.bool = False) -> Tensor: ...
@overload
def array_equiv(a1: TensorValue, a2: ListedValue) -> Tensor:
    """Check if two arrays are element-wise equal."""

@overload
def array_equiv(a1: ListedValue, a2: TensorValue) -> Tensor: ...
@overload
def array_equiv(a1: JaxValue, a2: JaxValue) -> jax.Array: ...
@overload
def array_equiv(a1: ListedValue, a2: ListedValue) -> Tensor: ...
def array_repr(
    arr: ListedValue, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None
) -> str:
    """Return the string representation of an array."""

@overload
def array_split(
    ary: TensorValue, indices_or_sections: ListedValue | Sequence[int], axis: int = 0
) -> list[Tensor]:
    """Split an array into sub-arrays."""

@overload
def array_split(
    ary: ListedValue, indices_or_sections: Sequence[int] | TensorValue, axis: int = 0
) -> list[Tensor]: ...
@overload
def array_split(
    ary: JaxValue, indices_or_sections: JaxValue | Sequence[int], axis: int = 0
) -> list[jax.Array]: ...
@overload
def array_split(
    ary: ListedValue, indices_or_sections: ListedValue | Sequence[int], axis: int = 0
) -> list[Tensor]: ...
@overload
def array_split(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def array_split(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def array_str(
    a: ListedValue, max_line_width: Any = None, precision: Any = None, suppress_small: Any = None
) -> str:
    """Return a string representation of the data in an array."""

def asarray(
    a: Any,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: builtins.bool | None = None,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Convert an object to a JAX array."""

@overload
def asin(x: TensorValue, /) -> Tensor: ...
@overload
def asin(x: JaxValue, /) -> jax.Array: ...
@overload
def asin(x: ListedValue, /) -> Tensor: ...
@overload
def asinh(x: TensorValue, /) -> Tensor: ...
@overload
def asinh(x: JaxValue, /) -> jax.Array: ...
@overload
def asinh(x: ListedValue, /) -> Tensor: ...
@overload
def astype(
    a: TensorValue, dtype: DTypeLike | None, /, *, copy: builtins.bool = False, device: Any = None
) -> Tensor:
    """Convert an array to a specified dtype."""

@overload
def astype(
    a: JaxValue, dtype: DTypeLike | None, /, *, copy: builtins.bool = False, device: Any = None
) -> jax.Array: ...
@overload
def astype(
    a: ListedValue, dtype: DTypeLike | None, /, *, copy: builtins.bool = False, device: Any = None
) -> Tensor: ...
@overload
def atan(x: TensorValue, /) -> Tensor: ...
@overload
def atan(x: JaxValue, /) -> jax.Array: ...
@overload
def atan(x: ListedValue, /) -> Tensor: ...
@overload
def atan2(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def atan2(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def atan2(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def atan2(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def atanh(x: TensorValue, /) -> Tensor: ...
@overload
def atanh(x: JaxValue, /) -> jax.Array: ...
@overload
def atanh(x: ListedValue, /) -> Tensor: ...
@overload
def atleast_1d() -> list[jax.Array]:
    """Convert inputs to arrays with at least 1 dimension."""

@overload
def atleast_1d(x: TensorValue, /) -> Tensor: ...
@overload
def atleast_1d(x: JaxValue, /) -> jax.Array: ...
@overload
def atleast_1d(x: ListedValue, /) -> Tensor: ...
@overload
def atleast_1d(x: TensorValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_1d(x: ListedValue, y: TensorValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_1d(x: JaxValue, y: JaxValue, /, *arys: JaxValue) -> list[jax.Array]: ...
@overload
def atleast_1d(x: ListedValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_2d() -> list[jax.Array]:
    """Convert inputs to arrays with at least 2 dimensions."""

@overload
def atleast_2d(x: TensorValue, /) -> Tensor: ...
@overload
def atleast_2d(x: JaxValue, /) -> jax.Array: ...
@overload
def atleast_2d(x: ListedValue, /) -> Tensor: ...
@overload
def atleast_2d(x: TensorValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_2d(x: ListedValue, y: TensorValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_2d(x: JaxValue, y: JaxValue, /, *arys: JaxValue) -> list[jax.Array]: ...
@overload
def atleast_2d(x: ListedValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_3d() -> list[jax.Array]:
    """Convert inputs to arrays with at least 3 dimensions."""

@overload
def atleast_3d(x: TensorValue, /) -> Tensor: ...
@overload
def atleast_3d(x: JaxValue, /) -> jax.Array: ...
@overload
def atleast_3d(x: ListedValue, /) -> Tensor: ...
@overload
def atleast_3d(x: TensorValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_3d(x: ListedValue, y: TensorValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def atleast_3d(x: JaxValue, y: JaxValue, /, *arys: JaxValue) -> list[jax.Array]: ...
@overload
def atleast_3d(x: ListedValue, y: ListedValue, /, *arys: ListedValue) -> list[Tensor]: ...
@overload
def average(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    returned: Literal[False] = False,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Compute the weighed average."""

@overload
def average(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    weights: JaxValue | None = None,
    returned: Literal[False] = False,
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def average(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    returned: Literal[False] = False,
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def average(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def average(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def average(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def average(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    *,
    returned: Literal[True],
    keepdims: builtins.bool = False,
) -> tuple[Tensor, Tensor]: ...
@overload
def average(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    weights: JaxValue | None = None,
    *,
    returned: Literal[True],
    keepdims: builtins.bool = False,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def average(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    *,
    returned: Literal[True],
    keepdims: builtins.bool = False,
) -> tuple[Tensor, Tensor]: ...
@overload
def average(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    returned: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def average(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    weights: JaxValue | None = None,
    returned: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def average(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    weights: ListedValue | None = None,
    returned: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor | tuple[Tensor, Tensor]: ...
def bartlett(M: int) -> Tensor:
    """Return a Bartlett window of size M."""

bfloat16: ScalarType

@overload
def bincount(
    x: TensorValue,
    weights: ListedValue | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Count the number of occurrences of each value in an integer array."""

@overload
def bincount(
    x: JaxValue,
    weights: JaxValue | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def bincount(
    x: ListedValue,
    weights: ListedValue | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...

bitwise_and: BinaryUfunc

@overload
def bitwise_count(x: TensorValue, /) -> Tensor: ...
@overload
def bitwise_count(x: JaxValue, /) -> jax.Array: ...
@overload
def bitwise_count(x: ListedValue, /) -> Tensor: ...
@overload
def bitwise_invert(x: TensorValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.invert`."""

@overload
def bitwise_invert(x: JaxValue, /) -> jax.Array: ...
@overload
def bitwise_invert(x: ListedValue, /) -> Tensor: ...
@overload
def bitwise_left_shift(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.left_shift`."""

@overload
def bitwise_left_shift(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def bitwise_left_shift(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def bitwise_left_shift(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def bitwise_not(x: TensorValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.invert`."""

@overload
def bitwise_not(x: JaxValue, /) -> jax.Array: ...
@overload
def bitwise_not(x: ListedValue, /) -> Tensor: ...

bitwise_or: BinaryUfunc

@overload
def bitwise_right_shift(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.right_shift`."""

@overload
def bitwise_right_shift(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def bitwise_right_shift(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def bitwise_right_shift(x: ListedValue, y: ListedValue, /) -> Tensor: ...

bitwise_xor: BinaryUfunc

def blackman(M: int) -> Tensor:
    """Return a Blackman window of size M."""

@overload
def block(arrays: TensorValue | Sequence[TensorValue] | Sequence[Sequence[TensorValue]]) -> Tensor:
    """Create an array from a list of blocks."""

@overload
def block(arrays: JaxValue | Sequence[JaxValue] | Sequence[Sequence[JaxValue]]) -> jax.Array: ...
@overload
def block(
    arrays: ListedValue | Sequence[ListedValue] | Sequence[Sequence[ListedValue]],
) -> Tensor: ...

bool: ScalarType
bool_: ScalarType

@overload
def broadcast_arrays(*args: JaxValue) -> list[jax.Array]:
    """Broadcast arrays to a common shape."""

@overload
def broadcast_arrays(*args: ListedValue) -> list[Tensor]: ...
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]: ...
@overload
def broadcast_to(
    array: TensorValue,
    shape: int | Sequence[int],
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Broadcast an array to a specified shape."""

@overload
def broadcast_to(
    array: JaxValue,
    shape: int | Sequence[int],
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def broadcast_to(
    array: ListedValue,
    shape: int | Sequence[int],
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...

c_: Indexer

def can_cast(from_: ListedValue, to: Any, casting: Any = "safe") -> builtins.bool: ...
@overload
def cbrt(x: TensorValue, /) -> Tensor:
    """Calculates element-wise cube root of the input array."""

@overload
def cbrt(x: JaxValue, /) -> jax.Array: ...
@overload
def cbrt(x: ListedValue, /) -> Tensor: ...

cdouble: ScalarType

@overload
def ceil(x: TensorValue, /) -> Tensor:
    """Round input to the nearest integer upwards."""

@overload
def ceil(x: JaxValue, /) -> jax.Array: ...
@overload
def ceil(x: ListedValue, /) -> Tensor: ...

character = np.character

@overload
def choose(
    a: TensorValue, choices: ListedValue | Sequence[ListedValue], mode: str = "raise"
) -> Tensor:
    """Construct an array by stacking slices of choice arrays."""

@overload
def choose(
    a: ListedValue, choices: Tensor | NumpyArray | Sequence[TensorValue], mode: str = "raise"
) -> Tensor: ...
@overload
def choose(
    a: JaxValue, choices: jax.Array | Sequence[JaxValue], mode: str = "raise"
) -> jax.Array: ...
@overload
def choose(
    a: ListedValue, choices: ListedValue | Sequence[ListedValue], mode: str = "raise"
) -> Tensor: ...
@overload
def clip(
    x: JaxValue | None = ..., /, min: JaxValue | None = None, max: JaxValue | None = None
) -> jax.Array:
    """Clip array values to a specified range."""

@overload
def clip(
    x: ListedValue | None = ..., /, min: ListedValue | None = None, max: ListedValue | None = None
) -> Tensor: ...
@overload
def column_stack(tup: NumpyArray | Tensor | Sequence[TensorValue]) -> Tensor:
    """Stack arrays column-wise."""

@overload
def column_stack(tup: jax.Array | Sequence[JaxValue]) -> jax.Array: ...
@overload
def column_stack(tup: ListedValue | Sequence[ListedValue]) -> Tensor: ...

complex128: ScalarType
complex64: ScalarType
complex_: ScalarType
complexfloating = np.complexfloating

@overload
def compress(
    condition: TensorValue,
    a: ListedValue,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor:
    """Compress an array along a given axis using a boolean condition."""

@overload
def compress(
    condition: ListedValue,
    a: TensorValue,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor: ...
@overload
def compress(
    condition: JaxValue,
    a: JaxValue,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: JaxValue = 0,
) -> jax.Array: ...
@overload
def compress(
    condition: ListedValue,
    a: ListedValue,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor: ...
@overload
def compress(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def compress(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def concat(arrays: Sequence[TensorValue], /, *, axis: int | None = 0) -> Tensor:
    """Join arrays along an existing axis."""

@overload
def concat(arrays: Sequence[JaxValue], /, *, axis: int | None = 0) -> jax.Array: ...
@overload
def concat(arrays: Sequence[ListedValue], /, *, axis: int | None = 0) -> Tensor: ...
@overload
def concat(arrays: Sequence[TensorValue], *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def concat(arrays: Sequence[JaxValue], *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def concat(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def concat(arrays: Sequence[TensorValue], *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def concat(arrays: Sequence[JaxValue], *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def concat(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def concatenate(
    arrays: NumpyArray | Tensor | Sequence[TensorValue],
    axis: int | None = 0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Join arrays along an existing axis."""

@overload
def concatenate(
    arrays: jax.Array | Sequence[JaxValue], axis: int | None = 0, dtype: DTypeLike | None = None
) -> jax.Array: ...
@overload
def concatenate(
    arrays: ListedValue | Sequence[ListedValue],
    axis: int | None = 0,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def concatenate(
    arrays: NumpyArray | Tensor | Sequence[TensorValue], *args: Any, dim: Any, **kwargs: Any
) -> Tensor: ...
@overload
def concatenate(
    arrays: jax.Array | Sequence[JaxValue], *args: Any, dim: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def concatenate(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def concatenate(
    arrays: NumpyArray | Tensor | Sequence[TensorValue], *args: Any, dims: Any, **kwargs: Any
) -> Tensor: ...
@overload
def concatenate(
    arrays: jax.Array | Sequence[JaxValue], *args: Any, dims: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def concatenate(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def conj(x: TensorValue, /) -> Tensor: ...
@overload
def conj(x: JaxValue, /) -> jax.Array: ...
@overload
def conj(x: ListedValue, /) -> Tensor: ...
@overload
def conjugate(x: TensorValue, /) -> Tensor:
    """Return element-wise complex-conjugate of the input."""

@overload
def conjugate(x: JaxValue, /) -> jax.Array: ...
@overload
def conjugate(x: ListedValue, /) -> Tensor: ...
@overload
def convolve(
    a: TensorValue,
    v: ListedValue,
    mode: str = "full",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Convolution of two one dimensional arrays."""

@overload
def convolve(
    a: ListedValue,
    v: TensorValue,
    mode: str = "full",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def convolve(
    a: JaxValue,
    v: JaxValue,
    mode: str = "full",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def convolve(
    a: ListedValue,
    v: ListedValue,
    mode: str = "full",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def copy(a: TensorValue, order: str | None = None) -> Tensor:
    """Return a copy of the array."""

@overload
def copy(a: JaxValue, order: str | None = None) -> jax.Array: ...
@overload
def copy(a: ListedValue, order: str | None = None) -> Tensor: ...
@overload
def copysign(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Copies the sign of each element in ``x2`` to the corresponding element in ``x1``."""

@overload
def copysign(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def copysign(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def copysign(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def corrcoef(
    x: TensorValue,
    y: ListedValue | None = None,
    rowvar: builtins.bool = True,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Compute the Pearson correlation coefficients."""

@overload
def corrcoef(
    x: JaxValue,
    y: JaxValue | None = None,
    rowvar: builtins.bool = True,
    dtype: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def corrcoef(
    x: ListedValue,
    y: ListedValue | None = None,
    rowvar: builtins.bool = True,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def correlate(
    a: TensorValue,
    v: ListedValue,
    mode: str = "valid",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Correlation of two one dimensional arrays."""

@overload
def correlate(
    a: ListedValue,
    v: TensorValue,
    mode: str = "valid",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def correlate(
    a: JaxValue,
    v: JaxValue,
    mode: str = "valid",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def correlate(
    a: ListedValue,
    v: ListedValue,
    mode: str = "valid",
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def cos(x: TensorValue, /) -> Tensor:
    """Compute a trigonometric cosine of each element of input."""

@overload
def cos(x: JaxValue, /) -> jax.Array: ...
@overload
def cos(x: ListedValue, /) -> Tensor: ...
@overload
def cosh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise hyperbolic cosine of input."""

@overload
def cosh(x: JaxValue, /) -> jax.Array: ...
@overload
def cosh(x: ListedValue, /) -> Tensor: ...
@overload
def count_nonzero(
    a: TensorValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """Return the number of nonzero elements along a given axis."""

@overload
def count_nonzero(
    a: JaxValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> jax.Array: ...
@overload
def count_nonzero(
    a: ListedValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> Tensor: ...
@overload
def count_nonzero(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def count_nonzero(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def count_nonzero(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def count_nonzero(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def count_nonzero(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def count_nonzero(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def count_nonzero(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def count_nonzero(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def count_nonzero(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def cov(
    m: TensorValue,
    y: ListedValue | None = None,
    rowvar: builtins.bool = True,
    bias: builtins.bool = False,
    ddof: int | None = None,
    fweights: ListedValue | None = None,
    aweights: ListedValue | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Estimate the weighted sample covariance."""

@overload
def cov(
    m: JaxValue,
    y: JaxValue | None = None,
    rowvar: builtins.bool = True,
    bias: builtins.bool = False,
    ddof: int | None = None,
    fweights: JaxValue | None = None,
    aweights: JaxValue | None = None,
    dtype: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def cov(
    m: ListedValue,
    y: ListedValue | None = None,
    rowvar: builtins.bool = True,
    bias: builtins.bool = False,
    ddof: int | None = None,
    fweights: ListedValue | None = None,
    aweights: ListedValue | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def cross(
    a: TensorValue,
    b: ListedValue,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tensor:
    """Compute the (batched) cross product of two arrays."""

@overload
def cross(
    a: ListedValue,
    b: TensorValue,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tensor: ...
@overload
def cross(
    a: JaxValue,
    b: JaxValue,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> jax.Array: ...
@overload
def cross(
    a: ListedValue,
    b: ListedValue,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tensor: ...
@overload
def cross(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cross(*args: Any, dims: Any, **kwargs: Any) -> Any: ...

csingle: ScalarType

@overload
def cumprod(a: TensorValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative product of elements along an axis."""

@overload
def cumprod(a: JaxValue, axis: int | None = None, dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def cumprod(a: ListedValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def cumprod(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumprod(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumprod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumprod(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumprod(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumprod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cumsum(a: TensorValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative sum of elements along an axis."""

@overload
def cumsum(a: JaxValue, axis: int | None = None, dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def cumsum(a: ListedValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def cumsum(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumsum(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumsum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumsum(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumsum(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumsum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cumulative_prod(
    x: TensorValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Cumulative product along the axis of an array."""

@overload
def cumulative_prod(
    x: JaxValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> jax.Array: ...
@overload
def cumulative_prod(
    x: ListedValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor: ...
@overload
def cumulative_prod(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumulative_prod(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumulative_prod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumulative_prod(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumulative_prod(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumulative_prod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cumulative_sum(
    x: TensorValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor:
    """Cumulative sum along the axis of an array."""

@overload
def cumulative_sum(
    x: JaxValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> jax.Array: ...
@overload
def cumulative_sum(
    x: ListedValue,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> Tensor: ...
@overload
def cumulative_sum(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumulative_sum(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumulative_sum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumulative_sum(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumulative_sum(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumulative_sum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def deg2rad(x: TensorValue, /) -> Tensor:
    """Convert angles from degrees to radians."""

@overload
def deg2rad(x: JaxValue, /) -> jax.Array: ...
@overload
def deg2rad(x: ListedValue, /) -> Tensor: ...
@overload
def degrees(x: TensorValue, /) -> Tensor: ...
@overload
def degrees(x: JaxValue, /) -> jax.Array: ...
@overload
def degrees(x: ListedValue, /) -> Tensor: ...
@overload
def delete(
    arr: TensorValue,
    obj: ListedValue | slice,
    axis: int | None = None,
    *,
    assume_unique_indices: builtins.bool = False,
) -> Tensor:
    """Delete entry or entries from an array."""

@overload
def delete(
    arr: ListedValue,
    obj: TensorValue | slice,
    axis: int | None = None,
    *,
    assume_unique_indices: builtins.bool = False,
) -> Tensor: ...
@overload
def delete(
    arr: JaxValue,
    obj: JaxValue | slice,
    axis: int | None = None,
    *,
    assume_unique_indices: builtins.bool = False,
) -> jax.Array: ...
@overload
def delete(
    arr: ListedValue,
    obj: ListedValue | slice,
    axis: int | None = None,
    *,
    assume_unique_indices: builtins.bool = False,
) -> Tensor: ...
@overload
def delete(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def delete(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def diag(v: TensorValue, k: int = 0) -> Tensor:
    """Returns the specified diagonal or constructs a diagonal array."""

@overload
def diag(v: JaxValue, k: int = 0) -> jax.Array: ...
@overload
def diag(v: ListedValue, k: int = 0) -> Tensor: ...
@overload
def diag(v: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def diag(v: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diag(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Return indices for accessing the main diagonal of a multidimensional array."""

def diag_indices_from(arr: ListedValue) -> tuple[Tensor, ...]:
    """Return indices for accessing the main diagonal of a given array."""

@overload
def diagflat(v: TensorValue, k: int = 0) -> Tensor:
    """Return a 2-D array with the flattened input array laid out on the diagonal."""

@overload
def diagflat(v: JaxValue, k: int = 0) -> jax.Array: ...
@overload
def diagflat(v: ListedValue, k: int = 0) -> Tensor: ...
@overload
def diagflat(v: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def diagflat(v: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diagflat(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def diagonal(a: TensorValue, offset: ListedValue = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Returns the specified diagonal of an array."""

@overload
def diagonal(a: JaxValue, offset: JaxValue = 0, axis1: int = 0, axis2: int = 1) -> jax.Array: ...
@overload
def diagonal(a: ListedValue, offset: ListedValue = 0, axis1: int = 0, axis2: int = 1) -> Tensor: ...
@overload
def diagonal(a: TensorValue, *args: Any, dim1: Any, **kwargs: Any) -> Tensor: ...
@overload
def diagonal(a: JaxValue, *args: Any, dim1: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diagonal(*args: Any, dim1: Any, **kwargs: Any) -> Any: ...
@overload
def diagonal(a: TensorValue, *args: Any, dim2: Any, **kwargs: Any) -> Tensor: ...
@overload
def diagonal(a: JaxValue, *args: Any, dim2: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diagonal(*args: Any, dim2: Any, **kwargs: Any) -> Any: ...
@overload
def diff(
    a: TensorValue,
    n: int = 1,
    axis: int = -1,
    prepend: ListedValue | None = None,
    append: ListedValue | None = None,
) -> Tensor:
    """Calculate n-th order difference between array elements along a given axis."""

@overload
def diff(
    a: JaxValue,
    n: int = 1,
    axis: int = -1,
    prepend: JaxValue | None = None,
    append: JaxValue | None = None,
) -> jax.Array: ...
@overload
def diff(
    a: ListedValue,
    n: int = 1,
    axis: int = -1,
    prepend: ListedValue | None = None,
    append: ListedValue | None = None,
) -> Tensor: ...
@overload
def diff(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def diff(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diff(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def diff(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def diff(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def diff(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def digitize(
    x: TensorValue, bins: ListedValue, right: builtins.bool = False, *, method: str | None = None
) -> Tensor:
    """Convert an array to bin indices."""

@overload
def digitize(
    x: ListedValue, bins: TensorValue, right: builtins.bool = False, *, method: str | None = None
) -> Tensor: ...
@overload
def digitize(
    x: JaxValue, bins: JaxValue, right: builtins.bool = False, *, method: str | None = None
) -> jax.Array: ...
@overload
def digitize(
    x: ListedValue, bins: ListedValue, right: builtins.bool = False, *, method: str | None = None
) -> Tensor: ...
@overload
def divide(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Alias of :func:`jax.numpy.true_divide`."""

@overload
def divide(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def divide(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def divide(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def divmod(x: TensorValue, y: ListedValue, /) -> tuple[Tensor, Tensor]: ...
@overload
def divmod(x: ListedValue, y: TensorValue, /) -> tuple[Tensor, Tensor]: ...
@overload
def divmod(x: JaxValue, y: JaxValue, /) -> tuple[jax.Array, jax.Array]: ...
@overload
def divmod(x: ListedValue, y: ListedValue, /) -> tuple[Tensor, Tensor]: ...
@overload
def dot(
    a: TensorValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Compute the dot product of two arrays."""

@overload
def dot(
    a: ListedValue,
    b: TensorValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def dot(
    a: JaxValue,
    b: JaxValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def dot(
    a: ListedValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...

double: ScalarType

@overload
def dsplit(ary: TensorValue, indices_or_sections: ListedValue) -> list[Tensor]:
    """Split an array into sub-arrays depth-wise."""

@overload
def dsplit(ary: ListedValue, indices_or_sections: TensorValue) -> list[Tensor]: ...
@overload
def dsplit(ary: JaxValue, indices_or_sections: JaxValue) -> list[jax.Array]: ...
@overload
def dsplit(ary: ListedValue, indices_or_sections: ListedValue) -> list[Tensor]: ...
@overload
def dstack(
    tup: NumpyArray | Tensor | Sequence[TensorValue], dtype: DTypeLike | None = None
) -> Tensor:
    """Stack arrays depth-wise."""

@overload
def dstack(tup: jax.Array | Sequence[JaxValue], dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def dstack(tup: ListedValue | Sequence[ListedValue], dtype: DTypeLike | None = None) -> Tensor: ...

dtype = np.dtype
e: float

@overload
def ediff1d(
    ary: TensorValue, to_end: ListedValue | None = None, to_begin: ListedValue | None = None
) -> Tensor:
    """Compute the differences of the elements of the flattened array."""

@overload
def ediff1d(
    ary: JaxValue, to_end: JaxValue | None = None, to_begin: JaxValue | None = None
) -> jax.Array: ...
@overload
def ediff1d(
    ary: ListedValue, to_end: ListedValue | None = None, to_begin: ListedValue | None = None
) -> Tensor: ...
@overload
def einsum(
    subscript: str,
    /,
    *operands: JaxValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def einsum(
    subscript: str,
    /,
    *operands: ListedValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def einsum(
    arr: TensorValue,
    axes: Sequence[Any],
    /,
    *operands: ListedValue | Sequence[Any],
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def einsum(
    arr: JaxValue,
    axes: Sequence[Any],
    /,
    *operands: JaxValue | Sequence[Any],
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def einsum(
    arr: ListedValue,
    axes: Sequence[Any],
    /,
    *operands: ListedValue | Sequence[Any],
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def einsum(
    subscripts: TensorValue,
    /,
    *operands: ListedValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def einsum(
    subscripts: JaxValue,
    /,
    *operands: JaxValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def einsum(
    subscripts: ListedValue,
    /,
    *operands: ListedValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = ...,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def einsum_path(
    subscripts: str,
    /,
    *operands: ListedValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
) -> tuple[list[tuple[int, ...]], Any]:
    """Evaluates the optimal contraction path without evaluating the einsum."""

@overload
def einsum_path(
    arr: ListedValue,
    axes: Sequence[Any],
    /,
    *operands: ListedValue | Sequence[Any],
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
) -> tuple[list[tuple[int, ...]], Any]: ...
@overload
def einsum_path(
    subscripts: ListedValue,
    /,
    *operands: ListedValue,
    optimize: str | builtins.bool | Sequence[tuple[int, ...]] = "auto",
) -> tuple[list[tuple[int, ...]], Any]: ...
def empty(
    shape: Any,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an empty array."""

def empty_like(
    prototype: ListedValue, dtype: DTypeLike | None = None, shape: Any = None, *, device: Any = None
) -> Tensor:
    """Create an empty array with the same shape and dtype as an array."""

@overload
def equal(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Returns element-wise truth value of ``x == y``."""

@overload
def equal(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def equal(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def equal(x: ListedValue, y: ListedValue, /) -> Tensor: ...

euler_gamma: float

@overload
def exp(x: TensorValue, /) -> Tensor:
    """Calculate element-wise exponential of the input."""

@overload
def exp(x: JaxValue, /) -> jax.Array: ...
@overload
def exp(x: ListedValue, /) -> Tensor: ...
@overload
def exp2(x: TensorValue, /) -> Tensor:
    """Calculate element-wise base-2 exponential of input."""

@overload
def exp2(x: JaxValue, /) -> jax.Array: ...
@overload
def exp2(x: ListedValue, /) -> Tensor: ...
@overload
def expand_dims(a: TensorValue, axis: int | Sequence[int]) -> Tensor: ...
@overload
def expand_dims(a: JaxValue, axis: int | Sequence[int]) -> jax.Array: ...
@overload
def expand_dims(a: ListedValue, axis: int | Sequence[int]) -> Tensor: ...
@overload
def expand_dims(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def expand_dims(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def expand_dims(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def expand_dims(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def expand_dims(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def expand_dims(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def expm1(x: TensorValue, /) -> Tensor:
    """Calculate ``exp(x)-1`` of each element of the input."""

@overload
def expm1(x: JaxValue, /) -> jax.Array: ...
@overload
def expm1(x: ListedValue, /) -> Tensor: ...
@overload
def extract(
    condition: TensorValue,
    arr: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor:
    """Return the elements of an array that satisfy a condition."""

@overload
def extract(
    condition: ListedValue,
    arr: TensorValue,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor: ...
@overload
def extract(
    condition: JaxValue, arr: JaxValue, *, size: int | None = None, fill_value: JaxValue = 0
) -> jax.Array: ...
@overload
def extract(
    condition: ListedValue,
    arr: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue = 0,
) -> Tensor: ...
@overload
def eye(
    N: int,
    M: int | None = None,
    k: ListedValue = 0,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
) -> Tensor: ...
@overload
def eye(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def fabs(x: TensorValue, /) -> Tensor:
    """Compute the element-wise absolute values of the real-valued input."""

@overload
def fabs(x: JaxValue, /) -> jax.Array: ...
@overload
def fabs(x: ListedValue, /) -> Tensor: ...
@overload
def fill_diagonal(
    a: TensorValue, val: ListedValue, wrap: builtins.bool = False, *, inplace: builtins.bool = True
) -> Tensor:
    """Return a copy of the array with the diagonal overwritten."""

@overload
def fill_diagonal(
    a: ListedValue, val: TensorValue, wrap: builtins.bool = False, *, inplace: builtins.bool = True
) -> Tensor: ...
@overload
def fill_diagonal(
    a: JaxValue, val: JaxValue, wrap: builtins.bool = False, *, inplace: builtins.bool = True
) -> jax.Array: ...
@overload
def fill_diagonal(
    a: ListedValue, val: ListedValue, wrap: builtins.bool = False, *, inplace: builtins.bool = True
) -> Tensor: ...
@overload
def flatnonzero(
    a: TensorValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue] | None = None,
) -> Tensor: ...
@overload
def flatnonzero(
    a: JaxValue, *, size: int | None = None, fill_value: JaxValue | tuple[JaxValue] | None = None
) -> jax.Array: ...
@overload
def flatnonzero(
    a: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue] | None = None,
) -> Tensor: ...

flexible = np.flexible

@overload
def flip(m: TensorValue, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order of elements of an array along the given axis."""

@overload
def flip(m: JaxValue, axis: int | Sequence[int] | None = None) -> jax.Array: ...
@overload
def flip(m: ListedValue, axis: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def flip(m: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def flip(m: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def flip(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def flip(m: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def flip(m: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def flip(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def fliplr(m: TensorValue) -> Tensor:
    """Reverse the order of elements of an array along axis 1."""

@overload
def fliplr(m: JaxValue) -> jax.Array: ...
@overload
def fliplr(m: ListedValue) -> Tensor: ...
@overload
def flipud(m: TensorValue) -> Tensor:
    """Reverse the order of elements of an array along axis 0."""

@overload
def flipud(m: JaxValue) -> jax.Array: ...
@overload
def flipud(m: ListedValue) -> Tensor: ...

float16: ScalarType
float32: ScalarType
float4_e2m1fn: ScalarType
float64: ScalarType
float6_e2m3fn: ScalarType
float6_e3m2fn: ScalarType
float8_e3m4: ScalarType
float8_e4m3: ScalarType
float8_e4m3b11fnuz: ScalarType
float8_e4m3fn: ScalarType
float8_e4m3fnuz: ScalarType
float8_e5m2: ScalarType
float8_e5m2fnuz: ScalarType
float8_e8m0fnu: ScalarType
float_: ScalarType

@overload
def float_power(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Calculate element-wise base ``x`` exponential of ``y``."""

@overload
def float_power(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def float_power(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def float_power(x: ListedValue, y: ListedValue, /) -> Tensor: ...

floating = np.floating

@overload
def floor(x: TensorValue, /) -> Tensor:
    """Round input to the nearest integer downwards."""

@overload
def floor(x: JaxValue, /) -> jax.Array: ...
@overload
def floor(x: ListedValue, /) -> Tensor: ...
@overload
def floor_divide(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def floor_divide(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def floor_divide(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def floor_divide(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def fmax(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise maximum of the input arrays."""

@overload
def fmax(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def fmax(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def fmax(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def fmin(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise minimum of the input arrays."""

@overload
def fmin(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def fmin(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def fmin(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def fmod(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Calculate element-wise floating-point modulo operation."""

@overload
def fmod(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def fmod(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def fmod(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def frexp(x: TensorValue, /) -> tuple[Tensor, Tensor]:
    """Split floating point values into mantissa and twos exponent."""

@overload
def frexp(x: JaxValue, /) -> tuple[jax.Array, jax.Array]: ...
@overload
def frexp(x: ListedValue, /) -> tuple[Tensor, Tensor]: ...
def from_dlpack(x: Any, /, *, device: Any = None, copy: builtins.bool | None = None) -> Tensor:
    """Construct a JAX array via DLPack."""

def frombuffer(buffer: Any, dtype: DTypeLike = ..., count: int = -1, offset: int = 0) -> Tensor:
    """Convert a buffer into a 1-D JAX array."""

def fromfile(*args: ListedValue, **kwargs: Any) -> Tensor:
    """Unimplemented JAX wrapper for jnp.fromfile."""

def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: DTypeLike = ..., **kwargs: Any
) -> Tensor:
    """Create an array from a function applied over indices."""

def fromiter(*args: ListedValue, **kwargs: Any) -> Tensor:
    """Unimplemented JAX wrapper for jnp.fromiter."""

def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> Callable[..., Any]: ...
def fromstring(string: str, dtype: DTypeLike = ..., count: int = -1, *, sep: str) -> Tensor:
    """Convert a string of text into 1-D JAX array."""

def full(
    shape: Any,
    fill_value: ListedValue,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array full of a specified value."""

def full_like(
    a: ListedValue,
    fill_value: ListedValue,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array full of a specified value with the same shape and dtype as an array."""

@overload
def gcd(x1: TensorValue, x2: ListedValue) -> Tensor:
    """Compute the greatest common divisor of two arrays."""

@overload
def gcd(x1: ListedValue, x2: TensorValue) -> Tensor: ...
@overload
def gcd(x1: JaxValue, x2: JaxValue) -> jax.Array: ...
@overload
def gcd(x1: ListedValue, x2: ListedValue) -> Tensor: ...

generic = np.generic

@overload
def geomspace(
    start: ListedValue,
    stop: ListedValue,
    num: int = 50,
    endpoint: builtins.bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """Generate geometrically-spaced values."""

@overload
def geomspace(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def geomspace(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def get_printoptions() -> dict[str, Any]: ...
@overload
def gradient(
    f: TensorValue,
    *varargs: ListedValue,
    axis: int | Sequence[int] | None = None,
    edge_order: int | None = None,
) -> Tensor | list[Tensor]:
    """Compute the numerical gradient of a sampled function."""

@overload
def gradient(
    f: JaxValue,
    *varargs: JaxValue,
    axis: int | Sequence[int] | None = None,
    edge_order: int | None = None,
) -> jax.Array | list[jax.Array]: ...
@overload
def gradient(
    f: ListedValue,
    *varargs: ListedValue,
    axis: int | Sequence[int] | None = None,
    edge_order: int | None = None,
) -> Tensor | list[Tensor]: ...
@overload
def gradient(f: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor | list[Tensor]: ...
@overload
def gradient(f: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array | list[jax.Array]: ...
@overload
def gradient(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def gradient(f: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor | list[Tensor]: ...
@overload
def gradient(f: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array | list[jax.Array]: ...
@overload
def gradient(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def greater(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise truth value of ``x > y``."""

@overload
def greater(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def greater(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def greater(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def greater_equal(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise truth value of ``x >= y``."""

@overload
def greater_equal(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def greater_equal(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def greater_equal(x: ListedValue, y: ListedValue, /) -> Tensor: ...
def hamming(M: int) -> Tensor:
    """Return a Hamming window of size M."""

def hanning(M: int) -> Tensor:
    """Return a Hanning window of size M."""

@overload
def heaviside(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Compute the heaviside step function."""

@overload
def heaviside(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def heaviside(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def heaviside(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def histogram(
    a: TensorValue,
    bins: ListedValue = 10,
    range: Sequence[ListedValue] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute a 1-dimensional histogram."""

@overload
def histogram(
    a: JaxValue,
    bins: JaxValue = 10,
    range: Sequence[JaxValue] | None = None,
    weights: JaxValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def histogram(
    a: ListedValue,
    bins: ListedValue = 10,
    range: Sequence[ListedValue] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def histogram2d(
    x: TensorValue,
    y: ListedValue,
    bins: ListedValue | Sequence[ListedValue] = 10,
    range: Sequence[ListedValue | Sequence[ListedValue] | None] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a 2-dimensional histogram."""

@overload
def histogram2d(
    x: ListedValue,
    y: TensorValue,
    bins: ListedValue | Sequence[ListedValue] = 10,
    range: Sequence[ListedValue | Sequence[ListedValue] | None] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def histogram2d(
    x: JaxValue,
    y: JaxValue,
    bins: JaxValue | Sequence[JaxValue] = 10,
    range: Sequence[jax.Array | Sequence[JaxValue] | None] | None = None,
    weights: JaxValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def histogram2d(
    x: ListedValue,
    y: ListedValue,
    bins: ListedValue | Sequence[ListedValue] = 10,
    range: Sequence[ListedValue | Sequence[ListedValue] | None] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def histogram_bin_edges(
    a: TensorValue,
    bins: ListedValue = 10,
    range: ListedValue | Sequence[ListedValue] | None = None,
    weights: ListedValue | None = None,
) -> Tensor:
    """Compute the bin edges for a histogram."""

@overload
def histogram_bin_edges(
    a: JaxValue,
    bins: JaxValue = 10,
    range: jax.Array | Sequence[JaxValue] | None = None,
    weights: JaxValue | None = None,
) -> jax.Array: ...
@overload
def histogram_bin_edges(
    a: ListedValue,
    bins: ListedValue = 10,
    range: ListedValue | Sequence[ListedValue] | None = None,
    weights: ListedValue | None = None,
) -> Tensor: ...
@overload
def histogramdd(
    sample: TensorValue,
    bins: ListedValue | Sequence[ListedValue] = 10,
    range: Sequence[ListedValue | Sequence[ListedValue] | None] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Compute an N-dimensional histogram."""

@overload
def histogramdd(
    sample: JaxValue,
    bins: JaxValue | Sequence[JaxValue] = 10,
    range: Sequence[jax.Array | Sequence[JaxValue] | None] | None = None,
    weights: JaxValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[jax.Array, list[jax.Array]]: ...
@overload
def histogramdd(
    sample: ListedValue,
    bins: ListedValue | Sequence[ListedValue] = 10,
    range: Sequence[ListedValue | Sequence[ListedValue] | None] | None = None,
    weights: ListedValue | None = None,
    density: builtins.bool | None = None,
) -> tuple[Tensor, list[Tensor]]: ...
@overload
def hsplit(ary: TensorValue, indices_or_sections: ListedValue) -> list[Tensor]:
    """Split an array into sub-arrays horizontally."""

@overload
def hsplit(ary: ListedValue, indices_or_sections: TensorValue) -> list[Tensor]: ...
@overload
def hsplit(ary: JaxValue, indices_or_sections: JaxValue) -> list[jax.Array]: ...
@overload
def hsplit(ary: ListedValue, indices_or_sections: ListedValue) -> list[Tensor]: ...
@overload
def hstack(
    tup: NumpyArray | Tensor | Sequence[TensorValue], dtype: DTypeLike | None = None
) -> Tensor:
    """Horizontally stack arrays."""

@overload
def hstack(tup: jax.Array | Sequence[JaxValue], dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def hstack(tup: ListedValue | Sequence[ListedValue], dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def hypot(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise hypotenuse for the given legs of a right angle triangle."""

@overload
def hypot(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def hypot(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def hypot(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def i0(x: TensorValue) -> Tensor:
    """Calculate modified Bessel function of first kind, zeroth order."""

@overload
def i0(x: JaxValue) -> jax.Array: ...
@overload
def i0(x: ListedValue) -> Tensor: ...
def identity(n: int, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def imag(x: TensorValue, /) -> Tensor:
    """Return element-wise imaginary of part of the complex argument."""

@overload
def imag(x: JaxValue, /) -> jax.Array: ...
@overload
def imag(x: ListedValue, /) -> Tensor: ...

index_exp: IndexExpression

@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: Literal[False] = False
) -> Tensor:
    """Generate arrays of grid indices."""

@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, *, sparse: Literal[True]
) -> tuple[Tensor, ...]: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: builtins.bool = False
) -> Tensor | tuple[Tensor, ...]: ...

inexact = np.inexact
inf: float

@overload
def inner(
    a: TensorValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Compute the inner product of two arrays."""

@overload
def inner(
    a: ListedValue,
    b: TensorValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def inner(
    a: JaxValue,
    b: JaxValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def inner(
    a: ListedValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def insert(
    arr: TensorValue, obj: ListedValue | slice, values: ListedValue, axis: int | None = None
) -> Tensor:
    """Insert entries into an array at specified indices."""

@overload
def insert(
    arr: ListedValue, obj: TensorValue | slice, values: ListedValue, axis: int | None = None
) -> Tensor: ...
@overload
def insert(
    arr: ListedValue, obj: ListedValue | slice, values: TensorValue, axis: int | None = None
) -> Tensor: ...
@overload
def insert(
    arr: JaxValue, obj: JaxValue | slice, values: JaxValue, axis: int | None = None
) -> jax.Array: ...
@overload
def insert(
    arr: ListedValue, obj: ListedValue | slice, values: ListedValue, axis: int | None = None
) -> Tensor: ...
@overload
def insert(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def insert(*args: Any, dims: Any, **kwargs: Any) -> Any: ...

int1: ScalarType
int16: ScalarType
int2: ScalarType
int32: ScalarType
int4: ScalarType
int64: ScalarType
int8: ScalarType
int_: ScalarType
integer = np.integer

@overload
def interp(
    x: TensorValue,
    xp: ListedValue,
    fp: ListedValue,
    left: ListedValue | str | None = None,
    right: ListedValue | str | None = None,
    period: ListedValue | None = None,
) -> Tensor:
    """One-dimensional linear interpolation."""

@overload
def interp(
    x: ListedValue,
    xp: TensorValue,
    fp: ListedValue,
    left: ListedValue | str | None = None,
    right: ListedValue | str | None = None,
    period: ListedValue | None = None,
) -> Tensor: ...
@overload
def interp(
    x: ListedValue,
    xp: ListedValue,
    fp: TensorValue,
    left: ListedValue | str | None = None,
    right: ListedValue | str | None = None,
    period: ListedValue | None = None,
) -> Tensor: ...
@overload
def interp(
    x: JaxValue,
    xp: JaxValue,
    fp: JaxValue,
    left: JaxValue | str | None = None,
    right: JaxValue | str | None = None,
    period: JaxValue | None = None,
) -> jax.Array: ...
@overload
def interp(
    x: ListedValue,
    xp: ListedValue,
    fp: ListedValue,
    left: ListedValue | str | None = None,
    right: ListedValue | str | None = None,
    period: ListedValue | None = None,
) -> Tensor: ...
@overload
def intersect1d(
    ar1: TensorValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    return_indices: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Compute the set intersection of two 1D arrays."""

@overload
def intersect1d(
    ar1: ListedValue,
    ar2: TensorValue,
    assume_unique: builtins.bool = False,
    return_indices: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]: ...
@overload
def intersect1d(
    ar1: JaxValue,
    ar2: JaxValue,
    assume_unique: builtins.bool = False,
    return_indices: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: JaxValue | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def intersect1d(
    ar1: ListedValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    return_indices: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]: ...
@overload
def invert(x: TensorValue, /) -> Tensor:
    """Compute the bitwise inversion of an input."""

@overload
def invert(x: JaxValue, /) -> jax.Array: ...
@overload
def invert(x: ListedValue, /) -> Tensor: ...
@overload
def isclose(
    a: TensorValue,
    b: ListedValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Check if the elements of two arrays are approximately equal within a tolerance."""

@overload
def isclose(
    a: ListedValue,
    b: TensorValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor: ...
@overload
def isclose(
    a: JaxValue,
    b: JaxValue,
    rtol: JaxValue = 1e-05,
    atol: JaxValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> jax.Array: ...
@overload
def isclose(
    a: ListedValue,
    b: ListedValue,
    rtol: ListedValue = 1e-05,
    atol: ListedValue = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor: ...
@overload
def iscomplex(x: TensorValue) -> Tensor:
    """Return boolean array showing where the input is complex."""

@overload
def iscomplex(x: JaxValue) -> jax.Array: ...
@overload
def iscomplex(x: ListedValue) -> Tensor: ...
def iscomplexobj(x: Any) -> builtins.bool:
    """Check if the input is a complex number or an array containing complex elements."""

def isdtype(
    dtype: DTypeLike, kind: np.dtype[Any] | str | tuple[np.dtype[Any] | str, ...]
) -> builtins.bool:
    """Returns a boolean indicating whether a provided dtype is of a specified kind."""

@overload
def isfinite(x: TensorValue, /) -> Tensor:
    """Return a boolean array indicating whether each element of input is finite."""

@overload
def isfinite(x: JaxValue, /) -> jax.Array: ...
@overload
def isfinite(x: ListedValue, /) -> Tensor: ...
@overload
def isin(
    element: TensorValue,
    test_elements: ListedValue,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    *,
    method: str = "auto",
) -> Tensor:
    """Determine whether elements in ``element`` appear in ``test_elements``."""

@overload
def isin(
    element: ListedValue,
    test_elements: TensorValue,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    *,
    method: str = "auto",
) -> Tensor: ...
@overload
def isin(
    element: JaxValue,
    test_elements: JaxValue,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    *,
    method: str = "auto",
) -> jax.Array: ...
@overload
def isin(
    element: ListedValue,
    test_elements: ListedValue,
    assume_unique: builtins.bool = False,
    invert: builtins.bool = False,
    *,
    method: str = "auto",
) -> Tensor: ...
@overload
def isinf(x: TensorValue, /) -> Tensor:
    """Return a boolean array indicating whether each element of input is infinite."""

@overload
def isinf(x: JaxValue, /) -> jax.Array: ...
@overload
def isinf(x: ListedValue, /) -> Tensor: ...
@overload
def isnan(x: TensorValue, /) -> Tensor:
    """Returns a boolean array indicating whether each element of input is ``NaN``."""

@overload
def isnan(x: JaxValue, /) -> jax.Array: ...
@overload
def isnan(x: ListedValue, /) -> Tensor: ...
@overload
def isneginf(x: TensorValue, /) -> Tensor:
    """Return boolean array indicating whether each element of input is negative infinite."""

@overload
def isneginf(x: JaxValue, /) -> jax.Array: ...
@overload
def isneginf(x: ListedValue, /) -> Tensor: ...
@overload
def isposinf(x: TensorValue, /) -> Tensor:
    """Return boolean array indicating whether each element of input is positive infinite."""

@overload
def isposinf(x: JaxValue, /) -> jax.Array: ...
@overload
def isposinf(x: ListedValue, /) -> Tensor: ...
@overload
def isreal(x: TensorValue) -> Tensor:
    """Return boolean array showing where the input is real."""

@overload
def isreal(x: JaxValue) -> jax.Array: ...
@overload
def isreal(x: ListedValue) -> Tensor: ...
def isrealobj(x: Any) -> builtins.bool:
    """Check if the input is not a complex number or an array containing complex elements."""

def isscalar(element: Any) -> builtins.bool:
    """Return True if the input is a scalar."""

def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> builtins.bool:
    """Return True if arg1 is equal or lower than arg2 in the type hierarchy."""

def iterable(y: ListedValue) -> builtins.bool:
    """Check whether or not an object can be iterated over."""

@overload
def ix_(*args: JaxValue) -> tuple[jax.Array, ...]:
    """Return a multi-dimensional grid (open mesh) from N one-dimensional sequences."""

@overload
def ix_(*args: ListedValue) -> tuple[Tensor, ...]: ...
def kaiser(M: int, beta: ListedValue) -> Tensor:
    """Return a Kaiser window of size M."""

@overload
def kron(a: TensorValue, b: ListedValue) -> Tensor:
    """Compute the Kronecker product of two input arrays."""

@overload
def kron(a: ListedValue, b: TensorValue) -> Tensor: ...
@overload
def kron(a: JaxValue, b: JaxValue) -> jax.Array: ...
@overload
def kron(a: ListedValue, b: ListedValue) -> Tensor: ...
@overload
def lcm(x1: TensorValue, x2: ListedValue) -> Tensor:
    """Compute the least common multiple of two arrays."""

@overload
def lcm(x1: ListedValue, x2: TensorValue) -> Tensor: ...
@overload
def lcm(x1: JaxValue, x2: JaxValue) -> jax.Array: ...
@overload
def lcm(x1: ListedValue, x2: ListedValue) -> Tensor: ...
@overload
def ldexp(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def ldexp(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def ldexp(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def ldexp(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def left_shift(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Shift bits of ``x`` to left by the amount specified in ``y``, element-wise."""

@overload
def left_shift(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def left_shift(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def left_shift(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def less(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise truth value of ``x < y``."""

@overload
def less(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def less(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def less(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def less_equal(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise truth value of ``x <= y``."""

@overload
def less_equal(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def less_equal(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def less_equal(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def lexsort(keys: Tensor | NumpyArray | Sequence[TensorValue], axis: int = -1) -> Tensor:
    """Sort a sequence of keys in lexicographic order."""

@overload
def lexsort(keys: jax.Array | Sequence[JaxValue], axis: int = -1) -> jax.Array: ...
@overload
def lexsort(keys: ListedValue | Sequence[ListedValue], axis: int = -1) -> Tensor: ...
@overload
def lexsort(
    keys: Tensor | NumpyArray | Sequence[TensorValue], *args: Any, dim: Any, **kwargs: Any
) -> Tensor: ...
@overload
def lexsort(
    keys: jax.Array | Sequence[JaxValue], *args: Any, dim: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def lexsort(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def lexsort(
    keys: Tensor | NumpyArray | Sequence[TensorValue], *args: Any, dims: Any, **kwargs: Any
) -> Tensor: ...
@overload
def lexsort(
    keys: jax.Array | Sequence[JaxValue], *args: Any, dims: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def lexsort(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def linspace(
    start: ListedValue,
    stop: ListedValue,
    num: int = 50,
    endpoint: builtins.bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Tensor:
    """Return evenly-spaced numbers within an interval."""

@overload
def linspace(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def linspace(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def linspace(
    start: ListedValue,
    stop: ListedValue,
    num: int,
    endpoint: builtins.bool,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def linspace(
    start: ListedValue,
    stop: ListedValue,
    num: int = 50,
    endpoint: builtins.bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: Any = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def linspace(
    start: ListedValue,
    stop: ListedValue,
    num: int = 50,
    endpoint: builtins.bool = True,
    retstep: builtins.bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
def load(file: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Load JAX arrays from npy files."""

@overload
def log(x: TensorValue, /) -> Tensor:
    """Calculate element-wise natural logarithm of the input."""

@overload
def log(x: JaxValue, /) -> jax.Array: ...
@overload
def log(x: ListedValue, /) -> Tensor: ...
@overload
def log10(x: TensorValue, /) -> Tensor: ...
@overload
def log10(x: JaxValue, /) -> jax.Array: ...
@overload
def log10(x: ListedValue, /) -> Tensor: ...
@overload
def log1p(x: TensorValue, /) -> Tensor:
    """Calculates element-wise logarithm of one plus input, ``log(x+1)``."""

@overload
def log1p(x: JaxValue, /) -> jax.Array: ...
@overload
def log1p(x: ListedValue, /) -> Tensor: ...
@overload
def log2(x: TensorValue, /) -> Tensor:
    """Calculates the base-2 logarithm of ``x`` element-wise."""

@overload
def log2(x: JaxValue, /) -> jax.Array: ...
@overload
def log2(x: ListedValue, /) -> Tensor: ...

logaddexp: BinaryUfunc
logaddexp2: BinaryUfunc
logical_and: BinaryUfunc

@overload
def logical_not(x: TensorValue, /) -> Tensor:
    """Compute NOT bool(x) element-wise."""

@overload
def logical_not(x: JaxValue, /) -> jax.Array: ...
@overload
def logical_not(x: ListedValue, /) -> Tensor: ...

logical_or: BinaryUfunc
logical_xor: BinaryUfunc

@overload
def logspace(
    start: ListedValue,
    stop: ListedValue,
    num: int = 50,
    endpoint: builtins.bool = True,
    base: ListedValue = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tensor:
    """Generate logarithmically-spaced values."""

@overload
def logspace(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def logspace(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Tensor, ...]:
    """Return indices of a mask of an (n, n) array."""

@overload
def mask_indices(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def matmul(
    a: TensorValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Perform a matrix multiplication."""

@overload
def matmul(
    a: ListedValue,
    b: TensorValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def matmul(
    a: JaxValue,
    b: JaxValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def matmul(
    a: ListedValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def matrix_transpose(x: TensorValue, /) -> Tensor:
    """Transpose the last two dimensions of an array."""

@overload
def matrix_transpose(x: JaxValue, /) -> jax.Array: ...
@overload
def matrix_transpose(x: ListedValue, /) -> Tensor: ...
@overload
def matvec(x1: TensorValue, x2: ListedValue, /) -> Tensor:
    """Batched matrix-vector product."""

@overload
def matvec(x1: ListedValue, x2: TensorValue, /) -> Tensor: ...
@overload
def matvec(x1: JaxValue, x2: JaxValue, /) -> jax.Array: ...
@overload
def matvec(x1: ListedValue, x2: ListedValue, /) -> Tensor: ...
@overload
def max(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the maximum of the array elements along a given axis."""

@overload
def max(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def max(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def max(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def max(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def max(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...

maximum: BinaryUfunc

@overload
def mean(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the mean of array elements along a given axis."""

@overload
def mean(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    *,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def mean(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def mean(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def mean(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def mean(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def mean(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def mean(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def mean(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def mean(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def mean(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def mean(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def median(
    a: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Return the median of array elements along a given axis."""

@overload
def median(
    a: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def median(
    a: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def median(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def median(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def median(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
def meshgrid(
    *xi: ListedValue,
    copy: builtins.bool = True,
    sparse: builtins.bool = False,
    indexing: str = "xy",
) -> list[Tensor]:
    """Construct N-dimensional grid arrays from N 1-dimensional vectors."""

mgrid: Indexer

@overload
def min(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the minimum of array elements along a given axis."""

@overload
def min(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def min(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def min(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def min(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def min(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...

minimum: BinaryUfunc

@overload
def mod(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def mod(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def mod(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def mod(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def modf(x: TensorValue, /) -> tuple[Tensor, Tensor]:
    """Return element-wise fractional and integral parts of the input array."""

@overload
def modf(x: JaxValue, /) -> tuple[jax.Array, jax.Array]: ...
@overload
def modf(x: ListedValue, /) -> tuple[Tensor, Tensor]: ...
@overload
def moveaxis(
    a: TensorValue, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor: ...
@overload
def moveaxis(
    a: JaxValue, source: int | Sequence[int], destination: int | Sequence[int]
) -> jax.Array: ...
@overload
def moveaxis(
    a: ListedValue, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor: ...

multiply: BinaryUfunc
nan: float

@overload
def nan_to_num(
    x: TensorValue,
    copy: builtins.bool = True,
    nan: ListedValue = 0.0,
    posinf: ListedValue | None = None,
    neginf: ListedValue | None = None,
) -> Tensor:
    """Replace NaN and infinite entries in an array."""

@overload
def nan_to_num(
    x: JaxValue,
    copy: builtins.bool = True,
    nan: JaxValue = 0.0,
    posinf: JaxValue | None = None,
    neginf: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nan_to_num(
    x: ListedValue,
    copy: builtins.bool = True,
    nan: ListedValue = 0.0,
    posinf: ListedValue | None = None,
    neginf: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanargmax(
    a: TensorValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor:
    """Return the index of the maximum value of an array, ignoring NaNs."""

@overload
def nanargmax(
    a: JaxValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> jax.Array: ...
@overload
def nanargmax(
    a: ListedValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor: ...
@overload
def nanargmax(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmax(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanargmax(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmax(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanargmax(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmax(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmax(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanargmin(
    a: TensorValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor:
    """Return the index of the minimum value of an array, ignoring NaNs."""

@overload
def nanargmin(
    a: JaxValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> jax.Array: ...
@overload
def nanargmin(
    a: ListedValue, axis: int | None = None, keepdims: builtins.bool | None = None
) -> Tensor: ...
@overload
def nanargmin(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmin(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanargmin(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmin(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanargmin(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanargmin(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanargmin(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nancumprod(a: TensorValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative product of elements along an axis, ignoring NaN values."""

@overload
def nancumprod(
    a: JaxValue, axis: int | None = None, dtype: DTypeLike | None = None
) -> jax.Array: ...
@overload
def nancumprod(
    a: ListedValue, axis: int | None = None, dtype: DTypeLike | None = None
) -> Tensor: ...
@overload
def nancumprod(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nancumprod(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nancumprod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nancumprod(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nancumprod(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nancumprod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nancumsum(a: TensorValue, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Cumulative sum of elements along an axis, ignoring NaN values."""

@overload
def nancumsum(
    a: JaxValue, axis: int | None = None, dtype: DTypeLike | None = None
) -> jax.Array: ...
@overload
def nancumsum(
    a: ListedValue, axis: int | None = None, dtype: DTypeLike | None = None
) -> Tensor: ...
@overload
def nancumsum(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nancumsum(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nancumsum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nancumsum(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nancumsum(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nancumsum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanmax(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the maximum of the array elements along a given axis, ignoring NaNs."""

@overload
def nanmax(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanmax(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanmax(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmax(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmax(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmax(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanmax(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmax(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmax(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmean(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the mean of the array elements along a given axis, ignoring NaNs."""

@overload
def nanmean(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanmean(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanmean(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmean(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmean(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmean(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmean(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmean(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanmean(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmean(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmean(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmedian(
    a: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor:
    """Return the median of array elements along a given axis, ignoring NaNs."""

@overload
def nanmedian(
    a: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def nanmedian(
    a: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def nanmedian(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmedian(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanmedian(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmin(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the minimum of the array elements along a given axis, ignoring NaNs."""

@overload
def nanmin(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanmin(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanmin(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmin(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanmin(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmin(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanmin(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanmin(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanmin(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanpercentile(
    a: TensorValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor:
    """Compute the percentile of the data along the specified axis, ignoring NaN values."""

@overload
def nanpercentile(
    a: ListedValue,
    q: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def nanpercentile(
    a: JaxValue,
    q: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def nanpercentile(
    a: ListedValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def nanpercentile(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanpercentile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanpercentile(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanprod(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the product of the array elements along a given axis, ignoring NaNs."""

@overload
def nanprod(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanprod(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanprod(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanprod(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanprod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanprod(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanprod(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanprod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanprod(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanprod(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanprod(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanquantile(
    a: TensorValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor:
    """Compute the quantile of the data along the specified axis, ignoring NaNs."""

@overload
def nanquantile(
    a: ListedValue,
    q: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def nanquantile(
    a: JaxValue,
    q: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def nanquantile(
    a: ListedValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def nanquantile(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanquantile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanquantile(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanstd(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor:
    """Compute the standard deviation along a given axis, ignoring NaNs."""

@overload
def nanstd(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanstd(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanstd(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanstd(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanstd(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanstd(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanstd(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanstd(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanstd(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanstd(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanstd(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nansum(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor:
    """Return the sum of the array elements along a given axis, ignoring NaNs."""

@overload
def nansum(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nansum(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nansum(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nansum(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nansum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nansum(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nansum(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nansum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nansum(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nansum(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nansum(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def nanvar(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor:
    """Compute the variance of array elements along a given axis, ignoring NaNs."""

@overload
def nanvar(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def nanvar(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    where: ListedValue | None = None,
) -> Tensor: ...
@overload
def nanvar(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanvar(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanvar(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def nanvar(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanvar(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanvar(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def nanvar(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def nanvar(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def nanvar(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
def ndim(a: Any) -> int:
    """Return the number of dimensions of an array."""

negative: UnaryUfunc
newaxis: None

@overload
def nextafter(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Return element-wise next floating point value after ``x`` towards ``y``."""

@overload
def nextafter(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def nextafter(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def nextafter(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def nonzero(
    a: TensorValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Return indices of nonzero elements of an array."""

@overload
def nonzero(
    a: JaxValue,
    *,
    size: int | None = None,
    fill_value: JaxValue | tuple[JaxValue, ...] | None = None,
) -> tuple[jax.Array, ...]: ...
@overload
def nonzero(
    a: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue, ...] | None = None,
) -> tuple[Tensor, ...]: ...
@overload
def nonzero(*args: Any, as_tuple: Any, **kwargs: Any) -> Any: ...
@overload
def not_equal(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Returns element-wise truth value of ``x != y``."""

@overload
def not_equal(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def not_equal(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def not_equal(x: ListedValue, y: ListedValue, /) -> Tensor: ...

number = np.number
object_ = np.object_
ogrid: Indexer

def ones(
    shape: Any,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array full of ones."""

def ones_like(
    a: ListedValue,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array of ones with the same shape and dtype as an array."""

@overload
def outer(a: TensorValue, b: ListedValue) -> Tensor:
    """Compute the outer product of two arrays."""

@overload
def outer(a: ListedValue, b: Tensor) -> Tensor: ...
@overload
def outer(a: JaxValue, b: jax.Array) -> jax.Array: ...
@overload
def outer(a: ListedValue, b: ListedValue) -> Tensor: ...
@overload
def packbits(a: TensorValue, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Pack array of bits into a uint8 array."""

@overload
def packbits(a: JaxValue, axis: int | None = None, bitorder: str = "big") -> jax.Array: ...
@overload
def packbits(a: ListedValue, axis: int | None = None, bitorder: str = "big") -> Tensor: ...
@overload
def packbits(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def packbits(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def packbits(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def packbits(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def packbits(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def packbits(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def pad(
    array: TensorValue, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any
) -> Tensor:
    """Add padding to an array."""

@overload
def pad(
    array: JaxValue, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any
) -> jax.Array: ...
@overload
def pad(
    array: ListedValue, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any
) -> Tensor: ...
@overload
def partition(a: TensorValue, kth: int, axis: int = -1) -> Tensor:
    """Returns a partially-sorted copy of an array."""

@overload
def partition(a: JaxValue, kth: int, axis: int = -1) -> jax.Array: ...
@overload
def partition(a: ListedValue, kth: int, axis: int = -1) -> Tensor: ...
@overload
def partition(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def partition(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def partition(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def partition(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def partition(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def partition(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def percentile(
    a: TensorValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor:
    """Compute the percentile of the data along the specified axis."""

@overload
def percentile(
    a: ListedValue,
    q: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def percentile(
    a: JaxValue,
    q: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def percentile(
    a: ListedValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def percentile(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def percentile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def percentile(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def permute_dims(x: TensorValue, /, axes: tuple[int, ...]) -> Tensor:
    """Permute the axes/dimensions of an array."""

@overload
def permute_dims(x: JaxValue, /, axes: tuple[int, ...]) -> jax.Array: ...
@overload
def permute_dims(x: ListedValue, /, axes: tuple[int, ...]) -> Tensor: ...
@overload
def permute_dims(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def permute_dims(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def permute_dims(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def permute_dims(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def permute_dims(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def permute_dims(*args: Any, dims: Any, **kwargs: Any) -> Any: ...

pi: float

@overload
def piecewise(
    x: TensorValue,
    condlist: ListedValue | Sequence[ListedValue],
    funclist: Sequence[ListedValue | Callable[..., Any]],
    *args: ListedValue,
    **kw: Any,
) -> Tensor:
    """Evaluate a function defined piecewise across the domain."""

@overload
def piecewise(
    x: ListedValue,
    condlist: Tensor | Sequence[TensorValue],
    funclist: Sequence[ListedValue | Callable[..., Any]],
    *args: ListedValue,
    **kw: Any,
) -> Tensor: ...
@overload
def piecewise(
    x: ListedValue,
    condlist: ListedValue | Sequence[ListedValue],
    funclist: Sequence[TensorValue | Callable[..., Any]],
    *args: ListedValue,
    **kw: Any,
) -> Tensor: ...
@overload
def piecewise(
    x: JaxValue,
    condlist: jax.Array | Sequence[JaxValue],
    funclist: Sequence[JaxValue | Callable[..., Any]],
    *args: JaxValue,
    **kw: Any,
) -> jax.Array: ...
@overload
def piecewise(
    x: ListedValue,
    condlist: ListedValue | Sequence[ListedValue],
    funclist: Sequence[ListedValue | Callable[..., Any]],
    *args: ListedValue,
    **kw: Any,
) -> Tensor: ...
@overload
def place(
    arr: TensorValue, mask: ListedValue, vals: ListedValue, *, inplace: builtins.bool = True
) -> Tensor:
    """Update array elements based on a mask."""

@overload
def place(
    arr: ListedValue, mask: TensorValue, vals: ListedValue, *, inplace: builtins.bool = True
) -> Tensor: ...
@overload
def place(
    arr: ListedValue, mask: ListedValue, vals: TensorValue, *, inplace: builtins.bool = True
) -> Tensor: ...
@overload
def place(
    arr: JaxValue, mask: JaxValue, vals: JaxValue, *, inplace: builtins.bool = True
) -> jax.Array: ...
@overload
def place(
    arr: ListedValue, mask: ListedValue, vals: ListedValue, *, inplace: builtins.bool = True
) -> Tensor: ...
@overload
def poly(seq_of_zeros: TensorValue) -> Tensor:
    """Returns the coefficients of a polynomial for the given sequence of roots."""

@overload
def poly(seq_of_zeros: JaxValue) -> jax.Array: ...
@overload
def poly(seq_of_zeros: ListedValue) -> Tensor: ...
@overload
def polyadd(a1: TensorValue, a2: ListedValue) -> Tensor:
    """Returns the sum of the two polynomials."""

@overload
def polyadd(a1: ListedValue, a2: TensorValue) -> Tensor: ...
@overload
def polyadd(a1: JaxValue, a2: JaxValue) -> jax.Array: ...
@overload
def polyadd(a1: ListedValue, a2: ListedValue) -> Tensor: ...
@overload
def polyder(p: TensorValue, m: int = 1) -> Tensor:
    """Returns the coefficients of the derivative of specified order of a polynomial."""

@overload
def polyder(p: JaxValue, m: int = 1) -> jax.Array: ...
@overload
def polyder(p: ListedValue, m: int = 1) -> Tensor: ...
@overload
def polydiv(
    u: TensorValue, v: ListedValue, *, trim_leading_zeros: builtins.bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the quotient and remainder of polynomial division."""

@overload
def polydiv(
    u: ListedValue, v: TensorValue, *, trim_leading_zeros: builtins.bool = False
) -> tuple[Tensor, Tensor]: ...
@overload
def polydiv(
    u: JaxValue, v: JaxValue, *, trim_leading_zeros: builtins.bool = False
) -> tuple[jax.Array, jax.Array]: ...
@overload
def polydiv(
    u: ListedValue, v: ListedValue, *, trim_leading_zeros: builtins.bool = False
) -> tuple[Tensor, Tensor]: ...
@overload
def polyfit(
    x: TensorValue,
    y: ListedValue,
    deg: int,
    rcond: float | None = None,
    full: builtins.bool = False,
    w: ListedValue | None = None,
    cov: builtins.bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Least squares polynomial fit to data."""

@overload
def polyfit(
    x: ListedValue,
    y: TensorValue,
    deg: int,
    rcond: float | None = None,
    full: builtins.bool = False,
    w: ListedValue | None = None,
    cov: builtins.bool = False,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def polyfit(
    x: JaxValue,
    y: JaxValue,
    deg: int,
    rcond: float | None = None,
    full: builtins.bool = False,
    w: JaxValue | None = None,
    cov: builtins.bool = False,
) -> jax.Array | tuple[jax.Array, ...]: ...
@overload
def polyfit(
    x: ListedValue,
    y: ListedValue,
    deg: int,
    rcond: float | None = None,
    full: builtins.bool = False,
    w: ListedValue | None = None,
    cov: builtins.bool = False,
) -> Tensor | tuple[Tensor, ...]: ...
@overload
def polyint(p: TensorValue, m: int = 1, k: ListedValue | None = None) -> Tensor:
    """Returns the coefficients of the integration of specified order of a polynomial."""

@overload
def polyint(p: JaxValue, m: int = 1, k: JaxValue | None = None) -> jax.Array: ...
@overload
def polyint(p: ListedValue, m: int = 1, k: ListedValue | None = None) -> Tensor: ...
@overload
def polyint(p: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def polyint(p: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def polyint(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def polymul(
    a1: TensorValue, a2: ListedValue, *, trim_leading_zeros: builtins.bool = False
) -> Tensor:
    """Returns the product of two polynomials."""

@overload
def polymul(
    a1: ListedValue, a2: TensorValue, *, trim_leading_zeros: builtins.bool = False
) -> Tensor: ...
@overload
def polymul(
    a1: JaxValue, a2: JaxValue, *, trim_leading_zeros: builtins.bool = False
) -> jax.Array: ...
@overload
def polymul(
    a1: ListedValue, a2: ListedValue, *, trim_leading_zeros: builtins.bool = False
) -> Tensor: ...
@overload
def polysub(a1: TensorValue, a2: ListedValue) -> Tensor:
    """Returns the difference of two polynomials."""

@overload
def polysub(a1: ListedValue, a2: TensorValue) -> Tensor: ...
@overload
def polysub(a1: JaxValue, a2: JaxValue) -> jax.Array: ...
@overload
def polysub(a1: ListedValue, a2: ListedValue) -> Tensor: ...
@overload
def polyval(p: TensorValue, x: ListedValue, *, unroll: int = 16) -> Tensor:
    """Evaluates the polynomial at specific values."""

@overload
def polyval(p: ListedValue, x: TensorValue, *, unroll: int = 16) -> Tensor: ...
@overload
def polyval(p: JaxValue, x: JaxValue, *, unroll: int = 16) -> jax.Array: ...
@overload
def polyval(p: ListedValue, x: ListedValue, *, unroll: int = 16) -> Tensor: ...
@overload
def positive(x: TensorValue, /) -> Tensor:
    """Return element-wise positive values of the input."""

@overload
def positive(x: JaxValue, /) -> jax.Array: ...
@overload
def positive(x: ListedValue, /) -> Tensor: ...
@overload
def pow(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def pow(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def pow(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def pow(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def power(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Calculate element-wise base ``x1`` exponential of ``x2``."""

@overload
def power(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def power(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def power(x: ListedValue, y: ListedValue, /) -> Tensor: ...
def printoptions(*args: Any, **kwargs: Any) -> AbstractContextManager[dict[str, Any]]: ...
@overload
def prod(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
    promote_integers: builtins.bool = True,
) -> Tensor:
    """Return product of the array elements over a given axis."""

@overload
def prod(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
    promote_integers: builtins.bool = True,
) -> jax.Array: ...
@overload
def prod(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
    promote_integers: builtins.bool = True,
) -> Tensor: ...
@overload
def prod(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def prod(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def prod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def prod(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def prod(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def prod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def prod(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def prod(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def prod(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
def promote_types(a: DTypeLike, b: DTypeLike) -> np.dtype[Any]:
    """Returns the type to which a binary operation should cast its arguments."""

@overload
def ptp(
    a: TensorValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> Tensor:
    """Return the peak-to-peak range along a given axis."""

@overload
def ptp(
    a: JaxValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> jax.Array: ...
@overload
def ptp(
    a: ListedValue, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False
) -> Tensor: ...
@overload
def ptp(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ptp(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ptp(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ptp(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ptp(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ptp(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ptp(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ptp(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ptp(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def put(
    a: TensorValue,
    ind: ListedValue,
    v: ListedValue,
    mode: str | None = None,
    *,
    inplace: builtins.bool = True,
) -> Tensor:
    """Put elements into an array at given indices."""

@overload
def put(
    a: ListedValue,
    ind: TensorValue,
    v: ListedValue,
    mode: str | None = None,
    *,
    inplace: builtins.bool = True,
) -> Tensor: ...
@overload
def put(
    a: ListedValue,
    ind: ListedValue,
    v: TensorValue,
    mode: str | None = None,
    *,
    inplace: builtins.bool = True,
) -> Tensor: ...
@overload
def put(
    a: JaxValue,
    ind: JaxValue,
    v: JaxValue,
    mode: str | None = None,
    *,
    inplace: builtins.bool = True,
) -> jax.Array: ...
@overload
def put(
    a: ListedValue,
    ind: ListedValue,
    v: ListedValue,
    mode: str | None = None,
    *,
    inplace: builtins.bool = True,
) -> Tensor: ...
@overload
def put_along_axis(
    arr: TensorValue,
    indices: ListedValue,
    values: ListedValue,
    axis: int | None,
    inplace: builtins.bool = True,
    *,
    mode: str | None = None,
) -> Tensor:
    """Put values into the destination array by matching 1d index and data slices."""

@overload
def put_along_axis(
    arr: ListedValue,
    indices: TensorValue,
    values: ListedValue,
    axis: int | None,
    inplace: builtins.bool = True,
    *,
    mode: str | None = None,
) -> Tensor: ...
@overload
def put_along_axis(
    arr: ListedValue,
    indices: ListedValue,
    values: TensorValue,
    axis: int | None,
    inplace: builtins.bool = True,
    *,
    mode: str | None = None,
) -> Tensor: ...
@overload
def put_along_axis(
    arr: JaxValue,
    indices: JaxValue,
    values: JaxValue,
    axis: int | None,
    inplace: builtins.bool = True,
    *,
    mode: str | None = None,
) -> jax.Array: ...
@overload
def put_along_axis(
    arr: ListedValue,
    indices: ListedValue,
    values: ListedValue,
    axis: int | None,
    inplace: builtins.bool = True,
    *,
    mode: str | None = None,
) -> Tensor: ...
@overload
def put_along_axis(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def put_along_axis(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def quantile(
    a: TensorValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor:
    """Compute the quantile of the data along the specified axis."""

@overload
def quantile(
    a: ListedValue,
    q: TensorValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def quantile(
    a: JaxValue,
    q: JaxValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> jax.Array: ...
@overload
def quantile(
    a: ListedValue,
    q: ListedValue,
    axis: int | tuple[int, ...] | None = None,
    overwrite_input: builtins.bool = False,
    method: str = "linear",
    keepdims: builtins.bool = False,
) -> Tensor: ...
@overload
def quantile(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def quantile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def quantile(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...

r_: Indexer

@overload
def rad2deg(x: TensorValue, /) -> Tensor:
    """Convert angles from radians to degrees."""

@overload
def rad2deg(x: JaxValue, /) -> jax.Array: ...
@overload
def rad2deg(x: ListedValue, /) -> Tensor: ...
@overload
def radians(x: TensorValue, /) -> Tensor: ...
@overload
def radians(x: JaxValue, /) -> jax.Array: ...
@overload
def radians(x: ListedValue, /) -> Tensor: ...
@overload
def ravel(
    a: TensorValue,
    order: str = "C",
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Flatten array into a 1-dimensional shape."""

@overload
def ravel(
    a: JaxValue,
    order: str = "C",
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def ravel(
    a: ListedValue,
    order: str = "C",
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ravel_multi_index(
    multi_index: Sequence[TensorValue], dims: Sequence[int], mode: str = "raise", order: str = "C"
) -> Tensor:
    """Convert multi-dimensional indices into flat indices."""

@overload
def ravel_multi_index(
    multi_index: Sequence[JaxValue], dims: Sequence[int], mode: str = "raise", order: str = "C"
) -> jax.Array: ...
@overload
def ravel_multi_index(
    multi_index: Sequence[ListedValue], dims: Sequence[int], mode: str = "raise", order: str = "C"
) -> Tensor: ...
@overload
def real(x: TensorValue, /) -> Tensor:
    """Return element-wise real part of the complex argument."""

@overload
def real(x: JaxValue, /) -> jax.Array: ...
@overload
def real(x: ListedValue, /) -> Tensor: ...
@overload
def reciprocal(x: TensorValue, /) -> Tensor:
    """Calculate element-wise reciprocal of the input."""

@overload
def reciprocal(x: JaxValue, /) -> jax.Array: ...
@overload
def reciprocal(x: ListedValue, /) -> Tensor: ...
@overload
def remainder(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Returns element-wise remainder of the division."""

@overload
def remainder(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def remainder(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def remainder(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def repeat(
    a: TensorValue,
    repeats: ListedValue,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Construct an array from repeated elements."""

@overload
def repeat(
    a: ListedValue,
    repeats: TensorValue,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def repeat(
    a: JaxValue,
    repeats: JaxValue,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def repeat(
    a: ListedValue,
    repeats: ListedValue,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def repeat(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def repeat(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reshape(
    a: TensorValue,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    copy: builtins.bool | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Return a reshaped copy of an array."""

@overload
def reshape(
    a: JaxValue,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    copy: builtins.bool | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def reshape(
    a: ListedValue,
    shape: int | Sequence[int],
    order: str = "C",
    *,
    copy: builtins.bool | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def resize(a: TensorValue, new_shape: Sequence[int]) -> Tensor:
    """Return a new array with specified shape."""

@overload
def resize(a: JaxValue, new_shape: Sequence[int]) -> jax.Array: ...
@overload
def resize(a: ListedValue, new_shape: Sequence[int]) -> Tensor: ...
def result_type(*args: Any) -> np.dtype[Any]:
    """Return the result of applying JAX promotion rules to the inputs."""

@overload
def right_shift(x: TensorValue, y: ListedValue, /) -> Tensor:
    """Right shift the bits of ``x1`` to the amount specified in ``x2``."""

@overload
def right_shift(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def right_shift(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def right_shift(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def rint(x: TensorValue, /) -> Tensor: ...
@overload
def rint(x: JaxValue, /) -> jax.Array: ...
@overload
def rint(x: ListedValue, /) -> Tensor: ...
@overload
def roll(
    a: TensorValue, shift: ListedValue | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor:
    """Roll the elements of an array along a specified axis."""

@overload
def roll(
    a: ListedValue, shift: TensorValue | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor: ...
@overload
def roll(
    a: JaxValue, shift: JaxValue | Sequence[int], axis: int | Sequence[int] | None = None
) -> jax.Array: ...
@overload
def roll(
    a: ListedValue, shift: ListedValue | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor: ...
@overload
def roll(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def roll(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def roll(*args: Any, shifts: Any, **kwargs: Any) -> Any: ...
@overload
def rollaxis(a: TensorValue, axis: int, start: int = 0) -> Tensor:
    """Roll the specified axis to a given position."""

@overload
def rollaxis(a: JaxValue, axis: int, start: int = 0) -> jax.Array: ...
@overload
def rollaxis(a: ListedValue, axis: int, start: int = 0) -> Tensor: ...
@overload
def rollaxis(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rollaxis(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rollaxis(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rollaxis(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rollaxis(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rollaxis(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def roots(p: TensorValue, *, strip_zeros: builtins.bool = True) -> Tensor:
    """Returns the roots of a polynomial given the coefficients ``p``."""

@overload
def roots(p: JaxValue, *, strip_zeros: builtins.bool = True) -> jax.Array: ...
@overload
def roots(p: ListedValue, *, strip_zeros: builtins.bool = True) -> Tensor: ...
@overload
def rot90(m: TensorValue, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Rotate an array by 90 degrees counterclockwise in the plane specified by axes."""

@overload
def rot90(m: JaxValue, k: int = 1, axes: tuple[int, int] = (0, 1)) -> jax.Array: ...
@overload
def rot90(m: ListedValue, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor: ...
@overload
def rot90(m: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def rot90(m: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rot90(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def rot90(m: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rot90(m: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rot90(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rot90(m: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rot90(m: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rot90(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def round(a: TensorValue, decimals: int = 0) -> Tensor:
    """Round input evenly to the given number of decimals."""

@overload
def round(a: JaxValue, decimals: int = 0) -> jax.Array: ...
@overload
def round(a: ListedValue, decimals: int = 0) -> Tensor: ...

s_: IndexExpression

def save(file: ListedValue, arr: ListedValue, allow_pickle: Any = True) -> None:
    """Save an array to a binary file in NumPy ``.npy`` format."""

def savez(file: ListedValue, *args: ListedValue, allow_pickle: Any = True, **kwds: Any) -> None:
    """Save several arrays into a single file in uncompressed ``.npz`` format."""

@overload
def searchsorted(
    a: TensorValue,
    v: ListedValue,
    side: str = "left",
    sorter: ListedValue | None = None,
    *,
    method: str = "scan",
) -> Tensor:
    """Perform a binary search within a sorted array."""

@overload
def searchsorted(
    a: ListedValue,
    v: TensorValue,
    side: str = "left",
    sorter: ListedValue | None = None,
    *,
    method: str = "scan",
) -> Tensor: ...
@overload
def searchsorted(
    a: JaxValue,
    v: JaxValue,
    side: str = "left",
    sorter: JaxValue | None = None,
    *,
    method: str = "scan",
) -> jax.Array: ...
@overload
def searchsorted(
    a: ListedValue,
    v: ListedValue,
    side: str = "left",
    sorter: ListedValue | None = None,
    *,
    method: str = "scan",
) -> Tensor: ...
@overload
def select(
    condlist: Sequence[TensorValue], choicelist: Sequence[ListedValue], default: ListedValue = 0
) -> Tensor:
    """Select values based on a series of conditions."""

@overload
def select(
    condlist: Sequence[ListedValue], choicelist: Sequence[TensorValue], default: ListedValue = 0
) -> Tensor: ...
@overload
def select(
    condlist: Sequence[JaxValue], choicelist: Sequence[JaxValue], default: JaxValue = 0
) -> jax.Array: ...
@overload
def select(
    condlist: Sequence[ListedValue], choicelist: Sequence[ListedValue], default: ListedValue = 0
) -> Tensor: ...
def set_printoptions(*args: ListedValue, **kwargs: Any) -> None:
    """Alias of :func:`numpy.set_printoptions`."""

@overload
def setdiff1d(
    ar1: TensorValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor:
    """Compute the set difference of two 1D arrays."""

@overload
def setdiff1d(
    ar1: ListedValue,
    ar2: TensorValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
@overload
def setdiff1d(
    ar1: JaxValue,
    ar2: JaxValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: JaxValue | None = None,
) -> jax.Array: ...
@overload
def setdiff1d(
    ar1: ListedValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
@overload
def setxor1d(
    ar1: TensorValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor:
    """Compute the set-wise xor of elements in two arrays."""

@overload
def setxor1d(
    ar1: ListedValue,
    ar2: TensorValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
@overload
def setxor1d(
    ar1: JaxValue,
    ar2: JaxValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: JaxValue | None = None,
) -> jax.Array: ...
@overload
def setxor1d(
    ar1: ListedValue,
    ar2: ListedValue,
    assume_unique: builtins.bool = False,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
def shape(a: Any) -> tuple[int, ...]:
    """Return the shape an array."""

@overload
def sign(x: TensorValue, /) -> Tensor:
    """Return an element-wise indication of sign of the input."""

@overload
def sign(x: JaxValue, /) -> jax.Array: ...
@overload
def sign(x: ListedValue, /) -> Tensor: ...
@overload
def signbit(x: TensorValue, /) -> Tensor:
    """Return the sign bit of array elements."""

@overload
def signbit(x: JaxValue, /) -> jax.Array: ...
@overload
def signbit(x: ListedValue, /) -> Tensor: ...

signedinteger = np.signedinteger

@overload
def sin(x: TensorValue, /) -> Tensor:
    """Compute a trigonometric sine of each element of input."""

@overload
def sin(x: JaxValue, /) -> jax.Array: ...
@overload
def sin(x: ListedValue, /) -> Tensor: ...
@overload
def sinc(x: TensorValue, /) -> Tensor:
    """Calculate the normalized sinc function."""

@overload
def sinc(x: JaxValue, /) -> jax.Array: ...
@overload
def sinc(x: ListedValue, /) -> Tensor: ...

single: ScalarType

@overload
def sinh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise hyperbolic sine of input."""

@overload
def sinh(x: JaxValue, /) -> jax.Array: ...
@overload
def sinh(x: ListedValue, /) -> Tensor: ...
@overload
def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    """Return number of elements along a given axis."""

@overload
def size(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def size(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sort(
    a: TensorValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
) -> Tensor:
    """Return a sorted copy of an array."""

@overload
def sort(
    a: JaxValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
) -> jax.Array: ...
@overload
def sort(
    a: ListedValue,
    axis: int | None = -1,
    *,
    stable: builtins.bool = True,
    descending: builtins.bool = False,
    kind: str | None = None,
    order: None = None,
) -> Tensor: ...
@overload
def sort(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def sort(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sort_complex(a: TensorValue) -> Tensor:
    """Return a sorted copy of complex array."""

@overload
def sort_complex(a: JaxValue) -> jax.Array: ...
@overload
def sort_complex(a: ListedValue) -> Tensor: ...
@overload
def spacing(x: TensorValue, /) -> Tensor:
    """Return the spacing between ``x`` and the next adjacent number."""

@overload
def spacing(x: JaxValue, /) -> jax.Array: ...
@overload
def spacing(x: ListedValue, /) -> Tensor: ...
@overload
def split(
    ary: TensorValue, indices_or_sections: ListedValue | Sequence[int], axis: int = 0
) -> list[Tensor]:
    """Split an array into sub-arrays."""

@overload
def split(
    ary: ListedValue, indices_or_sections: Sequence[int] | TensorValue, axis: int = 0
) -> list[Tensor]: ...
@overload
def split(
    ary: JaxValue, indices_or_sections: JaxValue | Sequence[int], axis: int = 0
) -> list[jax.Array]: ...
@overload
def split(
    ary: ListedValue, indices_or_sections: ListedValue | Sequence[int], axis: int = 0
) -> list[Tensor]: ...
@overload
def split(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def split(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def split(*args: Any, split_size: Any, **kwargs: Any) -> Any: ...
@overload
def split(*args: Any, split_size_or_sections: Any, **kwargs: Any) -> Any: ...
@overload
def sqrt(x: TensorValue, /) -> Tensor:
    """Calculates element-wise non-negative square root of the input array."""

@overload
def sqrt(x: JaxValue, /) -> jax.Array: ...
@overload
def sqrt(x: ListedValue, /) -> Tensor: ...
@overload
def square(x: TensorValue, /) -> Tensor:
    """Calculate element-wise square of the input array."""

@overload
def square(x: JaxValue, /) -> jax.Array: ...
@overload
def square(x: ListedValue, /) -> Tensor: ...
@overload
def squeeze(a: TensorValue, axis: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def squeeze(a: JaxValue, axis: int | Sequence[int] | None = None) -> jax.Array: ...
@overload
def squeeze(a: ListedValue, axis: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def squeeze(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def squeeze(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def squeeze(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def squeeze(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def squeeze(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def squeeze(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def stack(
    arrays: NumpyArray | Tensor | Sequence[TensorValue],
    axis: int = 0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Join arrays along a new axis."""

@overload
def stack(
    arrays: jax.Array | Sequence[JaxValue], axis: int = 0, dtype: DTypeLike | None = None
) -> jax.Array: ...
@overload
def stack(
    arrays: ListedValue | Sequence[ListedValue], axis: int = 0, dtype: DTypeLike | None = None
) -> Tensor: ...
@overload
def stack(
    arrays: NumpyArray | Tensor | Sequence[TensorValue], *args: Any, dim: Any, **kwargs: Any
) -> Tensor: ...
@overload
def stack(
    arrays: jax.Array | Sequence[JaxValue], *args: Any, dim: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def stack(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def stack(
    arrays: NumpyArray | Tensor | Sequence[TensorValue], *args: Any, dims: Any, **kwargs: Any
) -> Tensor: ...
@overload
def stack(
    arrays: jax.Array | Sequence[JaxValue], *args: Any, dims: Any, **kwargs: Any
) -> jax.Array: ...
@overload
def stack(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def std(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
    correction: int | float | None = None,
) -> Tensor:
    """Compute the standard deviation along a given axis."""

@overload
def std(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: JaxValue | None = None,
    correction: int | float | None = None,
) -> jax.Array: ...
@overload
def std(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
    correction: int | float | None = None,
) -> Tensor: ...
@overload
def std(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def std(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def std(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def std(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def std(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def std(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def std(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def std(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def std(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def std(a: TensorValue, *args: Any, unbiased: Any, **kwargs: Any) -> Tensor: ...
@overload
def std(a: JaxValue, *args: Any, unbiased: Any, **kwargs: Any) -> jax.Array: ...
@overload
def std(*args: Any, unbiased: Any, **kwargs: Any) -> Any: ...

subtract: BinaryUfunc

@overload
def sum(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
    promote_integers: builtins.bool = True,
) -> Tensor:
    """Sum of the elements of the array over a given axis."""

@overload
def sum(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: JaxValue | None = None,
    where: JaxValue | None = None,
    promote_integers: builtins.bool = True,
) -> jax.Array: ...
@overload
def sum(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
    initial: ListedValue | None = None,
    where: ListedValue | None = None,
    promote_integers: builtins.bool = True,
) -> Tensor: ...
@overload
def sum(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def sum(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def sum(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def sum(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sum(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def sum(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sum(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def swapaxes(a: TensorValue, axis1: int, axis2: int) -> Tensor:
    """Swap two axes of an array."""

@overload
def swapaxes(a: JaxValue, axis1: int, axis2: int) -> jax.Array: ...
@overload
def swapaxes(a: ListedValue, axis1: int, axis2: int) -> Tensor: ...
@overload
def swapaxes(a: TensorValue, *args: Any, dim1: Any, **kwargs: Any) -> Tensor: ...
@overload
def swapaxes(a: JaxValue, *args: Any, dim1: Any, **kwargs: Any) -> jax.Array: ...
@overload
def swapaxes(*args: Any, dim1: Any, **kwargs: Any) -> Any: ...
@overload
def swapaxes(a: TensorValue, *args: Any, dim2: Any, **kwargs: Any) -> Tensor: ...
@overload
def swapaxes(a: JaxValue, *args: Any, dim2: Any, **kwargs: Any) -> jax.Array: ...
@overload
def swapaxes(*args: Any, dim2: Any, **kwargs: Any) -> Any: ...
@overload
def take(
    a: TensorValue,
    indices: ListedValue,
    axis: int | None = None,
    mode: str | None = None,
    unique_indices: builtins.bool = False,
    indices_are_sorted: builtins.bool = False,
    fill_value: builtins.bool | int | float | complex | None = None,
) -> Tensor:
    """Take elements from an array."""

@overload
def take(
    a: ListedValue,
    indices: TensorValue,
    axis: int | None = None,
    mode: str | None = None,
    unique_indices: builtins.bool = False,
    indices_are_sorted: builtins.bool = False,
    fill_value: builtins.bool | int | float | complex | None = None,
) -> Tensor: ...
@overload
def take(
    a: JaxValue,
    indices: JaxValue,
    axis: int | None = None,
    mode: str | None = None,
    unique_indices: builtins.bool = False,
    indices_are_sorted: builtins.bool = False,
    fill_value: builtins.bool | int | float | complex | None = None,
) -> jax.Array: ...
@overload
def take(
    a: ListedValue,
    indices: ListedValue,
    axis: int | None = None,
    mode: str | None = None,
    unique_indices: builtins.bool = False,
    indices_are_sorted: builtins.bool = False,
    fill_value: builtins.bool | int | float | complex | None = None,
) -> Tensor: ...
@overload
def take(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def take(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def take_along_axis(
    arr: TensorValue,
    indices: ListedValue,
    axis: int | None = -1,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: builtins.bool | int | float | complex | None = None,
    *,
    wrap_negative_indices: builtins.bool | None = None,
) -> Tensor:
    """Take elements from an array."""

@overload
def take_along_axis(
    arr: ListedValue,
    indices: TensorValue,
    axis: int | None = -1,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: builtins.bool | int | float | complex | None = None,
    *,
    wrap_negative_indices: builtins.bool | None = None,
) -> Tensor: ...
@overload
def take_along_axis(
    arr: JaxValue,
    indices: JaxValue,
    axis: int | None = -1,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: builtins.bool | int | float | complex | None = None,
    *,
    wrap_negative_indices: builtins.bool | None = None,
) -> jax.Array: ...
@overload
def take_along_axis(
    arr: ListedValue,
    indices: ListedValue,
    axis: int | None = -1,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: builtins.bool | int | float | complex | None = None,
    *,
    wrap_negative_indices: builtins.bool | None = None,
) -> Tensor: ...
@overload
def take_along_axis(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def take_along_axis(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def tan(x: TensorValue, /) -> Tensor:
    """Compute a trigonometric tangent of each element of input."""

@overload
def tan(x: JaxValue, /) -> jax.Array: ...
@overload
def tan(x: ListedValue, /) -> Tensor: ...
@overload
def tanh(x: TensorValue, /) -> Tensor:
    """Calculate element-wise hyperbolic tangent of input."""

@overload
def tanh(x: JaxValue, /) -> jax.Array: ...
@overload
def tanh(x: ListedValue, /) -> Tensor: ...
@overload
def tensordot(
    a: TensorValue,
    b: ListedValue,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Compute the tensor dot product of two N-dimensional arrays."""

@overload
def tensordot(
    a: ListedValue,
    b: TensorValue,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def tensordot(
    a: JaxValue,
    b: JaxValue,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def tensordot(
    a: ListedValue,
    b: ListedValue,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def tensordot(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def tensordot(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def tile(A: TensorValue, reps: int | Sequence[int]) -> Tensor:
    """Construct an array by repeating ``A`` along specified dimensions."""

@overload
def tile(A: JaxValue, reps: int | Sequence[int]) -> jax.Array: ...
@overload
def tile(A: ListedValue, reps: int | Sequence[int]) -> Tensor: ...
@overload
def tile(A: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def tile(A: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def tile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def trace(
    a: TensorValue,
    offset: ListedValue = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Calculate sum of the diagonal of input along the given axes."""

@overload
def trace(
    a: JaxValue,
    offset: JaxValue = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def trace(
    a: ListedValue,
    offset: ListedValue = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def trace(a: TensorValue, *args: Any, dim1: Any, **kwargs: Any) -> Tensor: ...
@overload
def trace(a: JaxValue, *args: Any, dim1: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trace(*args: Any, dim1: Any, **kwargs: Any) -> Any: ...
@overload
def trace(a: TensorValue, *args: Any, dim2: Any, **kwargs: Any) -> Tensor: ...
@overload
def trace(a: JaxValue, *args: Any, dim2: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trace(*args: Any, dim2: Any, **kwargs: Any) -> Any: ...
@overload
def transpose(a: TensorValue, axes: Sequence[int] | None = None) -> Tensor:
    """Return a transposed version of an N-dimensional array."""

@overload
def transpose(a: JaxValue, axes: Sequence[int] | None = None) -> jax.Array: ...
@overload
def transpose(a: ListedValue, axes: Sequence[int] | None = None) -> Tensor: ...
@overload
def transpose(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def transpose(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def transpose(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def transpose(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def transpose(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def transpose(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def trapezoid(
    y: TensorValue, x: ListedValue | None = None, dx: ListedValue = 1.0, axis: int = -1
) -> Tensor:
    """Integrate along the given axis using the composite trapezoidal rule."""

@overload
def trapezoid(
    y: JaxValue, x: JaxValue | None = None, dx: JaxValue = 1.0, axis: int = -1
) -> jax.Array: ...
@overload
def trapezoid(
    y: ListedValue, x: ListedValue | None = None, dx: ListedValue = 1.0, axis: int = -1
) -> Tensor: ...
@overload
def trapezoid(y: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def trapezoid(y: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trapezoid(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def trapezoid(y: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def trapezoid(y: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trapezoid(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Return an array with ones on and below the diagonal and zeros elsewhere."""

@overload
def tri(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def tril(m: TensorValue, k: int = 0) -> Tensor:
    """Return lower triangle of an array."""

@overload
def tril(m: JaxValue, k: int = 0) -> jax.Array: ...
@overload
def tril(m: ListedValue, k: int = 0) -> Tensor: ...
@overload
def tril(m: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def tril(m: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def tril(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the indices of lower triangle of an array of size ``(n, m)``."""

@overload
def tril_indices(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def tril_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return the indices of lower triangle of a given array."""

@overload
def tril_indices_from(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def trim_zeros(
    filt: TensorValue, trim: str = "fb", axis: int | Sequence[int] | None = None
) -> Tensor:
    """Trim leading and/or trailing zeros of the input array."""

@overload
def trim_zeros(
    filt: JaxValue, trim: str = "fb", axis: int | Sequence[int] | None = None
) -> jax.Array: ...
@overload
def trim_zeros(
    filt: ListedValue, trim: str = "fb", axis: int | Sequence[int] | None = None
) -> Tensor: ...
@overload
def trim_zeros(filt: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def trim_zeros(filt: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trim_zeros(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def trim_zeros(filt: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def trim_zeros(filt: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trim_zeros(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def triu(m: TensorValue, k: int = 0) -> Tensor:
    """Return upper triangle of an array."""

@overload
def triu(m: JaxValue, k: int = 0) -> jax.Array: ...
@overload
def triu(m: ListedValue, k: int = 0) -> Tensor: ...
@overload
def triu(m: TensorValue, *args: Any, diagonal: Any, **kwargs: Any) -> Tensor: ...
@overload
def triu(m: JaxValue, *args: Any, diagonal: Any, **kwargs: Any) -> jax.Array: ...
@overload
def triu(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the indices of upper triangle of an array of size ``(n, m)``."""

@overload
def triu_indices(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def triu_indices_from(arr: Any, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return the indices of upper triangle of a given array."""

@overload
def triu_indices_from(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def true_divide(x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def true_divide(x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def true_divide(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def true_divide(x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def true_divide(*args: Any, other: Any, **kwargs: Any) -> Any: ...
@overload
def true_divide(*args: Any, rounding_mode: Any, **kwargs: Any) -> Any: ...
@overload
def trunc(x: TensorValue, /) -> Tensor:
    """Round input to the nearest integer towards zero."""

@overload
def trunc(x: JaxValue, /) -> jax.Array: ...
@overload
def trunc(x: ListedValue, /) -> Tensor: ...

uint: ScalarType
uint1: ScalarType
uint16: ScalarType
uint2: ScalarType
uint32: ScalarType
uint4: ScalarType
uint64: ScalarType
uint8: ScalarType

@overload
def union1d(
    ar1: TensorValue,
    ar2: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor:
    """Compute the set union of two 1D arrays."""

@overload
def union1d(
    ar1: ListedValue,
    ar2: TensorValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
@overload
def union1d(
    ar1: JaxValue, ar2: JaxValue, *, size: int | None = None, fill_value: JaxValue | None = None
) -> jax.Array: ...
@overload
def union1d(
    ar1: ListedValue,
    ar2: ListedValue,
    *,
    size: int | None = None,
    fill_value: ListedValue | None = None,
) -> Tensor: ...
@overload
def unique(
    ar: JaxValue,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: builtins.bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: builtins.bool = True,
) -> jax.Array: ...
@overload
def unique(
    ar: TensorValue,
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: builtins.bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: builtins.bool = True,
) -> Tensor: ...
@overload
def unique(
    ar: JaxValue,
    return_index: builtins.bool = False,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    axis: int | None = None,
    *,
    equal_nan: builtins.bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: builtins.bool = True,
) -> tuple[jax.Array, ...]: ...
@overload
def unique(
    ar: TensorValue,
    return_index: builtins.bool = False,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    axis: int | None = None,
    *,
    equal_nan: builtins.bool = True,
    size: int | None = None,
    fill_value: Value | None = None,
    sorted: builtins.bool = True,
) -> tuple[Tensor, ...]: ...
@overload
def unique_all(
    x: TensorValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueAllResult[Tensor]:
    """Return unique values from x, along with indices, inverse indices, and counts."""

@overload
def unique_all(
    x: JaxValue, /, *, size: int | None = None, fill_value: JaxValue | None = None
) -> _UniqueAllResult[jax.Array]: ...
@overload
def unique_all(
    x: ListedValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueAllResult[Tensor]: ...
@overload
def unique_counts(
    x: TensorValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueCountsResult[Tensor]:
    """Return unique values from x, along with counts."""

@overload
def unique_counts(
    x: JaxValue, /, *, size: int | None = None, fill_value: JaxValue | None = None
) -> _UniqueCountsResult[jax.Array]: ...
@overload
def unique_counts(
    x: ListedValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueCountsResult[Tensor]: ...
@overload
def unique_inverse(
    x: TensorValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueInverseResult[Tensor]:
    """Return unique values from x, along with indices, inverse indices, and counts."""

@overload
def unique_inverse(
    x: JaxValue, /, *, size: int | None = None, fill_value: JaxValue | None = None
) -> _UniqueInverseResult[jax.Array]: ...
@overload
def unique_inverse(
    x: ListedValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> _UniqueInverseResult[Tensor]: ...
@overload
def unique_values(
    x: TensorValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> Tensor:
    """Return unique values from x, along with indices, inverse indices, and counts."""

@overload
def unique_values(
    x: JaxValue, /, *, size: int | None = None, fill_value: JaxValue | None = None
) -> jax.Array: ...
@overload
def unique_values(
    x: ListedValue, /, *, size: int | None = None, fill_value: ListedValue | None = None
) -> Tensor: ...
@overload
def unpackbits(
    a: TensorValue, axis: int | None = None, count: ListedValue | None = None, bitorder: str = "big"
) -> Tensor:
    """Unpack the bits in a uint8 array."""

@overload
def unpackbits(
    a: JaxValue, axis: int | None = None, count: JaxValue | None = None, bitorder: str = "big"
) -> jax.Array: ...
@overload
def unpackbits(
    a: ListedValue, axis: int | None = None, count: ListedValue | None = None, bitorder: str = "big"
) -> Tensor: ...
@overload
def unpackbits(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def unpackbits(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def unpackbits(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def unpackbits(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def unpackbits(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def unpackbits(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def unravel_index(indices: TensorValue, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Convert flat indices into multi-dimensional indices."""

@overload
def unravel_index(indices: JaxValue, shape: Sequence[int]) -> tuple[jax.Array, ...]: ...
@overload
def unravel_index(indices: ListedValue, shape: Sequence[int]) -> tuple[Tensor, ...]: ...

unsignedinteger = np.unsignedinteger

@overload
def unstack(x: TensorValue, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Unstack an array along an axis."""

@overload
def unstack(x: JaxValue, /, *, axis: int = 0) -> tuple[jax.Array, ...]: ...
@overload
def unstack(x: ListedValue, /, *, axis: int = 0) -> tuple[Tensor, ...]: ...
@overload
def unstack(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
@overload
def unstack(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> tuple[jax.Array, ...]: ...
@overload
def unstack(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def unstack(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> tuple[Tensor, ...]: ...
@overload
def unstack(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> tuple[jax.Array, ...]: ...
@overload
def unstack(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def unwrap(
    p: TensorValue,
    discont: ListedValue | None = None,
    axis: int = -1,
    period: ListedValue = 6.283185307179586,
) -> Tensor:
    """Unwrap a periodic signal."""

@overload
def unwrap(
    p: JaxValue,
    discont: JaxValue | None = None,
    axis: int = -1,
    period: JaxValue = 6.283185307179586,
) -> jax.Array: ...
@overload
def unwrap(
    p: ListedValue,
    discont: ListedValue | None = None,
    axis: int = -1,
    period: ListedValue = 6.283185307179586,
) -> Tensor: ...
@overload
def unwrap(p: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def unwrap(p: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def unwrap(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def unwrap(p: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def unwrap(p: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def unwrap(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def vander(x: TensorValue, N: int | None = None, increasing: builtins.bool = False) -> Tensor:
    """Generate a Vandermonde matrix."""

@overload
def vander(x: JaxValue, N: int | None = None, increasing: builtins.bool = False) -> jax.Array: ...
@overload
def vander(x: ListedValue, N: int | None = None, increasing: builtins.bool = False) -> Tensor: ...
@overload
def var(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
    correction: int | float | None = None,
) -> Tensor:
    """Compute the variance along a given axis."""

@overload
def var(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: JaxValue | None = None,
    correction: int | float | None = None,
) -> jax.Array: ...
@overload
def var(
    a: ListedValue,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    ddof: int = 0,
    keepdims: builtins.bool = False,
    *,
    where: ListedValue | None = None,
    correction: int | float | None = None,
) -> Tensor: ...
@overload
def var(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def var(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def var(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def var(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def var(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def var(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def var(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def var(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def var(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def var(a: TensorValue, *args: Any, unbiased: Any, **kwargs: Any) -> Tensor: ...
@overload
def var(a: JaxValue, *args: Any, unbiased: Any, **kwargs: Any) -> jax.Array: ...
@overload
def var(*args: Any, unbiased: Any, **kwargs: Any) -> Any: ...
@overload
def vdot(
    a: TensorValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Perform a conjugate multiplication of two 1D vectors."""

@overload
def vdot(
    a: ListedValue,
    b: TensorValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vdot(
    a: JaxValue,
    b: JaxValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def vdot(
    a: ListedValue,
    b: ListedValue,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vecdot(
    x1: TensorValue,
    x2: ListedValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Perform a conjugate multiplication of two batched vectors."""

@overload
def vecdot(
    x1: ListedValue,
    x2: TensorValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vecdot(
    x1: JaxValue,
    x2: JaxValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def vecdot(
    x1: ListedValue,
    x2: ListedValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vecdot(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def vecdot(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def vecmat(x1: TensorValue, x2: ListedValue, /) -> Tensor:
    """Batched conjugate vector-matrix product."""

@overload
def vecmat(x1: ListedValue, x2: TensorValue, /) -> Tensor: ...
@overload
def vecmat(x1: JaxValue, x2: JaxValue, /) -> jax.Array: ...
@overload
def vecmat(x1: ListedValue, x2: ListedValue, /) -> Tensor: ...
def vectorize(
    pyfunc: Callable[_P, _R],
    *,
    excluded: Collection[int | str] = ...,
    signature: str | None = None,
) -> Callable[_P, _R]: ...
@overload
def vsplit(ary: TensorValue, indices_or_sections: ListedValue) -> list[Tensor]:
    """Split an array into sub-arrays vertically."""

@overload
def vsplit(ary: ListedValue, indices_or_sections: TensorValue) -> list[Tensor]: ...
@overload
def vsplit(ary: JaxValue, indices_or_sections: JaxValue) -> list[jax.Array]: ...
@overload
def vsplit(ary: ListedValue, indices_or_sections: ListedValue) -> list[Tensor]: ...
@overload
def vstack(
    tup: NumpyArray | Tensor | Sequence[TensorValue], dtype: DTypeLike | None = None
) -> Tensor:
    """Vertically stack arrays."""

@overload
def vstack(tup: jax.Array | Sequence[JaxValue], dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def vstack(tup: ListedValue | Sequence[ListedValue], dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def where(
    condition: TensorValue,
    /,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Select elements from two arrays based on a condition."""

@overload
def where(
    condition: JaxValue,
    /,
    *,
    size: int | None = None,
    fill_value: JaxValue | tuple[JaxValue, ...] | None = None,
) -> tuple[jax.Array, ...]: ...
@overload
def where(
    condition: ListedValue,
    /,
    *,
    size: int | None = None,
    fill_value: ListedValue | tuple[ListedValue, ...] | None = None,
) -> tuple[Tensor, ...]: ...
@overload
def where(condition: TensorValue, x: ListedValue, y: ListedValue, /) -> Tensor: ...
@overload
def where(condition: ListedValue, x: TensorValue, y: ListedValue, /) -> Tensor: ...
@overload
def where(condition: ListedValue, x: ListedValue, y: TensorValue, /) -> Tensor: ...
@overload
def where(condition: JaxValue, x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def where(condition: ListedValue, x: ListedValue, y: ListedValue, /) -> Tensor: ...
def zeros(
    shape: Any,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array full of zeros."""

def zeros_like(
    a: ListedValue,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Create an array full of zeros with the same shape and dtype as an array."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
