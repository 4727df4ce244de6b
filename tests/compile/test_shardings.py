"""`jit(in_shardings=, out_shardings=)`, beside JAX's own, on eight devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, StructureError

MESH = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
ROWS = NamedSharding(MESH, PartitionSpec("x"))
EVERYWHERE = NamedSharding(MESH, PartitionSpec())
X = np.arange(16.0, dtype=np.float32).reshape(8, 2)


def same(a, b):
    return a.is_equivalent_to(b, 2)


@pytest.mark.parametrize(
    ("ins", "outs"),
    [
        (ROWS, ROWS),
        (ROWS, EVERYWHERE),
        ((ROWS, EVERYWHERE), (EVERYWHERE, None)),
        ((ROWS, None), (ROWS, {"y": EVERYWHERE})),
        (None, ROWS),
    ],
)
def test_as_in_jax(ins, outs):
    def f(x, y):
        return x * 2.0 + y, {"y": y}

    theirs = jax.jit(f, in_shardings=ins, out_shardings=outs)
    ours = fad.jit(f, in_shardings=ins, out_shardings=outs)
    x, y = jnp.asarray(X), jnp.ones((8, 2))
    expected = theirs(x, y)
    for kind in (lambda a: a, fad.tensor):
        for _ in range(2):
            found = ours(kind(x), kind(y))
            assert_close(jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, expected))
            if outs != (EVERYWHERE, None):  # which leaves one to XLA
                assert same(found[0].sharding, expected[0].sharding)
                assert same(found[1]["y"].sharding, expected[1]["y"].sharding)
    assert same(found[0].sharding, expected[0].sharding)


def test_what_is_no_jax_array_is_put_in_place():
    f = fad.jit(lambda x, y: x + y, in_shardings=(ROWS, EVERYWHERE))
    assert same(f(X, 1.0).sharding, ROWS)
    assert isinstance(f(jnp.asarray(X), 1.0), jax.Array)


def test_derivatives_go_through():
    f = fad.jit(lambda x: fnp.sin(x) * 2.0, in_shardings=ROWS, out_shardings=EVERYWHERE)
    total = lambda x: fnp.sum(f(x))
    x = jnp.asarray(X)
    assert_close(np.asarray(fad.grad(total)(x)), 2.0 * np.cos(X))
    w = fad.tensor(x, requires_grad=True)
    total(w).backward()
    assert_close(np.asarray(w.grad.array), 2.0 * np.cos(X))
    assert_close(np.asarray(jax.grad(fad.to_jax(total))(x)), 2.0 * np.cos(X))


def test_static_and_committed_arguments():
    f = fad.jit(lambda how, x: getattr(fnp, how)(x), static_argnums=0, in_shardings=(ROWS,))
    x = jax.device_put(X, ROWS)
    assert same(f("sin", x).sharding, ROWS)
    elsewhere = jax.device_put(X, SingleDeviceSharding(jax.devices()[1]))
    with pytest.raises(ValueError):
        jax.jit(jnp.sin, in_shardings=ROWS)(elsewhere)
    with pytest.raises(StructureError, match=r"argument 1 is on .*write x.to\(sharding\)"):
        f("sin", elsewhere)


def test_what_is_lowered_has_them():
    f = fad.jit(fnp.sin, in_shardings=ROWS, out_shardings=ROWS)
    assert "sharding" in f.lower(jnp.asarray(X)).as_text()


def test_shardings_of_the_wrong_kind():
    with pytest.raises(ArgumentError, match=r"in_shardings .*NamedSharding\(mesh, spec\)"):
        fad.jit(fnp.sin, in_shardings=PartitionSpec("x"))
    with pytest.raises(ArgumentError, match="out_shardings must be shardings of JAX"):
        fad.jit(fnp.sin, out_shardings="x")
    with pytest.raises(
        StructureError, match="jit: in_sh.* for each argument, or a single one for all"
    ):
        fad.jit(fnp.sin, in_shardings=(ROWS, ROWS))(X)
    with pytest.raises(
        StructureError, match="jit: out_sh.* for each output, or a single one for all"
    ):
        fad.jit(fnp.sin, out_shardings=(ROWS, ROWS))(X)
    with pytest.raises(StructureError, match="arguments are passed by position; got x by keyword"):
        fad.jit(lambda x: x, in_shardings=ROWS)(x=X)
