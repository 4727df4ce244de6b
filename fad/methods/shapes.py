"""The views of a Tensor: other shapes, parts and dtypes of it; and the relation of a view to its base."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.primitive import Primitive
from fad.core.tensor import STATE, Tensor
from fad.core.types import Array, Aval, DType, Operand, Outputs, PyTree
from fad.errors import ArgumentError, GradientError, attribute, describe
from fad.methods.names import method_of
from fad.views.addresses import joined, parts_of
from fad.views.aliases import link_of
from fad.views.chains import Step, ViewOp, Write
from fad.views.copying import clone
from fad.views.make_view import bind_view, view_binder

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


def sizes_of(given: tuple[Any, ...]) -> tuple[PyTree, ...]:
    """What is given as ``f(2, 3)`` or ``f((2, 3))``."""
    one = len(given) == 1 and isinstance(given[0], (tuple, list, np.ndarray))
    return tuple(given[0]) if one else given


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


MEMBERS: dict[str, object] = {
    "T": attribute(_reversed),
    "__dir__": _dir,
    "mT": attribute(_swapped),
    "base": property(_base, doc=_base.__doc__),
    "_base": property(_base, doc=_base.__doc__),  # PyTorch's name
    "expand": _expand,
    "flatten": _flatten,
    "is_view": property(_is_view, doc=_is_view.__doc__),
    "replay_on": _replay_on,
    "reshape": _reshape,
    "split": _split,
    "transpose": _transpose,
    "unbind": _unbind,
    "view": _view,
    "view_fn": attribute(_view_fn),
}
