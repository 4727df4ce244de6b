"""Every transform around every other, for every kind of Function, against JAX on the plain function."""

from __future__ import annotations

import functools
import itertools
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import (
    FORWARD,
    REVERSE,
    AllGrowth,
    JvpGrowth,
    OneMethodGrowth,
    VjpGrowth,
)
from helpers import Fn, Transform, assert_close, is_idle, ramp, transforms

import fad
import fad.numpy as fnp
from tests.fuzzing.functions import (
    BothWave,
    FullWave,
    JvpWave,
    OneMethodWave,
    VjpWave,
    Wave,
)

# Functions of every kind, all of f(x, y) = sin(x) y


KINDS: dict[str, Any] = {
    "vjp": VjpWave,
    "jvp": JvpWave,
    "both": BothWave,
    "all": FullWave,
    "neither": Wave,
    "one-method": OneMethodWave,
}

TRANSFORMS = transforms(lambda xp: lambda y: xp.sum(xp.sin(y)), lambda xp: xp.cos)
WEIGHTS = np.array([0.3, -0.5], np.float32)

Names = tuple[str, ...]


def plain(x: Any) -> Any:
    return jnp.sin(x) * (WEIGHTS * x)


def stack(f: Fn, names: Names, side: str, table: dict[str, Transform] = TRANSFORMS) -> Fn:
    """``f`` under transforms, the first name innermost; ``side`` is "fad" or "jax"."""
    for name in names:
        f = getattr(table[name], side)(f)
    return f


def batched_input(names: Names) -> jax.Array:
    """A vector of 2, with a batch dimension of 2 for each vmap."""
    depth = names.count("vmap")
    return jnp.linspace(0.1, 1.0, 2 ** (depth + 1)).reshape((2,) * (depth + 1))


SAME_IN_JAX = {"dual_level": "jvp", "linearize": "jvp", "autograd": "grad", "checkpoint": ""}


@functools.cache
def in_jax(f: Fn, names: Names) -> np.ndarray:
    return np.asarray(jax.jit(stack(f, names, "jax"))(batched_input(names)))  # one program: faster


def reference(f: Fn, names: Names) -> np.ndarray:
    """JAX's result; several of fad's transforms are one and the same there."""
    return in_jax(f, tuple([n for t in names if (n := SAME_IN_JAX.get(t, t))]))


def check(kind: str, names: Names) -> None:
    function = KINDS[kind]
    f = stack(lambda x: function.apply(x, WEIGHTS * x), names, "fad")
    assert_close(f(batched_input(names)), reference(plain, names))
    assert is_idle()


def sampled(counts: dict[int, int], seed: int) -> list[Names]:
    """Distinct sequences: for each length, a number of them."""
    draw = random.Random(seed)
    found: list[Names] = []
    for length, count in counts.items():
        found.extend(draw.sample(list(itertools.product(TRANSFORMS, repeat=length)), count))
    return found


SINGLE: list[Names] = [(name,) for name in TRANSFORMS]
PAIRS: list[Names] = list(itertools.product(TRANSFORMS, repeat=2))
LONG = sampled({3: 150, 4: 40}, seed=2)


def joined(value: Any) -> str | None:
    return ".".join(value) if isinstance(value, tuple) else None


def one_of(kinds: Iterable[Any], names: Names) -> Any:
    """In all pairs of transforms each kind stands inside of and around each transform."""
    kinds, places = list(kinds), list(TRANSFORMS)
    return kinds[sum([places.index(name) for name in names]) % len(kinds)]


@pytest.mark.parametrize("names", SINGLE, ids=joined)
@pytest.mark.parametrize("kind", KINDS)
def test_each_transform_agrees_with_jax(kind: str, names: Names) -> None:
    check(kind, names)


@pytest.mark.parametrize("names", PAIRS, ids=joined)
def test_pairs_agree_with_jax(names: Names, full: bool) -> None:
    for kind in KINDS if full else [one_of(KINDS, names)]:
        check(kind, names)


@pytest.mark.sweep("at", range(len(LONG)), sample=16, ids=lambda i: joined(LONG[i]))
def test_long_sequences_agree_with_jax(at: int, full: bool) -> None:
    # One kind of Function each; with --full, all kinds.
    for kind in KINDS if full else [list(KINDS)[at % len(KINDS)]]:
        check(kind, LONG[at])


