"""`fad.jet` and `fad.derivatives`: against nested `fad.jvp`, and inside and around other transforms."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bare, is_idle
from operation_arguments import arguments, found_in, on_arrays

import fad
import fad.numpy as fnp
import fad.scipy.special as special
from fad.errors import ArgumentError, StructureError
from tests.laws.test_laws import EXCUSES, NAMES

X = jnp.array([0.3, -0.8, 1.2])
V = jnp.array([1.0, 0.5, -0.7])
W = jnp.array([0.2, -1.0, 0.4])


def nested(f: Callable[[Any], Any], order: int) -> list[Any]:
    """The value of ``f`` at 0, and its derivatives there, by jvp in jvp."""
    found = []
    for _ in range(order + 1):
        try:
            found.append(fad.jit(f)(jnp.float32(0.0)))  # one program: faster
        except fad.errors.HostValueError:  # its shapes depend on values
            found.append(f(jnp.float32(0.0)))
        f = (lambda g: lambda t: fad.jvp(g, (t,), (jnp.float32(1.0),))[1])(f)
    return found


def along(f: Callable[..., Any], primals: Any, series: Any) -> Callable[[Any], Any]:
    """``f`` on the curve with these derivatives, as a function of its parameter."""

    def curve(t: Any) -> Any:
        moved = [
            x + sum(t**k * s / math.factorial(k) for k, s in enumerate(terms, 1))
            for x, terms in zip(primals, series, strict=True)
        ]
        return f(*moved)

    return curve


def assert_same_series(f: Callable[..., Any], primals: Any, series: Any, **tolerance: Any) -> None:
    """`fad.jet` gives what nested `fad.jvp` gives."""
    out, terms = fad.jet(f, primals, series)
    expected = nested(along(f, primals, series), len(series[0]))
    outs, structure = jax.tree.flatten(out)
    if not outs:
        return
    rows = zip(*structure.flatten_up_to(terms), strict=True)
    for k, (row, wanted) in enumerate(zip([outs, *rows], expected, strict=True)):
        for a, b in zip(row, jax.tree.leaves(wanted), strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert a.shape == b.shape and a.dtype == b.dtype, k
            scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
            np.testing.assert_allclose(
                a / scale, b / scale, **{"rtol": 2e-4, "atol": 2e-4} | tolerance
            )


ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "by equations": lambda x: fnp.exp(fnp.sin(x)) * fnp.cosh(x) / (2.0 + fnp.cos(x)),
    "tanh": lambda x: fnp.tanh(x) + fad.nn.sigmoid(x) + fnp.tan(x * 0.5) + fnp.expm1(x),
    "powers": lambda x: (2.0 + x) ** 2.5 + (3.0 + x) ** -3 + fnp.sqrt(2.0 + x) + fnp.exp2(x) + x**5,
    "by the chain rule": lambda x: fnp.arctan(x) + fnp.log(2.0 + x) + fad.scipy.special.erf(x),
    "roots": lambda x: fad.lax.rsqrt(2.0 + x) + fnp.cbrt(2.0 + x) + fnp.square(x) + fnp.sinh(x),
    "two": lambda x: fnp.arctan2(x, 2.0 + x) + (2.0 + x) ** x,
    "kinks": lambda x: fnp.abs(x) * fad.nn.relu(x) + fnp.maximum(x, x * x) + fnp.floor(x) * x,
    "custom_jvp": lambda x: fad.nn.softplus(x) + fad.nn.gelu(x) + fad.nn.logsumexp(x),
    "gamma": lambda x: fad.scipy.special.gammaln(2.0 + x),
    "linear": lambda x: fnp.cumsum(x[::-1]) + fnp.roll(x, 1) - 2.0 * x + fnp.pad(x[1:], (1, 0)),
    "products": lambda x: fnp.outer(x, x * x) @ x + fnp.convolve(x, x)[1:4],
    "chosen": lambda x: (
        fnp.sort(x * x) * fnp.max(x) + fnp.where(x > 0, x, x**3) + x[fnp.argsort(x)]
    ),
    "solve": lambda x: fnp.linalg.solve(2.0 * fnp.eye(3) + fnp.outer(x, x), x),
    "scan": lambda x: fad.lax.scan(lambda c, v: (c * v + 1.0, fnp.sin(c)), x[0] * x[1], x)[1],
    "cond": lambda x: fad.lax.cond(x[0] > 0, lambda x: x * x, fnp.sin, x),
    "loop": lambda x: fad.lax.fori_loop(0, 3, lambda k, c: fnp.sin(c) * x + k, x),
    "while": lambda x: fad.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x)
    )[1],
    "tree": lambda x: {"a": x * x, "b": (fnp.sum(x) ** 3, fnp.sin(x))},
    "integers": lambda x: (x * fnp.argmax(x), fnp.arange(3.0)),
}


@pytest.mark.sweep("name", list(ELEMENTWISE), sample=5)
def test_it_gives_what_nested_jvp_gives(name: str) -> None:
    assert_same_series(ELEMENTWISE[name], (X,), ([V, W, V * W],))


# Nested jvp of them is wrong or raises, or they make no arrays that move.
@pytest.mark.sweep("name", [n for n in NAMES if n not in EXCUSES], sample=4)
def test_every_operation_has_a_series(name: str, request: pytest.FixtureRequest) -> None:
    args = arguments(name, request.config.getoption("--seed"))
    assert args is not None
    f, arrays = on_arrays(found_in(fad, name), args)
    inexact = [k for k, a in enumerate(arrays) if jnp.issubdtype(a.dtype, np.inexact)]
    if not inexact:
        return

    def on_inexact(*moved: Any) -> Any:
        full = list(arrays)
        for k, x in zip(inexact, moved, strict=True):
            full[k] = x
        return [y for y in jax.tree.leaves(f(*full)) if jnp.issubdtype(y.dtype, np.inexact)]

    rng = np.random.default_rng(0)
    points = tuple([arrays[k] for k in inexact])
    series = tuple([[jnp.asarray(0.1 * rng.normal(size=a.shape), a.dtype)] * 2 for a in points])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same_series(on_inexact, points, series, rtol=2e-3, atol=2e-3)


def test_polynomials_are_exact() -> None:
    found = fad.derivatives(lambda x: x**4 - 3 * x**2 + x, 2.0, 6)
    assert [float(y) for y in found] == [6.0, 21.0, 42.0, 48.0, 24.0, 0.0, 0.0]
    assert [float(y) for y in fad.derivatives(lambda x: x**3, 0.0, 4)] == [0.0, 0.0, 0.0, 6.0, 0.0]


def test_order_ten() -> None:
    found = fad.derivatives(fnp.sin, X, 10)
    cycle = [jnp.sin, jnp.cos, lambda x: -jnp.sin(x), lambda x: -jnp.cos(x)]
    for k, y in enumerate(found):
        np.testing.assert_allclose(y, cycle[k % 4](X), rtol=1e-4, atol=1e-5)
    found = fad.derivatives(lambda x: 1.0 / (1.0 - x), 0.0, 10)
    np.testing.assert_allclose([float(y) for y in found], [math.factorial(k) for k in range(11)])


class Exponential(fad.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(output)

    @staticmethod
    def jet(ctx: Any, x_s: list[Any]) -> list[Any]:
        """``y' = x' y``, in derivatives."""
        found = [ctx.saved_tensors[0]]
        for n in range(len(x_s)):
            terms = [float(math.comb(n, k)) * x_s[k] * found[n - k] for k in range(n + 1)]
            found.append(sum(terms))
        return found[1:]


@pytest.mark.parametrize("f", [fnp.exp, Exponential.apply])
def test_orders_whose_factorials_no_dtype_holds(f: Any) -> None:
    """13! is no int32, and 35! no float32."""
    found = fad.derivatives(f, 0.25, 36)
    np.testing.assert_allclose(found, [math.exp(0.25)] * 37, rtol=1e-5)


def _powers(x: float, y: float, n: int) -> list[float]:
    """The derivatives of ``(x + t)**(y + t)``: ``f' = f g`` with ``g = log(x + t) + (y + t) / (x + t)``."""
    quotients = [(y - x) * (-1) ** k * math.factorial(k) / x ** (k + 1) for k in range(n)]
    logs = [math.log(x)] + [(-1) ** k * math.factorial(k) / x ** (k + 1) for k in range(n)]
    slopes = [a + b + (k == 0) for k, (a, b) in enumerate(zip(logs[:n], quotients, strict=True))]
    found = [x**y]
    for k in range(n):
        found.append(sum(math.comb(k, j) * found[j] * slopes[k - j] for j in range(k + 1)))
    return found


