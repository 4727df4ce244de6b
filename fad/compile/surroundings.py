"""What surrounds a compiled function: what its trace has changed there, and what has changed since.

Python code of a compiled function runs when it is traced, and not at each call. What it changes is looked at
after the trace, at all places that the function leads to.

NOTE [Tensors that change places]

    pair = [fad.zeros(2), fad.ones(2)]

    @fad.jit
    def swap():
        pair[0], pair[1] = pair[1], pair[0]

    swap(), swap(), swap()
    assert pair[0].tolist() == [1.0, 1.0] and pair[1].tolist() == [0.0, 0.0]

A Tensor from outside that the body puts in another place is put there at each call. A program is for calls
that find each Tensor where its trace has found it, so a swap has two programs, which take turns.

NOTE [Containers that grow]

    parts = [fad.ones(2)]
    total = fad.jit(lambda: sum(x.sum() for x in parts))
    total()
    parts.append(fad.ones(2))
    assert float(total()) == 4.0

So a program is also for the contents of what holds these Tensors, as they were before the trace: the keys of
a dict in their order, the length of a list, the names of attributes, and the kind of each part. Numbers,
texts and arrays are of one kind, and an object may get more of them: a step that keeps its loss in an
attribute is traced once. Of what holds none of these Tensors, a program is for variables of the same kind,
and for what was None to be None still, and for an empty container to get nothing but numbers, texts and
arrays (among its first 64 items), or nothing, where code names it. Where the trace itself has changed any of
these, the next call is traced.

NOTE [numbers that code reads]

    w, group = fad.ones(2), {"lr": 0.5}
    shrink = fad.jit(lambda: w.mul_(group["lr"]) + 0.0)
    shrink()
    group["lr"] = 0.25
    assert shrink().tolist() == [0.125, 0.125]

A number, a text, a flag, an enum or an array is that of the trace, so a program is also for those that are
in variables, or in attributes and items whose names are in the code, see `fad.compile.places.reads_of`: to
count calls in an attribute that no code reads traces nothing. Where code comes to items without naming them
(by ``**group``, by ``values()``, by a computed key), it is for all in the dicts that it takes them from, if
there are no more than 64, and for all attributes, where code takes ``vars(x)``, or computes a name for
`getattr`. An object of a library is one such value; so is, in a set, what is in it. The program of a trace
for other numbers is found by what it computes, and compiled no more once they have changed twice, see NOTE
[numbers in bodies] in `fad.tape.staged`.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import operator
import reprlib
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from fad.compile.places import (
    ABSENT,
    ALL_ATTRIBUTES,
    GONE,
    MOST,
    NUMBERS,
    TUPLE_ITEM,
    Access,
    Look,
    Place,
    attributes_of,
    attributes_slot,
    by_way,
    computed_of,
    contents,
    is_a,
    is_of_others,
    is_opaque,
    items_of,
    places_of,
    reads_of,
    rows_of,
    sought_by,
    table_of,
    taken_from,
    view_of,
)
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import LevelError, describe
from fad.errors.tracebacks import warn_at_users_line

_CONTAINERS = (list, dict, set, collections.deque)
_LENGTHS = {kind.__len__ for kind in _CONTAINERS}
# What fills a container, a class before its bases.
_FILLED: dict[PyTree, Callable[..., object]] = {
    collections.OrderedDict: collections.OrderedDict.update,
    dict: dict.update,
    list: list.extend,
    collections.deque: collections.deque.extend,
    set: set.update,
}
_VALUES = (*NUMBERS, bytes, np.generic, np.ndarray, jax.Array)
_PLAIN = frozenset([*NUMBERS, np.float32, np.float64, array_type])  # most of them, by their types
_ARRAYS = (np.ndarray, jax.Array)
_READ = (*NUMBERS, *_ARRAYS, np.generic, enum.Enum)  # that there is another one is seen
# Of the classes of libraries, those that are looked into, or lead on.
_PARTED = (*_CONTAINERS, tuple, types.MappingProxyType, types.ModuleType, Tensor, type(ABSENT))
_GETTERS = (operator.attrgetter, operator.itemgetter)
_BETWEEN = (ABSENT,)  # stands between the contents of two containers
_COMPARED = 1 << 16  # bytes of an array of NumPy that a trace may have written to
_FIRST = 64  # items of a container that was empty that are looked at
_each = itertools.chain.from_iterable


# Of each part its key, and its kind.
Parts: TypeAlias = list[tuple[object, object]]


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
        self._places = list(places_of(f, statics))
        self._parts: dict[int, Parts] = {}  # of what is in the places, by its id
        for place in self._places:
            if id(place.value) not in self._parts and not is_a(place.value, _VALUES):
                with contextlib.suppress(
                    Exception
                ):  # code of the user raises where it is looked at
                    self._parts[id(place.value)] = _parts_of(place.value)
        arrays = {id(p.value): p for p in self._places if type(p.value) is np.ndarray and p.name}
        self._arrays = [
            (p, p.value.tobytes())
            for p in arrays.values()
            if p.value.nbytes <= _COMPARED and not p.value.dtype.hasobject
        ]
        self._moved: list[Place] = []  # as they were before
        self.moves: list[Move] = []

    def guard(self, tensors: Collection[Tensor]) -> Guard:
        """What tells at a call whether the function would come to these Tensors, and those that it moves."""
        return Guard(self._places, tensors, self._moved, self._parts)

    def before(self) -> Before:
        """What puts all back as it is now."""
        return Before(self._places)

    def check(self, level: PyTree) -> None:
        """Refuse values of the trace at ``level`` that have stayed outside, and warn of changed numbers.

        Tensors from outside that the trace has put in other places are as before again.

        Raises:
            LevelError: a value of the trace is in a list, a dict, an attribute or a variable; or a list has
                more or fewer Tensors than before.
        """
        numbers: dict[object, int] = {}
        before = by_way(self._places, numbers)
        after = by_way(list(places_of(self._f, self._statics)), numbers)
        pairs = []
        for way in {**after, **before}:
            old = before.get(way) or after[way]._replace(value=ABSENT)
            new = after.get(way) or before[way]._replace(value=ABSENT)
            if _is_traced_at(new.value, level):
                raise self._left(new)
            if old.value is new.value:
                continue
            if is_a(new.value, jax.core.Tracer):
                raise self._left(new)
            pairs.append((old, new))
        for place, data in self._arrays:
            if place.value.tobytes() != data:
                self._warn_of_number(place, "an array", "one with other numbers")
        for old, new in pairs:
            if _is_tensor(old) or _is_tensor(new):
                self._note_move(old, new)
            elif is_a(old.value, jax.Array) and is_a(new.value, jax.Array):
                self._warn_of_number(new, describe(old.value), "another one")
            elif type(old.value) in NUMBERS and type(new.value) in NUMBERS and not _equal(old, new):
                self._warn_of_number(new, repr(old.value), repr(new.value))

    def _note_move(self, old: Place, new: Place) -> None:
        if new.put is None or not old.has_changed:
            return  # it is in a tuple; or in a list that is no longer where it was
        parent = new.parent
        in_a_row = parent is not None and is_a(parent.value, (list, collections.deque))
        if new.value is ABSENT or (old.value is ABSENT and in_a_row):
            raise self._changed(new, new.value is ABSENT)
        self._moved.append(old)
        self.moves.append(Move(new.put, new.value))
        if old.value is not ABSENT:
            new.put(old.value)

    def _left(self, place: Place) -> LevelError:
        kind = "Tensor" if is_a(place.value, Tensor) else "value"
        return LevelError(
            f"jit: after the trace, {place.name} is a {kind} of it ({describe(place.value)}), which has a "
            f"value at no call{_line(self._f, place)}: Python code of a compiled function runs once, "
            "when it is traced. Return the Tensor from the function, and keep it where it is called; or "
            "write into a Tensor that is made outside, before the first call (t.copy_(x), buffer[i] = x)."
        )

    def _changed(self, place: Place, is_gone: bool) -> LevelError:
        done = f"takes {place.name} away" if is_gone else f"adds {place.name}"
        return LevelError(
            f"jit: the function {done}{_line(self._f, place)}, a Tensor from outside, and that happens "
            "when it is traced, not at each call. Keep the lists of a step as long as they are, and write "
            "into their Tensors (history[0].copy_(x)), or put one in the place of another."
        )

    def _warn_of_number(self, place: Place, old: str, new: str) -> None:
        owner = None if place.parent is None else place.parent.value
        if is_a(owner, types.FunctionType) and is_of_others(owner.__module__):
            return  # a variable of a library is none of the user's
        warn_at_users_line(
            f"jit: the function changes {place.name} from {old} to {new}{_line(self._f, place)}, and "
            "that happens when it is traced, not at each call: the compiled program has the number of the "
            "trace. Keep it as a Tensor, made outside, and write to that (t = fad.tensor(0); t.add_(1)); a "
            "random key is an argument, or fad.random.fold_in(key, t).",
            UserWarning,
        )


class Before:
    """What is in places before a trace, and in the containers and objects there, to be put back if it fails.

    A variable of a function or a module, or an attribute of a class, that was not there stays.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        # What a class has not of its own it has from a base, and an object from its class.
        self._places = sorted(places, key=_depth)
        tables: dict[int, PyTree] = {
            id(x): x for p in places for x in (p.value, attributes_of(p.value))
        }
        self._items = [(x, _items_now(x)) for x in tables.values() if _may_be_put_back(x)]

    def put_back(self) -> None:
        """Have all be as it was."""
        for x, items in self._items:
            if len(x) != len(items) or not all(map(_is_same_item, _items_now(x), items)):
                kind = next(kind for kind in _FILLED if isinstance(x, kind))
                kind.clear(x)
                _FILLED[kind](x, items)
        for place in self._places:
            if place.put is not None and place.has_changed:
                with contextlib.suppress(*GONE):  # the error of the function is raised
                    if place.value is ABSENT:  # a slot
                        object.__delattr__(place.within, place.key)
                    else:
                        place.put(place.value)


