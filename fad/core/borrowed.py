"""Borrowed arrays: JAX arrays that share memory with another library, which may write to it.

NOTE [borrowed memory]

    a = np.ones(1 << 20, np.float32)
    y = fnp.sin(fnp.from_dlpack(a))
    a[:] = 0.0
    assert y.min() > 0.8

JAX may read the operands of a program after the call has returned, because it dispatches programs
asynchronously (all but the smallest, and also these if an operand is still being computed). A trace of
fad reads its inputs even later, when it ends. If the other library writes to the memory before that,
the result is wrong.

Two kinds of operands have this problem: arrays that fad has imported through DLPack without a copy,
which are registered here as borrowed, and NumPy arrays. With such an operand, a call of XLA blocks
until it has finished (`waited`), and a trace keeps a copy of the operand (`copied`). A copy that JAX
makes (``jnp.array`` of a NumPy array) is also dispatched asynchronously; so NumPy makes it
(`as_array`).

An array that JAX itself has made from foreign memory without a copy (``jax.device_put`` on the CPU)
cannot be recognized.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.types import Array, DType, Operand

T = TypeVar("T")

CPU = 1  # the code of this kind of device in DLPack
borrowed: dict[int, weakref.ref[Array]] = {}  # borrowed arrays by id, each until it is freed


def borrow(array: Any, source: Any) -> Array:
    """``array``, which JAX has imported from ``source``, registered as borrowed.

    If ``array`` is on another kind of device than ``source``, it is a copy: this blocks until the copy
    is made, and registers nothing.
    """
    registered: Array = array
    if (source.__dlpack_device__()[0] == CPU) != (array.device.platform == "cpu"):
        return registered.block_until_ready()
    key = id(array)
    borrowed[key] = weakref.ref(array, lambda _: borrowed.pop(key, None))
    return registered


def is_borrowed(value: object) -> bool:
    """Whether ``value`` is an array that shares memory with another library, as `borrow` has
    registered.
    """
    return bool(borrowed) and id(value) in borrowed


def is_foreign(value: Any) -> bool:
    """Whether ``value`` is not a JAX array, but offers its memory (a buffer, or ``__array__``) to make
    one.
    """
    if isinstance(value, jax.Array):
        return False
    try:
        memoryview(value)
    except TypeError:
        return hasattr(value, "__array__")
    return True


def copied(value: Any) -> jax.Array:
    """A copy, finished when this returns, of a NumPy array or a borrowed array."""
    if isinstance(value, np.ndarray) or value.device.platform == "cpu":
        return as_array(np.asarray(value))
    return jnp.array(value).block_until_ready()


def as_array(value: Any, dtype: DType | None = None) -> jax.Array:
    """``value``, a number, a nested list or an array, as a JAX array; a NumPy array is copied before
    this returns.
    """
    return jnp.asarray(np.array(value) if isinstance(value, np.ndarray) else value, dtype)


def waited(out: T, operands: Sequence[Operand]) -> T:
    """``out``, the result of a call with ``operands``; if one of these is borrowed or NumPy's, wait for
    it.
    """
    for v in operands:
        if id(v) in borrowed or type(v) is np.ndarray:
            ready: T = jax.block_until_ready(out)
            return ready
    return out
