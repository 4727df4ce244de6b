"""Graphs as the engine has them, to compare pictures with."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import fad
import fad.numpy as fnp
from fad.autograd import Node
from fad.viz import Graph


def of_engine(*nodes: Node) -> tuple[Counter[Any], Counter[Any]]:
    """Nodes and edges that ``next_functions`` leads to; leaves by their shapes, others by their numbers."""
    seen: dict[Node, Any] = {}
    edges: Counter[Any] = Counter()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen[node] = key_of(node)
        for other, nr in node.next_functions:
            if other is not None:
                edges[seen[node], key_of(other), nr] += 1
                todo.append(other)
    return Counter(seen.values()), edges


def key_of(node: Node) -> Any:
    if isinstance(node, fad.autograd.AccumulateGrad):
        return "AccumulateGrad", tuple(node.variable.shape)
    return node.name(), node.sequence_nr


def of_viewer(graph: Graph) -> dict[str, dict[str, Any]]:
    """The nodes of the JSON of a Graph, by their ids."""
    (found,) = json.loads(graph.json())["graphs"]
    return {node["id"]: node for node in found["nodes"]}


def attributes(node: dict[str, Any]) -> dict[str, str]:
    """What the JSON says of a node."""
    return {pair["key"]: pair["value"] for pair in node["attrs"]}


def of_picture(graph: Graph) -> tuple[Counter[Any], Counter[Any]]:
    """Nodes and edges that a Graph says it has, and that its JSON has too."""
    keys = [
        (node.name, node.outputs[0][0] if node.kind == "leaf" else node.sequence_nr)
        for node in graph.nodes
    ]
    nodes = of_viewer(graph)
    assert [node["label"] for node in nodes.values()] == [node.name for node in graph.nodes]
    written = [
        (int(edge["sourceNodeId"]), int(name), int(edge["targetNodeInputId"]))
        for name, node in nodes.items()
        for edge in node["incomingEdges"]
    ]
    assert sorted(written) == sorted(graph.edges)
    return Counter(keys), Counter([(keys[i], keys[j], nr) for i, j, nr in graph.edges])


def of_dot(text: str) -> tuple[dict[str, str], Counter[tuple[str, str]]]:
    """Labels of the nodes of a DOT text, by name; and its edges, with how often each is there."""
    nodes = dict(re.findall(r'^ *(b\d+) \[label="((?:[^"\\]|\\.)*)"', text, re.M))
    edges: Counter[tuple[str, str]] = Counter()
    for a, b, times in re.findall(r'^ *(b\d+) -> (b\d+)(?: \[label="(\d+)×"\])?;$', text, re.M):
        edges[a, b] += int(times or 1)
    return nodes, edges


def chain(length: int) -> Any:
    """A chain of so many nodes."""
    x = fad.tensor(1.0, requires_grad=True)
    for _ in range(length):
        x = fnp.sin(x)
    return x


class Halve(fad.Function):
    """x / 2, with a rule of its own."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x / 2.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g / 2.0


class Step(Node):
    """A node made by hand, of which long graphs are made quickly."""

    __slots__ = ("label",)

    def __init__(self, label: str, *nodes: Node) -> None:
        super().__init__([(node, 0) for node in nodes])
        self.label = label

    def name(self) -> str:
        return self.label

    def apply(self, *gradients: Any) -> Any:
        return tuple([g for g in gradients for _ in self.edges])


def tangle(count: int) -> Node:
    """Nodes made by hand that lead to two or three others each, at random."""
    draw = random.Random(0)
    made: list[Node] = [Step("end")]
    for k in range(count):
        ends = dict.fromkeys([made[-1], *draw.sample(made, min(2, len(made)))])
        made.append(Step(f"n{k}", *ends))
    return made[-1]
