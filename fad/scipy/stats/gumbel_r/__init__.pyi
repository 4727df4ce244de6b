"""The names of jax.scipy.stats.gumbel_r, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) cumulative density function."""

@overload
def cdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) log cumulative density function."""

@overload
def logcdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logcdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) log probability distribution function."""

@overload
def logpdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) log survival function."""

@overload
def logsf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logsf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) probability distribution function."""

@overload
def pdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(p: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) percent point function."""

@overload
def ppf(p: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def ppf(p: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gumbel Distribution (Right Skewed) survival function."""

@overload
def sf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
