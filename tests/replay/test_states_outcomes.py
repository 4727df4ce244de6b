"""Outputs of an operation, known without running it; that they are right is in the laws of traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

from fad.core.primitive import Primitive
from fad.replay import states
from fad.replay.inputs import LARGE, look
from fad.replay.states import forget_outcomes, key_of, outcome_of
from fad.tape.recorder import GradLevel

X = jnp.array([0.5, 1.0, 1.5, 2.0])


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    forget_outcomes()
    yield
    forget_outcomes()


def of(op: Any, x: Any = X) -> Any:
    with GradLevel() as level:
        given = look(level.variable(x), level)
        return outcome_of(level, op, [given.abstract], key_of(level))


NONE: dict[str, Any] = {
    "it fails": lambda x: 1 // 0,
    "wrong shapes": lambda x: x @ jnp.ones((9, 9)),
    "a large output": lambda x: jnp.zeros(LARGE + 1) + x.sum(),
}


@pytest.mark.parametrize("name", NONE)
def test_there_is_none(name: str) -> None:
    assert of(Primitive(name, NONE[name])) is None


def test_it_is_evaluated_once_and_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MOST", 2)
    traced: list[Any] = []
    op = Primitive("op", lambda x: traced.append(x.shape) or x * 2.0)
    first = of(op)
    count = len(traced)
    assert of(op) is first and len(traced) == count
    for n in range(1, 6):
        of(op, jnp.ones(n))
        assert len(states._outcomes[op]) <= 2
