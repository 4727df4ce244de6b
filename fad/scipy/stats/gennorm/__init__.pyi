"""The names of jax.scipy.stats.gennorm, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(x: TensorValue, beta: Value) -> Tensor:
    """Generalized normal cumulative distribution function."""

@overload
def cdf(x: Value, beta: TensorValue) -> Tensor: ...
@overload
def cdf(x: JaxValue, beta: JaxValue) -> jax.Array: ...
@overload
def logpdf(x: TensorValue, beta: Value) -> Tensor:
    """Generalized normal log probability distribution function."""

@overload
def logpdf(x: Value, beta: TensorValue) -> Tensor: ...
@overload
def logpdf(x: JaxValue, beta: JaxValue) -> jax.Array: ...
@overload
def pdf(x: TensorValue, beta: Value) -> Tensor:
    """Generalized normal probability distribution function."""

@overload
def pdf(x: Value, beta: TensorValue) -> Tensor: ...
@overload
def pdf(x: JaxValue, beta: JaxValue) -> jax.Array: ...
