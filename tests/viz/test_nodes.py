"""What is read of a graph: its nodes and edges are those of the engine, at every level."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from drawn_graphs import Halve, chain, of_engine, of_picture
from nodes import Scale, edge, like

import fad
import fad.numpy as fnp
from fad import viz
from fad.errors import ArgumentError


def program() -> tuple[Any, Any, Any]:
    """A result that views, a write, a Function and two leaves lead to, and the leaves."""
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = fad.tensor(2.0, requires_grad=True)
    y = x * 2.0
    column = y.reshape(3, 1)
    y[1:].mul_(3.0)
    return (y * y).sum() + column.sum() + Halve.apply(b) + fnp.exp(b), x, b


def kinds(graph: viz.Graph) -> dict[str, str]:
    return {node.name: node.kind for node in graph.nodes}


def test_nodes_and_edges_are_those_of_the_engine() -> None:
    z, _, _ = program()
    assert of_picture(viz.graph(z)) == of_engine(z.grad_fn)
    assert of_picture(viz.graph(z.grad_fn)) == of_engine(z.grad_fn)
    assert of_picture(viz.graph(fad.autograd.get_gradient_edge(z))) == of_engine(z.grad_fn)


def test_nodes_stand_in_front_of_what_their_gradients_go_to() -> None:
    graph = viz.graph(program()[0])
    assert all(i < j for i, j, _ in graph.edges)
    leaves = [node.kind == "leaf" for node in graph.nodes]
    assert leaves == sorted(leaves)


def test_kinds_are_told_apart() -> None:
    found = kinds(viz.graph(program()[0]))
    assert found["HalveBackward"] == "function"
    assert found["CopySlices"] == "write"
    assert found["ReshapeBackward"] == "view"
    assert found["MultiplyBackward"] == found["SumBackward"] == "operation"
    assert found["AccumulateGrad"] == "leaf"


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x: x[1:], "view"),
        (lambda x: x.T, "view"),
        (lambda x: fnp.split(x, 3)[0], "view"),
        (lambda x: x[fnp.array([0, 2])], "operation"),
        (lambda x: fad.autograd.view_function(lambda v: v[::2])(x), "view"),
        (lambda x: x.clone(), "operation"),
    ],
)
def test_what_gives_a_view(make: Any, kind: str) -> None:
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    graph = viz.graph(make(x))
    assert [node.kind for node in graph.nodes] == [kind, "leaf"]


def test_a_node_made_by_hand() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    node = like(Scale(2.0, edge(x)), x)
    graph = viz.graph(node)
    assert [(n.name, n.kind, n.form(), n.level) for n in graph.nodes] == [
        ("Scale", "custom", "float32[2]", 0),
        ("AccumulateGrad", "leaf", "float32[2]", 0),
    ]
    assert of_picture(graph) == of_engine(node)


def test_no_nodes_and_one_node() -> None:
    assert viz.graph(fad.tensor(1.0)).nodes == []
    (leaf,) = viz.graph(fad.tensor(1.0, requires_grad=True)).nodes
    assert (leaf.kind, leaf.results, leaf.sequence_nr) == ("leaf", ("result",), None)
    assert viz.graph([]).edges == viz.graph(None).edges == viz.graph(print).edges == []


def test_results_are_named() -> None:
    x = fad.tensor(2.0, requires_grad=True)
    y = fnp.sin(x)
    graph = viz.graph({"a": y * x, "b": y, "c": fad.tensor(1.0)})
    found = {node.name: node.results for node in graph.nodes if node.results}
    assert found == {"MultiplyBackward": ("result 0",), "SinBackward": ("result 1",)}


def test_bytes_that_are_saved() -> None:
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = fnp.exp(x * x)
    graph = viz.graph(y)
    assert [node.saved for node in graph.nodes] == [12, 12, 0]  # of x * x, x is saved once
    assert graph.saved == 24
    twice = viz.graph(fnp.sin(x) + fnp.cos(x))
    assert [node.saved for node in twice.nodes] == [0, 12, 12, 0] and twice.saved == 12


def test_a_graph_that_was_freed() -> None:
    z, _, _ = program()
    before = viz.graph(z)
    z.backward()
    after = viz.graph(z)
    assert (after.edges, len(after.nodes)) == (before.edges, len(before.nodes))
    assert after.saved == 0 and before.saved > 0
    freed = {node.name for node in after.nodes if node.freed}
    assert {"MultiplyBackward", "HalveBackward", "CopySlices"} <= freed
    assert not any(node.freed for node in before.nodes)


def test_hooks_are_counted() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: None)
    x.register_post_accumulate_grad_hook(lambda t: None)
    y = x * 2.0
    y.register_hook(lambda g: None)
    y.register_hook(lambda g: None)
    y.retain_grad()
    y.grad_fn.register_prehook(lambda g: None)
    y.grad_fn.register_hook(lambda g, h: None)
    node, leaf = viz.graph(y).nodes
    assert node.hooks == ("prehook", "tensor hook", "tensor hook", "retains grad", "hook")
    assert leaf.hooks == ("tensor hook", "post-accumulate hook")


def test_a_tensor_inside_of_transforms_shows_the_graphs_of_all_levels() -> None:
    graphs = []

    def inner(x: Any) -> Any:
        y = fnp.sin(x)
        graphs.append((viz.graph(y), of_engine(y.grad_fn, y.value.grad_fn)))
        return y

    fad.grad(fad.grad(inner))(1.0)
    ((graph, engine),) = graphs
    assert of_picture(graph) == engine
    assert [(n.name, n.level, n.level_kind) for n in graph.nodes if n.kind != "leaf"] == [
        ("SinBackward", 2, "grad"),
        ("SinBackward", 1, "grad"),
    ]


def test_a_dual_tensor_shows_its_tangent() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    t = fad.tensor([1.0, 1.0], requires_grad=True)
    with fad.dual_level():
        d = fad.make_dual(x * 2.0, fnp.sin(t))
        graph = viz.graph(d)
    found = {node.name: node.results for node in graph.nodes if node.results}
    assert found == {
        "MakeDualBackward": ("result",),
        "MultiplyBackward": ("result",),
        "SinBackward": ("tangent of result",),
    }


def test_a_dual_tensor_that_requires_grad() -> None:
    with fad.dual_level():
        d = fad.make_dual(fad.tensor(1.0), fad.tensor(1.0)).requires_grad_()
        y = fnp.sin(d)
        graph = viz.graph(y)
        assert of_picture(graph) == of_engine(y.grad_fn)
        assert graph.nodes[0].level_kind == y.level.kind


def test_a_long_chain() -> None:
    y = chain(2_000)
    graph = viz.graph(y)
    assert len(graph.nodes) == 2_001
    assert of_picture(graph) == of_engine(y.grad_fn)


@pytest.mark.usefixtures("replay_mode")
def test_a_graph_is_the_same_with_and_without_replay() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)

    def step() -> Any:
        return (fnp.sin(x) * x).sum()

    for _ in range(3):
        y = step()
        graph = viz.graph(y)
        assert of_picture(graph) == of_engine(y.grad_fn)
        assert [n.name for n in graph.nodes] == [
            "SumBackward",
            "MultiplyBackward",
            "SinBackward",
            "AccumulateGrad",
        ]
        y.backward()


@pytest.mark.parametrize("wrong", [3, "x", jnp.ones(2), [fad.tensor(1.0), 2]], ids=str)
def test_what_has_no_place_in_a_graph_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"expected a Tensor, .* fad.viz.graph\(f, x\)"):
        viz.graph(wrong)


def test_leaves_are_called_by_names() -> None:
    w = fad.tensor([1.0, 2.0], requires_grad=True)
    b = fad.tensor(2.0, requires_grad=True)
    unused, product = fad.tensor(1.0, requires_grad=True), w * 2.0
    names = {"w": w, "layers": [{"b": b}], "unused": unused, "product": product, "none": None}
    graph = viz.graph((product + b).sum(), names=names)
    assert [n.name for n in graph.nodes if n.kind == "leaf"] == ["layers.0.b", "w"]
    assert "MultiplyBackward" in str(graph) and "\nw  float32[2]" in str(graph)
    called = viz.graph(lambda: (w * b).sum(), names=names)
    assert sorted(n.name for n in called.nodes if n.kind == "leaf") == ["layers.0.b", "w"]
