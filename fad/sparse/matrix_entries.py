"""The entries of a matrix, as pairs of elements: an array, a BCOO or BCSR of JAX, or a SciPy sparse array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fad import Tensor, extend
from fad.errors import FadError, StructureError, describe
from fad.extend.types import PyTree

Leaf = tuple[str, tuple[int, ...]]  # the name of an array in messages, and its shape
Pairs = tuple[np.ndarray, np.ndarray]  # of elements of the output and of an input
NOTHING: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def offsets(leaves: Sequence[Leaf]) -> list[int]:
    """Where the elements of each array begin among the elements of all, and where the last array ends."""
    sizes = [math.prod(shape) for _, shape in leaves]
    return [0, *np.cumsum(sizes, dtype=int).tolist()]


def pairs_of(
    what: str, x: Any, out: tuple[int, ...], shape: tuple[int, ...], error: type[FadError]
) -> Pairs:
    """The entries of a matrix, as pairs of elements.

    Arguments:
        what: its name in messages.
        x: dense, where what is not 0 is an entry, or sparse, where what is stored is one; None has none.
        out, shape: of the output and of the argument. The matrix has the shape ``out + shape``, or the
            product of each.
        error: what is raised for anything else.
    """
    if x is None:
        return NOTHING
    if isinstance(x, Tensor):
        x = x.array
    if not _is_matrix(x):
        raise error(
            f"{what} must be an array, a BCOO, a BCSR or a sparse array of SciPy, or None, got {describe(x)}"
        )
    flat = math.prod(out), math.prod(shape)
    if tuple(x.shape) not in ((*out, *shape), flat):
        raise error(
            f"{what} has shape {tuple(x.shape)}, expected {(*out, *shape)}: that of the output, then that "
            "of the argument"
        )
    if isinstance(x, (np.ndarray, jax.Array)):
        rows, cols = np.nonzero(np.asarray(x).reshape(flat))
        return rows, cols
    if hasattr(x, "tocoo"):  # of SciPy
        x = x.tocoo()
        return x.row.astype(np.int64), x.col.astype(np.int64)
    if hasattr(x, "to_bcoo"):
        x = x.to_bcoo()
    places = np.asarray(x.indices)
    if places.ndim != 2 or places.shape[1] != len(x.shape):
        raise error(f"{what} is a BCOO with n_batch or n_dense, expected one without")
    if places.size and places.min() < 0:
        raise error(
            f"{what} is a BCOO with the negative index {places.min()}, expected places from 0 on"
        )
    places = places[np.all(places < np.array(x.shape), 1)]  # others are padding
    if tuple(x.shape) != (*out, *shape):
        return places[:, 0].astype(np.int64), places[:, 1].astype(np.int64)
    return _flat(places[:, : len(out)], out), _flat(places[:, len(out) :], shape)


def _is_matrix(x: object) -> bool:
    sparse = hasattr(x, "indices") or hasattr(x, "tocoo")
    return isinstance(x, (np.ndarray, jax.Array)) or (sparse and hasattr(x, "shape"))


def _flat(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if not shape:
        return np.zeros(len(places), np.int64)
    return np.ravel_multi_index(tuple(places.T), shape).astype(np.int64)


def entries_of_pattern(
    pattern: PyTree, expected: PyTree, outputs: Sequence[Leaf], arguments: Sequence[Leaf], who: str
) -> Pairs:
    """The entries of a pattern that the caller gives, among all outputs and all arguments, by rows.

    Arguments:
        pattern: one matrix for all, or one for each output and argument, in a pytree.
        expected: a pytree of that structure.
        outputs, arguments: what is differentiated, and by what.

    Raises:
        StructureError: it has another structure or shape.
    """
    what, rows, cols = f"{who}: the pattern", offsets(outputs), offsets(arguments)
    height, width = rows[-1], cols[-1]
    if _is_matrix(pattern) and tuple(pattern.shape) == (height, width):
        pairs = [pairs_of(what, pattern, (height,), (width,), StructureError)]
    else:
        end = lambda x: x is None or isinstance(x, Tensor) or _is_matrix(x)  # noqa: E731
        blocks, structure = jax.tree_util.tree_flatten(pattern, is_leaf=end)
        _, wanted = extend.flatten(expected)
        if structure != wanted:
            single = wanted == jax.tree.structure(0)
            raise StructureError(
                f"{what} is {describe(pattern) if _is_matrix(pattern) else structure}, expected "
                f"{'a matrix' if single else f'matrices in the structure {wanted}'}, or one matrix of "
                f"shape {(height, width)} for all outputs and arguments. Write what "
                "fad.sparsity(f)(*args) returns."
            )
        pairs = []
        places = [(i, j) for i in range(len(outputs)) for j in range(len(arguments))]
        for (i, j), x in zip(places, blocks, strict=True):
            (name, out), (of, shape) = outputs[i], arguments[j]
            r, c = pairs_of(f"{what} of {name} by {of}", x, out, shape, StructureError)
            pairs.append((r + rows[i], c + cols[j]))
    flat = np.unique(np.concatenate([r * width + c for r, c in pairs]).astype(np.int64))
    return flat // max(width, 1), flat % max(width, 1)
