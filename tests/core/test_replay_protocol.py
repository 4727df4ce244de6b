"""The seam between the core and replay: the core is complete without it, and uses it by a protocol."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.core.replay_protocol import NoReplay, seam

X = jnp.array([0.5, -1.0, 2.0])


def f(x):
    y = fnp.sin(x) * x
    y[1:] *= 2.0
    return fnp.sum(y * y)


def step(x):
    w = fad.tensor(x, requires_grad=True)
    f(w * 1.0).backward()
    return w.grad.array


CALLS = {
    "grad": lambda x: fad.grad(f)(x),
    "jvp": lambda x: fad.jvp(f, (x,), (x,)),
    "vmap of grad": lambda x: fad.vmap(fad.grad(f))(jnp.stack([x, x + 1.0])),
    "hessian": lambda x: fad.hessian(f)(x),
    "a step of the tape": step,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_core_is_complete_without_it(name, monkeypatch):
    with fad.autograd.compiled(wait=True):
        replayed = [CALLS[name](X) for _ in range(4)]
    monkeypatch.setattr(seam, "replay", NoReplay())
    with fad.autograd.compiled(wait=True):
        for found in replayed:
            for a, b in zip(*map(jax.tree.leaves, (found, CALLS[name](X))), strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_what_is_not_there_says_so(monkeypatch):
    monkeypatch.setattr(seam, "replay", NoReplay())
    assert set(fad.autograd.compiled.cache_info().values()) == {0}
    assert "not installed" in fad.autograd.compiled.explain()
    fad.autograd.compiled.clear_cache()


def test_it_is_imported_by_fad_alone():
    """With a stub in its place everything imports and works."""
    code = """
import sys, types
stub = types.ModuleType("fad.replay")
stub.install = lambda: None
sys.modules["fad.replay"] = stub
import fad, fad.testing, fad.numpy as fnp, jax.numpy as jnp
assert not [name for name in sys.modules if name.startswith("fad.replay.")]
for _ in range(4):
    assert float(fad.grad(lambda x: fnp.sum(x * x))(jnp.ones(3))[0]) == 2.0
w = fad.tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward()
assert w.grad.tolist() == [2.0, 4.0]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
