"""A tool by someone else: examples/interval_arithmetic.py encloses values and derivatives."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

import fad
import fad.numpy as fnp
from fad import extend

FILE = ROOT / "examples" / "interval_arithmetic.py"
bounds: Any = runpy.run_path(str(FILE))["bounds"]


class Sine(fad.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g * fnp.cos(ctx.saved_tensors[0])


def loop(x: Any) -> Any:
    for k in range(1, 5):
        x = x + fnp.sin(k * x) / k
    return x


def compiled_loop(x: Any) -> Any:
    return fad.lax.fori_loop(0, 4, lambda k, y: y * 0.5 + fnp.tanh(x), x)


def matrix(x: Any) -> Any:
    w = jnp.array([[0.3, -1.2], [0.7, 0.4]])
    return fnp.sum(fnp.tanh(w @ fnp.stack([x, x * x])))


# Each with what it is in NumPy, and its derivative.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "polynomial": (lambda x: x**3 - 2.0 * x**2 + x, lambda x: x**3 - 2 * x**2 + x),
    "wave": (lambda x: fnp.sin(3.0 * x) * fnp.cos(x), lambda x: np.sin(3 * x) * np.cos(x)),
    "bell": (lambda x: fnp.exp(-(x**2)), lambda x: np.exp(-(x**2))),
    "quotient": (lambda x: x / (1.5 + fnp.sin(x)), lambda x: x / (1.5 + np.sin(x))),
    "kink": (lambda x: fnp.abs(x) + fnp.maximum(x, 0.5), lambda x: abs(x) + np.maximum(x, 0.5)),
    "choice": (lambda x: fnp.where(x > 0.2, x * x, -x), lambda x: np.where(x > 0.2, x * x, -x)),
    "function": (lambda x: Sine.apply(x) * x, lambda x: np.sin(x) * x),
    "loop": (loop, lambda x: loop_in_numpy(x)),
    "matrix": (matrix, lambda x: matrix_in_numpy(x)),
    "compiled loop": (compiled_loop, lambda x: compiled_loop_in_numpy(x)),
}
SMOOTH = [name for name in CASES if name not in ("kink", "choice")]


def loop_in_numpy(x: Any) -> Any:
    for k in range(1, 5):
        x = x + np.sin(k * x) / k
    return x


def matrix_in_numpy(x: Any) -> Any:
    w = np.float64(np.float32([[0.3, -1.2], [0.7, 0.4]]))
    return np.tanh(w[0, 0] * x + w[0, 1] * x * x) + np.tanh(w[1, 0] * x + w[1, 1] * x * x)


def compiled_loop_in_numpy(x: Any) -> Any:
    y = x
    for _ in range(4):
        y = y * 0.5 + np.tanh(x)
    return y


ends = st.tuples(
    st.floats(-3, 3, width=32), st.floats(0, 2, width=32), st.lists(st.floats(0, 1), max_size=5)
)


def points_in(low: float, high: float, weights: list[float]) -> Any:
    inside = [low + (high - low) * w for w in weights]
    return np.clip(np.array([low, high, *inside]), low, high)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12)
@given(box=ends)
def test_values_are_enclosed(name: str, box: Any) -> None:
    f, exact = CASES[name]
    low, width, weights = box
    high = float(np.float32(low + width))
    least, most = bounds(f)(low, high)
    values = exact(points_in(low, high, weights))
    assert float(least) <= values.min() and values.max() <= float(most)


@pytest.mark.parametrize("name", SMOOTH)
@settings(max_examples=12)
@given(box=ends)
def test_derivatives_are_enclosed(name: str, box: Any) -> None:
    f, exact = CASES[name]
    low, width, weights = box
    high = float(np.float32(low + width))
    least, most = bounds(fad.grad(f))(low, high)
    x, h = points_in(low, high, weights), 1e-5
    slopes = (exact(x + h) - exact(x - h)) / (2 * h)
    assert float(least) <= slopes.min() + 1e-6 and slopes.max() - 1e-6 <= float(most)


def test_it_composes_with_vmap_and_grad() -> None:
    f = CASES["wave"][0]
    lows, highs = jnp.array([0.0, 0.5, -1.0]), jnp.array([0.1, 0.9, -0.5])
    least, most = fad.vmap(bounds(f))(lows, highs)
    apart = [bounds(f)(a, b) for a, b in zip(lows, highs, strict=True)]
    np.testing.assert_allclose(np.stack([least, most], 1), np.array(apart), rtol=1e-6)
    inner = bounds(fad.vmap(f))(lows, highs)
    np.testing.assert_allclose(inner, (least, most), rtol=1e-6)
    width = lambda r: fnp.subtract(*bounds(lambda x: x * x)(1.0 - r, 1.0 + r)[::-1])
    np.testing.assert_allclose(fad.grad(width)(0.25), 4.0, rtol=1e-5)


def test_what_has_many_values_is_no_number() -> None:
    with pytest.raises(fad.errors.HostValueError, match="many values"):
        bounds(lambda x: x if x > 0 else -x)(-1.0, 1.0)
    assert extend.running_levels() == ()


def test_it_is_one_short_file_of_public_names() -> None:
    source = FILE.read_text()
    assert len(source.splitlines()) <= 250
    for node in ast.walk(ast.parse(source)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
        assert not any(
            n.startswith("fad") and n not in ("fad", "fad.numpy", "fad.extend") for n in names
        )
