"""Edges between nodes, and the form of the gradients that go along them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from nodes import Scale, edge

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import Edge, GradientEdge
from fad.errors import GradientError

DEVICES = jax.devices("cpu")


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


def test_edges() -> None:
    x = leaf(1.0)
    a, b = edge(x), edge(x)
    assert a == b and hash(a) == hash(b) and a.is_valid() and a.function is a.node
    y = x * 2.0
    assert edge(y) != a and len({a, b, edge(y)}) == 2
    invalid = edge(fad.tensor(1.0))
    assert not invalid.is_valid() and invalid == Edge(None, 0)
    with fad.no_grad():
        assert edge(x).is_valid()
        assert not autograd.collect_next_edges(x)[0].is_valid()
    assert autograd.collect_next_edges(x, 3.0, fad.tensor(1.0)) == [a, invalid, invalid]
    assert autograd.collect_next_edges([x, {"k": 3.0}], None, x) == [a, invalid, invalid, a]
    assert Edge() == invalid and Edge(a.node) == a
    assert autograd.any_variable_requires_grad(3.0, x)
    assert autograd.any_variable_requires_grad([3.0, {"k": (x,)}])
    assert not autograd.any_variable_requires_grad(3.0, fad.tensor(1.0), x.detach())
    assert autograd.get_gradient_edge(y) == GradientEdge(y.grad_fn, 0)
    for f in (edge, autograd.get_gradient_edge):
        with pytest.raises(
            TypeError, match=r"gradient_edge expects a Tensor, got Array float32\[2\]"
        ):
            f(jnp.ones(2))
