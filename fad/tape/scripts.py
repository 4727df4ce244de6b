"""Scripts: what comes back, a function in a reverse transform or a step of the tape, runs as one operation.

NOTE [scripts]

Eager code inside of `fad.grad` costs the making of a node for each operation, at each level of nesting.
But a function that is called again and again mostly does the same again. So its operations are first only
written down: a Tensor that comes out of one has its shape, dtype and level, and no value and no node yet.
When the function has returned, and has done exactly this before, then all of it, its forward operations
and the backward pass, is one Primitive of its inputs and of what else it met (`operands`), bound one level
down. Outer transforms see that one operation, with derived rules as any other's. What such a Primitive runs,
once, under a JAX trace, is the recorder and the engine themselves: the numbers are those of any other way.

Whenever anything is asked that is not known yet, the script is *played*: its operations are recorded as
they would have been at once, in their order, and the rest of the function goes the usual way. So

* an operation is written down only if it has been recorded with the same avals before, as its errors are
  said there and then; only Primitives that may wait (see `fad.runs`) are, on small arrays;
* reading a value, a node, hooks, writes in place, Functions, anomaly mode, hooks for saved values, `no_grad`,
  settings of JAX, another thread: each plays the script first. Missing slots of a Tensor find their
  way here by themselves (`Tensor.__getattr__`), what changes a Tensor in place asks for it (`settle_levels`);
* what the function leaves behind elsewhere (a list, its aux) gets its value as a result of the Primitive. Its
  node is made when somebody asks for it: the script is played then, and what the backward pass went
  through is freed, as it would have been;
* who plays a script sees what its operands were when they were met, and the grad mode that it was written in.

On the tape a script begins with an operation on leaves with which graphs have begun that came back again
and again (`VjpPlan.starts`), and ends with `backward`, or `fad.autograd.grad` of all of them. Until then, or
until it is played, it holds on to what it has met: leaves of a step that nobody asks for live until the
thread does something else.

A script is a path in a tree of all that was written down so far, from a root for the avals of the inputs
(`fad.tape.paths`): to go on costs one look into a dict, and the state at the end knows the Primitive. Most
calls do what was done the last time: `bind`, and the functions of `fad.namespace`, ask the script of a cell
that they are given (`Script.follow`), which compares the arguments with those that it expects, by their
ids. It is asked before anybody has looked at levels and views, so it looks for itself: what is of an inner
level, or behind what it is a view of, goes the usual way.
Functions whose scripts come to nothing are written down more and more rarely.
"""

from __future__ import annotations

import threading
import time
import types
import weakref
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad import jaxapi, runs
from fad.avals import SCALARS, constant
from fad.dispatch import below, bodies, state, undisturbed
from fad.jaxapi import array_type, debug_infs, debug_nans, trace_context, x64_enabled
from fad.primitive import Primitive
from fad.runs import aval_number
from fad.structures import budget, held, places_of_held
from fad.tape import paths
from fad.tape.anomaly import mode as anomaly
from fad.tape.operands import NEW, Operand, as_met, is_behind, is_untouched, known_aval, look
from fad.tape.paths import End, Pull, Root, State, grow, passed_of, program_of, root_of
from fad.tape.record import ROOT, GradLevel, PrimitiveNode, RootLevel
from fad.tensor import Tensor, blank_tensor

__all__ = ["Script", "begin"]

LONGEST = 512  # operations in a script
SAVED_PER_STEP = 15e-6  # seconds that a script which is one operation saves, for each of its own


def begin(level: GradLevel, variables: Sequence[Tensor], f: Any) -> Script | None:
    """Write down what ``f`` does with ``variables``, the inputs of ``level``; None if that cannot be."""
    context, settings = _surroundings()
    if not settings:
        return None
    avals = []
    for v in variables:
        aval = known_aval(v._value)
        if aval is None:
            return None
        avals.append(aval)
    code = f.__code__ if type(f) is types.FunctionType else type(f)
    root = root_of((settings, id(code), *map(aval_number, avals)), code)
    if root.rests():
        return None
    script = level.script = Script(level, root, context, settings)
    for v, aval in zip(variables, avals, strict=True):
        script.begin(v, aval)
    return script


def _begin_step(op: Primitive, args: Sequence[Any], plan: Any) -> Any:
    """Write down a step of the eager tape, of which this is the first operation; None if that cannot be."""
    for a in args:
        if isinstance(a, Tensor) and a._requires_grad and a._node is not None:
            return None  # in the middle of a step
    context, settings = _surroundings()
    root = root_of((settings, plan)) if settings else None
    if root is None or root.rests():
        return None
    runs.begin()
    script = state.script = Script(ROOT, root, context, settings)
    return script.write(op, args)


