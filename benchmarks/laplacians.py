"""Laplacians: in one forward pass, and as the trace of a dense Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS"]

POINTS = 32
_draw = np.random.default_rng(7)


def _weights(*shape: int) -> np.ndarray:
    return _draw.normal(size=shape, scale=shape[-2] ** -0.5).astype(np.float32)


LAYERS = [_weights(64, 128), _weights(128, 128), _weights(128, 128)]
EMBED, QUERY, KEY, VALUE = _weights(3, 32), _weights(32, 32), _weights(32, 32), _weights(32, 32)
ORBITALS = _weights(32, 16)


def layers(xp: Any, x: Any) -> Any:
    """Three layers of 128."""
    for w in LAYERS:
        x = xp.tanh(xp.matmul(x, w))
    return xp.sum(x)


def attention(xp: Any, x: Any) -> Any:
    """Two layers of attention between 16 particles."""
    h = xp.tanh(xp.matmul(x.reshape(16, 3), EMBED))
    for _ in range(2):
        scores = xp.matmul(xp.matmul(h, QUERY), xp.matmul(h, KEY).T) / 5.0
        scores = xp.exp(scores - xp.max(scores, -1, keepdims=True))
        weights = scores / xp.sum(scores, -1, keepdims=True)
        h = h + xp.tanh(xp.matmul(weights, xp.matmul(h, VALUE)))
    return xp.sum(h)


def determinant(xp: Any, x: Any) -> Any:
    """The logarithm of a Slater determinant of 16 particles."""
    h = xp.tanh(xp.matmul(xp.tanh(xp.matmul(x.reshape(16, 3), EMBED)), QUERY))
    return xp.linalg.slogdet(xp.matmul(h, ORBITALS))[1]


def laplacians(f: Callable[[Any, Any], Any], size: int) -> Callable[[Library], Callable[[], Any]]:
    """Those of a batch of points, compiled."""
    points = np.random.default_rng(8).normal(size=(POINTS, size)).astype(np.float32)

    def build(library: Library) -> Callable[[], Any]:
        x = jnp.asarray(points)
        if library.name == "fad":
            ours = fad.jit(fad.vmap(fad.laplacian(lambda x: f(fad.numpy, x))))
            return lambda: ours(x)
        dense = jax.jit(jax.vmap(lambda x: jnp.trace(jax.hessian(lambda x: f(jnp, x))(x))))
        return lambda: dense(x)

    return build


def scenarios() -> Iterator[Scenario]:
    both = ("fad", "jax")
    for work, f, size, bound in (
        ("MLP, 64 inputs, 3 layers of 128", layers, 64, 0.8),
        ("attention of 16 particles", attention, 48, 0.8),
        ("Slater determinant of 16 particles", determinant, 48, 0.8),
    ):
        what = f"Laplacians of {POINTS} points, against dense Hessians"
        yield Scenario(work, what, laplacians(f, size), both, {"jax": bound})


SCENARIOS: list[Scenario] = [*scenarios()]
