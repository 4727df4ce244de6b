"""The names of jax.numpy.linalg, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import jax

from fad.arrays.annotations import DTypeLike, JaxValue, ListedValue, PrecisionArgument, TensorValue
from fad.core.tensor import Tensor

_ArrayT = TypeVar("_ArrayT")

class _EigResult(NamedTuple, Generic[_ArrayT]):
    eigenvalues: _ArrayT
    eigenvectors: _ArrayT

class _EighResult(NamedTuple, Generic[_ArrayT]):
    eigenvalues: _ArrayT
    eigenvectors: _ArrayT

class _QRResult(NamedTuple, Generic[_ArrayT]):
    Q: _ArrayT
    R: _ArrayT

class _SVDResult(NamedTuple, Generic[_ArrayT]):
    U: _ArrayT
    S: _ArrayT
    Vh: _ArrayT

class _SlogdetResult(NamedTuple, Generic[_ArrayT]):
    sign: _ArrayT
    logabsdet: _ArrayT

@overload
def cholesky(a: TensorValue, *, upper: bool = False, symmetrize_input: bool = True) -> Tensor:
    """Compute the Cholesky decomposition of a matrix."""

@overload
def cholesky(a: JaxValue, *, upper: bool = False, symmetrize_input: bool = True) -> jax.Array: ...
@overload
def cholesky(a: ListedValue, *, upper: bool = False, symmetrize_input: bool = True) -> Tensor: ...
@overload
def cond(x: TensorValue, p: Any = None) -> Tensor:
    """Compute the condition number of a matrix."""

@overload
def cond(x: JaxValue, p: Any = None) -> jax.Array: ...
@overload
def cond(x: ListedValue, p: Any = None) -> Tensor: ...
@overload
def cross(x1: TensorValue, x2: ListedValue, /, *, axis: Any = -1) -> Tensor: ...
@overload
def cross(x1: ListedValue, x2: TensorValue, /, *, axis: Any = -1) -> Tensor: ...
@overload
def cross(x1: JaxValue, x2: JaxValue, /, *, axis: Any = -1) -> jax.Array: ...
@overload
def cross(x1: ListedValue, x2: ListedValue, /, *, axis: Any = -1) -> Tensor: ...
@overload
def cross(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def cross(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def det(a: TensorValue) -> Tensor:
    """Compute the determinant of an array."""

@overload
def det(a: JaxValue) -> jax.Array: ...
@overload
def det(a: ListedValue) -> Tensor: ...
@overload
def diagonal(x: TensorValue, /, *, offset: int = 0) -> Tensor:
    """Extract the diagonal of an matrix or stack of matrices."""

@overload
def diagonal(x: JaxValue, /, *, offset: int = 0) -> jax.Array: ...
@overload
def diagonal(x: ListedValue, /, *, offset: int = 0) -> Tensor: ...
@overload
def eig(a: TensorValue) -> _EigResult[Tensor]:
    """Compute the eigenvalues and eigenvectors of a square array."""

@overload
def eig(a: JaxValue) -> _EigResult[jax.Array]: ...
@overload
def eig(a: ListedValue) -> _EigResult[Tensor]: ...
@overload
def eigh(
    a: TensorValue, UPLO: str | None = None, symmetrize_input: bool = True
) -> _EighResult[Tensor]:
    """Compute the eigenvalues and eigenvectors of a Hermitian matrix."""

@overload
def eigh(
    a: JaxValue, UPLO: str | None = None, symmetrize_input: bool = True
) -> _EighResult[jax.Array]: ...
@overload
def eigh(
    a: ListedValue, UPLO: str | None = None, symmetrize_input: bool = True
) -> _EighResult[Tensor]: ...
@overload
def eigvals(a: TensorValue) -> Tensor:
    """Compute the eigenvalues of a general matrix."""

@overload
def eigvals(a: JaxValue) -> jax.Array: ...
@overload
def eigvals(a: ListedValue) -> Tensor: ...
@overload
def eigvalsh(a: TensorValue, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Tensor:
    """Compute the eigenvalues of a Hermitian matrix."""

@overload
def eigvalsh(
    a: JaxValue, UPLO: str | None = "L", *, symmetrize_input: bool = True
) -> jax.Array: ...
@overload
def eigvalsh(
    a: ListedValue, UPLO: str | None = "L", *, symmetrize_input: bool = True
) -> Tensor: ...
@overload
def inv(a: TensorValue) -> Tensor: ...
@overload
def inv(a: JaxValue) -> jax.Array: ...
@overload
def inv(a: ListedValue) -> Tensor: ...
@overload
def lstsq(
    a: TensorValue, b: ListedValue, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the least-squares solution to a linear equation."""

