"""The names of jax.scipy.stats.multivariate_normal, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpdf(x: TensorValue, mean: Value, cov: Value, allow_singular: None = None) -> TensorValue:
    """Multivariate normal log probability distribution function."""

@overload
def logpdf(x: Value, mean: TensorValue, cov: Value, allow_singular: None = None) -> TensorValue: ...
@overload
def logpdf(x: Value, mean: Value, cov: TensorValue, allow_singular: None = None) -> TensorValue: ...
@overload
def logpdf(x: JaxValue, mean: JaxValue, cov: JaxValue, allow_singular: None = None) -> JaxValue: ...
@overload
def pdf(x: TensorValue, mean: Value, cov: Value) -> Tensor:
    """Multivariate normal probability distribution function."""

@overload
def pdf(x: Value, mean: TensorValue, cov: Value) -> Tensor: ...
@overload
def pdf(x: Value, mean: Value, cov: TensorValue) -> Tensor: ...
@overload
def pdf(x: JaxValue, mean: JaxValue, cov: JaxValue) -> jax.Array: ...
