"""Rolled loops: a program gives what it gives unrolled, and is as short as its loops."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loop_programs import SIZE, STEPS, program

import fad
import fad.numpy as fnp
from fad.core.jaxapi import ClosedJaxpr, run_jaxpr
from fad.core.rolling_protocol import Rolled
from fad.rolling import repeats, scans
from fad.rolling.repeats import Numbered, find_loops
from fad.rolling.scans import rolled

X = np.sin(np.arange(SIZE) + 0.3)
V = np.cos(np.arange(SIZE))

FORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f,
    "grad": fad.grad,
    "vmap of grad": lambda f: (
        lambda x: fad.vmap(fad.grad(f), randomness="same")(fnp.stack([x, x * 0.7, x + 0.1]))
    ),
    "hvp": lambda f: lambda x: fad.hvp(f, (x,), (V,))[1],
}


def loops_of(f: Callable[..., Any], *args: Any) -> list[Rolled]:
    return rolled(fad.jit(f, roll=False).trace(*args).jaxpr)[1]


def assert_same(f: Callable[..., Any], x: Any) -> list[Rolled]:
    """``f`` gives, rolled, what its single operations give; which loops were rolled."""
    closed = fad.jit(f, roll=False).trace(x).jaxpr
    found, loops = rolled(closed)
    for got, expected in zip(
        jax.jit(lambda x: run_jaxpr(found, x))(x), run_jaxpr(closed, x), strict=True
    ):
        scale = 1e-3 + np.abs(expected).max()
        np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=1e-8)
    return loops


@pytest.fixture
def rolls_short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that save little are rolled too, so that laws take less time."""
    monkeypatch.setattr(repeats, "SAVED", 20)
    monkeypatch.setattr(repeats, "_PART", 8)


@pytest.mark.sweep("step, form", [(s, f) for s in STEPS for f in ("value", "grad")], sample=28)
def test_each_step(step: Any, form: str, rolls_short_loops: None) -> None:
    with jax.enable_x64(True):
        assert_same(FORMS[form](program([step], 12)), jnp.asarray(X))


@pytest.mark.usefixtures("rolls_short_loops")
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.sampled_from([*FORMS]),
    st.integers(9, 14),
)
def test_random_loops(steps: Any, form: str, count: int) -> None:
    with jax.enable_x64(True):
        assert_same(FORMS[form](program(steps, count)), jnp.asarray(X))


def heat(u: Any, a: Any) -> Any:
    for _ in range(50):
        fx, fy = a * (u[1:] - u[:-1]), a * (u[:, 1:] - u[:, :-1])
        d = fnp.zeros_like(u)
        d[:-1] += fx
        d[1:] -= fx
        d[:, :-1] += fy
        d[:, 1:] -= fy
        u = u + d
    return (u * u).sum()


def wave(c: Any) -> Any:
    before, now = fnp.zeros(16), fnp.arange(16.0) * 0.1
    for _ in range(50):
        after = 2 * now - before
        after[1:-1] += c[1:-1] * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, after
    return (now * now).sum()


def recurrent(w: Any, xs: Any) -> Any:
    h = fnp.zeros(4)
    for t in range(50):
        h = fnp.tanh(w @ h + xs[t])
    return (h * h).sum()


