"""The names of jax.scipy.stats.truncnorm, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any

from fad.arrays.annotations import Value

def cdf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal cumulative distribution function."""

def logcdf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal log cumulative distribution function."""

def logpdf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal log probability distribution function."""

def logsf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal distribution log survival function."""

def pdf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal probability distribution function."""

def sf(x: Value, a: Value, b: Value, loc: Any = 0, scale: Any = 1) -> Any:
    """Truncated normal distribution survival function."""
