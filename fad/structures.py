"""Structures that come back: what is remembered, what compiling may cost, and which values are in use."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Hashable, Iterator, Sequence
from sys import getrefcount
from typing import Any

__all__ = ["Attempts", "Structure", "Structures", "budget", "held", "impatient", "places_of_held"]

REPEATS = 2  # times that something comes back before it is compiled
ALLOWANCE = 5.0  # seconds of compiling, beyond what compiled code has saved so far
SHARE = 0.1  # and so much of the time since the process began to compile


class Budget:
    """Time spent on compiling, and time that what was compiled has saved.

    A compilation costs as much as hundreds of runs step by step. So the first may exceed the second by
    `ALLOWANCE` seconds and a small `SHARE` of the time that has passed, no more. And what is compiled has
    come back more than `REPEATS` times.

    ``impatient``: not so for now, a test wants everything to be compiled as soon as its structure is known.
    """

    __slots__ = ("began", "impatient", "saved", "spent")

    def __init__(self) -> None:
        self.impatient = 0
        self.reset()

    def reset(self) -> None:
        self.spent = 0.0
        self.saved = 0.0
        self.began = time.monotonic()

    def allows(self, count: int, hot: bool = False) -> bool:
        """Whether to compile what was seen ``count`` times, or is ``hot``: parts of it were."""
        if self.impatient:
            return True
        if count <= REPEATS and not hot:
            return False
        passed = time.monotonic() - self.began
        return self.spent < self.saved + ALLOWANCE + SHARE * passed


budget = Budget()


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Do at once what else comes back or is large first, in all threads: for tests.

    Everything is compiled as soon as its structure is known, and of views of any size the bases are saved.
    """
    with _patience:
        budget.impatient += 1
    try:
        yield
    finally:
        with _patience:
            budget.impatient -= 1


_patience = threading.Lock()


class Structure:
    """What is known of one structure: how often it was seen, what was compiled for it (``program``, and
    ``wanted``, which of its results are asked for), or that it cannot be compiled. ``large`` are the shapes
    and dtypes of its large results, and ``donating`` the programs that are given operands for them.
    """

    __slots__ = ("count", "donating", "large", "program", "refused", "wanted")

    def __init__(self) -> None:
        self.count = 0
        self.program: Any = None
        self.wanted: tuple[int | None, ...] = ()
        self.large: tuple[Any, ...] = ()
        self.donating: list[Any] = []
        self.refused = False


class Structures:
    """A bounded table of structures, safe between threads; the one not seen for longest goes first."""

    __slots__ = ("_capacity", "_found", "_hits", "_lock")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._found: collections.OrderedDict[Hashable, Structure] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._hits = 0

    def seen(self, key: Hashable) -> Structure:
        """The structure of ``key``, which has come once more."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = Structure()
                if len(self._found) > self._capacity:
                    self._found.popitem(last=False)
            else:
                self._found.move_to_end(key)
            found.count += 1
            return found

    def ran(self, seconds: float) -> None:
        """Note that a compiled program ran, which saved so much time."""
        self._hits += 1
        budget.saved += seconds

    def info(self) -> dict[str, int]:
        """How many structures are remembered, how many of them are compiled, and how often those ran."""
        with self._lock:
            ready = sum(s.program is not None for s in self._found.values())
            return {"structures": len(self._found), "compiled": ready, "hits": self._hits}

    def clear(self) -> None:
        """Forget all structures, and what was compiled for them."""
        with self._lock:
            self._found.clear()
            self._hits = 0


class Attempts:
    """Whether to try now what pays only for structures that come back.

    Each attempt is noted with what it has gained, below zero if it has lost. Once the sum has fallen to
    ``-limit`` there are none for ``rest`` (in whatever `rests` counts). Then there are again; if they lose
    ``grace``, a longer rest follows.
    """

    __slots__ = ("grace", "limit", "losses", "rest", "resting", "sum")

    def __init__(self, limit: int, rest: int, grace: int) -> None:
        self.limit = limit
        self.rest = rest
        self.grace = grace
        self.reset()

    def reset(self) -> None:
        """Forget what was noted."""
        self.sum = 0
        self.losses = 0
        self.resting = 0

    def rests(self, count: int = 1) -> bool:
        """Whether to do without this time, which counts for so many."""
        if self.resting <= 0 or budget.impatient:
            return False
        self.resting -= count
        return True

    def note(self, gain: int) -> None:
        """Add what an attempt has gained."""
        self.sum = min(self.sum + gain, self.limit)
        if self.sum <= -self.limit:
            self.sum = self.grace - self.limit
            self.resting = self.rest << min(self.losses, 4)
            self.losses += 1
        elif self.sum > -self.limit // 2:
            self.losses = 0


def held(values: Sequence[Any]) -> tuple[bool, ...]:
    """Which of the values somebody holds, besides the one list or tuple that they are in."""
    return tuple([count > _ALONE for count in _references(values)])


def places_of_held(values: Sequence[Any]) -> list[int]:
    """The places of the values that somebody holds, besides the one list or tuple that they are in."""
    return [k for k, count in enumerate(_references(values)) if count > _ALONE]


def _references(values: Sequence[Any]) -> list[int]:
    return [getrefcount(v) for v in values]


_ALONE = _references([object()])[0]
