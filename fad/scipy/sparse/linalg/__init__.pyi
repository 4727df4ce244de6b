"""The names of jax.scipy.sparse.linalg, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any

from fad.arrays.annotations import Value

def bicgstab(
    A: Value,
    b: Value,
    x0: Any = None,
    *,
    tol: Any = 1e-05,
    atol: Any = 0.0,
    maxiter: Any = None,
    M: Any = None,
) -> Any:
    """Use Bi-Conjugate Gradient Stable iteration to solve ``Ax = b``."""

def cg(
    A: Value,
    b: Value,
    x0: Any = None,
    *,
    tol: Any = 1e-05,
    atol: Any = 0.0,
    maxiter: Any = None,
    M: Any = None,
) -> Any:
    """Use Conjugate Gradient iteration to solve ``Ax = b``."""

def gmres(
    A: Value,
    b: Value,
    x0: Any = None,
    *,
    tol: Any = 1e-05,
    atol: Any = 0.0,
    restart: Any = 20,
    maxiter: Any = None,
    M: Any = None,
    solve_method: Any = "batched",
) -> Any:
    """GMRES solves the linear system A x = b for x, given A and b."""
