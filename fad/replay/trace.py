"""Traces: what a transform or a step of the eager tape does, run as programs where it repeats.

NOTE [traces]

    gradient = fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))
    for _ in range(4):
        gradient(x)     # 3 operations forward and 3 backward: soon, one call of XLA

Eager code makes a node, or a derived operation, for each operation at each level of nesting. But a function
that is called again mostly does the same again. So its operations are first only appended to a buffer: an
output has its shape, dtype and level, and no value and no node yet. Then the buffer is *flushed*: if the same
operations have been flushed before, they run as one program (`fad.replay.program`), bound one level down.
If not, they are recorded one by one, as they would have been at once, and the rest of the function is not
deferred. A buffer is flushed

* where a backward pass that frees its graph begins: `Trace.finish` computes forward and backward pass in one
  program;
* where a value is read, and where it has become long: a segment ends, and the trace goes on (NOTE [segments]
  in `fad.replay.policy`, NOTE [segments that have run] in `fad.replay.segment`);
* where a node is read: by an operation that is not deferred, a pass that keeps the graph or is recorded, a
  hook, a user; it is recorded one by one then;
* at the exit of the level, as far as its outputs are still referenced;
* before a mode or the state of a Tensor changes, a Function or a hook is called, or another thread reads: it
  is recorded one by one then.

An operation is appended only if its outputs are known from abstract evaluation (`outcome_of` in
`fad.replay.states`): its errors are raised where it is called. It is a pure Primitive, of arrays of up to
`LARGE` elements.
Inputs are used as they were at capture, in the grad mode of that time.

Guards: Python runs on each call; operations are compared by identity, inputs by aval, level and layout. What
was appended is a path in a tree of all paths so far (`fad.replay.states`): to append is one look-up.

NOTE [one append-only list]

A trace is a list of states, one for each operation, and a list of their outputs, which come first: there is
no state without its outputs. What they are does not change. ``busy`` is set while an operation is being
appended, or while all are being run: then nothing is appended, and who reads an output (a finalizer) gets its
value from operations that are run for it alone. To record an operation twice gives the same as to record it
once.
"""

from __future__ import annotations

import functools
import operator
import threading
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fad.core import jaxapi
from fad.core.avals import SCALARS
from fad.core.borrowed import copied, is_borrowed
from fad.core.jaxapi import checks_numbers, trace_context
from fad.core.level import MODES, bodies, state
from fad.core.primitive import Primitive, VjpPlan
from fad.core.replay_protocol import Pull
from fad.core.tensor import Tensor, lazy_tensor
from fad.core.types import MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors.tracebacks import users_call
from fad.replay.inputs import (
    Input,
    is_leaf,
    is_small,
    is_untouched,
    look,
    outer_level_defers,
    parts_of,
    settings_number,
)
from fad.replay.policy import Policy, at_once, is_step_due
from fad.replay.segment import Places, Segment, Stretch, codes_of, fill, way_from
from fad.replay.states import Root, State, key_of, next_state, referenced, root_of, tree
from fad.tape.anomaly import mode as anomaly
from fad.tape.graph import running
from fad.tape.recorder import ROOT, RecordingLevel
from fad.tape.saved import UNCHANGED

# Modes with which operations are recorded: grad and forward modes, hooks for saved values, replay.
_recording = operator.itemgetter(
    *"watermark base_watermark saved_hooks tangents_off inference replaying".split()
)


