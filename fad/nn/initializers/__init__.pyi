"""The names of jax.nn.initializers, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import jax

from fad.arrays.annotations import DTypeLike, TensorInitializer, Value
from fad.core.tensor import Tensor

Initializer: TypeAlias = TensorInitializer

def constant(value: Value, dtype: DTypeLike | None = None) -> TensorInitializer:
    """Builds an initializer that returns arrays full of a constant ``value``."""

def delta_orthogonal(
    scale: Value = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> TensorInitializer:
    """Builds an initializer for delta orthogonal kernels."""

def glorot_normal(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Glorot normal initializer (aka Xavier normal initializer)."""

def glorot_uniform(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Glorot uniform initializer (aka Xavier uniform initializer)."""

def he_normal(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a He normal initializer (aka Kaiming normal initializer)."""

def he_uniform(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a He uniform initializer (aka Kaiming uniform initializer)."""

def kaiming_normal(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a He normal initializer (aka Kaiming normal initializer)."""

def kaiming_uniform(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a He uniform initializer (aka Kaiming uniform initializer)."""

def lecun_normal(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Lecun normal initializer."""

def lecun_uniform(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Lecun uniform initializer."""

def normal(stddev: Value = 0.01, dtype: DTypeLike | None = None) -> TensorInitializer:
    """Builds an initializer that returns real normally-distributed random arrays."""

def ones(
    key: Tensor | jax.Array,
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Tensor:
    """An initializer that returns a constant array full of ones."""

def orthogonal(
    scale: Value = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> TensorInitializer:
    """Builds an initializer that returns uniformly distributed orthogonal matrices."""

def truncated_normal(
    stddev: Value = 0.01, dtype: DTypeLike | None = None, lower: Value = -2.0, upper: Value = 2.0
) -> TensorInitializer:
    """Builds an initializer that returns truncated-normal random arrays."""

def uniform(scale: Value = 0.01, dtype: DTypeLike | None = None) -> TensorInitializer:
    """Builds an initializer that returns real uniformly-distributed random arrays."""

def variance_scaling(
    scale: Value,
    mode: Literal["fan_in"] | Literal["fan_out"] | Literal["fan_avg"] | Literal["fan_geo_avg"],
    distribution: Literal["truncated_normal"] | Literal["normal"] | Literal["uniform"],
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Initializer that adapts its scale to the shape of the weights tensor."""

def xavier_normal(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Glorot normal initializer (aka Xavier normal initializer)."""

def xavier_uniform(
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> TensorInitializer:
    """Builds a Glorot uniform initializer (aka Xavier uniform initializer)."""

def zeros(
    key: Tensor | jax.Array,
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Tensor:
    """An initializer that returns a constant array full of zeros."""