@overload
def lstsq(
    a: ListedValue, b: TensorValue, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def lstsq(
    a: JaxValue, b: JaxValue, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]: ...
@overload
def lstsq(
    a: ListedValue, b: ListedValue, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def matmul(
    x1: TensorValue,
    x2: ListedValue,
    /,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Perform a matrix multiplication."""

@overload
def matmul(
    x1: ListedValue,
    x2: TensorValue,
    /,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def matmul(
    x1: JaxValue,
    x2: JaxValue,
    /,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def matmul(
    x1: ListedValue,
    x2: ListedValue,
    /,
    *,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def matrix_norm(x: TensorValue, /, *, keepdims: bool = False, ord: str | int = "fro") -> Tensor:
    """Compute the norm of a matrix or stack of matrices."""

@overload
def matrix_norm(x: JaxValue, /, *, keepdims: bool = False, ord: str | int = "fro") -> jax.Array: ...
@overload
def matrix_norm(x: ListedValue, /, *, keepdims: bool = False, ord: str | int = "fro") -> Tensor: ...
@overload
def matrix_norm(x: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def matrix_norm(x: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def matrix_norm(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def matrix_power(a: TensorValue, n: int) -> Tensor:
    """Raise a square matrix to an integer power."""

@overload
def matrix_power(a: JaxValue, n: int) -> jax.Array: ...
@overload
def matrix_power(a: ListedValue, n: int) -> Tensor: ...
@overload
def matrix_rank(
    M: TensorValue,
    rtol: ListedValue | None = None,
    *,
    hermitian: bool = False,
    tol: ListedValue | None = None,
) -> Tensor:
    """Compute the rank of a matrix."""

@overload
def matrix_rank(
    M: JaxValue,
    rtol: JaxValue | None = None,
    *,
    hermitian: bool = False,
    tol: JaxValue | None = None,
) -> jax.Array: ...
@overload
def matrix_rank(
    M: ListedValue,
    rtol: ListedValue | None = None,
    *,
    hermitian: bool = False,
    tol: ListedValue | None = None,
) -> Tensor: ...
@overload
def matrix_transpose(x: TensorValue, /) -> Tensor:
    """Transpose a matrix or stack of matrices."""

@overload
def matrix_transpose(x: JaxValue, /) -> jax.Array: ...
@overload
def matrix_transpose(x: ListedValue, /) -> Tensor: ...
@overload
def multi_dot(
    arrays: Sequence[TensorValue], *, precision: PrecisionArgument | None = None
) -> Tensor:
    """Efficiently compute matrix products between a sequence of arrays."""

@overload
def multi_dot(
    arrays: Sequence[JaxValue], *, precision: PrecisionArgument | None = None
) -> jax.Array: ...
@overload
def multi_dot(
    arrays: Sequence[ListedValue], *, precision: PrecisionArgument | None = None
) -> Tensor: ...
@overload
def norm(
    x: TensorValue,
    ord: int | str | None = None,
    axis: tuple[int, ...] | int | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Compute the norm of a matrix or vector."""

@overload
def norm(
    x: JaxValue,
    ord: int | str | None = None,
    axis: tuple[int, ...] | int | None = None,
    keepdims: bool = False,
) -> jax.Array: ...
@overload
def norm(
    x: ListedValue,
    ord: int | str | None = None,
    axis: tuple[int, ...] | int | None = None,
    keepdims: bool = False,
) -> Tensor: ...
@overload
def norm(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def norm(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def norm(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def norm(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def norm(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def norm(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def norm(x: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def norm(x: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def norm(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def outer(x1: TensorValue, x2: ListedValue, /) -> Tensor:
    """Compute the outer product of two 1-dimensional arrays."""

@overload
def outer(x1: ListedValue, x2: TensorValue, /) -> Tensor: ...
@overload
def outer(x1: JaxValue, x2: JaxValue, /) -> jax.Array: ...
@overload
def outer(x1: ListedValue, x2: ListedValue, /) -> Tensor: ...
@overload
def pinv(
    a: TensorValue,
    rtol: ListedValue | None = None,
    hermitian: bool = False,
    *,
    rcond: ListedValue | None = None,
) -> Tensor:
    """Compute the (Moore-Penrose) pseudo-inverse of a matrix."""

@overload
def pinv(
    a: JaxValue,
    rtol: JaxValue | None = None,
    hermitian: bool = False,
    *,
    rcond: JaxValue | None = None,
) -> jax.Array: ...
@overload
def pinv(
    a: ListedValue,
    rtol: ListedValue | None = None,
    hermitian: bool = False,
    *,
    rcond: ListedValue | None = None,
) -> Tensor: ...
@overload
def qr(
    a: TensorValue, mode: Literal["reduced", "complete", "raw", "full"] = "reduced"
) -> _QRResult[Tensor]: ...
@overload
def qr(
    a: JaxValue, mode: Literal["reduced", "complete", "raw", "full"] = "reduced"
) -> _QRResult[jax.Array]: ...
@overload
def qr(
    a: ListedValue, mode: Literal["reduced", "complete", "raw", "full"] = "reduced"
) -> _QRResult[Tensor]: ...
@overload
def qr(a: TensorValue, mode: Literal["r"]) -> Tensor: ...
@overload
def qr(a: JaxValue, mode: Literal["r"]) -> jax.Array: ...
@overload
def qr(a: ListedValue, mode: Literal["r"]) -> Tensor: ...
@overload
def qr(a: TensorValue, mode: str) -> Tensor | _QRResult[Tensor]: ...
@overload
def qr(a: JaxValue, mode: str) -> jax.Array | _QRResult[jax.Array]: ...
@overload
def qr(a: ListedValue, mode: str) -> Tensor | _QRResult[Tensor]: ...
@overload
def slogdet(a: TensorValue, *, method: str | None = None) -> _SlogdetResult[Tensor]:
    """Compute the sign and (natural) logarithm of the determinant of an array."""

@overload
def slogdet(a: JaxValue, *, method: str | None = None) -> _SlogdetResult[jax.Array]: ...
@overload
def slogdet(a: ListedValue, *, method: str | None = None) -> _SlogdetResult[Tensor]: ...
@overload
def solve(a: TensorValue, b: ListedValue) -> Tensor:
    """Solve a linear system of equations."""

@overload
def solve(a: ListedValue, b: TensorValue) -> Tensor: ...
@overload
def solve(a: JaxValue, b: JaxValue) -> jax.Array: ...
@overload
def solve(a: ListedValue, b: ListedValue) -> Tensor: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[Tensor]:
    """Compute the singular value decomposition."""

@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[jax.Array]: ...
@overload
def svd(
    a: ListedValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[Tensor]: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[Tensor]: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[jax.Array]: ...
@overload
def svd(
    a: ListedValue,
    full_matrices: bool,
    compute_uv: Literal[True],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> _SVDResult[Tensor]: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> jax.Array: ...
@overload
def svd(
    a: ListedValue,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> jax.Array: ...
@overload
def svd(
    a: ListedValue,
    full_matrices: bool,
    compute_uv: Literal[False],
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor: ...
@overload
def svd(
    a: TensorValue,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor | _SVDResult[Tensor]: ...
@overload
def svd(
    a: JaxValue,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> jax.Array | _SVDResult[jax.Array]: ...
@overload
def svd(
    a: ListedValue,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Tensor | _SVDResult[Tensor]: ...
@overload
def svdvals(x: TensorValue, /) -> Tensor:
    """Compute the singular values of a matrix."""

@overload
def svdvals(x: JaxValue, /) -> jax.Array: ...
@overload
def svdvals(x: ListedValue, /) -> Tensor: ...
@overload
def tensordot(
    x1: TensorValue,
    x2: ListedValue,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Compute the tensor dot product of two N-dimensional arrays."""

@overload
def tensordot(
    x1: ListedValue,
    x2: TensorValue,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def tensordot(
    x1: JaxValue,
    x2: JaxValue,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> jax.Array: ...
@overload
def tensordot(
    x1: ListedValue,
    x2: ListedValue,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor: ...
@overload
def tensordot(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def tensordot(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def tensorinv(a: TensorValue, ind: int = 2) -> Tensor:
    """Compute the tensor inverse of an array."""

@overload
def tensorinv(a: JaxValue, ind: int = 2) -> jax.Array: ...
@overload
def tensorinv(a: ListedValue, ind: int = 2) -> Tensor: ...
@overload
def tensorsolve(a: TensorValue, b: ListedValue, axes: tuple[int, ...] | None = None) -> Tensor:
    """Solve the tensor equation a x = b for x."""

@overload
def tensorsolve(a: ListedValue, b: TensorValue, axes: tuple[int, ...] | None = None) -> Tensor: ...
@overload
def tensorsolve(a: JaxValue, b: JaxValue, axes: tuple[int, ...] | None = None) -> jax.Array: ...
@overload
def tensorsolve(a: ListedValue, b: ListedValue, axes: tuple[int, ...] | None = None) -> Tensor: ...
@overload
def tensorsolve(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def tensorsolve(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def trace(x: TensorValue, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Compute the trace of a matrix."""

@overload
def trace(x: JaxValue, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> jax.Array: ...
@overload
def trace(x: ListedValue, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def vecdot(
    x1: TensorValue,
    x2: ListedValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor:
    """Compute the (batched) vector conjugate dot product of two arrays."""

@overload
def vecdot(
    x1: ListedValue,
    x2: TensorValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vecdot(
    x1: JaxValue,
    x2: JaxValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array: ...
@overload
def vecdot(
    x1: ListedValue,
    x2: ListedValue,
    /,
    *,
    axis: int = -1,
    precision: PrecisionArgument | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vecdot(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def vecdot(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def vector_norm(
    x: TensorValue,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | str = 2,
) -> Tensor:
    """Compute the vector norm of a vector or batch of vectors."""

@overload
def vector_norm(
    x: JaxValue,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | str = 2,
) -> jax.Array: ...
@overload
def vector_norm(
    x: ListedValue,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | str = 2,
) -> Tensor: ...
@overload
def vector_norm(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def vector_norm(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def vector_norm(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def vector_norm(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def vector_norm(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def vector_norm(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def vector_norm(x: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def vector_norm(x: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def vector_norm(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
