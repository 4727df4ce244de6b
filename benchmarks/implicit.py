"""Derivatives of an equilibrium, by its equation.

In the place of JAX stands ``lax.custom_root``, with the same steps and the matrix of the linear system; or
differentiation through the steps of ``lax.scan``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.lax as flax
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS"]

SIZE, STEPS = 32, 200
BOTH = ("fad", "jax")
_draw = np.random.default_rng(7)
MATRIX = jnp.asarray(_draw.normal(size=(SIZE, SIZE)) / (2 * SIZE**0.5), jnp.float32)
SHIFT = jnp.asarray(_draw.normal(size=SIZE), jnp.float32)
START = jnp.zeros(SIZE)

Solve = Callable[[Any, Any, Any], Any]


def step(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.tanh(xp.matmul(w, x) + b)


@fad.implicit.custom_fixed_point(lambda x, w, b: step(fad.numpy, x, w, b))
def ours(x: Any, w: Any, b: Any) -> Any:
    return flax.fori_loop(0, STEPS, lambda k, x: step(fad.numpy, x, w, b), x)


def with_custom_root(x: Any, w: Any, b: Any) -> Any:
    def solve(f: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda k, x: step(jnp, x, w, b), x)

    def tangent_solve(g: Any, y: Any) -> Any:
        return jnp.linalg.solve(jax.jacobian(g)(y), y)

    return jax.lax.custom_root(lambda x: step(jnp, x, w, b) - x, x, solve, tangent_solve)


def through_the_steps(x: Any, w: Any, b: Any) -> Any:
    return jax.lax.scan(lambda x, _: (step(jnp, x, w, b), None), x, None, length=STEPS)[0]


def loss(library: Library, theirs: Solve) -> Callable[..., Any]:
    solve = ours if library.name == "fad" else theirs
    return lambda w, b: library.numpy.sum(solve(START, w, b) ** 2)


def compiled(library: Library, transform: str, theirs: Solve) -> Any:
    jit = fad.jit if library.name == "fad" else jax.jit
    f = loss(library, theirs)
    if transform == "hessian":
        return jit(lambda w, b: library.hessian(lambda b: f(w, b))(b))
    return jit(library.grad(f, (0, 1)))


def running(transform: str, theirs: Solve) -> Callable[[Library], Callable[[], Any]]:
    def build(library: Library) -> Callable[[], Any]:
        call = compiled(library, transform, theirs)
        return lambda: call(MATRIX, SHIFT)

    return build


def eager(library: Library) -> Callable[[], Any]:
    gradient = library.grad(loss(library, with_custom_root), (0, 1))
    return lambda: gradient(MATRIX, SHIFT)


def made_anew(library: Library) -> Callable[[], Any]:
    """A residual that closes over another number at each call."""
    numbers = itertools.count(1)

    def ours(b: Any) -> Any:
        k = float(next(numbers)) / 1e6
        solve = lambda x: flax.fori_loop(0, 20, lambda _, x: b / (1.0 + k + x), x)
        return fad.implicit.custom_root(lambda x: x * (1.0 + k + x) - b)(solve)(START)

    def theirs(b: Any) -> Any:
        k = float(next(numbers)) / 1e6
        solve = lambda f, x: jax.lax.fori_loop(0, 20, lambda _, x: b / (1.0 + k + x), x)
        tangent = lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y)
        return jax.lax.custom_root(lambda x: x * (1.0 + k + x) - b, START, solve, tangent)

    f = ours if library.name == "fad" else theirs
    b = jnp.abs(SHIFT) / 10
    return lambda: library.grad(lambda b: library.numpy.sum(f(b)))(b)


def memory(library: Library) -> Callable[[], float]:
    """What XLA sets aside for the gradient, besides arguments and results, in kB."""

    def call() -> float:
        lowered = compiled(library, "grad", through_the_steps).lower(MATRIX, SHIFT)
        found = lowered.compile().memory_analysis().temp_size_in_bytes
        return float(found) / 1e3

    return call


def scenarios() -> Iterator[Scenario]:
    work = f"equilibrium of {SIZE} units, lax.custom_root in JAX"
    for what in ("grad", "hessian"):
        yield Scenario(work, what, running(what, with_custom_root), BOTH, {"jax": 1.5})
    yield Scenario(work, "grad, eager", eager, BOTH, {"jax": 0.2})
    yield Scenario(work, "grad of functions made anew, eager", made_anew, BOTH, {"jax": 0.2})
    work = f"equilibrium of {SIZE} units, {STEPS} steps in JAX"
    for what in ("grad", "hessian"):
        yield Scenario(work, what, running(what, through_the_steps), BOTH, {"jax": 1.0})
    yield Scenario(work, "memory of grad", memory, BOTH, {"jax": 0.2}, "kB")


SCENARIOS: list[Scenario] = [*scenarios()]
