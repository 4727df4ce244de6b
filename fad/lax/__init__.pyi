"""The names of jax.lax, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, overload

import jax
import numpy as np
from jax.lax import AccuracyMode as AccuracyMode
from jax.lax import ConvDimensionNumbers as ConvDimensionNumbers
from jax.lax import DotAlgorithm as DotAlgorithm
from jax.lax import DotAlgorithmPreset as DotAlgorithmPreset
from jax.lax import FftType as FftType
from jax.lax import GatherDimensionNumbers as GatherDimensionNumbers
from jax.lax import GatherScatterMode as GatherScatterMode
from jax.lax import Precision as Precision
from jax.lax import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers
from jax.lax import RandomAlgorithm as RandomAlgorithm
from jax.lax import RoundingMethod as RoundingMethod
from jax.lax import ScatterDimensionNumbers as ScatterDimensionNumbers
from jax.lax import Tolerance as Tolerance

from fad.arrays.annotations import (
    DTypeLike,
    JaxValue,
    NumpyArray,
    PrecisionArgument,
    TensorValue,
    Value,
)
from fad.core.tensor import Tensor
from fad.lax import linalg as linalg

ConvGeneralDilatedDimensionNumbers: Any
DotDimensionNumbers: Any
PrecisionLike: TypeAlias = PrecisionArgument | None

@overload
def abs(x: TensorValue) -> Tensor:
    """Elementwise absolute value: :math:`|x|`."""

@overload
def abs(x: JaxValue) -> jax.Array: ...
@overload
def acos(x: TensorValue) -> Tensor: ...
@overload
def acos(x: JaxValue) -> jax.Array: ...
@overload
def acosh(x: TensorValue) -> Tensor: ...
@overload
def acosh(x: JaxValue) -> jax.Array: ...
@overload
def add(x: TensorValue, y: Value) -> Tensor:
    """Elementwise addition: :math:`x + y`."""

@overload
def add(x: Value, y: TensorValue) -> Tensor: ...
@overload
def add(x: JaxValue, y: JaxValue) -> jax.Array: ...
def after_all(*operands: Any) -> Any: ...
def all_gather(
    x: _T,
    axis_name: Hashable,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> _T: ...
def all_to_all(
    x: _T,
    axis_name: Hashable,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> _T: ...
@overload
def approx_max_k(
    operand: Tensor,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Tensor, Tensor]:
    """Returns max ``k`` values and their indices of the ``operand`` in an approximate manner."""

@overload
def approx_max_k(
    operand: jax.Array,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def approx_max_k(
    operand: Tensor, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]: ...
@overload
def approx_max_k(
    operand: jax.Array, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array]: ...
@overload
def approx_max_k(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def approx_min_k(
    operand: Tensor,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Tensor, Tensor]:
    """Returns min ``k`` values and their indices of the ``operand`` in an approximate manner."""

@overload
def approx_min_k(
    operand: jax.Array,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def approx_min_k(
    operand: Tensor, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]: ...
@overload
def approx_min_k(
    operand: jax.Array, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array]: ...
@overload
def approx_min_k(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def argmax(operand: TensorValue, axis: int, index_dtype: DTypeLike) -> Tensor:
    """Computes the index of the maximum element along ``axis``."""

@overload
def argmax(operand: JaxValue, axis: int, index_dtype: DTypeLike) -> jax.Array: ...
@overload
def argmax(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmax(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argmax(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmax(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def argmin(operand: TensorValue, axis: int, index_dtype: DTypeLike) -> Tensor:
    """Computes the index of the minimum element along ``axis``."""

@overload
def argmin(operand: JaxValue, axis: int, index_dtype: DTypeLike) -> jax.Array: ...
@overload
def argmin(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmin(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def argmin(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def argmin(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def argmin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def asin(x: TensorValue) -> Tensor: ...
@overload
def asin(x: JaxValue) -> jax.Array: ...
@overload
def asinh(x: TensorValue) -> Tensor: ...
@overload
def asinh(x: JaxValue) -> jax.Array: ...
def associative_scan(
    fn: Callable[[_T, _T], _T], elems: _T, reverse: bool = False, axis: int = 0
) -> _T: ...
@overload
def atan(x: TensorValue) -> Tensor: ...
@overload
def atan(x: JaxValue) -> jax.Array: ...
@overload
def atan2(x: TensorValue, y: Value) -> Tensor: ...
@overload
def atan2(x: Value, y: TensorValue) -> Tensor: ...
@overload
def atan2(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def atanh(x: TensorValue) -> Tensor: ...
@overload
def atanh(x: JaxValue) -> jax.Array: ...
def axis_index(axis_name: Hashable) -> jax.Array:
    """Return the index along the mapped axis ``axis_name``."""

def axis_size(axis_name: Hashable) -> int:
    """Return the size of the mapped axis ``axis_name``."""

@overload
def batch_matmul(
    lhs: Tensor, rhs: Tensor | jax.Array, precision: PrecisionArgument | None = None
) -> Tensor:
    """Batch matrix multiplication."""

@overload
def batch_matmul(
    lhs: Tensor | jax.Array, rhs: Tensor, precision: PrecisionArgument | None = None
) -> Tensor: ...
@overload
def batch_matmul(
    lhs: jax.Array, rhs: jax.Array, precision: PrecisionArgument | None = None
) -> jax.Array: ...
@overload
def bessel_i0e(x: TensorValue) -> Tensor: ...
@overload
def bessel_i0e(x: JaxValue) -> jax.Array: ...
@overload
def bessel_i1e(x: TensorValue) -> Tensor: ...
@overload
def bessel_i1e(x: JaxValue) -> jax.Array: ...
@overload
def betainc(a: TensorValue, b: Value, x: Value) -> Tensor:
    """Elementwise regularized incomplete beta integral."""

@overload
def betainc(a: Value, b: TensorValue, x: Value) -> Tensor: ...
@overload
def betainc(a: Value, b: Value, x: TensorValue) -> Tensor: ...
@overload
def betainc(a: JaxValue, b: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def bitcast_convert_type(operand: TensorValue, new_dtype: DTypeLike) -> Tensor:
    """Elementwise bitcast."""

@overload
def bitcast_convert_type(operand: JaxValue, new_dtype: DTypeLike) -> jax.Array: ...
@overload
def bitwise_and(x: TensorValue, y: Value) -> Tensor: ...
@overload
def bitwise_and(x: Value, y: TensorValue) -> Tensor: ...
@overload
def bitwise_and(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def bitwise_not(x: TensorValue) -> Tensor: ...
@overload
def bitwise_not(x: JaxValue) -> jax.Array: ...
@overload
def bitwise_or(x: TensorValue, y: Value) -> Tensor: ...
@overload
def bitwise_or(x: Value, y: TensorValue) -> Tensor: ...
@overload
def bitwise_or(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def bitwise_xor(x: TensorValue, y: Value) -> Tensor: ...
@overload
def bitwise_xor(x: Value, y: TensorValue) -> Tensor: ...
@overload
def bitwise_xor(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def broadcast(operand: TensorValue, sizes: Sequence[int], *, out_sharding: Any = None) -> Tensor:
    """Broadcasts an array, adding new leading dimensions only."""

@overload
def broadcast(
    operand: JaxValue, sizes: Sequence[int], *, out_sharding: Any = None
) -> jax.Array: ...
@overload
def broadcast_in_dim(
    operand: TensorValue,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: Any = None,
) -> Tensor:
    """General broadcasting operation."""

@overload
def broadcast_in_dim(
    operand: JaxValue,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: Any = None,
) -> jax.Array: ...
@overload
def broadcast_like(arr: TensorValue, like_arr: Value) -> Tensor:
    """Broadcasts an array to match the shape and sharding of another array."""

@overload
def broadcast_like(arr: Value, like_arr: TensorValue) -> Tensor: ...
@overload
def broadcast_like(arr: JaxValue, like_arr: JaxValue) -> jax.Array: ...
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]: ...
@overload
def broadcast_to_rank(x: TensorValue, rank: int) -> Tensor:
    """Adds leading dimensions of ``1`` to give ``x`` rank ``rank``."""

@overload
def broadcast_to_rank(x: JaxValue, rank: int) -> jax.Array: ...
def broadcasted_iota(
    dtype: DTypeLike, shape: Sequence[int], dimension: int, *, out_sharding: Any = None
) -> Tensor:
    """Convenience wrapper around ``iota``."""

@overload
def cbrt(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def cbrt(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def ceil(x: TensorValue) -> Tensor: ...
@overload
def ceil(x: JaxValue) -> jax.Array: ...
@overload
def clamp(min: TensorValue, x: Value, max: Value) -> Tensor:
    """Elementwise clamp."""

@overload
def clamp(min: Value, x: TensorValue, max: Value) -> Tensor: ...
@overload
def clamp(min: Value, x: Value, max: TensorValue) -> Tensor: ...
@overload
def clamp(min: JaxValue, x: JaxValue, max: JaxValue) -> jax.Array: ...
@overload
def clz(x: TensorValue) -> Tensor:
    """Elementwise count-leading-zeros."""

@overload
def clz(x: JaxValue) -> jax.Array: ...
@overload
def collapse(operand: Tensor, start_dimension: int, stop_dimension: int | None = None) -> Tensor:
    """Collapses dimensions of an array into a single dimension."""

@overload
def collapse(
    operand: jax.Array, start_dimension: int, stop_dimension: int | None = None
) -> jax.Array: ...
@overload
def complex(x: TensorValue, y: Value) -> Tensor:
    """Elementwise make builtins.complex number: :math:`x + jy`."""

@overload
def complex(x: Value, y: TensorValue) -> Tensor: ...
@overload
def complex(x: JaxValue, y: JaxValue) -> jax.Array: ...
def composite(decomposition: Callable[_P, _T], name: str, version: int = 0) -> Callable[_P, _T]: ...
@overload
def concatenate(operands: Tensor | Sequence[TensorValue], dimension: int) -> Tensor:
    """Concatenates a sequence of arrays along `dimension`."""

@overload
def concatenate(operands: jax.Array | Sequence[JaxValue], dimension: int) -> jax.Array: ...
@overload
def concatenate(operands: Tensor | jax.Array | Sequence[Value], dimension: int) -> Tensor: ...
def cond(
    pred: Value,
    true_fun: Callable[[*_Ts], _T],
    false_fun: Callable[[*_Ts], _T],
    *operands: *_Ts,
) -> _T: ...
@overload
def conj(x: TensorValue) -> Tensor: ...
@overload
def conj(x: JaxValue) -> jax.Array: ...
@overload
def conv(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Convenience wrapper around `conv_general_dilated`."""

