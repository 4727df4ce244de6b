"""Arrays whose memory belongs to another library, which may write to it again.

NOTE [borrowed memory]

JAX dispatches all but the smallest programs asynchronously: they may read their operands after the call has
returned. And a trace uses its inputs when it ends. So what fad has read through DLPack without a copy is
remembered here, and replay uses a copy of it, where it is small, for each operation that it defers. Arrays
that JAX itself has made of memory of others (`jax.device_put` on the CPU) cannot be told from its own.
"""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["borrow", "is_borrowed"]

_borrowed: dict[int, weakref.ref[Any]] = {}


def borrow(array: Any) -> Any:
    """``array``, which from now on is known to share its memory."""
    key = id(array)
    _borrowed[key] = weakref.ref(array, lambda _: _borrowed.pop(key, None))
    return array


def is_borrowed(value: Any) -> bool:
    """Whether ``value`` is an array that was borrowed."""
    return bool(_borrowed) and id(value) in _borrowed
