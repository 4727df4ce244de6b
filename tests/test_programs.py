"""Random programs under random stacks of transforms, against JAX.

A program is data: inputs, and a list of steps that an interpreter runs with the functions of fad or of
JAX. So a failure shrinks to the steps that matter and prints as a short listing. Everything runs in
64 bits, so that a wrong term is not taken for rounding; 32 and 16 bit steps widen the tolerance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, assert_close, is_idle
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import fad
import fad.numpy as fnp

Aval = jax.ShapeDtypeStruct


# The steps


@dataclasses.dataclass(frozen=True)
class Op:
    """One kind of step: ``run(lib, *operands, **options)``, for operands that ``accepts`` allows."""

    name: str
    run: Callable[..., Any]
    arity: int
    accepts: Callable[..., bool]
    options: tuple[dict[str, Any], ...] = ({},)
    differentiable: bool = True


OPS: dict[str, Op] = {}


def op(
    arity: int,
    accepts: Callable[..., bool],
    options: Sequence[dict[str, Any]] = ({},),
    differentiable: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        name = run.__name__.strip("_")
        OPS[name] = Op(name, run, arity, accepts, tuple(options), differentiable)
        return run

    return add


def is_real(*avals: Aval) -> bool:
    return all(jnp.issubdtype(a.dtype, np.floating) for a in avals)


def is_inexact(*avals: Aval) -> bool:
    return all(jnp.issubdtype(a.dtype, np.inexact) for a in avals)


def is_complex(*avals: Aval) -> bool:
    return all(jnp.issubdtype(a.dtype, np.complexfloating) for a in avals)


def is_number(*avals: Aval) -> bool:
    return all(a.dtype != bool for a in avals)


def is_bool(*avals: Aval) -> bool:
    return all(a.dtype == bool for a in avals)


def is_wide(*avals: Aval) -> bool:
    """Real, and of a precision that LAPACK has."""
    return all(a.dtype in (np.float32, np.float64) for a in avals)


def broadcasts(*avals: Aval) -> bool:
    try:
        return len(np.broadcast_shapes(*[a.shape for a in avals])) <= 3
    except ValueError:
        return False


def real_pair(a: Aval, b: Aval) -> bool:
    return is_real(a, b) and broadcasts(a, b)


def number_pair(a: Aval, b: Aval) -> bool:
    return is_number(a, b) and broadcasts(a, b) and is_inexact(a) | is_inexact(b)


def array(kind: Callable[..., bool], *ndims: int) -> Callable[..., bool]:
    return lambda *avals: kind(*avals) and all(a.ndim in ndims for a in avals)


def square(*avals: Aval) -> bool:
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


class Swish(fad.Function):
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


class Cube(fad.Function):
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


def same_shape(x: Aval, y: Aval) -> bool:
    return is_wide(x, y) and x.shape == y.shape and x.dtype == y.dtype


@op(2, same_shape)
def vjp_function(lib, x, y):
    return Swish.apply(x, y) if lib is IN_FAD else x * y * jax.nn.sigmoid(x)


@op(2, same_shape)
def jvp_function(lib, x, y):
    return Cube.apply(x, y) if lib is IN_FAD else x**3 * y


# Programs


@dataclasses.dataclass(frozen=True)
class Program:
    """Inputs, steps ``(op, operands, options)``, and the values to return, in a pytree.

    ``floats`` are differentiated; ``others`` (integers and bools) are passed along.
    """

    floats: tuple[tuple[tuple[int, ...], str], ...]
    others: tuple[tuple[tuple[int, ...], str], ...]
    steps: tuple[tuple[str, tuple[int, ...], int], ...]
    outputs: tuple[int, ...]
    seed: int

    def __repr__(self) -> str:
        lines = [f"\n  v{i} = input {dtype}{list(shape)}" for i, (shape, dtype) in enumerate(
            (*self.floats, *self.others))]  # fmt: skip
        for k, (name, operands, option) in enumerate(self.steps, len(lines)):
            given = [f"v{i}" for i in operands]
            given += [f"{key}={value!r}" for key, value in OPS[name].options[option].items()]
            lines.append(f"\n  v{k} = {name}({', '.join(given)})")
        returned = ", ".join(f"v{i}" for i in self.outputs)
        return f"Program(seed={self.seed}):{''.join(lines)}\n  return {returned}\n"

    def run(self, lib: Any, x: Any, n: Any) -> Any:
        values = [*jax.tree.leaves(x, is_leaf=_is_tensor), *n]
        for name, operands, option in self.steps:
            step = OPS[name]
            values.append(step.run(lib, *[values[i] for i in operands], **step.options[option]))
        first, *rest = [values[i] for i in self.outputs]
        return {"first": first, "rest": tuple(rest)} if rest else first

    def inputs(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(self.seed)

        def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
            if dtype == "bool":
                return rng.random(shape) < 0.5
            if dtype.startswith("int"):
                return rng.integers(-1, 4, shape).astype(dtype)
            value = rng.uniform(-1.5, 1.5, shape)
            if dtype.startswith("complex"):
                value = value + 1j * rng.uniform(-1.5, 1.5, shape)
            return np.asarray(value).astype(dtype)

        leaves = [jnp.asarray(draw(*spec)) for spec in self.floats]
        x = leaves[0] if len(leaves) == 1 else {"a": leaves[0], "b": tuple(leaves[1:])}
        return x, [jnp.asarray(draw(*spec)) for spec in self.others]

    def dtypes(self) -> set[str]:
        steps = {name for name, _, _ in self.steps}
        kinds = {dtype for _, dtype in self.floats}
        kinds |= {str(v) for name, _, k in self.steps for v in OPS[name].options[k].values()}
        return kinds | ({"bfloat16"} if "half_precision" in steps else set())

    def tolerance(self) -> float:
        """Relative to the largest element."""
        kinds = self.dtypes()
        if "bfloat16" in kinds:
            return 0.1
        return 2e-3 if kinds & {"float32", "complex64", "1.5"} else 1e-7


def _is_tensor(x: Any) -> bool:
    return isinstance(x, fad.Tensor)


SHAPES = ((), (2,), (3,), (2, 2), (2, 3))
FLOATS = ("float64", "float64", "float64", "float32", "complex128")
OTHERS = ("int32", "bool")


@functools.lru_cache(maxsize=100_000)
def result_of(name: str, option: int, avals: tuple[Any, ...]) -> Any:
    step = OPS[name]
    with jax.enable_x64(True):
        return jax.eval_shape(lambda *v: step.run(IN_JAX, *v, **step.options[option]), *avals)


@st.composite
def programs(draw: Callable[..., Any]) -> Program:
    spec = lambda dtypes: st.tuples(st.sampled_from(SHAPES), st.sampled_from(dtypes))
    floats = draw(st.lists(spec(FLOATS), min_size=1, max_size=3))
    others = draw(st.lists(spec(OTHERS), max_size=1))
    avals = [Aval(shape, np.dtype(dtype)) for shape, dtype in (*floats, *others)]
    live = [True] * len(floats) + [False] * len(others)
    steps: list[tuple[str, tuple[int, ...], int]] = []
    for _ in range(draw(st.integers(1, 6))):
        step = OPS[draw(st.sampled_from(sorted(OPS)))]
        fits = _operands(step, avals)
        if not fits:
            continue
        operands = draw(st.sampled_from(fits))
        option = draw(st.integers(0, len(step.options) - 1))
        try:
            out = result_of(step.name, option, tuple([avals[i] for i in operands]))
        except (TypeError, ValueError, IndexError):
            continue
        if out.size > 24 or out.ndim > 3:
            continue
        steps.append((step.name, operands, option))
        avals.append(Aval(out.shape, out.dtype))
        live.append(step.differentiable and is_inexact(out) and any(live[i] for i in operands))
    computed = range(len(floats) + len(others), len(avals))
    candidates = [i for i in computed if live[i]]
    assume(candidates)
    first = draw(st.sampled_from(candidates[::-1]))
    rest = draw(st.lists(st.sampled_from(list(computed)[::-1]), max_size=2))
    seed = draw(st.integers(0, 1000))
    return Program(tuple(floats), tuple(others), tuple(steps), (first, *rest), seed)


def _operands(step: Op, avals: list[Aval]) -> list[tuple[int, ...]]:
    """The choices of operands, latest values first."""
    indices = range(len(avals) - 1, -1, -1)
    if step.arity == 1:
        return [(i,) for i in indices if step.accepts(avals[i])]
    if step.arity == 2:
        return [(i, j) for i in indices for j in indices if step.accepts(avals[i], avals[j])]
    return [
        (i, j, k)
        for i in indices
        for j in indices
        for k in indices
        if step.accepts(avals[i], avals[j], avals[k])
    ]


# Transforms, each from a function of (x, n) to another


F = Callable[[Any, Any], Any]


def leaves_of(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=_is_tensor)


def inexact_leaves(tree: Any) -> list[Any]:
    return [v for v in leaves_of(tree) if jnp.issubdtype(v.dtype, np.inexact)]


def map_tree(f: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(f, *trees, is_leaf=_is_tensor)


def weigh(lib: Any, out: Any) -> Any:
    """A real scalar from a pytree."""
    total: Any = 0.0
    for k, v in enumerate(inexact_leaves(out)):
        v = lib.np.real(v) + 0.5 * lib.np.imag(v) if is_complex(v) else v
        total = total + (k + 1.0) * lib.np.sum(lib.np.sin(v.astype(np.float64)))
    return total


def conj_tree(tree: Any) -> Any:
    """JAX's gradients in PyTorch's convention, which is fad's."""
    return jax.tree.map(jnp.conj, tree)


