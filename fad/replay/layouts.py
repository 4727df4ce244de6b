"""Layouts: the static structure of a graph, from which a compiled backward pass is made."""

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


def layout_of(roots: Edges, captures: Edges | None) -> Layout | None:
    """The layout of the pass from ``roots`` to ``captures`` (None: to all leaves).

    None if the pass cannot be compiled: it may be observed (hooks, ...), or what it needs was freed.
    """
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
