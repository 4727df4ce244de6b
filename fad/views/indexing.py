"""Indexing: ``x[i]`` and ``x.at[i]`` as Primitives that compile once for each form of index.

Integers and the starts of unit-step slices are arguments of the compiled function, so a loop over
rows or a moving window compiles nothing new; the form of the index (which entries are slices, how
long, where None and ``...`` stand) is static.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.borrowed import as_array
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.errors import HostValueError, describe
from fad.tape.recorder import as_tensor
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import bind_view

__all__ = [
    "At",
    "get_item",
    "getter",
    "is_basic",
    "parse_index",
    "step_of",
    "updater",
    "view_of",
]

# Forms of one entry of an index
_ARRAY = "array"
_INT = "int"
_NEW = "newaxis"
_TRUE, _FALSE = "true", "false"  # one bool: a new dimension of length 1 or 0, as an array makes it
_SLICE = "slice"  # ("slice", start, stop, step)
_WINDOW = "window"  # ("window", length): start is an argument
_FLAGS = (_TRUE, _FALSE)
_WHOLE = (_SLICE, None, None, None)  # a dimension that the index does not name


class _Flag:
    """One bool as an entry of an index."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


class _Mask:
    """A bool mask as an entry of an index: its shape, and the indices that it selects."""

    __slots__ = ("indices", "shape")

    def __init__(self, shape: tuple[int, ...], indices: list[Any]) -> None:
        self.shape = shape
        self.indices = indices


