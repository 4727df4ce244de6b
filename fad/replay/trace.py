"""Traces: what a transform or a step of the eager tape does, recorded with lazy outputs.

NOTE [traces]

Eager code makes a node, or a derived operation, for each operation at each level of nesting. But a function
that is called again mostly does the same again. So its operations are first only appended to a trace: an
output has its shape, dtype and level, and no value and no node yet. If the trace then ends as an earlier one,
all of it is one program (`fad.replay.program`), bound one level down:

* a reverse transform ends with its backward pass, `Trace.finish`;
* at a level that records nothing (jvp, vmap, jet, a dual level), it ends when a value is read, or at the
  exit of the level;
* a step of the eager tape ends with `backward`, or `fad.autograd.grad` of all of its leaves.

Otherwise the trace is *materialized*: its operations are recorded as they would have been at once, in their
order, and the rest of the function is recorded as usual. So

* an operation is appended only if its outputs are known from abstract evaluation (`fad.replay.outcomes`): its
  errors are raised where it is called. It is a pure Primitive, of small arrays;
* reading a node, hooks, Functions, anomaly mode, hooks for saved values, `no_grad`, settings of JAX, another
  thread: each materializes the trace first. A write in place is appended: NOTE [deferred writes];
* reading a value at a level that records ends a segment (NOTE [segments]), if what is before it repeats: it
  runs as a program, and the trace goes on. If not, it materializes the trace;
* an output that the function stores outside of itself (in a list, its aux) gets its value as a result of the
  program. Its node is made when it is read: the operations are recorded then, and what the backward pass went
  through is freed, as it would have been;
* inputs are used as they were at capture, in the grad mode of that time.

Guards: Python runs on each call; operations are compared by identity, inputs by aval, level and layout. A
trace is a path in a tree of all traces so far (`fad.replay.states`), and each state has an inline cache with
its predicted next state.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.jaxapi import array_type, checks_numbers, trace_context
from fad.core.level import bodies, state, with_default_state
from fad.core.primitive import Primitive
from fad.core.replay_protocol import Pull
from fad.core.tensor import Lazy, Tensor, has_value, lazy_tensor
from fad.replay import untracked
from fad.replay.entries import Entry, Operations, outputs_of
from fad.replay.inputs import is_untouched
from fad.replay.log import note_trace
from fad.replay.modes import is_unobserved, referenced
from fad.replay.next_states import next_state
from fad.replay.program import Program
from fad.replay.recording import fill, record, record_again
from fad.replay.segments import Chain, free_inputs, program_of, pull_through, run_program
from fad.replay.settings import in_context
from fad.replay.states import End, Root, root_of, tree
from fad.replay.writes import Writes
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT

__all__ = ["Trace"]


class Trace(Writes):
    """The operations of the function of a transform, or of a step of the eager tape, so far.

    ``entries`` begin with one for the root. ``inputs`` that require grad at ``level`` are the inputs of the
    transform, or leaves of the tape. ``recording`` has the grad mode and the hooks for saved values with
    which it is made, ``tangents_off`` the mode of that name, ``modes`` are all modes of the thread that makes
    it. ``done``: nothing more is appended. ``recorded``: how many entries have been recorded since. ``ran``:
    once it has run as one program, the numbers of the outputs at which backward passes started that have
    freed what they went through. ``kept`` are then the outputs that are referenced. ``is_new``: it is of the
    first call of a function, see NOTE [first calls]; ``around`` are the keys of the levels around its own,
    outermost first. ``lock`` is for other threads that read an output.
    """

    __slots__ = (
        "__weakref__",
        "around",
        "busy",
        "context",
        "done",
        "entries",
        "is_new",
        "kept",
        "key",
        "lock",
        "maker",
        "modes",
        "ran",
        "recorded",
        "recording",
        "root",
        "tangents_off",
    )

    def __init__(
        self, level: Any, root: Root, context: Any, settings: int, before: Trace | None = None
    ) -> None:
        super().__init__(level, Chain(root) if before is None else before.chain)
        self.lock: Any = threading.RLock() if before is None else before.lock
        if before is not None:
            root = root_of((settings, "a segment", level.key()), None, root.name)
            root.is_cut = True
        self.maker: Callable[[], Any] = level.maker()
        self.key = (settings, level.key())
        self.modes = state.__dict__
        self.context = context
        self.recording = (state.watermark, state.base_watermark, state.saved_hooks)
        self.tangents_off = state.tangents_off
        self.root = root
        self.entries: list[Entry] = [root.bare]
        self.busy = False
        self.done = False
        self.is_new = False
        self.around: Sequence[Any] = ()
        self.recorded = 1
        self.ran: Sequence[int] | None = None
        self.kept: dict[int, weakref.ref[Tensor]] = {}
        if before is None:
            self.chain.latest = weakref.ref(self)

    # Appending

    def append(self, op: Any, args: Sequence[Any], tracked: bool = True) -> Any:
        """The lazy outputs of an operation; None if it cannot be deferred, and all before it is recorded.

        Not so if it is not ``tracked``: NOTE [untracked operations] in `fad.replay.untracked`.
        """
        goes_on, chain = not self.busy and self._goes_on(), self.chain
        if not tracked and not (goes_on and chain.on_values and chain.root.defers_untracked):
            return None
        if not goes_on:
            self.why = self.why or f"a mode or a setting changed before {op.name}"
            self.materialize()
            return None
        self.busy = True
        entries = self.entries
        before, _, count = entries[-1]
        if before.cuts:
            if not tracked:
                self.busy = False
                return None
            next_segment = None if self.is_new else self._end_segment(too_long=True)
            self.busy = False
            if next_segment is not None:
                return next_segment.append(op, args)
            self.materialize()
            return None
        step = before.predicted_next
        if step is None or step.op is not op or not self.is_predicted(step, args, count):
            step = next_state(self, entries, op, args)
            if step is None:
                self.busy = False
                if not tracked:
                    return None
                self.why = self.why or f"{op.name}: {self.refusal(op, args)}"
                self.materialize()
                return None
        level, place = ROOT if step.untracked else self.level, step.first
        if step.single:
            out: Any = lazy_tensor(level, Lazy(step.avals[0], self, place), step.tracked[0], 0)
            entry = out
        else:
            pairs = enumerate(zip(step.avals, step.tracked))
            entry = [lazy_tensor(level, Lazy(a, self, place + k), t, k) for k, (a, t) in pairs]
            out = tuple(entry)  # not `entry`: what the caller's tuple refers to is referenced
        if step.untracked:
            chain.has_untracked = True
            for t in (out,) if step.single else out:
                t._aux = t._node = None
        if self.done:  # a finalizer or another thread has read an output
            return None
        entries.append((step, entry, len(self.inputs)))
        self.busy = False
        if self.done:
            self.materialize()
            if (out if step.single else out[0])._lazy is not None:
                return None  # it was materialized without this entry
        return out

    def _goes_on(self) -> bool:
        """Whether its thread can still append to it, in the modes and settings at its beginning."""
        modes = state.__dict__
        if self.done or modes is not self.modes:
            return False
        get = modes.get  # a name that is not there has its default
        return (
            self.recording
            == (get("watermark", -1), get("base_watermark", -1), get("saved_hooks", ()))
            and get("inference") is None
            and get("replaying", True)
            and not anomaly.watch
            and not bodies.traced
            and self.context == trace_context()
            and not checks_numbers()
        )

    # Segments

    def leaves(self) -> list[Tensor]:
        """The inputs that require grad at the level of the trace."""
        return self.chain.leaves(self)

    def _end_segment(self, too_long: bool) -> Trace | None:
        """The trace of the next segment, after what was appended has run as a program; None if that fails.

        ``too_long``: it ends because of its length, not because a value is read.
        """
        with self.lock:
            level = self.level
            self.detach_stale([], ())
            if self.done or not self._is_as_it_was():
                return None
            if too_long and not self.root.is_cut:
                self.root.cut()  # the next one, from its beginning
            operations = Operations(self)
            if self.done:  # a finalizer has read an output
                return None
            inputs, last = operations.inputs, operations.path[-1]
            untouched = [is_untouched(g.argument) for g in inputs if g.layout is True]
            if (level.wraps and not all(untouched)) or self.saves_stale(operations):
                return None
            self.note_saved(operations)
            kept = untracked.kept_by(self.level, operations)
            self.detach_stale(operations.outputs, kept)
            ran = self._run(operations, last.end(("segment", *kept)), too_long, kept)
            if ran is None:
                return None
            fill(level, operations, kept, ran[1])
            cells, entries = operations.outputs, operations.entries
            next_segment = Trace(level, self.chain.root, self.context, self.key[0], self)
            latest = weakref.ref(next_segment)
            tracked = {k: weakref.ref(cells[k]) for k in kept if cells[k]._requires_grad}
            entries = [e[0].bare for e in entries] if level.wraps else entries[:1]
            if self.done:  # a finalizer has read an output: all is recorded
                return None
            self.done, self.entries, self.chain.latest = True, entries, latest
            if level.wraps:
                self.inputs, self.kept, self.ran = inputs, tracked, ()
                self.chain.add(self)
            if level is ROOT:
                self.modes["trace"] = next_segment
            else:
                level.trace = next_segment
            self.update_shared()
            self.chain.ended[last] = self.chain.ended.get(last, 0) + 1
            tree.hits += 1
            return next_segment

    def read(self, t: Tensor) -> bool:
        """See `fad.core.replay_protocol.Trace`."""
        if t._level.id != self.level.id:
            return untracked.read(self, t)
        if not self.level.wraps or self.is_new or self.chain.latest() is not self:
            return False  # where nothing is recorded, `materialize` runs the program too
        if self.busy or len(self.entries) == 1 or not self._goes_on() or jaxapi.is_tracing():
            return False
        if not all([type(p) is array_type for given in self.inputs for p in given.parts]):
            return False  # an outer transform would sum gradients in another order
        self.busy = True
        ended = self._end_segment(too_long=False)
        self.busy = False
        if ended is None:
            self.why = f"a value was read, and {self.why}" if self.why else "a value was read"
        return ended is not None and has_value(t)

    # Materializing

    def materialize(self) -> None:
        """Give every output its value, and record it.

        If that is being done already, it is continued from there: a finalizer may read a value in
        the middle.
        """
        with self.lock:
            latest = self.chain.latest() or self
            latest._detach()
            for trace in (latest, self):  # weak references find nothing that is being finalized
                if len(trace.entries) == 1 and trace.ran is None and not self.chain.segments:
                    continue
                in_context(trace.context, trace._materialize)

    def _detach(self) -> None:
        """Nothing more is appended."""
        self.done = True
        if not self.is_new:  # else it may have ended in the middle of the function
            self.chain.root.decide(self.chain.runs(self.entries[-1][0]))
        if self.level is ROOT:
            if self.modes.get("trace") is self:
                self.modes["trace"] = None
        elif self.level.trace is self:
            self.level.trace = None

    def _materialize(self) -> None:
        if not self.why:
            self.why = "a value or a node was read"
        # No other trace of the tape begins in the middle of this one; those of outer levels go on.
        outputs = outputs_of(self.entries) if self.ran is None and self.writes else []
        self.detach_stale(outputs, range(len(outputs)))
        self._record_all(state.replaying and self.level is not ROOT)
        self.update_shared()
        self._forget()

    @with_default_state("levels")
    def _record_all(self, replaying: bool) -> None:
        state.watermark, state.base_watermark, state.saved_hooks = self.recording
        state.tangents_off = self.tangents_off
        state.replaying = replaying
        while segments := self.chain.segments:
            record_again(segments[0])
            self.chain.drop(segments[:1])
        if self.ran is not None:
            record_again(self)
        elif self.level.wraps or self.recorded > 1 or self.is_to_record() or not self._replay():
            note_trace(self, f"recorded: {self.why}")
            record(self)

    def _forget(self) -> None:
        """Drop everything: every output has its value and its node now, or is not referenced."""
        self.recorded, self.kept, self.ran, self.entries = 1, {}, None, self.entries[:1]
        if not self.busy:  # else a call of `append` still uses them
            self.forget_inputs()

    def close(self) -> None:
        """Called at the exit of the level: what is referenced gets its value, all else is dropped."""
        with self.lock:
            done = self.done
            self._detach()
            if done:
                return
            if self.busy or referenced(outputs_of(self.entries), 2) or self.chain.is_alive():
                self.materialize()
            else:
                self._forget()
                self.chain.drop(self.chain.segments)

    # Running as one program

    def _replay(self) -> bool:
        """Give the outputs that are referenced their values by one program; False if there is none."""
        operations = Operations(self)
        path = operations.path
        if not path or (len(path) == 1 and type(path[0].op) is Primitive):
            return False  # one operation is one program in any case
        kept = untracked.kept_by(self.level, operations)
        ran = self._run(operations, path[-1].end(tuple(kept)), False, kept)
        if ran is None:
            return False
        fill(self.level, operations, kept, ran[1])
        self._succeeded()
        return True

    def _succeeded(self) -> None:
        root = self.chain.root
        root.failures = 0
        tree.hits += 1
        note_trace(self, "run one by one" if root.due > root.begun else "replayed")

    def _run(
        self, operations: Operations, end: End, long: bool, kept: Sequence[int], *pulled: Any
    ) -> tuple[Program, Any] | None:
        """Run operations as one program, one level down: it, and its results; None if there is none.

        Arguments:
            long: they are a segment, or what comes after one.
            kept, pulled: of `Operations.program`.
        """
        make = functools.partial(operations.program, self.root.name, self.maker, kept, *pulled)
        program = program_of(self, operations, end, long, make)
        if program is None:
            self.why = end.reason
            return None
        found = run_program(self.chain, end, program, operations.inputs, (), not pulled)
        if found is None and program.is_pending:
            self.why = "its program is being compiled"
        return None if found is None else (program, found)

    def finish(
        self,
        outs: list[Any],
        pull: Pull,
        *static: Any,
        leaves: Sequence[Tensor] | None = None,
        values: bool = False,
        frees: bool = True,
    ) -> list[Any] | None:
        """See `fad.core.replay_protocol.Trace`."""
        with self.lock:
            self.detach_stale([], ())
            if self.busy:
                return None
            self.busy = True  # a finalizer that reads a value then ends no segment
            try:
                if self.done or not outs or not self._is_as_it_was():
                    return None
                return self._finish(outs, pull, static, leaves, values, frees)
            finally:
                self.busy = False

    def _finish(
        self,
        outs: list[Any],
        pull: Pull,
        static: Sequence[Any],
        leaves: Sequence[Tensor] | None,
        values: bool,
        frees: bool,
    ) -> list[Any] | None:
        ends = []
        for o in outs:
            lazy = o._lazy if type(o) is Tensor and o._level is self.level else None
            place = self.place(o) if lazy is not None and lazy.trace.chain is self.chain else None
            if place is None:
                return None
            ends.append(place)
        operations = Operations(self, len(self.inputs) - self.entries[-1][2])
        if self.done:  # a finalizer has read an output
            return None
        entries, inputs, cells = operations.entries, operations.inputs, operations.outputs
        variables = [k for k, given in enumerate(inputs) if given.layout is True]
        arguments = [inputs[k].argument for k in variables]
        long = bool(self.chain.segments)
        ends_at = arguments
        if long:  # segments that had some of the variables of a transform may have been dropped
            ends_at = self.leaves() if leaves is None or self.level is ROOT else list(leaves)
        if leaves is not None and [*map(id, leaves)] != [*map(id, ends_at)]:
            return None
        if not all(map(is_untouched, [*arguments, *ends_at])) or (long and static):
            return None
        if self.saves_stale(operations):
            return None
        outs.clear()
        o = lazy = None
        kept = untracked.kept_by(self.level, operations)
        outs += map(operations.value, ends)
        if values:
            kept = sorted({*kept, *[k for k in ends if k >= 0]})
        self.detach_stale(cells, kept)
        end = entries[-1][0].end((tuple(kept), tuple(ends), tuple(variables), *static))
        ran = self._run(operations, end, long, kept, ends, variables, pull)
        if ran is None:
            return None
        grads, rest = ran[0].unflatten(ran[1])
        passed: Sequence[tuple[Any, list[int]]] = ()
        if long:
            arrived = {id(a): g for a, g in zip(arguments, grads, strict=True) if g is not None}
            pulled = pull_through(self.chain, arrived)
            if pulled is None:
                return None
            passed = pulled
            grads = [arrived.get(id(a)) for a in ends_at]
        tracked: dict[int, weakref.ref[Tensor]] = {}
        for k, value in zip(kept, rest, strict=True):
            t = cells[k]
            if t._lazy is None:  # a finalizer has read an output
                return None
            t._value, t._aux = value, None
            if t._requires_grad:
                tracked[k] = weakref.ref(t)
            else:
                t._node = t._lazy = None
        before = [(s, [*(s.ran or ()), *begun]) for s, begun in passed] if frees else []
        bare, freed = [e[0].bare for e in entries], ends if frees else ()
        if self.done:  # a finalizer has read an output: all is recorded. Later ones find all set
            return None
        # The outputs that are not kept are freed now, and the others when nothing refers to them.
        self.done = True
        self.entries, self.kept, self.ran = bare, tracked, freed
        for segment, outputs in before:
            segment.ran = outputs
            free_inputs(segment)
        self.busy = False
        self._detach()
        self.update_shared()
        self._succeeded()
        self.scalars, self.places = [], {}
        if not tracked and not (long and self.chain.is_alive()):
            self._forget()
            self.chain.drop(self.chain.segments)
        elif frees:
            free_inputs(self)
        return list(grads)

    def _is_as_it_was(self) -> bool:
        """Whether modes and settings are those in which it was made, and no input has changed."""
        return (
            not self.inputs_changed()
            and not self.is_to_record()
            and is_unobserved()
            and self.is_in_its_mode()
            and self.context == trace_context()
        )

    def is_in_its_mode(self) -> bool:
        """Whether the grad mode and the hooks for saved values are those with which it is recorded."""
        return (state.watermark, state.base_watermark, state.saved_hooks) == self.recording