RootLevel.begin_step = staticmethod(_begin_step)


def _surroundings() -> tuple[Any, int]:
    """The context of JAX and the number of its settings; the number is 0 where nothing is written down."""
    if not state.compiling or not _quiet() or jaxapi.is_tracing():
        return None, 0
    context = trace_context()
    return context, runs.settings_number(context)


def _quiet() -> bool:
    """Whether nothing that looks at each operation is on."""
    return not (
        anomaly.watch or state.saved_hooks or state.inference is not None or jaxapi.checks_numbers()
    )


class Script:
    """What the function of one reverse transform, or one step of the eager tape, has done so far.

    ``met`` are its operands; those that require grad at ``level`` are the inputs of the transform, which
    come first, or leaves on the tape. ``cells`` are the outputs, in order; ``places`` finds operands and
    outputs by their `id`. ``blocked`` and ``floor`` are the grad mode in which it is written, ``modes``
    all modes of the thread that writes it.
    ``done``: nothing more is written. ``played``: how many operations have been recorded since.
    ``ran``: it has run as one operation; with the numbers of the outputs that the backward pass went out
    from, and whether it frees what it goes through. ``kept`` are then the cells that somebody holds.

    An interrupt may come between any two lines: what it leaves behind is noticed by the state's ``size``. The
    lock is for other threads that read a cell. The thread itself may come back in the middle, by a finalizer.
    """

    __slots__ = (
        "blocked",
        "cells",
        "context",
        "done",
        "floor",
        "kept",
        "level",
        "lock",
        "met",
        "modes",
        "path",
        "places",
        "played",
        "playing",
        "ran",
        "root",
        "scalars",
        "settings",
        "state",
    )

    def __init__(self, level: GradLevel, root: Root, context: Any, settings: int) -> None:
        self.level = level
        self.modes = state.__dict__
        self.context = context
        self.settings = settings
        self.blocked = state.blocked
        self.floor = state.floor
        self.root = root
        self.state: State = root
        self.path: list[State] = []
        self.cells: list[Tensor] = []
        self.met: list[Operand] = []
        self.scalars: list[Any] = []  # so that their ids stay their own
        self.places: dict[int, int] = {}
        self.lock = threading.RLock()
        self.done = False
        self.playing = False
        self.played = 0
        self.ran: tuple[list[int], bool] | None = None
        self.kept: dict[int, weakref.ref[Tensor]] = {}

    # Writing down

    def write(self, op: Any, args: Sequence[Any]) -> Any:
        """The outputs of an operation that is written down; None if it cannot be, and all is played."""
        if self.done:
            if state.script is self and not self.playing:
                state.script = None
            return None
        with self.lock:
            out = self._write(op, args) if self._may_write(op) else None
            if out is None:
                self.play()
            return out

    def _may_write(self, op: Any) -> bool:
        return (
            type(op) is Primitive
            and op.lazy
            and not op.collective
            and len(self.path) < LONGEST
            and self._goes_on()
        )

    def _goes_on(self) -> bool:
        """Whether this thread still writes it, in the modes and settings in which it has begun."""
        modes = state.__dict__
        get = modes.get  # a name that is not there has its default
        return (
            not self.done
            and get("blocked", -1) == self.blocked
            and get("floor", -1) == self.floor
            and not get("saved_hooks")
            and get("inference") is None
            and get("compiling", True)
            and not anomaly.watch
            and not bodies.traced
            and modes is self.modes
            and self.context == trace_context()
            and not (debug_nans.value or debug_infs.value)
        )

    def follow(self, op: Any, args: Sequence[Any]) -> Any:
        """`write`, if the operation is the one that came next the last time; else None, with nothing done."""
        before = self.state
        step = before.likely
        if step is None or step.op is not op or len(args) != len(step.refs):
            return None
        level = self.level
        if (state.script if level is ROOT else level.script) is not self or not self._goes_on():
            return None
        places, cells, path, count = self.places, self.cells, self.path, len(self.met)
        fresh: list[Operand] | None = None
        for a, place, mark in zip(args, step.refs, step.marks):
            known = places.get(id(a))
            if known != place:
                if known is not None or not mark or is_behind(a):
                    return None
                if fresh is None:
                    fresh = []
                elif any([f[0] is a for f in fresh]):
                    return None
                found = look(a, level)
                if found is None or found[4] != mark or ~place != count + len(fresh):
                    return None
                fresh.append(found)
        out = blank_tensor(level, step.avals[0], self, step.tracked[0], 0)
        at = id(out)
        if fresh is not None:
            with self.lock:
                if self.done or len(self.met) != count or self.state is not before:
                    return None  # a finalizer has written or read something
                for found in fresh:
                    self._meet(found)
            if self.state is not before:  # a finalizer again
                self.play()
        if len(cells) != before.size:
            return None  # an interrupt has come before

        # Here, finalizers get no turn: nothing is called, and no object made that is collected.
        if self.done or self.state is not before:
            return None
        places[at] = before.size
        cells.append(out)

        # Now one that writes finds too many cells, and plays. Another thread may do so at any line: it finds
        # the operation with all that it needs, or does not find it, and then it is not written down.
        path.append(step)
        self.state = step
        return None if self.done else out

    def _write(self, op: Primitive, args: Sequence[Any]) -> Any:
        before = self.state
        places, met = self.places, self.met
        key: list[Any] = [op]
        for a in args:
            place = places.get(id(a))
            if place is None:
                count = len(met)
                place = self._take(a)
                if place is None or self.done:
                    return None
                if ~place >= count:
                    key.append(met[~place][4])
            key.append(place)
        if self.state is not before:
            return None  # a finalizer has written or read something
        at = tuple(key)
        step = before.next.get(at)
        if step is None:
            step = self._learn(before, op, args, at)
            if step is None:
                return None
        cells, level = self.cells, self.level
        if step.single:
            out: Any = blank_tensor(level, step.avals[0], self, step.tracked[0], 0)
            outs: tuple[Any, ...] = (out,)
        else:
            pairs = enumerate(zip(step.avals, step.tracked))
            out = outs = tuple([blank_tensor(level, a, self, t, k) for k, (a, t) in pairs])
        path, size = self.path, before.size
        added = {id(t): size + k for k, t in enumerate(outs)}
        places, steps = self.places, [step]
        if len(cells) != size:
            return None  # an interrupt

        # Here, finalizers get no turn, as in `follow`.
        if self.done or self.state is not before:
            return None
        places |= added
        cells += outs
        path += steps
        self.state = step

        before.likely = step if step.single else None
        return out

    def _take(self, a: Any) -> int | None:
        """The place of an argument that was not met before; None if nothing can be known of it."""
        if type(a) in SCALARS:
            place = self.places.get(id(constant(a)))
            if place is not None:
                self.scalars.append(a)
                self.places[id(a)] = place
                return place
        elif isinstance(a, np.ndarray):
            a = jnp.array(a)  # it may be changed before it is used again
        found = look(a, self.level)
        return None if found is None else self._meet(found)

    def _meet(self, operand: Operand) -> int:
        """The place of an operand that is new."""
        a, value, _, _, mark = operand
        place = ~len(self.met)
        self.met.append(operand)
        self.places[id(a)] = place
        if not mark & 1:
            self.places[id(value)] = place
        return place

    def begin(self, variable: Tensor, aval: Any) -> None:
        """Meet an input of the transform."""
        self._meet((variable, variable._value, aval, 0, NEW + 16 * aval_number(aval) + 1))

    def _tracks(self, a: Any) -> bool:
        """Whether an operand requires grad at the level of the script."""
        return type(a) is Tensor and a._level is self.level and a._requires_grad

    def leaves(self) -> list[Tensor]:
        """The operands that require grad at the level of the script."""
        return [m[0] for m in self.met if m[4] & 1]

    def _learn(
        self, before: State, op: Primitive, args: Sequence[Any], at: tuple[Any, ...]
    ) -> State | None:
        """The state after an operation that never came next before; None if it was not seen before."""
        refs = tuple([r for r in at[1:] if r < NEW])
        marks = tuple(
            [m if k and m >= NEW else 0 for k, m in enumerate(at[:-1]) if at[k + 1] < NEW]
        )
        avals, mask, key = [], [], []
        numbers = False
        for a, r in zip(args, refs, strict=True):
            if r >= 0:
                aval, tracked = self.level.aval(self.cells[r]), self.cells[r]._requires_grad
            else:
                aval, tracked = self.met[~r][2], self._tracks(self.met[~r][0])
            number = type(a) in SCALARS
            numbers = numbers or number
            avals.append(aval)
            mask.append(tracked)
            key.append(type(a) if number else aval)
        if numbers:
            key.insert(0, x64_enabled())
        if any(mask):
            plan = op.known_plan(tuple(mask), tuple(key))
            if plan is None or plan.differentiable is None or plan.out_avals is None:
                return None
            outs, single, tracks = plan.out_avals, plan.single, plan.differentiable
            routed: Sequence[bool] = plan.routed
        else:
            found = op.shapes.get((self.settings, *avals))
            if not found:
                return None
            single = type(found) is not tuple
            outs = (found,) if single else found
            tracks, routed = (False,) * len(outs), mask
        if any([a.size > runs.LARGE for a in outs]):
            return None
        step = State(op, refs, marks, routed, outs, tracks, single, before.size + len(outs))
        grow()
        return before.next.setdefault(at, step)

    # Playing

    def play(self) -> None:
        """Record what has been written down, operation by operation.

        If that is being done, it is left to whoever does it: who needs a value waits for it in `fill`.
        """
        if not self.playing:
            self.fill()

    def fill(self) -> None:
        """`play`, for somebody who needs what is not there: a finalizer, maybe, in the middle of playing."""
        with self.lock:
            if self.done and not self.path:
                return
            self.done = True
            before, self.playing = self.playing, True
            try:
                if self.context != trace_context() or jaxapi.is_tracing():
                    runs.elsewhere(self._play)
                else:
                    self._play()
            finally:
                self.playing = before
                if state.script is self:
                    state.script = None

    def _play(self) -> None:
        with undisturbed("run", "script", "levels", "compiling"):
            state.blocked, state.floor = self.blocked, self.floor
            if self.level is ROOT:
                state.script = self  # which is done: no other one begins
            if self.ran is None:
                self._record(self.cells)
            else:
                self._record_again(*self.ran)
        self._forget()

    def _record(self, cells: list[Any]) -> None:
        """Give each cell its value and its node. An interrupt may stop this, and it goes on later."""
        path = self.path
        operands = list(map(as_met, self.met))
        while self.path is path and self.played < len(path):
            at = self.played
            step = path[at]
            outs = self._outputs(step, cells, operands)
            if self.path is not path or self.played != at:
                continue  # a finalizer needed what comes of it, and has gone on
            for k, o in enumerate(outs, step.size - len(outs)):
                if self.path is not path:
                    break  # the same
                cell = cells[k]
                cell._requires_grad, cell._output_nr = o._requires_grad, o._output_nr
                cell._node = o._node
                cell._value = o._value
                cell._aux = None
            if self.path is path:
                self.played = at + 1

    def _record_again(self, ends: list[int], frees: bool) -> None:
        """Make the nodes of a script that has run as one operation, and free those of its backward pass."""
        path = self.path
        operands = list(map(as_met, self.met))
        cells: list[Any] = []
        for step in path:
            outs = self._outputs(step, cells, operands)
            if self.path is not path:
                return  # a finalizer needed a node, and has made all of them
            for o in outs:
                known = self.kept.get(len(cells))
                cell = None if known is None else known()
                if cell is not None and self.path is path:
                    cell._node = o._node
                    cell._aux = None
                cells.append(o if cell is None else cell)
        if frees:
            todo = [cells[k]._node for k in ends]
            seen = set(todo)
            while todo:
                node = todo.pop()
                node.release_variables()
                nexts = {e[0] for e in node.edges if e is not None} - seen
                seen |= nexts
                todo += nexts

    def _outputs(self, step: State, cells: Sequence[Any], operands: Sequence[Any]) -> Any:
        """The outputs of a step, recorded."""
        args = [cells[r] if r >= 0 else operands[~r][0] for r in step.refs]
        out = self.level.process(step.op, args)
        outs = (out,) if step.single else out
        for o, aval in zip(outs, step.avals, strict=True):
            runs.check_dtype(self.level.aval(o), aval)
            node = o._node
            if isinstance(node, PrimitiveNode) and node.versions is not None:
                versions = {id(h): v for h, v, _ in operands}
                node.versions = [
                    versions.get(id(t), v) for t, v in zip(node.tensors, node.versions, strict=True)
                ]
        return outs

    def _forget(self) -> None:
        """Let go of everything: there are no cells any more that have no value, or no node."""
        self.played = 0
        self.path, self.cells, self.met, self.scalars = [], [], [], []
        self.places, self.kept, self.ran = {}, {}, None

    def leave(self) -> None:
        """The transform is over: record what somebody holds, forget all else."""
        self.level.script = None
        if self.done:
            return
        if any(held(self.cells)):
            self.play()
        else:
            self.done = True
            self._forget()

    # Running as one operation

    def run(
        self,
        outs: list[Any],
        pull: Pull,
        *asked: Any,
        leaves: Sequence[Tensor] | None = None,
        values: bool = False,
        frees: bool = True,
    ) -> list[Any] | None:
        """What ``pull(outs, variables, values)`` gives, as values one level down; None if it is not known.

        Arguments:
            outs: what the function returned; nobody else refers to them, unless the function has put them
                elsewhere.
            pull: computes gradients of ``outs`` with respect to the inputs of the level, whose values
                one level down are ``values``. It gives a list of such values.
            asked: what ``pull`` depends on, beside the arguments.
            leaves: what the caller takes for the inputs.
            values: the values of ``outs`` are wanted too; else, the Tensors are of no more use.
            frees: the pass frees the graph that it goes through.
        """
        with self.lock:
            if self.done or not self.path or not outs or not self._is_as_it_was():
                return None
            ends = [self.places.get(id(o), -1) for o in outs]
            at, cells, met, path = self.state, self.cells, self.met[:], self.path[:]
            operands = [m[1] for m in met]
            inputs = [k for k, m in enumerate(met) if m[4] & 1]
            if min(ends) < 0 or len(cells) != at.size or self.done or self.state is not at:
                return None
            if leaves is not None and [*map(id, leaves)] != [id(met[k][0]) for k in inputs]:
                return None
            if not all([is_untouched(met[k][0]) for k in inputs]):
                return None
            outs.clear()
            kept = places_of_held(cells)
            outs += [cells[k] for k in ends]
            if values:
                kept = sorted({*kept, *ends})
            end = at.end((tuple(kept), tuple(ends), tuple(inputs), *asked))
            known = self._known(end, path, operands, ends, kept, inputs, pull)
            if known is None:
                return None
            grads, rest = known
            tracked = {k: weakref.ref(cells[k]) for k in kept if cells[k]._requires_grad}
            ran = (ends, frees)
            for k, value in zip(kept, rest, strict=True):
                cells[k]._value = value  # which it has in any case
                if k not in tracked:
                    cells[k]._node = cells[k]._aux = None

            # Here, finalizers get no turn: what one has read or written so far is known.
            if self.done or self.state is not at:
                return None
            self.kept, self.ran = tracked, ran
            self.done = True

            self.root.vain = 0
            paths.tree.hits += 1
            if state.script is self:
                state.script = None
            self.cells, self.scalars, self.places = [], [], {}
            if not self.kept:
                self._forget()
            elif frees and end.passed.issuperset(self.kept):
                # Their nodes are freed, or have saved nothing: no number will be asked for any more.
                self.met = [
                    (a if k in inputs else None, None, aval, version, mark)
                    for k, (a, _, aval, version, mark) in enumerate(self.met)
                ]
            return list(grads)

    def _is_as_it_was(self) -> bool:
        """Whether modes and settings are those in which it was written, and no operand has changed."""
        for a, _, _, version, _ in self.met:
            if type(a) is Tensor and a.meta is not None and a.meta.storage.version != version:
                return False
        return (
            _quiet()
            and state.blocked == self.blocked
            and state.floor == self.floor
            and self.context == trace_context()
        )

    def _known(
        self,
        end: End,
        path: Sequence[State],
        operands: Sequence[Any],
        ends: list[int],
        held: Sequence[int],
        inputs: list[int],
        pull: Pull,
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The results of the Primitive of this end, and the values held; None if there is none.

        ``path`` and ``operands`` are those of the script: by now a finalizer may have gone on with it.
        """
        end.count += 1
        program = end.program
        if program is not None:
            budget.saved += SAVED_PER_STEP * len(path)
            found = self._bind(program, operands)
            count = end.results
            if count:
                return found[:count], found[count:]
            results, rest = program.unflatten(found)
            return results, rest
        if end.refused or not budget.allows(end.count):
            return None
        began = time.perf_counter()
        program = program_of(path, inputs, ends, held, pull)
        try:
            found = self._bind(program, operands)
        except Exception:  # whatever it is, playing raises it, or does without
            end.refused = True
            return None
        finally:
            budget.spent += time.perf_counter() - began
        end.passed = passed_of(path, ends)
        results, rest = program.unflatten(found)
        end.results = 0 if None in results else len(results)
        end.program = program
        paths.tree.compiled += 1
        return results, rest

    def _bind(self, program: Primitive, operands: Sequence[Any]) -> Any:
        """Run a Primitive of the operands one level down."""
        if self.level is not ROOT and len(state.levels) == 1:
            idle = state.run is None or state.run.is_idle()
            if idle and all([type(x) is array_type for x in operands]):
                return program.execute(operands)  # nothing is there to wait for
        return below(program, operands)
