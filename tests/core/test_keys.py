"""Numbers that are equal and not the same have different keys wherever values are looked up; bit by bit."""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.core.avals import constant
from fad.core.keys import exact

Pair = namedtuple("Pair", "a b")
NAN = float("nan")
# Each is equal to the first of its row, but for NaN, which is equal to nothing.
ALIKE: list[list[Any]] = [
    [
        0.0,
        -0.0,
        0,
        False,
        0j,
        complex(0.0, -0.0),
        complex(-0.0, 0.0),
        np.float32(0),
        np.float32(-0.0),
    ],
    [1, True, 1.0, 1 + 0j, complex(1.0, -0.0), np.float32(1), np.float64(1), np.int32(1)],
    [complex(-1, 0.0), complex(-1, -0.0), -1, -1.0],
    [2j, complex(-0.0, 2), np.complex64(2j), np.complex64(complex(-0.0, 2))],
]
COMPLEX = [complex(a, b) for a in (1.0, -1.0, 0.0, -0.0) for b in (0.0, -0.0, 2.0)]


def bits(x: Any) -> tuple[Any, bytes]:
    x = np.asarray(x)
    return x.dtype, x.tobytes()


@pytest.mark.parametrize("row", ALIKE, ids=lambda row: repr(row[0]))
def test_keys_distinguish_what_is_equal(row: list[Any]) -> None:
    shapes = [lambda v: v, lambda v: (v,), lambda v: ((v, "a"),), lambda v: Pair(v, 1)]
    for shape in [*shapes, lambda v: frozenset([v])]:
        keys = [exact(shape(v)) for v in row]
        for (i, a), (j, b) in itertools.product(enumerate(keys), repeat=2):
            assert (a == b) == (i == j), (row[i], row[j])
        assert [exact(shape(v)) for v in row] == keys and len(set(keys)) == len(row)
    assert exact((1, 2)) != exact(Pair(1, 2))


def test_keys_of_other_values() -> None:
    assert exact(NAN) == exact(-math.nan) == exact(float("nan"))
    assert exact(np.float32("nan")) == exact(np.float32("nan"))
    assert exact("a") == exact("a") and exact(None) == exact(None)
    for unhashable in ([], ({},), (1, (jnp.ones(2),))):
        with pytest.raises(TypeError):
            exact(unhashable)


@pytest.mark.parametrize("x64", [False, True])
def test_constants(x64: bool) -> None:
    with jax.enable_x64(x64):
        numbers = [v for row in ALIKE for v in row if not isinstance(v, np.generic)]
        for v in [*numbers, *COMPLEX, NAN, complex(NAN, -0.0), math.inf, complex(-0.0, NAN)] * 2:
            assert bits(jnp.asarray(constant(v))) == bits(jnp.asarray(v)), v


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("wrap", [lambda f: f, fad.vmap, fad.jit], ids=["plain", "vmap", "jit"])
def test_numbers_among_operands(wrap: Any, x64: bool) -> None:
    """One operation on numbers which differ in the sign of a zero, again and again."""
    with jax.enable_x64(x64):
        mask = np.array([True, False])
        z = np.array([1 + 1j, 2 - 1j])
        for _ in range(3):
            for c in COMPLEX:
                want = jnp.where(mask, c, jnp.asarray(z))
                got = wrap(lambda m, z, c=c: fnp.where(m, c, z))(fad.tensor(mask), fad.tensor(z))
                assert bits(got) == bits(want), c
            for r in (0.0, -0.0, 0, False, True, 1, 1.0):
                want = jnp.copysign(jnp.asarray([1.0, 2.0]), r)
                got = wrap(lambda x, r=r: fnp.copysign(x, r))(fad.tensor([1.0, 2.0]))
                assert bits(got) == bits(want), r


def test_numbers_that_are_written() -> None:
    for _ in range(3):
        for c in COMPLEX:
            x = fad.tensor(np.zeros(3, np.complex64))
            x[0] = c
            x[1:].fill_(c)
            assert bits(x) == bits(np.full(3, c, np.complex64)), c