# Which rule ran


# The factors of reverse and of forward mode. A rule that is not there is derived from the other.
FACTORS: dict[Any, tuple[float, float]] = {
    VjpGrowth: (REVERSE, REVERSE),
    JvpGrowth: (FORWARD, FORWARD),
    AllGrowth: (REVERSE, FORWARD),
    OneMethodGrowth: (REVERSE, REVERSE),
}

LINEAR = transforms(lambda xp: lambda y: xp.sum(y), lambda xp: ramp)


def plain_growth(x: Any) -> Any:
    return jnp.exp(x) * WEIGHTS


@functools.cache
def linear_in_jax(names: Names) -> np.ndarray:
    return np.asarray(jax.jit(stack(plain_growth, names, "jax", LINEAR))(batched_input(names)))


def check_factor(function: Any, names: Names, reference: Any = linear_in_jax) -> None:
    reverse, forward = FACTORS[function]
    modes = [LINEAR[n].mode for n in names]
    factor = reverse ** modes.count("reverse") * forward ** modes.count("forward")
    f = stack(lambda x: function.apply(x, WEIGHTS), names, "fad", LINEAR)
    AllGrowth.batches = 0
    expected = reference(tuple([n for t in names if (n := SAME_IN_JAX.get(t, t))]))
    assert_close(f(batched_input(names)), (factor * expected).astype(expected.dtype))
    if function is AllGrowth and "vmap" in names:
        assert AllGrowth.batches, "the vmap rule did not run"


@pytest.mark.parametrize("names", [*SINGLE, *PAIRS], ids=joined)
def test_the_users_rule_ran(names: Names, full: bool) -> None:
    for function in FACTORS if full or len(names) == 1 else [one_of(FACTORS, names)]:
        check_factor(function, names)


@pytest.mark.parametrize("names", [s for s in LONG if "vmap" in s][::9], ids=joined)
def test_the_users_rule_ran_in_long_sequences(names: Names, full: bool) -> None:
    for function in FACTORS if full else (AllGrowth, VjpGrowth):
        check_factor(function, names)


@pytest.mark.sweep("names", [*SINGLE, *PAIRS], sample=4, ids=joined)
def test_the_users_rule_ran_in_64_bits(names: Names) -> None:
    """On inputs of 64 bits and weights of 32."""
    with jax.enable_x64(True):
        for function in FACTORS:
            check_factor(function, names, linear_in_jax.__wrapped__)


# A closure over the variable of an outer transform


DERIVATIVES = [n for n, t in TRANSFORMS.items() if t.mode]


