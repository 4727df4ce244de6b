"""What a hook costs in compiled code: a call of Python at each execution."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import SMALL_NET, Scenario
from benchmarks.traced import instructions_of

__all__ = ["SCENARIOS"]

BOTH = ("fad", "jax")
LAYER = 3  # whose output has the hook
CALLS = 40


@jax.custom_vjp
def looked_at(x: Any) -> Any:
    """JAX's way to see a gradient and replace it: an ordered callback in a rule."""
    return x


def _pull(_: None, g: Any) -> Any:
    return (io_callback(unchanged, g, g, ordered=True),)


def unchanged(g: Any) -> Any:
    return g


looked_at.defvjp(lambda x: (x, None), _pull)


def net(library: Library, hook: bool) -> Callable[..., Any]:
    """The small net, in which a hook sees the gradient of one layer."""
    xp = library.numpy

    def f(x: Any, *weights: Any) -> Any:
        for k, weight in enumerate(weights):
            x = xp.tanh(xp.matmul(weight, x)) * 1.1 + 0.1
            if hook and k == LAYER:
                if library.name == "fad":
                    x.register_hook(unchanged)
                else:
                    x = looked_at(x)
        return xp.sum(x)

    return f


def gradient(library: Library, hook: bool) -> Any:
    of = library.grad(net(library, hook))
    return fad.jit(of, hooks=True) if library.name == "fad" else jax.jit(of)


def running(library: Library) -> Callable[[], Any]:
    compiled, inputs = gradient(library, True), [jnp.asarray(x) for x in SMALL_NET.inputs]
    return lambda: compiled(*inputs)


def added(library: Library) -> Callable[[], float]:
    """Milliseconds that the hook adds to a call, from the fastest call with and without it."""
    inputs = [jnp.asarray(x) for x in SMALL_NET.inputs]
    pair = (gradient(library, False), gradient(library, True))

    def call() -> float:
        fastest = [float("inf")] * 2
        for _ in range(CALLS):
            for k, compiled in enumerate(pair):
                start = time.perf_counter()
                library.wait(compiled(*inputs))
                fastest[k] = min(fastest[k], time.perf_counter() - start)
        return 1e3 * (fastest[1] - fastest[0])

    return call


def counting(library: Library) -> Callable[[], int]:
    inputs = [jnp.asarray(x) for x in SMALL_NET.inputs]
    return lambda: instructions_of(gradient(library, False), inputs)


WORK = "small net, a callback in JAX"
SCENARIOS: list[Scenario] = [
    Scenario(WORK, "jit(grad, hooks=True), one hook", running, BOTH, {"jax": 2.0}),
    Scenario(WORK, "what one hook adds", added, BOTH, {"jax": 2.0}, "ms a call"),
    Scenario(WORK, "jit(grad, hooks=True), no hook", counting, BOTH, {"jax": 1.0}, "instructions"),
]
