"""Comparing results: pytrees of arrays and Tensors, entry by entry."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend


def bare(tree: Any) -> Any:
    """``tree`` with its Tensors and arrays as NumPy arrays.

    >>> import fad
    >>> bare({"a": fad.tensor([1, 2])})
    {'a': array([1, 2], dtype=int32)}
    """
    return extend.map_leaves(lambda x: np.asarray(x.array if isinstance(x, Tensor) else x), tree)


def difference(actual: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5) -> str | None:
    """What first differs between two trees, in words; None if nothing does.

    Structure, shapes and dtypes must be the same. Floating and complex values agree where
    ``|a - e| <= rtol |e| + atol max(1, max |e|)``; infinities and NaNs where they stand in the same
    places.

    >>> print(difference(np.array([1.0, 2.0]), np.array([1.0, 2.5])))
    entry [1] is 2.0, expected 2.5
    """
    got, want = bare(actual), bare(expected)
    structure: Any = jax.tree.structure(got)
    if structure != jax.tree.structure(want):
        return f"structure {structure}, expected {jax.tree.structure(want)}"
    for path, g, w in zip(
        extend.path_names(want), jax.tree.leaves(got), jax.tree.leaves(want), strict=True
    ):
        at = f"{path}: " if path else ""
        if g.shape != w.shape:
            return f"{at}shape {g.shape}, expected {w.shape}"
        if g.dtype != w.dtype:
            return f"{at}dtype {g.dtype}, expected {w.dtype}"
        where = _mismatch(g, w, rtol, atol)
        if where is not None:
            entry = f"entry [{', '.join(map(str, where))}] is " if where else ""
            return f"{at}{entry}{g[where]}, expected {w[where]}"
    return None


def _mismatch(g: np.ndarray, w: np.ndarray, rtol: float, atol: float) -> tuple[int, ...] | None:
    """The index of the entry that differs most; None if all agree."""
    if not g.size:
        return None
    if not jnp.issubdtype(w.dtype, jnp.inexact):
        wrong = g != w
        return None if not wrong.any() else _index(np.argmax(wrong), w.shape)
    wide = np.complex128 if np.issubdtype(w.dtype, np.complexfloating) else np.float64
    a, b = g.astype(wide), w.astype(wide)
    finite = np.isfinite(b)
    largest = float(np.max(np.abs(b[finite]), initial=0.0))
    with np.errstate(invalid="ignore"):
        excess = np.abs(a - b) - (rtol * np.abs(b) + atol * max(1.0, largest))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    excess = np.where(same, -1.0, np.where(np.isfinite(excess), excess, np.inf))
    at = np.argmax(excess)
    return None if excess.flat[at] <= 0 else _index(at, w.shape)


def _index(flat: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([int(i) for i in np.unravel_index(int(flat), shape)])


def assert_close(actual: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Fail unless two trees have the same structure, shapes and dtypes, and values that agree.

    Arguments:
        actual: a pytree of Tensors and arrays.
        expected: another.
        rtol, atol: tolerances; ``atol`` is relative to the largest entry where that is above 1.

    Raises:
        AssertionError: they differ; the message says where, and by what.

    >>> assert_close({"a": np.float32(1.0)}, {"a": np.float32(1.0)})
    """
    text = difference(actual, expected, rtol, atol)
    if text is not None:
        raise AssertionError(text)