def _depth(place: Place) -> float:
    return len(place.within.__mro__) if is_a(place.within, type) else float("inf")


def _may_be_put_back(x: PyTree) -> bool:
    return _is_container(x) and len(x) <= MOST


def _items_now(x: PyTree) -> list[PyTree]:
    """What is in a container, as pairs in a dict."""
    return list(view_of(x, "items") if is_a(x, dict) else items_of(x))


def _is_same_item(a: PyTree, b: PyTree) -> bool:
    pairs = type(a) is tuple and type(b) is tuple and len(a) == len(b) == 2
    return a is b or (pairs and a[0] is b[0] and a[1] is b[1])


class Guard:
    """Whether a function would come to the same Tensors as before; see NOTE [Containers that grow].

    ``places``: where these are, and what they are in.

    Arguments:
        places: all that the function leads to.
        tensors: those that it uses.
        moved: the places in which its trace has put other Tensors, as they were before.
        parts: of what is in the places, by its id, as they were before.
    """

    def __init__(
        self,
        places: Sequence[Place],
        tensors: Collection[Tensor],
        moved: Sequence[Place],
        parts: Mapping[int, Parts],
    ) -> None:
        # The ids of these Tensors, then of all that leads to one.
        leading = {*map(id, tensors), *[id(p.value) for p in moved if _is_tensor(p)]}
        are_moved = set(map(id, moved))
        holders: dict[int, Place] = {}
        by_value: dict[int, list[Place]] = {}
        for place in places:
            by_value.setdefault(id(place.value), []).append(place)
        ways = [*moved, *[p for p in places if id(p.value) in leading]]
        for place in ways:  # which gets longer
            if place.parent is None:
                continue
            holder = id(place.parent.value)
            holders[holder] = place.parent
            if holder not in leading:
                leading.add(holder)
                ways += by_value.get(holder, ())
        self.places = [p for p in places if id(p.value) in leading and p.access is not None]
        self.places += moved
        self._holders = [(p.name, p.value, parts.get(k, [])) for k, p in holders.items()]
        self._classes = [(p.name, p.value, type(p.value)) for p in holders.values()]
        of_code = {
            id(p.parent.value) for p in places if p.listed and p.parent and _is_code(p.value)
        }
        self._ways: list[_Trail] = []
        numbers: dict[int, int] = {}  # of the ways, by the id of the place
        self._kinds: list[tuple[str, int, object, str]] = []
        self._filled: list[tuple[str, int, Parts]] = []  # with functions
        self._empty: list[tuple[str, int, bool]] = []  # and whether they are to stay so
        self._read: list[tuple[str, int, PyTree]] = []  # numbers and the like
        # The containers that they are in, without Tensors, and their keys, or how many things are there.
        self._sizes: dict[int, tuple[str, int, PyTree]] = {}
        # Of those in holders, by what they are in, and the key.
        self._read_in_holders: dict[tuple[int, PyTree], int] = {}
        functions = [p.value for p in places if is_a(p.value, types.FunctionType)]
        users = [f for f in functions if not is_opaque(f.__globals__.get("__name__"))]
        codes = [f.__code__ for f in functions]
        getters = [p.value.__reduce__()[1] for p in places if is_a(p.value, _GETTERS)]
        names: list[Collection[str]] = [str(name).split(".") for name in _each(getters)]
        computed = [f.__globals__.get(n) for f in users for n in computed_of(f.__code__)]
        if not all(is_a(x, types.ModuleType) for x in computed):
            names.append(ALL_ATTRIBUTES)
        reads = frozenset[str]().union(*map(reads_of, codes), *names)
        taken = frozenset[str | None]().union(*map(taken_from, codes))
        for place in places:
            if _is_read(place, reads, taken):
                number = self._number(place, numbers, leading)
                is_array = is_a(place.value, _ARRAYS)  # which is not kept for this
                was = weakref.ref(place.value) if is_array else place.value
                self._read.append((place.name, number, was))
                if place.listed and place.parent and not is_array:
                    holder = id(place.parent.value)
                    if holder in holders:
                        self._read_in_holders[holder, place.key] = number
                row = place.parent
                if (
                    row is not None
                    and id(row.value) not in holders
                    and _is_container(row.value)
                    and _may_take_any(row, reads, taken)
                ):
                    size = row.name, self._number(row, numbers, leading), _size_of(row.value)
                    self._sizes[id(row.value)] = size
                continue
            x, is_held = place.value, place.parent is not None and id(place.parent.value) in holders
            if id(x) in leading:
                continue
            before = parts.get(id(x), [])
            is_filled = _is_container(x) and id(x) in of_code
            is_empty = _is_container(x) and not is_filled and not before
            is_asked = _is_container(x) and (place.is_variable or _is_named(place, reads))
            if is_asked and is_a(x, set) and (before or len(x)):
                # What the trace itself has changed is not there at the next call.
                size = _size_of(x) if _parts_of(x) == before else ()
                self._sizes[id(place)] = place.name, self._number(place, numbers, leading), size
                continue
            if not (is_filled or is_empty or _may_change_kind(place, is_held)):
                continue
            number = self._number(place, numbers, leading)
            if is_filled:
                self._filled.append((place.name, number, before))
            elif is_empty:
                self._empty.append((place.name, number, is_asked and not len(x)))
            else:
                self._kinds.append((place.name, number, kind_of(x), _in_words(x)))
        sought = frozenset[str]().union(*[sought_by(f.__code__) for f in users])
        # Of dicts and objects, the keys and names that code looks for and that are not there.
        self._missing: dict[int, tuple[str, int, Collection[str]]] = {}
        for place in places:
            now = table_of(place.value)
            if now is None or id(now) in self._missing or len(self._missing) == _FIRST:
                continue
            absent = [x for x in sought.difference(now) if now is place.value or x.isidentifier()]
            is_named = not place.listed or type(place.key) is not str or place.key in reads
            if absent and is_named:
                number = self._number(place, numbers, leading)
                self._missing[id(now)] = place.name, number, absent
        self._leading, self._moved = leading, are_moved
        # A program that its own trace has made one for other contents is for one call.
        self._is_noted = next(self._differences(), None) is None
        if self._is_noted:
            self._note()

    def _number(self, place: Place, numbers: dict[int, int], leading: Collection[int]) -> int:
        """The number of the way to a place, behind the way to what it is in."""
        way = [place]
        while id(way[-1]) not in numbers and _is_behind(way[-1], leading):
            way.append(way[-1].parent)  # type: ignore[arg-type]
        for step in reversed(way):
            if id(step) not in numbers:
                behind = numbers[id(step.parent)] if _is_behind(step, leading) else None
                within = step.value if step.access is None else step.within
                within, via = (within, None) if behind is None else (None, step.via)
                self._ways.append(_Trail(step.access, within, step.key, behind, via))
                numbers[id(step)] = len(numbers)
        return numbers[id(place)]

    def _values(self) -> tuple[list[PyTree], list[PyTree]]:
        """What is at the end of the ways now, `ABSENT` if nothing is; and before it what that is in."""
        places: list[PyTree] = []
        values: list[PyTree] = []
        for access, within, key, behind, via in self._ways:
            try:
                within = within if behind is None else values[behind]
                within = within if via is None else via(within)
                value = within if access is None else access.look(within, key)()
            except GONE:
                value = ABSENT
            values.append(value)
            places.append(within)
        return places, values

    def _note(self) -> None:
        """Note what is there: of data that leads to no Tensor the type, of all else the very object."""
        places, values = self._values()
        empty = {k: is_asked for _, k, is_asked in self._empty}
        of_a_type = {
            k for _, k, _, _ in self._kinds if not (values[k] is None or _is_code(values[k]))
        }
        of_a_type -= {way.behind for way in self._ways if way.behind is not None}
        of_a_type -= {k for _, k, _ in self._missing.values()}
        arrays = {k for _, k, was in self._read if is_a(was, weakref.ref)}
        of_a_type |= empty.keys()
        in_holders = set(self._read_in_holders.values())  # looked at with all that is there
        same = [p for p in self.places if not p.listed or id(p) in self._moved]
        looks = [(p.access, p.within, p.key) for p in same]
        array_looks: list[Look] = []
        # How to get what is to be of the same type, and which of that was empty.
        self._looks: list[Callable[[], PyTree]] = []
        self._may_fill: list[bool] = []
        stay: list[bool] = []
        for k, (within, (access, _, key, _, _)) in enumerate(zip(places, self._ways, strict=True)):
            # An item of a tuple changes with the tuple, but may be a list that gets longer.
            if access is None or (access is TUPLE_ITEM and k not in empty) or k in in_holders:
                continue
            if k in arrays or k not in of_a_type:
                (array_looks if k in arrays else looks).append((access, within, key))
            else:
                self._looks.append(access.look(within, key))
                self._may_fill.append(k in empty)
                stay.append(empty.get(k, False))
        self._stay_empty = stay if any(stay) else []
        # What gives things that are to be the same, many in one call.
        self._rows, self._array_rows = rows_of(looks), rows_of(array_looks)
        self._refs = list(map(weakref.ref, _each(map(operator.call, self._array_rows))))
        containers = [values[k] for _, k, _ in self._sizes.values()]
        if containers:
            self._rows.append(functools.partial(map, len, containers))
        views = [_keys_of(x) for x in containers]
        self._rows += [functools.partial(iter, view) for view in views if view is not None]
        absent = [(table_of(values[k]), n) for _, k, names in self._missing.values() for n in names]
        if absent:
            self._rows.append(functools.partial(map, dict.__contains__, *zip(*absent, strict=True)))
        holders = [x for _, x, _ in self._holders]
        self._rows.append(functools.partial(map, type, holders))
        tables = [(attributes_slot(type(x)), x) for x in holders if attributes_of(x) is not None]
        # The dict of an object may be another one.
        self._rows += [
            functools.partial(map, slot.__get__, (x,)) for slot, x in tables if slot is not None
        ]
        # Containers in which all is to be the same; and those with other things, and which of them are not.
        self._contents: list[Collection[PyTree]] = []
        self._mixed: list[Collection[PyTree]] = []
        self._selected: list[bool] = []
        for x, (keys, items, _) in [(h, part) for h in holders for part in contents(h)]:
            if keys is not None:
                self._contents += [keys, _BETWEEN]
            if items is None:
                continue
            pairs = zip(itertools.count() if keys is None else list(keys), list(items))
            selected = [
                id(v) in self._leading or _is_code(v) or (id(x), key) in self._read_in_holders
                for key, v in pairs
            ]
            if all(selected):
                self._contents += [items, _BETWEEN]
            else:
                self._mixed += [items, _BETWEEN]
                self._selected += [*selected, True]
        there = self._typed_now()
        self._types = list(map(type, there))
        self._seen = self._same_now(there)
        self._were_empty = [values[k] for k in empty if self._ways[k].access is None]
        self._were_filled = [(values[k], len(values[k])) for _, k, _ in self._filled]
        self._has_typed = bool(self._types or self._were_empty or self._were_filled)

    def _typed_now(self) -> list[PyTree]:
        """What is to be of the same type; of some of it, more is looked at."""
        return [*map(operator.call, self._looks), *_each(self._mixed)]

    def _same_now(self, typed: Sequence[PyTree]) -> list[PyTree]:
        """What is to be the same; ``typed``: `_typed_now`."""
        same = [*_each(map(operator.call, self._rows)), *_each(self._contents)]
        if self._mixed:
            same += itertools.compress(typed[len(self._looks) :], self._selected)
        return same

    def _is_as_noted(self) -> bool:
        """Whether there is what was noted; if not, it may be of the same kind still, see `changes`.

        Most calls ask no more than this, which runs no Python code for single places.
        """
        typed = self._typed_now() if self._has_typed else []
        if list(map(type, typed)) != self._types:
            return False
        arrays = list(_each(map(operator.call, self._array_rows)))
        # Of an array that is gone there is None.
        if any(map(operator.is_, arrays, itertools.repeat(None))):
            return False
        if not all(map(operator.is_, arrays, map(operator.call, self._refs))):
            return False
        same = self._same_now(typed)
        if len(same) != len(self._seen):
            return False
        if not all(map(operator.is_, same, self._seen)):
            if not all(map(_is_same_value, same, self._seen)):
                return False
            self._seen = same  # equal numbers, as those that a scheduler writes again
        return not self._has_typed or self._are_filled_as_noted(typed)

    def _are_filled_as_noted(self, typed: Sequence[PyTree]) -> bool:
        """Whether what was empty got numbers, texts and arrays alone, and what holds code is as long."""
        for x, count in self._were_filled:
            if len(x) != count:
                return False
        if self._stay_empty and any(map(len, itertools.compress(typed, self._stay_empty))):
            return False
        may_fill = itertools.chain(self._were_empty, itertools.compress(typed, self._may_fill))
        return not any(map(_holds_things, filter(len, may_fill)))

    def holds(self) -> bool:
        """Whether nothing has changed."""
        if not self._is_noted:
            return False
        try:
            if self._is_as_noted():
                return True
        except GONE:
            pass
        if any(True for _ in self._differences()):
            return False
        self._note()
        return True

    def changes(self) -> Iterator[tuple[str, str]]:
        """Names of places that have changed, and how."""
        if not self._is_noted:
            yield "what it leads to", "is changed by the function itself, where it is traced"
        yield from self._differences()

    def changed_numbers(self) -> list[tuple[str, str]]:
        """Names of numbers, and of the like, that have changed, and how."""
        return list(self._changed_numbers(self._values()[1]))

    def _changed_numbers(self, values: Sequence[PyTree]) -> Iterator[tuple[str, str]]:
        for name, k, was in self._read:
            if is_a(was, weakref.ref):
                if values[k] is None or values[k] is not was():
                    what = "another array" if is_a(values[k], _ARRAYS) else _in_words(values[k])
                    yield name, f"is {what} now"
            elif not _is_same_value(values[k], was):
                yield name, f"is {_value_in_words(values[k])} now, was {_value_in_words(was)}"
        for name, k, size in self._sizes.values():
            now = _size_of(values[k])
            if len(now) != len(size) or not all(map(_is_same_key, now, size)):
                yield name, "has other parts now"

    def _differences(self) -> Iterator[tuple[str, str]]:
        for place in self.places:
            if place.has_changed:
                yield place.name, f"is another {'Tensor' if _is_tensor(place) else 'object'} now"
        for name, x, kind in self._classes:
            if type(x) is not kind:
                yield name, f"is {_in_words(x)} now, was of {kind.__name__}"
        _, values = self._values()
        for name, k, kind_before, was in self._kinds:
            if not _is_same_kind(kind_of(values[k]), kind_before):
                yield name, f"is {_in_words(values[k])} now, was {was}"
        yield from self._changed_numbers(values)
        for name, k, absent in self._missing.values():
            for key in {*absent}.intersection(table_of(values[k]) or ()):
                yield name, f"has {key} now"
        for name, k, is_asked in self._empty:
            if _holds_things(values[k]) or (is_asked and len(values[k])):
                yield name, "is no longer empty"
        filled = [(name, values[k], parts) for name, k, parts in self._filled]
        for name, x, parts in [*self._holders, *filled]:
            now = _parts_of(x)
            if len(now) != len(parts) or not all(map(_is_same_part, now, parts)):
                yield name, "has other parts now"


