"""A program's listing and its code say what runs."""

from __future__ import annotations

from tests.fuzzing.programs import Program


def test_the_listing_and_the_code_say_what_runs() -> None:
    program = Program((((2,), "float64"),), (), (("scale", (0,), 0), ("sin", (1,), 0)), (2, 1), 7)
    assert program.listing().splitlines() == [
        "v0 = input float64[2]",
        "v1 = scale(v0, c=2.0)",
        "v2 = sin(v1)",
        "return v2, v1",
    ]
    assert eval(repr(program)) == program
