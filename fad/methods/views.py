"""Views of a Tensor with another dtype, and what a view is a view of: its base."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.primitive import Primitive
from fad.core.tensor import STATE, Tensor
from fad.core.types import Array, Aval, DType, Operand, Outputs, Value
from fad.errors import ArgumentError, GradientError, attribute, describe
from fad.methods.names import method_of
from fad.views.aliases import link_of
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import bind_view, is_contiguous, view_binder

# The relation to a base


def _is_view(self: Tensor) -> bool:
    """Whether it shows a part of another Tensor, `base`."""
    return _base(self) is not None


def _base(self: Tensor) -> Tensor | None:
    """The Tensor that this is a view of; None if this is not a view."""
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


def _dir(self: Tensor) -> list[str]:
    """The names of its attributes; without those of matrices, and of views, where it is none."""
    lacks = {*STATE} if _is_view(self) else {*STATE, "view_fn"}
    if self.ndim != 2:
        lacks |= {"H", "mH", "mT"} if self.ndim < 2 else {"H"}
    return [name for name in object.__dir__(self) if name not in lacks]


# Views of the same memory: of all elements in another shape, or of their bytes as another dtype


def _is_contiguous(self: Tensor, memory_format: object = None) -> bool:
    """Whether it is not a view, or its elements are next to each other in row-major order."""
    return is_contiguous(self)


_reshaped_view = method_of((fnp, "reshape"), view_binder(Write.RESHAPE))


def _view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same elements in another shape, ``x.view(2, -1)``, or their bytes read as another dtype.

    Both are views, wherever the elements are; one of another dtype has no derivative.
    """
    if shape and dtype is None:
        first, *more = shape
        if more or isinstance(first, (int, np.integer)):
            return _reshaped_view(self, shape)
        if isinstance(first, (tuple, list)):
            return _reshaped_view(self, tuple(first))
        dtype = first
    return bind_view(self, Step(_of_dtype(jnp.dtype(dtype))))


def view_as_real(input: Operand) -> Value:
    """A complex Tensor as a real one, with a last dimension of 2: real and imaginary parts.

    Arguments:
        input: a complex Tensor or array.

    Returns:
        A view: a write to it changes the input. Derivatives go through it.

    Raises:
        ArgumentError: the input is not complex.

    Source: ``torch.view_as_real``.

    >>> import fad
    >>> z = fad.tensor([1.0 + 2.0j])
    >>> fad.view_as_real(z)[0, 1] = 5.0
    >>> z.tolist()
    [(1+5j)]
    """
    x = fnp.asarray(input) if not isinstance(input, (Tensor, jax.Array)) else input
    if x.dtype.kind != "c":
        raise ArgumentError(f"view_as_real: the input must be complex, got {describe(x)}")
    return bind_view(x, Step(_AS_REAL))


def view_as_complex(input: Operand) -> Value:
    """A real Tensor with a last dimension of 2, real and imaginary parts, as a complex one.

    Arguments:
        input: a Tensor or array of dtype float32 or float64.

    Returns:
        A view: a write to it changes the input. Derivatives go through it.

    Raises:
        ArgumentError: the input has another dtype, or the length of its last dimension is not 2.

    Source: ``torch.view_as_complex``.

    >>> import fad
    >>> fad.view_as_complex(fad.tensor([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    x = fnp.asarray(input) if not isinstance(input, (Tensor, jax.Array)) else input
    if x.dtype not in (np.float32, np.float64) or x.ndim == 0 or x.shape[-1] != 2:
        raise ArgumentError(
            "view_as_complex: the input must be of dtype float32 or float64, with a last dimension of length "
            f"2, got {describe(x)}"
        )
    return bind_view(x, Step(_AS_COMPLEX))


def _of_parts(
    name: str,
    view: Callable[[Array], Array],
    put: Callable[[Array, Array], Array],
    places: Callable[[Array, Aval], Array | None],
) -> ViewOp:
    """A view whose elements are parts of those of the Tensor, or several of them together."""
    primitive = Primitive(name, view, deferrable=True)
    return ViewOp(primitive, Write.FUNCTION, put, selects=False, whole=False, places=places)


def _unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """A view with one dimension as several, of the lengths ``sizes``."""
    return torch_operations.unflatten(self, dim, tuple(sizes))


@functools.lru_cache(maxsize=256)
def _of_dtype(dtype: DType) -> ViewOp:
    """The bytes of a Tensor read as ``dtype``."""

    def places(addresses: Array, parent: Aval) -> Array | None:
        before, after = parent.dtype.itemsize, dtype.itemsize
        if before == after:
            return addresses
        *shape, n = addresses.shape
        if before > after:
            count = before // after
            return _parts(addresses, count).reshape(*shape, n * count)
        count = after // before
        return _wholes(addresses.reshape(*shape, n // count, count), count)

    return _of_parts("view", lambda x: x.view(dtype), lambda x, part: part.view(x.dtype), places)


def _parts(addresses: Array, count: int) -> Array:
    """Where the ``count`` equal parts of each element are, in a new last dimension."""
    return addresses[..., None] * count + jnp.arange(count)


def _wholes(addresses: Array, count: int) -> Array | None:
    """Where the elements are that are made of the ``count`` ones in each row, the last dimension.

    None if those are not next to each other, as one element's parts are, and in code that is traced, where
    that is not known.
    """
    if isinstance(addresses, jax.core.Tracer):
        return None
    first = addresses[..., :1]
    whole = jnp.array_equal(addresses, first + jnp.arange(count)) and not (first % count).any()
    return first[..., 0] // count if whole else None


def _as_real(z: Array) -> Array:
    return jnp.stack([z.real, z.imag], -1)


def _as_complex(parts: Array) -> Array:
    return jax.lax.complex(parts[..., 0], parts[..., 1])


_AS_REAL = _of_parts(
    "view_as_real", _as_real, lambda _, v: _as_complex(v), lambda at, _: _parts(at, 2)
)
_AS_COMPLEX = _of_parts(
    "view_as_complex", _as_complex, lambda _, v: _as_real(v), lambda at, _: _wholes(at, 2)
)

MEMBERS: dict[str, object] = {
    "__dir__": _dir,
    "_base": property(_base, doc=_base.__doc__),  # PyTorch's name
    "base": property(_base, doc=_base.__doc__),
    "is_contiguous": _is_contiguous,
    "is_view": property(_is_view, doc=_is_view.__doc__),
    "unflatten": _unflatten,
    "view": _view,
    "view_fn": attribute(_view_fn),
}
