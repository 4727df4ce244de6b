"""A stretch of operations: as a function of its inputs, as a program, and recorded one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fad.core.level import Level, bind, state, with_default_state
from fad.core.replay_protocol import Deferred, Pull
from fad.core.tensor import Lazy, Tensor, has_value, lazy_tensor, take_over
from fad.core.types import Aval, Operand, PyTree, Value
from fad.errors import LevelError
from fad.replay.inputs import FOREIGN, Captured, Input, as_captured, outer_level_defers
from fad.replay.log import note
from fad.replay.policy import TIMES
from fad.replay.program import Program
from fad.replay.settings import in_context
from fad.replay.states import State, grow
from fad.replay.untracked import execute
from fad.replay.writes import (
    Past,
    at_versions_then,
    handle_of,
    note_written,
    owner_of,
    version_then,
)
from fad.tape.engine import pull_back
from fad.tape.recorder import ROOT, PrimitiveNode

if TYPE_CHECKING:
    from fad.replay.trace import Trace

__all__ = ["Stretch"]

T = TypeVar("T")


class Failed:
    """In place of the trace of a lazy Tensor whose operation has failed: reading it raises the error.

    That happens to operations on arrays that their owner has deleted or donated since.
    """

    __slots__ = ("error",)

    done = True
    level = None
    on_values = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, t: Tensor, name: str) -> Any:
        raise self.error.with_traceback(None)

    def materialize(self) -> None:
        raise self.error.with_traceback(None)

    def share(self, t: Tensor, new: Tensor) -> bool:
        return False


class Stretch:
    """What a trace has now: operations, one after the other, by the states after them, and their inputs.

    ``trace`` goes on; of that, what does not change is used: its level, and the modes at its beginning.
    ``views`` has the states of the outputs that are views, if its program has a node which may need them.
    """

    __slots__ = ("inputs", "path", "trace", "views")

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.path: list[State] = trace.path[1:]
        self.inputs: list[Input] = trace.inputs[:]
        self.views: dict[int, Past] = {}

    @property
    def work(self) -> int:
        """How many operations there are, those of programs among them included."""
        return self.path[-1].work

    @property
    def variables(self) -> list[int]:
        """The numbers of the inputs that require grad at the level."""
        return [k for k, given in enumerate(self.inputs) if given.layout is True]

    def passed(
        self, ends: Sequence[int] | None, wanted: Sequence[int]
    ) -> tuple[frozenset[int], frozenset[int]]:
        """What a backward pass goes through from outputs ``ends`` (None: all) to the inputs ``wanted``.

        All outputs of these operations; and the places of what their nodes save. What a write writes to is
        left out, since its node saves handles of its own.
        """
        last = self.path[-1]
        key = ends if ends is None else tuple(ends), tuple(wanted)
        found = last.passes.get(key)
        if found is None:
            grow()
            starts = range(last.size) if ends is None else ends
            found = last.passes[key] = _passed(self.path, starts, wanted)
        return found

    def keep_states(self, outputs: Sequence[Tensor]) -> None:
        """Keep the states of what may be written to later: of inputs with a node, and of views."""
        for k, given in enumerate(self.inputs):
            a = given.argument
            if given.layout is True and a._node is not None:
                self.inputs[k] = given._replace(argument=handle_of(a, given.version))
        for k, t in enumerate(outputs):
            if t.meta is not None and t.meta.link is not None:
                self.views[k] = Past(t, t.meta.link.seen)

    def _computation(self) -> Callable[[Level, Sequence[Operand]], tuple[list[Any], list[Any]]]:
        """A function of a level and the parts of inputs that binds all operations: inputs, and outputs."""
        operations = [(s.op, s.refs) for s in self.path]
        layouts = [(given.layout, len(given.parts)) for given in self.inputs]

        def compute(own: Level, parts: Sequence[Operand]) -> tuple[list[Any], list[Any]]:
            rest = iter(parts)
            given = []
            for layout, count in layouts:
                own_parts = [next(rest) for _ in range(count)]
                given.append(
                    own_parts[0] if layout is FOREIGN else own.from_parts(own_parts, layout)
                )
            cells: list[Any] = []
            for op, refs in operations:
                out = bind(op, [cells[r] if r >= 0 else given[~r] for r in refs])
                cells.extend(out if type(out) is tuple else (out,))
            return given, cells

        return compute

    def program(
        self,
        kept: Sequence[int],
        ends: Sequence[int] = (),
        variables: Sequence[int] = (),
        pull: Pull | None = None,
    ) -> Program:
        """The operations, and ``pull``, as a function of the parts of the inputs.

        It returns the result of ``pull``, and then the parts of the outputs that are kept.
        """
        compute, maker = self._computation(), self.trace.maker

        def run(*parts: Operand) -> PyTree:
            with maker() as own:
                given, cells = compute(own, parts)
                found: PyTree = ()
                if pull is not None:
                    inside = [given[k] for k in variables]
                    values = [x._value for x in inside]
                    found = tuple(
                        pull(own, [cells[k] if k >= 0 else given[~k] for k in ends], inside, values)
                    )
                values = [p for k in kept for p in own.parts(cells[k])]
                return values if pull is None else (found, tuple(values))

        return Program(self.trace.name, run, self.work)

    def backward_program(
        self, ends: Sequence[int], begun: Sequence[int], wanted: Sequence[int]
    ) -> Program:
        """The backward pass from outputs ``ends`` to the inputs ``wanted``.

        From the parts of all inputs, cotangents of ``ends``, and what has arrived at the inputs ``begun``
        before: what has arrived at those that are ``wanted`` then.
        """
        compute, maker = self._computation(), self.trace.maker
        count = sum([len(given.parts) for given in self.inputs])

        def run(*values: Value) -> PyTree:
            with maker() as own:
                given, cells = compute(own, values[:count])
                roots = [*[cells[k] for k in ends], *[given[k] for k in begun]]
                return tuple(pull_back(roots, values[count:], [given[k] for k in wanted]))

        return Program(self.trace.name, run, self.work)

    def record(self, outputs: Sequence[Tensor | None], again: bool = False) -> list[Any]:
        """Evaluate each operation at the level; all outputs.

        The lazy ones of ``outputs`` get what theirs are; those that are not lazy have it. ``again``: all are
        evaluated, those of ``outputs`` that are there have their values, and get their nodes.
        """
        return self.in_its_modes(lambda: self._record(outputs, again))

    def in_its_modes(self, f: Callable[[], T]) -> T:
        """``f()`` in the modes in which the operations were called; nothing of the level is deferred."""
        level = self.trace.level
        before, level.trace = level.trace, None
        modes, inside = state.__dict__, level is not ROOT
        tape = state.trace if inside else None
        replaying = state.replaying and inside
        try:
            found, tape = in_context(
                self.trace.context, lambda: self._in_its_modes(f, modes, replaying, tape)
            )
        finally:
            level.trace = before
        if inside:
            modes["trace"] = tape
        return found

    @with_default_state("levels")
    def _in_its_modes(
        self, f: Callable[[], T], modes: dict[str, object], replaying: bool, tape: Deferred | None
    ) -> tuple[T, Deferred | None]:
        """What ``f()`` gives; and the trace of the tape, which goes on in it if the thread is the same."""
        state.watermark, state.base_watermark, state.saved_hooks = self.trace.recording
        state.tangents_off = self.trace.tangents_off
        state.replaying = replaying
        if modes is not state.__dict__:
            return f(), tape
        state.trace = tape
        return f(), state.trace

    def _record(self, outputs: Sequence[Tensor | None], again: bool) -> list[Any]:
        inputs = list(map(as_captured, self.inputs))
        alone = not outer_level_defers(self.inputs)
        cells: list[Any] = []
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

    def _evaluated(
        self, at: State, cells: Sequence[Tensor], inputs: Sequence[Captured]
    ) -> tuple[Tensor, ...]:
        """`_evaluate`; if that fails, outputs that raise its error when they are read.

        Operations that do not depend on them can still be evaluated.
        """
        try:
            return self._evaluate(at, cells, inputs)
        except Exception as error:
            note(self.trace.name, 1, f"{at.op.name} failed: {error}")
            failed = Failed(error)
            lazies = [Lazy(aval, failed, k) for k, aval in enumerate(at.avals)]
            return tuple(
                [lazy_tensor(self.trace.level, lazy, False, lazy.place) for lazy in lazies]
            )

    def _evaluate(
        self, at: State, cells: Sequence[Tensor], inputs: Sequence[Captured]
    ) -> tuple[Tensor, ...]:
        """The outputs of ``at``, evaluated at its level."""
        level = self.trace.level
        args = [cells[r] if r >= 0 else inputs[~r][0] for r in at.refs]
        if at.untracked:
            return execute(at, args)
        if at.own:  # as `views.inplace` does
            note_written(args[0])
            args[: at.own] = map(handle_of, args[: at.own])
        if type(at.op) is Program:
            with at_versions_then(args):
                return tuple(level.process(at.op, args))
        out = level.process(at.op, args)
        outs = (out,) if at.single else out
        for o, aval in zip(outs, at.avals, strict=True):
            check_dtype(level.aval(o), aval)
            node = o._node
            if isinstance(node, PrimitiveNode) and node.versions is not None:
                versions = {id(h): v for h, v, _ in inputs}
                node.versions = [
                    versions.get(id(t), version_then(t, v))
                    for t, v in zip(node.tensors, node.versions, strict=True)
                ]
                node.tensors = [owner_of(t) for t in node.tensors]
        return tuple(outs)


def _passed(
    path: Sequence[State], ends: Sequence[int], wanted: Sequence[int]
) -> tuple[frozenset[int], frozenset[int]]:
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


def check_dtype(value: Aval, aval: Aval) -> None:
    """Refuse a value that the settings of JAX, changed for good in between, have given another dtype."""
    if value.dtype != aval.dtype:
        raise LevelError(
            "jax.config was changed between an operation and the first use of its result, which would "
            "have another dtype now: change it earlier, or for a block with JAX's context managers "
            "(jax.enable_x64, jax.default_matmul_precision, ...)"
        )
