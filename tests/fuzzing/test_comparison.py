"""Comparisons of programs: what differs is reported, and in which transform."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from functions import Sine
from wrong_rules import WrongFactor

import fad
import fad.numpy as fnp
from tests.fuzzing.comparison import assert_same_program
from tests.fuzzing.stacks import IN_FAD

X = np.array([0.3, -0.5, 1.2])


def test_programs_that_differ_only_in_a_derivative_are_distinguished() -> None:
    x = jnp.asarray(X, jnp.float32)
    assert_same_program(Sine.apply, jnp.sin, x)
    with pytest.raises(AssertionError, match=r"the functions differ under vjp: \[0\]: entry"):
        assert_same_program(WrongFactor.apply, jnp.sin, x)
    with pytest.raises(AssertionError, match="under jvp of vjp"):
        assert_same_program(
            lambda x: (lambda a: fnp.sin(a) + (x - a) * fnp.cos(a))(fad.stop_gradient(x)),
            fnp.sin,
            x,
            library=IN_FAD,
        )
