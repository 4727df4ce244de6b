"""The steps that random programs are made of: operations, views, and writes in place.

Each is written once, for the names of a `Library` (fad's, JAX's, PyTorch's where it has them), and says
which operands it accepts by their shapes and dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.nn
import fad.numpy as fnp
from fad.function import Function
from fad.testing.stacks import IN_FAD

__all__ = ["OPS", "Op", "is_complex", "is_inexact"]

Aval = jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Op:
    """One kind of step: ``run(lib, *operands, **options)``, for operands that ``accepts`` allows.

    ``kind`` is "pure", "view" (its result aliases its operand: ``put`` writes a new value of the view
    into the value that it is a view of) or "write" (it changes its first operand, whose new value is
    ``put(lib, *operands)``). ``aliases``: a library may return a view where another returns a copy.
    """

    name: str
    run: Callable[..., Any]
    arity: int
    accepts: Callable[..., bool]
    options: tuple[dict[str, Any], ...] = ({},)
    differentiable: bool = True
    kind: str = "pure"
    put: Callable[..., Any] | None = None
    aliases: bool = False


OPS: dict[str, Op] = {}


def op(
    arity: int,
    accepts: Callable[..., bool],
    options: Sequence[dict[str, Any]] = ({},),
    differentiable: bool = True,
    kind: str = "pure",
    put: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a step to the table, under the name of the function."""

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        name = run.__name__ if kind == "write" else run.__name__.strip("_")
        OPS[name] = Op(
            name, run, arity, accepts, tuple(options), differentiable, kind, put, name in _ALIASING
        )
        return run

    return add


_ALIASING = frozenset(
    "astype clip real imag conj einsum ravel reshape transpose expand_dims broadcast_to getitem "
    "getitem_last cond roll pad".split()
)


def is_real(*avals: Aval) -> bool:
    """Whether all are floating."""
    return all(jnp.issubdtype(a.dtype, np.floating) for a in avals)


def is_inexact(*avals: Aval) -> bool:
    """Whether all are floating or complex."""
    return all(jnp.issubdtype(a.dtype, np.inexact) for a in avals)


def is_complex(*avals: Aval) -> bool:
    """Whether all are complex."""
    return all(jnp.issubdtype(a.dtype, np.complexfloating) for a in avals)


def is_number(*avals: Aval) -> bool:
    """Whether none is bool."""
    return all(a.dtype != bool for a in avals)


def is_bool(*avals: Aval) -> bool:
    """Whether all are bool."""
    return all(a.dtype == bool for a in avals)


def is_wide(*avals: Aval) -> bool:
    """Real, and of a precision that LAPACK has."""
    return all(a.dtype in (np.float32, np.float64) for a in avals)


def broadcasts(*avals: Aval) -> bool:
    """Whether they have a common shape of at most three dimensions."""
    try:
        return len(np.broadcast_shapes(*[a.shape for a in avals])) <= 3
    except ValueError:
        return False


def real_pair(a: Aval, b: Aval) -> bool:
    """Two floating operands that broadcast."""
    return is_real(a, b) and broadcasts(a, b)


def number_pair(a: Aval, b: Aval) -> bool:
    """Two operands that broadcast, one of them with a derivative."""
    return is_number(a, b) and broadcasts(a, b) and is_inexact(a) | is_inexact(b)


def array(kind: Callable[..., bool], *ndims: int) -> Callable[..., bool]:
    """Operands of a kind, with these numbers of dimensions."""
    return lambda *avals: kind(*avals) and all(a.ndim in ndims for a in avals)


def square(*avals: Aval) -> bool:
    """Square matrices of a precision that LAPACK has."""
    return all(is_wide(a) and a.ndim == 2 and a.shape[0] == a.shape[1] for a in avals)


@op(1, is_inexact)
def sin(lib, x):
    return lib.np.sin(x)


@op(1, is_inexact)
def exp(lib, x):
    return lib.np.exp(lib.np.sin(x))


