"""Writes under ``no_grad``: the value and the tangents are the new ones, the history is that of before."""

from __future__ import annotations

from typing import Any

from fad.core.level import modes, outlived
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Value
from fad.levels.batch import broadcast, move_axis


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
    t._requires_grad, t._node, t._output_nr = old.requires_grad, old.node, old.output_nr
    level.note_unrecorded(t)
    return t


def _with_lanes(value: Value, dim: int | None, new: Tensor) -> Value:
    """``value``, batched along ``dim``, with its lanes where those of ``new`` are; recorded as ever."""
    if dim == new.aux or new.aux is None:
        return value
    with modes(watermark=-1, base_watermark=-1):
        if dim is None:
            return broadcast(value, new.level.batch_size, new.aux)  # type: ignore[attr-defined]
        return move_axis(value, dim, new.aux)
