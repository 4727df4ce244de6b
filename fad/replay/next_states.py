"""The state of a trace after one more operation, found in the tree of all traces, or made."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.replay import states
from fad.replay.entries import Entry, entry_of
from fad.replay.inputs import GUARD_CODES
from fad.replay.outcomes import Known, outcome_of, use_of
from fad.replay.policy import SHORT, ends_segment, fresh_in, repays_whole
from fad.replay.program import Program
from fad.replay.states import State

__all__ = ["next_state"]


def next_state(trace: Any, entries: Sequence[Entry], op: Any, args: Sequence[Any]) -> State | str:
    """The state after an operation; or why it cannot be deferred.

    The key of a state has the operation, and for each argument its place, after the guard code of an input
    that no operation before has taken.
    """
    if type(op) is not Primitive and type(op) is not Program:
        return "it runs rules in Python"
    if type(op) is Primitive and not op.deferrable:
        return "it is not a pure operation that can be deferred"
    before, _, latest = entries[-1]
    key: list[Any] = [op]
    for k, a in enumerate(args):
        lazy = a._lazy if type(a) is Tensor else None
        if lazy is not None and lazy.trace is trace:
            key.append(lazy.place)
            continue
        place = trace.places.get(id(a))
        if place is None:
            place = trace.place(a)
        if place is None:
            return f"argument {k} is large, traced by JAX, on other devices, or in the middle of a graph"
        if place < 0 and ~place >= latest:
            latest = ~place + 1
            key.append(trace.inputs[~place].code)
        key.append(place)
    at = tuple(key)
    return before.next.get(at) or _new_state(trace, entries, at)


def _new_state(trace: Any, entries: Sequence[Entry], key: tuple[Any, ...]) -> State | str:
    op, before = key[0], entries[-1][0]
    path = [e[0] for e in entries[1:]]
    if trace.is_new and before.work > SHORT and not repays_whole(before.work, fresh_in(path)):
        return "it is new, and its operations repeat"

    def known(ref: int) -> Known:
        if ref < 0:
            return trace.inputs[~ref].layout, trace.inputs[~ref].aval
        step = entries[entry_of(entries, ref)][0]
        return step.layouts[ref - step.first], step.avals[ref - step.first]

    refs = tuple([k for k in key[1:] if k < GUARD_CODES])
    args = list(map(known, refs))
    outcome = outcome_of(trace.level, trace.maker, op, args, trace.key)
    if outcome is None:
        return "its outputs are not known from abstract evaluation"
    near = [before.size - r if r >= 0 else -1 for r in refs]
    content = zlib.crc32(repr((op.name, *near)).encode())
    step = State(
        op,
        refs,
        outcome.avals,
        outcome.layouts,
        [trace.level.wraps and layout is True for layout in outcome.layouts],
        outcome.routed,
        outcome.kept,
        outcome.single,
        before.size + len(outcome.avals),
        before.work + (op.work if type(op) is Program else 1),
        content,
        ends_segment(path, content, trace.root.is_cut),
        use_of(op, args, (trace.around, trace.key)),
    )
    states.grow()
    return before.next.setdefault(key, step)
