"""A stretch of operations: as a function of its inputs, as a program, and recorded one by one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from fad.core.avals import SCALARS
from fad.core.level import Level, bind, state, with_default_state
from fad.core.tensor import Lazy, Storage, Tensor, has_value, lazy_tensor, take_over
from fad.core.types import Operand, PyTree, Value
from fad.errors import LevelError
from fad.replay.buffer import execute
from fad.replay.inputs import (
    Input,
    Past,
    as_captured,
    handle_of,
    has_foreign_references,
    outer_level_defers,
    owner_of,
)
from fad.replay.outcomes import made_of
from fad.replay.policy import TIMES
from fad.replay.program import Program
from fad.replay.settings import in_context
from fad.replay.states import State, referenced, tree
from fad.replay.writes import note_written
from fad.tape.recorder import ROOT, PrimitiveNode

if TYPE_CHECKING:
    from fad.replay.trace import Trace

T = TypeVar("T")
# Numbers of outputs of a stretch, or of inputs.
Places: TypeAlias = tuple[int, ...]
Passed: TypeAlias = tuple[frozenset[int], frozenset[int]]
# All inputs, or the outputs so far: Tensors of a level, and values from below.
Cells: TypeAlias = list[Any]
Finish: TypeAlias = Callable[[Level, Cells, Cells, Sequence[Operand]], PyTree]


class Failed:
    """In place of the trace of a lazy Tensor whose operation has failed: reading it raises the error.

    That happens to operations on arrays that their owner has deleted or donated since.
    """

    done = True
    level = None
    on_values = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, *_: object) -> NoReturn:
        raise self.error.with_traceback(None)

    materialize = get

    def share(self, t: Tensor, new: Tensor) -> bool:
        return False


@dataclasses.dataclass(slots=True, eq=False)
class Stretch:
    """What a trace has now: operations, one after the other, by the states after them, and their inputs.

    ``trace`` goes on; of that, what does not change is used: its level, and the modes at its beginning.
    ``variables`` are the numbers of the inputs that require grad at the level. ``parts`` are those of all
    inputs, once its program runs. ``views`` has the states of the outputs that are views and saved, if that
    has a node.
    """

    trace: Trace
    path: list[State]
    inputs: list[Input]
    variables: Places
    views: dict[int, Past] = dataclasses.field(default_factory=dict)
    parts: Sequence[Value] = ()

    @classmethod
    def of(cls, trace: Trace) -> Stretch:
        """What ``trace`` has now."""
        variables = [k for k, given in enumerate(trace.inputs) if given.layout is True]
        return cls(trace, trace.path[1:], trace.inputs[:], tuple(variables))

    def without_values(self) -> Stretch:
        """The same, without the values of its inputs: a backward pass has freed them."""
        inputs = [
            g
            if type(g.argument) in SCALARS
            else Input(g.argument if g.layout is True else None, (), *g[2:])
            for g in self.inputs
        ]
        return Stretch(self.trace, self.path, inputs, self.variables, self.views)

    def passed(self, ends: Places | None, wanted: Places) -> Passed:
        """What a backward pass goes through from outputs ``ends`` (None: all) to the inputs ``wanted``.

        All outputs of these operations; and the places of what their nodes save. What a write writes to is
        left out, since its node saves handles of its own.
        """
        last = self.path[-1]
        found: Passed | None = last.passes.get((ends, wanted))
        if found is None:
            starts = tuple(range(last.size)) if ends is None else ends
            passed = _passed(self.path, starts, wanted)
            found = tree.remember(last.passes, (ends, wanted), lambda: passed)
        return found

    def keep_states(self, outputs: Sequence[Tensor]) -> None:
        """Keep the states of what may be written to later: of inputs with a node, and of what is saved.

        What nothing but its `Input` refers to cannot be written to, and needs no handle.
        """
        arguments = [self.inputs[k].argument for k in self.variables]
        shared = referenced(arguments, known=1)
        for i, k in enumerate(self.variables):
            a = arguments[i]
            if a._node is None or type(a.meta) is Past:
                continue
            if i in shared or a.meta is not None or has_foreign_references(a):
                given = self.inputs[k]
                self.inputs[k] = Input(handle_of(a, given.version), *given[1:])
        for k in self.passed(None, self.variables)[1]:
            meta = outputs[k].meta if k >= 0 else None
            if meta is not None and meta.link is not None:
                self.views[k] = Past(outputs[k], meta.link.seen)

    def program(self, finish: Finish) -> Program:
        """The operations as a function of the parts of the inputs, and of what else ``finish`` takes.

        Its result is that of ``finish``, which gets the level, the inputs, all outputs, and the rest.
        """
        operations = [(s.op, s.refs) for s in self.path]
        layouts = [given.layout for given in self.inputs]
        maker = self.trace.maker

        def run(*values: Operand) -> PyTree:
            with maker() as own:
                rest = iter(values)
                given = [made_of(own, rest, layout) for layout in layouts]
                cells: Cells = []
                for op, refs in operations:
                    out = bind(op, [cells[r] if r >= 0 else given[~r] for r in refs])
                    cells.extend(out if type(out) is tuple else (out,))
                return finish(own, given, cells, list(rest))

        return Program(self.trace.name, run, self.path[-1].work)

    # One by one

    def record(self, outputs: Sequence[Tensor | None], again: bool = False) -> Cells:
        """Evaluate each operation at the level; all outputs.

        The lazy ones of ``outputs`` get what theirs are; those that are not lazy have it. ``again``: all are
        evaluated, those of ``outputs`` that are there have their values, and get their nodes.
        """
        return self.in_its_modes(lambda: self._record(outputs, again))

    def in_its_modes(self, f: Callable[[], T]) -> T:
        """``f()`` in the modes in which the operations were called; nothing of the level is deferred.

        The trace of the tape goes on in it, if the thread is the same.
        """
        level = self.trace.level
        inside = level is not ROOT
        before, level.trace = level.trace, None
        replaying = state.replaying and inside

        @with_default_state("levels", *["trace"] * inside)
        def run() -> T:
            state.watermark, state.base_watermark, state.saved_hooks, state.tangents_off = (
                self.trace.recording[:4]
            )
            state.replaying = replaying
            return f()

        try:
            return in_context(self.trace.context, run)
        finally:
            level.trace = before

    def _record(self, outputs: Sequence[Tensor | None], again: bool) -> Cells:
        inputs = list(map(as_captured, self.inputs))
        alone = not outer_level_defers(self.inputs)
        cells: Cells = []
        for at in self.path:
            own = list(outputs[at.first : at.size])
            if alone:
                at.use.times = TIMES
            if at.untracked and own[0] is not None and has_value(own[0]):
                for t in own:
                    t._lazy = None  # type: ignore[union-attr]
            if again or any([t is None or t._lazy is not None for t in own]):
                found = self._evaluated(at, cells, inputs)
                for k, (t, o) in enumerate(zip(own, found, strict=True)):
                    past = self.views.get(at.first + k)
                    if again and t is not None and has_value(t):
                        if o._lazy is None:  # else it has failed
                            t._node, t._output_nr = o._node, o._output_nr
                    elif t is not None:
                        take_over(t, o)
                    if past is not None:
                        o.meta = past
                    if t is None or past is not None:
                        own[k] = o
            cells += own
        return cells

    def _evaluated(self, at: State, cells: Cells, inputs: Cells) -> tuple[Tensor, ...]:
        """`_evaluate`; if that fails, outputs that raise its error when they are read.

        Operations that do not depend on them can still be evaluated.
        """
        try:
            return self._evaluate(at, cells, inputs)
        except Exception as error:
            tree.note(self.trace.name, 1, f"{at.op.name} failed: {error}")
            failed = Failed(error)
            lazies = [Lazy(aval, failed, k) for k, aval in enumerate(at.avals)]
            return tuple([lazy_tensor(self.trace.level, z, False, z.place) for z in lazies])

    def _evaluate(self, at: State, cells: Cells, inputs: Cells) -> tuple[Tensor, ...]:
        """The outputs of ``at``, evaluated at its level."""
        level = self.trace.level
        args = [cells[r] if r >= 0 else inputs[~r] for r in at.refs]
        if at.untracked:
            return execute(at, args)
        if at.own:  # as `views.inplace` does
            note_written(args[0])
            args[: at.own] = map(handle_of, args[: at.own])
        past = any([isinstance(a, Tensor) and type(a.meta) is Past for a in args])
        with _at_versions_then(args) if past else contextlib.nullcontext():
            out = level.process(at.op, args)
        outs: tuple[Tensor, ...] = out if type(out) is tuple else (out,)
        for o, aval in zip(outs, at.avals, strict=True):
            if level.aval(o).dtype != aval.dtype:
                raise LevelError(
                    "jax.config was changed between an operation and the first use of its result, which "
                    "would have another dtype now: change it earlier, or for a block with JAX's context "
                    "managers (jax.enable_x64, jax.default_matmul_precision, ...)"
                )
            if past and isinstance(o._node, PrimitiveNode):
                o._node.tensors = [owner_of(t) for t in o._node.tensors]
        return outs


@contextlib.contextmanager
def _at_versions_then(args: Sequence[object]) -> Iterator[None]:
    """A block in which what nodes save of these handles is saved at the version of then."""
    metas = [a.meta for a in args if isinstance(a, Tensor) and type(a.meta) is Past]
    storages = [meta.storage for meta in metas]
    for meta in metas:
        meta.storage = Storage(meta.version)
    try:
        yield
    finally:
        for meta, storage in zip(metas, storages, strict=True):
            meta.storage = storage


def _passed(path: Sequence[State], ends: Places, wanted: Places) -> Passed:
    """`Stretch.passed`."""
    led = {~k for k in wanted}
    for at in path:
        if any([m and r in led for r, m in zip(at.refs, at.routed, strict=False)]):
            led.update(range(at.first, at.size))
    passed = {k for k in ends if k in led}
    saved: set[int] = set()
    for at in reversed(path):
        own = range(at.first, at.size)
        if passed.isdisjoint(own):
            continue
        passed.update(own)
        routes = zip(at.refs, at.routed, strict=False)
        passed.update([r for r, m in routes if m and r >= 0 and r in led])
        for k in at.kept:
            if k >= at.own:
                saved.add(at.refs[k])
            elif k < 0:
                saved.update(own)
    return frozenset(passed), frozenset(saved)