def direction(lib: Any, x: Any) -> Any:
    return map_tree(lambda v: lib.np.cos(v).astype(v.dtype), x)


def t_grad(lib: Any, f: F) -> F:
    g = lib.grad(lambda x, n: weigh(lib, f(x, n)))
    return g if lib is IN_FAD else lambda x, n: conj_tree(g(x, n))


def t_value_and_grad(lib: Any, f: F) -> F:
    def run(x: Any, n: Any) -> Any:
        value, g = lib.value_and_grad(lambda x: weigh(lib, f(x, n)))(x)
        return {"value": value, "grad": g if lib is IN_FAD else conj_tree(g)}

    return run


def t_autograd(lib: Any, f: F) -> F:
    if lib is IN_JAX:
        return t_grad(lib, f)

    def run(x: Any, n: Any) -> Any:
        x = map_tree(lambda v: fad.asarray(v).clone().requires_grad_(), x)
        total = weigh(lib, f(x, n))
        grads = fad.autograd.grad(total, leaves_of(x), create_graph=True, materialize_grads=True)
        return jax.tree.unflatten(jax.tree.structure(x, is_leaf=_is_tensor), grads)

    return run


def t_vjp(lib: Any, f: F) -> F:
    def run(x: Any, n: Any) -> Any:
        outs, pull = lib.vjp(lambda x: inexact_leaves(f(x, n)), x)
        cts = [lib.np.cos(v).astype(v.dtype) for v in outs]
        if lib is IN_FAD:
            return pull(cts)[0]
        return conj_tree(pull(conj_tree(cts))[0])

    return run


