"""Where traces begin: with a transform, or with a step of the eager tape."""

from __future__ import annotations

import types
import weakref
from collections.abc import Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.jaxapi import trace_context
from fad.core.level import state
from fad.core.primitive import Primitive
from fad.core.tensor import Lazy, Tensor
from fad.replay import states
from fad.replay.inputs import look, version_at
from fad.replay.modes import at_once, is_unobserved
from fad.replay.segments import passed
from fad.replay.settings import settings_number
from fad.replay.states import root_of
from fad.replay.trace import Trace
from fad.tape.recorder import ROOT

__all__ = ["open_step", "open_trace"]


def open_trace(level: Any, inputs: Sequence[Any], function: Any) -> None:
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
    root = root_of(key, codes, getattr(function, "__name__", "a function"))
    if root.backs_off():
        return
    trace = Trace(level, root, context, settings)
    trace.around = around
    trace.is_new = root.begun == 1 and not at_once.count
    for given in found:
        trace.add(given)
    level.trace = trace


def _codes(function: Any) -> list[Any]:
    """The code of a function, and of those that it wraps; the class of what is no function."""
    found: list[Any] = []
    while len(found) < 8:
        if type(function) is not types.FunctionType:
            return [*found, type(function)]
        found.append(function.__code__)
        function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return found


SEEN = 2  # times that an operation has begun a graph before steps that begin with it are traced
_begun: dict[int, int] = {}  # how often graphs may have begun with a plan, by its id


def open_step(op: Primitive, args: Sequence[Any], plan: Any) -> Any:
    """Begin a trace of the eager tape, of which this is the first operation; None if that cannot be.

    Steps begin with operations on leaves, or after an earlier step; an operation on what has a node is in
    the middle of one. If the operation repeats, the step may do so.
    """
    outputs: list[Lazy] = []
    in_the_middle = False
    for a in args:
        if isinstance(a, Tensor) and a._requires_grad:
            lazy = a._lazy
            if lazy is not None:
                outputs.append(lazy)
            elif a._node is not None:
                in_the_middle = True
    if outputs:
        trace = _after(outputs)
        if trace is None:
            return None
        state.trace = trace
        return trace.append(op, args)
    if in_the_middle:
        return None
    count = _begun.get(plan.id, 0)
    if count < SEEN and not at_once.count:
        if len(_begun) >= states.CAPACITY:
            _begun.clear()
        _begun[plan.id] = count + 1
        return None
    context, settings = _surroundings()
    if not settings:
        return None
    root = root_of((settings, plan.id), None, "a step of the eager tape")
    if root.backs_off():
        return None
    trace = state.trace = Trace(ROOT, root, context, settings)
    return trace.append(op, args)


def _after(outputs: Sequence[Lazy]) -> Trace | None:
    """A trace that goes on with lazy ``outputs`` of a step that has run; None if that cannot be.

    NOTE [several backward passes]

    In a step with several losses, what a later loss is computed from may come from before the backward pass
    of an earlier one: the output of a generator, of which the discriminator has used a detached copy. The
    program of the earlier part has given it a value, and no node. Then the later part is a trace that goes on
    after the earlier one, which becomes a segment (NOTE [chains of segments] in `fad.replay.segments`): its
    backward pass computes it again.

    This is so if no backward pass has gone through its nodes, and nothing that these use has changed. If not,
    the earlier part is recorded, and the tape says what is wrong.
    """
    context, settings = _surroundings()
    step = outputs[0].trace
    if type(step) is not Trace or not settings:
        return None
    chain = step.chain
    with step.lock:
        latest = chain.latest()
        segments = chain.segments
        if latest is not None:
            segments.append(latest)
        for s in segments:
            if s.ran is None or s.writes or s.context != context or not s.is_in_its_mode():
                return None
        if step.key[0] != settings or not _is_intact(segments, outputs):
            return None
        trace = Trace(ROOT, chain.root, context, settings, step)
        if latest is not None:
            chain.add(latest)
        chain.latest = weakref.ref(trace)
        return trace


def _is_intact(segments: Sequence[Trace], outputs: Sequence[Lazy]) -> bool:
    """Whether a backward pass can go from outputs of segments through all that they were computed from."""
    ends: dict[Any, list[int]] = {s: [] for s in segments}
    if not _add_places(ends, outputs):
        return False
    for segment in reversed(segments):
        entries, inputs, ran = segment.entries, segment.inputs, segment.ran
        if ran is None:  # a finalizer has read a node of it
            return False
        path = passed(entries, ends[segment])
        if not path.isdisjoint(passed(entries, ran)):
            return False
        steps = [e[0] for e in entries[1:]]
        steps = [s for s in steps if not path.isdisjoint(range(s.first, s.size))]
        used = [inputs[~r] for s in steps for r in s.refs if r < 0]
        if any([given.version != version_at(given.argument) for given in used]):
            return False
        lazies = [given.argument._lazy for given in used if given.layout is True]
        if not _add_places(ends, [lazy for lazy in lazies if lazy is not None]):
            return False
    return True


def _add_places(ends: dict[Any, list[int]], outputs: Sequence[Lazy]) -> bool:
    """Add which outputs of which segments these are; False if one is of another trace."""
    for lazy in outputs:
        if lazy.trace not in ends:
            return False
        ends[lazy.trace].append(lazy.place)
    return True


def _surroundings() -> tuple[Any, int]:
    """The context of JAX and the number of its settings; the number is 0 where nothing is traced."""
    if not state.replaying or not is_unobserved() or jaxapi.is_tracing():
        return None, 0
    context = trace_context()
    return context, settings_number(context)
