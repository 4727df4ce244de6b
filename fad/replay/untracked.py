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
saved it must then be an error. So

* where a function writes to values of level 0, its trace is recorded before the first write, and in later
  calls all untracked operations are run at once. No lazy Tensor of level 0 is ever written to;
* where a level below, or the tape, records what the program computes, they are run at once too: an operation
  that is recorded from inside of a program saves what the program has made, which is a view of nothing.

In the tree of traces, such an operation is one whose outputs have the layout `FOREIGN`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from fad.core.tensor import Tensor, has_value, new_tensor
from fad.replay.entries import entry_of, outputs_of, referenced
from fad.replay.policy import TIMES
from fad.replay.settings import in_context
from fad.replay.states import State
from fad.tape.recorder import ROOT

__all__ = ["execute", "kept_by", "read"]


def execute(step: State, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """The outputs of an untracked operation."""
    out = step.op.execute([a._value if isinstance(a, Tensor) else a for a in args])
    return tuple([new_tensor(o, ROOT) for o in ((out,) if step.single else out)])


def evaluate(trace: Any, place: int) -> Tensor:
    """Output ``place``, which is untracked, with its value: what it depends on is run one by one."""
    entries, inputs = trace.entries, trace.inputs
    needed: set[int] = set()
    todo = [place]
    while todo:
        at = entry_of(entries, todo.pop())
        step, out, _ = entries[at]
        if at not in needed and not has_value(out if step.single else out[0]):
            needed.add(at)
            todo += [r for r in step.refs if r >= 0]
    cells = outputs_of(entries[: max(needed, default=0) + 1])
    for at in sorted(needed):
        step, out, _ = entries[at]
        step.use.times = TIMES
        args = [cells[r] if r >= 0 else inputs[~r].parts[0] for r in step.refs]
        for t, o in zip((out,) if step.single else out, execute(step, args), strict=True):
            t._value = o._value
    step, out, _ = entries[entry_of(entries, place)]
    found: Tensor = out if step.single else out[place - step.first]
    return found


def read(trace: Any, t: Tensor) -> Any:
    """The value of an untracked output."""
    with trace.lock:  # another thread may be reading it
        if not has_value(t):
            run = functools.partial(evaluate, trace, t._lazy.place)
            t._value = in_context(trace.context, run)._value
    return t._value


def kept_by(trace: Any, outputs: list[Tensor]) -> list[int]:
    """The outputs of its level that are still referenced; the others that are get their values."""
    level = trace.level
    kept = referenced(outputs)
    untracked = [k for k in kept if outputs[k]._level is not level]
    for k in untracked:
        evaluate(trace, k)
        outputs[k]._lazy = None
    return [k for k in kept if outputs[k]._level is level] if untracked else kept
