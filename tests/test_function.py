"""Function: one custom operation with its rules, under fad's transforms and on the eager tape."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import GradientError, RuleError
from fad.once import once_differentiable
from fad.tensor import meta_of

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])
SCALE = 3.0  # a rule scaled by this cannot be mistaken for a derivative taken by other means


def leaf(x: Any) -> fad.Tensor:
    """A Tensor of the eager graph."""
    return fad.tensor(x, requires_grad=True)


def write_(x: fad.Tensor, new: Any) -> fad.Tensor:
    """Change ``x`` in place, as an in-place method does."""
    x.value, x.aux, x.level = new.value, new.aux, new.level
    x.requires_grad, x.node, x.output_nr = new.requires_grad, new.node, new.output_nr
    meta_of(x).version += 1
    return x


class Product(fad.Function):
    """sin(x) y, with a vjp."""

    @staticmethod
    def forward(x, y):
        return fnp.sin(x) * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return g * fnp.cos(x) * y, g * fnp.sin(x)


class OneMethod(fad.Function):
    """sin(x) y in the one-method style, with an intermediate value saved."""

    runs = 0

    @staticmethod
    def forward(ctx, x, y):
        OneMethod.runs += 1
        cosine = fnp.cos(x)
        ctx.save_for_backward(x, y, cosine)
        return fnp.sin(x) * y

    @staticmethod
    def vjp(ctx, g):
        x, y, cosine = ctx.saved_tensors
        return g * cosine * y, g * fnp.sin(x)


def plain(x, y):
    return jnp.sin(x) * y


def scaled(f, k=SCALE):
    """A JAX function with f's values and ``k`` times its derivatives."""

    @jax.custom_jvp
    def g(*args):
        return f(*args)

    @g.defjvp
    def jvp(primals, tangents):
        out, out_t = jax.jvp(f, primals, tangents)
        return out, jax.tree.map(lambda t: k * t, out_t)

    return g


# Calling


@pytest.mark.parametrize("F", [Product, OneMethod])
def test_arrays_in_arrays_out_and_tensors_in_tensors_out(F):
    assert_close(F.apply(X, Y), plain(X, Y))
    assert isinstance(F.apply(X, Y), jax.Array)
    assert isinstance(F.apply(np.asarray(X), np.asarray(Y)), jax.Array)
    for args in [(fad.tensor(X), Y), (X, fad.tensor(Y)), (fad.tensor(X), fad.tensor(Y))]:
        assert isinstance(F.apply(*args), fad.Tensor)
    assert_close(F.apply(fad.tensor(X), Y), plain(X, Y))


@pytest.mark.parametrize("F", [Product, OneMethod])
def test_both_styles_under_every_first_order_transform(F):
    x, y = leaf(X), leaf(Y)
    out = F.apply(x, y)
    assert out.requires_grad and out.grad_fn.name() == f"{F.__name__}Backward"
    out.backward(V)
    expected = jax.vjp(plain, X, Y)[1](V)
    assert_close((x.grad, y.grad), expected)
    assert_close(fad.vjp(F.apply, X, Y)[1](V), expected)
    assert_close(fad.grad(lambda x, y: F.apply(x, y) @ V, (0, 1))(X, Y), expected)
    assert_close(fad.jvp(F.apply, (X, Y), (V, V)), jax.jvp(plain, (X, Y), (V, V)))
    assert_close(fad.linearize(F.apply, X, Y)[1](V, V), jax.jvp(plain, (X, Y), (V, V))[1])
    assert_close(fad.jacrev(F.apply)(X, Y), jax.jacrev(plain)(X, Y))
    assert_close(fad.jacfwd(F.apply, 1)(X, Y), jax.jacfwd(plain, 1)(X, Y))
    assert_close(fad.vmap(F.apply, (0, None))(X, Y), jax.vmap(plain, (0, None))(X, Y))


