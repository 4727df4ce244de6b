"""Running what a trace has appended: which program it is, and its call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.core.level import bind
from fad.replay.inputs import Input, is_in_trace
from fad.replay.program import Program
from fad.replay.program_node import parts_of
from fad.replay.states import End, fresh_in, repays_whole
from fad.tape.recorder import ROOT

__all__ = ["program_of", "run_program"]


def program_of(
    trace: Any, stretch: Any, end: End, long: bool, make: Callable[[], Program]
) -> Program | None:
    """The program of what a trace has appended, as ``make`` makes it; None if there is none yet.

    ``long``: it is a segment, or what comes after one.
    """
    root, path = trace.policy, stretch.path
    if long:
        return end.always(make, root.is_due)
    if end.program is not None or trace.level is ROOT:
        return end.due(make, now=False)
    fresh = fresh_in(path)
    whole = repays_whole(stretch.work, fresh)
    program = end.due(make, whole or is_in_trace(stretch.inputs))
    if program is not None:
        program.in_foreground, program.fresh = whole, fresh
        for use in {s.use for s in path}:
            use.times += 1
        if whole:
            root.decide(0)
            root.has_whole = True
    return program


def run_program(
    trace: Any, end: End, program: Program, inputs: Sequence[Input], unless_pending: bool = False
) -> Any:
    """Run a program of the inputs, one level down; None if it fails.

    ``unless_pending``: None too where it is one of several, and is being compiled. To record operations takes
    less time than to run those of a segment one by one, here and again in the backward pass.
    """
    values = parts_of(inputs, trace.on_values)
    root = trace.policy
    if unless_pending and trace.ended and program.is_compiling(values):
        root.pending, root.failures = program, 0
        return None
    try:
        found = bind(program, values)
    except Exception as error:  # of any kind: recording raises it again, or succeeds
        end.fail(error)
        return None
    if program.is_pending:
        root.pending = program
    return found
