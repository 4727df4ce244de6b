"""Graphs that are gone through in several ways give the same with replay and without."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fad.replay import segment
from tests.fuzzing import fuzz
from tests.fuzzing.passes import WAYS, check_passes
from tests.fuzzing.programs import Program
from tests.fuzzing.repeats import check_training
from tests.fuzzing.strategies import whole_programs

PROGRAM = Program(
    floats=(((2, 3), "float32"), ((3,), "float64")),
    others=(),
    steps=(("multiply", (0, 1), 0), ("tanh", (2,), 0), ("multiply", (3, 0), 0), ("sin", (1,), 0)),
    outputs=(4, 3, 5, 0),
)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_through_a_graph(way: str, x64: bool) -> None:
    assert check_passes(PROGRAM, x64, [way])


def test_a_function_whose_rules_come_and_go() -> None:
    """With rules it rounds otherwise than without: each run of a program begins alike."""
    steps = (("hypot", (0, 0), 0), ("late_rules", (0, 1), 0))
    program = Program((((2, 2), "float64"),), (), steps, (2, 2, 2), 418)
    assert check_passes(program, True, ["kept"]) and check_training(program, True, exact=True)


def test_ways_through_random_graphs(full: bool) -> None:
    names = itertools.cycle(WAYS)

    @settings(max_examples=200 if full else 6, phases=[Phase.generate])
    @given(whole_programs(4), st.booleans())
    def run(program: Program, x64: bool) -> None:
        check_passes(program, x64, list(WAYS) if full else [next(names), next(names)])

    run()


def test_a_pass_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = segment.Stretch.program

    def wrong(self, pull, *places):
        def larger(*values):
            return [None if g is None else 1.1 * g for g in pull(*values)]

        return made(self, larger, *places)

    monkeypatch.setattr(segment.Stretch, "program", wrong)
    with pytest.raises(AssertionError, match="second_loss, .*, call .*expected"):
        fuzz._check(PROGRAM, (), "passes")
