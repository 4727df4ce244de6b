"""Jacobians as rows that hold, for each element, the derivatives by the coordinates that it depends on."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.jaxapi import Literal, called, evaluate_equation, parameters, programs
from fad.core.jaxprs import is_elementwise_equation
from fad.core.types import Array, Atom, JaxEquation, JaxProgram, NumpyArray

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
        own = self.pattern.at
        given = [_where(_mask(own[k : k + 1], at), x) for k, x in enumerate(self.array)]
        return functools.reduce(jnp.add, given)

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
    found = np.full(np.broadcast_shapes(pattern.at[:1].shape, other.at.shape), -1)
    for row, at in enumerate(pattern.at):
        found[(at == other.at) & (other.at >= 0)] = row
    return found


def _where(mask: Array | NumpyArray, x: Array) -> Array:
    return jnp.where(
        mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)), x, jnp.zeros((), x.dtype)
    )


def _mask(own: np.ndarray, other: np.ndarray) -> Any:
    """Where a row of one pattern stands for the coordinate of another pattern.

    Mostly their numbers grow evenly along each axis. Then the mask is computed where it is used, which takes
    less time than to read it. Where a row stands for none, it is zero, and the mask may say anything.
    """
    steps, of_other = _steps(own), _steps(other)
    if steps is None or of_other is None or (other < 0).any():
        return (own == other) & (other >= 0)
    shape = np.broadcast_shapes(own.shape, other.shape)
    return _numbers(steps, shape) == _numbers(of_other, shape)


def _steps(at: np.ndarray) -> np.ndarray | None:
    """The first of numbers that grow evenly, and by how much along each axis; -1 may be any of them."""
    places = np.argwhere(at >= 0)
    if not len(places):
        return None
    system = np.insert(places, 0, 1, 1)
    found = np.linalg.lstsq(system, at[at >= 0], rcond=None)[0].round().astype(np.int32)
    return found if (system @ found == at[at >= 0]).all() else None


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
    given: Sequence[JacobianRows],
    axes: Sequence[tuple[int | None, ...]],
    ndim: int,
    choose: Callable[[Sequence[RowPattern]], RowPattern] = union,
) -> tuple[list[Array], RowPattern]:
    """Arrays with the same coordinate in each row, for an operation that takes all of them at once.

    Arguments:
        given: the Jacobians of its operands.
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
        for rows, of_one in zip(given, kept, strict=True)
    ]
    result = choose(patterns)
    arrays = []
    for rows, of_one in zip(given, kept, strict=True):
        places: list[int | None] = [None] * ndim
        for i, a in enumerate(of_one):
            if a is not None:
                places[a] = i
        arrays.append(rows.to(result.on_axes(places, len(of_one))))
    return arrays, result


# What operations do to the rows of Jacobians.

# NOTE [operations on rows]
#
#     f = fad.laplacian(lambda x: fnp.sum(fnp.tanh(jnp.ones((7, 400)) @ x)))
#     assert "400,400" not in str(jax.make_jaxpr(fad.to_jax(f))(jnp.ones(400)))  # nor an identity matrix
#
# Two tables say what an operation does to elements:
#
# * it rearranges them (`_REARRANGE`), and does the same to the pattern;
# * it mixes the elements along some axes, and keeps them apart along others (`_KEEP`, and all functions of
#   each element). It is applied to each row, once the pattern is the same along all axes that it mixes.
#
# All others mix all axes: rows become dense, in all coordinates that occur in their patterns.
#
# A sum, or a product with a constant, over an axis along which each element has coordinates of its own, is
# no sum at all for the Jacobian: what was along that axis are rows then. That is so for the first layer of a
# network, whose Jacobian is the matrix itself, and for what adds up particles.


