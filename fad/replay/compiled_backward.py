"""Whole backward passes as programs: the pass of a graph whose structure repeats is one call.

NOTE [compiled backward]

    y = fnp.sum(fnp.sin(x) * x)         # new: its operations are recorded one by one
    for _ in range(8):
        y.backward(retain_graph=True)   # soon one call of XLA, as is a pass through calls of Functions

Where a backward pass is not observed (no hooks, no anomaly mode, no rules in Python but those that
are marked as traceable, no packed values, not itself being recorded) and all arrays are small, its nodes are
numbered, latest first, and the plans and edges of all of them make a key. The first passes with a key run
node by node. When the key repeats, the pass is made a program of (saved values, cotangents), bound one
level below the graph like any other call. In it, a call of a Function has the rules that it has in
any code that JAX traces (`fad.functions.native`).

NOTE [graphs that are kept]

    y = fnp.sum(fnp.sin(x) * x)
    rows = [autograd.grad(y, x, ct, retain_graph=True) for ct in cts]

To number the nodes of a graph takes longer than the call. So a pass that keeps a graph of operations keeps
their order too, in the root: in a table of roots, a graph would stay alive that leads back to its root, as by
``x.grad``. The next pass from there has to compare what may have changed since: hooks, releases, writes,
numbers. Edges of nodes that others lead to cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, TypeAlias

import jax

from fad.core import jaxapi
from fad.core.avals import aval_of, struct_of, with_constants
from fad.core.caches import Cache
from fad.core.collector import without_collector
from fad.core.level import bind, state
from fad.core.primitive import VjpPlan
from fad.core.replay_protocol import Part
from fad.core.types import MaybeValue, MaybeValues, Operand, Value
from fad.replay.policy import Ending, Policy, repeats_of_pass
from fad.replay.program import Program
from fad.replay.settings import is_small, settings_number
from fad.replay.states import tree
from fad.tape.accumulate import ADD
from fad.tape.graph import AccumulateGrad, Node
from fad.tape.recorded_node import RecordedNode, for_edges
from fad.tape.recorder import PrimitiveNode
from fad.tape.saved import SavedView, versions_of

LARGEST = 1500  # nodes in one compiled pass

Edges = Sequence[tuple[Node, int]]
PullOfNode = Callable[[Sequence[Operand], MaybeValues, Sequence[bool]], MaybeValues]
# What one node does: its key, its operands, and its `Part`, or what a `PrimitiveNode` has saved.
Work = tuple[Sequence[Hashable], Sequence[Any], Any]
_OF_LEAF: Work = ((-3,), (), None)
# What the nodes of a pass do, where its gradients go, and a key of both.
Structure: TypeAlias = tuple[dict[Node, Work], Edges, Hashable]

structures = Cache()  # of the passes that are remembered: how often they came, and their programs
policy = Policy()


def backward(
    roots: Sequence[tuple[tuple[Node, int], Value]], captures: Edges | None, keep_graph: bool
) -> list[tuple[tuple[Node, int], Value]] | None:
    """The pass from ``roots`` to ``captures`` (None: to all leaves): each with its gradient.

    None if it has to run node by node.
    """
    if not jaxapi.at_top_level() or any([level.traces for level in state.levels]):
        return None  # what is traced is compiled whole anyway
    is_usual = not jaxapi.checks_numbers() and settings_number(jaxapi.trace_context())
    if not is_usual or policy.backs_off():
        return None
    starts = [e for e, _ in roots]
    again = _kept_graph(starts, captures)
    found = again or _graph(starts, captures)
    if found is None:
        return None
    works, ends, key = found
    cts = [ct for _, ct in roots]
    operands = with_constants([*[x for _, own, _ in works.values() for x in own], *cts])
    plain = all([type(x) is jaxapi.array_type for x in operands])
    parts = [part for _, _, part in works.values() if type(part) is Part]
    arrays = [x for x in (cts if again else operands) if type(x) is jaxapi.array_type]
    if (parts and not plain) or not all(map(is_small, arrays)):
        return None
    entry: Ending = structures.get(key) or structures.put(key, Ending())
    entry.count += 1
    if entry.count > 1 and not entry.refused:
        policy.failures = 0
    program, order = entry.program, list(works)
    if program is None:
        if entry.refused or entry.count < repeats_of_pass(len(order)):
            return None
        run = _pass(works, starts, ends)
        entry.refused = _refusal(run, parts, operands) if parts else ""
        if entry.refused:
            return None
        work = sum([type(node) is not AccumulateGrad for node in order])
        program = entry.program = Program("a backward pass", run, work)
    if plain and not program.have_compiled(operands):
        return None
    grads = program(operands)
    tree.passes += 1
    if keep_graph:
        if not (again or parts):
            _keep_graph(order, starts, captures, ends, key)
    else:
        freed = order if captures is None else _leading(order, captures) - {n for n, _ in captures}
        for node in freed:
            node.release_variables()
    return list(zip(ends, grads, strict=True))


# The graph of a pass


def _graph(starts: Edges, captures: Edges | None) -> Structure | None:
    """The structure of a pass, its nodes latest first; equal keys mean the same pass.

    None if it cannot be compiled, also if the numbers of the nodes are not an order.
    """
    leaves = () if captures is None else dict(captures)
    works: dict[Node, Any] = {n: None for n, _ in starts}  # in order: ties fall the same each time
    stack = list(works)
    while stack:
        node = stack.pop()
        work = works[node] = _work_of(node)
        if work is None or (node in leaves and work is not _OF_LEAF) or len(works) > LARGEST:
            return None
        for edge in node.edges:
            if edge is not None and edge[0] not in works:
                works[edge[0]] = None
                stack.append(edge[0])
    # Accumulators have the highest number of all, and belong at the end.
    order = sorted(works, key=lambda node: (works[node] is _OF_LEAF, -node.sequence_nr))
    ends = captures
    if ends is None:
        ends = [(node, 0) for node in order if type(node) is AccumulateGrad]
    index = {node: i for i, node in enumerate(order)}
    key: list[Hashable] = []
    for node, nr in starts:
        key += (index[node], nr)
    key.append(-7)
    for node, nr in ends:
        key += (index.get(node, -1), nr)
    key.append(-7)
    for i, node in enumerate(order):
        key += works[node][0]
        for edge in node.edges:
            if edge is None:
                key.append(-1)
                continue
            after = index[edge[0]]
            if after <= i:
                return None  # numbers from several threads, or set by hand
            key += (after, edge[1])
    return {node: works[node] for node in order}, ends, tuple(key)


def _keep_graph(
    order: Sequence[Node], starts: Edges, captures: Edges | None, ends: Edges, key: Hashable
) -> None:
    """Keep the graph of a pass from one root, but for the root; see NOTE [graphs that are kept]."""
    if len(starts) != 1:
        return
    (root, nr), nodes = starts[0], order[1:]
    if type(root) is PrimitiveNode and {n for n, _ in ends} <= set(nodes):
        numbers = [node.sequence_nr for node in order]
        root.graph = nr, captures, root.edges, nodes, numbers, ends, key


def _kept_graph(starts: Edges, captures: Edges | None) -> Structure | None:
    """`_graph`, if that was kept and has not changed."""
    if len(starts) != 1:
        return None
    root, nr = starts[0]
    known = root.graph if type(root) is PrimitiveNode else None
    if known is None or known[:2] != (nr, captures):
        return None
    edges, nodes, numbers, ends, key = known[2:]
    works: dict[Node, Any] = {node: _work_of(node) for node in (root, *nodes)}
    same = root.edges is edges and [node.sequence_nr for node in works] == numbers
    return (works, ends, key) if same and all(works.values()) else None


def _work_of(node: Node) -> Work | None:
    """What a node does; None if it may be observed (hooks, ...), or what it needs was freed."""
    if type(node) is AccumulateGrad:
        meta = node.variable.meta
        hooked = meta is not None and meta.has_hooks
        return None if hooked or node.extra is not None else _OF_LEAF
    if type(node) is not PrimitiveNode:
        part = node.part() if isinstance(node, RecordedNode) else None
        return None if part is None else ((part.key,), part.operands, part)
    values = node.values  # read once: another thread may run the pass, and free the graph
    if values is None or node.extra is not None or node.packed or node.written:
        return None
    if node.plan.from_inputs or (node.tensors and versions_of(node.tensors) != node.versions):
        return None
    if not node.has_views:
        return (node.plan.id,), values, values
    ways = [v.operation if type(v) is SavedView else 0 for v in values]
    return (node.plan.id, *ways), _operands(values), values


def _leading(order: Sequence[Node], captures: Edges) -> set[Node]:
    """The nodes of ``captures``, and those that lead to them."""
    found = {node for node, _ in captures}
    for node in reversed(order):
        if any([e is not None and e[0] in found for e in node.edges]):
            found.add(node)
    return found


# The pass as a program


def _operands(values: Sequence[object]) -> list[Any]:
    """Saved values, with bases and numbers in the place of views."""
    found: list[Any] = []
    for v in values:
        found += v.operands() if type(v) is SavedView else (v,)
    return found


def _pull_of(plan: VjpPlan, values: Sequence[Any]) -> PullOfNode:
    """What a node with this plan that has saved ``values`` does in a pass, in the form of `Part.pull`."""
    # Of views: what leads from the base to them, with so many numbers, see `_operands`.
    ways = [(v.operation, len(v.numbers)) if type(v) is SavedView else None for v in values]

    def pull(operands: Sequence[Operand], cts: MaybeValues, need: Sequence[bool]) -> MaybeValues:
        given = None if plan.single else tuple([c is not None for c in cts])
        if plan.rows is not None:
            need = plan.sends(cts, need)
        wanted = tuple([n for n, m in zip(need, plan.mask, strict=True) if m])
        rest, saved = iter(operands), []
        for way in ways:
            base = next(rest)
            saved.append(bind(way[0], [base, *islice(rest, way[1])]) if way else base)
        sent = [c for c in cts if c is not None]
        return for_edges(bind(plan.vjp(given, wanted), [*saved, *sent]), need)

    return pull


def _pass(
    works: dict[Node, Work], roots: Edges, captures: Edges
) -> Callable[..., list[MaybeValue]]:
    """The pass as a function of saved values and cotangents, which keeps no nodes.

    It returns the gradients, None where none arrives.
    """
    calls: list[tuple[int, PullOfNode, int, list[tuple[int, int] | None], list[bool]]] = []
    leading = _leading(list(works), captures)
    index = {node: i for i, node in enumerate(works)}
    for i, (node, (_, operands, part)) in enumerate(works.items()):
        if part is None:
            continue
        pull = part.pull if type(part) is Part else _pull_of(node.plan, part)  # type: ignore[attr-defined]
        edges = [None if e is None else (index[e[0]], e[1]) for e in node.edges]
        need = [e is not None and e[0] in leading for e in node.edges]
        calls.append((i, pull, len(operands), edges, need))
    widths = [node.num_inputs for node in works]
    starts = [(index[n], nr) for n, nr in roots]
    ends = [(index.get(n), nr) for n, nr in captures]
    saved = sum([s[2] for s in calls])

    def run(*operands: Value) -> list[MaybeValue]:
        slots: list[list[Any]] = [[None] * w for w in widths]

        def arrive(j: int, nr: int, g: Value) -> None:
            slots[j][nr] = g if slots[j][nr] is None else bind(ADD, (slots[j][nr], g))

        for (i, nr), ct in zip(starts, operands[saved:], strict=True):
            arrive(i, nr, ct)
        at = 0
        for i, pull, count, edges, need in calls:
            values = operands[at : at + count]
            at += count
            if any(need) and not all([c is None for c in slots[i]]):
                for edge, g in zip(edges, pull(values, slots[i], need), strict=True):
                    if edge is not None and g is not None:
                        arrive(*edge, g)
        return [None if j is None else slots[j][nr] for j, nr in ends]

    return run


def _refusal(
    run: Callable[..., list[MaybeValue]], parts: Sequence[Part], operands: Sequence[Operand]
) -> str:
    """Why rules in Python cannot be part of a program; nothing if they can."""
    try:
        trace = without_collector(jax.make_jaxpr(run))
        closed = trace(*[struct_of(aval_of(x)) for x in operands])
    except Exception:  # node by node, the error names its place
        return "a rule cannot be traced"
    allowed = all([part.allows(closed.jaxpr) for part in parts])
    return "" if allowed else "a rule draws random numbers"
