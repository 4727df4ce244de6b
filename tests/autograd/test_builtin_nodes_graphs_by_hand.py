"""Graphs built by hand, and how they mix with recorded ones."""

from __future__ import annotations

from typing import Any

from helpers import leaf
from nodes import Scale, edge, like

import fad
from fad import autograd
from fad.autograd import Edge, GradientEdge, Node


def test_a_node_of_ones_own() -> None:
    x, y = leaf(1.0), leaf(2.0)
    node = like(Scale(3.0, edge(x), edge(y)), x)
    autograd.backward(GradientEdge(node, 0))
    assert float(x.grad) == float(y.grad) == 3.0
    assert autograd.grad(GradientEdge(node, 0), [x], fad.tensor(2.0))[0].item() == 6.0


def test_hand_made_and_recorded_nodes_mix() -> None:
    x = leaf(2.0)
    y = x * x
    node = Scale(10.0, edge(y))
    out = autograd.set_history(fad.tensor(0.0), node)
    assert out.grad_fn is node and out.requires_grad and not out.is_leaf
    (out * 3.0).backward()
    assert float(x.grad) == 3.0 * 10.0 * 4.0


def test_several_inputs_and_outputs() -> None:
    class Swap(Node):
        def apply(self, a: Any, b: Any) -> Any:
            return b, a

    x, y = leaf(1.0), leaf(2.0)
    node = Swap([edge(x), edge(y)])
    outs = autograd.set_history((fad.tensor(0.0), fad.tensor(0.0)), node)
    assert [t.output_nr for t in outs] == [0, 1] and node.num_inputs == 2 and node.num_outputs == 2
    autograd.backward(outs, [fad.tensor(5.0), fad.tensor(7.0)])
    assert (float(x.grad), float(y.grad)) == (7.0, 5.0)
    # A gradient that did not arrive is None, and may be given on.
    assert autograd.grad(outs[0], [x, y], allow_unused=True)[0] is None


def test_edges_set_one_by_one() -> None:
    x, y = leaf(1.0), leaf(2.0)
    node = like(Scale(2.0), x)
    node.add_next_edge(edge(x))
    node.add_next_edge(Edge(None, 0))
    assert node.num_outputs == 2 and node.next_edge(0) == edge(x)
    assert node.next_functions == ((edge(x).node, 0), (None, 0))
    node.set_next_edge(1, edge(y))
    assert [e.node for e in node.next_edges] == [edge(x).node, edge(y).node]
    node.set_next_edges([edge(y)])
    assert node.num_outputs == 1 and node.next_edges == [edge(y)]
    autograd.backward(GradientEdge(node, 0))
    assert x.grad is None and float(y.grad) == 2.0


def test_hooks_on_nodes_of_ones_own() -> None:
    x = leaf(1.0)
    node = like(Scale(2.0, edge(x)), x)
    node.register_prehook(lambda g: (g[0] + 1.0,))
    node.register_hook(lambda i, o: (i[0] * o[0],))
    autograd.backward(GradientEdge(node, 0))
    assert float(x.grad) == 8.0
    assert float(node(fad.tensor(1.0))[0]) == 2.0, "a call runs no hooks"
