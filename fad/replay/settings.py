"""Where replay is possible: default settings of JAX, default devices, small arrays; and interned avals."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from fad.core import jaxapi
from fad.core.caches import Table
from fad.core.jaxapi import array_type, is_committed
from fad.core.threads import on_new_thread
from fad.core.types import Aval

__all__ = [
    "LARGE",
    "aval_id",
    "in_context",
    "is_default_placement",
    "is_small",
    "settings_number",
]

T = TypeVar("T")

LARGE = 1 << 14  # elements: an array of so many is no part of a trace
_KNOWN = 4096  # entries of each table here


def in_context(context: object, f: Callable[[], T]) -> T:
    """``f()`` with the settings that JAX had with this `trace_context`, and without its checks of numbers."""
    checks = jaxapi.is_tracing() or jaxapi.checks_numbers()
    apart = checks or context != jaxapi.trace_context()
    return on_new_thread(f, "fad-default-settings") if apart else f()


class _JaxSettings:
    """JAX's settings as they are outside of all blocks that change them, numbered."""

    __slots__ = ("everywhere", "lock", "number", "unusual", "usual")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.number = 0
        self.usual: object = None
        self.unusual = Table(64)
        self.everywhere: dict[
            str, Any
        ] = {}  # outside of all blocks, when the table of unusual ones began

    def number_of(self, context: object) -> int:
        if context == self.usual:
            return self.number
        with self.lock:
            everywhere = jaxapi.global_settings()
            if everywhere != self.everywhere:
                self.unusual.clear()
                self.everywhere = everywhere
            if context in self.unusual:
                return 0
            now = on_new_thread(jaxapi.trace_context, "fad-default-settings")
            if now == context:  # changed for good
                self.usual, self.number = context, self.number + 1
                self.unusual.clear()
                return self.number
            self.unusual.put(context, True)
            return 0


# The number of these settings of JAX; 0 if a block has changed them, where nothing is replayed.
settings_number = _JaxSettings().number_of


_default: set[object] = set()
_placed = Table(_KNOWN)  # shardings equal to those, by `id`: they compare slowly
_ids_by_object = Table(_KNOWN)  # avals and their interned ids, by `id` too
_ids = Table(_KNOWN)
_next_id = itertools.count(1)


def is_default_placement(sharding: object) -> bool:
    """Whether arrays with this sharding are where JAX puts arrays by default."""
    if id(sharding) in _placed:
        return True
    if sharding not in _default:
        if jaxapi.is_tracing() or sharding != jax.device_put(np.float32(0)).sharding:
            return False
        _default.add(sharding)
    _placed.put(id(sharding), sharding)
    return True


def aval_id(aval: Aval) -> int:
    """The interned id of the aval of an array: negative for a large one.

    Equal avals have the same id, until the tables are full and cleared; no id is used twice.
    """
    known = _ids_by_object.get(id(aval))
    return _new_id(aval) if known is None else int(known[1])


def _new_id(aval: Any) -> int:
    sign = 1 if aval.size <= LARGE else -1
    number: int = _ids.put(aval, sign * next(_next_id))
    _ids_by_object.put(id(aval), (aval, number))
    return number


@functools.cache
def _has_several_devices() -> bool:
    """Whether JAX has several devices: those that it uses by default, and the host."""
    return len({*jax.local_devices(), *jax.local_devices(backend="cpu")}) > 1


def is_small(array: object) -> bool:
    """Whether a value is a small array on the default device, and not committed to it."""
    if type(array) is not array_type or aval_id(array.aval) < 0:
        return False
    sharding = array.sharding
    if id(sharding) not in _placed and not is_default_placement(sharding):
        return False
    # What is computed from a committed array is committed too.
    return not (is_committed(array) and _has_several_devices())
