"""Places: where Python code of a function finds what it uses from outside."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fad.core.tensor import Tensor
from fad.core.types import PyTree

GONE = (LookupError, ValueError, AttributeError, TypeError)
NUMBERS = (bool, int, float, complex, str)

_MOST = 4_000  # places that are looked at
# Modules whose functions and objects lead to nothing of the user.
_OPAQUE = {"fad", "jax", "jaxlib", "numpy", "optax", "torch", "pytest", "_pytest"}
_OPAQUE |= sys.stdlib_module_names - {"argparse", "collections", "types"}
_DictValues: Any = type({}.values())
_ROWS = (list, collections.deque, _DictValues)
_MAPPINGS = (dict, types.MappingProxyType)


class Absent:
    """That nothing is in a place."""


ABSENT = Absent()


class Place(NamedTuple):
    """An item, an attribute or a variable, with the ``value`` in it.

    ``parent``: the place of the container, object or function that it belongs to. ``look`` gives what is
    there, as long as the parent has the same value; `ABSENT`, or one of the errors `GONE`, if nothing is. It
    is None for what does not change, as the items of a tuple. ``part`` gives what is there in another value
    of the parent; None for a variable. ``put`` puts something else there; None where that cannot be.
    ``listed``: it is among the `contents` of the parent.
    """

    name: str
    value: PyTree
    parent: Place | None = None
    look: Callable[[], PyTree] | None = None
    part: Callable[[PyTree], PyTree] | None = None
    put: Callable[[PyTree], object] | None = None
    listed: bool = False

    def now(self) -> PyTree:
        """What is there now, `ABSENT` if nothing is."""
        try:
            return self.value if self.look is None else self.look()
        except GONE:
            return ABSENT

    @property
    def has_changed(self) -> bool:
        """Whether something else is there now, or nothing."""
        return self.now() is not self.value

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of a function or of a module."""
        owner = None if self.parent is None else self.parent.value
        return bool(self.name) and isinstance(owner, (types.FunctionType, types.ModuleType))


@functools.lru_cache(maxsize=1024)
def is_opaque(module: str | None) -> bool:
    """Whether functions and objects of a module of this name lead to nothing of the user."""
    return str(module).partition(".")[0] in _OPAQUE


