"""Places: where Python code of a function finds what it uses from outside."""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import inspect
import itertools
import operator
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fad.core.caches import Table
from fad.core.tensor import Tensor
from fad.core.types import PyTree

GONE = (LookupError, ValueError, AttributeError, TypeError)
NUMBERS = (bool, int, float, complex, str)

MOST = 4_000  # things that are looked into; numbers and texts do not count
# Modules whose functions and objects lead to nothing of the user.
_OPAQUE = {"fad", "jax", "jaxlib", "numpy", "optax", "torch", "pytest", "_pytest"}
_OPAQUE |= sys.stdlib_module_names - {"argparse", "collections", "types"}
_DictValues: type[Collection[PyTree]] = type({}.values())
_ROWS = (list, collections.deque, _DictValues)
_MAPPINGS = (dict, types.MappingProxyType)


class Absent:
    """That nothing is in a place."""


ABSENT = Absent()


def is_a(x: object, kinds: type | tuple[type, ...]) -> bool:
    """`isinstance` by the type alone: what only passes through a compiled function must not run its code."""
    return issubclass(type(x), kinds)


_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def attributes_slot(kind: type) -> PyTree:
    """What gives the dict with the attributes of an object of this class, by no code of the class."""
    slots = [vars(k).get("__dict__") for k in kind.__mro__]
    return next((slot for slot in slots if is_a(slot, _SLOTS)), None)


class Access(NamedTuple):
    """How Python code gets what is in a place, and puts something there, if it can.

    ``get(container, key, *default)`` may raise one of the errors `GONE`; ``put(container, key, value)``.
    """

    get: Callable[..., PyTree]
    put: Callable[[PyTree, PyTree, PyTree], object] | None = None
    default: tuple[PyTree, ...] = (ABSENT,)

    def look(self, container: PyTree, key: PyTree) -> Callable[[], PyTree]:
        """What gives what is there, as long as the container stays the same."""
        return functools.partial(self.get, container, key, *self.default)


def _set_attribute(x: PyTree, name: str, value: PyTree) -> None:
    """`setattr` as of a plain class: also where that of the class forbids it."""
    (type if is_a(x, type) else object).__setattr__(x, name, value)


_ATTRIBUTE = Access(getattr, _set_attribute)
_CELL = Access(getattr, setattr, ())
_ITEM = Access(operator.getitem, operator.setitem, ())
_LIST_ITEM = Access(list.__getitem__, list.__setitem__, ())
_DEQUE_ITEM = Access(collections.deque.__getitem__, collections.deque.__setitem__, ())
TUPLE_ITEM = Access(tuple.__getitem__, None, ())
_DICT_ITEM = Access(dict.get, operator.setitem)
_PROXY_ITEM = Access(types.MappingProxyType.get)
_NTH = Access(lambda values, k: next(itertools.islice(values, k, None)), None, ())
# How code gets an item of what has them in a row; of a set by no key.
_ROW_ITEMS: dict[PyTree, Access | None] = {
    list: _LIST_ITEM,
    collections.deque: _DEQUE_ITEM,
    tuple: TUPLE_ITEM,
    _DictValues: _NTH,
    set: None,
    frozenset: None,
}


_contents_of_cell = operator.attrgetter("cell_contents")
# An access, the container, and the key there.
Look: TypeAlias = tuple[Access | None, PyTree, PyTree]


def rows_of(looks: Iterable[Look]) -> list[Callable[[], Iterable[PyTree]]]:
    """What gives all that is in these places, those of one container by one call of a function in C.

    As long as the containers stay the same; a call raises one of the errors `GONE` if something is gone.
    """
    rows: list[Callable[[], Iterable[PyTree]]] = []
    cells: dict[int, PyTree] = {}
    groups: dict[tuple[PyTree, int], tuple[PyTree, dict[PyTree, None]]] = {}
    for access, within, key in looks:
        if access is None:
            continue
        if access is _CELL:
            cells[id(within)] = within
        elif _is_plain(access, within, key):
            getter = operator.attrgetter if access is _ATTRIBUTE else operator.itemgetter
            groups.setdefault((getter, id(within)), (within, {}))[1][key] = None
        else:
            rows.append(functools.partial(map, operator.call, (access.look(within, key),)))
    if cells:
        rows.append(functools.partial(map, _contents_of_cell, list(cells.values())))
    for (getter, _), (within, keys) in groups.items():
        # A getter of one gives no tuple.
        twice = itertools.islice(itertools.cycle(keys), max(len(keys), 2))
        rows.append(functools.partial(getter(*twice), within))
    return rows


