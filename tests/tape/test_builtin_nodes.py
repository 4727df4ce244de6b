"""Built-in nodes, graphs built by hand, and what they share with recorded ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import Edge, GradientEdge, Node
from fad.errors import GradientError
from fad.replay import settings

DEVICES = jax.devices("cpu")


def leaf(data: Any) -> fad.Tensor:
    return fad.tensor(data, requires_grad=True)


class Scale(Node):
    """A node as a user writes it."""

    def __init__(self, factor: float, *edges: Any, **kwargs: Any) -> None:
        super().__init__(edges, **kwargs)
        self.factor = factor

    def apply(self, *gradients: Any) -> Any:
        (g,) = gradients
        return tuple([None if g is None else g * self.factor for _ in self.edges])


def edge(t: Any) -> Edge:
    return autograd.create_gradient_edge(t)


def like(node: Node, *tensors: Any) -> Node:
    """``node`` with the metadata of Tensors."""
    for t in tensors:
        node.add_input_metadata(t)
    return node


# Graphs built by hand


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


def test_gradients_are_checked_against_metadata() -> None:
    class Give(Node):
        def __init__(self, what: Any, *edges: Any) -> None:
            super().__init__(edges)
            self.what = what

        def apply(self, *_: Any) -> Any:
            return self.what

    def run(what: Any, *targets: Any) -> None:
        node = like(Give(what, *map(edge, targets)), fad.tensor(1.0))
        autograd.backward(GradientEdge(node, 0))

    x = leaf([[1.0, 2.0]])
    run(fad.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), x)
    assert x.grad.tolist() == [[4.0, 6.0]]
    x.grad = None
    run(fad.tensor([[1.0, 2.0]], dtype=jnp.float16), x)
    assert x.grad.dtype == np.float32
    with pytest.raises(
        GradientError,
        match=r"Function Give returned an invalid gradient at index 0 - got \[3\] but expected "
        r"shape compatible with \[1, 2\]",
    ):
        run(fad.tensor([1.0, 2.0, 3.0]), x)
    with pytest.raises(GradientError, match=r"incorrect number of gradients \(expected 1, got 2\)"):
        run((fad.tensor(1.0), fad.tensor(1.0)), x)
    z = leaf([1.0 + 1.0j])
    run(fad.tensor([2.0 + 3.0j]), z)
    assert z.grad.tolist() == [2.0 + 3.0j]
    x = leaf([1.0])
    run(fad.tensor([2.0 + 3.0j]), x)
    assert x.grad.tolist() == [2.0]


def test_gradients_of_no_form_are_refused() -> None:
    class Give(Node):
        def apply(self, g: Any) -> Any:
            return self.what

    x = leaf(1.0)
    node = like(Give([edge(x)]), x)
    for node.what in (3, 2.0, np.float32(1.0), jnp.ones(()), fad.tensor(1.0), None):  # type: ignore[attr-defined]
        autograd.backward(GradientEdge(node, 0), create_graph=True)
    assert float(x.grad) == 8.0
    node.what = "text"  # type: ignore[attr-defined]
    with pytest.raises(
        GradientError,
        match="Function Give returned an invalid gradient at index 0 - got str 'text'",
    ):
        autograd.backward(GradientEdge(node, 0))
    accumulator = edge(x).node
    with pytest.raises(GradientError, match=r"got a gradient Tensor float32\[2\] for a variable"):
        accumulator(fad.tensor([1.0, 1.0]))
    with pytest.raises(TypeError, match="AccumulateGrad: expected 1 arguments, got 2 instead"):
        accumulator(fad.tensor(1.0), fad.tensor(1.0))
    assert float(x.grad) == 8.0


def test_plain_edges_are_roots_and_inputs_too() -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    assert float(autograd.grad(edge(z), [edge(x)], retain_graph=True)[0]) == 3.0
    autograd.backward([edge(z)], inputs=edge(y))
    assert float(y.grad) == 2.0 and x.grad is None
    with pytest.raises(TypeError, match="output 0 must be a Tensor, got Edge"):
        autograd.backward([Edge()])
    with pytest.raises(
        GradientError, match="edge to input 3 of MultiplyBackward, which takes 1 gradients"
    ):
        autograd.backward(GradientEdge(z.grad_fn, 3), fad.tensor(1.0))


def test_gradients_are_checked_for_devices() -> None:
    class Give(Node):
        def apply(self, g: Any) -> Any:
            return fad.asarray(jax.device_put(self.value, DEVICES[2]))

    x = leaf([1.0, 2.0])
    node = like(Give([edge(x)]), fad.tensor(1.0))
    node.value = jnp.ones(2)  # type: ignore[attr-defined]
    with pytest.raises(GradientError, match="expected device cpu:0 but got cpu:2"):
        autograd.backward(GradientEdge(node, 0))
    s = leaf(1.0)
    node = like(Give([edge(s)]), fad.tensor(1.0))
    node.value = jnp.ones(())  # type: ignore[attr-defined]
    autograd.backward(GradientEdge(node, 0))
    assert s.grad.devices() == {DEVICES[0]}


def test_gradients_that_wait_are_checked_for_devices() -> None:
    class Elsewhere(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return fad.asarray(jax.device_put(x.array, DEVICES[0]))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 2.0

    def step(x: Any) -> Any:
        fnp.sum(Elsewhere.apply(x) * 1.5).backward()
        return x.grad

    for _ in range(6):
        assert step(leaf([1.0, 2.0])).tolist() == [3.0, 3.0]
    far = fad.asarray(jax.device_put(jnp.ones(2), DEVICES[2])).requires_grad_()
    with pytest.raises(GradientError, match="expected device cpu:2 but got cpu:0"):
        step(far)
    assert far.grad is None
    scalar = fad.asarray(jax.device_put(jnp.ones(()), DEVICES[2])).requires_grad_()
    assert step(scalar).devices() == {DEVICES[2]}


def test_gradients_that_wait_are_checked_where_the_default_device_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values have waited on two devices, so that either may be where a gradient is."""
    monkeypatch.setattr(settings, "_default", set())
    monkeypatch.setattr(settings, "_placed", {})

    class Constant(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return here * 2.0 + 1.0

    def step(x: Any) -> None:
        for _ in range(3):
            (fnp.sin(x * 2.0) * 2.0).sum().backward()
            x.grad.tolist()

    try:
        jax.config.update("jax_default_device", DEVICES[1])
        there = leaf([1.0, 2.0])
        step(there)
    finally:
        jax.config.update("jax_default_device", None)
    here = fad.tensor([1.0, 2.0])
    step(leaf([1.0, 2.0]))
    for _ in range(4):
        there.grad = None
        with pytest.raises(GradientError, match="expected device cpu:1 but got cpu:0"):
            Constant.apply(there).sum().backward()
        assert there.grad is None


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


def test_the_current_node() -> None:
    seen: list[Any] = []
    x = leaf(1.0)

    class Look(Node):
        def apply(self, g: Any) -> Any:
            seen.append(autograd.current_node())
            with fad.enable_grad():
                inner = leaf(1.0)
                y = inner * 2.0
            y.register_hook(lambda g: seen.append(autograd.current_node()))
            y.backward()
            seen.extend([y.grad_fn, autograd.current_node()])
            return g

    node = like(Look([edge(x)]), x)
    node.register_prehook(lambda g: seen.append(autograd.current_node()))
    assert autograd.current_node() is None
    autograd.backward(GradientEdge(node, 0))
    pre, outer, inner, inner_node, after = seen
    assert pre is outer is after is node and inner is inner_node
    assert autograd.current_node() is None


def test_release_is_announced_and_done_once() -> None:
    told: list[str] = []

    class Holder(Node):
        def apply(self, g: Any) -> Any:
            told.append("apply")
            return g

        def will_release_variables(self) -> None:
            told.append("will")

        def release_variables(self) -> None:
            told.append("release")

    x = leaf(1.0)
    node = like(Holder([edge(x)]), x)
    autograd.backward(GradientEdge(node, 0), retain_graph=True)
    assert told == ["apply"]
    autograd.backward(GradientEdge(node, 0))
    assert told == ["apply", "will", "apply", "release"]
    node(fad.tensor(1.0))
    assert told[4:] == ["apply"]


def test_releasing_a_recorded_node_by_hand() -> None:
    x = leaf(2.0)
    y = x * x
    y.grad_fn.release_variables()
    with pytest.raises(GradientError, match="second time"):
        y.backward()


def test_hooks_on_nodes_of_ones_own() -> None:
    x = leaf(1.0)
    node = like(Scale(2.0, edge(x)), x)
    node.register_prehook(lambda g: (g[0] + 1.0,))
    node.register_hook(lambda i, o: (i[0] * o[0],))
    autograd.backward(GradientEdge(node, 0))
    assert float(x.grad) == 8.0
    assert float(node(fad.tensor(1.0))[0]) == 2.0, "a call runs no hooks"


def test_create_graph_through_a_node_of_ones_own() -> None:
    class Square(Node):
        def apply(self, g: Any) -> Any:
            return g * g * self.at

    x, v = leaf(3.0), leaf(5.0)
    node = like(Square([edge(x)]), x)
    node.at = x  # type: ignore[attr-defined]
    (g,) = autograd.grad(GradientEdge(node, 0), x, v, create_graph=True)
    assert float(g) == 75.0
    assert [float(h) for h in autograd.grad(g, [v, x])] == [30.0, 25.0]
    (g,) = autograd.grad(GradientEdge(node, 0), x, v)
    assert not g.requires_grad


def test_nodes_at_a_level() -> None:
    def f(x: Any) -> Any:
        node = Scale(10.0, edge(x))
        return autograd.set_history(fnp.sin(x.detach()), node)

    assert float(fad.grad(f)(2.0)) == 10.0
    assert fad.vmap(fad.grad(f))(jnp.arange(3.0)).tolist() == [10.0, 10.0, 10.0]


def test_a_node_without_apply() -> None:
    node = like(Node([edge(leaf(1.0))]), fad.tensor(1.0))
    with pytest.raises(NotImplementedError, match=r"needs apply\(self, \*gradients\)"):
        autograd.backward(GradientEdge(node, 0))


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


# Built-in nodes


def test_error() -> None:
    x = leaf(1.0)
    node = autograd.Error("no derivative here", [edge(x)])
    out = autograd.set_history(fad.tensor(1.0), node)
    with pytest.raises(GradientError, match="no derivative here"):
        out.backward()
    assert x.grad is None


def test_not_implemented() -> None:
    x = leaf(1.0)
    out = autograd.set_history(fad.tensor(1.0), autograd.NotImplemented("besselk", [edge(x)]))
    with pytest.raises(GradientError, match="derivative for besselk is not implemented"):
        out.backward()


def test_delayed_error() -> None:
    x, c = leaf([1.0, 2.0]), fad.tensor(3.0)
    y, d = autograd.DelayedError("not twice")(x * 2.0, c)
    assert y.tolist() == [2.0, 4.0] and y.grad_fn.name() == "Error" and not d.requires_grad
    with pytest.raises(GradientError, match="not twice"):
        (y * d).sum().backward()
    with fad.no_grad():
        assert not autograd.DelayedError("not twice")(x).requires_grad
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        autograd.DelayedError("not twice", num_inputs=1)(x, x)
    assert autograd.DelayedError("not twice", num_inputs=2)(x, None)[1] is None


def test_delayed_error_guards_every_level() -> None:
    guard = autograd.DelayedError("stop here")
    with pytest.raises(GradientError, match="stop here"):
        fad.grad(lambda x: guard(x) * 2.0)(1.0)
    x = leaf(2.0)
    out = fad.grad(lambda t: t * t * x)(guard(x))
    with pytest.raises(GradientError, match="stop here"):
        out.backward()
    inner = fad.grad(lambda t: t * t * guard(x))(1.0)  # x is from outside of this level
    with pytest.raises(GradientError, match="stop here"):
        fad.asarray(inner).backward()
    assert fad.vmap(guard)(jnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert fad.jvp(guard, (1.0,), (2.0,))[1] == 2.0, "it is about gradients alone"


def test_undefined_grad() -> None:
    x = leaf([1.0, 2.0])
    y = autograd.UndefinedGrad()(x)
    assert y.tolist() == [1.0, 2.0] and y.grad_fn.name() == "UndefinedGradBackward"
    y.sum().backward()
    assert x.grad is None
    assert autograd.grad(y.sum(), x, allow_unused=True) == (None,)


def test_graph_root() -> None:
    x, y = leaf(1.0), leaf([1.0, 2.0])
    root = autograd.GraphRoot([edge(x * 3.0), edge(y)], [fad.tensor(5.0), fad.tensor([6.0, 7.0])])
    assert root.num_inputs == 2 and root.input_metadata(1).shape == (2,)
    autograd.backward(GradientEdge(root, 0))
    assert float(x.grad) == 15.0 and y.grad.tolist() == [6.0, 7.0]
    assert root()[0].item() == 5.0


def test_identity() -> None:
    x = leaf(1.0)
    node = like(autograd.Identity([edge(x)]), x)
    autograd.backward(GradientEdge(node, 0), fad.tensor(4.0))
    assert float(x.grad) == 4.0 and node.is_traceable
    assert isinstance(node, autograd.TraceableNode)


def test_accumulate_grad() -> None:
    x = leaf([1.0, 2.0])
    node = edge(x).node
    assert isinstance(node, autograd.AccumulateGrad) and node.variable is x
    assert node.sequence_nr == 2**64 - 1 and node.topological_nr == 0 and node.num_outputs == 0
    assert node.input_metadata(0)[:2] == ((2,), np.float32)
    made = autograd.AccumulateGrad(x)
    assert made(fad.tensor([3.0, 4.0])) == () and x.grad.tolist() == [3.0, 4.0]
    autograd.backward(GradientEdge(made, 0), fad.tensor([1.0, 1.0]))
    assert x.grad.tolist() == [4.0, 5.0]


def test_copy_by_dtype() -> None:
    x = leaf([1.0, 2.0])
    y = x.to(jnp.bfloat16)
    assert y.dtype == jnp.bfloat16 and y.grad_fn.name() == "CopyBackwards"
    (y * 2.0).sum().backward()
    assert x.grad.dtype == np.float32 and x.grad.tolist() == [2.0, 2.0]
    assert x.to(np.float32) is x and x.to("float32") is x
    assert not x.to(int).requires_grad
    assert fad.grad(lambda t: t.to(jnp.float16).sum())(jnp.ones(2)).dtype == np.float32
    assert fad.vmap(lambda t: t.to(jnp.float16))(jnp.ones(2)).dtype == np.float16


def test_copy_to_a_device_and_back() -> None:
    x = leaf([1.0, 2.0])
    y = x.to(DEVICES[5])
    assert y.devices() == {DEVICES[5]} and y.grad_fn.name() == "CopyBackwards"
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.devices()))
    (y * y).sum().backward()
    assert seen == [{DEVICES[5]}] and x.grad.devices() == {DEVICES[0]}
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_copy_to_a_sharding(kind: str) -> None:
    axis_type = getattr(jax.sharding.AxisType, kind)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(axis_type,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = leaf(np.arange(8.0, dtype=np.float32))
    y = x.to(sharding)
    assert y.sharding == sharding
    (y * y).sum().backward()
    assert x.grad.devices() == {DEVICES[0]} and x.grad.tolist() == [2.0 * k for k in range(8)]


def test_copy_backwards_by_hand() -> None:
    x = leaf([1.0, 2.0])
    node = autograd.CopyBackwards([edge(x)], jnp.float32, x.sharding)
    node.add_input_metadata((2,), jnp.float16)
    g = fad.asarray(jax.device_put(jnp.ones(2, jnp.float16), DEVICES[1]))
    autograd.backward(GradientEdge(node, 0), g)
    assert x.grad.dtype == np.float32 and x.grad.devices() == {DEVICES[0]}


# Several devices


def test_scatter() -> None:
    assert len(DEVICES) == 8
    x = leaf(np.arange(16.0, dtype=np.float32))
    parts = autograd.Scatter(DEVICES)(x)
    assert [p.devices() for p in parts] == [{d} for d in DEVICES]
    assert [p.tolist() for p in parts] == [[2.0 * k, 2.0 * k + 1.0] for k in range(8)]
    assert parts[0].grad_fn is parts[7].grad_fn and parts[0].grad_fn.name() == "Gather"
    for k, p in enumerate(parts):
        (p * (k + 1.0)).sum().backward(retain_graph=True)
    assert x.grad.devices() == {DEVICES[0]}
    assert x.grad.tolist() == [float(k // 2 + 1) for k in range(16)]


def test_scatter_in_uneven_parts() -> None:
    x = leaf(np.ones((2, 10), np.float32))
    parts = autograd.Scatter(DEVICES[:4], dim=1)(x)
    assert [p.shape for p in parts] == [(2, 3), (2, 3), (2, 3), (2, 1)]
    assert len(autograd.Scatter(DEVICES[:4], dim=-1)(x[:, :5])) == 3
    parts = autograd.Scatter(DEVICES[:2], [7, 3], dim=1)(x)
    assert [p.shape for p in parts] == [(2, 7), (2, 3)]
    (parts[1] * 5.0).sum().backward()
    assert x.grad[0].tolist() == [0.0] * 7 + [5.0] * 3
    for sizes in ([5, 4], [5, 3, 2]):
        with pytest.raises(ValueError, match="numbers that add up to 10"):
            autograd.Scatter(DEVICES[:2], sizes, dim=1)(x)


def test_gather() -> None:
    xs = [
        fad.asarray(jax.device_put(jnp.full(2, float(k)), d)).requires_grad_()
        for k, d in enumerate(DEVICES)
    ]
    y = autograd.Gather(DEVICES[3])(*xs)
    assert y.devices() == {DEVICES[3]} and y.grad_fn.name() == "Scatter"
    assert y.tolist() == [float(k // 2) for k in range(16)]
    (y * y).sum().backward()
    for k, (x, d) in enumerate(zip(xs, DEVICES, strict=True)):
        assert x.grad.devices() == {d} and x.grad.tolist() == [2.0 * k] * 2
    with pytest.raises(ValueError, match="at least one Tensor"):
        autograd.Gather(DEVICES[0])()


def test_gather_of_scalars_gives_a_vector() -> None:
    """As in PyTorch, whose Gather unsqueezes them."""
    x, y = leaf(2.0), fad.asarray(jax.device_put(jnp.array(3.0), DEVICES[1])).requires_grad_()
    z = autograd.Gather(DEVICES[2])(x, y)
    assert z.tolist() == [2.0, 3.0] and z.devices() == {DEVICES[2]}
    assert [g.shape for g in z.grad_fn(fad.tensor([1.0, 1.0]))] == [(), ()]
    (z * fad.asarray(jax.device_put(jnp.array([5.0, 7.0]), DEVICES[2]))).sum().backward()
    assert (float(x.grad), float(y.grad)) == (5.0, 7.0) and y.grad.devices() == {DEVICES[1]}
    with pytest.raises(ValueError, match=r"Scatter: Tensor float32\[\] has no dimension 0"):
        autograd.Scatter(DEVICES)(x)


def test_gather_of_what_requires_no_grad() -> None:
    c = fad.tensor([1.0])
    assert not autograd.Gather(DEVICES[0])(c, c).requires_grad
    x = leaf([2.0])
    y = autograd.Gather(DEVICES[0])(c, x)
    assert [e.is_valid() for e in y.grad_fn.next_edges] == [False, True]
    y.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_scatter_and_gather_are_each_others_backward() -> None:
    x = leaf(np.arange(8.0, dtype=np.float32))
    y = autograd.Gather(DEVICES[0])(*[fnp.sin(p) * p for p in autograd.Scatter(DEVICES)(x)])
    v = np.linspace(1.0, 2.0, 8, dtype=np.float32)
    (g,) = autograd.grad(y, x, fad.tensor(v), create_graph=True)
    expected = jax.grad(lambda t: jnp.sum(jnp.sin(t) * t * v))(x.array)
    np.testing.assert_allclose(g.detach().numpy(), expected, rtol=1e-5)
    (h,) = autograd.grad(g.sum(), x)
    second = jax.grad(lambda t: jax.grad(lambda t: jnp.sum(jnp.sin(t) * t * v))(t).sum())(x.array)
    np.testing.assert_allclose(h.numpy(), second, rtol=1e-4)


def test_scatter_and_gather_under_transforms() -> None:
    w = leaf([3.0, 4.0])

    def f(x: Any) -> Any:
        a, b = autograd.Scatter(DEVICES[:2])(x)
        y = autograd.Gather(DEVICES[0])(a * a, b, w)  # w is of a level outside
        return (y * y).sum()

    x = jnp.array([1.0, 2.0])
    assert fad.grad(f)(x).tolist() == [4.0, 4.0]
    assert fad.jvp(f, (x,), (jnp.ones(2),))[1] == 8.0
    value = fad.value_and_grad(f)(fad.asarray(x))[0]
    value.backward()
    assert w.grad.tolist() == [6.0, 8.0]
    assert fad.vmap(fad.grad(f))(jnp.stack([x, 2 * x])).tolist() == [[4.0, 4.0], [32.0, 8.0]]


# Saved values of recorded nodes


def test_saved_values_have_names() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    assert y.grad_fn._saved_self.item() == 2.0 and y.grad_fn._saved_other.item() == 3.0
    assert y.grad_fn._saved_0.item() == 2.0 and y.grad_fn._saved_1.grad_fn is None
    e = fnp.exp(x * 1.0)
    assert float(e.grad_fn._saved_result) == pytest.approx(np.exp(2.0))
    with pytest.raises(AttributeError, match="it saved _saved_result"):
        e.grad_fn._saved_self
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        e.grad_fn.nonsense
    assert isinstance(y.grad_fn._raw_saved_self, autograd.SavedTensor)
