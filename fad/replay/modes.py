"""When replay compiles at once, which values are referenced, and when replay backs off."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from fad.core import jaxapi
from fad.core.level import state
from fad.tape.anomaly import mode as anomaly
from fad.tape.saved import UNCHANGED

__all__ = ["BackOff", "at_once", "is_unobserved", "referenced"]


class _AtOnce:
    """Whether everything is compiled as soon as its structure is known, in all threads (``count`` > 0)."""

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.RLock()


at_once = _AtOnce()


class BackOff:
    """Back-off for work that pays only for structures that repeat.

    Each try is noted with its gain, below zero for a loss. Once the sum has fallen to ``-limit``, the next
    ``length`` calls are skipped. Then there are tries again; if they lose ``grace``, more calls are skipped.
    """

    __slots__ = ("grace", "length", "limit", "losses", "pause", "sum")

    def __init__(self, limit: int, length: int, grace: int) -> None:
        self.limit = limit
        self.length = length
        self.grace = grace
        self.reset()

    def reset(self) -> None:
        """Forget all gains and losses."""
        self.sum = 0
        self.losses = 0
        self.pause = 0

    def is_on(self) -> bool:
        """Whether to skip this call."""
        if self.pause <= 0 or at_once.count:
            return False
        self.pause -= 1
        return True

    def note(self, gain: int) -> None:
        """Add the gain of one try."""
        self.sum = min(self.sum + gain, self.limit)
        if self.sum <= -self.limit:
            self.sum = self.grace - self.limit
            self.pause = self.length << min(self.losses, 4)
            self.losses += 1
        elif self.sum > -self.limit // 2:
            self.losses = 0


def referenced(values: Sequence[Any], containers: int = 1) -> list[int]:
    """The places of the values that something refers to, besides so many lists or tuples."""
    alone = _ALONE + containers - 1
    return [k for k, count in enumerate(_references(values)) if count > alone]


def _references(values: Sequence[Any]) -> list[int]:
    return [getrefcount(v) for v in values]


_ALONE = _references([object()])[0]


def is_unobserved() -> bool:
    """Whether no mode is on that observes single operations."""
    return not (
        anomaly.watch
        or state.inference is not None
        or jaxapi.checks_numbers()
        or any([hooks is not UNCHANGED for hooks in state.saved_hooks])
    )
