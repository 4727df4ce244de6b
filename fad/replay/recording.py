"""Recording: deferred operations are evaluated at their level, as they would have been at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fad.core.tensor import Lazy, Tensor, has_value, lazy_tensor, take_over
from fad.errors import LevelError
from fad.replay.entries import Operations, origin_of, outputs_of
from fad.replay.inputs import as_captured, is_in_trace
from fad.replay.log import note
from fad.replay.program import Program
from fad.replay.states import TIMES, State
from fad.replay.untracked import execute
from fad.replay.writes import (
    at_versions_then,
    handle_of,
    note_written,
    owner_of,
    version_then,
)
from fad.tape.recorder import PrimitiveNode

__all__ = ["fill", "record", "record_again", "record_kept"]


class Failed:
    """In place of the trace of a lazy Tensor whose operation has failed: reading it raises the error.

    That happens to operations on arrays that their owner has deleted or donated since.
    """

    __slots__ = ("chain", "error")

    done = True
    level = None
    on_values = False

    def __init__(self, error: Exception) -> None:
        self.chain = self
        self.error = error

    def materialize(self) -> None:
        raise self.error.with_traceback(None)

    def read(self, t: Tensor) -> bool:
        return False

    def claim(self, t: Tensor) -> None:
        self.materialize()

    def share(self, t: Tensor, new: Tensor) -> bool:
        return False


def record(trace: Any) -> None:
    """Evaluate each entry at the level, and give its outputs their values and nodes."""
    entries, given = trace.entries, trace.inputs
    inputs = list(map(as_captured, given))
    cells = outputs_of(entries)
    alone = not is_in_trace(given)
    while trace.entries is entries and trace.recorded < len(entries):
        at = trace.recorded
        step, out, _ = entries[at]
        if alone:
            step.use.times = TIMES
        if len(cells) < step.size:
            cells = outputs_of(entries)
        outs = (out,) if step.single else out
        if step.untracked and has_value(outs[0]):
            for t in outs:
                t._lazy = None
            trace.recorded = at + 1
            continue
        found = evaluated(trace, at, step, cells, inputs)
        if trace.entries is not entries or trace.recorded != at:
            continue  # a finalizer has read an output, and so recorded this and later entries
        for t, o in zip(outs, found, strict=True):
            take_over(t, o)
        trace.recorded = at + 1


def evaluated(
    trace: Any, at: int, step: State, cells: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """`evaluate`; if that fails, outputs that raise its error when they are read.

    Entries that do not depend on them can still be evaluated.
    """
    try:
        return evaluate(trace, at, step, cells, inputs)
    except Exception as error:
        note(trace.root.name, 1, f"{step.op.name} failed: {error}")
        failed = Failed(error)
        lazies = [Lazy(aval, failed, k) for k, aval in enumerate(step.avals)]
        return tuple([lazy_tensor(trace.level, lazy, False, lazy.place) for lazy in lazies])


def evaluate(
    trace: Any, at: int, step: State, cells: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """The outputs of ``step``, entry number ``at``, evaluated at its level."""
    args = [cells[r] if r >= 0 else inputs[~r][0] for r in step.refs]
    if step.untracked:
        return execute(step, args)
    own = trace.writes.get(at, 0)
    if own:  # as `views.inplace` does
        note_written(args[0])
        args[:own] = map(handle_of, args[:own])
    if type(step.op) is Program:
        with at_versions_then(args):
            return tuple(trace.level.process(step.op, args))
    out = trace.level.process(step.op, args)
    outs = (out,) if step.single else out
    for o, aval in zip(outs, step.avals, strict=True):
        check_dtype(trace.level.aval(o), aval)
        node = o._node
        if isinstance(node, PrimitiveNode) and node.versions is not None:
            versions = {id(h): v for h, v, _ in inputs}
            node.versions = [
                versions.get(id(t), version_then(t, v))
                for t, v in zip(node.tensors, node.versions, strict=True)
            ]
            node.tensors = [owner_of(t) for t in node.tensors]
    return tuple(outs)


def record_again(trace: Any) -> None:
    """Make the nodes of a trace that has run as one program, and free those of its backward pass."""
    entries, ends = trace.entries, trace.ran
    cells = record_kept(trace)
    if trace.entries is not entries or ends is None:
        return  # a finalizer has read a node, and so made all of them
    todo = [cells[k]._node for k in ends if k >= 0 and cells[k]._lazy is None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        node.release_variables()
        nexts = {e[0] for e in node.edges if e is not None} - seen
        seen |= nexts
        todo += nexts


def record_kept(trace: Any) -> list[Any]:
    """Record what has run as a program: the outputs that were kept get their nodes. All outputs."""
    entries, kept = trace.entries, trace.kept
    inputs = list(map(as_captured, trace.inputs))
    cells: list[Any] = []
    for at in range(1, len(entries)):
        outs = evaluated(trace, at, entries[at][0], cells, inputs)
        if trace.entries is not entries:
            break  # a finalizer has read a node, and so made all of them
        for o in outs:
            known = kept.get(len(cells))
            t = None if known is None else known()
            if known is not None and t is None:
                trace.unclaimed[len(cells)] = o
            if t is not None and t._lazy is not None and trace.entries is entries:
                if o._lazy is None:
                    t._node, t._output_nr = o._node, o._output_nr
                t._lazy = o._lazy
            cells.append(o if t is None else t)
    return cells


def fill(level: Any, operations: Operations, kept: Sequence[int], values: Any) -> None:
    """Give outputs the ``values`` that a program has computed; where they require grad, no nodes."""
    rest = iter(values)
    for k in kept:
        step, nr = origin_of(operations.entries, k)
        layout, t = step.layouts[nr], operations.outputs[k]
        o = level.from_parts([next(rest) for _ in range(level.part_count(layout))], layout)
        if t._lazy is None:
            continue  # a finalizer has read it
        if step.tracked[nr]:
            t._value, t._aux = o._value, o._aux
        else:
            take_over(t, o)


def check_dtype(value: Any, aval: Any) -> None:
    """Refuse a value that the settings of JAX, changed for good in between, have given another dtype."""
    if value.dtype != aval.dtype:
        raise LevelError(
            "jax.config was changed between an operation and the first use of its result, which would "
            "have another dtype now: change it earlier, or for a block with JAX's context managers "
            "(jax.enable_x64, jax.default_matmul_precision, ...)"
        )
