"""Function: one custom operation with its rules, under fad's transforms and on the eager tape."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Couple, Cube, Layer, Split, SplitVjp, TakeAndCount, cube_jvp, cube_vjp
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.core.level import flush
from fad.core.tensor import storage_of
from fad.errors import GradientError, LevelError, RuleError
from fad.functions.once_differentiable import once_differentiable
from fad.testing import assert_same_program
from fad.testing.functions import VjpWave
from fad.testing.stacks import TRANSFORMS

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])
SCALE = 3.0  # a rule scaled by this cannot be mistaken for a derivative taken by other means


def leaf(x: Any) -> fad.Tensor:
    """A Tensor of the eager graph."""
    return fad.tensor(x, requires_grad=True)


def write_(x: fad.Tensor, new: Any) -> fad.Tensor:
    """Change ``x`` in place, as an in-place method does."""
    flush()
    x.value, x.aux, x.level = new.value, new.aux, new.level
    x.requires_grad, x.node, x.output_nr = new.requires_grad, new.node, new.output_nr
    storage_of(x).version += 1
    return x


class Product(VjpWave):
    """sin(x) y, with a vjp."""


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
        return g(*primals), jax.tree.map(lambda t: k * t, jax.jvp(f, primals, tangents)[1])

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
    assert_close(fad.grad(lambda x, y: F.apply(x, y) @ V, (0, 1))(X, Y), expected)
    assert_close(fad.vmap(F.apply, (0, None))(X, Y), jax.vmap(plain, (0, None))(X, Y))
    stacks = [(), *[(name,) for name in TRANSFORMS]]
    assert_same_program(F.apply, plain, X, Y, stacks=stacks)


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
    with pytest.raises(TypeError, match=r"Product\.apply\(x: .*, y: .*\)"):
        Product.apply(*args, **kwargs)


def test_a_function_is_called_by_apply_alone():
    with pytest.raises(TypeError, match=r"Product\.apply"):
        Product(X, Y)

    class Empty(fad.Function):
        pass

    with pytest.raises(RuleError, match="Empty has no forward"):
        Empty.apply(X)


def test_classes_of_a_registry_have_rules_of_their_own():
    """A base class that does not hand ``__init_subclass__`` on."""

    names = []

    class Registered(fad.Function):
        def __init_subclass__(cls):
            names.append(cls.__name__)

        @staticmethod
        def forward(x):
            return x * 2.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vjp(ctx, g):
            return g * 2.0

    class Five(Registered):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def vjp(ctx, g):
            return g * 5.0, None

    class Wrong(Registered):
        @staticmethod
        def vjp(ctx):
            return None

    for _ in range(2):
        x = fad.tensor(3.0, requires_grad=True)
        y = Registered.apply(x)
        y.backward()
        assert float(y.detach()) == 6.0 and float(x.grad) == 2.0
        x.grad = None
        y = Five.apply(x, fad.tensor(4.0))
        assert y.grad_fn.name() == "FiveBackward"
        y.backward()
        assert float(y.detach()) == 12.0 and float(x.grad) == 5.0
        assert float(fad.grad(Five.apply)(3.0, 4.0)) == 5.0
    with pytest.raises(RuleError, match="Wrong.vjp"):
        Wrong.apply(x)


def layer(params, pair):
    hidden = params["w"] * pair.left + params["b"][0]
    return {"out": hidden, "rest": [pair.right * 2.0, None, "label", (hidden * hidden,)]}


def test_pytrees_in_and_out():
    params, pair = {"w": X, "b": [Y]}, Couple(V, X)

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
    assert_close(
        fad.grad(lambda x: Facts.apply(x)[2].sum() * Facts.apply(x)[0])(X), jnp.full(3, 1.5)
    )


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


# One run of the body


def test_the_body_runs_once_at_first_order():
    f = lambda x: OneMethod.apply(x, Y).sum()

    def runs(g, *args):
        OneMethod.runs = 0
        result = g(*args)
        return OneMethod.runs, result

    def eager(x):
        x = leaf(x)
        f(x).backward()
        return x.grad

    expected = jnp.cos(X) * Y
    for g in (eager, fad.grad(f)):
        count, result = runs(g, X)
        assert count == 1
        assert_close(result, expected)
    per_example = fad.vmap(fad.grad(lambda x, y: OneMethod.apply(x, y)), (0, None))
    count, result = runs(per_example, X, 2.0)
    assert count == 1
    assert_close(result, 2 * jnp.cos(X))
    count, result = runs(fad.grad(lambda x: fad.vmap(OneMethod.apply)(x, Y).sum()), X)
    assert count == 1
    assert_close(result, expected)
    assert runs(fad.jvp, f, (X,), (V,))[0] == 1


def test_a_second_derivative_through_a_saved_intermediate_value_is_right():
    f = lambda x, y: (OneMethod.apply(x, y) * x).sum()
    j = lambda x, y: (plain(x, y) * x).sum()
    x, y = leaf(X), leaf(Y)
    OneMethod.runs = 0
    grads = fad.autograd.grad(f(x, y), (x, y), create_graph=True)
    assert OneMethod.runs == 2  # once more, for the history of the cosine
    total = (grads[0] * V).sum() + (grads[1] * Y).sum()
    second = lambda x, y: (jax.grad(j)(x, y) * V).sum() + (jax.grad(j, 1)(x, y) * Y).sum()
    assert_close(fad.autograd.grad(total, (x, y)), jax.grad(second, (0, 1))(X, Y))
    for ours, theirs in [
        (fad.hessian(f, (0, 1)), jax.hessian(j, (0, 1))),
        (fad.jacrev(fad.grad(f, (0, 1)), (0, 1)), jax.jacrev(jax.grad(j, (0, 1)), (0, 1))),
        (fad.jacfwd(fad.jacfwd(f, (0, 1)), (0, 1)), jax.jacfwd(jax.jacfwd(j, (0, 1)), (0, 1))),
        (fad.jacrev(fad.jacfwd(f, (0, 1)), (0, 1)), jax.jacrev(jax.jacfwd(j, (0, 1)), (0, 1))),
    ]:
        assert_close(ours(X, Y), theirs(X, Y))
    f1, j1 = lambda x: OneMethod.apply(x, 2.0) * x, lambda x: plain(x, 2.0) * x
    assert_close(fad.grad(fad.grad(fad.grad(f1)))(0.3), jax.grad(jax.grad(jax.grad(j1)))(0.3))
    assert_close(fad.vmap(fad.grad(fad.grad(f1)))(X), jax.vmap(jax.grad(jax.grad(j1)))(X))


def test_setup_context_may_compute_what_it_saves():
    class Product2(Product):
        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y = inputs
            ctx.save_for_backward(fnp.cos(x) * y, fnp.sin(x))

        @staticmethod
        def vjp(ctx, g):
            a, b = ctx.saved_tensors
            return g * a, g * b

    f = lambda x: (Product2.apply(x, Y) * x).sum()
    j = lambda x: (plain(x, Y) * x).sum()
    assert_close(fad.hessian(f)(X), jax.hessian(j)(X))
    assert_close(fad.jacrev(fad.grad(f))(X), jax.hessian(j)(X))
    x = leaf(X)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(fad.autograd.grad(g @ V, x)[0], jax.hessian(j)(X) @ V)


class Dropout(fad.Function):
    """Keeps each element or not, by a coin on the host; saves the mask and a product with it."""

    coins = iter(())

    @staticmethod
    def forward(ctx, x):
        mask = jnp.array(next(Dropout.coins))
        kept = x * mask
        ctx.save_for_backward(kept, fad.asarray(mask))
        return kept * x

    @staticmethod
    def vjp(ctx, g):
        kept, mask = ctx.saved_tensors
        return g * (kept + kept)


def test_a_body_that_is_not_deterministic_is_differentiated_as_it_ran():
    first, second = [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]
    Dropout.coins = iter([first, second])
    x = leaf(X)
    (g,) = fad.autograd.grad(Dropout.apply(x).sum(), x, create_graph=True)
    assert_close(g, 2 * X * jnp.array(first))  # although the body ran again, with other coins


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
    assert node.args == [None, None] and node.saved.values == [None, None]
    node = OneMethod.apply(x, y).grad_fn  # has an intermediate, so the body may run again
    assert node.args == [x, y]


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
        assert node.saved is None and node.args == []
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


# Missing rules


def cube(x):
    return x**3


class VjpOnly(Cube):
    """Its derivative is scaled, so what is derived from it must be scaled too."""

    vjp = cube_vjp(SCALE)


class JvpOnly(Cube):
    jvp = cube_jvp(SCALE)


class BothRules(VjpOnly):
    jvp = staticmethod(JvpOnly.jvp)


class VmapRule(BothRules):
    @staticmethod
    def vmap(info, in_dims, x):
        return x**3, in_dims[0]


class VjpOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    vjp = staticmethod(VjpOnly.vjp)


class JvpOneMethod(fad.Function):
    forward = staticmethod(VjpOneMethod.forward)
    jvp = staticmethod(JvpOnly.jvp)


class NoRuleOneMethod(fad.Function):
    forward = staticmethod(VjpOneMethod.forward)


def jaxed(F):
    return type(f"Jax{F.__name__}", (F,), {"jax_rules": True})


CUBES = [
    (Cube, 1.0),
    (NoRuleOneMethod, 1.0),
    (VjpOnly, SCALE),
    (JvpOnly, SCALE),
    (BothRules, SCALE),
    (VmapRule, SCALE),
    (VjpOneMethod, SCALE),
    (JvpOneMethod, SCALE),
]
CUBES += [(jaxed(F), k) for F, k in CUBES]


@pytest.mark.sweep("case", CUBES, sample=10, ids=lambda case: case[0].__name__)
def test_missing_rules_are_derived_from_those_that_are_there(case):
    F, k = case
    j = scaled(cube, k)
    total, total_j = (lambda x: (F.apply(x) * V).sum()), (lambda x: (j(x) * V).sum())
    assert_close(F.apply(X), cube(X))
    assert_close(fad.grad(total)(X), jax.grad(total_j)(X))
    assert_close(fad.jvp(F.apply, (X,), (V,)), jax.jvp(j, (X,), (V,)))
    x = leaf(X)
    total(x).backward()
    assert_close(x.grad, jax.grad(total_j)(X))
    # Second order differentiates the rules themselves, in each mode.
    assert_close(fad.jacfwd(fad.grad(total))(X), jax.jacfwd(jax.grad(total_j))(X))
    assert_close(fad.jacrev(fad.grad(total))(X), jax.jacfwd(jax.grad(total_j))(X))
    assert_close(fad.jacfwd(fad.jacfwd(total))(X), jax.jacfwd(jax.jacfwd(total_j))(X))
    assert_close(fad.jacrev(fad.jacfwd(total))(X), jax.jacfwd(jax.jacfwd(total_j))(X))
    # vmap inside and outside keeps them.
    rows = jnp.stack([X, Y])
    assert_close(fad.vmap(F.apply)(rows), cube(rows))
    assert_close(fad.vmap(fad.grad(total))(rows), jax.vmap(jax.grad(total_j))(rows))
    assert_close(
        fad.grad(lambda x: (fad.vmap(F.apply, 1, 1)(x) * V).sum())(rows),
        jax.grad(lambda x: (jax.vmap(j, 1, 1)(x) * V).sum())(rows),
    )
    assert_close(fad.jvp(fad.vmap(F.apply), (rows,), (rows,)), jax.jvp(j, (rows,), (rows,)))
    push = lambda x, t: fad.jvp(F.apply, (x,), (t,))[1]
    assert_close(fad.vmap(push)(rows, rows), jax.jvp(j, (rows,), (rows,))[1])
    assert_close(fad.grad(fad.checkpoint(total))(X), jax.grad(total_j)(X))


def test_a_rule_taken_back_by_none_is_derived_again():
    class Again(BothRules):
        vjp = None
        jvp = None

    assert_close(fad.grad(lambda x: Again.apply(x).sum())(X), 3 * X**2)


# vmap


class Recorder(fad.Function):
    """x + y, and what its vmap rule was told."""

    told: Any = None

    @staticmethod
    def forward(x, y):
        return x + y

    @staticmethod
    def vjp(ctx, g):
        return SCALE * g, g

    @staticmethod
    def vmap(info, in_dims, x, y):
        Recorder.told = info.batch_size, info.randomness, in_dims
        front = [v if d is None else fnp.moveaxis(v, d, 0) for v, d in zip((x, y), in_dims)]
        return front[0] + front[1], 0


@pytest.mark.parametrize(
    ("in_dims", "told"), [((0, None), (0, None)), ((-1, 1), (1, 1)), ((None, -2), (None, 0))]
)
def test_a_vmap_rule_is_told_the_batch(in_dims, told):
    x = jnp.arange(6.0).reshape(2, 3)
    size = 2 if told[0] == 0 or told[1] == 0 else 3
    args = [
        v if d is not None else v[0] if told[0] == 0 or told[1] == 0 else v
        for v, d in zip((x, 2 * x), in_dims)
    ]
    out = fad.vmap(Recorder.apply, in_dims, randomness="different")(*args)
    assert Recorder.told == (size, "different", told)
    assert_close(out, jax.vmap(jnp.add, in_dims)(*args))
    weights = jnp.arange(out.size, dtype=jnp.float32).reshape(out.shape)
    ours = lambda x, y: (fad.vmap(Recorder.apply, in_dims)(x, y) * weights).sum()
    theirs = lambda x, y: (jax.vmap(jnp.add, in_dims)(x, y) * weights).sum()
    assert Recorder.told[1] == "different"
    grads = jax.grad(theirs, (0, 1))(*args)
    assert_close(fad.grad(ours, (0, 1))(*args), (SCALE * grads[0], grads[1]))
    assert Recorder.told[1] == "error"


def test_a_vmap_rule_may_put_the_batch_anywhere_in_each_output():
    class Parts(fad.Function):
        @staticmethod
        def forward(x):
            return {"sum": x.sum(), "outer": x[:, None] * x, "one": fnp.ones(2)}

        @staticmethod
        def vmap(info, in_dims, x):
            (d,) = in_dims
            x = fnp.moveaxis(x, d, 0)
            outer = fnp.moveaxis(x[:, :, None] * x[:, None, :], 0, -1)
            return (
                {"sum": x.sum(1), "outer": outer, "one": fnp.ones(2)},
                {"sum": 0, "outer": -1, "one": None},
            )

    rows = jnp.stack([X, Y])
    expected = {
        "sum": rows.sum(1),
        "outer": rows[:, :, None] * rows[:, None, :],
        "one": jnp.ones((2, 2)),
    }
    assert_close(fad.vmap(Parts.apply)(rows), expected)
    assert_close(fad.vmap(Parts.apply, 1)(rows.T), expected)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: x, r"must return a pair \(output, out_dims\)"),
        (lambda x: (x, 2), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 2"),
        (lambda x: (x, 1), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 1"),
        (lambda x: (x, (0, 0)), r"out_dims must be"),
        (lambda x: (x, "0"), r"out_dims '0'"),
    ],
)
def test_what_a_vmap_rule_returns_is_checked(returned, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def vmap(info, in_dims, x):
            return returned(x)

    with pytest.raises(RuleError, match=rf"Bad\.vmap:? ?.*{message}"):
        fad.vmap(Bad.apply)(jnp.stack([X, Y]))


def test_generate_vmap_rule_false_refuses_to_derive_one():
    class Refuses(fad.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x, y):
            return x + y

    assert_close(Refuses.apply(X, Y), X + Y)
    assert_close(fad.jacrev(Refuses.apply)(X, Y), jnp.eye(3))
    for f in (fad.vmap(Refuses.apply), jax.vmap(Refuses.apply)):
        with pytest.raises(
            RuleError, match=r"Refuses: generate_vmap_rule.*vmap\(info, in_dims, x, y"
        ):
            f(X, Y)


@pytest.mark.parametrize("F", [BothRules, VmapRule, VjpOneMethod, jaxed(VmapRule)])
def test_a_vmapped_function_keeps_the_rules_of_its_user_at_any_depth(F):
    j = scaled(cube)
    x = jnp.arange(1.0, 13.0).reshape(2, 3, 2)
    ours = lambda x: fad.vmap(fad.vmap(F.apply, 1), -1, 1)(x).sum()
    theirs = lambda x: jax.vmap(jax.vmap(j, 1), -1, 1)(x).sum()
    assert_close(fad.grad(ours)(x), jax.grad(theirs)(x))
    assert_close(fad.jvp(ours, (x,), (x,)), jax.jvp(theirs, (x,), (x,)))
    assert_close(
        fad.vmap(fad.grad(lambda x: fad.vmap(F.apply)(x).sum()))(x),
        jax.vmap(jax.grad(lambda x: jax.vmap(j)(x).sum()))(x),
    )
    assert_close(fad.vmap(fad.vmap(fad.jacfwd(F.apply)))(x), jax.vmap(jax.vmap(jax.jacfwd(j)))(x))


# jax_rules


class Counted(fad.Function):
    """sin(x) exp(y), in plain jax.numpy; counts how often Python runs each body."""

    jax_rules = True
    runs: dict = {}

    @staticmethod
    def note(name, *arrays):
        assert all(isinstance(a, jax.Array) for a in arrays)
        Counted.runs[name] = Counted.runs.get(name, 0) + 1

    @staticmethod
    def forward(x, y, power=1):
        Counted.note("forward", x, y)
        return jnp.sin(x) ** power * jnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        Counted.note("setup", inputs[0], output)
        ctx.save_for_backward(jnp.cos(inputs[0]), jnp.exp(inputs[1]), output)
        ctx.save_for_forward(inputs[0], output, jnp.exp(inputs[1]))
        ctx.power = inputs[2]

    @staticmethod
    def vjp(ctx, g):
        cosine, exp, output = ctx.saved_tensors
        Counted.note("vjp", g, cosine, output)
        assert ctx.power == 1
        return SCALE * g * cosine * exp, SCALE * g * output, None

    @staticmethod
    def jvp(ctx, x_t, y_t, power_t):
        x, output, exp = ctx.saved_tensors
        Counted.note("jvp", x, x_t)
        return SCALE * (x_t * jnp.cos(x) * exp + y_t * output)

    @staticmethod
    def vmap(info, in_dims, x, y, power):
        Counted.note("vmap", x)
        front = [v if d is None else jnp.moveaxis(v, d, 0) for v, d in zip((x, y), in_dims)]
        return jnp.sin(front[0]) * jnp.exp(front[1]), 0


def test_jax_rules_bodies_get_arrays_and_are_compiled_once():
    f = lambda x, y: Counted.apply(x, y).sum()
    j = lambda x, y: scaled(lambda x, y: jnp.sin(x) * jnp.exp(y))(x, y).sum()
    transforms = {
        "call": (f, j),
        "grad": (fad.grad(f, (0, 1)), jax.grad(j, (0, 1))),
        "jvp": (
            lambda x, y: fad.jvp(f, (x, y), (V, V))[1],
            lambda x, y: jax.jvp(j, (x, y), (V, V))[1],
        ),
        "vmap": (fad.vmap(Counted.apply), lambda x, y: jnp.sin(x) * jnp.exp(y)),
        "vmap grad": (fad.vmap(fad.grad(f)), jax.vmap(jax.grad(j))),
        "hessian": (fad.hessian(f), jax.jacfwd(jax.grad(j))),
        "grad grad": (
            fad.grad(lambda x, y: (fad.grad(f)(x, y) * V).sum()),
            jax.grad(lambda x, y: (jax.grad(j)(x, y) * V).sum()),
        ),
    }
    for name, (ours, theirs) in transforms.items():
        expected = theirs(X, Y)
        for _ in range(6):  # the backward pass is compiled as a whole when it has come back
            assert_close(ours(X, Y), expected)
        before = dict(Counted.runs)
        for k in range(3):
            ours(X + k, Y - k)
        assert Counted.runs == before, name


def test_jax_rules_save_intermediate_values_rather_than_compute_them_again():
    class Slow(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            expensive = jnp.linalg.cholesky(x)
            ctx.save_for_backward(expensive)
            return jnp.log(jnp.diagonal(expensive)).sum() * 2

        @staticmethod
        def vjp(ctx, g):
            (factor,) = ctx.saved_tensors
            inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(2))
            return g * inverse

    m = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    x = leaf(m)
    out = Slow.apply(x)
    (factor,) = out.grad_fn.saved.extras
    assert_close(factor, jnp.linalg.cholesky(m))
    out.backward()
    assert_close(x.grad, jnp.linalg.inv(m))
    slogdet = lambda m: jnp.linalg.slogdet(m)[1]
    ours = fad.jacfwd(fad.grad(lambda s: Slow.apply(s * m)))(2.0)
    assert_close(ours, jax.hessian(lambda s: slogdet(s * m))(2.0))
    text = jax.jit(jax.grad(Slow.apply)).lower(m).as_text()
    assert text.count("cholesky") <= 2  # the call and, on CPU, its declaration


def test_jax_rules_take_python_floats_as_arrays():
    class Scale(fad.Function):
        jax_rules = True
        traces = 0

        @staticmethod
        def forward(x, rate, axis):
            Scale.traces += 1
            assert isinstance(rate, jax.Array) and rate.weak_type and type(axis) is int
            return x * rate

    Scale.apply(X, 1.0, 0)
    before = Scale.traces
    for rate in (0.5, 0.25, 0.125):
        assert_close(Scale.apply(X, rate, 0), X * rate)
    assert Scale.traces == before
    half = jnp.ones(2, jnp.bfloat16)
    assert Scale.apply(half, 2.0, 0).dtype == jnp.bfloat16


def test_jax_rules_keep_static_values_and_objects_on_ctx():
    class Box:
        def __init__(self, value):
            self.value = value

    class Keeps(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x, mode):
            ctx.mode, ctx.box, ctx.saved_data["n"] = mode, Box(2 * x), (3, [None])
            return x**2

        @staticmethod
        def vjp(ctx, g):
            assert ctx.mode == "m" and ctx.saved_data["n"] == (3, [None])
            return g * ctx.box.value, None

    f = lambda x: Keeps.apply(x, "m").sum()
    assert_close(fad.grad(f)(X), 2 * X)
    assert_close(fad.vmap(fad.grad(fad.grad(lambda x: Keeps.apply(x, "m"))))(X), jnp.full(3, 2.0))


def test_jax_rules_bodies_that_meet_a_tensor_say_so():
    w = leaf(Y)

    class Closes(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(x):
            return x * w

    with pytest.raises(
        RuleError, match=r"Closes\.forward closes over 'w'.*argument of Closes\.apply"
    ):
        Closes.apply(X)
    with pytest.raises(RuleError, match=r"Closes\.forward closes over 'w'"):
        fad.grad(lambda x: Closes.apply(x).sum())(X)


# once_differentiable


class Once(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.x = x
        return x**3

    @staticmethod
    @once_differentiable
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        assert not x.requires_grad and not ctx.x.requires_grad
        return SCALE * 3 * x * ctx.x * g


class OnceOnHost(fad.Function):
    @staticmethod
    def forward(x):
        return fad.asarray(x.numpy() ** 3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def vjp(ctx, g):
        return SCALE * 3 * ctx.saved_tensors[0].numpy() ** 2 * g.numpy()


def jax_once_forward(ctx, x):
    ctx.save_for_backward(x)
    return x**3


@once_differentiable
def jax_once_vjp(ctx, g):
    return SCALE * 3 * ctx.saved_tensors[0] ** 2 * g


class OnceJax(fad.Function):
    jax_rules = True
    forward = staticmethod(jax_once_forward)
    vjp = staticmethod(jax_once_vjp)


TWICE = "@once_differentiable"


@pytest.mark.parametrize("F", [Once, OnceOnHost, OnceJax])
def test_once_differentiable(F):
    expected = SCALE * 3 * X**2
    f = lambda x: F.apply(x).sum()
    x = leaf(X)
    f(x).backward()
    assert_close(x.grad, expected)
    assert_close(fad.grad(f)(X), expected)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(g, expected)
    assert g.requires_grad
    with pytest.raises(GradientError, match=TWICE):
        fad.autograd.grad(g.sum(), x)
    for second in (
        fad.grad(lambda x: fad.grad(f)(x).sum()),
        fad.jacfwd(fad.grad(f)),
        fad.jacrev(fad.grad(f)),
        lambda x: fad.jvp(fad.grad(f), (x,), (V,)),
        lambda x: fad.linearize(fad.grad(f), x)[1](V),
    ):
        with pytest.raises(GradientError, match=TWICE):
            second(X)


@pytest.mark.parametrize("F", [Once, OnceJax])
def test_once_differentiable_under_vmap_and_native_jax(F):
    expected = SCALE * 3 * X**2
    f = lambda x: F.apply(x).sum()
    rows = jnp.stack([X, X])
    for grad in (
        fad.vmap(fad.grad(f)),
        fad.grad(lambda x: fad.vmap(f)(x).sum()),
        jax.vmap(jax.grad(f)),
        jax.jit(jax.vmap(jax.grad(f))),
        jax.grad(lambda x: jax.vmap(f)(x).sum()),
    ):
        assert_close(grad(rows), jnp.stack([expected, expected]))
    for grad in (
        jax.grad(f),
        jax.jit(jax.grad(f)),
        jax.grad(jax.checkpoint(f)),
        fad.jit(fad.grad(f)),
    ):
        assert_close(grad(X), expected)
    for second in (
        fad.vmap(fad.grad(lambda x: fad.grad(f)(x).sum())),
        fad.vmap(fad.jacfwd(fad.grad(f))),
        fad.grad(lambda x: fad.vmap(fad.grad(f))(x).sum()),
        jax.vmap(jax.jacfwd(jax.grad(f))),
    ):
        with pytest.raises(GradientError, match=TWICE):
            second(rows)
    for second in (jax.hessian(f), jax.jacrev(jax.grad(f)), jax.jit(jax.jacfwd(jax.grad(f)))):
        with pytest.raises(GradientError, match=TWICE):
            second(X)


def test_once_differentiable_gives_no_jvp_rule():
    with pytest.raises(GradientError, match=r"Once has no jvp rule.*write jvp\(ctx, x_t\)"):
        fad.jvp(Once.apply, (X,), (V,))


# Bodies that leave JAX


class HostSine(fad.Function):
    """sin(x) y in NumPy, forward and vjp."""

    @staticmethod
    def forward(x, y):
        return np.sin(np.asarray(x)) * y.numpy()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return g.numpy() * np.cos(x.numpy()) * y.numpy(), np.asarray(g) * np.sin(x.numpy())


class HostSineOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x, y):
        a, b = np.asarray(x), np.asarray(y)
        ctx.x, ctx.saved_data["y"] = a, b
        return np.sin(a) * b

    @staticmethod
    def vjp(ctx, g):
        return g.numpy() * np.cos(ctx.x) * ctx.saved_data["y"], g.numpy() * np.sin(ctx.x)


HOSTS = [HostSine, HostSineOneMethod]


@pytest.mark.parametrize("F", HOSTS)
def test_numpy_bodies_work_at_first_order(F):
    f = lambda x, y: (F.apply(x, y) * V).sum()
    expected = jax.grad(lambda x, y: (plain(x, y) * V).sum(), (0, 1))(X, Y)
    assert_close(F.apply(X, Y), plain(X, Y))
    x, y = leaf(X), leaf(Y)
    f(x, y).backward()
    assert_close((x.grad, y.grad), expected)
    assert_close(fad.grad(f, (0, 1))(X, Y), expected)
    assert_close(fad.value_and_grad(f, (0, 1))(X, Y)[1], expected)
    assert_close(fad.vjp(F.apply, X, Y)[1](V), expected)
    # The gradient is a constant to the grad around, which differentiates something else.
    outer = lambda y: (fad.grad(f)(X, Y) * y).sum()
    assert_close(fad.grad(outer)(Y), expected[0])


def raises_host(rule, *words):
    """An error that names the Function, the rule and what to write."""
    return pytest.raises(RuleError, match=rf"{rule} needs concrete values.*{'.*'.join(words)}")


@pytest.mark.parametrize("F", HOSTS)
def test_numpy_bodies_say_what_to_write_elsewhere(F):
    name = F.__name__
    f = lambda x, y: F.apply(x, y).sum()
    rows = jnp.stack([X, X])
    for batched in (
        fad.vmap(F.apply),
        fad.vmap(fad.grad(f)),
        fad.grad(lambda x, y: fad.vmap(f)(x, y).sum()),
    ):
        with raises_host(rf"{name}\.forward", r"vmap\(info, in_dims, x, y\)"):
            batched(rows, rows)
    for compiled in (fad.jit(F.apply), jax.jit(F.apply), jax.grad(f), jax.vmap(F.apply)):
        with raises_host(rf"{name}\.forward", "pure_callback"):
            compiled(X, Y)
    with raises_host(rf"{name}\.vjp", r"jvp\(ctx, x_t, y_t\)|jvp rule"):
        fad.jvp(F.apply, (X, Y), (V, V))
    second = lambda x, y: (fad.grad(f)(x, y) * V).sum()
    with raises_host(rf"{name}\.(vjp|forward)", "once_differentiable|save inputs and outputs"):
        fad.grad(second)(X, Y)
    x, y = leaf(X), leaf(Y)
    with raises_host(rf"{name}\.(vjp|forward)", "once_differentiable|save inputs and outputs"):
        fad.autograd.grad(f(x, y), x, create_graph=True)


@pytest.mark.parametrize(
    "read", [lambda x: x.numpy(), lambda x: x.array, lambda x: x.tolist(), np.asarray]
)
def test_a_derivative_is_not_derived_from_a_body_that_leaves_jax(read):
    class Host(fad.Function):
        @staticmethod
        def forward(x):
            return fad.asarray(np.sin(np.asarray(read(x)))) * x

    assert_close(Host.apply(X), jnp.sin(X) * X)
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        fad.grad(lambda x: Host.apply(x).sum())(X)
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        fad.jvp(Host.apply, (X,), (V,))
    out = Host.apply(leaf(X))
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        out.sum().backward()


def test_scalars_taken_out_of_a_body_count_too():
    class Scalar(fad.Function):
        @staticmethod
        def forward(x):
            if x > 0:  # a branch is fine
                return x * float(x)
            return x * x.item()

    for value in (jnp.float32(2.0), jnp.float32(-2.0)):
        assert Scalar.apply(value) == value**2
        with raises_host(r"Scalar\.forward", "write a vjp or jvp rule"):
            fad.grad(Scalar.apply)(value)


def test_rules_of_host_code_that_keep_to_fad_compose():
    class Host(fad.Function):
        """forward leaves JAX; vjp and vmap do not, or need not."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return np.sin(x.numpy())

        @staticmethod
        def vjp(ctx, g):
            return g * fnp.cos(ctx.saved_tensors[0])

    f = lambda x: (Host.apply(x) * x).sum()
    j = lambda x: (jnp.sin(x) * x).sum()
    assert_close(fad.hessian(f)(X), jax.hessian(j)(X))
    assert_close(fad.jacrev(fad.grad(f))(X), jax.hessian(j)(X))
    assert_close(fad.jvp(Host.apply, (X,), (V,)), jax.jvp(jnp.sin, (X,), (V,)))
    x = leaf(X)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(fad.autograd.grad(g @ V, x)[0], jax.hessian(j)(X) @ V)

    class Batched(Host):
        @staticmethod
        def forward(x):
            return np.sin(x.numpy())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vmap(info, in_dims, x):
            return np.sin(x.numpy()), in_dims[0]

    rows = jnp.stack([X, Y])
    total = lambda x: (Batched.apply(x) * V).sum()
    expected = jnp.cos(rows) * V
    assert_close(fad.vmap(fad.grad(total))(rows), expected)
    assert_close(fad.grad(lambda x: fad.vmap(total)(x).sum())(rows), expected)
    assert_close(fad.vmap(Batched.apply)(rows), jnp.sin(rows))


