"""The operands of scripts: what is known of them, whether they can be used as they are, what they were."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp

from fad.avals import SCALARS, constant
from fad.graph import accumulator_of
from fad.jaxapi import array_type
from fad.runs import aval_number, may_wait
from fad.tape.record import ROOT, GradLevel
from fad.tensor import Pending, Tensor, new_tensor

__all__ = [
    "NEW",
    "Operand",
    "as_met",
    "is_behind",
    "is_blank",
    "is_traced",
    "is_untouched",
    "is_view",
    "known_aval",
    "look",
    "version_at",
]

# What a script has met: the argument, its value one level down, its aval, its version then, and its mark.
Operand = tuple[Any, Any, Any, int, int]

# The mark of an operand: this, + 16 * the number of its aval, + 2 * that of its type, + whether it is
# tracked. In keys it stands before the place of a new one.
NEW = 1 << 40
_TYPES = {kind: 2 * k for k, kind in enumerate((Tensor, array_type, *SCALARS))}
_OTHER = 2 * len(_TYPES)


def is_traced(x: Any) -> bool:
    """Whether the value is being traced by JAX."""
    while isinstance(x, Tensor) and type(x) is not Pending:
        if is_blank(x):
            return False
        x = x._value
    return isinstance(x, jax.core.Tracer)


def is_blank(x: Tensor) -> bool:
    """Whether a Tensor has no value yet, since what it comes from has only been written down."""
    return type(x._aux) is tuple


def known_aval(value: Any) -> Any:
    """The aval of a small value that is not being traced, at any level; else None."""
    if type(value) is array_type:
        return value.aval if may_wait(value) else None
    if not isinstance(value, Tensor):
        return None
    aval = value._level.aval(value)
    if aval_number(aval) < 0:
        return None
    while type(value) is Tensor and value._level.alive:
        if is_blank(value):
            return aval
        value = value._value
    return aval if type(value) is Pending or may_wait(value) else None


def is_view(t: Tensor) -> bool:
    """Whether a Tensor takes its value from another one, or is out of date."""
    meta = t.meta
    link = None if meta is None else meta.link
    return link is not None and (link.base is not None or link.seen != meta.storage.version)  # type: ignore[union-attr]


def is_behind(a: Any) -> bool:
    """Whether an argument has to be brought up to date with what it is an alias of, or must not be used."""
    meta = a.meta if isinstance(a, Tensor) else None
    link = None if meta is None else meta.link
    if link is None:
        return False
    return link.seen != meta.storage.version or link.poison is not None  # type: ignore[union-attr]


def version_at(a: Any) -> int:
    """How often an operand was changed in place."""
    return a.meta.storage.version if type(a) is Tensor and a.meta is not None else 0


def is_untouched(variable: Tensor) -> bool:
    """Whether an input has no hooks, and was not written to inside of a transform."""
    meta = variable.meta
    if meta is None:
        return variable._requires_grad
    if meta.hooks or meta.post_hooks or not variable._requires_grad:
        return False
    node = None if meta.accumulator is None else meta.accumulator()
    if node is not None and (node.extra is not None or variable._level is not ROOT):
        return False
    return variable._level is ROOT or not meta.storage.version


def look(a: Any, own: GradLevel) -> Operand | None:
    """What is known of a new operand of a script of the level ``own``; None if it cannot be one."""
    kind = type(a)
    value, version, tracked = a, 0, False
    if kind is Tensor:
        level, meta = a._level, a.meta
        if meta is not None:
            version = meta.storage.version
            if version < 0:
                return None  # made in inference mode: recording it is an error
        if level is ROOT and (own is ROOT or not a._requires_grad):
            tracked = a._requires_grad
            if tracked and (a._node is not None or is_view(a)):
                return None
            value = a._value
        elif level.id >= own.id:
            # Of this script it would be a cell; of an inner level, the call is that one's.
            return None
    elif kind in SCALARS:
        value = constant(a)
    if type(value) is not array_type:
        aval = known_aval(value)
        if aval is None:
            return None
    elif may_wait(value):
        aval = value.aval
    else:
        return None
    mark = NEW + 16 * aval_number(aval) + _TYPES.get(kind, _OTHER) + tracked
    return a, value, aval, version, mark


def as_met(operand: Operand) -> tuple[Any, int, Any]:
    """An operand as it was when it was met, its version, and what must be kept until it is used.

    If it was changed in place since, by another thread, or after the step had run as one operation,
    that is another handle of its storage, with the value of then. Where no value was kept, any will do.
    """
    a, value, aval, version, _ = operand
    if value is None:
        value = jnp.zeros(aval.shape, aval.dtype)
    elif type(a) is not Tensor or a._level is not ROOT or version_at(a) == version:
        return a, version, None
    if a is None or a._level is not ROOT:
        return value if a is None else a, version, None
    leaf = accumulator_of(a) if a._requires_grad else None  # it is in the meta of both handles
    handle = new_tensor(value, ROOT)
    handle._requires_grad = a._requires_grad
    if a.meta is not None:
        handle.meta = copy.copy(a.meta)
        handle.meta.link = None  # a view would follow its base
    return handle, version, leaf
