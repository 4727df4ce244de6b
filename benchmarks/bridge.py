"""A custom rule inside of compiled JAX: a Function, and the same rule as ``jax.custom_vjp``.

The two programs must be the same to XLA, instruction for instruction (`instructions`), so that a
Function costs nothing at run time; what may differ is the time to trace and lower it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["RULES", "SCENARIOS", "instructions", "loss"]


class Swish(fad.Function):
    """x / (1 + exp(-x)), with a rule that reads the input and the output."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x / (1.0 + fnp.exp(-x))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        s = 1.0 / (1.0 + fnp.exp(-x))
        return g * (s + y * (1.0 - s))


@jax.custom_vjp
def swish(x: Any) -> Any:
    """The same, as JAX has it."""
    return x / (1.0 + jnp.exp(-x))


def _pull(saved: Any, g: Any) -> Any:
    x, y = saved
    s = 1.0 / (1.0 + jnp.exp(-x))
    return (g * (s + y * (1.0 - s)),)


swish.defvjp(lambda x: ((y := swish(x)), (x, y)), _pull)

RULES: dict[str, Callable[[Any], Any]] = {"fad": Swish.apply, "jax": swish}
_draw = np.random.default_rng(0)
WEIGHTS = jnp.asarray(_draw.normal(size=(6, 128, 128)) / 12.0, jnp.float32)
INPUT = jnp.asarray(_draw.normal(size=(256, 128)), jnp.float32)


def loss(rule: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A new function each time, which no cache knows: six layers with the rule between them."""

    def f(x: Any, weights: Any) -> Any:
        for w in weights:
            x = rule(x @ w)
        return jnp.mean(x * x)

    return f


def instructions(rule: Callable[[Any], Any], transform: Callable[..., Any] = jax.grad) -> list[str]:
    """What XLA is left with after optimization, in order, with its values numbered as they come."""
    program = jax.jit(transform(loss(rule))).lower(INPUT, WEIGHTS).compile().as_text()
    numbers: dict[str, str] = {}
    lines = [re.sub(r", metadata=\{[^}]*\}", "", x) for x in program.splitlines() if " = " in x]
    return [
        re.sub(r"%[\w.-]+", lambda m: numbers.setdefault(m.group(0), f"%{len(numbers)}"), line)
        for line in lines
    ]


def run(library: Library) -> Callable[[], Any]:
    gradient = jax.jit(jax.grad(loss(RULES[library.name]), argnums=(0, 1)))
    return lambda: gradient(INPUT, WEIGHTS)


def trace(library: Library) -> Callable[[], Any]:
    rule = RULES[library.name]
    return lambda: len(jax.jit(jax.grad(loss(rule))).trace(INPUT, WEIGHTS).jaxpr.out_avals)


def lower(library: Library) -> Callable[[], Any]:
    rule = RULES[library.name]
    return lambda: len(jax.jit(jax.grad(loss(rule))).lower(INPUT, WEIGHTS).out_info.shape)


WORK = "a rule in compiled JAX, 6 layers"
SCENARIOS: list[Scenario] = [
    Scenario(WORK, "run jit(grad)", run, ("fad", "jax"), {"jax": 1.02}),
    Scenario(WORK, "trace jit(grad)", trace, ("fad", "jax"), {"jax": 1.5}),
    Scenario(WORK, "trace and lower", lower, ("fad", "jax"), {"jax": 1.5}),
]