def _is_plain(access: Access, within: PyTree, key: PyTree) -> bool:
    """Whether something is there, and a getter of `operator` gets it as ``access`` does."""
    if access is _ATTRIBUTE:
        return type(key) is str and "." not in key and access.get(within, key, ABSENT) is not ABSENT
    if access is _DICT_ITEM:
        return type(within) is dict and key in within
    return access is _LIST_ITEM and type(within) is list


_WITH_VARIABLES = (types.FunctionType, types.MethodType, types.ModuleType, functools.partial)


class Place(NamedTuple):
    """An item, an attribute or a variable, with the ``value`` in it.

    ``parent``: the place of the container, object or function that it belongs to. ``within``, ``key``,
    ``access``: where it is in memory: of a variable the cell or the module, else what is in ``parent``. What
    does not change, as the object of a method, has no ``access``. ``listed``: it is among the `contents` of
    the parent, or in a tuple. ``via`` gives ``within`` of a parent that is a function or the like; where
    there is no ``access``, the value.
    """

    name: str
    value: PyTree
    parent: Place | None = None
    access: Access | None = None
    within: PyTree = None
    key: PyTree = None
    listed: bool = False
    via: Callable[[PyTree], PyTree] | None = None

    @property
    def look(self) -> Callable[[], PyTree] | None:
        """What gives what is there, as long as the parent stays the same."""
        return self.access and self.access.look(self.within, self.key)

    @property
    def put(self) -> Callable[[PyTree], object] | None:
        """What puts something else there."""
        put = self.access and self.access.put
        return put and functools.partial(put, self.within, self.key)

    def now(self) -> PyTree:
        """What is there now, `ABSENT` if nothing is."""
        look = self.look
        try:
            return self.value if look is None else look()
        except GONE:
            return ABSENT

    @property
    def has_changed(self) -> bool:
        """Whether something else is there now, or nothing."""
        return self.now() is not self.value

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of a function or of a module, or an argument that one has already."""
        parent = self.parent
        if parent is not None and parent.key == "__defaults__":
            parent = parent.parent
        return bool(self.name) and parent is not None and is_a(parent.value, _WITH_VARIABLES)


@functools.lru_cache(maxsize=1024)
def is_opaque(module: str | None) -> bool:
    """Whether functions and objects of a module of this name lead to nothing of the user."""
    return str(module).partition(".")[0] in _OPAQUE


def by_way(places: Sequence[Place], numbers: dict[object, int]) -> dict[int, Place]:
    """Places that have a name, by the number of the way to them; places of one name may be several.

    ``numbers``: those of all ways so far; a way has one, whatever is in its places.
    """
    ways: dict[int, int] = {}
    for place in places:
        parent, key = place.parent, place.name if place.access is None else place.key
        is_part = place.access is None or (parent is not None and place.within is parent.value)
        begin = id(place.within) if not is_part else None if parent is None else ways[id(parent)]
        is_index = type(key) is tuple and {int}.issuperset(map(type, key))
        way = is_part, begin, key if is_index or is_a(key, (str, int)) else id(key)
        ways[id(place)] = numbers.setdefault(way, len(numbers))
    return {ways[id(place)]: place for place in places if place.name}


def is_of_others(module: str) -> bool:
    """Whether a module is none of the user's program."""
    return is_opaque(module) or _is_installed(module)


# The contents of a container


class Contents(NamedTuple):
    """The keys and the values of a container, as collections that follow its changes; None if it has none."""

    keys: Collection[PyTree] | None
    values: Collection[PyTree] | None
    are_attributes: bool = False


def contents(x: PyTree) -> list[Contents]:
    """What is in a container, and the attributes of an object."""
    parts = [Contents(_row(x), None)] if is_a(x, (set, frozenset)) else []
    parts += [Contents(None, _row(x))] if is_a(x, _ROWS) else []
    parts += [Contents(view_of(x, "keys"), view_of(x, "values"))] if is_a(x, _MAPPINGS) else []
    return parts + [Contents(t.keys(), t.values(), True) for t in _attribute_tables(x)]


