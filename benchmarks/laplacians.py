"""Laplacians in one forward pass, against the trace of a dense Hessian and `folx`; Gauss-Newton products."""

from __future__ import annotations

import importlib.util
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
ORBITALS, SEVERAL = _weights(32, 16), _weights(4, 32, 16)


def layers(xp: Any, weights: Any, x: Any) -> Any:
    """Layers with tanh between them."""
    for w in weights:
        x = xp.tanh(xp.matmul(x, w))
    return xp.sum(x)


def attention(xp: Any, weights: Any, x: Any) -> Any:
    """Two layers of attention between 16 particles."""
    embed, query, key, value = weights
    h = xp.tanh(xp.matmul(x.reshape(16, 3), embed))
    for _ in range(2):
        scores = xp.matmul(xp.matmul(h, query), xp.matmul(h, key).T) / 5.0
        scores = xp.exp(scores - xp.max(scores, -1, keepdims=True))
        shares = scores / xp.sum(scores, -1, keepdims=True)
        h = h + xp.tanh(xp.matmul(shares, xp.matmul(h, value)))
    return xp.sum(h)


def determinants(xp: Any, weights: Any, x: Any) -> Any:
    """The logarithm of a Slater determinant of 16 particles, or of a batch of them."""
    embed, inner, orbitals = weights
    h = xp.tanh(xp.matmul(xp.tanh(xp.matmul(x.reshape(16, 3), embed)), inner))
    return xp.sum(xp.linalg.slogdet(xp.matmul(h, orbitals))[1])


def pairs(xp: Any, weights: Any, x: Any) -> Any:
    """A factor of all pairs of particles beside the determinant."""
    r = x.reshape(16, 3)
    d = r[:, None] - r[None]
    d = xp.sqrt(xp.sum(d * d, -1) + 0.1)
    return xp.sum(d / (1.0 + d)) + determinants(xp, weights, x)


Function = Callable[[Any, Any, Any], Any]


def laplacians(f: Function, weights: Any, size: int, folx: bool) -> Callable[[Library], Any]:
    """Those of a batch of points, compiled."""
    points = np.random.default_rng(8).normal(size=(POINTS, size)).astype(np.float32)

    def build(library: Library) -> Callable[[], Any]:
        w, x = jax.tree.map(jnp.asarray, (weights, points))

        def dense(w: Any, x: Any) -> Any:
            return jnp.trace(jax.hessian(lambda x: f(jnp, w, x))(x))

        def by_folx(w: Any, x: Any) -> Any:
            module: Any = importlib.import_module("folx")
            return module.forward_laplacian(lambda x: f(jnp, w, x), 6)(x).laplacian

        if library.name == "fad":
            ours = fad.laplacian(lambda w, x: f(fad.numpy, w, x), 1)
            compiled: Any = fad.jit(fad.vmap(ours, (None, 0)))
        else:
            compiled = jax.jit(jax.vmap(by_folx if folx else dense, (None, 0)))
        return lambda: compiled(w, x)

    return build


def gauss_newton(library: Library) -> Callable[[], Any]:
    """The product of the Gauss-Newton matrix of a network's loss and a vector, compiled."""
    weights = [jnp.asarray(w) for w in LAYERS]
    x = jnp.asarray(np.random.default_rng(9).normal(size=(256, 64)).astype(np.float32))

    def model(xp: Any, w: Any) -> Any:
        return xp.tanh(xp.tanh(xp.tanh(x @ w[0]) @ w[1]) @ w[2])

    def loss(xp: Any, y: Any) -> Any:
        return xp.mean(xp.log(1.0 + y * y))

    def by_hand(w: Any, v: Any) -> Any:
        y, tangent = jax.jvp(lambda w: model(jnp, w), (w,), (v,))
        _, pullback = jax.vjp(lambda w: model(jnp, w), w)
        return pullback(jax.jvp(jax.grad(lambda y: loss(jnp, y)), (y,), (tangent,))[1])[0]

    def ours(w: Any, v: Any) -> Any:
        return fad.ggnvp(lambda w: model(fad.numpy, w), lambda y: loss(fad.numpy, y), w, v)

    compiled = fad.jit(ours) if library.name == "fad" else jax.jit(by_hand)
    return lambda: compiled(weights, weights)


def scenarios() -> Iterator[Scenario]:
    both = ("fad", "jax")
    of_determinant = [EMBED, QUERY, ORBITALS]
    for work, f, weights, size, dense, folx in (
        ("MLP, 64 inputs, 3 layers of 128", layers, LAYERS, 64, 0.6, 1.1),
        ("attention of 16 particles", attention, [EMBED, QUERY, KEY, VALUE], 48, 0.4, 1.0),
        ("Slater determinant of 16 particles", determinants, of_determinant, 48, 0.2, 1.1),
        ("4 Slater determinants", determinants, [EMBED, QUERY, SEVERAL], 48, 0.2, 1.1),
        ("determinant, and all pairs", pairs, of_determinant, 48, 0.2, 0.7),
    ):
        what = f"Laplacians of {POINTS} points, against dense Hessians"
        yield Scenario(work, what, laplacians(f, weights, size, False), both, {"jax": dense})
        if importlib.util.find_spec("folx") is not None:
            what = f"Laplacians of {POINTS} points, against folx"
            yield Scenario(work, what, laplacians(f, weights, size, True), both, {"jax": folx})
    what = "Gauss-Newton product, written out in JAX"
    yield Scenario("MLP, batch of 256", what, gauss_newton, both, {"jax": 1.2})


SCENARIOS: list[Scenario] = [*scenarios()]
