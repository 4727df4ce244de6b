"""Random programs under random stacks of transforms, against JAX and PyTorch; and the fuzzer itself.

Most runs in 64 bits, so that a wrong term is not taken for rounding; 32 and 16 bit steps widen the
tolerance. What is called again and again runs in 32 bits. `python -m tests.fuzzing` runs more of the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers import is_idle
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.fuzzing import fuzz
from tests.fuzzing.programs import MODES, Program, check_program
from tests.fuzzing.repeats import check_again, check_training
from tests.fuzzing.strategies import stacks, whole_programs

EXAMPLES = {"ci": 12, "full": 2_000}
FEW = {"ci": 8, "full": 1_000}
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
    fuzz.check_torch(program)


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
