"""Calls whose derivatives `benchmarks.derivatives` counts besides one of each name.

Other forms of a call, functions that take functions, classes, and what Tensors can do that arrays cannot.
A name is that of the function; behind a comma is what is special about the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np

import fad
import fad.lax
import fad.nn
import fad.numpy
import fad.scipy
from tests.helpers.operation_arguments import A, B, S, U

__all__ = ["FORMS", "Form"]


class Form(NamedTuple):
    """The function in fad and in JAX, and small arrays, which are enlarged as those of the laws are."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[Any, ...]


def _in_both(program: Callable[..., Any], *arrays: Any) -> Form:
    """A program that takes the library first."""
    ours, theirs = [lambda *args, lib=lib: program(lib, *args) for lib in (fad, jax)]
    return Form(ours, theirs, arrays)


COMPLEX = B + 1j * (0.9 * B + 0.05)
PLACES = np.array([1, 0])
TALL = np.array([[0.3, 0.9, 0.45, 0.2, 0.6, 0.8, 0.5, 0.7, 0.4], [0.9] * 9])  # rows of nine
OF_NUMPY: dict[str, tuple[Any, ...]] = {
    "max, axis 0": (lambda n, x: n.max(x, 0), B),
    "max, axis 1": (lambda n, x: n.max(x, 1), B),
    "max, initial": (lambda n, x: n.max(x, 1, initial=0.0), B),
    "max, windows by reshape": (
        lambda n, x: x.reshape(x.shape[0] // 2, 2, x.shape[1] // 2, 2).max((1, 3)),
        B,
    ),
    "min, axis 1": (lambda n, x: n.min(x, 1), B),
    "ptp, axis 1": (lambda n, x: n.ptp(x, 1), B),
    "nanmax, axis 1": (lambda n, x: n.nanmax(x, 1), B),
    "median, axis 1": (lambda n, x: n.median(x, 1), B),
    "quantile, axis 1": (lambda n, x: n.quantile(x, 0.3, 1), B),
    "std, axis 1": (lambda n, x: n.std(x, 1, ddof=1), B),
    "var, axis 1": (lambda n, x: n.var(x, 1), B),
    "nanstd, axis 1": (lambda n, x: n.nanstd(x, 1), B),
    "power, by a fraction": (lambda n, x: x**2.5, B),
    "power, by a whole float": (lambda n, x: x**2.0, B),
    "power, by 3": (lambda n, x: x**3, B),
    "power, of a number": (lambda n, x: 2.0**x, B),
    "divide, by a number": (lambda n, x: x / 3.0, B),
    "divide, a number": (lambda n, x: 3.0 / x, B),
    "divide, by rows": (lambda n, x, y: x / y, B, U[:1]),
    "divide, by a scalar": (lambda n, x, y: x / y, B, S),
    "maximum, of a number": (lambda n, x: n.maximum(x, 0.5), B),
    "clip, of numbers": (lambda n, x: n.clip(x, 0.3, 0.7), B),
    "abs, complex": (lambda n, x: n.abs(x), COMPLEX),
    "angle, complex": (lambda n, x: n.angle(x), COMPLEX),
    "arcsin, complex": (lambda n, x: n.arcsin(x), COMPLEX),
    "arccos, complex": (lambda n, x: n.arccos(x), COMPLEX),
    "arcsinh, complex": (lambda n, x: n.arcsinh(x), COMPLEX),
    "arccosh, complex": (lambda n, x: n.arccosh(x), COMPLEX),
    "multiply, complex": (lambda n, x: x * x, COMPLEX),
    "divide, complex": (lambda n, x, y: x / y, COMPLEX, COMPLEX),
    "power, complex": (lambda n, x: x**2.5, COMPLEX),
    "exp, complex": (lambda n, x: n.exp(x), COMPLEX),
    "std, complex": (lambda n, x: n.std(x, 1), COMPLEX),
    "linalg.norm, complex": (lambda n, x: n.linalg.norm(x, axis=1), COMPLEX),
    "linalg.norm, axis 1": (lambda n, x: n.linalg.norm(x, axis=1), B),
    "linalg.norm, rows of order 1": (lambda n, x: n.linalg.norm(x, 1, 1), B),
    "linalg.norm, rows of order 3": (lambda n, x: n.linalg.norm(x, 3, 1), B),
    "linalg.norm, rows of order 2.5": (lambda n, x: n.linalg.norm(x, 2.5, 1), B),
    "linalg.norm, rows of order inf": (lambda n, x: n.linalg.norm(x, np.inf, 1), B),
    "linalg.norm, of order 1": (lambda n, x: n.linalg.norm(x, 1), B),
    "linalg.norm, of order 2": (lambda n, x: n.linalg.norm(x, 2), B),
    "linalg.norm, of order -2": (lambda n, x: n.linalg.norm(x, -2), B),
    "linalg.norm, of order inf": (lambda n, x: n.linalg.norm(x, np.inf), B),
    "linalg.norm, of order nuc": (lambda n, x: n.linalg.norm(x, "nuc"), B),
    "linalg.cond, of order 1": (lambda n, x: n.linalg.cond(x, 1), A),
    "linalg.det, of 2 rows": (lambda n, x: n.linalg.det(x[:, :4].reshape(-1, 2, 2)), TALL),
    "linalg.det, of 3 rows": (lambda n, x: n.linalg.det(x.reshape(-1, 3, 3)), TALL),
    "linalg.det, of 4 rows": (
        lambda n, x: n.linalg.det(n.concatenate([x, x[:, :7] ** 2], 1).reshape(-1, 4, 4)),
        TALL,
    ),
    "linalg.det, of 8 rows": (lambda n, x: n.linalg.det(x), np.vander(np.linspace(0.2, 0.9, 8))),
    "linalg.slogdet, a batch": (lambda n, x: n.linalg.slogdet(x.reshape(-1, 3, 3)), TALL),
    "linalg.svd, reduced": (lambda n, x: n.linalg.svd(x, full_matrices=False), B),
    "add.reduce": (lambda n, x: n.add.reduce(x, 1), B),
    "maximum.reduce": (lambda n, x: n.maximum.reduce(x, 1), B),
    "multiply.reduce": (lambda n, x: n.multiply.reduce(x, 1), B),
    "multiply.accumulate": (lambda n, x: n.multiply.accumulate(x, 1), B),
    "multiply.outer": (lambda n, x, y: n.multiply.outer(x[0], y[0]), B, B),
    "multiply.at": (
        lambda n, x, k, y: n.multiply.at(x, k, y[: k.size], inplace=False),
        B,
        PLACES,
        B,
    ),
    "pad": (lambda n, x: n.pad(x, 1, mode="edge"), B),
    "apply_along_axis": (lambda n, x: n.apply_along_axis(lambda r: r * r[0], 1, x), B),
    "apply_over_axes": (lambda n, x: n.apply_over_axes(n.sum, x * x, [0]), B),
    "piecewise": (lambda n, x: n.piecewise(x, [x > 0.5], [n.sin, n.cos]), B),
    "vectorize": (lambda n, x: n.vectorize(lambda v: n.sin(v) * v)(x), B),
    "frompyfunc": (lambda n, x: n.frompyfunc(lambda a, b: a * b, 2, 1)(x, x), B),
    "fromfunction": (lambda n, x: n.fromfunction(lambda i, j: n.sin(i * x), x.shape), B),
}


def _solve(lib: Any, a: Any, b: Any) -> Any:
    product = lambda v: a @ v
    solve = lambda f, v: lib.numpy.linalg.solve(a, v)
    return lib.lax.custom_linear_solve(product, b[: a.shape[0], 0], solve, transpose_solve=solve)


def _root(lib: Any, x: Any) -> Any:
    return lib.lax.custom_root(
        lambda y: y * y - x, x, lambda f, y: lib.numpy.sqrt(x), lambda f, y: y / f(1.0 + 0 * y)
    )


def _grid(lib: Any, values: Any, at: Any) -> Any:
    edges = [jnp.linspace(0.0, 1.0, n) for n in values.shape]
    of = lib.scipy.interpolate.RegularGridInterpolator(edges, values)
    return of(at[:, :2])


OF_LIBRARY: dict[str, tuple[Any, ...]] = {
    "nn.gelu, exact": (lambda lib, x: lib.nn.gelu(x, approximate=False), B),
    "nn.logsumexp, axis 1": (lambda lib, x: lib.nn.logsumexp(x, 1), B),
    "nn.logsumexp, of weights": (lambda lib, x, b: lib.nn.logsumexp(x, 1, b=b), B, B),
    "nn.softmax, axis 1": (lambda lib, x: lib.nn.softmax(x, 1), B),
    "scipy.special.comb, of repetition": (
        lambda lib, n, k: lib.scipy.special.comb(3.0 + n, k, repetition=True),
        B,
        B,
    ),
    "lax.max, of a number": (lambda lib, x: lib.lax.max(x, 0.5 + 0 * x), B),
    "lax.associative_scan": (lambda lib, x: lib.lax.associative_scan(lib.numpy.multiply, x), B),
    "lax.cond": (lambda lib, x: lib.lax.cond(x[0, 0] > 0, lib.numpy.sin, lib.numpy.cos, x), B),
    "lax.switch": (
        lambda lib, x: lib.lax.switch((x[0, 0] > 0).astype(int), [lib.numpy.sin, lib.numpy.cos], x),
        B,
    ),
    "lax.custom_linear_solve": (_solve, A, B),
    "lax.custom_root": (_root, B),
    "lax.fori_loop": (
        lambda lib, x: lib.lax.fori_loop(0, 8, lambda k, v: lib.numpy.sin(v) + x, x),
        B,
    ),
    "lax.map": (lambda lib, x: lib.lax.map(lambda r: lib.numpy.sin(r) * r[0], x), B),
    "lax.scan": (
        lambda lib, x: lib.lax.scan(lambda c, r: (lib.numpy.tanh(c + r), c * r), x[0], x),
        B,
    ),
    "lax.platform_dependent": (
        lambda lib, x: lib.lax.platform_dependent(x, cpu=lib.numpy.sin, default=lib.numpy.cos),
        B,
    ),
    "lax.reduce": (lambda lib, x: lib.lax.reduce(x, 0.0, lib.lax.add, (1,)), B),
    "lax.reduce_window": (
        lambda lib, x: lib.lax.reduce_window(x, -np.inf, lib.lax.max, (2, 2), (2, 2), "VALID"),
        B,
    ),
    "lax.reduce_window, sums": (
        lambda lib, x: lib.lax.reduce_window(x, 0.0, lib.lax.add, (2, 2), (1, 1), "SAME"),
        B,
    ),
    "lax.composite": (
        lambda lib, x: lib.lax.composite(lambda v: lib.numpy.sin(v) * v, name="benchmarks.one")(x),
        B,
    ),
    "scipy.linalg.funm": (
        lambda lib, a: lib.scipy.linalg.funm(a, lib.numpy.exp, disp=False)[0],
        A,
    ),
    "scipy.sparse.linalg.cg": (
        lambda lib, a, b: lib.scipy.sparse.linalg.cg(lambda v: a @ v, b[: a.shape[0], 0])[0],
        A,
        B,
    ),
    "scipy.sparse.linalg.bicgstab": (
        lambda lib, a, b: lib.scipy.sparse.linalg.bicgstab(lambda v: a @ v, b[: a.shape[0], 0])[0],
        A,
        B,
    ),
    "scipy.sparse.linalg.gmres": (
        lambda lib, a, b: lib.scipy.sparse.linalg.gmres(lambda v: a @ v, b[: a.shape[0], 0])[0],
        A,
        B,
    ),
    "scipy.interpolate.RegularGridInterpolator": (_grid, B, B),
    "scipy.stats.gaussian_kde": (
        lambda lib, data, at: lib.scipy.stats.gaussian_kde(data[:4])(at[:4, :64]),
        np.tile(B, (2, 1)),
        np.tile(B, (2, 1)),
    ),
    "indexing, a slice": (lambda lib, x: x[1:-1, ::2] * x[1:-1, 1::2], B),
    "indexing, by integers": (lambda lib, x, k: x[k] * x[k], B, PLACES),
    "at, set": (lambda lib, x, k, y: x.at[k].set(y[: k.size]), B, PLACES, B),
    "at, add": (lambda lib, x, k, y: x.at[k].add(y[: k.size]), B, PLACES, B),
    "at, multiply": (lambda lib, x, k, y: x.at[k].multiply(y[: k.size]), B, PLACES, B),
}


def _direction(z: Any) -> Any:
    return z / jnp.abs(z)


def _logit(x: Any) -> Any:
    return jnp.log(x / (1 - x))


def _at(x: Any, k: Any) -> Any:
    """One element of each row."""
    return jnp.take_along_axis(x, k[:, None], 1)[:, 0]


# Methods of Tensor, and programs of JAX that compute the same.
OF_TENSORS: dict[str, tuple[Callable[..., Any], ...] | tuple[Any, ...]] = {
    "add, alpha": (lambda x, y: x.add(y, alpha=2.0), lambda x, y: x + 2.0 * y, B, B),
    "addcdiv": (lambda x, y, z: x.addcdiv(y, z), lambda x, y, z: x + y / z, B, B, B),
    "addcmul": (lambda x, y, z: x.addcmul(y, z), lambda x, y, z: x + y * z, B, B, B),
    "addmm": (lambda x, y, z: x.addmm(y, z), lambda x, y, z: x + y @ z, A, A, A),
    "aminmax": (lambda x: tuple(x.aminmax()), lambda x: (x.min(), x.max()), B),
    "bmm": (lambda x, y: x[None].bmm(y[None]), lambda x, y: x[None] @ y[None], A, A),
    "clamp": (lambda x: x.clamp(0.3, 0.7), lambda x: jnp.clip(x, 0.3, 0.7), B),
    "clamp_min": (lambda x: x.clamp_min(0.5), lambda x: jnp.maximum(x, 0.5), B),
    "cummax": (lambda x: x.cummax(1)[0], lambda x: jax.lax.cummax(x, 1), B),
    "cummin": (lambda x: x.cummin(1)[0], lambda x: jax.lax.cummin(x, 1), B),
    "cumprod": (lambda x: x.cumprod(1), lambda x: jnp.cumprod(x, 1), B),
    "diag_embed": (lambda x: x[0].diag_embed(), lambda x: jnp.diag(x[0]), B),
    "dist": (lambda x, y: x.dist(y), lambda x, y: jnp.linalg.norm((x - y).ravel()), B, B + 0.1),
    "div, of a mode": (
        lambda x, y: x.div(y, rounding_mode="floor") + x,
        lambda x, y: x // y + x,
        B,
        B,
    ),
    "frac": (lambda x: x.frac(), lambda x: x - jnp.trunc(x), B),
    "gather": (
        lambda x, k: x.gather(0, k[:, None]),
        lambda x, k: x[k[:, None], jnp.arange(1)],
        B,
        PLACES,
    ),
    "hardshrink": (lambda x: x.hardshrink(), lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0), B),
    "index_select": (lambda x, k: x.index_select(0, k), lambda x, k: x[k], B, PLACES),
    "kthvalue": (lambda x: x.kthvalue(2)[0], lambda x: jnp.sort(x, -1)[..., 1], B),
    "lerp": (lambda x, y, z: x.lerp(y, z), lambda x, y, z: x + z * (y - x), B, B, B),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda x: jax.lax.cumlogsumexp(x, 1), B),
    "logdet": (lambda x: x.logdet(), lambda x: jnp.linalg.slogdet(x)[1], A),
    "logit": (lambda x: x.logit(), lambda x: _logit(x), 0.5 * B),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: jax.nn.logsumexp(x, 1), B),
    "masked_fill": (
        lambda x: x.masked_fill(x > 0.5, 0.0),
        lambda x: jnp.where(x > 0.5, 0.0, x),
        B,
    ),
    "max, dim": (lambda x: x.max(dim=1)[0], lambda x: _at(x, jnp.argmax(x, 1)), B),
    "median": (
        lambda x: x.median(dim=1)[0],
        lambda x: jnp.sort(x, 1)[:, (x.shape[1] - 1) // 2],
        B,
    ),
    "min, dim": (lambda x: x.min(dim=1)[0], lambda x: _at(x, jnp.argmin(x, 1)), B),
    "nanmedian": (lambda x: x.nanmedian(dim=1)[0], lambda x: jnp.nanmedian(x, 1), B),
    "norm": (lambda x: x.norm(), lambda x: jnp.linalg.norm(x.ravel()), B),
    "norm, of order 1": (lambda x: x.norm(1), lambda x: jnp.linalg.norm(x.ravel(), 1), B),
    "norm, dim": (lambda x: x.norm(dim=1), lambda x: jnp.linalg.norm(x, axis=1), B),
    "prelu": (lambda x, w: x.prelu(w), lambda x, w: jnp.where(x > 0, x, w * x), B, S),
    "renorm": (
        lambda x: x.renorm(2, 0, 1.0),
        lambda x: x * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(x, axis=1, keepdims=True)),
        B,
    ),
    "rsqrt": (lambda x: x.rsqrt(), lambda x: jax.lax.rsqrt(x), B),
    "scatter_add": (
        lambda x, k, y: x.scatter_add(0, k[:, None], y[: k.size, :1]),
        lambda x, k, y: x.at[k, 0].add(y[: k.size, 0]),
        B,
        PLACES,
        B,
    ),
    "softmax": (lambda x: x.softmax(1), lambda x: jax.nn.softmax(x, 1), B),
    "sort": (lambda x: x.sort(dim=1)[0], lambda x: jnp.sort(x, 1), B),
    "std": (lambda x: x.std(dim=1), lambda x: jnp.std(x, 1, ddof=1), B),
    "topk": (lambda x: x.topk(2)[0], lambda x: jax.lax.top_k(x, 2)[0], B),
    "unfold": (
        lambda x: x.unfold(1, 2, 2),
        lambda x: x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], -1, 2),
        B,
    ),
    "var": (lambda x: x.var(dim=1), lambda x: jnp.var(x, 1, ddof=1), B),
}


def _numpy(program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda lib, *arrays: program(lib.numpy, *arrays)


FORMS: dict[str, Form] = {
    **{f"numpy.{n}": _in_both(_numpy(p), *a) for n, (p, *a) in OF_NUMPY.items()},
    **{n: _in_both(p, *a) for n, (p, *a) in OF_LIBRARY.items()},
    "numpy.sign": _in_both(lambda lib, x: lib.numpy.sign(x), B),
    # JAX has zeros for a derivative: compared with a formula that has one.
    "numpy.sign, complex": Form(fad.numpy.sign, _direction, (COMPLEX,)),
    **{f"Tensor.{n}": Form(f, g, tuple(a)) for n, (f, g, *a) in OF_TENSORS.items()},
}
