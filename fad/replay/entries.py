"""What a buffer holds: the path of states, and a list of all outputs."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from sys import getrefcount

from fad.replay.states import State

__all__ = ["origin_of", "referenced"]


def origin_of(path: Sequence[State], place: int) -> State:
    """The state that an output belongs to."""
    return path[bisect.bisect_right(path, place, key=_size)]


_size = operator.attrgetter("size")


def referenced(values: Sequence[object]) -> list[int]:
    """The places of the values that something refers to, besides this list."""
    return [k for k, count in enumerate(_references(values)) if count > _ALONE]


def _references(values: Sequence[object]) -> list[int]:
    return [getrefcount(v) for v in values]


_ALONE = _references([object()])[0]
