"""The seam between the library and rolling: programs compute the same without it, only unrolled."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.core import rolling_protocol

X = jnp.array([0.5, -1.0, 2.0])
STEPS = 40


class Logistic(fad.Function):
    @staticmethod
    def forward(x):
        for k in range(STEPS):
            x = x * (1.0 - x * 0.1) + 0.01 * k
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * fnp.cos(x)


def loop(x):
    for k in range(STEPS):
        x = x + fnp.sin(x) * 0.1 - 0.01 * k
    return x.sum()


def calls():
    """Made anew, so that none of them is compiled."""
    return {
        "jit of grad": fad.jit(lambda x: fad.grad(loop)(x)),
        "grad of jit": fad.grad(fad.jit(lambda x: loop(x))),
        "vmap of jit": fad.vmap(fad.jit(lambda x: loop(x[None]))),
        "a Function": fad.jit(fad.value_and_grad(lambda x: Logistic.apply(x).sum())),
        "a body of a scan": lambda x: fad.lax.scan(lambda c, _: (loop(c) + c, c), x, None, 3),
        "to_jax": jax.jit(jax.value_and_grad(fad.to_jax(lambda x: loop(x)))),
        "to_jax, of a tracer outside": jax.jit(
            lambda x: jax.lax.map(fad.to_jax(lambda a: loop(a * x)), x)
        ),
    }


@pytest.mark.parametrize("name", calls())
def test_the_library_is_complete_without_it(name, monkeypatch):
    rolled = calls()[name](X)
    assert rolling_protocol.roll is not rolling_protocol.as_traced
    monkeypatch.setattr(rolling_protocol, "roll", rolling_protocol.as_traced)
    for a, b in zip(*map(jax.tree.leaves, (rolled, calls()[name](X))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_without_it_programs_are_as_they_were_traced(monkeypatch):
    f = lambda x: loop(x)
    assert "scan" in str(fad.make_jaxpr(f)(X)) and "rolled" in explained(f)
    monkeypatch.setattr(rolling_protocol, "roll", rolling_protocol.as_traced)
    assert str(fad.make_jaxpr(f)(X)).count("= sin ") == STEPS and "rolled" not in explained(f)


def explained(f):
    compiled = fad.jit(lambda x: f(x))
    compiled(X)
    return compiled.explain(X)


def test_it_is_imported_by_fad_alone():
    """With a stub in its place everything imports and works."""
    code = """
import sys, types
stub = types.ModuleType("fad.rolling")
stub.install = lambda: None
sys.modules["fad.rolling"] = stub
import fad, fad.testing
assert not [name for name in sys.modules if name.startswith("fad.rolling.")]
def f(x):
    for _ in range(60):
        x = x * 0.5 + 1.0
    return x
assert float(fad.jit(fad.grad(f))(1.0)) == 0.5**60 and "scan" not in str(fad.make_jaxpr(f)(1.0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
