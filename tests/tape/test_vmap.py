"""Operations along the lanes of a vmap: collectives and named axes, against JAX."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import InFad, InJax, assert_close, is_idle
from namespace_cases import M, V

import fad
import fad.lax

X = jnp.array([0.3, -0.8, 1.2])

COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lib, v: v * lib.lax.psum(lib.numpy.sin(v), "i"),
    "psum of a constant": lambda lib, v: v / lib.lax.psum(1, "i"),
    "psum of a tree": lambda lib, v: lib.lax.psum({"a": v, "b": v * v}, "i")["b"] * v,
    "pmean": lambda lib, v: v - lib.lax.pmean(v * v, "i"),
    "pmax": lambda lib, v: lib.numpy.exp(v - lib.lax.pmax(lib.lax.stop_gradient(v), "i")),
    "all_gather": lambda lib, v: v * lib.lax.all_gather(v, "i").sum(0),
    "axis_index": lambda lib, v: v * lib.lax.axis_index("i"),
    "ppermute": lambda lib, v: v * lib.lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]),
    "softmax": lambda lib, v: lib.numpy.exp(v) / lib.lax.psum(lib.numpy.exp(v), "i"),
}

AROUND: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "alone": lambda lib, f: lib.vmap(f, axis_name="i"),
    "grad outside": lambda lib, f: lib.grad(
        lambda x: lib.numpy.sum(lib.numpy.sin(lib.vmap(f, axis_name="i")(x)))
    ),
    "grad inside": lambda lib, f: lib.vmap(
        lib.grad(lambda v: lib.numpy.sum(lib.numpy.sin(f(v)))), axis_name="i"
    ),
    "jvp outside": lambda lib, f: lambda x: lib.jvp(lib.vmap(f, axis_name="i"), (x,), (x,))[1],
    "jvp inside": lambda lib, f: lib.vmap(lambda v: lib.jvp(f, (v,), (v,))[1], axis_name="i"),
    "both": lambda lib, f: lib.jacfwd(
        lib.vmap(lib.grad(lambda v: lib.numpy.sum(f(v))), axis_name="i")
    ),
    "another vmap": lambda lib, f: (
        lambda x: lib.vmap(lib.vmap(f, axis_name="i"))(lib.numpy.stack([x, x * x]))
    ),
}


@pytest.mark.sweep("case", list(itertools.product(COLLECTIVES, AROUND)), sample=20, ids="-".join)
def test_collectives(case: tuple[str, str]) -> None:
    collective, around = case
    x = jnp.array([[0.3, -0.8], [1.2, 0.4], [-0.5, 0.9]])

    def result(lib: Any) -> Any:
        return AROUND[around](lib, functools.partial(COLLECTIVES[collective], lib))(x)

    assert_close(result(InFad), jax.jit(lambda: result(InJax))())


def test_nested_axis_names() -> None:
    x = jnp.arange(6.0).reshape(2, 3)

    def f(lib: Any, names: Any) -> Any:
        inner = lambda v: v * lib.lax.psum(v, names) + lib.lax.axis_index("i")
        return lib.vmap(lib.vmap(inner, axis_name="j"), axis_name="i")(x)

    for names in ("i", "j", ("i", "j")):
        assert_close(f(InFad, names), f(InJax, names))
    outer = lambda lib: lib.vmap(
        lambda row: lib.grad(
            lambda r: lib.vmap(lambda v: v * lib.lax.psum(v * v, "i"), axis_name="j")(r).sum()
        )(row),
        axis_name="i",
    )(x)
    assert_close(outer(InFad), outer(InJax))


def test_collectives_under_checkpoint() -> None:
    def total(lib: Any, checkpoint: Any) -> Any:
        f = checkpoint(lambda v: v * lib.lax.psum(lib.numpy.sin(v), "i"))
        return lambda x: lib.numpy.sum(lib.vmap(f, axis_name="i")(x))

    expected = jax.grad(total(InJax, jax.checkpoint))(X)
    assert_close(fad.grad(total(InFad, fad.checkpoint))(X), expected)


def test_an_unknown_axis_name_is_an_error() -> None:
    with pytest.raises(NameError, match="nope"):
        fad.vmap(lambda v: fad.lax.psum(v, "nope"), axis_name="i")(X)
    assert is_idle()


def test_collectives_under_vmap() -> None:
    calls = {
        "psum": lambda m: lambda x: x / m.lax.psum(x, "i"),
        "pmean": lambda m: lambda x: m.lax.pmean({"a": x, "b": [x * 2]}, axis_name="i"),
        "pmax": lambda m: lambda x: m.lax.pmax(x, "i"),
        "pmin": lambda m: lambda x: m.lax.pmin(x, "i"),
        "all_gather": lambda m: lambda x: m.lax.all_gather(x, "i"),
        "axis_index": lambda m: lambda x: x * m.lax.axis_index("i"),
        "axis_size": lambda m: lambda x: x * m.lax.axis_size("i"),
        "ppermute": lambda m: lambda x: m.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
        "pshuffle": lambda m: lambda x: m.lax.pshuffle(x, "i", [2, 0, 1]),
        "all_to_all": lambda m: lambda x: m.lax.all_to_all(x, "i", 0, 0),
        "psum_of_one": lambda m: lambda x: x * m.lax.psum(1, "i"),
    }
    for name, make in calls.items():
        expected = jax.vmap(make(jax), axis_name="i")(M)
        out = fad.vmap(make(fad), axis_name="i")(M)
        jax.tree_util.tree_map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), out, expected
        )
        assert name


def test_collectives_under_native_vmap() -> None:
    out = jax.vmap(lambda x: fad.lax.psum(x, "i"), axis_name="i")(V)
    np.testing.assert_allclose(out, jnp.full(5, V.sum()), rtol=1e-6)
    with pytest.raises(TypeError, match=r"fad\.lax\.psum\(\).*axis_name"):
        fad.lax.psum(V)
