"""Functions of every kind under every sequence of native JAX transforms, against JAX itself.

The rules are scaled by known factors, so that a result shows which rule it was made by: each
derivative passes through the saved output again, and n derivatives show n factors.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import FORWARD, REVERSE, AllGrowth, JvpGrowth, VjpGrowth
from helpers import Fn, assert_close, ramp
from jax import lax

import fad
import fad.numpy as fnp

WEIGHTS = jnp.array([0.3, -0.5])


# The kinds of Functions. All have the value exp(x) y and what stands beside it.


class Trees(fad.Function):
    """Pytrees in and out, and a static string."""

    @staticmethod
    def forward(tree, mode):
        x, (y, nothing) = tree["x"], tree["rest"]
        assert nothing is None
        return {"out": fnp.exp(x) * y, "mode": mode}

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output["out"])
        ctx.save_for_forward(output["out"])

    @staticmethod
    def vjp(ctx, g):
        g = REVERSE * g["out"] * ctx.saved_tensors[0]
        return {"x": g, "rest": (None, None)}, None

    @staticmethod
    def jvp(ctx, tree_t, mode_t):
        return {"out": FORWARD * tree_t["x"] * ctx.saved_tensors[0], "mode": None}


class Marked(fad.Function):
    """A second output, exp(x), that is marked as not differentiable."""

    @staticmethod
    def forward(x, y):
        return fnp.exp(x) * y, fnp.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[0])
        ctx.save_for_forward(output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vjp(ctx, g, marked_g):
        return REVERSE * g * ctx.saved_tensors[0], None

    @staticmethod
    def jvp(ctx, x_t, y_t):
        return FORWARD * x_t * ctx.saved_tensors[0], None


class Integers(fad.Function):
    """An integer input k and an integer output k + 1."""

    @staticmethod
    def forward(x, y, k):
        return fnp.exp(x) * y * k, k + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[0])
        ctx.save_for_forward(output[0])

    @staticmethod
    def vjp(ctx, g, k_g):
        return REVERSE * g * ctx.saved_tensors[0], None, None

    @staticmethod
    def jvp(ctx, x_t, y_t, k_t):
        return FORWARD * x_t * ctx.saved_tensors[0], None


class Nones(fad.Function):
    """None among the arguments and results; zero cotangents and tangents arrive and leave as None."""

    @staticmethod
    def forward(x, nothing, y):
        return fnp.exp(x) * y, nothing, 2.0 * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[0])
        ctx.save_for_forward(output[0])

    @staticmethod
    def vjp(ctx, g, nothing_g, y_g):
        return (None if g is None else REVERSE * g * ctx.saved_tensors[0]), None, None

    @staticmethod
    def jvp(ctx, x_t, nothing_t, y_t):
        assert y_t is None
        return (None if x_t is None else FORWARD * x_t * ctx.saved_tensors[0]), None, None


K = jnp.array([2, 3])


def plain(x):
    return jnp.exp(x) * WEIGHTS


def nones(x):
    out, nothing, twice = Nones.apply(x, None, WEIGHTS)
    assert nothing is None
    return out + twice


def integers(x):
    out, more = Integers.apply(x, WEIGHTS, K)
    assert more.dtype == K.dtype
    return out * more


# For each kind: with fad, without it, and the factors of reverse and of forward mode.
KINDS: dict[str, tuple[Fn, Fn, tuple[float, float]]] = {
    "all": (lambda x: AllGrowth.apply(x, WEIGHTS), plain, (REVERSE, FORWARD)),
    "vjp": (lambda x: VjpGrowth.apply(x, WEIGHTS), plain, (REVERSE, REVERSE)),
    "jvp": (lambda x: JvpGrowth.apply(x, WEIGHTS), plain, (FORWARD, FORWARD)),
    "pytrees": (
        lambda x: Trees.apply({"x": x, "rest": (WEIGHTS, None)}, "mode")["out"],
        plain,
        (REVERSE, FORWARD),
    ),
    "marked": (
        lambda x: sum(Marked.apply(x, WEIGHTS)),
        lambda x: plain(x) + lax.stop_gradient(jnp.exp(x)),
        (REVERSE, FORWARD),
    ),
    "integers": (integers, lambda x: plain(x) * K * (K + 1), (REVERSE, FORWARD)),
    "nones": (nones, lambda x: plain(x) + 2.0 * WEIGHTS, (REVERSE, FORWARD)),
}


def total(f: Fn) -> Fn:
    return lambda x: jnp.sum((out := f(x)) * ramp(out))


TRANSFORMS: dict[str, Callable[[Fn], Fn]] = {
    "grad": lambda f: jax.grad(total(f)),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (ramp(x),))[1],
    "vmap": lambda f: jax.vmap(f),
    "jit": lambda f: jax.jit(f),
    "checkpoint": lambda f: jax.checkpoint(f),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](ramp(x)),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "scan": lambda f: lambda x: lax.scan(lambda c, v: (c, f(v)), 0.0, jnp.stack([x, 0.5 * x]))[1],
    "cond": lambda f: lambda x: lax.cond(x.sum() > 0.1, f, lambda x: f(0.5 * x), x),
}
MODES = {"grad": 0, "jacrev": 0, "jvp": 1, "linearize": 1, "jacfwd": 1}

Names = tuple[str, ...]


def stack(f: Fn, names: Names) -> Fn:
    """``f`` under transforms, the first name innermost."""
    for name in names:
        f = TRANSFORMS[name](f)
    return f


def batched_input(names: Names) -> jax.Array:
    """A vector of 2, with a batch dimension of 2 for each vmap."""
    depth = names.count("vmap")
    return jnp.linspace(0.1, 1.0, 2 ** (depth + 1)).reshape((2,) * (depth + 1))


@functools.cache
def in_jax(f: Fn, names: Names) -> np.ndarray:
    return np.asarray(jax.jit(stack(f, names))(batched_input(names)))


def check(kind: str, names: Names) -> None:
    ours, theirs, factors = KINDS[kind]
    expected = in_jax(theirs, tuple([n for n in names if n not in ("jit", "checkpoint")]))
    for name in names:
        if name in MODES:
            expected = expected * np.float32(factors[MODES[name]])
    AllGrowth.batches = 0
    got = stack(ours, names)
    if "jit" not in names:  # one program is compiled sooner than each operation of it
        got = jax.jit(got)
    assert_close(got(batched_input(names)), expected)
    if kind == "all" and "vmap" in names:
        assert AllGrowth.batches, "the vmap rule did not run"


ONE: list[Names] = [(name,) for name in TRANSFORMS]
TWO: list[Names] = list(itertools.product(TRANSFORMS, repeat=2))
THREE: list[Names] = random.Random(0).sample(list(itertools.product(TRANSFORMS, repeat=3)), 200)


@pytest.mark.parametrize("names", ONE, ids="-".join)
def test_every_transform(names: Names) -> None:
    for kind in KINDS:
        check(kind, names)


@pytest.mark.sweep("at", range(len(TWO)), sample=24, ids=lambda at: "-".join(TWO[at]))
def test_every_pair_of_transforms(at: int, full: bool) -> None:
    # Two kinds of Function each, in turn; with --full, all of them.
    kinds = list(KINDS)
    for kind in kinds if full else {kinds[(at + k) % len(kinds)] for k in (0, 3)}:
        check(kind, TWO[at])


@pytest.mark.sweep("at", range(len(THREE)), sample=10, ids=lambda at: "-".join(THREE[at]))
def test_three_transforms(at: int, full: bool) -> None:
    kinds = list(KINDS)
    for kind in kinds if full else [kinds[at % len(kinds)]]:
        check(kind, THREE[at])


# What else JAX does with a function


X = jnp.array([0.2, -0.4])
MESH = jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
PARTS = jax.sharding.PartitionSpec("devices")


def iterations(loop: Callable[..., Any]) -> Callable[[Fn], Fn]:
    """f(x) + f(x / 2), summed up in a loop; forward mode only where JAX has no reverse mode."""

    def transform(f: Fn) -> Fn:
        def run(x: Any) -> Any:
            body = lambda i, acc: acc + f(x / (i + 1.0))
            return loop(body, jnp.zeros(x.shape))

        return run

    return transform


def by_while(body: Callable[..., Any], start: Any) -> Any:
    step = lambda carry: (carry[0] + 1.0, body(*carry))
    return lax.while_loop(lambda carry: carry[0] < 2.0, step, (0.0, start))[1]


@jax.custom_vjp
def doubled_gradient(x):
    return x


doubled_gradient.defvjp(lambda x: (x, None), lambda _, g: (2.0 * g,))


def inside_custom_vjp(f: Fn) -> Fn:
    """Someone else's custom_vjp, whose passes are made of f."""
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: jax.vjp(f, x), lambda pull, ct: (pull(ct)[0],))
    return lambda x: g(doubled_gradient(x))


