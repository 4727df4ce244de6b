"""Jacobians as rows that hold, for each element, the derivatives by the coordinates that it depends on."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fad.extend.types import Array

# NOTE [rows of Jacobians]
#
#     f = fad.laplacian(lambda x: fnp.sum(fnp.tanh(x)))
#     assert "400,400" not in str(jax.make_jaxpr(fad.to_jax(f))(jnp.ones(400)))  # there is no dense Jacobian
#
# A Jacobian has an array of ``k`` rows, ``(k, *shape)``, and a pattern that says which coordinate a row is
# the derivative in: ``at``, integers of shape ``(k, *sizes)``, where a size is that of the value, or 1 along
# an axis where the pattern is the same. So a row may stand for another coordinate at each element; -1 is
# none, and the row is zero there. Coordinates themselves have one row, of ones. What a network computes of
# 16 particles one by one, ``(16, 32)``, has three rows, with ``at`` of shape ``(3, 16, 1)``. A dense Jacobian
# has the pattern that is the same at all elements, ``(n, 1, 1)``.
#
# Source: R. Li et al., "A computational framework for neural network-based variational Monte Carlo with
# Forward Laplacian", arXiv:2307.08214, which leaves zeros out of the Jacobians of particles in this way.


@jax.tree_util.register_static
class RowPattern:
    """Which coordinate each row stands for, at each element: ``at`` of NOTE [rows of Jacobians].

    No coordinate is twice at an element.
    """

    __slots__ = ("_key", "at")

    def __init__(self, at: np.ndarray) -> None:
        if not at.size:
            at = np.full([max(1, len(at)), *[1] * (at.ndim - 1)], -1)
        for axis in range(1, at.ndim):
            first = at.take([0], axis)
            at = first if (at == first).all() else at
        self.at = np.ascontiguousarray(at, np.int32)
        self._key = self.at.shape, self.at.tobytes()

    def __eq__(self, other: object) -> bool:
        return type(other) is RowPattern and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __len__(self) -> int:
        return len(self.at)

    def is_uniform(self) -> bool:
        """Whether it is the same at all elements."""
        return bool(self.at[0].size == 1)

    def uniform(self, axes: Sequence[int]) -> RowPattern:
        """The smallest pattern that holds this one, and is the same along ``axes`` of the value."""
        mixed = [a + 1 for a in axes if self.at.shape[a + 1] > 1]
        return _uniform(self, tuple(mixed)) if mixed else self

    def on_axes(self, axes: Sequence[int | None], ndim: int) -> RowPattern:
        """The pattern of a value of ``ndim`` axes, where axis ``i`` of this one is ``axes[i]``; it is the
        same along those that are None.
        """
        sizes = [1] * ndim
        for size, axis in zip(self.at.shape[1:], axes, strict=True):
            if axis is not None:
                sizes[axis] = size
        order = [axis for axis in axes if axis is not None]
        at = self.at.reshape(
            len(self), *[self.at.shape[i + 1] for i, a in enumerate(axes) if a is not None]
        )
        at = np.moveaxis(at, range(1, at.ndim), [1 + sorted(order).index(a) for a in order])
        return RowPattern(at.reshape(len(self), *sizes))

    def of_ndim(self, ndim: int) -> RowPattern:
        """The pattern of a value of ``ndim`` axes, if this one is dense; else this one."""
        if len(self.at.shape) == ndim + 1 or not self.is_uniform():
            return self
        return RowPattern(self.at.reshape(-1, *[1] * ndim))

    def apart(self, axis: int) -> RowPattern | None:
        """The pattern with one row for each row and each element along ``axis``, which is gone; None if the
        pattern is the same along it, or a coordinate is in two of these rows.
        """
        at = np.moveaxis(self.at, axis + 1, 1)
        at = at.reshape(-1, *at.shape[2:])
        return None if len(at) == len(self) or has_duplicates(at) else RowPattern(at)

    def __or__(self, other: RowPattern) -> RowPattern:
        """The smallest pattern that holds both."""
        return self if self == other else _union(self, other)


@functools.lru_cache(maxsize=128)
def _uniform(pattern: RowPattern, axes: tuple[int, ...]) -> RowPattern:
    at = np.moveaxis(pattern.at, axes, range(1, len(axes) + 1))
    at = at.reshape(-1, *at.shape[len(axes) + 1 :])
    return RowPattern(np.expand_dims(_without_duplicates(at), axes))


@functools.lru_cache(maxsize=128)
def _union(a: RowPattern, b: RowPattern) -> RowPattern:
    sizes = np.broadcast_shapes(a.at.shape[1:], b.at.shape[1:])
    both = [np.broadcast_to(p.at, (len(p), *sizes)) for p in (a, b)]
    return RowPattern(_without_duplicates(np.concatenate(both)))


def _without_duplicates(at: np.ndarray) -> np.ndarray:
    """``at`` with each coordinate once at an element, in as few rows as that takes; where these are more
    than half of all coordinates, all of them at all elements.
    """
    everywhere = np.unique(at)
    everywhere = everywhere[everywhere >= 0]
    order = np.argsort(at, 0, kind="stable")
    ordered = np.take_along_axis(at, order, 0)
    ordered[1:][ordered[1:] == ordered[:-1].copy()] = -1
    count = max(1, int((ordered >= 0).sum(0).max(initial=0)))
    if 2 * count > len(everywhere):
        return everywhere.reshape(-1, *[1] * (at.ndim - 1))
    np.put_along_axis(at := at.copy(), order, ordered, 0)  # in the order of before: see `_mask`
    at = at[(at >= 0).any(tuple(range(1, at.ndim)))]
    return at if len(at) == count else -np.sort(-at, 0)[:count]


def has_duplicates(at: np.ndarray) -> bool:
    """Whether a coordinate is in several rows at an element."""
    at = np.sort(at, 0)
    return bool(((at[1:] == at[:-1]) & (at[1:] >= 0)).any())


def dense_pattern(patterns: Sequence[RowPattern]) -> RowPattern:
    """The pattern of a number that holds all of these."""
    at = np.unique(np.concatenate([p.at.ravel() for p in patterns]))
    return RowPattern(at[at >= 0])


def union(patterns: Sequence[RowPattern]) -> RowPattern:
    """The smallest pattern that holds all of these."""
    return functools.reduce(RowPattern.__or__, patterns)


def smallest(patterns: Sequence[RowPattern]) -> RowPattern:
    """The one with the fewest rows."""
    return min(patterns, key=len)


def coordinates(start: int, shape: Sequence[int]) -> RowPattern:
    """The pattern of coordinates themselves, of which the first is the one of this number."""
    return RowPattern(np.arange(start, start + math.prod(shape)).reshape(1, *shape))


FEW = 8  # rows, up to which each is chosen by a mask, which compiles to faster code than indices


class JacobianRows(NamedTuple):
    """Rows and their pattern; see NOTE [rows of Jacobians]."""

    array: Any
    pattern: RowPattern

    def to(self, pattern: RowPattern) -> Any:
        """The array of rows in another ``pattern``, without those of coordinates that it does not have."""
        if pattern == self.pattern:
            return self.array
        rows = _rows_in(self.pattern, pattern)
        if rows[0].size == 1:
            rows = rows.ravel()
            taken = self.array[np.maximum(rows, 0)]
            return taken if (rows >= 0).all() else _where(rows >= 0, taken)
        if len(self.array) > FEW:
            taken = jnp.take_along_axis(self.array, np.maximum(rows, 0), 0)
            return _where(rows >= 0, taken)
        at = pattern.at
        coordinates = self.pattern.at
        masked = [_where(_mask(coordinates[k : k + 1], at), x) for k, x in enumerate(self.array)]
        return functools.reduce(jnp.add, masked)

    def uniform(self, axes: Sequence[int]) -> JacobianRows:
        """Rows that stand for the same coordinates along ``axes``."""
        pattern = self.pattern.uniform(axes)
        return JacobianRows(self.to(pattern), pattern)

    def of_ndim(self, ndim: int) -> JacobianRows:
        """Those of a value of ``ndim`` axes, as a number is one in an operation with others."""
        shape = self.array.shape
        if len(shape) == ndim + 1:
            return self
        return JacobianRows(
            self.array.reshape(len(self.array), *[1] * ndim), self.pattern.of_ndim(ndim)
        )

    def map(self, f: Callable[[Array], Array]) -> JacobianRows:
        """``f`` of the array, in the same pattern."""
        return JacobianRows(f(self.array), self.pattern)


class Coordinates(NamedTuple):
    """The Jacobian of coordinates themselves, from the one of this number on: one row, of ones."""

    first: int

    def rows(self, value: Array) -> JacobianRows:
        """The same, of the ``value`` of the coordinates."""
        one = jnp.ones((1, *value.shape), value.dtype)
        return JacobianRows(one, coordinates(self.first, value.shape))


@functools.lru_cache(maxsize=128)
def _rows_in(pattern: RowPattern, other: RowPattern) -> np.ndarray:
    """For each row of ``other``, at each element, the row of ``pattern`` for its coordinate; -1: none."""
    rows = np.full(np.broadcast_shapes(pattern.at[:1].shape, other.at.shape), -1)
    for row, at in enumerate(pattern.at):
        rows[(at == other.at) & (other.at >= 0)] = row
    return rows


def _where(mask: Array | np.ndarray, x: Array) -> Array:
    return jnp.where(
        mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)), x, jnp.zeros((), x.dtype)
    )


def _mask(row: np.ndarray, other: np.ndarray) -> Any:
    """Where a row of one pattern stands for the coordinate of another pattern.

    Mostly their numbers grow evenly along each axis. Then the mask is computed where it is used, which takes
    less time than to read it. Where a row stands for none, it is zero, and the mask may say anything.
    """
    steps, of_other = _steps(row), _steps(other)
    if steps is None or of_other is None or (other < 0).any():
        return (row == other) & (other >= 0)
    shape = np.broadcast_shapes(row.shape, other.shape)
    return _numbers(steps, shape) == _numbers(of_other, shape)


def _steps(at: np.ndarray) -> np.ndarray | None:
    """The first of numbers that grow evenly, and by how much along each axis; -1 may be any of them."""
    places = np.argwhere(at >= 0)
    if not len(places):
        return None
    system = np.insert(places, 0, 1, 1)
    steps = np.linalg.lstsq(system, at[at >= 0], rcond=None)[0].round().astype(np.int32)
    return steps if (system @ steps == at[at >= 0]).all() else None


def _numbers(steps: np.ndarray, shape: tuple[int, ...]) -> Array:
    total = jnp.full(shape, steps[0], np.int32)
    for axis, step in enumerate(steps[1:]):
        if step:
            total += step * jax.lax.broadcasted_iota(np.int32, shape, axis)
    return total


def added(a: JacobianRows | None, b: JacobianRows) -> JacobianRows:
    """The sum of two Jacobians; None is zero."""
    if a is None:
        return b
    pattern = a.pattern | b.pattern
    return JacobianRows(a.to(pattern) + b.to(pattern), pattern)


def aligned(
    jacobians: Sequence[JacobianRows],
    axes: Sequence[tuple[int | None, ...]],
    ndim: int,
    choose: Callable[[Sequence[RowPattern]], RowPattern] = union,
) -> tuple[list[Array], RowPattern]:
    """Arrays with the same coordinate in each row, for an operation that takes all of them at once.

    Arguments:
        jacobians: the Jacobians of its operands.
        axes: for each operand, `kept_axes`.
        ndim: of the result.
        choose: the pattern of the result, from those of the operands: that of all coordinates of a sum; for
            the sum over all rows of a product it is enough to take those of one factor.

    Returns:
        The arrays, and the pattern of the result.
    """
    shared = set.intersection(*map(set, axes)) - {None}
    kept = [tuple([a if a in shared else None for a in of_one]) for of_one in axes]
    patterns = [
        rows.pattern.uniform([i for i, a in enumerate(of_one) if a is None]).on_axes(of_one, ndim)
        for rows, of_one in zip(jacobians, kept, strict=True)
    ]
    result = choose(patterns)
    arrays = []
    for rows, of_one in zip(jacobians, kept, strict=True):
        places: list[int | None] = [None] * ndim
        for i, a in enumerate(of_one):
            if a is not None:
                places[a] = i
        arrays.append(rows.to(result.on_axes(places, len(of_one))))
    return arrays, result
