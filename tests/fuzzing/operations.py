"""The operations that random programs are made of; views and writes are in `tests.fuzzing.writes`.

Each is written once, for the names of a `Library`: fad's, JAX's, PyTorch's where it has them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import fad
from tests.fuzzing.functions import FUNCTIONS, Cube, Swish, late
from tests.fuzzing.stacks import IN_FAD
from tests.fuzzing.steps import (
    Table,
    array,
    broadcasts,
    is_bool,
    is_complex,
    is_inexact,
    is_number,
    is_real,
    is_wide,
    number_pair,
    real_pair,
    same_shape,
    square,
)

__all__ = ["OPERATIONS"]

OPERATIONS = Table()
op = OPERATIONS.add


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


@op(2, same_shape)
def lists(lib, x, y):
    """Lists among arrays, which NumPy reads as arrays."""
    if lib is not IN_FAD:
        return lib.np.concatenate([(x + 2.0 * y)[None], lib.np.stack([x, y])])
    return lib.np.concatenate([lib.np.sum([x, 2.0 * y], axis=0)[None], [x, y]])


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


@op(1, array(is_wide, 1), [{"k": k} for k in (0.5, -0.25, 2, 3, np.float32(0.75))])
def made_anew(lib, x, k):
    """A body that closes over a number, another one in other programs."""
    return lib.lax.scan(lambda c, v: (lib.np.sin(c) * k + v, c - k), 0.5 * x[0], x)[1]


@op(2, lambda c, x: is_bool(c) and c.ndim == 0 and is_real(x))
def cond(lib, c, x):
    return lib.lax.cond(c, lambda v: lib.np.sin(v) * x, lambda v: v * v, x)


# Functions


@op(2, same_shape, [{"rules": name} for name in FUNCTIONS])
def function(lib, x, y, rules):
    if lib is not IN_FAD:
        return lib.np.sin(x) * y
    out = FUNCTIONS[rules].apply(x, y)
    return out[0] if isinstance(out, tuple) else out


@op(2, same_shape)
def late_rules(lib, x, y):
    return late(x, y) if lib is IN_FAD else lib.np.sin(x) * y


@op(1, is_real)
def compiled_constant(lib, x):
    """What compiled code returns without a derivative requires no grad, and is a constant from then on."""
    compiled = fad.jit if lib is IN_FAD else jax.jit
    kept = compiled(lambda v: lib.lax.stop_gradient(lib.np.cos(v)))(x)
    assert not (isinstance(kept, fad.Tensor) and kept.requires_grad)
    return x * kept


@op(2, same_shape)
def vjp_function(lib, x, y):
    return Swish.apply(x, y) if lib is IN_FAD else x * y * lib.nn.sigmoid(x)


@op(2, same_shape)
def jvp_function(lib, x, y):
    return Cube.apply(x, y) if lib is IN_FAD else x**3 * y
