"""The names of jax.scipy.ndimage, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def map_coordinates(
    input: TensorValue,
    coordinates: Sequence[Value],
    order: int,
    mode: str = "constant",
    cval: Value = 0.0,
) -> Tensor:
    """Map the input array to new coordinates using interpolation."""

@overload
def map_coordinates(
    input: Value,
    coordinates: Sequence[TensorValue],
    order: int,
    mode: str = "constant",
    cval: Value = 0.0,
) -> Tensor: ...
@overload
def map_coordinates(
    input: JaxValue,
    coordinates: Sequence[JaxValue],
    order: int,
    mode: str = "constant",
    cval: JaxValue = 0.0,
) -> jax.Array: ...
@overload
def map_coordinates(
    input: Value,
    coordinates: Sequence[Value],
    order: int,
    mode: str = "constant",
    cval: Value = 0.0,
) -> Tensor: ...
