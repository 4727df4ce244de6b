"""The interface between the library and rolling, with a null object for when nothing is rolled.

NOTE [the protocol of rolling]

    def f(x):
        for k in range(50):
            x = x * x + x * 0.5 - k
        return x

    assert str(fad.make_jaxpr(f)(1.0)).count("mul") == 2  # of 100 that the loop has run

Tracing unrolls a loop of Python. `fad.rolling` writes it as a loop again, before a program is compiled. The
library is complete without it: programs compute the same, up to rounding, and only take longer to compile. It
uses `roll` alone, where a program is complete: `tape.staged.stage` (`jit`, bodies of loops and branches),
`functions.native` (the body of a Function, in compiled code) and `bridge.to_jax`, where JAX traces it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fad.core.types import JaxProgram


class Rolled(NamedTuple):
    """A loop of a rolled program: how often it repeats, and how many operations."""

    repeats: int
    period: int


class Roll(Protocol):
    """What gives a program with its loops as loops, and these; the program itself, if it has none."""

    def __call__(self, closed: JaxProgram) -> tuple[JaxProgram, list[Rolled]]: ...


def as_traced(closed: JaxProgram) -> tuple[JaxProgram, list[Rolled]]:
    """The null object: nothing is rolled."""
    return closed, []


# What rolls; ``fad/__init__`` sets it, so it is looked up here at each call.
roll: Roll = as_traced
