"""A NumPy program runs unchanged with `fad.numpy`: called plainly, and under every transform."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_programs import DIFFERENTIABLE, PROGRAMS, WRITES_TO_SAVED

import fad
import fad.numpy as fnp
from fad.core import trees
from fad.errors import GradientError

Program = Callable[..., Any]
CLOSE: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-4}


def as_tuple(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def weighted(np: Any, out: Any) -> Any:
    """A number that depends on every finite entry of a result."""
    total = 0.0
    for k, x in enumerate(as_tuple(out)):
        x = np.where(np.isfinite(x), x, 0.0)
        total = total + (x * np.cos(1.0 + k + np.arange(x.size).reshape(x.shape))).sum()
    return total


def loss(program: Program) -> Callable[[Any], Any]:
    return lambda p: weighted(fnp, program(fnp, p))


def slope(program: Program, at: float) -> float:
    """The derivative, by differences in NumPy's double precision."""
    step = 1e-5
    above, below = (weighted(np, program(np, at + d)) for d in (step, -step))
    return (above - below) / (2 * step)


def allowed_writes(program: Program) -> Any:
    """What a program that writes to saved values needs around its derivative."""
    if program in WRITES_TO_SAVED:
        return fad.autograd.allow_mutation_on_saved_tensors()
    return contextlib.nullcontext()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_numpy_gives(program: Program) -> None:
    expected, out = as_tuple(program(np)), as_tuple(program(fnp))
    assert len(out) == len(expected)
    for a, b in zip(out, expected, strict=True):
        assert isinstance(a, fad.Tensor)
        assert a.shape == b.shape
        assert a.dtype.kind == b.dtype.kind
        np.testing.assert_allclose(np.asarray(a), b, **CLOSE)


@pytest.mark.sweep(
    "program, at", DIFFERENTIABLE, sample=9, ids=lambda p: getattr(p, "__name__", "")
)
def test_gradient(program: Program, at: float) -> None:
    with allowed_writes(program):
        gradient = fad.grad(loss(program))(at)
    np.testing.assert_allclose(gradient, slope(program, at), **CLOSE)


@pytest.mark.parametrize("program", WRITES_TO_SAVED, ids=lambda p: p.__name__)
def test_a_write_to_a_saved_value_is_an_error_by_default(program: Program) -> None:
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        fad.grad(loss(program))(dict(DIFFERENTIABLE)[program])


@pytest.mark.sweep(
    "program, at", DIFFERENTIABLE, sample=8, ids=lambda p: getattr(p, "__name__", "")
)
def test_lanes_of_vmap(program: Program, at: float) -> None:
    points = jnp.array([at, at * 1.01, at * 0.99])
    outs = as_tuple(fad.vmap(lambda p: program(fnp, p))(points))
    for lane, p in enumerate(np.asarray(points, np.float64)):
        for a, b in zip(outs, as_tuple(program(np, p)), strict=True):
            np.testing.assert_allclose(a[lane], b, **CLOSE)


@pytest.mark.sweep(
    "program, at", DIFFERENTIABLE, sample=5, ids=lambda p: getattr(p, "__name__", "")
)
def test_gradients_of_lanes(program: Program, at: float) -> None:
    points = jnp.array([at, at * 1.01])
    expected = [slope(program, float(p)) for p in points]
    with allowed_writes(program):
        gradients = fad.vmap(fad.grad(loss(program)))(points)
    np.testing.assert_allclose(gradients, expected, **CLOSE)


@pytest.mark.sweep(
    "program, at", DIFFERENTIABLE, sample=3, ids=lambda p: getattr(p, "__name__", "")
)
def test_tangent_jit_and_tape(program: Program, at: float) -> None:
    f, x = loss(program), jnp.float32(at)
    value, expected = weighted(np, program(np, at)), slope(program, at)
    leaf = fad.tensor(at, requires_grad=True)
    with allowed_writes(program):
        out, tangent = fad.jvp(f, (x,), (jnp.ones(()),))
        compiled = fad.jit(fad.value_and_grad(f))(x)
        f(leaf).backward()
        native = jax.value_and_grad(fad.to_jax(f))(x)
    np.testing.assert_allclose([out, tangent], [value, expected], **CLOSE)
    np.testing.assert_allclose(compiled, [value, expected], **CLOSE)
    np.testing.assert_allclose(leaf.grad, expected, **CLOSE)
    np.testing.assert_allclose(native, [value, expected], **CLOSE)


def test_results_are_independent_of_what_they_were_made_of() -> None:
    """As in NumPy: `array` and `zeros_like` copy, `asarray` does not."""
    for numpy in (np, fnp):
        a = numpy.arange(3.0)
        b, c, d = numpy.array(a), numpy.asarray(a), numpy.zeros_like(a)
        a[0] = 5.0
        assert (float(b[0]), float(c[0]), float(d[0])) == (0.0, 5.0, 0.0)
        assert trees.flatten([numpy.asarray(x).tolist() for x in (a, c)])[0] == [5.0, 1.0, 2.0] * 2
