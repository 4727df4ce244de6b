"""The names of jax.scipy.stats.poisson, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cdf(k: TensorValue, mu: Value, loc: Value = 0) -> Tensor:
    """Poisson cumulative distribution function."""

@overload
def cdf(k: Value, mu: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def cdf(k: JaxValue, mu: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def cdf(k: Value, mu: Value, loc: Value = 0) -> Tensor: ...
@overload
def cdf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def entropy(mu: TensorValue, loc: Value = 0) -> Tensor:
    """Shannon entropy of the Poisson distribution."""

@overload
def entropy(mu: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def entropy(mu: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(k: TensorValue, mu: Value, loc: Value = 0) -> Tensor:
    """Poisson log probability mass function."""

@overload
def logpmf(k: Value, mu: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(k: JaxValue, mu: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def logpmf(k: Value, mu: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def pmf(k: TensorValue, mu: Value, loc: Value = 0) -> Tensor:
    """Poisson probability mass function."""

@overload
def pmf(k: Value, mu: TensorValue, loc: Value = 0) -> Tensor: ...
@overload
def pmf(k: JaxValue, mu: JaxValue, loc: JaxValue = 0) -> jax.Array: ...
@overload
def pmf(k: Value, mu: Value, loc: Value = 0) -> Tensor: ...
@overload
def pmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
