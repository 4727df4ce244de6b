"""The names of jax.scipy.stats.betabinom, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, Value
from fad.core.tensor import Tensor

@overload
def logpmf(k: JaxValue, n: JaxValue, a: JaxValue, b: JaxValue, loc: JaxValue = 0) -> jax.Array:
    """Beta-binomial log probability mass function."""

@overload
def logpmf(k: Value, n: Value, a: Value, b: Value, loc: Value = 0) -> Tensor: ...
@overload
def logpmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def pmf(k: JaxValue, n: JaxValue, a: JaxValue, b: JaxValue, loc: JaxValue = 0) -> jax.Array:
    """Beta-binomial probability mass function."""

@overload
def pmf(k: Value, n: Value, a: Value, b: Value, loc: Value = 0) -> Tensor: ...
@overload
def pmf(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
