"""Steps put together by chance: five calls compiled leave, and give, what five eager calls do."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from drawn_steps import BETWEEN, DrawnStep, Failed, is_tensor
from steps import described

import fad
from fad.errors import GradientError

CALLS = 5


def trial(seed: int, is_compiled: bool) -> tuple[DrawnStep, list[Any]]:
    """The step, and what its calls gave, what they left, and what was raised."""
    step = DrawnStep(seed, is_compiled)
    call = fad.jit(step.__call__) if is_compiled else step.__call__
    log: list[Any] = []
    for k in range(CALLS):
        arguments = step.arguments(k)
        try:
            log.append(jax.tree.map(described, call(*arguments), is_leaf=is_tensor))
        except Failed:
            log.append("failed")
        except (
            GradientError
        ) as error:  # all parameters are frozen; an eager call has done half of it
            return step, [*log, type(error).__name__]
        log.append(list(map(described, [*step.state(), *arguments])))
        try:
            step.change(k)
        except GradientError as error:
            log.append(type(error).__name__)
    return step, log


@pytest.mark.sweep("seed", range(10 * len(BETWEEN)), sample=4)
def test_five_calls_compiled_are_five_eager_ones(seed):
    (step, expected), (compiled, got) = trial(seed, False), trial(seed, True)
    about = f"DrawnStep({seed}): {step.parts}"
    assert jax.tree.structure(got) == jax.tree.structure(expected), about
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        if isinstance(b, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-4, err_msg=about)
        else:
            assert a == b, about
    for array, numbers in compiled.arrays:  # that a caller holds
        assert np.array_equal(np.asarray(array), numbers), about
