"""The names of jax.scipy.linalg, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Callable
from typing import Any, Literal, overload

import jax

from fad.arrays.annotations import DTypeLike, JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def block_diag(*arrs: JaxValue) -> jax.Array:
    """Create a block diagonal matrix from input arrays."""

@overload
def block_diag(*arrs: Value) -> Tensor: ...
@overload
def cho_factor(
    a: TensorValue, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, bool]: ...
@overload
def cho_factor(
    a: JaxValue, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, bool]: ...
@overload
def cho_solve(
    c_and_lower: tuple[TensorValue, bool],
    b: Value,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def cho_solve(
    c_and_lower: tuple[Value, bool],
    b: TensorValue,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def cho_solve(
    c_and_lower: tuple[JaxValue, bool],
    b: JaxValue,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array: ...
@overload
def cho_solve(
    c_and_lower: tuple[Value, bool], b: Value, overwrite_b: bool = False, check_finite: bool = True
) -> Tensor: ...
@overload
def cholesky(
    a: TensorValue, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Tensor:
    """Compute the Cholesky decomposition of a matrix."""

@overload
def cholesky(
    a: JaxValue, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> jax.Array: ...
@overload
def circulant(c: TensorValue) -> Tensor:
    """Construct a circulant matrix."""

@overload
def circulant(c: JaxValue) -> jax.Array: ...
@overload
def companion(a: TensorValue) -> Tensor:
    """Construct a companion matrix."""

@overload
def companion(a: JaxValue) -> jax.Array: ...
@overload
def convolution_matrix(a: TensorValue, n: int, mode: str = "full") -> Tensor:
    """Construct a convolution matrix."""

@overload
def convolution_matrix(a: JaxValue, n: int, mode: str = "full") -> jax.Array: ...
@overload
def det(a: TensorValue, overwrite_a: bool = False, check_finite: bool = True) -> Tensor: ...
@overload
def det(a: JaxValue, overwrite_a: bool = False, check_finite: bool = True) -> jax.Array: ...
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Construct an n-by-n discrete Fourier transform matrix."""

@overload
def eigh(
    a: TensorValue,
    b: Value | None = None,
    lower: bool = True,
    eigvals_only: Literal[False] = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor]: ...
