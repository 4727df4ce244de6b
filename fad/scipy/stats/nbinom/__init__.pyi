"""The names of jax.scipy.stats.nbinom, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def logpmf(k: TensorValue, n: Value, p: Value, loc: Value = 0) -> Tensor:
    """Negative-binomial log probability mass function."""

@overload
def logpmf(k: Value, n: TensorValue, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(k: Value, n: Value, p: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(k: JaxValue, n: JaxValue, p: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def logpmf(k: Value, n: Value, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def pmf(k: TensorValue, n: Value, p: Value, loc: Value = 0) -> Tensor:
    """Negative-binomial probability mass function."""

@overload
def pmf(k: Value, n: TensorValue, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def pmf(k: Value, n: Value, p: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def pmf(k: JaxValue, n: JaxValue, p: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def pmf(k: Value, n: Value, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def pmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
