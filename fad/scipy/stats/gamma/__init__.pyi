"""The names of jax.scipy.stats.gamma, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma cumulative distribution function."""

@overload
def cdf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def cdf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma log cumulative distribution function."""

@overload
def logcdf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logcdf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma log probability distribution function."""

@overload
def logpdf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma log survival function."""

@overload
def logsf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logsf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma probability distribution function."""

@overload
def pdf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Gamma survival function."""

@overload
def sf(x: Value, a: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: JaxValue, a: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, a: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
