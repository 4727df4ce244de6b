"""The names of jax.scipy.stats.uniform, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Uniform cumulative distribution function."""

@overload
def cdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def cdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def logpdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Uniform log probability distribution function."""

@overload
def logpdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def logpdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def pdf(x: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Uniform probability distribution function."""

@overload
def pdf(x: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def pdf(x: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
@overload
def ppf(q: TensorValue, loc: Value = 0, scale: Value = 1) -> Tensor:
    """Uniform distribution percent point function."""

@overload
def ppf(q: JaxValue, loc: JaxValue = 0, scale: JaxValue = 1) -> jax.Array: ...
@overload
def ppf(q: Value, loc: Value = 0, scale: Value = 1) -> Tensor: ...
