"""while_loop and fori_loop: derivatives of any order, checkpoints, lanes with different numbers of steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.lax as flax
import fad.numpy as fnp

V = jnp.asarray([0.3, 0.4, -0.2])


def counted(x: Any, n: Any, **options: Any) -> Any:
    """n steps of a loop that reads x from outside."""
    return flax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, fnp.sin(c[1] * x) + c[1]), (0, x), **options
    )[1]


def unrolled(x: Any, n: int) -> Any:
    y = x
    for _ in range(n):
        y = jnp.sin(y * x) + y
    return y


CHECKPOINTS: list[dict[str, Any]] = [
    {},
    {"max_steps": 50},
    {"checkpoints": 3},
    {"checkpoints": 8},
    {"max_steps": 37, "checkpoints": 3},
]


@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_gradients_of_any_number_of_steps(options: Any) -> None:
    ours = fad.jit(fad.grad(lambda x, n: counted(x, n, **options)))
    for n in (0, 1, 2, 7, 37):
        assert_close(ours(0.1, jnp.int32(n)), jax.grad(unrolled)(0.1, n), rtol=1e-4)


def test_third_derivatives() -> None:
    ours: Any = lambda x: counted(x, 5, checkpoints=3)
    expected: Any = lambda x: unrolled(x, 5)
    for _ in range(3):
        ours, expected = fad.grad(ours), jax.grad(expected)
        assert_close(ours(0.3), expected(0.3), rtol=1e-4)


def test_lanes_have_their_own_numbers_of_steps() -> None:
    n = jnp.asarray([0, 3, 6])
    got = fad.vmap(fad.grad(counted))(V, n)
    slope = jax.jit(jax.grad(unrolled), static_argnums=1)
    alone = [slope(x, int(k)) for x, k in zip(V, n, strict=True)]
    assert_close(got, jnp.stack(alone), rtol=1e-4)
    hessian = fad.hessian(lambda x: fad.vmap(counted)(x, n).sum())(V)
    curvature = jax.jit(jax.grad(jax.grad(unrolled)), static_argnums=1)
    second = [curvature(x, int(k)) for x, k in zip(V, n, strict=True)]
    assert_close(hessian, jnp.diag(jnp.stack(second)), rtol=1e-4)


def test_lanes_that_have_finished_are_not_differentiated() -> None:
    """The first lane ends at 0, where the body is nan, and its derivative too."""

    def roots(scale: Any, x: Any) -> Any:
        return flax.while_loop(lambda y: y > 0.5, lambda y: fnp.sqrt(y - 1.0) * scale, x)

    x = jnp.asarray([0.0, 5.0])
    rows = fad.vmap(fad.grad(roots, argnums=1), in_dims=(None, 0))(1.1, x)
    assert_close(rows, jnp.stack([fad.grad(roots, argnums=1)(1.1, v) for v in x]))
    assert np.isfinite(rows).all()
    finished = fad.grad(lambda s: fad.vmap(lambda v: roots(s, v))(x).sum())(1.1)
    assert_close(finished, fad.grad(roots)(1.1, x[1]))


def test_the_tape_and_tensors_from_outside() -> None:
    w = fad.tensor(1.5, requires_grad=True)
    y = flax.while_loop(lambda c: c < 10.0, lambda c: c * w, fad.tensor(1.0))
    y.backward()
    steps = 6
    assert float(w.grad) == pytest.approx(steps * 1.5 ** (steps - 1))


def test_max_steps_stops_the_loop() -> None:
    assert float(counted(0.3, 100, max_steps=4)) == pytest.approx(float(unrolled(0.3, 4)))
    assert float(counted(0.3, 100, max_steps=0)) == pytest.approx(0.3)


def test_random_keys_and_booleans_in_the_carry() -> None:
    def noisy(x: Any) -> Any:
        def body(c: Any) -> Any:
            key, i, _, y = c
            key, sub = fad.random.split(key)
            return key, i + 1, y > 0, y * x + fad.random.normal(sub)

        return flax.while_loop(lambda c: c[1] < 4, body, (jax.random.key(0), 0, False, x))[3]

    step = 1e-2
    slope = (noisy(0.5 + step) - noisy(0.5 - step)) / (2 * step)
    assert_close(fad.grad(noisy)(0.5), slope, rtol=1e-2)


def test_loops_in_loops() -> None:
    def nested(x: Any) -> Any:
        inner: Any = lambda y: flax.while_loop(lambda c: c < 2.0, lambda c: c * 1.5 * x, y)
        return flax.while_loop(lambda c: c < 50.0, lambda c: inner(c / 3.0) * 4.0, x)

    step = 1e-3
    slope = (nested(1.2 + step) - nested(1.2 - step)) / (2 * step)
    assert_close(fad.grad(nested)(1.2), slope, rtol=1e-2)


def test_fori_loop_with_an_array_as_its_bound() -> None:
    power = lambda x, n: flax.fori_loop(0, n, lambda i, y: y * x, 1.0)
    assert float(fad.grad(fad.grad(power))(2.0, jnp.int32(4))) == pytest.approx(48.0)


def test_memory_does_not_grow_with_the_steps() -> None:
    """What the backward pass is given, in bytes: that of the checkpoints."""

    def kept(n: int, **options: Any) -> int:
        f = fad.to_jax(lambda x: counted(x, n, **options).sum())
        shapes = jax.eval_shape(lambda x: jax.vjp(f, x)[1], V)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

    assert kept(10) == kept(100000) < 70 * V.nbytes
    assert kept(10000, max_steps=10000) < 210 * V.nbytes


@pytest.mark.parametrize(
    "options",
    [{"max_steps": -1}, {"max_steps": 2.0}, {"checkpoints": 2}, {"checkpoints": "all"}],
    ids=str,
)
def test_options_that_are_no_numbers(options: Any) -> None:
    with pytest.raises(fad.errors.ArgumentError, match=next(iter(options))):
        counted(0.3, 3, **options)