@overload
def eigh(
    a: JaxValue,
    b: JaxValue | None = None,
    lower: bool = True,
    eigvals_only: Literal[False] = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def eigh(
    a: Value,
    b: Value | None = None,
    lower: bool = True,
    eigvals_only: Literal[False] = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor]: ...
@overload
def eigh(
    a: TensorValue,
    b: Value | None = None,
    lower: bool = True,
    *,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def eigh(
    a: JaxValue,
    b: JaxValue | None = None,
    lower: bool = True,
    *,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> jax.Array: ...
@overload
def eigh(
    a: Value,
    b: Value | None = None,
    lower: bool = True,
    *,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def eigh(
    a: TensorValue,
    b: Value | None,
    lower: bool,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def eigh(
    a: Value,
    b: TensorValue,
    lower: bool,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def eigh(
    a: JaxValue,
    b: JaxValue | None,
    lower: bool,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> jax.Array: ...
@overload
def eigh(
    a: TensorValue,
    b: Value | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def eigh(
    a: JaxValue,
    b: JaxValue | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def eigh(
    a: Value,
    b: Value | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def eigh_tridiagonal(
    d: TensorValue,
    e: Value,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Tensor | jax.Array | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def eigh_tridiagonal(
    d: Value,
    e: TensorValue,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Tensor | jax.Array | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def eigh_tridiagonal(
    d: JaxValue,
    e: JaxValue,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def eigh_tridiagonal(
    d: Value,
    e: Value,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Tensor | jax.Array | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def expm(A: TensorValue, *, upper_triangular: bool = False, max_squarings: int = 16) -> Tensor: ...
@overload
def expm(A: JaxValue, *, upper_triangular: bool = False, max_squarings: int = 16) -> jax.Array: ...
@overload
def expm_frechet(
    A: TensorValue, E: Value, *, method: str | None = None, compute_expm: Literal[True] = True
) -> tuple[Tensor, Tensor]:
    """Compute the Frechet derivative of the matrix exponential."""

@overload
def expm_frechet(
    A: Value, E: TensorValue, *, method: str | None = None, compute_expm: Literal[True] = True
) -> tuple[Tensor, Tensor]: ...
@overload
def expm_frechet(
    A: JaxValue, E: JaxValue, *, method: str | None = None, compute_expm: Literal[True] = True
) -> tuple[jax.Array, jax.Array]: ...
@overload
def expm_frechet(
    A: TensorValue, E: Value, *, method: str | None = None, compute_expm: Literal[False]
) -> Tensor: ...
@overload
def expm_frechet(
    A: Value, E: TensorValue, *, method: str | None = None, compute_expm: Literal[False]
) -> Tensor: ...
@overload
def expm_frechet(
    A: JaxValue, E: JaxValue, *, method: str | None = None, compute_expm: Literal[False]
) -> jax.Array: ...
@overload
def expm_frechet(
    A: TensorValue, E: Value, *, method: str | None = None, compute_expm: bool = True
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def expm_frechet(
    A: Value, E: TensorValue, *, method: str | None = None, compute_expm: bool = True
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def expm_frechet(
    A: JaxValue, E: JaxValue, *, method: str | None = None, compute_expm: bool = True
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def fiedler(a: TensorValue) -> Tensor:
    """Construct a symmetric Fiedler matrix."""

@overload
def fiedler(a: JaxValue) -> jax.Array: ...
@overload
def fiedler_companion(a: TensorValue) -> Tensor:
    """Construct a Fiedler companion matrix."""

@overload
def fiedler_companion(a: JaxValue) -> jax.Array: ...
@overload
def funm(
    A: TensorValue, func: Callable[..., Any], disp: bool = True
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def funm(
    A: JaxValue, func: Callable[..., Any], disp: bool = True
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
def hadamard(n: int, dtype: DTypeLike = ...) -> Tensor:
    """Construct an n-by-n Hadamard matrix."""

@overload
def hankel(c: TensorValue, r: Value | None = None) -> Tensor:
    """Construct a Hankel matrix."""

@overload
def hankel(c: JaxValue, r: JaxValue | None = None) -> jax.Array: ...
@overload
def hankel(c: Value, r: Value | None = None) -> Tensor: ...
def helmert(n: int, full: bool = False) -> Tensor:
    """Construct a Helmert matrix."""

@overload
def hessenberg(
    a: TensorValue, *, calc_q: Literal[False], overwrite_a: bool = False, check_finite: bool = True
) -> Tensor: ...
@overload
def hessenberg(
    a: JaxValue, *, calc_q: Literal[False], overwrite_a: bool = False, check_finite: bool = True
) -> jax.Array: ...
@overload
def hessenberg(
    a: TensorValue, *, calc_q: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, Tensor]: ...
@overload
def hessenberg(
    a: JaxValue, *, calc_q: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]: ...
def hilbert(n: int) -> Tensor:
    """Create a Hilbert matrix of order n."""

@overload
def inv(a: TensorValue, overwrite_a: bool = False, check_finite: bool = True) -> Tensor: ...
@overload
def inv(a: JaxValue, overwrite_a: bool = False, check_finite: bool = True) -> jax.Array: ...
def invhilbert(n: int) -> Tensor:
    """Compute the inverse of the Hilbert matrix of order n."""

def invpascal(n: int, kind: str | None = None) -> Tensor:
    """Compute the inverse of the Pascal matrix of order n."""

@overload
def leslie(f: TensorValue, s: Value) -> Tensor:
    """Construct a Leslie matrix."""

@overload
def leslie(f: Value, s: TensorValue) -> Tensor: ...
@overload
def leslie(f: JaxValue, s: JaxValue) -> jax.Array: ...
@overload
def lu(
    a: TensorValue,
    permute_l: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def lu(
    a: JaxValue,
    permute_l: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def lu(
    a: TensorValue, permute_l: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, Tensor]: ...
@overload
def lu(
    a: JaxValue, permute_l: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]: ...
@overload
def lu(
    a: TensorValue, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def lu(
    a: JaxValue, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def lu_factor(
    a: TensorValue, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tensor, Tensor]: ...
@overload
def lu_factor(
    a: JaxValue, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]: ...
@overload
def lu_solve(
    lu_and_piv: tuple[Tensor, TensorValue],
    b: Value,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def lu_solve(
    lu_and_piv: tuple[Tensor | jax.Array, Value],
    b: TensorValue,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def lu_solve(
    lu_and_piv: tuple[jax.Array, JaxValue],
    b: JaxValue,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array: ...
@overload
def lu_solve(
    lu_and_piv: tuple[Tensor | jax.Array, Value],
    b: Value,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tensor: ...
def pascal(n: int, kind: str | None = None) -> Tensor:
    """Create a Pascal matrix approximation of order n."""

@overload
def polar(
    a: TensorValue,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the polar decomposition."""

@overload
def polar(
    a: JaxValue,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: Literal[False] = False,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: Literal[False] = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: Literal[True] = True,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: Literal[True] = True,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["full", "economic"],
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: Literal[False] = False,
    check_finite: bool = True,
) -> tuple[Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: Literal[False] = False,
    check_finite: bool = True,
) -> tuple[jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: Literal[True] = True,
    check_finite: bool = True,
) -> tuple[Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: Literal[True] = True,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Tensor] | tuple[Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    *,
    mode: Literal["r"],
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array] | tuple[jax.Array, jax.Array]: ...
@overload
def qr(
    a: TensorValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Tensor] | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr(
    a: JaxValue,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array] | tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def qr_multiply(
    a: TensorValue,
    c: Value,
    mode: str = "right",
    pivoting: Literal[False] = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor]:
    """Calculate the QR decomposition and multiply Q with a matrix."""

@overload
def qr_multiply(
    a: Value,
    c: TensorValue,
    mode: str = "right",
    pivoting: Literal[False] = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor]: ...
@overload
def qr_multiply(
    a: JaxValue,
    c: JaxValue,
    mode: str = "right",
    pivoting: Literal[False] = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr_multiply(
    a: TensorValue,
    c: Value,
    mode: str = "right",
    pivoting: Literal[True] = True,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr_multiply(
    a: Value,
    c: TensorValue,
    mode: str = "right",
    pivoting: Literal[True] = True,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr_multiply(
    a: JaxValue,
    c: JaxValue,
    mode: str = "right",
    pivoting: Literal[True] = True,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def qr_multiply(
    a: TensorValue,
    c: Value,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr_multiply(
    a: Value,
    c: TensorValue,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr_multiply(
    a: JaxValue,
    c: JaxValue,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def rsf2csf(T: TensorValue, Z: Value, check_finite: bool = True) -> tuple[Tensor, Tensor]:
    """Convert real Schur form to complex Schur form."""

@overload
def rsf2csf(T: Value, Z: TensorValue, check_finite: bool = True) -> tuple[Tensor, Tensor]: ...
@overload
def rsf2csf(T: JaxValue, Z: JaxValue, check_finite: bool = True) -> tuple[jax.Array, jax.Array]: ...
@overload
def schur(a: TensorValue, output: str = "real") -> tuple[Tensor, Tensor]: ...
@overload
def schur(a: JaxValue, output: str = "real") -> tuple[jax.Array, jax.Array]: ...
@overload
def solve(
    a: TensorValue,
    b: Value,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Tensor:
    """Solve a linear system of equations."""

@overload
def solve(
    a: Value,
    b: TensorValue,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Tensor: ...
@overload
def solve(
    a: JaxValue,
    b: JaxValue,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> jax.Array: ...
@overload
def solve_sylvester(
    A: TensorValue, B: Value, C: Value, *, method: str = "schur", tol: float = 1e-08
) -> Tensor: ...
@overload
def solve_sylvester(
    A: Value, B: TensorValue, C: Value, *, method: str = "schur", tol: float = 1e-08
) -> Tensor: ...
@overload
def solve_sylvester(
    A: Value, B: Value, C: TensorValue, *, method: str = "schur", tol: float = 1e-08
) -> Tensor: ...
@overload
def solve_sylvester(
    A: JaxValue, B: JaxValue, C: JaxValue, *, method: str = "schur", tol: float = 1e-08
) -> jax.Array: ...
@overload
def solve_triangular(
    a: TensorValue,
    b: Value,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def solve_triangular(
    a: Value,
    b: TensorValue,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Tensor: ...
@overload
def solve_triangular(
    a: JaxValue,
    b: JaxValue,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> jax.Array: ...
@overload
def sqrtm(A: TensorValue, blocksize: int = 1) -> Tensor: ...
@overload
def sqrtm(A: JaxValue, blocksize: int = 1) -> jax.Array: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the singular value decomposition."""

@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Tensor: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> jax.Array: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Tensor: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> jax.Array: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Tensor | tuple[Tensor, Tensor, Tensor]: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> jax.Array | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def toeplitz(c: TensorValue, r: Value | None = None) -> Tensor:
    """Construct a Toeplitz matrix."""

@overload
def toeplitz(c: JaxValue, r: JaxValue | None = None) -> jax.Array: ...
@overload
def toeplitz(c: Value, r: Value | None = None) -> Tensor: ...
