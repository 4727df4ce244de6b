"""Steps of the eager tape: but for the time, they are those of single operations."""

from __future__ import annotations

import copy
import pickle
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from replays import (
    Table,
    compiled_all,
    hits,
    in_thread,
    info,
    law,
    modes_of,
    outcome,
    ready,
    same,
)

import fad
import fad.numpy as fnp
from fad.core.level import state
from fad.replay import inputs, policy, states

X = np.array([0.5, -0.75, 1.5, 2.0], np.float32)
ONES = jnp.ones((2, 4))
pytestmark = pytest.mark.usefixtures("fresh_traces")


STEPS = Table()


@STEPS.steps(X, -X, X + 1.0)
def several_leaves_and_roots(w, b, unused, i):
    h = fnp.tanh(w * 2.0 + b)
    losses = [fnp.sum(h), fnp.sum(h * h * w)]
    fad.autograd.backward(losses)
    return losses


@STEPS.steps(X, X + 1.0, X)
def gradients_by_autograd_grad(w, b, unused, i):
    """With respect to all leaves, in any order, once or twice; then to some of them."""
    loss = fnp.sum(fnp.sin(w) * b) + 0.0 * fnp.sum(fad.stop_gradient(unused))
    calls = [
        lambda: fad.autograd.grad(loss, [w, b]),
        lambda: fad.autograd.grad(loss, [b, w]),
        lambda: fad.autograd.grad(loss, [w, b, w]),
        lambda: fad.autograd.grad(loss, [b]),
        lambda: fad.autograd.grad(loss, [w, unused, b], allow_unused=True),
        lambda: fad.autograd.grad(loss, [w, unused, b], materialize_grads=True),
        lambda: fad.autograd.grad(loss, [w, unused, b]),
    ]
    found = calls[0 if i < 8 else i % 7]()
    return found, loss, outcome(loss.backward)


@STEPS.steps(X, X + 1.0, count=18)
def a_leaf_that_no_gradient_comes_to(w, b, i):
    y = fnp.sin(w) * 2.0
    z = y * b
    options = [{"allow_unused": True}, {"materialize_grads": True}, {}][i % 3]
    found = outcome(lambda: fad.autograd.grad(fnp.sum(y), (w, b), **options))
    del z
    return found


@STEPS.steps(X)
def hooks_and_edges_of_inputs(w, i):
    edge = fad.autograd.create_gradient_edge(w)
    seen = []
    handles = {
        8: lambda: w.register_hook(lambda g: 3.0 * g),
        9: lambda: edge.node.register_prehook(lambda gs: seen.append(gs)),
        10: lambda: edge.node.register_hook(lambda gi, go: seen.append(go)),
        11: lambda: w.register_post_accumulate_grad_hook(lambda t: seen.append(t)),
    }
    handle = handles[i]() if i in handles else None
    asked = edge if i == 12 else w
    found = fad.autograd.grad(fnp.sum(fnp.sin(w) * 2.0), asked)
    fnp.sum(fnp.sin(w) * 2.0).backward()
    if handle is not None:
        handle.remove()
    return found, [*seen]


@STEPS.steps(X)
def gradients_are_added_and_hooks_run(w, i):
    seen = []
    for _ in range(2):
        y = fnp.exp(w)
        y.register_hook(lambda g: seen.append(g.tolist()) or 2 * g)
        (y * y).sum().backward()
    fnp.sum(fnp.sin(w)).backward()
    return seen


@STEPS.steps(X)
def a_hook_of_a_leaf_after_a_read(w, i):
    seen = []
    loss = (fnp.sin(w) * w).sum()
    loss.item()
    handle = w.register_hook(lambda g: seen.append(g.clone()) or g * 2.0)
    loss.backward()
    handle.remove()
    return seen, loss, outcome(loss.backward)


@STEPS.steps(X, replayed=False)
def leaves_of_a_pytree(w, i):
    (v,) = jax.tree.leaves(fnp.sin(w))
    (v * 2.0).sum().backward()
    return v


@STEPS.steps(X)
def a_second_pass(w, i):
    loss, linear = fnp.sum(fnp.sin(w) * 2.0), (w + ONES).sum()
    loss.backward()
    linear.backward()
    return loss.grad_fn.name(), outcome(loss.backward), outcome(linear.backward)


@STEPS.steps(X)
def kept_graphs_and_higher_derivatives(w, i):
    loss = fnp.sum(fnp.sin(w) * 2.0)
    if i < 6:
        return [loss, loss.backward()]
    y = fnp.sin(w)
    y.retain_grad()
    out = (y * y).sum()
    out.backward(retain_graph=True)
    out.backward()
    (g,) = fad.autograd.grad(loss, w, create_graph=True)
    (h,) = fad.autograd.grad((g * g).sum(), w, create_graph=True)
    h.sum().backward()
    return y.grad, g, h


