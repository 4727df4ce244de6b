"""The rule of a convolution: an element of the result depends on a window of each operand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fad.extend import parameters
from fad.extend.types import JaxEquation
from fad.sparse.entries import Entries, check, send, take, unite


def convolution(
    eqn: JaxEquation, sets: Sequence[Entries | None], constants: Sequence[Any], width: int
) -> list[Entries | None]:
    """``conv_general_dilated``: the elements that are multiplied to each element of the result."""
    avals = [v.aval for v in eqn.invars]
    out = eqn.outvars[0].aval.shape
    dims = parameters(eqn)[0]
    order, size = dims[2], math.prod(out)
    check(float(size) * avals[1].size / max(avals[1].shape[dims[1][0]], 1))
    rows = np.arange(size).reshape(out).transpose(order).ravel()
    parts = []
    for entries, numbers in zip(sets, _sources(eqn, [a.shape for a in avals], out), strict=True):
        target = np.repeat(rows, numbers.size // max(size, 1))
        parts.append(send(take(entries, numbers, width), target, width))
    return [unite(parts)]


def _sources(
    eqn: JaxEquation, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """For each element of the result, by batch, channel and space: which elements of both operands are
    multiplied to it, or -1.
    """
    dims, strides, padding, dilation, kernel_dilation, groups, batch_groups = parameters(eqn)
    (_, _, *space), (_, channels_in, *kernel) = dims[0], dims[1]
    left, right = (
        np.arange(math.prod(shape)).reshape(shape).transpose(order)  # batch, channel, space
        for shape, order in zip(shapes, dims[:2], strict=True)
    )
    sizes = [out[d] for d in dims[2]]
    batch, features, *places = np.indices(sizes).reshape(len(sizes), -1)
    per_group = shapes[1][channels_in]
    lanes = batch + (features // (sizes[1] // batch_groups)) * sizes[0]
    first = (features // (sizes[1] // groups)) * per_group
    columns: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    windows = [range(shapes[1][d]) for d in kernel]
    for channel, offset in itertools.product(range(per_group), itertools.product(*windows)):
        inside = np.ones(len(batch), bool)
        at = []
        for k, d in enumerate(space):
            dilated = places[k] * strides[k] + offset[k] * kernel_dilation[k] - padding[k][0]
            position = dilated // dilation[k]
            inside &= (dilated % dilation[k] == 0) & (position >= 0) & (position < shapes[0][d])
            at.append(np.clip(position, 0, max(shapes[0][d] - 1, 0)))
        columns[0].append(np.where(inside, left[(lanes, first + channel, *at)], -1))
        columns[1].append(np.where(inside, right[(features, channel, *offset)], -1))
    nothing = np.zeros((len(batch), 0), np.int64)
    lhs, rhs = (np.stack(c, 1) if c else nothing for c in columns)
    return lhs, rhs
