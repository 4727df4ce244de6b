"""Stretches of operations, as programs and one by one; segments, which have run and may be differentiated.

NOTE [segments that have run]

    y = fnp.sum(fnp.sin(x) * x)     # three operations, which repeat
    print(float(y))                 # they run as one program, and y has its value
    y.backward()                    # the pass of the segment is one program too, and frees it

Outputs of a program that require grad get their values, and stay lazy: they have no nodes yet. Their
`Segment` keeps the inputs, as a checkpointed call does. There are two ways on from it, and no other:

* the backward pass of the step, or of the transform, frees the graph, and goes through segments of its trace
  alone, back to leaves (`Segment.send_back`). Each is one program, which computes the operations again;
* anything else *opens* it: who looks at the graph (`Tensor.grad_fn`, a hook, another operation, a pass that
  keeps the graph, or is recorded) finds the nodes of the operations. They are recorded again from the inputs,
  and so are those of the segments that it begins with. What a pass has freed is freed in them.

So the graph never has a node of a program, and the engine knows nothing of replay.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import jax

from fad.core import jaxapi
from fad.core.level import Level, bind, state, with_default_state
from fad.core.replay_protocol import Pull
from fad.core.tensor import Lazy, Storage, Tensor, bottom, has_value, new_tensor, take_over
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import LevelError
from fad.errors.tracebacks import users_call
from fad.replay.inputs import (
    Input,
    Past,
    as_captured,
    aval_id,
    edge_of,
    in_context,
    is_untouched,
    outer_level_defers,
    state_of,
)
from fad.replay.policy import TIMES
from fad.replay.program import Program
from fad.replay.states import State, made_of, maker_of, origin_of, tree
from fad.tape.engine import graph_of, pull_back
from fad.tape.graph import Node, running
from fad.tape.recorder import ROOT

if TYPE_CHECKING:
    from fad.replay.trace import Trace


T = TypeVar("T")
# Numbers of outputs of a stretch, or of inputs.
Places: TypeAlias = tuple[int, ...]
# Outputs: Tensors of a level, and values from below.
Cells: TypeAlias = list[Any]


@dataclasses.dataclass(slots=True, eq=False)
class Stretch:
    """What a trace has now: operations, one after the other, by the states after them, and their inputs.

    ``trace`` goes on; of that, what does not change is used: its level, and the modes at its beginning.
    ``variables`` are the numbers of the inputs that require grad at the level. ``pasts`` has what
    `keep_pasts` keeps, if it is that of a segment. ``parts`` are those of all inputs, once its program runs.
    """

    trace: Trace
    path: list[State]
    inputs: list[Input]
    variables: Places
    pasts: dict[int, Past] = dataclasses.field(default_factory=dict)
    parts: Sequence[Value] = ()

    @classmethod
    def of(cls, trace: Trace) -> Stretch:
        """What ``trace`` has now."""
        variables = [k for k, x in enumerate(trace.inputs) if x.layout is True]
        return cls(trace, trace.path[1:], trace.inputs[:], tuple(variables))

    def variable_inputs(self) -> list[Input]:
        """The inputs that require grad at the level."""
        return [self.inputs[k] for k in self.variables]

    def places(self, numbers: Places) -> list[Hashable]:
        """Where gradients of these inputs go: the edge of an output of a segment; the `id` of a leaf."""
        inputs = map(self.inputs.__getitem__, numbers)
        return [id(x.argument) if x.is_leaf else x.edge for x in inputs]

    def without_values(self) -> Stretch:
        """The same, without the values of its inputs: a backward pass has freed them."""
        inputs = [
            Input(x.argument if x.layout is True else None, (), *x[2:])  # faster than `_replace`
            for x in self.inputs
        ]
        return Stretch(self.trace, self.path, inputs, self.variables, self.pasts)

    def is_changed(self) -> bool:
        """Whether another thread has written to an input, or to an output in ``pasts``."""
        for x in self.inputs:
            if state_of(x.argument) != x.state:
                return True
        return any([past.version != past.storage.version for past in self.pasts.values()])

    def keep_pasts(self, outputs: Sequence[Tensor], kept: Places) -> None:
        """Keep the states of outputs that may be written to without their nodes: of views, and of what
        requires no grad and is ``kept``.
        """
        for k, t in enumerate(outputs):
            link = None if t.meta is None else t.meta.link
            if link is not None or (k in kept and not t._requires_grad):
                self.pasts[k] = Past(t, state_of(t)[0] if link is None else link.seen)

    def program(self, pull: Pull, ends: Places, wanted: Places, kept: Places = ()) -> Program:
        """The operations as a function of the parts of the inputs, and of cotangents.

        It gives what ``pull`` gives for a backward pass from outputs ``ends`` to inputs ``wanted``, and the
        parts of the outputs that are ``kept``.
        """
        operations = [(s.op, s.refs) for s in self.path]
        layouts = [x.layout for x in self.inputs]
        maker = maker_of(self.trace.level)

        def run(*values: Operand) -> PyTree:
            with maker() as level:
                rest = iter(values)
                inputs = [made_of(level, rest, layout) for layout in layouts]
                cells: Cells = []
                for op, refs in operations:
                    out = bind(op, [cells[r] if r >= 0 else inputs[~r] for r in refs])
                    cells.extend(out if type(out) is tuple else (out,))
                variables = [inputs[k] for k in wanted]
                below = [x._value for x in variables]
                results = pull(level, [cells[k] for k in ends], variables, below, *rest)
                return tuple(results), [p for k in kept for p in level.flatten(cells[k])[0]]

        return Program(self.trace.name, run, self.path[-1].work)

    # One by one

    def record(self, outputs: Sequence[Tensor | None], first: int | None = None) -> Cells:
        """Evaluate each operation at the level; all outputs.

        The lazy ones of ``outputs`` get what theirs are; those that are not lazy have it. With ``first``, the
        operations are recorded again, with nodes numbered from it on: outputs that are there have values, and
        get their nodes. No watcher or profiler is told of them: the operations were called earlier.
        """

        def run() -> Cells:
            if first is None:
                return self._record(outputs, again=False)
            before = running.sequence, running.watched, running.unwatched
            running.sequence = itertools.count(first)
            running.watched = running.unwatched = True
            try:
                return self._record(outputs, again=True)
            finally:
                running.sequence, running.watched, running.unwatched = before

        return self.in_its_modes(run)

    def in_its_modes(self, f: Callable[[], T]) -> T:
        """``f()`` in the modes in which the operations were called; nothing of the level is deferred.

        The trace of the tape goes on in it, if the thread is the same.
        """
        level = self.trace.level
        before, level.trace = level.trace, None
        replaying = state.replaying and level is not ROOT
        run = functools.partial(_in_modes, self.trace.recording, replaying, f)
        try:
            return in_context(self.trace.context, run)
        finally:
            level.trace = before

    def _record(self, outputs: Sequence[Tensor | None], again: bool) -> Cells:
        inputs = list(map(as_captured, self.inputs))
        alone = not outer_level_defers(self.inputs)
        metas = [t.meta for t in inputs if type(t) is Tensor]
        pasts = [meta for meta in metas if type(meta) is Past]
        cells: Cells = []
        with _at_versions_then([*pasts, *self.pasts.values()]):
            for at in self.path:
                tensors = list(outputs[at.first : at.size])
                if alone:
                    at.use.times = TIMES
                if again or any([t is None or t._lazy is not None for t in tensors]):
                    outs = self._evaluate(at, [cells[r] if r >= 0 else inputs[~r] for r in at.refs])
                    for k, (t, o) in enumerate(zip(tensors, outs, strict=True)):
                        past = self.pasts.get(at.first + k)
                        if again and t is not None and has_value(t):
                            t._node, t._output_nr, t._lazy = o._node, o._output_nr, None
                        elif t is not None:
                            take_over(t, o)
                        if past is not None:
                            o.meta = past
                        if t is None or past is not None:
                            tensors[k] = o
                cells += tensors
        return cells

    def _evaluate(self, at: State, args: list[Any]) -> tuple[Tensor, ...]:
        """The outputs of ``at``, evaluated at its level."""
        level = self.trace.level

        def run(args: Sequence[Any]) -> tuple[Tensor, ...]:
            out = level.process(at.op, args)
            return out if type(out) is tuple else (out,)

        outs = _on_deleted(level, run, args) if any(map(is_deleted, args)) else run(args)
        expected = [output.aval.dtype for output in at.outcome.outputs]
        if [level.aval(o).dtype for o in outs] != expected:
            raise LevelError(
                "jax.config was changed between an operation and the first use of its result, which would "
                "have another dtype now: change it earlier, or for a block with JAX's context managers "
                "(jax.enable_x64, jax.default_matmul_precision, ...)"
            )
        return outs


@with_default_state("levels", "trace")
def _in_modes(recording: tuple[Any, ...], replaying: bool, f: Callable[[], T]) -> T:
    """``f()`` in these modes of a `Trace`."""
    state.watermark, state.base_watermark, state.saved_hooks, state.tangents_off = recording[:4]
    state.replaying = replaying
    return f()


@contextlib.contextmanager
def _at_versions_then(pasts: Sequence[Past]) -> Iterator[None]:
    """A block in which what nodes save of these handles is saved at the version of then."""
    storages = [past.storage for past in pasts]
    for past in pasts:
        past.storage = Storage(past.version)
    try:
        yield
    finally:
        for past, storage in zip(pasts, storages, strict=True):
            past.storage = storage


def is_deleted(x: object) -> bool:
    """Whether the array of a Tensor, or an array, has been deleted."""
    while isinstance(x, Tensor) and has_value(x):
        x = x._value
    return type(x) is jaxapi.array_type and bool(x.is_deleted())


def _on_deleted(
    level: Level, f: Callable[..., tuple[Tensor, ...]], args: list[Any]
) -> tuple[Tensor, ...]:
    """``f(args)``, where arrays of these have been deleted; what is made of them is deleted too.

    NOTE [deleted arrays]

        y = fnp.sum(w + data)     # no node saves the data
        print(float(y))
        data.delete()             # or it is donated
        y.backward()              # the operations are recorded again: from zeros

    Nodes that save nothing of it are right, and who uses anything of it gets JAX's error.
    """
    args = [new_tensor(a, ROOT) if type(a) is jaxapi.array_type else a for a in args]
    swapped = []
    for t in filter(is_deleted, args):
        while isinstance(t._value, Tensor):
            t = t._value
        if t._value.is_deleted():  # not yet in the place of an earlier argument
            swapped.append((t, t._value))
            t._value = jax.numpy.array(jaxapi.zeros(t._value.aval))
    zeros = [t._value for t, _ in swapped]
    operands = [*map(bottom, args)]
    try:
        outs = f(args)
    finally:
        for t, array in swapped:
            t._value = array
    nodes: set[Any] = {o._node for o in outs} - {None}
    saved = [v for node in nodes for v in node.saved_values()]
    made = map(bottom, [*saved, *[p for o in outs for p in level.flatten(o)[0]]])
    for v in [*zeros, *[v for v in made if all([v is not x for x in operands])]]:
        v.delete()
    return outs


Arrived = dict[Hashable, Value]  # gradients, by `Stretch.places`
_opening = threading.RLock()


class Segment:
    """A stretch that has run as a program. It is the ``trace`` of its lazy outputs, see `Deferred`.

    ``places`` are the numbers of its outputs that require grad and were referenced, ``outputs`` has these,
    each with its `Lazy`. ``freed`` says from which outputs to which inputs backward passes have gone that
    freed their graph. ``edges`` are the places in the graph of the outputs in ``places``, once it is opened.
    ``first`` is the number that its first operation has in the order of recording.
    """

    done = True
    level = None

    def __init__(self, trace: Trace, stretch: Stretch, places: Sequence[int]) -> None:
        self.first = next(running.sequence)
        collections.deque(itertools.islice(running.sequence, stretch.path[-1].work), maxlen=0)
        self.owner = trace
        self.stretch = stretch
        self.places = places
        self.outputs: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Lazy]]] = {}
        self.freed: list[tuple[Places, Places]] = []
        self.edges: dict[int, tuple[Node, int]] | None = None
        segments, first = trace.segments, self.first
        segments[first] = weakref.ref(self, lambda _: segments.pop(first, None))

    # As the trace of its outputs

    def get(self, t: Tensor, name: str) -> Any:
        """See `fad.core.replay_protocol.Deferred`: the node of an output, or of a handle of it."""
        with _opening:
            edges = self.opened()
            lazy = t._lazy
            if lazy is not None and lazy.trace is self:
                t._node, t._output_nr = edges[lazy.place]
                t._lazy = None
        return getattr(t, name)

    def materialize(self) -> None:
        self.opened()

    # The nodes of the operations

    def opened(self) -> dict[int, tuple[Node, int]]:
        """The places in the graph of its outputs."""
        with _opening:
            if self.edges is None:
                for segment in segments_of(self.owner):
                    if segment.first <= self.first:
                        segment._open()
            assert self.edges is not None
            return self.edges

    def _open(self) -> None:
        if self.edges is not None:
            return
        stretch = self.stretch
        outputs: list[Tensor | None] = [None] * stretch.path[-1].size
        for k, (tensor, lazy) in self.outputs.items():
            t = tensor()
            if t is not None and t._lazy is not None and t._lazy is lazy():
                outputs[k] = t
        cells = stretch.record(outputs, self.first)
        edges = {k: (cells[k]._node, cells[k]._output_nr) for k in self.places}
        for ends, wanted in self.freed:
            _release([cells[k]._node for k in ends], stretch, wanted)
        if self.edges is None:  # else a finalizer came between two lines
            self.edges = edges
            self.stretch = stretch.without_values()
        what = f"recorded again, since {users_call()} reads a node of it"
        tree.note(self.owner.name, stretch.path[-1].work, what)

    # The backward pass

    def is_whole(self) -> bool:
        """Whether a pass can go through it: it is not opened, not freed, and saves what it did.

        Where an array of an input has been deleted, single nodes raise the error.
        """
        stretch = self.stretch
        if self.edges is not None or self.freed or any(map(is_deleted, stretch.parts)):
            return False
        return not stretch.is_changed()

    def free(self, ends: Places, wanted: Places) -> None:
        """Note that a pass has freed what it went through; drop the inputs if nothing else refers to it."""
        self.freed.append((ends, wanted))
        if self.edges is not None:  # it was opened in the middle of the pass
            _release([self.edges[k][0] for k in ends if k in self.edges], self.stretch, wanted)
        alive = [k for k, (_, lazy) in self.outputs.items() if lazy() is not None]
        if {*ends} >= {*alive} and {*wanted} >= {*self.stretch.variables}:
            self.stretch = self.stretch.without_values()

    def send_back(self, stretch: Stretch, arrived: Arrived) -> None:
        """Replace what has ``arrived`` at its outputs by what arrives at its inputs.

        NOTE [sums in order]

            def loss(x):
                y = fnp.sin(x)
                return fnp.sum(y * y) + fnp.sum(y * 0.1) + fnp.sum(x * 0.3)

            grads = [fad.grad(loss)(array).tolist() for _ in range(9)]
            assert grads == [grads[0]] * 9  # also once they are programs: equal to the last bit

        The operations of a segment are earlier than what has sent gradients to its inputs. Single nodes would
        add theirs to that one after the other, and sums of floating-point numbers depend on the order: so the
        program is given what has arrived, and what it gives takes the place of that.
        """
        edges = {k: (lazy(), 0) for k, (_, lazy) in self.outputs.items()}
        ends = tuple([k for k, edge in edges.items() if edge in arrived])
        if not ends:
            return
        cts = [arrived.pop(edges[k]) for k in ends]
        wanted, places = stretch.variables, stretch.places(stretch.variables)
        begun = tuple([k for k, place in enumerate(places) if place in arrived])
        sums = [arrived[places[k]] for k in begun]

        def pull(_: Level, outs: Cells, variables: Cells, below: Cells, *cotangents: Any) -> PyTree:
            return pull_back([*outs, *[variables[k] for k in begun]], cotangents, variables)

        operands = [*cts, *sums]
        key = ("backward", ends, begun, *codes_of(operands))
        grads = self.pass_from(stretch, ends, wanted, key, pull, operands)
        arrived.update([(p, g) for p, g in zip(places, grads, strict=True) if g is not None])

    def pass_from(
        self,
        stretch: Stretch,
        ends: Places,
        wanted: Places,
        key: Hashable,
        pull: Pull,
        operands: Sequence[Operand],
    ) -> list[MaybeValue]:
        """What ``pull`` gives for a backward pass from outputs ``ends`` to inputs ``wanted``, which frees
        what it goes through; ``key`` tells all about it.

        ``stretch`` is its own, as it was when the pass began: a finalizer may open it in the middle.
        """
        ending = stretch.path[-1].ending(key)
        program = ending.program = ending.program or stretch.program(pull, ends, wanted)
        values = [*stretch.parts, *operands]
        self.owner.policy.have_ready(program, values)  # if not, its operations run one by one
        grads, _ = program(values)
        self.free(ends, wanted)
        tree.hits += 1
        return list(grads)


def segments_of(trace: Trace) -> list[Segment]:
    """Those of a trace that something refers to, in order."""
    return [s for s in [reference() for reference in [*trace.segments.values()]] if s is not None]


def codes_of(operands: Sequence[Operand]) -> list[Hashable]:
    """The guard codes of values that a program takes beside the inputs of its stretch."""
    return [aval_id(x.aval) for x in operands]  # type: ignore[union-attr]


class Way(NamedTuple):
    """The way of a backward pass: from outputs ``ends`` of a ``stretch``, of a trace or segment ``source``,
    to the inputs ``wanted`` of it, and through other ``segments``, each with its stretch, the latest first,
    to ``leaves``.
    """

    source: Any
    stretch: Stretch
    ends: Places
    wanted: Places
    segments: dict[Segment, Stretch]
    leaves: Sequence[Any]

    def gradients(self, grads: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
        """Those of the leaves, from those of what is ``wanted``; None where nothing arrives."""
        pairs = zip(self.stretch.places(self.wanted), grads, strict=True)
        arrived = {place: g for place, g in pairs if g is not None}
        for segment, stretch in self.segments.items():
            segment.send_back(stretch, arrived)
        return [arrived.get(id(t)) for t in self.leaves]


def way_from(
    trace: Trace, outs: Sequence[Any], leaves: Sequence[Any] | None, frees: bool
) -> Way | None:
    """The way from outputs of a trace to ``leaves``, or all; None if anything but whole segments is on it, or
    if it does not lead to one of these.
    """
    lazies: list[Any] = [o._lazy for o in outs if type(o) is Tensor and o._level is trace.level]
    source: Any = lazies[0].trace if lazies and lazies[0] else None
    stretches = {s: s.stretch for s in reversed(segments_of(trace))}
    if not all([s.is_whole() for s in stretches]):  # first all stretches: a finalizer may open one
        return None
    if len(lazies) < len(outs) or any([z is None or z.trace is not source for z in lazies]):
        return None
    stretch = Stretch.of(trace) if source is trace else stretches.pop(source, None)
    if stretch is None:
        return None
    used: dict[int, Any] = {}
    numbers: dict[int, int] = {}
    for s in (stretch, *stretches.values()):
        for k in s.variables:
            x = s.inputs[k]
            if x.is_leaf:
                if not is_untouched(x.argument):
                    return None
                used[id(x.argument)] = x.argument
                numbers[id(x.argument)] = k
            elif type(x.edge[0]) is not Lazy:  # type: ignore[index]
                return None
    wanted = stretch.variables
    if leaves is None:
        leaves = [*used.values()]
    if not used.keys() >= {*map(id, leaves)}:
        return None
    if not stretches:
        wanted = tuple([numbers[id(t)] for t in leaves])
    elif not (frees and used.keys() <= {*map(id, leaves)}):
        return None
    return Way(source, stretch, tuple([z.place for z in lazies]), wanted, stretches, leaves)


def fill(
    trace: Trace,
    stretch: Stretch,
    kept: Places,
    values: Iterable[Value],
    freed: Places,
    wanted: Places,
) -> None:
    """Give outputs the ``values`` that a program has computed; those that require grad are of a `Segment`.

    A backward pass has ``freed`` what leads from these outputs to the inputs ``wanted``.
    """
    outputs, rest = trace.outputs, iter(values)
    places = [k for k in kept if outputs[k]._requires_grad]
    segment = Segment(trace, stretch, places) if places else None
    if segment is not None:
        stretch.keep_pasts(outputs, kept)
    for k in kept:
        at = origin_of(stretch.path, k)
        layout = at.outcome.outputs[k - at.first].layout
        t, o = outputs[k], made_of(trace.level, rest, layout)
        if not t._requires_grad:
            take_over(t, o)
        elif t._lazy is not None:  # else a finalizer has read it
            lazy = Lazy(t._lazy.aval, segment, k)
            segment.outputs[k] = weakref.ref(t), weakref.ref(lazy)  # type: ignore[union-attr]
            t._value, t._aux, t._lazy = o._value, o._aux, lazy
    if segment is not None and freed:
        segment.free(freed, wanted)
    # Where a finalizer has looked at a node in the middle of the pass.
    nodes = [outputs[k]._node for k in freed if outputs[k]._lazy is None]
    _release([n for n in nodes if n is not None], stretch, wanted)


def _release(roots: Sequence[Any], stretch: Stretch, wanted: Places) -> None:
    """Free the nodes of a stretch that a pass goes through from ``roots`` to the inputs ``wanted``."""
    inputs = [stretch.inputs[k] for k in wanted]
    edges = [x.edge or edge_of(x.argument) for x in inputs]
    before = [e[0].trace.opened()[e[0].place] if type(e[0]) is Lazy else e for e in edges if e]
    graph = graph_of(roots, {node for node, _ in before}, None)
    for node in graph.edges if graph.needed is None else graph.needed:
        node.release_variables()
