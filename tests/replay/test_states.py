"""What is remembered of functions that do something else each time is bounded."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from replays import chain, hits, law

import fad
import fad.numpy as fnp
from fad.replay import states
from fad.replay import trace as traces

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_structures_that_change_are_soon_not_traced(monkeypatch):
    call = lambda n: fad.grad(chain(n))(X)
    law(lambda: [call(n) for n in range(1, 8)], calls=2, modes=["background"])
    fad.autograd.compiled.clear_cache()
    tries, whole = [], traces.Trace.__init__
    monkeypatch.setattr(traces.Trace, "__init__", lambda *args: tries.append(1) or whole(*args))
    for n in range(1, 31):
        call(n)
    assert len(tries) < 20
    for _ in range(64):
        call(3)
    assert hits() > 0  # a trace that repeats later is still found


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(states, "CAPACITY", 30)
    for n in range(1, 40):
        fad.grad(lambda x: fnp.sum(fnp.sin(x)))(jnp.ones(n))
        assert states.tree.size <= 30 and len(states.tree.roots) <= 30
