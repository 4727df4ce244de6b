"""The names of jax.scipy.stats.multinomial, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpmf(x: TensorValue, n: Value, p: Value) -> Tensor:
    """Multinomial log probability mass function."""

@overload
def logpmf(x: Value, n: TensorValue, p: Value) -> Tensor: ...
@overload
def logpmf(x: Value, n: Value, p: TensorValue) -> Tensor: ...
@overload
def logpmf(x: JaxValue, n: JaxValue, p: JaxValue) -> jax.Array: ...
@overload
def pmf(x: TensorValue, n: Value, p: Value) -> Tensor:
    """Multinomial probability mass function."""

@overload
def pmf(x: Value, n: TensorValue, p: Value) -> Tensor: ...
@overload
def pmf(x: Value, n: Value, p: TensorValue) -> Tensor: ...
@overload
def pmf(x: JaxValue, n: JaxValue, p: JaxValue) -> jax.Array: ...
