"""The names of jax.scipy.stats.wrapcauchy, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpdf(x: TensorValue, c: Value) -> Tensor:
    """Wrapped Cauchy log probability distribution function."""

@overload
def logpdf(x: Value, c: TensorValue) -> Tensor: ...
@overload
def logpdf(x: JaxValue, c: JaxValue) -> jax.Array: ...
@overload
def pdf(x: TensorValue, c: Value) -> Tensor:
    """Wrapped Cauchy probability distribution function."""

@overload
def pdf(x: Value, c: TensorValue) -> Tensor: ...
@overload
def pdf(x: JaxValue, c: JaxValue) -> jax.Array: ...
