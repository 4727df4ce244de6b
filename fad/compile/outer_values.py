"""What compiled code closes over, and what its trace has left outside."""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import linecache
import operator
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Operand, PyTree
from fad.errors import GradientError, LevelError, describe
from fad.errors.tracebacks import warn_at_users_line
from fad.tape.recorder import ROOT
from fad.tape.vmap import batch_levels, lanes_among, lanes_inside
from fad.views.make_view import is_contiguous

# What compiled code closes over, between its calls.


class Lanes:
    """Stands for the lanes of a vmap around a call: that of this number, whichever it is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def find(self) -> Tensor:
        """The numbers of the lanes."""
        return lanes_inside(batch_levels()[self.number])


class Live:
    """An untracked Tensor that compiled code closes over: each call reads what it is by then."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def find(self) -> Tensor:
        """The Tensor; compiled code around this one closes over it too.

        Raises:
            GradientError: it is tracked by now.
        """
        x = self.tensor
        if x.level is not ROOT or x.requires_grad:
            raise _tracked_capture(x)
        return x


def is_traced(x: object) -> bool:
    """Whether ``x`` is part of a trace around this one, which compiled code must not outlive."""
    if isinstance(x, Tensor):
        return x.level.traces or isinstance(x.value, jax.core.Tracer)
    return isinstance(x, jax.core.Tracer)


def values_now(fixed: Sequence[Operand]) -> list[Operand]:
    """The values at a call, from what `captured` made."""
    return [x.find() if isinstance(x, (Lanes, Live)) else x for x in fixed]


def captured(x: object) -> PyTree:
    """What compiled code may keep of a value that it closes over."""
    if not isinstance(x, Tensor):
        return x
    number = lanes_among(batch_levels(), x)
    if number is not None:
        return Lanes(number)
    if x.level is ROOT and not x.requires_grad:
        return Live(x)
    if x.level.traces:
        return x
    raise _tracked_capture(x)


def _tracked_capture(x: Tensor) -> GradientError:
    where = "the eager graph" if x.level is ROOT else repr(x.level)
    return GradientError(
        f"jit: the compiled function closes over a Tensor ({describe(x)}) that is tracked by "
        f"{where}. Compiled code outlives this call, so it cannot refer to it: pass the Tensor "
        "as an argument, or use stop_gradient on it."
    )


def struct_like(x: object) -> PyTree:
    """The shape and dtype of a Tensor; other things as they are."""
    if isinstance(x, Tensor):
        aval = x.aval
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    return x


def untracked(x: object) -> PyTree:
    """``x`` as ``jax.jit`` may flatten it."""
    if not isinstance(x, Tensor):
        return x
    if x.level is ROOT:
        return new_tensor(x.value, ROOT)
    return new_tensor(struct_like(x), ROOT)


def may_take(t: Tensor, unrecorded: bool) -> bool:
    """Whether ``t``, brought up to date, goes into a call, which may be ``unrecorded``, as its array."""
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.enter(t)
        if not is_contiguous(t):
            return False
    return t._level is ROOT and not (t._requires_grad and not unrecorded)


def is_bare(x: object, unrecorded: bool = False) -> bool:
    """Whether nothing tracks ``x``, so that it may be donated; or if ``unrecorded``, what is
    computed of it.
    """
    if isinstance(x, Tensor):
        if x.level is not ROOT or (x.requires_grad and not unrecorded):
            return False
        x = x.value
    return not isinstance(x, jax.core.Tracer)


# What surrounds a compiled function, and what its trace has changed there.
#
# Python code of a compiled function runs when it is traced, and not at each call. What it changes is looked
# at after the trace, as far as the function leads there: from what it closes over, the globals that its code
# names, the object that it is a method of, and objects among its arguments, down to the items and attributes
# of these.
#
# NOTE [Tensors that change places]
#
#     pair = [fad.zeros(2), fad.ones(2)]
#
#     @fad.jit
#     def swap():
#         pair[0], pair[1] = pair[1], pair[0]
#
#     swap(), swap(), swap()
#     assert pair[0].tolist() == [1.0, 1.0] and pair[1].tolist() == [0.0, 0.0]
#
# A Tensor from outside that the body puts in another place is put there at each call. A program is for calls
# that find each Tensor where its trace has found it, so a swap has two programs, which take turns.
#
# NOTE [Containers that grow]
#
#     parts = [fad.ones(2)]
#     total = fad.jit(lambda: sum(x.sum() for x in parts))
#     total()
#     parts.append(fad.ones(2))
#     assert float(total()) == 4.0
#
# So a program is also for the parts of what holds these Tensors: the keys of a dict, the attributes of an
# object, the length of a list, and the type of each part. Elsewhere it is for what was None, or empty, to
# be so still. That is all: a list of losses that gets longer at each call must not cost a trace at each.

