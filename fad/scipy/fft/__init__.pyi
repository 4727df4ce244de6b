"""The names of jax.scipy.fft, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import overload

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
def idct(
    x: Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def idct(
    x: jax.Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
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
