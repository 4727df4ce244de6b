"""Each kind of step of random programs, alone."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.fuzzing.programs import OPS, Program, check_program
from tests.fuzzing.repeats import in_32_bits
from tests.fuzzing.strategies import operands_for


def test_every_kind_of_step_has_a_form_of_32_bits() -> None:
    for name, step in OPS.items():
        for option in range(len(step.options)):
            (narrow,) = in_32_bits(alone(name, option)).steps
            assert "64" not in str(step.options[narrow[2]].get("to"))


def test_there_are_enough_kinds_of_steps() -> None:
    assert len(OPS) >= 60
    assert len({op.kind for op in OPS.values()}) == 3


SHAPES = ((), (2,), (3,), (2, 2), (2, 3))
SPECS = [(shape, dtype) for dtype in ("float64", "complex128") for shape in SHAPES[::-1]]
OTHERS = [((2, 3), "bool"), ((), "bool"), ((2,), "int32")]


def alone(name: str, option: int = 0) -> Program:
    """A program of one step, on the first operands that it accepts."""
    step = OPS[name]
    avals = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in (*SPECS, *OTHERS)]
    with jax.enable_x64(True):
        operands = operands_for(step, avals)[-1]
    output = operands[0] if step.kind == "write" else len(avals)
    return Program(tuple(SPECS), tuple(OTHERS), ((name, operands, option),), (output,), 0)


@pytest.mark.sweep("name", [n for n in OPS if OPS[n].kind != "write"], sample=6)
def test_each_kind_of_step_alone(name: str) -> None:
    """Every step runs, in value and gradient, on the first operands that it accepts."""
    assert check_program(alone(name), ("vmap", "grad") if OPS[name].differentiable else ("vmap",))


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].kind == "write"])
def test_each_kind_of_write_alone(name: str) -> None:
    for option in range(len(OPS[name].options)):
        assert check_program(alone(name, option), ("vmap", "grad"))
