"""Calls that name axes of running vmaps: JAX code and bodies of all kinds against the same program in JAX."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle
from jax import lax

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])
TWO = X[:2]
M = jnp.stack([X, 2 * X])


def body(x: Any) -> Any:
    """What all of them compute, in JAX."""
    return jnp.sin(x) * lax.psum(x * x, "i")


def in_fad(x: Any) -> Any:
    return fnp.sin(x) * fad.lax.psum(x * x, "i")


def pull(lib: Any, x: Any, g: Any) -> Any:
    np_, psum = (jnp, lax.psum) if lib is jax else (fnp, fad.lax.psum)
    return g * np_.cos(x) * psum(x * x, "i") + psum(g * np_.sin(x), "i") * 2 * x


def with_vjp() -> Any:
    rules = fad.custom_rules(lambda x: body(x))
    rules.defvjp(lambda x: (body(x), x), lambda x, g: (pull(jax, x, g),))
    return rules


def with_jvp() -> Any:
    rules = fad.custom_rules(lambda x: body(x))
    rules.defjvp(lambda p, t: jax.jvp(body, p, t))
    return rules


def function(lib: Any) -> Any:
    class F(fad.Function):
        jax_rules = lib is jax

        @staticmethod
        def forward(x: Any) -> Any:
            return body(x) if lib is jax else in_fad(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return pull(lib, ctx.saved_tensors[0], g)

    return F.apply


def with_written_rules() -> Any:
    rule = (lambda x: (body(x), x), lambda x, g: (pull(jax, x, g),))
    return fad.extend.operation(vjp=rule)(lambda x: body(x))


def once(loop: str, f: Any) -> Any:
    if loop == "scan":
        return lambda x: fad.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]
    if loop == "cond":
        return lambda x: fad.lax.cond(True, f, lambda x: x, x)
    return lambda x: fad.lax.while_loop(lambda s: s[0] < 1, lambda s: (1 + s[0], f(s[1])), (0, x))[
        1
    ]


MADE: dict[str, Callable[[], Any]] = {
    "from_jax": lambda: fad.from_jax(lambda x: body(x)),
    "operation": lambda: fad.extend.operation(lambda x: body(x)),
    "operation with rules": with_written_rules,
    "custom_rules": lambda: fad.custom_rules(lambda x: body(x)),
    "custom_rules with vjp": with_vjp,
    "custom_rules with jvp": with_jvp,
    "jax_rules": lambda: function(jax),
    "Function": lambda: function(fad),
    "jit": lambda: fad.jit(function(fad)),
    "jit of JAX code": lambda: fad.jit(with_vjp()),
    "checkpoint": lambda: fad.checkpoint(function(fad)),
    "checkpoint of fad.lax": lambda: fad.checkpoint(in_fad),
    "scan": lambda: once("scan", function(fad)),
    "cond": lambda: once("cond", with_vjp()),
    "while_loop": lambda: once("while", function(fad)),
    "to_jax": lambda: fad.from_jax(fad.to_jax(in_fad)),
}

AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "alone": lambda lib, f: lib.vmap(f, axis_name="i")(X),
    "another size": lambda lib, f: lib.vmap(f, axis_name="i")(TWO),
    "grad outside": lambda lib, f: lib.grad(lambda x: lib.vmap(f, axis_name="i")(x).sum())(X),
    "grad inside": lambda lib, f: lib.vmap(lib.grad(f), axis_name="i")(X),
    "jvp inside": lambda lib, f: lib.vmap(lambda x: lib.jvp(f, (x,), (x,))[1], axis_name="i")(X),
    "both": lambda lib, f: lib.vmap(lib.jacfwd(lib.grad(f)), axis_name="i")(X),
    "no operand": lambda lib, f: lib.vmap(lambda z: f(2.0) + z, axis_name="i")(X),
    "grad of no operand": lambda lib, f: lib.vmap(lambda z: lib.grad(f)(2.0), axis_name="i")(X),
    "jvp of no operand": lambda lib, f: lib.vmap(
        lambda z: lib.jvp(f, (2.0,), (1.0,))[1], axis_name="i"
    )(X),
    "an operand from outside": lambda lib, f: lib.grad(
        lambda y: lib.vmap(lambda z: f(y) * z, axis_name="i")(X).sum()
    )(2.0),
    "another vmap": lambda lib, f: lib.vmap(lib.vmap(f, axis_name="j"), axis_name="i")(M),
}


@functools.cache
def expected(around: str) -> Any:
    return AROUND[around](jax, body)


@functools.cache
def made(name: str) -> Any:
    return MADE[name]()


CASES = [
    (name, around, lib)
    for name, around, lib in itertools.product(MADE, AROUND, ("fad", "jax"))
    if name != "while_loop" or around in ("alone", "another size", "jvp inside", "no operand")
]


@pytest.mark.sweep("case", CASES, sample=48, ids="-".join)
def test_bodies_name_the_axis_of_the_vmap_around_them(case: tuple[str, str, str]) -> None:
    name, around, lib = case
    # The same function in all cases: what one call has left in a cache is not for the next one.
    assert_close(AROUND[around](fad if lib == "fad" else jax, made(name)), expected(around))
    assert is_idle()


def ring(size: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % size) for k in range(size)]


SIZES: dict[str, Callable[[Any], Any]] = {
    "size": lambda x: x * lax.axis_size("i"),
    "index": lambda x: x * lax.axis_index("i"),
    "gather": lambda x: jnp.sin(lax.all_gather(x, "i")).sum() * x,
    "permute": lambda x: x * lax.ppermute(x, "i", ring(lax.axis_size("i"))),
    "in a scan": lambda x: lax.scan(
        lambda c, _: (jnp.sin(lax.psum(c, "i")), None), x, None, length=2
    )[0],
    "in a vmap of that name": lambda x: jax.vmap(
        lambda y: lax.psum(y * x, "i"), axis_name="i"
    )(jnp.arange(2.0)).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_what_was_traced_for_one_axis_is_not_used_for_another(name: str) -> None:
    f = SIZES[name]
    for own in (fad.from_jax(lambda x: f(x)), fad.custom_rules(lambda x: f(x))):
        for x in (X, TWO):
            grad = jax.vmap(jax.grad(f), axis_name="i")(x)
            assert_close(fad.vmap(fad.grad(own), axis_name="i")(x), grad)
            assert_close(jax.vmap(fad.grad(own), axis_name="i")(x), grad)
            assert_close(fad.vmap(lambda z: own(2.0), axis_name="i")(x),
                         jax.vmap(lambda z: f(2.0), axis_name="i")(x))  # fmt: skip
    if "vmap" not in name:
        with pytest.raises(NameError, match="unbound axis name: i"):
            fad.grad(own)(2.0)


def total(lib: Any, x: Any) -> Any:
    return x * lib.lax.psum(x * x, ("i", "j")) + lib.lax.psum(x, "j") * lib.lax.axis_size("j")


BOTH: dict[str, Callable[[], Any]] = {
    "from_jax": lambda: fad.from_jax(functools.partial(total, jax)),
    "custom_rules": lambda: fad.custom_rules(lambda x: total(jax, x)),
    "Function": lambda: own_function(lambda x: total(fad, x)),
    "jit": lambda: fad.jit(own_function(lambda x: total(fad, x))),
    "checkpoint": lambda: fad.checkpoint(fad.custom_rules(lambda x: total(jax, x))),
}


def own_function(f: Any) -> Any:
    return type("F", (fad.Function,), {"forward": staticmethod(lambda x: f(x))}).apply


@pytest.mark.parametrize("name", BOTH)
def test_two_names(name: str) -> None:
    f, g = BOTH[name](), functools.partial(total, jax)

    def rows(lib: Any, f: Any) -> Any:
        return lib.vmap(lib.vmap(f, axis_name="j"), axis_name="i")(M)

    assert_close(rows(fad, fad.grad(f)), rows(jax, jax.grad(g)))
    assert_close(rows(jax, jax.grad(f)), rows(jax, jax.grad(g)))
    # One of the two has no operand, or both have none.
    half = lambda lib, f: lib.vmap(
        lambda r: lib.vmap(lambda x: f(r.sum()) * x, axis_name="j")(r), axis_name="i"
    )(M)
    assert_close(half(fad, fad.grad(f)), half(jax, jax.grad(g)))
    assert_close(half(jax, jax.grad(f)), half(jax, jax.grad(g)))
    assert_close(rows(fad, lambda x: f(2.0)), rows(jax, lambda x: g(2.0)))


def test_an_inner_axis_hides_an_outer_one_of_its_name() -> None:
    g = lambda x: x * lax.psum(x, "i") * lax.axis_size("i")
    twice = lambda lib, f: lib.vmap(lib.vmap(f, axis_name="i"), axis_name="i")(M)
    half = lambda lib, f: lib.vmap(
        lambda r: lib.vmap(lambda x: f(r.sum()), axis_name="i")(r), axis_name="i"
    )(M)
    for f in (
        fad.from_jax(lambda x: g(x)),
        fad.custom_rules(lambda x: g(x)),
        own_function(lambda x: x * fad.lax.psum(x, "i") * fad.lax.axis_size("i")),
    ):
        assert_close(twice(fad, f), twice(jax, g))
        assert_close(half(fad, f), half(jax, g))
        mixed = jax.vmap(lambda r: fad.vmap(fad.grad(f), axis_name="i")(r), axis_name="i")(M)
        assert_close(mixed, twice(jax, jax.grad(g)))


def summed_gradient() -> tuple[Any, list[Any]]:
    """A function whose derivative alone names an axis; the same in fad."""
    made = [jax.custom_vjp(lambda x: x * 1.0), fad.custom_rules(lambda x: x * 1.0)]
    for f in made:
        f.defvjp(lambda x: (x * 1.0, None), lambda _, g: (lax.psum(g, "i"),))

    class F(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return fad.lax.psum(g, "i")

    return made[0], [made[1], F.apply, fad.from_jax(made[0]), fad.jit(F.apply)]


def test_a_rule_may_name_an_axis_that_its_function_does_not() -> None:
    expected, made = summed_gradient()
    for f in made:
        for program in (
            lambda lib, f: lib.vmap(lib.grad(lambda x: f(x) * x), axis_name="i")(X),
            lambda lib, f: lib.vmap(lambda z: lib.grad(lambda w: f(w) * z)(2.0), axis_name="i")(X),
            lambda lib, f: lib.vmap(lambda z: lib.grad(f)(2.0), axis_name="i")(X),
            lambda lib, f: lib.grad(lambda x: (lib.vmap(f, axis_name="i")(x) * x).sum())(X),
        ):
            assert_close(program(fad, f), program(jax, expected))
    for f in made[:2]:
        constant = lambda f: jax.vmap(lambda z: jax.grad(f)(2.0), axis_name="i")(X)
        assert_close(constant(f), constant(expected))


def test_a_rule_names_no_axis_where_its_derivative_is_taken_outside() -> None:
    _, made = summed_gradient()
    outside = lambda lib, f: lib.grad(
        lambda w: lib.vmap(lambda x: f(w) * x, axis_name="i")(X).sum()
    )(2.0)
    for lib, f in ((fad, made[1]), (fad, made[3]), (jax, made[0]), (jax, made[1])):
        with pytest.raises(NameError, match="unbound axis name: i"):
            outside(lib, f)
    assert is_idle()


def test_sizes_are_known_where_a_call_is_traced_again() -> None:
    f = lambda x: x * lax.axis_size("i")
    own = fad.custom_rules(lambda x: f(x))
    for loop in (once("scan", own), fad.jit(own), fad.checkpoint(own)):
        for x in (X, TWO):
            for around in (
                lambda lib, f: lib.vmap(lambda z: lib.grad(f)(2.0), axis_name="i")(x),
                lambda lib, f: lib.grad(lambda x: lib.vmap(f, axis_name="i")(x).sum())(x),
                lambda lib, f: lib.grad(
                    lambda w: lib.vmap(lambda z: f(w) * z, axis_name="i")(x).sum()
                )(2.0),
            ):
                assert_close(around(fad, loop), around(jax, f))
                assert_close(around(jax, loop), around(jax, f))


def test_calls_that_name_no_axis_are_shared_by_the_lanes() -> None:
    _, made = summed_gradient()
    for f in (fad.from_jax(jax.nn.relu), *made):
        assert_close(fad.vmap(lambda z: f(2.0), axis_name="i", out_dims=None)(X), jnp.float32(2.0))


def test_constants_of_compiled_code_name_axes() -> None:
    for f in (in_fad, own_function(in_fad), fad.from_jax(lambda x: body(x)), fad.jit(in_fad)):
        compiled = fad.jit(lambda z, f=f: f(jnp.float32(2.0)) * z)
        for x in (X, TWO):
            expected = jax.vmap(lambda z: body(2.0) * z, axis_name="i")(x)
            assert_close(fad.vmap(lambda z: compiled(z), axis_name="i")(x), expected)


def test_captured_parameters_have_gradients_of_any_order() -> None:
    loss = lambda lib, f, w: lib.vmap(lambda x: f(w) * x, axis_name="i")(X).sum()
    for f in (own_function(in_fad), fad.custom_rules(lambda x: body(x)), fad.checkpoint(in_fad)):
        w = fad.tensor(2.0, requires_grad=True)
        (g,) = fad.autograd.grad(loss(fad, f, w), w, create_graph=True)
        g.backward()
        first = jax.grad(functools.partial(loss, jax, body))
        assert_close(g.array, first(2.0))
        assert_close(w.grad.array, jax.grad(first)(2.0))


def test_each_lane_draws_its_own_numbers_for_an_argument_that_all_share() -> None:
    noisy = own_function(lambda x: x * fad.random.normal(fad.random.key(0)))
    drawn = fad.vmap(lambda z: noisy(2.0), randomness="different")(X)
    assert len(set(np.asarray(drawn).tolist())) == 3


def test_a_body_is_stopped_once_and_then_known() -> None:
    runs = []
    f = own_function(lambda x: runs.append(0) or x * fad.lax.psum(x, "i"))
    mapped = fad.vmap(lambda z: f(2.0) * z, axis_name="i")
    assert_close(mapped(X), 12.0 * X)
    assert len(runs) == 2
    assert_close(mapped(X), 12.0 * X)
    assert len(runs) == 3
    with pytest.raises(NameError, match="unbound axis name: i"):
        fad.vmap(lambda z: f(2.0), axis_name="k")(X)
    assert is_idle()


def test_an_operation_of_jax_code_is_one_call_where_it_names_no_axis() -> None:
    traced = []
    f = fad.from_jax(lambda x: traced.append(0) or jnp.sin(x))
    fad.grad(f)(X[0])
    before = len(traced)
    assert_close(fad.vmap(fad.grad(f), axis_name="i")(X), jnp.cos(X))
    assert_close(fad.vmap(fad.grad(f), axis_name="i")(X), jnp.cos(X))
    assert len(traced) <= before + 3
