"""The names of jax.scipy.stats.t, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Student's T log probability distribution function."""

@overload
def logpdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Student's T probability distribution function."""

@overload
def pdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