def test_static_arguments_of_jit() -> None:
    jitted = fad.jit(lambda x, k: fnp.copysign(x, k), static_argnums=1)
    named = fad.jit(lambda x, *, k: fnp.copysign(x, k[0]), static_argnames="k")
    x = jnp.ones(2)
    for _ in range(3):
        for k in (0.0, -0.0, -1.0, 0, False):
            want = bits(jnp.copysign(x, k))
            assert (
                bits(jitted(x, k))
                == bits(jitted(fad.tensor(x), k))
                == bits(named(x, k=(k,)))
                == want
            )
    dtypes = fad.jit(lambda x, k: fnp.asarray(k) + x, static_argnums=1)
    for k in (1, True, 1.0, 1 + 0j, np.float16(1)):
        assert bits(dtypes(jnp.int8(1), k)) == bits(jnp.asarray(k) + jnp.int8(1)), k


def test_a_static_nan_is_found_again() -> None:
    traced = []

    @fad.jit
    def f(x: Any, options: Any) -> Any:
        traced.append(options)
        return x * 2.0

    f = fad.jit(f.__wrapped__, static_argnums=1)
    for _ in range(3):
        f(jnp.ones(2), (float("nan"), "a"))
    assert len(traced) == 1


def test_what_is_new_in_a_call_is_explained() -> None:
    f = fad.jit(lambda x, k: x, static_argnums=1)
    f(jnp.ones(2), 0.0)
    assert "argument 1 is static float -0.0" in f.explain(jnp.ones(2), -0.0)


def test_static_arguments_of_from_jax() -> None:
    f = fad.from_jax(lambda x, k: jnp.copysign(x, k[0]), static_argnums=1)
    for _ in range(2):
        for k in (0.0, -0.0):
            assert bits(f(fad.tensor([1.0]), (k,))) == bits(jnp.copysign(jnp.ones(1), k))


@pytest.mark.parametrize("jax_rules", [False, True])
@pytest.mark.parametrize(
    "wrap",
    [lambda f: f, fad.vmap, fad.jit, jax.jit, jax.vmap],
    ids=["", "vmap", "jit", "jax", "jax_vmap"],
)
def test_static_arguments_of_functions(jax_rules: bool, wrap: Any) -> None:
    np_ = jnp if jax_rules else fnp

    class Sign(fad.Function):
        @staticmethod
        def forward(x: Any, k: Any) -> Any:
            return np_.copysign(x, k[0] if isinstance(k, tuple) else k)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return np_.copysign(g, ctx.k[0] if isinstance(ctx.k, tuple) else ctx.k), None

    Sign.jax_rules = jax_rules
    Sign.is_traceable = True
    x = jnp.ones(2)
    for _ in range(2):
        for k in (0.0, -0.0, False, 0, (0.0,), (-0.0,)):
            want = bits(jnp.copysign(x, k[0] if isinstance(k, tuple) else k))
            assert bits(wrap(lambda x, k=k: Sign.apply(x, k))(x)) == want, k
            slope = wrap(lambda x, k=k: fad.grad(lambda x: Sign.apply(x, k).sum())(x))
            assert bits(slope(x)) == want, k


def test_keywords_of_namespaces() -> None:
    x = fad.tensor([1.0, np.nan])
    for _ in range(2):
        for k in (0.0, -0.0, 0, 1, 1.0, True):
            assert bits(fnp.nan_to_num(x, nan=k)) == bits(jnp.nan_to_num(x.array, nan=k)), k
            assert bits(fnp.full_like(x, k)) == bits(jnp.full_like(x.array, k)), k
            got = fnp.pad(x, 1, constant_values=k)
            assert bits(got) == bits(jnp.pad(x.array, 1, constant_values=k)), k
            got = fnp.pad(x, 1, constant_values=((k, 2.0),))
            assert bits(got) == bits(jnp.pad(x.array, 1, constant_values=((k, 2.0),))), k
    for k in COMPLEX:
        z = fad.tensor(np.array([1j], np.complex64))
        assert bits(fnp.full_like(z, k)) == bits(jnp.full_like(z.array, k)), k


def test_numbers_in_the_parameters_of_staged_programs() -> None:
    """Programs that are alike but for the sign of a parameter of an equation are two."""

    def gather(x: Any, fill: float) -> Any:
        numbers = jax.lax.GatherDimensionNumbers((), (0,), (0,))
        return jax.lax.gather(x, jnp.array([[0], [9]]), numbers, (1,), mode="fill", fill_value=fill)

    closed = [jax.make_jaxpr(lambda x, k=k: gather(x, k))(jnp.ones(2)) for k in (0.0, -0.0)]
    assert len({fad.core.jaxapi.jaxpr_key(c.jaxpr) for c in closed}) == 2
