"""Folding: what repeats is one frame, what is long is cut, and nothing is lost."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from drawn_graphs import Step, of_dot

import fad
import fad.numpy as fnp
from fad import viz
from fad.autograd import Node
from fad.viz.folding import Box, Folded, fold
from fad.viz.nodes import Drawn, read, roots_of


def drawn_of(x: Any) -> Drawn:
    return read(roots_of(x))


def shape_of(box: Box, drawn: Drawn) -> Any:
    """A box as nested lists of names."""
    if box.node is not None:
        return drawn.nodes[box.node].name
    if not box.children:
        return box.title
    return [box.title, *[shape_of(child, drawn) for child in box.children]]


def blocks(*labels: str) -> Node:
    """A chain of nodes made by hand with these names, the last one in front."""
    node: Node = Step("end")
    for label in labels[::-1]:
        node = Step(label, node)
    return node


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("a b", ["a", "b"]),
        ("a a", ["a", "a"]),
        ("a a a", [["3 × 1 node", "a", "2 more"]]),
        ("a b a b a b c", [["3 × 2 nodes", "a", "b", "2 more"], "c"]),
        ("a b c d a b c d", [["2 × 4 nodes", "a", "b", "c", "d", "1 more"]]),
        (
            "x a a a y a a a",
            ["x", ["3 × 1 node", "a", "2 more"], "y", ["3 × 1 node", "a", "2 more"]],
        ),
        (
            "a a a b a a a b a a a b",
            [["3 × 4 nodes", ["3 × 1 node", "a", "2 more"], "b", "2 more"]],
        ),
    ],
)
def test_what_repeats_becomes_a_frame(labels: str, expected: Any) -> None:
    drawn = drawn_of(blocks(*labels.split()))
    top = shape_of(fold(drawn, True, 150).top, drawn)
    assert top == ["graph", *expected, "end"]


def test_blocks_that_are_connected_in_another_way_do_not_repeat() -> None:
    first, second = Step("end"), Step("end")
    node: Node = first
    for k in range(3):
        node = Step("a", node, second) if k == 1 else Step("a", node)
    drawn = drawn_of(node)
    assert [box.copies for box in fold(drawn, True, 150).boxes] == [1] * 6


def everything(folded: Folded) -> list[int]:
    """The nodes that boxes without anything inside stand for."""
    return sorted(
        k for box in folded.boxes if not box.children for k in (box.members or [box.node])
    )


def test_every_node_is_in_one_box_and_every_edge_is_counted() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(20):
        y = fnp.sin(y) * x
    y = y.sum()
    drawn = drawn_of(y)
    for limit in (150, 3):
        folded = fold(drawn, True, limit)
        assert everything(folded) == list(range(len(drawn.nodes)))
        owner = {k: box for box in folded.boxes for k in box.members or [box.node]}
        within = [(i, j) for i, j, _ in drawn.edges if owner[i] is owner[j]]
        assert sum(folded.edges.values()) + len(within) == len(drawn.edges)


def test_leaves_stand_with_what_uses_them() -> None:
    shared = fad.tensor([1.0, 2.0], requires_grad=True)
    own = [fad.tensor([1.0, 2.0], requires_grad=True) for _ in range(5)]
    y = shared
    for leaf in own:
        y = fnp.tanh(y * shared + leaf)
    drawn = drawn_of(y.sum())
    folded = fold(drawn, True, 150)
    (frame,) = [box for box in folded.boxes if box.copies > 1]
    inside = [shape_of(box, drawn) for box in frame.children]
    assert inside[:3] == ["TanhBackward", "AddBackward", "MultiplyBackward"]
    assert inside[3].endswith(" more") and inside[4:] == ["AccumulateGrad"]
    outside = [shape_of(box, drawn) for box in folded.top.children]
    assert outside.count("AccumulateGrad") == 2  # the shared one, and that of the first turn


def test_levels_have_frames_of_their_own() -> None:
    graph = viz.graph(fad.grad(lambda x: fad.grad(fnp.sin)(x)), 1.0)
    titles = [line for line in str(graph).splitlines() if line.startswith("[level")]
    assert titles == ["[level 2 (grad)]", "[level 1 (grad)]"]


@pytest.mark.parametrize("limit", [5, 40])
def test_a_long_sequence_is_cut_into_boxes(limit: int) -> None:
    draw = random.Random(0)
    node = blocks(*[draw.choice("abcdefgh") * draw.randint(1, 3) for _ in range(700)])
    drawn = drawn_of(node)
    folded = fold(drawn, True, limit)
    assert all(len(box.children) <= limit for box in folded.boxes if box.copies == 1)
    assert everything(folded) == list(range(len(drawn.nodes)))
    title = folded.top.children[0].title
    assert " nodes: " in title and title.endswith(", ...")
    seen = [box for box in folded.boxes if all(b.open for b in box.path()[:-1])]
    assert len(seen) <= limit + 1
    # No circles: each box stands in front of those that it has edges to.
    order = {box: k for k, box in enumerate(folded.top.children)}
    for a, b in folded.edges:
        assert order[a.path()[1]] <= order[b.path()[1]]


def test_many_leaves_become_one_box() -> None:
    leaves = [fad.tensor(1.0, requires_grad=True) for _ in range(30)]
    graph = viz.graph(leaves, limit=10)
    assert "[30 leaves]" in str(graph)
    assert len(graph.nodes) == 30


def test_without_folding_each_node_is_drawn() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(20):
        y = fnp.sin(y)
    graph = viz.graph(y, fold=False, limit=3)
    assert len(of_dot(graph.dot())[0]) == 21


def test_a_hundred_thousand_nodes_answer_within_seconds() -> None:
    node: Node = Step("end")
    for _ in range(50_000):
        node = Step("a", Step("b", node), node)
    start = time.perf_counter()
    graph = viz.graph(node)
    text, dot = str(graph), graph.dot()
    assert time.perf_counter() - start < 60  # some 3 where nothing else runs
    assert len(graph.nodes) == 100_001
    assert graph.edges[:3] == [(0, 1, 0), (0, 2, 0), (1, 2, 0)] and len(graph.edges) == 150_000
    assert len(text.splitlines()) < 10 and dot.count("->") < 10
    assert "[50000 × 2 nodes]" in text and "[49999 more]" in text


def test_results_inside_of_a_box_are_counted() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    turns = [fnp.sin(x)]
    for _ in range(5):
        turns.append(fnp.sin(turns[-1]))
    assert "[4 more, with 4 results]" in str(viz.graph(turns))
