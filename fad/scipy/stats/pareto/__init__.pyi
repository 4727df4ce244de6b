"""The names of jax.scipy.stats.pareto, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto cumulative distribution function."""

@overload
def cdf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def cdf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto log cumulative distribution function."""

@overload
def logcdf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logcdf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logcdf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto log probability distribution function."""

@overload
def logpdf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto log survival function."""

@overload
def logsf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logsf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logsf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto probability distribution function."""

@overload
def pdf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(q: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto percent point function (inverse CDF)."""

@overload
def ppf(q: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(q: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def ppf(q: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: TensorValue, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Pareto survival function."""

@overload
def sf(x: Value, b: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def sf(x: JaxValue, b: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def sf(x: Value, b: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
