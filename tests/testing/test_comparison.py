"""Comparisons of results: what differs is reported."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad.testing import assert_close, difference

X = np.array([0.3, -0.5, 1.2])


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (np.float32(1.0), np.float64(1.0), "dtype float32, expected float64"),
        (np.ones(2), np.ones(3), r"shape \(2,\), expected \(3,\)"),
        ({"a": np.ones(2)}, {"b": np.ones(2)}, "structure"),
        (
            {"a": [np.array([1.0, np.nan])]},
            {"a": [np.array([1.0, 2.0])]},
            r"\['a'\]\[0\]: entry \[1\] is nan",
        ),
        (np.array([np.inf]), np.array([-np.inf]), "inf, expected -inf"),
        (np.array([1, 2]), np.array([1, 3]), r"entry \[1\] is 2, expected 3"),
        (np.array(1.0 + 1j), np.array(1.0 + 2j), "expected"),
    ],
)
def test_differences_are_reported(got: Any, expected: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_close(got, expected)
    assert difference(got, got) is None


def test_bfloat16_and_tensors_compare() -> None:
    assert_close(fad.tensor(X), jnp.asarray(X))
    half = jnp.asarray(X, jnp.bfloat16)
    assert difference(half, half) is None and difference(half, half * 2) is not None
    assert difference(np.zeros((0, 2)), np.zeros((0, 2))) is None