_MOST, _DEEP = 2_000, 5
_NUMBERS = (bool, int, float, complex, str)
_LIBRARIES = {"fad", "jax", "jaxlib", "numpy", "optax", "torch", "pytest", "_pytest"}
_HOLD = {
    "argparse",
    "collections",
    "types",
}  # modules of Python whose objects hold those of the user
_ABSENT = object()
GONE = (LookupError, ValueError)


class Place(NamedTuple):
    """Where Python code finds a ``value``: an item, an attribute, a variable.

    ``look`` gives what is there, or raises one of `GONE` if nothing is; ``put`` puts something else there.
    They are None for what does not change, as the items of a tuple. ``parent`` is the place of what it is an
    item or an attribute of.
    """

    name: str
    value: PyTree
    look: Callable[[], object] | None = None
    put: Callable[[PyTree], object] | None = None
    parent: Place | None = None

    def now(self) -> PyTree:
        """What is there now, `_ABSENT` if nothing is."""
        try:
            return self.value if self.look is None else self.look()
        except GONE:
            return _ABSENT

    @property
    def has_changed(self) -> bool:
        """Whether something else is there now, or nothing."""
        return self.now() is not self.value


class Move(NamedTuple):
    """That a body puts ``new`` in a place; it is a Tensor from outside, or one was there before."""

    put: Callable[[PyTree], object]
    new: PyTree


class Surroundings:
    """The places that a function leads to, before it is traced.

    ``moves``: what the trace has put in other places, as `check` notes it.
    """

    def __init__(self, f: Callable[..., PyTree], statics: Sequence[PyTree]) -> None:
        self._f, self._statics = f, statics
        self._places = list(_places(f, statics))
        self._moved: list[Place] = []  # as they were before
        self.moves: list[Move] = []

    def guard(self, tensors: Collection[Tensor]) -> Guard:
        """What finds out whether the function comes to these Tensors, and those that it moves, as it has."""
        wanted = {*map(id, tensors), *[id(p.value) for p in self._moved]}
        holders: dict[int, Place] = {}
        for place in reversed(self._places):  # parts come behind what they are in
            if id(place.value) in wanted and place.parent is not None:
                wanted.add(id(place.parent.value))
                holders[id(place.parent.value)] = place.parent
        places = [p for p in self._places if p.look is not None and id(p.value) in wanted]
        others = [p for p in self._places if id(p.value) not in wanted]
        apart = [p for p in others if p.parent is None or id(p.parent.value) not in holders]
        empty = [p for p in others if type(p.value) in _GROW and not p.value]
        return Guard([*places, *self._moved], list(holders.values()), apart, empty)

    def check(self, level: PyTree) -> None:
        """Refuse values of the trace at ``level`` that have stayed outside, and warn of changed numbers.

        Tensors from outside that the trace has put in other places are as before again.

        Raises:
            LevelError: a value of the trace is in a list, a dict, an attribute or a variable; or a list has
                more or fewer Tensors than before.
        """
        before = {place.name: place for place in self._places}
        after = {place.name: place for place in _places(self._f, self._statics)}
        for name, place in after.items():
            x = place.value
            if _is_traced_at(x, level):
                raise self._left(place)
            if isinstance(x, jax.core.Tracer) and (
                name not in before or before[name].value is not x
            ):
                raise self._left(place)
        for name, place in after.items():
            old = before[name].value if name in before else None
            are_numbers = type(old) in _NUMBERS and type(place.value) in _NUMBERS
            are_arrays = isinstance(old, jax.Array) and isinstance(place.value, jax.Array)
            if are_numbers and not _equal(old, place.value):
                self._warn_of_number(place, repr(old), repr(place.value))
            elif are_arrays and old is not place.value:
                self._warn_of_number(place, describe(old), "another one")
        for name in {**before, **after}:
            old = before.get(name) or after[name]._replace(value=_ABSENT)
            new = after.get(name) or before[name]._replace(value=_ABSENT)
            if old.value is not new.value and (_is_tensor(old) or _is_tensor(new)):
                self._note_move(old, new)

    def _note_move(self, old: Place, new: Place) -> None:
        if new.put is None or not old.has_changed:
            return  # it is in a tuple; or in a list that is no longer where it was
        parent = new.parent
        in_a_row = parent is not None and isinstance(parent.value, (list, collections.deque))
        if new.value is _ABSENT or (old.value is _ABSENT and in_a_row):
            raise self._changed(new, new.value is _ABSENT)
        self._moved.append(old)
        self.moves.append(Move(new.put, new.value))
        if old.value is not _ABSENT:
            new.put(old.value)

    def _left(self, place: Place) -> LevelError:
        kind = "Tensor" if isinstance(place.value, Tensor) else "value"
        return LevelError(
            f"jit: after the trace, {place.name} is a {kind} of it ({describe(place.value)}), which has a "
            f"value at no call{_line(self._f, place.name)}: Python code of a compiled function runs once, "
            "when it is traced. Return the Tensor from the function, and keep it where it is called; or "
            "write into a Tensor that is made outside, before the first call (t.copy_(x), buffer[i] = x)."
        )

    def _changed(self, place: Place, is_gone: bool) -> LevelError:
        done = f"takes {place.name} away" if is_gone else f"adds {place.name}"
        return LevelError(
            f"jit: the function {done}{_line(self._f, place.name)}, a Tensor from outside, and that happens "
            "when it is traced, not at each call. Keep the lists of a step as long as they are, and write "
            "into their Tensors (history[0].copy_(x)), or put one in the place of another."
        )

    def _warn_of_number(self, place: Place, old: str, new: str) -> None:
        warn_at_users_line(
            f"jit: the function changes {place.name} from {old} to {new}{_line(self._f, place.name)}, and "
            "that happens when it is traced, not at each call: the compiled program has the number of the "
            "trace. Keep it as a Tensor, made outside, and write to that (t = fad.tensor(0); t.add_(1)); a "
            "random key is an argument, or fad.random.fold_in(key, t).",
            UserWarning,
        )


