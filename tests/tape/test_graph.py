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
from fad.autograd import Edge, GradientEdge, Node
from fad.errors import GradientError

# Nodes of recorded operations


def test_next_functions_and_edges_agree() -> None:
    x, w = leaf(2.0), leaf(3.0)
    node = (x * w).grad_fn
    assert node.name() == "MultiplyBackward" and node.num_inputs == 1 and node.num_outputs == 2
    assert node.next_functions == tuple((e.node, e.input_nr) for e in node.next_edges)
    assert node.next_edge(1).node.variable is w
    half = (x * 2.0).grad_fn
    assert half.next_functions[1] == (None, 0) and not half.next_edges[1].is_valid()
    a, b = fnp.split(leaf([1.0, 2.0]), 2)
    assert (b * a).grad_fn.next_functions == ((a.grad_fn, 1), (a.grad_fn, 0))
    assert a.grad_fn.num_inputs == 2 and [m.shape for m in a.grad_fn._input_metadata] == [(1,)] * 2


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


def test_edges_cannot_change_below_a_parent() -> None:
    x = leaf(1.0)
    child = Scale(1.0, edge(x))
    child.add_next_edge(edge(x))
    Scale(1.0, Edge(child, 0))
    for change in (
        lambda: child.add_next_edge(edge(x)),
        lambda: child.set_next_edge(0, edge(x)),
        lambda: child.set_next_edges([]),
    ):
        with pytest.raises(GradientError, match="already has a parent"):
            change()
    y = x * 2.0
    z = y * 2.0
    with pytest.raises(GradientError, match="topological_nr"):
        z.grad_fn.next_functions[0][0].set_next_edges([])
    with pytest.raises(GradientError, match="no next edges"):
        edge(x).node.add_next_edge(edge(y))
    assert z.requires_grad


def test_metadata_in_three_forms() -> None:
    node = Scale(1.0)
    sharding = jax.sharding.SingleDeviceSharding(DEVICES[1])
    assert node.add_input_metadata((2, 3), jnp.float32, sharding) == 0
    assert node.add_input_metadata(fad.tensor([1.0])) == 1
    assert node.add_input_metadata() == 2
    first, second, third = (node.input_metadata(i) for i in range(3))
    assert first == ((2, 3), jnp.float32, sharding, False)
    assert second.shape == (1,) and second.dtype == np.float32 and not second.is_undefined
    assert second.sharding.device_set == {DEVICES[0]}
    assert third.is_undefined
    assert isinstance(first, autograd.InputMetadata) and first.dtype == np.dtype(np.float32)
    assert node.num_inputs == 3 and len(node._input_metadata) == 3
    assert node.sharding == sharding and node.device == DEVICES[1]
    node.clear_input_metadata()
    assert node.num_inputs == 0 and node.device is None


def test_metadata_from_a_device_a_length_and_an_array() -> None:
    node = Scale(1.0)
    node.add_input_metadata(3, jnp.float32, DEVICES[1])
    node.add_input_metadata(np.ones((2, 2), np.float32))
    assert [m.shape for m in node._input_metadata] == [(3,), (2, 2)]
    assert node.device == DEVICES[1]
    with pytest.raises(TypeError, match=r"Scale.add_input_metadata got tuple .* and no dtype"):
        node.add_input_metadata((2, 3))


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
