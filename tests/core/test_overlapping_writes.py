"""Writes that read what they write over, compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.core.jaxprs import equations_in

MASK = jnp.array([True, False] * 3)
ROWS = np.linspace(0.3, 1.7, 6, dtype=np.float32) * (
    1 + np.arange(40.0, dtype=np.float32)[:, None] / 100
)

WRITES = {
    "product": lambda u: (slice(1, 4), u[:3] * u[3:]),
    "shifted": lambda u: (slice(1, None), u[:-1]),
    "backwards": lambda u: (slice(None, -1), u[1:] * 0.5),
    "sum": lambda u: (slice(2, 4), u[1:3] + u[3:5]),
}
ENDS = {
    "where": lambda u: fnp.where(MASK, fnp.sin(u), u),
    "tanh": lambda u: u * fnp.tanh(u),
    "sum": lambda u: u.sum() + fnp.sin(u),
}


def written(row, write, end):
    u = row * 1.0
    place, new = WRITES[write](u)
    u[place] = new
    return ENDS[end](u)


PROGRAMS = {
    "a reshape": lambda f: lambda x: f((2.0 * x[:1]).reshape(6)),
    "a sum of one": lambda f: lambda x: f((2.0 * x[:1]).mean(0)),
    "a product of one": lambda f: lambda x: f(fnp.array([2.0]) @ x[:1]),
    "a called program": lambda f: lambda x: f(fad.checkpoint(lambda x: x.reshape(6))(2.0 * x[:1])),
    "a row": lambda f: lambda x: f(x[3]),
    "a sorted row": lambda f: lambda x: f(fnp.sort(x[:1]).reshape(6)),
    "a rolled loop": lambda f: lambda x: fnp.stack([f(x[i]) for i in range(40)]),
    "a rolled sum": lambda f: lambda x: sum([f(x[i]) for i in range(40)], start=x[0]),
    "map": lambda f: lambda x: fad.lax.map(f, x),
    "scan": lambda f: lambda x: fad.lax.scan(lambda c, row: (c + f(row), f(c)), x[0], x),
    "a carry": lambda f: lambda x: fad.lax.fori_loop(0, 3, lambda _, c: f(c[0])[None], x[:1]),
    "two writes": lambda f: lambda x: f(f((2.0 * x[:1]).reshape(6))),
    "a branch": lambda f: lambda x: fad.lax.cond(x[0, 0] > 0, lambda x: f(x[0]), lambda x: x[1], x),
    "vmap": lambda f: lambda x: fad.vmap(lambda row: f((2.0 * row[None]).reshape(6)))(x),
    "gradient": lambda f: fad.grad(lambda x: fad.lax.map(f, x).sum()),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_programs_are_what_operations_give(program, write, end):
    """XLA for CPUs gives other numbers for most of these programs as they are."""
    f = PROGRAMS[program](lambda row: written(row, write, end))
    with jax.disable_jit():
        expected = f(fad.tensor(ROWS))
    assert_close(fad.jit(f)(fad.tensor(ROWS)), expected, rtol=1e-5)
    assert_close(f(fad.tensor(ROWS)), expected, rtol=1e-5)


def test_other_writes_stay_as_they_are():
    def stencil(u):
        for _ in range(3):
            u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        return u

    def rows(x):
        out = fnp.zeros((4, 6))
        for i in range(4):
            out[i] = x[i] * 2.0
        return out

    def constant(x):
        u = x.reshape(-1)
        u[:2] = 0.0
        return u

    for f, x in ((stencil, ROWS[0]), (stencil, ROWS), (rows, ROWS), (constant, ROWS)):
        closed = fad.make_jaxpr(lambda x, f=f: f(x * 1.0))(fad.tensor(x))
        names = [eqn.primitive.name for eqn in equations_in(closed.jaxpr)]
        assert "select_n" not in names and any(["scatter" in n or "update" in n for n in names])
