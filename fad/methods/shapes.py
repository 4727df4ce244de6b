"""The views and shapes of a Tensor, under the names of NumPy and of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import STATE, Tensor
from fad.core.types import Array, Aval, DType, Operand, Outputs, PyTree
from fad.errors import ArgumentError, GradientError, attribute, describe
from fad.methods.names import method_of
from fad.views.aliases import link_of
from fad.views.chains import Step, ViewOp, Write
from fad.views.copying import clone
from fad.views.make_view import bind_view, joined, parts_of, view_binder

# The views of a Tensor: other shapes, parts and dtypes of it; and the relation of a view to its base.

# The relation to a base


def _is_view(self: Tensor) -> bool:
    """Whether it shows a part of another Tensor, `base`."""
    return _base(self) is not None


def _base(self: Tensor) -> Tensor | None:
    """The Tensor that this is a view of, None if it is none."""
    link = link_of(self)
    return None if link is None else link.base


def _view_fn(self: Tensor) -> Callable[[Operand], Tensor]:
    """The function that makes this view of its base; of anything with the base's shape.

    Raises:
        GradientError: it is not a view; an AttributeError too.
    """
    if not _is_view(self):
        raise GradientError(f"view_fn: {describe(self)} is not a view")
    chain = self.meta.link.chain  # type: ignore[union-attr]

    def view_fn(base: Operand) -> Outputs:
        for step in chain:
            base = bind_view(base, step)
        return base

    return view_fn


def _replay_on(self: Tensor, new_base: PyTree) -> Tensor:
    """The view of ``new_base`` that this is of its own base.

    Raises:
        GradientError: it is not a view.
        ArgumentError: ``new_base`` has another shape than the base.
    """
    view_fn = _view_fn(self)
    base = _base(self)
    assert base is not None
    if tuple(new_base.shape) != base.shape:
        raise ArgumentError(
            f"replay_on: the new base must have the shape of the base, {base.shape}, got "
            f"{describe(new_base)}"
        )
    return view_fn(new_base)


def _dir(self: Tensor) -> list[str]:
    """The names of its attributes; without those of matrices, and of views, where it is none."""
    lacks = {*STATE} if _is_view(self) else {*STATE, "view_fn"}
    if self.ndim != 2:
        lacks |= {"H", "mH", "mT"} if self.ndim < 2 else {"H"}
    return [name for name in object.__dir__(self) if name not in lacks]


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
        return torch_operations.swapdims(self, dim0, dim1)
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


def _flatten(self: Tensor, *args: PyTree, **kwargs: PyTree) -> Tensor:
    """A copy with one dimension; `ravel` is a view. The one argument that NumPy has is ``order``.

    With a dimension to begin at, and maybe one to end at, it is PyTorch's: ``x.flatten(1)`` has these, and
    those between them, as one: a view where `reshape` is one, the Tensor itself if this is one dimension.
    """
    if not args and not kwargs:
        return clone(fnp.ravel(self))
    if "order" in kwargs or (args and isinstance(args[0], str)):
        return clone(fnp.ravel(self, *args, **kwargs))
    out = torch_operations.flatten(self, *args, **kwargs)
    return self if out.shape == self.shape else out


_reshaped_view = method_of((fnp, "reshape"), view_binder(Write.RESHAPE))


def _view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same elements in another shape, ``x.view(2, -1)``, or their bytes read as another dtype.

    Both are views, wherever the elements are; one of another dtype has no derivative.
    """
    if shape and dtype is None:
        if len(shape) > 1 or isinstance(shape[0], (int, np.integer, tuple, list)):
            return _reshaped_view(self, sizes_of(shape))
        (dtype,) = shape
    return bind_view(self, Step(_of_dtype(jnp.dtype(dtype))))


@functools.lru_cache(maxsize=256)
def _of_dtype(dtype: DType) -> ViewOp:
    """The operation that reads the bytes of a Tensor as ``dtype``."""

    def places(addresses: Array, parent: Aval) -> Array | None:
        before, after = parent.dtype.itemsize, dtype.itemsize
        if before == after:
            return addresses
        *shape, n = addresses.shape
        if before > after:
            count = before // after
            return parts_of(addresses, count).reshape(*shape, n * count)
        count = after // before
        return joined(addresses.reshape(*shape, n // count, count), count)

    return ViewOp(
        Primitive("view", lambda x: x.view(dtype), deferrable=True),
        Write.FUNCTION,
        lambda x, part: part.view(x.dtype),
        selects=False,
        whole=False,
        places=places,
    )


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
    lengths = self.shape[max(extra, 0) :]
    if extra < 0 or any([n not in (1, m) for n, m in zip(size, lengths, strict=True)]):
        raise ArgumentError(f"sum_to_size: {list(size)} does not broadcast to {describe(self)}")
    longer = [k + extra for k, (n, m) in enumerate(zip(size, lengths, strict=True)) if n != m]
    axes = (*range(extra), *longer)
    return fnp.reshape(fnp.sum(self, axes), size) if axes else self


MEMBERS: dict[str, object] = {
    "H": attribute(_hermitian),
    "T": attribute(_reversed),
    "__dir__": _dir,
    "_base": property(_base, doc=_base.__doc__),  # PyTorch's name
    "adjoint": _conjugated,
    "base": property(_base, doc=_base.__doc__),
    "dim": _dim,
    "expand": _expand,
    "expand_as": _expand_as,
    "flatten": _flatten,
    "flip": _flip,
    "is_view": property(_is_view, doc=_is_view.__doc__),
    "mH": attribute(_conjugated),
    "mT": attribute(_swapped),
    "narrow": _narrow,
    "narrow_copy": _narrow_copy,
    "ndimension": _dim,
    "nelement": _numel,
    "numel": _numel,
    "permute": _permute,
    "replay_on": _replay_on,
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
    "unflatten": _unflatten,
    "unsqueeze": _unsqueeze,
    "view": _view,
    "view_as": _reshape_as,
    "view_fn": attribute(_view_fn),
}
