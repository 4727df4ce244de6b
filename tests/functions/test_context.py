"""``ctx``: what a forward pass keeps for its rules and marks, and how long it is kept."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Split, SplitVjp
from helpers import assert_close, leaf
from scaled_functions import SCALE, Counted, OneMethod, Product, plain

import fad
import fad.numpy as fnp
from fad.core.level import flush
from fad.core.tensor import storage_of
from fad.errors import GradientError, RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def write_(x: fad.Tensor, new: Any) -> fad.Tensor:
    """Change ``x`` in place, as an in-place method does."""
    flush()
    x._value, x._aux, x._level = new.value, new.aux, new.level
    x._requires_grad, x._node, x._output_nr = new.requires_grad, new.node, new.output_nr
    storage_of(x).version += 1
    return x


def test_free_attributes_and_saved_data_reach_the_rules_detached():
    class Keeps(fad.Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.x, (ctx.nested,) = inputs[0], ({"y": [inputs[1]], "n": 7},)
            ctx.saved_data["out"] = output

        @staticmethod
        def vjp(ctx, g):
            assert not any(t.requires_grad for t in (ctx.x, ctx.nested["y"][0], g))
            assert ctx.nested["n"] == 7
            assert_close(ctx.saved_data["out"], X * Y)
            return g * ctx.nested["y"][0], g * ctx.x

    x, y = leaf(X), leaf(Y)
    Keeps.apply(x, y).backward(V)
    assert_close((x.grad, y.grad), (V * Y, V * X))


def test_attributes_have_the_right_second_derivative():
    class Square(fad.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            ctx.saved_data["double"] = 2 * x
            return x * x

        @staticmethod
        def vjp(ctx, g):
            return g * (ctx.x + ctx.saved_data["double"] / 2)

    f = lambda x: (Square.apply(x) * x).sum()
    assert_close(fad.grad(lambda x: fad.grad(f)(x).sum())(X), 6 * X)
    x = leaf(X)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(fad.autograd.grad(g.sum(), x)[0], 6 * X)


def test_a_rule_cannot_change_what_the_next_pass_reads():
    class Square(fad.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.k = 2.0
            return x * x

        @staticmethod
        def vjp(ctx, g):
            assert ctx.k == 2.0
            ctx.k, ctx.saved_data["seen"] = 0.0, True
            return g

    x = leaf(X)
    y = Square.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert_close(x.grad, jnp.full(3, 2.0))


def test_save_for_backward_takes_tensors_numbers_and_none():
    class Bad(fad.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None, 3.0, "text" if Bad.bad else 1)
            return x * 3

        @staticmethod
        def vjp(ctx, g):
            assert ctx.saved_tensors[1:] == (None, 3.0, 1)
            return g * ctx.saved_tensors[2]

    Bad.bad = False
    assert_close(fad.grad(lambda x: Bad.apply(x).sum())(X), jnp.full(3, 3.0))
    Bad.bad = True
    with pytest.raises(TypeError, match="save_for_backward: argument 3 must be a Tensor.*'text'"):
        Bad.apply(X)


def test_save_for_forward_is_what_the_jvp_reads_and_backward_the_default():
    class Both(fad.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], None)
            ctx.save_for_forward(2 * inputs[0])

        @staticmethod
        def vjp(ctx, g):
            x, nothing = ctx.saved_tensors
            assert nothing is None
            return 2 * x * g

        @staticmethod
        def jvp(ctx, x_t):
            (double,) = ctx.saved_tensors
            return double * x_t

    class OneList(Both):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(2 * inputs[0])

        @staticmethod
        def vjp(ctx, g):
            return ctx.saved_tensors[0] * g

    for F in (Both, OneList):
        assert_close(fad.jvp(F.apply, (X,), (V,))[1], 2 * X * V)
        assert_close(fad.grad(lambda x: F.apply(x).sum())(X), 2 * X)
        assert_close(fad.jacfwd(fad.jacrev(F.apply))(X), jax.hessian(lambda x: x * x)(X))


class Needs(fad.Function):
    """Notes which gradients were wanted."""

    seen: Any = None

    @staticmethod
    def forward(x, y, n, tree):
        return x * y + tree["a"] * tree["b"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        Needs.setup = ctx.needs_input_grad
        ctx.save_for_backward(inputs[0], inputs[1], inputs[3]["a"], inputs[3]["b"])

    @staticmethod
    def vjp(ctx, g):
        Needs.seen = ctx.needs_input_grad
        x, y, a, b = ctx.saved_tensors
        return g * y, g * x, None, {"a": g * b, "b": g * a}


def test_needs_input_grad_is_true_only_where_this_very_backward_needs_it():
    x, y, a, b = leaf(X), leaf(Y), fad.tensor(X), leaf(Y)
    out = Needs.apply(x, y, 3, {"a": a, "b": b}).sum()
    assert Needs.setup == (True, True, False, True)
    grad = fad.autograd.grad
    assert_close(grad(out, x, retain_graph=True)[0], Y)
    assert Needs.seen == (True, False, False, False)
    grad(out, [y, b], retain_graph=True)
    assert Needs.seen == (False, True, False, True)
    out.backward(retain_graph=True)
    assert Needs.seen == (True, True, False, True)
    out = Needs.apply(x, fad.tensor(Y), 3, {"a": a, "b": fad.tensor(Y)}).sum()
    assert Needs.setup == (True, False, False, False)
    out.backward()
    assert Needs.seen == (True, False, False, False)


def test_needs_input_grad_under_transforms():
    f = lambda x, y: Needs.apply(x, y, 3, {"a": x, "b": Y}).sum()
    fad.grad(f, 1)(X, Y)
    assert Needs.seen == (False, True, False, False)
    fad.vmap(fad.grad(f))(jnp.stack([X, X]), jnp.stack([Y, Y]))
    assert Needs.seen == (True, False, False, True)
    fad.jvp(lambda y: f(X, y), (Y,), (V,))  # transposes the vjp, for y alone
    assert Needs.seen == (False, True, False, False)
    fad.jvp(fad.grad(f, 1), (X, Y), (V, V))
    assert Needs.seen == (False, True, False, False)


def test_needs_input_grad_may_decide_what_is_saved():
    class Thrifty(fad.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(
                y if ctx.needs_input_grad[0] else None, x if ctx.needs_input_grad[1] else None
            )
            return x * y

        @staticmethod
        def vjp(ctx, g):
            y, x = ctx.saved_tensors
            return None if y is None else g * y, None if x is None else g * x

    x, y = leaf(X), fad.tensor(Y)
    out = Thrifty.apply(x, y)
    assert [v is None for v in out.grad_fn.saved.values] == [True, False]
    out.backward(V)
    assert_close(x.grad, V * Y)
    f = lambda x, y: Thrifty.apply(x, y).sum()
    assert_close(fad.grad(f, (0, 1))(X, Y), (Y, X))
    assert_close(fad.grad(lambda x: fad.grad(f, 1)(x, Y).sum())(X), jnp.ones(3))
    assert_close(fad.jvp(f, (X, Y), (V, V)), jax.jvp(lambda x, y: (x * y).sum(), (X, Y), (V, V)))


class TwoOutputs(fad.Function):
    """(2x, 3y), and what the rules were given for the half that has no derivative."""

    materialize = True
    got: Any = None

    @staticmethod
    def forward(x, y):
        return 2 * x, 3 * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(TwoOutputs.materialize)

    @staticmethod
    def vjp(ctx, g, h):
        TwoOutputs.got = g, h
        return None if g is None else 2 * g, None if h is None else 3 * h

    @staticmethod
    def jvp(ctx, x_t, y_t):
        TwoOutputs.got = x_t, y_t
        return None if x_t is None else 2 * x_t, None if y_t is None else 3 * y_t


@pytest.mark.parametrize("materialize", [True, False])
def test_set_materialize_grads(materialize, monkeypatch):
    monkeypatch.setattr(TwoOutputs, "materialize", materialize)
    zeros = jnp.zeros(3)
    f = lambda x, y: TwoOutputs.apply(x, y)[0].sum()

    def check(first=jnp.ones(3)):
        assert_close(TwoOutputs.got[0], first)
        if materialize:
            assert_close(TwoOutputs.got[1], zeros)
        else:
            assert TwoOutputs.got[1] is None

    x, y = leaf(X), leaf(Y)
    f(x, y).backward()
    check()
    assert_close(x.grad, jnp.full(3, 2.0))
    assert_close(fad.grad(f, (0, 1))(X, Y), (jnp.full(3, 2.0), zeros))
    check()
    assert_close(fad.jvp(lambda x: TwoOutputs.apply(x, Y), (X,), (V,))[1], (2 * V, zeros))
    check(V)
    with fad.dual_level():
        out = TwoOutputs.apply(fad.make_dual(fad.tensor(X), fad.tensor(V)), Y)
        check(V)
        assert_close(fad.unpack_dual(out[0]).tangent, 2 * V)


# Marks


class SplitOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x):
        out = fnp.sin(x), 10 * x
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(out[1])
        return out

    vjp = staticmethod(Split.vjp)


class SplitDerived(fad.Function):
    @staticmethod
    def forward(ctx, x):
        out = fnp.sin(x), 10 * x
        ctx.mark_non_differentiable(out[1])
        return out


class SplitJax(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(ctx, x):
        out = jnp.sin(x), 10 * x
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(out[1])
        return out

    @staticmethod
    def vjp(ctx, g, h):
        return g * jnp.cos(ctx.saved_tensors[0]) + h


SPLITS = [Split, SplitVjp, SplitOneMethod, SplitDerived, SplitJax]


@pytest.mark.parametrize("F", SPLITS)
def test_mark_non_differentiable(F):
    x = leaf(X)
    out, marked = F.apply(x)
    assert out.requires_grad and not marked.requires_grad and marked.is_leaf
    (out * marked).sum().backward()
    expected = jnp.cos(X) * 10 * X
    assert_close(x.grad, expected)

    def f(x):
        out, marked = F.apply(x)
        return out * marked

    assert_close(fad.grad(lambda x: f(x).sum())(X), expected)
    assert_close(fad.jvp(f, (X,), (V,))[1], expected * V)
    assert_close(fad.jvp(lambda x: F.apply(x)[1], (X,), (V,))[1], jnp.zeros(3))
    assert_close(fad.linearize(f, X)[1](V), expected * V)
    assert_close(fad.vmap(fad.grad(f))(X), expected)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(X), expected)
    assert_close(fad.vmap(lambda x, t: fad.jvp(f, (x,), (t,))[1])(X, V), expected * V)
    assert_close(fad.jvp(fad.vmap(f), (X,), (V,))[1], expected * V)
    second = -jnp.sin(X) * 10 * X
    assert_close(fad.vmap(fad.grad(fad.grad(f)))(X), second)
    assert_close(fad.vmap(fad.jacfwd(fad.jacfwd(f)))(X), second)
    with fad.dual_level():
        d = F.apply(fad.make_dual(fad.tensor(X), fad.tensor(V)))
        assert fad.unpack_dual(d[1]).tangent is None or not np.any(fad.unpack_dual(d[1]).tangent)


def test_all_outputs_marked_leave_no_node():
    class Sign(fad.Function):
        @staticmethod
        def forward(ctx, x):
            out = fnp.sign(x)
            ctx.mark_non_differentiable(out)
            return out

    assert not Sign.apply(leaf(X)).requires_grad
    assert_close(fad.grad(lambda x: (Sign.apply(x) * x).sum())(X), jnp.sign(X))


def test_marking_something_else_as_not_differentiable_is_an_error():
    class Wrong(fad.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_non_differentiable(x * 1)
            return x * 2

    with pytest.raises(RuleError, match=r"Wrong: ctx\.mark_non_differentiable.*not an output"):
        Wrong.apply(X)


class Doubled(fad.Function):
    """Doubles x in place, and returns it and a second output."""

    @staticmethod
    def forward(x, y):
        return write_(x, 2 * x), y * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def vjp(ctx, g, h):
        assert_close(ctx.saved_tensors[0], 2 * X)  # the input as it is after the call
        return 2 * g, h


class DoubledOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x, y):
        write_(x, 2 * x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x, y * 1

    vjp = staticmethod(Doubled.vjp)


@pytest.mark.parametrize("F", [Doubled, DoubledOneMethod])
def test_mark_dirty_changes_the_input_itself(F):
    a, y = leaf(X), leaf(Y)
    x = a * 1.0
    old = x * x
    out, _ = F.apply(x, y)
    assert out is x and x.version == 1
    assert x.grad_fn.name() == f"{F.__name__}Backward"
    assert_close(x, 2 * X)
    x.sum().backward()
    assert_close(a.grad, jnp.full(3, 2.0))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        old.sum().backward()
    n = fad.tensor(X)
    assert F.apply(n, Y)[0] is n and n.version == 1 and not n.requires_grad
    assert isinstance(F.apply(X, Y)[0], jax.Array)
    assert_close(F.apply(X, Y)[0], 2 * X)


@pytest.mark.parametrize("F", [Doubled, DoubledOneMethod])
def test_mark_dirty_under_transforms(F):
    def f(x):
        z = x * 1.0
        out, _ = F.apply(z, Y)
        assert out is z
        return z * z

    assert_close(fad.jvp(f, (X,), (V,))[1], 8 * X * V)
    assert_close(fad.grad(lambda x: f(x).sum())(X), 8 * X)
    assert_close(fad.vmap(f)(jnp.stack([X, X])), jnp.stack([4 * X * X] * 2))
    assert_close(fad.jit(f)(X), 4 * X * X)


@pytest.mark.parametrize("F", [Doubled, DoubledOneMethod])
def test_mark_dirty_where_the_body_runs_again_for_a_derivative(F):
    class Quiet(F):
        @staticmethod
        def vjp(ctx, g, h):
            return 2 * g, h

    def f(x):
        z = x * 1.0
        Quiet.apply(z, Y)
        return (z * z).sum()

    rows = jnp.stack([X, V])
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(rows), 8 * rows)
    assert_close(fad.jvp(fad.grad(f), (X,), (V,))[1], 8 * V)
    assert_close(fad.grad(lambda x: fad.grad(f)(x).sum())(X), jnp.full(3, 8.0))
    native = lambda x: Quiet.apply(x, Y)[0]
    assert_close(jax.grad(lambda x: native(x).sum())(X), jnp.full(3, 2.0))
    assert_close(jax.jvp(native, (X,), (V,))[1], 2 * V)
    assert_close(jax.vmap(jax.grad(lambda x: native(x).sum()))(rows), jnp.full((2, 3), 2.0))


@pytest.mark.parametrize("kept", ["saved", "attribute"])
def test_mark_dirty_of_what_has_one_value_for_all_lanes(kept):
    class Scale(fad.Function):
        @staticmethod
        def forward(ctx, u, k, w):
            before = u.clone()
            ctx.k, ctx.before = k, before if kept == "attribute" else None
            ctx.save_for_backward(w, *([before] if kept == "saved" else []))
            ctx.mark_dirty(u)
            u *= k * w
            return u

        @staticmethod
        def backward(ctx, g):
            w, *before = ctx.saved_tensors
            before = before[0] if before else ctx.before
            return g * ctx.k * w, None, g * ctx.k * before

    def f(x):
        u = fnp.arange(1.0, 4.0)
        Scale.apply(u, 2.0, x)
        Scale.apply(u, 2.0, fnp.sin(x))
        return (u * u).sum()

    def oracle(x):
        return ((jnp.arange(1.0, 4.0) * 4.0 * x * jnp.sin(x)) ** 2).sum()

    rows = jnp.stack([X, V])
    expected = jax.vmap(jax.grad(oracle))(rows)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(rows), expected)
    assert_close(fad.jit(fad.grad(lambda x: fad.vmap(f)(x).sum()))(rows), expected)
    assert_close(fad.vmap(fad.grad(f))(rows), expected)
    of_tape = leaf(rows)
    fad.vmap(f)(of_tape).sum().backward()
    assert_close(of_tape.grad, expected)
    assert_close(fad.hessian(f)(X), jax.hessian(oracle)(X))


@pytest.mark.parametrize("F", [Doubled, DoubledOneMethod])
def test_mark_dirty_of_a_leaf_that_requires_grad_is_an_error(F):
    x = leaf(X)
    with pytest.raises(GradientError, match=f"{F.__name__}: a leaf Variable that requires grad"):
        F.apply(x, Y)
    assert x.version == 0
    assert_close(x, X)
    with fad.no_grad():
        assert F.apply(x, Y)[0] is x
    assert_close(x, 2 * X)


def test_a_change_in_place_that_is_not_marked_stays_inside():
    class Scribbles(fad.Function):
        @staticmethod
        def forward(x):
            write_(x, 2 * x)
            return x * 3

        @staticmethod
        def vjp(ctx, g):
            return 6 * g

    x = fad.tensor(X)
    assert_close(Scribbles.apply(x), 6 * X)
    assert_close(x, X)
    assert x.version == 0


def test_inputs_are_kept_only_where_a_rule_reads_them():
    class SavesOutput(fad.Function):
        @staticmethod
        def forward(ctx, x, y):
            out = fnp.exp(x) * 1.0
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.saved_tensors[0], None

    x, y = leaf(X), leaf(Y)
    node = SavesOutput.apply(x, y).grad_fn
    assert node.tensors == [None, None] and node.saved.values == [None, None]
    node = OneMethod.apply(x, y).grad_fn  # has an intermediate, so the body may run again
    assert node.tensors == [x, y]


# Memory


class SavesAll(fad.Function):
    @staticmethod
    def forward(x):
        return fnp.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output, output * 2)
        ctx.output = output
        ctx.saved_data["output"] = [output]

    @staticmethod
    def vjp(ctx, g):
        return g * ctx.saved_tensors[1]


class SavesAllOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x):
        output = fnp.exp(x)
        SavesAll.setup_context(ctx, (x,), output)
        return output

    vjp = staticmethod(SavesAll.vjp)


class SavesAllJax(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(ctx, x):
        output = jnp.exp(x)
        SavesAll.setup_context(ctx, (x,), output)
        return output

    vjp = staticmethod(SavesAll.vjp)


@pytest.mark.parametrize("F", [SavesAll, SavesAllOneMethod, SavesAllJax])
def test_saved_outputs_make_no_cycle_and_saved_values_go_after_backward(F):
    gc.collect()
    gc.disable()
    try:
        x = leaf(X)
        out = F.apply(x)
        node = weakref.ref(out.grad_fn)
        del out
        assert node() is None  # by reference counting alone
        out = F.apply(x)
        value, node = weakref.ref(out), out.grad_fn
        total = out.sum()
        del out
        assert value() is None
        kept = [v for v in (*node.saved.values, *node.saved.outs, *node.saved.extras)]
        arrays = [weakref.ref(v) for v in kept if isinstance(v, jax.Array)]
        del kept
        total.backward()
        assert node.saved is None and node.tensors == []
        del total
        assert [r() is None or r() is x.value for r in arrays] == [True] * len(arrays)
        assert_close(x.grad, jnp.exp(X))
    finally:
        gc.enable()


def test_a_second_pass_over_a_freed_graph_says_what_to_do():
    x = leaf(X)
    out = Product.apply(x, Y)
    out.backward(V)
    with pytest.raises(GradientError, match=r"ProductBackward.*retain_graph=True"):
        out.backward(V)


def test_a_saved_input_changed_in_place_is_an_error():
    a = leaf(X)
    x = a * 1.0
    out = Product.apply(x, Y)
    write_(x, x * 2)
    with pytest.raises(GradientError, match="modified by an inplace operation.*ProductBackward"):
        out.sum().backward()


# Hooks on what is saved


@pytest.mark.parametrize("F", [Product, OneMethod, Counted])
def test_saved_tensors_hooks_see_what_a_function_saves_once_each(F):
    calls = []

    def pack(t):
        calls.append("pack")
        return t.numpy()

    def unpack(a):
        calls.append("unpack")
        return fad.tensor(a)

    a, y = leaf(X), leaf(Y)
    x = write_(a * 1.0, a * 2.0)  # has been changed in place before
    with fad.autograd.saved_tensors_hooks(pack, unpack):
        out = F.apply(x, y)
    packed = len(calls)
    assert packed >= 2 and set(calls) == {"pack"}
    weights = out.detach()
    grads = fad.autograd.grad(out, (a, y), weights, retain_graph=True)
    assert calls[packed:] == ["unpack"] * packed
    again = fad.autograd.grad(out, (a, y), weights, create_graph=True)
    assert_close(again, grads)
    value = out.detach().array
    f = (lambda x, y: jnp.sin(x) * jnp.exp(y)) if F is Counted else plain
    k = SCALE if F is Counted else 1.0
    expected = jax.grad(lambda x, y: (f(2 * x, y) * value).sum(), (0, 1))(X, Y)
    assert_close(grads, jax.tree.map(lambda v: k * v, expected))


def test_a_tangent_of_one_argument_is_no_tangent_of_another():
    seen = []

    class Product(fad.Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            seen.append(ctx.needs_input_grad)
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    ones = jnp.ones(2)
    of_x = lambda library: library.jvp(lambda x: Product.apply(x, 3.0 * ones), (ones,), (ones,))[1]
    for library in (fad, jax):
        seen.clear()
        assert of_x(library).tolist() == [3.0, 3.0]
        assert seen and set(seen) <= {(True, False), (True, True)} and (True, False) in seen
    seen.clear()
    both = lambda y: fad.jvp(lambda x: Product.apply(x, y), (ones,), (ones,))[1].sum()
    assert fad.grad(both)(ones).tolist() == [1.0, 1.0]
    assert (True, True) in seen
