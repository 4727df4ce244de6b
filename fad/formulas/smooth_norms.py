"""Norms, distances and deviations, whose derivatives at a kink are the subgradient of least norm.

NOTE [kinks]

A norm has no derivative at 0, and JAX's formula gives NaN there: that of the root is infinite. It has
subgradients, and the one of least norm is 0. So it is where elements are equal (`std`), for each element
that is 0 (the 1-norm), and for each singular value that is 0 (the nuclear norm). The rules have one form: a
slope, in which a quotient by what is 0 is 0. Slopes have such rules again, so derivatives of higher order
are 0 in the directions in which there is a kink.

See NOTE [smooth] in `fad.formulas.smooth_functions` too. Values are those of JAX, and so is the cost: a row
has one more selection.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.extend.types import Array, Operand, Outputs, PyTree
from fad.formulas.smooth_functions import (
    Axes,
    Function,
    Number,
    all_axes,
    computed_as,
    divisor,
    is_inexact,
    is_real,
    mended,
    with_rule,
    with_slopes,
)


def _inner(x: Array, y: Array, axis: Axes, keepdims: bool = False) -> Array:
    """The real inner product."""
    return jnp.sum(jnp.real(jnp.conj(x) * y), axis, keepdims=keepdims)


_absolute_of_real = with_slopes(
    jnp.abs, lambda _, x: jnp.where(x > 0, 1.0, jnp.where(x == 0, 0.0, -1.0))
)
_absolute_of_complex = with_rule(
    jnp.abs, lambda out, x, t: jnp.real(jnp.conj(x[0]) * t[0]) / divisor(out)
)


def _absolute(x: Array) -> Array:
    """``abs(x)``, with the derivative 0 at 0; that of JAX is 1 there. (At NaN it is -1, as JAX's.)"""
    return _absolute_of_real(x) if is_real(x) else _absolute_of_complex(x)


# Of vectors


def _euclidean(function: Function, axis: Axes, keepdims: bool) -> Function:
    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        return _inner(primals[0], tangents[0], axis, keepdims) / divisor(out)

    return with_rule(function, rule)


def _slope_of_power(x: Array, p: float) -> Array:
    """The derivative of ``abs(x)**p / p``, 0 at 0: for ``p < 1`` any number is a subgradient there."""
    if p == int(p) and p > 2:
        return x ** (int(p) - 1) if p % 2 == 0 else x * jnp.abs(x) ** (int(p) - 2)
    return jnp.sign(x) * jnp.abs(jnp.where(x == 0, 1, x)) ** (p - 1)


def _of_power(function: Function, p: float, axis: tuple[int, ...], keepdims: bool) -> Function:
    """``sum(abs(x)**p) ** (1 / p)`` of real ``x``."""

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        whole = out if keepdims else jnp.expand_dims(out, axis)
        slope = _slope_of_power(primals[0] / divisor(whole), p)
        return jnp.sum(slope * tangents[0], axis, keepdims=keepdims)

    return with_rule(function, rule)


def _vector_norm(function: Function, x: Array, p: float, axis: Axes, keepdims: bool) -> Array:
    axes = all_axes(x.ndim, axis)
    if p == 2:
        return _euclidean(function, axes, keepdims)(x)
    if p in _REDUCTIONS:
        reduced = _REDUCTIONS[p]
        return computed_as(function, lambda x: reduced(_absolute(x), axes, keepdims=keepdims))(x)
    if p == 0:
        return function(x)
    of_power = _of_power(function, p, axes, keepdims)
    return of_power(x if is_real(x) else _absolute_of_complex(x))


_GREATEST = functools.partial(jnp.max, initial=0)
_REDUCTIONS: dict[float, Function] = {1: jnp.sum, math.inf: _GREATEST, -math.inf: jnp.min}

# Of matrices: the order -> the axis (0: rows) that is summed, and how the rest is reduced
_BY_SUMS: dict[PyTree, tuple[int, Function]] = {
    1: (0, _GREATEST),
    -1: (0, jnp.min),
    math.inf: (1, _GREATEST),
    -math.inf: (1, jnp.min),
}


def _by_sums(function: Function, order: float, axis: tuple[int, int], keepdims: bool) -> Function:
    summed, reduced = _BY_SUMS[order]

    def other(x: Array) -> Array:
        sums = jnp.sum(_absolute(x), axis[summed], keepdims=True)
        norms = reduced(sums, axis[1 - summed], keepdims=True)
        return norms if keepdims else jnp.squeeze(norms, axis)

    return computed_as(function, other)


# Times the rounding of the greatest: singular values below that are zero, those closer than that are equal.
_NOISE = 16

_OF_SINGULAR_VALUES: dict[PyTree, Callable[[Array], Array]] = {
    "nuc": lambda s: jnp.sum(s, -1),
    2: lambda s: jnp.max(s, -1, initial=0),
    -2: lambda s: jnp.min(s, -1),
}


def _weights(s: Array, order: str | int) -> Array:
    """The subgradient of least norm in the singular values, which descend."""
    noise = _noise(s)
    positive = s > noise
    if order == "nuc":
        return positive.astype(s.dtype)
    extreme = s[..., :1] if order == 2 else s[..., -1:]
    tied = (positive & (jnp.abs(s - extreme) <= noise)).astype(s.dtype)
    return tied / jnp.maximum(jnp.sum(tied, -1, keepdims=True), 1)


def _noise(s: Array) -> Array:
    return lax.stop_gradient(_NOISE * jnp.finfo(s.dtype).eps * s[..., :1])


def _adjoint(x: Array) -> Array:
    return jnp.conj(x.mT)


@functools.cache
def _of_singular_values(*orders: str | int) -> Function:
    """Norms of matrices that are functions of their singular values, and their subgradients.

    The subgradient ``u @ diag(w) @ vh`` has a derivative that is finite where singular values are equal or
    zero (Daleckii and Krein). JAX makes it of those of ``u`` and ``vh``, which are infinite there.
    """

    def parts(u: Array, s: Array, vh: Array) -> tuple[list[Array], list[Array]]:
        weights = [_weights(s, order).astype(u.dtype) for order in orders]
        values = [_OF_SINGULAR_VALUES[order](s) for order in orders]
        return values, [(u * w[..., None, :]) @ vh for w in weights]

    @jax.custom_jvp
    def both(x: Array) -> tuple[list[Array], list[Array]]:
        return parts(*jnp.linalg.svd(x, full_matrices=False))

    @both.defjvp
    def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
        (x,), (t,) = primals, tangents
        u, s, vh = jnp.linalg.svd(x, full_matrices=False)
        values, slopes = parts(u, s, vh)
        turned = [_turned(u, s, vh, t, order) for order in orders]
        return (values, slopes), ([_inner(slope, t, (-2, -1)) for slope in slopes], turned)

    return both


def _turned(u: Array, s: Array, vh: Array, t: Array, order: str | int) -> Array:
    """The derivative of ``u @ diag(w) @ vh`` along ``t``, for weights that are constant."""
    noise, w = _noise(s)[..., None], _weights(s, order)
    uh, v = _adjoint(u), _adjoint(vh)

    def quotients(sign: int) -> Array:
        above = w[..., :, None] + sign * w[..., None, :]
        below = s[..., :, None] + sign * s[..., None, :]
        zero = jnp.abs(below) <= noise
        return jnp.where(zero, 0, above / jnp.where(zero, 1, below)).astype(t.dtype)

    inner = uh @ t @ v
    symmetric, skew = (inner + _adjoint(inner)) / 2, (inner - _adjoint(inner)) / 2
    tangent = u @ (quotients(-1) * symmetric + quotients(1) * skew) @ vh
    zero = s <= noise[..., 0]
    ratio = jnp.where(zero, 0, w / jnp.where(zero, 1, s)).astype(t.dtype)[..., None, :]
    rows, columns = t.shape[-2:]
    if rows > columns:
        return tangent + ((t @ v - u @ inner) * ratio) @ vh
    if columns > rows:
        return tangent + (u * ratio) @ (uh @ t - inner @ vh)
    return tangent


def _spectral(
    function: Function, order: str | int, axis: tuple[int, int], keepdims: bool
) -> Function:
    made = jax.custom_jvp(function)
    both = _of_singular_values(order)

    @made.defjvp
    def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
        x, t = [jnp.moveaxis(v, axis, (-2, -1)) for v in (*primals, *tangents)]
        (value,), (slope,) = both(x)
        outs = value, _inner(slope, t, (-2, -1))
        return tuple([jnp.expand_dims(o, axis) for o in outs]) if keepdims else outs

    return made


def _matrix_norm(
    function: Function, x: Array, order: PyTree, axis: tuple[int, int], keepdims: bool
) -> Array:
    if order in (None, "f", "fro"):
        return _euclidean(function, axis, keepdims)(x)
    if order in _BY_SUMS:
        return _by_sums(function, order, axis, keepdims)(x)
    if order in _OF_SINGULAR_VALUES and x.size:
        return _spectral(function, order, axis, keepdims)(x)
    return function(x)


# What users call


def _is_array(order: PyTree) -> bool:
    """Whether an order is none that can be used; JAX's error says so."""
    return isinstance(order, (jax.Array, np.ndarray))


def _of_vectors(vector_norm: Function) -> Function:
    def smooth(
        x: Array, /, *, axis: Axes = None, keepdims: bool = False, ord: PyTree = 2
    ) -> Outputs:
        function = functools.partial(vector_norm, axis=axis, keepdims=keepdims, ord=ord)
        x = jnp.asarray(x)
        if not is_inexact(x.dtype) or isinstance(ord, str) or _is_array(ord):
            return function(x)
        return _vector_norm(function, x, ord, axis, keepdims)

    return smooth


def _of_matrices(matrix_norm: Function) -> Function:
    def smooth(x: Array, /, *, keepdims: bool = False, ord: PyTree = "fro") -> Outputs:
        function = functools.partial(matrix_norm, keepdims=keepdims, ord=ord)
        x = jnp.asarray(x)
        if not is_inexact(x.dtype) or x.ndim < 2 or _is_array(ord):
            return function(x)
        return _matrix_norm(function, x, ord, (x.ndim - 2, x.ndim - 1), keepdims)

    return smooth


def _of_either(norm: Function) -> Function:
    def smooth(x: Array, ord: PyTree = None, axis: Axes = None, keepdims: bool = False) -> Outputs:
        function = functools.partial(norm, ord=ord, axis=axis, keepdims=keepdims)
        x = jnp.asarray(x)
        if not is_inexact(x.dtype) or _is_array(ord):
            return function(x)
        axes = all_axes(x.ndim, axis)
        if axis is None and ord is None:
            return _euclidean(function, axes, keepdims)(x)
        if len(axes) == 1 and not isinstance(ord, str):
            return _vector_norm(function, x, 2 if ord is None else ord, axes, keepdims)
        if len(axes) == 2:
            return _matrix_norm(function, x, ord, (axes[0], axes[1]), keepdims)
        return function(x)

    return smooth


norm, vector_norm, matrix_norm = (
    mended(_of_either, jnp.linalg.norm),
    mended(_of_vectors, jnp.linalg.vector_norm),
    mended(_of_matrices, jnp.linalg.matrix_norm),
)


def _cond(cond: Function) -> Function:
    def smooth(x: Array, p: PyTree = None) -> Outputs:
        def by_norms(x: Array) -> Array:
            return norm(x, p, (-2, -1)) * norm(jnp.linalg.inv(x), p, (-2, -1))

        def ratio(greatest: Array, least: Array) -> Array:
            return least / greatest if p == -2 else greatest / least

        x = jnp.asarray(x)
        if not is_inexact(x.dtype):
            return cond(x, p)
        if p not in (None, 2, -2):
            return computed_as(lambda x: cond(x, p), by_norms)(x)
        made = jax.custom_jvp(lambda x: cond(x, p))

        @made.defjvp
        def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
            (x,), (t,) = primals, tangents
            values, slopes = _of_singular_values(2, -2)(x)  # the value too: one svd
            out: Outputs = jax.jvp(ratio, values, [_inner(slope, t, (-2, -1)) for slope in slopes])
            return out

        return made(x)

    return smooth


def _vq(vq: Function) -> Function:
    """The codes that are nearest to observations, and how far away they are."""

    def distances(obs: Array, code_book: Array) -> Array:
        apart = obs - code_book[vq(obs, code_book)[0]]
        return norm(apart[:, None] if apart.ndim == 1 else apart, axis=-1)

    distance = computed_as(lambda obs, code_book: vq(obs, code_book)[1], distances)

    def smooth(obs: Array, code_book: Array, check_finite: bool = True) -> Outputs:
        obs, code_book = jnp.asarray(obs), jnp.asarray(code_book)
        code, of_jax = vq(obs, code_book)
        inexact = is_inexact(obs.dtype) and is_inexact(code_book.dtype)
        return code, distance(obs, code_book) if inexact else of_jax

    return smooth


IN_LINALG: dict[str, Function] = {
    "cond": _cond,
    "matrix_norm": _of_matrices,
    "norm": _of_either,
    "vector_norm": _of_vectors,
}
IN_VQ: dict[str, Function] = {"vq": _vq}

# Variances and standard deviations, with the derivative 0 where elements are equal.
#
# See NOTE [kinks]: a deviation is the distance from the mean.


def _spread(function: Function, root: bool = True, of_nan: bool = False) -> Function:
    """`std` and `nanstd`; without ``root`` `var` and `nanvar`."""
    names = tuple(inspect.signature(function).parameters)

    def smooth(*args: Array, **options: PyTree) -> Outputs:
        options.update(zip(names, args, strict=False))
        a = jnp.asarray(options.pop("a"))
        if not is_inexact(a.dtype):
            return function(a, **options)
        arrays = {name: v for name, v in options.items() if isinstance(v, jax.Array)}

        def value(a: Array, *values: Operand) -> Array:
            return function(a, **{**options, **dict(zip(arrays, values, strict=True))})

        def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
            a, *values = primals
            named = {**options, **dict(zip(arrays, values, strict=True))}
            moved: dict[str, Array | None] = dict(zip(("a", *arrays), tangents, strict=True))
            variance = out * out if root else out
            tangent = _tangent(a, variance, moved, ~jnp.isnan(a) if of_nan else None, **named)
            if root:
                tangent = tangent / (2 * divisor(out).astype(tangent.dtype))
            return tangent.astype(out.dtype)

        return with_rule(value, rule)(a, *arrays.values())

    return smooth


def _tangent(
    a: Array,
    variance: Array,
    tangents: dict[str, Array | None],
    valid: Array | None,
    axis: Axes = None,
    dtype: PyTree = None,
    out: None = None,
    ddof: Number | Array = 0,
    keepdims: bool = False,
    where: Array | None = None,
    mean: Array | None = None,
    correction: Number | Array | None = None,
) -> Array:
    """The tangent of a variance. It is NaN where there are too few elements, as the variance is."""
    dtype = a.dtype if dtype is None else jax.dtypes.canonicalize_dtype(dtype)
    dtype = jnp.promote_types(dtype, jnp.float32)
    real = jnp.finfo(dtype).dtype
    counted = valid if where is None else where if valid is None else valid & where
    a, moved = a.astype(dtype), _moved(tangents, dtype)
    if counted is None:
        number = jnp.asarray(math.prod([a.shape[k] for k in all_axes(a.ndim, axis)]))
    else:
        counted = jnp.broadcast_to(counted, a.shape)
        a, moved = [jnp.where(counted, v, 0) for v in (a, moved)]
        number = jnp.sum(counted, axis, keepdims=True)
    if mean is None:
        mean = jnp.mean(a, axis, dtype, keepdims=True, where=counted)
    number = number - jnp.asarray(ddof if correction is None else correction)
    number = jnp.where(number > 0, number, jnp.nan).astype(real)
    slope = (a - jnp.asarray(mean).astype(dtype)) * (2 / number)
    tangent = jnp.sum(jnp.real(jnp.conj(slope) * moved), axis, keepdims=keepdims)
    for t in (tangents.get("ddof"), tangents.get("correction")):
        if t is not None:
            of_each = number if keepdims or number.ndim == 0 else jnp.squeeze(number, axis)
            tangent = tangent + variance.astype(real) / of_each * t.astype(real)
    return tangent


def _moved(tangents: dict[str, Array | None], dtype: PyTree) -> Array:
    """The tangent of ``a - mean``; that of a mean which is computed adds nothing to the sum."""
    a, mean = [tangents.get(name) for name in ("a", "mean")]
    tangent = jnp.zeros((), dtype) if a is None else a.astype(dtype)
    return tangent if mean is None else tangent - mean.astype(dtype)


IN_NUMPY: dict[str, Function] = {
    "nanstd": lambda f: _spread(f, of_nan=True),
    "nanvar": lambda f: _spread(f, root=False, of_nan=True),
    "std": _spread,
    "var": lambda f: _spread(f, root=False),
}
std, var, nanstd = [mended(IN_NUMPY[name], getattr(jnp, name)) for name in ("std", "var", "nanstd")]


def _sem(sem: Function) -> Function:
    """The deviation, divided by the root of the number of elements."""

    def smooth(
        a: Array,
        axis: Axes = 0,
        ddof: int = 1,
        nan_policy: str = "propagate",
        *,
        keepdims: bool = False,
    ) -> Outputs:
        def value(a: Array) -> Array:
            return sem(a, axis, ddof, nan_policy, keepdims=keepdims)

        def other(a: Array) -> Array:
            valid = ~jnp.isnan(a) if nan_policy == "omit" else jnp.ones(a.shape, bool)
            deviation = nanstd if nan_policy == "omit" else std
            number = jnp.sum(valid, axis, a.dtype, keepdims=keepdims)
            return deviation(a, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(number)

        a = jnp.asarray(a)
        return computed_as(value, other)(a) if is_inexact(a.dtype) else value(a)

    return smooth


IN_STATS: dict[str, Function] = {"sem": _sem}
