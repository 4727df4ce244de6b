"""The views and shapes of a Tensor, under the names of NumPy and of PyTorch."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad import Tensor
from fad.errors import ArgumentError, GradientError, attribute, describe
from fad.extend import array_function
from fad.extend.types import Operand, PyTree

# Making views


def sizes_of(arguments: tuple[Any, ...]) -> tuple[PyTree, ...]:
    """The sizes of ``f(2, 3)`` or ``f((2, 3))``."""
    one = len(arguments) == 1 and isinstance(arguments[0], (tuple, list, np.ndarray))
    return tuple(arguments[0]) if one else arguments


def _expand(self: Tensor, *sizes: Any) -> Tensor:
    """Dimensions of length 1 repeated to ``sizes``, as a view; -1 keeps a length."""
    sizes = sizes_of(sizes)
    offset = len(sizes) - self.ndim
    if offset < 0:
        raise ArgumentError(f"expand: {len(sizes)} sizes are too few for {describe(self)}")
    lengths = [
        self.shape[k - offset] if n == -1 and k >= offset else n for k, n in enumerate(sizes)
    ]
    return fnp.broadcast_to(self, tuple(lengths))


def _unbind(self: Tensor, dim: int = 0) -> PyTree:
    """A tuple of views, one for each index along ``dim``."""
    return fnp.unstack(self, axis=dim)


def _split(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """``fad.numpy.split`` of this Tensor, a list of views: ``x.split(2)`` is in two parts.

    With ``split_size=`` or ``dim=`` it is PyTorch's: ``x.split(2, dim=0)`` is in parts of length 2.
    """
    return fnp.split(self, *args, **kwargs)


def _reshape(self: Tensor, *shape: Any, order: str = "C", **kwargs: Any) -> Any:
    """The same elements in another shape; ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
    if "shape" in kwargs:
        return fnp.reshape(self, kwargs["shape"], order)
    target = sizes_of(shape)
    return fnp.reshape(self, target) if order == "C" else fnp.reshape(self, target, order)


def _transpose(
    self: Tensor, *axes: Any, dim0: int | None = None, dim1: int | None = None
) -> Tensor:
    """Dimensions permuted; reversed if no ``axes`` are given; two of them swapped: ``dim0`` and ``dim1``.

    Raises:
        ArgumentError: there are two ``axes`` for a Tensor that has not two dimensions, as if they were to be
            swapped.
    """
    if dim0 is not None and dim1 is not None and not axes:
        return self.swapdims(dim0, dim1)
    if not axes or axes == (None,):
        return fnp.transpose(self)
    axes = sizes_of(axes)
    if len(axes) == 2 != self.ndim:
        raise ArgumentError(
            f"transpose: expected an axis for each dimension of {describe(self)}, got {axes}: to swap two, "
            f"write x.swapaxes{axes} or x.transpose(dim0={axes[0]}, dim1={axes[1]})"
        )
    return fnp.transpose(self, axes)


def _reversed(self: Tensor) -> Tensor:
    """Dimensions reversed."""
    return fnp.transpose(self)


def _swapped(self: Tensor) -> Tensor:
    """Last two dimensions swapped.

    Raises:
        ArgumentError: it has fewer than two dimensions; an AttributeError too.
    """
    if self.ndim < 2:
        raise ArgumentError(f"mT needs at least two dimensions, got {describe(self)}")
    return fnp.matrix_transpose(self)


