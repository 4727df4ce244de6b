"""Hypothesis strategies: random programs, and stacks of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from fad.core.dtypes import is_inexact
from tests.fuzzing.programs import OPS, Program, Spec, Step, result_of
from tests.fuzzing.stacks import TRANSFORMS
from tests.fuzzing.steps import Op

__all__ = ["programs", "stacks", "whole_programs"]

SHAPES = ((), (2,), (3,), (2, 2), (2, 3))
FLOATS = ("float64", "float64", "float64", "float32", "complex128")
OTHERS = ("int32", "bool")


def stacks(
    max_size: int = 3, names: Sequence[str] = tuple(sorted(TRANSFORMS))
) -> st.SearchStrategy[Any]:
    """Stacks of transforms, as names of `tests.fuzzing.stacks.TRANSFORMS`, the innermost first.

    >>> from hypothesis import find
    >>> find(stacks(), lambda s: len(s) == 2)
    ('autograd', 'autograd')
    """
    return st.lists(st.sampled_from(names), max_size=max_size).map(tuple)


@st.composite
def programs(
    draw: Callable[..., Any], max_steps: int = 6, in_place: bool = False, names: Any = None
) -> Program:
    """Programs of a few steps: operations, Functions and, with ``in_place``, views and writes.

    Arguments:
        max_steps: how long they are at most.
        in_place: whether there are views and writes among the steps.
        names: of which operations; default are all.

    >>> from hypothesis import find
    >>> print(find(programs(), lambda p: True).listing())
    v0 = input ...
    v1 = ...
    return v1
    """
    spec = lambda dtypes: st.tuples(st.sampled_from(SHAPES), st.sampled_from(dtypes))
    floats: list[Spec] = draw(st.lists(spec(FLOATS), min_size=1, max_size=3))
    others: list[Spec] = draw(st.lists(spec(OTHERS), max_size=1))
    avals: list[Any] = [
        jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in (*floats, *others)
    ]
    live = [True] * len(floats) + [False] * len(others)
    fed = list(live)  # depends on a float, so that it has every batch
    origins: list[Any] = list(range(len(avals)))  # equal for values that are one array, or equal
    steps: list[Step] = []
    table = [n for n in sorted(OPS) if names is None or n in names]
    table = [n for n in table if in_place or OPS[n].kind == "pure"]
    changing = [n for n in table if OPS[n].kind != "pure"]
    for _ in range(draw(st.integers(1, max_steps))):
        again = bool(steps) and draw(st.integers(0, 7)) == 7  # a step done before
        step = OPS[steps[-1][0] if again else draw(st.sampled_from(table + 4 * changing))]
        fits = operands_for(step, avals)
        if step.kind == "write":
            fits = [f for f in fits if fed[f[0]] and f[0] != f[1]]
        if not fits:
            continue
        twice = [f for f in fits if len({origins[i] for i in f}) < len(f)]
        operands = draw(st.sampled_from(fits + 2 * twice))
        option = draw(st.integers(0, len(step.options) - 1))
        if again and step.kind != "write":
            _, operands, option = steps[-1]
        if step.kind == "write":
            steps.append((step.name, operands, option))
            continue
        try:
            out = result_of(step.name, option, tuple([avals[i] for i in operands]))
        except (TypeError, ValueError, IndexError):
            continue
        if out.size > 24 or out.ndim > 3:
            continue
        steps.append((step.name, operands, option))
        avals.append(jax.ShapeDtypeStruct(out.shape, out.dtype))
        given = tuple([origins[i] for i in operands])
        is_view = step.aliases or step.kind == "view"
        origins.append(given[0] if is_view else (step.name, given, option))
        is_live = step.differentiable and is_inexact(out.dtype) and any(live[i] for i in operands)
        live.append(is_live)
        fed.append(any(fed[i] for i in operands))
    count = len(floats) + len(others)
    first_of = 0 if any(OPS[name].kind == "write" for name, _, _ in steps) else count
    candidates = [i for i in range(first_of, len(avals)) if live[i]]
    if not candidates:  # a program that does nothing is a program too
        steps.append(("negative", (0,), 0))
        avals.append(avals[0])
        candidates = [len(avals) - 1]
    first = draw(st.sampled_from(candidates[::-1]))
    rest = draw(st.lists(st.sampled_from(range(len(avals) - 1, first_of - 1, -1)), max_size=2))
    seed = draw(st.integers(0, 1000))
    return Program(tuple(floats), tuple(others), tuple(steps), (first, *rest), seed)


def operands_for(step: Op, avals: Sequence[Any]) -> list[tuple[int, ...]]:
    """The choices of operands that a step accepts, latest values first."""
    indices = range(len(avals) - 1, -1, -1)
    if step.arity == 1:
        return [(i,) for i in indices if step.accepts(avals[i])]
    if step.arity == 2:
        return [(i, j) for i in indices for j in indices if step.accepts(avals[i], avals[j])]
    return [
        (i, j, k)
        for i in indices
        for j in indices
        for k in indices
        if step.accepts(avals[i], avals[j], avals[k])
    ]


def whole_programs(max_steps: int = 6) -> st.SearchStrategy[Any]:
    """`programs`, with and without writes in place.

    >>> from hypothesis import find
    >>> isinstance(find(whole_programs(), lambda p: True), Program)
    True
    """
    return st.booleans().flatmap(lambda flag: programs(max_steps, in_place=flag))
