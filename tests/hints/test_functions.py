"""Bodies that close over tracked values: an error that names it or a derivative, never a silent zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import LevelError, RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def closing(w, rule="forward"):
    """x w, with ``w`` from outside."""

    class Closes(fad.Function):
        @staticmethod
        def forward(x):
            return x * w

        @staticmethod
        def vjp(ctx, g):
            return g * 5.0

    return Closes.apply


CLOSED = (
    r"Closes\.forward closes over 'w' \(Tensor float32\[3\]{where}.*Pass w as an argument of Closes"
)


def raises_closed(where):
    return pytest.raises(RuleError, match=CLOSED.format(where=where))


@pytest.mark.parametrize("tracked_too", [False, True])
def test_closing_over_a_value_of_a_running_fad_transform_is_an_error(tracked_too):
    """Never a silent zero: whether or not the argument belongs to the transform too."""
    arg = (lambda w: w * 1.0) if tracked_too else (lambda w: X)
    with raises_closed(" of grad level"):
        fad.grad(lambda w: closing(w)(arg(w)).sum())(Y)
    with raises_closed(" of jvp level"):
        fad.jvp(lambda w: closing(w)(arg(w)), (Y,), (V,))
    with raises_closed(" of vmap level"):
        fad.vmap(lambda w: closing(w)(arg(w)))(jnp.stack([Y, Y]))
    with raises_closed(" of linearize level"):
        fad.linearize(lambda w: closing(w)(arg(w)), Y)
    with fad.dual_level():
        w = fad.make_dual(fad.tensor(Y), fad.tensor(V))
        with raises_closed(" of dual level"):
            closing(w)(arg(w))
    w = leaf(Y)
    with raises_closed(" of the eager graph"):
        closing(w)(arg(w))
    for outer in (fad.jit, fad.checkpoint):
        try:
            out = outer(fad.grad(lambda w: closing(w)(arg(w)).sum()))(Y)
        except RuleError as error:
            assert "Closes.forward closes over" in str(error)
        else:
            assert_close(out, 2 * Y if tracked_too else X)


def test_closing_over_a_level_while_the_argument_belongs_to_another():
    with raises_closed(" of grad level"):
        fad.grad(lambda w: fad.vmap(closing(w))(jnp.stack([X, X])).sum())(Y)
    with raises_closed(" of grad level"):
        fad.grad(lambda w: fad.grad(lambda x: closing(w)(x).sum())(X).sum())(Y)
    with raises_closed(" of grad level"):
        fad.vmap(lambda x: fad.grad(lambda w: closing(w)(x).sum())(Y))(jnp.stack([X, X]))


def test_closing_over_what_nothing_tracks_is_fine():
    w = fad.tensor(Y)
    f = lambda x: closing(w)(x)
    assert_close(f(X), X * Y)
    assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.full(3, 5.0))
    tracked = leaf(Y)
    assert_close(closing(fad.stop_gradient(tracked))(X), X * Y)
    # A value that has outlived its level is a constant.
    kept = []
    fad.grad(lambda w: (kept.append(w), w.sum())[1])(Y)
    assert_close(closing(kept[0])(X), X * Y)


def test_closing_over_a_tracked_value_in_the_other_rules():
    """What the vjp closes over takes part in its derivative; in a jvp or vmap rule it is an error."""

    def make(w):
        class Closes(fad.Function):
            @staticmethod
            def forward(x):
                return x * 1.0

            @staticmethod
            def vjp(ctx, g):
                return g * w

            @staticmethod
            def jvp(ctx, x_t):
                return x_t * w

            @staticmethod
            def vmap(info, in_dims, x):
                return x * w, in_dims[0]

        return Closes.apply

    gradient = lambda w: (fad.grad(lambda x: make(w)(x).sum())(X) * V).sum()
    assert_close(fad.grad(gradient)(Y), V)
    assert_close(fad.jvp(gradient, (Y,), (X,))[1], (V * X).sum())
    assert_close(fad.vmap(gradient)(jnp.stack([Y, X])), jnp.stack([Y @ V, X @ V]))
    w, x = leaf(Y), leaf(X)
    (g,) = fad.autograd.grad(make(w)(x).sum(), x, create_graph=True)
    assert_close(fad.autograd.grad((g * V).sum(), w)[0], V)
    with pytest.raises(RuleError, match=r"Closes\.\w+ closes over 'w'"):
        fad.grad(lambda w: fad.jvp(make(w), (X,), (V,))[1].sum())(Y)
    with pytest.raises(RuleError, match=r"Closes\.\w+ closes over 'w'"):
        fad.grad(lambda w: fad.vmap(make(w))(jnp.stack([X, X])).sum())(Y)


def test_closing_over_a_native_tracer_gives_the_derivative_or_an_error():
    cases = [
        (jax.grad(lambda w: closing(w)(X).sum()), X),
        (jax.grad(lambda w: closing(w)(w * 1.0).sum()), None),
        (jax.jit(lambda w: closing(w)(X)), X * Y),
        (jax.jit(lambda w: closing(w)(2 * w)), 2 * Y * Y),
        (lambda w: jax.jvp(lambda w: closing(w)(X), (w,), (V,))[1], X * V),
        (jax.vmap(lambda w: closing(w)(2.0)), 2 * Y),
        (jax.grad(lambda w: fad.grad(lambda x: closing(w)(x).sum())(X).sum()), jnp.zeros(3)),
        (jax.grad(lambda w: jax.grad(lambda x: closing(w)(x).sum())(X).sum()), jnp.zeros(3)),
    ]
    for f, expected in cases:
        try:
            out = f(Y)
        except RuleError as error:
            assert "Closes.forward closes over 'w'" in str(error)
        else:
            assert expected is not None
            assert_close(out, expected)


def test_a_body_that_makes_leaves_may_not_close_over_others():
    outer = leaf(2.0)

    class Inner(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            inner = fad.tensor(3.0, requires_grad=True)
            return g * inner if used == "inner" else g * inner * outer

    used = "inner"
    assert float(jax.grad(Inner.apply)(1.0)) == 3.0
    assert isinstance(fad.grad(Inner.apply)(1.0), jax.Array)
    used = "both"
    with pytest.raises(RuleError, match="Inner.*closes over"):
        jax.grad(Inner.apply)(1.0)
    assert fad.grad(Inner.apply)(1.0).requires_grad


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_error_names_the_function_whatever_derivative_of_it_runs(order):
    """That of a jet rule named `Curved_jet.apply`, which is nothing that can be called."""

    def closes(w):
        class Curved(fad.Function):
            @staticmethod
            def forward(x):
                return x * 2.0

            @staticmethod
            def jet(ctx, s):
                return [t * w for t in s]

        return fad.derivatives(Curved.apply, 1.0, order)[-1]

    with pytest.raises(
        RuleError, match=r"^Curved\.jet closes over 'w' .*an argument of Curved\.apply,"
    ):
        fad.grad(closes)(2.0)


# Each rule of each kind of operation


def of_custom_rules(k):
    f = fad.custom_rules(lambda x: jnp.sin(x) * k("f"))
    if k.rule in ("fwd", "bwd"):
        f.defvjp(lambda x: (jnp.sin(x) * k("fwd"), x), lambda x, g: (g * jnp.cos(x) * k("bwd"),))
    if k.rule == "residuals":
        residuals = lambda x: (jnp.sin(x) * 2.0, (x, k("residuals")))
        f.defvjp(residuals, lambda r, g: (g * jnp.cos(r[0]) * r[1],))
    if k.rule == "jvp":
        f.defjvp(lambda p, t: (jnp.sin(*p) * 2.0, t[0] * jnp.cos(*p) * k("jvp")))
    if k.rule == "vmap":
        f.defvmap(lambda size, batched, x: (jnp.sin(x) * k("vmap"), True))
    return f


def of_operation(k):
    rules = {
        "vjp": (
            lambda x: (jnp.sin(x) * k("fwd"), x),
            lambda x, g: (g * jnp.cos(x) * k("bwd"),),
        ),
        "jvp": lambda p, t: (jnp.sin(*p) * 2.0, t[0] * jnp.cos(*p) * k("jvp")),
        "batch": lambda size, dims, x: (jnp.sin(x) * k("vmap"), dims[0]),
    }
    rule = {"fwd": "vjp", "bwd": "vjp", "vmap": "batch"}.get(k.rule, k.rule)
    return fad.extend.operation(**({rule: rules[rule]} if rule in rules else {}))(
        lambda x: jnp.sin(x) * k("f")
    )


def of_functions(jax_rules):
    def make(k):
        sin, cos = (jnp.sin, jnp.cos) if jax_rules else (fad.numpy.sin, fad.numpy.cos)

        def setup(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        rules = {
            "bwd": ("vjp", lambda ctx, g: g * cos(ctx.saved_tensors[0]) * k("bwd")),
            "jvp": ("jvp", lambda ctx, t: t * cos(ctx.saved_tensors[0]) * k("jvp")),
            "vmap": ("vmap", lambda info, dims, x: (sin(x) * k("vmap"), dims[0])),
        }
        members = {
            "jax_rules": jax_rules,
            "forward": staticmethod(lambda x: sin(x) * k("f")),
            "setup_context": staticmethod(setup),
        }
        if k.rule in rules:
            name, rule = rules[k.rule]
            members[name] = staticmethod(rule)
        return type("F", (fad.Function,), members).apply

    return make


def of_from_jax(k):
    return fad.from_jax(lambda x: jnp.sin(x) * k("f"))


KINDS = [
    (of_custom_rules, ["f", "fwd", "bwd", "residuals", "jvp", "vmap"]),
    (of_operation, ["f", "fwd", "bwd", "jvp", "vmap"]),
    (of_from_jax, ["f"]),
    (of_functions(True), ["f", "bwd", "jvp", "vmap"]),
    (of_functions(False), ["f", "bwd", "jvp", "vmap"]),
]
# What reaches a rule.
USES = {
    "f": [lambda f: f(X).sum(), lambda f: fad.jvp(f, (X,), (X,))[1].sum()],
    "vmap": [lambda f: fad.vmap(f)(X).sum()],
}
DIFFERENTIATED = [lambda f: fad.grad(lambda x: f(x).sum())(X).sum()]
BOTH = [*DIFFERENTIATED, lambda f: fad.jvp(f, (X,), (X,))[1].sum()]


def eager(h):
    def run(w):
        w = fad.tensor(w, requires_grad=True)
        h(w).backward()
        return w.grad.array

    return run


TRACKING = {
    "grad": (fad.grad, 2.0),
    "jvp": (lambda h: lambda w: fad.jvp(h, (w,), (1.0,))[1], 2.0),
    "vmap": (fad.vmap, jnp.array([2.0, 3.0])),
    "eager": (eager, 2.0),
    "jit": (fad.jit, 2.0),
    "jax.grad": (jax.grad, 2.0),
    "jax.vmap": (jax.vmap, jnp.array([2.0, 3.0])),
    "jax.jit": (jax.jit, 2.0),
}


class Rule:
    """2.0 in each rule but one, and there ``w``."""

    def __init__(self, rule, w):
        self.rule, self.w = rule, w

    def __call__(self, rule):
        return self.w if rule == self.rule else 2.0


@pytest.mark.sweep(
    "make, rule, tracking",
    [(m, r, t) for m, rules in KINDS for r in rules for t in TRACKING],
    sample=60,
    ids=lambda x: str(x)[:25],
)
def test_each_rule_gives_the_right_number_or_says_what_to_pass(make, rule, tracking):
    transform, w = TRACKING[tracking]
    # The jvp of an operation is that of its function: its vjp must give the same.
    vjp_alone = make is of_operation or rule == "fwd"
    for use in USES.get(rule, DIFFERENTIATED if vjp_alone else BOTH):
        expected = transform(lambda w, use=use: use(lambda x: fad.numpy.sin(x) * w))(w)
        try:
            found = transform(lambda w, use=use: use(make(Rule(rule, w))))(w)
        except (RuleError, LevelError) as error:
            assert "argument" in str(error) and "clos" in str(error)
        else:
            assert rule == "fwd" or jnp.allclose(jnp.asarray(found), expected, rtol=1e-4)
