"""The state of a trace after one more operation, found in the tree of all traces, or made."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from fad.core.primitive import Primitive
from fad.replay import states
from fad.replay.entries import Entry, known_of
from fad.replay.outcomes import outcome_of, use_of
from fad.replay.policy import SHORT, ends_segment, fresh_in, repays_whole
from fad.replay.program import Program
from fad.replay.states import State

__all__ = ["next_state"]


def next_state(trace: Any, entries: Sequence[Entry], op: Any, args: Sequence[Any]) -> State | None:
    """The state after an operation; None if it cannot be deferred."""
    before, count = entries[-1][0], entries[-1][2]
    if type(op) is not Program and not (type(op) is Primitive and op.deferrable):
        return None
    if (
        trace.is_new
        and before.work > SHORT
        and not repays_whole(before.work, fresh_in([e[0] for e in entries[1:]]))
    ):
        trace.why = "it is new, and its operations repeat"
        return None
    key: list[Any] = [op]
    refs: list[int] = []
    codes: list[int] = []
    latest = count
    for a in args:
        place = trace.place(a)
        if place is None:
            return None
        code = 0
        if place < 0 and ~place >= latest:
            latest = ~place + 1
            code = trace.inputs[~place].code
            key.append(code)
        key.append(place)
        refs.append(place)
        codes.append(code)
    at = tuple(key)
    step = before.next.get(at)
    if step is None:
        args_known = [known_of(entries, trace.inputs, r) for r in refs]
        outcome = outcome_of(trace.level, trace.maker, op, args_known, trace.key)
        if outcome is None:
            return None
        near = [before.size - r if r >= 0 else -1 for r in refs]
        content = zlib.crc32(repr((op.name, *near)).encode())
        step = State(
            op,
            tuple(refs),
            tuple(codes),
            outcome.avals,
            outcome.layouts,
            [trace.level.wraps and layout is True for layout in outcome.layouts],
            outcome.routed,
            outcome.kept,
            outcome.single,
            before.size + len(outcome.avals),
            before.work + (op.work if type(op) is Program else 1),
            content,
            ends_segment([e[0] for e in entries[1:]], content, trace.root.is_cut),
            use_of(op, args_known, (trace.around, trace.key)),
        )
        states.grow()
        step = before.next.setdefault(at, step)
    before.predicted_next = step
    return step
