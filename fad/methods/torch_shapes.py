"""Views and shapes under PyTorch's names, made of `fad.numpy`'s and of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.core.types import Operand, PyTree
from fad.errors import ArgumentError, attribute, describe
from fad.methods.names import method_of
from fad.methods.shapes import sizes_of
from fad.views.copying import clone

# Asking


def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self.ndim


def _numel(self: Tensor) -> int:
    """The number of elements."""
    return int(self.size)


# Views


def _permute(self: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """A view with the dimensions in another order: ``x.permute(1, 0)``, or the tuple, also as ``dims=``."""
    return fnp.transpose(self, sizes_of(order) if dims is None else dims)


def _t(self: Tensor) -> Tensor:
    """A view of a matrix with its dimensions swapped; of what has fewer, as it is.

    Raises:
        ArgumentError: it has more than two dimensions.
    """
    if self.ndim > 2:
        raise ArgumentError(
            f"t: expected a Tensor with at most 2 dimensions, got {describe(self)}: write x.mT"
        )
    return fnp.transpose(self)


def _conjugated(self: Tensor) -> Tensor:
    """The last two dimensions swapped, and conjugated where the elements are complex."""
    return self.mT.conj() if self.dtype.kind == "c" else self.mT


def _hermitian(self: Tensor) -> Tensor:
    """A matrix transposed, and conjugated where its elements are complex.

    Raises:
        ArgumentError: it has neither two dimensions nor none; an AttributeError too.
    """
    if self.ndim == 0:
        return self
    if self.ndim != 2:
        raise ArgumentError(f"H: expected a matrix, got {describe(self)}: write x.mH")
    return _conjugated(self)


def _unsqueeze(self: Tensor, dim: int) -> Tensor:
    """A view with a dimension of length 1 at ``dim``."""
    return fnp.expand_dims(self, dim)


def _dim_of(self: Tensor, dim: int, who: str) -> int:
    if not -self.ndim <= dim < self.ndim:
        raise IndexError(f"{who}: dim {dim} is out of range for {describe(self)}")
    return dim % self.ndim


def _narrow(self: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of the ``length`` parts from ``start`` on along ``dim``."""
    at = _dim_of(self, dim, "narrow")
    first = int(start) + (self.shape[at] if start < 0 else 0)
    if first < 0 or not 0 <= length <= self.shape[at] - first:
        raise IndexError(
            f"narrow: {length} from {int(start)} on is out of range for {describe(self)}, dim {dim}"
        )
    return self[(*[slice(None)] * at, slice(first, first + length))]


def _narrow_copy(self: Tensor, dim: int, start: Operand, length: int) -> Tensor:
    """`narrow`, as a copy."""
    return clone(_narrow(self, dim, start, length))


def _select(self: Tensor, dim: int, index: PyTree) -> Tensor:
    """A view of the part at ``index`` along ``dim``, without this dimension."""
    return self[(*[slice(None)] * _dim_of(self, dim, "select"), index)]


def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    """A view in which dimensions of length 1 are repeated to the shape of ``other``."""
    return fnp.broadcast_to(self, other.shape)


def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """A view of the same elements in the shape of ``other``."""
    return fnp.reshape(self, other.shape)


def _unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """A view with one dimension as several, of the lengths ``sizes``."""
    return torch_operations.unflatten(self, dim, tuple(sizes))


def _split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> PyTree:
    """A list of views of the lengths ``split_sizes`` along ``dim``."""
    return torch_operations.split(self, tuple(split_sizes), dim)


# Copies


def _flip(self: Tensor, *axes: int | Sequence[int], **kwargs: PyTree) -> Tensor:
    """The elements in reverse order along ``axes`` (also ``dims=``), along all if there are none."""
    return _flipped(self, *((sizes_of(axes),) if axes else ()), **kwargs)


_flipped = method_of((fnp, "flip"), bind)  # in NumPy it is a view


def _tile(self: Tensor, *reps: int | Sequence[int], **kwargs: PyTree) -> Tensor:
    """The Tensor ``reps`` times in each dimension (also ``dims=``), next to itself: PyTorch's ``repeat``."""
    return fnp.tile(self, *((sizes_of(reps),) if reps else ()), **kwargs)


def _sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over the dimensions in which ``size``, which broadcasts to the shape, is shorter.

    Raises:
        ArgumentError: it does not broadcast to it.
    """
    size = sizes_of(size)
    extra = self.ndim - len(size)
    own = self.shape[max(extra, 0) :]
    if extra < 0 or any([n not in (1, m) for n, m in zip(size, own, strict=True)]):
        raise ArgumentError(f"sum_to_size: {list(size)} does not broadcast to {describe(self)}")
    longer = [k + extra for k, (n, m) in enumerate(zip(size, own, strict=True)) if n != m]
    axes = (*range(extra), *longer)
    return fnp.reshape(fnp.sum(self, axes), size) if axes else self


MEMBERS: dict[str, object] = {
    "H": attribute(_hermitian),
    "adjoint": _conjugated,
    "dim": _dim,
    "expand_as": _expand_as,
    "flip": _flip,
    "mH": attribute(_conjugated),
    "narrow": _narrow,
    "narrow_copy": _narrow_copy,
    "ndimension": _dim,
    "nelement": _numel,
    "numel": _numel,
    "permute": _permute,
    "reshape_as": _reshape_as,
    "select": _select,
    "split_with_sizes": _split_with_sizes,
    "sum_to_size": _sum_to_size,
    "t": _t,
    "tile": _tile,
    "unflatten": _unflatten,
    "unsqueeze": _unsqueeze,
    "view_as": _reshape_as,
}
