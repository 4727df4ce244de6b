"""Operations made from outside, by public names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.testing
from fad import extend
from tests.fuzzing.comparison import assert_same_program

X = jnp.asarray(np.random.default_rng(0).normal(size=(3,)).astype(np.float32))
Y = jnp.asarray(np.random.default_rng(1).normal(size=(3,)).astype(np.float32))
used: Counter[str] = Counter()  # rules, as often as JAX has traced them


@pytest.fixture(autouse=True)
def _none_used() -> None:
    used.clear()


def make(**rules: bool) -> Any:
    """``sin(x) * y`` and its sum, with the named rules written by hand; a new operation each time."""

    def jvp(primals, tangents):
        used["jvp"] += 1
        (x, y), (s, t) = primals, tangents
        out = jnp.sin(x) * y
        tangent = jnp.cos(x) * y * s + jnp.sin(x) * t
        return {"product": out, "sum": out.sum()}, {"product": tangent, "sum": tangent.sum()}

    def forward(x, y):
        used["forward"] += 1
        out = jnp.sin(x) * y
        return {"product": out, "sum": out.sum()}, (x, y)

    def backward(residuals, g):
        used["backward"] += 1
        x, y = residuals
        total = g["product"] + g["sum"]
        return total * jnp.cos(x) * y, total * jnp.sin(x)

    def batch(size, dims, x, y):
        used["batch"] += 1
        x, y = (
            jnp.broadcast_to(v, (size, *v.shape)) if d is None else jnp.moveaxis(v, d, 0)
            for v, d in zip((x, y), dims, strict=True)
        )
        out = jnp.sin(x) * y
        return {"product": out.T, "sum": out.sum(1)}, (1, 0)

    written = {"jvp": jvp, "vjp": (forward, backward), "batch": batch}

    def product(x, y):
        out = jnp.sin(x) * y
        return {"product": out, "sum": out.sum()}

    return extend.operation(**{k: written[k] for k in rules})(product)


RULES = [(), ("jvp",), ("vjp",), ("batch",), ("jvp", "vjp", "batch")]


@pytest.mark.parametrize("rules", RULES, ids=" ".join)
def test_an_operation_under_every_transform_is_its_function(rules):
    op = make(**dict.fromkeys(rules, True))
    plain = fad.from_jax(lambda x, y: {"product": jnp.sin(x) * y, "sum": (jnp.sin(x) * y).sum()})
    for replay in (True, False):
        with fad.autograd.compiled(replay):
            for _ in range(3):
                assert_same_program(lambda v: op(v, Y), lambda v: plain(v, Y), X)
    fad.testing.check_operation(op, X, Y)


@pytest.mark.parametrize(
    ("rule", "expected", "run"),
    [
        ("jvp", {"jvp"}, lambda f: fad.jvp(f, (X, Y), (X, Y))),
        ("jvp", {"jvp"}, lambda f: fad.vjp(f, X, Y)),  # derived from the hand-written jvp
        ("vjp", {"forward", "backward"}, lambda f: fad.grad(lambda x: f(x, Y)["sum"])(X)),
        ("batch", {"batch"}, lambda f: fad.vmap(f, (0, None))(jnp.stack([X, Y]), Y)),
        (
            "vjp",
            {"forward", "backward"},
            lambda f: fad.vmap(fad.grad(lambda x: f(x, Y)["sum"]))(jnp.stack([X, Y])),
        ),
        (
            "vjp",
            {"forward", "backward"},
            lambda f: fad.grad(lambda xs: fad.vmap(lambda x: f(x, Y)["sum"])(xs).sum())(
                jnp.stack([X, Y])
            ),
        ),
        ("jvp", {"jvp"}, lambda f: fad.jvp(fad.vmap(f), (X[None], Y[None]), (X[None], Y[None]))),
    ],
)
def test_hand_written_rules_are_used(rule, expected, run):
    run(make(**{rule: True}))
    assert set(used) == expected


def test_one_node_and_its_name():
    x = fad.tensor(X, requires_grad=True)
    out = make()(x, Y)
    assert out["sum"].grad_fn.name() == "ProductBackward"
    assert out["sum"].grad_fn is out["product"].grad_fn
    named = extend.operation(name="mine")(lambda x: jnp.sin(x))
    assert named(x).grad_fn.name() == "MineBackward"


def test_static_arguments_by_keyword():
    @extend.operation(vjp=(lambda x, *, n: (x**n, x), lambda x, g, *, n: (g * n * x ** (n - 1),)))
    def power(x, *, n):
        return x**n

    fad.testing.check_operation(power, X, n=3)
    assert fad.grad(lambda x: power(x, n=2))(3.0) == 6.0
    assert fad.grad(lambda x: power(x, n=3))(2.0) == 12.0


@pytest.mark.parametrize("values", [(1, 1.0, True), (0.0, -0.0), ((1,), (True,))])
def test_static_arguments_that_are_equal_and_not_the_same(values):
    seen = []

    @extend.operation
    def noted(x, *, static):
        seen.append(repr(static))
        return x

    for static in values:
        noted(X, static=static)
    assert sorted(seen) == sorted(map(repr, values))


def test_rules_are_batched_with_each_level_of_vmap():
    rows = jnp.stack([jnp.stack([X, Y]), jnp.stack([Y, X])])
    op = make(vjp=True)
    fad.grad(lambda v: fad.vmap(fad.vmap(lambda x: op(x, Y)["sum"]))(v).sum())(rows)
    assert set(used) == {"forward", "backward"}


def test_arguments_with_nothing_in_them():
    op = extend.operation(
        vjp=(lambda p: (p["a"] * 2.0, None), lambda _, g: ({"a": g * 2.0, "b": None},))
    )
    double = op(lambda p: p["a"] * 2.0)
    assert float(fad.grad(lambda a: double({"a": a, "b": None}))(3.0)) == 2.0


def test_a_cotangent_of_none_and_pytrees_of_arguments():
    def forward(pair, scale):
        return pair["a"] * pair["b"] * scale, (pair, scale)

    def backward(residuals, g):
        pair, scale = residuals
        return {"a": g * pair["b"] * scale, "b": None}, None

    @extend.operation(vjp=(forward, backward))
    def product(pair, scale):
        return pair["a"] * pair["b"] * scale

    gradient, of_scale = fad.grad(lambda p, s: product(p, s), argnums=(0, 1))(
        {"a": 2.0, "b": 3.0}, 5.0
    )
    assert (float(gradient["a"]), float(gradient["b"]), float(of_scale)) == (15.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: extend.operation(3), TypeError, "must be a function, got"),
        (lambda: extend.operation(vjp=jnp.sin)(jnp.sin), TypeError, "a pair of functions"),
        (lambda: extend.operation(jvp=3)(jnp.sin), TypeError, "jvp must be a function"),
        (lambda: extend.operation(jnp.sin)("x"), TypeError, "by keyword"),
        (lambda: extend.operation(lambda x, *, n: x)(X, n=[1]), TypeError, "static and hashable"),
        (
            lambda: fad.jvp(extend.operation(jvp=lambda p, t: t[0])(jnp.sin), (X,), (X,)),
            fad.errors.RuleError,
            r"a pair \(output, tangent\)",
        ),
        (
            lambda: fad.grad(
                extend.operation(vjp=(lambda x: (x, None), lambda _, g: (g, g)))(lambda x: x)
            )(1.0),
            fad.errors.RuleError,
            "a tuple of 1",
        ),
        (
            lambda: fad.jvp(
                extend.operation(jvp=lambda p, t: ({"a": p[0]}, (t[0],)))(lambda x: {"a": x}),
                (X,),
                (X,),
            ),
            fad.errors.RuleError,
            "jvp returned something of structure",
        ),
        (
            lambda: fad.vmap(extend.operation(batch=lambda n, dims, x: ((x,), 0))(lambda x: x))(X),
            fad.errors.RuleError,
            "batch returned something of structure",
        ),
        (
            lambda: fad.grad(
                lambda x: extend.operation(vjp=(lambda p: (p[0], None), lambda _, g: ({"a": g},)))(
                    lambda p: p[0]
                )((x, x))
            )(1.0),
            fad.errors.RuleError,
            "for argument 0 must have the structure",
        ),
    ],
)
def test_errors_say_what_to_write(call, error, match):
    with pytest.raises(error, match=match):
        call()