def t_jvp(lib: Any, f: F) -> F:
    if lib is IN_FAD:
        return lambda x, n: inexact_leaves(
            fad.jvp(f, (x, n), (direction(lib, x), [None] * len(n)))[1]
        )
    return lambda x, n: jax.jvp(
        lambda x: inexact_leaves(f(x, n)), (x,), (direction(lib, x),)
    )[1]  # fmt: skip


def t_linearize(lib: Any, f: F) -> F:
    def run(x: Any, n: Any) -> Any:
        _, push = lib.linearize(lambda x: inexact_leaves(f(x, n)), x)
        return push(direction(lib, x))

    return run


def t_dual_level(lib: Any, f: F) -> F:
    if lib is IN_JAX:
        return t_jvp(lib, f)

    def run(x: Any, n: Any) -> Any:
        with fad.dual_level():
            duals = map_tree(fad.make_dual, x, direction(lib, x))
            pairs = [fad.unpack_dual(v) for v in inexact_leaves(f(duals, n))]
            return [fnp.zeros_like(p) if t is None else t for p, t in pairs]

    return run


def t_jacrev(lib: Any, f: F) -> F:
    return lambda x, n: lib.jacrev(lambda x: inexact_leaves(f(x, n)))(x)


def t_jacfwd(lib: Any, f: F) -> F:
    return lambda x, n: lib.jacfwd(lambda x: inexact_leaves(f(x, n)))(x)


