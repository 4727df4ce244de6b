"""Writes under ``no_grad``: the value and the tangents are the new ones, the history is that of before."""

from __future__ import annotations

from typing import Any

from fad.core.level import layers, modes, outlived
from fad.core.tensor import Tensor, has_history, new_tensor
from fad.core.types import Value
from fad.levels.batch import broadcast, move_axis
from fad.tape.graph import gradient_edge
from fad.tape.recorder import as_tensor
from fad.views.aliases import set_value
from fad.views.duals import MakeDualBackward


def with_history(new: Value, old: Value) -> Any:
    """``new``, of a level that does not record now, with the history that ``old`` has there and below."""
    new, old = outlived(new), outlived(old)
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or new.level is not old.level:
        return new
    level = new.level
    if level.traces:
        return level.unrecorded_write(new, old)  # type: ignore[attr-defined]
    value, aux = old.value, old.aux
    if level.maps:
        value, aux = _with_lanes(value, aux, new), new.aux
    t: Tensor = new_tensor(with_history(new.value, value), level, with_history(new.aux, aux))
    if old.requires_grad:
        t._requires_grad = True
        t._node, t._output_nr = gradient_edge(old)
    level.note_unrecorded(t)
    return t


def moves_on_tape(new: Tensor, t: Tensor) -> bool:
    """Whether an unrecorded write of ``new`` takes ``t``, which requires grad on the eager tape, to another
    level of the tape: to a dual level, or back from one that has finished.
    """
    below = outlived(t)
    if not isinstance(below, Tensor) or new.level is t.level or not below.requires_grad:
        return False
    return all([x.level.on_tape for x in (*layers(below), *layers(new))])


def move_on_tape(t: Tensor, new: Tensor) -> None:
    """Give ``t`` the value and tangents of ``new``, at the level of that, and the history that it has.

    A leaf stays one: what the value leads to, at the levels below, is its accumulator.
    """
    is_leaf = not has_history(t)
    moved = _at_level_of(new, outlived(t))
    set_value(t, moved)
    if not is_leaf:
        t._node, t._output_nr = moved._node, moved._output_nr


def _at_level_of(new: Value, old: Tensor) -> Tensor:
    """``new``, of ``old``'s level or of a dual level above, with the history of ``old``."""
    new = as_tensor(outlived(new))
    if new.level.id <= old.level.id:
        moved: Tensor = as_tensor(with_history(new, old))
        return moved
    level: Any = new.level
    value = _at_level_of(new.value, old)
    t: Tensor = new_tensor(value, level, new.aux)
    t._requires_grad = True
    t._node = MakeDualBackward(level, value)
    level.tape_id = max(level.tape_id, value.level.id)
    return t


def _with_lanes(value: Value, dim: int | None, new: Tensor) -> Value:
    """``value``, batched along ``dim``, with its lanes where those of ``new`` are; recorded as ever."""
    if dim == new.aux or new.aux is None:
        return value
    with modes(watermark=-1, base_watermark=-1):
        if dim is None:
            return broadcast(value, new.level.batch_size, new.aux)  # type: ignore[attr-defined]
        return move_axis(value, dim, new.aux)
