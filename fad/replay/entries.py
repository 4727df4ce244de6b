"""The entries of a trace, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.replay.inputs import FOREIGN, Input
from fad.replay.states import State

__all__ = ["Entry", "computation_of", "origin_of", "outputs_of"]

# The state after an operation; its output, or a list of outputs; how many inputs there are by then.
Entry = tuple[State, Any, int]


def computation_of(
    path: Sequence[State], inputs: Sequence[Input]
) -> Callable[[Any, Sequence[Any]], tuple[list[Any], list[Any]]]:
    """A function of a level and the parts of inputs that binds all operations: inputs, and outputs."""
    steps = [(s.op, s.refs) for s in path]
    layouts = [(given.layout, len(given.parts)) for given in inputs]

    def compute(own: Any, parts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        rest = iter(parts)
        given = []
        for layout, count in layouts:
            own_parts = [next(rest) for _ in range(count)]
            given.append(own_parts[0] if layout is FOREIGN else own.from_parts(own_parts, layout))
        cells: list[Any] = []
        for op, refs in steps:
            out = bind(op, [cells[r] if r >= 0 else given[~r] for r in refs])
            cells.extend(out if type(out) is tuple else (out,))
        return given, cells

    return compute


def outputs_of(entries: Sequence[Entry]) -> list[Tensor]:
    """All outputs, by their numbers."""
    found: list[Tensor] = []
    for step, out, _ in entries[1:]:
        if step.single:
            found.append(out)
        else:
            found += out
    return found


def origin_of(entries: Sequence[Entry], place: int) -> tuple[State, int]:
    """The state that an output belongs to, and its number there."""
    low, high = 1, len(entries) - 1
    while low < high:
        middle = (low + high) // 2
        if entries[middle][0].size > place:
            high = middle
        else:
            low = middle + 1
    step = entries[low][0]
    return step, place - (step.size - len(step.avals))
