"""Traced code: what a compiled gradient costs to run, to call, and to trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import fad
from benchmarks import waves
from benchmarks.libraries import Library
from benchmarks.scenarios import SMALL_NET, Scenario, Workload, small_net
from benchmarks.transforms import nested

__all__ = ["SCENARIOS", "instructions", "instructions_of"]

LAYERS = 400  # of four operations each
BOTH = ("fad", "jax")
NOISE = 1.05  # the two programs are the same: what is measured apart from 1 is noise

_draw = np.random.default_rng(1)
WIDE = Workload(
    "compute bound, 4 layers of 512",
    small_net,
    (
        _draw.normal(size=(512, 512)).astype(np.float32),
        *(_draw.normal(size=(4, 512, 512)) / 23.0).astype(np.float32),
    ),
)
LONG = Workload(
    f"{4 * LAYERS:,} operations",
    lambda xp, x, w: small_net(xp, x, *[w] * LAYERS),
    SMALL_NET.inputs[:2],
)


def jit(library: Library) -> Callable[..., Any]:
    return fad.jit if library.name == "fad" else jax.jit


def on_values(library: Library, workload: Workload) -> tuple[Callable[..., Any], list[Any]]:
    """The function, a new one each time, and Tensors for fad, arrays for JAX."""
    f, inputs = workload.on(library)
    return f, [fad.tensor(x) for x in inputs] if library.name == "fad" else inputs


def array(x: Any) -> Any:
    return x.array if isinstance(x, fad.Tensor) else x


def run(library: Library) -> Callable[[], Any]:
    f, inputs = WIDE.on(library)
    gradient = jit(library)(library.grad(f, tuple(range(len(inputs)))))
    return lambda: gradient(*inputs)


def instructions_of(compiled: Any, inputs: list[Any]) -> int:
    """How many instructions XLA is left with after optimization."""
    program = compiled.lower(*inputs).compile().as_text()
    return sum(" = " in line for line in program.splitlines())


def instructions(library: Library, workload: Workload, depth: int = 1) -> int:
    f, inputs = workload.on(library)
    return instructions_of(jit(library)(nested(library, f, depth)), inputs)


def counting(workload: Workload, depth: int = 1) -> Callable[[Library], Callable[[], int]]:
    return lambda library: lambda: instructions(library, workload, depth)


def calling(library: Library) -> Callable[[], Any]:
    """A call of seven arguments with next to nothing to compute."""
    _, inputs = on_values(library, SMALL_NET)
    compiled = jit(library)(lambda x, *rest: x + 1.0)
    return lambda: array(compiled(*inputs))


def calling_tree(library: Library) -> Callable[[], Any]:
    """The same with a pytree, as the parameters of a model are."""
    _, inputs = on_values(library, SMALL_NET)
    tree = [{"weight": x, "bias": x} for x in inputs[:6]]
    compiled = jit(library)(lambda tree, x: tree[0]["weight"] + x)
    return lambda: array(compiled(tree, inputs[6]))


def lowering(workload: Workload, depth: int) -> Callable[[Library], Callable[[], Any]]:
    """Trace and lower; each call makes functions that no cache has seen."""

    def build(library: Library) -> Callable[[], Any]:
        def call() -> Any:
            f, inputs = workload.on(library)
            lowered = jit(library)(nested(library, f, depth)).lower(*inputs)
            return len(jax.tree.leaves(lowered.out_info))

        return call

    return build


# The same program in place and with .at[]: what is asked is that writes in place cost nothing.
WAVES = "wave solver in place, .at[] in JAX"
SCENARIOS: list[Scenario] = [
    Scenario(WIDE.name, "run jit(grad)", run, BOTH, {"jax": NOISE}),
    *[
        Scenario(w.name, f"{what}, optimized", counting(w, k), BOTH, {"jax": 1.0}, "instructions")
        for w in (WIDE, SMALL_NET)
        for k, what in ((1, "jit(grad)"), (2, "jit(grad∘grad)"))
    ],
    Scenario("7 Tensor arguments", "call overhead of jit", calling, BOTH, {"jax": 1.5}),
    Scenario(
        "13 Tensors, 12 of them in a pytree",
        "call overhead of jit",
        calling_tree,
        BOTH,
        {"jax": 1.3},
    ),
    Scenario(LONG.name, "trace and lower jit(grad)", lowering(LONG, 1), BOTH, {"jax": 0.6}),
    Scenario(LONG.name, "trace and lower jit(grad∘grad)", lowering(LONG, 2), BOTH, {"jax": 0.4}),
    Scenario(WAVES, "jit(grad), 400 steps", waves.running, BOTH, {"jax": 1.1}),
    Scenario(WAVES, "trace and compile", waves.compiling, BOTH, {"jax": 1.1}),
]
