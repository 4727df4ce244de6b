"""What type checkers know of expressions: the type that is revealed stands behind each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import reveal_type

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.lax as flax
import fad.nn as fnn
import fad.numpy as fnp
import fad.random as frandom
import fad.scipy as fscipy
from fad.autograd.function import FunctionCtx

w = fad.tensor([1.0, 2.0], requires_grad=True)
a = w.array
n = np.ones(2)

# Tensors
reveal_type(w)  # Tensor
reveal_type(w * 2)  # Tensor
reveal_type(2 * w)  # Tensor
reveal_type(w @ w)  # Tensor
reveal_type(w**2 > 1.0)  # Tensor
reveal_type(w == w)  # Tensor
reveal_type(-w)  # Tensor
reveal_type(w[0])  # Tensor
reveal_type(w[None, 1:])  # Tensor
reveal_type(w[w > 0])  # Tensor
reveal_type(w.sum())  # Tensor
reveal_type(w.sum(axis=0, keepdims=True))  # Tensor
reveal_type(w.sum(dim=0, keepdim=True))  # Tensor
reveal_type(w.std(dim=0))  # Tensor
reveal_type(w.permute(dims=(0,)))  # Tensor
reveal_type(w.reshape(2, 1).T)  # Tensor
reveal_type(w.grad)  # Tensor | None
reveal_type(w.grad_fn)  # Node | None
reveal_type(w.item())  # float | int | complex | bool
reveal_type(w.shape)  # tuple[int, ...]
reveal_type(w.array)  # Array
reveal_type(w.requires_grad)  # bool
reveal_type(w.requires_grad_())  # Tensor
reveal_type(w.detach().clone())  # Tensor
reveal_type(w.add_(1.0))  # Tensor
reveal_type(w.sin_())  # Tensor
reveal_type(w.at[0].set(1.0))  # Tensor
reveal_type(w.nonzero())  # tuple[Tensor, ...]
reveal_type(float(w[0]))  # float
reveal_type([x for x in w])  # list[Tensor]
reveal_type(w.backward())  # None

# Functions of arrays: Tensors and NumPy arrays give Tensors
reveal_type(fnp.sin(w))  # Tensor
reveal_type(fnp.sin(a))  # Array
reveal_type(fnp.sin(n))  # Tensor
reveal_type(fnp.sin(1.0))  # Array
reveal_type(fnp.add(w, 1))  # Tensor
reveal_type(fnp.add(a, w))  # Tensor
reveal_type(fnp.add(a, 1))  # Array
reveal_type(fnp.add.reduce(w))  # Tensor
reveal_type(fnp.where(w > 0, w, 0.0))  # Tensor
reveal_type(fnp.sum(w, axis=0))  # Tensor
reveal_type(fnp.sum(w, dim=0))  # Tensor
reveal_type(fnp.sum(w, dim=0, keepdim=True))  # Tensor
reveal_type(fnp.sum(a, dim=0))  # Array
reveal_type(fnp.mean(n, keepdim=True))  # Tensor
reveal_type(fnp.cumsum(w, dim=0))  # Tensor
reveal_type(fnp.squeeze(w, dim=0))  # Tensor
reveal_type(fnp.max(w, dim=0))  # Any
reveal_type(fnp.stack([w, w]))  # Tensor
reveal_type(fnp.stack([w, w], dim=0))  # Tensor
reveal_type(fnp.stack([a, a]))  # Array
reveal_type(fnp.concatenate([w, w], axis=0))  # Tensor
reveal_type(fnp.concatenate([w, [1.0, 2.0]]))  # Tensor
reveal_type(fnp.add(w, [1.0, 2.0]) + [1, 2])  # Tensor
reveal_type(fnp.sum([[1.0, 2.0], [w.sum(), 4]]))  # Tensor
reveal_type(fnp.linalg.norm(range(3)))  # Tensor
reveal_type(fnp.split(w, 2))  # list[Tensor]
reveal_type(fnp.einsum("i,i->", w, w))  # Tensor
reveal_type(fnp.unique(w))  # Tensor
reveal_type(fnp.unique(a, return_counts=True))  # tuple[Array, ...]
reveal_type(fnp.vectorize(fnp.hypot)(w, w))  # Tensor
reveal_type(fnp.zeros(3))  # Tensor
reveal_type(fnp.zeros_like(a))  # Tensor
reveal_type(fnp.arange(3, dtype=fnp.float32))  # Tensor
reveal_type(fnp.shape(w))  # tuple[int, ...]
reveal_type(fnp.linalg.solve(w, a))  # Tensor
reveal_type(fnp.linalg.eigh(w).eigenvalues)  # Tensor
reveal_type(fnp.fft.fft(a))  # Array
reveal_type(fnn.relu(w))  # Tensor
reveal_type(flax.rsqrt(w))  # Tensor
reveal_type(flax.fori_loop(0, 3, lambda i, x: x * 2, w))  # Tensor
reveal_type(flax.cond(True, fnp.sin, fnp.cos, w))  # Tensor
reveal_type(frandom.normal(frandom.key(0), (2,)))  # Tensor
reveal_type(frandom.key(0))  # Array
reveal_type(fscipy.special.gammaln(w))  # Tensor
reveal_type(fscipy.stats.norm.pdf(w))  # Tensor
reveal_type(fnn.initializers.glorot_normal()(frandom.key(0), (2, 2)))  # Tensor


# PyTorch's names
reveal_type(fad.zeros(2, 3))  # Tensor
reveal_type(fad.ones_like(w))  # Tensor
reveal_type(fad.cat([w, w], dim=0))  # Tensor
reveal_type(fad.stack([a, a]))  # Array
reveal_type(fad.where(w > 0, w, 0.0))  # Tensor
reveal_type(fad.tensor([1.0], dtype=fad.float32))  # Tensor


# Transforms
def f(x: fad.Tensor, scale: float = 1.0, *, shift: int = 0) -> fad.Tensor:
    return (x * scale + shift).sum()


def of_dict(p: dict[str, fad.Tensor]) -> fad.Tensor:
    return p["a"].sum()


def two(x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return (x * y).sum()


def with_aux(x: fad.Tensor) -> tuple[fad.Tensor, str]:
    return x.sum(), "aux"


reveal_type(fad.grad(f)(w))  # Tensor
reveal_type(fad.grad(f)(w, 2.0, shift=1))  # Tensor
reveal_type(fad.grad(f)(a))  # Array
reveal_type(fad.grad(f)(2.0))  # Array
reveal_type(fad.grad(of_dict)({"a": w}))  # dict[str, Tensor]
reveal_type(fad.grad(fad.grad(f))(w))  # Tensor
reveal_type(fad.grad(fnp.sin)(w))  # Tensor
reveal_type(fad.grad(two, argnums=(0, 1))(w, w))  # tuple[Tensor, Tensor]
reveal_type(fad.grad(two, argnums=1)(w, w))  # Tensor
reveal_type(fad.grad(with_aux, has_aux=True)(w))  # tuple[Tensor, str]
reveal_type(fad.value_and_grad(f)(w))  # tuple[Tensor, Tensor]
reveal_type(fad.value_and_grad(of_dict)({"a": w}))  # tuple[Tensor, dict[str, Tensor]]
reveal_type(fad.value_and_grad(with_aux, has_aux=True)(w))  # tuple[tuple[Tensor, str], Tensor]
reveal_type(fad.jvp(f, (w,), (w,)))  # tuple[Tensor, Tensor]
reveal_type(fad.jet(f, (w,), ([w, w],)))  # tuple[Tensor, list[Tensor]]
reveal_type(fad.derivatives(f, w, 3))  # list[Tensor]
reveal_type(fad.vjp(two, w, w)[1](1.0))  # tuple[Tensor, Tensor]
reveal_type(fad.linearize(f, w)[0])  # Tensor
reveal_type(fad.jacrev(f)(w))  # Tensor
reveal_type(fad.jacfwd(f)(w))  # Tensor
reveal_type(fad.hessian(f)(w))  # Tensor
reveal_type(fad.hvp(f, (w,), (w,)))  # tuple[tuple[Tensor], tuple[Tensor]]
reveal_type(fad.laplacian(f)(w))  # Tensor
reveal_type(fad.laplacian(f)(w, 2.0, shift=1))  # Tensor
reveal_type(fad.value_and_laplacian(f)(w))  # tuple[Tensor, Tensor]
reveal_type(fad.ggnvp(of_dict, f, {"a": w}, {"a": w}))  # dict[str, Tensor]
reveal_type(fad.sparse_pattern(two, (0, 1), hessian=True)(w, w))  # SparsePattern
reveal_type(fad.SparsePattern.load("pattern.npz").nse)  # int
reveal_type(fad.vmap(two, in_dims=(0, None))(w, w))  # Tensor
reveal_type(fad.vmap(fnp.dot)(w, w))  # Tensor
reveal_type(fad.jit(fnp.add)(w, 1.0))  # Tensor
reveal_type(fad.vmap(fad.grad(f))(w))  # Tensor
reveal_type(fad.jit(f)(w, 2.0, shift=3))  # Tensor
reveal_type(fad.jit(fad.value_and_grad(of_dict))({"a": w}))  # tuple[Tensor, dict[str, Tensor]]
reveal_type(fad.jit(fad.grad(fad.vmap(f)))(w))  # Tensor
reveal_type(fad.checkpoint(f)(w))  # Tensor
reveal_type(fad.stop_gradient({"a": w}))  # dict[str, Tensor]
reveal_type(fad.func.grad_and_value(f)(w))  # tuple[Tensor, Tensor]
reveal_type(fad.autograd.grad(f(w), [w]))  # tuple[Tensor, ...]
reveal_type(fad.autograd.grad(f(w), {"w": w}))  # dict[str, Tensor]
reveal_type(fad.from_jax(jnp.sum)(w))  # Tensor
reveal_type(fad.to_jax(f)(a))  # Array
reveal_type(fad.from_torch(f, parameters=True)[1])  # dict[str, Tensor]
reveal_type(fad.to_torch(f)(a))  # Any

with fad.dual_level():
    reveal_type(fad.unpack_dual(fad.make_dual(w, w)).tangent)  # Tensor | None


# Functions
class Scaled(fad.Function):
    @staticmethod
    def forward(x: fad.Tensor, factor: float) -> fad.Tensor:
        return x * factor

    @staticmethod
    def vjp(ctx: FunctionCtx, g: fad.Tensor) -> tuple[fad.Tensor, None]:
        return g, None


class Split(fad.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: fad.Tensor) -> tuple[fad.Tensor, fad.Tensor]:
        ctx.save_for_backward(x)
        ctx.note = "kept"
        return x, x

    @staticmethod
    def backward(ctx: FunctionCtx, g: fad.Tensor, h: fad.Tensor) -> fad.Tensor:
        reveal_type(ctx.saved_tensors)  # tuple[Tensor, ...]
        return g + h


class OfArrays(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(x: jax.Array) -> jax.Array:
        return x * 2

    @staticmethod
    def vjp(ctx: FunctionCtx[jax.Array], g: jax.Array) -> jax.Array:
        reveal_type(ctx.saved_tensors)  # tuple[Array, ...]
        return g * 2


reveal_type(Scaled.apply(w, 2.0))  # Tensor
reveal_type(Scaled.apply(w, factor=2.0))  # Tensor
reveal_type(Split.apply(w))  # tuple[Tensor, Tensor]
reveal_type(OfArrays.apply(a))  # Array
reveal_type(fad.grad(Scaled.apply)(w, 2.0))  # Tensor


# Decorators keep the type of the function
@fad.no_grad()
def without(x: fad.Tensor) -> fad.Tensor:
    return x


@fad.no_grad
def bare(x: fad.Tensor) -> fad.Tensor:
    return x


@fad.inference_mode()
def inferred(x: fad.Tensor, n: int) -> str:
    return f"{x} {n}"


@fad.jit
def compiled(x: fad.Tensor, n: int = 2) -> fad.Tensor:
    return x * n


@fad.jit(static_argnums=1)
def static(x: fad.Tensor, n: int) -> fad.Tensor:
    return x * n


@fad.no_grad()
def steps(x: fad.Tensor) -> Iterator[fad.Tensor]:
    yield x


def square(x: fad.Tensor, a: fad.Tensor) -> fad.Tensor:
    return x * x - a


@fad.implicit.custom_root(square)
def solve(init: fad.Tensor, a: fad.Tensor, *, count: int = 3) -> fad.Tensor:
    return init


class Model:
    @fad.jit
    def predict(self, x: fad.Tensor) -> fad.Tensor:
        return x

    @fad.checkpoint
    def hidden(self, x: fad.Tensor, n: int) -> fad.Tensor:
        return x * n


reveal_type(solve(w, a=w, count=2))  # Tensor
reveal_type(Model().predict(w))  # Tensor
reveal_type(Model().hidden(w, 2))  # Tensor
reveal_type(compiled.explain(w))  # str
reveal_type(without(w))  # Tensor
reveal_type(bare(w))  # Tensor
reveal_type(inferred(w, 3))  # str
reveal_type(compiled(w, n=3))  # Tensor
reveal_type(static(w, 3))  # Tensor
reveal_type([x for x in steps(w)])  # list[Tensor]
with fad.no_grad() as mode:
    reveal_type(mode)  # no_grad
