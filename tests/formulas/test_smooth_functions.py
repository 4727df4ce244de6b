"""Derivatives where a function is smooth, and JAX's formula for it is not: against mpmath and PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.nn
import fad.numpy as fnp
import fad.scipy.linalg as scipy_linalg
import fad.scipy.special as special
from fad.arrays import special_cases
from fad.formulas import INSTEAD, SMOOTH

mp = pytest.importorskip("mpmath", reason="the oracle of many digits (extra: test)")

INTEGERS = (0.0, 1.0, -1.0, 2.0)
TINY, HUGE = 1e-200, 1e200


def _power(x: Any, y: float) -> Any:
    return x ** int(y) if y == int(y) else x**y


def _betainc(a: float, b: float, x: Any) -> Any:
    """The polynomial that it is for integers."""
    n = int(a + b) - 1
    return sum(mp.binomial(n, j) * x**j * (1 - x) ** (n - j) for j in range(int(a), n + 1))


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
    "i1e": (special.i1e, lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), (1e-20, 1e-4, 3.0, -9.0)),
    "i0, thrice": (
        lambda x: fad.jvp(special.i0, (x,), (fnp.ones_like(x),))[1],
        lambda x: mp.besseli(1, x),
        (0.0, 1e-3, 2.0, 3.9, 4.1, -11.0),
    ),
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
    "erfcx": (special.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), (0.0, 1.0, 13.0, 1e5)),
    "log_ndtr": (special.log_ndtr, lambda x: mp.log(mp.ncdf(x)), (0.0, 1.0, 9.0, -10.0, -1e5)),
    "poch by z": (lambda z: special.poch(z, 2.0), lambda z: z * (z + 1), (0.0, TINY, 1.0, 3.0)),
    "poch by m": (
        lambda m: special.poch(0.5, m),
        lambda m: mp.rf(mp.mpf(0.5), m),
        (0.0, 1.0, 2.0, 0.25),
    ),
    **{
        name: (function, exact, (-1e-3, -1.8, -9.5, -12.3, -200.75, 0.3, 7.0))
        for name, function, exact in (
            ("gammaln", special.gammaln, lambda x: mp.loggamma(x).real),
            ("lax.lgamma", fad.lax.lgamma, lambda x: mp.loggamma(x).real),
            ("digamma", special.digamma, mp.digamma),
            ("lax.digamma", fad.lax.digamma, mp.digamma),
            ("polygamma", lambda x: special.polygamma(2, x), lambda x: mp.polygamma(2, x)),
            (
                "polygamma of arrays",
                lambda x: special.polygamma(jnp.array([[1], [2]]), x).sum(0),
                lambda x: mp.polygamma(1, x) + mp.polygamma(2, x),
            ),
            (
                "lax.polygamma",
                lambda x: fad.lax.polygamma(fnp.ones_like(x), x),
                lambda x: mp.polygamma(1, x),
            ),
            (
                "method polygamma",
                lambda x: fad.asarray(x).polygamma(1),
                lambda x: mp.polygamma(1, x),
            ),
        )
    },
    "gamma": (special.gamma, mp.gamma, (-0.3, -5.5, -9.5, -12.3, 0.3, 7.0)),
    "comb with repetition": (
        lambda k: special.comb(5.0, k, repetition=True),
        lambda k: mp.binomial(4 + k, k),
        (0.0, 1.0, 2.5),
    ),
    "gammainc at 0": (  # of order 1 to 3: entire functions
        lambda x: fnp.stack([special.gammainc(a, x) for a in (1.0, 2.0, 3.0)]).sum(0),
        lambda x: 3 - mp.exp(-x) * (3 + 2 * x + x * x / 2),
        (0.0, 1e-100, 0.5, 9.0),
    ),
    "gammaincc at 0": (
        lambda x: special.gammaincc(2.0, x),
        lambda x: mp.exp(-x) * (1 + x),
        (0.0, 1e-100, 0.5, 9.0),
    ),
    "lax.igamma at 0": (
        lambda x: fad.lax.igamma(2 * fnp.ones_like(x), x),
        lambda x: 1 - mp.exp(-x) * (1 + x),
        (0.0, 3.0),
    ),
    **{
        f"betainc({a}, {b}) at 0 and 1": (
            lambda x, a=a, b=b: special.betainc(a, b, x),
            lambda x, a=a, b=b: _betainc(a, b, x),
            (0.0, 1e-100, 0.25, 1.0),
        )
        for a, b in ((1.0, 1.0), (2.0, 2.0), (1.0, 3.0), (5.0, 1.0))
    },
    "xlogy by tiny y": (lambda y: special.xlogy(TINY, y), lambda y: TINY * mp.log(y), (1e-190,)),
    "rel_entr by tiny q": (
        lambda q: special.rel_entr(TINY, q),
        lambda q: mp.mpf(TINY) * mp.log(TINY / q),
        (1e-190, 1e-180),
    ),
    "kl_div by tiny q": (
        lambda q: special.kl_div(TINY, q),
        lambda q: mp.mpf(TINY) * mp.log(TINY / q) - mp.mpf(TINY) + q,
        (1e-190, 1e-180),
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
    "hypot of unlike numbers": (
        lambda x: fnp.hypot(x, 1e-38),
        lambda x: mp.hypot(x, mp.mpf(1e-38)),
        (1e-30, 1e-46),
    ),
    "arctan2": (lambda x: fnp.arctan2(x, 2e-150), lambda x: mp.atan2(x, 2e-150), (1e-150, -1e-150)),
    "arctan2 by x": (
        lambda x: fnp.arctan2(3.0, x),
        lambda x: mp.atan2(3, x),
        (0.0, 1.0, -2.0, 1e90),
    ),
    "arctan2 by y": (lambda y: fnp.arctan2(y, -3.0), lambda y: mp.atan2(y, -3), (1.0, -2.0)),
    "arctan2 of huge numbers": (
        lambda x: fnp.arctan2(HUGE, x),
        lambda x: mp.atan2(HUGE, x),
        (HUGE,),
    ),
    "x / tiny": (lambda x: x / 1e-200, lambda x: x / mp.mpf(1e-200), (0.0, 1.0)),
    "tiny / x": (lambda x: 1e-180 / x, lambda x: mp.mpf(1e-180) / x, (3e-160, 2.0)),
    "huge / x": (lambda x: HUGE / x, lambda x: mp.mpf(HUGE) / x, (3e190, 2.0)),
    "arcsinh": (fnp.arcsinh, mp.asinh, (0.0, 1.0, -3.0, 1e170)),
    "arccosh": (fnp.arccosh, mp.acosh, (1.5, 1e170)),
    "lax.asinh": (fad.lax.asinh, mp.asinh, (0.0, 1.0, -3.0, 1e170)),
    "lax.acosh": (fad.lax.acosh, mp.acosh, (1.5, 1e170)),
    "ldexp": (lambda x: fnp.ldexp(x, 1), lambda x: 2 * x, (0.0, 3.0)),
    "gelu": (
        fad.nn.gelu,
        lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))),
        (0.0, 1.0, -2.0, 40.0, HUGE),
    ),
    "soft_sign": (fad.nn.soft_sign, lambda x: x / (1 + abs(x)), (0.5, -3.0, 1e8, -1e30)),
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


def test_hypot_of_any_size_in_one_program() -> None:
    """XLA joins two divisions to one by a square, which is 0 or infinite for most sizes."""
    sizes = jnp.array([3e-38, 1e-30, 1e-20, 1e-4, 1.0, -2.0, 1e20, 1e30, 4e37])
    x, y = [v.ravel() for v in jnp.meshgrid(sizes, sizes)]
    lanes = lambda f: lambda x, y: fad.grad(lambda x, y: fnp.sum(f(x, y)), (0, 1))(x, y)
    first, second = lanes(fnp.hypot), lanes(lambda x, y: lanes(fnp.hypot)(x, y)[0])
    h = np.hypot(np.array(x, float), np.array(y, float))
    c, s = np.array(x, float) / h, np.array(y, float) / h
    found = [*fad.jit(first)(x, y), *fad.jit(second)(x, y)]
    for got, want in zip(found, (c, s, s * s / h, -c * s / h), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-37)


def _beta(a: Any, b: Any) -> Any:
    return mp.gamma(a) * mp.gamma(b) / mp.gamma(a + b)


def _mixed(f: Any, point: tuple[float, float]) -> list[float]:
    """Both first and the three second derivatives, by differences with many digits."""
    orders = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    with mp.workdps(60):
        return [float(mp.diff(f, tuple(map(mp.mpf, point)), n)) for n in orders]


OF_TWO_ARGUMENTS: dict[str, tuple[Any, Any, tuple[tuple[float, float], ...]]] = {
    "betaln": (
        special.betaln,
        lambda a, b: mp.log(_beta(a, b)),
        ((1.0, 1.0), (2.0, 2.0), (0.5, 0.5), (20.0, 20.0), (1e-8, 1e-8), (3.0, 9.5), (1e10, 1e10)),
    ),
    "beta": (special.beta, _beta, ((1.0, 1.0), (0.5, 0.5), (2.0, 3.5), (-0.5, 0.25))),
    "gammainc": (
        special.gammainc,
        lambda a, x: mp.gammainc(a, 0, x, regularized=True),
        ((2.0, 0.5), (3.5, 9.0), (200.0, 180.0), (1e-3, 1.01), (100.0, 101.0), (1.0, 1.1)),
    ),
    "owens_t": (
        special.owens_t if hasattr(jax.scipy.special, "owens_t") else None,
        lambda h, a: mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]) / (2 * mp.pi),
        ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0)),
    ),
    "boxcox": (
        special.boxcox,
        lambda x, y: mp.expm1(y * mp.log(x)) / y if y else mp.log(x),
        ((3.0, 0.0), (1.0, 0.0), (1.0, 2.0), (1e-6, 3.0), (0.5, -1e-9), (20.0, 0.2), (2.0, -4.0)),
    ),
    "boxcox1p": (
        special.boxcox1p,
        lambda x, y: mp.expm1(y * mp.log1p(x)) / y if y else mp.log1p(x),
        ((1e-9, 0.0), (0.0, 1.0), (2.0, 1e-7), (-0.999, 1.5), (9.0, -0.5)),
    ),
    "zeta": (special.zeta, mp.zeta, ((2.0, 1.0), (3.0, 0.5))),
    "logaddexp": (
        fnp.logaddexp,
        lambda x, y: mp.log(mp.exp(x) + mp.exp(y)),
        ((0.0, 0.0), (800.0, 800.0), (0.0, 40.0)),
    ),
    "logaddexp2": (
        fnp.logaddexp2,
        lambda x, y: mp.log(mp.mpf(2) ** x + mp.mpf(2) ** y, 2),
        ((0.0, 0.0), (1.0, 40.0)),
    ),
}  # fmt: skip


@pytest.mark.sweep("name", list(OF_TWO_ARGUMENTS), sample=2)
def test_derivatives_in_both_arguments(name: str) -> None:
    function, exact, points = OF_TWO_ARGUMENTS[name]
    if function is None:
        pytest.skip("this JAX does not have it")
    with jax.enable_x64(True):
        ways = [fad.grad(function, k) for k in (0, 1)]
        ways += [fad.grad(fad.grad(function, j), k) for j, k in ((0, 0), (0, 1), (1, 1))]
        for point in points:
            for way, want in zip(ways, _mixed(exact, point), strict=True):
                got = float(way(*map(jnp.array, point)))
                np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-14)


def test_boxcox_at_the_edge() -> None:
    by_x, by_lmbda = fad.grad(lambda x, y: fnp.sum(special.boxcox(x, y)), (0, 1))(
        jnp.zeros(3), jnp.array([0.5, 1.0, 2.0])
    )
    assert by_x.tolist() == [np.inf, 1.0, 0.0] and by_lmbda.tolist() == [4.0, 1.0, 0.25]


def _boxcox_derivatives(function: Any, x: Any, lmbda: Any) -> list[float]:
    """Both first derivatives, and the second ones ``xx``, ``xl`` and ``ll``."""
    first = [fad.grad(function, k) for k in (0, 1)]
    ways = [*first, fad.grad(first[0], 0), fad.grad(first[0], 1), fad.grad(first[1], 1)]
    return [float(way(jnp.asarray(x), jnp.asarray(lmbda))) for way in ways]


@pytest.mark.parametrize("function, edge", [(special.boxcox, 0.0), (special.boxcox1p, -1.0)])
def test_boxcox_twice_at_the_edge(function: Any, edge: float) -> None:
    inf = np.inf
    for lmbda, want in {
        3.0: [0, 1 / 9, 0, 0, -2 / 27],
        2.5: [0, 0.16, 0, 0, -0.128],
        2.0: [0, 0.25, 1, 0, -0.25],
        1.5: [0, 1 / 2.25, inf, 0, -2 / 3.375],
        1.0: [1, 1, 0, -inf, -2],
        0.5: [inf, 4, -inf, -inf, -16],
        0.0: [inf, inf, -inf, -inf, -inf],
        -1.0: [inf, inf, -inf, -inf, -inf],
    }.items():
        got = _boxcox_derivatives(function, edge, lmbda)
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str(lmbda))


def test_boxcox_of_any_size() -> None:
    """Where a power beside the one that is asked for overflows, or is 0."""

    def exact(x: Any, y: Any) -> Any:
        return mp.expm1(y * mp.log(x)) / y

    for x, lmbda in (
        *((1e-30, y) for y in (-0.3, -0.25, 0.2, 1.5, 2.5, 3.0)),
        *((1e30, y) for y in (-0.5, -0.02, 0.4, 1.2, 2.0)),
        *((3e37, 0.01), (2e-3, 0.5), (400.0, 3.0), (3.0, -20.0), (0.5, 60.0), (7.5, 42.3)),
    ):
        x, lmbda = float(np.float32(x)), float(np.float32(lmbda))
        got = _boxcox_derivatives(special.boxcox, x, lmbda)
        with np.errstate(over="ignore", under="ignore"):
            want = np.array(_mixed_by_parts(exact, x, lmbda)).astype(np.float32)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-37, err_msg=f"{x}, {lmbda}")
    np.testing.assert_allclose(fad.grad(special.boxcox)(1e-30, -0.25), 10**37.5, rtol=1e-6)
    np.testing.assert_allclose(fad.grad(special.boxcox, 1)(1e-30, -0.3), 2.191476e11, rtol=3e-6)
    small = jnp.float16(1e-3), jnp.float16(-1.0)
    np.testing.assert_allclose(fad.grad(special.boxcox, 1)(*small), 5900.0, rtol=5e-3)


def _mixed_by_parts(f: Any, x: float, y: float) -> list[float]:
    """`_mixed`, with steps in proportion to ``x``."""
    with mp.workdps(400):
        x, y = mp.mpf(x), mp.mpf(y)
        scaled = lambda u, v: f(x * u, v)
        orders = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
        return [float(mp.diff(scaled, (mp.mpf(1), y), n) / x ** n[0]) for n in orders]


def test_beta_of_tiny_numbers() -> None:
    with jax.enable_x64(True):
        by_a, by_b = fad.grad(special.beta, (0, 1))(jnp.array(1e-150), jnp.array(2.0))
        assert np.isclose(by_a, -1e300) and np.isclose(by_b, 1 - np.pi**2 / 6, rtol=1e-12)
        mixed = fad.grad(fad.grad(special.betaln, 0), 1)(jnp.array(1e-150), jnp.array(2.0))
        assert np.isclose(mixed, 1 - np.pi**2 / 6, rtol=1e-12)


def test_spherical_harmonics_at_the_pole() -> None:
    def of_angle(theta: Any, n: int, m: int) -> Any:
        found = special.sph_harm_y(jnp.array([n]), jnp.array([m]), theta, jnp.array([0.3]), n_max=3)
        return fnp.real(found)[0]

    with jax.enable_x64(True):
        for n, m in ((1, 0), (1, 1), (2, 1), (2, -2), (3, 2), (3, -1), (3, 3)):
            for theta in (0.0, 0.7):
                x = jnp.array([theta])
                want = [
                    float(
                        mp.diff(
                            lambda t, n=n, m=m: mp.spherharm(n, m, t, 0.3).real,
                            theta,
                            k,
                            direction=1,
                        )
                    )
                    for k in (1, 2)
                ]
                got = fad.grad(of_angle)(x, n, m)[0], fad.hessian(of_angle)(x, n, m)[0, 0]
                np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
            by_phi = fad.grad(
                lambda phi, n=n, m=m: fnp.real(
                    special.sph_harm_y(
                        jnp.array([n]), jnp.array([m]), jnp.array([0.7]), phi, n_max=3
                    )
                )[0]
            )(jnp.array([0.3]))
            want = -m * complex(mp.spherharm(n, m, 0.7, 0.3)).imag
            np.testing.assert_allclose(by_phi, [want], rtol=1e-9, atol=1e-12)


def _expanded(a: Any) -> Any:
    """The determinant as the polynomial that it is."""
    if a.shape == (1, 1):
        return a[0, 0]
    minors = [jnp.delete(a[1:], k, axis=1) for k in range(len(a))]
    return sum((-1) ** k * a[0, k] * _expanded(m) for k, m in enumerate(minors))


def _with_a_row(a: Any) -> Any:
    """Of the same zero singular values."""
    return np.block([[a, 0 * a[:, :1]], [1 + 0 * a[:1], np.full((1, 1), 2.0)]])


def _matrices() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    of_rank = {r: rng.normal(size=(4, r)) @ rng.normal(size=(r, 4)) for r in range(5)}
    equal_columns = of_rank[4].copy()
    equal_columns[:, 1] = equal_columns[:, 0]
    unitary = np.linalg.qr(rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)))[0]
    matrices = {
        "three rows": np.diag([1.0, 2.0, 0.0]),
        "zero pivot": np.diag([1.0, 2.0, 0.0, 3.0]),
        "two zero pivots": np.diag([0.0, 2.0, 0.0, 3.0]),
        **{f"rank {r}": m for r, m in of_rank.items()},
        "equal columns": equal_columns,
        "ones": np.ones((5, 5)),
        "identity": np.eye(4),
        "complex": unitary @ np.diag([1.0, 0.0, 2.0, 3j]) @ unitary.T,
        "complex, rank 2": unitary @ np.diag([1.0, 0.0, 2.0, 0.0]) @ unitary,
    }
    five = {f"{name}, of five rows": _with_a_row(m) for name, m in matrices.items() if len(m) == 4}
    return {**matrices, **five}


@pytest.mark.sweep("name", list(_matrices()), sample=2)
def test_determinant_of_singular_matrices(name: str) -> None:
    with jax.enable_x64(True):
        a = jnp.array(_matrices()[name])
        rng = np.random.default_rng(1)
        v, w = [jnp.array(rng.normal(size=a.shape)).astype(a.dtype) for _ in range(2)]

        def along(f: Any) -> Any:
            def parts(t: Any) -> Any:
                found = f(a + t[0] * v + t[1] * w)
                return jnp.stack([jnp.real(found), jnp.imag(found)])

            return parts

        def in_batch(a: Any) -> Any:
            return ours(jnp.stack([a, a + 1]))[0]

        def in_vmap(a: Any) -> Any:
            return jax.vmap(ours)(jnp.stack([a, a + 1]))[0]

        t = jnp.zeros(2)
        ours = fad.to_jax(fnp.linalg.det)
        polynomial = along(_expanded)
        want = jax.jit(lambda t: (jax.jacfwd(polynomial)(t), jax.hessian(polynomial)(t)))(t)
        for f in (ours, in_batch, in_vmap):
            g = along(f)
            found = jax.jit(lambda t, g=g: (jax.jacrev(g)(t), jax.hessian(g)(t)))(t)
            np.testing.assert_allclose(found[0], want[0], atol=1e-11)
            np.testing.assert_allclose(found[1], want[1], atol=1e-11)


def test_second_derivatives_of_the_determinant_next_to_a_singular_matrix() -> None:
    """By no small pivot: their errors were ``eps`` over it."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(3)
        u, _, vh = np.linalg.svd(rng.normal(size=(5, 5)))
        v = rng.normal(size=(5, 5))
        w = u.T @ v @ vh.T
        slope = jax.grad(fad.to_jax(fnp.linalg.det))
        second = jax.jit(lambda a: jax.jvp(slope, (a,), (jnp.array(v),))[1])
        for smallest in (1e-7, 1e-9, 1e-12, 1e-13, 3e-14):
            s = np.array([3.0, 2.0, 2.0, 1.0, smallest])
            rest = [[np.prod(np.delete(s, [i, j])) * (i != j) for j in range(5)] for i in range(5)]
            turned = np.diag(rest @ w.diagonal()) - rest * w.T  # cofactors of s + t w, by t
            want = np.linalg.det(u) * np.linalg.det(vh) * u @ turned @ vh
            np.testing.assert_allclose(second((u * s) @ vh), want, atol=1e-7)


