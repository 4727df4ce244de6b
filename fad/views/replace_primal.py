"""Replacing the primal of a Tensor, which keeps its tangents and its history."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from fad.core.level import Level, bind, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Array, Operand
from fad.errors import LevelError, describe
from fad.tape.recorder import ROOT


def replace_primal(t: Tensor, data: Operand) -> None:
    """Give ``t`` the value ``data``, which has no history, and keep the history that ``t`` has."""
    data = outlived(data)
    inside = isinstance(data, Tensor) and data.level is not ROOT
    if inside and t._level is ROOT and not t._requires_grad:  # only JAX tracks it
        new: Tensor = bind(_REPLACE_PRIMAL, (outlived(t._value), data))
        t._value, t._level, t._aux = new._value, new._level, new._aux
        return
    value, aux = _with_primal(t._value, t._level, t._aux, data)
    t._value = value
    t._aux = aux
    t._level.note_unrecorded(t)


def _with_primal(
    value: Operand, level: Level, aux: object, data: Operand
) -> tuple[Operand, object]:
    """The value and aux of a Tensor of ``level`` once its primal is ``data``."""
    value, aux, data = level.with_primal(value, aux, data)
    return _inner(value, data, level), aux


def _inner(value: Operand, data: Operand, level: Level) -> Operand:
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
            found: Operand = bind(
                _REPLACE_PRIMAL, (new_tensor(value, level), new_tensor(data, level))
            ).value
            return found
        return data
    t = new_tensor(value.value, value.level, value.aux)
    t._value, t._aux = _with_primal(value.value, value.level, value.aux, data)
    t._requires_grad, t._node, t._output_nr = value.requires_grad, value.node, value.output_nr
    t._level.note_unrecorded(t)
    return t


@jax.custom_jvp
def _replaced(old: Array, new: Array) -> Array:
    """``new``, with the tangent of ``old``."""
    return new


@_replaced.defjvp
def _replaced_jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
    return primals[1], tangents[0]


_REPLACE_PRIMAL = Primitive("replace_primal", _replaced)
