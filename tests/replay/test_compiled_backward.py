"""Compiled backward passes: as those of single nodes, with rules of Functions in them, and kept graphs."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import TimesExp
from helpers import assert_close, leaf
from replays import in_steps, law, modes_of, off, outcome, outcomes, same

import fad
import fad.numpy as fnp
from fad import Function
from fad.errors import GradientError, LevelError
from fad.replay import states

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 0.2, -1.0])
TIMES = 6  # enough for a pass to be compiled


@pytest.fixture(autouse=True)
def _fresh():
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        yield


def hits():
    """How often a compiled backward pass has run."""
    return states.tree.passes


def function(forward, vjp, save=lambda *given: given[:-1], **attributes):
    """A Function that saves ``save(*inputs, output)``; its rule is ``vjp(cotangent, *saved)``."""

    class Made(Function):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*save(*inputs, output))

    members = {"forward": forward, "vjp": lambda ctx, g: vjp(g, *ctx.saved_tensors)}
    return type("Made", (Made,), {n: staticmethod(f) for n, f in members.items()} | attributes)


def of_times_exp(vjp, save, **attributes):
    return function(lambda x, y: x * fnp.exp(y), vjp, save, is_traceable=True, **attributes)


ByJax = function(
    lambda x, y: x * jnp.exp(y),
    lambda g, y, out, e: (g * e, g * out),
    lambda x, y, out: (y, out, jnp.exp(y)),
    jax_rules=True,
)
Intermediate = of_times_exp(lambda g, e, out: (g * e, g * out), lambda x, y, out: (fnp.exp(y), out))


class Traceable(TimesExp):
    is_traceable = True


class Attributes(Traceable):
    @staticmethod
    def setup_context(ctx, inputs, output):
        Traceable.setup_context(ctx, inputs, output)
        ctx.note = 1


Host = of_times_exp(
    lambda g, y, out: (g * fnp.exp(y) * (1.0 if float(y.sum()) > -9 else 0.0), g * out),
    lambda x, y, out: (y, out),
)

COMPILED = {"jax_rules": ByJax, "is_traceable": Traceable, "an intermediate": Intermediate}
NODE_BY_NODE = {"Python": TimesExp, "attributes": Attributes, "a host read": Host}


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
        assert_close((x.grad, y.grad), jax.grad(expected, (0, 1))(X + 0.1 * k, Y))
    assert (hits() > before) is (name in COMPILED)


@pytest.mark.parametrize("name", COMPILED)
def test_a_graph_that_is_kept_and_parts_of_it(name):
    x, y = leaf(X), leaf(Y)
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
    f = lambda x, y: net(COMPILED[name], x, y)
    stack = jnp.stack([X, 2 * X, Y])
    of = lambda m, f: [
        m.grad(f, (0, 1))(X, Y),
        m.vmap(m.grad(f), (0, None))(stack, Y),
        m.hessian(f)(X, Y),
        m.jvp(m.grad(f), (X, Y), (Y, X))[1],
        jax.jit(m.grad(f))(X, Y),
    ]
    for _ in range(TIMES):
        assert_close(of(fad, f), of(jax, expected))


Half = of_times_exp(lambda g, y: (g * fnp.exp(y), None), lambda x, y, out: (y,))
Fails = of_times_exp(lambda g: {}["in the rule"], lambda x, y, out: ())


class Pair(Function):
    """Cotangents of outputs that are not used are None."""

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


class Power(Function):
    """An argument that is part of the structure."""

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


class Asked(Traceable):
    """Which gradients are wanted."""

    seen = []

    @staticmethod
    def vjp(ctx, g):
        Asked.seen.append(ctx.needs_input_grad)
        return Traceable.vjp(ctx, g)


def hooks_and_writes(x, y, i):
    z = y * 1.0
    out = Traceable.apply(x, z)
    if i == 12:
        out.grad_fn.register_prehook(lambda grads: (10 * grads[0],))
    if i == 13:
        with fad.no_grad():
            z.mul_(2.0)
    out.sum().backward()


def some_leaves(x, y, i):
    """A node that leads to none of the inputs keeps what it has saved, as in the engine."""
    c = leaf(X)
    inner = fnp.sin(c) * c
    loss = (x * inner).sum()
    found = fad.autograd.grad(loss, [x, y], allow_unused=True)
    again = outcome(lambda: fad.autograd.grad(loss, [x]))
    return *found, again, fad.autograd.grad(inner.sum(), [c])


STEPS = {
    "a gradient that is None": lambda x, y, i: (Half.apply(x, y) + x).sum().backward(),
    "and no other": lambda x, y, i: Half.apply(X, y).sum().backward(),
    "outputs": lambda x, y, i: [
        use(*Pair.apply(x)).sum().backward()
        for use in (lambda s, c: s, lambda s, c: c, lambda s, c: s * c)
    ],
    "static arguments": lambda x, y, i: [Power.apply(x, n).sum().backward() for n in (2, 3)],
    "a rule that fails": lambda x, y, i: Fails.apply(x, y).sum().backward(),
    "gradients that are wanted": lambda x, y, i: [
        fad.autograd.grad(Asked.apply(x * 1.0, y * 1.0).sum(), x),
        {*Asked.seen} == {(True, False)},
    ],
    "hooks and writes": hooks_and_writes,
    "some leaves": some_leaves,
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_as_without_replay(name):
    law(in_steps(STEPS[name], X, Y), calls=2, modes=modes_of(name))
    assert hits() > 0 or name == "a rule that fails"


def test_a_rule_inside_of_a_rule_is_the_users():
    """It is three times the true derivative, so that it shows where it is used."""
    three = function(jnp.sin, lambda g, x: 3 * g * jnp.cos(x), jax_rules=True)
    outer = function(lambda x: x * x, lambda g, x: g * three.apply(x), is_traceable=True)
    slope = lambda x: fad.grad(lambda x: outer.apply(x).sum())(x).sum()
    for _ in range(TIMES):
        assert_close(fad.grad(slope)(X), 3 * jnp.cos(X))


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


def test_a_kept_graph_that_leads_back_to_its_root_is_collected():
    kept = []
    for _ in range(2):
        x = leaf(X)
        fnp.sum(fnp.sin(x) * x).backward(create_graph=True)
        for _ in range(TIMES):  # a cycle: from the root to x, and from there by its .grad
            fad.autograd.grad(x.grad, x, fad.tensor(Y), retain_graph=True)
        kept.append(weakref.ref(x))
        del x
    assert hits() > 0
    gc.collect()
    assert all(r() is None for r in kept)


def test_rules_that_draw_random_numbers_run_node_by_node():
    draw = lambda x, key: x * fad.random.normal(key, x.shape)
    rule = lambda g, x, key: (draw(g, key), None)
    drop = function(draw, rule, is_traceable=True)
    late_drop = function(lambda x, key: x * 1.0, rule, is_traceable=True)
    key, batch = jax.random.key(0), jnp.stack([X, X])
    late = lambda x: late_drop.apply(x, key).sum()
    for _ in range(TIMES):
        for randomness, equal in (("same", True), ("different", False)):
            value, slope = fad.vmap(
                fad.value_and_grad(lambda x: drop.apply(x, key).sum()), randomness=randomness
            )(batch)
            assert_close((slope * batch).sum(1), value)
            assert bool(jnp.allclose(slope[0], slope[1])) is equal
        with pytest.raises(LevelError, match="a key that all lanes share"):
            fad.vmap(fad.grad(late))(batch)
        assert_close(fad.grad(late)(X), jax.random.normal(key, X.shape))


# Kept graphs: the layout of a pass is used as long as it is valid.


class Graph:
    """Two leaves, what is computed of them, and what hooks have seen."""

    def __init__(self):
        self.w, self.b = leaf(X), leaf(X + 1)
        self.product = self.w * self.b
        self.tanh = fnp.tanh(self.product)
        self.row = self.tanh[1:]
        self.loss = (self.tanh * self.w).sum() + (self.row**2).sum()
        self.seen = []

    def passes(self, **options):
        """The gradients of a pass that keeps the graph, or its error; and what hooks saw in it."""
        self.w.grad = self.b.grad = None
        self.seen.clear()
        failed = outcome(lambda: self.loss.backward(retain_graph=True, **options))
        return [failed, *outcomes(self.w.grad, self.b.grad, self.seen)]

    def note(self, *args):
        """A hook."""
        self.seen.append(args)


def write(g):
    with fad.no_grad():
        g.w.mul_(2.0)


def raw_hooks(g):
    node = (g.tanh * g.w).grad_fn.next_functions[0][0]
    node._raw_saved_result.register_hooks(lambda t: t * 3, lambda t: t / 2)


EVENTS = {
    "nothing": lambda g: None,
    "a hook on a value": lambda g: g.tanh.register_hook(lambda v: v * 2),
    "a hook that is gone": lambda g: g.tanh.register_hook(lambda v: v * 2).remove(),
    "a hook on a leaf": lambda g: g.w.register_hook(lambda v: v * 2),
    "a hook after a leaf": lambda g: g.w.register_post_accumulate_grad_hook(
        lambda t: g.seen.append(t.grad.clone())
    ),
    "a hook before a node": lambda g: g.tanh.grad_fn.register_prehook(g.note),
    "a hook after a node": lambda g: g.product.grad_fn.register_hook(g.note),
    "a hook on the last node": lambda g: g.loss.grad_fn.register_hook(g.note),
    "a retained gradient": lambda g: g.product.retain_grad(),
    "a write to a leaf": write,
    "a write to a saved output": lambda g: g.tanh.add_(1.0),
    "a write to a view of one": lambda g: g.row.add_(1.0),
    "a part that is freed": lambda g: g.tanh.sum().backward(),
    "a leaf that needs nothing any more": lambda g: g.b.requires_grad_(False),
    "hooks on a saved value": raw_hooks,
    "a number set by hand": lambda g: g.tanh.grad_fn._set_sequence_nr(10**9),
}


@pytest.mark.parametrize("name", EVENTS)
def test_what_changes_in_a_graph_is_seen_by_the_next_pass(name):
    graph, other = Graph(), Graph()
    with off():
        before = other.passes()
    for _ in range(TIMES):
        assert graph.passes() == before
    assert hits() > 0
    EVENTS[name](graph)
    EVENTS[name](other)
    with off():
        expected = other.passes()
    for _ in range(3):
        assert graph.passes() == expected


def test_other_ends_are_other_passes():
    graph, x = Graph(), leaf(X)
    first, second = fnp.split(x * x, [1])
    y, slope = fnp.sin(x) * x, jnp.cos(X) * X + jnp.sin(X)
    both = graph.passes()
    grad = lambda *args: fad.autograd.grad(*args, retain_graph=True)[0]
    for k in range(TIMES):
        same([grad(graph.loss, graph.w), grad(graph.loss, graph.b)], [graph.w.grad, graph.b.grad])
        rest = 2 * np.asarray(graph.row.detach().array)
        same(grad(graph.loss, graph.tanh), X + np.float32([0, *rest]))
        same(grad(y, x, fad.tensor(X * k)), slope * X * k)
        for part, ends in ((first, [1.0, 0.0, 0.0]), (second, [0.0, 1.0, 1.0])):
            same(grad(part.sum(), x), 2 * X * jnp.array(ends))
            same(grad(part, x, fad.tensor([1.0] * part.size)), 2 * X * jnp.array(ends))
        assert graph.passes() == both
    expected = graph.b.grad
    graph.passes(inputs=[graph.b])
    assert graph.w.grad is None
    same(graph.b.grad, expected)
    graph.loss.backward()
    with pytest.raises(GradientError, match="a second time"):
        graph.loss.backward()


def test_a_function_that_is_compiled_anew_is_the_same_program():
    f = fad.grad(lambda x: fnp.sum(fad.scipy.special.gammainc(2.0, x)))
    with fad.autograd.profile() as profile:
        outs = [fad.jit(lambda x: f(x))(Y) for _ in range(TIMES)]
    assert all([(out == outs[0]).all() for out in outs])
    assert {e.kind for e in profile.events()} & {"program"} == set()
