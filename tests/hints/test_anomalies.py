"""In anomaly mode, a NaN that reaches a result is an error, and one that is dropped is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.autograd import detect_anomaly
from fad.errors import GradientError

X = jnp.array([4.0, 0.0])


def safe(x: Any) -> Any:
    return fad.safe_where(x > 0, fnp.sqrt, fnp.zeros_like, x)


def safe_logarithm(x: Any) -> Any:
    return fad.safe_where(x > 0, lambda x: fnp.log(x - 1.0), fnp.zeros_like, x)


def selected_twice(x: Any) -> Any:
    return fnp.where(x > 0, fnp.sqrt(fnp.where(x > 0, x, 0.0)), 0.0)


def chosen(x: Any) -> Any:
    return fnp.where(x > 0, fnp.sqrt(x), 0.0)


def on_the_tape(f: Callable[..., Any]) -> Any:
    x = fad.tensor(X, requires_grad=True)
    f(x).sum().backward()
    return x.grad


WAYS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "tape": on_the_tape,
    "grad": lambda f: fad.grad(lambda x: f(x).sum())(X),
    "vmap": lambda f: fad.vmap(fad.grad(f))(X),
    "jit": lambda f: fad.jit(fad.grad(lambda x: f(x).sum()), hooks=True)(X),
    "jit of vmap": lambda f: fad.jit(fad.vmap(fad.grad(f)), hooks=True)(X),
    "hessian": lambda f: fnp.diag(fad.hessian(lambda x: f(x).sum())(X)),
}
REVERSE = ["tape", "grad", "vmap", "jit", "jit of vmap"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("f", [safe, safe_logarithm])
def test_what_safe_where_drops_is_no_error(way: str, f: Callable[..., Any]) -> None:
    expected = WAYS[way](f)
    assert np.isfinite(np.asarray(fnp.asarray(expected).array)).all()
    with detect_anomaly():
        assert_close(WAYS[way](f), expected)


@pytest.mark.parametrize("way", REVERSE)
def test_what_a_where_at_both_ends_drops_is_no_error(way: str) -> None:
    with detect_anomaly():
        assert_close(WAYS[way](selected_twice), WAYS[way](safe))


def test_forward_mode() -> None:
    with detect_anomaly():
        value, tangent = fad.jvp(safe, (X,), (jnp.ones(2),))
        assert tangent.tolist() == [0.25, 0.0]
        with pytest.raises(GradientError, match="'safe_where' gave nan in the value"):
            fad.safe_where(X > 0, lambda x: fnp.log(x - 5.0), fnp.zeros_like, X)


@pytest.mark.parametrize("way", REVERSE)
def test_what_reaches_a_result_is_named(way: str) -> None:
    with (
        detect_anomaly(),
        pytest.raises(GradientError, match="'SqrtBackward' returned nan") as caught,
    ):
        WAYS[way](chosen)
    assert "fnp.sqrt(x)" in str(caught.value)


def test_where_a_choice_drops_the_value_it_names_safe_where_and_the_element() -> None:
    with detect_anomaly(), pytest.raises(GradientError) as caught:
        on_the_tape(chosen)
    assert "At element [1] the cotangent is 0" in str(caught.value)
    assert "Write fad.safe_where(condition, f, g, x)" in str(caught.value)
    with detect_anomaly(), pytest.raises(GradientError) as caught:
        on_the_tape(lambda x: fnp.log(x - 1.0) * (x * float("nan")))
    assert "safe_where" not in str(caught.value)


def test_the_first_of_several_is_named_if_it_is_the_one_that_arrives() -> None:
    """One NaN is dropped, another one is not."""

    def f(x: Any) -> Any:
        return fnp.cbrt(x * x) * 0.0 + safe(x) + selected_twice(x)

    with detect_anomaly(), pytest.raises(GradientError, match="'CbrtBackward' returned nan"):
        on_the_tape(f)


def test_an_input_that_the_nan_does_not_reach() -> None:
    x, y = (fad.tensor(X, requires_grad=True) for _ in range(2))
    with detect_anomaly():
        out = (chosen(x) * y).sum()
        (slope,) = fad.autograd.grad(out, y, retain_graph=True)
        assert slope.tolist() == [2.0, 0.0]
        with pytest.raises(GradientError, match="'SqrtBackward'"):
            fad.autograd.grad(out, x)
    assert x.grad is None