def names_around(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> dict[int, str]:
    """Names for the Tensors that ``f`` leads to, by their ids."""
    names: dict[int, str] = {}
    for place in places_of(f, statics):
        if isinstance(place.value, Tensor):
            names.setdefault(id(place.value), place.name)
    return names


# The contents of a container


class Contents(NamedTuple):
    """The keys and the values of a container, as collections that follow its changes; None if it has none."""

    keys: Collection[PyTree] | None
    values: Collection[PyTree] | None
    are_attributes: bool = False


def contents(x: PyTree) -> list[Contents]:
    """What is in a container, and the attributes of an object."""
    parts = [Contents(x, None)] if isinstance(x, (set, frozenset)) else []
    parts += [Contents(None, x)] if isinstance(x, _ROWS) else []
    parts += [Contents(_keys(x), values_of(x))] if isinstance(x, _MAPPINGS) else []
    return parts + [Contents(t.keys(), t.values(), True) for t in _attribute_tables(x)]


def _keys(table: PyTree) -> Collection[PyTree]:
    # What `dict` has of an OrderedDict is in the order in which it came.
    kind: Any = collections.OrderedDict if isinstance(table, collections.OrderedDict) else dict
    return kind.keys(table) if isinstance(table, dict) else table.keys()


def values_of(table: PyTree) -> Collection[PyTree]:
    """The values of a dict, in its order, whatever its class makes of ``values``."""
    kind: Any = collections.OrderedDict if isinstance(table, collections.OrderedDict) else dict
    return kind.values(table) if isinstance(table, dict) else table.values()


def _attribute_tables(x: PyTree) -> list[Mapping[str, PyTree]]:
    """The attributes of an object of the user, or a Tensor; of a class, with those of its bases."""
    if isinstance(x, type):
        return list(map(vars, users_classes(x)))
    if isinstance(x, types.FunctionType):
        return [vars(x)] if vars(x) else []
    has_table = (isinstance(x, Tensor) or users_classes(type(x))) and hasattr(x, "__dict__")
    return [vars(x)] if has_table else []


def users_classes(kind: type) -> list[type]:
    """The classes of the user among a class and its bases."""
    return [k for k in kind.__mro__ if not is_opaque(k.__module__)]


# The way from a function to what it uses


def places_of(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> Iterator[Place]:
    """The places that ``f`` leads to, each behind its parent; the places of what it only wraps have no name.

    It leads to what it closes over, to the globals that its code names, to the object that it is a method of,
    and to ``statics``; from there to items and attributes, and to what functions among these lead to, methods
    that its code names too.
    """
    places = [Place(f"<argument {type(x).__name__}>", x) for x in statics]
    places.append(Place("", f))
    names: set[str] = set()
    methods: dict[str, list[Place]] = {}  # those that no code has named so far
    seen: set[int] = set()
    for place in places:  # which gets longer
        yield place
        x = place.value
        if id(x) in seen or x is None or type(x) in NUMBERS or len(places) > _MOST:
            continue
        seen.add(id(x))
        if isinstance(x, types.FunctionType) and not is_opaque(x.__module__):
            names |= _names(x.__code__)
        places += _parts(place, names)
        for kind in users_classes(x if isinstance(x, type) else type(x)):
            for name, function in [] if id(kind) in seen else _functions(kind):
                is_operator = name.startswith("__") and name != "__init__"
                waiting = places if is_operator else methods.setdefault(name, [])
                waiting.append(Place("", function, place))
            seen.add(id(kind))
        for name in methods.keys() & names:
            places += methods.pop(name)


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _functions(kind: type) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions of a class, with the names by which code comes to them."""
    for name, x in vars(kind).items():
        if isinstance(x, (staticmethod, classmethod)):
            x = x.__func__
        elif isinstance(x, (property, functools.cached_property)):
            x = x.fget if isinstance(x, property) else x.func
        if isinstance(x, types.FunctionType):
            yield name, x


def _parts(place: Place, names: Collection[str]) -> list[Place]:
    """The places in what is in ``place``; in a module, those with these names."""
    x, kind, within = place.value, type(place.value), place.name
    if isinstance(x, types.MethodType):
        name = f"{within}.__self__" if within else "self"
        return [Place(name, x.__self__, place), Place("", x.__func__, place)]
    if isinstance(x, types.FunctionType):
        return _of_function(place, x)
    if isinstance(x, types.ModuleType):
        used = [] if is_opaque(x.__name__) else [n for n in list(vars(x)) if n in names]
        return [_attribute(place, n, vars(x)[n]) for n in used]
    if isinstance(x, functools.partial):
        parts = [Place(f"{within}<argument {k}>", v, place) for k, v in enumerate(x.args)]
        return [Place("", x.func, place), *parts, *_words(place, x.keywords, "<argument {}>")]
    if hasattr(kind, "__wrapped__") or (callable(x) and hasattr(x, "__wrapped__")):
        return [Place("", x.__wrapped__, place)]
    return [*_items(place, x), *_attributes(place, x)]


def _items(place: Place, x: PyTree) -> Iterator[Place]:
    """The places of the items of a container."""
    get, setitem, within = operator.getitem, operator.setitem, place.name
    if isinstance(x, _MAPPINGS):
        get = type(x).get if type(x) in _MAPPINGS else dict.get
        for k in list(itertools.islice(_keys(x), _MOST)):
            look = functools.partial(get, x, k, ABSENT)
            put = functools.partial(setitem, x, k) if isinstance(x, dict) else None
            yield Place(f"{within}[{k!r}]", look(), place, look, operator.itemgetter(k), put, True)
    elif isinstance(x, (list, collections.deque)) or (type(x) is np.ndarray and x.dtype == object):
        is_row = isinstance(x, (list, collections.deque))
        numbers: Any = range(len(x)) if is_row else np.ndindex(x.shape)
        for k in list(itertools.islice(numbers, _MOST)):
            name = f"{within}[{k}]" if is_row else f"{within}{list(k)}"
            look, put = functools.partial(get, x, k), functools.partial(setitem, x, k)
            yield Place(name, x[k], place, look, operator.itemgetter(k), put, is_row)
    elif isinstance(x, (tuple, set, frozenset, _DictValues)):
        for k, v in enumerate(list(itertools.islice(x, _MOST))):
            part = functools.partial(_nth, k)
            look = functools.partial(_nth, k, x) if isinstance(x, _DictValues) else None
            yield Place(f"{within}[{k}]", v, place, look, part, None, True)


def _nth(number: int, values: Collection[PyTree]) -> PyTree:
    return next(itertools.islice(values, number, None), ABSENT)


def _attributes(place: Place, x: PyTree) -> Iterator[Place]:
    """The places of the attributes of an object of the user: its own, and what is data in its classes."""
    found: dict[str, tuple[PyTree, bool]] = {}
    for kind in reversed(users_classes(x if isinstance(x, type) else type(x))):
        for name, value in list(vars(kind).items()):
            if isinstance(value, types.MemberDescriptorType) and not isinstance(x, type):  # a slot
                found[name] = getattr(x, name, ABSENT), False
            elif not (
                name.startswith("__") or hasattr(type(value), "__get__") or name == "_abc_impl"
            ):
                found[name] = value, isinstance(x, type)
    if not isinstance(x, type):
        found |= {name: (v, True) for table in _attribute_tables(x) for name, v in table.items()}
    for name, (value, listed) in found.items():
        yield _attribute(place, name, value, listed)


def _attribute(place: Place, name: str, value: PyTree, listed: bool = False) -> Place:
    x = place.value
    look, put = functools.partial(getattr, x, name, ABSENT), functools.partial(setattr, x, name)

    def part(x: PyTree) -> PyTree:
        return getattr(x, name, ABSENT)

    return Place(f"{place.name}.{name}", value, place, look, part, put, listed)


def _words(place: Place, table: dict[str, PyTree], name: str = "{}") -> Iterator[Place]:
    """Arguments by name that a function has before it is called."""
    for k, v in table.items():
        put = functools.partial(operator.setitem, table, k)
        yield Place(
            place.name + name.format(k),
            v,
            place,
            functools.partial(table.get, k, ABSENT),
            None,
            put,
        )


def _of_function(place: Place, f: types.FunctionType) -> list[Place]:
    """The places of what a function closes over, of its defaults, and of the globals that its code names."""
    code, parts = f.__code__, []
    for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
        look = functools.partial(getattr, cell, "cell_contents")
        put = functools.partial(setattr, cell, "cell_contents")
        with contextlib.suppress(ValueError):  # it has none yet
            parts.append(Place(name, look(), place, look, None, put))
    defaults = Place("", f.__defaults__ or (), place, functools.partial(getattr, f, "__defaults__"))
    arguments = code.co_varnames[: code.co_argcount]
    named = zip(reversed(arguments), reversed(defaults.value), strict=False)
    parts += [defaults] if defaults.value else []
    parts += [Place(name, value, defaults) for name, value in named]
    parts += [*_words(place._replace(name=""), f.__kwdefaults__ or {}), *_attributes(place, f)]
    if is_opaque(f.__module__):
        return parts
    space = f.__globals__
    for name in _names(code):
        look = functools.partial(space.get, name, ABSENT)
        value = look()
        is_library = isinstance(value, (types.ModuleType, type)) and is_opaque(
            value.__name__ if isinstance(value, types.ModuleType) else value.__module__
        )
        if value is not ABSENT and not is_library:
            put = functools.partial(operator.setitem, space, name)
            parts.append(Place(name, value, place, look, None, put))
    return parts
