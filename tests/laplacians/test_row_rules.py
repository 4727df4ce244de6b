"""What operations do to rows of Jacobians: the Jacobian and the Laplacian are JAX's, and zeros stay out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.laplacians.level import LaplacianLevel

draw = np.random.default_rng(0)
X = draw.normal(size=(4, 3)).astype("f4")  # particles
W, V = draw.normal(size=(3, 5)).astype("f4"), draw.normal(size=(5, 4)).astype("f4")
P = draw.normal(size=(4, 4)).astype("f4")
EYE = np.eye(4, dtype=bool)


def features(xp: Any, x: Any) -> Any:
    """Of each particle by itself: three rows."""
    return xp.tanh(x @ W) * xp.sum(x * x, -1, keepdims=True)


def distances(xp: Any, x: Any) -> Any:
    """Of each pair: six rows."""
    d = x[:, None] - x[None]
    return xp.sqrt(xp.sum(d * d, -1) + 0.5)


# A function, and how many rows its Jacobian has.
SPARSE: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "coordinates": (lambda xp, x: x, 1),
    "a function of each": (lambda xp, x: xp.sin(x) * xp.exp(x), 1),
    "the first layer": (lambda xp, x: x @ W, 3),
    "layers": (lambda xp, x: xp.tanh(features(xp, x) @ V), 3),
    "a layer, transposed": (lambda xp, x: W.T @ xp.swapaxes(x, 0, 1), 3),
    "a batch of layers": (
        lambda xp, x: xp.einsum("pf,kfg->kpg", features(xp, x), np.stack([V, V])),
        3,
    ),
    "norms": (lambda xp, x: xp.linalg.norm(features(xp, x), axis=-1), 3),
    "sum, product": (lambda xp, x: xp.sum(features(xp, x), 1) + xp.prod(features(xp, x), 1), 3),
    "cumulation": (lambda xp, x: xp.cumsum(features(xp, x), 1) * xp.cumprod(features(xp, x), 1), 3),
    "softmax": (
        lambda xp, x: (lambda e: e / xp.sum(e, -1, keepdims=True))(xp.exp(features(xp, x))),
        3,
    ),
    "transposes": (lambda xp, x: xp.transpose(features(xp, x)[None], (2, 0, 1)), 3),
    "reshapes": (lambda xp, x: xp.reshape(xp.reshape(features(xp, x), (2, 10)) ** 2, (4, 5)), 3),
    "slices": (lambda xp, x: features(xp, x)[::-1, 1::2] * features(xp, x)[:, :2], 6),
    "concatenation": (
        lambda xp, x: xp.concatenate([features(xp, x), x, np.ones((4, 1), "f4")], 1),
        3,
    ),
    "stack": (lambda xp, x: xp.stack([features(xp, x), xp.broadcast_to(x[:, :1], (4, 5))]), 3),
    "repetition": (lambda xp, x: xp.tile(x, (2, 1)) + 1.0, 1),
    "more particles": (
        lambda xp, x: xp.concatenate([features(xp, x), features(xp, x)[::-1] ** 2]),
        3,
    ),
    "where": (lambda xp, x: xp.where(x > 0.0, x * x, xp.sin(x)), 1),
    "products with other axes": (lambda xp, x: features(xp, x)[:, None] * features(xp, x)[None], 6),
    "an outer product": (
        lambda xp, x: xp.einsum("i,j->ij", xp.sum(x * x, 1), xp.sum(x, 1) ** 2),
        6,
    ),
    "attention": (lambda xp, x: features(xp, x) @ xp.swapaxes(features(xp, x), 0, 1), 6),
    "distances": (lambda xp, x: distances(xp, x), 6),
    "a batched product": (lambda xp, x: xp.einsum("pi,pj->pij", features(xp, x), x), 3),
    "complex": (lambda xp, x: xp.exp(1j * features(xp, x)) * x[:, :1], 3),
}
DENSE: dict[str, Callable[[Any, Any], Any]] = {
    "a sum over particles": lambda xp, x: xp.sum(features(xp, x), 0),
    "a sum of all": lambda xp, x: xp.sum(features(xp, x)),
    "a sum over pairs": lambda xp, x: xp.sum(distances(xp, x) ** 3),
    "sums over one of a pair": lambda xp, x: xp.sum(xp.exp(-distances(xp, x)), 1),
    "sums of a grid": lambda xp, x: xp.sum(xp.where(EYE[:3, :3], x[:3] ** 2, x[1:] ** 3), (0, 1)),
    "a mean field": lambda xp, x: features(xp, x) * xp.mean(features(xp, x), 0),
    "particles mixed by a matrix": lambda xp, x: P @ features(xp, x),
    "mixed by a matrix of them": lambda xp, x: xp.exp(-distances(xp, x)) @ features(xp, x),
    "of both": lambda xp, x: xp.tanh(P @ features(xp, x)) * features(xp, x),
    "a contraction of all": lambda xp, x: xp.einsum("pf,pf->", features(xp, x), features(xp, x)),
    "one of two contracted axes": lambda xp, x: xp.einsum(
        "pf,qpf->q", features(xp, x), np.ones((2, 4, 5))
    ),
    "determinant by rows": lambda xp, x: xp.linalg.slogdet(features(xp, x)[:, :4] + 3.0 * EYE)[1],
    "determinant by columns": lambda xp, x: xp.linalg.slogdet((features(xp, x) @ V + 3.0 * EYE).T)[
        1
    ],
    "determinant of both": lambda xp, x: xp.linalg.slogdet(distances(xp, x) + 3.0 * EYE)[1],
    "batched determinants": lambda xp, x: xp.linalg.slogdet(
        xp.einsum("pf,kfg->kpg", features(xp, x), np.stack([V, V[::-1]])) + 3.0 * EYE
    )[1],
    "determinants of a batch of pairs": lambda xp, x: xp.linalg.slogdet(
        xp.reshape(features(xp, x)[:, :4], (4, 2, 2)) + 2.0 * np.eye(2, dtype="f4")
    )[1],
    "complex determinant": lambda xp, x: xp.linalg.slogdet(
        xp.exp(1j * features(xp, x)[:, :4]) + 3.0 * EYE
    )[0],
    "maximum": lambda xp, x: xp.max(features(xp, x), 1) * xp.min(features(xp, x), 0)[0],
    "sort": lambda xp, x: xp.sort(features(xp, x), 0),
    "a number and elements": lambda xp, x: features(xp, x) * xp.sum(x * x) / (1.0 + x[0, 0] ** 2),
    "some particles": lambda xp, x: xp.concatenate([features(xp, x)[:2], features(xp, x)[3:] ** 2]),
    "positions": lambda xp, x: x[np.array([0, 2, 2])] * features(xp, x)[1, :3],
    "padding": lambda xp, x: xp.pad(features(xp, x), 1) ** 2,
    "convolution": lambda xp, x: xp.convolve(x[:, 0], x[:, 1] ** 2),
    "inverse": lambda xp, x: xp.linalg.inv(features(xp, x)[:, :4] + 3.0 * EYE),
    "nothing": lambda xp, x: xp.sum(x[:0] ** 2) + xp.sum(features(xp, x)[:, :0], 1) @ x,
    "distances without the diagonal": lambda xp, x: xp.sum(
        xp.where(EYE, 0.0, xp.sqrt(xp.sum((x[:, None] - x[None]) ** 2, -1)))
    ),
}


def jacobian_and_laplacian(f: Callable[[Any, Any], Any], x: Any) -> tuple[Any, Any, Any]:
    """Those that the level carries, and which coordinate each row stands for."""
    with LaplacianLevel() as level:
        value, *parts = level.unpack(f(fnp, level.coordinates(x, 0)))
        bend = parts[1] if len(parts) > 1 else fnp.zeros_like(value)
        return parts[0].array, bend, parts[0].pattern.at


def check(f: Callable[[Any, Any], Any], compiled: bool = False) -> int:
    """Compare with JAX; how many rows there are."""
    patterns = []

    def ours(x: Any) -> Any:
        rows, bend, at = jacobian_and_laplacian(f, x)
        patterns.append(at)
        return rows, bend

    rows, bend = map(np.asarray, (fad.jit(ours) if compiled else ours)(jnp.asarray(X)))
    found = [np.sum(np.where(patterns[-1] == k, rows, 0), 0) for k in range(X.size)]
    jacobian, laplacian = by_jax(f)
    assert_close(np.stack(found), jacobian, rtol=2e-4, atol=2e-4)
    assert_close(bend, laplacian, rtol=2e-3, atol=2e-3)
    return len(rows)


@functools.cache
def by_jax(f: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The Jacobian at `X`, its rows first, and the Laplacian; one program: faster."""

    def both(v: Any) -> tuple[Any, Any]:
        jacobian = jax.jacfwd(lambda v: f(jnp, v.reshape(X.shape)))
        rows = jnp.moveaxis(jacobian(v), -1, 0)
        return rows, jnp.trace(jnp.moveaxis(jax.jacfwd(jacobian)(v), (-2, -1), (0, 1)))

    return jax.jit(both)(X.ravel())


