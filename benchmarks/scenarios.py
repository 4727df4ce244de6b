"""A Scenario: one piece of work that every library does in the same way; and functions to work on.

A `Workload` is a scalar function written once against a NumPy-like namespace, with its inputs;
`benchmarks.transforms` makes the Scenarios of nested eager transforms from it. `benchmarks.suite` has
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.libraries import Library

__all__ = ["CHAIN", "SMALL_NET", "Scenario", "Workload"]


@dataclass(frozen=True)
class Workload:
    """A scalar function of arrays: `function(namespace, x, *parameters)`, and its inputs."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]

    def on(self, library: Library) -> tuple[Callable[..., Any], list[Any]]:
        """The function and the inputs in one library's terms."""
        namespace, function = library.numpy, self.function
        return lambda *args: function(namespace, *args), [library.asarray(x) for x in self.inputs]


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    `build(library)` does what is not timed and returns the call that is; `bounds` are the largest
    ratios of fad's time to another library's that the project accepts, ``limit`` is the largest value of
    fad's own. Where ``unit`` is not "µs", the call returns what is to be compared itself. ``turns`` is
    how often it is called then; of numbers the least counts; ``summarize`` gets, for each library, what all
    of its turns returned, and makes one number of it. What is ``long`` runs when asked for, or checked.
    What is for a GPU (``device="gpu"``) is not measured where there is none.
    """

    work: str
    what: str
    build: Callable[[Library], Callable[[], Any]]
    libraries: tuple[str, ...] = ("fad", "torch", "jax")
    bounds: Mapping[str, float] = field(default_factory=dict)
    unit: str = "µs"
    turns: int = 1
    limit: float | None = None
    summarize: Callable[[Mapping[str, list[Any]]], dict[str, float]] | None = None
    long: bool = False
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"{self.work}: {self.what}"


def chain(xp: Any, x: Any) -> Any:
    """21 operations: sines, tanhs, products with a Python number, additions, and a sum."""
    for _ in range(5):
        x = xp.sin(x) * 1.1
        x = xp.tanh(x) + x
    return xp.sum(x)


def small_net(xp: Any, x: Any, *weights: Any) -> Any:
    """Six layers of matmul, tanh, scale and shift."""
    for weight in weights:
        x = xp.tanh(xp.matmul(weight, x)) * 1.1 + 0.1
    return xp.sum(x)


_draw = np.random.default_rng(0)
CHAIN = Workload("chain of 21 ops on 8 floats", chain, (_draw.normal(size=8).astype(np.float32),))
SMALL_NET = Workload(
    "small net, 6 layers of 16",
    small_net,
    (
        _draw.normal(size=16).astype(np.float32),
        *(_draw.normal(size=(6, 16, 16)) / 4.0).astype(np.float32),
    ),
)
