"""Functions and steps of the tape, again and again: each time the same as without replay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp
from fad.replay import buffer, opening, program_node, states, stretch
from fad.replay import trace as traces

ENGINE = {m.__file__ for m in (buffer, opening, program_node, stretch, traces)}

TIMES = 6


def hits():
    return states.tree.hits


def same(ours, theirs):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a, b = (v.array if isinstance(v, fad.Tensor) else jnp.asarray(v) for v in (a, b))
        assert (a.dtype, a.weak_type, a.shape) == (b.dtype, b.weak_type, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def again(g, *args, replayed=True):
    """`g(*args)` several times, each the same as without replay; and whether programs ran."""
    with fad.autograd.compiled(False):
        expected = g(*args)
    before = hits()
    for _ in range(TIMES):
        same(g(*args), expected)
    assert (hits() > before) == replayed
    return expected


def cube(x):
    return fnp.sum(fnp.sin(x) * x**3 * 2.0 + 1.0)


PROGRAMS = {
    "arithmetic": cube,
    "views": lambda x: fnp.sum((x.reshape(2, 2).T @ x.reshape(2, 2)) ** 2) + x[1:-1].sum(),
    "several outputs": lambda x: sum([p.sum() * k for k, p in enumerate(fnp.split(x * x, 2), 1)]),
    "integers": lambda x: fnp.sum(x * fnp.argsort(x)) + x[fnp.argmax(x)],
    "masks": lambda x: fnp.sum(fnp.where(x > 1.0, x * x, -x)),
    "constants": lambda x: fnp.sum(x * jnp.arange(4.0) + np.arange(4.0, dtype=np.float32)),
    "constant in part": lambda x: fnp.sum(x * 0.0 + 2.0),
}


def outcome(run):
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"


def as_without(run, times=14):
    """``run()``, which gives lists and numbers, gives the same each time as without replay."""
    with fad.autograd.compiled(False):
        expected = outcome(run)
    for _ in range(times):
        found = outcome(run)
        if isinstance(expected, str):
            assert found == expected
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    return expected


W = np.full((2, 3), 0.3, np.float32)


def as_without_in_steps(step, times=14):
    """The same of ``step(w, i)``, for the same leaf in each step."""

    def run():
        w = fad.tensor(W, requires_grad=True)
        found = []
        for i in range(times):
            w.grad = None
            found.append(outcome(lambda: step(w, i)))
        return found

    with fad.autograd.compiled(False):
        expected = run()
    fad.autograd.compiled.clear_cache()
    assert run() == expected
    return expected


def slope(w):
    return round(float(w.grad[0, 0]), 4)
