"""Derivatives where a function is smooth, and JAX's formula for it is not: against mpmath and PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import fad
import fad.nn
import fad.numpy as fnp
import fad.scipy.special as special
from fad.arrays.derive import SMOOTH

INTEGERS = (0.0, 1.0, -1.0, 2.0)
TINY, HUGE = 1e-200, 1e200


def _power(x: Any, y: float) -> Any:
    return x ** int(y) if y == int(y) else x**y


# A function, the same in mpmath, and where: in 64 bits.
SMOOTH_AT: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]] = {
    **{
        f"x ** {y}": (lambda x, y=y: x**y, lambda x, y=y: _power(x, y), INTEGERS)
        for y in (0.0, 1.0, 2.0, 3.0)
    },
    "float_power": (lambda x: fnp.float_power(x, 1.0), lambda x: x, INTEGERS),
    "lax.pow": (lambda x: fad.lax.pow(x, x * 0 + 2.0), lambda x: x**2, (1.0, 3.0)),
    "x ** array of integers": (lambda x: x ** fnp.ones_like(x, int), lambda x: x, INTEGERS),
    "x ** 2.5": (lambda x: x**2.5, lambda x: x ** mp.mpf(2.5), (1.0, 2.0)),
    "2 ** y": (lambda y: 2.0**y, lambda y: mp.mpf(2) ** y, INTEGERS),
    "numpy.i0": (fnp.i0, lambda x: mp.besseli(0, x), (0.0, 1e-5, 0.1, -3.0, 8.5)),
    "i0": (special.i0, lambda x: mp.besseli(0, x), (0.0, 1e-5, 0.1, -3.0, 8.5)),
    "i1": (special.i1, lambda x: mp.besseli(1, x), (0.0, 1e-30, 1e-5, -3.0, 20.0)),
    "i0e": (special.i0e, lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), (1e-5, 3.0, -9.0)),
    "i1e": (special.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), (1e-20, 3.0, -9.0)),
    "kaiser": (
        lambda b: fnp.stack([fnp.kaiser(5, v)[1] for v in b]),
        lambda b: mp.besseli(0, b * mp.sqrt(mp.mpf(3) / 4)) / mp.besseli(0, b),
        (0.0, 2.0),
    ),
    "spence": (
        special.spence,
        lambda x: mp.polylog(2, 1 - x).real,
        (0.01, 0.7, 1.0, 1.1, 2.0, 9.0),
    ),
    "sici": (lambda x: special.sici(x)[0], mp.si, (0.0, 1e-8, 1e-3, 2.0, -5.0)),
    "sinc": (fnp.sinc, mp.sincpi, (0.0, TINY, 1e-8, 1e-5, 1e-3, 0.7, 1.0, -3.0)),
    "exp1": (special.exp1, mp.e1, (0.1, 1.0, 3.0)),
    "expn": (lambda x: special.expn(1, x), lambda x: mp.expint(1, x), (0.1, 1.0, 3.0)),
    "expn of order 3": (lambda x: special.expn(3, x), lambda x: mp.expint(3, x), (0.5, 4.0)),
    "dawsn": (
        special.dawsn,
        lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
        (0.0, 1.0, 13.0, 1e3),
    ),
    "boxcox by x": (lambda x: special.boxcox(x, 2.0), lambda x: (x * x - 1) / 2, (0.5, 1.0)),
    "boxcox by lmbda": (
        lambda y: special.boxcox(3.0, y),
        lambda y: mp.expm1(y * mp.log(3)) / y if y else mp.log(3),
        (0.0, 1e-9, 1.0, -2.0),
    ),
    "boxcox1p by lmbda": (
        lambda y: special.boxcox1p(2.0, y),
        lambda y: mp.expm1(y * mp.log(3)) / y if y else mp.log(3),
        (0.0, 1.0),
    ),
    "hypot": (lambda x: fnp.hypot(x, 3 * x / x), lambda x: mp.hypot(x, 3), (1.0, -2.0)),
    "hypot of tiny numbers": (
        lambda x: fnp.hypot(x, 2e-200),
        lambda x: mp.hypot(x, 2e-200),
        (TINY,),
    ),
    "arctan2": (lambda x: fnp.arctan2(x, 2e-150), lambda x: mp.atan2(x, 2e-150), (1e-150, -1e-150)),
    "x / tiny": (lambda x: x / 1e-200, lambda x: x / mp.mpf(1e-200), (0.0, 1.0)),
    "tiny / x": (lambda x: 1e-180 / x, lambda x: mp.mpf(1e-180) / x, (3e-160, 2.0)),
    "huge / x": (lambda x: HUGE / x, lambda x: mp.mpf(HUGE) / x, (3e190, 2.0)),
    "arcsinh": (fnp.arcsinh, mp.asinh, (0.0, 1.0, -3.0, 1e170)),
    "arccosh": (fnp.arccosh, mp.acosh, (1.5, 1e170)),
    "ldexp": (lambda x: fnp.ldexp(x, 1), lambda x: 2 * x, (0.0, 3.0)),
    "gelu": (
        fad.nn.gelu,
        lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))),
        (0.0, 1.0, -2.0, 40.0, HUGE),
    ),
    "log1mexp": (fad.nn.log1mexp, lambda x: mp.log(-mp.expm1(-x)), (0.1, 1.0, 800.0)),
}


@pytest.mark.sweep("name", list(SMOOTH_AT), sample=5)
def test_derivatives_where_a_function_is_smooth(name: str) -> None:
    function, exact, points = SMOOTH_AT[name]
    with jax.enable_x64(True), mp.workdps(60):
        x = jnp.array(points)
        first = fad.grad(lambda x: fnp.sum(function(x)))
        second = fad.grad(lambda x: fnp.sum(first(x)))
        for order, derivative in ((1, first), (2, second)):
            step = [mp.mpf(10) ** -15 * (abs(p) or mp.mpf(10) ** -3) for p in points]
            with mp.workdps(900 if min(abs(p) or 1 for p in points) < 1e-50 else 120):
                want = [
                    float(mp.diff(exact, mp.mpf(p), order, h=h, relative=False))
                    for p, h in zip(points, step, strict=True)
                ]
            np.testing.assert_allclose(
                derivative(x), want, rtol=1e-9, atol=1e-12 if name != "hypot" else 1e-9
            )


def _ways(f: Any) -> dict[str, Callable[[Any], Any]]:
    """The second derivative at one point, in many ways."""

    def on_tape(x: Any) -> Any:
        t = fad.tensor(x, requires_grad=True)
        (g,) = fad.autograd.grad(f(t), t, create_graph=True)
        return fad.autograd.grad(g, t)[0]

    return {
        "grad of grad": fad.grad(fad.grad(f)),
        "hessian": fad.hessian(f),
        "jvp of jvp": lambda x: fad.jvp(lambda x: fad.jvp(f, (x,), (1.0,))[1], (x,), (1.0,))[1],
        "grad of jvp": fad.grad(lambda x: fad.jvp(f, (x,), (1.0,))[1]),
        "jvp of grad": lambda x: fad.jvp(fad.grad(f), (x,), (1.0,))[1],
        "vmap": lambda x: fad.vmap(fad.grad(fad.grad(f)))(jnp.stack([x, x]))[1],
        "grad of vmap": lambda x: fad.grad(
            lambda x: fad.grad(lambda x: fnp.sum(fad.vmap(f)(x)))(x)[0]
        )(jnp.stack([x, x]))[0],
        "jit": fad.jit(fad.grad(fad.grad(f))),
        "grad of jit": fad.grad(fad.grad(fad.jit(f))),
        "jet": lambda x: fad.derivatives(f, x, 2)[2],
        "tape": on_tape,
        "JAX": jax.grad(jax.grad(fad.to_jax(f))),
        "JAX, vmap": lambda x: jax.vmap(jax.grad(jax.grad(fad.to_jax(f))))(x[None])[0],
    }


@pytest.mark.sweep("way", list(_ways(special.i0)), sample=3)
def test_all_transforms_use_the_rules(way: str) -> None:
    x = jnp.array(0.0)
    for f, want in ((lambda x: x**1.0 + 3 * x**2.0, 6.0), (special.i0, 0.5)):
        assert float(_ways(f)[way](x)) == want


def test_powers_of_zero_agree() -> None:
    x, exponents = jnp.zeros(4), fnp.arange(4.0)
    want = np.array([0.0, 1.0, 0.0, 0.0])
    for f in (
        lambda x: x**exponents,
        lambda x: fnp.power(x, exponents),
        lambda x: fnp.pow(x, exponents.array),
        lambda x: fnp.float_power(x, exponents),
        lambda x: fad.lax.pow(x, exponents),
        lambda x: fad.asarray(x).pow(exponents),
        lambda x: fnp.diagonal(fnp.vander(x, 4, increasing=True)),
    ):
        np.testing.assert_array_equal(fad.grad(lambda x, f=f: fnp.sum(f(x)))(x), want)
        hessian = fad.hessian(lambda x, f=f: fnp.sum(f(x)))(x)
        np.testing.assert_array_equal(hessian, np.diag([0.0, 0.0, 2.0, 0.0]))
    mixed = fad.hessian(lambda v: v[0] ** v[1])(jnp.array([2.0, 0.0]))
    np.testing.assert_allclose(mixed, [[0, 0.5], [0.5, np.log(2) ** 2]], rtol=1e-6)


def test_polyfit_at_zero() -> None:
    y = jnp.array([0.0, 1.0, 2.0, 5.0])
    x = jnp.array([0.0, 1.0, 2.0, 4.0])
    found = fad.grad(lambda x: fnp.polyfit(x, y, 2).sum())(x)
    moved = fad.grad(lambda x: fnp.polyfit(x, y, 2).sum())(x.at[0].set(1e-4))
    np.testing.assert_allclose(found, moved, rtol=1e-2)


def test_weights_of_zero_in_logsumexp() -> None:
    a, b = jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 0.0, 2.0])
    by_a, by_b = fad.grad(lambda a, b: special.logsumexp(a, b=b), (0, 1))(a, b)
    total = np.sum(b * np.exp(a))
    np.testing.assert_allclose(by_a, b * np.exp(a) / total, rtol=1e-5)
    np.testing.assert_allclose(by_b, np.exp(a) / total, rtol=1e-5)


def test_signs_of_complex_numbers_turn() -> None:
    z, t = 3.0 + 4.0j, 1.0 + 0.0j
    tangent = fad.jvp(fnp.sign, (z,), (t,))[1]
    np.testing.assert_allclose(tangent, (16 - 12j) / 125, rtol=1e-5)


def test_deviation_of_one_element() -> None:
    x = jnp.array([[3.0], [1.0]])
    for f in (fnp.std, fnp.nanstd):
        assert fad.grad(lambda x, f=f: fnp.sum(f(x, axis=1)))(x).tolist() == [[0.0], [0.0]]
        assert fad.hessian(lambda x, f=f: f(x))(x[0]).tolist() == [[0.0]]
    assert fad.grad(lambda x: fnp.nanstd(x))(jnp.array([3.0, jnp.nan])).tolist() == [0.0, 0.0]


NAN = float("nan")


def test_extremes_with_nan_vs_torch(torch: Any) -> None:
    for values in ([1.0, NAN, 2.0], [1.0, NAN, NAN], [1.0, 2.0, 2.0]):
        for name in ("max", "min"):
            t = torch.tensor(values, requires_grad=True)
            getattr(torch, name)(t).backward()
            assert fad.grad(getattr(fnp, name))(jnp.array(values)).tolist() == t.grad.tolist()
            x = fad.tensor(values, requires_grad=True)
            getattr(x, name)().backward()
            assert x.grad.tolist() == t.grad.tolist()


def test_the_greater_one_is_nan() -> None:
    x, y = jnp.array([NAN, 1.0, NAN, 2.0]), jnp.array([1.0, NAN, NAN, 2.0])
    for f in (fnp.maximum, fnp.minimum):
        by_x, by_y = fad.grad(lambda x, y, f=f: fnp.sum(f(x, y)), (0, 1))(x, y)
        assert by_x.tolist() == [1.0, 0.0, 0.5, 0.5]
        assert by_y.tolist() == [0.0, 1.0, 0.5, 0.5]


def test_powers_of_zero_by_the_exponent_vs_torch(torch: Any) -> None:
    exponents = [-1.0, 0.0, 0.5, 1.0, 2.0]
    t = torch.tensor(exponents, requires_grad=True)
    (0.0**t).sum().backward()
    y = jnp.array(exponents)
    assert fad.grad(lambda y: fnp.sum(0.0**y))(y).tolist() == t.grad.tolist()


ARGUMENTS = {
    "vander": ((4,), {}), "polyfit": ((jnp.array([1.0, 0.0, 2.0]), 1), {}), "ldexp": ((2,), {}),
}  # fmt: skip
TWO = set(
    "float_power pow power divide true_divide arctan2 atan2 hypot maximum minimum boxcox boxcox1p".split()
)


@pytest.mark.sweep("name", [f"{m}.{n}" for m, t in SMOOTH.items() for n in t], sample=5)
def test_values_are_those_of_jax(name: str) -> None:
    """The same bits, dtypes and weak types."""
    module, _, attribute = name.rpartition(".")
    theirs = getattr(importlib.import_module(module), attribute)
    ours = getattr(importlib.import_module(module.replace("jax", "fad", 1)), attribute)
    x = jnp.array([0.25, 0.5, 0.75])
    weak = jax.jit(lambda: 0.5)()
    for first in (x, weak):
        args: tuple[Any, ...] = (first,)
        more, options = ARGUMENTS.get(attribute, ((), {}))
        if attribute in TWO:
            args = (first, x if first is weak else weak)
        if attribute == "pow" and module == "jax.lax":
            args = (x, x)
        if attribute in ("expn", "kaiser"):
            args = (2, first if attribute == "expn" else weak)
        if attribute in ("vander", "polyfit"):
            args = (x,)
        got, want = (
            ours(*args, *more, **options),
            jax.jit(
                lambda *a, m=more: theirs(*a, *m), static_argnums=0 if attribute == "kaiser" else ()
            )(*args),
        )
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (g.dtype, g.weak_type, g.shape) == (w.dtype, w.weak_type, w.shape)
            assert np.asarray(g).tobytes() == np.asarray(w).tobytes()
