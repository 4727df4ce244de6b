"""The operations of a trace as a function of its inputs, and as a program.

NOTE [one append-only list]

A trace is one list of entries. An entry is appended whole or not at all; what it is does not change. ``busy``
is set while one is being made. A call of `append` that finds it set (from a finalizer, or after an interrupt)
appends nothing and materializes the trace. After each entry `append` looks whether the trace was materialized
meanwhile, and if so records that entry too. To record an entry twice gives the same as to record it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.core.level import bind
from fad.core.replay_protocol import Pull
from fad.core.tensor import Tensor
from fad.replay.inputs import FOREIGN, Input
from fad.replay.program import Known, Program
from fad.replay.states import State

__all__ = [
    "Entry",
    "Operations",
    "computation_of",
    "entry_of",
    "known_of",
    "origin_of",
    "outputs_of",
]

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


class Operations:
    """What a trace has appended by now: entries, the states after them, inputs, and outputs.

    ``more``: how many inputs were appended after the last operation: outputs of earlier segments at which a
    backward pass starts.
    """

    __slots__ = ("entries", "inputs", "outputs", "path")

    def __init__(self, trace: Any, more: int = 0) -> None:
        self.entries: list[Entry] = trace.entries[:]
        self.path = [e[0] for e in self.entries[1:]]
        self.inputs: list[Input] = trace.inputs[: self.entries[-1][2] + more]
        self.outputs = outputs_of(self.entries)

    @property
    def work(self) -> int:
        """How many operations there are, those of programs among them included."""
        return self.path[-1].work if self.path else 0

    def value(self, place: int) -> Any:
        """Output ``place``, or the argument that is input ``~place``."""
        return self.outputs[place] if place >= 0 else self.inputs[~place].argument

    def program(
        self,
        name: str,
        maker: Callable[[], Any],
        kept: Sequence[int],
        ends: Sequence[int] = (),
        variables: Sequence[int] = (),
        pull: Pull | None = None,
    ) -> Program:
        """These operations, and ``pull``, as a function of the parts of the inputs.

        It returns the result of ``pull``, and then the parts of the outputs that are kept.
        """
        compute = computation_of(self.path, self.inputs)

        def run(*parts: Any) -> Any:
            with maker() as own:
                given, cells = compute(own, parts)
                found: Any = ()
                if pull is not None:
                    inside = [given[k] for k in variables]
                    values = [x._value for x in inside]
                    found = tuple(
                        pull(own, [cells[k] if k >= 0 else given[~k] for k in ends], inside, values)
                    )
                values = [p for k in kept for p in own.parts(cells[k])]
                return values if pull is None else (found, tuple(values))

        return Program(name, run, self.work)


def outputs_of(entries: Sequence[Entry]) -> list[Tensor]:
    """All outputs, by their numbers."""
    found: list[Tensor] = []
    for step, out, _ in entries[1:]:
        if step.single:
            found.append(out)
        else:
            found += out
    return found


def entry_of(entries: Sequence[Entry], place: int) -> int:
    """The number of the entry that an output belongs to."""
    low, high = 1, len(entries) - 1
    while low < high:
        middle = (low + high) // 2
        if entries[middle][0].size > place:
            high = middle
        else:
            low = middle + 1
    return low


def origin_of(entries: Sequence[Entry], place: int) -> tuple[State, int]:
    """The state that an output belongs to, and its number there."""
    step = entries[entry_of(entries, place)][0]
    return step, place - step.first


def known_of(entries: Sequence[Entry], inputs: Sequence[Input], ref: int) -> Known:
    """What is known of an argument: of output ``ref``, or of input ``~ref``."""
    if ref < 0:
        given = inputs[~ref]
        return given.layout, given.aval
    step, k = origin_of(entries, ref)
    return step.layouts[k], step.avals[k]