class Trace:
    """The operations of a transform's function, or of a step of the eager tape, since the last flush.

    ``path`` has the states, the root first, ``outputs`` all outputs. ``inputs`` that require grad at
    ``level`` are the inputs of the transform, leaves of the tape, or outputs of earlier programs.
    ``recording`` has the modes with which it is made, ``thread_state`` all modes of the thread that makes it.
    ``done``: nothing more is appended. ``is_new``: it is of the first call of a function, see
    NOTE [first calls]; ``around`` are the keys of the levels around its own, outermost first. ``ended``
    counts the last states of what was flushed. ``lock`` is for other threads that read an output. ``why``:
    why it is recorded one by one; ``slow``: why the last stretch was that was.

    The place of its output k is ``k``, that of its input k is ``~k``. ``places`` finds inputs by their `id`,
    ``edges`` those with a node by their place in the graph.
    """

    busy = done = is_new = False
    around: Sequence[Hashable] = ()
    why = slow = ""
    owner = None  # as the ``trace`` of a lazy Tensor: see `Segment.owner`

    def __init__(self, level: RecordingLevel, root: Root, context: object, settings: int) -> None:
        self.level = level
        self.begin(root)
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self.key = (settings, key_of(level))
        self.name: str = root.name
        self.thread_state = modes = state.__dict__  # compared by identity: that of its thread
        self.context = context
        if len(modes) < len(MODES):  # a new thread does not have them all
            modes.update({**MODES, **modes})
        self.recording = _recording(modes)
        self.policy: Policy = root.policy
        self.ended: dict[State, int] = {}
        self.segments: dict[int, weakref.ref[Segment]] = {}

    def begin(self, root: State) -> None:
        """Begin anew, with nothing."""
        self.path: list[State] = [root]
        self.outputs: list[Tensor] = []
        self.inputs: list[Input] = []
        self.edges: dict[tuple[object, int], int] = {}
        self.places: dict[int, int] = {}

    def add(self, new: Input) -> int | None:
        """The place of an input that is new; None if it cannot be one.

        Several Tensors may have one place in the graph, as a Tensor and what a node has saved of it. They are
        one input: its gradient is added up in the order of the operations, whichever of them these take.
        """
        place = ~len(self.inputs)
        first = place if new.edge is None else self.edges.setdefault(new.edge, place)
        if first != place:
            return first if self.inputs[~first].parts[0] is new.parts[0] else None
        self.inputs.append(new)
        self.places[id(new.argument)] = place
        return place

    def place(self, a: Any) -> int | None:
        """The place of an argument that has none; None if it cannot be an input.

        Of lazy Tensors of the level, outputs of earlier segments of this trace can.
        """
        if type(a) not in SCALARS:
            value = a
            if type(a) is Tensor and a._level is ROOT and a._lazy is None and a.meta is None:
                value = a if a._requires_grad else a._value
            if isinstance(value, np.ndarray) or (is_borrowed(value) and is_small(value)):
                a = copied(value)  # the memory may be written to before it is used again
        is_output = type(a) is Tensor and a._lazy is not None and a._level is self.level
        if is_output and a._lazy.trace.owner is not self:
            return None
        new = look(a, self.level)
        return None if new is None else self.add(new)

    # Appending

    def append(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        """The lazy outputs of an operation; None if it cannot be deferred, and all before it is recorded."""
        if self.busy and self.thread_state is state.__dict__:
            return None  # of a finalizer
        if self.busy or not self._goes_on():
            self.why = self.why or f"a mode or a setting changed before {op.name}"
            self.materialize()
            return None
        if self.path[-1].cuts and (self.is_new or not self.flush()):
            self.materialize()
            return None
        out: Outputs = None
        self.busy = True
        try:
            at = next_state(self, op, args)
            if type(at) is State:
                outs, level, first = [], self.level, at.first
                for k, (layout, aval, _) in enumerate(at.outcome.outputs):
                    tracked = layout is True and level.wraps
                    outs.append(lazy_tensor(level, aval, self, first + k, tracked, k))
                if not self.done:
                    self.outputs += outs
                    self.path.append(at)
                    out = outs[0] if at.outcome.single else tuple(outs)
        finally:
            self.busy = False
            if out is None:
                self._forget_new()
        if out is not None and not self.done:
            return out
        if isinstance(at, str):
            self.why = self.why or f"{op.name}: {at}"
            self.materialize()
            return None
        self.materialize()  # a finalizer has changed a mode
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

    # Reading

    def get(self, t: Tensor, name: str) -> Any:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            if t._lazy is None or t._lazy.trace is not self:  # another thread has read it
                return getattr(t, name)
            if self.busy and self.thread_state is state.__dict__:
                # A finalizer reads, while operations are appended or run: nothing is changed.
                cells = Stretch.of(self).record([None] * self.path[-1].size)
                return getattr(cells[t._lazy.place], name)
            if name == "_node" or not (self._can_flush() and self.flush()):
                self.materialize()
        return getattr(t, name)

    def _can_flush(self) -> bool:
        """Whether a read of a value ends a stretch, and the trace goes on after it."""
        if not self.level.wraps or self.is_new or self.busy or self.why or not self._goes_on():
            return False  # where nothing is recorded, `materialize` runs the program too
        # else an outer transform would sum gradients in another order
        arrays = [type(p) is jaxapi.array_type for x in self.inputs for p in x.parts]
        return all(arrays) and not jaxapi.is_tracing()

    # Running as one program

    def flush(self) -> bool:
        """Give all outputs that are referenced their values, and go on; False if nothing more is appended.

        It is called where `_goes_on`.
        """
        with self.lock:
            if self.busy or self.done:
                return False
            if len(self.path) == 1:  # a finalizer has read it
                return True
            self.busy = True
            try:
                last, stretch = self.path[-1], Stretch.of(self)
                if stretch.is_changed():
                    return False
                if self._replay(stretch, referenced(self.outputs)) is None:
                    stretch.record(self.outputs)
                    self.slow, self.why = self.why, ""  # the trace goes on
                self.ended[last] = self.ended.get(last, 0) + 1
                self._empty()
                return not self.done
            finally:
                self.busy = False

    def finish(
        self,
        outs: list[Any],
        pull: Pull,
        *static: Hashable,
        leaves: Sequence[Value] | None = None,
        cotangents: Sequence[Value] = (),
        values: bool = False,
        frees: bool = True,
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            if self.busy:
                return None
            self.busy = True
            try:
                if not self._goes_on() or not all(map(is_small, cotangents)):
                    return None
                way = way_from(self, outs, leaves, frees)
                if way is None:
                    return None
                source, stretch, ends, wanted = way[:4]
                key = (ends, wanted, *static, *codes_of(cotangents))
                if source is not self:
                    grads = source.pass_from(stretch, ends, wanted, key, pull, cotangents)
                elif stretch.is_changed():
                    return None
                else:
                    kept = referenced(self.outputs, once_more=ends)  # those in `outs`
                    kept = tuple(sorted({*kept, *ends})) if values else kept
                    args = (key, pull, ends, wanted, cotangents, frees)
                    grads = self._replay(stretch, kept, *args)
                    if grads is None:
                        return None
                    self._detach()
                    self._succeeded()
                    self._empty()
            finally:
                self.busy = False
            if source is not self:
                self.close()
            return way.leaves, way.gradients(grads) if frees else grads

    def _replay(
        self,
        stretch: Stretch,
        kept: Places,
        key: tuple[Hashable, ...] = (),
        pull: Pull = lambda *_: [],
        ends: Places = (),
        wanted: Places = (),
        cotangents: Sequence[Value] = (),
        frees: bool = False,
    ) -> list[MaybeValue] | None:
        """Give the outputs that are ``kept`` their values by one program, one level down.

        Returns what ``pull`` gives for a backward pass from outputs ``ends`` to inputs ``wanted``, of which
        ``key`` tells all, and which may free what it goes through; None if there is no program.
        """
        path, policy = stretch.path, self.policy
        if self.done and len(path) == 1 and not path[0].op.expands:
            return None  # one operation is one program in any case
        if self.level.wraps and not key:  # with a key, that is known
            leaves = [x.argument for x in stretch.variable_inputs() if x.is_leaf]
            if not all(map(is_untouched, leaves)):
                return None

        ending = path[-1].ending((key, *kept))
        program = ending.program or policy.program(
            ending,
            path,
            lambda: stretch.program(pull, ends, wanted, kept),
            now=outer_level_defers(stretch.inputs),
            new=self.level is not ROOT,
        )
        if isinstance(program, str):
            self.why = program
            return None
        stretch.parts = parts_of(stretch.inputs)
        values = [*stretch.parts, *cotangents]
        if not policy.have_ready(program, values):
            self.why = "its program is being compiled"
            return None
        try:
            results, computed = program(values)
        except Exception as error:  # of any kind: recording raises it again, or succeeds
            self.why = f"its program has failed: {type(error).__name__}: {error}"
            return None
        tree.hits += 1
        fill(self, stretch, kept, computed, ends if frees else (), wanted)
        return list(results)

    # The end

    def materialize(self) -> None:
        """Record every output, one by one, and append nothing more.

        If that is being done already, it is done again: a finalizer may change a mode in the middle.
        """
        with self.lock:
            self._detach()
            if len(self.path) == 1:
                return
            stretch, results = Stretch.of(self), None
            if not (self.level.wraps or self.busy):
                run = functools.partial(self._replay, stretch, referenced(self.outputs))
                results = stretch.in_its_modes(run)
            if results is not None:
                self._succeeded()
            else:
                stretch.record(self.outputs)
                self._note(f"recorded: {self.why or users_call() + ' reads a value or a node'}")
            if not self.busy:  # else a call of `append` still uses them
                self._empty()

    def close(self) -> None:
        """Append nothing more: what is referenced gets its value, all else is dropped.

        Called at the exit of the level, and where a step ends that has been flushed.
        """
        with self.lock:
            if self.done:
                return
            self._detach()
            if self.busy or referenced(self.outputs):
                return self.materialize()
            if self.ended:
                self._succeeded()
            self._empty()

    def _detach(self) -> None:
        """Nothing more is appended."""
        self.done = True
        self.policy.decide(self.ended)
        if self.level is ROOT:
            if self.thread_state.get("trace") is self:
                self.thread_state["trace"] = None
        elif self.level.trace is self:
            self.level.trace = None

    def _succeeded(self) -> None:
        self.policy.failures = 0
        self._note(f"recorded: {self.slow}" if self.slow else "replayed")

    def _note(self, what: str) -> None:
        """Log how it ended, with all of its segments."""
        count, segments = len(self.path) - 1, int(len(self.path) > 1)
        for s, n in list(self.ended.items()):
            count += s.work * n
            segments += n
        if segments > 1 and what == "replayed":
            what += f", in {segments} segments"
        if any(map(self.policy.is_early, [self.path[-1], *self.ended])) and what != "replayed":
            what += (
                f"; long, compiled from call {self.policy.due} on (fad.jit compiles loops as loops)"
            )
        tree.note(self.name, count, what)

    def _empty(self) -> None:
        """Forget what has run; what comes after it is a segment."""
        self.begin(self.path[0] if self.done else root_of(("a segment", *self.key), None, ""))


# Where traces begin: with a transform, or with a step of the eager tape


def open_trace(level: Any, inputs: Sequence[Value], function: Callable[..., PyTree] | None) -> None:
    """Give ``level`` a trace of ``function`` on ``inputs``, if such traces repeat."""
    if any([x.settings is None for x in (level, *state.levels)]):
        return
    new = [look(x, level) for x in inputs]
    if None in new:
        return
    codes = _codes(function)
    around = tuple([key_of(outer) for outer in state.levels if outer is not level])
    key = (*map(id, codes), around, key_of(level), *[x.code for x in new if x])
    name = getattr(function, "__name__", "a function")
    trace = _begun(level, key, codes, name, len(new))
    if trace is not None:
        trace.around = around
        trace.is_new = trace.policy.begun == 1 and not at_once
        for x in new:
            trace.add(x)  # type: ignore[arg-type]
        level.trace = trace


def open_step(op: Primitive, args: Sequence[Operand], plan: VjpPlan) -> Outputs:
    """Begin a trace of the eager tape, of which this is the first operation; None if that cannot be.

    Steps begin with operations on leaves; another operation is in the middle of one. If the operation
    repeats, the step may do so. What a backward pass computes is no step.
    """
    if running.task is not None or not is_step_due(plan.id):
        return None
    for a in args:
        if isinstance(a, Tensor) and a._requires_grad and not is_leaf(a):
            return None
    trace = state.trace = _begun(ROOT, (plan.id,), None, "a step of the eager tape")
    return None if trace is None else trace.append(op, args)


def _begun(
    level: Any, key: tuple[Hashable, ...], code: object, name: str, taken: int = 0
) -> Trace | None:
    """A trace with a root of this key; None where nothing is traced."""
    hooks = any([pair is not UNCHANGED for pair in state.saved_hooks])
    if hooks or not state.replaying or state.inference is not None or anomaly.watch:
        return None
    if jaxapi.checks_numbers() or jaxapi.is_tracing():
        return None
    tree.begin()
    context = jaxapi.trace_context()
    settings = settings_number(context)
    root = root_of((settings, *key), code, name, taken) if settings else None
    if root is None or root.policy.backs_off():
        return None
    return Trace(level, root, context, settings)


def _codes(function: Any) -> list[object]:
    """The code of a function, and of the functions that it wraps; the class of any other callable."""
    codes: list[object] = []
    while function is not None and len(codes) < 8:
        plain = type(function) is types.FunctionType
        codes.append(function.__code__ if plain else type(function))
        function = getattr(function, "__wrapped__", None) if plain else None
    return codes
