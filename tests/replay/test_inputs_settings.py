"""Settings of JAX: of a block, and for good."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from replays import in_thread, info, law

import fad
import fad.numpy as fnp
from fad.replay import inputs

pytestmark = pytest.mark.usefixtures("cleared_caches")


def test_a_setting_of_a_block_and_then_for_good() -> None:
    """In the block nothing is replayed; once everything has the setting, it is what is usual."""
    gradient = fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))

    def calls() -> int:
        before = info("hits")
        with fad.autograd.compiled(wait=True):
            for _ in range(4):
                gradient(jnp.array([1.0, 2.0]))
        return info("hits") - before

    precision = jax.config.jax_default_matmul_precision
    with jax.default_matmul_precision("highest"):
        assert calls() == 0
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        assert in_thread(calls) > 0
    finally:
        jax.config.update("jax_default_matmul_precision", precision)
    assert in_thread(calls) > 0


def test_tables_of_avals_that_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (inputs._placed, inputs._ids, inputs._ids_by_object):
        monkeypatch.setattr(table, "capacity", 3)
    f = fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))
    law(lambda: [f(jnp.ones(n)) for n in range(1, 6)], calls=4)
    for n in (3, inputs.LARGE + 1):
        x = jnp.zeros(n)
        assert inputs.aval_id(x.aval) == inputs.aval_id((x + 1.0).aval)
        assert (inputs.aval_id(x.aval) < 0) == (n > inputs.LARGE)