class Retraces:
    """How often a function is traced again for another number outside, in how many ``calls``."""

    MANY = 32  # that are worth a warning
    SELDOM = 2  # if there are no more calls than so many for each

    def __init__(self, function: str) -> None:
        self.calls = 0
        self._function = function
        # By the name of the number: how often, and how many calls there were before the first time.
        self._counts: dict[str, tuple[int, int]] = {}
        self._warned: set[str] = set()

    def note(self, changes: Sequence[tuple[str, str]]) -> None:
        """Note names of numbers that a trace is for, and how they have changed; warn of one, once."""
        for name, words in changes:
            count, before = self._counts.get(name, (0, self.calls - 1))
            self._counts[name] = count + 1, before
            if count + 1 < self.MANY or name in self._warned:
                continue
            del self._counts[name]
            if self.calls - before <= self.MANY * self.SELDOM:
                self._warned.add(name)
                self._warn(name, words, self.calls - before)

    def _warn(self, name: str, words: str, calls: int) -> None:
        warn_at_users_line(
            f"jit: {self._function} was traced again {self.MANY} times in {calls} calls, because {name} "
            f"{words}. Python code runs when it is traced, so a call with another number is traced, and that "
            "takes far longer than the call. Pass what changes at each call as an argument; or keep a number "
            "as a Tensor that is made outside, and write to that (lr = fad.tensor(0.1); lr.mul_(0.5)).",
            UserWarning,
        )


