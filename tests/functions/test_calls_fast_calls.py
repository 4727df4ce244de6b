"""Calls of Functions on the fast path of the eager tape give what the general code gives, for all bodies."""

from __future__ import annotations

import threading

import jax.numpy as jnp
import numpy as np
import pytest
from functions import TimesExp
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad import Function
from fad.core.replay_protocol import NoReplay, seam
from fad.errors import GradientError, RuleError
from fad.functions import calls
from fad.functions.calls import FunctionOp

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 0.2, -1.0])


def leaf(x=X):
    return fad.tensor(x, requires_grad=True)


@pytest.fixture
def ways(monkeypatch):
    """Which path calls took: the fast path to its end ("fast"), or from there the general one.

    Steps are recorded operation by operation, however often they repeat.
    """
    monkeypatch.setattr(seam, "replay", NoReplay())
    found, left = [], []
    original, leave_node = calls.fast_call, FunctionOp.leave_node

    def call(*args):
        left.clear()
        out = original(*args)
        found.append("not begun" if out is None else "left" if left else "fast")
        return out

    def leave(*args):
        left.append(args)
        return leave_node(*args)

    monkeypatch.setattr(calls, "fast_call", call)
    monkeypatch.setattr(FunctionOp, "leave_node", leave)
    return found


def variant(name, **bodies):
    return type(name, (TimesExp,), {k: staticmethod(f) for k, f in bodies.items()})


def combined(ctx, x, y):
    out = x * fnp.exp(y)
    ctx.save_for_backward(y, out)
    return out


def no_setup(ctx, inputs, output):
    pass


def keeps_more(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output)
    ctx.factor = 1.0
    ctx.saved_data["k"] = 2


def keeps_an_intermediate(ctx, inputs, output):
    ctx.e = fnp.exp(inputs[1])
    ctx.save_for_backward(ctx.e, output)


def by_intermediate(ctx, g):
    e, out = ctx.saved_tensors
    return g * e, g * out


def a_pair(x, y):
    return x * fnp.exp(y), 2.0


def by_pair(ctx, g, _):
    return TimesExp.vjp(ctx, g)


def setup_of_pair(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output[0])


def keeps_numbers(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output, None, 3.0)


def ignores_the_rest(ctx, g):
    y, out = ctx.saved_tensors[:2]
    return g * fnp.exp(y), g * out


def recomputes(ctx, g):
    assert ctx.saved_tensors == ()
    return g, g


