"""What a picture of a graph says of each node, read off the engine's nodes; nothing of them is kept."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fad import Tensor
from fad.autograd import AccumulateGrad, Edge, GradientEdge, Node, get_gradient_edge
from fad.errors import ArgumentError, describe
from fad.extend import Level, bottom, node_info, outlived
from fad.extend.types import DType, PyTree

# The kinds of nodes, and what they are.
KINDS = {
    "leaf": "a leaf: gradients are accumulated there",
    "operation": "a recorded operation",
    "view": "an operation that gives a view",
    "write": "a write in place (CopySlices)",
    "function": "a call of a Function",
    "custom": "a node made by hand",
    "earlier": "a node that was there before the call",
}


@dataclasses.dataclass(slots=True)
class NodeView:
    """One node of a `fad.viz.Graph`.

    Attributes:
        name: as ``node.name()``, or what a leaf is called by ``names``.
        kind: ``"leaf"``, ``"operation"``, ``"view"``, ``"write"`` (in place), ``"function"`` (a call of a
            Function), ``"custom"`` (made by hand), or ``"earlier"`` (there before the call).
        level: the place of its level among the levels of the graph: 0 is the eager tape.
        level_kind: the kind of that level, ``"grad"`` for example.
        outputs: ``(shape, dtype)`` of each output of the forward operation; of a leaf, its own.
        saved: bytes that it saved for the backward pass.
        freed: whether a backward pass has freed these.
        hooks: what is registered on it, as ``("prehook", "tensor hook")``.
        sequence_nr: its number in the order of recording; None for a leaf.
        results: which results of the call, or roots of the graph, it gives.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> node, leaf = fad.viz.graph(x.T).nodes
    >>> node.name, node.kind, node.form(), leaf.kind
    ('TransposeBackward', 'view', 'float32[2]', 'leaf')
    """

    name: str
    kind: str
    level: int
    level_kind: str
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    saved: int
    freed: bool
    hooks: tuple[str, ...]
    sequence_nr: int | None
    results: tuple[str, ...] = ()

    def form(self) -> str:
        """Dtypes and shapes of the outputs: ``float32[3, 2]``."""
        return ", ".join([f"{dtype}{list(shape)}" for shape, dtype in self.outputs])


@dataclasses.dataclass(slots=True)
class Drawn:
    """What was read: nodes, those that gradients reach first in front, leaves last; and edges between them.

    An edge is ``(i, j, input_nr)``: node ``i`` gives a gradient to input ``input_nr`` of node ``j``.
    """

    nodes: list[NodeView]
    edges: list[tuple[int, int, int]]
    saved: int


def roots_of(x: PyTree) -> list[tuple[Node, int, str]]:
    """``(node, output_nr, label)`` for each place in a graph that ``x`` has: a Tensor, a node, an edge, or a
    pytree of these. A Tensor has one at each level that it requires grad at.
    """
    leaves = places_in(x)
    roots: list[tuple[Node, int, str]] = []
    for k, leaf in enumerate(leaves):
        label = "result" if len(leaves) == 1 else f"result {k}"
        if isinstance(leaf, Edge):
            roots += [] if leaf.node is None else [(leaf.node, leaf.input_nr, label)]
        elif isinstance(leaf, GradientEdge):
            roots.append((leaf.node, leaf.output_nr, label))
        elif isinstance(leaf, Node):
            roots.append((leaf, 0, label))
        elif isinstance(leaf, Tensor):
            roots += _places(leaf, label)
    return roots


def places_in(x: PyTree) -> list[PyTree]:
    """The Tensors, nodes and edges of a pytree, and its other leaves."""
    return jax.tree_util.tree_leaves(x, is_leaf=_is_place)


def _is_place(x: PyTree) -> bool:
    return isinstance(x, (Tensor, Node, Edge, GradientEdge))


def check_place(x: PyTree) -> None:
    """Refuse what has no place in a graph.

    Raises:
        ArgumentError: there is something else than Tensors, nodes and edges in it.
    """
    if not all(map(_is_place, places_in(x))):
        raise ArgumentError(
            f"viz.graph: expected a Tensor, a node (x.grad_fn), a pytree of these, or a function and its "
            f"arguments, got {describe(x)}. To see what a function records, pass it with its arguments: "
            "fad.viz.graph(f, x)"
        )


def _places(t: Tensor, label: str) -> list[tuple[Node, int, str]]:
    """The places of a Tensor at its level and at those below, in its tangent too."""
    places = []
    parts: list[tuple[object, str]] = [(t, label)]
    while parts:
        part, label = parts.pop(0)
        part = outlived(part)
        if isinstance(part, Tensor):
            if part.requires_grad:
                places.append((*get_gradient_edge(part), label))
            tangent = part.level.tangent(part)
            parts.append((part.value, label))
            if tangent is not None:
                parts.append((tangent, f"tangent of {label}"))
    return places


def saved_arrays(node: Node) -> dict[int, PyTree]:
    """The arrays that a node keeps for its backward pass, each once, by identity."""
    arrays = {}
    for value in getattr(node, "saved_values", tuple)():
        array = bottom(value)
        if isinstance(array, (jax.Array, np.ndarray)):
            arrays[id(array)] = array
    return arrays


def bytes_of(arrays: dict[int, Any]) -> int:
    """How much memory arrays take."""
    total = 0
    for array in arrays.values():
        aval = array.aval if isinstance(array, jax.Array) else array
        total += math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 0)
    return total


def read(
    roots: Sequence[tuple[Node, int, str]],
    recorded: Iterable[Node] | None = None,
    saved: dict[Node, int] | None = None,
    total: int | None = None,
    names: PyTree = None,
) -> Drawn:
    """The graph that ``roots`` reach.

    Arguments:
        roots: from `roots_of`.
        recorded: only these nodes are followed, and all of them are there; None: all that is reached.
        saved: how much nodes kept when they were recorded, which may be freed by now.
        total: the sum of that, each array counted once.
        names: a pytree of Tensors; leaves among them are called by their places in it.
    """
    only = None if recorded is None else dict.fromkeys(recorded)
    order = _in_order([*(only or ()), *[node for node, _, _ in roots]], only)
    numbers = {node: k for k, node in enumerate(order)}
    levels = _levels(order)
    labels: dict[Node, list[str]] = {}
    for node, _, label in roots:
        labels.setdefault(node, []).append(label)
    if saved is None or total is None:
        arrays: dict[int, object] = {}
        saved = {}
        for node in order:
            of_node = saved_arrays(node)
            saved[node] = bytes_of(of_node)
            arrays.update(of_node)
        total = bytes_of(arrays)
    nodes = [_view(node, levels[node], saved.get(node, 0), only) for node in order]
    for node, said in labels.items():
        nodes[numbers[node]].results = tuple(dict.fromkeys(said))
    for path, x in jax.tree_util.tree_leaves_with_path(names, is_leaf=_is_place):
        if isinstance(x, Tensor) and x.requires_grad and x.is_leaf:
            leaf = get_gradient_edge(x).node
            if leaf in numbers:
                nodes[numbers[leaf]].name = jax.tree_util.keystr(path, simple=True, separator=".")
    edges = []
    for node in order:
        edges += [(numbers[node], numbers[target], nr) for target, nr in _edges(node, only)]
    return Drawn(nodes, edges, total)


def _in_order(starts: Sequence[Node], only: dict[Node, None] | None) -> list[Node]:
    """All nodes, each in front of those that its gradients go to; the latest recorded first, leaves last."""
    inside = dict.fromkeys(starts)
    todo = list(inside)
    parents: dict[Node, int] = {}
    while todo:
        node = todo.pop()
        for target, _ in _edges(node, only):
            parents[target] = parents.get(target, 0) + 1
            if target not in inside:
                inside[target] = None
                todo.append(target)
    ready: list[tuple[int, int, Node]] = []
    count = 0

    def push(node: Node) -> None:
        nonlocal count
        count += 1
        heapq.heappush(ready, (-min(node.sequence_nr, 1 << 62), count, node))

    leaves: list[Node] = []
    order: list[Node] = []
    for node in inside:
        if not parents.get(node):
            push(node)
    while ready:
        node = heapq.heappop(ready)[2]
        if isinstance(node, AccumulateGrad):
            leaves.append(node)
            continue
        order.append(node)
        for target, _ in _edges(node, only):
            parents[target] -= 1
            if not parents[target]:
                push(target)
    return [*order, *leaves]


def _edges(node: Node, only: dict[Node, None] | None = None) -> list[tuple[Node, int]]:
    """Where the gradients of a node go; nowhere if it is none of those that are followed."""
    if only is not None and node not in only:
        return []
    return [edge for edge in node.edges if edge is not None]


def _levels(order: Sequence[Node]) -> dict[Node, tuple[int, str]]:
    """Level of each node: its place among the levels of the graph, and its kind.

    A node made by hand may have no level: then it has the level of the nodes that its gradients go to.
    """
    levels: dict[Node, Level | None] = {}
    for node in reversed(order):
        level = node.level
        for target, _ in _edges(node):
            level = levels.get(target) if level is None else level
        levels[node] = level
    ids = sorted({0, *[level.id for level in levels.values() if level is not None]})
    places = {level_id: k for k, level_id in enumerate(ids)}
    return {
        node: (0, "eager") if level is None else (places[level.id], level.kind)
        for node, level in levels.items()
    }


def _view(
    node: Node, level: tuple[int, str], saved: int, only: dict[Node, None] | None
) -> NodeView:
    """What is shown of a node."""
    info = node_info(node)
    leaf = info.kind == "leaf"
    earlier = not leaf and only is not None and node not in only
    return NodeView(
        node.name(),
        "earlier" if earlier else info.kind,
        *level,
        _outputs(info.outputs),
        saved,
        info.freed,
        info.hooks,
        None if leaf else node.sequence_nr,
    )


def _outputs(outputs: Sequence[Any]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of each output of the forward operation."""
    return tuple(
        [((), "undefined") if getattr(x, "is_undefined", False) else _form(x) for x in outputs]
    )


def _form(x: PyTree) -> tuple[tuple[int, ...], str]:
    return tuple(x.shape), _name_of(x.dtype)


@functools.lru_cache(maxsize=256)
def _name_of(dtype: DType) -> str:
    return str(dtype.name)
