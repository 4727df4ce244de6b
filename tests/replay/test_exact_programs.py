"""Programs of small arrays give bitwise what their operations give one by one.

That the bits are the same is a law: `tests/laws/test_same_bits.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.core import trees
from fad.core.jaxapi import Literal
from fad.core.jaxprs import barrier
from fad.core.level import modes
from fad.methods.functions import asarray
from fad.replay.exact_programs import _with_copies, jit_exact
from fad.replay.program import Program

X, Y = jnp.array([0.3, -0.7]), jnp.array([1.1, 0.2])


def copies(f: Callable[..., Any], *args: Any) -> int:
    """How many copies the exact program of ``f`` makes."""

    def run(*values: Any) -> Any:
        out = f(*map(asarray, values))
        return trees.map_leaves(lambda t: t.value, out)

    program = Program("f", run, 1)
    with modes(exact=True):
        closed = jax.make_jaxpr(program.flat)(*args)
    return sum([sum(eqn.params.get("copied", ())) for eqn in _with_copies(closed)])


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (lambda x, y: fnp.dot(x, x), 1),
        (lambda x, y: fnp.dot(x, y), 0),
        (lambda x, y: fnp.einsum("i,i,i", x, x, x), 2),
        (lambda x, y: fnp.dot(x, x.reshape(1, 2).T[:, 0]), 1),
        (lambda x, y: fnp.dot(x, x.reshape(1, 2).sum(0)), 1),
        (lambda x, y: fnp.dot(x, x.reshape(2, 1).sum(0) + y), 0),
        (lambda x, y: fnp.dot(x + y, x + y), 1),
        (lambda x, y: fnp.dot(x + y, x - y), 0),
        (lambda x, y: fnp.dot(x * 2.0, x * 2.0), 1),
        (lambda x, y: fnp.dot(x * 2.0, x * 3.0), 0),
        (lambda x, y: fnp.dot(x, x.reshape(1, 2).mean(0)), 1),
        (lambda x, y: fnp.dot(fnp.full(2, 0.5), fnp.full(2, 0.5)), 1),
        (lambda x, y: fnp.hypot(x, x), 1),
        (lambda x, y: (x * x, x + x, x / x, fnp.maximum(x, x), x == x), 5),
        (lambda x, y: (x + 1j) * (x + 1j), 1),
        (lambda x, y: fnp.dot(x.astype(int), x.astype(int)), 0),
        (lambda x, y: fnp.add(x, y) * fnp.add(x, y), 1),
    ],
)
def test_copies_of_what_is_in_one_buffer(f: Callable[..., Any], count: int) -> None:
    assert copies(f, X, Y) == count


def test_one_complex_value_as_both_operands() -> None:
    """Without the copies it fails with the flags that XLA has by itself (not with those of the tests)."""

    def f(z: Any) -> Any:
        def g(z: Any) -> Any:
            return fnp.sum(fnp.real(fnp.vdot(z, z) * 2.0 + fnp.sin(z)))

        results = fad.grad(g)(z), fad.jvp(lambda z: fnp.vdot(z, z) * 2.0 + z, (z,), (z,))[1]
        return trees.map_leaves(np.asarray, results)

    parts = np.random.default_rng(0).standard_normal((2, 16, 3)).astype(np.float32)
    values = [jnp.array(z) for z in parts[0] + np.complex64(1j) * parts[1]]
    with fad.autograd.compiled(False):
        expected = [f(z) for z in values]
    with fad.autograd.compiled(wait=True):
        np.testing.assert_equal([f(z) for z in values], expected)


def test_a_result_twice_is_no_operand_twice() -> None:
    assert copies(lambda x: fnp.stack([x, x]), X) <= 1
    assert copies(lambda x: (x, x), X) == 0


def test_numbers_are_operands_behind_barriers() -> None:
    """Also those that no operation has had before: XLA would rewrite an operation by their values."""
    program = Program("f", lambda x: fnp.divide(x, 3.140625), 1)
    with modes(exact=True):
        barrier, *others = jax.make_jaxpr(program.flat)(X).eqns
    assert len(barrier.invars) == 2
    assert not any([isinstance(v, Literal) for eqn in others for v in eqn.invars])


def test_bits_are_those_of_single_operations():
    """XLA would contract the product and the sum; the second result of the sort is not read."""
    operations = [jax.jit(f) for f in (jnp.multiply, jnp.add, lambda x: jax.lax.sort((x, -x)))]

    def run(x, y):
        for f in operations[:2]:
            (x,) = barrier([f(*barrier([x, y]))])
        first, _ = barrier(operations[2](*barrier([x])))
        return (first,)

    x, y = X / 3.0, Y / 7.0
    (found,) = jit_exact(run, [jax.typeof(x), jax.typeof(y)])(x, y)
    product = operations[0](x, y)
    np.testing.assert_array_equal(found, operations[2](operations[1](product, y))[0])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, add: fad.lax.reduce(x, np.float32(0), add, (0,)),
        lambda x, add: fad.lax.reduce(x.reshape(2, 2), np.float32(0), add, (0,)) * 2.0,
        lambda x, add: fad.jit(lambda x: fad.lax.reduce(x, np.float32(0), add, (0,)))(x) * 2.0,
        lambda x, add: (
            fad.lax.reduce_window(fad.stop_gradient(x), np.float32(0), add, (2,), (1,), "VALID")
            * x[1:]
        ),
    ],
)
@pytest.mark.usefixtures("cleared_caches")
def test_calls_in_reducers(f: Callable[..., Any]) -> None:
    """XLA crashed on them between barriers, in its earlier versions."""
    add = jnp.frompyfunc(lambda a, b: a + b, 2, 1)
    x = jnp.arange(4.0)

    def g(x: Any) -> Any:
        return fnp.sum(f(x, add))

    def run() -> Any:
        found = fad.value_and_grad(g)(x), fad.jvp(g, (x,), (x,)), fad.vmap(g)(x[None])
        return trees.map_leaves(np.asarray, found)

    with fad.autograd.compiled(False):
        expected = run()
    with fad.autograd.compiled(wait=True):
        for _ in range(2):
            np.testing.assert_equal(run(), expected)
    assert not fad.autograd.compiled.cache_info()["refused"]
