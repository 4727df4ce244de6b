"""fad.lax's control flow, with fad bodies that close over tracked values, under every transform."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, Fn, assert_close, ramp, transforms

import fad
import fad.numpy as fnp
from fad.errors import HostValueError


class Tanh(fad.Function):
    """tanh, with a vjp rule of its own."""

    scale = 1.0

    @staticmethod
    def forward(x):
        return fnp.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def vjp(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1.0 - y * y)


# Each takes a library, an activation and x (a vector of 3); bodies close over x.
LOOPS: dict[str, Any] = {
    "scan": lambda m, act, x: m.lax.scan(lambda c, v: (act(c) * x[0], c * v), x[1], x)[1],
    "scan of a tree": lambda m, act, x: m.lax.scan(
        lambda c, v: ({"a": act(c["a"] + v["p"]), "n": c["n"] + 1}, v["q"] * c["a"] * x[2]),
        {"a": x[0], "n": 0},
        {"p": x, "q": x * x},
        reverse=True,
    )[1],
    "cond": lambda m, act, x: m.lax.cond(x[0] > 0.2, lambda v: act(v) * x, lambda v: v * v, x),
    "cond without operands": lambda m, act, x: m.lax.cond(
        x[0] > 0.2, lambda: act(x) * x[1], lambda: x
    ),
    "switch": lambda m, act, x: m.lax.switch(
        (x[0] > 0.2).astype("int32") + 1, [m.np.sin, act, lambda v: act(v * x[2])], x
    ),
    "fori_loop": lambda m, act, x: m.lax.fori_loop(0, 3, lambda i, c: act(c) * x + i, x),
    "map": lambda m, act, x: m.lax.map(lambda v: act(v) * x[1], x),
    "associative_scan": lambda m, act, x: m.lax.associative_scan(lambda a, b: act(a * b) + a, x),
    "nested": lambda m, act, x: m.lax.scan(
        lambda c, v: (
            m.lax.cond(v > 0.4, lambda c: act(c) * x[0], lambda c: c + v, c),
            m.lax.map(lambda u: act(u * c) * v, x).sum(),
        ),
        x[1],
        x,
    )[1],
    # No reverse mode, as in JAX.
    "while_loop": lambda m, act, x: m.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, act(c[1]) * x), (0, x)
    )[1],
}


def ours(name: str) -> Fn:
    return lambda x: LOOPS[name](IN_FAD, Tanh.apply, x)


def theirs(name: str) -> Fn:
    return lambda x: LOOPS[name](IN_JAX, jnp.tanh, x)


# Transforms: fad's, and JAX's around fad code.

FAD = transforms(lambda xp: lambda y: xp.sum(xp.sin(y)), lambda xp: xp.cos)


def weigh(f: Fn) -> Fn:
    return lambda x: jnp.sum(jnp.sin(f(x)))


PAIRS: dict[str, tuple[Any, Any]] = {
    **{name: (t.fad, t.jax) for name, t in FAD.items()},
    "jit": (fad.jit, lambda f: f),
    "jax.grad": (lambda f: fad.from_jax(jax.grad(weigh(fad.to_jax(f)))), lambda f: jax.grad(weigh(f))),
    "jax.jacfwd": (lambda f: fad.from_jax(jax.jacfwd(fad.to_jax(f))), jax.jacfwd),
    "jax.vmap": (lambda f: fad.from_jax(jax.vmap(fad.to_jax(f))), jax.vmap),
    "jax.jit": (lambda f: fad.from_jax(jax.jit(fad.to_jax(f))), lambda f: f),
    "jax.checkpoint": (lambda f: fad.from_jax(jax.checkpoint(fad.to_jax(f))), lambda f: f),
}  # fmt: skip
REVERSE = {"grad", "jacrev", "autograd", "jax.grad"}


def possible(loop: str, names: tuple[str, ...]) -> bool:
    if names[0] == "autograd" and names[-1].startswith("jax."):
        return False  # to_jax refuses results that are part of an eager graph
    return loop != "while_loop" or not REVERSE & set(names)


def check(loop: str, names: tuple[str, ...]) -> None:
    got, expected = ours(loop), theirs(loop)
    for name in names:
        got, expected = PAIRS[name][0](got), PAIRS[name][1](expected)
    lanes = sum(name in ("vmap", "jax.vmap") for name in names)
    x = jnp.linspace(-0.3, 0.9, 3 * 2**lanes).reshape((2,) * lanes + (3,))
    assert_close(got(x), jax.jit(expected)(x), rtol=1e-3, atol=1e-4)


ONE = [(loop, (n,)) for loop in LOOPS for n in PAIRS if possible(loop, (n,))]
TWO = [
    (loop, names)
    for loop in LOOPS
    for names in itertools.product(PAIRS, repeat=2)
    if possible(loop, names)
]


def ids(case: Any) -> str:
    return "-".join((case[0], *case[1]))


@pytest.mark.sweep("case", ONE, sample=16, ids=ids)
def test_every_transform_around_every_loop(case: Any) -> None:
    check(*case)


@pytest.mark.sweep("case", TWO, sample=14, ids=ids)
def test_transforms_of_transforms(case: Any) -> None:
    check(*case)


class ScaledTanh(Tanh):
    """Its derivative is 3 times too large."""

    @staticmethod
    def vjp(ctx, g):
        return 3.0 * Tanh.vjp(ctx, g)


ALONE: dict[str, Any] = {
    "scan": lambda m, act, x: m.lax.scan(lambda c, v: (c, act(v)), 0.0, x)[1],
    "cond": lambda m, act, x: m.lax.cond(x[0] < 9.0, act, lambda v: v, x),
    "fori_loop": lambda m, act, x: m.lax.fori_loop(0, 1, lambda i, c: act(c), x),
    "map": lambda m, act, x: m.lax.map(act, x),
}


@pytest.mark.parametrize("name", ALONE)
def test_the_rule_of_the_user_is_the_one_that_runs(name: str) -> None:
    f = lambda x: ALONE[name](IN_FAD, ScaledTanh.apply, x)
    x = jnp.array([0.3, -0.5, 0.7])
    slope = 3.0 * (1.0 - jnp.tanh(x) ** 2)
    weighted = lambda x: (f(x) * ramp(x)).sum()
    assert_close(fad.grad(weighted)(x), ramp(x) * slope)
    assert_close(fad.grad(fad.checkpoint(weighted))(x), ramp(x) * slope)
    assert_close(fad.jit(fad.grad(weighted))(x), ramp(x) * slope)
    assert_close(jax.grad(fad.to_jax(weighted))(x), ramp(x) * slope)
    assert_close(fad.jvp(f, (x,), (x,))[1], x * slope)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(jnp.stack([x, x]))[1], slope)
    t = fad.tensor(x, requires_grad=True)
    weighted(t).backward()
    assert_close(t.grad, ramp(x) * slope)


def test_bodies_close_over_values_of_several_levels_at_once() -> None:
    """The body sees the eager tape, an outer grad, an inner jvp and a vmap."""

    def program(m: Any, tape: Any, inner: Any) -> Any:
        def f(w: Any, x: Any) -> Any:
            def g(v: Any) -> Any:
                return m.lax.scan(lambda c, u: (c * u * w + v, c * tape), x, m.np.stack([x, v]))[0]

            return inner(g, x)

        return f

    ts = jnp.float32(0.7)
    fad_inner = lambda g, x: fad.jvp(g, (x,), (1.0,))[1]
    jax_inner = lambda g, x: jax.jvp(g, (x,), (jnp.float32(1.0),))[1]
    xs = jnp.array([0.5, -1.5])

    def whole(m: Any, inner: Any, grad: Any, vmap: Any) -> Any:
        return lambda tape: m.np.sum(
            vmap(grad(lambda w, x: program(m, tape, inner)(w * tape, x)), (None, 0))(ts, xs)
        )

    expected = jax.grad(whole(IN_JAX, jax_inner, jax.grad, jax.vmap))(jnp.float32(1.3))
    tape = fad.tensor(1.3, requires_grad=True)
    whole(IN_FAD, fad_inner, fad.grad, fad.vmap)(tape).backward()
    assert_close(tape.grad, np.float32(expected), rtol=1e-3)
    got = fad.grad(whole(IN_FAD, fad_inner, fad.grad, fad.vmap))(jnp.float32(1.3))
    assert_close(got, expected, rtol=1e-3)


def test_from_jax_is_one_operation() -> None:
    f = fad.from_jax(lambda tree: {"y": jnp.sin(tree["x"]) @ tree["w"] + jnp.cos(tree["x"]).sum()})
    x = fad.tensor([0.3, -0.5], requires_grad=True)
    out = f({"x": x, "w": fad.tensor([1.0, 2.0], requires_grad=True)})["y"]
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2


def test_a_body_runs_once_for_each_time_that_jax_traces_it() -> None:
    """Also where it closes over values of several levels, and bodies are nested."""
    runs: dict[str, list[str]] = {"fad": [], "jax": []}

    def program(m: Any, name: str, x: Any) -> Any:
        def outer(c: Any, v: Any) -> Any:
            runs[name].append("outer")

            def inner(c: Any, u: Any) -> Any:
                runs[name].append("inner")
                return c * x[0] + u, c * v

            return m.lax.scan(inner, c, x)

        return m.lax.scan(outer, x[1], x)[1]

    x = jnp.array([0.3, -0.7, 1.1])
    expected = program(IN_JAX, "jax", x)
    assert_close(program(IN_FAD, "fad", fad.tensor(x, requires_grad=True)), expected)
    assert runs["fad"] == runs["jax"] == ["outer", "inner"]
    runs["fad"].clear()
    got = fad.jit(lambda t: program(IN_FAD, "fad", t))(fad.tensor(x))
    assert_close(got, expected)
    assert runs["fad"] == runs["jax"]


def test_a_body_decides_by_numbers_from_outside_alone() -> None:
    """What it computes with them and with its own arguments is not known, not even as zeros."""
    x = fad.tensor(0.5, requires_grad=True)

    def double(c: Any, _: Any) -> Any:
        return (c * 2.0 if x > 0 else c * x), None

    assert float(fad.lax.scan(double, 1.0, None, length=3)[0]) == 8.0

    def unknown(c: Any, _: Any) -> Any:
        return (c * 2.0 if x * c >= 0 else c), None

    with pytest.raises(HostValueError):
        fad.lax.scan(unknown, 1.0, None, length=3)
    assert float(fad.lax.scan(lambda c, _: (c * x, None), 1.0, None, length=3)[0]) == 0.125


def test_what_a_body_closes_over_and_does_not_use_has_no_gradient() -> None:
    x, y = fad.tensor(2.0, requires_grad=True), fad.tensor(3.0, requires_grad=True)

    def body(c: Any, _: Any) -> Any:
        fnp.sin(y * c)
        return c * x, None

    out, _ = fad.lax.scan(body, 1.0, None, length=3)
    assert float(out) == 8.0
    dx, dy = fad.autograd.grad(out, [x, y], allow_unused=True)
    assert float(dx) == 12.0 and (dy is None or float(dy) == 0.0)
