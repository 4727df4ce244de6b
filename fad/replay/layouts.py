"""Layouts: the static structure of a graph, from which a compiled backward pass is made.

NOTE [graphs that are kept]

To traverse a graph takes as long as to run its compiled pass. So the second pass from a root to
the same ends stores the layout at the root, if it keeps the graph. The next one has to compare
what may have changed since: hooks, releases, writes, numbers; edges of nodes that others lead to
cannot be changed. A layout refers to nodes that the root leads to, which live as long as the root
anyway, and not to the root: there is no reference cycle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

from fad.core.replay_protocol import Part
from fad.tape.graph import AccumulateGrad, Node
from fad.tape.recorded_node import RecordedNode
from fad.tape.recorder import PrimitiveNode
from fad.tape.saved import SavedView, versions_of

__all__ = ["Layout", "layout_of"]

LARGEST = 1500  # nodes in one compiled pass

Edges = Sequence[tuple[Node, int]]


@dataclasses.dataclass(slots=True, eq=False)
class Layout:
    """The nodes of a pass in their order, latest first, where its gradients go, and a key for its
    program.

    ``parts`` are those of nodes that are not of Primitives. ``whole``: the pass goes to all leaves.
    """

    order: list[Node]
    captures: Edges
    key: tuple[Any, ...]
    whole: bool
    parts: dict[Node, Part] = dataclasses.field(default_factory=dict)

    def index(self) -> dict[Node, int]:
        """The number of each node."""
        return {node: i for i, node in enumerate(self.order)}

    def running(self) -> Sequence[Node]:
        """The nodes that lead to captures, which run; the others keep what they have saved."""
        if self.whole:
            return self.order
        led = {node for node, _ in self.captures}
        found = []
        for node in reversed(self.order):
            if any([e is not None and e[0] in led for e in node.edges]):
                led.add(node)
                found.append(node)
        return found

    def keep(self, roots: Edges, captures: Edges | None) -> None:
        """Store it at the root for the next pass from and to the same, if this is the second one."""
        if len(roots) != 1 or self.parts:
            return
        root, nr = roots[0]
        if type(root) is not PrimitiveNode or type(root.layout) is _Kept:
            return
        requested = nr, captures
        if root.layout == requested:
            root.layout = _Kept(self, nr, captures)
            return
        own = set(self.order)
        if all([node in own and node is not root for node, _ in self.captures]):
            root.layout = requested


class _Kept:
    """A layout without its root, for later passes from and to the same."""

    __slots__ = ("captures", "edges", "key", "nodes", "nr", "numbers", "requested", "whole")

    def __init__(self, layout: Layout, nr: int, requested: Edges | None) -> None:
        self.nr = nr
        self.requested = requested
        self.whole = layout.whole
        self.captures = layout.captures
        self.key = layout.key
        self.nodes = layout.order[1:]
        self.numbers = [node.sequence_nr for node in layout.order]
        self.edges = layout.order[0].edges

    def again(self, root: PrimitiveNode) -> Layout | None:
        """The layout, if nothing has changed."""
        order = [root, *self.nodes]
        if root.edges is not self.edges:
            return None
        for node, number in zip(order, self.numbers, strict=True):
            if node.sequence_nr != number or not _is_plain(node):
                return None
        return Layout(order, self.captures, self.key, self.whole)


def layout_of(roots: Edges, captures: Edges | None) -> Layout | None:
    """The layout of the pass from ``roots`` to ``captures`` (None: to all leaves).

    None if the pass cannot be compiled: it may be observed (hooks, ...), or what it needs was freed.
    """
    if len(roots) == 1:
        root, nr = roots[0]
        kept = root.layout if type(root) is PrimitiveNode else None
        if type(kept) is _Kept and kept.nr == nr and kept.requested == captures:
            known = kept.again(root)  # type: ignore[arg-type]
            if known is not None:
                return known
            root.layout = None  # type: ignore[attr-defined]
    leaves = () if captures is None else {node for node, _ in captures}
    parts: dict[Node, Part] = {}
    order = _in_order([node for node, _ in roots], leaves, parts)
    if order is None:
        return None
    whole = captures is None
    if captures is None:
        captures = [(node, 0) for node in order if type(node) is AccumulateGrad]
    index = {node: i for i, node in enumerate(order)}
    key: list[Any] = []
    for node, nr in roots:
        key += (index[node], nr)
    key.append(-7)
    for node, nr in captures:
        key += (index.get(node, -1), nr)
    key.append(-7)
    for i, node in enumerate(order):
        if type(node) is PrimitiveNode:
            key.append(node.plan.id)
            if node.has_views:
                key += [v.operation if type(v) is SavedView else 0 for v in node.values or ()]
        elif node in parts:
            key.append(parts[node].key)
        else:
            key.append(-3)
            continue
        for edge in node.edges:
            if edge is None:
                key.append(-1)
                continue
            after = index[edge[0]]
            if after <= i:
                return None  # numbers from several threads, or set by hand: not an order
            key.append(after)
            key.append(edge[1])
    return Layout(order, captures, tuple(key), whole, parts)


def _in_order(
    roots: Sequence[Node], leaves: Container[Node], parts: dict[Node, Part]
) -> list[Node] | None:
    """The nodes of a pass, latest first, with their parts; None if it cannot be compiled."""
    seen = dict.fromkeys(roots)  # in order: ties in sequence numbers must fall the same each time
    stack = list(seen)
    while stack:
        node = stack.pop()
        if not _is_plain(node):
            part = node.part() if isinstance(node, RecordedNode) and node not in leaves else None
            if part is None:
                return None
            parts[node] = part
        elif type(node) is PrimitiveNode and (node.plan.from_inputs or node in leaves):
            return None
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen[edge[0]] = None
                stack.append(edge[0])
        if len(seen) > LARGEST:
            return None
    order = sorted(seen, key=_sequence_nr)
    order.reverse()
    # Accumulators have the highest number of all, and belong at the end.
    first = 0
    while first < len(order) and type(order[first]) is AccumulateGrad:
        first += 1
    return order[first:] + order[:first]


def _is_plain(node: Node) -> bool:
    """Whether a node has what it needs, unchanged, and has no hooks or metadata."""
    if node.extra is not None:
        return False
    if type(node) is PrimitiveNode:
        if node.values is None or node.packed or node.written:
            return False
        return not node.tensors or versions_of(node.tensors) == node.versions
    if type(node) is AccumulateGrad:
        meta = node.variable.meta
        return meta is None or not (meta.hooks or meta.post_hooks)
    return False


def _sequence_nr(node: Node) -> int:
    return node.sequence_nr
