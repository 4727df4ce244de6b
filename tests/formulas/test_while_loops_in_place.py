"""Loops whose bodies write to the carried Tensor, and to views of it, beside the same loops in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.lax as flax
import fad.numpy as fnp

Function = Callable[..., Any]

U = jnp.asarray(np.random.default_rng(0).normal(size=7), jnp.float32)
R = jnp.float32(0.2)
# Three lanes, the first of which takes no step.
US, RS, NS = jnp.stack([U, 2.0 * U, -U]), jnp.asarray([0.2, 0.1, 0.3]), jnp.asarray([0, 3, 5])


def step(u: Any, r: Any) -> Any:
    """Diffusion, and something else at the rim: through views, and views of views."""
    inner = u[1:-1]
    inner += r * (u[2:] - 2.0 * inner + u[:-2])
    u[0] = u[1]
    rim = u[-2:]
    rim[1] *= 0.5
    return u


def in_python(u: Any, r: Any, n: Any) -> Any:
    u = u * 1.0
    for _ in range(int(n)):
        u = step(u, r)
    return u


def counted(u: Any, r: Any, n: Any, **options: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, step(c[1], r)

    return flax.while_loop(lambda c: c[0] < n, body, (0, u), **options)[1]


LOOPS: dict[str, Function] = {
    "while_loop": counted,
    "while_loop(max_steps)": lambda u, r, n: counted(u, r, n, max_steps=6),
    "while_loop(checkpoints)": lambda u, r, n: counted(u, r, n, checkpoints=3),
    "fori_loop": lambda u, r, n: flax.fori_loop(0, n, lambda i, u: step(u, r), u),
}


def cubes(loop: Function) -> Function:
    return lambda u, r, n: (loop(u, r, n) ** 3).sum()


# One loop. Each takes a function of (u, r).


def on_the_tape(f: Function) -> Any:
    u, r = fad.tensor(U, requires_grad=True), fad.tensor(R, requires_grad=True)
    f(u, r).backward()
    return u.grad, r.grad


def in_a_dual_level(f: Function) -> Any:
    with fad.dual_level():
        out = f(fad.make_dual(fad.tensor(U), fad.tensor(U)), fad.tensor(R))
        return tuple(fad.unpack_dual(out))


def in_two_dual_levels(f: Function) -> Any:
    with fad.dual_level():
        r = fad.make_dual(fad.tensor(R), fad.tensor(1.0))
        with fad.dual_level():
            found = fad.unpack_dual(f(fad.make_dual(fad.tensor(U), fad.tensor(U)), r)).tangent
        return fad.unpack_dual(found).tangent


def backward_over_a_dual_level(f: Function) -> Any:
    u = fad.tensor(U, requires_grad=True)
    with fad.dual_level():
        out = f(fad.make_dual(u, fad.tensor(U)), fad.tensor(R))
        return fad.autograd.grad(fad.unpack_dual(out).tangent, u)


STACKS: dict[str, Function] = {
    "grad": lambda f: fad.grad(f, (0, 1))(U, R),
    "jvp": lambda f: fad.jvp(f, (U, R), (U, R)),
    "grad∘grad": lambda f: fad.grad(fad.grad(f, 1), 1)(U, R),
    "hessian": lambda f: fad.hessian(f)(U, R),
    "jit(grad)": lambda f: fad.jit(fad.grad(f, (0, 1)))(U, R),
    "jit(hessian)": lambda f: fad.jit(fad.hessian(f))(U, R),
    "jax.grad": lambda f: jax.grad(fad.to_jax(f), (0, 1))(U, R),
    "jax.hessian": lambda f: jax.hessian(fad.to_jax(f))(U, R),
    "jax.vmap(jax.grad)": lambda f: jax.vmap(jax.grad(fad.to_jax(f), (0, 1)))(US, RS),
    "tape": on_the_tape,
    "dual_level": in_a_dual_level,
    "dual_level in dual_level": in_two_dual_levels,
    "backward of a tangent": backward_over_a_dual_level,
}
PAIRS = list(itertools.product(STACKS, LOOPS))


@pytest.mark.sweep("pair", PAIRS, sample=4, ids=" of ".join)
def test_writes_in_a_body_are_those_of_python(pair: tuple[str, str]) -> None:
    stack, loop = STACKS[pair[0]], cubes(LOOPS[pair[1]])
    expected = stack(lambda u, r: cubes(in_python)(u, r, 4))
    n = jnp.int32(4)
    assert_close(stack(lambda u, r: loop(u, r, n)), expected, rtol=1e-3)


# Lanes with numbers of steps of their own. Each takes a function of (u, r, n), and a vmap.


def row_by_row(f: Function) -> Function:
    def rows(*args: Any) -> Any:
        found = [f(*row) for row in zip(*args, strict=True)]
        leaves = zip(*[fad.core.trees.flatten(x)[0] for x in found], strict=True)
        return fad.core.trees.unflatten(
            fad.core.trees.flatten(found[0])[1], [fnp.stack(x) for x in leaves]
        )

    return rows


def lanes_on_the_tape(f: Function, vmap: Function) -> Any:
    u = fad.tensor(US, requires_grad=True)
    vmap(f)(u, fad.tensor(RS), NS).sum().backward()
    return u.grad


def lanes_in_a_dual_level(f: Function, vmap: Function) -> Any:
    with fad.dual_level():
        out = vmap(f)(fad.make_dual(fad.tensor(US), fad.tensor(US)), fad.tensor(RS), NS)
        return fad.unpack_dual(out).tangent


def tangents(f: Function) -> Function:
    return lambda u, r, n: fad.jvp(lambda u, r: f(u, r, n), (u, r), (u, r))


BATCHED: dict[str, Function] = {
    "vmap(grad)": lambda f, vmap: vmap(fad.grad(f, (0, 1)))(US, RS, NS),
    "grad(vmap)": lambda f, vmap: fad.grad(lambda u, r: vmap(f)(u, r, NS).sum(), (0, 1))(US, RS),
    "vmap(jvp)": lambda f, vmap: vmap(tangents(f))(US, RS, NS),
    "jvp(vmap)": lambda f, vmap: fad.jvp(lambda u, r: vmap(f)(u, r, NS), (US, RS), (US, RS)),
    "vmap(grad(grad))": lambda f, vmap: vmap(fad.grad(fad.grad(f, 1), 1))(US, RS, NS),
    "vmap(hessian)": lambda f, vmap: vmap(fad.hessian(f))(US, RS, NS),
    "jvp(grad(vmap))": lambda f, vmap: fad.jvp(
        fad.grad(lambda u: vmap(f)(u, RS, NS).sum()), (US,), (US,)
    ),
    "grad(vmap(grad))": lambda f, vmap: fad.grad(lambda u: vmap(fad.grad(f, 1))(u, RS, NS).sum())(
        US
    ),
    "tape": lanes_on_the_tape,
    "dual_level": lanes_in_a_dual_level,
}
BATCHED_PAIRS = list(itertools.product(BATCHED, LOOPS))


@pytest.mark.sweep("pair", BATCHED_PAIRS, sample=2, ids=" of ".join)
def test_lanes_take_the_steps_that_they_take_alone(pair: tuple[str, str]) -> None:
    stack, loop = BATCHED[pair[0]], cubes(LOOPS[pair[1]])
    assert_close(stack(loop, fad.vmap), stack(cubes(in_python), row_by_row), rtol=1e-3)


@pytest.mark.sweep("transform", ["grad", "hessian", "jit"], sample=1)
def test_lanes_in_compiled_code_and_in_jax(transform: str) -> None:
    loop = cubes(counted)
    if transform == "jit":
        found = fad.jit(fad.vmap(fad.grad(loop)))(US, RS, NS)
    else:
        found = jax.vmap(getattr(jax, transform)(fad.to_jax(loop)))(US, RS, NS)
    of = fad.hessian if transform == "hessian" else fad.grad
    assert_close(found, row_by_row(of(cubes(in_python)))(US, RS, NS), rtol=1e-3)


def test_the_first_carry_is_not_written_to() -> None:
    u = fad.tensor(U)
    view = u[1:]
    out = counted(view, 0.2, jnp.int32(3))
    assert u.version == 0 and u.tolist() == U.tolist()
    assert_close(out, in_python(view, 0.2, 3), rtol=1e-5)


def test_a_view_is_carried_beside_what_it_was_a_view_of() -> None:
    """The two are two arrays in the carry: a write to one does not change the other."""

    def body(c: Any) -> Any:
        i, u, v = c
        v *= 2.0
        u[0] += v[0]
        return i + 1, u, v

    u = fad.tensor(U)
    _, first, second = flax.while_loop(lambda c: c[0] < 2, body, (0, u, u[:2]))
    assert_close(first[0], U[0] + 2.0 * U[0] + 4.0 * U[0], rtol=1e-5)
    assert_close(second, 4.0 * U[:2])
