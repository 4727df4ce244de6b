"""The names of jax.scipy.stats.dirichlet, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpdf(x: TensorValue, alpha: Value) -> Tensor:
    """Dirichlet log probability distribution function."""

@overload
def logpdf(x: Value, alpha: TensorValue) -> Tensor: ...
@overload
def logpdf(x: JaxValue, alpha: JaxValue) -> jax.Array: ...
@overload
def pdf(x: TensorValue, alpha: Value) -> Tensor:
    """Dirichlet probability distribution function."""

@overload
def pdf(x: Value, alpha: TensorValue) -> Tensor: ...
@overload
def pdf(x: JaxValue, alpha: JaxValue) -> jax.Array: ...