def test_third_derivatives_of_the_determinant_in_a_batch_in_32_bits() -> None:
    """Their errors were ``eps`` over the square of the smallest pivot; in `jet` they were NaN."""
    rng = np.random.default_rng(3)
    u, _, vh = np.linalg.svd(rng.normal(size=(5, 5)))
    v = rng.normal(size=(5, 5)).astype(np.float32)
    rows = [np.array([3.0, 2.0, 2.0, 1.0, s]) for s in (2.0, 1e-2, 1e-3, 1e-4, 1e-6, 1e-12)]
    singular = np.diag([0.0, 2.0, 0.0, 3.0, 1.0])
    a = np.stack([*[(u * s) @ vh for s in rows], singular, 0 * singular]).astype(np.float32)
    # The determinant of a + t v is a polynomial of degree 5, through six points.
    points = np.cos(np.pi * np.arange(6) / 5)
    values = np.linalg.det(a[:, None].astype(float) + points[:, None, None] * v)
    want = 6 * np.linalg.solve(np.vander(points, increasing=True), values.T)[3]

    def along(t: Any) -> Any:
        return fnp.linalg.det(a + t * v)

    of_each = fad.grad(fad.grad(fad.grad(lambda t, k: along(t)[k])))
    forward = lambda f: lambda t: fad.jvp(f, (t,), (jnp.float32(1),))[1]
    zero = jnp.float32(0)
    np.testing.assert_allclose(forward(forward(forward(along)))(zero), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fad.derivatives(along, zero, 3)[3], want, rtol=1e-4, atol=1e-4)
    for k in (3, 6):
        np.testing.assert_allclose(of_each(zero, k), want[k], rtol=1e-4)


