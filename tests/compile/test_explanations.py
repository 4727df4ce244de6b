"""What a compiled program depends on, and what is said of a call for which there is none."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fad

X = jnp.array([0.3, -0.5, 0.7])


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((X,), {}, []),
        ((X[:2],), {}, ["argument 0['w'] is float32[2], was float32[3]"]),
        ((jnp.arange(3),), {}, ["argument 0['w'] is int32[3], was float32[3]"]),
        ((2.0,), {}, ["argument 0['w'] is a Python float, was float32[3]"]),
        ((jnp.asarray(2.0),), {}, ["is float32[] (weakly typed), was float32[3]"]),
        ((X,), {"mode": "b"}, ["argument 'mode' is static str 'b', was static str 'a'"]),
        ((X,), {"more": 1}, ["argument 'more' is a Python int, and was not there"]),
    ],
)
def test_explain_says_which_argument_changed_in_which_way(args, kwargs, expected):
    f = fad.jit(lambda tree, mode="a", **rest: tree["w"] * 2)
    (w,) = args
    assert "has compiled nothing yet" in f.explain({"w": w})
    f({"w": X}, mode="a")
    text = f.explain({"w": w}, **{"mode": "a", **kwargs})
    if not expected:
        assert "is compiled for these arguments" in text
    for part in expected:
        assert part in text
    before = text
    f({"w": w}, **{"mode": "a", **kwargs})
    text = f.explain({"w": w}, **{"mode": "a", **kwargs})
    assert "is compiled for these arguments" in text, before
    f.clear_cache()
    assert "has compiled nothing yet" in f.explain({"w": X}, mode="a")


def test_explain_names_modes_and_settings():
    f = fad.jit(lambda x: x * 2)
    f(X)
    with fad.no_grad():
        assert "the grad mode" in f.explain(X)
    with jax.default_matmul_precision("float32"):
        assert "JAX's configuration" in f.explain(X)
    fad.vmap(lambda x: f(x), axis_name="lanes")(X)


def test_what_is_new_in_a_call_is_explained() -> None:
    f = fad.jit(lambda x, k: x, static_argnums=1)
    f(jnp.ones(2), 0.0)
    assert "argument 1 is static float -0.0" in f.explain(jnp.ones(2), -0.0)


def test_a_function_that_is_made_anew_is_compared_with_others_of_its_code() -> None:
    def made(rate: float) -> Any:
        return fad.jit(fad.grad(lambda x: x * rate))

    made(0.5)(1.0)
    f = made(0.25)
    said = f.explain(1.0).splitlines()
    assert "has compiled nothing yet, but another function of its code" in said[0]
    assert said[1:] == ["  rate, which it closes over, is 0.25, was 0.5"]
    assert "argument 0 is float32[3], was a Python float" in f.explain(X)
    f(1.0)
    assert "is compiled for these arguments" in f.explain(1.0)
    assert "are the same" in made(0.25).explain(1.0)


def test_arguments_are_named_behind_static_ones():
    step = fad.jit(lambda mode, w: w.add_(1.0).sum())
    w = fad.ones(3)
    step("up", w)
    assert "argument 1 (float32[3]): is written to" in step.explain("up", w)