def kind_of(x: PyTree) -> object:
    """What a part may be another one of, at a later call, without a trace; of a function its code.

    Of a `functools.partial` also how many arguments it has, and the names of keywords.
    """
    if issubclass(type(x), _VALUES):
        return "value"
    if not _is_code(x):
        return type(x)
    arguments: tuple[object, ...] = ()
    while not is_a(x, types.FunctionType):
        if is_a(x, functools.partial):
            arguments += len(x.args), *x.keywords
            x = x.func
        elif is_a(x, types.MethodType):
            x = x.__func__
        elif not is_a(x, type) and hasattr(x, "__wrapped__"):
            x = x.__wrapped__
        else:
            break
    kind = x.__code__ if is_a(x, types.FunctionType) else x
    return (kind, *arguments) if arguments else kind


def _is_same_kind(a: object, b: object) -> bool:
    both = type(a) is tuple and type(b) is tuple
    return a is b or (both and a[0] is b[0] and a[1:] == b[1:])  # type: ignore[index]


def _is_code(x: PyTree) -> bool:
    """Whether ``x`` is a function, a method, a class or the like, which is to be the same at each call."""
    return callable(x) and is_opaque(type(x).__module__)


def _in_words(x: PyTree) -> str:
    name = getattr(x, "__qualname__", None) if _is_code(x) else None
    return f"a {type(x).__name__}" if name is None else f"{name}"


