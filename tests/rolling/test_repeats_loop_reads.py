"""What loops read of each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import fad
from fad.rolling.repeats import (
    ARRAY,
    Elements,
    LoopReads,
    Numbered,
    Result,
    find_loops,
    is_column,
)


def reads(f: Any, *args: Any) -> LoopReads:
    program = Numbered(jax.make_jaxpr(f)(*args))
    return LoopReads(program, find_loops(program))


def forth_and_back(x: Any) -> Any:
    states = []
    for _ in range(50):
        states.append(x)
        x = x + jnp.sin(x) * (x * x)
    g = x
    for s in reversed(states):
        g = g - jnp.cos(g) * (s * s) + s
    return g


def test_a_loop_reads_an_earlier_one_backwards() -> None:
    found = reads(forth_and_back, 1.0)
    count = found.loops[0].count  # the last repeat may be left out
    assert [loop.count for loop in found.loops] == [count, count] and count >= 49
    columns = {x for operands in found.origins[1] for x in operands if is_column(x)}
    assert columns
    for column in columns:
        elements, fits = found.elements(column) or (None, None)
        assert fits is not None and fits.all() and isinstance(elements, Elements)
        assert (elements.loop, elements.first, elements.step) == (0, count - 1, -1)


def test_as_little_is_stored_as_gives_the_rest() -> None:
    found = reads(forth_and_back, 1.0)
    names = [found.equation(0, at).primitive.name for at in range(found.loops[0].period)]
    square = Result(names.index("mul"), 0)
    every = [x for operands in found.origins[0] for x in operands]
    state = next(x for x in every if isinstance(x, Result) and x.entry)
    assert found.stored(0, [square], []) == {square}  # as large as the state
    assert found.stored(0, [square, state], []) == {state}
    sine = Result(names.index("sin"), 0)
    assert found.stored(0, [sine, state], []) == {sine, state}  # costs more


def test_rows_of_an_array() -> None:
    """All of them are an operand of the scan; of some, each is read at its place."""

    def f(xs: Any, count: int) -> Any:
        h = xs.sum(0)
        for t in range(count):
            h = jnp.tanh(h + xs[count - 1 - t]) * 0.5
        return h

    xs = jnp.ones((50, 3))
    found = reads(lambda xs: f(xs, 50), xs)
    (rows,) = rows_of(found)
    assert rows == Elements(ARRAY, rows.value, 49, -1, 50) and found.loops[0].count == 50
    assert not rows_of(reads(lambda xs: f(xs, 49), xs))


def rows_of(found: LoopReads) -> list[Elements]:
    return [x for operands in found.origins[0] for x in operands if isinstance(x, Elements)]


def test_every_other_element_of_a_row() -> None:
    """Not all of it: no operand of the scan."""

    def f(xs: Any) -> Any:
        h = fad.numpy.zeros(3)
        for t in range(50):
            h = fad.numpy.tanh(h + fad.lax.slice(xs, (t, 0), (t + 1, 6), (1, 2))[0]) * 0.5
        return h

    xs = jnp.sin(jnp.arange(300.0)).reshape(50, 6)
    compiled = fad.jit(f)
    assert abs(compiled(xs) - f(xs)).max() < 1e-6
    assert "50 × " in compiled.explain(xs)
