"""Functions whose rules are traceable are part of compiled backward passes, and are as right there."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import TimesExp
from helpers import assert_close
from replays import exact

import fad
import fad.numpy as fnp
from fad import Function
from fad.errors import GradientError, LevelError
from fad.replay import compiled_backward

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 0.2, -1.0])
TIMES = 6  # enough for a pass to be compiled


@pytest.fixture(autouse=True)
def _fresh():
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        yield


def leaf(x=X):
    return fad.tensor(x, requires_grad=True)


def hits():
    """How often a compiled backward pass has run."""
    return compiled_backward.structures.hits


class ByJax(Function):
    jax_rules = True
    calls = 0

    @staticmethod
    def forward(x, y):
        return x * jnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output, jnp.exp(inputs[1]))

    @staticmethod
    def vjp(ctx, g):
        y, out, e = ctx.saved_tensors
        return g * e, g * out


class Traceable(TimesExp):
    is_traceable = True


class Intermediate(Traceable):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(fnp.exp(inputs[1]), output)

    @staticmethod
    def vjp(ctx, g):
        e, out = ctx.saved_tensors
        return g * e, g * out


class Python(Traceable):
    is_traceable = False


class Attributes(Traceable):
    @staticmethod
    def setup_context(ctx, inputs, output):
        Traceable.setup_context(ctx, inputs, output)
        ctx.note = 1


COMPILED = {"jax_rules": ByJax, "is_traceable": Traceable, "an intermediate": Intermediate}
NODE_BY_NODE = {"Python": Python, "attributes": Attributes}


def net(cls, x, y, m=fnp):
    return m.tanh(cls.apply(m.sin(cls.apply(x, y)), y)).sum()


def expected(x, y):
    f = lambda x, y: x * jnp.exp(y)
    return jnp.tanh(f(jnp.sin(f(x, y)), y)).sum()


@pytest.mark.parametrize("name", [*COMPILED, *NODE_BY_NODE])
def test_backward(name):
    cls = {**COMPILED, **NODE_BY_NODE}[name]
    for k in range(TIMES):
        x, y = leaf(X + 0.1 * k), leaf(Y)
        before = hits()
        net(cls, x, y).backward()
        gx, gy = jax.grad(expected, (0, 1))(X + 0.1 * k, Y)
        assert_close(x.grad, gx)
        assert_close(y.grad, gy)
    assert (hits() > before) is (name in COMPILED)


@pytest.mark.parametrize("name", COMPILED)
def test_a_graph_that_is_kept_and_parts_of_it(name):
    x, y = leaf(), leaf(Y)
    loss = net(COMPILED[name], x, y)
    gx, gy = jax.grad(expected, (0, 1))(X, Y)
    for _ in range(TIMES):
        assert_close(fad.autograd.grad(loss, x, retain_graph=True)[0], gx)
        assert_close(fad.autograd.grad(loss, y, retain_graph=True)[0], gy)
        loss.backward(fad.tensor(2.0), retain_graph=True)
        assert_close(x.grad, 2 * gx)
        x.grad = y.grad = None
    assert hits() > 0
    loss.backward()
    with pytest.raises(GradientError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("name", COMPILED)
def test_transforms_around(name):
    cls = COMPILED[name]
    f = lambda x, y: net(cls, x, y)
    stack = jnp.stack([X, 2 * X, Y])
    for _ in range(TIMES):
        assert_close(fad.grad(f, (0, 1))(X, Y), jax.grad(expected, (0, 1))(X, Y))
        assert_close(
            fad.vmap(fad.grad(f), in_dims=(0, None))(stack, Y),
            jax.vmap(jax.grad(expected), (0, None))(stack, Y),
        )
        assert_close(fad.hessian(f)(X, Y), jax.hessian(expected)(X, Y))
        assert_close(
            fad.jvp(fad.grad(f), (X, Y), (Y, X))[1], jax.jvp(jax.grad(expected), (X, Y), (Y, X))[1]
        )
    assert_close(jax.jit(fad.grad(f))(X, Y), jax.grad(expected)(X, Y))


def test_a_rule_inside_of_a_rule_is_the_users():
    class Three(Function):
        """Its derivative is three times the true one, so that it shows where it is used."""

        jax_rules = True

        @staticmethod
        def forward(x):
            return jnp.sin(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def vjp(ctx, g):
            return 3 * g * jnp.cos(ctx.saved_tensors[0])

    class Outer(Function):
        is_traceable = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def vjp(ctx, g):
            return g * Three.apply(ctx.saved_tensors[0])

    def slope(x):
        return fad.grad(lambda x: Outer.apply(x).sum())(x).sum()

    for _ in range(TIMES):
        assert_close(fad.grad(slope)(X), 3 * jnp.cos(X))


def test_gradients_that_are_none():
    class Half(Traceable):
        @staticmethod
        def vjp(ctx, g):
            y, _ = ctx.saved_tensors
            return g * fnp.exp(y), None

    for _ in range(TIMES):
        x, y, z = leaf(), leaf(Y), leaf()
        (Half.apply(x, y) + z).sum().backward()
        assert_close(x.grad, jnp.exp(Y))
        assert_close(z.grad, jnp.ones(3))
        assert y.grad is None
    assert hits() > 0
    for _ in range(TIMES):
        y = leaf(Y)
        Half.apply(X, y).sum().backward()
        assert y.grad is None


def test_outputs_that_are_not_used_and_the_cotangents_of_others():
    class Pair(Function):
        is_traceable = True

        @staticmethod
        def forward(x):
            return fnp.sin(x), fnp.cos(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*output)

        @staticmethod
        def vjp(ctx, g, h):
            sine, cosine = ctx.saved_tensors
            total = 0.0
            if g is not None:
                total = total + g * cosine
            if h is not None:
                total = total - h * sine
            return total

    for _ in range(TIMES):
        for use, slope in (
            (lambda s, c: s, jnp.cos(X)),
            (lambda s, c: c, -jnp.sin(X)),
            (lambda s, c: s * c, jnp.cos(2 * X)),
        ):
            x = leaf()
            use(*Pair.apply(x)).sum().backward()
            assert_close(x.grad, slope)
    assert hits() > 0


def test_which_gradients_are_wanted():
    seen = []

    class Asked(Traceable):
        @staticmethod
        def vjp(ctx, g):
            seen.append(ctx.needs_input_grad)
            return Traceable.vjp(ctx, g)

    for _ in range(TIMES):
        x, y = leaf(), leaf(Y)
        fad.autograd.grad(Asked.apply(x * 1.0, y * 1.0).sum(), x)
    assert set(seen) == {(True, False)}


def test_what_cannot_be_traced_runs_node_by_node():
    class Host(Traceable):
        @staticmethod
        def vjp(ctx, g):
            y, out = ctx.saved_tensors
            return g * fnp.exp(y) * (2.0 if float(y.sum()) > 0 else 1.0), g * out

    for _ in range(TIMES):
        x, y = leaf(), leaf(Y)
        Host.apply(x, y).sum().backward()
        assert_close(x.grad, 2 * jnp.exp(Y))
    assert hits() == 0

    class Fails(Traceable):
        @staticmethod
        def vjp(ctx, g):
            raise KeyError("in the rule")

    for _ in range(TIMES):
        with pytest.raises(KeyError, match="in the rule"):
            Fails.apply(leaf(), Y).sum().backward()


def test_hooks_and_writes_are_noticed():
    def ready():
        x, y = leaf(), leaf(Y)
        return x, y * 1.0, x

    for _ in range(TIMES):
        x, y, _ = ready()
        Traceable.apply(x, y).sum().backward()
    x, y, _ = ready()
    out = Traceable.apply(x, y)
    out.grad_fn.register_prehook(lambda grads: (10 * grads[0],))
    out.sum().backward()
    assert_close(x.grad, 10 * jnp.exp(Y))
    x, y, _ = ready()
    out = Traceable.apply(x, y)
    with fad.no_grad():
        y.mul_(2.0)
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        out.sum().backward()


def test_static_arguments_are_part_of_the_structure():
    class Power(Function):
        jax_rules = True

        @staticmethod
        def forward(x, n):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.n = inputs[1]

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1), None

    for _ in range(TIMES):
        for n in (2, 3):
            x = leaf()
            Power.apply(x, n).sum().backward()
            assert_close(x.grad, n * X ** (n - 1))
    assert hits() > 0


def test_programs_refer_to_no_values():
    kept = []
    for k in range(TIMES):
        x, y = leaf(np.asarray(X) + k), leaf(Y)
        out = Intermediate.apply(x, y)
        kept += [weakref.ref(out), weakref.ref(out.grad_fn)]
        out.sum().backward()
        del out, x, y
    assert hits() > 0
    gc.collect()
    assert all(r() is None for r in kept)


def test_rules_that_draw_random_numbers_run_node_by_node():
    class Drop(Function):
        is_traceable = True

        @staticmethod
        def forward(x, key):
            return x * fad.random.normal(key, x.shape)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            x, key = ctx.saved_tensors
            return g * fad.random.normal(key, x.shape), None

    class Late(Drop):
        @staticmethod
        def forward(x, key):
            return x * 1.0

    key, batch = jax.random.key(0), jnp.stack([X, X])
    for _ in range(TIMES):
        for randomness, same in (("same", True), ("different", False)):
            value, slope = fad.vmap(
                fad.value_and_grad(lambda x: Drop.apply(x, key).sum()), randomness=randomness
            )(batch)
            assert_close((slope * batch).sum(1), value)
            assert bool(jnp.allclose(slope[0], slope[1])) is same
        with pytest.raises(LevelError, match="a key that all lanes share"):
            fad.vmap(fad.grad(lambda x: Late.apply(x, key).sum()))(batch)
        assert_close(
            fad.grad(lambda x: Late.apply(x, key).sum())(X), jax.random.normal(key, X.shape)
        )


def test_a_pass_to_some_of_the_leaves_frees_what_it_runs_and_no_more():
    """A node that leads to none of the inputs keeps what it has saved, as in the engine."""

    def step():
        a, b, c = (
            fad.tensor(np.arange(1.0, 4.0, dtype=np.float32), requires_grad=True) for _ in "abc"
        )
        inner = fnp.sin(c) * c
        loss = (a * inner).sum()
        found = fad.autograd.grad(loss, [a, b], allow_unused=True)
        with pytest.raises(GradientError, match="a second time"):
            fad.autograd.grad(loss, [a])
        return found[0], *fad.autograd.grad(inner.sum(), [c])

    with fad.autograd.compiled(False):
        expected = step()
    with fad.autograd.compiled(True, wait=True):
        for _ in range(4):
            assert exact(step()) == exact(expected)
