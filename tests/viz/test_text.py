"""Graphs as text: the tree, DOT and the JSON of the viewer say what the engine has."""

from __future__ import annotations

import json

from drawn_graphs import Halve, Step, attributes, of_dot, of_engine, of_viewer

import fad
import fad.numpy as fnp
from fad import viz
from fad.autograd import Node


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


def test_lines_of_a_group_are_indented() -> None:
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


def test_open_groups_are_clusters_and_closed_ones_are_nodes() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(10):
        y = fnp.sin(y)
    dot = viz.graph(y.sum()).dot()
    assert dot.count("subgraph cluster_") == 1 and dot.count("{") == dot.count("}")
    labels, edges = of_dot(dot)
    assert any("more" in label for label in labels.values())
    assert {end for edge in edges for end in edge} <= set(labels)


def test_json_has_what_is_known() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    graph = viz.graph(fnp.sin(x))
    data = json.loads(graph.json())
    assert data["label"] == "fad"
    assert data["graphs"][0]["groupNodeAttributes"] == {
        "": {"graph": "1 node, 1 leaf, 8 B saved", "saved": "8"}
    }
    node, leaf = of_viewer(graph).values()
    assert (node["label"], node["namespace"], node["incomingEdges"]) == ("SinBackward", "", [])
    assert attributes(node) == {
        "kind": "operation",
        "level": "0 (eager)",
        "outputs": "float32[2]",
        "saved": "8",
        "freed": "False",
        "sequence_nr": str(graph.nodes[0].sequence_nr),
        "results": "result",
    }
    assert "sequence_nr" not in attributes(leaf)
    assert leaf["incomingEdges"] == [
        {"sourceNodeId": "0", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}
    ]


def test_json_has_all_groups_with_names_that_differ() -> None:
    node: Node = Step("end")
    for label in ("a/b", "c;d"):
        for _ in range(4):
            node = Step("x", Step(label, node))
    spaces = [node["namespace"] for node in of_viewer(viz.graph(node)).values()]
    first, second = "4 x 2 nodes", "4 x 2 nodes (2)"
    assert spaces[:2] == [first] * 2 and spaces[8:10] == [second] * 2
    assert spaces[2:8] == [f"{first}/3 more/copy {k}" for k in (2, 2, 3, 3, 4, 4)]
    assert spaces[10:] == [f"{second}/3 more/copy {k}" for k in (2, 2, 3, 3, 4, 4)] + [""]
    nodes = [Step(f"{k}/{k};{k}") for k in range(9)]
    spaces = [node["namespace"] for node in of_viewer(viz.graph(nodes, limit=3)).values()]
    assert len(set(spaces)) == 3 and not any("/" in space or ";" in space for space in spaces)


def test_json_of_many_nodes_has_few_in_each_group() -> None:
    node: Node = Step("end")
    for _ in range(2_000):
        node = Step("a", Step("b", node), node)
    inside: dict[str, set[str]] = {}
    for name, n in of_viewer(viz.graph(node, limit=20)).items():
        path = [*n["namespace"].split("/"), name] if n["namespace"] else [name]
        for depth in range(len(path)):
            inside.setdefault("/".join(path[:depth]), set()).add(path[depth])
    assert max(map(len, inside.values())) <= 20
