"""Threads that build, share and run graphs: nothing is lost, and modes belong to one thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.core.tensor import Meta, meta_of
from fad.errors import GradientError
from fad.tape import anomaly, recorder
from fad.tape.graph import AccumulateGrad, NodeExtra, accumulator_of, extra_of

THREADS = 8
PASSES = 100


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    """Let threads interrupt each other anywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Results of ``work(k)`` in threads that start together; the first exception is raised."""
    start = threading.Barrier(count)

    def run(k: int) -> Any:
        start.wait()
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        return [f.result() for f in [pool.submit(run, k) for k in range(count)]]


@pytest.mark.parametrize("compiled", [False, True])
def test_one_shared_graph(compiled: bool) -> None:
    """8 threads run 100 backwards each over one retained graph: `.grad` is their exact sum."""
    x, w = leaf([1.0, 2.0]), leaf([3.0, 5.0])
    y = (x * w + x * x).sum()

    def work(k: int) -> None:
        with autograd.compiled(compiled):
            for _ in range(PASSES):
                y.backward(retain_graph=True)

    in_threads(work)
    total = float(THREADS * PASSES)
    assert x.grad.tolist() == [5.0 * total, 9.0 * total]
    assert w.grad.tolist() == [1.0 * total, 2.0 * total]


def test_graphs_of_their_own_with_shared_leaves() -> None:
    x, w = leaf(1.0), leaf(2.0)

    def work(k: int) -> None:
        for _ in range(PASSES):
            y = x * w if k % 2 else fnp.square(x) + w * 3.0
            y.backward()

    in_threads(work)
    half = THREADS // 2 * PASSES
    assert float(x.grad) == half * 2.0 + half * 2.0
    assert float(w.grad) == half * 1.0 + half * 3.0


def test_hooks_and_retained_gradients_in_threads() -> None:
    x = leaf(2.0)
    y = x * 3.0
    y.retain_grad()
    z = y * 1.0
    calls: list[int] = []
    y.register_hook(lambda g: calls.append(1))
    x.register_post_accumulate_grad_hook(lambda t: calls.append(2))

    def work(k: int) -> None:
        for _ in range(20):
            z.backward(retain_graph=True)

    in_threads(work)
    assert calls.count(1) == calls.count(2) == THREADS * 20
    assert float(y.grad) == THREADS * 20 and float(x.grad) == THREADS * 20 * 3


def test_the_first_use_of_a_leaf_in_many_threads() -> None:
    """All graphs end in one accumulator, so that `grad` finds the leaf in each of them."""
    for _ in range(20):
        x = leaf(2.0)
        ys = in_threads(lambda k, x=x: x * float(k + 1))
        assert len({y.grad_fn.next_functions[0][0] for y in ys}) == 1
        (g,) = autograd.grad(ys, x)
        assert float(g) == sum(range(1, THREADS + 1))


@pytest.mark.parametrize("made", [AccumulateGrad, NodeExtra, Meta])
def test_what_is_made_late_is_made_once(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    init = made.__init__

    def slow(self: Any, *args: Any) -> None:
        time.sleep(0.01)
        init(self, *args)

    monkeypatch.setattr(made, "__init__", slow)
    x = leaf(2.0)
    node = (leaf(1.0) * 2.0).grad_fn
    if made is not Meta:
        meta_of(x)
    get = {
        AccumulateGrad: lambda: accumulator_of(x),
        NodeExtra: lambda: extra_of(node),
        Meta: lambda: meta_of(x),
    }[made]
    found = in_threads(lambda k: get())
    assert all(f is found[0] for f in found)


def test_one_graph_without_retaining_it() -> None:
    """One pass wins; another finds the graph freed, and says so; none computes anything wrong."""
    for _ in range(20):
        x = leaf(2.0)
        y = fnp.exp(x) * x

        def work(k: int, y: Any = y) -> bool:
            try:
                y.backward()
            except GradientError as error:
                assert "second time" in str(error)
                return False
            return True

        assert sum(in_threads(work, 2)) >= 1
        assert x.grad is not None


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_node_that_is_released_while_it_runs(
    create_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's pass may free it at the worst moment: this one goes on with what it has."""
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    bind = recorder.bind

    def freed_here(op: Any, args: Any) -> Any:
        in_threads(lambda k: y.grad_fn.release_variables(), 1)
        return bind(op, args)

    monkeypatch.setattr(recorder, "bind", freed_here)
    with autograd.compiled(False):
        g, h = autograd.grad(y, [x, w], create_graph=create_graph)
    assert (float(g), float(h)) == (3.0, 2.0) and y.grad_fn.values is None
    if create_graph:
        assert g.requires_grad and h.requires_grad


