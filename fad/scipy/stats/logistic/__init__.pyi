"""The names of jax.scipy.stats.logistic, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic cumulative distribution function."""

@overload
def cdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def isf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic distribution inverse survival function."""

@overload
def isf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def isf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic log probability distribution function."""

@overload
def logpdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic probability distribution function."""

@overload
def pdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic distribution percent point function."""

@overload
def ppf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def ppf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Logistic distribution survival function."""

@overload
def sf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
