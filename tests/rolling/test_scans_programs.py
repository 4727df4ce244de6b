"""Loops as users write them: each is rolled, with its gradient, and gives what it gives unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

STEPS = 24


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape) * 0.3


def runge_kutta(x: Any) -> Any:
    """A list of step sizes, four stages."""
    for h in (0.02 * (1 + 0.5 * np.cos(np.arange(STEPS)))).tolist():
        k1 = fnp.sin(x) - x
        k2 = fnp.sin(x + h / 2 * k1) - x
        k3 = fnp.sin(x + h / 2 * k2) - x
        k4 = fnp.sin(x + h * k3) - x
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return (x * x).sum()


def kalman(q: Any) -> Any:
    """Matrices that are constants, or made in each step; a sum of likelihoods."""
    f, h, ys = jnp.eye(6) * 0.9, jnp.ones((1, 6)), drawn(STEPS, 1)
    m, p, total = fnp.zeros(6), fnp.eye(6), 0.0
    for t in range(STEPS):
        m, p = f @ m, f @ p @ f.T + q[:, None] * jnp.eye(6)
        s = h @ p @ h.T + 0.1
        k, r = p @ h.T / s, ys[t] - h @ m
        m, p = m + k @ r, p - k @ h @ p
        total = total + fnp.log(s).sum() + (r * r / s[0]).sum()
    return total


def sinkhorn(x: Any) -> Any:
    """What two halves of a step compute is read back half a step apart."""
    cost = x[:, None] * x[None, :]
    f = g = fnp.zeros(6)
    for _ in range(STEPS):
        f = -0.5 * fad.nn.logsumexp((g[None, :] - cost) / 0.5, axis=1)
        g = -0.5 * fad.nn.logsumexp((f[:, None] - cost) / 0.5, axis=0)
    return (fnp.exp((f[:, None] + g[None, :] - cost) / 0.5) * cost).sum()


def red_and_black(x: Any) -> Any:
    """In place, at every other place."""
    u = fnp.zeros(8)
    for _ in range(STEPS):
        u[1:-1:2] = 0.5 * (u[:-2:2] + u[2::2] - x[::2])
        u[2:-1:2] = 0.5 * (u[1:-2:2] + u[3::2] - x[1::2])
    return (u * u).sum()


def life(x: Any) -> Any:
    """Views of a padded board, which is written to through one of them."""
    board = fnp.zeros((8, 3))
    inner = board[1:-1, 1:-1]
    inner += x[:, None]
    for _ in range(STEPS):
        around = board[:-2, 1:-1] + board[2:, 1:-1] + board[1:-1, 1:-1]
        inner.copy_(fad.nn.sigmoid(3 * inner * (1 - (around - 1) ** 2)))
    return (board * board).sum()


def outer_and_inner(x: Any) -> Any:
    """Inner loops of two lengths."""
    for t in range(STEPS):
        y = x
        for _ in range(3 if t % 2 else 5):
            y = y - 0.1 * fnp.sin(y) * x
        x = x + 0.01 * (y - x)
    return (x * x).sum()


def learned_rates(x: Any) -> Any:
    """A gradient, of a part of the data, in each step."""
    data = drawn(STEPS, 4, 6)
    w, m = fnp.ones(6) * 0.1, fnp.zeros(6)
    for t in range(STEPS):
        g = fad.grad(lambda w, t=t: (fnp.tanh(data[t] @ w) ** 2).mean())(w)
        m = 0.9 * m + g
        w = w - fnp.exp(x) * m
    return (w * w).sum()


def keys_in_turn(x: Any) -> Any:
    key = jax.random.key(0)
    for _ in range(STEPS):
        key, first, second = jax.random.split(key, 3)
        y = x + 0.3 * fad.random.normal(first, (6,))
        u = fad.random.uniform(second, (6,))
        x = fnp.where(fnp.log(u) < (x * x - y * y) / 2, y, x * 0.99)
    return (x * x).sum()


def two_schedules(x: Any) -> Any:
    """The numbers change in the middle, and what is logged is stacked."""
    logged = []
    for t in range(2 * STEPS):
        x = x - (0.1 if t < STEPS else 0.01) * (fnp.sin(x) + 0.1 * x**3)
        logged.append((x * x).sum())
    return fnp.stack(logged).sum() + x.sum()


def rows(x: Any) -> Any:
    """Written into an array, of which all is read."""
    out = fnp.zeros((STEPS, 6))
    for t in range(STEPS):
        x = x + 0.1 * fnp.cos(x) * x
        out[t] = x
    return (out * out).mean()


def implicit(x: Any) -> Any:
    """A solve in each step, of a matrix that is the same in all."""
    u, a = fnp.zeros(6), np.eye(6) * 2 - np.eye(6, k=1) - np.eye(6, k=-1)
    for k in range(STEPS * 3):
        u = fnp.linalg.solve(jnp.eye(6) + 0.1 * x[:, None] ** 2 * a, u + 0.1 * np.sin(k + a[0]))
    return (u * u).sum()


PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    runge_kutta,
    kalman,
    sinkhorn,
    red_and_black,
    life,
    outer_and_inner,
    learned_rates,
    keys_in_turn,
    two_schedules,
    rows,
    implicit,
)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_of_loops(f: Callable[[Any], Any]) -> None:
    with jax.enable_x64(True):
        x = jnp.asarray(drawn(6)) + 0.7
        gradient = fad.jit(fad.grad(f))
        np.testing.assert_allclose(gradient(x), fad.grad(f)(x), rtol=1e-6, atol=1e-9)
        loops = gradient.explain(x).splitlines()[1:]
        repeats = [int(line.split()[0]) for line in loops]
        assert min(repeats) >= STEPS // 2 - 2, loops
        assert gradient.lower(x).as_text().count("stablehlo.while") >= 2  # forwards and backwards


def test_a_loop_over_layers_stacks_their_parameters() -> None:
    def loss(layers: Any) -> Any:
        h = jnp.ones((2, 4))
        for w, b in layers:
            h = h + 0.1 * fnp.tanh(h @ w + b)
        return (h * h).sum()

    layers = [(jnp.asarray(drawn(4, 4), jnp.float32) * k, jnp.ones(4)) for k in range(40)]
    closed = fad.jit(fad.grad(loss)).trace(layers).jaxpr
    assert str(closed).count("scan[") == 2 and str(closed).count(" tanh ") < 5
    ours, single = fad.jit(fad.grad(loss))(layers), fad.grad(loss)(layers)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
