"""check_function catches every kind of wrong rule, under the right law, and lets right ones pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Couple, Layer, Product, Sine, TakeAndCount, fit
from wrong_rules import (
    WRONG,
    MissingReduction,
    Modulus,
    Pair,
    RandomForward,
    W,
    Wrong,
    WrongFactor,
    WrongForNone,
    WrongWithoutDimensions,
    X,
    Y,
    Z,
)

import fad
import fad.numpy as fnp
from fad.errors import RuleError, StructureError
from fad.testing import LAWS, LawError, check_function
from fad.testing.cases import Case, Subject


@pytest.mark.sweep("case", WRONG, sample=10, ids=lambda c: c.function.__name__)
def test_a_wrong_rule_is_caught_under_its_law(case: Wrong) -> None:
    np.random.seed(0)
    with pytest.raises(LawError) as caught:
        check_function(case.function, *case.args, **case.options)
    first = caught.value.report.violations[0]
    message = str(caught.value)
    name = case.function.__name__
    assert (first.law, first.rule) == (case.law, case.rule), message
    assert first.argument == case.argument or not case.argument, message
    assert f"[{case.law}] {name}.{case.rule}" in message and case.argument in message
    assert first.case, "it says how to see it"
    assert fad.core.level.state.levels == ()


def test_there_are_enough_wrong_rules() -> None:
    assert len(WRONG) >= 36
    assert len({w.law for w in WRONG}) >= 15


def test_no_fault_is_reported_under_many_names() -> None:
    """What follows from a wrong rule is not reported besides it."""
    for function, args in [(WrongFactor, (X,)), (WrongForNone, (X, Y)), (RandomForward, (X,))]:
        report = check_function(function, *args, raise_exception=False)
        assert len({v.law for v in report.violations}) == 1, report


def test_the_failing_case_is_made_small() -> None:
    report = check_function(
        WrongFactor, np.linspace(0.1, 1.0, 12).reshape(3, 4), raise_exception=False
    )
    (found,) = report.violations
    assert found.case.startswith("x=0.1; cotangent") and found.argument == "argument 'x'"
    report = check_function(WrongWithoutDimensions, X, raise_exception=False)
    assert "with no dimensions" in report.violations[0].what


# Right, but unusual

RIGHT: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}


def right(*args: Any, **options: Any) -> Any:
    def add(function: Any) -> Any:
        RIGHT[function.__name__] = function, args, options
        return function

    return add


right(X, Y)(Product)
right(X)(Sine)
right(X)(Pair)


@right(X[0], Y[0])
class ProductOfNumbers(Product):
    pass


@right(np.zeros((0, 2)), np.zeros((0, 2)))
class ProductOfNothing(Product):
    pass


@right(np.ones((2, 1, 3)), np.ones((4, 1)), order=1)
class ProductThatBroadcasts(Product):
    pass


@right(X, Y)
class NoRules(fad.Function):
    @staticmethod
    def forward(x, y):
        return fnp.sin(x) * y


@right(X, Y)
class JvpOnly(Product):
    vjp = None
    vmap = None


@right(X)
class JaxRules(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(x):
        return jnp.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return g * jnp.cos(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, x_t):
        return x_t * jnp.cos(ctx.saved_tensors[0])

    @staticmethod
    def vmap(info, in_dims, x):
        return jnp.sin(x), in_dims[0]


@right(X)
class JaxRulesThatKeepMore(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(jnp.cos(x))
        return jnp.sin(x)

    @staticmethod
    def vjp(ctx, g):
        return g * ctx.saved_tensors[0]


@right(X)
class KeepsMore(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.cosine = fnp.cos(x)
        ctx.saved_data["shape"] = x.shape
        return fnp.sin(x)

    @staticmethod
    def vjp(ctx, g):
        return g * ctx.cosine


@right(Z, W)
class ComplexProduct(Product):
    pass


right(Z)(Modulus)


@right(X, Y)
class ToComplex(fad.Function):
    @staticmethod
    def forward(x, y):
        return x + 1j * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return fit(fnp.real(g), x), fit(fnp.imag(g), y)


right({"w": X, "b": [Y]}, Couple(Y, X), "linear", None, skip=("broadcasting",))(Layer)


@right(X, kwargs={"exponent": 3})
class Keyword(fad.Function):
    @staticmethod
    def forward(x, *, exponent=2):
        return x**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.exponent = inputs[1]

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.exponent * x ** (ctx.exponent - 1), None


@right(X, kwargs={"shift": Y})
class KeywordArray(fad.Function):
    @staticmethod
    def forward(x, scale=2.0, *, shift):
        return scale * x + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], inputs[2])
        ctx.scale = inputs[1]

    @staticmethod
    def vjp(ctx, g):
        x, shift = ctx.saved_tensors
        return ctx.scale * fit(g, x), None, fit(g, shift)


@right(X, Y, X)
class Variadic(fad.Function):
    @staticmethod
    def forward(*xs):
        return sum(k * x for k, x in enumerate(xs))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return tuple(fit(k * g, x) for k, x in enumerate(ctx.saved_tensors))


right(X, np.array([1, 1, 0]))(TakeAndCount)


@right(X)
class Marked(fad.Function):
    """The second output has no derivative, although it is a float."""

    @staticmethod
    def forward(ctx, x):
        sign = fnp.sign(x) * x
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(x)
        return x * x, sign

    @staticmethod
    def vjp(ctx, g, _):
        return 2.0 * g * ctx.saved_tensors[0]


@right(np.array([0.5, 2.0, 1.0]))
class OnlyIntegersOut(fad.Function):
    @staticmethod
    def forward(x):
        return fnp.argmax(x)


@right(X)
class OnHost(fad.Function):
    """NumPy in and out: no jit, no vmap, no second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return fad.tensor(np.sin(x.numpy()))

    @staticmethod
    @fad.autograd.once_differentiable
    def vjp(ctx, g):
        return g.numpy() * np.cos(ctx.saved_tensors[0].numpy())


