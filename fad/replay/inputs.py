"""The inputs of traces: settings, which values can be inputs, their guard codes, and snapshots at capture."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from fad.core import jaxapi
from fad.core.avals import SCALARS, aval_of, constant
from fad.core.borrowed import is_borrowed
from fad.core.caches import Table
from fad.core.tensor import Lazy, Meta, Tensor, new_tensor, storage_of
from fad.core.threads import on_new_thread
from fad.core.types import Aval, Value
from fad.tape.graph import accumulator_of, alias
from fad.tape.recorder import ROOT, RecordingLevel
from fad.views.aliases import out_of_date

T = TypeVar("T")

LARGE = 1 << 20  # elements: an array of more is no part of a trace
_CAPACITY = 4096  # entries of each table here


def in_context(context: object, f: Callable[[], T]) -> T:
    """``f()`` with the settings that JAX had with this `trace_context`, and without its checks of numbers."""
    checks = jaxapi.is_tracing() or jaxapi.checks_numbers()
    differs = checks or context != jaxapi.trace_context()
    return on_new_thread(f, "fad-default-settings") if differs else f()


# The settings outside of all blocks, and their number.
_usual: list[tuple[object, int]] = [(None, 0)]
_unusual = Table(64)  # others, each with the settings outside of all blocks at that time
_numbers = itertools.count(1)


def settings_number(context: object) -> int:
    """The number of these settings of JAX; 0 if a block has changed them, where nothing is replayed."""
    usual, number = _usual[0]
    if context == usual:
        return number
    everywhere = jaxapi.global_settings()
    if _unusual.get(context) == everywhere:
        return 0
    if on_new_thread(jaxapi.trace_context, "fad-default-settings") == context:  # changed for good
        _usual[0] = context, next(_numbers)
        return _usual[0][1]
    _unusual.pop(context, None)
    _unusual.put(context, everywhere)
    return 0


_placed = Table(_CAPACITY)  # shardings of arrays that are where JAX puts them by default, by `id`
_ids_by_object = Table(_CAPACITY)  # avals and their interned ids, by `id` too
_ids = Table(_CAPACITY)
_next_id = itertools.count(1)


def _is_default_placement(sharding: object) -> bool:
    """Whether arrays with this sharding are where JAX puts arrays by default."""
    if jaxapi.is_tracing() or sharding != jax.device_put(np.float32(0)).sharding:
        return False
    _placed.put(id(sharding), sharding)
    return True


def aval_id(aval: Any) -> int:
    """The interned id of the aval of an array: negative for a large one.

    Equal avals have the same id, until the tables are full and cleared; no id is used twice.
    """
    pair = _ids_by_object.get(id(aval))
    if pair is None:
        # Symbolic sizes, of `jax.export`, are of no size that is known.
        sign = 1 if isinstance(aval.size, int) and aval.size <= LARGE else -1
        number = _ids.put(aval, sign * next(_next_id))
        pair = _ids_by_object.put(id(aval), (aval, number))
    return pair[1]  # type: ignore[no-any-return]


@functools.cache
def _has_several_devices() -> bool:
    """Whether JAX has several devices: those that it uses by default, and the host."""
    return len({*jax.local_devices(), *jax.local_devices(backend="cpu")}) > 1


def is_small(array: object) -> bool:
    """Whether a value is a small array on the default device, and not committed to it."""
    if type(array) is not jaxapi.array_type or aval_id(array.aval) < 0:
        return False
    sharding = array.sharding
    if id(sharding) not in _placed and not _is_default_placement(sharding):
        return False
    # What is computed from a committed array is committed too.
    return not (_has_several_devices() and array.committed)


FOREIGN = "foreign"  # the layout of a value that is not of the level of the trace


class AbstractValue(NamedTuple):
    """What an operation on a value depends on: its layout, its aval as its level shows it, and those of its
    parts. A layout is the static rest of `Level.flatten`, or `FOREIGN`.
    """

    layout: Hashable
    aval: Any
    parts: tuple[Aval, ...]


class Input(NamedTuple):
    """An input of a trace: the argument, its parts one level down, and what the guard compares.

    ``state`` is what `state_of` said. ``code`` is the guard code: in keys of states
    that of a new input stands before its place. ``edge`` is its place in the graph, see `edge_of`.
    ``is_leaf``: it has no history, not even in a segment.
    """

    argument: Any
    parts: tuple[Value, ...]
    aval: Any
    layout: Hashable
    state: tuple[int, bool]
    code: tuple[int, Hashable]
    edge: tuple[Any, int] | None = None
    is_leaf: bool = True

    @property
    def abstract(self) -> AbstractValue:
        """What an operation on it depends on."""
        parts = (self.aval,) if self.layout is FOREIGN else tuple(map(aval_of, self.parts))
        return AbstractValue(self.layout, self.aval, parts)


# What can be an input


def small_aval(value: object) -> Any:
    """The aval of a small value that is not being traced, at any level; else None."""
    if type(value) is jaxapi.array_type:
        return value.aval if is_small(value) else None
    if not isinstance(value, Tensor):
        return None
    aval = value._level.aval(value)
    if aval_id(aval) < 0:
        return None
    while type(value) is Tensor and value._level.alive:
        if value._lazy is not None:
            return aval
        value = value._value
    return aval if is_small(value) else None


def outer_level_defers(inputs: Sequence[Input]) -> bool:
    """Whether values one level down are of a level that has a trace, of which a program will be a part."""
    below = [p._level for x in inputs for p in x.parts if type(p) is Tensor]
    return any([level.alive and level.trace is not None for level in below])


def is_untouched(variable: Tensor) -> bool:
    """Whether a leaf has no hooks, and was not written to inside of a transform."""
    meta, is_outer = variable.meta, variable._level is ROOT
    if meta is None or meta.has_hooks or not variable._requires_grad:
        return meta is None and variable._requires_grad
    node: Any = None if meta.accumulator is None else meta.accumulator()
    if node is not None and (node.extra is not None or not is_outer):
        return False
    return is_outer or not meta.storage.version


def edge_of(variable: Tensor) -> tuple[Any, int] | None:
    """The place in the graph of an input that requires grad: of an output of a segment, its `Lazy`, and 0.

    None for a leaf that has no place yet.
    """
    lazy, meta = variable._lazy, variable.meta
    if lazy is not None:
        return lazy, 0
    if variable._node is not None:
        return variable._node, variable._output_nr
    accumulator = None if meta is None or meta.accumulator is None else meta.accumulator()
    return None if accumulator is None else (accumulator, 0)


def is_leaf(variable: Tensor) -> bool:
    """Whether an input that requires grad has no history, not even in a segment."""
    return variable._lazy is None and variable._node is None


def _is_place_to_begin(t: Tensor) -> bool:
    """Whether ``t``, which requires grad, can be an input: it has a node, or is a leaf that is no view."""
    link = None if t.meta is None else t.meta.link
    is_view = link is not None and link.base is not None
    return not (is_view and is_leaf(t)) and out_of_date(t) is None


def look(a: Any, level: RecordingLevel) -> Input | None:
    """``a`` as a new input of a trace of this level; None if it cannot be one."""
    value, state = constant(a) if type(a) in SCALARS else a, state_of(a)
    if type(a) is Tensor:
        if state[0] < 0:
            return None  # made in inference mode: recording it is an error
        if a._level is level:
            if a._requires_grad and not (level.wraps and _is_place_to_begin(a)):
                return None  # in the middle of a graph
            if level is not ROOT or a._requires_grad:
                parts, layout = level.flatten(a)
                for p in parts:
                    if small_aval(p) is None or is_borrowed(p):
                        return None
                aval = level.aval(a)
                code = aval_id(aval), layout
                if layout is not True:
                    return Input(a, parts, aval, layout, state, code)
                edge, leaf = edge_of(a), is_leaf(a)
                return Input(a, parts, aval, layout, state, code, edge, leaf)
            value = a._value
        elif a._level is ROOT and not a._requires_grad:
            value = a._value if a._lazy is None else a
        elif a._level.id >= level.id:
            return None  # of an inner level, which gets the call
    aval = None if is_borrowed(value) else small_aval(value)
    if aval is None:
        return None
    return Input(a, (value,), aval, FOREIGN, state, (aval_id(aval), FOREIGN))


# Versions, and handles for what a Tensor was


def state_of(a: object) -> tuple[int, bool]:
    """How often an input was changed in place, and whether it requires grad."""
    if type(a) is not Tensor:
        return 0, False
    return 0 if a.meta is None else a.meta.storage.version, a._requires_grad


class Past(Meta):
    """The Meta of a handle for the state of ``owner`` at a ``version`` of its storage.

    ``leaf``: the accumulator of both, kept alive.
    """

    def __init__(self, owner: Tensor, version: int, leaf: object = None) -> None:
        if owner.meta is not None:
            vars(self).update(vars(owner.meta))
            self.link = None  # a view would take the value of its base
        self.storage = storage_of(owner)
        self.version, self.leaf = version, leaf


def as_captured(x: Input) -> Any:
    """The snapshot of an input at capture.

    If its state has changed since, that is another handle of its storage, with the value and the place in
    the graph at capture. Where no value was kept, none is read, and the snapshot has zeros.
    """
    a, edge = x.argument, x.edge
    if type(a) is not Tensor or type(a.meta) is Past:
        return jaxapi.zeros(x.aval) if a is None else a
    if state_of(a) == x.state and (edge is None or edge == edge_of(a)):
        return a
    # Before the handle takes over what ``a`` has of it.
    leaf = accumulator_of(a) if x.layout is True and x.is_leaf else None
    if x.layout is not FOREIGN:
        handle = a._level.unflatten(x.layout, iter(x.parts or (jaxapi.zeros(x.aval),)))
    else:
        handle = alias(a) if type(x.parts[0]) is Tensor else new_tensor(x.parts[0], ROOT)
    handle.meta = Past(a, x.state[0], leaf)
    if edge is not None and leaf is None:
        handle._node, handle._output_nr = edge
        if type(edge[0]) is Lazy:
            handle._lazy = edge[0]
            del handle._node
    return handle


def _is_value(x: object) -> bool:
    """Whether no level, and not the tape, records what is computed from ``x``, as far as can be seen."""
    if type(x) is not Tensor:
        return True
    return not x._requires_grad and x._lazy is None and all(map(_is_value, x._level.flatten(x)[0]))


def parts_of(inputs: Sequence[Input]) -> list[Value]:
    """The parts of all inputs; where levels below record, with the Tensors from outside among them."""
    parts = [p for x in inputs for p in x.parts]
    if all([type(p) is not Tensor or _is_value(p) for p in parts]):
        return parts
    parts = []
    for x in inputs:
        outside = x.layout is FOREIGN and type(x.argument) is Tensor and x.argument._level is ROOT
        parts += [as_captured(x)] if outside else x.parts
    return parts
