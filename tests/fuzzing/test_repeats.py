"""Programs called again: what goes wrong only later is found, and one bit that differs."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad.errors import GradientError
from fad.replay import segment, states
from tests.fuzzing import fuzz
from tests.fuzzing.comparison import difference_in_bits
from tests.fuzzing.programs import Program
from tests.fuzzing.repeats import (
    UPDATES,
    check_again,
    check_bits,
    check_training,
    in_32_bits,
    inputs_of,
)
from tests.fuzzing.stacks import inexact_leaves


def test_what_rounding_changes_too_much_is_not_compared() -> None:
    """Steps of gradient descent that amplify a change in the seventh digit to one in the first."""
    steps = (("jvp_function", (0, 0), 0), ("vjp_function", (1, 0), 0))
    for dtype in ("float32", "float64"):
        assert not check_training(Program((((2, 2), dtype),), (), steps, (2,), 0))


SMOOTH = Program(
    floats=(((2, 3), "float64"), ((3,), "float64")),
    others=(),
    steps=(("multiply", (0, 1), 0), ("sin", (2,), 0), ("astype", (3,), 1)),
    outputs=(4, 3),
)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("seed", range(len(UPDATES)))
def test_what_is_called_again_runs_as_one_operation(seed: int, x64: bool) -> None:
    """Otherwise these checks say nothing about replay; and seeds choose how parameters are updated."""
    program = dataclasses.replace(SMOOTH, seed=seed)
    before = states.tree.hits
    assert check_again(program, ("grad", "value_and_grad"), x64)
    between = states.tree.hits
    assert between > before, fad.autograd.compiled.explain()
    assert check_training(program, x64)
    retains = UPDATES[seed].__name__ == "_zeroed"  # a graph that is kept is recorded
    assert retains or states.tree.hits > between


@pytest.mark.parametrize("mode", ["again", "again64", "training"])
def test_what_goes_wrong_only_later_is_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs as one operation is wrong, a call alone is right; and a failure is code that fails."""
    made = segment.Stretch.program

    def wrong(self, pull, *places):
        def larger(*values):
            return [None if g is None else 1.1 * g for g in pull(*values)]

        return made(self, larger, *places)

    monkeypatch.setattr(segment.Stretch, "program", wrong)
    fad.autograd.compiled.clear_cache()
    with pytest.raises(AssertionError, match=r"call \d.*expected") as found:
        fuzz._check(SMOOTH, ("grad",), mode)
    said = str(fuzz.Failure(SMOOTH, ("grad",), mode, found.value))
    with pytest.raises(AssertionError, match=r"call \d.*expected"):
        exec(said, {})
    fad.autograd.compiled.clear_cache()


# Bit by bit


def test_a_bit_that_differs_is_found() -> None:
    one = np.float32(1.0)
    assert difference_in_bits(one, np.nextafter(one, np.float32(2))) is not None
    assert difference_in_bits(np.float32(0.0), np.float32(-0.0)) is not None
    assert difference_in_bits(one, np.float64(1.0)) is not None
    assert difference_in_bits([one], [one, one]) is not None
    assert difference_in_bits({"a": one}, {"a": one}) is None


def test_a_call_that_differs_is_named() -> None:
    calls = iter(range(100))

    def f(x: Any) -> Any:
        return x + np.float32(next(calls) >= 5)

    with pytest.raises(AssertionError, match="call 4: entry"):
        check_bits(f, (jnp.ones(1),), (jnp.zeros(1),))


def test_a_call_that_raises_is_named() -> None:
    calls = iter(range(100))

    def f(x: Any) -> Any:
        if next(calls) == 3:
            raise GradientError("a call that fails")
        return x

    with pytest.raises(AssertionError, match=r"call 2: GradientError.*one by one None"):
        check_bits(f, (jnp.ones(1),), (jnp.zeros(1),))


def test_exact_checks_of_repeats() -> None:
    program = Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,))
    assert check_again(program, ("grad",), exact=True)
    assert check_training(program, exact=True)
    others = inputs_of(in_32_bits(program))
    assert len({np.asarray(x).tobytes() for x, _ in others}) == len(others)
    assert inexact_leaves(dataclasses.replace(program, seed=1).inputs()[0])
