"""The rule of each operation: no entry is missed, and those of moved elements are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

BAND = np.triu(np.tril(np.ones((6, 6)), 1), -1)
KERNEL = np.array([1.0, -2.0, 1.0])


def in_place(x: Any) -> Any:
    y = x * 1.0
    y[1:-1] += x[2:] * x[:-2]
    y[::2] *= 2.0
    y[0] = 0.0
    return y


def view(x: Any) -> Any:
    y = x.reshape(2, 3).clone()
    column = y[:, 1]
    column *= x[:2]
    return y.T


def steps(x: Any) -> Any:
    return fad.lax.fori_loop(0, 2, lambda i, y: y + fnp.roll(y, 1), x)


def by_counter(x: Any) -> Any:
    return fad.lax.fori_loop(0, 5, lambda i, y: y.at[i + 1].add(x[i]), x)


def until(x: Any) -> Any:
    return fad.lax.while_loop(lambda y: y.sum() < 10.0, lambda y: y + fnp.roll(y, 1) ** 2, x * x)


def accumulated(x: Any) -> Any:
    return fad.lax.scan(lambda c, v: (c * v, c + v), x[0], x)[1]


def convolution(x: Any, groups: int, channels: int, batch_groups: int = 1) -> Any:
    """With strides, both dilations and the dimensions in another order."""
    kernel = np.arange(1.0, 1.0 + 8 * channels, dtype=np.float32).reshape(2, 4, channels)
    return fad.from_jax(
        lambda x: jax.lax.conv_general_dilated(
            x,
            kernel,
            (2,),
            [(1, 2)],
            (2,),
            (3,),
            ("NCH", "HOI", "HNC"),
            feature_group_count=groups,
            batch_group_count=batch_groups,
        )
    )(x)


# A function, and whether its pattern is that of the derivative at a generic point.
EXACT: dict[str, Callable[..., Any]] = {
    "in_place": in_place,
    "view": view,
    "elementwise": lambda x: fnp.sin(x) * x / (1 + x**2),
    "roll": lambda x: fnp.roll(x, 2) - x,
    "flip": lambda x: x[::-1] + 0 * x.sum().astype(int),
    "pad": lambda x: fnp.pad(x, (1, 2)),
    "edge": lambda x: fnp.pad(x, 1, mode="edge"),
    "stack": lambda x: fnp.stack([x[:3], x[3:] ** 2]),
    "indices": lambda x: x[np.array([3, 3, 0])] ** 2,
    "add at": lambda x: x.at[np.array([1, 1, 4])].add(x[:3]),
    "matrix": lambda x: x.reshape(2, 3) @ np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 0.0]]),
    "band": lambda x: BAND.astype(np.float32) @ (x * x),
    "einsum": lambda x: fnp.einsum("ij,kj->ik", x.reshape(2, 3), x.reshape(2, 3)),
    "batched": lambda x: fnp.einsum("bij,bj->bi", x[:4].reshape(1, 2, 2), x[4:].reshape(1, 2)),
    "sum": lambda x: x.reshape(2, 3).sum(1),
    "mean": lambda x: x - x.mean(),
    "vmap": lambda x: fad.vmap(lambda a: a[0] * a[1])(x.reshape(3, 2)),
    "checkpoint": lambda x: fad.checkpoint(lambda x: fnp.diff(x) ** 2)(x),
    "jit": lambda x: fad.jit(lambda x: fnp.diff(x) ** 2)(x),
    "scan": accumulated,
    "steps": steps,
    "counter": by_counter,
    "constant": lambda x: fnp.ones(3, dtype=x.dtype) + fad.stop_gradient(x)[:3],
    "scalar": lambda x: x[2] ** 2,
    "mask": lambda x: fnp.where(np.arange(6) < 3, x, fnp.roll(x, 1)),
    "jax": fad.from_jax(lambda x: jax.nn.relu(x[1:]) * x[:-1]),
    "convolve": lambda x: fnp.convolve(x, KERNEL.astype(np.float32), mode="same"),
    "both of a convolution": lambda x: fnp.convolve(x[:4], x[4:]),
    "convolution": lambda x: convolution(fnp.stack([x, x[::-1] ** 2]).reshape(2, 2, 3), 1, 2),
    "groups": lambda x: convolution(x.reshape(1, 2, 3), 2, 1),
    "groups of a batch": lambda x: convolution(x.reshape(2, 1, 3), 1, 1, batch_groups=2),
}
BOUNDED: dict[str, Callable[..., Any]] = {
    "where": lambda x: fnp.where(x > 0, x, fnp.roll(x, 1) ** 2),
    "maximum": lambda x: fnp.maximum(x[1:], x[:-1]),
    "max": lambda x: x.reshape(2, 3).max(1),
    "sort": lambda x: fnp.sort(x),
    "cumsum": lambda x: fnp.cumsum(x),
    "cumprod": lambda x: fnp.cumprod(x),
    "solve": lambda x: fnp.linalg.solve(fnp.eye(3) * 2 + fnp.outer(x[:3], x[:3]), x[3:]),
    "argsort": lambda x: x[fnp.argsort(x)[:2]],
    "dynamic": lambda x: fad.lax.dynamic_slice(x, [fnp.argmax(x)], [2]),
    "write at": lambda x: x.at[fnp.argmin(x)].set(x[0] * x[1]),
    "cond": lambda x: fad.lax.cond(x[0] > 0, lambda x: x[:3], lambda x: x[3:], x),
    "while": until,
    "fft": lambda x: fnp.fft.rfft(x).real,
    "window": lambda x: fad.lax.reduce_window(x, 0.0, fad.lax.add, (2,), (1,), "VALID"),
}


def points() -> list[Any]:
    draws = np.random.default_rng(3)
    return [jnp.asarray(draws.normal(size=6).astype(np.float32)) for _ in range(12)]


def pattern_and_derivatives(f: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """The pattern, and where the Jacobian differs from 0 at one of the points; the values are compared."""
    jacobian = fad.sparse_jacobian(f)
    found = np.asarray(fad.sparsity(f)(points()[0]).todense() != 0)
    dense = fad.jit(fad.jacfwd(f))
    used = np.zeros_like(found)
    for k, x in enumerate(points()):
        expected = np.asarray(dense(x))
        if k < 2:
            got = jacobian(x).todense()
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        used |= expected != 0
    return found, used


@pytest.mark.sweep("name", list(EXACT), sample=5)
def test_pattern_is_that_of_the_derivative(name: str) -> None:
    found, used = pattern_and_derivatives(EXACT[name])
    np.testing.assert_array_equal(found, used)


@pytest.mark.sweep("name", list(BOUNDED), sample=5)
def test_pattern_holds_whatever_the_values(name: str) -> None:
    found, used = pattern_and_derivatives(BOUNDED[name])
    assert np.all(found | ~used)


def test_both_branches_of_a_choice_count() -> None:
    found = fad.sparsity(lambda x: fnp.where(x > 0, x, fnp.roll(x, 1)))(jnp.ones(4)).todense()
    np.testing.assert_array_equal(found, np.eye(4) + np.roll(np.eye(4), 1, 0))
