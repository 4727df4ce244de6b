"""Whole backward passes as Primitives: a graph whose structure was seen before is one call.

NOTE [compiled backward]

Where nobody can look inside a backward pass (no hooks, no anomaly mode, no rules in Python but those that
are marked as traceable, no packed values, not itself being recorded), its nodes are numbered, latest first,
and the plans and edges of all of them make a key. The first passes with a key run node by node. When it
keeps coming back, the pass becomes a Primitive of (saved values, cotangents): it is traced once, compiled
by XLA, and *bound*, one level below the graph, like any other call. An outer transform sees one operation,
with derived rules of its own; in it, a call of a Function has the rules that it has in any code that JAX
traces (`fad.native`).

Inside of a transform the pass waits with the operations before it, and is compiled together with them
(see `fad.runs`); the budget for compiling is one for both.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax

from fad import runs
from fad.avals import aval_of, struct_of
from fad.dispatch import below, settle_levels, state
from fad.graph import Node
from fad.primitive import Primitive
from fad.structures import Structure, Structures, budget
from fad.tape import paths
from fad.tape.donation import large_gradients, may_donate, run_donating
from fad.tape.layouts import Layout, layout_of
from fad.tape.operands import is_traced
from fad.tape.record import ROOT, PrimitiveNode, spread
from fad.tape.saved import SavedView

__all__ = ["Pass", "cache_info", "clear_cache", "compiled", "prepare"]

SAVED_PER_NODE = 15e-6  # seconds that a compiled pass saves, for each node
CAPACITY = 256  # structures remembered


class compiled:
    """Switch compiled backward passes and runs by a bool: at once, and until the ``with`` block ends.

    Results are the same either way, up to rounding.

    Arguments:
        mode: whether graphs whose structure repeats are compiled, and whether small operations that are
            recorded, or inside of transforms that begin now, wait for each other (see
            docs/performance.md).

    ``compiled.cache_info()`` and ``compiled.clear_cache()`` look at what is kept, and drop it.

    >>> import fad
    >>> with fad.autograd.compiled(False):
    ...     fad.grad(lambda x: x * x)(3.0).item()
    6.0
    """

    __slots__ = ("_before",)

    def __init__(self, mode: bool) -> None:
        self._before = state.compiling
        state.compiling = bool(mode)
        if not mode:
            settle_levels()
            runs.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        state.compiling = self._before

    @staticmethod
    def cache_info() -> dict[str, int]:
        """How many structures are remembered, how many are compiled, and how often those ran."""
        return cache_info()

    @staticmethod
    def clear_cache() -> None:
        """Forget all structures and compiled passes, and the time that they took and saved."""
        clear_cache()


_structures = Structures(CAPACITY)


def cache_info() -> dict[str, int]:
    """How many structures are remembered, how many of them are compiled, and how often those ran:
    backward passes, runs of operations that wait, and scripts of functions in reverse transforms.
    """
    tables = _structures.info(), runs.cache_info(), paths.cache_info()
    return {name: sum([t[name] for t in tables]) for name in tables[0]}


def clear_cache() -> None:
    """Forget all structures and compiled passes."""
    _structures.clear()
    state.passes.reset()
    runs.clear_cache()
    paths.clear_cache()
    budget.reset()


class Pass:
    """A backward pass that is ready to run as one call."""

    __slots__ = ("captures", "entry", "fresh", "operands", "order", "released")

    def __init__(
        self, entry: Structure, order: list[Node], captures: Any, operands: list[Any], fresh: bool
    ) -> None:
        self.entry = entry
        self.order = order
        self.captures = captures
        self.operands = operands
        self.fresh = fresh
        self.released = False

    def run(self, frees: bool) -> list[Any] | None:
        """Gradients for the captures; None if the pass cannot be compiled after all.

        ``frees``: its nodes let go of what they have saved when it has run.
        """
        entry = self.entry
        if entry.program is None:
            return None
        call = functools.partial(below, entry.program)
        if frees and entry.large and may_donate(self.operands):
            call = functools.partial(run_donating, entry, self.fresh, self.release)
        if self.fresh:
            started = time.perf_counter()
            try:
                out = call(self.operands)
            except Exception:  # rules of users run here: node by node, their error names its place
                if self.released:
                    raise
                entry.program, entry.refused = None, True
                return None
            finally:
                budget.spent += time.perf_counter() - started
        else:
            _structures.ran(SAVED_PER_NODE * len(self.order))
            out = call(self.operands)
        outs = out if type(out) is tuple else (out,)
        return [None if k is None else outs[k] for k in entry.wanted]

    def release(self) -> None:
        """Free the graph."""
        self.released = True
        for node in self.order:
            node.release_variables()

    def remember_start(self) -> None:
        """Note the operation with which the graph began: if it is the tape's, so do more like it."""
        for node in reversed(self.order):
            if type(node) is PrimitiveNode:
                if node.level is ROOT:
                    node.plan.starts = True
                return


