"""The names of jax.scipy.stats.bernoulli, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(k: TensorValue, p: Value) -> Tensor:
    """Bernoulli cumulative distribution function."""

@overload
def cdf(k: Value, p: TensorValue) -> Tensor: ...
@overload
def cdf(k: JaxValue, p: JaxValue) -> jax.Array: ...
@overload
def cdf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def logpmf(k: TensorValue, p: Value, loc: Value = 0) -> Tensor:
    """Bernoulli log probability mass function."""

@overload
def logpmf(k: Value, p: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(k: JaxValue, p: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def logpmf(k: Value, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def pmf(k: TensorValue, p: Value, loc: Value = 0) -> Tensor:
    """Bernoulli probability mass function."""

@overload
def pmf(k: Value, p: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def pmf(k: JaxValue, p: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def pmf(k: Value, p: Value, loc: Value = 0) -> Tensor: ...
@overload
def pmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def ppf(q: TensorValue, p: Value) -> Tensor:
    """Bernoulli percent point function."""

@overload
def ppf(q: Value, p: TensorValue) -> Tensor: ...
@overload
def ppf(q: JaxValue, p: JaxValue) -> jax.Array: ...
