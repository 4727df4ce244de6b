"""The names of jax.scipy.stats.truncnorm, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal cumulative distribution function."""

@overload
def cdf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def cdf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def cdf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
@overload
def logcdf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal log cumulative distribution function."""

@overload
def logcdf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logcdf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logcdf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
@overload
def logpdf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal log probability distribution function."""

@overload
def logpdf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logpdf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logpdf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
@overload
def logsf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal distribution log survival function."""

@overload
def logsf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logsf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def logsf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
@overload
def pdf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal probability distribution function."""

@overload
def pdf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def pdf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def pdf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
@overload
def sf(x: TensorValue, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor:
    """Truncated normal distribution survival function."""

@overload
def sf(x: Value, a: TensorValue, b: Value, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def sf(x: Value, a: Value, b: TensorValue, loc: Any = 0, scale: Any = 1) -> Tensor: ...
@overload
def sf(x: JaxValue, a: JaxValue, b: JaxValue, loc: Any = 0, scale: Any = 1) -> jax.Array: ...