class Guard:
    """Whether a function would come to the same Tensors as before; see NOTE [Containers that grow].

    Arguments:
        places: where these are, and what they are in.
        holders: places of what they are in.
        others: places of other things, which are not in these.
        empty: places of containers in which nothing is.
    """

    def __init__(
        self,
        places: Sequence[Place],
        holders: Sequence[Place],
        others: Sequence[Place],
        empty: Sequence[Place],
    ) -> None:
        self.places = [p for p in places if p.look is not None]
        self._parts = [(p, *_parts_now(p.value)) for p in holders]
        kinds = [*filter(_may_change_kind, others)]
        kinds += itertools.chain.from_iterable(map(_unwalked, holders))
        self._kinds = [(p, type(p.now())) for p in kinds if p.look is not None]
        self._empty = [p for p in empty if not p.value]  # the trace may have put something there
        # All of it, so that few calls look through it.
        each = itertools.chain.from_iterable
        self._looks = [p.look for p in self.places if p.look is not None]
        self._same = [p.value for p in self.places]
        self._items = [x for p in holders for x in _items_of(p.value)]
        self._types = list(map(type, each(self._items)))
        self._keys = [x for p in holders for x in _keys_of(p.value)]
        self._ids = list(map(id, each(self._keys)))
        self._typed = [p.look for p, _ in self._kinds if p.look is not None]
        self._others = [kind for _, kind in self._kinds]
        self._lengths = [p.look or functools.partial(_as_it_is, p.value) for p in self._empty]

    def holds(self) -> bool:
        """Whether nothing has changed."""
        call, each = operator.call, itertools.chain.from_iterable
        try:
            return (
                all(map(operator.is_, map(call, self._looks), self._same))
                and list(map(type, each(self._items))) == self._types
                and not (self._keys and list(map(id, each(self._keys))) != self._ids)
                and not (self._typed and list(map(type, map(call, self._typed))) != self._others)
                and not (self._lengths and any(map(len, map(call, self._lengths))))
            )
        except (*GONE, TypeError):  # no length
            return False

    def changes(self) -> Iterator[tuple[Place, str]]:
        """Which places have changed, and how."""
        for place in self.places:
            if place.has_changed:
                yield place, f"is another {'Tensor' if _is_tensor(place) else 'object'} now"
        for place, kind in self._kinds:
            if type(place.now()) is not kind:
                yield place, f"is a {type(place.now()).__name__} now, was a {kind.__name__}"
        for place in self._empty:
            now = place.now()
            if type(now) not in _GROW or now:
                yield place, "is no longer empty"
        for place, keys, kinds in self._parts:
            now_keys, now_kinds = _parts_now(place.value)
            if list(map(id, now_keys)) != list(map(id, keys)) or now_kinds != kinds:
                yield place, "has other parts now"


