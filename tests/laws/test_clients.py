"""Libraries of the JAX ecosystem, running unchanged on Functions and Tensors."""

from __future__ import annotations

import functools

import jax
import jax.flatten_util  # equinox uses it without importing it
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.test_util import check_grads

import fad
import fad.numpy as fnp


class Swish(fad.Function):
    """x sigmoid(x), with rules of its own."""

    @staticmethod
    def forward(x):
        return x / (1.0 + fnp.exp(-x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        s = 1.0 / (1.0 + fnp.exp(-x))
        return g * (s + x * s * (1.0 - s))


class SwishBoth(Swish):
    @staticmethod
    def jvp(ctx, x_t):
        return Swish.vjp(ctx, x_t)


class SwishForward(Swish):
    vjp = None
    jvp = staticmethod(SwishBoth.jvp)


class JaxSwish(Swish):
    jax_rules = True

    @staticmethod
    def forward(x):
        return x * jax.nn.sigmoid(x)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        s = jax.nn.sigmoid(x)
        return g * (s + x * s * (1.0 - s))


KINDS = [Swish, SwishBoth, SwishForward, JaxSwish]
X = jnp.linspace(-2.0, 2.0, 12).reshape(4, 3)
Y = jnp.sin(X.sum(1, keepdims=True))


# optax


def network(params, x, xp, act):
    hidden = act(xp.matmul(x, params["first"]["w"]) + params["first"]["b"])
    return xp.matmul(hidden, params["second"]["w"]) + params["second"]["b"]


def start():
    draw = np.random.default_rng(0)
    layer = lambda n, m: {
        "w": draw.normal(size=(n, m)).astype(np.float32),
        "b": np.zeros(m, np.float32),
    }
    return {"first": layer(3, 5), "second": layer(5, 1)}


def in_plain_jax(optimizer, steps=4):
    loss = lambda p: jnp.mean((network(p, X, jnp, jax.nn.silu) - Y) ** 2)
    params = jax.tree.map(jnp.asarray, start())
    memory = optimizer.init(params)
    for _ in range(steps):
        updates, memory = optimizer.update(jax.grad(loss)(params), memory, params)
        params = jax.tree.map(jnp.add, params, updates)
    return params


OPTIMIZERS = ["adamw", "sgd", "lion", "chained"]


def make_optimizer(name):
    optax = pytest.importorskip("optax", reason="a client of JAX that is not installed")
    if name == "sgd":
        return optax.sgd(0.1, momentum=0.9, nesterov=True)
    if name == "chained":
        return optax.chain(
            optax.clip_by_global_norm(0.5), optax.adam(optax.cosine_decay_schedule(0.1, 9))
        )
    return getattr(optax, name)(0.01)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", ["transform", "jax.jit", "fad.jit", "tape"])
def test_optax_on_pytrees_of_tensors(name, how):
    import optax

    optimizer = make_optimizer(name)
    loss = lambda p: fnp.mean((network(p, X, fnp, Swish.apply) - Y) ** 2)

    def by_transform(params, memory):
        updates, memory = optimizer.update(fad.grad(loss)(params), memory, params)
        return optax.apply_updates(params, updates), memory

    def on_the_tape(params, memory):
        params = jax.tree.map(lambda p: p.detach().requires_grad_(), params, is_leaf=is_tensor)
        loss(params).backward()
        grads = jax.tree.map(lambda p: p.grad, params, is_leaf=is_tensor)
        with fad.no_grad():
            updates, memory = optimizer.update(grads, memory, params)
            return optax.apply_updates(params, updates), memory

    def staged(params, memory):
        # Inside of fad.jit a Tensor is a value to be: what is not fad's is called by from_jax.
        updates, memory = fad.from_jax(optimizer.update)(fad.grad(loss)(params), memory, params)
        return fad.from_jax(optax.apply_updates)(params, updates), memory

    steps = {
        "transform": by_transform,
        "jax.jit": jax.jit(by_transform),
        "fad.jit": fad.jit(staged),
        "tape": on_the_tape,
    }
    params = jax.tree.map(fad.tensor, start())
    memory = optimizer.init(params)
    for _ in range(4):
        params, memory = steps[how](params, memory)
    assert all(is_tensor(p) for p in jax.tree.leaves(params, is_leaf=is_tensor))
    assert_close(params, in_plain_jax(optimizer))


def is_tensor(x):
    return isinstance(x, fad.Tensor)


# equinox, flax


@pytest.mark.parametrize("F", KINDS)
def test_an_equinox_model_trains_through_a_function(F):
    eqx = pytest.importorskip("equinox", reason="a client of JAX that is not installed")
    optax = pytest.importorskip("optax", reason="a client of JAX that is not installed")

    def train(activation):
        model = eqx.nn.MLP(3, 1, 8, 2, activation=activation, key=jax.random.key(0))
        optimizer = optax.adam(0.1)
        memory = optimizer.init(eqx.filter(model, eqx.is_array))
        loss = lambda model: jnp.mean((jax.vmap(model)(X) - Y) ** 2)

        @eqx.filter_jit
        def step(model, memory):
            value, grads = eqx.filter_value_and_grad(loss)(model)
            updates, memory = optimizer.update(grads, memory)
            return eqx.apply_updates(model, updates), memory, value

        values = []
        for _ in range(10):
            model, memory, value = step(model, memory)
            values.append(float(value))
        return values, eqx.filter(model, eqx.is_array)

    ours, theirs = train(F.apply), train(jax.nn.silu)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3)
    assert ours[0][-1] < 0.5 * ours[0][0]
    leaves = jax.tree.leaves
    assert_close(leaves(ours[1]), leaves(theirs[1]), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("F", KINDS)
def test_plain_jit_of_value_and_grad_of_an_equinox_model(F):
    eqx = pytest.importorskip("equinox", reason="a client of JAX that is not installed")
    model = eqx.nn.MLP(3, 1, 8, 1, activation=F.apply, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)

    def loss(params):
        return jnp.mean((jax.vmap(eqx.combine(params, static))(X) - Y) ** 2)

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
    _, slope = jax.jvp(lambda v: loss(unravel(v)), (flat,), (direction,))
    np.testing.assert_allclose(
        jax.flatten_util.ravel_pytree(grads)[0] @ direction, slope, rtol=1e-3, atol=1e-5
    )
    # The module is a JAX function too: fad's transforms and tape take it.
    model_of = fad.from_jax(lambda params: loss(params))
    assert_close(jax.tree.leaves(fad.grad(model_of)(params)), jax.tree.leaves(grads))


def test_a_flax_model_trains_through_a_function():
    nn = pytest.importorskip("flax.linen", reason="a client of JAX that is not installed")
    nnx = pytest.importorskip("flax.nnx", reason="a client of JAX that is not installed")

    class Model(nn.Module):
        act: object

        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(self.act(nn.Dense(8)(x)))

    def train(act):
        model = Model(act)
        params = model.init(jax.random.key(0), X)
        loss = lambda p: jnp.mean((model.apply(p, X) - Y) ** 2)
        step = jax.jit(jax.value_and_grad(loss))
        values = []
        for _ in range(5):
            value, grads = step(params)
            params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
            values.append(float(value))
        return values, params

    (ours, params), (theirs, expected) = train(Swish.apply), train(nn.silu)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert_close(params, expected, rtol=1e-3)
    # As a fad function: one Primitive, on the tape.
    tracked = jax.tree.map(lambda p: fad.tensor(p, requires_grad=True), params)
    apply = fad.from_jax(Model(Swish.apply).apply)
    ((apply(tracked, X) - Y) ** 2).mean().backward()
    wanted = jax.grad(lambda p: jnp.mean((Model(nn.silu).apply(p, X) - Y) ** 2))(params)
    assert_close(jax.tree.map(lambda p: p.grad, tracked, is_leaf=is_tensor), wanted)

    class Net(nnx.Module):
        def __init__(self, act, rngs):
            self.first, self.second = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
            self.act = act

        def __call__(self, x):
            return self.second(self.act(self.first(x)))

    gradient = nnx.jit(nnx.grad(lambda m: jnp.mean((m(X) - Y) ** 2)))
    ours, theirs = gradient(Net(Swish.apply, nnx.Rngs(0))), gradient(Net(nnx.silu, nnx.Rngs(0)))
    assert_close(jax.tree.leaves(ours), jax.tree.leaves(theirs))


# diffrax, optimistix


def solve(act, rate, adjoint, diffrax):
    term = diffrax.ODETerm(lambda t, y, args: -args * act(y) + jnp.sin(t))
    return diffrax.diffeqsolve(
        term,
        diffrax.Heun(),
        t0=0.0,
        t1=1.0,
        dt0=0.1,
        y0=jnp.array([1.0, -0.5]),
        args=rate,
        adjoint=adjoint,
        stepsize_controller=diffrax.ConstantStepSize(),
    ).ys[-1]


@pytest.mark.sweep(
    "case",
    [
        (Swish, "RecursiveCheckpointAdjoint"),
        (SwishForward, "BacksolveAdjoint"),
        (Swish, "ForwardMode"),
    ],
    sample=1,
)
def test_diffrax_differentiates_through_a_function(case):
    F, adjoint = case
    diffrax = pytest.importorskip("diffrax", reason="a client of JAX that is not installed")
    kind = getattr(diffrax, adjoint)()
    rates = jnp.array([0.7, 1.3])
    ours = lambda rate: solve(F.apply, rate, kind, diffrax)
    theirs = lambda rate: solve(jax.nn.silu, rate, kind, diffrax)
    derive = jax.jacfwd if adjoint == "ForwardMode" else jax.jacrev
    expected = jax.jit(derive(theirs))(rates)
    assert_close(jax.jit(derive(ours))(rates), expected, rtol=1e-3)
    if adjoint == "RecursiveCheckpointAdjoint":
        # As a fad function, on the tape.
        x = fad.tensor(rates, requires_grad=True)
        fad.from_jax(ours)(x).sum().backward()
        assert_close(x.grad, expected.sum(0), rtol=1e-3)


def test_optimistix_solves_and_differentiates_through_a_function():
    optimistix = pytest.importorskip("optimistix", reason="a client of JAX that is not installed")

    def root(act, a):
        """y with y + swish(y) = a."""
        solver = optimistix.Newton(rtol=1e-6, atol=1e-6)
        return optimistix.root_find(lambda y, a: y + act(y) - a, solver, jnp.zeros(2), a).value

    a = jnp.array([0.5, 2.0])
    ours, theirs = (functools.partial(root, f) for f in (Swish.apply, jax.nn.silu))
    for transform in (lambda f: f, jax.jacrev, jax.jacfwd):
        assert_close(transform(ours)(a), transform(theirs)(a), rtol=1e-3)
    rows = jnp.stack([a, 2.0 * a])
    assert_close(
        jax.jit(jax.vmap(jax.jacrev(ours)))(rows),
        jax.jit(jax.vmap(jax.jacrev(theirs)))(rows),
        rtol=1e-3,
    )


# JAX's own checker


@pytest.mark.sweep("F", KINDS, sample=2)
def test_check_grads_up_to_order_three(F):
    with jax.enable_x64(True):
        x = np.array([0.3, -0.8])
        check_grads(F.apply, (x,), order=3, modes=("fwd", "rev"))
        if F is JaxSwish:
            check_grads(jax.vmap(jax.checkpoint(F.apply)), (x,), order=3, modes=("fwd", "rev"))
        assert jax.grad(lambda v: F.apply(v).sum())(x).dtype == np.float64