def test_the_gradient_of_a_determinant_takes_one_factorization() -> None:
    """In a batch with a singular matrix too, whose cofactors have any size."""
    a = np.random.default_rng(2).normal(size=(3, 6, 6)).astype(np.float32)
    a[1, 2], a[2, :, 1:3] = a[1, 4], 0
    gradient = jax.jit(jax.grad(lambda a: fad.to_jax(fnp.linalg.det)(a).sum()))
    program = gradient.lower(a).compile().as_text()
    assert "lapack_sgetrf" in program and "lapack_sgesdd" not in program
    for scale in (1e-5, 1.0, 1e5):
        found = np.asarray(gradient(a * np.float32(scale)), float) / scale**5
        for k in range(2):
            u, s, vh = np.linalg.svd(a[k].astype(float))
            rest = [np.prod(np.delete(s, i)) for i in range(6)]
            want = np.linalg.det(u) * np.linalg.det(vh) * (u * rest) @ vh
            np.testing.assert_allclose(found[k], want, rtol=1e-3, atol=1e-3 * abs(want).max())
        assert not found[2].any()


def test_determinant_by_fad_and_its_methods() -> None:
    a = jnp.diag(jnp.array([1.0, 2.0, 0.0, 3.0]))
    for f in (fnp.linalg.det, scipy_linalg.det, lambda a: fad.asarray(a).det()):
        np.testing.assert_allclose(fad.grad(f)(a).diagonal(), [0.0, 0.0, 6.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(
            fad.hessian(f)(a)[2, 2].diagonal(), [6.0, 3.0, 0.0, 2.0], atol=1e-6
        )
        three = jnp.diag(jnp.array([1.0, 2.0, 0.0]))
        np.testing.assert_allclose(fad.grad(f)(three).diagonal(), [0.0, 0.0, 2.0], atol=1e-6)


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
        assert float(_ways(f)[way](x)) == pytest.approx(want, rel=1e-6)


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


@pytest.mark.parametrize("f", [fnp.arccosh, fad.lax.acosh])
def test_the_inverse_hyperbolic_cosine_is_right_in_the_whole_complex_plane(f: Any) -> None:
    with jax.enable_x64(True):
        z = jnp.array([2 + 1j, -2 + 1j, -2 - 1j, 0.5 - 0.3j, -0.5 + 0.3j, -0.1 - 2j])
        slope = 1 / np.sqrt(np.array(z) - 1) / np.sqrt(np.array(z) + 1)
        first = lambda z: fad.jvp(f, (z,), (jnp.ones_like(z),))[1]
        np.testing.assert_allclose(first(z), slope)
        second = fad.jvp(first, (z,), (jnp.ones_like(z),))[1]
        np.testing.assert_allclose(second, -z * slope**3)
        np.testing.assert_allclose(fad.grad(lambda z: fnp.real(f(z)).sum())(z), slope.conj())


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


@pytest.mark.parametrize("name", ["std", "nanstd"])
def test_deviation_of_what_a_mask_selects(name: str) -> None:
    x = jnp.array([[3.0, 1.0, 2.0], [1.0, 5.0, 4.0]])
    mask = jnp.array([[True, True, False], [False, True, False]])
    options = {"axis": 1, "where": mask}
    ours = lambda x: getattr(fnp, name)(x, **options)
    want = getattr(jnp, name)(x, **options)
    np.testing.assert_array_equal(ours(fad.tensor(x)).numpy(), want)
    np.testing.assert_array_equal(getattr(fad.tensor(x), name)(**options).numpy(), want)
    slopes = [[0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]  # of one element it is 0
    np.testing.assert_allclose(fad.grad(lambda x: fnp.sum(ours(x)))(x), slopes, atol=1e-6)


NAN = float("nan")
ORDERED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **{
        f"{name} over {axis}": (
            lambda x, name=name, axis=axis: getattr(fnp, name)(x, axis=axis),
            lambda x, name=name, axis=axis: getattr(jnp, name)(x, axis=axis),
        )
        for name in ("max", "min", "amax", "amin", "ptp", "median", "nanmax", "nanmedian")
        for axis in (None, 1)
    },
    "method max": (lambda x: fad.asarray(x).max(1), lambda x: x.max(1)),
    "method min": (lambda x: fad.asarray(x).min(), lambda x: x.min()),
    "pooling": (lambda x: x.reshape(3, 2, 2).max(2), lambda x: x.reshape(3, 2, 2).max(2)),
    "max of what a mask selects": (
        lambda x: fnp.max(x, 1, initial=0.0, where=x < 3),
        lambda x: jnp.max(x, 1, initial=0.0, where=x < 3),
    ),
    "quantile": (lambda x: fnp.quantile(x, 0.3, axis=1), lambda x: jnp.quantile(x, 0.3, axis=1)),
    "reduce_max": (lambda x: fad.lax.reduce_max(x, (1,)), lambda x: jax.lax.reduce_max(x, (1,))),
    "cummax": (lambda x: fad.lax.cummax(x, 1), lambda x: jax.lax.cummax(x, 1)),
    "cummin": (lambda x: fad.lax.cummin(x, 1), lambda x: jax.lax.cummin(x, 1)),
    "maximum": (lambda x: fnp.maximum(x, 2.0), lambda x: jnp.maximum(x, 2.0)),
    "fmin": (lambda x: fnp.fmin(x, 2.0), lambda x: jnp.fmin(x, 2.0)),
}


@pytest.mark.sweep("name", list(ORDERED), sample=6)
def test_what_selects_by_order_has_the_derivative_of_jax(name: str) -> None:
    """Ties, numbers that are not (NaN) and second derivatives included."""
    ours, theirs = ORDERED[name]
    for last in (3.0, NAN):
        x = jnp.array([[1.0, 2.0, 2.0, 0.5], [3.0, 1.0, 2.0, 3.0], [0.0, 4.0, last, 4.0]])
        v = jnp.arange(12.0).reshape(3, 4) - 5
        first = fad.grad(lambda x: fnp.sum(ours(x) ** 2))
        of_jax = jax.jit(jax.grad(lambda x: jnp.sum(theirs(x) ** 2)))
        for found in (first(x), fad.jit(first)(x)):
            np.testing.assert_allclose(found, of_jax(x), rtol=1e-6)
        product = fad.jvp(first, (x,), (v,))[1]
        of_jax_along = jax.jit(lambda x, v, f=of_jax: jax.jvp(f, (x,), (v,))[1])
        known = ~np.isnan(of_jax(x))  # where the gradient is a number
        np.testing.assert_allclose(product[known], of_jax_along(x, v)[known], rtol=1e-6)
        with fad.no_grad():
            np.testing.assert_array_equal(ours(x), theirs(x))


def test_what_is_no_number_or_infinite_has_the_derivative_of_jax() -> None:
    x = jnp.array([NAN, jnp.inf, 1.0, -2.0])
    for ours, theirs, args in (
        (fnp.angle, jnp.angle, (x,)),
        (special.boxcox, jax.scipy.special.boxcox, (x, jnp.array([2.0, 0.3, 2.0, 0.3]))),
        (special.boxcox, jax.scipy.special.boxcox, (-x, jnp.full(4, 2.0))),
    ):
        found = fad.grad(lambda y, f=ours, x=args[1:]: fnp.sum(f(*x, y)))(args[0])
        want = jax.grad(lambda y, f=theirs, x=args[1:]: jnp.sum(f(*x, y)))(args[0])
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_sums_of_exponentials_with_infinity_vs_torch(torch: Any) -> None:
    inf = float("inf")
    for x, y in ((inf, 1.0), (-inf, 1.0), (inf, -inf), (-inf, -inf)):
        for name in ("logaddexp", "logaddexp2"):
            t = [torch.tensor(v, requires_grad=True) for v in (x, y)]
            getattr(torch, name)(*t).backward()
            found = fad.grad(getattr(fnp, name), (0, 1))(jnp.array(x), jnp.array(y))
            np.testing.assert_array_equal(found, [v.grad.item() for v in t])


def test_powers_of_zero_by_the_exponent_vs_torch(torch: Any) -> None:
    exponents = [-1.0, 0.0, 0.5, 1.0, 2.0]
    t = torch.tensor(exponents, requires_grad=True)
    (0.0**t).sum().backward()
    y = jnp.array(exponents)
    assert fad.grad(lambda y: fnp.sum(0.0**y))(y).tolist() == t.grad.tolist()


A = jnp.array(
    [[2.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.5], [1.0, 3.0, 0.0, 0.0], [0.0, 2.0, 4.0, 1.0]]
)
ONE, TWO = jnp.array([1]), jnp.array([2])
STATIC = {
    "jax.numpy.ldexp": (2,),
    "jax.numpy.polyfit": (jnp.array([1.0, 0.0, 2.0]), 1),
    "jax.numpy.vander": (4,),
}  # fmt: skip
STATIC_ARGNUMS = {
    "jax.numpy.kaiser": 0,
    "jax.scipy.special.polygamma": 0,
    "jax.scipy.special.sph_harm_y": (4, 5),
}
OF_TWO = set(
    """float_power pow power divide true_divide arctan2 atan2 hypot boxcox boxcox1p logaddexp
    logaddexp2 beta betaln comb gammainc gammaincc kl_div poch rel_entr xlog1py xlogy""".split()
)
OF_TWO_IN_LAX = set("igamma igamma_grad_a igammac polygamma pow".split())


def _arguments(name: str, first: Any, weak: Any) -> tuple[Any, ...]:
    """Arguments of a function with derivatives of its own, of which the first may be weakly typed."""
    module, _, attribute = name.rpartition(".")
    x = jnp.array([0.25, 0.5, 0.75])
    if attribute in ("cond", "det", "matrix_norm"):
        return (A,)
    if attribute == "vq":
        return (A, A[:2])
    if attribute == "betainc":
        return (x, x, x)
    if attribute == "sph_harm_y":
        return (TWO, ONE, x[:1], x[1:2], None, 2)
    if module == "jax.lax" and attribute in OF_TWO_IN_LAX:
        return (x, x)
    if attribute in ("expn", "kaiser", "polygamma"):
        return (2, weak if attribute == "kaiser" else first)
    if module != "jax.lax" and attribute in OF_TWO:
        return (first, x if first is weak else weak)
    if attribute in ("polyfit", "sem", "vander"):
        return (x,)
    return (first,)


@pytest.mark.sweep("name", [f"{m}.{n}" for m, t in SMOOTH.items() for n in t], sample=10)
def test_values_are_those_of_jax(name: str) -> None:
    """The same bits, dtypes and weak types."""
    module, _, attribute = name.rpartition(".")
    theirs = getattr(importlib.import_module(module), attribute)
    ours = getattr(importlib.import_module(module.replace("jax", "fad", 1)), attribute)
    weak = jax.jit(lambda: 0.5)()
    static: Any = STATIC_ARGNUMS.get(name, ())
    for first in (jnp.array([0.25, 0.5, 0.75]), weak):
        args, more = _arguments(name, first, weak), STATIC.get(name, ())
        got = ours(*args, *more)
        want = jax.jit(lambda *a, m=more: theirs(*a, *m), static_argnums=static)(*args)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert (g.dtype, g.weak_type, g.shape) == (w.dtype, w.weak_type, w.shape)
            assert np.asarray(g).tobytes() == np.asarray(w).tobytes()


def test_the_library_has_their_names() -> None:
    """And no other ones: a name is looked up there when it is used."""
    every = {m: {*SMOOTH.get(m, ()), *INSTEAD.get(m, ())} for m in SMOOTH.keys() | INSTEAD.keys()}
    assert every == special_cases.WRITTEN


def test_the_determinant_of_nothing_is_constant():
    for shape in ((0, 0), (3, 0, 0)):
        a = jnp.zeros(shape)
        det = fnp.linalg.det
        assert det(a).tolist() == np.linalg.det(np.zeros(shape)).tolist()
        assert fad.grad(lambda a: fnp.sum(fnp.linalg.det(a)))(a).shape == shape
        assert fad.jvp(det, (a,), (a,))[1].tolist() == np.zeros(shape[:-2]).tolist()
