"""Random programs of views and writes under every transform."""

from __future__ import annotations

import random

import inplace_programs as programs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError


def check_under_transforms(lines, transforms):
    """The program gives under every transform what it gives on the tape."""
    f = programs.function_of(lines, fad, fnp)
    args = tuple([jnp.asarray(v) for v in programs.leaf_values(programs.REAL).values()])
    every = tuple(range(len(args)))
    leaves = [leaf(x) for x in args]
    try:
        out = f(*leaves)
        grads = fad.autograd.grad(out, leaves, allow_unused=True)
    except GradientError:
        return
    grads = tuple(
        [jnp.zeros(x.shape) if g is None else g.array for x, g in zip(args, grads, strict=True)]
    )
    tangents = tuple([jnp.sin(x + k) for k, x in enumerate(args)])
    tangent = sum([(g * t).sum() for g, t in zip(grads, tangents, strict=True)])
    batch = tuple([jnp.stack([x, x * 0.5 + k]) for k, x in enumerate(args)])
    loop = jnp.stack([f(*[fad.asarray(x[lane]) for x in batch]).array for lane in range(2)])
    value = out.detach().array
    shared = (0, *[None] * (len(args) - 1))
    checks = {
        "grad": lambda: (fad.grad(f, every)(*args), grads),
        "jvp": lambda: (fad.jvp(f, args, tangents), (value, tangent)),
        "vmap": lambda: (fad.vmap(f)(*batch), loop),
        "vmap, shared": lambda: (fad.vmap(f, shared)(batch[0], *args[1:])[0], value),
        "vmap(grad)": lambda: ([g[0] for g in fad.vmap(fad.grad(f, every))(*batch)], grads),
        "jit": lambda: (fad.jit(f)(*args), value),
        "jax.jit": lambda: (jax.jit(fad.to_jax(f))(*args), value),
        "jax.grad": lambda: (jax.grad(fad.to_jax(fad.functionalize(f)), every)(*args), grads),
        "functionalize": lambda: (fad.grad(fad.functionalize(f), every)(*args), grads),
        "checkpoint": lambda: (fad.jit(fad.grad(fad.checkpoint(f), every))(*args), grads),
        "linearize": lambda: (fad.linearize(f, *args)[1](*tangents), tangent),
        "hessian": lambda: (fad.hessian(f)(*args), fad.jacrev(fad.grad(f))(*args)),
    }
    for name in transforms(list(checks)):
        got, expected = checks[name]()
        for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, 2e-3, 2e-4, err_msg=f"{name} of\n" + "\n".join(lines))


@pytest.mark.sweep("seed", range(6), sample=2)
def test_programs_under_transforms(seed, pytestconfig):
    full = pytestconfig.getoption("--full")
    rng = random.Random(seed + pytestconfig.getoption("--seed") * 1000)
    for _ in range(60 if full else 1):
        lines = programs.Writer(rng, True, programs.REAL).program(rng.randint(2, 8))
        check_under_transforms(lines, lambda names: names if full else rng.sample(names, 3))
