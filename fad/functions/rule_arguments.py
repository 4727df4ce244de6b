"""What a rule reads, as Tensors of the level at which it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fad.core.dtypes import is_inexact
from fad.core.level import outlived
from fad.core.tensor import Tensor, new_tensor
from fad.functions.rules import Saved
from fad.tape.packing import PackedValue
from fad.tape.recorder import ROOT

__all__ = ["highest", "lifted", "placed"]


def highest(saved: Saved, directions: Sequence[Any] = ()) -> Any:
    """The highest level of what a rule reads.

    It gets all as Tensors of that level, so that it can differentiate in each what it computes from all.
    """
    highest: Any = ROOT
    for x in (*saved.values, *saved.outs, *saved.extras, *directions):
        if isinstance(x, Tensor):
            x = outlived(x)
            if isinstance(x, Tensor) and x._level.id > highest.id:
                highest = x._level
    return highest


def lifted(level: Any, x: Any) -> Any:
    """``x`` as a Tensor of ``level``, if it can have a derivative."""
    return x if level is ROOT or not is_inexact(x.dtype) else level.lift(outlived(x))


def placed(value: Any, t: Any) -> Any:
    """A value that was saved on the tape, with the place in the graph of the Tensor that it is of."""
    if type(t) is Tensor:
        node, output_nr = t._node, t._output_nr
    else:
        node, output_nr = t.place() if type(t) is PackedValue else (None, 0)
    if node is None:
        return value
    x = new_tensor(value, ROOT)
    x._node, x._output_nr = node, output_nr
    return x
