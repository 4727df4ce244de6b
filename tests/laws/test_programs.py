"""Random programs under random stacks of transforms, against JAX and PyTorch; and the fuzzer itself.

Most runs in 64 bits, so that a wrong term is not taken for rounding; 32 and 16 bit steps widen the
tolerance. What is called again and again runs in 32 bits. `python -m fad.testing.fuzz` runs more of the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from helpers import is_idle
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import fad.numpy as fnp
import fad.testing.fuzz
from fad.replay import states, trace
from fad.testing.programs import IN_PLACE, MODES, OPS, Program, check_program
from fad.testing.repeats import UPDATES, check_again, check_training, in_32_bits
from fad.testing.stacks import IN_FAD, IN_JAX, apply_stack
from fad.testing.strategies import operands_for, stacks, whole_programs

EXAMPLES = {"ci": 24, "full": 2_000}
FEW = {"ci": 12, "full": 1_000}
PROFILE = "full" if settings.get_current_profile_name() == "full" else "ci"
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
PHASES = [Phase.explicit, Phase.generate, Phase.shrink]  # explaining takes minutes


@settings(max_examples=EXAMPLES[PROFILE], suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs(), stacks())
def test_random_programs_under_random_transforms_agree_with_jax(
    program: Program, stack: tuple[str, ...]
) -> None:
    assume(check_program(program, stack))
    assert is_idle()


@settings(max_examples=FEW[PROFILE], suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs(), stacks(2), st.sampled_from([m for m in MODES if m != "eager"]))
def test_random_programs_under_jit_and_native_transforms(
    program: Program, stack: tuple[str, ...], mode: str
) -> None:
    assume(check_program(program, stack, mode))


@settings(max_examples=FEW[PROFILE], suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs())
def test_gradients_of_random_programs_agree_with_pytorch(torch: Any, program: Program) -> None:
    fad.testing.fuzz.check_torch(program)


@pytest.mark.parametrize("x64", [False, True])
@settings(max_examples=FEW[PROFILE] // 4, suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs(), stacks(2))
def test_random_programs_called_again_agree_with_jax(
    x64: bool, program: Program, stack: tuple[str, ...]
) -> None:
    assume(check_again(program, stack, x64))
    assert is_idle()


@pytest.mark.parametrize("x64", [False, True])
@settings(max_examples=FEW[PROFILE] // 4, suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs())
def test_training_of_random_programs_ends_where_jax_ends(x64: bool, program: Program) -> None:
    assume(check_training(program, x64))
    assert is_idle()


def test_every_kind_of_step_has_a_form_of_32_bits() -> None:
    for name, step in OPS.items():
        for option in range(len(step.options)):
            (narrow,) = in_32_bits(alone(name, option)).steps
            assert "64" not in str(step.options[narrow[2]].get("to"))


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
    """Otherwise these checks say nothing about scripts; and seeds choose how parameters are updated."""
    program = dataclasses.replace(SMOOTH, seed=seed)
    before = states.tree.hits
    assert check_again(program, ("grad", "value_and_grad"), x64)
    between = states.tree.hits
    assert between > before, fad.autograd.compiled.explain()
    assert check_training(program, x64)
    retains = UPDATES[seed].__name__ == "_zeroed"  # a graph that is kept is recorded
    assert (states.tree.hits > between) != retains


@pytest.mark.parametrize("mode", ["again", "again64", "training"])
def test_what_goes_wrong_only_later_is_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs as one operation is wrong, a call alone is right; and a failure is code that fails."""
    made = trace.Trace._program

    def wrong(self, path, inputs, ends, kept, variables, pull):
        def larger(*values):
            return [None if g is None else 1.1 * g for g in pull(*values)]

        return made(self, path, inputs, ends, kept, variables, pull and larger)

    monkeypatch.setattr(trace.Trace, "_program", wrong)
    fad.autograd.compiled.clear_cache()
    with pytest.raises(AssertionError, match=r"call \d.*expected") as found:
        fad.testing.fuzz._check(SMOOTH, ("grad",), mode)
    said = str(fad.testing.fuzz.Failure(SMOOTH, ("grad",), mode, found.value))
    with pytest.raises(AssertionError, match=r"call \d.*expected"):
        exec(said, {})
    fad.autograd.compiled.clear_cache()


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