@STEPS.steps(X, count=20)
def writes_and_views(w, i):
    y = fnp.sin(w) * 2.0
    v = y[1:]
    if i % 4 == 3:
        y[0] = 0.0
        v *= 3.0
    (y * y).sum().backward()
    if i % 5 == 4:
        with fad.no_grad():
            w[0] = 0.1 * i
    return y, v, w.detach()


@STEPS.steps(X)
def a_leaf_that_is_written_to_before_the_pass(w, i):
    y = fnp.tanh(w * ONES)
    (y * 2.0).sum().backward()
    if i > 7:
        with fad.no_grad():
            w.mul_(1.01)
    return [y[0, 0].item(), y.grad_fn.name(), outcome(lambda: y.sum().backward())]


@STEPS.steps(X)
def requires_grad_that_is_assigned(w, i):
    x = fad.tensor(X)
    y = w * x
    if i < 10:
        y.sum().backward()
        return
    x.requires_grad = True
    (y * x).sum().backward()
    p = w * ONES
    y = fnp.tanh(p)
    w.requires_grad = False
    y.sum().backward()
    w.requires_grad = True
    return p, x.grad


@STEPS.steps(X)
def shared_parts(w, i):
    """A pass frees what it has gone through, and no more."""
    h = w + ONES
    a, b, c = fnp.tanh(w * ONES), fnp.sin(w * 2.0).sum(), fnp.tanh(w * 3.0)
    for loss in (a.sum(), b, h.sum(), (h * h).sum(), c.sum()):
        loss.backward()
    return a, b, outcome(lambda: (c * c).sum().backward())


@STEPS.steps(X)
def nodes_after_a_pass(w, i):
    a, b = fnp.split(fnp.exp(w * ONES), [1], axis=1)
    loss = a.sum()
    loss.backward()
    n = loss.grad_fn
    edge = fad.autograd.GradientEdge(n, 0)
    tried = [
        lambda: fad.autograd.grad(loss, w),
        lambda: fad.autograd.backward(edge),
        lambda: b.grad_fn._saved_result,
    ]
    return a.grad_fn is b.grad_fn, n.next_functions != (), n.num_inputs, *map(outcome, tried)


@STEPS.steps(X)
def a_value_that_the_pass_did_not_go_through(w, i):
    y = fnp.tanh(w * ONES)
    other = fnp.take_along_axis(w * ONES, fnp.argsort(y, axis=1), axis=1)
    y.sum().backward()
    (other * other).sum().backward()
    return other


