"""What Python code of a compiled function leaves behind when it is traced."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import is_idle

import fad
from fad.errors import LevelError


def test_a_value_of_the_trace_that_stays_outside_is_an_error():
    log: list[Any] = []
    state = {"last": None}

    class Model:
        seen: Any = None

    model = Model()

    def appends(x):
        log.append(x * 2)

    def sets(x):
        state["last"] = x * 2

    def attribute(x):
        model.seen = x * 2

    for f, place in ((appends, r"log\[0\]"), (sets, r"state\['last'\]"), (attribute, "model.seen")):
        with pytest.raises(
            LevelError,
            match=rf"{place} is a Tensor of it.*test_outer_values_left_behind.py:\d+.*Return",
        ):
            fad.jit(f)(fad.tensor(1.0))
    assert is_idle()


def test_a_number_outside_that_the_body_changes_is_warned_of():
    class Model:
        def __init__(self):
            self.t = 0

        def step(self, x):
            self.t += 1
            return x * self.t

    model, count = Model(), 0

    def counts(x):
        nonlocal count
        count += 1
        return x

    with pytest.warns(UserWarning, match=r"self.t from 0 to 1 .*self.t \+= 1.*Keep it as a Tensor"):
        fad.jit(model.step)(1.0)
    with pytest.warns(UserWarning, match=r"changes count from 0 to 1 .*count \+= 1"):
        fad.jit(counts)(1.0)
