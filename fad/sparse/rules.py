"""The rule of each operation of JAX: on which elements of its operands an element of its result depends.

A rule gets the equation, the entries of each operand (None: it depends on nothing), the values of those
operands that are known, and the width of the pattern. It returns the entries of each result. An operation
without a rule works element by element where JAX's do; else it couples everything: each element of a result
depends on all that any operand depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fad.extend import evaluate_equation, parameters, scattered_to
from fad.extend.types import Aval, JaxEquation
from fad.sparse.convolutions import convolution
from fad.sparse.entries import Entries, couple, send, take, unite


class Constant:
    """A value that is the same at each call. It is computed when a rule asks for it."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], object]) -> None:
        self._make: Callable[[], object] | None = make
        self._value: Any = None

    def value(self) -> np.ndarray:
        """The value, as NumPy's array."""
        if self._make is not None:
            with jax.ensure_compile_time_eval():
                self._value = np.asarray(self._make())
            self._make = None
        return self._value


Sets = Sequence[Entries | None]
Constants = Sequence[Constant | None]
Rule = Callable[[JaxEquation, Sets, Constants, int], list[Entries | None]]


def couples(eqn: JaxEquation, sets: Sets, constants: Constants, width: int) -> list[Entries | None]:
    """All results depend on all of the operands."""
    union = unite(sets)
    return [couple(union, v.aval.size, width) for v in eqn.outvars]


def elementwise(
    eqn: JaxEquation, sets: Sets, constants: Constants, width: int
) -> list[Entries | None]:
    """An element depends on those at its place; operands are broadcast."""
    return [
        unite([_spread(s, v.aval, o.aval, width) for s, v in zip(sets, eqn.invars, strict=True)])
        for o in eqn.outvars
    ]


def _spread(entries: Entries | None, aval: Aval, out: Aval, width: int) -> Entries | None:
    if aval.shape == out.shape:
        return entries
    return take(entries, np.broadcast_to(_numbers(aval), out.shape), width)


def choice(eqn: JaxEquation, sets: Sets, constants: Constants, width: int) -> list[Entries | None]:
    """``select_n``: where the predicate is known, the element that it chooses."""
    out = eqn.outvars[0].aval
    if constants[0] is None:
        return elementwise(eqn, [None, *sets[1:]], constants, width)
    chosen = np.broadcast_to(constants[0].value().astype(np.int64), out.shape).ravel()
    place = np.arange(out.size)
    return [
        unite([take(s, np.where(chosen == k, place, -1), width) for k, s in enumerate(sets[1:])])
    ]


def movement(data: int | None) -> Rule:
    """Elements of the first ``data`` operands come out elsewhere, as the other operands say.

    Where they go is seen by the operation itself, done on the numbers of the elements.
    """

    def rule(
        eqn: JaxEquation, sets: Sets, constants: Constants, width: int
    ) -> list[Entries | None]:
        count = len(sets) if data is None else data
        if any([k is None for k in constants[count:]]):
            return couples(eqn, sets[:count], constants, width)
        positions = [k.value() for k in constants[count:] if k is not None]
        results: list[list[Entries | None]] = [[] for _ in eqn.outvars]
        for k, entries in enumerate(sets[:count]):
            if entries is None:
                continue
            operands = [
                _numbers(v.aval) if j == k else np.full(v.aval.shape, -1, np.int32)
                for j, v in enumerate(eqn.invars[:count])
            ]
            outs = _moved(eqn, [*operands, *positions])
            for result, source in zip(results, outs, strict=True):
                result.append(take(entries, np.asarray(source), width))
        return [unite(r) for r in results]

    return rule


def _numbers(aval: Aval) -> np.ndarray:
    return np.arange(aval.size, dtype=np.int32).reshape(aval.shape)


def _moved(eqn: JaxEquation, operands: Sequence[np.ndarray]) -> Sequence[Any]:
    """The operation on these operands; the frequent ones without compiling it."""
    by_numpy = BY_NUMPY.get(eqn.primitive.name)
    if by_numpy is not None:
        return [by_numpy(parameters(eqn), *operands)]
    with jax.ensure_compile_time_eval():
        return evaluate_equation(eqn, [jax.numpy.asarray(x) for x in operands])


def _broadcast(parameters: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
    whole, axes = parameters
    shape = [1] * len(whole)
    for size, axis in zip(x.shape, axes, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), whole)


def _sliced(parameters: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
    starts, limits, strides = parameters
    bounds = zip(starts, limits, strides or [1] * x.ndim, strict=True)
    return x[tuple([slice(*b) for b in bounds])]


BY_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda p, *xs: np.concatenate(xs, *p),
    "rev": lambda p, x: np.flip(x, *p),
    "slice": _sliced,
    "stack": lambda p, *xs: np.stack(xs, *p),
    "squeeze": lambda p, x: np.squeeze(x, *p),
    "transpose": lambda p, x: np.transpose(x, *p),
}


def reshape(eqn: JaxEquation, sets: Sets, constants: Constants, width: int) -> list[Entries | None]:
    """The elements keep their order."""
    return couples(eqn, sets, constants, width) if parameters(eqn)[0] else [sets[0]]


