"""What became of the last traces, in words."""

from __future__ import annotations

import jax.numpy as jnp

import fad
import fad.numpy as fnp

X = jnp.array([0.5, -1.0, 2.0])


def test_explain_names_what_ended_a_trace():
    def looks(x):
        y = fnp.sin(x)
        return fnp.sum(y) if y.grad_fn is not None else fnp.sum(x)

    def reads(x):
        y = fnp.sin(x)
        return fnp.sum(y) if y[0].item() > -2.0 else fnp.sum(x)

    def last():
        return fad.autograd.compiled.explain().splitlines()[-1]

    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        fad.grad(looks)(X)
        assert last() == "looks (1 operations): recorded: a value or a node was read"
        fad.grad(reads)(X)
        assert last() == "reads (3 operations): replayed, in 2 segments"
        fad.grad(lambda x: fnp.sum(fnp.sin(x)))(X)
        assert last().endswith("replayed")
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(True):
        for _ in range(2):
            fad.grad(reads)(X)
    assert last() == "reads (3 operations): recorded: it is new"
