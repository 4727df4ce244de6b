"""Indexing: ``x[i]`` and ``x.at[i]`` as Primitives that compile once for each form of index."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import with_constants
from fad.core.borrowed import as_array
from fad.core.caches import Table, exact
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Array, NumpyArray, Operand, Outputs, Params, PyTree, Value
from fad.errors import HostValueError, describe
from fad.tape.recorder import ROOT, as_tensor
from fad.views.aliases import has_only_values, only_value
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import attach, bind_view

# The forms of indices: what is static in an index, and the numbers and arrays that are not.

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


def parse_index(
    x: Value, index: PyTree, bounded: bool = True
) -> tuple[tuple[Hashable, ...], list[Operand]]:
    """The static form of an index into ``x``, one entry for each dimension, and its array arguments.

    Arguments:
        bounded: whether lists and arrays of NumPy have to be within bounds, as numbers always have.

    Raises:
        IndexError: too many indices, an integer out of bounds, a bool mask of another shape than what
            it selects from, or a type that cannot index.
    """
    if type(index) is int:  # mostly
        shape = x.shape
        if shape and -shape[0] <= index < shape[0]:
            return (INT, *(WHOLE,) * (len(shape) - 1)), [index % shape[0]]
    return _form_of(_expanded(x, index), x, bounded)


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


def _form_of(
    entries: Sequence[Any], x: Value, bounded: bool
) -> tuple[tuple[Hashable, ...], list[Operand]]:
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
                raise _out_of_bounds(e, dim, x)
            form.append(INT)
            values.append(e % size)
        else:
            if bounded and isinstance(e, np.ndarray) and e.size and isinstance(size, int):
                for extreme in (e.min(), e.max()):
                    if not -size <= extreme < size:
                        raise _out_of_bounds(extreme, dim, x)
            form.append(ARRAY)
            values.append(e)
        dim += 1
    return tuple(form), values


def _out_of_bounds(i: int, dim: int, x: Value) -> IndexError:
    return IndexError(
        f"index {i} is out of bounds for dimension {dim} with size {x.shape[dim]} of {describe(x)}"
    )


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
    if isinstance(e, Sequence) and not isinstance(e, (str, bytes)):
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


# Indexing: ``x[i]`` and ``x.at[i]`` as Primitives that compile once for each form of index.
#
# Integers and the starts of unit-step slices are arguments of the compiled function, so a loop over
# rows or a moving window compiles nothing new; the form of the index (which entries are slices, how
# long, where None and ``...`` stand) is static.


def _with_flags(form: tuple[Hashable, ...], x: Array) -> Array:
    """``x`` with a dimension of length 1 for each bool in an index, of which an array of one position, or of
    none, selects: the same, and where there are new dimensions too JAX places that of a bool wrongly.
    """
    if True not in form and False not in form:
        return x
    lengths = iter(x.shape)
    return x.reshape([1 if isinstance(f, bool) else next(lengths) for f in form if f != NEW])


def _cut(x: Array, starts: Sequence[Any], sizes: Sequence[int]) -> Array:
    """A window of ``x``; the starts are numbers or 0-d arrays, and within bounds."""
    if tuple(sizes) == x.shape:
        return x
    if all([isinstance(s, int) for s in starts]):
        return jax.lax.slice(x, starts, [s + n for s, n in zip(starts, sizes, strict=True)])
    return jax.lax.dynamic_slice(x, _int32(starts), sizes, allow_negative_indices=False)


def _paste(x: Array, window: Array, starts: Sequence[Array | int]) -> Array:
    """``x`` with ``window`` in its place; see `_cut`."""
    if window.shape == x.shape:
        return window
    return jax.lax.dynamic_update_slice(x, window, _int32(starts), allow_negative_indices=False)


def _int32(starts: Sequence[Array | int]) -> list[Array | np.int32]:
    return [np.int32(s) if isinstance(s, int) else jnp.asarray(s).astype(np.int32) for s in starts]


def _windows(
    form: tuple[Any, ...], values: Sequence[Any], shape: tuple[int, ...], ints: bool
) -> tuple[list[Array | int], list[int], tuple[Any, ...]]:
    """Where the windows of an index are, and what is left of it inside of them.

    Arguments:
        ints: integers are windows too, of length 1, of which 0 is left.

    Returns:
        The start and the length of a window in each dimension of ``shape``, and the index that is left.
    """
    starts: list[Array | int] = []
    sizes: list[int] = []
    rest: list[object] = []
    lengths, numbers = iter(shape), iter(values)
    for f in form:
        if f == NEW:
            rest.append(None)
            continue
        start: Array | int = 0
        left: object = slice(None)
        size = next(lengths)
        if isinstance(f, bool):
            left = np.arange(int(f))  # see `_with_flags`
        elif f == INT and ints:
            start, size, left = next(numbers), 1, 0
        elif f in (ARRAY, INT):
            left = next(numbers)
        elif f[0] == SLICE:
            left = slice(*f[1:])
        else:
            start, size = next(numbers), f[1]
        starts.append(start)
        sizes.append(size)
        rest.append(left)
    return starts, sizes, tuple(rest)


def _slices(rest: Sequence[Any]) -> list[slice]:
    """What `_windows` has left of a basic index, as a slice of each dimension."""
    return [slice(None) if i == 0 else i for i in rest if i is not None]


def _reshaped(x: Array, rest: Sequence[Operand]) -> Array:
    """``x[rest]``, where the ints are 0 and of dimensions of length 1."""
    steps = _slices(rest)
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
def getter(form: tuple[Hashable, ...]) -> Primitive:
    """``x[index]`` as a Primitive of (x, *values)."""
    basic = is_basic(form)

    def getitem(x: Array, *values: Array) -> Array:
        x = _with_flags(form, x)
        starts, sizes, rest = _windows(form, values, x.shape, basic)
        x = _cut(x, starts, sizes)
        return _reshaped(x, rest) if basic else x[rest]

    return Primitive("getitem", getitem, positions=True, deferrable=True)


_part_getters = Table(4096)


def part_getter(form: tuple[Hashable, ...], options: Params) -> Primitive:
    """``x.at[index].get(**options)`` as a Primitive of (x, *values).

    Raises:
        TypeError: ``fill_value`` is not a number of Python or NumPy.
    """
    for name, v in options.items():
        if isinstance(v, (Tensor, jax.Array, np.ndarray)):
            raise TypeError(
                f"x.at[i].get: an option must be a Python number: {name} is {describe(v)}. Write "
                "float(x) or int(x); no derivative goes through it"
            )
    key = form, exact(tuple(sorted(options.items())))
    cached: Primitive | None = _part_getters.get(key)
    if cached is not None:
        return cached

    def get(x: Array, *values: Array) -> Array:
        x = _with_flags(form, x)
        starts, sizes, rest = _windows(form, values, x.shape, False)
        read: Callable[..., Array] = _cut(x, starts, sizes).at[rest].get
        return read(**options)

    op = Primitive("at_get", get, positions=True, deferrable=True)
    return _part_getters.put(key, op)


def get_item(x: Tensor, index: PyTree) -> Outputs:
    """``x[index]`` for a Tensor: a view for a basic index, a copy for one with arrays.

    Basic indices (ints, slices, None, ...) and integer arrays work under every transform. With a bool mask
    that has no concrete values, see NOTE [masked parts].

    Raises:
        IndexError: see `parse_index`.
    """
    try:
        step = step_of(x, index)
    except HostValueError as error:
        return tool("views.masked_parts").masked_part(x, index, error)[1]
    if isinstance(step, Step):
        return bind_view(x, step)
    form, values = step
    return bind(getter(form), [x, *values])


def items(x: Tensor) -> list[Tensor]:
    """``[x[0], x[1], ...]``; an array that nothing tracks is taken apart in few calls."""
    count = x.shape[0]
    value = only_value(x) if has_only_values() else None
    if type(value) is not array_type or not value.is_fully_replicated:
        return [x[i] for i in range(count)]
    rest = (WHOLE,) * (value.ndim - 1)
    result: list[Tensor] = []
    for start in range(0, count, CHUNK):
        # Chunks have one length, so that `UNSTACK` has one program for them.
        begin = min(start, max(count - CHUNK, 0))
        chunk = value
        if count > CHUNK:
            chunk = getter(((WINDOW, CHUNK), *rest)).execute((value, begin))
        parts = UNSTACK.execute((chunk,))[start - begin :]
        steps = _steps_to_items(value.ndim - 1, start)
        result += [attach(new_tensor(p, ROOT), x, s) for p, s in zip(parts, steps, strict=False)]
    return result


@functools.lru_cache(maxsize=128)
def _steps_to_items(ndim: int, start: int) -> tuple[Step, ...]:
    """The steps to `CHUNK` items with ``ndim`` dimensions; new ones are work for Python's collector."""
    op = view_of((INT, *(WHOLE,) * ndim))
    return tuple([Step(op, (i,)) for i in range(start, start + CHUNK)])