def unchanged(
    eqn: JaxEquation, sets: Sets, constants: Constants, width: int
) -> list[Entries | None]:
    """Each result is one of the operands, in order."""
    return list(sets)


def reduction(
    eqn: JaxEquation, sets: Sets, constants: Constants, width: int
) -> list[Entries | None]:
    """An element depends on those along the axes that are reduced."""
    (axes,) = parameters(eqn)
    return [send(sets[0], _reduced(eqn.invars[0].aval.shape, axes), width)]


def _reduced(shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """For each element, its number where ``axes`` are left out."""
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    return np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape)


def along_axis(
    eqn: JaxEquation, sets: Sets, constants: Constants, width: int
) -> list[Entries | None]:
    """An element depends on all along one axis."""
    shape = eqn.invars[0].aval.shape
    lines = _reduced(shape, parameters(eqn))
    return [take(send(sets[0], lines, width), lines, width)]


def product(eqn: JaxEquation, sets: Sets, constants: Constants, width: int) -> list[Entries | None]:
    """``dot_general``: elements of a row with elements of a column; zeros of a known factor drop out."""
    ((contracted, batch),) = parameters(eqn)
    out = eqn.outvars[0].aval.shape
    parts = []
    for k, entries in enumerate(sets):
        if entries is None:
            continue
        shape, other = eqn.invars[k].aval.shape, eqn.invars[1 - k].aval.shape
        mine = [i for i in range(len(shape)) if i not in (*contracted[k], *batch[k])]
        factor = constants[1 - k]
        if factor is not None and not batch[0]:
            values = factor.value()
            rest_of = [i for i in range(len(other)) if i not in contracted[1 - k]]
            matrix = values.transpose([*contracted[1 - k], *rest_of])
            inner = math.prod(matrix.shape[: len(contracted[k])])
            matrix = matrix.reshape(inner, -1)
            mids, ends = np.nonzero(matrix)
            numbers = _numbers(eqn.invars[k].aval).transpose([*mine, *contracted[k]])
            numbers = numbers.reshape(-1, inner)
            outs = np.arange(math.prod(out)).reshape(
                (-1, matrix.shape[1]) if k == 0 else (matrix.shape[1], -1)
            )
            outs = outs if k == 0 else outs.T
            parts.append(send(take(entries, numbers[:, mids], width), outs[:, ends].ravel(), width))
            continue
        rest = len(other) - len(contracted[k]) - len(batch[k])
        reduced = _reduced(shape, contracted[k])
        rows = send(entries, reduced, width)
        sizes = [n for i, n in enumerate(shape) if i not in contracted[k]]
        numbers = np.arange(math.prod(sizes)).reshape(sizes)
        # Of the operand: the batch in the order of the result, then its own axes.
        left = [i for i in range(len(shape)) if i not in contracted[k]]
        numbers = numbers.transpose([left.index(i) for i in (*batch[k], *mine)])
        n = len(batch[k])
        head, tail = numbers.shape[:n], numbers.shape[n:]
        new = (*head, *tail, *[1] * rest) if k == 0 else (*head, *[1] * rest, *tail)
        parts.append(take(rows, np.broadcast_to(numbers.reshape(new), out), width))
    return [unite(parts)]


def scatter(replaces: bool) -> Rule:
    """Updates are written to, or combined with, elements of the operand at positions."""

    def rule(
        eqn: JaxEquation, sets: Sets, constants: Constants, width: int
    ) -> list[Entries | None]:
        operand, _, updates = (v.aval for v in eqn.invars)
        if constants[1] is None:
            return [unite([sets[0], couple(sets[2], operand.size, width)])]
        p, mode = parameters(eqn)
        with jax.ensure_compile_time_eval():
            indices = jax.numpy.asarray(constants[1].value())
            target = scattered_to(operand.shape, updates.shape, indices, p, mode, -1)
        to = np.asarray(target)
        assert to.shape == updates.shape, "an element of the updates has one position"
        kept = np.arange(operand.size)
        if replaces:
            kept[to[to >= 0]] = -1
        return [unite([take(sets[0], kept, width), send(sets[2], to, width)])]

    return rule


_MOVEMENTS = """broadcast_in_dim concatenate expand_dims pad rev slice split squeeze stack tile transpose
    unstack"""
_REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS.split(), reduction),
    **dict.fromkeys(_MOVEMENTS.split(), movement(None)),
    "conv_general_dilated": convolution,
    "cumlogsumexp": along_axis,
    "cummax": along_axis,
    "cummin": along_axis,
    "cumprod": along_axis,
    "cumsum": along_axis,
    "dot_general": product,
    "dynamic_slice": movement(1),
    "dynamic_update_slice": movement(2),
    "gather": movement(1),
    "optimization_barrier": unchanged,
    "reshape": reshape,
    "scatter": scatter(True),
    "scatter-add": scatter(False),
    "scatter-max": scatter(False),
    "scatter-min": scatter(False),
    "scatter-mul": scatter(False),
    "scatter_add": scatter(False),
    "select_n": choice,
}
