"""The engine: its order, what is pruned and what is freed, sums of gradients, and deep graphs."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import GradientEdge, Node
from fad.errors import GradientError
from fad.tape import engine

# Sums


def test_a_value_used_in_many_places_gets_the_sum() -> None:
    x = leaf(2.0)
    y = fnp.sin(x)
    z = y * y + y / x - fnp.where(x > 1.0, y, x)
    z.backward()
    expected = jax.grad(lambda x: jnp.sin(x) ** 2 + jnp.sin(x) / x - jnp.sin(x))(2.0)
    assert_close(x.grad, expected)


def test_a_long_chain_does_not_recurse() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(5_000):
        y = y * 1.0
    y.backward()
    assert_close(x.grad, np.float32(1.0))
    del y  # freeing it does not recurse either
    gc.collect()


# Order


def test_nodes_with_one_number_run_in_the_order_in_which_they_became_ready() -> None:
    x = leaf(1.0)
    order: list[int] = []
    parts = [x * float(k) for k in range(4)]
    for k, t in enumerate(parts):
        t.grad_fn.register_hook(lambda i, o, k=k: order.append(k))
        t.grad_fn.sequence_nr = 7
    autograd.backward(parts)
    assert order == [0, 1, 2, 3]


# Pruning


def test_pruned_nodes_never_run() -> None:
    ran: list[str] = []

    class Tell(Node):
        def __init__(self, name: str, *targets: Any) -> None:
            super().__init__([autograd.create_gradient_edge(t) for t in targets])
            self.label = name
            self.add_input_metadata((), np.float32)

        def apply(self, g: Any) -> Any:
            ran.append(self.label)
            return tuple([g] * len(self.edges))

    def tensor(name: str, *targets: Any) -> Any:
        node = Tell(name, *targets)
        node.register_prehook(lambda o: ran.append(f"pre {name}"))
        node.register_hook(lambda i, o: ran.append(f"post {name}"))
        out = fad.tensor(0.0)
        out._requires_grad, out._node, out._output_nr = True, node, 0
        return out

    x, y = leaf(1.0), leaf(2.0)
    a, b = tensor("a", x), tensor("b", y)
    c = tensor("c", a, b)
    y.register_hook(lambda g: ran.append("hook y"))
    autograd.grad(c, x)
    wanted = ["pre c", "c", "post c", "pre a", "a", "post a"]
    assert ran == wanted
    ran.clear()
    autograd.backward(c, inputs=[x])
    assert ran == wanted and float(x.grad) == 1.0 and y.grad is None
    ran.clear()
    assert [float(g) for g in autograd.grad(c, [a, b])] == [1.0, 1.0]
    assert ran == ["pre c", "c", "post c"], "what is beyond the inputs does not run"
    ran.clear()
    assert autograd.grad(a, y, allow_unused=True) == (None,)
    assert ran == []


def test_only_what_ran_is_released() -> None:
    x, y = leaf(2.0), leaf(3.0)
    a, b = x * x, y * y
    c = a * b
    autograd.grad(c, x)
    assert [t.grad_fn.values is None for t in (a, b, c)] == [True, False, True]
    assert float(autograd.grad(b, y)[0]) == 6.0


def test_nothing_runs_for_leaves_that_are_not_reached() -> None:
    x, other = leaf(2.0), leaf(1.0)
    y = x * x
    autograd.backward(y, inputs=[other])
    assert other.grad is None and y.grad_fn.values is not None
    y.backward()
    assert float(x.grad) == 4.0


def test_release_of_a_leaf_that_stopped_requiring_grad() -> None:
    x = leaf(2.0)
    for _ in range(6):  # the last ones compiled
        y = x * x
        x.requires_grad_(False)
        y.backward()
        x.requires_grad_(True)
    assert x.grad is None


# Passes with replay


def test_a_replayed_pass_does_what_the_engine_does() -> None:
    def run(compiled: bool) -> list[Any]:
        found: list[Any] = []
        with autograd.compiled(compiled):
            for k in range(6):
                x, w = leaf([1.0, 2.0 + k]), leaf([3.0, 4.0])
                y = (fnp.sin(x * w) * x).sum()
                z = (x * 2.0).sum()
                autograd.backward([y, z], inputs=[x, w] if k % 2 else None)
                with pytest.raises(GradientError, match="second time"):
                    y.backward()
                found += [x.grad.tolist(), w.grad.tolist()]
        return found

    np.testing.assert_allclose(run(True), run(False), rtol=1e-5)


# Deep graphs


@pytest.fixture(scope="module")
def length(request: pytest.FixtureRequest) -> int:
    return 1_000_000 if request.config.getoption("--full") else 40_000


@pytest.fixture
def low_recursion_limit() -> Any:
    """Whatever recurses over a chain fails; compiling its operations takes many frames, and comes first."""
    (leaf(1.0) + 1.0).backward()
    before = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    sys.setrecursionlimit(depth + 150)
    yield
    sys.setrecursionlimit(before)


def test_a_deep_recorded_chain(length: int, low_recursion_limit: None) -> None:
    x = leaf(1.0)
    (x + 1.0).backward()
    x.grad = None
    y = x
    for _ in range(length):
        y = y + 1.0
    assert "AddBackward" in repr(y) and repr(y.grad_fn) == "<AddBackward>"
    assert y.grad_fn.topological_nr == length
    assert y.grad_fn.device is not None
    y.backward()
    assert float(x.grad) == 1.0
    first, last = weakref.ref(x.meta.accumulator()), weakref.ref(y.grad_fn)
    gc.disable()
    try:
        del y
        assert last() is None and first() is None
    finally:
        gc.enable()


def test_a_deep_chain_by_hand(length: int, low_recursion_limit: None) -> None:
    class Pass(Node):
        __slots__ = ()

        def apply(self, g: Any) -> Any:
            return g

    x = leaf(1.0)
    edge = autograd.create_gradient_edge(x)
    for _ in range(length):
        node = Pass([edge])
        edge = autograd.Edge(node, 0)
    node.add_input_metadata(x)
    assert node.topological_nr == length
    autograd.backward(GradientEdge(node, 0))
    assert float(x.grad) == 1.0
    last = weakref.ref(node)
    del node, edge
    gc.collect()
    assert last() is None


def test_a_deep_chain_that_is_dropped_unused(low_recursion_limit: None) -> None:
    y = leaf(1.0)
    for _ in range(20_000):
        y = fnp.sin(y)
    last = weakref.ref(y.grad_fn)
    del y
    assert last() is None


def test_a_deep_chain_with_pruning_and_hooks(low_recursion_limit: None) -> None:
    x, w = leaf(1.0), leaf(1.0)
    y = x * w
    for _ in range(5_000):
        y = y + w
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    assert float(autograd.grad(y, x, retain_graph=True)[0]) == 1.0
    autograd.backward(y, inputs=[w])
    assert float(w.grad) == 5_001.0 and seen == [1.0]


def test_a_wide_fan_in() -> None:
    x = leaf(1.0)
    y = x * 1.0
    autograd.backward([y * float(k) for k in range(1_000)])
    assert float(x.grad) == 999 * 500


# Passes inside of passes


@pytest.mark.parametrize("most", [5, 40])
def test_passes_that_nest_without_end_are_an_error(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MOST_NESTED", most)
    x = leaf([1.0, 2.0])
    total = (x * x).sum()
    calls: list[Any] = []

    def hook(g: Any) -> None:
        calls.append(g)
        total.backward(retain_graph=True)

    handle = x.register_hook(hook)
    with pytest.raises(RecursionError, match=f"{most} backward passes are nested") as caught:
        total.backward(retain_graph=True)
    assert len(calls) == most + 1 and len(caught.traceback) < 200
    assert x.grad is None and is_idle()
    handle.remove()
    total.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_gradient_within_a_jvp_starts_from_ones_without_a_tangent() -> None:
    def hessian_product(transform: Any, numpy: Any) -> Any:
        loss = lambda x: numpy.sum((1 - x) ** 2 + 3 * (x - x**2) ** 2)
        return lambda x, t: transform.jvp(transform.grad(loss), (x,), (t,))[1]

    x, t = jnp.linspace(-1.0, 1.0, 8), jnp.linspace(0.0, 1.0, 8)
    costs = [
        jax.jit(f).lower(x, t).compile().cost_analysis()["flops"]
        for f in (fad.to_jax(hessian_product(fad, fnp)), hessian_product(jax, jnp))
    ]
    assert costs[0] <= costs[1]
    dual = fad.jvp(lambda x: engine.UNIT_COTANGENT.execute((x.value,)) * x, (x,), (t,))[1]
    assert_close(dual, t)