# Bodies that close over a tracked value


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


# Errors at class creation


def body(*names):
    """A static method with these parameters."""
    scope: dict[str, Any] = {}
    exec(f"def f({', '.join(names)}): return None", scope)
    return staticmethod(scope["f"])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"vjp": body("ctx", "g"), "backward": body("ctx", "g")}, "both vjp and backward"),
        ({"vjp": body("ctx")}, r"Bad\.vjp\(ctx\) takes 1 .* expected 2 or more: vjp\(ctx, g\)"),
        ({"backward": body()}, r"Bad\.backward\(\) takes 0 .* expected 2 or more"),
        ({"jvp": body("ctx", "x_t")}, r"Bad\.jvp\(ctx, x_t\).*expected 3: jvp\(ctx, x_t, y_t\)"),
        ({"jvp": body("c", "a", "b", "d")}, r"Bad\.jvp.*takes 4.*expected 3"),
        ({"vmap": body("info", "x", "y")}, r"Bad\.vmap.*takes 3.*vmap\(info, in_dims, x, y\)"),
        ({"setup_context": body("ctx", "inputs")}, r"Bad\.setup_context.*\(ctx, inputs, output\)"),
        ({"vjp": body("ctx", "g").__func__}, r"Bad\.vjp must be a static method"),
        ({"forward": lambda x: x}, r"Bad\.forward must be a static method"),
        ({"jvp": classmethod(lambda cls, x: x)}, r"Bad\.jvp must be a static method"),
        (
            {"vmap": body("info", "in_dims", "x", "y"), "generate_vmap_rule": True},
            "vmap and asks for generate_vmap_rule",
        ),
        (
            {
                "forward": body("ctx", "x"),
                "setup_context": body("ctx", "inputs", "output"),
            },
            r"Bad\.forward takes ctx, and there is a setup_context too",
        ),
    ],
)
def test_malformed_rules_are_refused_when_the_class_is_made(rules, message):
    with pytest.raises(RuleError, match=message):
        type("Bad", (fad.Function,), {"forward": body("x", "y"), **rules})


