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

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.jaxapi import array_type
from fad.core.level import bind, state
from fad.core.primitive import Primitive
from fad.core.replay_protocol import Pull
from fad.core.tensor import Tensor, take_over
from fad.core.types import Outputs, Value
from fad.replay import untracked
from fad.replay.entries import origin_of, referenced
from fad.replay.inputs import is_untouched, outer_level_defers
from fad.replay.log import note_trace
from fad.replay.policy import Ending
from fad.replay.program import Program
from fad.replay.program_node import ProgramNode, parts_of, release
from fad.replay.states import segment_of, tree
from fad.replay.stretch import Stretch
from fad.replay.writes import Writes
from fad.tape.recorder import ROOT

__all__ = ["Trace"]


class Trace(Writes):
    """A buffer with what empties it: reads, flushes, the end of its level or step."""

    __slots__ = ()

    def leaves(self) -> list[Tensor]:
        """The inputs that require grad at the level of the trace."""
        return [given.argument for given in self.inputs if given.layout is True]

    # Reading

    def get(self, t: Tensor, name: str) -> Any:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            if t._lazy is None:  # another thread has read it
                return object.__getattribute__(t, name)
            if self.busy and self.thread_state is state.__dict__:
                return self._evaluated_apart(t, name)
            if t._level.id != self.level.id and name == "_value":
                return untracked.read(self, t)
            if self._can_flush() and self.flush(too_long=False):
                if self.level is ROOT and name == "_node":  # a backward pass begins: a step ends
                    self.close()
            else:
                self.materialize()
            if t._lazy is not None:
                return t._lazy.trace.get(t, name)
        return object.__getattribute__(t, name)

    def _evaluated_apart(self, t: Tensor, name: str) -> Any:
        """What a finalizer reads while operations are appended or run: nothing is changed."""
        stretch = Stretch(self)
        outputs: list[Tensor | None] = [None] * stretch.path[-1].size
        return getattr(stretch.record(outputs)[t._lazy.place], name)  # type: ignore[union-attr]

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
        """Give all outputs that are referenced their values, and go on; False if nothing more is appended.

        ``too_long``: because of its length, not because something is read.
        """
        with self.lock:
            if self.busy or self.done:
                return False
            if len(self.path) == 1:  # a finalizer has read it
                return True
            self.busy = True
            try:
                self.detach_stale(())
                if not self._is_as_it_was():
                    return False
                root, last = self.path[0], self.path[-1]
                if too_long and not root.is_cut:  # type: ignore[attr-defined]
                    root.cut()  # type: ignore[attr-defined]  # the next one, from its beginning
                if not self._replay(segment=True):
                    self._record()
                    self.slow, self.why = self.why, ""  # the trace goes on
                self.ended[last] = self.ended.get(last, 0) + 1
                self._empty()
                return not self.done
            finally:
                self.busy = False

    def _replay(self, segment: bool = False) -> bool:
        """Give the outputs that are referenced their values by one program; False if there is none."""
        stretch = Stretch(self)
        path = stretch.path
        if not segment and len(path) == 1 and type(path[0].op) is Primitive:
            return False  # one operation is one program in any case
        variables = [stretch.inputs[k].argument for k in stretch.variables]
        if self.level.wraps and not all(map(is_untouched, variables)):
            return False
        if self.saves_stale(stretch):
            return False
        kept = untracked.kept_by(self)
        self.detach_stale([self.outputs[k] for k in kept])
        ran = self._run(stretch, path[-1].ending((segment, *kept)), kept, long=segment)
        if ran is None:
            return False
        self._fill(stretch, kept, ran[1])
        return True

    def _run(
        self,
        stretch: Stretch,
        ending: Ending,
        kept: Sequence[int],
        *pulled: Any,
        long: bool = False,
    ) -> tuple[Program, Outputs] | None:
        """Run operations as one program, one level down: it, and its results; None if there is none.

        ``kept`` and ``pulled`` are those of `Stretch.program`. ``long``: it is one of several segments.
        """
        policy = self.policy
        make = functools.partial(stretch.program, kept, *pulled)
        program = policy.program(
            ending,
            stretch.path,
            make,
            now=outer_level_defers(stretch.inputs),
            new=self.level is not ROOT,
            long=long,
        )
        if program is None:
            self.why = f"it failed: {ending.refused}" if ending.refused else "it is new"
            return None
        values = parts_of(stretch.inputs, self.on_values)
        if not policy.have_ready(program, values):
            self.why = "its program is being compiled"
            return None
        try:
            found = bind(program, values)
        except Exception as error:  # of any kind: recording raises it again, or succeeds
            ending.fail(error)
            return None
        tree.hits += 1
        return program, found

    def _fill(
        self,
        stretch: Stretch,
        kept: Sequence[int],
        values: Iterable[Value],
        freed: Sequence[int] | None = None,
    ) -> None:
        """Give outputs the ``values`` that a program has computed, and where they require grad its node.

        ``freed``: the outputs from which a backward pass has freed it; None if there was none.
        """
        outputs = self.outputs
        level, rest = self.level, iter(values)
        nodes = [k for k in kept if outputs[k]._requires_grad]
        node = ProgramNode(self, stretch, nodes, [outputs[k] for k in nodes]) if nodes else None
        for k in kept:
            at = origin_of(stretch.path, k)
            nr = k - at.first
            layout, t = at.layouts[nr], outputs[k]
            o = level.from_parts([next(rest) for _ in range(level.part_count(layout))], layout)
            if at.requires_grad[nr]:
                o._requires_grad, o._node, o._output_nr = True, node, nodes.index(k)
            take_over(t, o)
        if not freed:
            return
        if node is not None:
            node.free(stretch, freed, stretch.variables)
        nodes_alone = {outputs[k]._node for k in freed if outputs[k]._lazy is None} - {node, None}
        if nodes_alone:  # of operations: a finalizer has looked at one in the middle of the pass
            release(nodes_alone, [stretch.inputs[k].argument for k in stretch.variables])

    def _empty(self) -> None:
        """Forget what has run; what comes after it is a segment."""
        self.update_stale()
        self.begin(segment_of(self.key))

    # The end

    def materialize(self) -> None:
        """Record every output, one by one, and append nothing more.

        If that is being done already, it is done again: a finalizer may change a mode in the middle.
        """
        with self.lock:
            self._detach()
            if len(self.path) > 1:
                self.why = self.why or "a value or a node was read"
                self._materialize()

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

    def _materialize(self) -> None:
        if self.level.wraps or self.busy or not Stretch(self).in_its_modes(self._replay):
            note_trace(self, f"recorded: {self.why}")
            self._record()
        else:
            self._succeeded()
        if not self.busy:  # else a call of `append` still uses them
            self._empty()

    def _record(self) -> None:
        """Record every operation, one by one."""
        self.detach_stale(self.outputs)
        Stretch(self).record(self.outputs)

    def _succeeded(self) -> None:
        self.policy.failures = 0
        note_trace(self, f"recorded: {self.slow}" if self.slow else "replayed")

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
                self.materialize()
            else:
                if self.ended:
                    self._succeeded()
                self._empty()

    # With the backward pass

    def finish(
        self,
        outs: list[Tensor],
        pull: Pull,
        *static: Hashable,
        leaves: Sequence[Tensor],
        values: bool = False,
        frees: bool = True,
    ) -> list[Value] | None:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            self.detach_stale(())
            if self.busy:
                return None
            if len(self.path) == 1 and self.level is ROOT:  # a step ends, all of which has run
                self.close()
                return None
            self.busy = True
            try:
                if not outs or not self._is_as_it_was():
                    return None
                return self._finish(outs, pull, static, leaves, values, frees)
            finally:
                self.busy = False

    def _finish(
        self,
        outs: list[Any],
        pull: Pull,
        static: Sequence[Hashable],
        leaves: Sequence[Tensor],
        values: bool,
        frees: bool,
    ) -> list[Value] | None:
        ends = []
        for o in outs:
            lazy = o._lazy if type(o) is Tensor and o._level is self.level else None
            if lazy is None or lazy.trace is not self:
                return None
            ends.append(int(lazy.place))
        stretch = Stretch(self)
        variables = stretch.variables
        arguments = [stretch.inputs[k].argument for k in variables]
        if [*map(id, leaves)] != [*map(id, arguments)] or not all(map(is_untouched, arguments)):
            return None
        if self.saves_stale(stretch):
            return None
        outs.clear()  # `kept_by` counts references: those of the user alone may be left
        o = lazy = None
        cells = self.outputs
        kept = untracked.kept_by(self)
        outs += [cells[k] for k in ends]
        if values:
            kept = sorted({*kept, *ends})
        self.detach_stale([cells[k] for k in kept])
        ending = stretch.path[-1].ending((tuple(kept), tuple(ends), tuple(variables), *static))
        ran = self._run(stretch, ending, kept, ends, variables, pull)
        if ran is None:
            return None
        grads, rest = ran[0].unflatten(ran[1])
        self._fill(stretch, kept, rest, ends if frees else None)
        self._detach()
        self._succeeded()
        self._empty()
        return list(grads)

    def _is_as_it_was(self) -> bool:
        """Whether modes and settings are those in which it was made, and no input has changed."""
        return self._goes_on() and not self.inputs_changed()
