"""Traces: what a transform or a step of the eager tape does, run as programs where it repeats.

NOTE [traces]

    gradient = fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))
    for _ in range(4):
        gradient(x)     # 3 operations forward and 3 backward: soon, one call of XLA

Eager code makes a node, or a derived operation, for each operation at each level of nesting. But a function
that is called again mostly does the same again. So its operations are first only appended to a buffer: an
output has its shape, dtype and level, and no value and no node yet. Then the buffer is *flushed*: if the same
operations have been flushed before, they run as one program (`fad.replay.program`), bound one level down,
and its outputs have one node, where the level records (NOTE [nodes of programs]). If not, they are recorded
one by one, as they would have been at once, and the rest of the function is not deferred. A buffer is flushed

* where a backward pass begins: `Trace.finish` computes forward and backward pass in one program, if all of
  the function is in the buffer;
* where a value or a node is read; and where it has become long (NOTE [segments]). The trace goes on then;
* at the exit of the level, as far as its outputs are still referenced;
* before a mode or the state of a Tensor changes, a Function or a hook is called, or another thread reads: it
  is recorded one by one then.

An operation is appended only if its outputs are known from abstract evaluation (`fad.replay.outcomes`): its
errors are raised where it is called. It is a pure Primitive, of small arrays. Inputs are used as they were at
capture, in the grad mode of that time.

Guards: Python runs on each call; operations are compared by identity, inputs by aval, level and layout. What
was appended is a path in a tree of all paths so far (`fad.replay.states`): to append is one look-up.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.level import Level, state
from fad.core.primitive import Primitive, VjpPlan
from fad.core.replay_protocol import Pull
from fad.core.tensor import Tensor
from fad.core.types import Operand, Outputs, PyTree, Value
from fad.replay.inputs import is_untouched, look, outer_level_defers
from fad.replay.policy import at_once, is_step_due
from fad.replay.program_node import fill, parts_of
from fad.replay.settings import settings_number
from fad.replay.states import referenced, root_of, tree
from fad.replay.stretch import Cells, Places, Stretch
from fad.replay.writes import Writes
from fad.tape.anomaly import mode as anomaly
from fad.tape.recorder import ROOT
from fad.tape.saved import UNCHANGED


class Trace(Writes):
    """A buffer with what empties it: reads, flushes, the end of its level or step."""

    def leaves(self) -> list[Tensor]:
        """The inputs that require grad at the level of the trace."""
        return [given.argument for given in self.inputs if given.layout is True]

    # Reading

    def get(self, t: Tensor, name: str) -> Any:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            if t._lazy is None:  # another thread has read it
                return getattr(t, name)
            if self.busy and self.thread_state is state.__dict__:
                # A finalizer reads, while operations are appended or run: nothing is changed.
                cells = Stretch.of(self).record([None] * self.path[-1].size)
                return getattr(cells[t._lazy.place], name)
            if t._level.id != self.level.id and name == "_value":
                return self.read(t)
            if self._can_flush() and self.flush(too_long=False):
                if self.level is ROOT and name == "_node":  # a backward pass begins: a step ends
                    self.close()
            else:
                self.materialize()
        return getattr(t, name)

    def _can_flush(self) -> bool:
        """Whether a read of a value ends a stretch, and the trace goes on after it."""
        if not self.level.wraps or self.is_new or self.busy or self.why or not self._goes_on():
            return False  # where nothing is recorded, `materialize` runs the program too
        # else an outer transform would sum gradients in another order
        arrays = [type(p) is jaxapi.array_type for given in self.inputs for p in given.parts]
        return all(arrays) and not jaxapi.is_tracing()

    # Running as one program

    def flush(self, too_long: bool) -> bool:
        """Give all outputs that are referenced their values, and go on; False if nothing more is appended.

        It is called where `_goes_on`. ``too_long``: because of its length, not because something is read.
        """
        with self.lock:
            if self.busy or self.done:
                return False
            if len(self.path) == 1:  # a finalizer has read it
                return True
            self.busy = True
            try:
                self.detach_stale(())
                if self.inputs_changed():
                    return False
                last = self.path[-1]
                if too_long:
                    self.root.cut()  # the next one, from its beginning
                if self._replay(Stretch.of(self), self.kept(), long=True) is None:
                    self._record()
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
        leaves: Sequence[Tensor],
        values: bool = False,
        frees: bool = True,
    ) -> list[Value] | None:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            if self.busy:
                return None
            if len(self.path) == 1 and self.level is ROOT:  # a step ends, all of which has run
                self.close()
                return None
            self.busy = True
            try:
                self.detach_stale(())
                if not outs or not self._goes_on() or self.inputs_changed():
                    return None
                ends = tuple([self._place_of(o) for o in outs])
                if None in ends or [*map(id, leaves)] != [*map(id, self.leaves())]:
                    return None
                outs.clear()  # `kept` counts references: those of the user alone may be left
                kept = self.kept()
                outs += [self.outputs[k] for k in ends]
                if values:
                    kept = tuple(sorted({*kept, *ends}))
                stretch = Stretch.of(self)
                variables = stretch.variables

                def after(own: Level, given: Cells, cells: Cells) -> Sequence[Value]:
                    inside = [given[k] for k in variables]
                    values = [x._value for x in inside]
                    return pull(own, [cells[k] for k in ends], inside, values)

                key = (ends, *static)
                found = self._replay(stretch, kept, key, after, freed=ends if frees else ())
                if found is not None:
                    self._detach()
                    self._succeeded()
                    self._empty()
                return found
            finally:
                self.busy = False

    def _place_of(self, o: Any) -> Any:
        """The place of an output of the function; None if it is none of the trace."""
        lazy = o._lazy if type(o) is Tensor and o._level is self.level else None
        return lazy.place if lazy is not None and lazy.trace is self else None

    def _replay(
        self,
        stretch: Stretch,
        kept: Places,
        key: tuple[Hashable, ...] = (),
        after: Callable[[Level, Cells, Cells], Sequence[Value]] = lambda *_: (),
        freed: Places = (),
        long: bool = False,
    ) -> list[Value] | None:
        """Give the outputs that are ``kept`` their values by one program, one level down.

        Returns what the program returns of ``after``, a backward pass of which ``key`` tells all, which has
        ``freed`` these outputs; None if there is no program. ``long``: it is one of several segments.
        """
        path, policy = stretch.path, self.policy
        if not key and not long and len(path) == 1 and type(path[0].op) is Primitive:
            return None  # one operation is one program in any case
        if self.level.wraps and not all(map(is_untouched, self.leaves())):
            return None
        if self.saves_stale(stretch):
            return None
        self.detach_stale([self.outputs[k] for k in kept])

        def finish(own: Level, given: Cells, cells: Cells, _: Sequence[Operand]) -> PyTree:
            found = tuple(after(own, given, cells))
            return found, tuple([p for k in kept for p in own.parts(cells[k])])

        ending = path[-1].ending((key, long, *kept))
        program = ending.program or policy.program(
            ending,
            path,
            lambda: stretch.program(finish),
            now=outer_level_defers(stretch.inputs),
            new=self.level is not ROOT,
            long=long,
        )
        if isinstance(program, str):
            self.why = program
            return None
        parts = stretch.parts = parts_of(stretch.inputs, self.on_values)
        if not policy.have_ready(program, parts):
            self.why = "its program is being compiled"
            return None
        try:
            found, computed = program(parts)
        except Exception as error:  # of any kind: recording raises it again, or succeeds
            ending.fail(error)
            return None
        tree.hits += 1
        fill(self, stretch, kept, computed, freed)
        return list(found)

    # The end

    def materialize(self) -> None:
        """Record every output, one by one, and append nothing more.

        If that is being done already, it is done again: a finalizer may change a mode in the middle.
        """
        with self.lock:
            in_its_modes = self._goes_on() and not jaxapi.is_tracing()
            self._detach()
            if len(self.path) == 1:
                return
            self.why = self.why or "a value or a node was read"
            stretch = Stretch.of(self)

            def replay() -> list[Value] | None:
                return self._replay(stretch, self.kept())

            found = None
            if not (self.level.wraps or self.busy):
                found = replay() if in_its_modes else stretch.in_its_modes(replay)
            if found is not None:
                self._succeeded()
            else:
                self._note(f"recorded: {self.why}")
                self._record()
            if not self.busy:  # else a call of `append` still uses them
                self._empty()

    def close(self) -> None:
        """Append nothing more: what is referenced gets its value, all else is dropped.

        Called at the exit of the level, and where a step ends that has been flushed.
        """
        with self.lock:
            done = self.done
            self._detach()
            if done:
                return
            if self.busy or referenced(self.outputs):
                return self.materialize()
            if self.ended:
                self._succeeded()
            self._empty()

    def _detach(self) -> None:
        """Nothing more is appended."""
        self.done = True
        if not self.is_new:  # else it may have ended in the middle of the function
            self.policy.decide(self.path[-1], self.ended)
        if self.level is ROOT:
            if self.thread_state.get("trace") is self:
                self.thread_state["trace"] = None
        elif self.level.trace is self:
            self.level.trace = None

    def _record(self) -> None:
        """Record every operation, one by one."""
        self.detach_stale(self.outputs)
        Stretch.of(self).record(self.outputs)

    def _succeeded(self) -> None:
        self.policy.failures = 0
        self._note(f"recorded: {self.slow}" if self.slow else "replayed")

    def _note(self, what: str) -> None:
        """Log how it ended, with all of its segments."""
        policy, ended = self.policy, list(self.ended.items())
        count = sum([s.work * n for s, n in ended], len(self.path) - 1)
        segments = sum([n for _, n in ended]) + (len(self.path) > 1)
        if segments > 1 and what == "replayed":
            what += f", in {segments} segments"
        if policy.due > policy.begun:
            what += f"; long, compiled from call {policy.due} on"
        tree.note(self.name, count, what)

    def _empty(self) -> None:
        """Forget what has run; what comes after it is a segment."""
        self.update_stale()
        root = root_of(("a segment", *self.key), None, "")
        root.is_cut = True
        self.begin(root)


# Where traces begin: with a transform, or with a step of the eager tape


def open_trace(level: Any, inputs: Sequence[Value], function: Callable[..., PyTree] | None) -> None:
    """Give ``level`` a trace of ``function`` on ``inputs``, if such traces repeat."""
    found = [look(x, level) for x in inputs]
    if None in found:
        return
    codes = _codes(function)
    around = tuple([own.key() for own in state.levels if own is not level])
    key = (*map(id, codes), around, level.key(), *[given.code for given in found if given])
    name = getattr(function, "__name__", "a function")
    trace = _begun(level, key, codes, name, len(found))
    if trace is not None:
        trace.around = around
        trace.is_new = trace.policy.begun == 1 and not at_once
        for given in found:
            trace.add(given)  # type: ignore[arg-type]
        level.trace = trace


def open_step(op: Primitive, args: Sequence[Operand], plan: VjpPlan) -> Outputs:
    """Begin a trace of the eager tape, of which this is the first operation; None if that cannot be.

    Steps begin with operations on leaves, or on outputs of programs; another operation on what has a node is
    in the middle of one. If the operation repeats, the step may do so.
    """
    after = False
    for a in args:
        if isinstance(a, Tensor) and a._requires_grad and a._node is not None:
            if not a._node.is_program:
                return None
            after = True
    if not after and not is_step_due(plan.id):
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
    context = jaxapi.trace_context()
    settings = settings_number(context)
    root = root_of((settings, *key), code, name, taken) if settings else None
    if root is None or root.policy.backs_off():
        return None
    return Trace(level, root, context, settings)


def _codes(function: Any) -> list[object]:
    """The code of a function, and of those that it wraps; the class of what is no function."""
    found: list[object] = []
    while function is not None and len(found) < 8:
        plain = type(function) is types.FunctionType
        found.append(function.__code__ if plain else type(function))
        function = getattr(function, "__wrapped__", None) if plain else None
    return found
