"""``safe_where``: the function that is not taken has exactly no derivative, at every order and level."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, StructureError
from tests.fuzzing.functions import OneMethodWave

# Each problem: how it is written, the same for JAX with arguments that are made safe, and where.
ROOT = (
    lambda x: fad.safe_where(x > 0.0, fnp.sqrt, lambda x: 0.0 * x, x),
    lambda x: jnp.where(x > 0.0, jnp.sqrt(jnp.where(x > 0.0, x, 1.0)), 0.0 * x),
)
SIGN = (
    lambda x: fad.safe_where(x != 0.0, lambda x: x * x / fnp.abs(x), fnp.sin, x),
    lambda x: jnp.where(
        x != 0.0, (lambda s: s * s / jnp.abs(s))(jnp.where(x != 0.0, x, 1.0)), jnp.sin(x)
    ),
)
MASKED = (
    lambda x: fad.safe_where(x <= 0.0, fnp.exp, lambda x: fnp.log(x) * x, x),
    lambda x: jnp.where(
        x <= 0.0, jnp.exp(x), (lambda s: jnp.log(s) * s)(jnp.where(x <= 0.0, 1.0, x))
    ),
)
PROBLEMS = {"root": ROOT, "sign": SIGN, "masked": MASKED}


def dual(f: Callable[..., Any]) -> Callable[..., Any]:
    def derivative(x: Any) -> Any:
        with fad.dual_level():
            y = f(fad.make_dual(x, fnp.ones_like(x)))
            return fad.unpack_dual(y).tangent

    return derivative


# A transform, and whether it gives the derivative.
STEPS: dict[str, tuple[Callable[..., Any], bool]] = {
    "grad": (fad.grad, True),
    "jvp": (lambda f: lambda x: fad.jvp(f, (x,), (fnp.ones_like(x),))[1], True),
    "dual_level": (dual, True),
    "vmap": (lambda f: lambda x: fad.vmap(f)(fnp.stack([x, x]))[1], False),
    "jit": (fad.jit, False),
    "checkpoint": (fad.checkpoint, False),
    "jax.grad": (lambda f: fad.from_jax(jax.grad(fad.to_jax(f))), True),
}
STACKS = list(itertools.product(STEPS, STEPS, STEPS))


POINTS = (0.0, 0.4, -0.7)


@functools.cache
def expected(name: str, order: int) -> list[float]:
    """The derivatives of a problem at `POINTS`, by JAX."""
    reference = PROBLEMS[name][1]
    for _ in range(order):
        reference = jax.grad(reference)
    found = jax.jit(jax.vmap(reference))(jnp.array(POINTS)).tolist()
    assert all(map(math.isfinite, found))
    return found


@pytest.mark.sweep("stack", STACKS, sample=6, ids=".".join)
def test_stacks_of_three_transforms(stack: tuple[str, ...]) -> None:
    for name, (f, _) in PROBLEMS.items():
        for step in stack:
            f = STEPS[step][0](f)
        order = sum([STEPS[step][1] for step in stack])
        found = [float(f(fad.tensor(x))) for x in POINTS]
        assert found == pytest.approx(expected(name, order), rel=1e-4, abs=1e-4), name


@pytest.mark.parametrize("name", PROBLEMS)
def test_plain_jax_takes_it(name: str) -> None:
    f, reference = PROBLEMS[name]
    x = jnp.array([0.0, 0.4, -0.7])
    for transform in (
        lambda f: jax.jit(jax.vmap(jax.grad(jax.jacfwd(jax.jacrev(f))))),
        lambda f: jax.jit(jax.hessian(lambda x: jnp.sum(f(x)))),
    ):
        assert_close(transform(f)(x), transform(reference)(x))
    assert isinstance(f(x), jax.Array) and isinstance(f(fad.asarray(x)), fad.Tensor)


def test_on_the_tape_where_torch_and_jax_have_nan(torch: Any) -> None:
    data = np.array([0.0, 4.0], np.float32)
    x = fad.tensor(data, requires_grad=True)
    y = fad.safe_where(x > 0.0, fnp.sqrt, fnp.zeros_like, x).sum()
    (g,) = fad.autograd.grad(y, x, create_graph=True)
    g.sum().backward()
    assert g.tolist() == [0.0, 0.25] and x.grad.tolist() == [0.0, -0.03125]
    t = torch.tensor(data, requires_grad=True)
    torch.where(t > 0.0, t.sqrt(), 0.0).sum().backward()
    assert torch.isnan(t.grad).tolist() == [True, False]
    plain = jax.grad(lambda x: jnp.sum(jnp.where(x > 0.0, jnp.sqrt(x), 0.0)))(data)
    assert np.isnan(plain).tolist() == [True, False]


def test_zeros_are_exact_whatever_the_function_gives() -> None:
    x = jnp.array([0.0, 1.0, -2.0])
    worst = lambda x: fnp.log(x) * fnp.sqrt(x) / (x - 1.0) / 0.0
    f = lambda x: fad.safe_where(x == x, fnp.square, worst, x)
    g = lambda x: fad.safe_where(x != x, worst, fnp.square, x)
    assert np.isnan(worst(x)).all()
    for h in (f, g):
        assert h(x).tolist() == [0.0, 1.0, 4.0]
        for derivative in (fad.jacrev(h), fad.jacfwd(h)):
            assert derivative(x).tolist() == np.diag([0.0, 2.0, -4.0]).tolist()
        assert fad.hessian(lambda x: h(x).sum())(x).tolist() == np.diag([2.0, 2.0, 2.0]).tolist()


def test_arguments_are_broadcast_and_each_is_protected() -> None:
    x, power = jnp.array([[0.0, 2.0, 3.0]] * 2), jnp.float32(1.5)
    f = lambda x, p: fnp.sum(fad.safe_where(x > 0.0, fnp.power, lambda x, p: x, x, p))
    by_x, by_power = fad.grad(f, argnums=(0, 1))(x, power)
    assert_close(by_x, jnp.where(x > 0.0, 1.5 * x**0.5, 1.0))
    expected = 2 * sum([v**1.5 * math.log(v) for v in (2.0, 3.0)])
    assert float(by_power) == pytest.approx(expected, rel=1e-5)


def test_a_condition_for_each_row() -> None:
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    unit = lambda x: x / fnp.linalg.norm(x, axis=-1, keepdims=True)
    f = lambda x: fad.safe_where(fnp.any(x != 0.0, -1, keepdims=True), unit, fnp.zeros_like, x)
    assert f(x).tolist() == [[0.0, 0.0], [0.6000000238418579, 0.800000011920929]]
    expected = jax.jacrev(lambda v: v / jnp.linalg.norm(v))(x[1])
    for derivative in (fad.jacrev(f)(x), fad.jacfwd(f)(x)):
        assert_close(derivative[1, :, 1], expected)
        assert derivative[0].tolist() == np.zeros((2, 2, 2)).tolist()


def test_pytrees_numbers_functions_and_one_bool() -> None:
    def f(given: Any, how: str, k: int) -> Any:
        assert how == "sin" and k == 2
        return {"y": OneMethodWave.apply(given["x"], given["w"]) ** k}

    x = fad.tensor([0.5, -1.0])
    tree = {"x": x, "w": 2.0 * x}
    g = lambda given, how, k: {"y": given["x"]}
    for condition, chosen in ((True, f), (np.bool_(False), g)):
        got = fad.safe_where(condition, f, g, tree, "sin", 2)
        assert_close(got["y"], chosen(tree, "sin", 2)["y"])
    loss = lambda t: fad.safe_where(t["x"] > 0.0, f, g, t, "sin", 2)["y"].sum()
    grads = fad.grad(loss)(tree)
    expected = fad.grad(lambda t: f(t, "sin", 2)["y"][0])(tree)
    assert grads["x"].tolist() == pytest.approx([expected["x"].tolist()[0], 1.0])
    assert grads["w"].tolist() == pytest.approx([expected["w"].tolist()[0], 0.0])


def test_lanes_have_conditions_of_their_own() -> None:
    x = jnp.array([0.0, 0.4, -0.7])
    f, reference = ROOT
    assert_close(fad.vmap(fad.hessian(f))(x), jax.jit(jax.vmap(jax.hessian(reference)))(x))
    flags = jnp.array([True, False, True])
    slope = fad.grad(lambda x, flag: fad.safe_where(flag, fnp.exp, fnp.log, x))
    assert fad.vmap(slope)(jnp.array([0.0, 4.0, 0.0]), flags).tolist() == [1.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ((jnp.ones(2), fnp.sin, fnp.cos, jnp.ones(2)), ArgumentError, "expected bools"),
        ((1, fnp.sin, fnp.cos, jnp.ones(2)), ArgumentError, "the condition is 1, expected bools"),
        ((jnp.ones(3) > 0, fnp.sin, fnp.cos, jnp.ones(2)), ArgumentError, r"\[3\] and an argument \[2\]"),
        ((jnp.ones(2) > 0, lambda x: jnp.ones(3), fnp.cos, jnp.ones(2)), ArgumentError, r"a result \[3\]"),
        ((jnp.ones(2) > 0, lambda x: (x, x), fnp.cos, jnp.ones(2)), StructureError, "the same"),
        ((True, 1.0, fnp.cos, jnp.ones(2)), TypeError, "safe_where: f must be .* lambda x: 1.0"),
        ((True, fnp.sin, None, jnp.ones(2)), TypeError, "g must be a function of args, got None"),
    ],
)  # fmt: skip
def test_bad_arguments(args: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        fad.safe_where(*args)


def test_dicts_keep_the_order_of_their_keys() -> None:
    seen = []

    def f(p):
        seen.append(list(p))
        return {"d": p["b"] * 2.0, "c": p["a"]}

    found = fad.safe_where(True, f, f, {"b": fad.ones(2), "a": fad.zeros(2)})
    assert seen == [["b", "a"]] * 2 and list(found) == ["d", "c"]
    assert found["d"].tolist() == [2.0, 2.0]
