"""The names of jax.scipy.stats.chi2, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square cumulative distribution function."""

@overload
def cdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def cdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square log cumulative distribution function."""

@overload
def logcdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logcdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square log probability distribution function."""

@overload
def logpdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square log survival function."""

@overload
def logsf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logsf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square probability distribution function."""

@overload
def pdf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Chi-square survival function."""

@overload
def sf(x: Value, df: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: JaxValue, df: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, df: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
