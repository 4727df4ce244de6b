"""Where replay is possible: default settings of JAX, default devices, small arrays; and interned avals."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from fad.core import jaxapi
from fad.core.caches import Table
from fad.core.threads import on_new_thread

T = TypeVar("T")

LARGE = 1 << 14  # elements: an array of so many is no part of a trace
_KNOWN = 4096  # entries of each table here


def in_context(context: object, f: Callable[[], T]) -> T:
    """``f()`` with the settings that JAX had with this `trace_context`, and without its checks of numbers."""
    checks = jaxapi.is_tracing() or jaxapi.checks_numbers()
    differs = checks or context != jaxapi.trace_context()
    return on_new_thread(f, "fad-default-settings") if differs else f()


# The settings outside of all blocks, and their number.
_usual: list[tuple[object, int]] = [(None, 0)]
_unusual = Table(64)  # others, each with the settings outside of all blocks at that time
_numbers = itertools.count(1)


def settings_number(context: object) -> int:
    """The number of these settings of JAX; 0 if a block has changed them, where nothing is replayed."""
    usual, number = _usual[0]
    if context == usual:
        return number
    everywhere = jaxapi.global_settings()
    if _unusual.get(context) == everywhere:
        return 0
    if on_new_thread(jaxapi.trace_context, "fad-default-settings") == context:  # changed for good
        _usual[0] = context, next(_numbers)
        return _usual[0][1]
    _unusual.pop(context, None)
    _unusual.put(context, everywhere)
    return 0


_placed = Table(_KNOWN)  # shardings of arrays that are where JAX puts them by default, by `id`
_ids_by_object = Table(_KNOWN)  # avals and their interned ids, by `id` too
_ids = Table(_KNOWN)
_next_id = itertools.count(1)


def _is_default_placement(sharding: object) -> bool:
    """Whether arrays with this sharding are where JAX puts arrays by default."""
    if jaxapi.is_tracing() or sharding != jax.device_put(np.float32(0)).sharding:
        return False
    _placed.put(id(sharding), sharding)
    return True


def aval_id(aval: Any) -> int:
    """The interned id of the aval of an array: negative for a large one.

    Equal avals have the same id, until the tables are full and cleared; no id is used twice.
    """
    known = _ids_by_object.get(id(aval))
    if known is None:
        sign = 1 if aval.size <= LARGE else -1
        number = _ids.put(aval, sign * next(_next_id))
        known = _ids_by_object.put(id(aval), (aval, number))
    return known[1]  # type: ignore[no-any-return]


@functools.cache
def _has_several_devices() -> bool:
    """Whether JAX has several devices: those that it uses by default, and the host."""
    return len({*jax.local_devices(), *jax.local_devices(backend="cpu")}) > 1


def is_small(array: object) -> bool:
    """Whether a value is a small array on the default device, and not committed to it."""
    if type(array) is not jaxapi.array_type or aval_id(array.aval) < 0:
        return False
    sharding = array.sharding
    if id(sharding) not in _placed and not _is_default_placement(sharding):
        return False
    # What is computed from a committed array is committed too.
    return not (_has_several_devices() and jaxapi.is_committed(array))
