"""What the operands of scripts are: their avals, and whether they can be used as they are."""

from __future__ import annotations

from typing import Any

import jax

from fad import runs
from fad.jaxapi import array_type
from fad.runs import aval_number
from fad.tape.record import ROOT
from fad.tensor import Pending, Tensor

__all__ = [
    "is_behind",
    "is_blank",
    "is_traced",
    "is_untouched",
    "is_view",
    "known_aval",
    "version_at",
]


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
        return value.aval if runs.may_wait(value) else None
    if not isinstance(value, Tensor):
        return None
    aval = value._level.aval(value)
    if aval_number(aval) < 0:
        return None
    while type(value) is Tensor and value._level.alive:
        if is_blank(value):
            return aval
        value = value._value
    return aval if type(value) is Pending or runs.may_wait(value) else None


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
