"""Bodies that are made anew for each call, and close over other numbers each time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, assert_close

import fad
import fad.numpy as fnp
from fad.tape import staged
from fad.tape.staged import PROGRAMS, Body, code_of

DATA = jnp.array([0.3, -0.7, 1.1])


def _grad(m: Any, f: Callable[..., Any]) -> Any:
    return (fad.grad if m is IN_FAD else jax.grad)(f)


def _jit(m: Any, f: Callable[..., Any]) -> Any:
    return (fad.jit if m is IN_FAD else jax.jit)(f)


def _root(m: Any, k: Any) -> Any:
    def solve(f: Any, x: Any) -> Any:
        return m.lax.fori_loop(0, 6, lambda i, x: x - m.lax.div(f(x), 2 * x * k), x)

    root = lambda a: m.lax.custom_root(
        lambda x: x * x * k - a,
        jnp.float32(1.0),
        solve,
        lambda g, y: m.lax.div(y, g(m.np.ones_like(y))),
    )
    return _grad(m, root)(2.0)


def _root_with_rules(m: Any, k: Any) -> Any:
    """Of a function with a division, an elementwise function and a function with a rule of its own."""
    root = lambda a: m.lax.custom_root(
        lambda x: _with_a_rule(m)(m.np.exp(x) / 2.0) + m.nn.relu(x) - a * k,
        jnp.float32(1.0),
        lambda f, x: m.lax.fori_loop(0, 6, lambda i, x: x - f(x) / (m.np.exp(x) / 2.0 + 1.0), x),
        lambda g, y: y / g(1.0),
    )
    return _grad(m, _grad(m, root))(2.0)


@jax.custom_jvp
def _tripled(x: Any) -> Any:
    return x * 1.0


_tripled.defjvp(lambda primals, tangents: (_tripled(*primals), tangents[0] * 3.0 * primals[0]))
_TRIPLED = fad.from_jax(_tripled)


def _with_a_rule(m: Any) -> Any:
    return _TRIPLED if m is IN_FAD else _tripled


def _checkpoint(m: Any, k: Any) -> Any:
    f, policy = (lambda x: m.np.sin(x * k)), jax.checkpoint_policies.nothing_saveable
    made = fad.checkpoint(f, policy=policy) if m is IN_FAD else jax.checkpoint(f, policy=policy)
    return _grad(m, made)(1.0)


# Each makes its bodies anew, which close over k.
MADE: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda m, k: _grad(m, lambda x: m.lax.scan(lambda s, u: (s * k + u, None), x, DATA)[0])(
        1.0
    ),
    "while_loop": lambda m, k: m.lax.while_loop(lambda s: s < 20 * k, lambda s: s * (1.5 + k), 1.0),
    "fori_loop": lambda m, k: _grad(m, lambda x: m.lax.fori_loop(0, 3, lambda i, s: s * k, x))(1.0),
    "cond": lambda m, k: _grad(m, lambda x: m.lax.cond(x > 0, lambda x: x * k, lambda x: x - k, x))(
        1.0
    ),
    "switch": lambda m, k: m.lax.switch(1, [lambda x: x, lambda x: m.np.sin(x - k)], 1.0),
    "map": lambda m, k: m.lax.map(lambda u: u * k, DATA),
    "associative_scan": lambda m, k: m.lax.associative_scan(lambda a, b: a * k + b, DATA),
    "in another body": lambda m, k: m.lax.scan(
        lambda s, u: (m.lax.cond(s > k, lambda s: s * k, lambda s: s + u, s), None), 1.0, DATA
    )[0],
    "jit": lambda m, k: _jit(m, lambda x: m.np.sin(x * k))(DATA),
    "jit of grad of scan": lambda m, k: _jit(
        m, _grad(m, lambda x: m.lax.scan(lambda s, u: (s * k + u, None), x, DATA)[0])
    )(1.0),
    "checkpoint": _checkpoint,
    "custom_root": _root,
    "custom_root of functions with rules": _root_with_rules,
}
NUMBERS = (0.5, 0.25, 0.75, 0.625, 0.875, 1.125)


def programs() -> int:
    """How many programs of staged functions were made; of this test alone, where few are dropped."""
    return len(staged._primitives.values())


@pytest.mark.parametrize("name", MADE)
def test_a_number_that_changes_becomes_an_operand(name: str) -> None:
    run = MADE[name]
    staged._primitives.clear()
    counts = []
    for k in NUMBERS:
        found = run(IN_FAD, k)
        counts.append(programs())
        if k in (NUMBERS[0], NUMBERS[-1]):  # JAX compiles for each number
            assert_close(found, run(IN_JAX, k), rtol=1e-5)
    assert counts[4:] == counts[3:-1], counts  # inner bodies follow one trace later


@pytest.mark.parametrize("make", [np.float32, np.array, lambda k: np.full(3, k, np.float32)])
def test_numbers_of_numpy_too(make: Callable[[float], Any]) -> None:
    staged._primitives.clear()
    counts = []
    for k in NUMBERS:
        c = make(k)
        assert_close(fad.jit(lambda x, c=c: x * c)(DATA), DATA * k)
        assert_close(fad.lax.map(lambda u, c=c: u * c, DATA), jnp.stack([u * c for u in DATA]))
        counts.append(programs())
    assert counts[3:] == counts[2:-1], counts


def test_numbers_that_are_no_operands_are_part_of_the_program() -> None:
    x = fad.tensor([1.0, 2.0, 3.0, 4.0])
    for n in (1, 2, 3, 1, 2, 3):
        out = fad.lax.scan(lambda s, _, n=n: (s + x[:n].sum() + x[n], None), 0.0, None, length=1)
        assert float(out[0]) == sum(range(1, n + 1)) + n + 1
        assert_close(fad.jit(lambda x, n=n: x**n)(x).array, x.array**n)


def test_a_kind_of_number_that_changes() -> None:
    for k in (1, 2.0, 3, 4.5, True, 2 + 1j, 5, 6.5):
        assert fad.jit(lambda x, k=k: x * k)(3).tolist() == 3 * k
    for k in (float("nan"), 0.0, -0.0, float("inf"), float("nan"), -0.0):
        got = np.asarray(fad.jit(lambda x, k=k: x * k)(jnp.float32(1.0)))
        np.testing.assert_array_equal(got.view(np.int32), np.float32(k).view(np.int32))


def test_the_python_of_a_body_runs_no_more_often() -> None:
    runs = []
    for k in NUMBERS:
        fad.lax.map(lambda u, k=k: runs.append(k) or u * k, DATA)
    assert runs == list(NUMBERS)


def test_the_constants_of_jit_are_those_of_its_trace() -> None:
    def made(rate: float) -> tuple[Any, Callable[[float], None]]:
        def change(new: float) -> None:
            nonlocal rate
            rate = new

        return fad.jit(lambda x: x * rate), change

    for k in NUMBERS:
        f, change = made(k)
        assert f(1.0) == k
        change(100.0)
        assert f(1.0) == k


def test_numbers_under_outer_transforms_and_in_32_and_64_bits() -> None:
    run = lambda m, k: lambda x: m.lax.scan(lambda s, u: (m.np.sin(s) * k + u, None), x, DATA)[0]
    hessians = (
        (fad.vmap(fad.grad(fad.grad(run(IN_FAD, k)))), jax.vmap(jax.grad(jax.grad(run(IN_JAX, k)))))
        for k in NUMBERS[:4]
    )
    for got, expected in hessians:
        assert_close(got(DATA), expected(DATA), rtol=1e-4)
    for k in NUMBERS[:4]:
        with jax.enable_x64(True):
            out = fad.lax.map(lambda u, k=k: u * k, jnp.arange(2.0))
            assert out.dtype == jnp.float64 and out[1] == k
        assert fad.lax.map(lambda u, k=k: u * k, jnp.float16([1.0])).dtype == jnp.float16


def test_programs_of_one_code_are_few() -> None:
    """Also where it is no number that differs."""
    staged._primitives.clear()
    for n in range(PROGRAMS + 5):
        fad.lax.map(lambda u, n=n: u + sum([u] * n), DATA)
    assert programs() == PROGRAMS


def test_codes() -> None:
    made = lambda k: lambda x: x * k
    other = lambda k: lambda x: x * k
    assert code_of(made(1)) == code_of(made(2)) != code_of(other(1))
    assert code_of(fad.grad(made(1))) == code_of(fad.grad(made(2))) != code_of(made(1))
    assert code_of(functools.partial(made(1), 2)) == code_of(functools.partial(made(2), 1))
    assert code_of(fnp.sin) != code_of(fnp.tanh)
    assert code_of([].append) == code_of([1].append)


def test_a_body_notes_what_changes() -> None:
    body = Body()
    body.note_numbers([1.0, 2.0])
    body.note_numbers([1.0, 3.0])
    body.note_numbers([1.0])  # another path
    assert body.numbers.places == {1}
    body.note_numbers([float("nan"), -0.0])
    assert body.numbers.places == {0, 1}


@pytest.mark.parametrize("order", [1, 2, 3])
def test_roots_of_equal_programs_with_other_rules(order: int) -> None:
    """What the functions compute is the same, and the rules differ, in the derivative of this order first."""

    def root(rule: Any) -> Any:
        def f(k: Any) -> Any:
            return fad.lax.custom_root(
                lambda x: rule(x * 0.5) - k, 1.0, lambda g, _: 2.0 * k, lambda g, y: y / g(1.0)
            )

        return f

    def made(slopes: tuple[float, ...]) -> Any:
        """The identity, whose first derivative is said to be ``slopes[0]``, that of it ``slopes[1]``, ..."""

        @jax.custom_jvp
        def rule(x: Any) -> Any:
            return x * 1.0

        @rule.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            slope = 1.0 + (made(slopes[1:])(x) - x) if slopes[1:] else slopes[0]
            return rule(x), t * slope

        return rule

    for c in (1.0, 2.0, 1.0, 3.0):
        slopes = (*[1.0] * (order - 1), c)
        in_fad, in_jax = root(fad.from_jax(made(slopes))), made(slopes)
        f: Any = in_fad
        expected: Any = lambda k: jax.lax.custom_root(
            lambda x: in_jax(x * 0.5) - k, 1.0, lambda g, _: 2.0 * k, lambda g, y: y / g(1.0)
        )
        for _ in range(order):
            f, expected = fad.grad(f), jax.grad(expected)
        for _ in range(4):
            assert_close(f(2.0), expected(2.0))
