"""The laws of higher orders, other shapes and compiled code: each finds its fault without the others."""

from __future__ import annotations

import numpy as np
import pytest
from functions import Cube, Product
from law_cases import check_that_it_holds, check_that_it_is_found_alone, laws_of
from wrong_rules import X, Y

import fad.numpy as fnp
from fad.testing import check_function, order_laws
from fad.testing.function_checks import HIGHER

NAMES = laws_of(order_laws)


@pytest.mark.parametrize("law", NAMES)
def test_each_law_finds_what_breaks_it(law: str) -> None:
    check_that_it_is_found_alone(law)


def test_they_hold_for_right_rules() -> None:
    check_that_it_holds(Product, X, Y, laws=[law for law in NAMES if law != "jet"])


def test_higher_orders_find_what_the_second_does_not() -> None:
    """x^4, whose third derivative is lost: it goes through a value that is detached."""

    class WrongCube(Cube):
        @staticmethod
        def vjp(ctx, g):
            x = ctx.saved_tensors[0]
            return 3.0 * g * x * x.detach()

    class Fourth(Cube):
        @staticmethod
        def forward(x):
            return x**4

        @staticmethod
        def vjp(ctx, g):
            return WrongCube.apply(ctx.saved_tensors[0]) * g * 4.0

    assert check_function(Fourth, X, laws=("second order",), raise_exception=False).ok
    report = check_function(Fourth, X, laws=(HIGHER,), order=3, raise_exception=False)
    assert {v.law for v in report.violations} == {"order 3"}, report


def test_other_shapes_are_those_that_forward_takes() -> None:
    fixed = check_function(lambda x: x @ np.ones(2), X, laws=("shapes",))
    assert fixed.not_checked == {"shapes": "forward takes no other shapes"}
    positions = check_function(lambda x, i: x[i], X, np.array([0, 1]), laws=("shapes",))
    assert "integer arguments" in positions.not_checked["shapes"]
    alone = check_function(fnp.sin, X, laws=("broadcasting",))
    assert "only one array" in alone.not_checked["broadcasting"]
