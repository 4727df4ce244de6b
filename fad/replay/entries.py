"""The entries of a buffer: operations with their outputs."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from fad.core.tensor import Tensor
from fad.replay.states import State

__all__ = ["Entry", "entry_of", "origin_of", "outputs_of", "referenced"]

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
    return bisect.bisect_right(entries, place, 1, key=lambda entry: entry[0].size)


def origin_of(path: Sequence[State], place: int) -> tuple[State, int]:
    """The state that an output belongs to, and its number there."""
    step = path[bisect.bisect_right(path, place, key=_size)]
    return step, place - step.first


_size = operator.attrgetter("size")


def referenced(values: list[Any]) -> list[int]:
    """The places of the values that something refers to, besides this list and their entries."""
    return [k for k, count in enumerate(_references(values)) if count > _ALONE + 1]


def _references(values: Sequence[Any]) -> list[int]:
    return [getrefcount(v) for v in values]


_ALONE = _references([object()])[0]
