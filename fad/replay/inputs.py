"""The inputs of traces: which values can be inputs, their guard codes, and their snapshots at capture."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from fad.core import jaxapi
from fad.core.avals import SCALARS, constant
from fad.core.borrowed import is_borrowed
from fad.core.caches import Table
from fad.core.jaxapi import array_type
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Aval, Number, Operand, Value
from fad.replay.settings import aval_id, is_small
from fad.tape.graph import accumulator_of
from fad.tape.recorder import ROOT, RecordingLevel

__all__ = [
    "FOREIGN",
    "GUARD_CODES",
    "Captured",
    "Input",
    "as_captured",
    "is_traced",
    "is_untouched",
    "is_value",
    "look",
    "out_of_date",
    "outer_level_defers",
    "small_aval",
    "version_at",
]

# Guard codes of inputs begin here: + 4096 * the id of the aval, + the number of the layout. In keys
# of states the code of a new input stands before its place.
GUARD_CODES = 1 << 40

FOREIGN = "foreign"  # the layout of a value that is not of the level of the trace
_layouts: dict[Hashable, int] = {FOREIGN: 0}


class Input(NamedTuple):
    """An input of a trace: the argument, its parts one level down, and what the guard compares.

    ``layout`` is that of `Level.layout`, or `FOREIGN`; ``version`` how often it had been changed
    in place.
    """

    argument: Any
    parts: tuple[Value, ...]
    aval: Any
    layout: Hashable
    version: int
    code: int


# The snapshot of an input, its version, and what must be kept alive until it is used.
Captured: TypeAlias = tuple[Any, int, object]


def _code(aval: Aval, layout: Hashable) -> int:
    number = _layouts.get(layout)
    if number is None:
        if len(_layouts) >= 4096:
            return -1
        number = _layouts.setdefault(layout, len(_layouts))
    return GUARD_CODES + 4096 * aval_id(aval) + number


def is_traced(x: object) -> bool:
    """Whether the value is being traced by JAX."""
    while isinstance(x, Tensor):
        if x._lazy is not None:
            return False
        x = x._value
    return isinstance(x, jax.core.Tracer)


def small_aval(value: object) -> Any:
    """The aval of a small value that is not being traced, at any level; else None."""
    if type(value) is array_type:
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


def out_of_date(t: Any) -> int | None:
    """The version of the state of ``t``, if it is an alias whose base was written to since."""
    meta = t.meta if type(t) is Tensor else None
    if meta is None or meta.link is None or meta.link.seen == meta.storage.version:
        return None
    return int(meta.link.seen)


def _is_place_to_begin(t: Tensor) -> bool:
    """Whether ``t``, which requires grad, can be an input: it has a node, or is a leaf that is no view."""
    if (
        t._node is None
        and t.meta is not None
        and t.meta.link is not None
        and t.meta.link.base is not None
    ):
        return False
    return out_of_date(t) is None


def version_at(a: object) -> int:
    """How often an input was changed in place."""
    return a.meta.storage.version if type(a) is Tensor and a.meta is not None else 0


def outer_level_defers(inputs: Sequence[Input]) -> bool:
    """Whether values one level down are of a level that has a trace, of which a program will be a part."""
    below = [p._level for given in inputs for p in given.parts if type(p) is Tensor]
    return any([level.alive and level.current_trace() is not None for level in below])


def is_value(x: object) -> bool:
    """Whether no level, and not the tape, records what is computed from ``x``."""
    if type(x) is not Tensor:
        return True
    if x._lazy is not None:
        return not x._requires_grad and bool(x._lazy.trace.on_values)
    return not x._requires_grad and all(map(is_value, x._level.parts(x)))


def is_untouched(variable: Tensor) -> bool:
    """Whether an input that requires grad has no hooks, and was not written to inside of a transform."""
    meta = variable.meta
    if meta is None:
        return variable._requires_grad
    if meta.has_hooks or not variable._requires_grad:
        return False
    node = None if meta.accumulator is None else meta.accumulator()
    extra = None if node is None else node.extra  # type: ignore[attr-defined]
    if node is not None and (extra is not None or variable._level is not ROOT):
        return False
    is_input = variable._node is None  # not an output of an earlier program
    return variable._level is ROOT or not (is_input and meta.storage.version)


def look(a: Any, own: RecordingLevel) -> Input | None:
    """What is known of a new input of a trace of the level ``own``; None if it cannot be one."""
    kind = type(a)
    value, version = a, 0
    if kind is array_type:
        pass
    elif kind is Tensor:
        level, meta = a._level, a.meta
        if meta is not None:
            version = meta.storage.version
            if version < 0:
                return None  # made in inference mode: recording it is an error
        if level is own:
            if a._lazy is not None and a._lazy.trace.level is own:
                return None  # of another trace
            if own is ROOT or own.wraps:
                if a._requires_grad and not _is_place_to_begin(a):
                    return None  # in the middle of a graph
            elif a._requires_grad:
                return None
            if own is not ROOT or a._requires_grad:
                return _own_input(a, own, version)
            value = a._value
        elif level is ROOT and not a._requires_grad:
            value = a._value if a._lazy is None else a
        elif level.id >= own.id:
            return None  # of an inner level, which gets the call
    elif kind in SCALARS:
        return _scalar_input(a)
    return _foreign_input(a, value, version)


_scalars = Table(4096)  # inputs of Python numbers, by the `id` of their constants


def _scalar_input(a: Number) -> Input | None:
    """`look`, for a Python number: a program may have thousands of them in each call."""
    value = constant(a)
    known = _scalars.get(id(value))
    if known is not None:  # the id of an aval may have changed
        return _new(Input, (a, *known[1:5], GUARD_CODES + 4096 * aval_id(known.aval)))
    given = _foreign_input(a, value, 0)
    if given is not None:
        _scalars.put(id(value), given)  # which keeps the constant, and so its `id`
    return given


def _foreign_input(a: Operand, value: object, version: int) -> Input | None:
    """`look`, for what has ``value`` at a level below."""
    if type(value) is array_type:
        if not is_small(value) or is_borrowed(value):
            return None
        aval = value.aval
    else:
        aval = small_aval(value)
        if aval is None:
            return None
    return _new(Input, (a, (value,), aval, FOREIGN, version, GUARD_CODES + 4096 * aval_id(aval)))


_new = tuple.__new__  # faster than the constructor of a named tuple


def _own_input(a: Tensor, own: RecordingLevel, version: int) -> Input | None:
    """`look`, for a Tensor of the level itself."""
    parts = own.parts(a)
    if any([small_aval(p) is None or is_borrowed(p) for p in parts]):
        return None
    layout, aval = own.layout(a), own.aval(a)
    code = _code(aval, layout)
    return None if code < GUARD_CODES else _new(Input, (a, parts, aval, layout, version, code))


def as_captured(given: Input) -> Captured:
    """The snapshot of an input at capture, its version, and what must be kept alive until it is used.

    If it was changed in place since, by another thread, or after the trace had run as one operation,
    that is another handle of its storage, with the value at capture. Where no value was kept, none is read,
    and the snapshot has zeros.
    """
    a, version = given.argument, given.version
    value = given.parts[0] if given.parts else jaxapi.zeros(given.aval)
    if given.parts and (type(a) is not Tensor or a._level is not ROOT or version_at(a) == version):
        return a, version, None
    if a is None or a._level is not ROOT or a._node is not None:
        return value if a is None else a, version, None
    leaf = accumulator_of(a) if a._requires_grad else None  # it is in the meta of both handles
    return _handle(a, value), version, leaf


def _handle(a: Tensor, value: Value) -> Tensor:
    """Another handle of the storage of ``a``, with ``value``."""
    handle = new_tensor(value, a._level)
    handle._requires_grad = a._requires_grad
    if a.meta is not None:
        handle.meta = copy.copy(a.meta)
        handle.meta.link = None  # a view would take the value of its base
    return handle
