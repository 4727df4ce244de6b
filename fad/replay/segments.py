"""Segments of long traces: forward one by one, backward from the last to the first.

NOTE [chains of segments]

When a segment ends (see NOTE [segments] in `fad.replay.states`), it runs as one program, which
gives the outputs that are still referenced their values, and the trace goes on with a new segment,
whose inputs they are. At levels that record nothing that is all. At a recording level the nodes
are not made: the backward pass goes through the segments from the last to the first. The program
of each computes its operations again, recorded, and pulls back the cotangents of its outputs,
*beginning with* what has arrived at its inputs so far. So gradients are added up in the order in
which single operations would have added them, and the bits are the same; and what is kept of a
segment for the backward pass are its inputs alone.

Where a node is read, all segments are recorded after all.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from fad.core.level import bind
from fad.core.tensor import UNSHARED, Storage, Tensor
from fad.replay.entries import Operations, computation_of
from fad.replay.inputs import FOREIGN, Input, is_in_trace
from fad.replay.program import Program
from fad.replay.states import RUNS, SHORT, End, State, fresh_in, repays_whole
from fad.replay.writes import parts_below
from fad.tape.engine import pull_back
from fad.tape.recorder import ROOT

__all__ = ["Chain", "free_inputs", "program_of", "pull_through", "run_program"]


class Chain:
    """The segments of one trace that have ended, in order.

    It refers to them weakly, and to ``latest``, which goes on after them. A segment is referenced by its
    outputs, and those by the segments that have them as inputs, so that it is freed with its outputs.
    ``root`` is the root of the first, ``ended`` counts the last states of all that there were. ``shared`` are
    the Tensors that share the state of outputs, by their `id`, and ``saved`` what nodes of ended segments
    would save, by its `id` or that of its storage: see `fad.replay.writes`. ``has_untracked``: there are
    untracked operations; ``on_values``: no level below records what the programs compute, and neither does
    the tape: see NOTE [untracked operations] in `fad.replay.untracked`.
    """

    __slots__ = (
        "_limit",
        "_segments",
        "ended",
        "has_untracked",
        "latest",
        "on_values",
        "root",
        "saved",
        "shared",
    )

    def __init__(self, root: Any) -> None:
        self._segments: list[weakref.ref[Any]] = []
        self._limit = 1  # of references, after which those to segments that are freed are dropped
        self.ended: dict[State, int] = {}
        self.latest: weakref.ref[Any]
        self.has_untracked = False
        self.on_values = True
        self.root = root
        self.shared: dict[int, weakref.ref[Tensor]] = {}
        self.saved: dict[int, weakref.ref[Tensor | Storage]] = {}

    @property
    def segments(self) -> list[Any]:
        """Those that are still needed."""
        found = [r() for r in self._segments]
        return [s for s in found if s is not None]

    def runs(self, last: State) -> int:
        """After how many runs programs are compiled, where ``last`` is the end; see NOTE [long programs]."""
        work = last.work + sum([s.work * times for s, times in list(self.ended.items())])
        if work <= SHORT:
            return 0
        return RUNS * (len(self.ended) + 1) // (sum(self.ended.values()) + 1)

    def add(self, segment: Any) -> None:
        """Add one."""
        self._segments.append(weakref.ref(segment))
        if len(self._segments) < self._limit:
            return
        self._segments = [r for r in self._segments if r() is not None]
        self._limit = 2 * len(self._segments) + 1
        for key, reference in list(self.saved.items()):
            if reference() is None:
                self.saved.pop(key, None)

    def note_tracked(self) -> None:
        """An input is tracked below."""
        self.on_values = False
        if self.has_untracked:
            self.root.defers_untracked = False

    def note_saved(self, t: Tensor) -> None:
        """A node of a segment would save ``t``."""
        owner = _owner(t)
        self.saved[id(owner)] = weakref.ref(owner)

    def has_saved(self, t: Tensor) -> bool:
        """Whether nodes of ended segments would save ``t``, or a view of it."""
        found = [self.saved.get(id(owner)) for owner in (t, _owner(t))]
        return any([r is not None and r() is not None for r in found])

    def drop(self, segments: Sequence[Any]) -> None:
        """These are not needed any more."""
        gone = {id(s) for s in segments}
        self._segments = [weakref.ref(s) for s in self.segments if id(s) not in gone]
        for s in segments:
            s._forget()

    def is_alive(self) -> bool:
        """Whether outputs of segments without nodes are still alive."""
        return any([r() is not None for s in self.segments for r in s.kept.values()])

    def leaves(self, trace: Any) -> list[Tensor]:
        """The inputs of the segments, and of the ``trace`` after them, that require grad at its level."""
        found: dict[int, Tensor] = {}
        for segment in (*self.segments, trace):
            for given in segment.inputs:
                if given.layout is True and not self._has(given.argument):
                    found[id(given.argument)] = given.argument
        return list(found.values())

    def _has(self, t: Tensor) -> bool:
        """Whether a Tensor is an output of a segment, which has not been recorded."""
        lazy = t._lazy
        return lazy is not None and lazy.trace.chain is self


def _owner(t: Tensor) -> Tensor | Storage:
    """The storage of ``t``, or ``t`` itself where it shares none."""
    return t if t.meta is None or t.meta.storage is UNSHARED else t.meta.storage


def program_of(
    trace: Any, operations: Operations, end: End, long: bool, make: Callable[[], Program]
) -> Program | None:
    """The program of what a trace has appended, as ``make`` makes it; None if there is none yet.

    ``long``: it is a segment, or what comes after one.
    """
    root, path = trace.chain.root, operations.path
    if long:
        return end.always(make, root.is_due)
    if end.program is not None or trace.level is ROOT:
        return end.due(make, now=False)
    fresh = fresh_in(path)
    whole = repays_whole(operations.work, fresh)
    program = end.due(make, whole or is_in_trace(operations.inputs))
    if program is not None:
        program.in_foreground, program.fresh = whole, fresh
        for use in {s.use for s in path}:
            use.times += 1
        if whole:
            root.decide(0)
            root.has_whole = True
    return program


def run_program(
    chain: Chain,
    end: End,
    program: Program,
    inputs: Sequence[Input],
    more: Sequence[Any] = (),
    unless_pending: bool = False,
) -> Any:
    """Run a program of the inputs, and ``more``, one level down; None if it fails.

    ``unless_pending``: None too where it is one of several, and is being compiled. To record operations takes
    less time than to run those of a segment one by one, here and again in the backward pass.
    """
    parts = [given.parts if chain.on_values else parts_below(given) for given in inputs]
    values = [*itertools.chain.from_iterable(parts), *more]
    if unless_pending and chain.ended and program.is_compiling(values):
        chain.root.pending, chain.root.failures = program, 0
        return None
    try:
        found = bind(program, values)
    except Exception as error:  # of any kind: recording raises it again, or succeeds
        end.fail(error)
        return None
    if program.is_pending:
        chain.root.pending = program
    return found


def pull_through(chain: Chain, arrived: dict[int, Any]) -> list[tuple[Any, list[int]]] | None:
    """Send what has ``arrived`` at Tensors, by their `id`, back through the segments.

    What arrives at the inputs of segments is added to it. Returns the segments that it went through, each
    with the numbers of the outputs where it began; None if that fails.
    """
    passed = []
    for segment in reversed(chain.segments):
        outs = []
        cotangents = []
        path = [e[0] for e in segment.entries[1:]]
        inputs: list[Input] = segment.inputs
        kept = segment.kept
        if segment.ran is None:  # a finalizer has read a node of it
            return None
        for k, reference in kept.items():
            t = reference()
            if t is not None and id(t) in arrived:
                outs.append(k)
                cotangents.append(arrived.pop(id(t)))
        if not outs:
            continue
        variables = [k for k, given in enumerate(inputs) if given.layout is True]
        arguments = [inputs[k].argument for k in variables]
        begun = [j for j, a in enumerate(arguments) if id(a) in arrived]
        end = path[-1].end(("pull", tuple(outs), tuple(begun), tuple(variables)))
        make = functools.partial(_pulling, segment, path, inputs, outs, begun, variables)
        program = end.always(make, chain.root.is_due)
        sums = [arrived[id(arguments[j])] for j in begun]
        found = run_program(chain, end, program, inputs, [*cotangents, *sums])
        if found is None:
            return None
        for a, g in zip(arguments, program.unflatten(found), strict=True):
            if g is not None:
                arrived[id(a)] = g
        passed.append((segment, outs))
    return passed


def passed(entries: Sequence[Any], ends: Sequence[int]) -> frozenset[int]:
    """The outputs of a trace with these ``entries`` that the backward pass from ``ends`` goes through."""
    return entries[-1][0].end(("passed", *ends)).passed(entries, ends)


def free_inputs(trace: Any) -> None:
    """Drop the values of the inputs if backward passes have gone through all that is alive.

    The nodes of that are freed, or have saved nothing: no value of an input is read any more.
    """
    entries, ran = trace.entries, trace.ran  # a finalizer may have the trace recorded
    alive = [k for k, reference in trace.kept.items() if reference() is not None]
    if ran is not None and passed(entries, ran).issuperset(alive):
        trace.inputs = [
            given._replace(argument=given.argument if given.layout is True else None, parts=())
            for given in trace.inputs
        ]


def _pulling(
    segment: Any,
    path: Sequence[State],
    inputs: Sequence[Input],
    outs: Sequence[int],
    begun: Sequence[int],
    variables: Sequence[int],
) -> Program:
    """The backward pass of a segment: gradients of its inputs, from cotangents of its outputs and
    what has arrived at some of the inputs before.
    """
    compute = computation_of(path, inputs)
    layouts = [(given.layout, len(given.parts)) for given in inputs]
    count = sum([n for _, n in layouts])
    assert all([n == 1 or layout is FOREIGN for layout, n in layouts])
    maker = segment.maker
    outs, begun, variables = tuple(outs), tuple(begun), tuple(variables)

    def run(*values: Any) -> Any:
        with maker() as own:
            given, cells = compute(own, values[:count])
            inside = [given[k] for k in variables]
            ends = [*[cells[k] for k in outs], *[inside[j] for j in begun]]
            return tuple(pull_back(ends, values[count:], inside))

    return Program(segment.root.name, run, path[-1].work)