@op(1, is_inexact)
def tanh(lib, x):
    return lib.np.tanh(x * 0.5)


@op(1, is_real)
def log(lib, x):
    return lib.np.log(x * x + 1.0)


@op(1, is_real)
def sqrt(lib, x):
    return lib.np.sqrt(x * x + 1.0)


@op(1, is_inexact)
def negative(lib, x):
    return -x


@op(1, is_number)
def square_(lib, x):
    return lib.np.square(x)


@op(1, is_real)
def abs_(lib, x):
    return abs(x)


@op(1, is_real)
def floor(lib, x):
    return lib.np.floor(x)


@op(1, is_inexact)
def erf_like(lib, x):
    return x * lib.np.exp(-x * lib.np.conj(x)).real


@op(2, number_pair)
def add(lib, x, y):
    return x + y


@op(2, number_pair)
def subtract(lib, x, y):
    return x - y


@op(2, number_pair)
def multiply(lib, x, y):
    return x * y


@op(2, number_pair)
def divide(lib, x, y):
    return x / (lib.np.abs(y) ** 2 + 1.0)


@op(1, is_number, [{"c": 2.0}, {"c": -0.5}, {"c": 3}, {"c": np.float32(1.5)}])
def scale(lib, x, c):
    return c * x


@op(1, is_real, [{"n": 2}, {"n": 3}, {"n": -1}, {"n": 0.5}])
def power(lib, x, n):
    return (x * x + 0.5) ** n


@op(2, real_pair)
def maximum(lib, x, y):
    return lib.np.maximum(x, y)


@op(2, real_pair)
def hypot(lib, x, y):
    return lib.np.hypot(x, y + 1.5)


@op(2, real_pair)
def arctan2(lib, x, y):
    return lib.np.arctan2(x, lib.np.abs(y) + 0.5)


@op(1, is_real, [{"low": -0.6, "high": 0.7}, {"low": None, "high": 0.4}])
def clip(lib, x, low, high):
    return lib.np.clip(x, low, high)


@op(2, real_pair, differentiable=False)
def less(lib, x, y):
    return x < y


@op(1, is_real, [{"c": 0.37}, {"c": -0.21}], differentiable=False)
def greater_equal(lib, x, c):
    return x >= c


@op(1, is_bool, differentiable=False)
def logical_not(lib, x):
    return ~x


@op(3, lambda c, x, y: is_bool(c) and number_pair(x, y) and broadcasts(c, x, y))
def where(lib, c, x, y):
    return lib.np.where(c, x, y)


@op(1, lambda x: is_number(x) and not is_complex(x), [{"to": t} for t in ("float32", "float64")])
def astype(lib, x, to):
    return x.astype(to)


@op(1, is_real)
def half_precision(lib, x):
    return x.astype(jnp.bfloat16)


@op(1, is_real, differentiable=False)
def to_int(lib, x):
    return lib.np.round(x * 2.0).astype(np.int32)


AXES = [{"axis": a} for a in (None, 0, -1)] + [{"axis": -1, "keepdims": True}]
VECTOR_AXES = [{"axis": 0}, {"axis": -1}]


@op(1, lambda x: is_number(x) and x.ndim > 0, AXES)
def sum_(lib, x, **how):
    return lib.np.sum(x, **how)


@op(1, array(is_inexact, 1, 2), AXES)
def mean(lib, x, **how):
    return x.mean(**how)


@op(1, array(is_real, 1, 2), AXES[:3])
def prod(lib, x, **how):
    return lib.np.prod(x, **how)


@op(1, array(is_real, 1, 2), AXES)
def max_(lib, x, **how):
    return lib.np.max(x, **how)


@op(1, array(is_real, 1, 2), AXES[:3])
def var(lib, x, **how):
    return lib.np.var(x, **how)


@op(1, array(is_real, 1, 2), AXES[:3])
def logsumexp(lib, x, **how):
    return lib.scipy.special.logsumexp(x, **how)


