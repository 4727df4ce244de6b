"""Many devices: shardings are kept by everything that computes."""

from __future__ import annotations

import functions
import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from shards import BY_ROWS, MESH, lies_by_rows

import fad
import fad.numpy as fnp

EVERYWHERE = NamedSharding(MESH, P())
VALUES = jnp.linspace(-1.0, 1.0, 16).reshape(8, 2)


class Cube(functions.Cube):
    """x^3, and a vjp that is 5 times too large."""

    vjp = functions.cube_vjp(5.0)


def sharded(**options):
    return fad.tensor(jax.device_put(VALUES, BY_ROWS), **options)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 2.0 * x,
        lambda x: x + x,
        lambda x: fnp.sin(x) @ fnp.ones((2, 2)),
        lambda x: fnp.where(x > 0, x, 0.1 * x),
        Cube.apply,
        fad.jit(lambda x: fnp.exp(x) * x),
        fad.from_jax(lambda x: jnp.tanh(x)),
        fad.checkpoint(lambda x: fnp.cos(x)),
        fad.vmap(lambda row: row * row.sum()),
        fad.vmap(lambda column: column * 2.0, 1, 1),
        fad.grad(lambda x: (fnp.sin(x) ** 2).sum()),
        fad.grad(lambda x: Cube.apply(x).sum()),
        fad.jit(fad.grad(lambda x: (fnp.sin(x) ** 2).sum())),
        fad.vmap(fad.grad(lambda row: Cube.apply(row).sum())),
        lambda x: fad.jvp(lambda x: fnp.sin(x) * x, (x,), (x,))[1],
        lambda x: fad.vjp(lambda x: fnp.sin(x) * x, x)[1](x)[0],
        lambda x: fad.linearize(lambda x: fnp.sin(x) * x, x)[1](x),
        lambda x: fad.hvp(lambda x: (fnp.sin(x) * x).sum(), (x,), (x,))[1][0],
    ],
)
def test_eager_work_keeps_shardings(f):
    out = f(sharded())
    assert lies_by_rows(out), out.sharding
    out = f(sharded().array)
    assert lies_by_rows(out), out.sharding


@pytest.mark.parametrize("f", [lambda x: fnp.sin(x) * x, Cube.apply, fad.jit(lambda x: x**3)])
@pytest.mark.parametrize("times", [1, 3])
def test_the_tape_keeps_shardings(f, times):
    for _ in range(times):  # a tape that is seen again is compiled
        x = sharded(requires_grad=True)
        y = f(x)
        assert lies_by_rows(y)
        y.sum().backward()
        assert lies_by_rows(x.grad)
        (again,) = fad.autograd.grad(f(x).sum(), x, create_graph=True)
        (second,) = fad.autograd.grad((again * again).sum(), x)
        assert lies_by_rows(again) and lies_by_rows(second)
        # A gradient that adds up over the batch is where its parameter is.
        w = fad.tensor(jax.device_put(jnp.ones(2), EVERYWHERE), requires_grad=True)
        f(x * w).sum().backward()
        assert w.grad.sharding.is_equivalent_to(EVERYWHERE, 1)


def test_explicit_shardings_are_part_of_the_type():
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(VALUES, P("rows"))
        for f in (
            lambda x: fnp.sin(x) * x,
            fad.grad(lambda x: (fnp.sin(x) * x).sum()),
            fad.grad(lambda x: Cube.apply(x).sum()),
            fad.jit(fad.grad(lambda x: (fnp.sin(x) * x).sum())),
        ):
            assert jax.typeof(f(x)).sharding.spec == P("rows", None)
            assert jax.jit(f).eval_shape(x).sharding.spec == P("rows", None)


def test_a_step_on_shards_adds_gradients_up_over_devices():
    def step(w, x):
        value, grad = fad.value_and_grad(lambda w: fnp.mean(Cube.apply(x @ w)))(w)
        return w - 0.1 * grad, value

    w = jax.device_put(jnp.array([1.0, -0.5]), EVERYWHERE)
    x = sharded().array
    compiled = fad.jit(step)
    program = compiled.lower(w, x).compile().as_text()
    assert "all-reduce" in program and "all-gather" not in program
    out, value = compiled(w, x)
    assert out.sharding.is_equivalent_to(EVERYWHERE, 1)
    assert_close((out, value), step(jnp.array([1.0, -0.5]), VALUES))
