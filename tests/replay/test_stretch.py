"""The entries of a trace: which operation an output is of, and the computation of all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
from fad.core.primitive import Primitive
from fad.replay.entries import origin_of, outputs_of
from fad.replay.inputs import FOREIGN, look
from fad.replay.stretch import Stretch
from fad.tape.recorder import GradLevel

X = jnp.array([0.5, 1.0, 1.5, 2.0])


def states(*counts: int) -> list[Any]:
    """The entries of operations with so many outputs each; a negative count is one output alone."""
    found: list[Any] = [(SimpleNamespace(size=0, first=0, avals=(), single=False), None, 0)]
    size = 0
    for k, count in enumerate(counts):
        first, size = size, size + abs(count)
        own = [f"{k}.{i}" for i in range(abs(count))]
        avals = (None,) * abs(count)
        step = SimpleNamespace(size=size, first=first, avals=avals, single=count < 0)
        found.append((step, own[0] if count < 0 else own, 0))
    return found


@pytest.mark.parametrize(
    "counts", [(-1,), (3,), (-1, -1, -1), (2, -1, 1, 4, -1), (1,) * 17], ids=str
)
def test_every_output_belongs_to_one_operation(counts: tuple[int, ...]) -> None:
    entries = states(*counts)
    outs = outputs_of(entries)
    assert len(outs) == sum(map(abs, counts))
    for place, out in enumerate(outs):
        path = [e[0] for e in entries[1:]]
        step, number = origin_of(path, place)
        k = path.index(step)
        assert out == f"{k}.{number}"


def test_the_computation_binds_all_operations_at_the_level() -> None:
    """Operands are inputs (negative numbers) and earlier outputs."""
    split = Primitive("split", lambda x: (jnp.sin(x), jnp.cos(x)))
    multiply = Primitive("multiply", jnp.multiply)
    with GradLevel() as level:
        x = level.variable(X)
        path = [
            SimpleNamespace(op=split, refs=(~0,)),
            SimpleNamespace(op=multiply, refs=(0, 1)),
            SimpleNamespace(op=multiply, refs=(2, ~1)),
        ]
        inputs = [look(x, level), look(2.0, level)]
        assert inputs[1].layout is FOREIGN
        stretch = object.__new__(Stretch)
        stretch.path, stretch.inputs = path, inputs  # type: ignore[assignment]
        given, cells = stretch._computation()(level, [X, 2.0])
        assert_close(
            [fad.core.tensor.bottom(c) for c in cells],
            [jnp.sin(X), jnp.cos(X), jnp.sin(X) * jnp.cos(X), jnp.sin(X) * jnp.cos(X) * 2.0],
        )
        assert given[0].level is level and given[1] == 2.0