@pytest.mark.parametrize("order", [1, 2, 7, 12])
@pytest.mark.parametrize("y", [1.3, -0.5, 3.0])
def test_powers_whose_exponent_moves(order: int, y: float) -> None:
    """Each derivative of a power has two powers in it: so 2**order of them, by the chain rule."""
    with jax.enable_x64(True):
        found = fad.derivatives(lambda t: (1.3 + t) ** (y + t), 0.0, order)
        np.testing.assert_allclose(found, _powers(1.3, y, order), rtol=1e-12)
    assert all(a.dtype == jnp.float32 for a in fad.derivatives(lambda t: t**t, 1.3, order))


def test_powers_whose_exponent_moves_at_zero() -> None:
    found = fad.derivatives(lambda t: (2.0 * t) ** (2.0 + t), 0.0, 3)
    assert [float(v) for v in found] == [0.0, 0.0, 8.0, math.inf]


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0, 2.5, 3.0])
def test_sinc_of_order_thirty(x: float) -> None:
    """``s**k`` times the ``k``-th derivative of a cosine, over ``s`` from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    s, w = (nodes + 1) / 2, weights / 2
    exact = [np.sum(w * s**k * np.cos(np.pi * x * s + k * np.pi / 2)) for k in range(31)]
    with jax.enable_x64(True):
        found = fad.derivatives(fnp.sinc, x, 30)
    scaled = [float(v) / np.pi**k for k, v in enumerate(found)]
    np.testing.assert_allclose(scaled, exact, atol=1e-10)


def test_the_logarithm_of_a_normal_distribution() -> None:
    """Its slope is computed of its value."""
    slope = fad.grad(special.log_ndtr)
    found = fad.derivatives(special.log_ndtr, 0.7, 3)
    expected = [
        special.log_ndtr(0.7),
        slope(0.7),
        fad.grad(slope)(0.7),
        fad.grad(fad.grad(slope))(0.7),
    ]
    np.testing.assert_allclose(np.float32(found), np.float32(expected), rtol=1e-5)


def test_high_orders_under_transforms() -> None:
    x = jnp.array([0.25, 1.0])
    high = lambda x: fnp.stack(fad.derivatives(fnp.exp, x, 14))
    expected = np.exp(np.tile(x, (15, 1)))
    np.testing.assert_allclose(fad.jit(high)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(fad.vmap(high, out_dims=1)(x), expected, rtol=1e-5)
    half = fad.derivatives(fnp.exp, jnp.array(0.25, jnp.float16), 10)
    np.testing.assert_allclose(np.float32(half), [math.exp(0.25)] * 11, rtol=0.01)


def test_high_orders_beyond_the_range_are_infinite() -> None:
    found = fad.derivatives(lambda x: 1.0 / x, 1.0, 36)
    exact = [(-1.0) ** k * float(math.factorial(k)) for k in range(37)]
    np.testing.assert_allclose(found[:35], exact[:35], rtol=1e-5)
    assert [float(v) for v in found[35:]] == [-math.inf, math.inf]
    with jax.enable_x64(True):
        found = fad.derivatives(lambda x: x**-3, 2.0, 30)
        exact = [(-1) ** k * math.factorial(k + 2) / 2 / 2.0 ** (k + 3) for k in range(31)]
        np.testing.assert_allclose(found, exact, rtol=1e-13)


def test_it_is_jet_of_jax() -> None:
    from jax.experimental.jet import jet

    f = lambda np: lambda x, y: np.sin(x * y) + np.exp(y)
    series = ([V, W, V], [W, V, W])
    ours, theirs = fad.jet(f(fnp), (X, V), series), jet(f(jnp), (X, V), series)
    assert_close(ours, theirs, rtol=1e-4)


def test_zero_and_structure() -> None:
    f = lambda x, p: (x * p["w"], p["k"])
    p = {"w": X, "k": 2}
    out, series = fad.jet(f, (X, p), (None, {"w": [V, None], "k": None}))
    assert_close(out, (X * X, jnp.asarray(2)))
    assert_close(series[0], [V * X, jnp.zeros(3)])
    assert_close(series[1], [jnp.asarray(0)] * 2)
    y, none = fad.jet(fnp.sin, (X,), (None,))
    assert none == [] and isinstance(y, jax.Array)
    y, terms = fad.jet(fnp.sin, (fad.tensor(X),), ([V],))
    assert isinstance(y, fad.Tensor) and isinstance(terms[0], fad.Tensor)
    assert [float(y) for y in fad.derivatives(lambda x: x * x, 3.0, 0)] == [9.0]
    half = fad.derivatives(fnp.tanh, jnp.bfloat16(0.5), 3)
    assert all(y.dtype == jnp.bfloat16 for y in half)
    z = fad.derivatives(lambda z: fnp.exp(1j * z), jnp.complex64(0.3), 2)
    np.testing.assert_allclose(z[2], -np.exp(0.3j), rtol=1e-5)
    first = fad.derivatives(lambda x: fnp.sum(x**2), X, 2, direction=V)
    assert_close(first[1:], [2 * jnp.sum(X * V), 2 * jnp.sum(V * V)])


# Compositions


def third(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of the value and three derivatives along ones."""
    return lambda x: sum(fad.derivatives(f, x, 3))


