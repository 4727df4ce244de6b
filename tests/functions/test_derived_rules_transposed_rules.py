"""Derived rules: a transpose has all by which a result depends on what the rule is given, or is refused."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.autograd.graph import Node
from fad.errors import GradientError

X = jnp.array([1.0, -2.0, 3.0])
V = jnp.array([1.0, 0.5, -2.0])
EXPECTED = jnp.where(X < 0, 0.0, 2.0 * X)


def function_with(rule, kind="vjp", **settings):
    """The square of positive numbers, with a rule of ``x`` and what is given: its derivative is diagonal."""

    def forward(x):
        return (jnp if settings.get("jax_rules") else fnp).where(x < 0, 0.0, x * x)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    rules = {
        "forward": forward,
        "setup_context": setup_context,
        kind: lambda ctx, t: rule(*ctx.saved_tensors, t),
    }
    members = {name: staticmethod(f) for name, f in rules.items()}
    return type("F", (fad.Function,), {**members, **settings}).apply


def whole(x, t):
    return 2.0 * x * t


# Rules that are right, as rules: what they drop is dropped from the graph alone

DROPS = {}
KEEPS = {}


def drops(rule):
    DROPS[rule.__name__] = rule
    return rule


def keeps(rule):
    KEEPS[rule.__name__] = rule
    return rule


@drops
def a_write_under_no_grad(x, t):
    with fad.no_grad():
        t[x < 0] = 0.0
    return whole(x, t)


@drops
def a_write_of_zeros_under_no_grad(x, t):
    t, zeros = whole(x, t), whole(x, t)
    with fad.no_grad():
        zeros.zero_()
    return fnp.where(x < 0, zeros, t)


@drops
def a_write_to_a_view_under_no_grad(x, t):
    view = t[1:2]
    fad.set_grad_enabled(False)
    view.zero_()
    fad.set_grad_enabled(True)
    return whole(x, t)


@drops
def a_write_to_data(x, t):
    t.data[x < 0] = 0.0
    return whole(x, t)


@drops
def data_that_are_replaced(x, t):
    t.data = fnp.where(x < 0, 0.0, t.data)
    return whole(x, t)


@drops
def a_write_to_a_detached_alias(x, t):
    t.detach()[1:2].zero_()
    return whole(x, t)


@drops
def a_buffer(x, t):
    with fad.no_grad():
        out = fnp.zeros(3)
        out[x >= 0] = whole(x, t)[x >= 0]
    return out


@drops
def a_buffer_of_which_a_part_is_recorded(x, t):
    out = fnp.zeros(3)
    out[:1] = whole(x, t)[:1]
    with fad.inference_mode():
        rest = fnp.where(x < 0, 0.0, whole(x, t))[1:]
    out[1:] = rest.clone()
    return out


@drops
def a_difference(x, t):
    t = whole(x, t)
    return t - (t * (x < 0)).detach()


@drops
def a_difference_of_what_is_detached_in_place(x, t):
    t = whole(x, t)
    negative = t * (x < 0)
    negative.detach_()
    return t - negative


@drops
def compiled_code(x, t):
    def f(x, t):
        t = whole(x, t)
        with fad.no_grad():
            t[x < 0] = 0.0
        return t

    return fad.jit(f)(x, t)


@drops
def a_loop(x, t):
    def step(carry, both):
        x, t = both
        t = whole(x, t)
        return carry, t - fad.stop_gradient(t * (x < 0))

    return fad.lax.scan(step, 0.0, (x, t))[1]


@drops
def a_checkpoint(x, t):
    def f(x, t):
        t = whole(x, t)
        return t - (t * (x < 0)).detach()

    return fad.checkpoint(f)(x, t)


@drops
def lanes(x, t):
    def f(x, t):
        t = whole(x, t)
        with fad.no_grad():
            t *= x >= 0
        return t

    return fad.vmap(f)(x, t)


@drops
def a_dual_under_no_grad(x, t):
    with fad.dual_level(), fad.no_grad():
        dual = fad.make_dual(x, t)
        return fad.unpack_dual(fnp.where(x < 0, 0.0, dual * dual)).tangent


class Negative(fad.Function):
    @staticmethod
    def forward(ctx, t, x):
        out = t * (x < 0)
        ctx.mark_non_differentiable(out)
        return out

    @staticmethod
    def vjp(ctx, g):
        return g, None


class WithoutNegative(fad.Function):
    @staticmethod
    def forward(t, x):
        with fad.no_grad():
            negative = t * (x < 0)
        return t - negative


@drops
def a_function_that_marks_its_output(x, t):
    t = whole(x, t)
    return t - Negative.apply(t, x)


@drops
def a_function_without_rules(x, t):
    return WithoutNegative.apply(whole(x, t), x)


@drops
def a_gradient_that_is_detached(x, t):
    with fad.enable_grad():
        y = x.detach().requires_grad_()
        (g,) = fad.autograd.grad((fnp.where(y < 0, 0.0, y * y) * t).sum(), y)
    return g.detach()


@drops
def another_thread(x, t):
    found = []

    def work():
        with fad.no_grad():
            found.append(fnp.where(x < 0, 0.0, whole(x, t)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@drops
def a_number(x, t):
    t = whole(x, t)
    return t - fnp.where(x < 0, t[1].detach().item(), 0.0)


@drops
def a_numpy_buffer(x, t):
    out = np.zeros(3, np.float32)
    out[:] = whole(x, t).numpy(force=True)
    return fnp.array(out) * (x >= 0)


# What they drop is not in their result


@keeps
def a_recorded_write(x, t):
    t[x < 0] = 0.0
    return whole(x, t)


@keeps
def a_recorded_write_to_a_view(x, t):
    view = t[1:2]
    view *= 0.0
    return whole(x, t)


@keeps
def a_mask(x, t):
    with fad.no_grad():
        positive = (x >= 0).astype(x.dtype)
    return whole(x, t) * positive.detach()


@keeps
def a_mask_that_is_written_to(x, t):
    mask = fnp.ones_like(t.detach())
    with fad.no_grad():
        mask[x < 0] = 0.0
    return whole(x, t) * mask


@keeps
def a_buffer_like_the_argument(x, t):
    with fad.no_grad():
        out = fnp.zeros_like(t)
    out[x >= 0] = whole(x, t)[x >= 0]
    return out


@keeps
def a_detached_copy_that_is_overwritten(x, t):
    zeros = t.detach().clone()
    zeros[...] = 0.0
    return fnp.where(x < 0, zeros, whole(x, t))


@keeps
def checks_and_logs(x, t):
    with fad.no_grad():
        assert not fnp.isnan(t).any()
        total = whole(x, t).sum()
    if fnp.linalg.norm(t.detach()) > 1e6:
        raise AssertionError
    return [fnp.where(x < 0, 0.0, whole(x, t)), t.detach(), total, f"{t}"][0]


@keeps
def a_log_of_numbers(x, t):
    assert float(abs(t.detach()).max()) < 1e6 and t.detach().numpy().shape == (3,)
    return fnp.where(x < 0, 0.0, whole(x, t))


@keeps
def nothing_to_do_for_zeros(x, t):
    if not t.any():
        return fnp.zeros_like(x)
    return fnp.where((x < 0) | (t == 0), 0.0, whole(x, t))


@keeps
def a_derivative_that_is_detached(x, t):
    with fad.enable_grad():
        y = x.detach().requires_grad_()
        (slope,) = fad.autograd.grad(fnp.where(y < 0, 0.0, y * y).sum(), y)
    return t * slope.detach()


class Halves(fad.Function):
    @staticmethod
    def forward(ctx, t):
        t *= 2.0
        ctx.mark_dirty(t)
        return t, t[:1], t[1:]


@keeps
def views_of_a_function_without_rules(x, t):
    t = fad.checkpoint(lambda t: fnp.where(x < 0, 0.0, t) * x)(t)
    return fnp.concatenate(Halves.apply(t)[1:])


@keeps
def branches_of_lanes(x, t):
    f = lambda x, t: fad.lax.cond(x < 0, lambda t: 0.0 * t, lambda t: whole(x, t), t)
    return fad.jit(fad.vmap(f))(x, t)


@pytest.mark.parametrize("name", DROPS)
def test_a_rule_of_which_a_part_is_not_recorded_has_no_derived_rule(name):
    f, h = function_with(DROPS[name]), function_with(DROPS[name], "jvp")
    assert_close(fad.grad(lambda x: f(x).sum())(X), EXPECTED)
    assert_close(fad.jvp(h, (X,), (V,))[1], EXPECTED * V)
    for transform, message in [
        (
            lambda: fad.jvp(f, (X,), (V,)),
            r"F has no jvp rule, .* from F\.vjp: .* the cotangent by ",
        ),
        (lambda: jax.jvp(f, (X,), (V,)), "F has no jvp rule"),
        (lambda: fad.vjp(h, X)[1](V), r"F has no vjp rule, .* from F\.jvp: .* the tangent by "),
        (lambda: jax.vjp(h, X)[1](V), "F has no vjp rule"),
    ]:
        with pytest.raises(GradientError, match=message):
            transform()


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_dropped_beside_the_result_does_not_matter(name):
    f, h = function_with(KEEPS[name]), function_with(KEEPS[name], "jvp")
    assert_close(fad.grad(lambda x: f(x).sum())(X), EXPECTED)
    for jvp in (fad.jvp, jax.jvp):
        assert_close(jvp(f, (X,), (V,))[1], EXPECTED * V)
    for vjp in (fad.vjp, jax.vjp):
        assert_close(vjp(h, X)[1](V)[0], EXPECTED * V)


def test_every_mode_of_a_derived_rule_is_refused():
    f, h = function_with(a_write_under_no_grad), function_with(a_write_under_no_grad, "jvp")

    def dual():
        with fad.dual_level():
            return f(fad.make_dual(fad.tensor(X), fad.tensor(V)))

    for transform in (
        lambda: fad.jacfwd(f)(X),
        lambda: fad.linearize(f, X)[1](V),
        lambda: fad.hessian(lambda x: f(x).sum())(X),
        lambda: fad.jet(f, (X,), ([V, V],)),
        lambda: fad.jit(lambda x: fad.jvp(f, (x,), (x,)))(X),
        lambda: fad.vmap(lambda x: fad.jvp(f, (x,), (V,)))(X[None]),
        lambda: fad.jvp(fad.vmap(f), (X[None],), (X[None],)),
        lambda: jax.linearize(f, X)[1](V),
        dual,
        lambda: fad.vmap(fad.grad(lambda x: h(x).sum()))(X[None]),
        lambda: h(fad.tensor(X, requires_grad=True)).sum().backward(),
    ):
        with pytest.raises(GradientError, match="none can be derived"):
            transform()


def test_every_mode_of_a_rule_that_writes_to_what_it_is_given_is_right():
    f = function_with(a_recorded_write)
    energy = lambda x: (f(x) * x).sum()
    expected = jnp.diag(jnp.where(X < 0, 0.0, 6.0 * X))
    for hessian in (
        fad.hessian,
        lambda f: fad.jacfwd(fad.jacfwd(f)),
        lambda f: fad.jacrev(fad.jacrev(f)),
        jax.hessian,
    ):
        assert_close(hessian(energy)(X), expected)
    assert_close(fad.linearize(f, X)[1](V), EXPECTED * V)
    x, w = fad.tensor(X, requires_grad=True), fad.tensor(V, requires_grad=True)
    (g,) = fad.autograd.grad(f(x), x, w, create_graph=True)  # w is a leaf, and stays as it is
    assert_close(fad.autograd.grad(g.sum(), w)[0], EXPECTED)
    assert_close(w.detach(), V)


def test_a_gradient_by_a_jet_rule_is_refused_too():
    def series(x, terms):
        return [a_write_under_no_grad(x, terms[0]), *[None] * (len(terms) - 1)]

    f = function_with(series, "jet")
    assert_close(fad.jvp(f, (X,), (V,))[1], EXPECTED * V)
    with pytest.raises(GradientError, match=r"F has no vjp rule, .* from F\.jet: "):
        fad.vjp(f, X)[1](V)


def test_a_derived_rule_leaves_no_cycle_of_references():
    f = function_with(checks_and_logs)
    fad.jvp(f, (X,), (V,))
    gc.collect()
    gc.disable()
    try:
        before = {id(x) for x in gc.get_objects() if isinstance(x, Node)}
        with fad.autograd.compiled(False):
            fad.jvp(f, (X,), (V,))
        assert not [x for x in gc.get_objects() if isinstance(x, Node) and id(x) not in before]
    finally:
        gc.enable()


def test_compiled_rules_are_looked_into():
    def rule(x, t):
        return jnp.where(x < 0, 0.0, whole(x, t)) + 0.0 * jax.lax.stop_gradient(x)

    def dropping(x, t):
        return whole(x, t) - jax.lax.stop_gradient(jnp.where(x < 0, whole(x, t), 0.0))

    assert_close(fad.jvp(function_with(rule, jax_rules=True), (X,), (V,))[1], EXPECTED * V)
    f = function_with(dropping, jax_rules=True)
    assert_close(fad.grad(lambda x: f(x).sum())(X), EXPECTED)
    for jvp in (fad.jvp, jax.jvp):
        with pytest.raises(
            GradientError, match="by what F_vjp computes under no_grad, or detaches"
        ):
            jvp(f, (X,), (V,))


def test_only_the_results_that_are_wanted_matter():
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
            return g.detach() * y, g * x

    assert_close(fad.jvp(lambda y: Product.apply(X, y), (X,), (V,))[1], X * V)
    with pytest.raises(GradientError, match=r"a detached value \(detach, .data, stop_gradient\)"):
        fad.jvp(lambda x: Product.apply(x, X), (X,), (V,))


def test_numbers_that_are_read_are_compared_in_all_dtypes():
    def logs(x, t):
        assert abs(complex(t.detach().sum())) < 1e6
        return fnp.conj(x) * t

    def reads(x, t):
        return fnp.conj(x) * t + 1j * float(t.detach().imag.sum())

    z, t = jnp.array([1 + 2j, -1 + 1j]), jnp.array([1 - 1j, 2 + 3j])

    def of(rule):
        class F(fad.Function):
            forward = staticmethod(lambda x: x * x / 2.0)
            setup_context = staticmethod(lambda ctx, inputs, _: ctx.save_for_backward(*inputs))
            vjp = staticmethod(lambda ctx, g: rule(*ctx.saved_tensors, g))

        return F.apply

    assert_close(fad.jvp(of(logs), (z,), (t,))[1], z * t)
    with pytest.raises(GradientError, match=r"by a number that it reads \(item\(\)"):
        fad.jvp(of(reads), (z,), (t,))
    half = X.astype(jnp.float16)
    f = function_with(a_log_of_numbers)
    assert_close(fad.jvp(f, (half,), (half,))[1], (EXPECTED * X).astype(jnp.float16))
    rows = jnp.stack([X, 2.0 * X])
    assert_close(
        fad.vmap(lambda x: fad.jvp(f, (x,), (V,))[1])(rows),
        jnp.stack([EXPECTED * V, 2 * EXPECTED * V]),
    )


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("jit", [False, True])
def test_a_solution_is_found_without_a_record_and_has_its_derivative(kind, jit):
    a = jnp.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 4.0]])

    def rule(x, t):
        solve = lambda t: fad.implicit.linear_solve(lambda v: a @ v, t)
        return (fad.jit(solve) if jit else solve)(t)

    f = function_with(rule, kind)
    inverse = jnp.linalg.inv(a)
    if kind == "vjp":
        assert_close(fad.vjp(f, X)[1](V)[0], inverse @ V, rtol=1e-5)
        assert_close(fad.jvp(f, (X,), (V,))[1], inverse.T @ V, rtol=1e-5)
    else:
        assert_close(fad.jvp(f, (X,), (V,))[1], inverse @ V, rtol=1e-5)
        assert_close(fad.vjp(f, X)[1](V)[0], inverse.T @ V, rtol=1e-5)
