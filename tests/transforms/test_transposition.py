"""`linear_transpose`, beside JAX's."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, StructureError

X = jnp.array([0.3, -0.8, 1.2])
M = jnp.arange(6.0).reshape(2, 3)

LINEAR = {
    "matrix": lambda xp, x: M @ x,
    "several": lambda xp, x: (xp.sum(x) * 2.0, {"rest": x[::-1]}),
    "zero": lambda xp, x: xp.zeros(2) * xp.sum(x),
    "cumulative": lambda xp, x: xp.cumsum(x),
}


@pytest.mark.parametrize("name", LINEAR)
def test_as_in_jax(name):
    f = LINEAR[name]
    out = f(jnp, X)
    cotangent = jax.tree.map(lambda o: jnp.ones_like(o) * 1.5, out)
    (expected,) = jax.linear_transpose(lambda x: f(jnp, x), X)(cotangent)
    for x in (X, fad.tensor(X, requires_grad=True), jax.ShapeDtypeStruct(X.shape, X.dtype)):
        (found,) = fad.linear_transpose(lambda x: f(fnp, x), x)(cotangent)
        assert isinstance(found, jax.Array)
        assert_close(found, expected)
    tensors = jax.tree.map(fad.tensor, cotangent)
    assert isinstance(fad.linear_transpose(lambda x: f(fnp, x), X)(tensors)[0], fad.Tensor)


def test_several_arguments_and_pytrees():
    f = lambda p, y: p["a"] * 2.0 + p["b"] - y
    args = ({"a": X, "b": X}, X)
    expected = jax.linear_transpose(f, *args)(X)
    assert_close(fad.linear_transpose(f, *args)(X), expected)


def test_nothing_is_conjugated():
    f = lambda z: z * (2 + 1j)
    z = jnp.ones(2, jnp.complex64)
    assert_close(fad.linear_transpose(f, z)(z), jax.linear_transpose(f, z)(z))


def test_under_transforms_and_with_a_closure():
    def through(library, xp, w, c):
        (found,) = library.linear_transpose(lambda x: xp.sin(w) * x, X)(c)
        return xp.sum(found * c)

    ours = lambda w, c: through(fad, fnp, w, c)
    theirs = lambda w, c: through(jax, jnp, w, c)
    assert_close(fad.grad(ours, (0, 1))(X, 2 * X), jax.jit(jax.grad(theirs, (0, 1)))(X, 2 * X))
    assert_close(fad.hessian(ours)(X, X), jax.jit(jax.hessian(theirs))(X, X))
    assert_close(fad.jit(fad.vmap(ours))(M, M), jax.jit(jax.vmap(theirs))(M, M))
    w = fad.tensor(X, requires_grad=True)
    ours(w, X).backward()
    assert_close(w.grad.array, jax.grad(theirs)(X, X))


def test_what_is_not_linear_is_refused():
    for f in (fnp.sin, lambda x: x * x):
        with pytest.raises(GradientError, match="linear_transpose: the function is not linear"):
            fad.linear_transpose(f, X)


def with_a_rule(f, g=7.0):
    made = fad.custom_rules(f)
    made.defvjp(lambda x: (f(x), ()), lambda _, c: (g * c,))
    return made


class Stopping(fad.Function):
    @staticmethod
    def forward(x):
        return 2.0 * x + fad.stop_gradient(x)

    @staticmethod
    def vjp(ctx, g):
        return 7.0 * g


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 2.0 * x + fad.stop_gradient(x),
        lambda x: 2.0 * x + x.detach(),
        with_a_rule(lambda x: 2.0 * x + jax.lax.stop_gradient(x)),
        with_a_rule(lambda x: jax.lax.stop_gradient(x)),
        Stopping.apply,
        fad.vmap(Stopping.apply),
    ],
)
def test_stopped_gradients_have_no_transpose(f):
    if "lineax" in sys.modules:  # it gives JAX's stop_gradient a transpose, for the whole process
        return
    with pytest.raises(GradientError, match=r"makes a constant of a value .*fad.vjp\(f, \*args\)"):
        fad.linear_transpose(f, X)


def test_stopped_gradients_of_what_is_constant():
    stop, w = jax.lax.stop_gradient, fad.tensor(X)
    for f in (
        lambda x: x * fad.stop_gradient(w),
        with_a_rule(lambda x: x * stop(X)),
        lambda t: fad.jvp(lambda x: x * fad.stop_gradient(x), (X,), (t,))[1],
        lambda t: fad.jvp(with_a_rule(lambda x: x * stop(x), X), (X,), (t,))[1],
    ):
        assert_close(fad.linear_transpose(f, X)(M[1])[0], M[1] * X)


@pytest.mark.parametrize("x", [1.0, 1, 1 + 2j, (1.0, X), {"a": [2.0, None]}, np.float64(1.0)])
@pytest.mark.parametrize("x64", [False, True])
def test_numbers_as_arguments(x, x64):
    double = lambda tree: jax.tree.map(lambda x: 2 * x, tree)
    with jax.enable_x64(x64):
        for cotangent in (x, jax.tree.map(jnp.asarray, x)):
            found = fad.linear_transpose(double, x)(cotangent)
            expected = jax.linear_transpose(double, x)(cotangent)
            assert_close(found, expected)
            weak = [[a.weak_type for a in jax.tree.leaves(t)] for t in (found, expected)]
            assert weak[0] == weak[1]


def test_numbers_beside_arrays_and_under_transforms():
    scaled = lambda x: x * jnp.ones(2, jnp.bfloat16)
    c = jnp.ones(2, jnp.bfloat16)
    (found,) = fad.linear_transpose(scaled, 1.0)(c)
    assert_close(found, jax.linear_transpose(scaled, 1.0)(c)[0])
    triple = lambda c: fad.linear_transpose(lambda x: 3.0 * x, 1.0)(c)[0]
    assert_close(fad.vmap(triple)(X), 3.0 * X)
    assert float(fad.grad(triple)(2.0)) == 3.0
    assert float(fad.grad(lambda w: fad.linear_transpose(lambda x: w * x, 1.0)(3.0)[0])(2.0)) == 3.0


@pytest.mark.parametrize("args", [(True,), (1.0, 1), (jnp.arange(3), X), (jax.random.key(0),)])
def test_dtypes_that_do_not_go_together(args):
    with pytest.raises(TypeError, match="linear_transpose only supports"):
        jax.linear_transpose(lambda *args: 2 * X.sum(), *args)
    with pytest.raises(GradientError, match="linear_transpose: the function must go from"):
        fad.linear_transpose(lambda *args: 2 * X.sum(), *args)
    with pytest.raises(GradientError, match="got one from float32 to float32, int32"):
        fad.linear_transpose(lambda x: (x, 1), 1.0)


def test_cotangents_and_arguments_of_the_wrong_form():
    transposed = fad.linear_transpose(lambda x: (x, 2.0 * x), X)
    with pytest.raises(StructureError, match=r"'float32\[3\]', 'float32\[3\]'.*got Array float32"):
        transposed(X)
    with pytest.raises(StructureError, match="linear_transpose: the cotangent must be like"):
        transposed((X, jnp.ones(4)))
    with pytest.raises(ArgumentError, match="must be arrays or numbers, got str"):
        fad.linear_transpose(fnp.sin, "x")
    with pytest.raises(TypeError, match="must be a function"):
        fad.linear_transpose(3, X)


def test_dicts_keep_the_order_of_their_keys() -> None:
    seen = []

    def f(p):
        seen.append(list(p))
        return 2.0 * p["b"] + p["a"]

    transposed = fad.linear_transpose(f, {"b": fad.ones(2), "a": fad.ones(2)})
    (found,) = transposed(fad.ones(2))
    assert seen == [["b", "a"]] and list(found) == ["b", "a"]
    assert found["b"].tolist() == [2.0, 2.0] and found["a"].tolist() == [1.0, 1.0]


# Branches of which lanes take several

P = jnp.array([1.0, -1.0, 0.0])
V = jnp.array([1.0, 2.0, -0.5])


def branch(p, t):
    return jax.lax.cond(p > 0, lambda t: t / p, lambda t: t * 5, t)


@jax.custom_jvp
def with_rule(x, p):
    return x * 2


@with_rule.defjvp
def _(primals, tangents):
    return with_rule(*primals), branch(primals[1], tangents[0])


class Branches(fad.Function):
    @staticmethod
    def forward(x, p):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx, t, _):
        (p,) = ctx.saved_tensors
        return fad.lax.cond(p > 0, lambda t: t / p, lambda t: t * 5, t)


def tangent_of(f):
    return lambda t: fad.jvp(lambda x: fad.vmap(f)(x, P), (X,), (t,))[1]


BRANCHES = {
    "a cond": lambda t: fad.vmap(fad.from_jax(branch))(P, t),
    "a cond of fad": lambda t: fad.vmap(
        lambda p, t: fad.lax.cond(p > 0, lambda t: t / p, lambda t: t * 5, t)
    )(P, t),
    "a switch": lambda t: fad.vmap(
        lambda p, t: fad.lax.switch(
            (p > 0).astype(int), [lambda t: t * 5, lambda t: t / p, lambda t: t * 7], t
        )
    )(P, t),
    "a loop": lambda t: fad.vmap(
        fad.from_jax(
            lambda p, t: jax.lax.scan(lambda s, _: (branch(p, branch(p, s)), None), t, None, 1)[0]
        )
    )(jnp.where(P > 0, 5.0, P), t),
    "a rule of JAX": tangent_of(fad.from_jax(with_rule)),
    "a Function": tangent_of(Branches.apply),
    "nested": lambda t: fad.vmap(lambda p: fad.vmap(fad.from_jax(branch), (None, 0))(p, t))(P).sum(
        0
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_which_lanes_take_several_are_transposed(name):
    f = BRANCHES[name]
    expected = V @ fad.jacfwd(f)(X)
    transposed = fad.linear_transpose(f, X)
    assert_close(transposed(V)[0], expected)
    assert_close(fad.jit(lambda v: transposed(v)[0])(V), expected)
    rows = jnp.stack([V, 2 * V])
    assert_close(fad.vmap(lambda v: transposed(v)[0])(rows), jnp.stack([expected, 2 * expected]))
    assert_close(fad.linear_transpose(lambda v: transposed(v)[0], V)(X)[0], f(X))


def test_stop_gradient_elsewhere_is_refused_as_in_jax():
    if "lineax" in sys.modules:  # it gives JAX's stop_gradient a transpose, for the whole process
        expected = jax.linear_transpose(lambda x: x + jax.lax.stop_gradient(x), X)(V)[0]
        found = fad.linear_transpose(lambda x: x + fad.stop_gradient(x), X)(V)[0]
        assert_close(found, expected)
        return
    with pytest.raises(GradientError, match="linear_transpose: the function makes a constant"):
        fad.linear_transpose(lambda x: x + fad.stop_gradient(x), X)


def written_under_no_grad(x):
    y = 2.0 * x
    with fad.no_grad():
        y[:1] = 0.0
    return y


def test_what_is_not_recorded_has_no_transpose():
    def computed(x):
        with fad.no_grad():
            y = 2.0 * x
        return x + y

    for f in (computed, written_under_no_grad, fad.jit(computed), fad.vmap(computed)):
        with pytest.raises(
            GradientError,
            match=r"makes a constant .*under no_grad.*\(fad.numpy.where\(mask, 0.0, g\)",
        ):
            fad.linear_transpose(f, X)

    def beside(x, a):
        with fad.no_grad():
            assert (x * a).shape == (3,)
            scale = 2.0 * a
        return x * scale

    a = jnp.array([1.0, 2.0, 3.0])
    assert_close(fad.linear_transpose(lambda x: beside(x, a), X)(V)[0], 2.0 * a * V)
    # In what it closes over, it is differentiated as ever.
    pulled = lambda a: (fad.linear_transpose(lambda x: x * a + beside(x, a), X)(V)[0] * V).sum()
    assert_close(fad.grad(pulled)(a), V * V)


@pytest.mark.parametrize("library", [fad, jax])
def test_a_call_of_a_function_is_transposed_as_its_body(library):
    for f in (lambda x: Branches.apply(x, P), library.vmap(lambda x: Branches.apply(x, 1.0))):
        assert_close(library.linear_transpose(f, X)(V)[0], 2 * V)


def test_what_jax_cannot_transpose_is_told_of_the_pullback():
    rule = jax.custom_vjp(lambda x: x * 2.0)
    rule.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 2.0,))
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    called = lambda x: jax.pure_callback(lambda x: 2.0 * x, shape, x, vmap_method="sequential")
    for f in (rule, called):
        with pytest.raises(
            GradientError, match=r"not known to be .* write fad.vjp\(f, \*args\)\[1\]"
        ):
            fad.linear_transpose(fad.from_jax(f), jnp.ones(3))
    assert fad.vjp(fad.from_jax(rule), jnp.zeros(3))[1](jnp.ones(3))[0].tolist() == [2.0, 2.0, 2.0]
