"""The arguments of operations: a trace finds which of its inputs and outputs they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fad.core.avals import SCALARS, constant
from fad.core.borrowed import copied, is_borrowed
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.replay.inputs import Input, is_value, look
from fad.replay.program import Program
from fad.replay.settings import is_small
from fad.replay.states import State
from fad.tape.recorder import ROOT

__all__ = ["Arguments"]


class Arguments:
    """The inputs of a trace of ``level``, and where its operations find their arguments.

    The place of its output k is ``k``, that of its input k is ``~k``; ``places`` finds inputs by their
    `id`. ``scalars`` are kept so that their ids stay their own.
    """

    __slots__ = ("inputs", "level", "places", "scalars")

    has_untracked: bool
    on_values: bool
    policy: Any

    def __init__(self, level: Any) -> None:
        self.level = level
        self.forget_inputs()

    def forget_inputs(self) -> None:
        """Drop all inputs."""
        self.inputs: list[Input] = []
        self.places: dict[int, int] = {}
        self.scalars: list[Any] = []

    def is_predicted(self, step: State, args: Sequence[Any], count: int) -> bool:
        """Whether these are the arguments of the predicted next operation."""
        refs = step.refs
        if len(args) != len(refs):
            return False
        places = self.places
        for a, ref, code in zip(args, refs, step.codes):
            if type(a) is Tensor:
                lazy = a._lazy
                if lazy is not None and lazy.trace is self:
                    if lazy.place != ref:
                        return False
                    continue
            place = places.get(id(a))
            if place is None:
                if not code:
                    return False
                given = self.look(a)
                if given is None or given.code != code:
                    return False
                place = self.add(given)
            elif code and ~place < count:
                return False
            if place != ref:
                return False
        return True

    def look(self, a: Any) -> Input | None:
        if type(a) in SCALARS:
            return look(a, self.level)
        value = a
        if type(a) is Tensor and a._level is ROOT and a._lazy is None and a.meta is None:
            value = a if a._requires_grad else a._value
        if isinstance(value, np.ndarray) or (is_borrowed(value) and is_small(value)):
            a = copied(value)  # the memory may be written to before it is used again
        return look(a, self.level)

    def add(self, given: Input) -> int:
        """The place of an input that is new."""
        place = ~len(self.inputs)
        self.inputs.append(given)
        self.places[id(given.argument)] = place
        for p in given.parts:
            if type(p) is Tensor and not is_value(p):
                self.on_values = False
                if self.has_untracked:
                    self.policy.defers_untracked = False
        return place

    def place(self, a: Any) -> int | None:
        """The place of an argument; None if it cannot be an input."""
        if type(a) is Tensor:
            lazy = a._lazy
            if lazy is not None and lazy.trace is self:
                return int(lazy.place)
        place = self.places.get(id(a))
        if place is not None:
            return place
        if type(a) in SCALARS:
            place = self.places.get(id(constant(a)))
            if place is not None:
                self.scalars.append(a)
                self.places[id(a)] = place
                return place
        given = self.look(a)
        return None if given is None else self.add(given)

    def refusal(self, op: Any, args: Sequence[Any]) -> str:
        """Why an operation was not appended."""
        if type(op) is not Primitive and type(op) is not Program:
            return "it runs rules in Python"
        if type(op) is Primitive and (not op.lazy or op.collective):
            return "it is not a pure operation that can be deferred"
        for k, a in enumerate(args):
            if self.place(a) is None:
                return f"argument {k} is large, traced by JAX, on other devices, or in the middle of a graph"
        return "its outputs are not known from abstract evaluation"