class Triple(fad.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3.0

    @staticmethod
    def backward(ctx, g):
        ORDER.append("Function")
        return g * 3.0


ORDER = []


@STEPS.steps(X, replayed=False)
def nodes_of_functions_come_in_the_order_of_calls(w, i):
    ORDER.clear()
    y = fnp.tanh(w * ONES)
    z = Triple.apply(w)
    if i < 8:
        y.sum().backward()
        return None
    y.register_hook(lambda g: ORDER.append("y"))
    (y.sum() + z.sum()).backward()
    return list(ORDER)


@STEPS.steps(X)
def transforms_and_traces_inside(w, i):
    y = fnp.sin(w)
    inner = fad.grad(lambda x: fnp.sum(fnp.cos(x) * x**3 * y * w))(X)
    rows = fad.vmap(lambda x: x * w * y)(jnp.stack([X, X]))
    traced = jax.jit(lambda v: v * fad.grad(lambda u: (u * y.detach()).sum())(v))(X)
    fnp.sum(inner * rows).backward()
    return traced, inner, rows


@STEPS.steps(X)
def steps_inside_of_transforms(w, i):
    def inner(x):
        (g,) = fad.autograd.grad(fnp.sum(fnp.sin(w) * 2.0), w)
        return fnp.sum(g * x * x)

    fnp.sin(w)  # begun, and left open
    return fad.grad(inner)(X), fad.vmap(inner)(jnp.stack([X, X])), fad.grad(inner)(X)


@STEPS.steps(X)
def settings_of_a_block(w, i):
    y = fnp.sin(w) + jnp.ones(4, jnp.int32)
    with jax.numpy_dtype_promotion("strict"):
        refused = outcome(lambda: fnp.sin(w) + jnp.ones(4, jnp.int32))
        assert refused.startswith("TypePromotionError")
        value = y.tolist()
    with jax.debug_nans(True):
        assert outcome(lambda: (w * 0) / (w * 0)).startswith("FloatingPointError")
        assert outcome(lambda: fnp.log(-fnp.abs(w))).startswith("FloatingPointError")
    y.sum().backward()
    return value, fnp.log(-fnp.abs(w)).detach()


@STEPS.steps(X)
def anomaly_mode_around_the_pass_alone(w, i):
    loss = fnp.log(w * 0.0 - 1.0).sum()
    with fad.autograd.detect_anomaly() if i == 13 else fad.enable_grad():
        return outcome(loss.backward)


@STEPS.steps(X, count=20)
def off_and_on_in_the_middle(w, i):
    y = fnp.sin(w) * 2.0
    with fad.autograd.compiled(False if i % 3 == 2 else state.replaying):
        z = fnp.sin(w) * y
    (z * y).sum().backward()
    return y, z


@STEPS.steps(X, replayed=False)
def an_error_in_the_middle(w, i):
    y = fnp.sin(w)
    refused = outcome(lambda: y + jnp.ones(5))
    y.sum().backward()
    return refused


@STEPS.steps(X, replayed=None)
def in_other_threads(w, i):
    """They read what is deferred, compute with it, and finish the step."""
    y = fnp.sin(w) * 2.0
    z = y * w
    values = in_thread(lambda: (z.tolist(), y.tolist()))
    in_thread((z.sum() if i % 2 else y.sum()).backward)
    made = in_thread(lambda: fnp.sin(w) * 2.0)
    in_thread(lambda: fnp.sum(made * 1.0).backward())
    return values, made


@STEPS.steps(X)
def an_operand_that_another_thread_changes(w, i):
    def scale():
        with fad.no_grad():
            w.mul_(1.5)

    y = fnp.tanh(w * ONES)
    if i >= 10:
        in_thread(scale)
        return y[0, 0].item()
    y.sum().backward()


@STEPS.steps(X, replayed=None)
def what_is_saved_and_another_thread_changes(w, i):
    x = fad.tensor(X)
    loss = (w * x).sum()
    in_thread(x.zero_)
    loss.backward()


@STEPS.steps(X, count=40)
def short_and_long(w, i):
    y = w
    for _ in range((1, 12, 2, 12)[i % 4]):
        y = fnp.sin(y)
    y.sum().backward()
    return y


@STEPS.steps(X, count=36)
def steps_that_are_new(w, i):
    """Twelve loops of which none is like another one, then one of them again."""
    draw = random.Random(i if i < 12 else 0)
    for _ in range(6):
        w = draw.choice([fnp.sin, fnp.tanh, fnp.exp, fnp.negative])(w) * 0.5
    value = w.sum()
    value.backward()
    return value


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_as_without_replay(name):
    run, replayed = STEPS[name]
    law(run, replayed, calls=2, modes=modes_of(name))


LARGEST = 1 << 14  # in place of `inputs.LARGE`, so that the test takes less time


@pytest.mark.parametrize("size", [1, 4_000, LARGEST, LARGEST + 1])
def test_arrays_of_all_sizes(size, monkeypatch):
    for module in (inputs, states):
        monkeypatch.setattr(module, "LARGE", LARGEST)

    @(table := Table()).steps(np.linspace(0.0, 1.0, size, dtype=np.float32), X, count=6)
    def step(w, small, i):
        y = w * 2
        ((y * y).mean() + (fnp.sin(y).mean() * fnp.tanh(small)).sum()).backward()

    law(table["step"][0], size <= LARGEST, calls=1)


def test_training_against_jax():
    def loss(m, w, x):
        return (m.tanh(w * x) ** 2).sum() + (w * 0.1).sum()

    w, expected = leaf(X), jnp.asarray(X)
    for k in range(12):
        loss(fnp, w, X + k).backward()
        with fad.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        expected = expected - 0.1 * jax.grad(lambda w, k=k: loss(jnp, w, X + k))(expected)
        compiled_all()
        if k == 7:
            before, compiled = hits(), info("compiled")
    same(w.detach(), expected)
    assert hits() >= before + 4 and info("compiled") == compiled > 0


READS = {
    "item": lambda t: t.item(),
    "float": float,
    "repr": lambda t: float(repr(t).split("(")[1].split(",")[0]),
    "numpy": lambda t: np.asarray(t.detach()),
    "array": lambda t: t.array,
    "bool": lambda t: np.sin(X).sum() if bool(t) else 0.0,
    "tolist": lambda t: t.tolist(),
    "a leaf of a pytree in jit": lambda t: jax.jit(lambda v: v + 1)(t.detach()) - 1,
    "compiled code": lambda t: fad.jit(lambda v: v + 1)(t.detach()).array - 1,
    "pickle": lambda t: pickle.loads(pickle.dumps(t.detach())).array,
    "deepcopy": lambda t: copy.deepcopy(t.detach()).array,
    "dlpack": lambda t: jnp.from_dlpack(t.detach()),
    "block": lambda t: t.block_until_ready().array,
}


@pytest.mark.parametrize("name", READS)
def test_every_way_to_read(name):
    w = leaf(X)
    f = ready(lambda: fnp.sin(w).sum())
    for _ in range(3):
        w.grad = None
        t = f()
        assert t._lazy is not None
        assert (t.shape, t.ndim, t.dtype, t.version) == ((), 0, "float32", 0)
        assert t.requires_grad and not t.is_leaf
        np.testing.assert_allclose(READS[name](t), np.sin(X).sum(), rtol=1e-3)
        t.backward()
        same(w.grad, np.cos(X))


def test_reading_a_leaf_ends_the_trace_of_its_step():
    w = leaf(X)
    f = ready(lambda: fnp.sum(fnp.sin(w) * 2.0))
    loss, w.grad = f(), None
    assert state.trace is not None and w.array is not None and state.trace is None
    loss.backward()
    same(w.grad, 2.0 * jnp.cos(X))


def test_new_shapes_in_the_middle_and_more_operations_than_a_segment():
    w = leaf(X)
    f = ready(lambda: fnp.sin(w) * 0.5)
    for n in (3, 4, 40_000):
        w.grad = None
        y = f()
        same(leaf(np.ones(n, np.float32)) * (0.25 * n), np.full(n, np.float32(0.25 * n)))
        y.sum().backward()
        same(w.grad, 0.5 * np.cos(X))
    for _ in range(2 * policy.LONGEST):
        y = fnp.sin(w)
    same(y.detach(), np.sin(X))


def test_settings_that_change_for_good_between_an_operation_and_its_reading():
    w = leaf(X)
    f = ready(lambda: fnp.sin(w) * 2)
    y, before = f(), jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        same(y.detach(), 2 * np.sin(X))
        w.grad = None
        y.sum().backward()
        same(w.grad, 2 * np.cos(X))
        ready(f)
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    w.grad = None
    f().sum().backward()
    same(w.grad, 2 * np.cos(X))


def test_another_thread_reads_under_settings_and_traces_of_its_own():
    w = leaf(X)
    ready(lambda: fnp.sin(w) * 2)
    f = lambda: (fnp.sin(w) * 2, ((w * 2.0) > 0.5).sum())
    for make in (lambda: jax.default_device(jax.devices()[-1]), lambda: jax.enable_x64(True)):
        y, n = f()

        def read(make=make, y=y, n=n):
            with make():
                return y.array, n.array

        for value, count in (in_thread(read), (y.array, n.array)):
            same(value, 2 * np.sin(X))
            assert int(count) == 3 and count.dtype == "int32"
            assert value.devices() == {jax.devices()[0]}
    y, _ = f()
    same(in_thread(lambda: jax.jit(lambda a: a + y.array)(X)), X + 2 * np.sin(X))
    assert not isinstance(y.array, jax.core.Tracer)


DONATIONS = {
    "array": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t.array),
    "pytree": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t),
    "fad.jit": lambda t: fad.jit(lambda a: a + 1, donate_argnums=0)(t),
    "delete": lambda t: t.array.delete(),
}


@pytest.mark.parametrize("name", DONATIONS)
def test_arrays_may_be_given_up_after_an_operation_on_them(name):
    w = leaf(X)
    f = lambda v: (w * 1.0 * v, v * w, v.clone(), v * 2.0)
    ready(lambda: f(fad.tensor(X))[:2])
    for _ in range(2):
        v = fad.tensor(X)
        results = f(v)
        DONATIONS[name](v)
        for ours, theirs in zip(results, (X * X, X * X, X, 2 * X), strict=True):
            same(ours.detach(), theirs)


def test_parameters_and_jacobians_may_be_given_up():
    for _ in range(3):
        w = leaf(X)
        for _ in range(6):
            y = fnp.sin(w) * 2
            y.sum().backward()
            g, w.grad = w.grad, None
        w.array.delete()
        same((y.detach(), g), (2 * np.sin(X), 2 * np.cos(X)))
        for transform in (fad.jacrev, fad.jacfwd):
            transform(lambda x: x)(jnp.asarray(X)).delete()
            same(transform(lambda x: x * 2)(X), 2 * np.eye(4, dtype=np.float32))
