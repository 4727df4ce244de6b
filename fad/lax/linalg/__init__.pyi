"""The names of jax.lax.linalg, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Callable
from typing import Any, Literal, overload

import jax
from jax.lax.linalg import EighImplementation as EighImplementation
from jax.lax.linalg import EigImplementation as EigImplementation
from jax.lax.linalg import SvdAlgorithm as SvdAlgorithm

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def cholesky(x: Tensor, *, symmetrize_input: bool = True) -> Tensor:
    """Cholesky decomposition."""

@overload
def cholesky(x: jax.Array, *, symmetrize_input: bool = True) -> jax.Array: ...
@overload
def cholesky_update(r_matrix: TensorValue, w_vector: Value) -> Tensor:
    """Cholesky rank-1 update."""

@overload
def cholesky_update(r_matrix: Value, w_vector: TensorValue) -> Tensor: ...
@overload
def cholesky_update(r_matrix: JaxValue, w_vector: JaxValue) -> jax.Array: ...
@overload
def eig(
    x: TensorValue,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[Tensor]:
    """Eigendecomposition of a general matrix."""

@overload
def eig(
    x: JaxValue,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[jax.Array]: ...
@overload
def eigh(
    x: Tensor,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: Any = None,
) -> tuple[Tensor, Tensor]:
    """Eigendecomposition of a Hermitian matrix."""

@overload
def eigh(
    x: jax.Array,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: Any = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def hessenberg(a: TensorValue) -> tuple[Tensor, Tensor]:
    """Reduces a square matrix to upper Hessenberg form."""

@overload
def hessenberg(a: JaxValue) -> tuple[jax.Array, jax.Array]: ...
@overload
def householder_product(a: TensorValue, taus: Value) -> Tensor:
    """Product of elementary Householder reflectors."""

@overload
def householder_product(a: Value, taus: TensorValue) -> Tensor: ...
@overload
def householder_product(a: JaxValue, taus: JaxValue) -> jax.Array: ...
@overload
def lu(x: TensorValue) -> tuple[Tensor, Tensor, Tensor]:
    """LU decomposition with partial pivoting."""

@overload
def lu(x: JaxValue) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def lu_pivots_to_permutation(pivots: TensorValue, permutation_size: int) -> Tensor:
    """Converts the pivots (row swaps) returned by LU to a permutation."""

@overload
def lu_pivots_to_permutation(pivots: JaxValue, permutation_size: int) -> jax.Array: ...
@overload
def ormqr(
    a: TensorValue, taus: Value, c: Value, *, left: bool = True, transpose: bool = False
) -> Tensor:
    """Multiplies a matrix by Q from a QR factorization without materializing Q."""

@overload
def ormqr(
    a: Value, taus: TensorValue, c: Value, *, left: bool = True, transpose: bool = False
) -> Tensor: ...
@overload
def ormqr(
    a: Value, taus: Value, c: TensorValue, *, left: bool = True, transpose: bool = False
) -> Tensor: ...
@overload
def ormqr(
    a: JaxValue, taus: JaxValue, c: JaxValue, *, left: bool = True, transpose: bool = False
) -> jax.Array: ...
@overload
def qdwh(
    x: TensorValue,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """QR-based dynamically weighted Halley iteration for polar decomposition."""

@overload
def qdwh(
    x: JaxValue,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]: ...
@overload
def qr(
    x: TensorValue,
    *,
    pivoting: Literal[False] = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """QR decomposition."""

@overload
def qr(
    x: JaxValue,
    *,
    pivoting: Literal[False] = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr(
    x: TensorValue,
    *,
    pivoting: Literal[True],
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr(
    x: JaxValue,
    *,
    pivoting: Literal[True],
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def qr(
    x: TensorValue,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]: ...
@overload
def qr(
    x: JaxValue,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def schur(
    x: TensorValue,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """Schur decomposition."""

@overload
def schur(
    x: JaxValue,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def svd(
    x: TensorValue,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[True],
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Singular value decomposition."""

@overload
def svd(
    x: JaxValue,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[True],
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def svd(
    x: TensorValue,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[False],
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> Tensor: ...
@overload
def svd(
    x: JaxValue,
    *,
    full_matrices: bool = True,
    compute_uv: Literal[False],
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> jax.Array: ...
@overload
def svd(
    x: TensorValue,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]: ...
@overload
def svd(
    x: JaxValue,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> jax.Array | tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def symmetric_product(
    a_matrix: TensorValue,
    c_matrix: Value,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Tensor:
    """Symmetric product."""

@overload
def symmetric_product(
    a_matrix: Value,
    c_matrix: TensorValue,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Tensor: ...
@overload
def symmetric_product(
    a_matrix: JaxValue,
    c_matrix: JaxValue,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> jax.Array: ...
@overload
def triangular_solve(
    a: TensorValue,
    b: Value,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    """Triangular solve."""

@overload
def triangular_solve(
    a: Value,
    b: TensorValue,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Tensor: ...
@overload
def triangular_solve(
    a: JaxValue,
    b: JaxValue,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> jax.Array: ...
@overload
def tridiagonal(a: TensorValue, *, lower: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Reduces a symmetric/Hermitian matrix to tridiagonal form."""

@overload
def tridiagonal(
    a: JaxValue, *, lower: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]: ...
@overload
def tridiagonal_solve(
    dl: jax.Array, d: jax.Array, du: jax.Array, b: jax.Array, *, perturb_singular: bool = False
) -> jax.Array:
    """Computes the solution of a tridiagonal linear system."""

@overload
def tridiagonal_solve(
    dl: Tensor | jax.Array,
    d: Tensor | jax.Array,
    du: Tensor | jax.Array,
    b: Tensor | jax.Array,
    *,
    perturb_singular: bool = False,
) -> Tensor: ...
