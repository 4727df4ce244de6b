"""What operations do to the rows of Jacobians."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.extend import called, evaluate_equation, interpret, is_elementwise, parameters, programs
from fad.extend.types import Array, JaxEquation, JaxProgram
from fad.laplacians.jacobian_rows import (
    JacobianRows,
    RowPattern,
    added,
    aligned,
    has_duplicates,
    smallest,
)

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


# For each operand that a value depends on: along which axis of the value each of its axes is kept apart.
Kept = dict[int, tuple[int | None, ...]]


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
    apart = len(eqn.outvars) == 1 and is_elementwise(eqn)
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
    # For each value, and each operand that it depends on: along which axis that is kept apart.
    operands = closed.jaxpr.invars
    identities: list[Kept] = [{k: tuple(range(v.aval.ndim))} for k, v in enumerate(operands)]

    def equation(eqn: JaxEquation, kept: list[Kept]) -> list[Kept]:
        result: Kept = {}
        for of, axes in zip(kept, kept_axes(eqn), strict=True):
            for k, before in of.items():
                after = tuple([None if a is None else axes[a] for a in before])
                pairs = zip(result.get(k, after), after, strict=True)
                result[k] = tuple([a if a == b else None for a, b in pairs])
        return [result] * len(eqn.outvars)

    (of_out,) = interpret(closed, identities, equation, lambda constant: {})
    return [of_out.get(k, (None,) * v.aval.ndim) for k, v in enumerate(operands)]


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
    eqn: JaxEquation, jacobians: Sequence[JacobianRows | None]
) -> tuple[list[Array], RowPattern] | None:
    """Arrays with as many rows each, to rearrange as the values, and the pattern that they have then; None if
    the equation does something else, or rows are dense already.
    """
    move = _REARRANGE.get(eqn.primitive.name)
    rows = [g for g in jacobians if g is not None]
    if move is None or all([g.pattern.is_uniform() for g in rows]):
        return None
    count = max([len(g.pattern) for g in rows])
    if count * max([math.prod(v.aval.shape) for v in (*eqn.invars, *eqn.outvars)]) > LARGEST:
        return None
    at = []
    for g, v in zip(jacobians, eqn.invars, strict=True):
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
