"""The jet rule of a Function: used by `fad.jet` under every transform, checked, and otherwise derived."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import RuleError
from fad.testing import check_function

X = jnp.array([0.3, -0.8, 1.2])
ORDERS: list[int] = []  # of the calls of jet rules


def sine(np: Any, x: Any, x_s: list[Any]) -> list[Any]:
    """Derivatives of the sine along a curve, by the recurrence of sine and cosine."""
    c = [s / math.factorial(k) for k, s in enumerate(x_s, 1)]
    a, b = [np.sin(x)], [np.cos(x)]
    for k in range(1, len(c) + 1):
        terms = range(1, k + 1)
        a, b = (
            [*a, sum([i * c[i - 1] * b[k - i] for i in terms]) / k],
            [*b, -sum([i * c[i - 1] * a[k - i] for i in terms]) / k],
        )
    return [y * math.factorial(k) for k, y in enumerate(a)][1:]


class Sine(fad.Function):
    """Has a jet rule alone: it is the jvp rule too, and the vjp is its transpose."""

    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jet(ctx: Any, x_s: list[Any]) -> list[Any]:
        ORDERS.append(len(x_s))
        return sine(fnp, *ctx.saved_tensors, x_s)


class CompiledSine(fad.Function):
    """The same with bodies of JAX, and a vjp."""

    jax_rules = True

    @staticmethod
    def forward(x: Any) -> Any:
        return jnp.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g * jnp.cos(ctx.saved_tensors[0])

    @staticmethod
    def jet(ctx: Any, x_s: list[Any]) -> list[Any]:
        return sine(jnp, *ctx.saved_tensors, x_s)


AROUND: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "nothing": lambda f: f,
    "grad": lambda f: fad.grad(lambda x: fnp.sum(f(x))),
    "hessian": lambda f: fad.hessian(lambda x: fnp.sum(f(x))),
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (x,))[1],
    "vmap": lambda f: fad.vmap(f),
    "grad of vmap": lambda f: fad.grad(lambda x: fnp.sum(fad.vmap(f)(x))),
    "jit": fad.jit,
    "jet": lambda f: lambda x: fad.derivatives(f, x, 2)[2],
    "checkpoint": lambda f: fad.grad(lambda x: fnp.sum(fad.checkpoint(f)(x))),
    "jax": lambda f: jax.jit(jax.grad(lambda x: jnp.sum(fad.to_jax(f)(x)))),
}


def curved(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Derivatives to order 3 of ``f`` on a parabola, around a batch too."""
    return lambda x: sum(fad.derivatives(lambda x: f(x * x) * f(x), x, 3))


@functools.cache
def of_the_operation(name: str) -> Any:
    f = AROUND[name](curved(fnp.sin))
    return (f if name == "jax" else fad.jit(f))(X)  # one program: faster


@pytest.mark.parametrize("function", [Sine, CompiledSine])
@pytest.mark.parametrize("name", AROUND)
def test_it_gives_what_the_operation_gives(name: str, function: Any) -> None:
    assert_close(AROUND[name](curved(function.apply))(X), of_the_operation(name), 1e-4, 1e-4)


@pytest.mark.parametrize("function", [Sine, CompiledSine])
def test_jet_of_vmap_and_of_grad(function: Any) -> None:
    products = lambda f: lambda x: fad.vmap(lambda y: f(x[0] * y))(x)
    assert_close(
        fad.derivatives(products(function.apply), X, 3), fad.derivatives(products(fnp.sin), X, 3)
    )
    along = fad.jet(fad.grad(lambda x: fnp.sum(Sine.apply(x))), (X,), ([X, None, X],))
    assert_close(along, fad.jet(fnp.cos, (X,), ([X, None, X],)), 1e-5, 1e-5)


def test_it_is_used_once_with_all_orders() -> None:
    ORDERS.clear()
    fad.derivatives(Sine.apply, X, 5)
    assert ORDERS == [5]
    ORDERS.clear()
    assert_close(fad.grad(lambda x: fnp.sum(Sine.apply(x)))(X), jnp.cos(X))
    assert_close(fad.jvp(Sine.apply, (X,), (X,))[1], jnp.cos(X) * X)
    assert set(ORDERS) == {1}