@op(1, array(is_real, 1, 2), VECTOR_AXES, differentiable=False)
def argmax(lib, x, axis):
    return lib.np.argmax(x, axis=axis)


@op(1, array(is_bool, 1, 2), VECTOR_AXES, differentiable=False)
def any_(lib, x, axis):
    return lib.np.any(x, axis=axis)


@op(1, array(is_inexact, 1, 2), VECTOR_AXES)
def cumsum(lib, x, axis):
    return lib.np.cumsum(x, axis=axis)


@op(1, array(is_real, 1, 2), VECTOR_AXES)
def sort(lib, x, axis):
    return lib.np.sort(x, axis=axis)


@op(1, array(is_real, 1, 2), VECTOR_AXES)
def softmax(lib, x, axis):
    return lib.nn.softmax(x, axis=axis)


@op(1, is_real)
def relu(lib, x):
    return lib.nn.relu(x + 0.1)


@op(2, lambda x, y: is_inexact(x, y) and x.ndim and y.ndim and x.shape[-1] == y.shape[0] and
    x.ndim + y.ndim <= 4)  # fmt: skip
def matmul(lib, x, y):
    return x @ y if y.ndim < 3 else lib.np.tensordot(x, y, 1)


@op(2, array(is_inexact, 1))
def outer(lib, x, y):
    return lib.np.outer(x, y)


@op(1, array(is_inexact, 2), [{"s": s} for s in ("ij->ji", "ij->j", "ij->")])
def einsum(lib, x, s):
    return lib.np.einsum(s, x)


@op(2, lambda x, y: array(is_inexact, 2)(x, y) and x.shape == y.shape,
    [{"s": s} for s in ("ij,ij->i", "ij,kj->ik", "ij,ik->jk")])  # fmt: skip
def einsum_pair(lib, x, y, s):
    return lib.np.einsum(s, x, y)


@op(1, lambda x: x.ndim > 0)
def ravel(lib, x):
    return x.reshape(-1)


@op(1, lambda x: x.ndim == 2)
def reshape(lib, x):
    return lib.np.reshape(x, x.shape[::-1])


@op(1, lambda x: x.ndim >= 2)
def transpose(lib, x):
    return x.T


@op(1, lambda x: x.ndim <= 2, [{"axis": 0}, {"axis": -1}])
def expand_dims(lib, x, axis):
    return lib.np.expand_dims(x, axis)


@op(1, lambda x: x.ndim == 1)
def broadcast_to(lib, x):
    return lib.np.broadcast_to(x, (2, *x.shape))


INDICES = [{"i": i} for i in (0, -1, slice(1, None), slice(None, None, -1), None)]


@op(1, lambda x: x.ndim and x.shape[0] >= 2, INDICES)
def getitem(lib, x, i):
    return x[i]


@op(1, lambda x: x.ndim and x.shape[-1] >= 2)
def getitem_last(lib, x):
    return x[..., 1]


@op(1, lambda x: x.ndim and x.shape[0] >= 2)
def gather(lib, x):
    return x[np.array([1, 0, 1])]


@op(2, lambda x, n: x.ndim and n.dtype.kind == "i")
def take(lib, x, n):
    return lib.np.take(x, n, axis=0, mode="clip")


@op(2, lambda x, y: is_number(x, y) and x.ndim == y.ndim and x.ndim and x.shape[1:] == y.shape[1:])
def concatenate(lib, x, y):
    return lib.np.concatenate([x, y])


@op(2, lambda x, y: is_number(x, y) and x.shape == y.shape and x.ndim <= 2, VECTOR_AXES)
def stack(lib, x, y, axis):
    return lib.np.stack([x, y], axis=axis)


@op(1, lambda x: x.ndim == 1 and is_number(x))
def pad(lib, x):
    return lib.np.pad(x, (1, 0))


@op(1, lambda x: x.ndim)
def roll(lib, x):
    return lib.np.roll(x, 1, axis=0)


