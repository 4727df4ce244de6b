"""Hypothesis strategies: arrays, pytrees, shapes that broadcast, in_dims and out_dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from fad import extend
from fad.errors import hints_of as _hints_of

__all__ = ["arrays", "broadcasting_shapes", "in_dims", "out_dims", "pytrees", "shapes"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)

DTYPES = ("float64", "float32", "complex128", "int32", "bool")


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
    narrowed = []
    for _ in range(count):
        start = draw(st.integers(0, len(whole)))
        thin = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        narrowed.append(tuple([1 if t else n for n, t in zip(whole, thin, strict=True)])[start:])
    return tuple(narrowed)


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
    leaves, structure = extend.flatten(args)
    every = [draw(st.sampled_from([0, None, -1, np.ndim(x)])) for x in leaves]
    every = [d if d is None else int(d) for d in every]
    if leaves and all(d is None for d in every):
        every[draw(st.integers(0, len(leaves) - 1))] = 0
    return extend.unflatten(structure, every)


@st.composite
def out_dims(draw: Callable[..., Any], outs: Any) -> Any:
    """out_dims for the results of a vmap (as they are without a batch): a tree like ``outs``.

    >>> from hypothesis import find
    >>> find(out_dims([np.ones(2)]), lambda d: d[0] == -1)
    [-1]
    """
    leaves, structure = extend.flatten(outs)
    return extend.unflatten(
        structure, [draw(st.sampled_from([0, -1, int(np.ndim(x))])) for x in leaves]
    )
