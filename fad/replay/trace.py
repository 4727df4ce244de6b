"""Traces: what a transform or a step of the eager tape does, recorded with lazy outputs.

NOTE [traces]

Eager code makes a node, or a derived operation, for each operation at each level of nesting. But a
function that is called again mostly does the same again. So its operations are first only appended
to a trace: an output has its shape, dtype and level, and no value and no node yet.
If the trace then ends as an earlier trace did, all of it is one program (`fad.replay.program`),
bound one level down:

* a reverse transform ends with its backward pass, `Trace.finish`;
* at a level that records nothing (jvp, vmap, a dual level), it ends when a value is read, or at the
  exit of the level;
* a step of the eager tape ends with `backward`, or `fad.autograd.grad` of all of its leaves.

Otherwise the trace is *materialized*: its operations are recorded as they would have been at once,
in their order, and the rest of the function is recorded as usual. So

* an operation is appended only if its outputs are known from abstract evaluation
  (`fad.replay.outcomes`): its errors are raised where it is called. It is a pure Primitive, of
  small arrays;
* reading a value, a node, hooks, writes in place, Functions, anomaly mode, hooks for saved values,
  `no_grad`, settings of JAX, another thread: each materializes the trace first;
* an output that the function stores outside of itself (in a list, its aux) gets its value as a
  result of the program. Its node is made when it is read: the operations are recorded then, and what
  the backward pass went through is freed, as it would have been;
* inputs are used as they were at capture, in the grad mode of that time.

Guards: Python runs on each call; operations are compared by identity, inputs by aval, level and
layout. A trace is a path in a tree of all traces so far (`fad.replay.states`), and each state has
an inline cache with its predicted next state.

NOTE [one append-only list]

A trace is one list of entries. An entry is appended whole or not at all, and it is never changed.
``busy`` is set while one is being made. A call of `append` that finds it set (from a finalizer, or after
an interrupt) appends nothing and materializes the trace. After each entry `append` checks whether the
trace was materialized meanwhile, and if so records that entry too. Recording is idempotent: to record an
entry twice gives the same as to record it once.
"""

from __future__ import annotations

import collections
import functools
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fad.core import jaxapi
from fad.core.avals import SCALARS, constant
from fad.core.borrowed import copied, is_borrowed
from fad.core.jaxapi import debug_infs, debug_nans, trace_context
from fad.core.level import bind, bodies, state, with_default_state
from fad.core.primitive import Primitive
from fad.core.replay_protocol import Pull
from fad.core.tensor import Lazy, Tensor, lazy_tensor
from fad.replay import states
from fad.replay.entries import Entry, computation_of, origin_of, outputs_of
from fad.replay.inputs import FOREIGN, Input, is_untouched, look
from fad.replay.log import note
from fad.replay.modes import is_unobserved, referenced
from fad.replay.outcomes import outcome_of
from fad.replay.program import Known, Program
from fad.replay.recording import record, record_again, record_kept, take_over
from fad.replay.segments import Chain, pull_through
from fad.replay.settings import is_small, on_new_thread
from fad.replay.states import End, Root, State, ends_segment, passed_of, root_of, tree
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT

__all__ = ["Trace"]


