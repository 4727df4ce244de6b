"""Hypothesis strategies: arrays, pytrees, shapes that broadcast, in_dims, programs, transform stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from fad.core import trees
from fad.core.jaxapi import is_inexact
from fad.testing.programs import IN_PLACE, OPS, Program, Spec, Step, result_of
from fad.testing.stacks import TRANSFORMS
from fad.testing.steps import Op

__all__ = ["arrays", "broadcasting_shapes", "in_dims", "out_dims", "programs", "pytrees", "shapes"]

DTYPES = ("float64", "float32", "complex128", "int32", "bool")
SHAPES = ((), (2,), (3,), (2, 2), (2, 3))
FLOATS = ("float64", "float64", "float64", "float32", "complex128")
OTHERS = ("int32", "bool")


def shapes(max_dims: int = 3, max_side: int = 3, min_side: int = 0) -> st.SearchStrategy[Any]:
    """Shapes, with dimensions of size 0 and 1 among them.

    >>> from hypothesis import find
    >>> find(shapes(), lambda s: len(s) == 2)
    (0, 0)
    """
    return st.lists(st.integers(min_side, max_side), max_size=max_dims).map(tuple)


@st.composite
def broadcasting_shapes(
    draw: Callable[..., Any], count: int = 2, max_dims: int = 3, max_side: int = 3
) -> tuple[tuple[int, ...], ...]:
    """``count`` shapes that broadcast together.

    >>> from hypothesis import find
    >>> find(broadcasting_shapes(2), lambda s: s[0] != s[1] and len(np.broadcast_shapes(*s)) == 1)
    ((0,), ())
    """
    whole = draw(shapes(max_dims, max_side))
    found = []
    for _ in range(count):
        start = draw(st.integers(0, len(whole)))
        thin = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        found.append(tuple([1 if t else n for n, t in zip(whole, thin, strict=True)])[start:])
    return tuple(found)


@st.composite
def arrays(
    draw: Callable[..., Any],
    shape: Any = None,
    dtype: Any = None,
    low: float = -1.5,
    high: float = 1.5,
) -> np.ndarray:
    """NumPy arrays of moderate numbers, without NaN.

    Arguments:
        shape: a shape, or a strategy for one; default `shapes`.
        dtype: a dtype, or a strategy for one; default are floats, complex numbers, integers, bools.
        low, high: between which the numbers are.

    >>> from hypothesis import find
    >>> find(arrays((2,), "float32"), lambda a: True).shape
    (2,)
    """
    shape = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    shape = draw(shapes()) if shape is None else shape
    dtype = draw(dtype) if isinstance(dtype, st.SearchStrategy) else dtype
    dtype = np.dtype(draw(st.sampled_from(DTYPES)) if dtype is None else dtype)
    # One number for the whole array: entries shrink together, and are cheap to draw.
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


def pytrees(leaves: Any = None, max_leaves: int = 4) -> st.SearchStrategy[Any]:
    """Tuples, lists and dicts, nested, with None among them, around ``leaves`` (default `arrays`).

    >>> from hypothesis import find
    >>> find(pytrees(st.just(0)), lambda t: isinstance(t, dict))
    {}
    """
    return st.recursive(
        arrays() if leaves is None else leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), inner), max_size=3),
        ),
        max_leaves=max_leaves,
    )


@st.composite
def in_dims(draw: Callable[..., Any], args: Any) -> Any:
    """in_dims for the arguments of a vmap: a tree like ``args``, at least one entry of it not None.

    The entries are for arrays that do not have their batch yet: insert it there.

    >>> from hypothesis import find
    >>> sorted(find(in_dims((np.ones(2), np.ones(()))), lambda d: None in d), key=str)
    [0, None]
    """
    leaves, structure = trees.flatten(args)
    every = [draw(st.sampled_from([0, None, -1, np.ndim(x)])) for x in leaves]
    every = [d if d is None else int(d) for d in every]
    if leaves and all(d is None for d in every):
        every[draw(st.integers(0, len(leaves) - 1))] = 0
    return trees.unflatten(structure, every)


@st.composite
def out_dims(draw: Callable[..., Any], outs: Any) -> Any:
    """out_dims for the results of a vmap (as they are without a batch): a tree like ``outs``.

    >>> from hypothesis import find
    >>> find(out_dims([np.ones(2)]), lambda d: d[0] == -1)
    [-1]
    """
    leaves, structure = trees.flatten(outs)
    return trees.unflatten(
        structure, [draw(st.sampled_from([0, -1, int(np.ndim(x))])) for x in leaves]
    )


def stacks(
    max_size: int = 3, names: Sequence[str] = tuple(sorted(TRANSFORMS))
) -> st.SearchStrategy[Any]:
    """Stacks of transforms, as names of `fad.testing.stacks.TRANSFORMS`, the innermost first.

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
    spec = lambda dtypes: st.tuples(st.sampled_from(SHAPES), st.sampled_from(dtypes))  # noqa: E731
    floats: list[Spec] = draw(st.lists(spec(FLOATS), min_size=1, max_size=3))
    others: list[Spec] = draw(st.lists(spec(OTHERS), max_size=1))
    avals: list[Any] = [
        jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in (*floats, *others)
    ]
    live = [True] * len(floats) + [False] * len(others)
    fed = list(live)  # depends on a float, so that it has every batch
    steps: list[Step] = []
    table = [n for n in sorted(OPS) if names is None or n in names]
    table = [n for n in table if in_place or OPS[n].kind == "pure"]
    changing = [n for n in table if OPS[n].kind != "pure"]
    for _ in range(draw(st.integers(1, max_steps))):
        step = OPS[draw(st.sampled_from(table + 4 * changing))]
        fits = operands_for(step, avals)
        if step.kind == "write":
            fits = [f for f in fits if fed[f[0]] and f[0] != f[1]]
        if not fits:
            continue
        operands = draw(st.sampled_from(fits))
        option = draw(st.integers(0, len(step.options) - 1))
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
    """`programs`, with writes in place where this version of fad has them.

    >>> from hypothesis import find
    >>> isinstance(find(whole_programs(), lambda p: True), Program)
    True
    """
    if not IN_PLACE:
        return programs(max_steps)
    return st.booleans().flatmap(lambda flag: programs(max_steps, in_place=flag))