def view_of(table: PyTree, name: str) -> Collection[PyTree]:
    """The "keys", "values" or "items" of a mapping, whatever a class of the user makes of them."""
    # What `dict` has of an OrderedDict is in the order in which it came.
    bases = (collections.OrderedDict, *_MAPPINGS)
    view: Collection[PyTree] = getattr(next(k for k in bases if is_a(table, k)), name)(table)
    return view


def _attribute_tables(x: PyTree) -> list[Mapping[str, PyTree]]:
    """The attributes of an object of the user, or a Tensor; of a class, with those of its bases."""
    if is_a(x, type):
        return list(map(vars, users_classes(x)))
    table = attributes_of(x)
    return [] if table is None or (is_a(x, types.FunctionType) and not table) else [table]


def attributes_of(x: PyTree) -> dict[str, PyTree] | None:
    """The attributes of a function, a Tensor or an object of the user; None if it has none of its own."""
    kind = type(x)
    has_own = is_a(x, (types.FunctionType, Tensor)) or (users_classes(kind) and not is_a(x, type))
    slot = attributes_slot(kind) if has_own else None
    return None if slot is None else slot.__get__(x, kind)


def table_of(x: PyTree) -> dict[PyTree, PyTree] | None:
    """A dict, or the attributes of an object of the user, into which something new may come."""
    is_other = is_a(x, (Tensor, types.FunctionType))
    return x if is_a(x, dict) else None if is_other else attributes_of(x)


def users_classes(kind: type) -> list[type]:
    """The classes of the user among a class and its bases."""
    return [k for k in kind.__mro__ if not is_opaque(k.__module__)]


# The way from a function to what it uses


def places_of(f: Callable[..., PyTree], statics: Sequence[PyTree]) -> Iterator[Place]:
    """The places that ``f`` leads to, each behind its parent; the places of what it only wraps have no name.

    It leads to what it closes over, to the globals that its code names, to the object that it is a method of,
    and to ``statics``; from there to items and attributes, and to what functions among these lead to. Of
    classes, but those of installed libraries, it leads to their data and to the methods that its code names.
    """
    places = [Place(f"<argument {type(x).__name__}>", x) for x in statics]
    places.append(Place("", f))
    names: set[str] = set()
    methods: dict[str, list[Place]] = {}  # those that no code has named so far
    seen: set[int] = set()
    classes: set[type] = set()
    home = ""  # the package of the function
    count = 0
    for place in places:  # which gets longer
        yield place
        x = place.value
        if x is None or type(x) in NUMBERS:
            continue
        count += 1
        if id(x) in seen or count > MOST:
            continue
        seen.add(id(x))
        if is_a(x, types.FunctionType) and not is_opaque(x.__module__):
            names |= _names(x.__code__)
            home = home or _package(x)
        if not is_a(x, type) or _package(x) == home or not _is_installed(x.__module__):
            places += _parts(place, names, home)
        for kind in users_classes(x if is_a(x, type) else type(x)):
            if kind in classes or (_package(kind) != home and _is_installed(kind.__module__)):
                continue
            classes.add(kind)
            for name, function in _functions(kind):
                is_operator = name.startswith("__") and name != "__init__"
                later = places if is_operator else methods.setdefault(name, [])
                later.append(Place("", function, place))
        for name in methods.keys() & names:
            places += methods.pop(name)


def _package(x: PyTree) -> str:
    return str(x.__module__).partition(".")[0]


