"""A network of PyTorch in fad, and a function of fad in PyTorch: what a call costs against one library alone.

Both libraries have the same numbers. The networks have three layers; in the small one what is measured is the
call itself, in the large one what is computed twice, see docs/pytorch-functions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

import fad
import fad.numpy as fnp
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS"]

Build = Callable[[Library], Callable[[], Any]]


def network(width: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network of three layers, and a batch for it."""
    generator = torch.Generator().manual_seed(0)
    layers = [torch.nn.Linear(width, width) for _ in range(3)]
    with torch.no_grad():
        for p in (p for layer in layers for p in layer.parameters()):
            p.copy_(torch.randn(p.shape, generator=generator) / width**0.5)
    module = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])
    return module, torch.randn(width, width, generator=generator)


def call(width: int, compiled: bool = False) -> Build:
    """The network itself."""

    def build(library: Library) -> Callable[[], Any]:
        module, batch = network(width)
        if library.name == "torch":

            def plain() -> Any:
                with torch.no_grad():
                    return module(batch)

            return plain
        f = fad.from_torch(module)
        f = fad.jit(f) if compiled else f
        x = jnp.asarray(batch.numpy())
        return lambda: f(x)

    return build


def gradient(width: int, compiled: bool = False) -> Build:
    """The gradient of a loss with respect to the first weight."""

    def build(library: Library) -> Callable[[], Any]:
        module, batch = network(width)
        name = "0.weight"
        if library.name == "torch":
            values = {k: p.detach() for k, p in module.named_parameters()}

            def loss(values: Any) -> Any:
                return (torch.func.functional_call(module, values, (batch,)) ** 2).mean()

            g = torch.func.grad(loss)
            return lambda: g(values)[name]
        f, parameters = fad.from_torch(module, parameters=True)
        x = jnp.asarray(batch.numpy())
        h = fad.grad(lambda p: fnp.mean(f(p, x) ** 2))
        h = fad.jit(h) if compiled else h
        return lambda: h(parameters)[name]

    return build


def energy(u: Any) -> Any:
    """A scalar of a matrix, in fad."""
    return fnp.mean(fnp.tanh(u @ u) * u)


def other_way(width: int) -> Build:
    """The gradient of `energy`, which PyTorch asks fad for, and which it has of its own."""

    def build(library: Library) -> Callable[[], Any]:
        u = torch.from_numpy(np.random.default_rng(0).normal(size=(width, width)).astype("f4"))
        u = (u / width**0.5).requires_grad_()
        if library.name == "torch":
            return lambda: torch.autograd.grad((torch.tanh(u @ u) * u).mean(), u)[0]
        f = fad.to_torch(energy, jit=True)
        return lambda: torch.autograd.grad(f(u), u)[0]

    return build


WORK, BOTH = "PyTorch in fad", ("fad", "torch")
SCENARIOS: list[Scenario] = [
    Scenario(WORK, "call, 32 units", call(32), BOTH, {"torch": 25.0}),
    Scenario(WORK, "call, 512 units", call(512), BOTH, {"torch": 1.6}),
    Scenario(WORK, "jit call, 512 units", call(512, True), BOTH, {"torch": 1.8}),
    Scenario(WORK, "grad, 32 units", gradient(32), BOTH, {"torch": 12.0}),
    Scenario(WORK, "grad, 512 units", gradient(512), BOTH, {"torch": 2.5}),
    Scenario(WORK, "jit grad, 512 units", gradient(512, True), BOTH, {"torch": 2.2}),
    Scenario("fad in PyTorch", "grad, 512 units", other_way(512), BOTH, {"torch": 4.0}),
]
