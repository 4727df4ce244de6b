"""Arrays whose memory belongs to another library, which may write to it again.

NOTE [borrowed memory]

JAX may read the operands of a program after the call has returned: it dispatches all but the smallest
programs asynchronously, and those too if an operand is still being computed. And a trace uses its inputs
when it ends. So what fad has read through DLPack without a copy is remembered here. A call of XLA with
such an operand, or with an array of NumPy, blocks until it is done, and a trace keeps a copy of it. Arrays
that JAX itself has made of the memory of others (`jax.device_put` on the CPU) cannot be recognized.

A copy that JAX makes (`jnp.array` of an array of NumPy) is such a program too.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["as_array", "borrow", "borrowed", "copied", "is_borrowed", "is_foreign", "waited"]

CPU = 1  # as DLPack numbers kinds of devices
borrowed: dict[int, weakref.ref[Any]] = {}  # by id


def borrow(array: Any, source: Any) -> Any:
    """``array``, read from the memory of ``source``, which from now on is known to share it.

    On another kind of device than ``source`` it is a copy, and this blocks until it is made.
    """
    if (source.__dlpack_device__()[0] == CPU) != (array.device.platform == "cpu"):
        return array.block_until_ready()
    key = id(array)
    borrowed[key] = weakref.ref(array, lambda _: borrowed.pop(key, None))
    return array


def is_borrowed(value: Any) -> bool:
    """Whether ``value`` is an array that was borrowed."""
    return bool(borrowed) and id(value) in borrowed


def is_foreign(value: Any) -> bool:
    """Whether ``value`` is no array of JAX, but has memory that JAX can make one of."""
    if isinstance(value, jax.Array):
        return False
    try:
        memoryview(value)
    except TypeError:
        return hasattr(value, "__array__")
    return True


def copied(value: Any) -> jax.Array:
    """A copy of an array of NumPy, or of a borrowed one, made before this returns."""
    if isinstance(value, np.ndarray) or value.device.platform == "cpu":
        return as_array(np.asarray(value))
    return jnp.array(value).block_until_ready()


def as_array(value: Any, dtype: Any = None) -> jax.Array:
    """``value``, a number, a nested list or an array, as an array of JAX; what is NumPy's is copied
    before this returns.
    """
    return jnp.asarray(np.array(value) if isinstance(value, np.ndarray) else value, dtype)


def waited(out: Any, operands: Sequence[Any]) -> Any:
    """``out``, an array or a tuple of them; computed, if an operand has memory of another library."""
    for v in operands:
        if id(v) in borrowed or type(v) is np.ndarray:
            return jax.block_until_ready(out)
    return out
