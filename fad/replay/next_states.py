"""The state of a trace after one more operation, found in the tree of all traces, or made."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Expanding, Operand, Operation
from fad.replay import states
from fad.replay.entries import origin_of
from fad.replay.inputs import FOREIGN, GUARD_CODES
from fad.replay.outcomes import Known, outcome_of, use_of
from fad.replay.policy import SHORT, ends_segment, fresh_in, repays_whole
from fad.replay.program import Program
from fad.replay.states import State

if TYPE_CHECKING:
    from fad.replay.buffer import Buffer

__all__ = ["next_state"]


def next_state(
    trace: Buffer, op: Operation | Expanding, args: Sequence[Operand], own: int
) -> State | str:
    """The state after an operation that writes to its first ``own`` arguments; or why it is not deferred.

    The key of a state has the operation, ``own``, and for each argument its place, after the guard code of an
    input that no operation before has taken.
    """
    if type(op) is not Primitive and type(op) is not Program:
        return "it runs rules in Python"
    if type(op) is Primitive and not op.deferrable:
        return "it is not a pure operation that can be deferred"
    before = trace.path[-1]
    taken = before.taken
    key: list[Hashable] = [op, own]
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
        if place < 0 and ~place >= taken:
            taken = ~place + 1
            key.append(trace.inputs[~place].code)
        key.append(place)
    at = tuple(key)
    return before.next.get(at) or _new_state(trace, at, taken)


def _new_state(trace: Any, key: tuple[Any, ...], taken: int) -> State | str:
    op, own = key[:2]
    before, path = trace.path[-1], trace.path[1:]
    if trace.is_new and before.work > SHORT and not repays_whole(before.work, fresh_in(path)):
        return "it is new, and its operations repeat"

    def known(ref: int) -> Known:
        if ref < 0:
            return trace.inputs[~ref].layout, trace.inputs[~ref].aval
        at = origin_of(path, ref)
        return at.layouts[ref - at.first], at.avals[ref - at.first]

    refs = tuple([k for k in key[2:] if k < GUARD_CODES])
    args = list(map(known, refs))
    outcome = outcome_of(trace.level, trace.maker, op, args, trace.key)
    if outcome is None:
        return "its outputs are not known from abstract evaluation"
    near = [before.size - r if r >= 0 else -1 for r in refs]
    content = zlib.crc32(repr((op.name, *near)).encode())
    at = State(
        op,
        refs,
        own,
        *outcome,
        size=before.size + len(outcome.avals),
        taken=taken,
        work=before.work + (op.work if type(op) is Program else 1),
        has_writes=before.has_writes or own > 0,
        has_untracked=before.has_untracked or FOREIGN in outcome.layouts,
        content=content,
        cuts=ends_segment(path, content, trace.path[0].is_cut),
        use=use_of(op, args, (trace.around, trace.key)),
    )
    states.grow()
    return before.next.setdefault(key, at)