def kept_axes(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    """For each operand of an equation and each of its axes: along which axis of the result it keeps elements
    apart; None where it mixes them.
    """
    if eqn.primitive.name in _KEEP:
        return _KEEP[eqn.primitive.name](eqn)
    if eqn.primitive.name == "custom_jvp_call" and len(eqn.outvars) == 1:
        return _of_program(next(programs(eqn)))
    closed = called(eqn) if len(eqn.outvars) == 1 else None
    if closed is not None:
        return _of_program(closed)
    out = eqn.outvars[0].aval.shape
    apart = len(eqn.outvars) == 1 and is_elementwise_equation(eqn)
    return [
        tuple(
            [
                a if apart and len(shape) == len(out) and n == out[a] else None
                for a, n in enumerate(shape)
            ]
        )
        for shape in [v.aval.shape for v in eqn.invars]
    ]


def _of_program(closed: JaxProgram) -> list[tuple[int | None, ...]]:
    """`kept_axes` of a program with one result, by those of its equations."""
    jaxpr = closed.jaxpr
    # For each value, and each operand that it depends on: along which axis that is kept apart.
    kept: dict[Atom, dict[int, tuple[int | None, ...]]] = {
        v: {k: tuple(range(v.aval.ndim))} for k, v in enumerate(jaxpr.invars)
    }
    for eqn in jaxpr.eqns:
        found: dict[int, tuple[int | None, ...]] = {}
        for v, axes in zip(eqn.invars, kept_axes(eqn), strict=True):
            for k, before in ({} if isinstance(v, Literal) else kept.get(v, {})).items():
                after = tuple([None if a is None else axes[a] for a in before])
                pairs = zip(found.get(k, after), after, strict=True)
                found[k] = tuple([a if a == b else None for a, b in pairs])
        kept.update(dict.fromkeys(eqn.outvars, found))
    (out,) = jaxpr.outvars
    of_out = {} if isinstance(out, Literal) else kept.get(out, {})
    return [of_out.get(k, (None,) * v.aval.ndim) for k, v in enumerate(jaxpr.invars)]


def _of_reduction(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    (mixed,) = parameters(eqn)
    kept = iter(range(eqn.invars[0].aval.ndim))
    return [tuple([None if a in mixed else next(kept) for a in range(eqn.invars[0].aval.ndim)])]


def _of_cumulation(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    (axis,) = parameters(eqn)
    return [tuple([None if a == axis else a for a in range(eqn.invars[0].aval.ndim)])]


def _of_dot(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    ((contracted, batched),) = parameters(eqn)
    result: list[tuple[int | None, ...]] = []
    free = len(batched[0])
    for v, mixed, batch in zip(eqn.invars, contracted, batched, strict=True):
        of_one: list[int | None] = []
        for a in range(v.aval.ndim):
            if a in batch:
                of_one.append(batch.index(a))
            elif a in mixed:
                of_one.append(None)
            else:
                of_one.append(free)
                free += 1
        result.append(tuple(of_one))
    return result


def _of_slice(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    """Of a slice at a variable position, or the update of one."""
    whole, *others = [v.aval.shape for v in eqn.invars]
    part = next(filter(None, others), ()) or eqn.outvars[0].aval.shape
    axes = tuple([a if n == part[a] else None for a, n in enumerate(whole)])
    return [axes, *[axes if shape else () for shape in others]]


def _of_gather(eqn: JaxEquation) -> list[tuple[int | None, ...]]:
    numbers, sizes = parameters(eqn)
    shape = eqn.invars[0].aval.shape
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    places = iter(numbers.offset_dims)
    along = [None if a in gone else next(places) for a in range(len(shape))]
    kept = [p if sizes[a] == shape[a] else None for a, p in enumerate(along)]
    return [tuple(kept), (None,) * eqn.invars[1].aval.ndim]


def _factor_axes(eqn: JaxEquation) -> tuple[list[tuple[int | None, ...]], int]:
    """As `kept_axes`, for the axes of the factors of a product before they are summed, and their number."""
    if eqn.primitive.name != "dot_general":
        return kept_axes(eqn), eqn.outvars[0].aval.ndim
    ((contracted, batched),) = parameters(eqn)
    result = []
    for v, mixed, batch in zip(eqn.invars, contracted, batched, strict=True):
        common = [*batch, *mixed]
        result.append(tuple([common.index(a) if a in common else None for a in range(v.aval.ndim)]))
    return result, len(common)


def rows_of_product(eqn: JaxEquation, place: int, rows: JacobianRows, other: Array) -> JacobianRows:
    """The Jacobian of a product, where factor ``place`` has these ``rows``, and the ``other`` is constant."""

    def product(x: Array, **changed: object) -> Array:
        return evaluate_equation(eqn, [x, other] if place == 0 else [other, x], **changed)[0]

    apart = _without_contraction(eqn, place, rows.pattern)
    if apart is not None:
        array = jax.vmap(functools.partial(product, dimension_numbers=apart[0]))(rows.array)
        return JacobianRows(array.reshape(-1, *array.shape[2:]), apart[1])
    (array,), pattern = aligned([rows], [kept_axes(eqn)[place]], eqn.outvars[0].aval.ndim)
    return JacobianRows(jax.vmap(product)(array), pattern)


def rows_of_sum(eqn: JaxEquation, rows: JacobianRows) -> JacobianRows:
    """The Jacobian of a sum over axes; first along those where a row stands for the same coordinate."""
    (axes,) = parameters(eqn)
    at = rows.pattern.at
    groups: dict[tuple[int, ...], list[int]] = {}
    sums = []
    for k, row in enumerate(at):
        same = []
        for a in axes:
            rest = row.max(a, keepdims=True)
            if ((row == rest) | (row < 0)).all():
                row = rest
                same.append(a)
        groups.setdefault(tuple(same), []).append(k)
        sums.append(row)
    parts = {along: np.stack([sums[k] for k in of]) for along, of in groups.items()}
    if any(map(has_duplicates, parts.values())):
        groups, parts = {(): [*range(len(at))]}, {(): at}
    total: Any = None
    for along, of in groups.items():
        array = rows.array if len(of) == len(at) else rows.array[np.array(of)]
        array = jnp.sum(array, [a + 1 for a in along], keepdims=True)
        part = JacobianRows(array, RowPattern(parts[along]))
        total = added(total, _summed(part, axes, along))
    return JacobianRows(*total)


def _summed(rows: JacobianRows, axes: Sequence[int], done: Sequence[int]) -> JacobianRows:
    """The sum over ``axes``, of which those that are ``done`` have size 1."""
    left = [a for a in axes if a not in done]
    kept = [a for a in range(rows.array.ndim - 1) if a not in axes]
    apart = rows.pattern.apart(left[0]) if len(left) == 1 else None
    if apart is not None:
        array = jnp.moveaxis(rows.array, left[0] + 1, 1)
        array = array.reshape(-1, *[rows.array.shape[a + 1] for a in kept])
        at = apart.at.reshape(len(array), *[rows.pattern.at.shape[a + 1] for a in kept])
        return JacobianRows(array, RowPattern(at))
    array, pattern = rows.uniform(left)
    order: list[int | None] = [kept.index(a) if a in kept else None for a in range(array.ndim - 1)]
    return JacobianRows(jnp.sum(array, [a + 1 for a in axes]), pattern.on_axes(order, len(kept)))


def sum_of_row_products(eqn: JaxEquation, jacobians: list[JacobianRows]) -> Array:
    """The sum over all coordinates of the products of the Jacobians of two factors.

    It takes a product for each coordinate that they may share, or, if that is less, one for each pair of
    their rows, of which the parts with the same coordinate are added up.
    """

    def product(x: Array, y: Array) -> Array:
        return evaluate_equation(eqn, [x, y])[0]

    axes, ndim = _factor_axes(eqn)
    shared, pattern = aligned(jacobians, axes, ndim, smallest)
    kept, size = kept_axes(eqn), eqn.outvars[0].aval.ndim
    ((x,), of_x), ((y,), of_y) = [
        aligned([j], [k], size) for j, k in zip(jacobians, kept, strict=True)
    ]
    if len(of_x) * len(of_y) >= len(pattern):
        return jnp.sum(jax.vmap(product)(*shared), 0)
    pairs = jax.vmap(jax.vmap(product, (None, 0)), (0, None))(x, y)
    same = (of_x.at[:, None] == of_y.at) & (of_y.at >= 0)
    return jnp.sum(jnp.where(same, pairs, 0), (0, 1))


def _without_contraction(
    eqn: JaxEquation, place: int, pattern: RowPattern
) -> tuple[Any, RowPattern] | None:
    """The dimension numbers without the sum over an axis along which each element has coordinates of its own,
    and the pattern of that product, where the axis is among the rows. None if there is no such axis.
    """
    if eqn.primitive.name != "dot_general":
        return None
    ((contracted, batched),) = parameters(eqn)
    several = [a for a in contracted[place] if pattern.at.shape[a + 1] > 1]
    spread = pattern.apart(several[0]) if len(several) == 1 else None
    if spread is None:
        return None
    k = contracted[place].index(several[0])
    numbers = (
        tuple([tuple([a for i, a in enumerate(of) if i != k]) for of in contracted]),
        tuple([(of[k], *batch) for of, batch in zip(contracted, batched, strict=True)]),
    )
    axes: list[int | None] = list(kept_axes(eqn)[place])
    del axes[several[0]]
    return numbers, spread.on_axes(axes, eqn.outvars[0].aval.ndim)


_KEEP: dict[str, Callable[[JaxEquation], list[tuple[int | None, ...]]]] = {
    "dot_general": _of_dot,
    "dynamic_slice": _of_slice,
    "dynamic_update_slice": _of_slice,
    "gather": _of_gather,
    **dict.fromkeys("reduce_sum reduce_max reduce_min reduce_prod".split(), _of_reduction),
    **dict.fromkeys("cumlogsumexp cummax cummin cumprod cumsum".split(), _of_cumulation),
}


Rows = list[np.ndarray]  # of a pattern, with all elements, for each operand

LARGEST = 1 << 22  # elements of a pattern that is computed element by element


def rearranged(
    eqn: JaxEquation, given: Sequence[JacobianRows | None]
) -> tuple[list[Array], RowPattern] | None:
    """Arrays with as many rows each, to rearrange as the values, and the pattern that they have then; None if
    the equation does something else, or rows are dense already.
    """
    move = _REARRANGE.get(eqn.primitive.name)
    rows = [g for g in given if g is not None]
    if move is None or all([g.pattern.is_uniform() for g in rows]):
        return None
    count = max([len(g.pattern) for g in rows])
    if count * max([math.prod(v.aval.shape) for v in (*eqn.invars, *eqn.outvars)]) > LARGEST:
        return None
    at = []
    for g, v in zip(given, eqn.invars, strict=True):
        full = np.full((count, *v.aval.shape), -1, np.int32)
        if g is not None:
            full[: len(g.pattern)] = g.pattern.at
        at.append(full)
    arrays = [
        jnp.pad(g.array, [(0, count - len(g.pattern)), *[(0, 0)] * (g.array.ndim - 1)])
        for g in rows
    ]
    return arrays, RowPattern(move(eqn, at))


def _reshaped(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return at[0].reshape(-1, *eqn.outvars[0].aval.shape)


def _reordered(eqn: JaxEquation, at: Rows) -> np.ndarray:
    (order,) = parameters(eqn)
    at = at if order is None else [at[0].transpose(0, *[a + 1 for a in order])]
    return _reshaped(eqn, at)


def _broadcast(eqn: JaxEquation, at: Rows) -> np.ndarray:
    shape, places = parameters(eqn)
    sizes = [1] * len(shape)
    for size, place in zip(at[0].shape[1:], places, strict=True):
        sizes[place] = size
    return np.broadcast_to(at[0].reshape(-1, *sizes), (len(at[0]), *shape))


def _sliced(eqn: JaxEquation, at: Rows) -> np.ndarray:
    start, stop, step = parameters(eqn)
    step = step or (1,) * len(start)
    return at[0][(slice(None), *map(slice, start, stop, step))]


def _tiled(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return np.tile(at[0], (1, *parameters(eqn)[0]))


def _transposed(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return at[0].transpose(0, *[a + 1 for a in parameters(eqn)[0]])


def _reversed(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return np.flip(at[0], tuple([a + 1 for a in parameters(eqn)[0]]))


def _concatenated(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return np.concatenate(at, parameters(eqn)[0] + 1)


def _stacked(eqn: JaxEquation, at: Rows) -> np.ndarray:
    return np.stack(at, parameters(eqn)[0] + 1)


_REARRANGE: dict[str, Callable[[JaxEquation, Rows], np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenated,
    "expand_dims": _reshaped,
    "reshape": _reordered,
    "rev": _reversed,
    "slice": _sliced,
    "squeeze": _reshaped,
    "stack": _stacked,
    "tile": _tiled,
    "transpose": _transposed,
}