def adam(x: Any) -> Any:
    m = v = fnp.zeros(4)
    for t in range(1, 51):
        g = fad.grad(lambda x: (x * x * fnp.arange(4.0)).sum())(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - 0.01 * (m / (1 - 0.9**t)) / (fnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return (x * x).sum()


def lengths(x: Any) -> Any:
    for h in np.cos(np.arange(50)).tolist():
        x = x + 0.01 * h * (fnp.sin(x) - x * x * x)
    return (x * x).sum()


FIVE = {
    heat: (jnp.cos(jnp.arange(64.0)).reshape(8, 8), jnp.float32(0.1)),
    wave: (jnp.full(16, 0.3),),
    recurrent: (jnp.cos(jnp.arange(16.0)).reshape(4, 4), jnp.sin(jnp.arange(200.0)).reshape(50, 4)),
    adam: (jnp.ones(4),),
    lengths: (jnp.linspace(-1, 1, 16),),
}


@pytest.mark.parametrize("f", FIVE)
def test_derivatives_of_five_loops_are_loops(f: Any) -> None:
    first, *rest = FIVE[f]
    v = jnp.cos(first)

    def of_first(x: Any) -> Any:
        return f(x, *rest)

    forms = {
        "value": (of_first, 1),
        "grad": (fad.grad(of_first), 2),
        "vmap of grad": (fad.vmap(fad.grad(of_first)), 2),
        "hvp": (lambda x: fad.hvp(of_first, (x,), (v,))[1], 2),
    }
    for name, (form, count) in forms.items():
        x = jnp.stack([first, first * 0.9]) if "vmap" in name else first
        closed = jax.make_jaxpr(fad.to_jax(form))(x)
        assert str(closed).count("scan[") == count, name
        assert len(closed.jaxpr.eqns) < 250, name
        if name == "grad":
            np.testing.assert_allclose(fad.jit(form)(x), form(x), rtol=2e-3, atol=1e-5)


def test_what_is_stored_is_chosen() -> None:
    """The gradient with respect to the conductivity reads differences, which the state gives again."""
    closed = fad.make_jaxpr(fad.grad(heat, argnums=(0, 1)))(*FIVE[heat])
    scan = next(e for e in closed.jaxpr.eqns if e.primitive.name == "scan")
    stacked = [v.aval.shape for v in scan.outvars if v.aval.shape[:1] == (scan.params["length"],)]
    assert stacked == [(scan.params["length"], 8, 8)]


def stacked(f: Any, *args: Any) -> list[int]:
    """How many arrays each scan of a rolled program stacks."""
    closed = fad.jit(f).trace(*args).jaxpr
    scans = [e for e in closed.jaxpr.eqns if e.primitive.name == "scan"]
    return [sum(v.aval.shape[:1] == (e.params["length"],) for v in e.outvars) for e in scans]


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("form", ["read forth", "read back"])
def test_what_is_read_at_two_repeats_is_stored_once(form: str, d: int) -> None:
    """A state and the one d steps before: one array, which the reader reads once and carries for d steps."""
    count, size = 60, 512
    w, c = jnp.linspace(0.1, 0.5, size), jnp.linspace(0.5, 0.1, size)
    xs = jnp.cos(jnp.arange(float(count * size))).reshape(count, size)

    def read_back(w: Any, c: Any) -> Any:
        states = [fnp.zeros(size) + 0.1 * k for k in range(d + 1)]
        for t in range(count):
            states.append(fnp.tanh(w * states[-1] + c * states[-1 - d] + xs[t]))
        return (states[-1] * states[-1]).sum()

    def read_forth(w: Any, c: Any) -> Any:
        states = [fnp.zeros(size)]
        for t in range(count):
            states.append(fnp.tanh(w * states[-1] + xs[t]))
        loss = 0.0
        for t in range(d, count):
            loss = loss + fnp.sin(states[t] - c * states[t - d]).sum()
        return loss

    f = read_forth if form == "read forth" else fad.grad(read_back, argnums=(0, 1))
    assert stacked(f, w, c) == [1, 0]
    memory = fad.jit(f).lower(w, c).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 1.2 * count * size * 4  # neither states nor xs are copied
    ours, single = fad.jit(f)(w, c), f(w, c)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_arrays_that_each_step_makes_are_constants() -> None:
    """Equal ones are one; others become one array, not as many inputs as there are steps."""

    def f(x: Any) -> Any:
        for k in range(50):
            x = fnp.sin(x @ (jnp.eye(4) * 0.9)) + jnp.cos(jnp.arange(4.0) * k)
        return x

    x = jnp.arange(4.0)
    whole, rolled_up = fad.jit(f, roll=False), fad.jit(f)
    np.testing.assert_allclose(rolled_up(x), whole(x), rtol=1e-5)
    program = Numbered(closed_with_constants(50))
    (loop,) = find_loops(program)
    assert loop.count == 50 and loop.period == 3 and len(program.fixed) == 1 + 50
    shorter, _ = rolled(closed_with_constants(50))
    assert len(shorter.jaxpr.eqns) < 5 and len(shorter.consts) <= 2


def closed_with_constants(count: int) -> Any:
    """A program in which each repeat has constants of its own, one of them equal to the others."""
    closed = jax.make_jaxpr(lambda x, *cs: step_with(x, cs))(
        jnp.ones((4, 4)), *[jnp.ones((4, 4))] * (2 * count)
    )
    jaxpr = closed.jaxpr
    constants = [c for k in range(count) for c in (jnp.eye(4), jnp.full((4, 4), float(k)))]
    first = jaxpr.replace(constvars=jaxpr.invars[1:], invars=jaxpr.invars[:1])
    return ClosedJaxpr(first, constants)


def step_with(x: Any, cs: Any) -> Any:
    for a, b in zip(cs[::2], cs[1::2], strict=True):
        x = jnp.sin(x * a) + b
    return x


def test_one_of_the_last_values_is_not_stored_with_all_others() -> None:
    def f(x: Any) -> Any:
        states = []
        for _ in range(50):
            x = fnp.sin(x) * 0.5 + x * x
            states.append(x)
        return states[-1] + states[-4]

    assert stacked(f, 0.3) == [0]
    assert abs(fad.jit(f)(0.3) - f(0.3)) < 1e-6


def test_loops_in_loops() -> None:
    def f(x: Any) -> Any:
        for _ in range(20):
            y = x
            for _ in range(30):
                y = y - 0.1 * fnp.sin(y) * x + 0.01
            x = 0.5 * y + x
        return x

    loops = loops_of(f, 1.0)
    assert loops[0].repeats in (19, 20) and loops[1].repeats in (28, 29, 30), loops
    assert abs(fad.jit(f)(1.0) - f(1.0)) < 1e-4


LENGTH = 24


def steps(x: Any, s: Any = 0.3) -> Any:
    for k in range(LENGTH):
        x = x + 0.01 * (k + 1) * fnp.sin(x) * s
    return x


@jax.custom_jvp
def with_rule(x: Any) -> Any:
    for k in range(LENGTH):
        x = x + 0.01 * (k + 1) * jnp.sin(x)
    return x


with_rule.defjvp(lambda p, t: (with_rule(*p), t[0] * 2.0))
with_rules = fad.from_jax(with_rule)


class Steps(fad.Function):
    @staticmethod
    def forward(x):
        return steps(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return steps(g, ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, t):
        return steps(t, ctx.saved_tensors[0])


def over_some(c: Any, s: Any) -> Any:
    return fad.lax.while_loop(
        lambda c: c[0] < 4, lambda c: (c[0] + 1, steps(c[1], s)), (0, c), max_steps=6
    )[1]


BODIES: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: fad.lax.scan(lambda c, s: (steps(c, s), c * s), x, fnp.arange(5.0))[0],
    "fori_loop": lambda x: fad.lax.fori_loop(0, 3, lambda _, x: steps(x), x),
    "while_loop": lambda x: over_some(x, 0.3),
    "cond": lambda x: fad.lax.cond(x[0] > 0, steps, lambda x: x * 2, x),
    "jit": fad.jit(steps),
    "jit in scan": lambda x: fad.lax.scan(lambda c, _: (fad.jit(steps)(c), None), x, length=5)[0],
    "checkpoint": fad.checkpoint(steps),
    "policy": fad.checkpoint(steps, policy=jax.checkpoint_policies.dots_saveable),
    "custom_jvp": lambda x: with_rules(x),
    "Function": Steps.apply,
}


@pytest.mark.parametrize("name", BODIES)
def test_loops_in_bodies(name: str, rolls_short_loops: None) -> None:
    """Python loops in what is one operation of a program; ``roll=False`` is for them, too."""
    with jax.enable_x64(True):
        x = jnp.cos(jnp.arange(4.0))
        f = BODIES[name]
        forms = {"value": f, "grad": fad.grad(lambda x: (f(x) * f(x)).sum())}
        if name != "custom_jvp":  # of which the rule has no derivative of its own
            forms["hvp"] = lambda x: fad.hvp(lambda x: (f(x) * f(x)).sum(), (x,), (V[:4],))[1]
        for form in forms.values():
            whole = fad.jit(form, roll=False)
            np.testing.assert_allclose(fad.jit(form)(x), whole(x), rtol=1e-12, atol=1e-12)
            assert fad.jit(form).lower(x).as_text().count("stablehlo.sine") < 20
            if name not in ("jit", "jit in scan"):  # these roll their own
                assert whole.lower(x).as_text().count("stablehlo.sine") >= LENGTH


def test_loops_in_bodies_are_explained(rolls_short_loops: None) -> None:
    f = fad.jit(lambda x: BODIES["scan"](BODIES["cond"](x)))
    f(jnp.ones(4))
    assert f.explain(jnp.ones(4)).endswith(f"\n  {LENGTH} × 4 operations, rolled")


def test_checkpointed_steps_are_a_loop_forth_and_back() -> None:
    """What is kept is the carry alone."""

    def f(x: Any, w: Any) -> Any:
        for _ in range(50):
            x = fad.checkpoint(lambda x: fnp.tanh(w @ x) * x + fnp.sin(x) * 0.5)(x)
        return x.sum()

    args = jnp.ones(4), jnp.eye(4)
    form = fad.grad(f, argnums=(0, 1))
    closed = fad.jit(form).trace(*args).jaxpr
    assert str(closed).count("scan[") == 2
    scan = next(e for e in closed.jaxpr.eqns if e.primitive.name == "scan")
    assert len([v for v in scan.outvars if v.aval.ndim == 2]) == 1
    for ours, theirs in zip(fad.jit(form)(*args), form(*args), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_checkpointed_steps_with_other_derivatives_are_no_loop() -> None:
    """Each step computes the same, but does not record the same."""

    def f(x: Any) -> Any:
        for k in range(120):

            def body(x: Any, k: int = k) -> Any:
                return x * 0.9 + 0.1 * (fnp.sin(x).detach() if k % 7 % 2 else fnp.sin(x))

            x = fad.checkpoint(body)(x)
        return x

    with jax.enable_x64(True):
        expected = fad.grad(f)(0.3)
        np.testing.assert_allclose(fad.jit(fad.grad(f))(0.3), expected, rtol=1e-10)
        np.testing.assert_allclose(fad.grad(fad.jit(f))(0.3), expected, rtol=1e-10)


def test_programs_without_repeats_stay_as_they_are() -> None:
    def f(x: Any) -> Any:
        for k in range(60):
            for j in range(k % 7 + (k * k) % 5):
                x = (fnp.sin, fnp.cos, fnp.tanh)[(k * j + k // 3) % 3](x) * (j + 1.5)
            x = x.reshape(k % 3 + 1, -1).ravel()
        return x

    x = jnp.ones(6)
    closed = fad.jit(f, roll=False).trace(x).jaxpr
    assert len(closed.jaxpr.eqns) > 100 and rolled(closed) == (closed, [])
    assert str(fad.jit(f).trace(x).jaxpr) == str(closed)


def test_where_nothing_repeats_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at primitives and shapes rules loops out, so that such programs trace no slower."""
    monkeypatch.delattr(scans, "Numbered")
    draws = np.random.default_rng(0)

    def chain(x: Any) -> Any:
        for k in draws.integers(0, 3, 400):
            x = (fnp.sin, fnp.cos, fnp.tanh)[k](x) * 0.5
        return x.sum()

    def layers(x: Any) -> Any:
        for k in range(40):  # each of another width
            x = fnp.tanh(x @ jnp.ones((k + 4, k + 5)) + 1.0)
        return x.sum()

    def too_few(x: Any) -> Any:
        for _ in range(6):
            for name in "sin cos tanh exp sinh cosh arctan expm1 log1p square".split() * 2:
                x = getattr(fnp, name)(x * 0.1)
            x = x * x
        return x.sum()

    for f in (chain, layers, too_few):
        closed = fad.jit(f, roll=False).trace(jnp.ones((2, 4))).jaxpr
        assert len(closed.jaxpr.eqns) > 100 and rolled(closed) == (closed, [])


def test_effects_stay_in_order() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        for _ in range(40):
            x = x * 0.5 + fnp.sin(x) - 0.1
            jax.debug.callback(lambda x: seen.append(float(x)), x.array, ordered=True)
        return x

    jax.jit(fad.to_jax(f))(1.0).block_until_ready()
    jax.effects_barrier()
    rolled_seen, seen[:] = seen.copy(), []
    with jax.disable_jit():
        f(fad.tensor(1.0))
    jax.effects_barrier()
    np.testing.assert_allclose(rolled_seen, seen, rtol=1e-5)


def test_rules_of_functions_are_those_of_each_repeat() -> None:
    """Calls that compute the same, with other rules, do not repeat."""

    def scaled(k: int) -> Any:
        @jax.custom_jvp
        def same(x: Any) -> Any:
            return x * 1.0

        same.defjvp(lambda p, t: (same(*p), k * t[0]))
        return fad.from_jax(same)

    functions = [scaled(k % 3 + 1) for k in range(60)]

    def f(x: Any) -> Any:
        for g in functions:
            x = x - 0.05 * fnp.sin(g(x))
        return x

    assert abs(fad.grad(fad.jit(f))(0.1) / fad.grad(f)(0.1) - 1) < 1e-4
    assert not loops_of(f, 0.1)


def test_jit_rolls_or_not() -> None:
    f = fad.jit(lengths)
    x = FIVE[lengths][0]
    f(x)
    assert f.explain(x).endswith("\n  50 × 6 operations, rolled")
    assert "scan" not in str(fad.jit(lengths, roll=False).trace(x).jaxpr)
    with pytest.raises(TypeError, match="roll must be True or False"):
        fad.jit(lengths, roll=1)  # type: ignore[call-overload]


def test_a_long_program_without_repeats_warns() -> None:
    def f(x: Any) -> Any:
        for k in np.random.default_rng(0).integers(0, 3, 4000):
            x = (fnp.sin, fnp.cos, fnp.tanh)[k](x) * 0.5
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fad.jit(f).trace(1.0)
    (found,) = [w for w in caught if "operations" in str(w.message)]
    line = f.__code__.co_firstlineno + 2
    assert re.search(r"The last thousand took [\d.e-]+ s to trace", str(found.message))
    assert f"line {line}, in f" in str(found.message) and "fad.lax.scan" in str(found.message)
    assert found.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fad.jit(f, roll=False).trace(1.0)