_GROW = {list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict}


def _as_it_is(x: PyTree) -> PyTree:
    return x


def _keys_of(x: PyTree) -> list[Collection[object]]:
    """What has the keys of a dict, or what is in a set, at any time."""
    if isinstance(x, dict):
        return [dict.keys(x)]
    return [x] if isinstance(x, (set, frozenset)) else []


def _items_of(x: PyTree) -> list[Collection[object]]:
    """What has the items of a list or a dict, or the attributes of an object, at any time."""
    if isinstance(x, (list, collections.deque)):
        return [x]
    items = x if isinstance(x, dict) else getattr(x, "__dict__", None)
    return [] if items is None else [dict.values(items)]


def _parts_now(x: PyTree) -> tuple[list[object], list[type]]:
    each = itertools.chain.from_iterable
    return list(each(_keys_of(x))), list(map(type, each(_items_of(x))))


def _unwalked(place: Place) -> list[Place]:
    """The parts of a container that are not among its `_items_of`: of a class, of an array."""
    x = place.value
    if isinstance(x, (list, dict, collections.deque)):
        return []
    attributes = {f"{place.name}.{name}" for name in getattr(x, "__dict__", {})}
    return [p for p in _parts(place) if p.look is not None and p.name not in attributes]


def _may_change_kind(place: Place) -> bool:
    """Whether it is None, or a variable of a function which is no function itself."""
    x = place.value
    if x is None or place.parent is not None:
        return x is None
    return not (callable(x) and _is_of_library(type(x).__module__))


def _is_traced_at(x: object, level: PyTree) -> bool:
    """Whether ``x`` is a Tensor of the trace at ``level``, or of a transform inside of it."""
    while isinstance(x, Tensor):
        if x._level is level:
            return isinstance(x._value, jax.core.Tracer)
        x = x._value
    return False


def _is_tensor(place: Place) -> bool:
    return isinstance(place.value, Tensor)


def _equal(a: PyTree, b: PyTree) -> bool:
    return type(a) is type(b) and bool(a == b or (a != a and b != b))