def _is_read(place: Place, reads: Collection[str], taken: Collection[str | None]) -> bool:
    """Whether code with these `reads_of` may read a number, a text, an enum or an array there.

    ``taken``: names of what it takes items of without naming them, see `taken_from`.

    One that the trace itself changes would be another one at each call: it does not count, and the user is
    warned of it. A flag counts all the same, since it may say that a call was the first one.
    """
    if (place.access is None and place.via is None) or place.parent is None:
        return False
    x = place.value
    if not (is_a(x, _READ) or (_is_whole(x) and not _is_of_fad(x) and _is_of_user(place))):
        return False
    if place.has_changed and type(place.value) is not bool:
        return False
    if place.is_variable or _is_named(place, reads):
        return True
    row = place.parent
    if not is_a(row.value, _INDEXED):  # an object
        return type(place.key) is str and not ALL_ATTRIBUTES.isdisjoint(reads)
    if is_a(row.value, dict) and type(place.key) is not str:
        taken = {None}
    return _may_take_any(row, reads, taken)


def _is_whole(x: PyTree) -> bool:
    """Whether ``x`` is an object of a library, into which nothing looks: a slice, a dtype, a generator."""
    is_other = x is None or is_a(x, _PARTED) or _is_code(x)
    return not is_other and is_opaque(type(x).__module__)


