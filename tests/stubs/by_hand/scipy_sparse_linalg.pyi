"""Solvers: of the type of the right-hand side."""

_T = TypeVar("_T")

def bicgstab(
    A: Any,
    b: _T,
    x0: _T | None = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[_T, Any]: ...
def cg(
    A: Any,
    b: _T,
    x0: _T | None = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[_T, Any]: ...
def gmres(
    A: Any,
    b: _T,
    x0: _T | None = None,
    *,
    tol: float = 1e-05,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[_T, Any]: ...
