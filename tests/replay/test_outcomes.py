"""Outputs of an operation, known without running it: as they are when it runs, at each level."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import fad
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.levels.jvp import JvpLevel
from fad.replay import outcomes
from fad.replay.inputs import look
from fad.replay.outcomes import forget_outcomes, outcome_of
from fad.replay.settings import LARGE
from fad.tape.recorder import GradLevel

X = jnp.array([0.5, 1.0, 1.5, 2.0])
OPS: dict[str, Any] = {
    "sin": jnp.sin,
    "several": lambda x: (x * 2.0, jnp.argmax(x), x.astype(jnp.float16)),
    "one in a tuple": lambda x: (x,),
    "weak": lambda x: 2.0,
    "with a number": lambda x: x * 2.5,
}


@pytest.fixture(autouse=True)
def nothing_known() -> Any:
    forget_outcomes()
    yield
    forget_outcomes()


def known(level: Any, *args: Any) -> list[Any]:
    found = []
    for a in args:
        given = look(a, level)
        found.append((given.layout, fad.core.avals.aval_of(a)))
    return found


def of(level: Any, op: Any, x: Any) -> Any:
    return outcome_of(level, level.maker(), op, known(level, x), level.key())


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("kind", ["grad", "jvp", "vmap"])
def test_outputs_are_as_when_the_operation_runs(kind: str, name: str) -> None:
    op = Primitive(name, OPS[name])
    level: Any
    with fad.autograd.compiled(False):
        if kind == "vmap":
            seen: list[Any] = []

            def f(x: Any) -> Any:
                seen.append((of(x.level, op, x), bind(op, (x,))))
                outs = seen[-1][1] if type(seen[-1][1]) is tuple else (seen[-1][1],)
                seen.append([(o.shape, o.dtype) for o in outs])
                return outs[0]

            fad.vmap(f)(jnp.stack([X, X]))
            (outcome, out), forms = seen
        else:
            with GradLevel() if kind == "grad" else JvpLevel() as level:
                x = level.variable(X) if kind == "grad" else level.dual(X, X)
                outcome, out = of(level, op, x), bind(op, (x,))
                outs = out if type(out) is tuple else (out,)
                forms = [(o.shape, o.dtype) for o in outs]
                assert [level.layout(o) for o in outs] == list(outcome.layouts)
                assert any(outcome.routed) == any([o.requires_grad for o in outs])
    assert [(a.shape, a.dtype) for a in outcome.avals] == forms
    assert outcome.single == (type(out) is not tuple)


def test_an_operation_that_fails_has_no_outcome_and_raises_where_it_is_called() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    with GradLevel() as level:
        assert of(level, Primitive("fails", fails), level.variable(X)) is None
        wrong = Primitive("wrong", lambda x: x @ jnp.ones((9, 9)))
        assert of(level, wrong, level.variable(X)) is None


def test_it_is_evaluated_once_and_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_MOST", 2)
    traced: list[Any] = []
    op = Primitive("op", lambda x: traced.append(x.shape) or x * 2.0)
    with GradLevel() as level:
        x = level.variable(X)
        assert of(level, op, x) is of(level, op, x)
        count = len(traced)
        of(level, op, x)
        assert len(traced) == count
        for n in range(1, 6):
            of(level, op, level.variable(jnp.ones(n)))
            assert len(outcomes._outcomes[op]) <= 2


def test_large_outputs_are_not_deferred() -> None:
    wide = Primitive("wide", lambda x: jnp.zeros(LARGE + 1) + x.sum())
    with GradLevel() as level:
        assert of(level, wide, level.variable(X)) is None