@pytest.mark.sweep("name", [n for n in OPS if OPS[n].kind != "write"], sample=8)
def test_each_kind_of_step_alone(name: str) -> None:
    """Every step runs, in value and gradient, on the first operands that it accepts."""
    assert check_program(alone(name), ("vmap", "grad") if OPS[name].differentiable else ("vmap",))


@pytest.mark.skipif(not IN_PLACE, reason="this version has no writes in place")
@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].kind == "write"])
def test_each_kind_of_write_alone(name: str) -> None:
    for option in range(len(OPS[name].options)):
        assert check_program(alone(name, option), ("vmap", "grad"))


def test_writes_mean_in_jax_what_they_mean_in_pytorch(torch: Any) -> None:
    """Through a chain of views, and seen by another view."""
    program = Program(
        floats=(((2, 3), "float64"), ((2,), "float64")),
        others=(),
        steps=(
            ("view_transpose", (0,), 0),  # v2
            ("view_index", (2,), 2),  # v3 = v2[1:]
            ("view_reshape", (0,), 0),  # v4
            ("add_", (3, 1), 0),
            ("set_item_", (2, 1), 0),
            ("multiply_", (4, 4), 0),
            ("sin", (3,), 0),  # v5
        ),
        outputs=(5, 0, 4),
    )
    with jax.enable_x64(True):
        x, n = program.inputs()
        want = program.run(IN_JAX, x, n)
        values = [torch.tensor(np.asarray(v)) for v in (x["a"], *x["b"])]
        got = program.run(fad.testing.fuzz._torch_library(), values, n)
    for a, b in zip((got["first"], *got["rest"]), (want["first"], *want["rest"]), strict=True):
        np.testing.assert_allclose(a.numpy(), b)


def test_the_listing_and_the_code_say_what_runs() -> None:
    program = Program((((2,), "float64"),), (), (("scale", (0,), 0), ("sin", (1,), 0)), (2, 1), 7)
    assert program.listing().splitlines() == [
        "v0 = input float64[2]",
        "v1 = scale(v0, c=2.0)",
        "v2 = sin(v1)",
        "return v2, v1",
    ]
    assert eval(repr(program)) == program


def test_the_fuzzer_finds_shrinks_and_prints_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sine with a wrong cosine is found, shrunk to one step, and printed as code that fails."""

    def wrong(lib, x):
        return lib.np.sin(x) if lib is IN_JAX else lib.np.sin(x) + 1e-3 * lib.np.cos(x)

    monkeypatch.setitem(OPS, "sin", dataclasses.replace(OPS["sin"], run=wrong))
    for name in set(OPS) - {"sin", "add", "multiply", "sum", "scale"}:
        monkeypatch.delitem(OPS, name)
    said: list[str] = []
    failures, counts = fad.testing.fuzz.fuzz(
        0.0, seed=3, max_steps=3, max_stack=1, modes=("eager",), say=said.append
    )
    assert len(failures) == 1 and sum(counts.values()) > 0
    assert [name for name, _, _ in failures[0].program.steps] == ["sin"]
    assert failures[0].stack == ()
    with pytest.raises(AssertionError, match="expected"):
        exec(said[0], {})
    with pytest.raises(SystemExit):
        fad.testing.fuzz.main(["--modes", "nonsense"])


def test_a_difference_in_pytorch_is_told(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(lib, x):
        return fnp.sin(2.0 * x) if lib is IN_FAD else lib.np.sin(x)

    monkeypatch.setitem(OPS, "sin", dataclasses.replace(OPS["sin"], run=wrong))
    with pytest.raises(AssertionError, match="PyTorch's gradient"):
        fad.testing.fuzz.check_torch(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)))


def test_stacks_are_those_of_the_libraries() -> None:
    f = lambda lib: apply_stack(lib, lib.np.sin, ("jvp", "vmap"))
    np.testing.assert_allclose(
        np.asarray(f(IN_FAD)(np.ones(2, np.float32))[0]),
        f(IN_JAX)(np.ones(2, np.float32))[0],
        rtol=1e-5,
    )