@op(1, lambda x: is_inexact(x) and x.ndim and x.shape[0] >= 2)
def at_set(lib, x):
    return lib.np.asarray(x).at[0].set(x[1] * 2.0)


@op(1, square)
def det(lib, x):
    return lib.np.linalg.det(x + 2.0 * np.eye(x.shape[0], dtype=x.dtype))


@op(2, lambda x, y: square(x) and is_wide(y) and y.ndim == 1 and y.shape[0] == x.shape[0] and
    y.dtype == x.dtype)  # fmt: skip
def solve(lib, x, y):
    return lib.np.linalg.solve(lib.np.sin(x) * 0.4 + 2.0 * np.eye(x.shape[0], dtype=x.dtype), y)


@op(1, square)
def cholesky(lib, x):
    return lib.np.linalg.cholesky(x @ x.T + 2.0 * np.eye(x.shape[0], dtype=x.dtype))


@op(1, is_complex)
def real(lib, x):
    return lib.np.real(x)


@op(1, is_complex)
def imag(lib, x):
    return x.imag


@op(1, is_complex)
def conj(lib, x):
    return lib.np.conj(x)


@op(1, is_complex)
def modulus(lib, x):
    return lib.np.abs(x + (2.0 + 1.0j))


@op(2, lambda x, y: is_wide(x, y) and broadcasts(x, y) and x.dtype == y.dtype)
def complex_(lib, x, y):
    return lib.lax.complex(*lib.np.broadcast_arrays(x, y))


@op(1, array(lambda x: is_complex(x) or is_wide(x), 1))
def fft(lib, x):
    return lib.np.fft.fft(x)


@op(1, array(is_real, 1))
def scan(lib, x):
    return lib.lax.scan(lambda c, v: (lib.np.sin(c) + v, c * v), 0.5 * x[0], x)[1]


@op(2, lambda c, x: is_bool(c) and c.ndim == 0 and is_real(x))
def cond(lib, c, x):
    return lib.lax.cond(c, lambda v: lib.np.sin(v) * x, lambda v: v * v, x)


# Functions, with every style of rules; each stands for the same formula in JAX


class Wave(Function):
    """sin(x) y, without rules of its own."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


def _wave_vjp(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_tensors
    return g * fnp.cos(x) * y, g * fnp.sin(x)


def _wave_jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
    x, y = ctx.saved_tensors
    return x_t * fnp.cos(x) * y + y_t * fnp.sin(x)


class VjpWave(Wave):
    """With a vjp."""

    vjp = staticmethod(_wave_vjp)


class JvpWave(Wave):
    """With a jvp."""

    jvp = staticmethod(_wave_jvp)


class FullWave(VjpWave):
    """With a vjp, a jvp and a vmap rule."""

    jvp = staticmethod(_wave_jvp)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        moved = [
            v if d is None else fnp.moveaxis(v, d, -1) for v, d in zip((x, y), in_dims, strict=True)
        ]
        moved = [v if d is not None else v[..., None] for v, d in zip(moved, in_dims, strict=True)]
        return fnp.sin(moved[0]) * moved[1], -1


class OneMethodWave(Function):
    """In the one-method style, with an intermediate value saved."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        sine = fnp.sin(x)
        ctx.save_for_backward(x, y, sine)
        return sine * y

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y, sine = ctx.saved_tensors
        return g * fnp.cos(x) * y, g * sine


class ArrayWave(Function):
    """With bodies on JAX arrays, a second output, and an intermediate value saved."""

    jax_rules = True

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        sine = jnp.sin(x)
        ctx.save_for_backward(x, y, sine)
        return sine * y, sine

    @staticmethod
    def vjp(ctx: Any, g: Any, h: Any) -> Any:
        x, y, sine = ctx.saved_tensors
        return (g * y + h) * jnp.cos(x), g * sine


FUNCTIONS: dict[str, Any] = {
    "none": Wave,
    "vjp": VjpWave,
    "jvp": JvpWave,
    "all": FullWave,
    "one-method": OneMethodWave,
    "jax_rules": ArrayWave,
}


