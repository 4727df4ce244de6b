"""A user's program: a small network, trained; a Function; batches, curvature, writes in place.

It passes mypy and pyright in their strict modes, and has no expression of type Any.
"""

# mypy: disallow-any-expr

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax

import fad
import fad.nn as fnn
import fad.numpy as fnp
import fad.random as frandom
import fad.scipy.special as special
from fad.autograd.function import FunctionCtx
from fad.scipy import linalg


class Layer(NamedTuple):
    weight: fad.Tensor
    bias: fad.Tensor


def make_layer(key: jax.Array, inputs: int, outputs: int) -> Layer:
    weight = frandom.normal(key, (inputs, outputs)) * 0.1
    return Layer(weight.requires_grad_(), fnp.zeros(outputs).requires_grad_())


class SoftClip(fad.Function):
    """``limit * tanh(x / limit)``, with a rule of its own."""

    @staticmethod
    def forward(x: fad.Tensor, limit: float) -> fad.Tensor:
        return limit * fnp.tanh(x / limit)

    @staticmethod
    def setup_context(
        ctx: FunctionCtx, inputs: tuple[fad.Tensor, float], output: fad.Tensor
    ) -> None:
        x, limit = inputs
        ctx.save_for_backward(x, fad.asarray(limit))

    @staticmethod
    def vjp(ctx: FunctionCtx, g: fad.Tensor) -> tuple[fad.Tensor, None]:
        x, limit = ctx.saved_tensors
        return g / fnp.cosh(x / limit) ** 2, None


def predict(layers: list[Layer], x: fad.Tensor) -> fad.Tensor:
    for layer in layers[:-1]:
        x = fnn.relu(x @ layer.weight + layer.bias)
    last = layers[-1]
    return SoftClip.apply(x @ last.weight + last.bias, 5.0)


def loss(layers: list[Layer], x: fad.Tensor, y: fad.Tensor, *, decay: float = 0.0) -> fad.Tensor:
    penalty = fnp.stack([(layer.weight**2).sum() for layer in layers]).sum()
    return ((predict(layers, x) - y) ** 2).mean() + decay * penalty


def batches(key: jax.Array, count: int) -> Iterator[tuple[fad.Tensor, fad.Tensor]]:
    for k in range(count):
        x = frandom.uniform(frandom.fold_in(key, k), (8, 2))
        yield x, x.sum(axis=1, keepdims=True)


@fad.no_grad()
def step(layers: list[Layer], rate: float) -> None:
    for layer in layers:
        for parameter in layer:
            if parameter.grad is not None:
                parameter.sub_(rate * parameter.grad)
                parameter.grad = None


@fad.jit
def evaluate(layers: list[Layer], x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return loss(layers, x, y)


def smooth(u: fad.Tensor, steps: int) -> fad.Tensor:
    u = u.clone()
    for _ in range(steps):
        u[1:-1] += 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def energy(u: fad.Tensor, scale: float = 1.0) -> fad.Tensor:
    return scale * (smooth(u, 2) ** 2).sum() + special.gammaln(fnp.abs(u) + 1.0).sum()


def main() -> tuple[float, list[float]]:
    keys = frandom.split(frandom.key(0), 3)
    layers = [make_layer(keys[0], 2, 8), make_layer(keys[1], 8, 1)]
    losses: list[float] = []
    for x, y in batches(keys[2], 3):
        error = loss(layers, x, y, decay=1e-4)
        error.backward()
        step(layers, 0.1)
        losses.append(float(error))
    x, y = next(batches(keys[2], 1))
    value, gradients = fad.value_and_grad(loss)(layers, x, y, decay=0.1)
    norm = fnp.sqrt(fnp.stack([(g.weight**2).sum() for g in gradients]).sum())

    u = fnp.linspace(0.0, 1.0, 5)
    force = -fad.grad(energy)(u, scale=2.0)
    curvature = fad.hessian(energy)(u)
    newton = linalg.solve(curvature, force)
    _, slope = fad.jvp(energy, (u,), (newton,))
    each = fad.vmap(fad.grad(energy))(fnp.stack([u, 2 * u]))
    rows, columns = each.shape
    print(f"{value.item():.3f} {float(norm):.3f} {rows}x{columns} {float(slope):.3f}")
    return evaluate(layers, x, y).item().real, losses


if __name__ == "__main__":
    main()
