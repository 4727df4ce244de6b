"""Stacks of transforms are those of both libraries."""

from __future__ import annotations

import numpy as np

from tests.fuzzing.stacks import IN_FAD, IN_JAX, apply_stack


def test_stacks_are_those_of_the_libraries() -> None:
    f = lambda lib: apply_stack(lib, lib.np.sin, ("jvp", "vmap"))
    np.testing.assert_allclose(
        np.asarray(f(IN_FAD)(np.ones(2, np.float32))[0]),
        f(IN_JAX)(np.ones(2, np.float32))[0],
        rtol=1e-5,
    )