def test_backward_is_another_name_of_vjp():
    class Double(fad.Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return SCALE * g

    assert_close(fad.grad(lambda x: Double.apply(x).sum())(X), jnp.full(3, SCALE))
    assert_close(fad.jvp(Double.apply, (X,), (V,))[1], SCALE * V)


class Affine(fad.Function):
    """scale * x + shift, with every kind of parameter; vjp gives 1, 2, 3, ... to tell them apart."""

    @staticmethod
    def forward(x, scale=2.0, *rest, shift=1.0, **more):
        out = scale * x + shift
        for r in (*rest, *more.values()):
            out = out + r
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count = len(inputs)

    @staticmethod
    def vjp(ctx, g):
        return tuple(g * (k + 1) for k in range(ctx.count))


def test_defaults_keywords_and_variadic_arguments_are_bound():
    assert_close(Affine.apply(X), 2 * X + 1)
    assert_close(Affine.apply(X, 3.0), 3 * X + 1)
    assert_close(Affine.apply(x=X, scale=3.0), 3 * X + 1)
    assert_close(Affine.apply(X, shift=5.0, scale=3.0), 3 * X + 5)
    assert_close(Affine.apply(X, 3.0, Y, Y, shift=V, bias=Y), 3 * X + V + 3 * Y)
    one = jnp.ones(3)
    grads = fad.grad(
        lambda x, a, b, shift, bias: Affine.apply(x, 3.0, a, b, shift=shift, bias=bias).sum(),
        (0, 1, 2, 3, 4),
    )(X, Y, Y, V, Y)
    # In forward's order: x, scale, rest[0], rest[1], shift, bias.
    assert_close(grads, (1 * one, 3 * one, 4 * one, 5 * one, 6 * one))
    assert_close(fad.vmap(lambda x, s: Affine.apply(x, shift=s))(X, Y), 2 * X + Y)


def test_keyword_only_arguments_reach_every_rule():
    class Power(fad.Function):
        @staticmethod
        def forward(x, *, exponent):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.exponent = inputs[1]

        @staticmethod
        def vjp(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.exponent * x ** (ctx.exponent - 1), None

        @staticmethod
        def jvp(ctx, x_t, exponent_t):
            (x,) = ctx.saved_tensors
            assert exponent_t is None
            return x_t * ctx.exponent * x ** (ctx.exponent - 1)

        @staticmethod
        def vmap(info, in_dims, x, *, exponent):
            assert in_dims == (0, None)
            return x**exponent, 0

    f = lambda x: Power.apply(x, exponent=3)
    assert_close(f(X), X**3)
    assert_close(fad.vmap(fad.grad(f))(X), 3 * X**2)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(X), 3 * X**2)
    assert_close(fad.vmap(lambda x, t: fad.jvp(f, (x,), (t,))[1])(X, V), 3 * X**2 * V)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((X,), {}), ((X, Y, Y), {}), ((X, Y), {"z": 1}), ((X,), {"x": X})],
)
def test_arguments_that_do_not_fit_name_the_function_and_its_signature(args, kwargs):
    with pytest.raises(TypeError, match=r"Product\.apply\(x, y\)"):
        Product.apply(*args, **kwargs)


def test_a_function_is_called_by_apply_alone():
    with pytest.raises(TypeError, match=r"Product\.apply"):
        Product(X, Y)

    class Empty(fad.Function):
        pass

    with pytest.raises(RuleError, match="Empty has no forward"):
        Empty.apply(X)


class Pair(NamedTuple):
    left: Any
    right: Any


class Layer(fad.Function):
    """Pytrees in and out: a dict, a list, a named tuple, None, and things that are no arrays."""

    @staticmethod
    def forward(params, pair, mode, nothing=None):
        assert mode == "linear" and nothing is None
        hidden = params["w"] * pair.left + params["b"][0]
        return {"out": hidden, "rest": [pair.right * 2.0, None, "label", (hidden * hidden,)]}

    @staticmethod
    def setup_context(ctx, inputs, output):
        params, pair, ctx.mode, _ = inputs
        ctx.saved_data["pair"] = pair
        ctx.save_for_backward(params["w"], output["out"])

    @staticmethod
    def vjp(ctx, g):
        w, hidden = ctx.saved_tensors
        assert ctx.mode == "linear" and g["rest"][1] is None and g["rest"][2] is None
        inner = g["out"] + 2 * hidden * g["rest"][3][0]
        pair = ctx.saved_data["pair"]
        return {"w": inner * pair.left, "b": [inner]}, Pair(inner * w, 2 * g["rest"][0]), None, None

    @staticmethod
    def jvp(ctx, params_t, pair_t, mode_t, nothing_t):
        w, hidden = ctx.saved_tensors
        assert mode_t is None and nothing_t is None
        pair = ctx.saved_data["pair"]
        out_t = params_t["w"] * pair.left + w * pair_t.left + params_t["b"][0]
        return {"out": out_t, "rest": [2 * pair_t.right, None, None, (2 * hidden * out_t,)]}


def layer(params, pair):
    hidden = params["w"] * pair.left + params["b"][0]
    return {"out": hidden, "rest": [pair.right * 2.0, None, "label", (hidden * hidden,)]}


def test_pytrees_in_and_out():
    params, pair = {"w": X, "b": [Y]}, Pair(V, X)

    def total(f):
        def run(params, pair):
            out = f(params, pair)
            return (out["out"] * out["rest"][3][0]).sum() + (out["rest"][0] * V).sum()

        return run

    ours, theirs = total(lambda p, q: Layer.apply(p, q, "linear")), total(layer)
    out = Layer.apply(params, pair, "linear")
    assert out["rest"][1:3] == [None, "label"]
    assert_close(out["rest"][3], layer(params, pair)["rest"][3])
    args = (params, pair)
    assert_close(fad.grad(ours, (0, 1))(*args), jax.grad(theirs, (0, 1))(*args))
    assert_close(fad.jvp(ours, args, args), jax.jvp(theirs, args, args))
    assert_close(
        fad.jacfwd(fad.grad(ours, (0, 1)), (0, 1))(*args),
        jax.jacfwd(jax.grad(theirs, (0, 1)), (0, 1))(*args),
    )
    batch = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), args)
    assert_close(
        fad.vmap(fad.grad(ours, (0, 1)))(*batch), jax.vmap(jax.grad(theirs, (0, 1)))(*batch)
    )
    assert_close(
        fad.grad(lambda p, q: fad.vmap(ours)(p, q).sum(), (0, 1))(*batch),
        jax.grad(lambda p, q: jax.vmap(theirs)(p, q).sum(), (0, 1))(*batch),
    )


