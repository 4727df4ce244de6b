"""Graphs as text: the tree, DOT and JSON say what the engine has."""

from __future__ import annotations

import json

import pytest
from drawn_graphs import Halve, Step, of_dot, of_engine

import fad
import fad.numpy as fnp
from fad import viz
from fad.autograd import Node
from fad.viz.text import size_of


def test_the_tree_of_a_small_graph() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    b = fad.tensor(2.0, requires_grad=True)
    y = (fnp.sin(x) * x).sum() + b
    y.register_hook(lambda g: None)
    number = y.grad_fn.sequence_nr
    assert str(viz.graph(y)).splitlines() == [
        "graph: 4 nodes, 2 leaves, 16 B saved",
        f"AddBackward  float32[]  #{number} · tensor hook  → result",
        "├─ leaf 0  float32[]",
        f"SumBackward  float32[]  #{number - 1}",
        f"MultiplyBackward  float32[2]  #{number - 2} · saves 16 B",
        "├─ leaf 1  float32[2]  (below)",
        f"SinBackward  float32[2]  #{number - 3} · saves 8 B",
        "leaf 1  float32[2]",
    ]


def test_the_tree_of_nothing() -> None:
    assert str(viz.graph(fad.tensor(1.0))).startswith("empty graph: nothing here requires grad")


def test_lines_of_a_frame_are_indented() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(6):
        y = fnp.tanh(y) * 2.0
    starts = [line.split("Backward")[0] for line in str(viz.graph(y.sum())).splitlines()[1:]]
    assert starts == [
        "Sum",
        "[5 × 2 nodes]",
        "┆  Multiply",
        "┆  Tanh",
        "┆  [4 more]",
        "Multiply",
        "Tanh",
        "leaf  float32[2]",
    ]


def ladder(rungs: int) -> Node:
    """Each node leads to two others, and both to the next one."""
    node: Node = Step("end")
    for k in range(rungs):
        node = Step(f"top{k}", Step(f"left{k}", node), Step(f"right{k}", node))
    return node


def test_the_tree_of_a_long_ladder_stays_narrow() -> None:
    text = str(viz.graph(ladder(3_000), fold=False))
    assert max(map(len, text.splitlines())) < 30
    assert len(text.splitlines()) == 1 + 3_000 * 4 + 1


def test_dot_has_the_nodes_and_edges_of_the_engine() -> None:
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2.0
    column = y.reshape(3, 1)
    y[1:].mul_(3.0)
    z = (y * y).sum() + Halve.apply(column.sum())
    graph = viz.graph(z)
    labels, edges = of_dot(graph.dot())
    nodes, engine = of_engine(z.grad_fn)
    names = {b: label.split(r"\n")[0] for b, label in labels.items()}
    assert sorted(names.values()) == sorted(
        "leaf" if name == "AccumulateGrad" else name for name, _ in nodes
    )
    drawn = sorted([(names[a], names[b]) for a, b in edges.elements()])
    assert drawn == sorted(
        [(a[0], "leaf" if b[0] == "AccumulateGrad" else b[0]) for a, b, _ in engine.elements()]
    )
    for kind in ("view", "write", "function", "leaf", "operation"):
        assert f'class="{kind}"' in graph.dot()


def test_names_are_quoted_in_dot() -> None:
    node = Step('a "quoted" \\ name')
    assert r'label="a \"quoted\" \\ name' in viz.graph(node).dot()


def test_frames_are_clusters_and_closed_boxes_are_nodes() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(10):
        y = fnp.sin(y)
    dot = viz.graph(y.sum()).dot()
    assert dot.count("subgraph cluster_") == 1 and dot.count("{") == dot.count("}")
    labels, edges = of_dot(dot)
    assert any("more" in label for label in labels.values())
    assert {end for edge in edges for end in edge} <= set(labels)


def test_json_has_what_is_drawn() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    graph = viz.graph(fnp.sin(x))
    data = json.loads(graph.json())
    node, leaf = data["nodes"]
    assert node == {
        "name": "SinBackward",
        "kind": "operation",
        "level": 0,
        "level_kind": "eager",
        "outputs": [[[2], "float32"]],
        "saved": 8,
        "freed": False,
        "hooks": [],
        "sequence_nr": node["sequence_nr"],
        "results": ["result"],
    }
    assert leaf["sequence_nr"] is None
    assert data["edges"] == [[0, 1, 0]]
    assert [box["node"] for box in data["boxes"]] == [0, 1]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_500, "1.5 kB"),
        (2_340_000, "2.34 MB"),
        (10**12, "1e+03 GB"),
    ],
)
def test_numbers_of_bytes(count: int, text: str) -> None:
    assert size_of(count) == text
