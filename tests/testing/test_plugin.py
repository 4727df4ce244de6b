"""The pytest helper: one test for each law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions import Product

import fad
from fad.testing import LawError
from fad.testing.plugin import function_tests

X = np.array([0.3, -0.5, 1.2])
Y = np.array([1.5, 2.0, -0.7])


test_product = function_tests(Product, X, Y)


def test_the_helper_reports_each_law_on_its_own() -> None:
    class Double(fad.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x: Any) -> Any:
            return 2.0 * x

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return 3.0 * g

    test = function_tests(Double, np.ones(2), order=3, skip=("jit",))
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    assert mark.args[0] == "law" and {"vjp", "well-formed", "higher orders"} <= set(mark.args[1])
    assert "jit" not in mark.args[1]
    test("linear")
    with pytest.raises(LawError, match=r"\[vjp\] Double\.vjp, argument 'x'"):
        test("vjp")
    with pytest.raises(pytest.skip.Exception, match="generate_vmap_rule is False"):
        test("vmap")
