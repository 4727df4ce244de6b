"""Steps of training: a compiled step beside the eager one, in its results and in all that it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from helpers import assert_close

import fad
import fad.numpy as fnp

# Makes a step: the function, its arguments by the number of the call, and the Tensors that are its state.
Make = Callable[[], tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], Any]]


def draw(*shape: int, seed: int = 0, scale: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed + sum(shape))
    return (scale * rng.normal(size=shape)).astype(np.float32)


def leaf(*shape: int, seed: int = 0) -> fad.Tensor:
    return fad.tensor(draw(*shape, seed=seed), requires_grad=True)


def batch(k: int, *shape: int) -> fad.Tensor:
    return fad.tensor(draw(*shape, seed=100 + k, scale=1.0))


def xy(k: int) -> tuple[fad.Tensor, fad.Tensor]:
    return batch(k, 8, 4), batch(k + 50, 8, 4)


def net(layers: int = 3, n: int = 4) -> list[fad.Tensor]:
    return [leaf(n, n, seed=k) for k in range(layers)]


def forward(weights: list[fad.Tensor], x: fad.Tensor) -> fad.Tensor:
    for w in weights[:-1]:
        x = fnp.tanh(x @ w)
    return x @ weights[-1]


def described(t: Any) -> Any:
    """All that a step may change of a Tensor."""
    if not isinstance(t, fad.Tensor):
        return t
    grad = None if not t.is_leaf or t.grad is None else np.asarray(t.grad.detach().numpy(copy=True))
    value = t.detach().numpy(copy=True)
    return {"value": value, "grad": grad, "requires_grad": t.requires_grad, "version": t.version}


def run(
    make: Make, compiled: bool, calls: int = 5, quick: bool = True
) -> tuple[list[Any], list[Any]]:
    """Results of calls of a step, and its state after each; ``quick``: settled calls take the fast path."""
    step, arguments, state = make()
    call: Any = fad.jit(step) if compiled else step
    results, states = [], []
    for k in range(calls):
        out = call(*arguments(k))
        results.append(jax.tree.map(described, out, is_leaf=lambda x: isinstance(x, fad.Tensor)))
        found = state() if callable(state) else state
        states.append([described(t) for t in found])
    if compiled:
        entries = sum(map(len, call._entries.values()))
        assert (len(call._quick) == entries) is quick and entries <= 3
    return results, states


def assert_alike(make: Make, calls: int = 5, quick: bool = True) -> None:
    """Five calls of a compiled step give what eager ones give, and leave the same state."""
    expected, got = run(make, False, calls), run(make, True, calls, quick)
    assert jax.tree.structure(expected) == jax.tree.structure(got)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        if isinstance(b, np.ndarray):
            assert_close(a, b, rtol=2e-3, atol=1e-5)
        else:
            assert a == b