def test_none_covers_a_whole_subtree_of_gradients_or_tangents():
    class First(fad.Function):
        @staticmethod
        def forward(tree, other):
            return {"a": tree["x"] * 2.0, "b": other[0]}

        @staticmethod
        def vjp(ctx, g):
            return {"x": 2 * g["a"]}, None  # a missing key is None too

        @staticmethod
        def jvp(ctx, tree_t, other_t):
            return {"a": 2 * tree_t["x"]}

    f = lambda x, u, v: First.apply({"x": x, "unused": u}, [v])
    grads = fad.grad(lambda *a: sum(v.sum() for v in f(*a).values()), (0, 1, 2))(X, Y, V)
    assert_close(grads, (jnp.full(3, 2.0), jnp.zeros(3), jnp.zeros(3)))
    assert_close(fad.jvp(f, (X, Y, V), (V, V, V))[1], {"a": 2 * V, "b": jnp.zeros(3)})


def test_integer_inputs_and_outputs_have_no_derivative():
    class TakeAndCount(fad.Function):
        @staticmethod
        def forward(x, i):
            return x[i], i + 1, x > 0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g, g_i, g_positive):
            x, i = ctx.saved_tensors
            assert (g_i.dtype, g_positive.dtype) == (i.dtype, bool)  # zeros
            return fnp.zeros_like(x).at[i].add(g), None

        @staticmethod
        def jvp(ctx, x_t, i_t):
            assert i_t is None
            return x_t[ctx.saved_tensors[1]], None, None

    i = jnp.array([2, 2, 0])
    f = lambda x: TakeAndCount.apply(x, i)
    out, count, positive = f(leaf(X))
    assert out.requires_grad and not count.requires_grad and not positive.requires_grad
    assert_close(fad.grad(lambda x: (f(x)[0] * V).sum())(X), jnp.array([-2.0, 0.0, 1.5]))
    tangents = fad.jvp(f, (X,), (V,))[1]
    assert_close(tangents[0], V[i])
    assert not np.any(tangents[1]) and not np.any(tangents[2])
    rows = jnp.stack([X, Y])
    ours = lambda x: (TakeAndCount.apply(x, i)[0] * V).sum()
    assert_close(fad.vmap(fad.grad(ours))(rows), jax.vmap(jax.grad(lambda x: x[i] @ V))(rows))
    with pytest.raises(TypeError, match="floating or complex"):
        fad.grad(lambda i: TakeAndCount.apply(X, i)[0].sum())(i)


def test_python_numbers_returned_become_arrays_and_other_things_stay():
    class Facts(fad.Function):
        @staticmethod
        def forward(x):
            return 1.5, x.ndim, x, np.float32(2.0), "text"

    out = Facts.apply(X)
    assert isinstance(out[0], jax.Array) and out[0] == 1.5
    assert out[1] == 1 and type(out[1]) is int and out[4] == "text"
    assert isinstance(out[3], jax.Array)
    assert_close(fad.grad(lambda x: Facts.apply(x)[2].sum() * Facts.apply(x)[0])(X), jnp.full(3, 1.5))


def test_numpy_scalars_are_arrays_and_python_scalars_are_not():
    class Show(fad.Function):
        @staticmethod
        def forward(x, a, b):
            Show.got = type(a), type(b)
            return x * a * b

    Show.apply(X, np.float32(2.0), 3.0)
    assert Show.got == (fad.Tensor, float)


# ctx


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


def test_save_for_backward_takes_tensors_and_none_only():
    class Bad(fad.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None, 3.0)
            return x

        @staticmethod
        def vjp(ctx, g):
            return g

    with pytest.raises(TypeError, match="save_for_backward: argument 2 must be a Tensor.*3.0"):
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


class Split(fad.Function):
    """sin(x) and its sign, which is marked; vjp and jvp would be wrong if the mark were not obeyed."""

    @staticmethod
    def forward(x):
        return fnp.sin(x), 10 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vjp(ctx, g, h):
        return g * fnp.cos(ctx.saved_tensors[0]) + h

    @staticmethod
    def jvp(ctx, x_t):
        return x_t * fnp.cos(ctx.saved_tensors[0]), x_t


class SplitVjp(Split):
    jvp = None


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
def test_mark_dirty_of_a_leaf_that_requires_grad_is_an_error(F):
    x = leaf(X)
    with pytest.raises(GradientError, match=f"{F.__name__}: a leaf Tensor that requires grad"):
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


@pytest.mark.parametrize("what", ["input", "output"])
def test_mark_dirty_wants_an_input_that_is_an_output(what):
    class Wrong(fad.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * 2
            ctx.mark_dirty(out if what == "input" else x)
            return out

    with pytest.raises(RuleError, match=rf"Wrong: ctx\.mark_dirty.*is not an {what}"):
        Wrong.apply(X)
