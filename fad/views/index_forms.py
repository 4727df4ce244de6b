"""The forms of indices: what is static in an index, and the numbers and arrays that are not."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Array, NumpyArray, Operand, PyTree, Value
from fad.errors import HostValueError, describe
from fad.tape.recorder import as_tensor

# Forms of one entry of an index; a bool is its own, and makes a new dimension of length 1 or 0
ARRAY = "array"
INT = "int"
NEW = "newaxis"
SLICE = "slice"  # ("slice", start, stop, step)
WINDOW = "window"  # ("window", length): start is an argument
WHOLE = (SLICE, None, None, None)  # a dimension that the index does not name

_ALL = slice(None)


class _Mask:
    """A bool mask as an entry of an index: its shape, and the indices that it selects."""

    __slots__ = ("indices", "shape")

    def __init__(self, shape: tuple[int, ...], indices: list[Array]) -> None:
        self.shape = shape
        self.indices = indices


def parse_index(x: Value, index: PyTree) -> tuple[tuple[Hashable, ...], list[Operand]]:
    """The static form of an index into ``x``, one entry for each dimension, and its array arguments.

    Raises:
        IndexError: too many indices, an integer out of bounds, a bool mask of another shape than what
            it selects from, or a type that cannot index.
    """
    if type(index) is int:  # mostly
        shape = x.shape
        if shape and -shape[0] <= index < shape[0]:
            return (INT, *(WHOLE,) * (len(shape) - 1)), [index % shape[0]]
    return _form_of(_expanded(x, index), x)


def _expanded(x: Value, index: PyTree) -> list[Any]:
    """The entries of an index, one for each dimension: masks as what they select, without an ellipsis."""
    entries = list(index) if isinstance(index, tuple) else [index]
    entries = [_entry(e) for e in entries]
    expanded: list[Any] = []
    for e in entries:
        if isinstance(e, _Mask):
            expanded.extend(e.indices)
        else:
            expanded.append(e)
    used = sum(_consumes(e) for e in expanded)
    ndim = len(x.shape)
    if used > ndim:
        raise IndexError(
            f"too many indices: {describe(x)} has {ndim} dimensions, but {used} were indexed"
        )
    if any([isinstance(e, _Mask) for e in entries]):
        _check_masks(entries, ndim - used, x)
    dots = [k for k, e in enumerate(expanded) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    fill = [_ALL] * (ndim - used)
    if dots:
        expanded[dots[0] : dots[0] + 1] = fill
    else:
        expanded.extend(fill)
    return expanded


def _form_of(entries: Sequence[Any], x: Value) -> tuple[tuple[Hashable, ...], list[Operand]]:
    """`parse_index`, from entries.

    What programs differ by is in the form, what may differ from call to call is a value. So a slice without a
    step is a window of a length, at a position: a loop over ``x[i : i + 3]`` needs one program. The window
    is whole, and a position constant, where no program could be shared: of all elements, of none, or with a
    step.
    """
    form: list[Hashable] = []
    values: list[Operand] = []
    dim = 0
    for e in entries:
        if e is None:
            form.append(NEW)
            continue
        if isinstance(e, bool):
            form.append(e)
            continue
        size = x.shape[dim]
        if isinstance(e, slice) and e == _ALL:
            form.append(WHOLE)
        elif isinstance(e, slice) and not isinstance(size, int):  # a symbolic one of `jax.export`
            form.append((SLICE, e.start, e.stop, e.step))
        elif isinstance(e, slice):
            start, stop, step = e.indices(size)
            length = len(range(start, stop, step))
            if step == 1 and length == size:
                form.append(WHOLE)
            elif step != 1 or length == 0:
                form.append((SLICE, e.start, e.stop, e.step))
            else:
                form.append((WINDOW, length))
                values.append(start)
        elif isinstance(e, int):
            if not -size <= e < size:
                raise IndexError(
                    f"index {e} is out of bounds for dimension {dim} with size {size} of {describe(x)}"
                )
            form.append(INT)
            values.append(e % size)
        else:
            form.append(ARRAY)
            values.append(e)
        dim += 1
    return tuple(form), values


def _check_masks(entries: Sequence[object], unnamed: int, x: Value) -> None:
    """Refuse a mask that does not have the shape of the dimensions of ``x`` that it selects from."""
    dim = 0
    for e in entries:
        if isinstance(e, _Mask):
            selected = tuple(x.shape[dim : dim + len(e.shape)])
            if selected != e.shape:
                raise IndexError(
                    f"the shape of the mask {e.shape} does not match the shape {selected} of the "
                    f"dimensions of {describe(x)} that it selects from"
                )
            dim += len(e.shape)
        else:
            dim += unnamed if e is Ellipsis else _consumes(e)


def _consumes(entry: object) -> int:
    return 0 if entry is None or entry is Ellipsis or isinstance(entry, bool) else 1


def _bound(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return int(value)
    return operator.index(value)


def _entry(e: PyTree) -> PyTree:
    """One entry of an index: a slice, int, bool, None, Ellipsis, array or mask."""
    if e is None or e is Ellipsis:
        return e
    if isinstance(e, slice):
        return slice(_bound(e.start), _bound(e.stop), _bound(e.step))
    if isinstance(e, (bool, np.bool_)):
        return bool(e)
    if isinstance(e, (int, np.integer)):
        return int(e)
    if isinstance(e, (list, tuple)):
        e = _from_sequence(e)
    if not isinstance(e, (Tensor, jax.Array, np.ndarray)):
        raise IndexError(
            f"a Tensor can be indexed by integers, slices, None, ... and arrays of integers or bools, "
            f"got {describe(e)}"
        )
    if e.dtype == bool:
        return _mask_indices(e)
    if not jnp.issubdtype(e.dtype, np.integer):
        raise IndexError(
            f"arrays used as indices must be of integer or bool dtype, got {describe(e)}"
        )
    return e


_STACK = Primitive("stack", lambda *vs: jnp.stack(vs), deferrable=True)


def _from_sequence(e: Sequence[Operand]) -> PyTree:
    if any(isinstance(v, Tensor) for v in e):
        return bind(_STACK, [as_tensor(v) for v in e])
    array = np.asarray(e)
    return array.astype(np.int32) if array.size == 0 else array


def _mask_indices(mask: Value | NumpyArray) -> _Mask | bool:
    """The integer indices that a bool mask selects; it must have concrete values."""
    try:
        concrete = np.asarray(mask.__array__() if isinstance(mask, Tensor) else mask)
    except (HostValueError, jax.errors.TracerArrayConversionError) as error:
        raise HostValueError(
            "a bool mask selects a number of elements that depends on data, so inside vmap or jit it cannot "
            "be used as an index, but in x[mask] = v and x[mask] *= v with one value v for all, and in "
            "x[mask] = f(x[mask]) with elementwise functions f. Write fad.numpy.where(mask, x, y), or "
            "fad.numpy.nonzero(mask, size=n) for a known count"
        ) from error
    if concrete.ndim == 0:
        return bool(concrete)
    return _Mask(concrete.shape, [jnp.asarray(i) for i in concrete.nonzero()])


def is_basic(form: tuple[Hashable, ...]) -> bool:
    """Whether an index has no arrays, so that what it selects is a view."""
    return ARRAY not in form and True not in form and False not in form