def _is_of_fad(x: PyTree) -> bool:
    return type(x).__module__.partition(".")[0] == "fad"


def _is_of_user(place: Place) -> bool:
    """Whether the function that leads to a place is none of a library."""
    parent = place.parent
    while parent is not None and not is_a(parent.value, types.FunctionType):
        parent = parent.parent
    # A function that wraps one of the user has the name of its module.
    return parent is None or not is_opaque(parent.value.__globals__.get("__name__"))


_INDEXED = (list, tuple, collections.deque, dict)


def _may_take_any(row: Place, reads: Collection[str], taken: Collection[str | None]) -> bool:
    """Whether code may take any item of a container, see `_is_read`."""
    kind = next((kind for kind in _INDEXED if is_a(row.value, kind)), None)
    if kind is None or kind.__len__(row.value) > _FIRST:
        return False
    if kind is dict and None not in taken:
        return row.name.rpartition(".")[2] in taken or row.key in taken
    return row.is_variable or _is_named(row, reads)


def _size_of(x: PyTree) -> tuple[PyTree, ...]:
    """The class, and the keys of a dict or of a small set; of another, how many things are in it."""
    if not _is_container(x):
        return (None,)
    keys = _keys_of(x)
    return type(x), *([len(x)] if keys is None else keys)