def _flatten(
    self: Tensor,
    start_dim: int | str | None = None,
    end_dim: int | None = None,
    *,
    order: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A copy with one dimension; `ravel` is a view. The one argument that NumPy has is ``order``.

    With a dimension to begin at, and maybe one to end at, it is PyTorch's: ``x.flatten(1)`` has these, and
    those between them, as one: a view where `reshape` is one, the Tensor itself if this is one dimension.
    With ``out`` the result is written into it, and it is returned.
    """
    if isinstance(start_dim, str) and order is None:
        start_dim, order = None, start_dim
    into: dict[str, PyTree] = {} if out is None else {"out": out}
    if start_dim is None and end_dim is None:
        flat = fnp.ravel(self, *([] if order is None else [order]), **into)
        return flat.clone() if out is None else flat
    if order is not None:
        raise TypeError("Tensor.flatten() takes order, or dimensions, but not both")
    x = self if self.ndim else fnp.reshape(self, 1)
    first = _dim_of(x, 0 if start_dim is None else start_dim, "flatten")
    last = _dim_of(x, -1 if end_dim is None else end_dim, "flatten")
    if first > last:
        raise ArgumentError(f"flatten: start_dim {start_dim} is behind end_dim {end_dim}")
    if first == last and out is None:
        return x
    length = math.prod(x.shape[first : last + 1])
    return fnp.reshape(x, (*x.shape[:first], length, *x.shape[last + 1 :]), **into)


_flatten.__qualname__ = "Tensor.flatten"  # for the errors of Python


# Views and shapes under PyTorch's names, made of `fad.numpy`'s and of indices.

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
    """A view of a matrix with its dimensions swapped; with fewer dimensions, the Tensor as it is.

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


def _dim_of(self: Tensor, dim: PyTree, who: str) -> int:
    try:
        number = operator.index(dim)
    except TypeError:
        raise TypeError(
            f"Tensor.{who}(): a dimension must be an integer, got {describe(dim)}"
        ) from None
    if not -self.ndim <= number < self.ndim:
        raise IndexError(f"{who}: dim {number} is out of range for {describe(self)}")
    return number % self.ndim


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
    return _narrow(self, dim, start, length).clone()


def _select(self: Tensor, dim: int, index: PyTree) -> Tensor:
    """A view of the part at ``index`` along ``dim``, without this dimension."""
    return self[(*[slice(None)] * _dim_of(self, dim, "select"), index)]


def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    """A view in which dimensions of length 1 are repeated to the shape of ``other``."""
    return fnp.broadcast_to(self, other.shape)


def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """A view of the same elements in the shape of ``other``."""
    return fnp.reshape(self, other.shape)


def _split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> PyTree:
    """A list of views of the lengths ``split_sizes`` along ``dim``."""
    return fnp.split(self, split_size=tuple(split_sizes), dim=dim)


# Copies


def _flip(self: Tensor, *axes: int | Sequence[int], **kwargs: PyTree) -> Tensor:
    """The elements in reverse order along ``axes`` (also ``dims=``), along all if there are none."""
    return _flipped(self, *((sizes_of(axes),) if axes else ()), **kwargs)


_flipped = array_function(jnp.flip, module="fad.Tensor")  # in NumPy it is a view


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
    lengths = self.shape[max(extra, 0) :]
    if extra < 0 or any([n not in (1, m) for n, m in zip(size, lengths, strict=True)]):
        raise ArgumentError(f"sum_to_size: {list(size)} does not broadcast to {describe(self)}")
    longer = [k + extra for k, (n, m) in enumerate(zip(size, lengths, strict=True)) if n != m]
    axes = (*range(extra), *longer)
    return fnp.reshape(fnp.sum(self, axes), size) if axes else self


# Copies, elements, and the view of another base


def _contiguous(self: Tensor, memory_format: object = None) -> Tensor:
    """The Tensor itself if it is contiguous, see `is_contiguous`; else a copy."""
    return self if Tensor.is_contiguous(self) else Tensor.clone(self)


def _copy(self: Tensor, order: str = "C") -> Tensor:
    """A copy with the same history; ``order``, of NumPy's method, has no effect."""
    return Tensor.clone(self)


def _contains(self: Tensor, value: PyTree) -> bool:
    """Whether an element equals ``value``, a number."""
    return bool(fnp.any(fnp.equal(self, value)))


def _index_put(
    self: Tensor, indices: Sequence[PyTree], values: PyTree, accumulate: bool = False
) -> Tensor:
    """A copy with the elements at a tuple of index arrays set to ``values``, or with these added."""
    return Tensor.index_put_(Tensor.clone(self), indices, values, accumulate)


def _replay_on(self: Tensor, new_base: PyTree) -> Tensor:
    """The view of ``new_base`` that this is of its own base.

    Raises:
        GradientError: it is not a view.
        ArgumentError: ``new_base`` has another shape than the base.
    """
    base = self.base
    if base is None:
        raise GradientError(f"replay_on: {describe(self)} is not a view")
    if tuple(new_base.shape) != base.shape:
        raise ArgumentError(
            f"replay_on: the new base must have the shape of the base, {base.shape}, got "
            f"{describe(new_base)}"
        )
    return self.view_fn(new_base)


MEMBERS: dict[str, object] = {
    "__contains__": _contains,
    "contiguous": _contiguous,
    "copy": _copy,
    "index_put": _index_put,
    "replay_on": _replay_on,
    "H": attribute(_hermitian),
    "T": attribute(_reversed),
    "adjoint": _conjugated,
    "dim": _dim,
    "expand": _expand,
    "expand_as": _expand_as,
    "flatten": _flatten,
    "flip": _flip,
    "mH": attribute(_conjugated),
    "mT": attribute(_swapped),
    "narrow": _narrow,
    "narrow_copy": _narrow_copy,
    "ndimension": _dim,
    "nelement": _numel,
    "numel": _numel,
    "permute": _permute,
    "reshape": _reshape,
    "reshape_as": _reshape_as,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split_with_sizes,
    "sum_to_size": _sum_to_size,
    "t": _t,
    "tile": _tile,
    "transpose": _transpose,
    "unbind": _unbind,
    "unsqueeze": _unsqueeze,
    "view_as": _reshape_as,
}
