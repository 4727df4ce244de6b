"""The one node of a program: what single nodes of its operations would be, as one.

NOTE [nodes of programs]

    y = fnp.sum(fnp.sin(x) * x)     # three operations, which repeat
    print(float(y))                 # they run as one program, and y has its value
    y.backward()                    # through one node, whose pass is one program too

A program that runs at a level that records gets one node. That keeps the inputs, as a checkpointed call does:
its backward pass computes the operations again. It is for the engine alone. Who looks at the graph
(`Tensor.grad_fn`, ``next_functions``, hooks, a pass that is recorded or watched) finds the nodes of the
operations: it is *opened*, that is, they are recorded again from the inputs, and all edges lead to them. The
same is done where a pass cannot go through it whole: where an earlier one has freed a part of it, or what it
has saved was written to. The nodes of the operations raise the errors.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fad.core.level import Level
from fad.core.tensor import Lazy, Meta, Storage, Tensor, lazy_tensor, take_over
from fad.core.types import Mask, MaybeValue, MaybeValues, PyTree, Value
from fad.replay.inputs import Input, OwnReference, parts_below, version_at
from fad.replay.outcomes import made_of
from fad.replay.states import origin_of
from fad.replay.stretch import Cells, Places, Stretch
from fad.tape.edges import InputMetadata
from fad.tape.engine import pull_back, run
from fad.tape.graph import Node, current_edge
from fad.tape.recorded_node import RecordedNode
from fad.tape.running import running

if TYPE_CHECKING:
    from fad.replay.trace import Trace

_opening = threading.RLock()


class ProgramNode(RecordedNode):
    """The node of the program of a stretch.

    ``places`` are the numbers of its outputs that it is the node of. ``freed`` are those from which backward
    passes have started that have freed what they went through. ``written``: the first of its outputs that was
    changed in place. ``operations`` are the nodes of the operations that its outputs are of, once it is
    opened. ``first`` is the number that its first operation has in the order of recording.
    """

    is_program = True

    def __init__(self, trace: Trace, stretch: Stretch, places: list[int]) -> None:
        self.first = next(running.sequence)
        collections.deque(itertools.islice(running.sequence, stretch.path[-1].work), maxlen=0)
        self.operations: list[tuple[Node, int]] | None = None
        self._start(trace.level, ())
        self._edges: Sequence[tuple[Node, int]] | None = None  # made when they are asked for
        self.stretch: Stretch | None = stretch
        self.places = places
        self.outputs = [OwnReference(trace.outputs[k]) for k in places]
        self.freed: frozenset[int] = frozenset()
        self.written: dict[int, int] = {}
        stretch.keep_states(trace.outputs)

    @property
    def edges(self) -> Any:
        if self.operations is not None:  # opened: who still has this node goes on from here
            return self.operations
        if self._edges is None:
            assert self.stretch is not None
            self._edges = _edges_of(self.stretch)
        return self._edges

    @edges.setter
    def edges(self, edges: Any) -> None:
        self._edges = edges

    def edges_and_stretch(self) -> tuple[Any, Stretch | None]:
        """What a pass needs that goes through it: another one may open it in the meantime."""
        with _opening:
            return self.edges, self.stretch

    @property
    def num_inputs(self) -> int:
        return len(self.places)

    def metadata_of_inputs(self) -> list[InputMetadata]:
        if self.operations is not None:
            return [n.metadata_of_inputs()[nr] for n, nr in self.operations]
        assert self.stretch is not None
        origins = [origin_of(self.stretch.path, k) for k in self.places]
        avals = [at.avals[k - at.first] for at, k in zip(origins, self.places, strict=True)]
        return [InputMetadata(a.shape, a.dtype, None) for a in avals]

    # The nodes of the operations

    def edges_of_outputs(self) -> Sequence[tuple[Node, int]]:
        """The nodes of the operations that its outputs are of, and which outputs of theirs they are."""
        with _opening:
            outputs, stretch = self.outputs, self.stretch  # a finalizer may come between two lines
            found = None if stretch is None else self._record(stretch, outputs)
            if self.operations is None:
                self.operations = found
                self.stretch, self._edges, self.outputs = None, None, []
        assert self.operations is not None
        return self.operations

    def _record(
        self, stretch: Stretch, references: Sequence[OwnReference]
    ) -> list[tuple[Node, int]]:
        outputs: list[Tensor | None] = [None] * stretch.path[-1].size
        for nr, (k, reference) in enumerate(zip(self.places, references, strict=True)):
            t = reference()
            if t is not None and t._lazy is None and t._node is self and t._output_nr == nr:
                outputs[k] = t
        written = {nr: _handle_of_written(self.level, v) for nr, v in self.written.items()}
        for nr, t in written.items():
            outputs[self.places[nr]] = t
        before, running.sequence = running.sequence, itertools.count(self.first)
        try:
            cells = stretch.record(outputs, again=True)
        finally:
            running.sequence = before
        found = [(cells[k]._node, cells[k]._output_nr) for k in self.places]
        for nr, t in written.items():  # the nodes that have saved it see that
            t.meta.storage.version += 1  # type: ignore[union-attr]
            found[nr][0].output_written(found[nr][1], t.meta.storage.version)  # type: ignore
        outside = {cells[k]._node for k in range(len(cells)) if k not in self.freed}
        outside.update([e[0] for e in self.edges])
        _release({cells[k]._node for k in self.freed} - outside - {None}, outside)
        return found

    # The backward pass

    def is_runnable(self, outputs: set[int]) -> bool:
        """Whether a pass from these outputs can go through it whole."""
        stretch = self.stretch
        if stretch is None:
            return False
        passed, saved = stretch.passed(self._ends(outputs), stretch.variables)
        if not passed.isdisjoint(self.freed):
            return False
        if stretch.trace.recording[2]:  # `allow_mutation_on_saved_tensors`
            return True
        if not saved.isdisjoint([self.places[nr] for nr in self.written]):
            return False
        given = [stretch.inputs[~k] for k in saved if k < 0]
        views = [past for k, past in stretch.views.items() if k in saved]
        unchanged = [x.version == version_at(x.argument) for x in given]
        return all(unchanged + [past.version == past.storage.version for past in views])

    def output_written(self, output_nr: int, version: int) -> None:
        if self.operations is not None:
            node, output_nr = self.operations[output_nr]
            node.output_written(output_nr, version)  # type: ignore[attr-defined]
        else:
            self.written.setdefault(output_nr, version)

    def _ends(self, outputs: Iterable[int]) -> Places:
        return tuple(sorted([self.places[nr] for nr in outputs]))

    def run_adding(
        self,
        stretch: Stretch,
        cotangents: MaybeValues,
        need: Mask,
        arrived: MaybeValues,
        keep_graph: bool,
    ) -> list[MaybeValue]:
        """What has arrived at its edges after it has run, if this had ``arrived`` before."""
        outputs = {nr for nr, c in enumerate(cotangents) if c is not None}
        if not outputs:
            return list(arrived)
        attended = running.task.attended and self.stretch is not None
        if attended and not self.is_runnable(outputs):
            # A hook of this very pass has freed a part of it, or written to what it has saved: single nodes
            # raise the error.
            edges = [e for e, n in zip(self.edges, need, strict=True) if n]
            roots = zip(self.edges_of_outputs(), cotangents, strict=True)
            run([(e, c) for e, c in roots if c is not None], edges, keep_graph=keep_graph)
        ends = self._ends(outputs)
        variables = stretch.variables
        wanted = tuple([k for k, n in zip(variables, need, strict=True) if n])
        begun = tuple([k for k, a in zip(variables, arrived, strict=True) if a is not None])
        ending = stretch.path[-1].ending(("backward", ends, begun, wanted))

        def pull(level: Level, given: Cells, cells: Cells, cts: Any) -> PyTree:
            roots = [*[cells[k] for k in ends], *[given[k] for k in begun]]
            return tuple(pull_back(roots, cts, [given[k] for k in wanted])), ()

        program = ending.program = ending.program or stretch.program(pull)
        cts = [c for c in (*cotangents, *arrived) if c is not None]
        values = [*stretch.parts, *cts]
        stretch.trace.policy.have_ready(program, values)  # if not, its operations run one by one
        found = iter(program(values)[0])
        if not keep_graph:
            self.free(stretch, ends, wanted)
        return [next(found) if n else None for n in need]

    def free(self, stretch: Stretch, ends: Places, wanted: Places) -> None:
        """Note that a pass has freed what it went through; drop the inputs if that was all of it."""
        self.freed |= stretch.passed(ends, wanted)[0]
        if self.operations is not None:  # it was opened in the middle of the pass
            nodes = {self.operations[self.places.index(k)][0] for k in ends if k in self.places}
            _release(nodes, {node for node, _ in _edges_of(stretch)})
        if self.stretch is not None and self.freed.issuperset(self.places):
            self.stretch = stretch.without_values()  # another pass may be in the middle of this one


def _handle_of_written(level: Level, version: int) -> Tensor:
    """An empty handle for what a Tensor was before it was written to, which made ``version`` of it."""
    handle = lazy_tensor(level, Lazy(None, None, 0), True, 0)
    handle.meta = Meta()
    handle.meta.storage = Storage(version - 1)
    return handle


def fill(
    trace: Trace, stretch: Stretch, kept: Places, values: Iterable[Value], freed: Places
) -> None:
    """Give outputs the ``values`` that a program has computed, and where they require grad its node.

    ``freed``: the outputs from which a backward pass has freed it.
    """
    outputs, rest = trace.outputs, iter(values)
    nodes = [k for k in kept if outputs[k]._requires_grad]
    node = ProgramNode(trace, stretch, nodes) if nodes else None
    for k in kept:
        at = origin_of(stretch.path, k)
        o = made_of(trace.level, rest, at.layouts[k - at.first])
        if o._requires_grad:
            o._node, o._output_nr = node, nodes.index(k)
        take_over(outputs[k], o)
    if node is not None and freed:
        node.free(stretch, freed, stretch.variables)
    # Of operations, where a finalizer has looked at one in the middle of the pass.
    nodes_alone = {outputs[k]._node for k in freed if outputs[k]._lazy is None} - {node, None}
    if nodes_alone:
        _release(nodes_alone, {e[0] for e in _edges_of(stretch)})


def _edges_of(stretch: Stretch) -> list[tuple[Node, int]]:
    """The places in the graph of its inputs that require grad."""
    return [current_edge(stretch.inputs[k].argument) for k in stretch.variables]


def parts_of(inputs: Sequence[Input], on_values: bool) -> list[Value]:
    """The parts of all inputs; ``on_values``: no level below records what is computed from them."""
    parts = [given.parts if on_values else parts_below(given) for given in inputs]
    return list(itertools.chain.from_iterable(parts))


def _release(nodes: set[Any], outside: set[Any]) -> None:
    """Free these nodes, and those that they lead to, but for what is ``outside``."""
    todo = list(nodes)
    seen = nodes | outside
    while todo:
        node = todo.pop()
        node.release_variables()
        nexts = {e[0] for e in node.edges if e is not None} - seen
        seen |= nexts
        todo += nexts