@pytest.mark.parametrize("name", SPARSE)
def test_zeros_stay_out(name: str) -> None:
    f, rows = SPARSE[name]
    assert check(f, compiled=True) == rows
    assert (
        check(f) >= rows
    )  # a slice at a position that is known when the program is made keeps apart more


@pytest.mark.parametrize("name", DENSE)
def test_what_mixes_is_dense(name: str) -> None:
    check(DENSE[name])


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda xp, h, x: xp.tanh(h) * 1.5,
    lambda xp, h, x: h * h[:, :1],
    lambda xp, h, x: h + xp.sum(h, 1, keepdims=True),
    lambda xp, h, x: h - 0.5 * xp.mean(h, 0),
    lambda xp, h, x: h @ P,
    lambda xp, h, x: P @ h,
    lambda xp, h, x: xp.swapaxes(h, 0, 1),
    lambda xp, h, x: xp.reshape(h, (2, 8)).reshape(4, 4)[::-1],
    lambda xp, h, x: xp.concatenate([h[:, 2:], x[:, :2]], 1),
    lambda xp, h, x: xp.concatenate([h[1:], h[:1] * x[0, 0]]),
    lambda xp, h, x: xp.where(h > 0.0, h, xp.sin(x[:, :1])),
    lambda xp, h, x: xp.sin(h) @ xp.swapaxes(h, 0, 1) / 4.0,
    lambda xp, h, x: xp.sum(h[:, :, None] * h[:, None], 0) / 4.0,
    lambda xp, h, x: xp.einsum("ij,ik->jk", h, x @ W[:, :4]) / 4.0,
    lambda xp, h, x: xp.max(h, 1)[:, None] - xp.cumsum(h, 0) / 4.0,
    lambda xp, h, x: xp.sqrt(xp.sum((h[:, None] - x[None] @ W[:, :4]) ** 2, -1) + 0.5),
    lambda xp, h, x: h * xp.linalg.slogdet(xp.tanh(h) + 3.0 * EYE)[1],
    lambda xp, h, x: h / (1.0 + xp.sum(h * h)),
    lambda xp, h, x: xp.stack([h[0], h[2], x[:, 0], x[:, 1]]),
]