class Trace:
    """The operations of the function of a transform, or of a step of the eager tape, so far.

    ``entries`` begin with one for the root. ``inputs`` that require grad at ``level`` are the
    inputs of the transform, or leaves of the tape; ``places`` finds inputs by their `id`.
    ``watermark`` and ``base_watermark`` are the grad mode in which it is made, ``modes`` all modes of the
    thread that makes it. ``done``: nothing more is appended. ``recorded``: how many entries have
    been recorded since. ``ran``: it has run as one program; with the numbers of the outputs at which
    the backward pass started, and whether it frees what it goes through. ``kept`` are then
    the outputs that are referenced. ``is_known``: its function was replayed with other shapes.
    ``lock`` is for other threads that read an output. ``before`` is the last of its segments
    that are still needed.
    """

    __slots__ = (
        "__weakref__",
        "base_watermark",
        "before",
        "busy",
        "chain",
        "context",
        "done",
        "entries",
        "inputs",
        "is_known",
        "kept",
        "key",
        "level",
        "lock",
        "maker",
        "modes",
        "places",
        "ran",
        "recorded",
        "root",
        "scalars",
        "watermark",
        "why",
    )

    def __init__(
        self, level: Any, root: Root, context: Any, settings: int, before: Trace | None = None
    ) -> None:
        if before is None:
            self.chain = Chain(root)
            self.lock = threading.RLock()
        else:
            self.chain, self.lock = before.chain, before.lock
            root = root_of((settings, "a segment", level.key()), None, root.name)
            root.is_cut = True
        self.before: Trace | None = None
        self.chain.latest = weakref.ref(self)
        self.level = level
        self.maker: Callable[[], Any] = level.maker()
        self.key = (settings, level.key())
        self.modes = state.__dict__
        self.context = context
        self.watermark = state.watermark
        self.base_watermark = state.base_watermark
        self.root = root
        self.entries: list[Entry] = [(root, None, 0)]
        self.inputs: list[Input] = []
        self.places: dict[int, int] = {}
        self.scalars: list[Any] = []  # so that their ids stay their own
        self.busy = False
        self.done = False
        self.is_known = False
        self.why = ""  # why it was materialized
        self.recorded = 1
        self.ran: tuple[list[int], bool] | None = None
        self.kept: dict[int, weakref.ref[Tensor]] = {}

    # Appending

    def append(self, op: Any, args: Sequence[Any]) -> Any:
        """The lazy outputs of an operation; None if it cannot be deferred, and all before it is recorded."""
        if self.busy or not self._goes_on():
            self.why = self.why or f"a mode or a setting changed before {op.name}"
            self.materialize()
            return None
        self.busy = True
        entries = self.entries
        before, count = entries[-1][0], entries[-1][2]
        if before.cuts:
            next_segment = self._end_segment()
            self.busy = False
            if next_segment is not None:
                return next_segment.append(op, args)
            self.materialize()
            return None
        step = before.predicted_next
        if step is None or step.op is not op or not self._is_predicted(step, args, count):
            step = self._step(entries, op, args)
            if step is None:
                self.busy = False
                self.why = self.why or f"{op.name}: {self._refusal(op, args)}"
                self.materialize()
                return None
        level = self.level
        place = step.size - len(step.avals)
        if step.single:
            lazy = Lazy(step.avals[0], self, place)
            out: Any = lazy_tensor(level, lazy, step.tracked[0], 0)
            entry = out
        else:
            pairs = enumerate(zip(step.avals, step.tracked))
            entry = [lazy_tensor(level, Lazy(a, self, place + k), t, k) for k, (a, t) in pairs]
            out = tuple(
                entry
            )  # not `entry`: so outputs that the caller's tuple refers to are referenced
        if self.done:  # a finalizer or another thread has read an output
            return None
        entries.append((step, entry, len(self.inputs)))
        self.busy = False
        if self.done:
            self.materialize()
            if (out if step.single else out[0])._lazy is not None:
                return None  # it was materialized without this entry
        return out

    def _refusal(self, op: Any, args: Sequence[Any]) -> str:
        """Why an operation was not appended."""
        if type(op) is not Primitive and type(op) is not Program:
            return "it runs rules in Python"
        if type(op) is Primitive and (not op.lazy or op.collective):
            return "it is not a pure operation that can be deferred"
        for k, a in enumerate(args):
            if self._place(a) is None:
                return f"argument {k} is large, traced by JAX, on other devices, or in the middle of a graph"
        return "its outputs are not known from abstract evaluation"

    def _goes_on(self) -> bool:
        """Whether its thread can still append to it, in the modes and settings at its beginning."""
        modes = state.__dict__
        get = modes.get  # a name that is not there has its default
        return (
            not self.done
            and modes is self.modes
            and get("watermark", -1) == self.watermark
            and get("base_watermark", -1) == self.base_watermark
            and not get("saved_hooks")
            and get("inference") is None
            and get("replaying", True)
            and not anomaly.watch
            and not bodies.traced
            and self.context == trace_context()
            and not (debug_nans.value or debug_infs.value)
        )

    def _is_predicted(self, step: State, args: Sequence[Any], count: int) -> bool:
        """Whether these are the arguments of the predicted next operation."""
        refs = step.refs
        if len(args) != len(refs):
            return False
        places = self.places
        for a, ref, code in zip(args, refs, step.codes):
            if type(a) is Tensor:
                lazy = a._lazy
                if lazy is not None and lazy.trace is self:
                    if lazy.place != ref:
                        return False
                    continue
            place = places.get(id(a))
            if place is None:
                if not code:
                    return False
                given = self._look(a)
                if given is None or given.code != code:
                    return False
                place = self.add(given)
            elif code and ~place < count:
                return False
            if place != ref:
                return False
        return True

    def _look(self, a: Any) -> Input | None:
        value = a
        if type(a) is Tensor and a._level is ROOT and a._lazy is None and a.meta is None:
            value = a if a._requires_grad else a._value
        if isinstance(value, np.ndarray) or (is_borrowed(value) and is_small(value)):
            a = copied(value)  # the memory may be written to before it is used again
        return look(a, self.level, self.chain)

    def add(self, given: Input) -> int:
        """The place of an input that is new."""
        place = ~len(self.inputs)
        self.inputs.append(given)
        self.places[id(given.argument)] = place
        if given.layout is FOREIGN:
            self.places[id(given.parts[0])] = place
        return place

    def _step(self, entries: Sequence[Entry], op: Any, args: Sequence[Any]) -> State | None:
        """The state after an operation; None if it cannot be deferred."""
        before, count = entries[-1][0], entries[-1][2]
        if type(op) is Primitive:
            if not op.lazy or op.collective:
                return None
        elif type(op) is not Program:
            return None
        key: list[Any] = [op]
        refs: list[int] = []
        codes: list[int] = []
        latest = count
        for a in args:
            place = self._place(a)
            if place is None:
                return None
            code = 0
            if place < 0 and ~place >= latest:
                latest = ~place + 1
                code = self.inputs[~place].code
                key.append(code)
            key.append(place)
            refs.append(place)
            codes.append(code)
        at = tuple(key)
        step = before.next.get(at)
        if step is None:
            args_known = [self._argument(entries, r) for r in refs]
            outcome = outcome_of(self.level, self.maker, op, args_known, self.key)
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
                [self.level.wraps and layout for layout in outcome.layouts],
                outcome.routed,
                outcome.single,
                before.size + len(outcome.avals),
                before.work + (op.work if type(op) is Program else 1),
                content,
                ends_segment([e[0] for e in entries[1:]], content, self.root.is_cut),
            )
            states.grow()
            step = before.next.setdefault(at, step)
        before.predicted_next = step
        return step

    def _place(self, a: Any) -> int | None:
        """The place of an argument; None if it cannot be an input."""
        if type(a) is Tensor:
            lazy = a._lazy
            if lazy is not None and lazy.trace is self:
                return int(lazy.place)
        place = self.places.get(id(a))
        if place is not None:
            return place
        if type(a) in SCALARS:
            place = self.places.get(id(constant(a)))
            if place is not None:
                self.scalars.append(a)
                self.places[id(a)] = place
                return place
        given = self._look(a)
        return None if given is None else self.add(given)

    def _argument(self, entries: Sequence[Entry], ref: int) -> Known:
        """What is known of an argument, for `outcome_of`."""
        if ref < 0:
            given = self.inputs[~ref]
            return given.layout, given.aval
        step, k = origin_of(entries, ref)
        return step.layouts[k], step.avals[k]

    def leaves(self) -> list[Tensor]:
        """The inputs that require grad at the level of the trace."""
        found: dict[int, Tensor] = {}
        for segment in (*self.chain.segments, self):
            for given in segment.inputs:
                if given.layout is True and not self._is_of_chain(given.argument):
                    found[id(given.argument)] = given.argument
        return list(found.values())

    def _is_of_chain(self, a: Any) -> bool:
        """Whether a Tensor is an output of an earlier segment, which has not been recorded."""
        lazy = a._lazy
        return lazy is not None and lazy.trace.chain is self.chain

    # Segments

    @property
    def last(self) -> State:
        """The state after the last operation."""
        return self.entries[-1][0]

    def computation(self) -> Callable[[Any, Sequence[Any]], tuple[list[Any], list[Any]]]:
        """A function of a level and the parts of the inputs that binds all operations."""
        return computation_of([e[0] for e in self.entries[1:]], self.inputs)

    def run(self, end: End, program: Program, more: Sequence[Any] = ()) -> Any:
        """Run a program of the inputs, and ``more``, one level down; None if it fails."""
        return self._bind(end, program, self.inputs, more)

    def _end_segment(self) -> Trace | None:
        """The trace of the next segment, after what was appended has run as a program; None if that fails."""
        with self.lock:
            entries, level = self.entries[:], self.level
            if self.done or not self._is_as_it_was():
                return None
            if not self.root.is_cut:
                self.root.cut()  # the next one, from its beginning
            inputs = self.inputs[: entries[-1][2]]
            if not all(
                [is_untouched(g.argument) for g in inputs if level.wraps and g.layout is True]
            ):
                return None
            cells = outputs_of(entries)
            kept = referenced(cells, 2)
            path = [e[0] for e in entries[1:]]
            end = path[-1].end(("segment", *kept))
            make = functools.partial(self._program, path, inputs, [], kept, [], None)
            program = end.always(make, self.chain.root.is_due)
            found = self._bind(end, program, inputs)
            if found is None or self.done or len(self.entries) != len(entries):
                return None
            self._fill(entries, cells, kept, found)
            self.chain.ended.append(path[-1])
            next_segment = Trace(level, self.chain.root, self.context, self.key[0], self)
            if level.wraps:
                self.kept = {k: weakref.ref(cells[k]) for k in kept if cells[k]._requires_grad}
                self.inputs = inputs
                self.entries = [(e[0], None, e[2]) for e in entries]
                self.chain.add(self)
            self.done = True
            if level is ROOT:
                self.modes["trace"] = next_segment
            else:
                level.trace = next_segment
            tree.hits += 1
            return next_segment

    def _fill(
        self, entries: Sequence[Entry], cells: Sequence[Tensor], kept: Sequence[int], found: Any
    ) -> None:
        """Give outputs the values that a program has computed; where they require grad, no nodes."""
        rest = iter(found)
        level = self.level
        for k in kept:
            step, nr = origin_of(entries, k)
            layout = step.layouts[nr]
            count = len(level.part_avals(step.avals[nr], layout))
            o = level.from_parts([next(rest) for _ in range(count)], layout)
            if step.tracked[nr]:
                cells[k]._value, cells[k]._aux = o._value, o._aux
            else:
                take_over(cells[k], o)

    # Materializing

    def materialize(self) -> None:
        """Give every output its value, and record it.

        If that is being done already, it is continued from there: a finalizer may read a value in
        the middle.
        """
        with self.lock:
            latest = self.chain.latest() or self
            latest._detach()
            if len(latest.entries) == 1 and latest.ran is None and not self.chain.segments:
                return
            changed = self.context != trace_context() or jaxapi.is_tracing()
            if changed or jaxapi.checks_numbers():  # of operations from before a block that checks
                on_new_thread(latest._materialize)
            else:
                latest._materialize()

    def _detach(self) -> None:
        """Nothing more is appended."""
        self.done = True
        self.chain.root.decide(self.chain.runs(self.last))
        if self.level is ROOT:
            if self.modes.get("trace") is self:
                self.modes["trace"] = None
        elif self.level.trace is self:
            self.level.trace = None

    def _materialize(self) -> None:
        if not self.why:
            self.why = "a value or a node was read"
        # No other trace of the tape begins in the middle of this one; those of outer levels go on.
        self._record_all(state.replaying and self.level is not ROOT)
        self._forget()

    @with_default_state("levels")
    def _record_all(self, replaying: bool) -> None:
        state.watermark, state.base_watermark = self.watermark, self.base_watermark
        state.replaying = replaying
        while segments := self.chain.segments:
            record_kept(segments[0])
            self.chain.drop(segments[:1])
        if self.ran is not None:
            record_again(self, *self.ran)
        elif self.level.wraps or self.recorded > 1 or not self._replay():
            self._note(f"recorded: {self.why}")
            record(self)

    def _forget(self) -> None:
        """Drop everything: every output has its value and its node now, or is not referenced."""
        self.entries = self.entries[:1]
        self.recorded = 1
        self.kept, self.ran = {}, None
        if not self.busy:  # else a call of `append` still uses them
            self.inputs, self.scalars, self.places = [], [], {}

    def close(self) -> None:
        """Called at the exit of the level: what is referenced gets its value, all else is dropped."""
        with self.lock:
            done = self.done
            self._detach()
            if done:
                return
            if (
                self.busy
                or referenced(outputs_of(self.entries), 2)
                or self._has_referenced_segments()
            ):
                self.materialize()
            else:
                self._forget()
                self._forget_segments()

    def _has_referenced_segments(self) -> bool:
        """Whether something but this trace refers to outputs of its segments."""
        cells = [
            t for s in self.chain.segments for t in [r() for r in s.kept.values()] if t is not None
        ]
        used = collections.Counter(
            [id(g.argument) for s in (*self.chain.segments, self) for g in s.inputs]
        )
        return any([referenced([c], 2 + used[id(c)]) for c in cells])

    def _forget_segments(self) -> None:
        self.chain.drop(self.chain.segments)

    # Running as one program

    def _replay(self) -> bool:
        """Give the outputs that are referenced their values by one program; False if there is none."""
        entries = self.entries[:]
        if len(entries) == 2 and type(entries[1][0].op) is Primitive:
            return False  # one operation is one program in any case
        cells = outputs_of(entries)
        kept = referenced(cells, 2)
        path = [e[0] for e in entries[1:]]
        end = path[-1].end(tuple(kept))
        inputs = self.inputs[: entries[-1][2]]
        make = functools.partial(self._program, path, inputs, [], kept, [], None)
        program = end.due(make, self.is_known)
        if program is None:
            self.why = end.reason
            return False
        found = self._bind(end, program, inputs)
        if found is None:
            return False
        self._fill(entries, cells, kept, found)
        self._succeeded()
        return True

    def _succeeded(self) -> None:
        root = self.chain.root
        root.failures = 0
        if root.function is not None:
            tree.functions.add(root.function)
        tree.hits += 1
        self._note("run one by one" if root.due > root.begun else "replayed")

    def _note(self, what: str) -> None:
        """Log how it ended, for `explain`."""
        root = self.chain.root
        if root.due > root.begun:
            what += f"; long, compiled from call {root.due} on"
        note(self.root.name, len(self.entries) - 1, what)

    def _bind(
        self, end: End, program: Program, inputs: Sequence[Input], more: Sequence[Any] = ()
    ) -> Any:
        """Run a program of the inputs, and ``more``, one level down; None if it fails."""
        try:
            found = bind(program, [*[p for given in inputs for p in given.parts], *more])
        except Exception as error:  # of any kind: recording raises it again, or succeeds
            end.fail(error)
            return None
        if program.is_pending:
            self.chain.root.pending = program
        return found

    def _program(
        self,
        path: Sequence[State],
        inputs: Sequence[Input],
        ends: Sequence[int],
        kept: Sequence[int],
        variables: Sequence[int],
        pull: Pull | None,
    ) -> Program:
        """The operations of a trace, and ``pull``, as a function of the parts of its inputs.

        It returns the result of ``pull``, and then the parts of the outputs that are kept.
        """
        compute = computation_of(path, inputs)
        maker = self.maker

        def run(*parts: Any) -> Any:
            with maker() as own:
                given, cells = compute(own, parts)
                found: Any = ()
                if pull is not None:
                    inside = [given[k] for k in variables]
                    values = [x._value for x in inside]
                    found = tuple(pull(own, [cells[k] for k in ends], inside, values))
                values = [p for k in kept for p in own.parts(cells[k])]
                return values if pull is None else (found, tuple(values))

        return Program(self.root.name, run, path[-1].work)

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
            if self.busy or self.done or not outs or not self._is_as_it_was():
                return None
            entries = self.entries[:]
            if len(entries) == 1:
                return None
            last = entries[-1][0]
            inputs = self.inputs[: entries[-1][2]]
            ends = []
            for o in outs:
                lazy = o._lazy if type(o) is Tensor else None
                if lazy is None or lazy.trace is not self:
                    return None
                ends.append(lazy.place)
            variables = [k for k, given in enumerate(inputs) if given.layout is True]
            arguments = [inputs[k].argument for k in variables]
            long = bool(self.chain.segments)
            ends_at = self.leaves() if long else arguments
            if leaves is not None and [*map(id, leaves)] != [*map(id, ends_at)]:
                return None
            if not all(map(is_untouched, arguments)) or (long and static):
                return None
            cells = outputs_of(entries)
            outs.clear()
            o = lazy = None
            kept = referenced(cells, 2)
            outs += [cells[k] for k in ends]
            if values:
                kept = sorted({*kept, *ends})
            path = [e[0] for e in entries[1:]]
            end = last.end((tuple(kept), tuple(ends), tuple(variables), *static))
            fresh = end.program is None
            make = functools.partial(self._program, path, inputs, ends, kept, variables, pull)
            root = self.chain.root
            program = end.always(make, root.is_due) if long else end.due(make, self.is_known)
            if program is None:
                self.why = end.reason
                return None
            if fresh:
                end.passed = passed_of(path, ends)
            found = self._bind(end, program, inputs)
            if found is None:
                return None
            grads, rest = program.unflatten(found)
            if long:
                arrived = {id(a): g for a, g in zip(arguments, grads, strict=True) if g is not None}
                if not pull_through(self.chain, arrived):
                    return None
                grads = [arrived.get(id(a)) for a in ends_at]
            done = self.done
            self._detach()
            if done or len(self.entries) != len(entries):
                return (
                    None  # a finalizer has read or appended something: the whole trace is recorded
                )
            tracked: dict[int, weakref.ref[Tensor]] = {}
            for k, value in zip(kept, rest, strict=True):
                t = cells[k]
                t._value, t._aux = value, None
                if t._requires_grad:
                    tracked[k] = weakref.ref(t)
                else:
                    t._node = t._lazy = None
            self.kept, self.ran = tracked, (ends, frees)
            self._succeeded()
            self.scalars, self.places = [], {}
            # The outputs that are not kept are freed now, and the others when nothing refers to them.
            self.entries = [(e[0], None, e[2]) for e in entries]
            if not tracked and not (long and self._has_referenced_segments()):
                self._forget()
                self._forget_segments()
            elif frees and not long and end.passed.issuperset(tracked):
                # Their nodes are freed, or have saved nothing: no value of an input is read any more.
                self.inputs = [
                    given._replace(argument=given.argument if k in variables else None, parts=())
                    for k, given in enumerate(inputs)
                ]
            return list(grads)

    def _is_as_it_was(self) -> bool:
        """Whether modes and settings are those in which it was made, and no input has changed."""
        for given in self.inputs:
            a = given.argument
            if type(a) is Tensor and a.meta is not None and a.meta.storage.version != given.version:
                return False
        return (
            is_unobserved()
            and state.watermark == self.watermark
            and state.base_watermark == self.base_watermark
            and self.context == trace_context()
        )
