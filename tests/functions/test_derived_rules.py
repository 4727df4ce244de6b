"""Rules that the user did not write: derivatives of each other, and calls under vmap."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from functions import Cube
from helpers import assert_close, leaf
from scaled_functions import SCALE, JvpOnly, VjpOnly, cube, scaled

import fad
import fad.numpy as fnp
from fad.errors import LevelError, RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


# Missing rules


class BothRules(VjpOnly):
    jvp = staticmethod(JvpOnly.jvp)


class VmapRule(BothRules):
    @staticmethod
    def vmap(info, in_dims, x):
        return x**3, in_dims[0]


class VjpOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    vjp = staticmethod(VjpOnly.vjp)


class JvpOneMethod(fad.Function):
    forward = staticmethod(VjpOneMethod.forward)
    jvp = staticmethod(JvpOnly.jvp)


class NoRuleOneMethod(fad.Function):
    forward = staticmethod(VjpOneMethod.forward)


def jaxed(F):
    return type(f"Jax{F.__name__}", (F,), {"jax_rules": True})


CUBES = [
    (Cube, 1.0),
    (NoRuleOneMethod, 1.0),
    (VjpOnly, SCALE),
    (JvpOnly, SCALE),
    (BothRules, SCALE),
    (VmapRule, SCALE),
    (VjpOneMethod, SCALE),
    (JvpOneMethod, SCALE),
]
CUBES += [(jaxed(F), k) for F, k in CUBES]


TWO_ROWS = jnp.stack([X, Y])


@functools.cache
def of_cubes(k):
    """Derivatives of a cube that are scaled by k, by JAX; one program: faster."""
    j = scaled(cube, k)
    total = lambda x: (j(x) * V).sum()
    slope = jax.grad(total)

    @jax.jit
    def all_of_them(x, v, rows):
        return (
            slope(x),
            jax.jvp(j, (x,), (v,)),
            jax.jacfwd(slope)(x),
            jax.jacfwd(jax.jacfwd(total))(x),
            jax.vmap(slope)(rows),
            jax.grad(lambda x: (jax.vmap(j, 1, 1)(x) * v).sum())(rows),
            jax.jvp(j, (rows,), (rows,)),
        )

    return all_of_them(X, V, TWO_ROWS)


@pytest.mark.sweep("case", CUBES, sample=7, ids=lambda case: case[0].__name__)
def test_missing_rules_are_derived_from_those_that_are_there(case):
    F, k = case
    total = lambda x: (F.apply(x) * V).sum()
    slope, along, reverse, forward, of_rows, of_all, along_rows = of_cubes(k)
    assert_close(F.apply(X), cube(X))
    assert_close(fad.grad(total)(X), slope)
    assert_close(fad.jvp(F.apply, (X,), (V,)), along)
    x = leaf(X)
    total(x).backward()
    assert_close(x.grad, slope)
    # Second order differentiates the rules themselves, in each mode.
    assert_close(fad.jacfwd(fad.grad(total))(X), reverse)
    assert_close(fad.jacrev(fad.grad(total))(X), reverse)
    assert_close(fad.jacfwd(fad.jacfwd(total))(X), forward)
    assert_close(fad.jacrev(fad.jacfwd(total))(X), forward)
    # vmap inside and outside keeps them.
    assert_close(fad.vmap(F.apply)(TWO_ROWS), cube(TWO_ROWS))
    assert_close(fad.vmap(fad.grad(total))(TWO_ROWS), of_rows)
    assert_close(fad.grad(lambda x: (fad.vmap(F.apply, 1, 1)(x) * V).sum())(TWO_ROWS), of_all)
    assert_close(fad.jvp(fad.vmap(F.apply), (TWO_ROWS,), (TWO_ROWS,)), along_rows)
    push = lambda x, t: fad.jvp(F.apply, (x,), (t,))[1]
    assert_close(fad.vmap(push)(TWO_ROWS, TWO_ROWS), along_rows[1])
    assert_close(fad.grad(fad.checkpoint(total))(X), slope)


def test_a_rule_taken_back_by_none_is_derived_again():
    class Again(BothRules):
        vjp = None
        jvp = None

    assert_close(fad.grad(lambda x: Again.apply(x).sum())(X), 3 * X**2)


# vmap


class Recorder(fad.Function):
    """x + y; it stores the arguments of its vmap rule."""

    given: Any = None

    @staticmethod
    def forward(x, y):
        return x + y

    @staticmethod
    def vjp(ctx, g):
        return SCALE * g, g

    @staticmethod
    def vmap(info, in_dims, x, y):
        Recorder.given = info.batch_size, info.randomness, in_dims
        front = [v if d is None else fnp.moveaxis(v, d, 0) for v, d in zip((x, y), in_dims)]
        return front[0] + front[1], 0


@pytest.mark.parametrize(
    ("in_dims", "dims"), [((0, None), (0, None)), ((-1, 1), (1, 1)), ((None, -2), (None, 0))]
)
def test_a_vmap_rule_gets_the_batch(in_dims, dims):
    x = jnp.arange(6.0).reshape(2, 3)
    size = 2 if dims[0] == 0 or dims[1] == 0 else 3
    args = [
        v if d is not None else v[0] if dims[0] == 0 or dims[1] == 0 else v
        for v, d in zip((x, 2 * x), in_dims)
    ]
    out = fad.vmap(Recorder.apply, in_dims, randomness="different")(*args)
    assert Recorder.given == (size, "different", dims)
    assert_close(out, jax.vmap(jnp.add, in_dims)(*args))
    weights = jnp.arange(out.size, dtype=jnp.float32).reshape(out.shape)
    ours = lambda x, y: (fad.vmap(Recorder.apply, in_dims)(x, y) * weights).sum()
    theirs = lambda x, y: (jax.vmap(jnp.add, in_dims)(x, y) * weights).sum()
    assert Recorder.given[1] == "different"
    grads = jax.grad(theirs, (0, 1))(*args)
    assert_close(fad.grad(ours, (0, 1))(*args), (SCALE * grads[0], grads[1]))
    assert Recorder.given[1] == "error"


def test_a_vmap_rule_may_put_the_batch_anywhere_in_each_output():
    class Parts(fad.Function):
        @staticmethod
        def forward(x):
            return {"sum": x.sum(), "outer": x[:, None] * x, "one": fnp.ones(2)}

        @staticmethod
        def vmap(info, in_dims, x):
            (d,) = in_dims
            x = fnp.moveaxis(x, d, 0)
            outer = fnp.moveaxis(x[:, :, None] * x[:, None, :], 0, -1)
            return (
                {"sum": x.sum(1), "outer": outer, "one": fnp.ones(2)},
                {"sum": 0, "outer": -1, "one": None},
            )

    rows = jnp.stack([X, Y])
    expected = {
        "sum": rows.sum(1),
        "outer": rows[:, :, None] * rows[:, None, :],
        "one": jnp.ones((2, 2)),
    }
    assert_close(fad.vmap(Parts.apply)(rows), expected)
    assert_close(fad.vmap(Parts.apply, 1)(rows.T), expected)


def test_generate_vmap_rule_false_refuses_to_derive_one():
    class Refuses(fad.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x, y):
            return x + y

    assert_close(Refuses.apply(X, Y), X + Y)
    assert_close(fad.jacrev(Refuses.apply)(X, Y), jnp.eye(3))
    for f in (fad.vmap(Refuses.apply), jax.vmap(Refuses.apply)):
        with pytest.raises(
            RuleError, match=r"Refuses: generate_vmap_rule.*vmap\(info, in_dims, x, y"
        ):
            f(X, Y)


@pytest.mark.parametrize("F", [BothRules, VmapRule, VjpOneMethod, jaxed(VmapRule)])
def test_a_vmapped_function_keeps_the_rules_of_its_user_at_any_depth(F):
    j = scaled(cube)
    x = jnp.arange(1.0, 13.0).reshape(2, 3, 2)
    ours = lambda x: fad.vmap(fad.vmap(F.apply, 1), -1, 1)(x).sum()
    theirs = lambda x: jax.vmap(jax.vmap(j, 1), -1, 1)(x).sum()
    assert_close(fad.grad(ours)(x), jax.grad(theirs)(x))
    assert_close(fad.jvp(ours, (x,), (x,)), jax.jvp(theirs, (x,), (x,)))
    assert_close(
        fad.vmap(fad.grad(lambda x: fad.vmap(F.apply)(x).sum()))(x),
        jax.vmap(jax.grad(lambda x: jax.vmap(j)(x).sum()))(x),
    )
    assert_close(fad.vmap(fad.vmap(fad.jacfwd(F.apply)))(x), jax.vmap(jax.vmap(jax.jacfwd(j)))(x))


# Lanes: named axes and random numbers in a body


class Centred(fad.Function):
    """x minus its mean over the lanes; the vjp is scaled."""

    @staticmethod
    def forward(x):
        return x - fad.lax.pmean(x, "lanes")

    @staticmethod
    def vjp(ctx, g):
        return SCALE * (g - fad.lax.pmean(g, "lanes"))


def test_a_body_may_name_the_axis_of_the_vmap_around_it():
    mapped = fad.vmap(Centred.apply, axis_name="lanes")
    centre = lambda x: x - x.mean(0)
    assert_close(mapped(X), centre(X))
    assert_close(fad.grad(lambda x: (mapped(x) * V).sum())(X), SCALE * centre(V))
    assert_close(fad.jvp(mapped, (X,), (V,))[1], SCALE * centre(V))
    assert_close(fad.vmap(fad.grad(Centred.apply), axis_name="lanes")(X), jnp.zeros(3))
    rows = jnp.stack([X, Y])
    assert_close(fad.vmap(mapped)(rows), jax.vmap(centre)(rows))
    native = jax.vmap(Centred.apply, axis_name="lanes")
    assert_close(native(X), centre(X))
    assert_close(jax.grad(lambda x: (native(x) * V).sum())(X), SCALE * centre(V))


class Noisy(fad.Function):
    """x times noise drawn in the body."""

    @staticmethod
    def forward(x, key):
        return x * fad.random.uniform(key)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return g * fad.random.uniform(ctx.saved_tensors[1]), None


def test_random_numbers_in_a_body_depend_on_the_vmap_around_it():
    key = jax.random.key(0)
    keys = jax.random.split(key, 3)
    expected = X * jax.vmap(jax.random.uniform)(keys)
    assert_close(fad.vmap(Noisy.apply)(X, keys), expected)
    assert_close(fad.vmap(fad.grad(Noisy.apply))(X, keys), expected / X)
    assert_close(fad.grad(lambda x: fad.vmap(Noisy.apply)(x, keys).sum())(X), expected / X)
    with pytest.raises(LevelError, match="randomness='different'"):
        fad.vmap(Noisy.apply, (0, None))(X, key)
    same = fad.vmap(Noisy.apply, (0, None), randomness="same")
    assert_close(same(X, key), X * jax.random.uniform(key))
    different = fad.vmap(Noisy.apply, (0, None), randomness="different")
    noise = different(X, key) / X
    assert len(set(noise.tolist())) == 3
    assert_close(fad.grad(lambda x: different(x, key).sum())(X), noise)
    assert_close(fad.jvp(lambda x: different(x, key), (X,), (V,))[1], V * noise)


# Rules that differentiate, in what was saved, of which lanes share a part


def by_the_tape(x, p, g):
    x, p = (v.detach().requires_grad_() for v in (x, p))
    with fad.enable_grad():
        return fad.autograd.grad(x * p * x, (x, p), g)


def by_backward(x, p, g):
    x, p = (v.detach().requires_grad_() for v in (x, p))
    with fad.enable_grad():
        (x * p * x).backward(g)
    return x.grad, p.grad


def in_one_of_them(x, p, g):
    leaf = p.detach().requires_grad_()
    with fad.enable_grad():
        (gp,) = fad.autograd.grad(x * leaf * x, leaf, g)
    return 2 * x * p * g, gp


def with_a_graph_of_its_own(x, p, g):
    x, p = (v.detach().requires_grad_() for v in (x, p))
    with fad.enable_grad():
        gx, _ = fad.autograd.grad(x * p * x, (x, p), g, create_graph=True)
        return gx, g * x * x


def by_vjp(x, p, g):
    return fad.vjp(lambda x, p: x * p * x, x, p)[1](g)


def differentiated(rule):
    class Square(fad.Function):
        @staticmethod
        def forward(x, p):
            return x * p * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            return rule(*ctx.saved_tensors, g)

    return Square.apply


ROWS = jnp.array([1.0, 2.0, 3.0])
SHARED = jnp.array(3.0)
FIRST_ORDER = {
    "vmap(grad)": lambda lib, f, dims, args: lib.vmap(lib.grad(f, (0, 1)), dims)(*args),
    "grad(vmap)": lambda lib, f, dims, args: lib.grad(
        lambda x, p: lib.vmap(f, dims)(x, p).sum(), (0, 1)
    )(*args),
    "vmap(vmap)": lambda lib, f, dims, args: lib.vmap(
        lib.vmap(lib.grad(f, (0, 1)), dims), dims[::-1]
    )(ROWS, ROWS),
    "jit": lambda lib, f, dims, args: lib.jit(lib.vmap(lib.grad(f, (0, 1)), dims))(*args),
}


@pytest.mark.parametrize("dims", [(0, None), (None, 0)])
@pytest.mark.parametrize(
    "rule", [by_the_tape, by_backward, in_one_of_them, with_a_graph_of_its_own, by_vjp]
)
def test_a_rule_differentiates_in_what_lanes_share(rule, dims):
    f = differentiated(rule)
    args = [ROWS if d == 0 else SHARED for d in dims]
    plain = lambda x, p: x * p * x
    for call in FIRST_ORDER.values():
        assert_close(call(fad, f, dims, args), call(jax, plain, dims, args))
    for name in ("vmap(grad)", "grad(vmap)"):
        native = FIRST_ORDER[name]
        assert_close(native(jax, f, dims, args), native(jax, plain, dims, args))
    one = jnp.ones(())
    assert float(fad.jvp(f, (2 * one, one), (one, one))[1]) == 8.0
    assert isinstance(fad.grad(f)(2 * one, one), jax.Array)
    x, p = (fad.tensor(a, requires_grad=True) for a in args)
    fad.vmap(f, dims)(x, p).sum().backward()
    expected = FIRST_ORDER["grad(vmap)"](jax, plain, dims, args)
    assert_close((x.grad.detach(), p.grad.detach()), expected)


@pytest.mark.parametrize(("rule", "second"), [(by_vjp, 6.0), (by_the_tape, 0.0)])
def test_a_rule_differentiates_where_one_argument_is_differentiated_twice(rule, second):
    """``detach()`` stops the second derivative, as in torch.autograd.functional.hessian."""
    f = differentiated(rule)
    x, p = jnp.array(2.0), SHARED
    assert float(fad.hessian(f)(x, p)) == second
    assert float(fad.grad(fad.grad(f))(x, p)) == second
    assert float(fad.grad(fad.grad(f), 1)(x, p)) == (4.0 if second else 0.0)
    rows = fad.autograd.functional.hessian(lambda x: f(x, fad.tensor(p)).sum(), fad.tensor(ROWS))
    assert_close(rows.detach(), second * jnp.eye(3))