def test_well_formed_rules_of_every_shape_are_accepted():
    make = lambda **rules: type("Good", (fad.Function,), {"forward": body("x", "y"), **rules})
    make(vjp=None, backward=body("ctx", "g"))  # None takes an inherited rule back
    make(vjp=body("ctx", "g", "h"))
    make(vjp=body("ctx", "*gs"), jvp=body("ctx", "*ts"), vmap=body("info", "in_dims", "*args"))
    make(jvp=body("ctx", "x_t", "y_t", "more=None"))
    make(forward=body("*xs"), jvp=body("ctx", "*ts"), vmap=body("info", "in_dims", "*xs"))
    make(forward=body("x", "*", "k=1"), vmap=body("info", "in_dims", "x", "*", "k"))
    make(vmap=body("info", "in_dims", "x", "y"))
    make(generate_vmap_rule=True)


# Errors at return


def returning(value, n_out=1):
    """A Function of (x, tree) with ``n_out`` outputs whose vjp returns ``value(g)``."""

    class Bad(fad.Function):
        @staticmethod
        def forward(x, tree):
            out = x * tree["w"]
            return out if n_out == 1 else (out,) * n_out

        @staticmethod
        def vjp(ctx, g):
            return value(g)

    return lambda x, w: Bad.apply(x, {"w": w})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda g: g, r"Bad\.vjp returned 1 gradients, expected 2: .*\(x, tree\)"),
        (lambda g: (g, None, g), r"Bad\.vjp returned 3 gradients, expected 2"),
        (
            lambda g: (g.sum(), None),
            r"the gradient for argument 'x' has shape \(\), expected \(3,\)",
        ),
        (lambda g: (None, {"w": g[:2]}), r"argument 'tree' has shape \(2,\), expected \(3,\)"),
        (
            lambda g: (None, {"v": g}),
            r"argument 'tree' must have the structure \{'w': \*\}, got \{'v'",
        ),
        (lambda g: (None, [g]), r"argument 'tree' must have the structure"),
        (
            lambda g: ("g", None),
            r"argument 'x' must be an array of shape \(3,\) or None, got str 'g'",
        ),
    ],
)
def test_what_a_vjp_returns_is_checked(value, message):
    f = returning(value)
    with pytest.raises(
        RuleError, match=rf"Bad\.vjp.*{message}" if "Bad" not in message else message
    ):
        fad.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)
    with pytest.raises(RuleError, match=message):
        f(leaf(X), Y).sum().backward()
    with pytest.raises(RuleError, match=message):
        jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)


