"""How a node is run in a pass: its gradients are checked, moved and cast; it is told when it is released."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from nodes import Scale, edge, like

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import GradientEdge, Node
from fad.core.caches import Table
from fad.errors import GradientError
from fad.replay import inputs

DEVICES = jax.devices("cpu")


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


def test_deferred_gradients_are_checked_for_devices() -> None:
    class OnFirstDevice(fad.Function):
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
        fnp.sum(OnFirstDevice.apply(x) * 1.5).backward()
        return x.grad

    for _ in range(6):
        assert step(leaf([1.0, 2.0])).tolist() == [3.0, 3.0]
    far = fad.asarray(jax.device_put(jnp.ones(2), DEVICES[2])).requires_grad_()
    with pytest.raises(GradientError, match="expected device cpu:2 but got cpu:0"):
        step(far)
    assert far.grad is None
    scalar = fad.asarray(jax.device_put(jnp.ones(()), DEVICES[2])).requires_grad_()
    assert step(scalar).devices() == {DEVICES[2]}


def test_deferred_gradients_are_checked_where_the_default_device_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are deferred values on two devices, so that either may be where a gradient is."""
    monkeypatch.setattr(inputs, "_placed", Table(4))

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
    calls: list[str] = []

    class Holder(Node):
        def apply(self, g: Any) -> Any:
            calls.append("apply")
            return g

        def will_release_variables(self) -> None:
            calls.append("will")

        def release_variables(self) -> None:
            calls.append("release")

    x = leaf(1.0)
    node = like(Holder([edge(x)]), x)
    autograd.backward(GradientEdge(node, 0), retain_graph=True)
    assert calls == ["apply"]
    autograd.backward(GradientEdge(node, 0))
    assert calls == ["apply", "will", "apply", "release"]
    node(fad.tensor(1.0))
    assert calls[4:] == ["apply"]


def test_releasing_a_recorded_node_by_hand() -> None:
    x = leaf(2.0)
    y = x * x
    y.grad_fn.release_variables()
    with pytest.raises(GradientError, match="second time"):
        y.backward()


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
