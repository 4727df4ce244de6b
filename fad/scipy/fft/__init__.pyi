"""The names of jax.scipy.fft, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, overload

import jax

from fad.core.tensor import Tensor

@overload
def dct(
    x: Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def dct(
    x: jax.Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def dct(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def dct(x: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def dct(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dct(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def dct(x: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def dct(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def dctn(
    x: Tensor,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def dctn(
    x: jax.Array,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def dctn(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def dctn(x: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def dctn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def dctn(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def dctn(x: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def dctn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def idct(
    x: Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def idct(
    x: jax.Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def idct(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def idct(x: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def idct(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def idct(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def idct(x: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def idct(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def idctn(
    x: Tensor,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def idctn(
    x: jax.Array,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def idctn(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def idctn(x: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def idctn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def idctn(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def idctn(x: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def idctn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
