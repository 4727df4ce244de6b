"""Steps that a run has written down (see `fad.runs`), one by one or as compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.jaxapi import jit_of_small

__all__ = ["fuse", "parts_of", "step_by_step"]

WIDEST = 16  # values held, of one compiled program


def step_by_step(steps: Sequence[tuple[Any, ...]], operands: Sequence[Any]) -> list[Any]:
    """Every output of the steps."""
    values: list[Any] = []
    for op, _, *refs in steps:
        out = op.execute([values[r] if r >= 0 else operands[~r] for r in refs])
        values.extend(out if type(out) is tuple else (out,))
    return values


def fuse(steps: Sequence[tuple[Any, ...]], held: Sequence[bool]) -> Any:
    """The steps as one compiled function of the operands, which returns what is held.

    XLA computes each output of a program on its own, from where the program begins, if it can. So time to
    compile, and to run, would grow with the square of the number of outputs: a run of which much is held is
    compiled in parts.
    """
    parts = parts_of(steps, held)
    if len(parts) == 1:
        count = 1 - min([r for _, _, *refs in steps for r in refs], default=0)
        outs = [k for k, h in enumerate(held) if h]
        return jit_of_small(_part(steps, 0, range(-1, -count, -1), outs))
    compiled = []
    read = {k for k, h in enumerate(held) if h}  # by nobody, or by later parts
    for first, part in reversed(parts):
        own = range(first, first + sum([n for _, n, *_ in part]))
        refs = {r for _, _, *refs in part for r in refs}
        inputs, outs = sorted(refs.difference(own)), sorted(read.intersection(own))
        compiled.append((jit_of_small(_part(part, first, inputs, outs)), inputs, outs))
        read.update(refs)
    compiled.reverse()

    def run(*operands: Any) -> list[Any]:
        values: dict[int, Any] = {}
        for call, inputs, outs in compiled:
            given = [values[r] if r >= 0 else operands[~r] for r in inputs]
            values.update(zip(outs, call(*given), strict=True))
        return [values[k] for k, h in enumerate(held) if h]

    return run


def parts_of(
    steps: Sequence[tuple[Any, ...]], held: Sequence[bool]
) -> list[tuple[int, Sequence[tuple[Any, ...]]]]:
    """Parts of the steps of which not too much is held, each with the number of its first output."""
    parts: list[tuple[int, Sequence[tuple[Any, ...]]]] = []
    start = first = count = width = 0
    for k, (_, n, *_) in enumerate(steps):
        width += sum(held[count : count + n])
        count += n
        if width >= WIDEST or k == len(steps) - 1:
            parts.append((first, steps[start : k + 1]))
            start, first, width = k + 1, count, 0
    return parts


def _part(
    steps: Sequence[tuple[Any, ...]], first: int, inputs: Sequence[int], outs: Sequence[int]
) -> Callable[..., list[Any]]:
    """The steps, whose first output has the number ``first``, as a function of what ``inputs`` refer to
    that returns the values with the numbers ``outs``.
    """

    def run(*given: Any) -> list[Any]:
        known = dict(zip(inputs, given, strict=True))
        count = first
        for op, n, *refs in steps:
            out = op.flat(*[known[r] for r in refs])
            known.update(zip(range(count, count + n), out if type(out) is tuple else (out,)))
            count += n
        return [known[k] for k in outs]

    return run