@pytest.mark.sweep("seed", range(200), sample=8)
def test_random_programs(seed: int) -> None:
    steps = np.random.default_rng(seed).integers(len(STEPS), size=5)

    def f(xp: Any, x: Any) -> Any:
        h = x @ W[:, :4]
        for k in steps:
            h = STEPS[k](xp, h, x)
        return h

    check(f)


def test_under_jit_vmap_and_grad() -> None:
    def f(xp: Any, w: Any, x: Any) -> Any:
        h = xp.tanh(x @ w)
        pairs = xp.sum(xp.exp(-distances(xp, x)))
        return pairs * xp.linalg.slogdet(h[:, :4] + 3.0 * EYE)[1]

    def trace(w: Any, x: Any) -> Any:
        flat = lambda v: f(jnp, w, v.reshape(x.shape))
        return jnp.trace(jax.hessian(flat)(x.ravel()))

    batch = jnp.stack([X, 0.5 * X])
    laplacians = fad.vmap(fad.laplacian(lambda w, x: f(fnp, w, x), 1), (None, 0))
    traces = jax.vmap(trace, (None, 0))
    assert_close(fad.jit(laplacians)(W, batch), jax.jit(traces)(W, batch), rtol=1e-3)
    ours = fad.jit(fad.grad(lambda w: fnp.sum(laplacians(w, batch))))(W)
    theirs = jax.jit(jax.grad(lambda w: jnp.sum(traces(w, batch))))(W)
    assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
