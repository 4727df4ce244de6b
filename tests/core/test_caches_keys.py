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
from equal_numbers import ALIKE, COMPLEX, NAN, bits

import fad
import fad.numpy as fnp
from fad.core.caches import exact
from fad.core.jaxprs import jaxpr_key

Pair = namedtuple("Pair", "a b")


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
    assert len({jaxpr_key(c.jaxpr) for c in closed}) == 2
