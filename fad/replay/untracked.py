"""Operations on what no transform tracks: they are part of the trace around them, and can be run alone.

NOTE [untracked operations]

The function of a transform also computes with values from outside that nothing tracks, as ``xs[i]``. These
are operations of level 0. Where the innermost level of the thread has a trace, they are appended to that,
and so are part of its program. Their outputs are lazy Tensors of level 0, without a node:

* where one is read, it and what it depends on are run one by one. The trace goes on, and its program
  computes them again where it needs them;
* where one is still referenced when the trace ends, it gets its value in the same way. So it is never a
  result of the program, which may run at the level of an outer transform;
* an operation that cannot be deferred is run at once, and the trace goes on;
* what the tape records is not appended;
* an inner transform takes the value of such a Tensor, not the Tensor.

Such an output may be a view of a Tensor that is written to later. A backward pass through a node that has
saved it must then be an error. So where a level below, or the tape, records what the program computes, such
operations are run at once: an operation that is recorded from inside of a program saves what the program has
made, which is a view of nothing. Where the function itself writes, the input has changed when the trace ends,
and it is recorded one by one.

In the tree of traces, such an operation is one whose outputs have the layout `FOREIGN`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fad.core.tensor import Tensor, has_value, new_tensor
from fad.core.types import Operand
from fad.replay.entries import origin_of, referenced
from fad.replay.policy import TIMES
from fad.replay.settings import in_context
from fad.replay.states import State
from fad.tape.recorder import ROOT

if TYPE_CHECKING:
    from fad.replay.buffer import Buffer

__all__ = ["execute", "kept_by", "read"]


def execute(at: State, args: Sequence[Operand]) -> tuple[Tensor, ...]:
    """The outputs of an untracked operation."""
    out = at.op.execute([a._value if isinstance(a, Tensor) else a for a in args])
    return tuple([new_tensor(o, ROOT) for o in ((out,) if at.single else out)])


def evaluate(trace: Buffer, place: int) -> Tensor:
    """Output ``place``, which is untracked, with its value: what it depends on is run one by one."""
    outputs: list[Tensor] = trace.outputs
    needed: set[State] = set()
    todo = [place]
    while todo:
        at = origin_of(trace.path, todo.pop())
        if at not in needed and not has_value(outputs[at.first]):
            needed.add(at)
            todo += [r for r in at.refs if r >= 0]
    for at in sorted(needed, key=operator.attrgetter("size")):
        at.use.times = TIMES
        args = [outputs[r] if r >= 0 else trace.inputs[~r].parts[0] for r in at.refs]
        own = outputs[at.first : at.size]
        for t, o in zip(own, execute(at, args), strict=True):
            t._value = o._value
    return outputs[place]


def read(trace: Buffer, t: Tensor) -> Any:
    """The value of an untracked output."""
    with trace.lock:  # another thread may be reading it
        if not has_value(t):
            run = functools.partial(evaluate, trace, t._lazy.place)  # type: ignore[union-attr]
            t._value = in_context(trace.context, run)._value
    return t._value


def kept_by(trace: Buffer) -> list[int]:
    """The outputs of its level that are still referenced; the others that are get their values."""
    level, outputs = trace.level, trace.outputs
    kept = referenced(outputs)
    untracked = [k for k in kept if outputs[k]._level is not level]
    for k in untracked:
        evaluate(trace, k)
        outputs[k]._lazy = None
    return [k for k in kept if outputs[k]._level is level] if untracked else kept