def by_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`third`, by nested jvp."""

    def d(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: fad.jvp(g, (x,), (jnp.ones(3),))[1]

    return lambda x: f(x) + d(f)(x) + d(d(f))(x) + d(d(d(f)))(x)


def g(x: Any) -> Any:
    return fnp.sin(x) * fnp.exp(-x * x) + fnp.sum(x**3) * x


def dual(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with fad.dual_level():
            return fad.unpack_dual(f(fad.make_dual(fad.asarray(x), fad.asarray(V)))).tangent

    return call


TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad": lambda f: fad.grad(lambda x: fnp.sum(fnp.sin(f(x)))),
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (fad.asarray(V) * x,))[1],
    "vmap": lambda f: lambda x: fnp.sum(fad.vmap(f)(fnp.stack([x, x * 0.5])), 0),
    "dual": dual,
    "jit": lambda f: fad.jit(f),
    "checkpoint": lambda f: fad.checkpoint(f),
}


@pytest.mark.sweep("name", list(TRANSFORMS), sample=2)
def test_it_composes(name: str) -> None:
    wrap = TRANSFORMS[name]
    assert_close(wrap(third(g))(X), fad.jit(wrap(by_jvp(g)))(X), rtol=1e-3, atol=1e-3)
    assert_close(third(wrap(g))(X), fad.jit(by_jvp(wrap(g)))(X), rtol=1e-3, atol=1e-3)
    assert is_idle()


STACKS = [
    (*stack[:k], "jet", *stack[k:])
    for stack in itertools.product(TRANSFORMS, repeat=2)
    for k in range(3)
]


@pytest.mark.sweep("names", STACKS, sample=4, ids="-".join)
def test_it_composes_to_depth_three(names: tuple[str, ...]) -> None:
    results = []
    for derive in (third, by_jvp):
        f: Callable[[Any], Any] = fnp.tanh
        for name in reversed(names):
            f = derive(f) if name == "jet" else TRANSFORMS[name](f)
        results.append(np.asarray((fad.jit(f) if derive is by_jvp else f)(X)))
    scale = np.max(np.abs(results[1]))
    np.testing.assert_allclose(results[0] / scale, results[1] / scale, rtol=1e-3, atol=1e-3)


def test_jet_of_jet() -> None:
    inner = lambda x: fad.derivatives(g, x, 2)[2]
    expected = fad.derivatives(g, X, 4)
    assert_close(fad.derivatives(inner, X, 2)[2], expected[4], rtol=1e-3, atol=1e-3)


def test_native_transforms_of_jax() -> None:
    f = fad.to_jax(lambda x: fad.derivatives(fnp.tanh, x, 3)[3])
    expected = jax.jvp(jax.grad(jax.grad(jnp.tanh)), (0.4,), (1.0,))[1]
    np.testing.assert_allclose(jax.jit(f)(0.4), expected, rtol=1e-4)
    np.testing.assert_allclose(jax.vmap(f)(jnp.array([0.4]))[0], expected, rtol=1e-4)
    fourth = jax.grad(jax.grad(jax.grad(jax.grad(jnp.tanh))))(0.4)
    np.testing.assert_allclose(jax.grad(f)(0.4), fourth, rtol=1e-4)


def test_views_and_writes() -> None:
    def f(x: Any) -> Any:
        y = fad.asarray(x * 1.0)
        y[1:] *= y[:-1]
        y[0] = fnp.sin(y[2])
        v = y[:2]
        v.exp_()
        return y

    assert_same_series(f, (X,), ([V, W, V],))
    x = fad.tensor(X)
    fad.jet(lambda x: x.mul_(2.0), (x,), ([fad.asarray(V)],))
    assert_close(x, 2 * X)


def test_the_tape_runs_through_it() -> None:
    x = fad.tensor(X, requires_grad=True)
    third(fnp.tanh)(x).sum().backward()
    expected = fad.jit(fad.grad(lambda x: fnp.sum(by_jvp(fnp.tanh)(x))))(X)
    assert_close(x.grad, expected, rtol=1e-3, atol=1e-4)

    def f(x: Any) -> Any:
        y = (x * 1.0).requires_grad_()
        (gradient,) = fad.autograd.grad((y**4).sum(), y, create_graph=True)
        return gradient

    assert_close(fad.derivatives(f, X, 2)[2], 24 * X, rtol=1e-4)


# Errors


def test_bad_input() -> None:
    with pytest.raises(ArgumentError, match="primals and series must be tuples.*Write jet"):
        fad.jet(fnp.sin, X, [V])
    with pytest.raises(StructureError, match="one entry for each of the 1 primals, got 2"):
        fad.jet(fnp.sin, (X,), ([V], [V]))
    with pytest.raises(StructureError, match="the series of argument 0 must be a list"):
        fad.jet(fnp.sin, (X,), (V,))
    with pytest.raises(StructureError, match="same length, got 1 for one argument and 2"):
        fad.jet(fnp.multiply, (X, X), ([V], [V, V]))
    with pytest.raises(StructureError, match="must have the shape and dtype of its primal"):
        fad.jet(fnp.sin, (X,), ([V[:2]],))
    with pytest.raises(StructureError, match="must have the structure of the argument"):
        fad.jet(lambda p: p["a"], ({"a": X},), ([V],))
    with pytest.raises(StructureError, match="has no derivatives"):
        fad.jet(fnp.sin, (jnp.arange(3),), ([V],))
    with pytest.raises(TypeError, match="jet: the first argument must be a function"):
        fad.jet(X, (X,), ([V],))
    with pytest.raises(ArgumentError, match="must be an array"):
        fad.jet(lambda s: s, ("a",), (None,))
    with pytest.raises(ArgumentError, match="order must be an int, at least 0, got int -1"):
        fad.derivatives(fnp.sin, X, -1)
    with pytest.raises(ArgumentError, match="got float 1.5"):
        fad.derivatives(fnp.sin, X, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="floating or complex dtype"):
        fad.derivatives(fnp.sin, 2, 1)
    with pytest.raises(ArgumentError, match="fad.jet"):
        fad.derivatives(lambda p: p["a"], {"a": X}, 1)
    with pytest.raises(ArgumentError, match="output 0 of the function must be an array"):
        fad.derivatives(lambda x: "a", X, 1)
    assert is_idle()


def test_a_value_that_outlives_it_is_its_primal() -> None:
    kept = []
    fad.jet(lambda x: kept.append(x * x) or x, (X,), ([V],))
    assert_close(bare(kept[0] + 1.0), X * X + 1.0)


def test_dicts_keep_the_order_of_their_keys() -> None:
    seen = []

    def f(p: Any) -> Any:
        seen.append(list(p))
        return {"y": {"d": p["b"] ** 2, "c": p["a"]}, "x": 1.0}

    p = {"b": X, "a": V}
    out, series = fad.jet(f, (p,), ({"a": [V], "b": [W]},))
    assert seen == [["b", "a"]]
    for found in (out, series, fad.derivatives(lambda x: f({"b": x, "a": x}), X, 1)[1]):
        assert list(found) == ["y", "x"] and list(found["y"]) == ["d", "c"]
    assert_close(series["y"]["d"], [2 * X * W])