CHUNK = 50  # items that one call takes apart; a program takes longer to compile for more
UNSTACK = Primitive("unstack", jnp.unstack)


_steps = Table(4096)
_BOUNDS = frozenset([int, type(None)])


def step_of(x: Tensor, index: PyTree) -> Step | tuple[tuple[Hashable, ...], list[Operand]]:
    """The view that a basic index selects; for an index with arrays what `parse_index` returns.

    Steps of indices without Tensors are remembered by the shape of ``x``.

    Raises:
        IndexError: see `parse_index`.
    """
    key = _key_of(index)
    at = None if key is None else (x.aval.shape, key)
    step: Step | None = _steps.get(at)
    if step is not None:
        return step
    form, values = parse_index(x, index)
    if not is_basic(form):
        return form, values
    step = Step(view_of(form), tuple(values), tuple(with_constants(values)))
    if at is not None:
        _steps.put(at, step)
    return step


def _key_of(index: PyTree) -> Hashable:
    """A hashable key of an index of ints, slices between ints, None and ``...``; else None."""
    if type(index) is int:
        return index
    key: list[Hashable] = []
    for e in index if type(index) is tuple else (index,):
        if type(e) is slice:
            start, stop, step = e.start, e.stop, e.step
            if not (type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS):
                return None
            key.append((start, stop, step))
        elif type(e) is int or e is None or e is Ellipsis:
            key.append(e)
        else:
            return None
    return tuple(key)