def inside_custom_jvp(f: Fn) -> Fn:
    g = jax.custom_jvp(f)
    g.defjvp(lambda p, t: (f(*p), 2.0 * jax.jvp(f, p, t)[1]))
    return g


# name: (the transform, the modes of the rules that it uses)
OTHERS: dict[str, tuple[Callable[[Fn], Fn], str]] = {
    "value_and_grad": (lambda f: lambda x: jax.value_and_grad(total(f))(x)[1], "r"),
    "vjp": (lambda f: lambda x: jax.vjp(f, x)[1](ramp(x))[0], "r"),
    "hessian": (lambda f: jax.hessian(total(f)), "rf"),
    "while_loop": (iterations(by_while), ""),
    "jvp of while_loop": (lambda f: jax.jacfwd(iterations(by_while)(f)), "f"),
    "fori_loop": (iterations(lambda body, start: lax.fori_loop(0, 2, body, start)), ""),
    "grad of fori_loop": (
        lambda f: jax.grad(total(iterations(lambda b, s: lax.fori_loop(0, 2, b, s))(f))),
        "r",
    ),
    "map": (lambda f: lambda x: lax.map(f, jnp.stack([x, 0.5 * x])), ""),
    "grad of map": (
        lambda f: jax.grad(total(lambda x: lax.map(f, jnp.stack([x, 0.5 * x])))),
        "r",
    ),
    "jit of grad of shard_map": (
        lambda f: jax.jit(
            jax.grad(
                total(
                    jax.shard_map(
                        lambda rows: jax.vmap(f)(rows), mesh=MESH, in_specs=PARTS, out_specs=PARTS
                    )
                )
            )
        ),
        "r",
    ),
    "axis names": (
        lambda f: jax.grad(
            total(jax.vmap(lambda x: f(x) - lax.pmean(f(x), "lanes"), axis_name="lanes"))
        ),
        "r",
    ),
    "pmap": (lambda f: jax.grad(total(jax.pmap(lambda x: lax.psum(f(x), "p"), "p"))), "r"),
    "custom_vjp of others": (lambda f: jax.grad(total(inside_custom_vjp(f))), "r"),
    "custom_jvp of others": (lambda f: jax.jacfwd(inside_custom_jvp(f)), "f"),
    "remat with a policy": (
        lambda f: jax.grad(
            total(jax.checkpoint(f, policy=jax.checkpoint_policies.nothing_saveable))
        ),
        "r",
    ),
    "linear_transpose of linearize": (
        lambda f: (
            lambda x: jax.linear_transpose(jax.linearize(f, x)[1], x)(ramp(x))[0]
        ),
        "r",
    ),
}  # fmt: skip
ROWS = {"jit of grad of shard_map", "axis names", "pmap"}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore:jax.pmap is deprecated:DeprecationWarning")
def test_other_transforms(name: str, full: bool) -> None:
    # Three kinds of Function each, in turn; with --full, all of them.
    transform, modes = OTHERS[name]
    x = jnp.stack([X, 2.0 * X]) if name in ROWS else X
    at, kinds = list(OTHERS).index(name), list(KINDS)
    for kind in kinds if full else [kinds[(at + k) % len(kinds)] for k in (0, 2, 4)]:
        ours, theirs, (reverse, forward) = KINDS[kind]
        factor = reverse ** modes.count("r") * forward ** modes.count("f")
        assert_close(transform(ours)(x), np.float32(factor) * transform(theirs)(x))


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_jaxprs_and_exported_programs(kind: str) -> None:
    ours, theirs, (reverse, _) = KINDS[kind]
    for f, g in ((ours, theirs), (jax.grad(total(ours)), jax.grad(total(theirs)))):
        assert jax.eval_shape(f, X) == jax.eval_shape(g, X)
        jaxpr = jax.make_jaxpr(f)(X)
        assert any(eqn.primitive.name.startswith("fad_") for eqn in jaxpr.eqns)
        assert_close(jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)[0], f(X))
    exported = jax.export.export(jax.jit(ours), platforms=["cpu", "cuda", "tpu"])(X)
    assert_close(exported.call(X), theirs(X))
    assert_close(jax.grad(total(exported.call))(X), reverse * jax.grad(total(theirs))(X))
    shaped = jax.export.symbolic_shape("n, 2")
    many = jax.export.export(jax.jit(jax.vmap(ours)))(jax.ShapeDtypeStruct(shaped, X.dtype))
    rows = jnp.stack([X, 2 * X, 3 * X])
    assert_close(many.call(rows), jax.vmap(theirs)(rows))


def test_exported_programs_are_written_and_read_with_their_derivatives() -> None:
    pytest.importorskip("flatbuffers", reason="jax.export writes with it")
    ours, theirs, (reverse, _) = KINDS["all"]
    written = jax.export.export(jax.jit(ours))(X).serialize(vjp_order=1)
    again = jax.export.deserialize(written)
    assert_close(jax.grad(total(again.call))(X), reverse * jax.grad(total(theirs))(X))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_fad_is_left_in_the_program(kind: str) -> None:
    f = total(KINDS[kind][0])
    program = lambda x: (
        jax.hessian(f)(x),
        jax.grad(jax.checkpoint(f))(x),
        jax.vmap(jax.grad(f))(jnp.stack([x, x])),
        lax.scan(lambda c, v: (c, f(v)), 0.0, jnp.stack([x, x]))[1],
    )
    lowered = jax.jit(program).lower(X)
    assert "fad" not in lowered.as_text()
    compiled = lowered.compile().as_text()
    instructions = [line for line in compiled.splitlines() if " = " in line]
    assert instructions
    assert not [i for i in instructions if re.search("custom-call.*fad|callback", i)]
