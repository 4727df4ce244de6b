"""What is appended and what is not: a call that is refused, or that fails, leaves nothing behind."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from replays import hits

import fad
import fad.numpy as fnp
from fad.replay import states

X = jnp.array([0.5, 1.0, 1.5])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_an_operation_on_what_has_failed_raises_and_the_next_ones_are_deferred() -> None:
    w = fad.tensor(X, requires_grad=True)

    def step(v: Any) -> Any:
        h = fnp.sin(w) * v
        return h, fnp.sum(h * h)

    for _ in range(4):
        step(jnp.ones(3))[1].backward()
    deleted = jnp.ones(3) * 1.0
    h, total = step(deleted)
    deleted.delete()
    for t in (h, total, h):
        with pytest.raises(RuntimeError, match="deleted"):
            t.tolist()
    with pytest.raises(RuntimeError, match="deleted"):
        (fnp.sin(w) * h).tolist()
    before = hits()
    for _ in range(4):
        step(jnp.ones(3))[1].backward()
    assert hits() >= before + 3


def test_programs_that_ran_are_counted_on_when_the_table_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fad.grad(lambda x: fnp.sum(fnp.sin(x) * 1.1))
    for _ in range(4):
        f(X)
    before = hits()
    monkeypatch.setattr(states, "CAPACITY", 1)
    fad.grad(lambda x: fnp.sum(x * 3.0))(X)
    assert hits() >= before > 0
    fad.autograd.compiled.clear_cache()
    assert hits() == 0
