"""The layers of `torch.nn` that tutorials use, in operations of fad, to be imported in its place.

fad has no modules: any object with Tensors is one. What programs for PyTorch call on a module is in `Module`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import fad
import fad.lax as lax
import fad.nn as nn
import fad.numpy as fnp

__all__ = [
    "Conv2d", "Linear", "Module", "Parameter", "Sequential", "Tanh", "conv2d", "cross_entropy", "linear",
    "log_softmax", "max_pool2d", "mse_loss", "nll_loss", "normalize", "relu", "sigmoid", "softmax",
    "softplus",
]  # fmt: skip

log_softmax, relu, sigmoid, softmax, softplus = (
    nn.log_softmax, nn.relu, nn.sigmoid, nn.softmax, nn.softplus,
)  # fmt: skip


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    out = x @ weight.T
    return out if bias is None else out + bias


def conv2d(x: Any, weight: Any, bias: Any) -> Any:
    return lax.conv(x, weight, (1, 1), "VALID") + bias[:, None, None]


def max_pool2d(x: Any, size: int) -> Any:
    *batch, height, width = x.shape
    return x.reshape(*batch, height // size, size, width // size, size).max((-3, -1))


def nll_loss(log_p: Any, target: Any) -> Any:
    return -fnp.take_along_axis(log_p, target[:, None], axis=1).mean()


def cross_entropy(scores: Any, target: Any) -> Any:
    return nll_loss(log_softmax(scores, axis=1), target)


def mse_loss(x: Any, target: Any) -> Any:
    return ((x - target) ** 2).mean()


def normalize(x: Any, dim: int) -> Any:
    return x / fnp.linalg.norm(x, axis=dim, keepdims=True)


def Parameter(x: Any) -> Any:
    return x.requires_grad_()


class Module:
    """Parameters are Tensors that require grad, among the attributes and those of inner modules."""

    forward: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def _named(self) -> Iterator[tuple[str, Any]]:
        for name, x in vars(self).items():
            if isinstance(x, fad.Tensor):
                yield name, x
        for name, x in vars(self).items():
            if isinstance(x, Module):
                yield from ((f"{name}.{inner}", t) for inner, t in x._named())

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        return ((name, x) for name, x in self._named() if x.requires_grad)

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        return ((name, x) for name, x in self._named() if not x.requires_grad)

    def parameters(self) -> Iterator[Any]:
        return (x for _, x in self.named_parameters())

    def zero_grad(self) -> None:
        for x in self.parameters():
            x.grad = None


class Linear(Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = Parameter(fad.zeros(outputs, inputs))
        self.bias = Parameter(fad.zeros(outputs))

    def forward(self, x: Any) -> Any:
        return linear(x, self.weight, self.bias)


class Conv2d(Module):
    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        self.weight = Parameter(fad.zeros(outputs, inputs, size, size))
        self.bias = Parameter(fad.zeros(outputs))

    def forward(self, x: Any) -> Any:
        return conv2d(x, self.weight, self.bias)


class Tanh(Module):
    def forward(self, x: Any) -> Any:
        return fnp.tanh(x)


class Sequential(Module):
    def __init__(self, *layers: Module) -> None:
        for k, layer in enumerate(layers):
            setattr(self, str(k), layer)

    def forward(self, x: Any) -> Any:
        for layer in vars(self).values():
            x = layer(x)
        return x