# Methods of ``x.at[...]`` that have no derivative in JAX where indices repeat.
_MULTIPLYING = frozenset(["divide", "mul", "multiply", "power"])


@functools.lru_cache(maxsize=4096)
def updater(
    method: str, form: tuple[Hashable, ...], options: tuple[tuple[str, object], ...]
) -> Primitive:
    """``x.at[index].method(v)`` as a Primitive of (x, v, *values)."""

    def update(x: Array, v: Array, *values: Array) -> Array:
        # Cut the windows out, update inside, and put them back: one slice update, no scatter.
        wide = _with_flags(form, x)
        starts, sizes, rest = _windows(form, values, wide.shape, False)
        part = _cut(wide, starts, sizes)
        if method in _MULTIPLYING:
            changed = tool("formulas").combine_at(method, part, rest, v, **dict(options))
        else:
            changed = getattr(part.at[rest], method)(v, **dict(options))
        new = _paste(wide, changed, starts)
        return new if wide is x else new.reshape(x.shape)

    return Primitive(f"at_{method}", update, positions=True, deferrable=True)


def put_basic(
    form: tuple[Hashable, ...], x: Array, view: Array, values: Sequence[Operand]
) -> Array:
    """``x`` with ``view`` in the place of ``x[index]``, for a basic index, in plain JAX."""
    starts, sizes, rest = _windows(form, values, x.shape, True)
    inside = _slices(rest)
    lengths = [_length(i, n) for i, n in zip(inside, sizes, strict=True)]
    view = view.reshape(lengths)
    if lengths != sizes or any([_reverses(i) for i in inside]):
        view = _cut(x, starts, sizes).at[tuple(inside)].set(view, unique_indices=True)
    return _paste(x, view, starts)


def _length(part: slice, size: int) -> int:
    """How many of ``size`` elements a slice selects; both are symbolic in `jax.export`, where JAX counts."""
    if part == slice(None):
        return size
    if isinstance(size, int):
        return len(range(*part.indices(size)))
    counted: int = jax.eval_shape(lambda x: x[part], jax.ShapeDtypeStruct((size,), bool)).shape[0]
    return counted