def prepare(
    roots: Sequence[tuple[tuple[Node, int], Any]],
    captures: Sequence[tuple[Node, int]] | None,
    keep_graph: bool = False,
) -> Pass | None:
    """The pass from ``roots`` to ``captures`` (None: to all leaves), or None to run it node by node."""
    if not state.compiling or any([is_traced(ct) for _, ct in roots]):
        return None  # what is traced is compiled whole anyway
    if state.passes.rests():
        return None  # structures were new for some time
    starts = [e for e, _ in roots]
    layout = layout_of(starts, captures)
    if layout is None:
        return None
    operands: list[Any] = []
    for node in layout.order:
        if type(node) is PrimitiveNode:
            values = node.values
            if values is None:  # another thread has just run the pass, and freed it
                return None
            operands += _operands(values) if node.has_views else values
        elif node in layout.parts:
            operands += layout.parts[node].operands
    entry = _structures.seen(layout.key)
    fresh = entry.program is None
    if not fresh or entry.count == 1 or entry.refused:
        state.passes.note(-1 if fresh else state.passes.limit)
    if fresh:
        if entry.refused or not budget.allows(entry.count):
            return None
        _build(entry, layout, starts, [*operands, *[ct for _, ct in roots]])
        if entry.refused:
            return None
    elif keep_graph:
        layout.keep(starts, captures)
    operands += [ct for _, ct in roots]
    return Pass(entry, layout.order, layout.captures, operands, fresh)


def _operands(values: Sequence[Any]) -> list[Any]:
    """Saved values, with bases and numbers in the place of views."""
    found: list[Any] = []
    for v in values:
        found += v.operands() if type(v) is SavedView else (v,)
    return found


def _opening(values: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """What makes such saved values again, of traced `_operands`."""
    ways = [(v.operation.flat, len(v.numbers)) if type(v) is SavedView else None for v in values]

    def opening(operands: Sequence[Any]) -> list[Any]:
        rest = iter(operands)
        return [
            next(rest) if way is None else way[0](next(rest), *[next(rest) for _ in range(way[1])])
            for way in ways
        ]

    return opening


def _pull_of(node: PrimitiveNode) -> Callable[..., Sequence[Any]]:
    """What a node does in a pass, in the form of `Part.pull`."""
    assert node.values is not None
    plan = node.plan
    opening = _opening(node.values) if node.has_views else list

    def pull(operands: Sequence[Any], cts: Sequence[Any], need: Sequence[bool]) -> Sequence[Any]:
        given = None if plan.single else tuple([c is not None for c in cts])
        wanted = tuple([n for n, m in zip(need, plan.mask, strict=True) if m])
        vjp = plan.vjp(given, wanted).flat
        return spread(vjp(*opening(operands), *[c for c in cts if c is not None]), need)

    return pull


def _build(
    entry: Structure, layout: Layout, roots: Sequence[tuple[Node, int]], operands: Sequence[Any]
) -> None:
    """Write the pass as a function of saved values and cotangents; plain data, no nodes kept."""
    order, captures, index = layout.order, layout.captures, layout.index()
    steps: list[tuple[int, Any, int, tuple[tuple[int, int] | None, ...]]] = []
    for i, node in enumerate(order):
        if type(node) is PrimitiveNode:
            pull, count = _pull_of(node), len(_operands(node.values or ()))
        elif node in layout.parts:
            part = layout.parts[node]
            pull, count = part.pull, len(part.operands)
        else:
            continue
        edges = tuple([None if e is None else (index[e[0]], e[1]) for e in node.edges])
        steps.append((i, pull, count, edges))
    widths = [node.num_inputs for node in order]
    starts = [(index[n], nr) for n, nr in roots]
    ends = [(index.get(n), nr) for n, nr in captures]
    saved = sum(s[2] for s in steps)
    leads = [False] * len(order)  # to what is asked for
    for j, _ in ends:
        if j is not None:
            leads[j] = True
    for i, _, _, edges in reversed(steps):
        leads[i] = leads[i] or any([e is not None and leads[e[0]] for e in edges])

    def run(*operands: Any) -> list[Any]:
        slots: list[list[Any]] = [[None] * w for w in widths]
        for (i, nr), ct in zip(starts, operands[saved:], strict=True):
            slots[i][nr] = ct if slots[i][nr] is None else slots[i][nr] + ct
        at = 0
        for i, pull, count, edges in steps:
            values = operands[at : at + count]
            at += count
            cts = slots[i]
            need = [e is not None and leads[e[0]] for e in edges]
            if all([c is None for c in cts]) or not any(need):
                continue
            grads = pull(values, cts, need)
            for edge, g in zip(edges, grads, strict=True):
                if edge is not None and g is not None:
                    j, nr = edge
                    slots[j][nr] = g if slots[j][nr] is None else slots[j][nr] + g
        return [None if j is None else slots[j][nr] for j, nr in ends]

    def backward(*operands: Any) -> tuple[Any, ...]:
        return tuple([x for x in run(*operands) if x is not None])

    reached = [[False] * w for w in widths]
    for i, nr in starts:
        reached[i][nr] = True
    for i, _, _, edges in steps:
        if any(reached[i]):
            for edge in edges:
                if edge is not None:
                    reached[edge[0]][edge[1]] = True
    hits = [j is not None and reached[j][nr] for j, nr in ends]
    if layout.parts:  # rules of users may return None; else it follows from the structure alone
        found: list[Any] = []

        def traced(*operands: Any) -> list[Any]:
            found[:] = run(*operands)
            return [x for x in found if x is not None]

        try:
            closed = jax.make_jaxpr(traced)(*[struct_of(aval_of(x)) for x in operands])
        except Exception:  # node by node, the error names its place
            entry.refused = True
            return
        if not all([part.allows(closed.jaxpr) for part in layout.parts.values()]):
            entry.refused = True
            return
        hits = [x is not None for x in found]
    count = 0
    wanted: list[int | None] = []
    for hit in hits:
        wanted.append(count if hit else None)
        count += hit
    entry.wanted = tuple(wanted)
    entry.large = large_gradients(captures, wanted)
    if count == 0:
        entry.refused = True
        return
    lazy = not layout.parts and all(
        [node.plan.primitive.lazy for node in order if type(node) is PrimitiveNode]
    )
    entry.program = Primitive("backward", backward, lazy=lazy, hot=True)
