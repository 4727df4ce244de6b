"""The names of jax.scipy.stats.laplace, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Laplace cumulative distribution function."""

@overload
def cdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Laplace log probability distribution function."""

@overload
def logpdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Laplace probability distribution function."""

@overload
def pdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
