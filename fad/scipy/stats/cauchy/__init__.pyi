"""The names of jax.scipy.stats.cauchy, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy cumulative distribution function."""

@overload
def cdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def isf(q: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy distribution inverse survival function."""

@overload
def isf(q: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def isf(q: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy log cumulative distribution function."""

@overload
def logcdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logcdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy log probability distribution function."""

@overload
def logpdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy distribution log survival function."""

@overload
def logsf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logsf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy probability distribution function."""

@overload
def pdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(q: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy distribution percent point function."""

@overload
def ppf(q: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def ppf(q: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Cauchy distribution log survival function."""

@overload
def sf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