def same_shape(x: Aval, y: Aval) -> bool:
    """Two operands alike, as the Functions want them."""
    return is_wide(x, y) and x.shape == y.shape and x.dtype == y.dtype


@op(2, same_shape, [{"rules": name} for name in FUNCTIONS])
def function(lib, x, y, rules):
    if lib is not IN_FAD:
        return lib.np.sin(x) * y
    out = FUNCTIONS[rules].apply(x, y)
    return out[0] if isinstance(out, tuple) else out


class Swish(Function):
    """x y sigmoid(x), with a vjp only."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y * fad.nn.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        s = fad.nn.sigmoid(x)
        return g * y * (s + x * s * (1.0 - s)), g * x * s


class Cube(Function):
    """x^3 y, with a jvp only."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x**3 * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
        x, y = ctx.saved_tensors
        return 3.0 * x * x * y * x_t + x**3 * y_t


@op(2, same_shape)
def vjp_function(lib, x, y):
    return Swish.apply(x, y) if lib is IN_FAD else x * y * lib.nn.sigmoid(x)


@op(2, same_shape)
def jvp_function(lib, x, y):
    return Cube.apply(x, y) if lib is IN_FAD else x**3 * y


# Views: their results alias their operand


VIEW_INDICES = [{"i": i} for i in (0, -1, slice(1, None), slice(None, None, 2), None, ...)]


@op(1, lambda x: is_inexact(x) and x.ndim and x.shape[0] >= 2, VIEW_INDICES, kind="view",
    put=lambda x, new, i: x.at[i].set(new))  # fmt: skip
def view_index(lib, x, i):
    return x[i]


@op(1, lambda x: is_inexact(x) and x.ndim == 2, kind="view", put=lambda x, new: new.T)
def view_transpose(lib, x):
    return x.T


@op(1, lambda x: is_inexact(x) and x.ndim == 2, kind="view",
    put=lambda x, new: new.reshape(x.shape))  # fmt: skip
def view_reshape(lib, x):
    return x.reshape(-1)


# Writes in place: they change their first operand, and all that shares its memory


def fits_into(x: Aval, v: Aval) -> bool:
    """Whether ``v`` can be broadcast into ``x``."""
    if not is_wide(x) or v.dtype != x.dtype or v.ndim > x.ndim:
        return False
    return all(m in (1, n) for m, n in zip(v.shape[::-1], x.shape[::-1], strict=False))


@op(2, fits_into, kind="write", put=lambda lib, x, v: x + v)
def add_(lib, x, v):
    x.add_(v)


@op(2, fits_into, kind="write", put=lambda lib, x, v: x * v)
def multiply_(lib, x, v):
    x.mul_(v)


@op(2, fits_into, kind="write", put=lambda lib, x, v: x - 0.5 * v)
def subtract_(lib, x, v):
    x -= 0.5 * v


@op(2, lambda x, v: fits_into(x, v) and x.ndim and x.shape[0] >= 2 and v.ndim < x.ndim,
    [{"i": 0}, {"i": -1}, {"i": slice(1, None)}, {"i": ...}],
    kind="write", put=lambda lib, x, v, i: x.at[i].set(v))  # fmt: skip
def set_item_(lib, x, v, i):
    x[i] = v


@op(2, lambda x, v: fits_into(x, v) and x.ndim and x.shape[0] >= 2 and v.ndim < x.ndim,
    [{"i": slice(0, 1)}, {"i": slice(None, None, 2)}],
    kind="write", put=lambda lib, x, v, i: x.at[i].add(v))  # fmt: skip
def add_item_(lib, x, v, i):
    x[i] += v


@op(2, lambda x, v: is_wide(x) and x.shape == v.shape and x.dtype == v.dtype, kind="write",
    put=lambda lib, x, v: v)  # fmt: skip
def copy_(lib, x, v):
    x.copy_(v)
