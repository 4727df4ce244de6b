"""Writes mean in JAX what they mean in PyTorch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.fuzzing import fuzz
from tests.fuzzing.programs import Program
from tests.fuzzing.stacks import IN_JAX


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
        got = program.run(fuzz._torch_library(), values, n)
    for a, b in zip((got["first"], *got["rest"]), (want["first"], *want["rest"]), strict=True):
        np.testing.assert_allclose(a.numpy(), b)
