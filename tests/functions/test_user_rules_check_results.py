"""What rules return: what is accepted, what is cast, and errors that name the rule."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: x, r"must return a pair \(output, out_dims\)"),
        (lambda x: (x, 2), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 2"),
        (lambda x: (x, 1), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 1"),
        (lambda x: (x, (0, 0)), r"out_dims must be"),
        (lambda x: (x, "0"), r"out_dims '0'"),
    ],
)
def test_what_a_vmap_rule_returns_is_checked(returned, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def vmap(info, in_dims, x):
            return returned(x)

    with pytest.raises(RuleError, match=rf"Bad\.vmap:? ?.*{message}"):
        fad.vmap(Bad.apply)(jnp.stack([X, Y]))


def returning(value, n_out=1):
    """A Function of (x, tree) with ``n_out`` outputs whose vjp returns ``value(g)``."""

    class Bad(fad.Function):
        @staticmethod
        def forward(x, tree):
            out = x * tree["w"]
            return out if n_out == 1 else (out,) * n_out

        @staticmethod
        def vjp(ctx, g):
            return value(g)

    return lambda x, w: Bad.apply(x, {"w": w})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda g: g, r"Bad\.vjp returned 1 gradients, expected 2: .*\(x, tree\)"),
        (lambda g: (g, None, g), r"Bad\.vjp returned 3 gradients, expected 2"),
        (
            lambda g: (g.sum(), None),
            r"the gradient for argument 'x' has shape \(\), expected \(3,\)",
        ),
        (lambda g: (None, {"w": g[:2]}), r"argument 'tree' has shape \(2,\), expected \(3,\)"),
        (
            lambda g: (None, {"v": g}),
            r"argument 'tree' must have the structure \{'w': \*\}, got \{'v'",
        ),
        (lambda g: (None, [g]), r"argument 'tree' must have the structure"),
        (
            lambda g: ("g", None),
            r"argument 'x' must be an array of shape \(3,\) or None, got str 'g'",
        ),
    ],
)
def test_what_a_vjp_returns_is_checked(value, message):
    f = returning(value)
    with pytest.raises(
        RuleError, match=rf"Bad\.vjp.*{message}" if "Bad" not in message else message
    ):
        fad.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)
    with pytest.raises(RuleError, match=message):
        f(leaf(X), Y).sum().backward()
    with pytest.raises(RuleError, match=message):
        jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)


def test_a_vjp_with_another_number_of_outputs_says_so():
    f = returning(lambda g: (g, None), n_out=2)
    with pytest.raises(
        RuleError, match=r"Bad\.vjp takes 2 arguments, but is called with ctx and 2"
    ):
        fad.grad(lambda x: f(x, Y)[0].sum())(X)


def test_trailing_nones_and_lists_of_gradients_are_accepted():
    for value in (lambda g: (g, None, None, None), lambda g: [g, None]):
        assert_close(fad.grad(lambda x, f=returning(value): f(x, Y).sum())(X), jnp.ones(3))


def test_one_pytree_argument_takes_its_gradient_with_or_without_a_tuple_around():
    def make(value):
        class One(fad.Function):
            @staticmethod
            def forward(pair):
                return pair[0] * pair[1]

            @staticmethod
            def vjp(ctx, g):
                return value(g)

        return lambda x, y: One.apply((x, y)).sum()

    for value in (lambda g: (g, 2 * g), lambda g: ((g, 2 * g),), lambda g: [(g, 2 * g)]):
        assert_close(fad.grad(make(value), (0, 1))(X, Y), (jnp.ones(3), jnp.full(3, 2.0)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda t: t.sum(), r"the tangent of output 0 has shape \(\), expected \(3,\)"),
        (lambda t: "t", r"the tangent of output 0 must be an array"),
        (
            lambda t: (t, t),
            r"the tangent of output 0 must be an array of shape \(3,\) or None, got tuple",
        ),
    ],
)
def test_what_a_jvp_returns_is_checked(value, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def jvp(ctx, x_t):
            return value(x_t)

    for push in (
        lambda: fad.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.linearize(Bad.apply, X)[1](V),
        lambda: jax.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.grad(lambda x: Bad.apply(x).sum())(X),
    ):
        with pytest.raises(RuleError, match=rf"Bad\.jvp: {message}"):
            push()


def test_gradients_and_tangents_are_cast_to_the_dtype_of_their_primal():
    class Casts(fad.Function):
        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def vjp(ctx, g):
            return fnp.ones(3, jnp.int32) * 2

        @staticmethod
        def jvp(ctx, x_t):
            return x_t.astype(jnp.float32) + 1j * x_t.astype(jnp.float32)

    half = X.astype(jnp.float16)
    for grad in (fad.grad, jax.grad):
        assert_close(grad(lambda x: Casts.apply(x).sum())(half), jnp.full(3, 2, jnp.float16))
    for jvp in (fad.jvp, jax.jvp):
        assert jvp(Casts.apply, (half,), (half,))[1].dtype == jnp.float16


def widening(**members):
    """x y, without a sum in its vjp."""

    class Product(fad.Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    return type("Product", (Product,), members)


@functools.cache
def products(shape):
    """Operands of x * y * x, lanes of them, and its gradients: of one, of lanes, of all lanes, and twice."""
    x = jnp.arange(1.0, 7.0).reshape(2, 3)
    y = jnp.linspace(0.5, 2.0, max(1, np.prod(shape, dtype=int))).reshape(shape)
    xs, ys = jnp.stack([x, 2 * x]), jnp.stack([y, y - 1])
    plain = lambda x, y: (x * y * x).sum()
    every = lambda x, ys: jax.vmap(plain, (None, 0))(x, ys).sum()
    squares = lambda y: (jax.grad(plain, 1)(x, y) ** 2).sum() + plain(x, y) ** 2

    @jax.jit
    def gradients(x, y, xs, ys):
        grad = jax.grad(plain, (0, 1))
        of_all = jax.grad(every, (0, 1))(x, ys)
        return grad(x, y), jax.vmap(grad)(xs, ys), of_all, jax.grad(squares)(y)

    return x, y, xs, ys, *gradients(x, y, xs, ys)


MEMBERS = {"plain": {}, "pure": {"is_traceable": True}, "jax_rules": {"jax_rules": True}}
SHAPES = [(), (1,), (3,), (2, 1), (1, 1)]


@pytest.mark.sweep("kind, shape", [*itertools.product(MEMBERS, SHAPES)], sample=7)
def test_a_gradient_that_is_larger_by_broadcasting_is_summed(kind, shape):
    F = widening(**MEMBERS[kind])
    x, y, xs, ys, expected, of_lanes, of_all, second = products(shape)
    ours = lambda x, y: (F.apply(x, y) * x).sum()
    for _ in range(3):
        a, b = leaf(x), leaf(y)
        ours(a, b).backward()  # the fast path
        assert_close((a.grad, b.grad), expected)
    b = leaf(y)
    (F.apply(x=x, y=b) * x).sum().backward()  # the general path
    assert_close(b.grad, expected[1])
    for lib in (fad, jax):
        assert_close(lib.grad(ours, (0, 1))(x, y), expected)
        assert_close(lib.jacfwd(ours, 1)(x, y), expected[1])
        assert_close(lib.vmap(lib.grad(ours, (0, 1)))(xs, ys), of_lanes)
        total = lambda x, ys: lib.vmap(ours, (None, 0))(x, ys).sum()
        assert_close(lib.grad(total, (0, 1))(x, ys), of_all)
        assert_close(lib.jit(lib.grad(ours, 1))(x, y), expected[1])
        found = lib.grad(lambda y: (lib.grad(ours, 1)(x, y) ** 2).sum() + ours(x, y) ** 2)
        assert_close(found(y), second)


def test_shapes_that_do_not_broadcast_are_an_error():
    F = widening(vjp=staticmethod(lambda ctx, g: (g[:2], g)), jvp=staticmethod(lambda ctx, t, u: t))
    message = (
        r"argument 'x' has shape \(2,\), expected \(3,\), that of the argument, or a larger one"
    )
    for grad in (fad.grad, jax.grad):
        with pytest.raises(RuleError, match=message):
            grad(lambda x: F.apply(x, Y).sum())(X)
    G = widening(vjp=staticmethod(lambda ctx, g: (g.sum(), g)))
    with pytest.raises(
        RuleError, match=r"has shape \(\), expected \(3,\).*broadcast_to\(g, \(3,\)\)$"
    ):
        fad.grad(lambda x: G.apply(x, Y).sum())(X)
    with pytest.raises(RuleError, match=r"tangent of output 0 has shape \(1,\), expected \(3,\)$"):
        fad.jvp(F.apply, (X[:1], Y), (V[:1], V))


# Outputs that are inputs, or share storage with them. Each body gets (ctx, x, k), where k has no gradient.
BODIES = {
    "the input": lambda ctx, x, k: x,
    "the other input": lambda ctx, x, k: k,
    "a view": lambda ctx, x, k: x[:1],
    "two views": lambda ctx, x, k: (x[:1], x[1:]),
    "a view of the other": lambda ctx, x, k: k[:1],
    "twice": lambda ctx, x, k: (x, x),
    "the other twice": lambda ctx, x, k: (k, k, x),
    "both": lambda ctx, x, k: (k, x),
    "twice a result": lambda ctx, x, k: (lambda y: (y, y))(x * 2),
    "a view of a result": lambda ctx, x, k: (lambda y: (y, y[:1]))(x * 2),
    "two views of a result": lambda ctx, x, k: (lambda y: (y[:1], y, y[1:]))(x * 2),
    "detached": lambda ctx, x, k: x.detach(),
    "a view detached": lambda ctx, x, k: x[:1].detach(),
    "the other detached": lambda ctx, x, k: k.detach(),
    "without derivative": lambda ctx, x, k: (ctx.mark_non_differentiable(x), (x, x * 2))[1],
    "dirty": lambda ctx, x, k: (x.mul_(2), ctx.mark_dirty(x), (x, x[:1]))[2],
    "dirty, and a view before": lambda ctx, x, k: (x.mul_(2), ctx.mark_dirty(x), (x[:1], x))[2],
    "the other dirty": lambda ctx, x, k: (k.mul_(2), ctx.mark_dirty(k), (k, x * k))[2],
    "both dirty": lambda ctx, x, k: (x.mul_(2), k.mul_(3), ctx.mark_dirty(x, k), (k, x))[3],
}


def aliased(lib, function, grad, body):
    """What outputs of a body are, and what writes to them and to the arguments do, as data."""

    class A(function):
        @staticmethod
        def forward(ctx, x, k):
            return body(ctx, x, k)

        @staticmethod
        def backward(ctx, *gs):
            # The gradient says to which output it belongs.
            total = sum([(g * 0 + g.sum()).sum() * (i + 1) for i, g in enumerate(gs)])
            return total * lib.tensor([1.0, 10.0]), None

    def attempt(f):
        try:
            return f()
        except RuntimeError:
            return "RuntimeError"

    def gradient(y, x):
        g = grad(y.sum(), x, allow_unused=True)[0]
        return None if g is None else g.tolist()

    def observed(action):
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        a, k = x * 1, lib.tensor([5.0, 7.0])
        ys = A.apply(a, k)
        ys = ys if isinstance(ys, tuple) else (ys,)

        def values():
            action(a, k, ys)
            return [t.tolist() for t in (a, k, *ys)]

        base = lambda y: y.base if lib is fad else y._base
        bases = [base(y) is not None and (base(y) is a, base(y) is k) for y in ys]
        facts = [(y is a, y is k, y is ys[-1], y.requires_grad) for y in ys]
        return attempt(values), bases, facts, [attempt(lambda y=y: gradient(y, x)) for y in ys]

    actions = {
        "nothing": lambda a, k, ys: None,
        "argument written": lambda a, k, ys: a.mul_(10),
        "other argument written": lambda a, k, ys: k.mul_(10),
        "output written": lambda a, k, ys: ys[0].mul_(10),
        "last output written": lambda a, k, ys: ys[-1].mul_(10),
    }
    return {name: observed(action) for name, action in actions.items()}


@pytest.mark.parametrize("name", BODIES)
def test_outputs_share_with_inputs_what_they_share_in_torch(torch, name):
    theirs = aliased(torch, torch.autograd.Function, torch.autograd.grad, BODIES[name])
    ours = aliased(fad, fad.Function, fad.autograd.grad, BODIES[name])
    assert ours == theirs


def test_a_change_without_a_mark_stays_inside_also_where_it_is_returned():
    class Scribbles(fad.Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def vjp(ctx, g):
            return 2 * g

    x = leaf(X)
    a = x * 1
    y = Scribbles.apply(a)
    assert y.base is None
    a.mul_(3)
    assert_close(a.detach(), 3 * X)
    assert_close(y.detach(), 2 * X)
    y.sum().backward()
    assert_close(x.grad, jnp.full(3, 2.0))
