"""Bodies of staged functions: how often they run, and what they know of values from outside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, assert_close

import fad
import fad.numpy as fnp
from fad.errors import HostValueError


def test_a_body_computes_with_what_it_closes_over_from_a_native_trace() -> None:
    def f(x, v):
        return fad.lax.fori_loop(0, 9, lambda k, x: x + 2.0 * v[0], x)

    for run in (jax.jit(fad.to_jax(f)), fad.jit(f)):
        np.testing.assert_array_equal(run(jnp.zeros(3), jnp.arange(1.0, 3.0)), np.full(3, 18.0))


def test_bodies_close_over_values_of_several_levels_at_once() -> None:
    """The body sees the eager tape, an outer grad, an inner jvp and a vmap."""

    def program(m: Any, tape: Any, inner: Any) -> Any:
        def f(w: Any, x: Any) -> Any:
            def g(v: Any) -> Any:
                return m.lax.scan(lambda c, u: (c * u * w + v, c * tape), x, m.np.stack([x, v]))[0]

            return inner(g, x)

        return f

    ts = jnp.float32(0.7)
    fad_inner = lambda g, x: fad.jvp(g, (x,), (1.0,))[1]
    jax_inner = lambda g, x: jax.jvp(g, (x,), (jnp.float32(1.0),))[1]
    xs = jnp.array([0.5, -1.5])

    def whole(m: Any, inner: Any, grad: Any, vmap: Any) -> Any:
        return lambda tape: m.np.sum(
            vmap(grad(lambda w, x: program(m, tape, inner)(w * tape, x)), (None, 0))(ts, xs)
        )

    expected = jax.grad(whole(IN_JAX, jax_inner, jax.grad, jax.vmap))(jnp.float32(1.3))
    tape = fad.tensor(1.3, requires_grad=True)
    whole(IN_FAD, fad_inner, fad.grad, fad.vmap)(tape).backward()
    assert_close(tape.grad, np.float32(expected), rtol=1e-3)
    got = fad.grad(whole(IN_FAD, fad_inner, fad.grad, fad.vmap))(jnp.float32(1.3))
    assert_close(got, expected, rtol=1e-3)


def test_a_body_runs_once_for_each_time_that_jax_traces_it() -> None:
    """Also where it closes over values of several levels, and bodies are nested."""
    runs: dict[str, list[str]] = {"fad": [], "jax": []}

    def program(m: Any, name: str, x: Any) -> Any:
        def outer(c: Any, v: Any) -> Any:
            runs[name].append("outer")

            def inner(c: Any, u: Any) -> Any:
                runs[name].append("inner")
                return c * x[0] + u, c * v

            return m.lax.scan(inner, c, x)

        return m.lax.scan(outer, x[1], x)[1]

    x = jnp.array([0.3, -0.7, 1.1])
    expected = program(IN_JAX, "jax", x)
    assert_close(program(IN_FAD, "fad", fad.tensor(x, requires_grad=True)), expected)
    assert runs["fad"] == runs["jax"] == ["outer", "inner"]
    runs["fad"].clear()
    got = fad.jit(lambda t: program(IN_FAD, "fad", t))(fad.tensor(x))
    assert_close(got, expected)
    assert runs["fad"] == runs["jax"]


def test_a_body_decides_by_numbers_from_outside_alone() -> None:
    """What it computes with them and with its own arguments is not known, not even as zeros."""
    x = fad.tensor(0.5, requires_grad=True)

    def double(c: Any, _: Any) -> Any:
        return (c * 2.0 if x > 0 else c * x), None

    assert float(fad.lax.scan(double, 1.0, None, length=3)[0]) == 8.0

    def unknown(c: Any, _: Any) -> Any:
        return (c * 2.0 if x * c >= 0 else c), None

    with pytest.raises(HostValueError):
        fad.lax.scan(unknown, 1.0, None, length=3)
    assert float(fad.lax.scan(lambda c, _: (c * x, None), 1.0, None, length=3)[0]) == 0.125


def test_what_a_body_closes_over_and_does_not_use_has_no_gradient() -> None:
    x, y = fad.tensor(2.0, requires_grad=True), fad.tensor(3.0, requires_grad=True)

    def body(c: Any, _: Any) -> Any:
        fnp.sin(y * c)
        return c * x, None

    out, _ = fad.lax.scan(body, 1.0, None, length=3)
    assert float(out) == 8.0
    dx, dy = fad.autograd.grad(out, [x, y], allow_unused=True)
    assert float(dx) == 12.0 and (dy is None or float(dy) == 0.0)


def test_small_constants_of_numpy_are_no_operands_of_compiled_code() -> None:
    large = np.arange(100.0, dtype=np.float32)
    small = np.array([2.0, 3.0, 4.0], np.float32)

    def f(x: Any) -> Any:
        x = x.clone()
        x[1:3] += 0.5 * x[1:3]
        x[0] = x[1]
        return x * small + large[:3]

    compiled = fad.jit(f)
    x = fad.tensor([1.0, 2.0, 3.0])
    expected = f(x).array
    assert_close(compiled(x).array, expected)
    ((entry,),) = compiled._entries.values()
    assert entry.fixed == []
    assert_close(compiled(x).array, expected)
    assert_close(fad.jit(fad.jacrev(f))(x).array, fad.jacrev(f)(x).array)
    assert_close(fad.jacfwd(compiled)(x).array, fad.jacrev(f)(x).array)
    assert_close(fad.vmap(compiled)(x[None])[0].array, expected)


def test_constants_of_numpy_are_those_of_the_first_call() -> None:
    for size in (3, 1000):
        c = np.ones(size, np.float32)
        x = jnp.ones(size)
        compiled, native = fad.jit(lambda x: x * c), jax.jit(lambda x: x * c)
        for _ in range(3):
            compiled(x), native(x)
        c[:] = 5.0
        assert compiled(x)[0] == native(x)[0] == 1.0


def test_programs_with_other_constants_of_numpy_are_other_programs() -> None:
    x = jnp.arange(6.0)
    for at in range(4):
        c = np.array([at, at + 1], np.int32)
        assert_close(fad.jit(lambda x: x[c])(x), x[c])
        assert_close(fad.jit(lambda x: x.at[c].add(1.0))(x), x.at[c].add(1.0))


def _named(*keys: str) -> dict[str, Any]:
    return {k: jnp.full(2, float(i)) for i, k in enumerate(keys)} | {
        "z": {"d": 1.0, "c": jnp.ones(1)}
    }


def _walk(t: Any) -> list[Any]:
    return [(k, _walk(x)) if isinstance(x, dict) else k for k, x in t.items()]


ORDERED: dict[str, Any] = {
    "while_loop": lambda f, d: fad.lax.while_loop(lambda t: t["w"].sum() < 1.0, f, d),
    "fori_loop": lambda f, d: fad.lax.fori_loop(0, 2, lambda i, t: f(t), d),
    "fori_loop of an array": lambda f, d: fad.lax.fori_loop(0, jnp.int32(2), lambda i, t: f(t), d),
    "cond": lambda f, d: fad.lax.cond(jnp.bool_(True), f, f, d),
    "switch": lambda f, d: fad.lax.switch(jnp.int32(1), [f, f], d),
    "scan": lambda f, d: fad.lax.scan(lambda t, _: (f(t), None), d, None, length=2)[0],
    "grad of scan": lambda f, d: fad.grad(
        lambda t: fad.lax.scan(lambda t, _: (f(t), None), t, None, length=2)[0]["w"].sum()
    )(d),
    "vmap of while_loop": lambda f, d: fad.vmap(
        lambda x: fad.lax.while_loop(lambda t: t["w"].sum() < 1.0, f, {**d, "w": d["w"] + x})
    )(jnp.ones(2)),
}


@pytest.mark.parametrize("name", ORDERED)
def test_bodies_and_results_have_the_order_of_keys_of_the_caller(name: str) -> None:
    d = _named("w", "b", "a")
    seen = []

    def body(t: Any) -> Any:
        seen.append(_walk(t))
        return {k: x if isinstance(x, dict) else x + 1.0 for k, x in t.items()}

    found = ORDERED[name](body, d)
    expected = ["w", "b", "a", ("z", ["d", "c"])]
    assert _walk(found) == expected and all([s == expected for s in seen]) and seen


def test_operands_of_the_same_keys_keep_each_its_order() -> None:
    one, other = _named("w", "a"), _named("a", "w")
    seen = []

    def scanned(c: Any, x: Any) -> Any:
        seen.append((list(c), list(x)))
        return c, {"y": x["a"], "x": c["a"]}

    rows = {k: other[k][:, None] for k in other if k != "z"}
    carry, out = fad.lax.scan(scanned, {"w": jnp.ones(1), "a": jnp.ones(1)}, rows)
    assert seen == [(["w", "a"], ["a", "w"])]
    assert list(carry) == ["w", "a"] and list(out) == ["y", "x"]

    def branch(p: Any, q: Any) -> Any:
        seen.append((list(p), list(q)))
        return {"out": p["w"] - q["w"], "in": q["a"]}

    seen.clear()
    out = fad.lax.cond(jnp.bool_(False), branch, branch, one, other)
    assert seen == [(["w", "a", "z"], ["a", "w", "z"])] * 2
    assert list(out) == ["out", "in"] and out["out"].tolist() == [-1.0, -1.0]