class Turn(fad.Function):
    """(p["r"] cos(a), p["r"] sin(a), number of entries): pytrees, None for zero, no derivative."""

    @staticmethod
    def forward(ctx: Any, p: Any, a: Any, k: int = 1) -> Any:
        ctx.save_for_forward(p["r"], a)
        ctx.set_materialize_grads(False)
        count = fnp.ones_like(a)
        ctx.mark_non_differentiable(count)
        return p["r"] * fnp.cos(a), {"y": p["r"] * fnp.sin(a)}, count

    @staticmethod
    def jet(ctx: Any, p_s: Any, a_s: Any, k_s: Any) -> Any:
        assert k_s is None
        if a_s is not None:
            _, more = fad.jet(
                lambda r, a: (r * fnp.cos(a), {"y": r * fnp.sin(a)}),
                ctx.saved_tensors,
                (p_s["r"], a_s),
            )
            return *more, None
        (_, a) = ctx.saved_tensors
        return (
            [s if s is None else s * fnp.cos(a) for s in p_s["r"]],
            {"y": [s if s is None else s * fnp.sin(a) for s in p_s["r"]]},
            None,
        )


def turned(p: Any, a: Any) -> Any:
    return p["r"] * fnp.cos(a), {"y": p["r"] * fnp.sin(a)}, fnp.ones_like(a)


@pytest.mark.parametrize(
    "series", [({"r": [X, X]}, None), ({"r": [X, None]}, [X, X]), ({"r": None}, [None, X])]
)
def test_pytrees_and_zeros(series: Any) -> None:
    primals = ({"r": X}, X + 0.5)
    found, expected = (fad.jet(f, primals, series) for f in (Turn.apply, turned))
    assert_close(found, expected, 1e-5, 1e-5)


def test_check_function_compares_it_with_nested_jvp() -> None:
    report = check_function(Sine, np.array([0.3, -0.5]))
    assert {"jet", "jvp", "vjp", "second order", "vmap of jvp"} <= set(report.passed)

    class Wrong(Sine):
        @staticmethod
        def jet(ctx: Any, x_s: list[Any]) -> list[Any]:
            (x,) = ctx.saved_tensors
            return [fnp.cos(x) * s for s in x_s]

    report = check_function(Wrong, np.array([0.3]), raise_exception=False)
    assert [v.law for v in report.violations] == ["jet"]
    assert "derivative 2 of output 0, of 2, differs from nested jvp" in str(report)


def returning(returned: Any) -> Any:
    class Returns(Sine):
        @staticmethod
        def jet(ctx: Any, x_s: list[Any]) -> Any:
            return returned(x_s)

    return Returns


BAD: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "too few": (lambda s: s[:1], r"series of output 0 must be a list of 2 derivatives, got"),
    "no list": (lambda s: s[0], r"Returns\.jet: the series of output 0 must be a list"),
    "a shape": (lambda s: [s[0], s[1][:2]], r"derivative 2 of output 0 has shape \(2,\), expected"),
    "no array": (lambda s: ["a", s[1]], r"derivative 1 of output 0 must be an array of shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_it_returns_is_checked(name: str) -> None:
    returned, message = BAD[name]
    with pytest.raises(RuleError, match=message):
        fad.derivatives(returning(returned).apply, X, 2)


def test_it_is_checked_when_the_class_is_made() -> None:
    with pytest.raises(
        RuleError, match=r"takes 3 positional parameters, expected 2: jet\(ctx, x_s"
    ):

        class _Arity(Sine):
            @staticmethod
            def jet(ctx: Any, x: Any, x_s: Any) -> Any: ...

    with pytest.raises(RuleError, match="jet must be a static method"):

        class _Method(Sine):
            def jet(self, x_s: Any) -> Any: ...  # type: ignore[override]

    with pytest.raises(RuleError, match="Did you mean jet"):

        class _Spelling(Sine):
            @staticmethod
            def jets(ctx: Any, x_s: Any) -> Any: ...