def add_basic(
    form: tuple[Hashable, ...], x: Array, v: Array, values: Sequence[Operand]
) -> Array | None:
    """``x`` with ``v`` added to ``x[index]``; None where that is no addition at a constant place.

    JAX differentiates an addition as one: nothing is cut out of the gradient and put back.
    """
    starts, sizes, rest = _windows(form, values, x.shape, True)
    places: list[int] = []
    lengths: list[int] = []
    for start, size, i in zip(starts, sizes, _slices(rest), strict=True):
        first, stop, step = (0, size, 1) if i == slice(None) else i.indices(size)
        if not isinstance(start, int) or step != 1 or stop <= first:
            return None
        places.append(start + first)
        lengths.append(stop - first)
    dims = tuple(range(x.ndim))
    return jax.lax.scatter_add(
        x,
        np.array(places, np.int32),
        jax.lax.reshape(v, lengths),
        jax.lax.ScatterDimensionNumbers(dims, (), dims),
        indices_are_sorted=True,
        unique_indices=True,
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _reverses(entry: slice) -> bool:
    return entry.step is not None and entry.step < 0


@functools.lru_cache(maxsize=4096)
def view_of(form: tuple[Hashable, ...]) -> ViewOp:
    """The kind of view that a basic index makes."""

    def put(x: Array, view: Array, *values: Array) -> Array:
        return put_basic(form, x, view, values)

    def add(x: Array, v: Array, *values: Operand) -> Array | None:
        return add_basic(form, x, v, values) if x.ndim else None

    return ViewOp(getter(form), Write.FUNCTION, put, add)


_COPY = Primitive("copy", lambda x: x, deferrable=True)


class At:
    """``x.at``: functional updates, ``x.at[index].set(v)`` and the like, as ``jax.numpy.ndarray.at``.

    >>> import fad
    >>> fad.tensor([1.0, 2.0, 3.0]).at[1:].add(10.0).tolist()
    [1.0, 12.0, 13.0]
    """

    __slots__ = ("x",)

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getitem__(self, index: PyTree) -> _Selected:
        return _Selected(self.x, index)

    def __repr__(self) -> str:
        return f"At({self.x!r})"


def _updating(method: str, what: str) -> Callable[..., Tensor]:
    """The method of `_Selected` with the name of one of JAX's ``x.at[index]``."""

    def update(self: _Selected, v: PyTree, **options: object) -> Tensor:
        try:
            form, values = self._parsed(options)
        except HostValueError as error:
            return self._update_masked(method, v, options, error)
        op = updater(method, form, tuple(sorted(options.items())))
        v = as_array(v) if isinstance(v, (list, np.ndarray)) else v
        t: Tensor = bind(op, [self.x, v, *values])
        return t

    update.__name__, update.__qualname__, update.__doc__ = method, f"_Selected.{method}", what
    return update


class _Selected:
    """Part of a Tensor, to be read or replaced: each method returns a new Tensor."""

    __slots__ = ("index", "x")

    def __init__(self, x: Tensor, index: PyTree) -> None:
        self.x = x
        self.index = index

    def _update_masked(self, method: str, v: Any, options: Params, error: HostValueError) -> Tensor:
        """An update with a mask that has no concrete values."""
        x = bind(_COPY, (self.x,))
        masked_parts = tool("views.masked_parts")
        _, part = masked_parts.masked_part(x, self.index, error)
        if options or method not in masked_parts.MASKED_UPDATES:
            raise error
        change = masked_parts.MASKED_UPDATES[method]
        x[self.index] = getattr(part, change)(v) if change else v
        return x  # type: ignore[no-any-return]

    def _parsed(self, options: Params) -> tuple[tuple[Hashable, ...], list[Operand]]:
        """`parse_index`; integers are arrays where options say what an index out of range is."""
        index = self.index
        if options.get("mode") is not None or not options.get("wrap_negative_indices", True):
            entries = index if isinstance(index, tuple) else (index,)
            index = tuple([np.asarray(e) if _is_integer(e) else e for e in entries])
        return parse_index(self.x, index, bounded=False)

    def get(self, **options: object) -> Tensor:
        """``x[index]``, a copy; ``mode``, ``fill_value`` and the other options are JAX's."""
        form, values = self._parsed(options)
        op = part_getter(form, options) if options else getter(form)
        t: Tensor = bind(op, [self.x, *values])
        return t

    set = _updating("set", "``x`` with ``x[index] = v``.")
    add = _updating("add", "``x`` with ``x[index] += v``; repeated indices add up.")
    subtract = _updating("subtract", "``x`` with ``x[index] -= v``.")
    multiply = _updating("multiply", "``x`` with ``x[index] *= v``.")
    mul = multiply
    divide = _updating("divide", "``x`` with ``x[index] /= v``.")
    power = _updating("power", "``x`` with ``x[index] **= v``.")
    min = _updating("min", "``x`` with ``x[index] = minimum(x[index], v)``.")
    max = _updating("max", "``x`` with ``x[index] = maximum(x[index], v)``.")

    def apply(self, f: Callable[..., PyTree], **options: object) -> Tensor:
        """``x`` with ``x[index] = f(x[index])``, with an elementwise ``f``: once where indices repeat."""
        return self.set(f(self.get(**options)), **options)


def _is_integer(entry: object) -> bool:
    return isinstance(entry, (int, np.integer)) and not isinstance(entry, bool)
