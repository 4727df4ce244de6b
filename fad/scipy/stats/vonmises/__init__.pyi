"""The names of jax.scipy.stats.vonmises, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpdf(x: TensorValue, kappa: Value) -> Tensor:
    """von Mises log probability distribution function."""

@overload
def logpdf(x: Value, kappa: TensorValue) -> Tensor: ...
@overload
def logpdf(x: JaxValue, kappa: JaxValue) -> jax.Array: ...
@overload
def pdf(x: TensorValue, kappa: Value) -> Tensor:
    """von Mises probability distribution function."""

@overload
def pdf(x: Value, kappa: TensorValue) -> Tensor: ...
@overload
def pdf(x: JaxValue, kappa: JaxValue) -> jax.Array: ...