def _keys_of(x: PyTree) -> Collection[PyTree] | None:
    return None if is_a(x, set) and set.__len__(x) > _FIRST else contents(x)[0].keys


def _is_named(place: Place, reads: Collection[str]) -> bool:
    return type(place.key) is str and place.key in reads


def _is_same_value(a: PyTree, b: PyTree) -> bool:
    """Whether ``a`` is ``b``, or a number or a text as ``b`` is, to the bit, or equal and of a library."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if not (kind in (*NUMBERS, slice) or is_a(a, np.generic)):
        with contextlib.suppress(TypeError, ValueError):  # no hash, or `==` is no bool
            return _is_whole(a) and _is_same_key(a, b)
        return False
    if is_a(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()  # type: ignore[no-any-return]
    same: bool = repr(a) == repr(b) if kind in (float, complex, slice) else a == b
    return same


def _value_in_words(x: PyTree) -> str:
    if is_a(x, enum.Enum):
        return f"{type(x).__name__}.{x._name_}"
    if type(x) not in NUMBERS and not _is_whole(x):
        return _in_words(x)
    return _in_words(x) if type(x) is int and x.bit_length() > 128 else reprlib.repr(x)


def _may_change_kind(place: Place, is_held: bool) -> bool:
    """Whether a program depends on the kind of what is there; ``is_held``: in what leads to its Tensors."""
    if _is_of_fad(place.value) and not _is_of_user(place):
        return False  # a transform may make one anew at each call
    if place.access is None:
        return place.via is not None
    if is_held and place.listed:
        return False
    return place.value is None or is_held or place.is_variable or callable(place.value)


class _Trail(NamedTuple):
    """How to get what is in a place: ``within`` something, or what the way numbered ``behind`` leads to."""

    access: Access | None
    within: PyTree
    key: PyTree
    behind: int | None
    via: Callable[[PyTree], PyTree] | None


def _is_behind(place: Place, leading: Collection[int]) -> bool:
    """Whether a place is found from its parent on, which may be another one by then."""
    parent = place.parent
    if parent is None or parent.parent is None or id(parent.value) in leading:
        return False  # that of a function that is compiled is the same at each call
    return place.via is not None or (place.access is not None and place.within is parent.value)


def _is_container(x: PyTree) -> bool:
    """Whether ``x`` is a list, dict, set or deque whose length is no code of the user."""
    return is_a(x, _CONTAINERS) and type(x).__len__ in _LENGTHS


def _holds_things(x: PyTree) -> bool:
    """Whether ``x`` is no container, or one with more in it than numbers, texts and arrays."""
    if not _is_container(x):
        return True
    values = iter(view_of(x, "values")) if is_a(x, dict) else items_of(x)
    first = list(itertools.islice(values, _FIRST))
    if _PLAIN.issuperset(map(type, first)):
        return False
    return any([kind_of(v) != "value" for v in first])


def _parts_of(x: PyTree) -> Parts:
    """The keys and the kinds of what is in a container, and of its attributes that are more than a value."""
    parts: Parts = []
    for keys, values, are_attributes in contents(x):
        if values is None:
            parts += [(id(k), None) for k in list(keys or ())]
            continue
        kinds = list(map(kind_of, list(values)))
        named = zip(itertools.repeat(None) if keys is None else list(keys), kinds, strict=False)
        parts += [p for p in named if not (are_attributes and p[1] == "value")]
    return parts


def _is_same_part(a: tuple[object, object], b: tuple[object, object]) -> bool:
    (key, kind), (other, other_kind) = a, b
    return _is_same_kind(kind, other_kind) and _is_same_key(key, other)


def _is_same_key(a: PyTree, b: PyTree) -> bool:
    return a is b or bool(type(a) is type(b) and hash(a) == hash(b) and a == b)


def _is_traced_at(x: PyTree, level: PyTree) -> bool:
    """Whether ``x`` is a Tensor of the trace at ``level``, or of a transform inside of it."""
    while is_a(x, Tensor):
        if x._level is level:
            return is_a(x._value, jax.core.Tracer)
        x = x._value
    return False


def _is_tensor(place: Place) -> bool:
    return is_a(place.value, Tensor)


def _equal(old: Place, new: Place) -> bool:
    a, b = old.value, new.value
    return type(a) is type(b) and bool(a == b or (a != a and b != b))


def _line(f: Callable[..., PyTree], place: Place) -> str:
    """Where the code of ``f`` may have put something in a place, for messages."""
    return str(tool("hints.tracebacks").where_written(f, place.name))
