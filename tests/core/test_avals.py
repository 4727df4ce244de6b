"""Abstract values and their keys; Python numbers as cached arrays, with the bits that JAX gives them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equal_numbers import ALIKE, COMPLEX, NAN, bits

import fad
import fad.numpy as fnp
from fad.core import avals
from fad.core.avals import aval_key, aval_of, constant, struct_of
from fad.core.caches import Table


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


def test_a_number_is_an_array_once() -> None:
    assert constant(1.5) is constant(1.5) and constant(1.5).weak_type
    assert constant(NAN) is NAN
    with jax.enable_x64(True):
        assert constant(1.5).dtype == jnp.float64
    assert constant(1.5).dtype == jnp.float32


def test_the_cache_of_numbers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avals, "_constants", Table(3))
    for k in range(10):
        assert constant(k).item() == k
        assert len(avals._constants) <= 3


def test_a_number_that_is_new_under_a_trace_stays_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tracer gets into the cache."""
    monkeypatch.setattr(avals, "_constants", Table(3))
    assert jax.jit(lambda x: x * constant(2.5))(2.0) == 5.0
    assert not avals._constants


def test_large_numbers_do_not_warn() -> None:
    avals._constants.clear()
    for number in (1e300, -1e300, complex(0.0, 1e300), math.inf):
        found = constant(number)
        with np.errstate(over="ignore"):
            assert bits(found) == bits(jnp.asarray(number))


def test_keys_distinguish_what_is_compiled_apart() -> None:
    x = jnp.ones(2)
    values = [x, jnp.ones(3), x.astype(jnp.int32), jnp.asarray(1.0), 1.0, 1, True, 1j]
    assert len({aval_key([v]) for v in values}) == len(values)
    assert aval_key([x, 2.0]) == aval_key([fad.tensor(x), 3.0])
    with jax.enable_x64(True):
        in_64_bits = aval_key([x, 2.0])
    assert in_64_bits != aval_key([x, 2.0])  # a number has another dtype there
    weak = jax.device_put(1.0)
    assert aval_key([weak]) != aval_key([weak.astype(jnp.float32)])


def test_avals_at_levels_and_of_traced_code() -> None:
    seen: list[Any] = []
    fad.vmap(lambda x: seen.append(aval_of(x)) or x)(jnp.ones((4, 3)))
    jax.jit(lambda x: seen.append(aval_of(x)) or x)(jnp.ones(3))
    seen += [aval_of(fad.tensor([1.0, 2.0, 3.0])), aval_of(np.ones(3, np.float32))]
    assert [(a.shape, a.dtype) for a in seen] == [((3,), jnp.float32)] * 4
    assert aval_of(2.0).weak_type and aval_of(2.0).shape == ()


@pytest.mark.parametrize("value", [jnp.ones((2, 3)), 1.0, jnp.int8(3)], ids=str)
def test_a_function_may_be_traced_on_the_struct_of_an_aval(value: Any) -> None:
    (aval,) = jax.make_jaxpr(lambda x: x)(struct_of(aval_of(value))).in_avals
    assert aval == aval_of(value) and aval.weak_type == aval_of(value).weak_type
    plain = jax.ShapeDtypeStruct((2,), jnp.float32)  # as a tool that is no array may give it
    assert struct_of(plain).shape == (2,)
