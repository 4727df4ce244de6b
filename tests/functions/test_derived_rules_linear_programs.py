"""Rules that call their own Function: transposed, also where the call is in compiled code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = jnp.array([1.0, 2.0, 3.0])
A = jnp.array([[4.0, 1.0, 0.0], [1.0, 5.0, 2.0], [0.0, 1.0, 6.0]])
STYLES = pytest.mark.parametrize("compiled", [False, True], ids=["", "jax_rules"])


def function(compiled: bool = False, **members: Any) -> Any:
    """A Function with these rules."""
    rules = {k: staticmethod(v) if callable(v) else v for k, v in members.items()}
    return type(fad.Function)("F", (fad.Function,), {**rules, "jax_rules": compiled})


def linear(forward: Any, compiled: bool = False, **members: Any) -> Any:
    """A Function that is linear, so that its jvp rule calls it."""
    F = function(compiled, forward=forward, jvp=lambda ctx, t: F.apply(t), **members)
    return F


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def keep_solution(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


def cubes(f):
    return lambda *args: (f(*args) ** 3).sum()


def eager(f, *args):
    leaves = list(map(leaf, args))
    f(*leaves).backward()
    return tuple(t.grad for t in leaves)


def check(f, reference, *args):
    """First and second derivatives of ``f``, in all modes, are those of a JAX function."""
    each = tuple(range(len(args)))
    ours, theirs = cubes(f), cubes(reference)
    gradients = jax.jit(jax.grad(theirs, each))(*args)
    for found in (
        fad.grad(ours, each)(*args),
        eager(ours, *args),
        fad.vjp(ours, *args)[1](jnp.ones(())),
        fad.jit(fad.grad(ours, each))(*args),
        jax.jit(jax.grad(ours, each))(*args),
        jax.tree.map(lambda g: g[0], fad.vmap(fad.grad(ours, each))(*[x[None] for x in args])),
    ):
        assert_close(found, gradients)
    second = jax.jit(jax.hessian(theirs, each))(*args)
    for outer, inner in (
        (fad.jacfwd, fad.jacrev),
        (fad.jacrev, fad.jacrev),
        (fad.jacrev, fad.jacfwd),
        (fad.jacfwd, fad.jacfwd),
    ):
        assert_close(outer(inner(ours, each), each)(*args), second, rtol=1e-4, atol=1e-4)
    for outer in (jax.jacfwd, jax.jacrev):
        found = jax.jit(outer(jax.jacrev(ours, each), each))(*args)
        assert_close(found, second, rtol=1e-4, atol=1e-4)


# A Function in its own rule


@STYLES
def test_a_linear_function_in_its_jvp_rule(compiled):
    F = linear(lambda x: 2.0 * x[::-1], compiled)
    check(F.apply, lambda x: 2.0 * x[::-1], X)


@STYLES
def test_a_bilinear_function_in_its_jvp_rule(compiled):
    def jvp(ctx, s, t):
        x, y = ctx.saved_tensors
        return F.apply(s, y) + F.apply(x, t)

    F = function(compiled, forward=lambda x, y: x * y, setup_context=keep, jvp=jvp)
    check(F.apply, lambda x, y: x * y, X, X + 1.0)


@STYLES
def test_a_solver_in_its_jvp_rule(compiled):
    def jvp(ctx, a_t, b_t):
        a, x = ctx.saved_tensors
        return F.apply(a, b_t - a_t @ x)

    solve = jnp.linalg.solve if compiled else fnp.linalg.solve
    F = function(compiled, forward=lambda a, b: solve(a, b), setup_context=keep_solution, jvp=jvp)
    check(F.apply, jnp.linalg.solve, A, X)


@STYLES
def test_a_solver_in_its_vjp_rule(compiled):
    def vjp(ctx, g):
        a, x = ctx.saved_tensors
        y = F.apply(a.T, g)
        return -y[:, None] * x[None, :], y

    solve = jnp.linalg.solve if compiled else fnp.linalg.solve
    F = function(compiled, forward=lambda a, b: solve(a, b), setup_context=keep_solution, vjp=vjp)
    check(F.apply, jnp.linalg.solve, A, X)


def test_a_function_in_its_jet_rule():
    F = function(forward=lambda x: 2.0 * x, jet=lambda ctx, s: [F.apply(t) for t in s])
    assert_close(fad.grad(cubes(F.apply))(X), 24.0 * X**2)
    assert_close(fad.derivatives(lambda s: cubes(F.apply)(X * s), 1.0, 3)[3], 48.0 * (X**3).sum())


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_functions_that_call_each_other_are_transposed_as_in_jax(first, second):
    F = function(first, forward=lambda x: 2.0 * x, jvp=lambda ctx, t: 10.0 * G.apply(t))
    G = function(second, forward=lambda x: 3.0 * x, jvp=lambda ctx, t: 100.0 * F.apply(t))
    f, g = jax.custom_jvp(lambda x: 2.0 * x), jax.custom_jvp(lambda x: 3.0 * x)
    f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * g(*tangents)))
    g.defjvp(lambda primals, tangents: (g(*primals), 100.0 * f(*tangents)))
    for ours, theirs in ((F.apply, f), (G.apply, g)):
        expected = jax.grad(theirs)(1.0)
        assert fad.grad(ours)(1.0) == jax.grad(ours)(1.0) == expected
        assert fad.jvp(ours, (1.0,), (1.0,))[1] == expected


def test_many_functions_that_call_each_other():
    def rule(ctx, t):
        return sum(F.apply(t) for F in functions) / 6.0

    functions = [function(forward=lambda x: 2.0 * x, jvp=rule) for _ in range(6)]
    assert_close(fad.grad(cubes(functions[0].apply))(X), 24.0 * X**2)


def test_a_call_with_a_vjp_rule_is_transposed_by_that():
    G = function(forward=lambda x: 2.0 * x, vjp=lambda ctx, g: 5.0 * g)
    F = function(forward=lambda x: 2.0 * x, jvp=lambda ctx, t: G.apply(t))
    assert fad.grad(F.apply)(1.0) == jax.grad(F.apply)(1.0) == 5.0


def test_the_transform_of_a_complex_function_and_its_inverse():
    F = linear(lambda x: fnp.fft.fft(x))
    G = function(forward=lambda x: fnp.fft.ifft(x), vjp=lambda ctx, g: F.apply(g) / 3.0)
    ours = lambda z: (abs(G.apply(F.apply(z) ** 2)) ** 2 * X).sum()
    theirs = lambda z: (abs(jnp.fft.ifft(jnp.fft.fft(z) ** 2)) ** 2 * X).sum()
    z = jnp.array([1.0 + 2.0j, 3.0 - 1.0j, 0.5j])
    assert_close(fad.grad(ours)(z), jax.grad(theirs)(z).conj(), rtol=1e-4)
    assert_close(jax.grad(ours)(z), jax.grad(theirs)(z), rtol=1e-4)
    assert_close(fad.jvp(ours, (z,), (z,))[1], jax.jvp(theirs, (z,), (z,))[1], rtol=1e-4)
    assert_close(
        fad.jvp(fad.grad(ours), (z,), (z,))[1],
        jax.jvp(jax.grad(theirs), (z,), (z,))[1].conj(),
        rtol=1e-4,
    )


def test_custom_rules_that_call_their_own_function():
    @fad.custom_rules
    def double(x):
        return 2.0 * x

    @fad.custom_rules
    def product(x, y):
        return x * y

    @fad.custom_rules
    def twice(x):
        return 2.0 * x

    double.defjvp(lambda primals, tangents: (double(*primals), double(*tangents)))
    product.defjvps(lambda t, out, x, y: product(t, y), lambda t, out, x, y: product(x, t))
    twice.defvjp(lambda x: (twice(x), None), lambda _, g: (twice(g),))
    for f, reference in ((double, lambda x: 2.0 * x), (twice, lambda x: 2.0 * x)):
        check(f, reference, X)
    assert_close(fad.grad(lambda x: product(x, x).sum())(X), 2.0 * X)
    assert_close(fad.hessian(lambda x: product(x, x).sum())(X), 2.0 * jnp.eye(3))


def test_an_operation_in_its_own_rule():
    product = fad.extend.operation(
        jvp=lambda p, t: (product(*p), product(t[0], p[1]) + product(p[0], t[1]))
    )(lambda x, y: x * y)
    check(product, lambda x, y: x * y, X, X + 1.0)


# In compiled code, and where lanes are mapped over

WAYS = {
    "jit": (lambda f, t: fad.jit(f)(t), lambda f, t: jax.jit(f)(t)),
    "scan": (
        lambda f, t: fad.lax.scan(lambda c, x: (c, f(x)), 0.0, t)[1],
        lambda f, t: jax.lax.scan(lambda c, x: (c, f(x)), 0.0, t)[1],
    ),
    "fori_loop": (
        lambda f, t: fad.lax.fori_loop(0, 3, lambda _, c: f(c) / 2.0, 2.0 * t),
        lambda f, t: jax.lax.fori_loop(0, 3, lambda _, c: f(c) / 2.0, 2.0 * t),
    ),
    "cond": (
        lambda f, t: fad.lax.cond(True, f, lambda x: x, t),
        lambda f, t: jax.lax.cond(True, f, lambda x: x, t),
    ),
    "checkpoint": (lambda f, t: fad.checkpoint(f)(t), lambda f, t: jax.checkpoint(f)(t)),
    "vmap": (lambda f, t: fad.vmap(f)(t), lambda f, t: jax.vmap(f)(t)),
    "from_jax": (lambda f, t: fad.from_jax(f)(t), lambda f, t: fad.from_jax(f)(t)),
    "linear_transpose": (
        lambda f, t: fad.linear_transpose(f, t)(t)[0],
        lambda f, t: jax.linear_transpose(f, t)(t)[0],
    ),
}


@STYLES
@pytest.mark.parametrize("way", WAYS)
def test_a_call_inside_of_another_transform(way, compiled):
    inside = WAYS[way][compiled]
    F = function(compiled, forward=lambda x: 2.0 * x, jvp=lambda ctx, t: inside(F.apply, t))
    assert_close(fad.grad(cubes(F.apply))(X), 24.0 * X**2)
    assert_close(jax.grad(cubes(F.apply))(X), 24.0 * X**2)
    assert_close(fad.jacrev(fad.grad(cubes(F.apply)))(X), jnp.diag(48.0 * X))


@STYLES
def test_calls_on_other_values_keep_their_rules(compiled):
    lax = jax.lax if compiled else fad.lax

    def rule(ctx, s, t):
        along = lambda c, v: (c, G.apply(v[0]) * H.apply(v[0], v[1]))
        return lax.scan(along, 0.0, (ctx.saved_tensors[0], t))[1]

    def product(ctx, s, t):
        x, y = ctx.saved_tensors
        return H.apply(s, y) + H.apply(x, t)

    H = function(compiled, forward=lambda x, y: x * y, setup_context=keep, jvp=product)
    G = function(compiled, forward=lambda x: 1.0 * x, jvp=lambda ctx, t: 7.0 * t)
    F = function(compiled, forward=lambda x, y: x * y, setup_context=keep, jvp=rule)
    slope = lambda x: fad.grad(lambda y: F.apply(x, y).sum())(jnp.ones(3)).sum()
    assert_close(fad.grad(slope)(X), 8.0 * X)  # of G(x) x


@STYLES
def test_a_vmap_rule_beside_it(compiled):
    vmap = lambda info, in_dims, x: (2.0 * x, in_dims[0])
    F = linear(lambda x: 2.0 * x, compiled, vmap=vmap)
    check(F.apply, lambda x: 2.0 * x, X)


@STYLES
def test_lanes_that_take_different_branches(compiled):
    cond = jax.lax.cond if compiled else fad.lax.cond
    body = lambda p, x: cond(p > 0.0, lambda v: v / p, lambda v: 2.0 * v, x)
    F = function(
        compiled,
        forward=body,
        setup_context=keep,
        jvp=lambda ctx, _, t: F.apply(ctx.saved_tensors[0], t),
    )
    f = lambda x: (fad.vmap(F.apply)(jnp.array([2.0, 0.0]), x) ** 3).sum()
    assert_close(fad.grad(f)(jnp.stack([X, X])), jnp.stack([0.375 * X**2, 24.0 * X**2]))


def test_a_rule_of_jax_that_calls_a_function():
    f = jax.custom_jvp(lambda x: 2.0 * x)
    F = linear(lambda x: 2.0 * x)
    f.defjvp(lambda primals, tangents: (f(*primals), F.apply(*tangents)))
    assert_close(jax.grad(cubes(f))(X), 24.0 * X**2)
    assert_close(fad.grad(cubes(fad.from_jax(f)))(X), 24.0 * X**2)


# What bodies do


def test_a_body_that_writes_is_transposed_as_a_function():
    def writes(x):
        y, c = fnp.zeros(3), fnp.ones(3)
        y[:] = x
        y *= c
        c += 1.0
        y *= c
        return y

    check(linear(writes).apply, lambda x: 2.0 * x, X)


def test_a_body_that_calls_another_function():
    F = function(forward=lambda x: G.apply(x) * 1.0, jvp=lambda ctx, t: G.apply(t))
    G = function(forward=lambda x: 2.0 * x, jvp=lambda ctx, t: F.apply(t))
    check(F.apply, lambda x: 2.0 * x, X)


def on_the_host(x):
    return fad.tensor(2.0 * np.asarray(x.numpy()))


def by_callback(x):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda v: 2.0 * np.asarray(v), like, x, vmap_method="sequential")


BODIES = pytest.mark.parametrize(
    ("body", "compiled"), [(on_the_host, False), (by_callback, True)], ids=["numpy", "callback"]
)


@BODIES
def test_a_body_that_leaves_jax_names_the_rule_to_write(body, compiled):
    F = linear(body, compiled)
    with pytest.raises(GradientError, match=r"F has no vjp rule.*F is called on a tangent.*Write"):
        fad.grad(cubes(F.apply))(X)


@BODIES
def test_another_function_whose_body_leaves_jax_is_transposed_by_its_rule(body, compiled):
    G = function(compiled, forward=body, jvp=lambda ctx, t: 2.0 * t)
    F = function(compiled, forward=lambda x: 2.0 * x, jvp=lambda ctx, t: G.apply(t))
    assert_close(fad.grad(cubes(F.apply))(X), 24.0 * X**2)


def under_no_grad(x):
    with fad.no_grad():
        return 2.0 * x


DROPPING = {
    "detached": (lambda x: x + x.detach(), False, r"F is called on a tangent.*a detached value"),
    "under no_grad": (under_no_grad, False, r"F is called on a tangent.*under no_grad"),
    "compiled": (fad.jit(under_no_grad), False, r"F is called on a tangent.*under no_grad"),
    "jax_rules": (lambda x: x + jax.lax.stop_gradient(x), True, "F is called on.*or detaches"),
}


@pytest.mark.parametrize("name", DROPPING)
def test_a_body_that_drops_a_part_of_its_result_is_an_error(name):
    body, compiled, message = DROPPING[name]
    F = linear(body, compiled)
    assert_close(fad.jvp(F.apply, (X,), (X,))[1], 2.0 * X)
    with pytest.raises(GradientError, match=message):
        fad.grad(cubes(F.apply))(X)
    G = function(compiled, forward=body, jvp=lambda ctx, t: 2.0 * t)
    F = function(compiled, forward=lambda x: 2.0 * x, jvp=lambda ctx, t: G.apply(t))
    assert_close(fad.grad(cubes(F.apply))(X), 24.0 * X**2)


def test_a_body_may_drop_what_is_not_in_its_result():
    def body(x):
        mask = fnp.ones_like(x.detach())
        with fad.no_grad():
            mask *= 2.0
        return x * mask

    check(linear(body).apply, lambda x: 2.0 * x, X)


@STYLES
def test_calls_on_leaves_of_the_rules_own_keep_their_rules(compiled):
    def rule(ctx, t):
        (x,) = ctx.saved_tensors
        y = x.detach().requires_grad_()
        (slope,) = fad.autograd.grad(G.apply(y).sum(), y)
        (along,) = fad.autograd.grad((H.apply(y, t)).sum(), y, create_graph=True)
        return slope * t + along

    exp = jnp.exp if compiled else fnp.exp
    G = function(compiled, forward=lambda x: exp(x), jvp=lambda ctx, t: 7.0 * t)
    H = function(
        compiled,
        forward=lambda x, y: x * y,
        setup_context=keep,
        jvp=lambda ctx, s, t: 3.0 * (s * ctx.saved_tensors[1] + t * ctx.saved_tensors[0]),
    )
    F = function(forward=lambda x: 10.0 * x, setup_context=keep, jvp=rule)
    assert_close(fad.jvp(F.apply, (X,), (X,))[1], 10.0 * X)
    assert_close(fad.grad(lambda x: F.apply(x).sum())(X), jnp.full(3, 10.0))


@STYLES
def test_one_program_on_a_tangent_and_on_another_value(compiled):
    G = function(compiled, forward=lambda x: x * x, setup_context=keep)
    G.jvp = lambda ctx, t: 5.0 * ctx.saved_tensors[0] * t
    L = linear(lambda x: 2.0 * x, compiled)
    jit = jax.jit if compiled else fad.jit
    g = jit(L.apply)
    F = function(
        compiled,
        forward=lambda x, y: x * y,
        setup_context=keep,
        jvp=lambda ctx, s, t: g(ctx.saved_tensors[0]) * g(t),
    )
    slope = lambda x: fad.grad(lambda y: F.apply(x, y).sum())(jnp.ones(3)).sum()
    assert_close(fad.grad(slope)(X), jnp.full(3, 4.0))


@STYLES
def test_a_rule_that_needs_what_is_to_be_derived_from_it_is_an_error(compiled):
    vjp = jax.vjp if compiled else fad.vjp
    F = function(compiled, forward=lambda x: 2.0 * x, jvp=lambda ctx, t: vjp(F.apply, t)[1](t)[0])
    with pytest.raises(GradientError, match=r"F has no vjp rule.*needs that vjp.*Write a vjp rule"):
        fad.grad(cubes(F.apply))(X)
    jvp = jax.jvp if compiled else fad.jvp
    G = function(compiled, forward=lambda x: 2.0 * x)
    G.vjp = lambda ctx, g: jvp(G.apply, (g,), (g,))[1]
    with pytest.raises(GradientError, match=r"F has no jvp rule.*needs that jvp.*Write a jvp rule"):
        fad.jvp(cubes(G.apply), (X,), (X,))


# Their cost


def program_lines(f):
    return len(jax.jit(f).lower(1.1).as_text().splitlines())


@STYLES
def test_programs_of_derivatives_are_as_large_as_jaxs(compiled):
    def jvp(ctx, a_t, b_t):
        a, x = ctx.saved_tensors
        return F.apply(a, b_t - a_t @ x)

    np_ = jnp if compiled else fnp
    F = function(
        compiled,
        forward=lambda a, b: np_.linalg.solve(a, b),
        setup_context=keep_solution,
        jvp=jvp,
    )
    f = jax.custom_jvp(lambda a, b: jnp.linalg.solve(a, b))

    @f.defjvp
    def rule(primals, tangents):
        (a, b), (a_t, b_t) = primals, tangents
        x = f(a, b)
        return x, f(a, b_t - a_t @ x)

    ours = lambda s: (F.apply(A * (1.0 + s * s), X) ** 2).sum()
    theirs = lambda s: (f(A * (1.0 + s * s), X) ** 2).sum()
    for _ in range(3):
        ours, theirs = jax.grad(ours), jax.grad(theirs)
        assert program_lines(ours) <= 1.2 * program_lines(theirs)
