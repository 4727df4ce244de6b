"""Whole backward passes as programs: the pass of a graph whose structure repeats is one call.

NOTE [compiled backward]

Where a backward pass is not observed (no hooks, no anomaly mode, no rules in Python but those that
are marked as traceable, no packed values, not itself being recorded), its nodes are numbered,
latest first, and the plans and edges of all of them make a key. The first passes with a key run
node by node. When the key repeats, the pass is made a program of (saved values, cotangents), bound one
level below the graph like any other call. In it, a call of a Function has the rules that it has in
any code that JAX traces (`fad.functions.native`).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax

from fad.core import jaxapi
from fad.core.avals import aval_of, struct_of, with_constants
from fad.core.caches import Cache
from fad.core.collector import without_collector
from fad.core.jaxapi import array_type
from fad.core.level import bind, state
from fad.replay.donation import Large, large_gradients, may_donate, run_donating
from fad.replay.inputs import is_traced
from fad.replay.layouts import Layout, layout_of
from fad.replay.policy import BackOff, repeats_of_pass
from fad.replay.program import Program
from fad.replay.settings import is_default_placement, is_small, settings_number
from fad.tape.accumulate import ADD
from fad.tape.graph import Node
from fad.tape.recorded_node import spread
from fad.tape.recorder import PrimitiveNode
from fad.tape.saved import SavedView

__all__ = ["Structures", "backward", "structures"]


@dataclasses.dataclass(slots=True, eq=False)
class Structure:
    """The structure of a backward pass: how often it was run, and the program made of it, or why
    there is none.

    ``wanted`` says which result is the gradient of each capture. ``large`` are the shapes and
    dtypes of its large results, and ``donating`` the programs to which operands are donated for them.
    """

    count: int = 0
    program: Program | None = None
    wanted: tuple[int | None, ...] = ()
    large: tuple[Large, ...] = ()
    donating: list[Any] = dataclasses.field(default_factory=list)
    refused: str = ""


class Structures(Cache):
    """The structures of backward passes that are remembered; ``hits``: passes that ran as programs."""

    __slots__ = ("hits",)

    def __init__(self) -> None:
        super().__init__()
        self.hits = 0

    def seen(self, key: Hashable) -> Structure:
        """The structure of ``key``, counted once more."""
        found: Structure = self.get(key) or self.put(key, Structure())
        found.count += 1
        return found

    def clear(self) -> None:
        """Forget all structures, and what was compiled for them."""
        super().clear()
        self.hits = 0


structures = Structures()


class _Thread(threading.local):
    """Back-off from looking for the structure of passes, in each thread."""

    def __init__(self) -> None:
        self.back_off = BackOff(limit=32, length=8, grace=4)


thread = _Thread()


def backward(
    roots: Sequence[tuple[tuple[Node, int], Any]],
    captures: Sequence[tuple[Node, int]] | None,
    keep_graph: bool,
) -> list[tuple[tuple[Node, int], Any]] | None:
    """The pass from ``roots`` to ``captures`` (None: to all leaves): each with its gradient.

    None if it has to run node by node.
    """
    if not state.replaying or any([is_traced(ct) for _, ct in roots]):
        return None  # what is traced is compiled whole anyway
    if jaxapi.checks_numbers() or not settings_number(jaxapi.trace_context()):
        return None
    if thread.back_off.is_on():
        return None  # the last structures were all new
    starts = [e for e, _ in roots]
    layout = layout_of(starts, captures)
    if layout is None:
        return None
    operands: list[Any] = []
    for node in layout.order:
        if type(node) is PrimitiveNode:
            values = node.values
            if values is None:  # another thread has just run the pass and freed the graph
                return None
            operands += _operands(values) if node.has_views else values
        elif node in layout.parts:
            operands += layout.parts[node].operands
    operands = with_constants([*operands, *[ct for _, ct in roots]])
    entry = structures.seen(layout.key)
    fresh = entry.program is None
    if not fresh or entry.count == 1 or entry.refused:
        thread.back_off.note(-1 if fresh else thread.back_off.limit)
    if fresh:
        repeats = repeats_of_pass(len(layout.order), _are_small(operands))
        if entry.refused or entry.count < repeats:
            return None
        _build(entry, layout, starts, operands)
        if entry.program is None:
            return None
    grads = _run(entry, layout, operands, not keep_graph)
    if grads is None:
        return None
    if not keep_graph:
        _release(layout)
    return list(zip(layout.captures, grads, strict=True))


def _run(entry: Structure, layout: Layout, operands: list[Any], frees: bool) -> list[Any] | None:
    """Gradients for the captures; None if the pass has to run node by node.

    ``frees``: its nodes drop their saved values when it has run.
    """
    program = entry.program
    assert program is not None
    plain = all([type(x) is array_type for x in operands])
    if plain and not all([is_default_placement(x.sharding) for x in operands]):
        return None
    if (layout.parts and not plain) or (plain and not program.is_ready(operands)):
        return None
    try:
        frees = frees and layout.whole
        if frees and entry.large and program.call is not None and may_donate(operands):
            out = run_donating(entry, lambda: _release(layout), operands)
        else:
            out = bind(program, operands)
    except Exception as error:
        if program.call is not None:
            raise
        entry.program, entry.refused = None, f"{type(error).__name__}: {error}"
        return None
    structures.hits += 1
    return [None if k is None else out[k] for k in entry.wanted]


def _are_small(operands: Sequence[Any]) -> bool:
    return all([type(x) is not array_type or is_small(x) for x in operands])


def _release(layout: Layout) -> None:
    """Free what has run."""
    for node in layout.running():
        node.release_variables()


def _operands(values: Sequence[Any]) -> list[Any]:
    """Saved values, with bases and numbers in the place of views."""
    found: list[Any] = []
    for v in values:
        found += v.operands() if type(v) is SavedView else (v,)
    return found


def _opening(values: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """What makes such saved values again, of `_operands`."""
    ways = [(v.operation, len(v.numbers)) if type(v) is SavedView else None for v in values]

    def opening(operands: Sequence[Any]) -> list[Any]:
        rest = iter(operands)
        return [
            next(rest)
            if way is None
            else bind(way[0], [next(rest), *[next(rest) for _ in range(way[1])]])
            for way in ways
        ]

    return opening


def _pull_of(node: PrimitiveNode, values: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """What a node that has saved ``values`` does in a pass, in the form of `Part.pull`."""
    plan = node.plan
    opening = _opening(values) if node.has_views else list

    def pull(operands: Sequence[Any], cts: Sequence[Any], need: Sequence[bool]) -> Sequence[Any]:
        given = None if plan.single else tuple([c is not None for c in cts])
        if plan.rows is not None:
            need = plan.sends(cts, need)
        wanted = tuple([n for n, m in zip(need, plan.mask, strict=True) if m])
        saved = opening(operands)
        return spread(
            bind(plan.vjp(given, wanted), [*saved, *[c for c in cts if c is not None]]), need
        )

    return pull


def _build(
    entry: Structure, layout: Layout, roots: Sequence[tuple[Node, int]], operands: Sequence[Any]
) -> None:
    """Write the pass as a function of saved values and cotangents; plain data, no nodes kept."""
    order, captures, index = layout.order, layout.captures, layout.index()
    steps: list[tuple[int, Any, int, tuple[tuple[int, int] | None, ...]]] = []
    for i, node in enumerate(order):
        if type(node) is PrimitiveNode:
            values = node.values
            if values is None:  # another thread has just run the pass, and freed it
                return
            pull, count = _pull_of(node, values), len(_operands(values))
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
    leads = [False] * len(order)  # to a capture
    for j, _ in ends:
        if j is not None:
            leads[j] = True
    for i, _, _, edges in reversed(steps):
        leads[i] = leads[i] or any([e is not None and leads[e[0]] for e in edges])

    def run(*operands: Any) -> list[Any]:
        slots: list[list[Any]] = [[None] * w for w in widths]
        for (i, nr), ct in zip(starts, operands[saved:], strict=True):
            slots[i][nr] = ct if slots[i][nr] is None else bind(ADD, (slots[i][nr], ct))
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
                    slots[j][nr] = g if slots[j][nr] is None else bind(ADD, (slots[j][nr], g))
        return [None if j is None else slots[j][nr] for j, nr in ends]

    def backward(*operands: Any) -> tuple[Any, ...]:
        return tuple([x for x in run(*operands) if x is not None])

    reached = [[False] * w for w in widths]
    for i, nr in starts:
        reached[i][nr] = True
    for i, _, _, edges in steps:
        if any(reached[i]):
            sends: Sequence[bool] = [e is not None for e in edges]
            node = order[i]
            if type(node) is PrimitiveNode and node.plan.rows is not None:
                sends = node.plan.sends([r or None for r in reached[i]], sends)
            for edge, s in zip(edges, sends, strict=True):
                if edge is not None and s:
                    reached[edge[0]][edge[1]] = True
    hits = [j is not None and reached[j][nr] for j, nr in ends]
    if layout.parts:  # rules of users may return None; else it follows from the structure alone
        found: list[Any] = []

        def traced(*operands: Any) -> list[Any]:
            found[:] = run(*operands)
            return [x for x in found if x is not None]

        try:
            trace = without_collector(jax.make_jaxpr(traced))
            closed = trace(*[struct_of(aval_of(x)) for x in operands])
        except Exception:  # node by node, the error names its place
            entry.refused = "a rule cannot be traced"
            return
        if not all([part.allows(closed.jaxpr) for part in layout.parts.values()]):
            entry.refused = "a rule draws random numbers"
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
        entry.refused = "no gradient arrives"
        return
    entry.program = Program("a backward pass", backward, len(steps), _are_small(operands))