def names_around(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> dict[int, str]:
    """Names for the Tensors that ``f`` leads to, by their ids."""
    names: dict[int, str] = {}
    for place in _places(f, statics):
        if isinstance(place.value, Tensor):
            names.setdefault(id(place.value), place.name)
    return names


def _places(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> Iterator[Place]:
    """The places that ``f`` leads to, outermost first."""
    seen: set[int] = set()
    level = [Place(f"<argument {type(x).__name__}>", x) for x in statics]
    level.append(Place("", f))
    count = 0
    for depth in range(_DEEP + 1):
        parts: list[Place] = []
        for place in level:
            x = place.value
            count += 1
            if count > _MOST:
                return
            if place.name or isinstance(x, types.FunctionType):
                yield place
            if depth < _DEEP and id(x) not in seen and not (x is None or type(x) in _NUMBERS):
                seen.add(id(x))
                inner = _parts(place)
                level += [p for p in inner if not p.name]  # what is wrapped is no deeper
                parts += [p for p in inner if p.name]
        level = parts


def _parts(place: Place) -> list[Place]:
    """The places in what is in ``place``."""
    x, kind, within = place.value, type(place.value), place.name
    if isinstance(x, types.MethodType):
        return [Place("self", x.__self__), Place("", x.__func__)]
    if isinstance(x, types.FunctionType):
        return _of_function(x)
    if isinstance(x, functools.partial):
        parts = [*enumerate(x.args), *x.keywords.items()]
        return [Place("", x.func), *[Place(f"{within}<argument {k}>", v) for k, v in parts]]
    if hasattr(kind, "__wrapped__") or (callable(x) and hasattr(x, "__wrapped__")):
        return [Place("", x.__wrapped__)]
    if isinstance(x, dict):
        return [
            _item(f"{within}[{k!r}]", v, x, k, functools.partial(x.get, k, _ABSENT), place)
            for k, v in itertools.islice(list(x.items()), _MOST)
        ]
    if isinstance(x, (list, collections.deque)):
        return [
            _item(f"{within}[{k}]", v, x, k, functools.partial(operator.getitem, x, k), place)
            for k, v in enumerate(itertools.islice(list(x), _MOST))
        ]
    if isinstance(x, (tuple, set, frozenset)):
        items = itertools.islice(list(x), _MOST)
        return [Place(f"{within}[{k}]", v, parent=place) for k, v in enumerate(items)]
    if isinstance(x, np.ndarray) and x.dtype == object:
        numbers = itertools.islice(np.ndindex(x.shape), _MOST)
        return [
            _item(
                f"{within}{list(k)}", x[k], x, k, functools.partial(operator.getitem, x, k), place
            )
            for k in numbers
        ]
    if isinstance(x, Tensor):
        return [_attribute(f"{within}.{name}", v, x, name, place) for name, v in vars(x).items()]
    is_library = _is_of_library(kind.__module__) and kind.__module__ not in _HOLD
    if isinstance(x, type) or is_library:
        return []
    return [_attribute(f"{within}.{name}", v, x, name, place) for name, v in _attributes(x).items()]


def _item(
    name: str, value: PyTree, x: PyTree, key: PyTree, look: Callable[[], object], parent: Place
) -> Place:
    return Place(name, value, look, functools.partial(operator.setitem, x, key), parent)


def _attribute(name: str, value: PyTree, x: PyTree, key: str, parent: Place | None = None) -> Place:
    look = functools.partial(getattr, x, key, _ABSENT)
    return Place(name, value, look, functools.partial(setattr, x, key), parent)


def _is_of_library(module: object) -> bool:
    name = str(module).partition(".")[0]
    return name in _LIBRARIES or name in sys.stdlib_module_names


def _attributes(x: PyTree) -> dict[str, PyTree]:
    """The attributes of an object of the user: its own, and those of its classes that are data."""
    values: dict[str, PyTree] = {}
    for kind in reversed(type(x).__mro__):
        if _is_of_library(kind.__module__) and kind.__module__ != "__main__":
            continue
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if hasattr(x, name):
                values[name] = getattr(x, name)
        for name, value in vars(kind).items():
            is_data = not name.startswith("__") and not hasattr(type(value), "__get__")
            if is_data and name != "_abc_impl":
                values[name] = value
    return {**values, **getattr(x, "__dict__", {})}


def _of_function(f: types.FunctionType) -> list[Place]:
    """What a function closes over, its defaults, and the globals that its code names."""
    places = []
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it has none yet
            continue
        look = functools.partial(getattr, cell, "cell_contents")
        places.append(Place(name, value, look, functools.partial(setattr, cell, "cell_contents")))
    arguments = inspect.signature(f, follow_wrapped=False).parameters.values()
    places += [Place(p.name, p.default) for p in arguments if p.default is not p.empty]
    if _is_of_library(f.__module__) and f.__module__ != "__main__":
        return places
    names = _names(f.__code__)
    for name in names:
        value = f.__globals__.get(name, _ABSENT)
        if isinstance(value, types.ModuleType) and not _is_of_library(value.__name__):
            inner = [n for n in names if n in vars(value)]
            places += [_attribute(f"{name}.{n}", vars(value)[n], value, n) for n in inner]
        elif value is not _ABSENT and not isinstance(value, (types.ModuleType, type)):
            look = functools.partial(f.__globals__.get, name, _ABSENT)
            put = functools.partial(operator.setitem, f.__globals__, name)
            places.append(Place(name, value, look, put))
    return places


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _line(f: Callable[..., PyTree], place: str) -> str:
    """Where the code of ``f`` may have put something there, for messages."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    code = getattr(getattr(f, "__func__", f), "__code__", None)
    if code is None:
        return ""
    words = re.findall(r"\w+", place)
    lines = sorted({line for _, _, line in code.co_lines() if line})
    for inner in _inner(code):
        lines += sorted({line for _, _, line in inner.co_lines() if line})
    written = r"\b{}\b.*([^=!<>]=[^=]|\.(append|add|insert|extend|update|setdefault)\()"
    for word in [w for w in reversed(words) if not w.isdigit()]:
        for line in lines:
            text = linecache.getline(code.co_filename, line)
            if re.search(written.format(re.escape(word)), text):
                return f" ({code.co_filename}:{line}: {text.strip()})"
    return f" (a function of {code.co_filename}:{code.co_firstlineno})"


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]