def parse_index(x: Any, index: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """The static form of an index into ``x``, one entry for each dimension, and its array arguments.

    Raises:
        IndexError: too many indices, an integer out of bounds, a bool mask of another shape than what
            it selects from, or a type that cannot index.
    """
    if type(index) is int:  # mostly
        shape = x.shape
        if shape and -shape[0] <= index < shape[0]:
            return (_INT, *(_WHOLE,) * (len(shape) - 1)), [index % shape[0]]
    entries = list(index) if isinstance(index, tuple) else [index]
    entries = [_entry(e, x) for e in entries]
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
    fill = [slice(None)] * (ndim - used)
    if dots:
        expanded[dots[0] : dots[0] + 1] = fill
    else:
        expanded.extend(fill)
    form: list[Any] = []
    values: list[Any] = []
    dim = 0
    flagged = any([isinstance(e, _Flag) for e in expanded])
    for e in expanded:
        if e is None:
            form.append(_NEW)
            continue
        if isinstance(e, _Flag):
            form.append(_TRUE if e.value else _FALSE)
            continue
        size = x.shape[dim]
        if isinstance(e, slice):
            start, stop, step = e.indices(size)
            length = len(range(start, stop, step))
            if step == 1 and length == size:
                form.append(_WHOLE)
            elif step != 1 or length == 0 or flagged:
                form.append((_SLICE, e.start, e.stop, e.step))
            else:
                form.append((_WINDOW, length))
                values.append(start)
        elif isinstance(e, int):
            if not -size <= e < size:
                raise IndexError(
                    f"index {e} is out of bounds for dimension {dim} with size {size} of {describe(x)}"
                )
            form.append(_INT)
            values.append(e % size)
        else:
            form.append(_ARRAY)
            values.append(e)
        dim += 1
    return tuple(form), values


def _check_masks(entries: Sequence[Any], unnamed: int, x: Any) -> None:
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


def _consumes(entry: Any) -> int:
    return 0 if entry is None or entry is Ellipsis or isinstance(entry, _Flag) else 1


def _bound(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return int(value)
    return operator.index(value)


def _entry(e: Any, x: Any) -> Any:
    """One entry of an index: a slice, int, None, Ellipsis, array or mask."""
    if e is None or e is Ellipsis:
        return e
    if isinstance(e, slice):
        return slice(_bound(e.start), _bound(e.stop), _bound(e.step))
    if isinstance(e, (bool, np.bool_)):
        return _Flag(bool(e))
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


def _from_sequence(e: Sequence[Any]) -> Any:
    if any(isinstance(v, Tensor) for v in e):
        stack = Primitive("stack", lambda *vs: jnp.stack(vs), lazy=True)
        return bind(stack, [as_tensor(v) for v in e])
    array = np.asarray(e)
    return array.astype(np.int32) if array.size == 0 else array


def _mask_indices(mask: Any) -> _Mask | _Flag:
    """The integer indices that a bool mask selects; it must have concrete values."""
    try:
        concrete = np.asarray(mask.__array__() if isinstance(mask, Tensor) else mask)
    except (HostValueError, jax.errors.TracerArrayConversionError) as error:
        raise HostValueError(
            "a bool mask selects a number of elements that depends on data, so it cannot be used as "
            "an index inside vmap or jit: write fad.numpy.where(mask, x, y), or "
            "fad.numpy.nonzero(mask, size=n) for a known count"
        ) from error
    if concrete.ndim == 0:
        return _Flag(bool(concrete))
    return _Mask(concrete.shape, [jnp.asarray(i) for i in concrete.nonzero()])


def _rebuild(form: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    """The index for JAX, windows still as slices from a traced start."""
    it = iter(values)
    index: list[Any] = []
    for f in form:
        if f == _NEW:
            index.append(None)
        elif f in _FLAGS:
            index.append(f == _TRUE)
        elif f in (_ARRAY, _INT):
            index.append(next(it))
        elif f[0] == _SLICE:
            index.append(slice(*f[1:]))
        else:
            index.append((next(it), f[1]))
    return tuple(index)


def _cut(x: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """A window of ``x``; the starts are numbers or 0-d arrays, and within bounds."""
    if tuple(sizes) == x.shape:
        return x
    if all([isinstance(s, int) for s in starts]):
        return jax.lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    return jax.lax.dynamic_slice(x, _int32(starts), sizes, allow_negative_indices=False)


def _paste(x: Any, window: Any, starts: Sequence[Any]) -> Any:
    """``x`` with ``window`` in its place; see `_cut`."""
    if window.shape == x.shape:
        return window
    return jax.lax.dynamic_update_slice(x, window, _int32(starts), allow_negative_indices=False)


def _int32(starts: Sequence[Any]) -> list[Any]:
    return [np.int32(s) if isinstance(s, int) else s.astype(np.int32) for s in starts]


def _windowed(x: Any, form: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """``x`` with its windows cut out, and the index that is left."""
    index = _rebuild(form, values)
    basic = is_basic(form)
    starts: list[Any] = []
    sizes: list[int] = []
    rest: list[Any] = []
    left: Any
    dim = 0
    for f, i in zip(form, index, strict=True):
        if f == _NEW:
            rest.append(None)
            continue
        if f in _FLAGS:
            rest.append(i)
            continue
        if f == _INT and basic:
            start, size, left = i, 1, 0
        elif isinstance(i, tuple):
            start, size, left = *i, slice(None)
        else:
            start, size, left = 0, x.shape[dim], i
        starts.append(start)
        sizes.append(size)
        rest.append(left)
        dim += 1
    return _cut(x, starts, sizes), tuple(rest)


def _reshaped(x: Any, rest: Sequence[Any]) -> Any:
    """``x[rest]``, where the ints are 0 and of dimensions of length 1."""
    steps = [slice(None) if i == 0 else i for i in rest if i is not None]
    if any([i != slice(None) for i in steps]):
        x = x[tuple(steps)]
    lengths = iter(x.shape)
    shape: list[int] = []
    for i in rest:
        if i is None:
            shape.append(1)
        else:
            length = next(lengths)
            if i != 0:
                shape.append(length)
    return x if x.shape == tuple(shape) else jax.lax.reshape(x, shape)


@functools.lru_cache(maxsize=4096)
def getter(form: tuple[Any, ...]) -> Primitive:
    def getitem(x: Any, *values: Any) -> Any:
        x, rest = _windowed(x, form, values)
        return _reshaped(x, rest) if is_basic(form) else x[rest]

    return Primitive("getitem", getitem, positions=True, lazy=True)


def get_item(x: Any, index: Any) -> Any:
    """``x[index]`` for a Tensor: a view for a basic index, a copy for one with arrays.

    Basic indices (ints, slices, None, ...) and integer arrays work under every transform; a bool
    mask needs concrete values.

    Raises:
        IndexError: see `parse_index`.
    """
    step = step_of(x, index)
    if isinstance(step, Step):
        return bind_view(x, step)
    form, values = step
    return bind(getter(form), [x, *values])


_STEPS = 4096  # kept
_steps: dict[Any, Step] = {}
_BOUNDS = frozenset([int, type(None)])


def step_of(x: Tensor, index: Any) -> Step | tuple[tuple[Any, ...], list[Any]]:
    """The view that a basic index selects; for an index with arrays what `parse_index` returns.

    Steps of indices without Tensors are remembered by the shape of ``x``.

    Raises:
        IndexError: see `parse_index`.
    """
    key = _key_of(index)
    at = None if key is None else (x.shape, key)
    found = _steps.get(at)
    if found is not None:
        return found
    form, values = parse_index(x, index)
    if not is_basic(form):
        return form, values
    step = Step(view_of(form), tuple(values))
    if at is not None:
        if len(_steps) >= _STEPS:
            _steps.clear()
        _steps[at] = step
    return step


def _key_of(index: Any) -> Any:
    """A hashable key of an index of ints, slices between ints, None and ``...``; else None."""
    if type(index) is int:
        return index
    key: list[Any] = []
    for e in index if type(index) is tuple else (index,):
        if type(e) is int or e is None or e is Ellipsis:
            key.append(e)
        elif (
            type(e) is slice
            and type(e.start) in _BOUNDS
            and type(e.stop) in _BOUNDS
            and type(e.step) in _BOUNDS
        ):
            key.append((e.start, e.stop, e.step))
        else:
            return None
    return tuple(key)


@functools.lru_cache(maxsize=4096)
def updater(method: str, form: tuple[Any, ...], options: tuple[tuple[str, Any], ...]) -> Primitive:
    """``x.at[index].method(v)`` as a Primitive of (x, v, *values)."""

    def update(x: Any, v: Any, *values: Any) -> Any:
        windows = [k for k, f in enumerate(form) if isinstance(f, tuple) and f[0] == _WINDOW]
        if not windows:
            index = _rebuild(form, values)
            return getattr(x.at[index], method)(v, **dict(options))
        # Cut the windows out, update inside, and put them back: one slice update, no scatter.
        cut, rest = _windows_only(x, form, values)
        new = getattr(cut.at[rest], method)(v, **dict(options))
        return _paste(x, new, _starts(form, values))

    return Primitive(f"at_{method}", update, positions=True, lazy=True)


def is_basic(form: tuple[Any, ...]) -> bool:
    """Whether an index has no arrays, so that what it selects is a view."""
    return _ARRAY not in form and _TRUE not in form and _FALSE not in form


def put_basic(form: tuple[Any, ...], x: Any, view: Any, values: Sequence[Any]) -> Any:
    """``x`` with ``view`` in the place of ``x[index]``, for a basic index, in plain JAX."""
    index = _rebuild(form, values)
    per_dim = [(f, i) for f, i in zip(form, index, strict=True) if f != _NEW]
    starts: list[Any] = []
    sizes: list[int] = []
    inside: list[Any] = []  # what is left of the index within the window
    lengths: list[int] = []
    for (f, i), size in zip(per_dim, x.shape, strict=True):
        whole = f != _INT and f[0] == _SLICE
        start, length = (0, size) if whole else (i, 1) if f == _INT else i
        starts.append(start)
        sizes.append(length)
        inside.append(i if whole else slice(None))
        lengths.append(len(range(*i.indices(size))) if whole else length)
    view = view.reshape(lengths)
    if lengths != sizes or any([_reverses(i) for i in inside]):
        view = _cut(x, starts, sizes).at[tuple(inside)].set(view, unique_indices=True)
    return _paste(x, view, starts)


def add_basic(form: tuple[Any, ...], x: Any, v: Any, values: Sequence[Any]) -> Any:
    """``x`` with ``v`` added to ``x[index]``; None where that is no addition at a constant place.

    JAX differentiates an addition as one: nothing is cut out of the gradient and put back.
    """
    starts: list[int] = []
    lengths: list[int] = []
    sizes = iter(x.shape)
    for f, i in zip(form, _rebuild(form, values), strict=True):
        if f == _NEW:
            continue
        size = next(sizes)
        if f == _INT:
            start, length = i, 1
        elif isinstance(i, tuple):
            start, length = i
        else:
            start, _, step = i.indices(size)
            length = len(range(*i.indices(size)))
            if step != 1:
                return None
        if not isinstance(start, int) or length == 0:
            return None
        starts.append(start)
        lengths.append(length)
    dims = tuple(range(x.ndim))
    return jax.lax.scatter_add(
        x,
        np.array(starts, np.int32),
        jax.lax.reshape(v, lengths),
        jax.lax.ScatterDimensionNumbers(dims, (), dims),
        indices_are_sorted=True,
        unique_indices=True,
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _reverses(entry: slice) -> bool:
    return entry.step is not None and entry.step < 0


def _starts(form: tuple[Any, ...], values: Sequence[Any]) -> list[Any]:
    index = [i for f, i in zip(form, _rebuild(form, values), strict=True) if f != _NEW]
    return [i[0] if isinstance(i, tuple) else 0 for i in index]


def _windows_only(
    x: Any, form: tuple[Any, ...], values: Sequence[Any]
) -> tuple[Any, tuple[Any, ...]]:
    index = _rebuild(form, values)
    per_dim = [i for f, i in zip(form, index, strict=True) if f != _NEW]
    sizes = [i[1] if isinstance(i, tuple) else n for i, n in zip(per_dim, x.shape, strict=True)]
    cut = _cut(x, _starts(form, values), sizes)
    return cut, tuple([slice(None) if isinstance(i, tuple) else i for i in index])


@functools.lru_cache(maxsize=4096)
def view_of(form: tuple[Any, ...]) -> ViewOp:
    """The kind of view that a basic index makes."""

    def put(x: Any, view: Any, *values: Any) -> Any:
        return put_basic(form, x, view, values)

    def add(x: Any, v: Any, *values: Any) -> Any:
        return add_basic(form, x, v, values) if x.ndim else None

    return ViewOp(getter(form), Write.FUNCTION, put, add)


class At:
    """``x.at``: functional updates, ``x.at[index].set(v)`` and the like, as ``jax.numpy.ndarray.at``.

    >>> import fad
    >>> fad.tensor([1.0, 2.0, 3.0]).at[1:].add(10.0).tolist()
    [1.0, 12.0, 13.0]
    """

    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getitem__(self, index: Any) -> _Selected:
        return _Selected(self.x, index)

    def __repr__(self) -> str:
        return f"At({self.x!r})"


class _Selected:
    """Part of a Tensor, to be read or replaced: each method returns a new Tensor."""

    __slots__ = ("index", "x")

    def __init__(self, x: Tensor, index: Any) -> None:
        self.x = x
        self.index = index

    def _update(self, method: str, v: Any, options: dict[str, Any]) -> Any:
        form, values = parse_index(self.x, self.index)
        op = updater(method, form, tuple(sorted(options.items())))
        return bind(op, [self.x, as_array(v) if isinstance(v, (list, np.ndarray)) else v, *values])

    def get(self) -> Any:
        """``x[index]``."""
        form, values = parse_index(self.x, self.index)
        return bind(getter(form), [self.x, *values])

    def set(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] = v``."""
        return self._update("set", v, options)

    def add(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] += v``; repeated indices add up."""
        return self._update("add", v, options)

    def subtract(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] -= v``."""
        return self._update("subtract", v, options)

    def multiply(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] *= v``."""
        return self._update("multiply", v, options)

    mul = multiply

    def divide(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] /= v``."""
        return self._update("divide", v, options)

    def power(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] **= v``."""
        return self._update("power", v, options)

    def min(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] = minimum(x[index], v)``."""
        return self._update("min", v, options)

    def max(self, v: Any, **options: Any) -> Any:
        """``x`` with ``x[index] = maximum(x[index], v)``."""
        return self._update("max", v, options)

    def apply(self, f: Any) -> Any:
        """``x`` with ``x[index] = f(x[index])``, for an elementwise ``f``."""
        return self.set(f(self.get()))
