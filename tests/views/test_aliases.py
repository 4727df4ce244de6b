"""Aliases and detached Tensors: all follow a write, and share a version."""

from __future__ import annotations

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad

X = jnp.arange(1.0, 7.0).reshape(2, 3)
V = jnp.array([0.5, -1.0, 2.0])


def test_all_aliases_see_a_write_and_share_a_version():
    x = fad.tensor(X)
    row, flat = x[1], x.ravel()
    part, detached = row[1:], x.detach()
    deep = detached.T[0]
    aliases = [x, row, flat, part, detached, deep]
    for k, t in enumerate(aliases, 1):
        t += 1
        values = [a.array for a in aliases]
        assert_close(values[0], values[4])
        assert_close(values[2], values[0].ravel())
        assert_close(values[1], values[0][1])
        assert_close(values[3], values[0][1, 1:])
        assert_close(values[5], values[0][:, 0])
        assert {a.version for a in aliases} == {k}


def test_a_detached_tensor_shares_the_value_and_not_the_history():
    w = leaf(V)
    y = w * 2.0
    d = y.detach()
    assert not d.is_view and d.base is None and d.is_leaf and not d.requires_grad
    d.mul_(3.0)
    assert_close((y.detach(), d), (6 * V, 6 * V))
    assert y.grad_fn.name() == "MultiplyBackward"
    y.sum().backward()
    assert_close(w.grad, jnp.full(3, 2.0))
    y[0] = w[1]
    assert_close(d, (6 * V).at[0].set(V[1]))
    assert not d.requires_grad
    v = y[1:].detach()
    v.zero_()
    assert_close(y.detach(), jnp.zeros(3).at[0].set(V[1]))
    w.detach().zero_()
    assert_close(w.detach(), jnp.zeros(3))
    assert w.is_leaf and w.requires_grad


@pytest.mark.parametrize("written", ["origin", "detached"])
@pytest.mark.parametrize("before", ["nothing", "origin", "detached"])
def test_a_tensor_and_a_detached_one_stay_aliases_in_inner_levels(before, written):
    c = jnp.array([1.0, 2.0, 3.0])

    def f(b):
        y = fad.asarray(c) * 1.0
        tensors = {"origin": y, "detached": y.detach()}
        if before != "nothing":
            tensors[before].mul_(c)
        tensors[written].mul_(b * 0.5)
        return (y * 3.0 * b).sum() + tensors["detached"].sum()

    def plain(b):
        y = c * (1.0 if before == "nothing" else c) * b * 0.5
        passing = y if written == "origin" else jax.lax.stop_gradient(y)
        detached = jax.lax.stop_gradient(y) if written == "origin" else y
        return (passing * 3.0 * b).sum() + detached.sum()

    x = jnp.array([2.0, 4.0, 6.0])
    batch = jnp.stack([x, 2 * x])
    value, gradient = (jax.jit(jax.vmap(p))(batch) for p in (plain, jax.grad(plain)))
    transforms = {
        fad.checkpoint: value,
        fad.grad: gradient,
        lambda f: fad.grad(fad.checkpoint(f)): gradient,
    }
    for transform, expected in transforms.items():
        for wrap in (lambda f: f, fad.jit, lambda f: jax.jit(fad.to_jax(f))):
            assert_close(wrap(transform(f))(x), expected[0])
        assert_close(fad.vmap(fad.jit(transform(f)))(batch), expected)
    assert_close(jax.jit(jax.grad(fad.to_jax(f)))(x), gradient[0])


def test_a_detached_tensor_does_not_keep_the_graph():
    w = leaf(V)
    y = (w * 2.0).sum()
    node = weakref.ref(y.grad_fn)
    d = y.detach()
    del y
    gc.collect()
    assert node() is None
    assert_close(d, 2 * V.sum())


def test_threads_read_a_stale_view():
    x = leaf(X) * 1.0
    v = x.T[1:]
    x.mul_(3.0)
    seen, start = [], threading.Barrier(4)

    def read():
        start.wait()
        seen.append((v.array, v.grad_fn))

    threads = [threading.Thread(target=read) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for value, node in seen:
        assert_close(value, 3 * X.T[1:])
        assert node is seen[0][1]
