"""What a class defines: how arguments are bound, which rules are inherited, what is refused at once."""

from __future__ import annotations

import abc
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close
from scaled_functions import Product

import fad
from fad.errors import RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


# Calling


class Affine(fad.Function):
    """scale * x + shift, with every kind of parameter; vjp gives 1, 2, 3, ... to distinguish them."""

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
        ({"jvp": lambda ctx, x_t, y_t: x_t}, r"Bad\.jvp must be a static method"),
        (
            {"vmap": body("info", "in_dims", "x", "y"), "generate_vmap_rule": True},
            "vmap and sets generate_vmap_rule",
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
    make(vjp=classmethod(lambda cls, ctx, g: (g, g)))
    make(vjp=body("ctx", "*gs"), jvp=body("ctx", "*ts"), vmap=body("info", "in_dims", "*args"))
    make(jvp=body("ctx", "x_t", "y_t", "more=None"))
    make(forward=body("*xs"), jvp=body("ctx", "*ts"), vmap=body("info", "in_dims", "*xs"))
    make(forward=body("x", "*", "k=1"), vmap=body("info", "in_dims", "x", "*", "k"))
    make(vmap=body("info", "in_dims", "x", "y"))
    make(generate_vmap_rule=True)


# Inheritance


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


def test_what_is_said_of_a_context_that_is_not_known_as_one():
    class Odd(fad.Function):
        @staticmethod
        def forward(notes, x):
            return 2.0 * x

        @staticmethod
        def vjp(ctx, g):
            return 2.0 * g

    with pytest.raises(TypeError, match=r"missing.*'x'. If 'notes' is the context, call it ctx"):
        Odd.apply(1.0)


# Names that are spelt almost like those of rules


def function(**members: Any) -> Any:
    """A Function class with these members besides forward."""
    return type("Slip", (fad.Function,), {"forward": staticmethod(lambda x: x), **members})


@pytest.mark.parametrize(
    "name, meant",
    [
        ("bakcward", "backward"),
        ("Backward", "backward"),
        ("backwards", "backward"),
        ("foward", "forward"),
        ("setup_contex", "setup_context"),
        ("setupcontext", "setup_context"),
        ("vjps", "vjp"),
        ("vmaps", "vmap"),
        ("generate_vmap_rules", "generate_vmap_rule"),
        ("is_tracable", "is_traceable"),
        ("jax_rule", "jax_rules"),
    ],
)
def test_a_name_spelt_almost_like_a_rule_is_refused(name: str, meant: str) -> None:
    for member in (staticmethod(lambda ctx, g: g), lambda ctx, g: g, True):
        with pytest.raises(RuleError) as caught:
            function(**{name: member})
        assert all(words in str(caught.value) for words in (f"Slip.{name}", f"mean {meant}?"))
        assert f"_{name}" in str(caught.value)  # how to keep a helper of that name


def test_other_names_and_those_with_an_underscore_are_kept() -> None:
    names = "_bakcward _vjp helper scale forward_body gradient setup apply_to batch rule".split()
    slip = function(**dict.fromkeys(names, staticmethod(lambda x: 2.0 * x)))
    assert slip._bakcward(1.0) == slip.helper(1.0) == 2.0


def test_what_a_base_that_is_no_function_has_is_not_looked_at() -> None:
    mixin = type("Mixin", (), {"backwards": staticmethod(lambda x: x)})
    body = {"forward": staticmethod(lambda x: x * 2.0)}
    assert_close(type("Mixed", (mixin, fad.Function), body).apply(X), X * 2.0)


def test_a_function_without_rules_says_so_in_its_repr() -> None:
    text = "Slip', without rules: its derivatives are derived from forward>"
    assert repr(function()).endswith(text)
    rule = staticmethod(lambda ctx, g: g)
    for slip in (fad.Function, function(vjp=rule), function(jvp=rule), Product):
        assert "without rules" not in repr(slip)
    assert "without rules" in repr(type("Undone", (function(vjp=rule),), {"vjp": None}))


def test_a_function_may_be_abstract() -> None:
    class Abstract(fad.Function, abc.ABC):
        @staticmethod
        @abc.abstractmethod
        def forward(x): ...

    double = type("Double", (Abstract,), {"forward": staticmethod(lambda x: 2.0 * x)})
    assert fad.grad(double.apply)(1.0) == 2.0