def test_an_exception_in_one_thread_leaves_the_others_alone() -> None:
    shared = leaf([1.0, 2.0])
    y = (shared * shared).sum()

    def work(k: int) -> Any:
        if k % 2 == 0:
            for _ in range(PASSES):
                y.backward(retain_graph=True)
            return fad.is_grad_enabled()
        failed = 0
        for _ in range(PASSES // 2):
            t = shared * 2.0
            t.register_hook(lambda g: 1 / 0)
            try:
                with fad.no_grad(), fad.enable_grad():
                    fnp.exp(t).sum().backward()
            except ZeroDivisionError:
                failed += 1
        assert autograd.current_node() is None and fad.core.level.state.levels == ()
        assert failed == PASSES // 2
        return fad.is_grad_enabled()

    assert in_threads(work) == [True] * THREADS
    half = THREADS // 2 * PASSES
    assert shared.grad.tolist() == [2.0 * half, 4.0 * half]
    assert fad.is_grad_enabled() and autograd.current_node() is None


def test_nodes_of_ones_own_run_one_thread_at_a_time() -> None:
    x = leaf(1.0)
    inside = [0]
    most = [0]

    class Stateful(autograd.Node):
        def apply(self, g: Any) -> Any:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            inside[0] -= 1
            return g

        def release_variables(self) -> None:
            assert inside[0] == 0, "released while another thread is in it"

    node = Stateful([autograd.create_gradient_edge(x)])
    node.add_input_metadata(x)
    edge = autograd.GradientEdge(node, 0)

    def work(k: int) -> None:
        for _ in range(10):
            autograd.backward(edge, retain_graph=k % 2 == 0)

    in_threads(work, 4)
    assert most == [1] and float(x.grad) == 40.0


def test_functions_run_one_thread_at_a_time() -> None:
    inside = [0]
    most = [0]

    class Stateful(fad.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.count = 0
            return x * 1.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            inside[0] -= 1
            return g * 2.0

    x = leaf(1.0)
    y = Stateful.apply(x)
    in_threads(lambda k: [y.backward(retain_graph=True) for _ in range(10)], 4)
    assert most == [1] and float(x.grad) == 80.0


def test_a_node_may_run_itself() -> None:
    """The lock is one that its own thread may take again."""
    x = leaf(1.0)

    class Again(autograd.Node):
        depth = 0

        def apply(self, g: Any) -> Any:
            Again.depth += 1
            if Again.depth < 3:
                autograd.backward(edge, retain_graph=True)
            return g

    node = Again([autograd.create_gradient_edge(x)])
    node.add_input_metadata(x)
    edge = autograd.GradientEdge(node, 0)
    autograd.backward(edge, retain_graph=True)
    assert float(x.grad) == 3.0


def test_modes_belong_to_threads() -> None:
    x = leaf(1.0)

    def work(k: int) -> Any:
        assert fad.is_grad_enabled(), "a new thread records"
        mode = [fad.no_grad, fad.enable_grad, fad.inference_mode][k % 3]
        for _ in range(50):
            with mode():
                y = x * 2.0
                assert y.requires_grad == (k % 3 == 1)
                assert y.is_inference() == (k % 3 == 2)
                assert autograd.is_inference_mode_enabled() == (k % 3 == 2)
        assert fad.is_grad_enabled()
        return True

    with fad.no_grad():
        assert all(in_threads(work))
        assert not fad.is_grad_enabled()


def test_saved_hooks_belong_to_threads() -> None:
    counts = [0] * THREADS

    def work(k: int) -> Any:
        def pack(t: Any) -> Any:
            counts[k] += 1
            return t

        x = leaf(2.0)
        with autograd.saved_tensors_hooks(pack, lambda t: t):
            for _ in range(20):
                fnp.exp(x)

    in_threads(work)
    assert counts == [20] * THREADS


def test_levels_in_threads() -> None:
    """A thread started inside of a transform computes at its level, and differentiates on its own."""

    def f(x: Any) -> Any:
        parts = in_threads(lambda k: fnp.sin(x) * float(k) + fad.grad(fnp.cos)(x) * 0.0, 4)
        return sum(parts)

    assert float(fad.grad(f)(0.5)) == pytest.approx(6.0 * np.cos(0.5), rel=1e-5)
    out = in_threads(lambda k: fad.vmap(fad.grad(lambda x: x * x * float(k)))(jnp.arange(3.0)), 4)
    assert [o.tolist() for o in out] == [[0.0, 2.0 * k, 4.0 * k] for k in range(4)]


def test_numbers_of_nodes_and_threads() -> None:
    x = leaf(1.0)

    def work(k: int) -> Any:
        nodes = [(x * 2.0).grad_fn for _ in range(50)]
        numbers = [n.sequence_nr for n in nodes]
        assert numbers == sorted(set(numbers))
        assert len({n.thread_id for n in nodes}) == 1
        return nodes[0].thread_id

    assert len(set(in_threads(work, 4))) == 4


def test_reentrant_passes_in_threads() -> None:
    x = leaf(1.0)

    def work(k: int) -> None:
        def nest(left: int) -> None:
            with fad.enable_grad():
                y = x * 2.0
            y.register_hook(lambda g: nest(left - 1) if left else None)
            y.backward()

        nest(30)

    in_threads(work, 4)
    assert float(x.grad) == 4 * 31 * 2.0


def test_anomaly_mode_in_threads() -> None:
    def work(k: int) -> str:
        x = leaf(float(k % 2))
        y = fnp.sqrt(x) * 0.0
        try:
            y.backward()
        except GradientError as error:
            return str(error)[:60]
        return ""

    with autograd.detect_anomaly():
        found = in_threads(work, 4)
    assert [bool(t) for t in found] == [True, False, True, False]
    assert not anomaly.mode.on


def test_a_graph_made_in_one_thread_runs_in_another() -> None:
    x = leaf(2.0)
    y = x * x
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.backward).result()
    assert_close(x.grad, np.float32(4.0))
