"""The laws of one call and its derivatives: each finds its fault without the others."""

from __future__ import annotations

import numpy as np
import pytest
from functions import Product, Sine
from law_cases import check_that_it_holds, check_that_it_is_found_alone, laws_of
from wrong_rules import Pair, X, Y, Z

import fad.numpy as fnp
from fad.testing import check_function, laws

NAMES = laws_of(laws)


@pytest.mark.parametrize("law", NAMES)
def test_each_law_finds_what_breaks_it(law: str) -> None:
    check_that_it_is_found_alone(law)


def test_they_hold_for_right_rules() -> None:
    several_inputs = [n for n in NAMES if n not in ("unused outputs", "sparsity")]
    check_that_it_holds(Product, X, Y, laws=several_inputs)
    check_that_it_holds(Pair, X, laws=[n for n in NAMES if n not in ("masks", "sparsity")])


def test_a_law_that_has_nothing_to_check_says_why() -> None:
    integers = check_function(lambda n: n + 1, np.array([1, 2]), laws=("vjp", "jvp", "linear"))
    assert not integers.passed and len(set(integers.not_checked.values())) == 1
    assert "floating or complex" in integers.not_checked["vjp"]
    plain = check_function(fnp.sin, X, laws=("no mutation",))
    assert "it is not a Function" in plain.not_checked["no mutation"]


def test_complex_arguments_have_their_adjoint() -> None:
    check_that_it_holds(Product, Z, Z + 1.0, laws=["linear", "vjp", "jvp", "adjoint"])
    report = check_function(lambda z: Sine.apply(fnp.real(z)), Z, laws=("vjp", "adjoint"))
    assert report.ok