@overload
def conv(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def conv(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
def conv_dimension_numbers(
    lhs_shape: Value, rhs_shape: Value, dimension_numbers: Any
) -> jax.lax.ConvDimensionNumbers:
    """Converts convolution `dimension_numbers` to a `ConvDimensionNumbers`."""

@overload
def conv_general_dilated(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """General n-dimensional convolution operator, with optional dilation."""

@overload
def conv_general_dilated(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def conv_general_dilated_local(
    lhs: TensorValue,
    rhs: Value,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
) -> Tensor:
    """General n-dimensional unshared convolution operator with optional dilation."""

@overload
def conv_general_dilated_local(
    lhs: Value,
    rhs: TensorValue,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
) -> Tensor: ...
@overload
def conv_general_dilated_local(
    lhs: JaxValue,
    rhs: JaxValue,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
) -> jax.Array: ...
@overload
def conv_general_dilated_patches(
    lhs: TensorValue,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: jax.lax.Precision | None = None,
    preferred_element_type: np.dtype[Any] | None = None,
) -> Tensor:
    """Extract patches subject to the receptive field of `conv_general_dilated`."""

@overload
def conv_general_dilated_patches(
    lhs: JaxValue,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: jax.lax.Precision | None = None,
    preferred_element_type: np.dtype[Any] | None = None,
) -> jax.Array: ...
def conv_general_permutations(
    dimension_numbers: Any,
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]: ...
def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]: ...
def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]: ...
@overload
def conv_transpose(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Tensor: ...
@overload
def conv_transpose(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Tensor: ...
@overload
def conv_transpose(
    lhs: jax.Array,
    rhs: jax.Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> jax.Array: ...
def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Any,
) -> tuple[int, ...]: ...
@overload
def conv_with_general_padding(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Convenience wrapper around `conv_general_dilated`."""

@overload
def conv_with_general_padding(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def conv_with_general_padding(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def convert_element_type(operand: TensorValue, new_dtype: Any) -> Tensor:
    """Elementwise cast."""

@overload
def convert_element_type(operand: JaxValue, new_dtype: Any) -> jax.Array: ...
@overload
def cos(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def cos(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def cosh(x: TensorValue) -> Tensor: ...
@overload
def cosh(x: JaxValue) -> jax.Array: ...
def create_token(_: Any = None) -> Any:
    """Creates an XLA token value with no preconditions for sequencing effects."""

@overload
def cumlogsumexp(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Computes a cumulative logsumexp along `axis`."""

@overload
def cumlogsumexp(operand: jax.Array, axis: int = 0, reverse: bool = False) -> jax.Array: ...
@overload
def cumlogsumexp(operand: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumlogsumexp(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumlogsumexp(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumlogsumexp(operand: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumlogsumexp(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumlogsumexp(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cummax(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Computes a cumulative maximum along `axis`."""

@overload
def cummax(operand: jax.Array, axis: int = 0, reverse: bool = False) -> jax.Array: ...
@overload
def cummax(operand: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cummax(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cummax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cummax(operand: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cummax(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cummax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cummin(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Computes a cumulative minimum along `axis`."""

@overload
def cummin(operand: jax.Array, axis: int = 0, reverse: bool = False) -> jax.Array: ...
@overload
def cummin(operand: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cummin(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cummin(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cummin(operand: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cummin(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cummin(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cumprod(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Computes a cumulative product along `axis`."""

@overload
def cumprod(operand: jax.Array, axis: int = 0, reverse: bool = False) -> jax.Array: ...
@overload
def cumprod(operand: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumprod(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumprod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumprod(operand: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumprod(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumprod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def cumsum(operand: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Computes a cumulative sum along `axis`."""

@overload
def cumsum(operand: jax.Array, axis: int = 0, reverse: bool = False) -> jax.Array: ...
@overload
def cumsum(operand: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumsum(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumsum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cumsum(operand: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def cumsum(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def cumsum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def custom_linear_solve(
    matvec: Callable[[_T], _T],
    b: _T,
    solve: Callable[[Callable[[_T], _T], _T], Any],
    transpose_solve: Callable[[Callable[[_T], _T], _T], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> _T: ...
def custom_root(
    f: Callable[[_T], _T],
    initial_guess: _T,
    solve: Callable[[Callable[[_T], _T], _T], Any],
    tangent_solve: Callable[[Callable[[_T], _T], _T], _T],
    has_aux: bool = False,
) -> _T: ...
def dce_sink(val: object, *, prevent_mlir_dce: bool = False) -> None: ...
@overload
def digamma(x: TensorValue) -> Tensor: ...
@overload
def digamma(x: JaxValue) -> jax.Array: ...
@overload
def div(x: TensorValue, y: Value) -> Tensor: ...
@overload
def div(x: Value, y: TensorValue) -> Tensor: ...
@overload
def div(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def dot(
    lhs: TensorValue,
    rhs: Value,
    *,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Tensor:
    """General dot product/contraction operator."""

@overload
def dot(
    lhs: Value,
    rhs: TensorValue,
    *,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Tensor: ...
@overload
def dot(
    lhs: JaxValue,
    rhs: JaxValue,
    *,
    dimension_numbers: Any = None,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> jax.Array: ...
@overload
def dot_general(
    lhs: TensorValue,
    rhs: Value,
    dimension_numbers: Any,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Any = None,
) -> Tensor:
    """Alias of :func:`jax.lax.dot`."""

@overload
def dot_general(
    lhs: Value,
    rhs: TensorValue,
    dimension_numbers: Any,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Any = None,
) -> Tensor: ...
@overload
def dot_general(
    lhs: JaxValue,
    rhs: JaxValue,
    dimension_numbers: Any,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: Any = None,
) -> jax.Array: ...
def dtype(x: Any) -> np.dtype[Any]:
    """Return the dtype object for a value or type."""

@overload
def dynamic_index_in_dim(
    operand: Tensor | NumpyArray,
    index: Value,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Tensor:
    """Convenience wrapper around dynamic_slice to perform int indexing."""

@overload
def dynamic_index_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    index: TensorValue,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_index_in_dim(
    operand: jax.Array,
    index: JaxValue,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> jax.Array: ...
@overload
def dynamic_index_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_index_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_index_in_dim(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_slice(
    operand: Tensor | NumpyArray,
    start_indices: Tensor | jax.Array | NumpyArray | Sequence[Value],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_slice(
    operand: Tensor | jax.Array | NumpyArray,
    start_indices: Tensor | NumpyArray | Sequence[TensorValue],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_slice(
    operand: jax.Array,
    start_indices: jax.Array | Sequence[JaxValue],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> jax.Array: ...
@overload
def dynamic_slice(
    operand: Tensor | jax.Array | NumpyArray,
    start_indices: Tensor | jax.Array | NumpyArray | Sequence[Value],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_slice_in_dim(
    operand: Tensor | NumpyArray,
    start_index: Value,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Tensor:
    """Convenience wrapper around :func:`lax.dynamic_slice` applied to one dimension."""

@overload
def dynamic_slice_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    start_index: TensorValue,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_slice_in_dim(
    operand: jax.Array,
    start_index: JaxValue,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> jax.Array: ...
@overload
def dynamic_slice_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_slice_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_update_index_in_dim(
    operand: Tensor | NumpyArray,
    update: Value,
    index: Value,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_index_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    update: TensorValue,
    index: Value,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_index_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    update: Value,
    index: TensorValue,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_index_in_dim(
    operand: jax.Array,
    update: JaxValue,
    index: JaxValue,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> jax.Array: ...
@overload
def dynamic_update_index_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_update_index_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_update_slice(
    operand: Tensor | NumpyArray,
    update: Value,
    start_indices: Tensor | jax.Array | Sequence[Value],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_update_slice(
    operand: Tensor | jax.Array | NumpyArray,
    update: TensorValue,
    start_indices: Tensor | jax.Array | Sequence[Value],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_update_slice(
    operand: Tensor | jax.Array | NumpyArray,
    update: Value,
    start_indices: Tensor | Sequence[TensorValue],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_update_slice(
    operand: jax.Array,
    update: JaxValue,
    start_indices: jax.Array | Sequence[JaxValue],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> jax.Array: ...
@overload
def dynamic_update_slice(
    operand: Tensor | jax.Array | NumpyArray,
    update: Value,
    start_indices: Tensor | jax.Array | Sequence[Value],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Tensor: ...
@overload
def dynamic_update_slice_in_dim(
    operand: Tensor | NumpyArray,
    update: Value,
    start_index: Value,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_slice_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    update: TensorValue,
    start_index: Value,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_slice_in_dim(
    operand: Tensor | jax.Array | NumpyArray,
    update: Value,
    start_index: TensorValue,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Tensor: ...
@overload
def dynamic_update_slice_in_dim(
    operand: jax.Array,
    update: JaxValue,
    start_index: JaxValue,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> jax.Array: ...
@overload
def dynamic_update_slice_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dynamic_update_slice_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Tensor:
    """Create an empty array of possibly uninitialized values."""

@overload
def eq(x: TensorValue, y: Value) -> Tensor:
    """Elementwise equals: :math:`x = y`."""

@overload
def eq(x: Value, y: TensorValue) -> Tensor: ...
@overload
def eq(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def erf(x: TensorValue) -> Tensor: ...
@overload
def erf(x: JaxValue) -> jax.Array: ...
@overload
def erf_inv(x: TensorValue) -> Tensor: ...
@overload
def erf_inv(x: JaxValue) -> jax.Array: ...
@overload
def erfc(x: TensorValue) -> Tensor: ...
@overload
def erfc(x: JaxValue) -> jax.Array: ...
@overload
def exp(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor:
    """Elementwise exponential: :math:`e^x`."""

@overload
def exp(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def exp2(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor:
    """Elementwise base-2 exponential: :math:`2^x`."""

@overload
def exp2(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def expand_dims(array: TensorValue, dimensions: Sequence[int]) -> Tensor:
    """Insert any number of size 1 dimensions into an array."""

@overload
def expand_dims(array: JaxValue, dimensions: Sequence[int]) -> jax.Array: ...
@overload
def expm1(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor:
    """Elementwise :math:`e^{x} - 1`."""

@overload
def expm1(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def fft(x: TensorValue, fft_type: jax.lax.FftType | str, fft_lengths: Sequence[int]) -> Tensor: ...
@overload
def fft(x: JaxValue, fft_type: jax.lax.FftType | str, fft_lengths: Sequence[int]) -> jax.Array: ...
@overload
def floor(x: TensorValue) -> Tensor: ...
@overload
def floor(x: JaxValue) -> jax.Array: ...
def fori_loop(
    lower: Value,
    upper: Value,
    body_fun: Callable[[Any, _T], _T],
    init_val: _T,
    *,
    unroll: int | bool | None = None,
) -> _T: ...
def full(
    shape: Sequence[int],
    fill_value: Value,
    dtype: DTypeLike | None = None,
    *,
    sharding: jax.sharding.Sharding | None = None,
) -> Tensor:
    """Returns an array of `shape` filled with `fill_value`."""

def full_like(
    x: Value,
    fill_value: Value,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    sharding: jax.sharding.Sharding | None = None,
) -> Tensor:
    """Create a full array like np.full based on the example array `x`."""

@overload
def gather(
    operand: TensorValue,
    start_indices: Value,
    dimension_numbers: jax.lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Tensor:
    """Gather operator."""

@overload
def gather(
    operand: Value,
    start_indices: TensorValue,
    dimension_numbers: jax.lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Tensor: ...
@overload
def gather(
    operand: JaxValue,
    start_indices: JaxValue,
    dimension_numbers: jax.lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
    fill_value: Any = None,
) -> jax.Array: ...
@overload
def ge(x: TensorValue, y: Value) -> Tensor: ...
@overload
def ge(x: Value, y: TensorValue) -> Tensor: ...
@overload
def ge(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def gt(x: TensorValue, y: Value) -> Tensor:
    """Elementwise greater-than: :math:`x > y`."""

@overload
def gt(x: Value, y: TensorValue) -> Tensor: ...
@overload
def gt(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def igamma(a: TensorValue, x: Value) -> Tensor:
    """Elementwise regularized incomplete gamma function."""

@overload
def igamma(a: Value, x: TensorValue) -> Tensor: ...
@overload
def igamma(a: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def igamma_grad_a(a: TensorValue, x: Value) -> Tensor:
    """Elementwise derivative of the regularized incomplete gamma function."""

@overload
def igamma_grad_a(a: Value, x: TensorValue) -> Tensor: ...
@overload
def igamma_grad_a(a: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def igammac(a: TensorValue, x: Value) -> Tensor:
    """Elementwise complementary regularized incomplete gamma function."""

@overload
def igammac(a: Value, x: TensorValue) -> Tensor: ...
@overload
def igammac(a: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def imag(x: TensorValue) -> Tensor: ...
@overload
def imag(x: JaxValue) -> jax.Array: ...
@overload
def index_in_dim(
    operand: Tensor | NumpyArray, index: int, axis: int = 0, keepdims: bool = True
) -> Tensor:
    """Convenience wrapper around :func:`lax.slice` to perform int indexing."""

@overload
def index_in_dim(
    operand: jax.Array, index: int, axis: int = 0, keepdims: bool = True
) -> jax.Array: ...
@overload
def index_in_dim(operand: Tensor | NumpyArray, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def index_in_dim(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def index_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def index_in_dim(operand: Tensor | NumpyArray, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def index_in_dim(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def index_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def index_in_dim(
    operand: Tensor | NumpyArray, *args: Any, keepdim: Any, **kwargs: Any
) -> Tensor: ...
@overload
def index_in_dim(operand: jax.Array, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def index_in_dim(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def index_take(src: Tensor, idxs: Tensor | jax.Array, axes: Sequence[int]) -> Tensor: ...
@overload
def index_take(src: Tensor | jax.Array, idxs: Tensor, axes: Sequence[int]) -> Tensor: ...
@overload
def index_take(src: jax.Array, idxs: jax.Array, axes: Sequence[int]) -> jax.Array: ...
@overload
def index_take(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def index_take(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def integer_pow(x: TensorValue, y: int) -> Tensor:
    """Elementwise power: :math:`x^y`, where :math:`y` is a static integer."""

@overload
def integer_pow(x: JaxValue, y: int) -> jax.Array: ...
def iota(dtype: DTypeLike, size: int) -> Tensor: ...
@overload
def is_finite(x: TensorValue) -> Tensor: ...
@overload
def is_finite(x: JaxValue) -> jax.Array: ...
@overload
def le(x: TensorValue, y: Value) -> Tensor: ...
@overload
def le(x: Value, y: TensorValue) -> Tensor: ...
@overload
def le(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def lgamma(x: TensorValue) -> Tensor: ...
@overload
def lgamma(x: JaxValue) -> jax.Array: ...
@overload
def log(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def log(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def log1p(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def log1p(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def logistic(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def logistic(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def lt(x: TensorValue, y: Value) -> Tensor:
    """Elementwise less-than: :math:`x < y`."""

@overload
def lt(x: Value, y: TensorValue) -> Tensor: ...
@overload
def lt(x: JaxValue, y: JaxValue) -> jax.Array: ...
def map(f: Callable[[_X], _Y], xs: _X, *, batch_size: int | None = None) -> _Y: ...
@overload
def max(x: TensorValue, y: Value) -> Tensor: ...
@overload
def max(x: Value, y: TensorValue) -> Tensor: ...
@overload
def max(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def min(x: TensorValue, y: Value) -> Tensor: ...
@overload
def min(x: Value, y: TensorValue) -> Tensor: ...
@overload
def min(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def mul(x: TensorValue, y: Value, *, out_dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def mul(x: Value, y: TensorValue, *, out_dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def mul(x: JaxValue, y: JaxValue, *, out_dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def mulhi(x: TensorValue, y: Value, /) -> Tensor: ...
@overload
def mulhi(x: Value, y: TensorValue, /) -> Tensor: ...
@overload
def mulhi(x: JaxValue, y: JaxValue, /) -> jax.Array: ...
@overload
def ne(x: TensorValue, y: Value) -> Tensor: ...
@overload
def ne(x: Value, y: TensorValue) -> Tensor: ...
@overload
def ne(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def neg(x: TensorValue) -> Tensor:
    """Elementwise negation: :math:`-x`."""

@overload
def neg(x: JaxValue) -> jax.Array: ...
@overload
def nextafter(x1: TensorValue, x2: Value) -> Tensor:
    """Returns the next representable value after ``x1`` in the direction of ``x2``."""

@overload
def nextafter(x1: Value, x2: TensorValue) -> Tensor: ...
@overload
def nextafter(x1: JaxValue, x2: JaxValue) -> jax.Array: ...
def optimization_barrier(operand: _T, /) -> _T: ...
@overload
def pad(
    operand: TensorValue, padding_value: Value, padding_config: Sequence[tuple[int, int, int]]
) -> Tensor:
    """Applies low, high, and/or interior padding to an array."""

@overload
def pad(
    operand: Value, padding_value: TensorValue, padding_config: Sequence[tuple[int, int, int]]
) -> Tensor: ...
@overload
def pad(
    operand: JaxValue, padding_value: JaxValue, padding_config: Sequence[tuple[int, int, int]]
) -> jax.Array: ...
def padtype_to_pads(
    in_shape: Sequence[int] | NumpyArray,
    window_shape: Sequence[int] | NumpyArray,
    window_strides: Sequence[int] | NumpyArray,
    padding: Any,
) -> list[tuple[int, int]]:
    """Convert a padding specification to a list of pad value pairs."""

def pbroadcast(x: _T, axis_name: Hashable, source: int) -> _T: ...
def pcast(x: _T, axis_name: Hashable, *, to: str) -> _T: ...
def platform_dependent(
    *args: Any, default: Callable[..., _T] | None = None, **per_platform: Callable[..., _T]
) -> _T: ...
def pmax(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def pmean(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def pmin(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
@overload
def polygamma(m: TensorValue, x: Value) -> Tensor: ...
@overload
def polygamma(m: Value, x: TensorValue) -> Tensor: ...
@overload
def polygamma(m: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def population_count(x: TensorValue) -> Tensor:
    """Elementwise popcount, count the number of set bits in each element."""

@overload
def population_count(x: JaxValue) -> jax.Array: ...
@overload
def pow(x: TensorValue, y: Value) -> Tensor:
    """Elementwise power: :math:`x^y`."""

@overload
def pow(x: Value, y: TensorValue) -> Tensor: ...
@overload
def pow(x: JaxValue, y: JaxValue) -> jax.Array: ...
def ppermute(x: _T, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> _T: ...
def precv(
    token: Any, out_shape: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]
) -> Any: ...
def psend(x: _T, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any: ...
def pshuffle(x: _T, axis_name: Hashable, perm: Sequence[int]) -> _T: ...
def psum(
    x: _T, axis_name: Hashable, *, axis_index_groups: Sequence[Sequence[int]] | None = None
) -> _T: ...
def psum_scatter(
    x: _T,
    axis_name: Hashable,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    tiled: bool = False,
) -> _T: ...
def pswapaxes(
    x: _T,
    axis_name: Hashable,
    axis: int,
    *,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> _T: ...
def ragged_all_to_all(
    operand: Value,
    output: Value,
    input_offsets: Value,
    send_sizes: Value,
    output_offsets: Value,
    recv_sizes: Value,
    *,
    axis_name: Any,
    axis_index_groups: Any = None,
) -> Any:
    """Ragged version of :func:`all_to_all` collective."""

@overload
def ragged_dot(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor | jax.Array,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Ragged matrix multiplication."""

@overload
def ragged_dot(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    group_sizes: Tensor | jax.Array,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ragged_dot(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ragged_dot(
    lhs: jax.Array,
    rhs: jax.Array,
    group_sizes: jax.Array,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def ragged_dot(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor | jax.Array,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ragged_dot_general(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor | jax.Array,
    ragged_dot_dimension_numbers: jax.lax.RaggedDotDimensionNumbers,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Ragged matrix multiplication."""

@overload
def ragged_dot_general(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    group_sizes: Tensor | jax.Array,
    ragged_dot_dimension_numbers: jax.lax.RaggedDotDimensionNumbers,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ragged_dot_general(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor,
    ragged_dot_dimension_numbers: jax.lax.RaggedDotDimensionNumbers,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def ragged_dot_general(
    lhs: jax.Array,
    rhs: jax.Array,
    group_sizes: jax.Array,
    ragged_dot_dimension_numbers: jax.lax.RaggedDotDimensionNumbers,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def ragged_dot_general(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    group_sizes: Tensor | jax.Array,
    ragged_dot_dimension_numbers: jax.lax.RaggedDotDimensionNumbers,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: Tensor | jax.Array | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def random_gamma_grad(*args: JaxValue) -> jax.Array: ...
@overload
def random_gamma_grad(*args: Value) -> Tensor: ...
@overload
def real(x: TensorValue) -> Tensor: ...
@overload
def real(x: JaxValue) -> jax.Array: ...
@overload
def reciprocal(x: TensorValue) -> Tensor: ...
@overload
def reciprocal(x: JaxValue) -> jax.Array: ...
def reduce(
    operands: _T,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> _T: ...
@overload
def reduce_and(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the bitwise AND of elements over one or more array axes."""

@overload
def reduce_and(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_and(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_and(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_and(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_and(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_and(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_and(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_max(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the maximum of elements over one or more array axes."""

@overload
def reduce_max(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_max(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_max(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_max(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_max(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_max(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_max(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_min(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the minimum of elements over one or more array axes."""

@overload
def reduce_min(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_min(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_min(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_min(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_min(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_min(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_min(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_or(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the bitwise OR of elements over one or more array axes."""

@overload
def reduce_or(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_or(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_or(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_or(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_or(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_or(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_or(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_precision(operand: TensorValue, exponent_bits: int, mantissa_bits: int) -> Tensor: ...
@overload
def reduce_precision(operand: JaxValue, exponent_bits: int, mantissa_bits: int) -> jax.Array: ...
@overload
def reduce_prod(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the product of elements over one or more array axes."""

@overload
def reduce_prod(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_prod(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_prod(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_prod(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_prod(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_prod(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_prod(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_sum(operand: TensorValue, axes: Sequence[int], *, out_sharding: Any = None) -> Tensor:
    """Compute the sum of elements over one or more array axes."""

@overload
def reduce_sum(
    operand: JaxValue, axes: Sequence[int], *, out_sharding: Any = None
) -> jax.Array: ...
@overload
def reduce_sum(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_sum(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_sum(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_sum(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_sum(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_sum(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def reduce_window(
    operand: _T,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> _T: ...
def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]: ...
@overload
def reduce_xor(operand: TensorValue, axes: Sequence[int]) -> Tensor:
    """Compute the bitwise XOR of elements over one or more array axes."""

@overload
def reduce_xor(operand: JaxValue, axes: Sequence[int]) -> jax.Array: ...
@overload
def reduce_xor(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_xor(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_xor(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def reduce_xor(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def reduce_xor(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def reduce_xor(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def rem(x: TensorValue, y: Value) -> Tensor: ...
@overload
def rem(x: Value, y: TensorValue) -> Tensor: ...
@overload
def rem(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def reshape(
    operand: TensorValue,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def reshape(
    operand: JaxValue,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def rev(operand: TensorValue, dimensions: Sequence[int]) -> Tensor: ...
@overload
def rev(operand: JaxValue, dimensions: Sequence[int]) -> jax.Array: ...
@overload
def rng_bit_generator(
    key: TensorValue,
    shape: Any,
    dtype: Any = ...,
    algorithm: Any = ...,
    *,
    out_sharding: Any = None,
) -> tuple[Tensor, Tensor]:
    """Stateless PRNG bit generator. Experimental and its use is discouraged."""

@overload
def rng_bit_generator(
    key: JaxValue, shape: Any, dtype: Any = ..., algorithm: Any = ..., *, out_sharding: Any = None
) -> tuple[jax.Array, jax.Array]: ...
def rng_uniform(a: Value, b: Value, shape: Any) -> Tensor:
    """Stateful PRNG generator. Experimental and its use is discouraged."""

@overload
def round(x: TensorValue, rounding_method: jax.lax.RoundingMethod = ...) -> Tensor:
    """Elementwise round."""

@overload
def round(x: JaxValue, rounding_method: jax.lax.RoundingMethod = ...) -> jax.Array: ...
@overload
def rsqrt(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def rsqrt(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def scaled_dot(
    lhs: Tensor,
    rhs: Tensor | jax.Array,
    *,
    lhs_scale: Tensor | jax.Array | None = None,
    rhs_scale: Tensor | jax.Array | None = None,
    dimension_numbers: tuple[
        tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
    ]
    | None = None,
    preferred_element_type: Any = None,
) -> Tensor:
    """Computes a scaled dot product."""

@overload
def scaled_dot(
    lhs: Tensor | jax.Array,
    rhs: Tensor,
    *,
    lhs_scale: Tensor | jax.Array | None = None,
    rhs_scale: Tensor | jax.Array | None = None,
    dimension_numbers: tuple[
        tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
    ]
    | None = None,
    preferred_element_type: Any = None,
) -> Tensor: ...
@overload
def scaled_dot(
    lhs: jax.Array,
    rhs: jax.Array,
    *,
    lhs_scale: jax.Array | None = None,
    rhs_scale: jax.Array | None = None,
    dimension_numbers: tuple[
        tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
    ]
    | None = None,
    preferred_element_type: Any = None,
) -> jax.Array: ...
@overload
def scaled_dot(
    lhs: Tensor | jax.Array,
    rhs: Tensor | jax.Array,
    *,
    lhs_scale: Tensor | jax.Array | None = None,
    rhs_scale: Tensor | jax.Array | None = None,
    dimension_numbers: tuple[
        tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
    ]
    | None = None,
    preferred_element_type: Any = None,
) -> Tensor: ...
def scan(
    f: Callable[[_Carry, _X], tuple[_Carry, _Y]],
    init: _Carry,
    xs: _X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[_Carry, _Y]: ...
@overload
def scatter(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-update operator."""

@overload
def scatter(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_add(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-add operator."""

@overload
def scatter_add(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_add(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_add(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_apply(
    operand: Tensor,
    scatter_indices: Tensor | jax.Array,
    func: Callable[..., Any],
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-apply operator."""

@overload
def scatter_apply(
    operand: Tensor | jax.Array,
    scatter_indices: Tensor,
    func: Callable[..., Any],
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_apply(
    operand: jax.Array,
    scatter_indices: jax.Array,
    func: Callable[..., Any],
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_max(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-max operator."""

@overload
def scatter_max(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_max(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_max(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_min(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-min operator."""

@overload
def scatter_min(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_min(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_min(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_mul(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-multiply operator."""

@overload
def scatter_mul(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_mul(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_mul(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def scatter_sub(
    operand: TensorValue,
    scatter_indices: Value,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor:
    """Scatter-sub operator."""

@overload
def scatter_sub(
    operand: Value,
    scatter_indices: TensorValue,
    updates: Value,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_sub(
    operand: Value,
    scatter_indices: Value,
    updates: TensorValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> Tensor: ...
@overload
def scatter_sub(
    operand: JaxValue,
    scatter_indices: JaxValue,
    updates: JaxValue,
    dimension_numbers: jax.lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | jax.lax.GatherScatterMode | None = None,
) -> jax.Array: ...
@overload
def select(pred: TensorValue, on_true: Value, on_false: Value) -> Tensor:
    """Selects between two branches based on a boolean predicate."""

@overload
def select(pred: Value, on_true: TensorValue, on_false: Value) -> Tensor: ...
@overload
def select(pred: Value, on_true: Value, on_false: TensorValue) -> Tensor: ...
@overload
def select(pred: JaxValue, on_true: JaxValue, on_false: JaxValue) -> jax.Array: ...
@overload
def select_n(which: TensorValue, *cases: Value) -> Tensor:
    """Selects array values from multiple cases."""

@overload
def select_n(which: JaxValue, *cases: JaxValue) -> jax.Array: ...
@overload
def select_n(which: Value, *cases: Value) -> Tensor: ...
def shape_as_value(shape: Sequence[int]) -> Tensor:
    """Converts a shape that may contain Poly values into a JAX value."""

@overload
def shift_left(x: TensorValue, y: Value) -> Tensor: ...
@overload
def shift_left(x: Value, y: TensorValue) -> Tensor: ...
@overload
def shift_left(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def shift_right_arithmetic(x: TensorValue, y: Value) -> Tensor: ...
@overload
def shift_right_arithmetic(x: Value, y: TensorValue) -> Tensor: ...
@overload
def shift_right_arithmetic(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def shift_right_logical(x: TensorValue, y: Value) -> Tensor: ...
@overload
def shift_right_logical(x: Value, y: TensorValue) -> Tensor: ...
@overload
def shift_right_logical(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def sign(x: TensorValue) -> Tensor:
    """Elementwise sign."""

@overload
def sign(x: JaxValue) -> jax.Array: ...
@overload
def sin(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def sin(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def sinh(x: TensorValue) -> Tensor: ...
@overload
def sinh(x: JaxValue) -> jax.Array: ...
@overload
def slice(
    operand: TensorValue,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Tensor: ...
@overload
def slice(
    operand: JaxValue,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> jax.Array: ...
@overload
def slice_in_dim(
    operand: Tensor | NumpyArray,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Tensor:
    """Convenience wrapper around :func:`lax.slice` applying to only one dimension."""

@overload
def slice_in_dim(
    operand: jax.Array,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> jax.Array: ...
@overload
def slice_in_dim(operand: Tensor | NumpyArray, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def slice_in_dim(operand: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def slice_in_dim(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def slice_in_dim(operand: Tensor | NumpyArray, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def slice_in_dim(operand: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def slice_in_dim(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sort(
    operand: Tensor, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Tensor: ...
@overload
def sort(
    operand: jax.Array, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> jax.Array: ...
@overload
def sort(
    operand: Sequence[Tensor], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[Tensor, ...]: ...
@overload
def sort(
    operand: Sequence[jax.Array], dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> tuple[jax.Array, ...]: ...
@overload
def sort(
    operand: Sequence[Tensor | jax.Array],
    dimension: int = -1,
    is_stable: bool = True,
    num_keys: int = 1,
) -> tuple[Tensor, ...]: ...
@overload
def sort_key_val(
    keys: Tensor, values: Value, dimension: int = -1, is_stable: bool = True
) -> tuple[Tensor, Tensor]:
    """Sorts ``keys`` along ``dimension`` and applies the same permutation to ``values``."""

@overload
def sort_key_val(
    keys: Tensor | jax.Array, values: TensorValue, dimension: int = -1, is_stable: bool = True
) -> tuple[Tensor, Tensor]: ...
@overload
def sort_key_val(
    keys: jax.Array, values: JaxValue, dimension: int = -1, is_stable: bool = True
) -> tuple[jax.Array, jax.Array]: ...
@overload
def split(operand: TensorValue, sizes: Sequence[int], axis: int = 0) -> Sequence[Tensor]:
    """Splits an array along ``axis``."""

@overload
def split(operand: JaxValue, sizes: Sequence[int], axis: int = 0) -> Sequence[jax.Array]: ...
@overload
def split(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Sequence[Tensor]: ...
@overload
def split(operand: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> Sequence[jax.Array]: ...
@overload
def split(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def split(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Sequence[Tensor]: ...
@overload
def split(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> Sequence[jax.Array]: ...
@overload
def split(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sqrt(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def sqrt(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def square(x: TensorValue) -> Tensor:
    """Elementwise square: :math:`x^2`."""

@overload
def square(x: JaxValue) -> jax.Array: ...
@overload
def squeeze(array: TensorValue, dimensions: Sequence[int]) -> Tensor:
    """Squeeze any number of size 1 dimensions from an array."""

@overload
def squeeze(array: JaxValue, dimensions: Sequence[int]) -> jax.Array: ...
@overload
def stack(operands: Sequence[TensorValue], axis: int = 0) -> Tensor:
    """Joins a sequence of arrays along a new axis."""

@overload
def stack(operands: Sequence[JaxValue], axis: int = 0) -> jax.Array: ...
@overload
def stack(operands: Sequence[Value], axis: int = 0) -> Tensor: ...
@overload
def stack(operands: Sequence[TensorValue], *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def stack(operands: Sequence[JaxValue], *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def stack(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def stack(operands: Sequence[TensorValue], *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def stack(operands: Sequence[JaxValue], *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def stack(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def stage(x: TensorValue, /) -> Tensor:
    """Lifts a value into a trace."""

@overload
def stage(x: JaxValue, /) -> jax.Array: ...
def stop_gradient(x: _T) -> _T: ...
@overload
def sub(x: TensorValue, y: Value) -> Tensor:
    """Elementwise subtraction: :math:`x - y`."""

@overload
def sub(x: Value, y: TensorValue) -> Tensor: ...
@overload
def sub(x: JaxValue, y: JaxValue) -> jax.Array: ...
def switch(index: Value, branches: Sequence[Callable[[*_Ts], _T]], *operands: *_Ts) -> _T: ...
@overload
def tan(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def tan(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def tanh(
    x: TensorValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> Tensor: ...
@overload
def tanh(
    x: JaxValue, *, accuracy: jax.lax.Tolerance | jax.lax.AccuracyMode | None = None
) -> jax.Array: ...
@overload
def tile(operand: TensorValue, reps: Sequence[int]) -> Tensor:
    """Tiles an array by repeating it along each dimension."""

@overload
def tile(operand: JaxValue, reps: Sequence[int]) -> jax.Array: ...
@overload
def tile(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def tile(operand: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def tile(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def top_k(operand: TensorValue, k: int, *, axis: int = -1) -> tuple[Tensor, Tensor]:
    """Returns top ``k`` values and their indices along the specified axis of ``operand``."""

@overload
def top_k(operand: JaxValue, k: int, *, axis: int = -1) -> tuple[jax.Array, jax.Array]: ...
@overload
def top_k(
    operand: TensorValue, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]: ...
@overload
def top_k(
    operand: JaxValue, *args: Any, diagonal: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array]: ...
@overload
def top_k(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def top_k(operand: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
@overload
def top_k(
    operand: JaxValue, *args: Any, dim: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array]: ...
@overload
def top_k(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def top_k(operand: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
@overload
def top_k(
    operand: JaxValue, *args: Any, dims: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array]: ...
@overload
def top_k(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def transpose(operand: TensorValue, permutation: Sequence[int] | NumpyArray) -> Tensor: ...
@overload
def transpose(operand: JaxValue, permutation: Sequence[int] | NumpyArray) -> jax.Array: ...
@overload
def unstack(x: TensorValue, axis: int = 0) -> tuple[Tensor, ...]:
    """Unstacks an array along an axis."""

@overload
def unstack(x: JaxValue, axis: int = 0) -> tuple[jax.Array, ...]: ...
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
def while_loop(
    cond_fun: Callable[[_T], Value],
    body_fun: Callable[[_T], _T],
    init_val: _T,
    max_steps: int | None = None,
    checkpoints: int | str = "auto",
) -> _T: ...
def with_sharding_constraint(x: _T, shardings: Any) -> _T: ...
@overload
def zeta(x: TensorValue, q: Value) -> Tensor: ...
@overload
def zeta(x: Value, q: TensorValue) -> Tensor: ...
@overload
def zeta(x: JaxValue, q: JaxValue) -> jax.Array: ...

_T = TypeVar("_T")
_X = TypeVar("_X")
_Y = TypeVar("_Y")
_P = ParamSpec("_P")
_Carry = TypeVar("_Carry")
_Ts = TypeVarTuple("_Ts")
