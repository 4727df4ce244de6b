"""Which results are views and which are copies: decided as in NumPy and PyTorch, by where elements are.

NOTE [addresses]

    b = fad.tensor(np.zeros((2, 3)))
    view, copy = b.reshape(6), b.T.reshape(6)  # no strides lead through the second one
    b += 1.0
    assert view[0] == 1.0 and copy[0] == 0.0

An array of JAX has no strides. A view is seen as if its base were stored in row-major order: its chain, run
on the numbers of the base's elements, says where its own are. A function such as ``reshape`` gives a view
where strides can describe what it makes of these addresses, and a copy elsewhere.

What stands for an argument inside of a transformed function has the addresses of that: a `Place`, which is
part of the key of compiled code too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, storage_of
from fad.core.types import Array, Aval, DType, NumpyArray, Operand
from fad.views.aliases import link_of
from fad.views.chains import (
    Form,
    Step,
    ViewOp,
    Write,
    addresses_after,
    form_of,
    numbers_of,
    view_op,
)
from fad.views.duals import DualLink
from fad.views.write_back import keeps_order

Test = Callable[[np.ndarray], bool]

# The kinds of steps that lead to a Tensor, shape and dtype of the base, the shapes of the steps' numbers.
Place = tuple[Form, tuple[int, ...], Any, tuple[tuple[int, ...], ...]]


def origin(x: Tensor) -> tuple[Tensor, tuple[Step, ...]]:
    """What ``x`` is a view of, behind dual Tensors too, and the chain from the data of the storage."""
    chain: tuple[Step, ...] = ()
    while True:
        link = link_of(x)
        if link is None:
            return x, chain
        chain = (*link.chain, *chain)
        if isinstance(link, DualLink):
            x = link.primal
        elif link.base is None:  # a peer, which may have a chain of its own
            return x, chain
        else:
            x = link.base


def has_strides(addresses: np.ndarray) -> bool:
    """Whether the addresses along each dimension are at equal distances, the same everywhere."""
    if not addresses.size:
        return True
    wanted = addresses.ravel()[0]
    for k, n in enumerate(addresses.shape):
        line = addresses[tuple([slice(None) if d == k else 0 for d in range(addresses.ndim)])]
        step = line[1] - line[0] if n > 1 else 0
        wanted = np.add.outer(wanted, step * np.arange(n))
    return np.array_equal(addresses, wanted)


def is_row_major(addresses: np.ndarray) -> bool:
    """Whether the addresses follow each other, one by one."""
    flat = addresses.ravel()
    return not flat.size or np.array_equal(flat, flat[0] + np.arange(flat.size))


def is_contiguous(x: Tensor) -> bool:
    """Whether the elements of ``x`` are next to each other in row-major order, see NOTE [addresses]."""
    return not _moved(x) or _decide(None, is_row_major, *_place(x))


def gives_view(primitive: Primitive, x: Tensor, test: Test) -> bool:
    """Whether the result of ``primitive``, which moves the elements of ``x``, is a view by ``test``."""
    if not _moved(x):
        aval = x.aval
        if keeps_order(primitive, aval.shape, aval.dtype):
            return True
    return _decide(primitive, test, *_place(x))


def place_of(x: Operand, dim: int | None = None) -> Place | None:
    """Where the elements of ``x`` are, or those of a lane along ``dim``; None if next to each other."""
    if not isinstance(x, Tensor) or not (_moved(x) or dim):
        return None
    place = _place(x)
    if dim is not None:
        form, *rest = place
        place = ((*form, (_lane(dim), 0)), *rest)
    return None if _decide(None, is_row_major, *place) else place


def stand_at(inside: Any, place: Place | None) -> None:
    """Let ``inside``, which stands for an argument with this place, have its elements there."""
    if place is not None:
        storage_of(inside).place = place


@functools.lru_cache(maxsize=64)
def _lane(dim: int) -> ViewOp:
    return view_op(Primitive("lane", lambda x: jnp.take(x, 0, dim)), Write.INDICES)


def _moved(x: Tensor) -> bool:
    """Whether the elements of ``x`` may not be next to each other."""
    meta = x.meta
    return meta is not None and (meta.link is not None or meta.storage.place is not None)


def _place(x: Tensor) -> Place:
    root, chain = origin(x)
    form = form_of(chain)
    shapes = tuple([() if type(n) is int else tuple(n.shape) for n in numbers_of(chain)])
    storage = None if root.meta is None else root.meta.storage
    if storage is not None and storage.place is not None:
        before, shape, dtype, earlier = storage.place
        return (*before, *form), shape, dtype, (*earlier, *shapes)
    data = root if storage is None or link_of(root) is None else storage.data
    return form, data.aval.shape, data.aval.dtype, shapes


@functools.lru_cache(maxsize=4096)
def _decide(
    primitive: Primitive | None,
    test: Test,
    form: Form,
    shape: tuple[int, ...],
    dtype: DType,
    shapes: tuple[tuple[int, ...], ...],
) -> bool:
    """Whether ``test`` holds of the addresses that the steps, and the primitive, lead to."""
    numbers = iter([np.zeros(s, np.int32)[()] for s in shapes])  # they only move a view
    with jax.ensure_compile_time_eval():
        addresses: Any = _numbered(shape)
        kind: Aval = jax.ShapeDtypeStruct(shape, dtype)
        for op, count in form:
            own = [next(numbers) for _ in range(count)]
            found, kind = addresses_after(op, addresses, kind, own)
            if found is None and not is_row_major(np.asarray(addresses)):
                return False
            # None: the same bytes, read in another way.
            addresses = _numbered(kind.shape) if found is None else found
        if primitive is not None:
            addresses = primitive.flat(addresses)
        return test(np.asarray(addresses))


# Steps to parts of elements, and back: `ViewOp.places`


def parts_of(addresses: Array, count: int) -> Array:
    """Where the ``count`` equal parts of each element are, in a new last dimension."""
    return addresses[..., None] * count + jnp.arange(count)


def joined(addresses: Array, count: int) -> Array | None:
    """Where the elements are that are made of the ``count`` ones in each row, the last dimension.

    None if those are not next to each other, as one element's parts are, and in code that is traced, where
    that is not known.
    """
    if isinstance(addresses, jax.core.Tracer):
        return None
    first = addresses[..., :1]
    whole = jnp.array_equal(addresses, first + jnp.arange(count)) and not (first % count).any()
    return first[..., 0] // count if whole else None


def _numbered(shape: tuple[int, ...]) -> NumpyArray | Array:
    return jnp.arange(int(np.prod(shape))).reshape(shape)