PRODUCTS = {
    "setup": (TimesExp, "fast"),
    "one method": (
        type(
            "Combined",
            (Function,),
            {"forward": staticmethod(combined), "vjp": staticmethod(TimesExp.vjp)},
        ),
        "fast",
    ),
    "attributes": (variant("Attributes", setup_context=keeps_more), "left"),
    "an intermediate": (
        variant("Intermediate", setup_context=keeps_an_intermediate, vjp=by_intermediate),
        "left",
    ),
    "a pair": (
        variant("Pair", forward=a_pair, setup_context=setup_of_pair, vjp=by_pair),
        "left",
    ),
    "numbers": (variant("Numbers", setup_context=keeps_numbers, vjp=ignores_the_rest), "left"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_derivatives(name, ways):
    cls, way = PRODUCTS[name]

    def product(x, y):
        out = cls.apply(x, y)
        return out[0] if isinstance(out, tuple) else out

    for _ in range(4):
        x, y = leaf(), leaf(Y)
        out = product(x, y)
        assert ways.pop() == way
        assert out.grad_fn.name() == f"{cls.__name__}Backward"
        assert [n.name() for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2
        gx, gy = fad.autograd.grad(out.sum(), (x, y), create_graph=True)
        assert_close(gx, jnp.exp(Y))
        assert_close(gy, X * jnp.exp(Y))
        (gyy,) = fad.autograd.grad(gy.sum(), y, retain_graph=True)
        assert_close(gyy, X * jnp.exp(Y))
        (out * out).sum().backward()
        assert_close(x.grad, 2 * X * jnp.exp(2 * Y))


def test_one_argument_tracked_and_an_array(ways):
    for x, y, tracked in ((leaf(), Y, 0), (X, leaf(Y), 1), (fad.tensor(X), leaf(Y), 1)):
        seen = []
        cls = variant(
            "Seen",
            setup_context=lambda ctx, i, o, seen=seen: (
                seen.append(ctx.needs_input_grad),
                ctx.save_for_backward(i[1], o),
            ),
        )
        out = cls.apply(x, y)
        assert ways.pop() == "fast"
        assert seen == [(tracked == 0, tracked == 1)]
        out.sum().backward()
        assert_close((x, y)[tracked].grad, (jnp.exp(Y), X * jnp.exp(Y))[tracked])


def test_bodies_run_once_and_on_handles_of_their_own(ways):
    log = []

    def forward(x, y):
        log.append("forward")
        assert not x.requires_grad and x.grad_fn is None
        return x * fnp.exp(y)

    def setup(ctx, inputs, output):
        log.append("setup")
        ctx.save_for_backward(inputs[1], output)

    for extra in (None, keeps_more, keeps_an_intermediate):

        def both(ctx, inputs, output, extra=extra):
            setup(ctx, inputs, output)
            if extra is not None:
                extra(ctx, inputs, output)

        cls = variant("Logged", forward=forward, setup_context=both)
        cls.apply(leaf(), leaf(Y))
        assert log == ["forward", "setup"]
        log.clear()
    assert ways == ["fast", "left", "left"]


def test_what_returns_an_input_or_a_view_of_it(ways):
    def setup(ctx, inputs, output):
        pass

    def vjp(ctx, g):
        return 3 * g, None

    same = variant("Same", forward=lambda x, y: x, setup_context=setup, vjp=vjp)
    row = variant(
        "Row",
        forward=lambda x, y: x[1:],
        setup_context=setup,
        vjp=lambda ctx, g: (fnp.concatenate([fnp.zeros(1), 3 * g]), None),
    )
    for cls, expected in ((same, [3.0, 3.0, 3.0]), (row, [0.0, 3.0, 3.0])):
        x = leaf()
        cls.apply(x, Y).sum().backward()
        assert ways.pop() == "left"
        assert_close(x.grad, jnp.array(expected))


def test_an_input_changed_in_place(ways):
    def forward(x, y):
        x *= fnp.exp(y)
        return x

    def setup(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(inputs[1], output)

    cls = variant("Dirty", forward=forward, setup_context=setup)
    w, y = leaf(), leaf(Y)
    x = w * 1.0
    out = cls.apply(x, y)
    assert out is x
    assert "left" in ways
    out.sum().backward()
    assert_close(w.grad, jnp.exp(Y))
    assert_close(y.grad, X * jnp.exp(Y))


def test_marks(ways):
    def setup(ctx, inputs, output):
        ctx.mark_non_differentiable(output)

    cls = variant("Marked", setup_context=setup)
    assert not cls.apply(leaf(), leaf(Y)).requires_grad
    whole = variant("Whole", forward=lambda x, y: (x > y).astype(int), setup_context=no_setup)
    assert not whole.apply(leaf(), leaf(Y)).requires_grad
    assert ways == ["left", "left"]


def test_zeros_that_are_not_made(ways):
    def setup(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    cls = variant("Bare", setup_context=setup, vjp=lambda ctx, g: (g, None))
    x = leaf()
    cls.apply(x, Y).sum().backward()
    assert ways == ["left"]
    assert_close(x.grad, jnp.ones(3))


def test_saved_values_that_are_written_to_later():
    x, y = leaf(), leaf(Y)
    a = y * 1.0
    out = TimesExp.apply(x, a)
    with fad.no_grad():
        a.mul_(2.0)
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_freed_graph_and_a_kept_one():
    x, y = leaf(), leaf(Y)
    out = TimesExp.apply(x, y)
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    assert_close(x.grad, 2 * jnp.exp(Y))
    with pytest.raises(GradientError, match="second time"):
        out.sum().backward()


def test_errors_in_bodies(ways):
    outer = leaf()

    def host(x, y):
        return x * float(y.sum())

    assert_close(variant("Host", forward=host).apply(leaf(), leaf(Y)), X * Y.sum())
    with pytest.raises(RuleError, match="closes over 'outer'"):
        variant("Closure", forward=lambda x, y: x * outer).apply(leaf(), leaf(Y))

    def fails(x, y):
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        variant("Fails", forward=fails).apply(leaf(), leaf(Y))
    assert_close(TimesExp.apply(leaf(), leaf(Y)), X * jnp.exp(Y))
    with pytest.raises(TypeError, match=r"ctx\.save_for_backward: argument 1"):
        variant("Other", forward=lambda x, y: object()).apply(leaf(), leaf(Y))


def test_what_takes_the_general_way(ways):
    x, y = leaf(), leaf(Y)
    with fad.no_grad():
        assert not TimesExp.apply(x, y).requires_grad
    with fad.autograd.detect_anomaly(check_nan=False):
        TimesExp.apply(x, y)
    with fad.autograd.saved_tensors_hooks(lambda v: v, lambda v: v):
        TimesExp.apply(x, y)
    fad.grad(lambda x: TimesExp.apply(x, y).sum())(X)
    fad.vmap(lambda x: TimesExp.apply(x, y[0]))(X)
    base = leaf(jnp.stack([X, X])) * 1.0
    TimesExp.apply(base[0], y)
    assert set(ways) == {"not begun"}
    assert not TimesExp.apply(fad.tensor(X), fad.tensor(Y)).requires_grad


def test_hooks_see_the_node():
    x, y = leaf(), leaf(Y)
    out = TimesExp.apply(x, y)
    seen = []
    out.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    out.register_hook(lambda g: 2 * g)
    out.sum().backward()
    assert seen == [(2, 1)]
    assert_close(x.grad, 2 * jnp.exp(Y))


def test_deferred_values_as_inputs_and_outputs(ways):
    w = leaf()
    for _ in range(6):
        h = fnp.sin(w) * 2.0
        out = TimesExp.apply(h, h)
        fnp.tanh(out).sum().backward()
        h = 2 * np.sin(np.asarray(X))
        slope = (1 - np.tanh(h * np.exp(h)) ** 2) * np.exp(h) * (1 + h) * 2 * np.cos(np.asarray(X))
        assert_close(w.grad, jnp.asarray(slope))
        w.grad = None
    assert "fast" in ways


def test_threads():
    results = {}

    def work(k):
        for _ in range(5):
            x, y = leaf(X * k), leaf(Y)
            TimesExp.apply(x, y).sum().backward()
            results[k] = y.grad

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(1, 5):
        assert_close(results[k], k * X * jnp.exp(Y))


def test_a_host_value_under_a_trace_is_an_error_of_the_body():
    def host(x, y):
        return x * float(y.sum())

    cls = variant("Host", forward=host)
    with pytest.raises(RuleError, match=r"Host\.forward needs concrete values"):
        fad.jit(lambda x: cls.apply(x, x))(X)


@pytest.mark.parametrize("extra", [False, True])
def test_a_body_that_changes_the_argument_itself_is_refused(extra):
    z = leaf() * 1.0

    def forward(x, y):
        with fad.no_grad():
            z.mul_(2.0)
        return x * fnp.exp(y)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)
        if extra:
            ctx.note = 1

    cls = variant("Outside", forward=forward, setup_context=setup)
    with pytest.raises(RuleError, match=r"Outside: a body changed the Tensor that is argument 0"):
        cls.apply(z, Y)
    with pytest.raises(RuleError, match="argument 1"):
        fad.grad(lambda x: cls.apply(x, z).sum())(X)
    other = leaf() * 1.0
    cls.apply(
        other, Y
    ).sum().backward()  # it is not among the arguments: that is the body's own affair


def test_compiled_bodies_take_it_too(ways):
    class Sine(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(jnp.cos(x))
            return jnp.sin(x)

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.saved_tensors[0]

    sine = fad.custom_rules(jnp.sin)
    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))
    for f in (Sine.apply, sine):
        x = leaf()
        f(x).sum().backward()
        assert_close(x.grad, jnp.cos(X))
    assert ways == ["left", "left"]
