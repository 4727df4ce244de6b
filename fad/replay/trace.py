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
from collections.abc import Callable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.jaxapi import array_type, checks_numbers, trace_context
from fad.core.level import bodies, state
from fad.core.primitive import Primitive
from fad.core.replay_protocol import Pull
from fad.core.tensor import Lazy, Tensor, lazy_tensor, take_over
from fad.replay import untracked
from fad.replay.inputs import is_untouched
from fad.replay.log import note_trace
from fad.replay.modes import is_unobserved, referenced
from fad.replay.next_states import next_state
from fad.replay.program import Program
from fad.replay.program_node import ProgramNode
from fad.replay.segments import program_of, run_program
from fad.replay.states import RUNS, SHORT, End, Root, State, root_of, tree
from fad.replay.stretch import Entry, Stretch, origin_of
from fad.replay.writes import Writes, outputs_of
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT

__all__ = ["Trace"]


class Trace(Writes):
    """The operations of a transform's function, or of a step of the eager tape, since the last flush.

    ``entries`` begin with one for the root. ``inputs`` that require grad at ``level`` are the inputs of the
    transform, leaves of the tape, or outputs of earlier programs. ``recording`` has the grad mode and the
    hooks for saved values with which it is made, ``tangents_off`` the mode of that name, ``modes`` are all
    modes of the thread that makes it. ``done``: nothing more is appended. ``is_new``: it is of the first call
    of a function, see NOTE [first calls]; ``around`` are the keys of the levels around its own, outermost
    first. ``policy`` is the root of what comes before the first flush, ``root`` that of now, ``ended`` counts
    the last states of what was flushed, ``is_compiled`` says whether all programs of it were.
    ``has_untracked``: there are untracked operations; ``on_values``: no level below records what the programs
    compute, and neither does the tape: see NOTE [untracked operations] in `fad.replay.untracked`. ``lock`` is
    for other threads that read an output.
    """

    __slots__ = (
        "__weakref__",
        "around",
        "busy",
        "context",
        "done",
        "ended",
        "entries",
        "has_untracked",
        "is_compiled",
        "is_new",
        "key",
        "lock",
        "maker",
        "modes",
        "on_values",
        "policy",
        "recording",
        "root",
        "tangents_off",
    )

    def __init__(self, level: Any, root: Root, context: Any, settings: int) -> None:
        super().__init__(level)
        self.lock: Any = threading.RLock()
        self.maker: Callable[[], Any] = level.maker()
        self.key = (settings, level.key())
        self.modes = state.__dict__
        self.context = context
        self.recording = (state.watermark, state.base_watermark, state.saved_hooks)
        self.tangents_off = state.tangents_off
        self.policy = self.root = root
        self.entries: list[Entry] = [root.bare]
        self.ended: dict[State, int] = {}
        self.busy = False
        self.done = False
        self.is_new = False
        self.is_compiled = True
        self.has_untracked = False
        self.on_values = True
        self.around: Sequence[Any] = ()

    # Appending

    def append(self, op: Any, args: Sequence[Any], tracked: bool = True) -> Any:
        """The lazy outputs of an operation; None if it cannot be deferred, and all before it is recorded.

        Not so if it is not ``tracked``: NOTE [untracked operations] in `fad.replay.untracked`.
        """
        if self.busy and self.modes is state.__dict__:
            return None  # of a finalizer
        goes_on = not self.busy and self._goes_on()
        if not tracked and not (goes_on and self.on_values and self.policy.defers_untracked):
            return None
        if not goes_on:
            self.why = self.why or f"a mode or a setting changed before {op.name}"
            self.materialize()
            return None
        self.busy = True
        entries = self.entries
        before, _, count = entries[-1]
        if before.cuts:
            self.busy = False
            if not tracked:
                return None
            if not self.is_new and self.flush(too_long=True):
                return self.append(op, args)
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
            self.has_untracked = True
            for t in (out,) if step.single else out:
                t._aux = t._node = None
        if self.done:  # a finalizer has changed a mode
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

    def leaves(self) -> list[Tensor]:
        """The inputs that require grad at the level of the trace."""
        return [given.argument for given in self.inputs if given.layout is True]

    # Reading

    def get(self, t: Tensor, name: str) -> Any:
        """See `fad.core.replay_protocol.Trace`."""
        with self.lock:
            if t._lazy is None:  # another thread has read it
                return object.__getattribute__(t, name)
            if self.busy and self.modes is state.__dict__:
                return self._evaluated_apart(t, name)
            if t._level.id != self.level.id and name == "_value":
                return untracked.read(self, t)
            if self._can_flush() and self.flush(too_long=False):
                if (
                    self.level is ROOT and name == "_node"
                ):  # where a backward pass begins, a step ends
                    self.close()
            else:
                self.materialize()
            if t._lazy is not None:
                return t._lazy.trace.get(t, name)
        return object.__getattribute__(t, name)

    def _evaluated_apart(self, t: Tensor, name: str) -> Any:
        """What a finalizer reads while entries are appended or run: nothing is changed."""
        entries, place = self.entries, t._lazy.place
        stretch = Stretch(self, entries)
        outputs: list[Tensor | None] = [None] * entries[-1][0].size
        return getattr(stretch.record(outputs)[place], name)

    def _can_flush(self) -> bool:
        """Whether a read of a value ends a stretch, and the trace goes on after it."""
        if not self.level.wraps or self.is_new or self.busy or self.why:
            return False  # where nothing is recorded, `materialize` runs the program too
        if not self._goes_on() or jaxapi.is_tracing():
            return False
        # else an outer transform would sum gradients in another order
        return all([type(p) is array_type for given in self.inputs for p in given.parts])

    # Running as one program

    def flush(self, too_long: bool) -> bool:
        """Run what was appended as one program, with one node, and go on; False if there is none.

        ``too_long``: because of its length, not because something is read.
        """
        with self.lock:
            self.busy = True
            try:
                return self._flush(too_long)
            finally:
                self.busy = False

    def _flush(self, too_long: bool) -> bool:
        level = self.level
        self.detach_stale(())
        if self.done or not self._is_as_it_was():
            return False
        if too_long and not self.root.is_cut:
            self.root.cut()  # the next one, from its beginning
        entries = self.entries
        if len(entries) == 1:  # a finalizer has read it
            return True
        stretch = Stretch(self, entries)
        outputs = outputs_of(entries)
        if (level.wraps and not self._has_fresh_variables(stretch)) or self.saves_stale(stretch):
            return False
        kept = untracked.kept_by(self, outputs)
        self.detach_stale([outputs[k] for k in kept])
        last = stretch.path[-1]
        ran = self._run(stretch, last.end(("segment", *kept)), True, kept)
        if ran is None:
            return False
        self._fill(stretch, kept, ran[1])
        self.ended[last] = self.ended.get(last, 0) + 1
        tree.hits += 1
        self.root = root_of((*self.key[:1], "a segment", self.key[1]), None, self.root.name)
        self.root.is_cut = True
        self._empty(self.root.bare)
        return True

    def _has_fresh_variables(self, stretch: Stretch) -> bool:
        variables = [stretch.inputs[k].argument for k in stretch.variables]
        return all(map(is_untouched, variables))

    def _fill(
        self, stretch: Stretch, kept: Sequence[int], values: Any, freed: Sequence[int] | None = None
    ) -> None:
        """Give outputs the ``values`` that a program has computed, and where they require grad its node.

        ``freed``: the outputs from which a backward pass has freed it; None if there was none.
        """
        outputs = outputs_of(self.entries)
        level, rest = self.level, iter(values)
        nodes = [k for k in kept if outputs[k]._requires_grad]
        node = ProgramNode(self, stretch, nodes, [outputs[k] for k in nodes]) if nodes else None
        for k in kept:
            step, nr = origin_of(stretch.path, k)
            layout, t = step.layouts[nr], outputs[k]
            o = level.from_parts([next(rest) for _ in range(level.part_count(layout))], layout)
            if t._lazy is None:
                continue  # a finalizer has changed a mode
            if step.tracked[nr]:
                o._requires_grad, o._node, o._output_nr = True, node, nodes.index(k)
            take_over(t, o)
        if node is not None and freed:
            node.free(stretch, freed, stretch.variables)

    def _empty(self, bare: Entry) -> None:
        """Forget what has run."""
        self.settle()
        self.entries = [bare]
        self.writes = {}
        self.forget_inputs()

    def _run(
        self, stretch: Stretch, end: End, long: bool, kept: Sequence[int], *pulled: Any
    ) -> tuple[Program, Any] | None:
        """Run operations as one program, one level down: it, and its results; None if there is none.

        Arguments:
            long: they are a segment, or what comes after one.
            kept, pulled: of `Stretch.program`.
        """
        make = functools.partial(stretch.program, kept, *pulled)
        program = program_of(self, stretch, end, long, make)
        if program is None:
            self.why = end.reason
            return None
        found = run_program(self, end, program, stretch.inputs, not pulled)
        self.is_compiled = self.is_compiled and program.call is not None
        if found is None and program.is_pending:
            self.why = "its program is being compiled"
        return None if found is None else (program, found)

    # The end

    def materialize(self) -> None:
        """Record every output, one by one, and append nothing more.

        If that is being done already, it is done again: a finalizer may change a mode in the middle.
        """
        with self.lock:
            self._detach()
            if len(self.entries) > 1:
                self.why = self.why or "a value or a node was read"
                self._materialize()

    def _detach(self) -> None:
        """Nothing more is appended."""
        self.done = True
        if not self.is_new:  # else it may have ended in the middle of the function
            self.policy.decide(self._runs())
        if self.level is ROOT:
            if self.modes.get("trace") is self:
                self.modes["trace"] = None
        elif self.level.trace is self:
            self.level.trace = None

    def _runs(self) -> int:
        """After how many runs programs are compiled; see NOTE [long programs]."""
        last = self.entries[-1][0]
        work = last.work + sum([s.work * times for s, times in list(self.ended.items())])
        if work <= SHORT:
            return 0
        return RUNS * (len(self.ended) + 1) // (sum(self.ended.values()) + 1)

    def _materialize(self) -> None:
        entries = self.entries
        self.detach_stale(outputs_of(entries) if self.writes else ())
        if self.level.wraps or self.busy or self.is_to_record() or not self._replay():
            note_trace(self, f"recorded: {self.why}")
            Stretch(self, entries).record(outputs_of(entries))
        if not self.busy:  # else a call of `append` still uses them
            self._empty(entries[0])

    def _replay(self) -> bool:
        """Give the outputs that are referenced their values by one program; False if there is none."""
        entries = self.entries
        stretch, outputs = Stretch(self, entries), outputs_of(entries)
        path = stretch.path
        if not path or (len(path) == 1 and type(path[0].op) is Primitive):
            return False  # one operation is one program in any case
        kept = untracked.kept_by(self, outputs)
        del outputs
        end = path[-1].end(tuple(kept))
        ran = stretch.in_its_modes(lambda: self._run(stretch, end, False, kept))
        if ran is None:
            return False
        self._fill(stretch, kept, ran[1])
        self._succeeded()
        return True

    def _succeeded(self) -> None:
        root = self.policy
        root.failures = 0
        tree.hits += 1
        note_trace(
            self, "replayed" if self.is_compiled else "run one by one: it is not compiled yet"
        )

    def close(self) -> None:
        """Append nothing more: what is referenced gets its value, all else is dropped.

        Called at the exit of the level, and where a step ends that has been flushed.
        """
        with self.lock:
            done = self.done
            self._detach()
            if done:
                return
            if self.busy or referenced(outputs_of(self.entries), 2):
                self.materialize()
            else:
                if self.ended:
                    self._succeeded()
                self._empty(self.entries[0])

    # With the backward pass

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
            self.detach_stale(())
            if self.busy:
                return None
            if len(self.entries) == 1 and self.level is ROOT:  # a step ends, all of which has run
                self.close()
                return None
            self.busy = True
            try:
                if self.done or not outs or not self._is_as_it_was():
                    return None
                if (
                    len(self.entries) == 1 and self.level is ROOT
                ):  # a step ends, all of which has run
                    self.close()
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
            if lazy is None or lazy.trace is not self:
                return None
            ends.append(int(lazy.place))
        entries = self.entries
        stretch = Stretch(self, entries, len(self.inputs) - entries[-1][2])
        variables = stretch.variables
        arguments = [stretch.inputs[k].argument for k in variables]
        if leaves is not None and [*map(id, leaves)] != [*map(id, arguments)]:
            return None
        if any([a._node is not None for a in arguments]) or not all(map(is_untouched, arguments)):
            return None
        if self.saves_stale(stretch):
            return None
        outs.clear()
        o = lazy = None
        cells = outputs_of(entries)
        kept = untracked.kept_by(self, cells)
        outs += [cells[k] for k in ends]
        if values:
            kept = sorted({*kept, *ends})
        self.detach_stale([cells[k] for k in kept])
        end = stretch.path[-1].end((tuple(kept), tuple(ends), tuple(variables), *static))
        ran = self._run(stretch, end, False, kept, ends, variables, pull)
        if ran is None:
            return None
        del cells
        grads, rest = ran[0].unflatten(ran[1])
        self._fill(stretch, kept, rest, ends if frees else None)
        self._detach()
        self._succeeded()
        self._empty(entries[0])
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