@right(X)
class ForwardOnHost(fad.Function):
    """NumPy in forward only: derivatives of every order, if not under jit."""

    @staticmethod
    def forward(x):
        return np.sin(x.numpy())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[0])

    @staticmethod
    def vmap(info, in_dims, x):
        return np.sin(x.numpy()), in_dims[0]


@right(X)
class LastDimensionOut(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return fnp.moveaxis(fnp.sin(x), in_dims[0], -1), -1


@right(X)
class NoBatching(Sine):
    generate_vmap_rule = False


@right(X)
class InPlace(fad.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(3.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def vjp(ctx, g):
        return 3.0 * g


@right(X, Y, skip=("broadcasting",))
class InPlaceWithSetup(fad.Function):
    @staticmethod
    def forward(x, y):
        return x.mul_(y), y * 2.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.mark_dirty(x)
        ctx.save_for_backward(x, y)

    @staticmethod
    def vjp(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y, g * x / y + 2.0 * h


@right(X)
class Traceable(Sine):
    is_traceable = True


@right(X)
class UsesTransforms(Sine):
    @staticmethod
    def vjp(ctx, g):
        return g * fad.jvp(fnp.sin, (ctx.saved_tensors[0],), (fnp.ones_like(g),))[1]


@right(X, Y)
class UsesAnother(fad.Function):
    @staticmethod
    def forward(x, y):
        return Sine.apply(Product.apply(x, y))


@right(X, skip=("vjp", "jvp", "shapes"))
class StraightThrough(fad.Function):
    """Rounding, whose rules are those of the identity on purpose."""

    @staticmethod
    def forward(x):
        return fnp.round(x)

    @staticmethod
    def vjp(ctx, g):
        return g


@right(X.astype(np.float32), Y.astype(np.float32), double=False)
class SinglePrecision(Product):
    pass


@right(jnp.asarray(X, jnp.bfloat16), double=False)
class HalfPrecision(Sine):
    pass


@pytest.mark.sweep("name", list(RIGHT), sample=2)
def test_a_right_rule_passes(name: str) -> None:
    function, args, options = RIGHT[name]
    report = check_function(function, *args, **options)
    assert report.ok and len(report.passed) >= 5
    assert fad.core.level.state.levels == ()


def test_there_are_enough_right_rules() -> None:
    assert len(RIGHT) >= 20


def test_what_was_not_checked_is_reported() -> None:
    report = check_function(OnHost, X)
    for law in ("jit", "native JAX", "vmap", "second order"):
        assert law in report.not_checked and law in str(report)
    assert "needs concrete values" in report.not_checked["jit"]
    assert "generate_vmap_rule" in check_function(NoBatching, X).not_checked["vmap"]
    assert set(report.passed) >= {"vjp", "linear", "deterministic", "shapes", "dtype"}


def test_a_sum_that_is_done_for_the_rule_is_a_remark() -> None:
    report = check_function(MissingReduction, X, X[0])
    assert (report.ok and "broadcasting" in report.not_checked) or "broadcasting" in report.passed
    (remark,) = report.remarks
    assert (
        "MissingReduction.vjp, argument 'y': the gradient has shape (2,), and is summed to ()"
        in remark
    )
    assert "as forward broadcasts it. That gives the right gradient." in remark
    assert f"Remark: {remark}" in str(report)
    elsewhere = check_function(MissingReduction, X, Y).remarks
    assert (
        len(elsewhere) == 1
        and "in a call of the check with shape (1,) for argument 'x'" in elsewhere[0]
    )
    assert check_function(Sine, X).remarks == check_function(Product, X, Y).remarks == []


def test_there_are_no_finite_differences_where_values_change_the_shape() -> None:
    laws = ("forward", "vjp", "jvp", "second order")
    for function, args in [(fnp.unique, (np.array([0.5, 0.5]),)), (fnp.intersect1d, (X, X))]:
        report = check_function(function, *args, laws=laws)
        assert report.passed == ["forward"], report
        assert all("the shapes of the outputs change" in why for why in report.not_checked.values())


def test_higher_orders_of_right_rules() -> None:
    assert "higher orders" in check_function(Sine, X, order=3).passed


def test_a_plain_function_is_checked_too() -> None:
    report = check_function(fnp.arctan2, X, Y)
    assert report.ok and report.function == "arctan2"

    def lost(x):
        return x * fad.stop_gradient(x)

    with pytest.raises(LawError, match=r"\[vjp\] lost\.vjp \(derived\), argument 'x'"):
        check_function(lost, X)


def test_bad_arguments() -> None:
    with pytest.raises(StructureError, match="'speed' is no law; there are deterministic"):
        check_function(Sine, X, laws=("speed",))
    with pytest.raises(TypeError, match="expected a Function class or a function, got float"):
        check_function(3.0, X)
    with pytest.raises(RuleError, match="has no forward"):
        check_function(type("Empty", (fad.Function,), {}), X)
    with pytest.raises(ZeroDivisionError):  # a call that fails is no broken law

        def fails(x):
            raise ZeroDivisionError

        check_function(fails, X)


def test_a_function_without_rules_is_remarked_upon() -> None:
    report = check_function(NoRules, X, Y, laws=["deterministic"])
    assert report.remarks == ["NoRules has no rules: all are derived from forward"]
    assert "Remark: NoRules has no rules" in str(report)
    for other in (JvpOnly, fnp.sin):
        assert not check_function(
            other, *(X, Y)[: 1 + (other is JvpOnly)], laws=["forward"]
        ).remarks


def test_laws_can_be_chosen() -> None:
    report = check_function(WrongFactor, X, laws=("linear", "vmap"))
    assert report.passed == ["linear", "vmap"] and not report.not_checked


def test_every_law_says_what_it_is() -> None:
    for law in LAWS:
        assert law.says and all(
            name in {x.name for x in LAWS} | {"well-formed"} for name in law.after
        )


def test_names_of_arguments() -> None:
    case = Case(Subject(Layer, RIGHT["Layer"][1], {}), Subject(Layer, RIGHT["Layer"][1], {}).arrays)
    assert [case.argument(i) for i in range(4)] == [
        "argument 'params'['b'][0]",
        "argument 'params'['w']",
        "argument 'pair'.left",
        "argument 'pair'.right",
    ]
    assert isinstance(jax.Array, type)
