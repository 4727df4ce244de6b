"""The entries of a buffer: operations with their outputs."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from typing import Any

from fad.core.tensor import Tensor
from fad.replay.inputs import Input
from fad.replay.program import Known
from fad.replay.states import State

__all__ = ["Entry", "entry_of", "known_of", "origin_of", "outputs_of"]

# The state after an operation; its output, or a list of outputs; how many inputs there are by then.
Entry = tuple[State, Any, int]


def outputs_of(entries: Sequence[Any]) -> list[Tensor]:
    """All outputs, by their numbers."""
    found: list[Tensor] = []
    for step, out, _ in entries[1:]:
        if step.single:
            found.append(out)
        else:
            found += out
    return found


def entry_of(entries: Sequence[Any], place: int) -> int:
    """The number of the entry that an output belongs to."""
    low, high = 1, len(entries) - 1
    while low < high:
        middle = (low + high) // 2
        if entries[middle][0].size > place:
            high = middle
        else:
            low = middle + 1
    return low


def origin_of(path: Sequence[State], place: int) -> tuple[State, int]:
    """The state that an output belongs to, and its number there."""
    step = path[bisect.bisect_right(path, place, key=_size)]
    return step, place - step.first


_size = operator.attrgetter("size")


def known_of(entries: Sequence[Entry], inputs: Sequence[Input], ref: int) -> Known:
    """What is known of an argument: of output ``ref``, or of input ``~ref``."""
    if ref < 0:
        given = inputs[~ref]
        return given.layout, given.aval
    step = entries[entry_of(entries, ref)][0]
    return step.layouts[ref - step.first], step.avals[ref - step.first]
