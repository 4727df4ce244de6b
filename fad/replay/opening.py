"""Where traces begin: with a transform, or with a step of the eager tape."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.jaxapi import trace_context
from fad.core.level import state
from fad.core.primitive import Primitive, VjpPlan
from fad.core.tensor import Tensor
from fad.core.types import Operand, Outputs, PyTree, Value
from fad.replay.buffer import is_unobserved
from fad.replay.inputs import look
from fad.replay.policy import at_once, is_step_due
from fad.replay.settings import settings_number
from fad.replay.states import root_of
from fad.replay.trace import Trace
from fad.tape.recorder import ROOT
from fad.tape.saved import UNCHANGED

__all__ = ["open_step", "open_trace"]


def open_trace(level: Any, inputs: Sequence[Value], function: Callable[..., PyTree] | None) -> None:
    """Give ``level`` a trace of ``function`` on ``inputs``, if such traces repeat."""
    context, settings = _surroundings()
    if not settings:
        return
    found = []
    for x in inputs:
        given = look(x, level)
        if given is None:
            return
        found.append(given)
    codes = _codes(function)
    around = tuple([own.key() for own in state.levels if own is not level])
    key = (settings, *map(id, codes), around, level.key(), *[given.code for given in found])
    root = root_of(key, codes, getattr(function, "__name__", "a function"), len(found))
    if root.policy.backs_off():
        return
    trace = Trace(level, root, context, settings)
    trace.around = around
    trace.is_new = root.policy.begun == 1 and not at_once.count
    for given in found:
        trace.add(given)
    level.trace = trace


def _codes(function: object) -> list[object]:
    """The code of a function, and of those that it wraps; the class of what is no function."""
    found: list[object] = []
    while len(found) < 8:
        if type(function) is not types.FunctionType:
            return [*found, type(function)]
        found.append(function.__code__)
        function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return found


def open_step(op: Primitive, args: Sequence[Operand], plan: VjpPlan) -> Outputs:
    """Begin a trace of the eager tape, of which this is the first operation; None if that cannot be.

    Steps begin with operations on leaves, or on outputs of programs; another operation on what has a node is
    in the middle of one. If the operation repeats, the step may do so.
    """
    after = False
    for a in args:
        if isinstance(a, Tensor) and a._requires_grad and a._node is not None:
            if not a._node.is_program:
                return None
            after = True
    if not after and not is_step_due(plan.id):
        return None
    context, settings = _surroundings()
    if not settings:
        return None
    root = root_of((settings, plan.id), None, "a step of the eager tape")
    if root.policy.backs_off():
        return None
    trace = state.trace = Trace(ROOT, root, context, settings)
    return trace.append(op, args)


def _surroundings() -> tuple[object, int]:
    """The context of JAX and the number of its settings; the number is 0 where nothing is traced."""
    hooks = any([pair is not UNCHANGED for pair in state.saved_hooks])
    if hooks or not is_unobserved(state.__dict__.get) or jaxapi.is_tracing():
        return None, 0
    context = trace_context()
    return context, settings_number(context)
