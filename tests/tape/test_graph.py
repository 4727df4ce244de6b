"""The graph as data: edges, numbers and metadata of nodes; and when it is freed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf
from nodes import Scale, edge, like

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import GradientEdge, Node

# Nodes of recorded operations


def test_topological_numbers() -> None:
    x = leaf(2.0)
    y = x * 2.0
    z = fnp.sin(y)
    w = z * y + x
    numbers = [n.topological_nr for n in (y.grad_fn, z.grad_fn, w.grad_fn)]
    assert numbers == [1, 2, 4]
    assert autograd.get_gradient_edge(x).node.topological_nr == 0
    node = Node()
    assert node.topological_nr == 0
    node.add_next_edge(autograd.create_gradient_edge(w))
    assert node.topological_nr == 5


def test_sequence_numbers_are_settable() -> None:
    x = leaf(1.0)
    order: list[str] = []
    parts = {name: x * k for k, name in enumerate("abc", 1)}
    for name, t in parts.items():
        t.grad_fn.register_hook(lambda i, o, name=name: order.append(name))
    total = parts["a"] + parts["b"] + parts["c"]
    total.backward(retain_graph=True)
    parts["a"].grad_fn.sequence_nr = total.grad_fn.sequence_nr + 1
    total.backward(retain_graph=True)
    assert order == ["c", "b", "a", "a", "c", "b"]
    # Never before its gradients have arrived, whatever its number.
    total.grad_fn.sequence_nr = 0
    total.backward()
    assert order[6:] == ["a", "c", "b"] and float(x.grad) == 18.0


def test_thread_ids() -> None:
    x = leaf(1.0)
    assert (x * 2.0).grad_fn.thread_id == (x * 3.0).grad_fn.thread_id


def test_metadata_is_a_dict_of_the_users() -> None:
    node = (leaf(1.0) * 2.0).grad_fn
    node.metadata["who"] = "me"
    assert node.metadata == {"who": "me"}


# When it is freed


def test_a_graph_is_freed_with_its_last_tensor() -> None:
    x = leaf(1.0)
    y = fnp.sin(x) * x
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_a_graph_can_be_freed_without_the_garbage_collector() -> None:
    class Cube(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            x, _ = ctx.saved_tensors
            return 3.0 * x * x * g

    gc.disable()
    try:
        x = leaf(2.0)
        y = Cube.apply(x)
        node = weakref.ref(y.grad_fn)
        y.backward()
        del y
        assert node() is None
    finally:
        gc.enable()
    assert_close(x.grad, np.float32(12.0))


DEVICES = jax.devices("cpu")


# Nodes of one's own


def test_device_and_sharding_of_recorded_nodes() -> None:
    x = fad.asarray(jax.device_put(jnp.ones(2), DEVICES[3])).requires_grad_()
    y = fnp.sin(x)
    assert y.grad_fn.device == DEVICES[3] and y.grad_fn.input_metadata(0).shape == (2,)
    assert (y + 1.0).grad_fn.device == DEVICES[3]
    assert edge(x).node.sharding == x.sharding


def test_what_is_wanted_of_a_node() -> None:
    asked: list[Any] = []

    class Ask(Node):
        def apply(self, g: Any) -> Any:
            asked.append([self.task_should_compute_output(i) for i in range(3)])
            asked.append(self.task_should_compute_output([(0, 2)]))
            asked.append(self.task_should_compute_output([(1, 3)]))
            return g, g, None

    x, y = leaf(1.0), leaf(2.0)
    node = like(Ask([edge(x), edge(y), None]), x)
    assert [node.should_compute_output(i) for i in range(3)] == [True, True, False]
    assert node.should_compute_output([(1, 3)]) and not node.should_compute_output([(2, 3)])
    assert node.should_compute_output([0, (2, 3)])
    assert node.should_compute_output((1, 3)) and not node.should_compute_output(range(2, 3))
    for bad in (3, -1, [(2, 4)], range(4)):
        with pytest.raises(IndexError, match=r"Ask: Index out of range: -?\d, of 3 next edges"):
            node.should_compute_output(bad)
    assert node.task_should_compute_output(1), "outside of a pass, what there is an edge for"
    autograd.grad(GradientEdge(node, 0), x)
    assert asked == [[True, False, False], True, False]
    asked.clear()
    autograd.backward(GradientEdge(node, 0))
    assert asked == [[True, True, False], True, True]


def test_properties_of_nodes() -> None:
    x = leaf(1.0)
    node = Scale(1.0, edge(x), sequence_nr=7)
    assert node.sequence_nr == node._sequence_nr() == 7
    node._set_sequence_nr(9)
    assert node.sequence_nr == 9
    assert node.name() == "Scale" and repr(node) == "<Scale>"
    assert node.requires_grad and not node.is_traceable and not node.passes_state_transparently
    assert (x * 2.0).grad_fn.is_traceable
    assert node.metadata == {} and node.thread_id == (x * 2.0).grad_fn.thread_id
    with pytest.raises(TypeError, match="cannot be copied"):
        __import__("copy").copy(node)
    with pytest.raises(TypeError, match="cannot be copied"):
        __import__("pickle").dumps(node)
    assert isinstance((x * 2.0).grad_fn, Node)
