"""The names of jax.scipy.optimize, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, overload

import jax

from fad.core.tensor import Tensor

_ArrayT = TypeVar("_ArrayT")

class OptimizeResults(NamedTuple, Generic[_ArrayT]):
    x: _ArrayT
    success: bool | _ArrayT
    status: int | _ArrayT
    fun: _ArrayT
    jac: _ArrayT
    hess_inv: _ArrayT | None
    nfev: int | _ArrayT
    njev: int | _ArrayT
    nit: int | _ArrayT

@overload
def minimize(
    fun: Callable[..., Any],
    x0: Tensor,
    args: Any = (),
    *,
    method: str,
    tol: float | None = None,
    options: Any = None,
) -> OptimizeResults[Tensor]:
    """Minimization of scalar function of one or more variables."""

@overload
def minimize(
    fun: Callable[..., Any],
    x0: jax.Array,
    args: Any = (),
    *,
    method: str,
    tol: float | None = None,
    options: Any = None,
) -> OptimizeResults[jax.Array]: ...
