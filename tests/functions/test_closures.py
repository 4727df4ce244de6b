"""Bodies that close over tracked values: an error that names it or a derivative, never a silent zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import RuleError

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