def test_a_vjp_with_another_number_of_outputs_says_so():
    f = returning(lambda g: (g, None), n_out=2)
    with pytest.raises(
        RuleError, match=r"Bad\.vjp takes 2 arguments, but is called with ctx and 2"
    ):
        fad.grad(lambda x: f(x, Y)[0].sum())(X)


def test_trailing_nones_and_lists_of_gradients_are_accepted():
    for value in (lambda g: (g, None, None, None), lambda g: [g, None]):
        assert_close(fad.grad(lambda x, f=returning(value): f(x, Y).sum())(X), jnp.ones(3))


def test_one_pytree_argument_takes_its_gradient_with_or_without_a_tuple_around():
    def make(value):
        class One(fad.Function):
            @staticmethod
            def forward(pair):
                return pair[0] * pair[1]

            @staticmethod
            def vjp(ctx, g):
                return value(g)

        return lambda x, y: One.apply((x, y)).sum()

    for value in (lambda g: (g, 2 * g), lambda g: ((g, 2 * g),), lambda g: [(g, 2 * g)]):
        assert_close(fad.grad(make(value), (0, 1))(X, Y), (jnp.ones(3), jnp.full(3, 2.0)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda t: t.sum(), r"the tangent of output 0 has shape \(\), expected \(3,\)"),
        (lambda t: "t", r"the tangent of output 0 must be an array"),
        (
            lambda t: (t, t),
            r"the tangent of output 0 must be an array of shape \(3,\) or None, got tuple",
        ),
    ],
)
def test_what_a_jvp_returns_is_checked(value, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def jvp(ctx, x_t):
            return value(x_t)

    for push in (
        lambda: fad.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.linearize(Bad.apply, X)[1](V),
        lambda: jax.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.grad(lambda x: Bad.apply(x).sum())(X),
    ):
        with pytest.raises(RuleError, match=rf"Bad\.jvp: {message}"):
            push()


def test_gradients_and_tangents_are_cast_to_the_dtype_of_their_primal():
    class Casts(fad.Function):
        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def vjp(ctx, g):
            return fnp.ones(3, jnp.int32) * 2

        @staticmethod
        def jvp(ctx, x_t):
            return x_t.astype(jnp.float32) + 1j * x_t.astype(jnp.float32)

    half = X.astype(jnp.float16)
    for grad in (fad.grad, jax.grad):
        assert_close(grad(lambda x: Casts.apply(x).sum())(half), jnp.full(3, 2, jnp.float16))
    for jvp in (fad.jvp, jax.jvp):
        assert jvp(Casts.apply, (half,), (half,))[1].dtype == jnp.float16


def test_a_gradient_that_is_not_summed_over_broadcast_dimensions_says_so():
    class Broadcast(fad.Function):
        @staticmethod
        def forward(x, y):
            return x + y

        @staticmethod
        def vjp(ctx, g):
            return g, g

    with pytest.raises(RuleError, match=r"argument 'y'.*sum the gradient over the broadcast"):
        fad.grad(lambda y: Broadcast.apply(X, y).sum())(jnp.float32(1.0))


# Complex


class Modulus(fad.Function):
    """conj(z) w, with PyTorch's convention for gradients."""

    @staticmethod
    def forward(z, w):
        return fnp.conj(z) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        z, w = ctx.saved_tensors
        return fnp.conj(g) * w, g * z  # adjoints: <g, conj(dz) w> and <g, conj(z) dw>

    @staticmethod
    def jvp(ctx, z_t, w_t):
        z, w = ctx.saved_tensors
        return fnp.conj(z_t) * w + fnp.conj(z) * w_t


class ModulusVjp(Modulus):
    jvp = None


class ModulusJvp(Modulus):
    vjp = None


class ModulusDerived(ModulusVjp):
    vjp = None


@pytest.mark.parametrize("F", [Modulus, ModulusVjp, ModulusJvp, ModulusDerived])
def test_complex_gradients_follow_pytorch(F):
    z, w = jnp.array([1.0 + 2.0j, -0.5j]), jnp.array([0.3 - 1.0j, 2.0 + 0.1j])
    loss = lambda z, w: fnp.real(F.apply(z, w) * (2.0 + 1.0j)).sum()
    jloss = lambda z, w: jnp.real(jnp.conj(z) * w * (2.0 + 1.0j)).sum()
    expected = jax.tree.map(jnp.conj, jax.grad(jloss, (0, 1))(z, w))
    assert_close(fad.grad(loss, (0, 1))(z, w), expected)
    square = lambda z: fnp.real(F.apply(z, z))
    assert_close(fad.grad(square)(1 + 2j), jnp.asarray(2 + 4j))  # |z|^2
    f, j = F.apply, lambda z, w: jnp.conj(z) * w
    assert_close(fad.jvp(f, (z, w), (w, z)), jax.jvp(j, (z, w), (w, z)))
    # Native JAX has JAX's convention.
    native = lambda z, w: jnp.real(F.apply(z, w) * (2.0 + 1.0j)).sum()
    assert_close(jax.grad(native, (0, 1))(z, w), jax.grad(jloss, (0, 1))(z, w))
    assert_close(jax.jvp(f, (z, w), (w, z)), jax.jvp(j, (z, w), (w, z)))
    x = fad.tensor(z, requires_grad=True)
    loss(x, w).backward()
    assert_close(x.grad, expected[0])


# Functions together


def test_a_function_in_a_function_keeps_its_own_rules():
    class Outer(fad.Function):
        """Its rules are derived from its body, which calls a Function whose rules are scaled."""

        @staticmethod
        def forward(x):
            return VjpOnly.apply(x) * 2.0

    class WithRules(fad.Function):
        @staticmethod
        def forward(x):
            return VjpOnly.apply(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            return g * JvpOnly.apply(ctx.saved_tensors[0])

    j = scaled(cube)
    f = lambda x: 2.0 * j(x)
    assert_close(fad.grad(lambda x: Outer.apply(x).sum())(X), jax.grad(lambda x: f(x).sum())(X))
    assert_close(fad.jvp(Outer.apply, (X,), (V,)), jax.jvp(f, (X,), (V,)))
    assert_close(fad.vmap(fad.grad(fad.grad(Outer.apply)))(X), jax.vmap(jax.grad(jax.grad(f)))(X))
    assert_close(fad.vmap(fad.grad(WithRules.apply))(X), X**3)
    assert_close(fad.vmap(fad.grad(fad.grad(WithRules.apply)))(X), jax.vmap(jax.grad(j))(X))
    assert_close(fad.vmap(fad.jacfwd(fad.grad(WithRules.apply)))(X), jax.vmap(jax.grad(j))(X))


def test_a_vjp_may_use_transforms_and_the_tape():
    class Inner(fad.Function):
        @staticmethod
        def forward(x):
            return x**4

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            (x,) = ctx.saved_tensors
            return g * fad.grad(lambda v: (v**4).sum())(x)

    class OnTape(Inner):
        @staticmethod
        def vjp(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with fad.enable_grad():
                return g * fad.autograd.grad((x**4).sum(), x)[0]

    assert_close(fad.grad(lambda x: Inner.apply(x).sum())(X), 4 * X**3)
    assert_close(fad.vmap(fad.grad(fad.grad(Inner.apply)))(X), 12 * X**2)
    assert_close(fad.grad(lambda x: OnTape.apply(x).sum())(X), 4 * X**3)
    x = leaf(X)
    OnTape.apply(x).sum().backward()
    assert_close(x.grad, 4 * X**3)


def test_rules_are_inherited_and_the_nearest_definition_counts():
    class Base(fad.Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 10 * g

    class ByVjp(Base):
        @staticmethod
        def vjp(ctx, g):
            return 20 * g

    class ByBackward(ByVjp):
        @staticmethod
        def backward(ctx, g):
            return 30 * g

    class OtherForward(ByBackward):
        @staticmethod
        def forward(ctx, x):
            ctx.k = 1.0
            return 7 * x

    class Mixin:
        @staticmethod
        def jvp(ctx, x_t):
            return 5 * x_t

    class Mixed(Mixin, Base):
        pass

    for F, k in [(Base, 10.0), (ByVjp, 20.0), (ByBackward, 30.0), (OtherForward, 30.0)]:
        assert_close(fad.grad(lambda x, F=F: F.apply(x).sum())(X), jnp.full(3, k))
    assert_close(OtherForward.apply(X), 7 * X)
    assert_close(fad.jvp(Mixed.apply, (X,), (V,))[1], 5 * V)
    assert_close(fad.grad(lambda x: Mixed.apply(x).sum())(X), jnp.full(3, 10.0))


def test_no_grad_records_nothing_and_tangents_go_on():
    x = leaf(X)
    with fad.no_grad():
        assert not Product.apply(x, Y).requires_grad
    stopped = fad.no_grad(Product.apply)
    assert_close(fad.jvp(lambda x: stopped(x, Y), (X,), (V,))[1], jnp.cos(X) * Y * V)
    assert_close(fad.grad(lambda x: (stopped(x, Y) * x).sum())(X), plain(X, Y))


def test_two_threads_share_a_function_and_its_graph():
    x = leaf(X)
    out = OneMethod.apply(x, Y).sum()
    total = lambda x: (Product.apply(x, Y) * V).sum()
    j = lambda x: (plain(x, Y) * V).sum()
    barrier = threading.Barrier(2)

    def work(k):
        barrier.wait()
        results = []
        for _ in range(10):
            out.backward(retain_graph=True)
            results.append(fad.grad(total)(k * X))
            with fad.dual_level():
                dual = fad.make_dual(fad.tensor(k * X), fad.tensor(V))
                results.append(fad.unpack_dual(Product.apply(dual, Y)).tangent)
        return results

    with ThreadPoolExecutor(2) as pool:
        for k, results in zip((1.0, 2.0), pool.map(work, (1.0, 2.0))):
            for gradient, tangent in zip(results[::2], results[1::2]):
                assert_close(gradient, jax.grad(j)(k * X))
                assert_close(tangent, jnp.cos(k * X) * Y * V)
    assert_close(x.grad, 20 * jnp.cos(X) * Y)


def test_an_exception_in_a_body_leaves_no_trace():
    class Fails(fad.Function):
        where = ""

        @staticmethod
        def forward(x):
            if Fails.where == "forward":
                raise ZeroDivisionError
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            if Fails.where == "setup":
                raise ZeroDivisionError

        @staticmethod
        def vjp(ctx, g):
            if Fails.where == "vjp":
                raise ZeroDivisionError
            return 2 * g

    f = lambda x: Fails.apply(x).sum()
    for where in ("forward", "setup", "vjp"):
        for transform in (
            fad.grad(f),
            fad.vmap(fad.grad(f)),
            fad.jacfwd(fad.grad(f)),
            lambda x: f(leaf(x)).backward(),
        ):
            Fails.where = where
            with pytest.raises(ZeroDivisionError):
                transform(X[:, None])
            Fails.where = ""
            assert math.isclose(float(fad.grad(lambda x: f(x))(X)[0]), 2.0)


# Lanes: named axes and random numbers in a body


class Centred(fad.Function):
    """x minus its mean over the lanes; the vjp is scaled."""

    @staticmethod
    def forward(x):
        return x - fad.lax.pmean(x, "lanes")

    @staticmethod
    def vjp(ctx, g):
        return SCALE * (g - fad.lax.pmean(g, "lanes"))


def test_a_body_may_name_the_axis_of_the_vmap_around_it():
    mapped = fad.vmap(Centred.apply, axis_name="lanes")
    centre = lambda x: x - x.mean(0)
    assert_close(mapped(X), centre(X))
    assert_close(fad.grad(lambda x: (mapped(x) * V).sum())(X), SCALE * centre(V))
    assert_close(fad.jvp(mapped, (X,), (V,))[1], SCALE * centre(V))
    assert_close(fad.vmap(fad.grad(Centred.apply), axis_name="lanes")(X), jnp.zeros(3))
    rows = jnp.stack([X, Y])
    assert_close(fad.vmap(mapped)(rows), jax.vmap(centre)(rows))
    native = jax.vmap(Centred.apply, axis_name="lanes")
    assert_close(native(X), centre(X))
    assert_close(jax.grad(lambda x: (native(x) * V).sum())(X), SCALE * centre(V))


class Noisy(fad.Function):
    """x times noise drawn in the body."""

    @staticmethod
    def forward(x, key):
        return x * fad.random.uniform(key)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return g * fad.random.uniform(ctx.saved_tensors[1]), None


def test_random_numbers_in_a_body_follow_the_vmap_around_it():
    key = jax.random.key(0)
    keys = jax.random.split(key, 3)
    expected = X * jax.vmap(jax.random.uniform)(keys)
    assert_close(fad.vmap(Noisy.apply)(X, keys), expected)
    assert_close(fad.vmap(fad.grad(Noisy.apply))(X, keys), expected / X)
    assert_close(fad.grad(lambda x: fad.vmap(Noisy.apply)(x, keys).sum())(X), expected / X)
    with pytest.raises(LevelError, match="randomness='different'"):
        fad.vmap(Noisy.apply, (0, None))(X, key)
    same = fad.vmap(Noisy.apply, (0, None), randomness="same")
    assert_close(same(X, key), X * jax.random.uniform(key))
    different = fad.vmap(Noisy.apply, (0, None), randomness="different")
    noise = different(X, key) / X
    assert len(set(noise.tolist())) == 3
    assert_close(fad.grad(lambda x: different(x, key).sum())(X), noise)
    assert_close(fad.jvp(lambda x: different(x, key), (X,), (V,))[1], V * noise)


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