def _lanes(lib: Any, x: Any, dim: int) -> Any:
    return map_tree(lambda v: lib.np.stack([v, (v * 0.5 + 0.1).astype(v.dtype)], dim), x)


def t_vmap(lib: Any, f: F) -> F:
    return lambda x, n: lib.vmap(f, (0, None))(_lanes(lib, x, 0), n)


def t_vmap_last(lib: Any, f: F) -> F:
    """The last dimension in, the last one out, and the integers mapped too."""

    def run(x: Any, n: Any) -> Any:
        n = [lib.np.stack([v, v]) for v in n]
        return lib.vmap(f, (-1, 0), -1)(_lanes(lib, x, -1), n)

    return run


def t_checkpoint(lib: Any, f: F) -> F:
    return fad.checkpoint(f) if lib is IN_FAD else f


def t_jit(lib: Any, f: F) -> F:
    return fad.jit(f) if lib is IN_FAD else f


TRANSFORMS = {
    name.removeprefix("t_"): t for name, t in list(globals().items()) if name.startswith("t_")
}
HOLOMORPHIC = ("jacrev", "jacfwd")  # JAX wants real values there


def run_stack(lib: Any, program: Program, names: Sequence[str]) -> Any:
    f: F = functools.partial(program.run, lib)
    for name in names:
        f = TRANSFORMS[name](lib, f)
    return f(*program.inputs())


def check(program: Program, names: Sequence[str]) -> bool:
    """fad's result is JAX's; False if JAX has none to compare with."""
    steps = {name for name, _, _ in program.steps}
    is_complex_program = "complex128" in program.dtypes() or steps & {"complex", "fft"}
    if is_complex_program and set(names) & set(HOLOMORPHIC):
        return False
    with jax.enable_x64(True):
        expected = run_stack(IN_JAX, program, names)
        largest = max([float(jnp.max(jnp.abs(v), initial=0.0)) for v in leaves_of(expected)])
        if not largest < 1e8:  # or not a number
            return False
        got = run_stack(IN_FAD, program, names)
        tolerance = program.tolerance()
        assert_close(got, expected, rtol=tolerance, atol=tolerance)
    assert is_idle()
    return True


EXAMPLES = {"ci": 100, "full": 2_000}


@settings(
    max_examples=EXAMPLES["full" if settings.get_current_profile_name() == "full" else "ci"],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # explaining takes minutes
)
@given(programs(), st.lists(st.sampled_from(sorted(TRANSFORMS)), max_size=3).map(tuple))
def test_random_programs_under_random_transforms_agree_with_jax(
    program: Program, stack: tuple[str, ...]
) -> None:
    assume(check(program, stack))


def test_there_are_enough_kinds_of_steps() -> None:
    assert len(OPS) >= 25


@pytest.mark.parametrize("name", OPS)
def test_each_kind_of_step_alone(name: str) -> None:
    """Every step runs, in value and gradient, on the first operands that it accepts."""
    step = OPS[name]
    specs = [(shape, dtype) for dtype in ("float64", "complex128") for shape in SHAPES[::-1]]
    others = [((2, 3), "bool"), ((), "bool"), ((2,), "int32")]
    avals = [Aval(shape, np.dtype(dtype)) for shape, dtype in (*specs, *others)]
    with jax.enable_x64(True):
        operands = _operands(step, avals)[-1]
    program = Program(tuple(specs), tuple(others), ((name, operands, 0),), (len(avals),), 0)
    assert check(program, ("vmap", "grad") if step.differentiable else ("vmap",))
