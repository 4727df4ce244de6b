"""Buffers: operations are appended to them, with lazy outputs.

NOTE [one append-only list]

A trace is a list of states, one for each operation, and a list of their outputs, which come first: there is
no state without its outputs. What they are does not change, but for a Tensor that is written to: a handle for
what it was takes its place (NOTE [deferred writes]). ``busy`` is set while an operation is being appended, or
while all are being run: then nothing is appended, and who reads an output (a finalizer) gets its value from
operations that are run for it alone. To record an operation twice gives the same as to record it once.

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

import operator
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fad.core.avals import SCALARS
from fad.core.borrowed import copied, is_borrowed
from fad.core.jaxapi import checks_numbers, trace_context
from fad.core.level import MODES, Level, bodies, state
from fad.core.tensor import Lazy, Tensor, has_value, lazy_tensor, new_tensor
from fad.core.types import Operand, Operation, Outputs
from fad.replay.inputs import Input, is_value, look
from fad.replay.policy import TIMES, Policy
from fad.replay.settings import in_context, is_small
from fad.replay.states import Root, State, next_state, origin_of, referenced
from fad.tape.anomaly import mode as anomaly
from fad.tape.edges import edge_to_operation
from fad.tape.graph import Node
from fad.tape.recorder import ROOT, RecordingLevel

# Modes with which operations are recorded: grad and forward modes, hooks for saved values, replay.
_RECORDING = "watermark base_watermark saved_hooks tangents_off inference replaying".split()
_recording = operator.itemgetter(*_RECORDING)


class Buffer:
    """The operations of a transform's function, or of a step of the eager tape, since the last flush.

    ``path`` has the states, the root first, ``outputs`` all outputs. ``inputs`` that require grad at
    ``level`` are the inputs of the transform, leaves of the tape, or outputs of earlier programs.
    ``recording`` has the modes with which it is made, ``thread_state`` all modes of the thread that makes it.
    ``done``: nothing more is appended. ``is_new``: it is of the first call of a function, see
    NOTE [first calls]; ``around`` are the keys of the levels around its own, outermost first. ``ended``
    counts the last states of what was flushed. ``on_values``: no level below records what the programs
    compute, and neither does the tape: see NOTE [untracked operations]. ``lock`` is
    for other threads that read an output. ``why``: why it is recorded one by one; ``slow``: why the last
    stretch was that was.

    The place of its output k is ``k``, that of its input k is ``~k``. ``places`` finds inputs by their `id`,
    ``edges`` those with a node by their place in the graph. ``stood_in``: see `fad.replay.writes`.
    """

    busy = done = is_new = False
    on_values = True
    around: Sequence[Hashable] = ()
    why = slow = ""

    def __init__(self, level: RecordingLevel, root: Root, context: object, settings: int) -> None:
        self.level = level
        self.begin(root)
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self.maker: Callable[[], Level] = level.maker()
        self.key = (settings, level.key())
        self.name: str = root.name
        self.thread_state = state.__dict__  # compared by identity: that of its thread
        self.context = context
        for name in _RECORDING:  # a new thread does not have them all
            self.thread_state.setdefault(name, MODES[name])
        self.recording = _recording(self.thread_state)
        self.policy: Policy = root.policy
        self.ended: dict[State, int] = {}

    def begin(self, root: Root) -> None:
        """Begin anew, with nothing."""
        self.root = root
        self.path: list[State] = [root]
        self.outputs: list[Tensor] = []
        self.inputs: list[Input] = []
        self.edges: dict[tuple[Node, int], int] = {}
        self.places: dict[int, int] = {}
        self.stood_in: list[tuple[Tensor, Tensor]] = []

    def add(self, given: Input) -> int | None:
        """The place of an input that is new; None if it cannot be one.

        Several Tensors may have one place in the graph, as a Tensor and what a node has saved of it. They are
        one input: its gradient is added up in the order of the operations, whichever of them these take.
        """
        a, place = given.argument, ~len(self.inputs)
        if type(a) is Tensor:
            has_place = given.layout is True
            node: Any = a._node if has_place else None
            if has_place and node is None and a.meta is not None and a.meta.accumulator is not None:
                node = a.meta.accumulator()  # if a leaf has none, no other Tensor has its place
            known = place
            if node is not None:
                edge = edge_to_operation((node, a._output_nr), opened_only=True)
                known = self.edges.setdefault(edge, place)
            if known != place:
                return known if self.inputs[~known].parts[0] is given.parts[0] else None
            if not all(map(is_value, given.parts)):
                self.on_values = False
                if self.path[-1].has_untracked:
                    self.policy.defers_untracked = False
        self.inputs.append(given)
        self.places[id(a)] = place
        return place

    def place(self, a: Any) -> int | None:
        """The place of an argument that has none; None if it cannot be an input."""
        if type(a) not in SCALARS:
            value = a
            if type(a) is Tensor and a._level is ROOT and a._lazy is None and a.meta is None:
                value = a if a._requires_grad else a._value
            if isinstance(value, np.ndarray) or (is_borrowed(value) and is_small(value)):
                a = copied(value)  # the memory may be written to before it is used again
        given = look(a, self.level)
        return None if given is None else self.add(given)

    # Appending

    def append(
        self, op: Operation, args: Sequence[Operand], tracked: bool = True, own: int = 0
    ) -> Outputs:
        """The lazy outputs of an operation; None if it cannot be deferred, and all before it is recorded.

        Not so if it is not ``tracked``: NOTE [untracked operations]. It writes to
        its first ``own`` arguments.
        """
        if self.busy and self.thread_state is state.__dict__:
            return None  # of a finalizer
        goes_on = not self.busy and self._goes_on()
        if not tracked:
            if not (goes_on and self.on_values and self.policy.defers_untracked):
                return None
            if self.path[-1].cuts:
                return None
        elif not goes_on:
            self.why = self.why or f"a mode or a setting changed before {op.name}"
            self.materialize()
            return None
        elif self.path[-1].cuts and (self.is_new or not self.flush(too_long=True)):
            self.materialize()
            return None
        out: Outputs = None
        self.busy = True
        try:
            at = next_state(self, op, args, own)
            if type(at) is State:
                level, outs = ROOT if at.untracked else self.level, []
                for k, aval in enumerate(at.avals):
                    t = lazy_tensor(level, Lazy(aval, self, at.first + k), at.requires[k], k)
                    outs.append(t)
                if at.untracked:
                    for t in outs:
                        t._aux = t._node = None
                if not self.done:
                    self.outputs += outs
                    self.path.append(at)
                    out = outs[0] if at.single else tuple(outs)
        finally:
            self.busy = False
            if out is None:
                self._forget_new()
        if isinstance(at, str):
            if tracked:
                self.why = self.why or f"{op.name}: {at}"
                self.materialize()
            return None
        if self.done:  # a finalizer has changed a mode
            self.materialize()
            if out is None or (out if type(out) is Tensor else out[0])._lazy is not None:
                return None  # it was materialized without this operation
        return out

    def _forget_new(self) -> None:
        """Drop the inputs and outputs of an operation that is not appended."""
        last = self.path[-1]
        count = last.taken
        del self.outputs[last.size :], self.inputs[count:]
        self.places = {i: place for i, place in self.places.items() if ~place < count}
        self.edges = {e: place for e, place in self.edges.items() if ~place < count}

    def _goes_on(self) -> bool:
        """Whether its thread can still append to it, in the modes and settings at its beginning."""
        modes = state.__dict__
        if self.done or modes is not self.thread_state or bodies.traced:
            return False
        if anomaly.watch or checks_numbers():
            return False
        return self.recording == _recording(modes) and self.context == trace_context()

    # Untracked outputs

    def _evaluate(self, place: int) -> Tensor:
        """Output ``place``, which is untracked, with its value: what it depends on is run one by one."""
        outputs = self.outputs
        needed: set[State] = set()
        todo = [place]
        while todo:
            at = origin_of(self.path, todo.pop())
            if at not in needed and not has_value(outputs[at.first]):
                needed.add(at)
                todo += [r for r in at.refs if r >= 0]
        for at in sorted(needed, key=lambda at: at.size):
            at.use.times = TIMES
            args = [outputs[r] if r >= 0 else self.inputs[~r].parts[0] for r in at.refs]
            own = outputs[at.first : at.size]
            for t, o in zip(own, execute(at, args), strict=True):
                t._value = o._value
        return outputs[place]

    def read(self, t: Tensor) -> Any:
        """The value of an untracked output."""
        if not has_value(t):
            t._value = in_context(self.context, lambda: self._evaluate(t._lazy.place))._value  # type: ignore[union-attr]
        return t._value

    def kept(self) -> tuple[int, ...]:
        """The outputs of its level that are still referenced; the others that are get their values."""
        level, outputs = self.level, self.outputs
        kept = referenced(outputs)
        untracked = [k for k in kept if outputs[k]._level is not level]
        for k in untracked:
            self._evaluate(k)
            outputs[k]._lazy = None
        return tuple([k for k in kept if outputs[k]._level is level] if untracked else kept)

    def flush(self, too_long: bool) -> bool:
        raise NotImplementedError

    def materialize(self) -> None:
        raise NotImplementedError


def execute(at: State, args: Sequence[Operand]) -> tuple[Tensor, ...]:
    """The outputs of an untracked operation."""
    out = at.op.execute([a._value if isinstance(a, Tensor) else a for a in args])
    return tuple([new_tensor(o, ROOT) for o in ((out,) if at.single else out)])
