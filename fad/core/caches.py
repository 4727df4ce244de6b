"""Bounded tables, and keys of static values to find things by."""

from __future__ import annotations

import collections
import threading
from collections.abc import Hashable
from typing import Any, TypeVar

import numpy as np

# Keys of static values: equal keys mean the same value to every function.
#
# Python's ``==`` does not give such keys. ``0.0 == -0.0`` and ``1 == 1.0 == True``, with equal hashes, so
# a dict would return the entry of one for the other. NaN is not equal to itself, so it would never be
# found.


def exact(value: Any) -> Hashable:
    """A key of ``value``: numbers by type and bits, also inside of tuples; other things by ``==``.

    Raises:
        TypeError: the value is not hashable.

    >>> exact(0.0) == exact(-0.0), exact((1,)) == exact((True,)), exact(1) == exact(1)
    (False, False, True)
    """
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, tuple):
        return kind, *map(exact, value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if kind is frozenset:
        return kind, frozenset(map(exact, value))
    hash(value)
    return kind, value


# Bounded tables.

T = TypeVar("T")


class Cache:
    """A table of ``capacity`` entries, safe between threads: the least recently used is dropped first."""

    __slots__ = ("_capacity", "_entries", "_lock")

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._entries: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Hashable) -> Any:
        """The entry of ``key``, None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Hashable, value: T) -> T:
        """Keep ``value``, and return it; of several threads, what the first has put."""
        with self._lock:
            kept: T = self._entries.setdefault(key, value)
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return kept

    def values(self) -> list[Any]:
        """The entries, the one that was used last at the end."""
        with self._lock:
            return list(self._entries.values())

    def drop(self, key: Hashable) -> None:
        """Forget the entry of ``key``, if there is one."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget all entries."""
        with self._lock:
            self._entries.clear()


class Table(dict[Hashable, Any]):
    """A dict for look-ups on fast paths, which is emptied when it has ``capacity`` entries."""

    __slots__ = ("capacity",)

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def put(self, key: Hashable, value: T) -> T:
        """Keep ``value``, and return it; of several threads, what the first has put."""
        if len(self) >= self.capacity and key not in self:
            self.clear()
        kept: T = self.setdefault(key, value)
        return kept
