"""Groups: what repeats is one, what is long is cut, and nothing is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from drawn_graphs import Step, of_dot

import fad
import fad.numpy as fnp
from fad import viz
from fad.autograd import Node
from fad.viz.groups import Group, Part, groups_of, paths
from fad.viz.nodes import Drawn, read, roots_of


def drawn_of(x: Any) -> Drawn:
    return read(roots_of(x))


def shape_of(part: Part, drawn: Drawn) -> Any:
    """A group as nested lists of names; of a closed one, its title."""
    if isinstance(part, int):
        return drawn.nodes[part].name
    if not part.open:
        return part.title
    return [part.title, *[shape_of(inner, drawn) for inner in part.parts]]


def groups_in(top: Group) -> list[Group]:
    """All groups with a node in them."""
    return list(dict.fromkeys([group for path in paths(top).values() for group in path]))


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
def test_what_repeats_becomes_a_group(labels: str, expected: Any) -> None:
    drawn = drawn_of(blocks(*labels.split()))
    top = shape_of(groups_of(drawn, True, 150), drawn)
    assert top == ["graph", *expected, "end"]


def test_blocks_that_are_connected_in_another_way_do_not_repeat() -> None:
    first, second = Step("end"), Step("end")
    node: Node = first
    for k in range(3):
        node = Step("a", node, second) if k == 1 else Step("a", node)
    drawn = drawn_of(node)
    assert groups_of(drawn, True, 150).parts == [0, 1, 2, 3, 4]


def test_every_node_is_in_one_group() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(20):
        y = fnp.sin(y) * x
    drawn = drawn_of(y.sum())
    for limit in (150, 3):
        top = groups_of(drawn, True, limit)
        inside = [k for group in groups_in(top) for k in group.parts if isinstance(k, int)]
        assert sorted(inside) == list(range(len(drawn.nodes)))
        for group in groups_in(top)[1:]:
            nodes = [k for k, path in paths(top).items() if group in path]
            assert group.size == sum([drawn.nodes[k].kind != "leaf" for k in nodes])


def test_edges_between_groups_are_counted() -> None:
    y = fad.tensor([1.0, 2.0], requires_grad=True)
    x = y
    for _ in range(20):
        y = fnp.sin(y) * x
    for limit in (150, 3):
        graph = viz.graph(y.sum(), limit=limit)
        labels, edges = of_dot(graph.dot())
        assert {end for edge in edges for end in edge} == set(labels)
        assert sum(edges.values()) <= len(graph.edges)
    assert ("18×" in viz.graph(y.sum()).dot()) and len(edges) < 5


def test_leaves_stand_with_what_uses_them() -> None:
    shared = fad.tensor([1.0, 2.0], requires_grad=True)
    own = [fad.tensor([1.0, 2.0], requires_grad=True) for _ in range(5)]
    y = shared
    for leaf in own:
        y = fnp.tanh(y * shared + leaf)
    drawn = drawn_of(y.sum())
    top = groups_of(drawn, True, 150)
    (group,) = [part for part in top.parts if isinstance(part, Group)]
    inside = [shape_of(part, drawn) for part in group.parts]
    assert inside[:3] == ["TanhBackward", "AddBackward", "MultiplyBackward"]
    assert inside[3].endswith(" more") and inside[4:] == ["AccumulateGrad"]
    outside = [shape_of(part, drawn) for part in top.parts]
    assert outside.count("AccumulateGrad") == 2  # the shared one, and that of the first turn
    copies = [path for k, path in paths(top).items() if path[-1].title.startswith("copy")]
    assert len(copies) == 3 * 4 and all(path[1] is group for path in copies)


def test_levels_have_groups_of_their_own() -> None:
    graph = viz.graph(fad.grad(lambda x: fad.grad(fnp.sin)(x)), 1.0)
    titles = [line for line in str(graph).splitlines() if line.startswith("[level")]
    assert titles == ["[level 2 (grad)]", "[level 1 (grad)]"]


@pytest.mark.parametrize("limit", [2, 5, 40])
def test_a_long_sequence_is_cut_into_groups(limit: int) -> None:
    draw = random.Random(0)
    node = blocks(*[draw.choice("abcdefgh") * draw.randint(1, 3) for _ in range(700)])
    drawn = drawn_of(node)
    top = groups_of(drawn, True, limit)
    assert all(len(group.parts) <= limit + 2 for group in groups_in(top))
    assert len(paths(top)) == len(drawn.nodes)
    (title, *_) = [part.title for part in top.parts if isinstance(part, Group)]
    assert " nodes: " in title and title.endswith(", ...")
    assert len(of_dot(viz.graph(node, limit=limit).dot())[0]) <= limit
    # No circles: each stands in front of those that it has edges to.
    order = {k: top.parts.index((*path, k)[1]) for k, path in paths(top).items()}
    assert all(order[i] <= order[j] for i, j, _ in drawn.edges)


def test_many_leaves_become_one_group() -> None:
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


def test_a_hundred_thousand_nodes() -> None:
    node: Node = Step("end")
    for _ in range(50_000):
        node = Step("a", Step("b", node), node)
    graph = viz.graph(node)
    text, dot = str(graph), graph.dot()
    assert len(graph.nodes) == 100_001
    assert graph.edges[:3] == [(0, 1, 0), (0, 2, 0), (1, 2, 0)] and len(graph.edges) == 150_000
    assert len(text.splitlines()) < 10 and dot.count("->") < 10
    assert "[50000 × 2 nodes]" in text and "[49999 more]" in text
    assert graph.json().count('"sourceNodeId"') == 150_000


def test_results_inside_of_a_group_are_counted() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    turns = [fnp.sin(x)]
    for _ in range(5):
        turns.append(fnp.sin(turns[-1]))
    assert "[4 more, with 4 results]" in str(viz.graph(turns))
