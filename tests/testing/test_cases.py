"""A case: names of arguments, directions without symmetry, text, and what watches bodies."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from functions import Product, Sine
from wrong_rules import X, Y, Z

import fad
import fad.numpy as fnp
from fad.errors import RuleError
from fad.testing.cases import (
    Case,
    NotChecked,
    Subject,
    Violation,
    containers,
    like,
    random_like,
    shown,
    watched,
)


def test_a_violation_is_told_in_lines() -> None:
    short = Violation("vjp", "F", "backward", "argument 'x'", "it is wrong")
    assert str(short) == "[vjp] F.backward, argument 'x': it is wrong"
    long = Violation("jit", "F", "forward", "", "it differs", "1\n2", "3", "x=0.1")
    assert str(long).splitlines() == [
        "[jit] F.forward: it differs",
        "  got       1",
        "            2",
        "  expected  3",
        "  case      x=0.1",
    ]
    assert short.key == ("vjp", "backward", "argument 'x'") and short.key != long.key


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "None"),
        ("as it is", "as it is"),
        (np.float64(0.5), "0.5"),
        (np.float32(0.5), "0.5 (float32)"),
        (fad.tensor([1.0, 2.0]), "[1., 2.] (float32)"),
        (np.zeros((2, 0)), "an empty array of shape (2, 0)"),
        ([np.float64(1.0), None], "1., None"),
    ],
    ids=str,
)
def test_values_in_messages(value: Any, text: str) -> None:
    assert shown(value) == text


def test_arguments_have_the_names_of_the_signature() -> None:
    s = Subject(Product, (X, Y), {})
    assert [s.argument(k) for k in range(2)] == ["argument 'x'", "argument 'y'"]
    f = lambda a, *rest, scale: a
    s = Subject(f, ({"w": X, "b": [Y]}, X, 2.0, Y), {"scale": Z})
    names = [s.argument(k).removeprefix("argument ") for k in range(len(s.at))]
    assert names == ["'a'['b'][0]", "'a'['w']", "'rest[0]'", "'rest[2]'", "'scale'"]
    assert len(Subject(fnp.add, (X, Y), {}).names) == 2


def test_only_arrays_are_varied() -> None:
    s = Subject(lambda x, n, k: (x * n + k, "text"), (X, 3, None), {})
    assert len(s.arrays) == 1 and s.has("vjp") is False and s.rule("jvp") == "jvp (derived)"
    s = Subject(lambda x, n: (x * n, n), (X, 3), {})
    (out,) = s.call([jnp.asarray(X)])
    np.testing.assert_allclose(out, X * 3, rtol=1e-6)


def test_rules_are_named_with_what_they_are_derived_from() -> None:
    s = Subject(Sine, (X,), {})
    assert (s.rule("vjp"), s.rule("jvp")) == ("vjp", "jvp (derived from vjp)")
    assert s.rule("vmap") == "vmap (derived from forward)"
    assert [Subject(Product, (X, Y), {}).has(r) for r in ("vjp", "jvp", "vmap")] == [True] * 3


@pytest.mark.parametrize("target, error", [(3, TypeError), (fad.Function, RuleError)])
def test_what_cannot_be_called_is_refused(target: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="expected a Function class or a function|has no forward"):
        Subject(target, (X,), {})


def test_directions_have_no_symmetry_and_are_not_small() -> None:
    rng = np.random.default_rng(0)
    for x in (X, Z, X.astype(np.float16), np.zeros((0, 2))):
        v = random_like(x, rng)
        assert v.shape == x.shape and v.dtype == x.dtype
        assert np.all(np.abs(v.real) >= 0.49)
    a, b = (Case(Subject(Product, (X, Y), {}), [X, Y], seed) for seed in (0, 1))
    assert not np.array_equal(a.vs[0], b.vs[0])


def test_a_case_knows_what_has_a_derivative() -> None:
    case = Case(Subject(lambda x, i: (x * 2.0, i + 1), (X, np.array([1])), {}), [X, np.array([1])])
    assert (case.differentiable, case.differentiable_outs) == ([0], [0])
    assert str(case) == "x=[ 0.3, -0.5], i=[1] (int64)"
    assert case.alone(0) == case.vs
    none = Case(Subject(lambda i: i, (np.array([1]),), {}), [np.array([1])])
    with pytest.raises(NotChecked, match="no argument is an array of floating"):
        none.need_derivative()
    with pytest.raises(NotChecked, match="shapes of the outputs change"):
        like([X], [X[:1]])


def test_bodies_are_watched() -> None:
    cls, log = watched(Product)
    x = fad.tensor(X, requires_grad=True)
    cls.apply(x, fad.tensor(Y)).sum().backward()
    assert [call.rule for call in log] == ["forward", "setup_context", "vjp"]
    assert cls.__name__ == "Product" and not any([call.changed() for call in log])
    np.testing.assert_allclose(log[-1].returned[0].array, Y, rtol=1e-6)

    class Writes(Sine):
        @staticmethod
        def vjp(ctx, g):
            g.mul_(2.0)
            return g

    cls, log = watched(Writes)
    x = fad.tensor(X, requires_grad=True)
    cls.apply(x).sum().backward()
    assert log[-1].rule == "vjp" and log[-1].changed() == ["[0]"]
    assert containers(([1],), {}) != containers(([1, 2],), {})
