"""Nothing is kept but results: arrays and Tensors are freed at once, without the collector."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest
from helpers import leaf
from replays import TIMES, TRANSFORMS, compiled_all, cube, hits, off, same, without_collector

import fad
import fad.numpy as fnp
from fad.core.level import flush, state
from fad.errors import GradientError
from fad.replay.inputs import LARGE

X = jnp.array([0.5, -1.0, 1.5])
pytestmark = pytest.mark.usefixtures("cleared_caches")


def assert_freed(kept):
    """Refuse references to what is still there, and forget them."""
    assert kept and all(r() is None for r in kept)
    kept.clear()


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_of_a_transform(name, wait):
    kept, transform = [], TRANSFORMS[name]

    def f(x, fails=False):
        y = fnp.sin(x)
        kept.append(weakref.ref(y))
        z = y * x
        del y
        if fails:
            assert 1 // 0
        return fnp.sum(z * z)

    with without_collector(), fad.autograd.compiled(wait=wait):
        for _ in range(TIMES):
            transform(f)(X)
            assert_freed(kept)
            x = X * 2.0
            kept.append(weakref.ref(x))
            transform(f)(x)
            del x
            compiled_all()
            assert_freed(kept)
        with pytest.raises(ZeroDivisionError):
            transform(lambda x: f(x, True))(X)
        flush()
        assert_freed(kept)


def test_results_of_transforms_and_steps_that_are_given_up():
    w = leaf(X)

    def given_up():
        fnp.sum(fnp.sin(w * 2) ** 2)

    for transform in (fad.grad(cube), TRANSFORMS["vmap"](cube), lambda x: given_up()):
        for _ in range(2 * TIMES):
            transform(X)
        cube(w).backward()
        w.grad = None
        compiled_all()
        with without_collector():
            flush()
            before = len(jax.live_arrays())
            results = [r for r in [transform(X) for _ in range(TIMES)] if r is not None]
            flush()
            assert len(jax.live_arrays()) == before + len(results)
            del results
            assert len(jax.live_arrays()) == before


@pytest.mark.parametrize("size", [3, 1 << 15])
def test_what_is_being_compiled_keeps_no_arrays(size):
    """The compiler takes long for this step: its arrays are freed all the same."""
    w = leaf(jnp.full(size, 0.5))
    with without_collector():
        for _ in range(16):
            x = jnp.full(size, 0.3)
            kept = [weakref.ref(x)]
            y = w * x
            for _ in range(40):
                y = fnp.tanh(y) * fnp.sin(y) + y
            kept.append(weakref.ref(y))
            y.sum().backward()
            w.grad = None
            del x, y
            flush()
            assert_freed(kept)


@pytest.mark.parametrize(("n", "count", "most"), [(1 << 14, 2000, 600), (LARGE, 100, 40)])
def test_operations_that_are_given_up_keep_few_arrays(n, count, most):
    w, ones = leaf(jnp.ones(n)), jnp.ones(n)
    for _ in range(TIMES):
        fad.autograd.grad((w * ones).sum(), w)
    seen = []
    for k in range(count):
        x = jnp.full(n, float(k))
        seen.append(weakref.ref(x))
        w * x
    del x
    assert sum(r() is not None for r in seen) <= most
    flush()
    compiled_all()
    assert_freed(seen)


@pytest.mark.parametrize("reads", ["", "first", "second", "first and second"])
def test_losses_that_are_kept(reads):
    """They keep neither batches nor what was computed before them, whether they were read or not."""
    w, losses = leaf(X), []
    with without_collector(), fad.autograd.compiled(wait=True):
        for k in range(TIMES):
            batch = X * (1.0 + k)
            y = fnp.tanh(w * batch)
            kept = [weakref.ref(batch), weakref.ref(y)]
            loss = y.sum() * 2.0
            del y
            if "first" in reads:
                loss.item()
                assert kept[1]() is None
            loss = loss * loss
            if "second" in reads:
                loss.item()
            if k != 2:
                loss.backward()
                losses.append((k, loss))
            del batch, loss
            flush()
            assert_freed(kept)
            w.grad = None
    assert hits() > 0
    for k, loss in losses:
        same(loss.detach(), (jnp.tanh(X * X * (1.0 + k)).sum() * 2.0) ** 2)
        assert loss.grad_fn.next_functions[0][0].name() == "MultiplyBackward"
        with pytest.raises(GradientError, match="freed|second time"):
            loss.backward()
    with without_collector():
        kept = [weakref.ref(w)]
        losses.clear()
        del w, loss
        assert_freed(kept)


def test_a_loop_that_reads_and_has_no_backward_pass_does_not_grow():
    w = leaf(X)

    def evaluate(times):
        for _ in range(times):
            h = fnp.tanh(w * 2.0)
            (h * h).sum().item()

    with fad.autograd.compiled(wait=True):
        evaluate(10)
        trace = state.trace
        gc.collect()
        before = len(gc.get_objects())
        evaluate(200)
        gc.collect()
        assert len(gc.get_objects()) < before + 50
        assert len(trace.ended) <= 3


@pytest.mark.parametrize("f", [lambda y: y * 2.0 + 1.0, lambda y: y * y], ids=["linear", "saved"])
def test_what_a_node_has_saved_is_written_to(f):
    """Through it, a user refers again to what only a program did."""
    for run in [off] + [lambda: fad.autograd.compiled(wait=True)] * TIMES:
        w = leaf(X)
        with run():
            y = fnp.exp(w * 0.5)
            others = y * 3.0
            assert fnp.sum(others) < 99.0  # a segment ends
            z = f(y)
            del y
            assert fnp.sum(z) < 99.0
            others.grad_fn.next_functions[0][0]._saved_result.add_(1.0)
            with pytest.raises(GradientError, match="inplace"):
                fnp.sum(z).backward()
