"""Loops whose number of steps is known when they run: their gradients, and what these keep.

In the place of JAX, which has no reverse mode for them, stands ``lax.scan`` with as many steps, whose
backward pass keeps every carry; or the checkpointed loop of Equinox, where that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.flatten_util  # equinox uses it without importing it
import jax.numpy as jnp
import numpy as np

import fad
import fad.lax as flax
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS"]

SIZE, STEPS = 64, 1000
BOTH = ("fad", "jax")
_draw = np.random.default_rng(6)
MATRIX = jnp.asarray(_draw.normal(size=(SIZE, SIZE)) / SIZE**0.5, jnp.float32)
START = jnp.asarray(_draw.normal(size=SIZE), jnp.float32)
COUNT = jnp.int32(STEPS)  # an argument: nothing knows it when the program is compiled

Loop = Callable[[Any, Any, Any], Any]


def step(xp: Any, w: Any, x: Any) -> Any:
    return xp.tanh(xp.matmul(w, x)) * 0.9 + x * 0.1


def counted(while_loop: Callable[..., Any], xp: Any, **options: Any) -> Loop:
    """As many steps as an argument says, counted in the carry."""

    def loop(w: Any, x: Any, n: Any) -> Any:
        count = lambda c: c[0] < n
        return while_loop(count, lambda c: (c[0] + 1, step(xp, w, c[1])), (0, x), **options)[1]

    return loop


def fori(w: Any, x: Any, n: Any) -> Any:
    return flax.fori_loop(0, n, lambda i, x: step(fad.numpy, w, x), x)


def scan(w: Any, x: Any, n: Any) -> Any:
    return jax.lax.scan(lambda x, _: (step(jnp, w, x), None), x, None, length=STEPS)[0]


def equinox(**options: Any) -> Loop:
    while_loop = importlib.import_module("equinox.internal").while_loop
    return counted(while_loop, jnp, kind="checkpointed", **options)


def gradient(library: Library, ours: Loop, theirs: Loop) -> Any:
    """The compiled gradient in the matrix and the start."""
    jit, loop = (fad.jit, ours) if library.name == "fad" else (jax.jit, theirs)
    return jit(library.grad(lambda w, x, n: library.numpy.sum(loop(w, x, n) ** 2), (0, 1)))


def running(ours: Loop, theirs: Loop) -> Callable[[Library], Callable[[], Any]]:
    def build(library: Library) -> Callable[[], Any]:
        compiled = gradient(library, ours, theirs)
        return lambda: compiled(MATRIX, START, COUNT)

    return build


def memory(ours: Loop, theirs: Loop) -> Callable[[Library], Callable[[], float]]:
    """What XLA sets aside for the program, besides arguments and results, in kB."""

    def build(library: Library) -> Callable[[], float]:
        def call() -> float:
            lowered = gradient(library, ours, theirs).lower(MATRIX, START, COUNT)
            found = lowered.compile().memory_analysis().temp_size_in_bytes
            return float(found) / 1e3

        return call

    return build


def scenarios() -> Iterator[Scenario]:
    bounded = counted(flax.while_loop, fad.numpy, max_steps=STEPS)
    free = counted(flax.while_loop, fad.numpy)
    ways = {"while_loop(max_steps=)": bounded, "while_loop": free, "fori_loop": fori}
    work = f"loop of {STEPS:,} steps, lax.scan in JAX"
    for what, ours in ways.items():
        yield Scenario(work, f"grad, {what}", running(ours, scan), BOTH, {"jax": 3.0})
    for what, ours in ways.items():
        # The forward pass and the way back have √n slots each, where scan keeps n carries.
        bound = {"jax": round(2 / STEPS**0.5, 3)}
        yield Scenario(work, f"memory of grad, {what}", memory(ours, scan), BOTH, bound, "kB")
    if importlib.util.find_spec("equinox") is None:
        return
    work = f"loop of {STEPS:,} steps, equinox in JAX"
    theirs = {
        "while_loop(max_steps=)": equinox(max_steps=STEPS),
        "while_loop": equinox(max_steps=None, checkpoints=64),
    }
    for what, other in theirs.items():
        yield Scenario(work, f"grad, {what}", running(ways[what], other), BOTH, {"jax": 1.0})
    for what, other in theirs.items():
        kept = memory(ways[what], other)
        yield Scenario(work, f"memory of grad, {what}", kept, BOTH, {"jax": 1.1}, "kB")


SCENARIOS: list[Scenario] = [*scenarios()]
