"""The solver of examples/wave_inversion.py, in place in fad and with ``.at[]`` in plain JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
from benchmarks.libraries import Library
from examples.wave_inversion import (
    ABSORB,
    BACKGROUND,
    RIM,
    SEGMENT,
    SIZE,
    SPACING,
    TIME_STEP,
    misfit,
    sources_and_pulses,
    true_velocity,
)

__all__ = ["compiling", "running"]


def advance(u: Any, change: Any, stiffness: Any, push: Any) -> tuple[Any, Any]:
    """The example's time step without writes."""
    top, bottom = u[1] - ABSORB * u[0], u[-2] - ABSORB * u[-1]
    left, right = u[:, 1] - ABSORB * u[:, 0], u[:, -2] - ABSORB * u[:, -1]
    neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    change = change + stiffness * (neighbours - 4.0 * u[1:-1, 1:-1])
    u = u.at[1:-1, 1:-1].add(change)
    u = u + push
    u = u.at[0].set(top + ABSORB * u[1])
    u = u.at[-1].set(bottom + ABSORB * u[-2])
    u = u.at[:, 0].set(left + ABSORB * u[:, 1])
    u = u.at[:, -1].set(right + ABSORB * u[:, -2])
    return u, change


def record(velocity: Any, source: Any, pulses: Any) -> Any:
    stiffness = jnp.square(velocity[1:-1, 1:-1] * (TIME_STEP / SPACING))

    def step(state: Any, pulse: Any) -> tuple[Any, Any]:
        u, change = advance(*state, stiffness, pulse * source)
        side, near, far = slice(8, -8, 2), 8, -9
        heard = [u[side, near], u[side, far], u[near, side], u[far, side]]
        return (u, change), jnp.concatenate(heard)

    @jax.checkpoint
    def segment(state: Any, pulses: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, state, pulses)

    state = jnp.zeros((SIZE, SIZE)), jnp.zeros((SIZE - 2, SIZE - 2))
    return jax.lax.scan(segment, state, pulses)[1].reshape(pulses.size, -1)


def plain_misfit(inside: Any, heard: Any, sources: Any, pulses: Any) -> Any:
    velocity = jnp.full((SIZE, SIZE), BACKGROUND).at[RIM:-RIM, RIM:-RIM].set(inside)
    found = jax.vmap(lambda source: record(velocity, source, pulses))(sources)
    return jnp.sum((found - heard) ** 2) / jnp.sum(heard**2)


def gradient(library: Library) -> Callable[..., Any]:
    """The misfit and its gradient, compiled; a new function each time."""
    if library.name == "jax":
        return jax.jit(jax.value_and_grad(lambda *args: plain_misfit(*args)))
    return fad.jit(fad.value_and_grad(lambda *args: misfit(*args)))


def inputs(steps: int) -> tuple[Any, ...]:
    sources, pulses = sources_and_pulses(steps)
    heard = np.random.default_rng(0).normal(size=(len(sources), pulses.size, 112))
    arrays = (true_velocity(), heard.astype(np.float32), sources, pulses)
    return tuple(map(jnp.asarray, arrays))


def running(library: Library) -> Callable[[], Any]:
    """One evaluation over 400 time steps."""
    compiled, args = gradient(library), inputs(400)
    return lambda: compiled(*args)


def compiling(library: Library) -> Callable[[], Any]:
    """Tracing and compiling, and a run of few steps; another number of them in each call."""
    counts = itertools.count(1)

    def call() -> Any:
        args = inputs(SEGMENT * next(counts))
        return gradient(library)(*args)

    return call