@functools.lru_cache(maxsize=1024)
def _is_installed(module: str) -> bool:
    """Whether a module is that of a library, and not of the user's program."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return file.startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def _names(code: types.CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


# Of attributes, the lowest bit of the argument says that a method is called.
_LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_SUPER_ATTR")
_LOADS = (
    *_LOADS_OF_ATTRIBUTES,
    "LOAD_NAME",
    "LOAD_GLOBAL",
    "LOAD_FROM_DICT_OR_GLOBALS",
    "IMPORT_FROM",
)


@functools.lru_cache(maxsize=1024)
def reads_of(code: types.CodeType) -> frozenset[str]:
    """The names of attributes and globals that code reads, but not to call them; and its texts, as keys."""
    names = set(_texts(code.co_consts))
    for step in dis.get_instructions(code):
        calls = step.opname in _LOADS_OF_ATTRIBUTES and sys.version_info >= (3, 12)
        if step.opname in _LOADS and not (calls and (step.arg or 0) & 1):
            names.add(step.argval)
    return frozenset(names).union(
        *[reads_of(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    )


@functools.lru_cache(maxsize=1024)
def computed_of(code: types.CodeType) -> frozenset[str | None]:
    """The global variables of which code gets attributes by computed names, and None for what is no variable.

    Not those of a ``__getattr__``: the names that it hands on are in other code.
    """
    steps = [] if code.co_name.startswith("__getattr") else list(dis.get_instructions(code))
    calls = [steps[k + 1 :] for k, x in enumerate(steps) if x.argval == "getattr"]
    first = [call[0] for call in calls if _is_computed(call)]
    inner = [computed_of(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    names = [x.argval if x.opname == "LOAD_GLOBAL" else None for x in first]
    return frozenset(names).union(*inner)


def _is_computed(steps: Sequence[dis.Instruction]) -> bool:
    """Whether the second argument of a call, which begins with these steps, is no constant."""
    depth, last = 0, None
    for step in steps:
        depth += dis.stack_effect(step.opcode, step.arg)
        if depth <= 0:
            break
        last = step.opname if depth == 2 else last
    return last != "LOAD_CONST"


@functools.lru_cache(maxsize=1024)
def sought_by(code: types.CodeType) -> frozenset[str]:
    """The names of attributes and the keys without which code may go on."""
    names = {*code.co_names}
    asks = not names.isdisjoint("getattr hasattr get pop setdefault".split())
    asks = asks or any(step.opname == "CONTAINS_OP" for step in dis.get_instructions(code))
    texts = [x for x in code.co_consts if type(x) is str and asks]
    read = reads_of(code) if names & {"AttributeError", "KeyError"} else frozenset()
    inner = [sought_by(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return read.union(texts, *inner)


# What gives all that is in a dict, or what a computed key is given to.
_OF_ALL = frozenset("values items get pop setdefault".split())
ALL_ATTRIBUTES = frozenset("__dict__ vars asdict astuple".split())  # what gives all of an object
_MERGES = ("DICT_MERGE", "DICT_UPDATE")
_NO_COMPUTED_KEY = ("LOAD_CONST", "LOAD_SMALL_INT", "BUILD_SLICE", "BUILD_TUPLE")
_LOADS_BY_NAME = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")


@functools.lru_cache(maxsize=1024)
def taken_from(code: types.CodeType) -> frozenset[str | None]:
    """The names of what code takes items of without naming these: all of a dict, or that of a computed key.

    None stands for something that has no name there.
    """
    names: set[str | None] = set()
    has_keywords = code.co_flags & inspect.CO_VARKEYWORDS
    last = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    keywords = code.co_varnames[last] if has_keywords else None  # those that it hands on
    steps = list(dis.get_instructions(code))
    for k, (before, step) in enumerate(itertools.pairwise(steps)):
        if step.opname == "BINARY_SUBSCR" or step.argrepr == "[]":
            if before.opname not in _NO_COMPUTED_KEY:
                names.add(_name_of(_before_value(steps[: k + 1])))
        elif step.opname in _MERGES:
            if before.argval != keywords:
                names.add(_name_of(before))
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _OF_ALL:
            names.add(_name_of(before))
    inner = [taken_from(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return frozenset(names).union(*inner)


def _before_value(steps: Sequence[dis.Instruction]) -> dis.Instruction | None:
    """The step before those that leave a value on top of the stack; None if these are not in a line."""
    depth = 0
    for step, before in itertools.pairwise(reversed(steps)):
        if step.is_jump_target or step.opcode in (*dis.hasjrel, *dis.hasjabs):
            return None
        depth += dis.stack_effect(step.opcode, step.arg)
        if depth > 0:
            return before if depth == 1 else None
    return None


def _name_of(step: dis.Instruction | None) -> str | None:
    """The name by which code loads something in this step."""
    return step.argval if step is not None and step.opname in _LOADS_BY_NAME else None


def _texts(constants: Iterable[object]) -> Iterator[str]:
    """The texts among constants of code, also in tuples and sets of them."""
    for x in constants:
        if type(x) is str:
            yield x
        elif isinstance(x, (tuple, frozenset)):
            yield from _texts(x)


def _functions(kind: type) -> Iterator[tuple[str, types.FunctionType]]:
    """The functions of a class, with the names by which code comes to them."""
    for name, x in list(vars(kind).items()):
        if is_a(x, (staticmethod, classmethod)):
            x = x.__func__
        elif is_a(x, (property, functools.cached_property, functools.partialmethod)):
            x = x.fget if is_a(x, property) else x.func
        elif users_classes(type(x)):
            x = inspect.getattr_static(type(x), "__get__", None)
        if is_a(x, types.FunctionType):
            yield name, x


# What is for good in a method, a function or a `functools.partial`.
_OBJECT, _CODE, _WORDS = map(operator.attrgetter, ("__self__", "__func__", "__kwdefaults__"))
_FUNCTION, _ARGUMENTS, _KEYWORDS = map(operator.attrgetter, ("func", "args", "keywords"))


def _parts(place: Place, names: Collection[str], home: str) -> list[Place]:
    """The places in what is in ``place``; in a module, those with these names.

    Of a module of an installed library, but that of the function, ``home``, only Tensors.
    """
    x, within = place.value, place.name
    if is_a(x, (types.MethodType, types.BuiltinMethodType)):
        name = f"{within}.__self__" if within else "self"
        inner = [Place("", x.__func__, place, via=_CODE)] if is_a(x, types.MethodType) else []
        return [Place(name, x.__self__, place, via=_OBJECT), *inner]
    if is_a(x, types.FunctionType):
        return _of_function(place, x)
    if is_a(x, types.ModuleType):
        if is_opaque(x.__name__):
            return []
        is_home = x.__name__.partition(".")[0] == home or not _is_installed(x.__name__)
        variables = [(n, v) for n, v in list(vars(x).items()) if n in names]
        return [_attribute(place, n, v) for n, v in variables if is_home or is_a(v, Tensor)]
    if is_a(x, functools.partial):
        name = within + "<argument {}>"
        parts = [
            Place(name.format(k), v, place, TUPLE_ITEM, x.args, k, True, _ARGUMENTS)
            for k, v in enumerate(x.args)
        ]
        parts += [
            Place(name.format(k), v, place, _DICT_ITEM, x.keywords, k, False, _KEYWORDS)
            for k, v in x.keywords.items()
        ]
        return [Place("", x.func, place, via=_FUNCTION), *parts]
    wrapped = _wrapped(x) if callable(x) else None
    inner = [] if wrapped is None else [Place("", wrapped, place, via=_wrapped)]
    if is_a(x, Tensor) and x.meta is not None:
        inner += [
            Place("", f, place)
            for hooks in (x.meta.hooks, x.meta.post_hooks)
            for f in (hooks or {}).values()
        ]
    return [*inner, *_items(place, x), *_attributes(place, x)]


def _wrapped(x: PyTree) -> PyTree:
    """What ``x`` wraps, as `functools.wraps` notes it, or None."""
    raw = inspect.getattr_static(x, "__wrapped__", None)
    return raw.__get__(x, type(x)) if is_a(raw, _SLOTS) else raw


def _items(place: Place, x: PyTree) -> Iterator[Place]:
    """The places of the items of a container."""
    within = place.name
    if is_a(x, _MAPPINGS):
        access = _DICT_ITEM if is_a(x, dict) else _PROXY_ITEM
        for k, v in list(itertools.islice(view_of(x, "items"), MOST)):
            yield Place(f"{within}[{_shown(k)}]", v, place, access, x, k, True)
    elif is_a(x, np.ndarray) and x.dtype == object:
        for k in itertools.islice(np.ndindex(x.shape), MOST):
            yield Place(f"{within}{list(k)}", x[k], place, _ITEM, x, k)
    elif is_a(x, tuple(_ROW_ITEMS)):
        nth = _ROW_ITEMS[_row_kind(x)]
        for k, v in enumerate(list(itertools.islice(items_of(x), MOST))):
            yield Place(f"{within}[{k}]", v, place, nth, x, k, True)


class _PlainItems:
    """The items of a list or a set of a class that has an ``__iter__`` of its own."""

    def __init__(self, x: PyTree) -> None:
        self._x = x

    def __iter__(self) -> Iterator[PyTree]:
        return items_of(self._x)


def _row(x: PyTree) -> PyTree:
    return x if type(x).__iter__ is _row_kind(x).__iter__ else _PlainItems(x)


def _row_kind(x: PyTree) -> PyTree:
    return next(kind for kind in _ROW_ITEMS if is_a(x, kind))


def items_of(x: PyTree) -> Iterator[PyTree]:
    """The items of a list, a set or the like, whatever a class of the user makes of them."""
    items: Iterator[PyTree] = _row_kind(x).__iter__(x)
    return items


def _shown(key: PyTree) -> str:
    """A key in messages; of one that is no plain value, its type."""
    if type(key) is tuple:
        return f"({', '.join(map(_shown, key))})"
    return repr(key) if key is None or type(key) in NUMBERS else f"<{type(key).__name__}>"


def _attributes(place: Place, x: PyTree) -> Iterator[Place]:
    """The places of the attributes of an object of the user: its own, and what is data in its classes."""
    attributes: dict[str, tuple[PyTree, bool]] = {}
    for kind in reversed(users_classes(x if is_a(x, type) else type(x))):
        for name, value in list(vars(kind).items()):
            is_slot = is_a(value, types.MemberDescriptorType) and name != "__dict__"
            if is_slot and not is_a(x, type):
                attributes[name] = _slot_value(value, x), False
            elif not (
                name.startswith("__") or hasattr(type(value), "__get__") or name == "_abc_impl"
            ):
                attributes[name] = value, is_a(x, type)
    if not is_a(x, type):
        attributes |= {
            name: (v, True) for table in _attribute_tables(x) for name, v in list(table.items())
        }
    for name, (value, listed) in attributes.items():
        yield _attribute(place, name, value, listed)


def _slot_value(slot: types.MemberDescriptorType, x: PyTree) -> PyTree:
    try:
        return slot.__get__(x, type(x))
    except AttributeError:
        return ABSENT


def _attribute(place: Place, name: str, value: PyTree, listed: bool = False) -> Place:
    return Place(f"{place.name}.{name}", value, place, _ATTRIBUTE, place.value, name, listed)


def _of_function(place: Place, f: types.FunctionType) -> list[Place]:
    """The places of what a function closes over, of its defaults, and of the globals that its code names."""
    code, defaults = f.__code__, f.__defaults__ or ()
    parts = list(_attributes(place, f))
    for k, (name, cell) in enumerate(zip(code.co_freevars, f.__closure__ or (), strict=True)):
        with contextlib.suppress(ValueError):  # it has none yet
            x = cell.cell_contents
            if not is_a(x, Table):  # what an operation has looked up before
                via = functools.partial(_cell_of, k)
                parts.append(Place(name, x, place, _CELL, cell, "cell_contents", False, via))
    if defaults:
        parts.append(Place("", defaults, place, _ATTRIBUTE, f, "__defaults__"))
        names = code.co_varnames[code.co_argcount - len(defaults) :]
        row = parts[-1]
        for k, (n, v) in enumerate(zip(names, defaults, strict=False)):
            parts.append(Place(n, v, row, TUPLE_ITEM, defaults, k, True))
    words = f.__kwdefaults__ or {}
    parts += [Place(k, v, place, _DICT_ITEM, words, k, False, _WORDS) for k, v in words.items()]
    space = {} if is_opaque(f.__module__) else f.__globals__
    for name in _names(code) & space.keys():
        if not _is_of_library(space[name]):
            parts.append(Place(name, space[name], place, _DICT_ITEM, space, name))
    return parts


def _cell_of(k: int, f: types.FunctionType) -> PyTree:
    return f.__closure__[k]  # type: ignore[index]


def _is_of_library(x: PyTree) -> bool:
    """Whether ``x`` is a module or a class that leads to nothing of the user."""
    if is_a(x, types.ModuleType):
        return is_opaque(x.__name__)
    return is_a(x, type) and is_opaque(x.__module__)
