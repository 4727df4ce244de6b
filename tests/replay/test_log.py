"""What became of the last traces, in words."""

from __future__ import annotations

import jax.numpy as jnp

import fad
import fad.numpy as fnp

X = jnp.array([0.5, -1.0, 2.0])


def test_explain_names_what_ended_a_trace():
    def reads(x):
        y = fnp.sin(x)
        return fnp.sum(y) if y[0].item() > -2.0 else fnp.sum(x)

    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        fad.grad(reads)(X)
        assert fad.autograd.compiled.explain().splitlines()[-1].startswith("reads (")
        assert "a value or a node was read" in fad.autograd.compiled.explain().splitlines()[-1]
        fad.grad(lambda x: fnp.sum(fnp.sin(x)))(X)
        assert fad.autograd.compiled.explain().splitlines()[-1].endswith("replayed")
