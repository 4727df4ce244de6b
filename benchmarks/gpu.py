"""Work that fills a GPU, a small net, which does not, and steps of training; measured where JAX and PyTorch
find one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import real_sizes
from benchmarks.libraries import Library
from benchmarks.models import block, transformer_block
from benchmarks.scenarios import CHAIN, SMALL_NET, Scenario, Workload, small_net
from benchmarks.traced import jit

__all__ = ["SCENARIOS", "every"]

Inputs = tuple[np.ndarray, ...]


def net(width: int) -> Inputs:
    """A batch of as many examples as the layers are wide, and the weights of six layers."""
    draw = np.random.default_rng(4)
    weights = draw.normal(size=(6, width, width)) / width**0.5
    return tuple(np.asarray(x, np.float32) for x in (draw.normal(size=(width, width)), *weights))


def numbers(size: int) -> Inputs:
    return (np.random.default_rng(5).normal(size=size).astype(np.float32),)


def eager(library: Library, f: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    gradient = library.grad(f, tuple(range(len(inputs))))
    return lambda: gradient(*inputs)


def compiled(library: Library, f: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    gradient = jit(library)(library.grad(f, tuple(range(len(inputs)))))
    return lambda: gradient(*inputs)


def every(
    width: int = 2048, tokens: int = 1024, size: int = 2**24, device: str = "gpu"
) -> list[Scenario]:
    """The rows for these sizes; the inputs of each are drawn when it is built, since they are large."""
    features = width // 2
    work: dict[str, tuple[Callable[..., Any], Callable[[], Inputs]]] = {
        f"net, 6 layers of {width:,}, a batch of {width:,}": (small_net, lambda: net(width)),
        f"transformer block, {tokens:,} tokens of {features:,}": (
            transformer_block,
            lambda: block(tokens, features),
        ),
        f"chain of 21 ops on {size:,} floats": (CHAIN.function, lambda: numbers(size)),
        SMALL_NET.name: (SMALL_NET.function, lambda: SMALL_NET.inputs),
    }
    rows = []
    for name, (function, draw) in work.items():
        for what, transform, libraries in (
            ("grad, all arguments", eager, ("fad", "torch", "jax")),
            ("jit(grad), all arguments", compiled, ("fad", "jax")),
        ):

            def build(
                library: Library,
                function: Any = function,
                draw: Any = draw,
                transform: Any = transform,
            ) -> Callable[[], Any]:
                return transform(library, *Workload("", function, draw()).on(library))

            rows.append(Scenario(f"on a GPU: {name}", what, build, libraries, device=device))
    return rows


SCENARIOS = [
    *every(),
    *(
        replace(step, work=f"on a GPU: {step.work}", device="gpu", bounds={})
        for step in real_sizes.SCENARIOS
        if step.what != real_sizes.WHATS[0]
    ),
]
