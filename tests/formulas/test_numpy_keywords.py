"""Keyword arguments of NumPy, as its programs write them."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from helpers import ROOT, assert_close
from numpy_calls import WITH_KEYWORDS, check

import fad
import fad.numpy as fnp
from fad.formulas import numpy_keywords
from fad.formulas.numpy_functions import OWN


@pytest.mark.sweep("call", WITH_KEYWORDS, sample=32)
def test_calls_with_keywords_are_those_of_numpy(call: str) -> None:
    check(call)


def test_where_and_out() -> None:
    """What is not selected keeps the values of ``out``, and has no derivative."""

    def program(np, x, y):  # type: ignore[no-untyped-def]
        out = x * 3.0
        np.divide(x, y, out=out, where=y != 0.0)
        np.log(x, out=out, where=x > 0.5)
        return out

    x, y = np.array([0.25, 0.75, 0.0], np.float32), np.array([2.0, 0.0, 0.0], np.float32)
    assert_close(program(fnp, fad.tensor(x), fad.tensor(y)), program(np, x.copy(), y))
    slopes = fad.grad(lambda x, y: program(fnp, x, y).sum(), (0, 1))
    for form in (slopes, fad.jit(slopes)):
        by_x, by_y = form(x, y)
        assert_close(by_x, np.float32([0.5, 1.0 / 0.75, 3.0]))
        assert_close(by_y, np.float32([-0.0625, 0.0, 0.0]))
    with pytest.raises(fad.errors.ArgumentError, match=r"give out=|safe_where"):
        fnp.log(fad.tensor(x), where=x > 0.5)
    assert_close(fnp.add(x, y, where=True), x + y)


def test_dtype_casts_what_is_given() -> None:
    n = fad.tensor([1, 2, 3])
    assert fnp.sin(n, dtype="float32").dtype == np.float32
    with pytest.raises(TypeError, match="cannot cast"):
        fnp.add(fad.tensor([1.5]), 1, dtype="int32")
    assert fnp.add(fad.tensor([1.5]), 1, dtype="int32", casting="unsafe").tolist() == [2]
    with jax.enable_x64(True):
        slope = fad.grad(lambda x: fnp.multiply(x, x, dtype="float64").sum())
        assert slope(np.float32([0.5])).dtype == np.float32


def test_what_numpy_does_not_have_is_an_error() -> None:
    for wrong in (
        lambda: fnp.sin(1.0, axis=0),
        lambda: fnp.zeros(2, order="T"),
        lambda: fnp.concatenate([np.ones(2)], order="C"),
        lambda: fad.lax.sin(fad.tensor(1.0), order="C"),
    ):
        with pytest.raises(TypeError, match="unexpected keyword"):
            wrong()


def test_the_page_names_all_that_is_treated() -> None:
    page = (ROOT / "docs" / "for-numpy-users.md").read_text()
    named = set(re.findall(r"`(\w+)=?`", page))
    for name in (*numpy_keywords._NO_EFFECT, "dtype"):
        assert name in named, name
    for function in OWN:
        assert function in named, function
