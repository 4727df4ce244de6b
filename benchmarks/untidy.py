"""Programs as people write them: slices in place, parts of arrays, many small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS", "heat"]

SIZE, STEPS, RATE = 41, 30, 0.1  # of the heat equation
_draw = np.random.default_rng(3)
FIELD = _draw.normal(size=(SIZE, SIZE)).astype(np.float32)
INNER = _draw.normal(size=(SIZE - 2, SIZE - 2)).astype(np.float32)


# Single operations that nothing tracks; in JAX the jitted function of the same effect


def make(library: Library, x: np.ndarray) -> Any:
    """A new Tensor or array of a library, which may be written to where the library can."""
    if library.name == "jax":
        return jnp.asarray(x)
    return torch.tensor(x) if library.name == "torch" else fad.tensor(x)


def array(x: Any) -> Any:
    return x.array if isinstance(x, fad.Tensor) else x


def read(library: Library) -> Callable[[], Any]:
    u, jitted = make(library, FIELD), jax.jit(lambda u: u[1:-1, 1:-1])
    if library.name == "jax":
        return lambda: jitted(u)
    return lambda: u[1:-1, 1:-1]


def written(library: Library) -> Callable[[], Any]:
    u, v = make(library, FIELD), make(library, INNER)
    jitted = jax.jit(lambda u, v: u.at[1:-1, 1:-1].set(v))
    if library.name == "jax":
        return lambda: jitted(u, v)

    def call() -> Any:
        u[1:-1, 1:-1] = v
        return u

    return call


def shifted(library: Library) -> Callable[[], Any]:
    """One is added and taken away again: the values stay."""
    u, jitted = make(library, FIELD), jax.jit(lambda u, c: u + c)
    if library.name == "jax":
        return lambda: jitted(jitted(u, 1.0), -1.0)
    return lambda: u.add_(1.0).add_(-1.0)


def doubled(library: Library) -> Callable[[], Any]:
    u, jitted = make(library, FIELD), jax.jit(lambda u: u + u)
    return (lambda: jitted(u)) if library.name == "jax" else lambda: u + u


def iterated(library: Library) -> Callable[[], Any]:
    u = make(library, np.ones(1000, np.float32))
    return lambda: list(u)[-1]


def joined(count: int) -> Callable[[Library], Callable[[], Any]]:
    """Stack so many parts and sum the squares, with the gradient of each part."""

    def build(library: Library) -> Callable[[], Any]:
        parts = [library.asarray(np.full(3, k / count, np.float32)) for k in range(count)]
        xp = library.numpy
        gradient = library.grad(lambda parts: xp.sum(xp.stack(parts) ** 2))
        return lambda: gradient(parts)[-1]

    return build


# The heat equation, in place


def heat(u: Any) -> Any:
    """Steps of the heat equation on ``u``, in place; nothing flows through the rim."""
    for _ in range(STEPS):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] += RATE * (around - 4.0 * u[1:-1, 1:-1])
        u[0], u[-1] = u[1], u[-2]
        u[:, 0], u[:, -1] = u[:, 1], u[:, -2]
    return u


def heat_at(u: Any) -> Any:
    """The same for JAX's arrays."""
    for _ in range(STEPS):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u = u.at[1:-1, 1:-1].add(RATE * (around - 4.0 * u[1:-1, 1:-1]))
        u = u.at[0].set(u[1]).at[-1].set(u[-2])
        u = u.at[:, 0].set(u[:, 1]).at[:, -1].set(u[:, -2])
    return u


def untracked(library: Library) -> Callable[[], Any]:
    return lambda: np.asarray(array(heat(make(library, FIELD))))


def compiled(library: Library) -> Callable[[], Any]:
    jitted = jax.jit(heat_at) if library.name == "jax" else fad.jit(lambda x: heat(x.clone()))
    u = make(library, FIELD)
    return lambda: array(jitted(u))


def energy(u: Any) -> Any:
    return (heat(u * 1.0) ** 2).sum()


def gradient(library: Library) -> Callable[[], Any]:
    x, of = library.asarray(FIELD), library.grad(energy)
    return lambda: np.asarray(of(x))


def on_the_tape(library: Library) -> Callable[[], Any]:
    x = make(library, FIELD).requires_grad_()

    def call() -> Any:
        x.grad = None
        energy(x).backward()
        return np.asarray(array(x.grad))

    return call


def scenarios() -> Iterator[Scenario]:
    every, torchs, jaxs = ("fad", "torch", "jax"), ("fad", "torch"), ("fad", "jax")
    field = f"Tensor of {SIZE} × {SIZE}, untracked"
    yield Scenario(field, "u[1:-1, 1:-1]", read, every, {"jax": 2.0})
    yield Scenario(field, "u[1:-1, 1:-1] = v", written, every, {"jax": 2.5})
    yield Scenario(field, "u.add_(1), u.add_(-1)", shifted, every, {"jax": 2.5})
    yield Scenario(field, "u + u", doubled, every, {"jax": 1.4})
    stencil = f"heat equation {SIZE} × {SIZE} in place, {STEPS} steps"
    yield Scenario(stencil, "untracked", untracked, torchs, {"torch": 4.0})
    yield Scenario(stencil, "fad.jit; .at[] in JAX", compiled, jaxs, {"jax": 1.05})
    # Node by node: a write in place is not replayed.
    yield Scenario(stencil, "grad", gradient, torchs, {"torch": 3.0})
    yield Scenario(stencil, "tape", on_the_tape, torchs, {"torch": 5.5})
    yield Scenario("1,000 elements", "iterate", iterated, every, {"jax": 1.0})
    for count in (10, 1000):
        yield Scenario(f"stack of {count:,} parts", "grad", joined(count), every)


SCENARIOS: list[Scenario] = [*scenarios()]