@pytest.mark.parametrize("inner", DERIVATIVES)
@pytest.mark.parametrize("outer", DERIVATIVES)
def test_an_inner_derivative_may_close_over_the_outer_variable(
    outer: str, inner: str, full: bool
) -> None:
    def nested(apply: Callable[[Any, Any], Any], side: str) -> Fn:
        def f(x: Any) -> Any:
            g = getattr(TRANSFORMS[inner], side)(lambda y: apply(y, x) * x)
            return g(x) * x

        return getattr(TRANSFORMS[outer], side)(f)  # type: ignore[no-any-return]

    def product(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y

    x = jnp.array([0.4, 0.9])
    expected = jax.jit(nested(product, "jax"))(x)
    for kind in KINDS if full else [one_of(KINDS, (outer, inner))]:
        assert_close(nested(KINDS[kind].apply, "fad")(x), expected)


CONSTANT = transforms(lambda xp: xp.sum, lambda xp: xp.ones_like)
SCALAR: dict[str, Callable[[Fn], Fn]] = {
    **{n: CONSTANT[n].fad for n in DERIVATIVES},
    "vjp": lambda f: lambda x: fad.vjp(f, x)[1](1.0)[0],
}


@pytest.mark.sweep("pair", list(itertools.product(SCALAR, repeat=2)), sample=12, ids=joined)
def test_perturbations_are_not_confused(pair: tuple[str, str]) -> None:
    outer, inner = pair
    d, e = SCALAR[outer], SCALAR[inner]
    one, three = jnp.float32(1.0), jnp.float32(3.0)

    def start(x: Any) -> Any:
        """1, as a constant of x's level: autograd.grad wants its variable where its output is."""
        return fad.stop_gradient(x) * 0.0 + 1.0

    # d/dx [x * d/dy (x + y)] = 1: 2 if x's perturbation is taken for y's.
    assert float(d(lambda x: x * e(lambda y: x + y)(start(x)))(one)) == 1.0
    # d/dx [x * d/dy (x y)] = 2 x.
    assert float(d(lambda x: x * e(lambda y: x * y)(start(x)))(three)) == 6.0
    # The inner variable starts at the outer one: d/dx [d/dy (x y^2) at y = x] = d/dx 2 x^2 = 4 x.
    assert float(d(lambda x: e(lambda y: x * y * y)(x))(three)) == 12.0
    # An inner derivative of what does not depend on its variable is zero, whatever x carries.
    assert float(d(lambda x: x + e(lambda y: x * x * (0.0 * y + 1.0))(start(x)))(three)) == 1.0
    # Three levels: d/dx [x * d/dy (x y * d/dz (x y z))] = d/dx [x * 2 x^2 y] = 6 x^2 y.
    triple = d(lambda x: x * e(lambda y: x * y * d(lambda z: x * y * z)(start(y)))(start(x)))
    assert float(triple(one)) == 6.0


@pytest.mark.parametrize("name", [n for n in SCALAR if n != "autograd"])
def test_an_inner_derivative_that_ignores_its_variable_is_zero(name: str) -> None:
    # autograd.grad raises for an unused input, as PyTorch's does.
    d, x = SCALAR[name], jnp.float32(3.0)
    assert float(fad.grad(lambda x: x + d(lambda y: fnp.sin(x) + 0.0)(x))(x)) == 1.0


# What PyTorch 2.13 gets wrong without a word


@pytest.mark.parametrize("kind", KINDS)
def test_jacfwd_of_jacfwd_of_a_function_is_not_zero(kind: str) -> None:
    function = KINDS[kind]
    x, y = jnp.array([0.4, 0.9]), jnp.array([2.0, -1.0])
    got = fad.jacfwd(fad.jacfwd(lambda x: function.apply(x, y)))(x)
    expected = np.zeros((2, 2, 2), x.dtype)
    expected[0, 0, 0], expected[1, 1, 1] = -np.sin(0.4) * 2.0, np.sin(0.9)
    assert_close(got, expected)


def test_grad_of_vmap_uses_the_users_vjp() -> None:
    x = jnp.array([[0.1, 0.2], [0.3, 0.4]])
    for function in (VjpGrowth, OneMethodGrowth):
        got = fad.grad(lambda x, f=function: fad.vmap(f.apply, (0, None))(x, WEIGHTS).sum())(x)
        assert_close(got, np.asarray(REVERSE * np.exp(x) * WEIGHTS))
    # The vmap rule runs, and the vjp rule is still the user's.
    AllGrowth.batches = 0
    got = fad.grad(lambda x: fad.vmap(AllGrowth.apply, (0, None))(x, WEIGHTS).sum())(x)
    assert_close(got, np.asarray(REVERSE * np.exp(x) * WEIGHTS))
    assert AllGrowth.batches == 1


def in_thread(f: Fn) -> Fn:
    """``f``, computed in a child thread."""

    def run(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(f, x).result()

    return run


@pytest.mark.parametrize("kind", [*KINDS, "op"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_child_thread_is_part_of_every_transform(name: str, kind: str) -> None:
    apply = (lambda x, y: fnp.sin(x) * y) if kind == "op" else KINDS[kind].apply
    transform = TRANSFORMS[name].fad
    x = batched_input((name,))
    expected = reference(plain, (name,))
    assert_close(transform(in_thread(lambda x: apply(x, WEIGHTS * x)))(x), expected)


def test_a_child_thread_may_run_transforms_of_its_own() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(in_thread(fad.vmap(fad.grad(lambda v: fnp.sin(v) * v)))(x))

    x = jnp.array([0.3, 0.7])
    expected = jax.grad(lambda x: jnp.sum(jax.vmap(jax.grad(lambda v: jnp.sin(v) * v))(x)))(x)
    assert_close(fad.grad(f)(x), expected)


def test_two_threads_in_two_dual_levels_do_not_see_each_other() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def work(scale: float) -> tuple[float, float]:
        with fad.dual_level():
            x = fad.make_dual(fad.tensor(2.0), fad.tensor(scale))
            barrier.wait()  # both levels are open
            y = fnp.sin(x) * x
            barrier.wait()  # both have computed
            with fad.dual_level():
                z = fad.make_dual(x, fad.tensor(1.0))
                barrier.wait()
                inner = fad.unpack_dual(z * z).tangent
            barrier.wait()
            return float(fad.unpack_dual(y).tangent), float(fad.unpack_dual(inner).tangent)

    with ThreadPoolExecutor(2) as pool:
        (a, a2), (b, b2) = pool.map(work, [1.0, 10.0])
    slope = float(np.cos(2.0) * 2.0 + np.sin(2.0))
    np.testing.assert_allclose([a, b], [slope, 10 * slope], rtol=1e-5)
    np.testing.assert_allclose([a2, b2], [2.0, 20.0], rtol=1e-6)


def test_threads_inside_one_transform_and_transforms_inside_threads() -> None:
    def f(x: Any) -> Any:
        with ThreadPoolExecutor(4) as pool:
            parts = list(
                pool.map(lambda k: fad.grad(lambda v: fnp.sin(k * v).sum())(x), range(1, 5))
            )
        return sum(parts[1:], parts[0])

    def g(x: Any) -> Any:
        return sum(jax.grad(lambda v, k=k: jnp.sin(k * v).sum())(x) for k in range(1, 5))

    x = jnp.array([0.2, 0.5])
    assert_close(fad.jacfwd(f)(x), jax.jacfwd(g)(x))
    assert_close(fad.jacrev(f)(x), jax.jacrev(g)(x))


class Polar(fad.Function):
    """Two outputs in a dict from two inputs, with a vjp only."""

    @staticmethod
    def forward(point: Any) -> Any:
        r = fnp.hypot(point["x"], point["y"])
        return {"r": r, "angle": fnp.arctan2(point["y"], point["x"])}

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        (point,) = inputs
        ctx.save_for_backward(point["x"], point["y"], output["r"])

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y, r = ctx.saved_tensors
        return (
            {
                "x": g["r"] * x / r - g["angle"] * y / (r * r),
                "y": g["r"] * y / r + g["angle"] * x / (r * r),
            },
        )


def polar(point: Any) -> Any:
    return {
        "r": jnp.hypot(point["x"], point["y"]),
        "angle": jnp.arctan2(point["y"], point["x"]),
    }


def test_forward_mode_through_a_function_with_only_a_vjp() -> None:
    point = {"x": jnp.array([3.0, 1.0]), "y": jnp.array([4.0, 2.0])}
    tangent = {"x": jnp.array([1.0, -1.0]), "y": jnp.array([0.5, 2.0])}
    got = fad.jvp(Polar.apply, (point,), (tangent,))
    assert_close(got, jax.jvp(polar, (point,), (tangent,)))
    # A worked number: dr = (3 * 1 + 4 * 0.5) / 5 = 1, d(angle) = (3 * 0.5 - 4 * 1) / 25 = -0.1
    np.testing.assert_allclose(got[1]["r"][0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(got[1]["angle"][0], -0.1, rtol=1e-6)
    assert_close(fad.jacfwd(Polar.apply)(point), jax.jit(jax.jacfwd(polar))(point))
    second = jax.jit(jax.jacfwd(jax.jacrev(polar)))(point)
    assert_close(fad.jacfwd(fad.jacrev(Polar.apply))(point), second, rtol=1e-3)
    along = lambda p: jax.jvp(polar, (p,), (tangent,))[1]
    assert_close(
        fad.jvp(lambda p: fad.jvp(Polar.apply, (p,), (tangent,))[1], (point,), (tangent,))[1],
        jax.jit(lambda p: jax.jvp(along, (p,), (tangent,))[1])(point),
        rtol=1e-3,
    )
