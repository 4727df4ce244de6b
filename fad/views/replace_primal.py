"""Grafting: a new primal for a Tensor that keeps the tangents and the history which it has."""

from __future__ import annotations

from typing import Any

import jax

from fad.core.level import bind, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.errors import LevelError, describe
from fad.tape.recorder import ROOT

__all__ = ["graft"]


def graft(t: Tensor, data: Any) -> None:
    """Give ``t`` the value ``data``, which has no history, and keep the history that ``t`` has."""
    data = outlived(data)
    inside = isinstance(data, Tensor) and data.level is not ROOT
    if inside and t._level is ROOT and not t._requires_grad:  # what it has, it has for JAX alone
        new: Tensor = bind(_GRAFT, (outlived(t._value), data))
        t._value, t._level, t._aux = new._value, new._level, new._aux
        return
    value, aux = _grafted(t._value, t._level, t._aux, data)
    t._value = value
    t._aux = aux


def _grafted(value: Any, level: Any, aux: Any, data: Any) -> tuple[Any, Any]:
    """The value and aux of a Tensor of ``level`` once its primal is ``data``."""
    value, aux, data = level.with_primal(value, aux, data)
    return _inner(value, data, level), aux


def _inner(value: Any, data: Any, level: Any) -> Any:
    """A value of ``level`` with a new primal."""
    value, data = outlived(value), outlived(data)
    if not isinstance(value, Tensor):
        if isinstance(data, Tensor) and data.level is ROOT:
            data = data.value
        if isinstance(data, Tensor):
            raise LevelError(
                f"writing {describe(data)} through a detached Tensor would hide it from the Tensor that "
                "shares its storage, which does not belong to that transform: write to that Tensor"
            )
        if isinstance(value, jax.core.Tracer):  # JAX may be differentiating it
            return bind(_GRAFT, (new_tensor(value, level), new_tensor(data, level))).value
        return data
    t = new_tensor(value.value, value.level, value.aux)
    t.value, t.aux = _grafted(value.value, value.level, value.aux, data)
    t._requires_grad, t.node, t.output_nr = value.requires_grad, value.node, value.output_nr
    return t


@jax.custom_jvp
def _graft(old: Any, new: Any) -> Any:
    """``new``, with the tangent of ``old``."""
    return new


@_graft.defjvp
def _graft_jvp(primals: Any, tangents: Any) -> Any:
    return primals[1], tangents[0]


_GRAFT = Primitive("graft", _graft)
