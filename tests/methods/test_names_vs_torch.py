"""Methods under PyTorch's names, next to PyTorch's: values, dtypes, gradients, and what is a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensor_expressions as expressions

import fad

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|in beta)")  # PyTorch's
KINDS = {
    "int64": "int32",
    "float64": "float32",
    "complex128": "complex64",
}  # fad's default has 32 bits
COMPUTED = [
    *expressions.split(expressions.ELEMENTWISE),
    *expressions.split(expressions.MATRICES),
    *expressions.split(expressions.REDUCTIONS),
    *expressions.split(expressions.INDEXING),
]
SHAPES = expressions.split(expressions.SHAPES)
QUESTIONS = expressions.split(expressions.QUESTIONS)
# Results whose gradients JAX and PyTorch define in another way, or that have none in one of them.
NO_GRADIENT: set[str] = set()


def check(torch: Any, expression: str) -> tuple[list[Any], list[Any]]:
    ours, our_grads = expressions.run(fad, expression)
    theirs, their_grads = expressions.run(torch, expression)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        a, b = expressions.as_numpy(mine), expressions.as_numpy(other)
        assert a.shape == b.shape
        assert KINDS.get(str(b.dtype), str(b.dtype)) == str(a.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    if expression not in NO_GRADIENT:
        assert our_grads.keys() == their_grads.keys()
        for name, g in our_grads.items():
            np.testing.assert_allclose(g, their_grads[name], rtol=2e-3, atol=2e-4, err_msg=name)
    return ours, theirs


@pytest.mark.sweep("expression", COMPUTED, sample=40)
def test_methods_compute_what_pytorchs_do(torch: Any, expression: str) -> None:
    check(torch, expression)


@pytest.mark.sweep("expression", SHAPES, sample=22)
def test_shapes_are_views_where_pytorchs_are(torch: Any, expression: str) -> None:
    ours, theirs = check(torch, expression)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.is_view == other._is_view(), expression


@pytest.mark.parametrize("expression", QUESTIONS)
def test_questions_have_pytorchs_answers(torch: Any, expression: str) -> None:
    env, theirs = expressions.names(fad), expressions.names(torch)
    mine, other = eval(expression, env), eval(expression, theirs)
    assert mine == (tuple(other) if isinstance(other, torch.Size) else other)
