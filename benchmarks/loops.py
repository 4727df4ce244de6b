"""Loops with other steps and another length in each call, so that no structure comes back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import SMALL_NET, Scenario

__all__ = ["SCENARIOS"]

RULES: Sequence[Callable[[Any, Any, Any], Any]] = (
    lambda xp, x, w: xp.sin(x) * 0.9,
    lambda xp, x, w: xp.tanh(xp.matmul(w, x)),
    lambda xp, x, w: x * 0.8 + 0.01,
    lambda xp, x, w: x / (1.0 + x * x),
    lambda xp, x, w: xp.exp(-x * x) * x,
)
NORM = float(np.linalg.norm(SMALL_NET.inputs[0]))
TOTAL = 40  # steps of the two loops in a call: as much work in each, never the same


def changing(xp: Any, x: Any, w: Any, choices: Sequence[int]) -> Any:
    """Steps that are drawn anew for each call."""
    for choice in choices:
        x = RULES[choice](xp, x, w)
    return xp.sum(x * x)


def halving(xp: Any, x: Any, w: Any, choices: Sequence[int]) -> Any:
    """As many steps as the values ask for, which are read in each: the scale decides how many."""
    x = x * (2.0 ** (len(choices) - 0.5) / NORM)
    steps = 0
    while xp.sum(x * x) > 1.0:
        x = RULES[2](xp, x, w) * 0.625 + (RULES[choices[steps]](xp, x, w) * 1e-3)
        steps += 1
    return xp.sum(x * x)


def loops(
    function: Callable[..., Any], differentiate: Callable[..., Any]
) -> Callable[[Library], Callable[[], Any]]:
    """Two loops a call, of different lengths and steps each time; the same ones in each library."""

    def build(library: Library) -> Callable[[], Any]:
        random_state = random.Random(0)
        x, w = (library.asarray(a) for a in SMALL_NET.inputs[:2])

        def call() -> Any:
            choices = list(range(len(RULES))) * (TOTAL // len(RULES))
            random_state.shuffle(choices)
            length = random_state.randrange(TOTAL // 4, TOTAL // 2)
            results = [
                differentiate(library, function, x, w, part)
                for part in (choices[:length], choices[length:])
            ]
            return tuple(results)

        return call

    return build


def by_transform(library: Library, function: Any, x: Any, w: Any, choices: list[int]) -> Any:
    return library.grad(lambda x: function(library.numpy, x, w, choices))(x)


def by_tape(library: Library, function: Any, x: Any, w: Any, choices: list[int]) -> Any:
    x = x.clone() if library.name == "torch" else fad.tensor(x)
    x.requires_grad_()
    function(library.numpy, x, w, choices).backward()
    return getattr(x.grad, "array", x.grad)


def loop_scenarios() -> Iterator[Scenario]:
    for work, function in (
        ("loop of other steps in each call", changing),
        ("loop that reads its values", halving),
    ):
        bounds = {"nodes": 1.05}
        yield Scenario(
            work, "grad", loops(function, by_transform), ("fad", "nodes", "torch", "jax"), bounds
        )
        yield Scenario(work, "tape", loops(function, by_tape), ("fad", "nodes", "torch"), bounds)


SCENARIOS: list[Scenario] = [*loop_scenarios()]
