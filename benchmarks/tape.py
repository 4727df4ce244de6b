"""The tape next to torch.autograd: `.backward()`, and custom Functions on tracked values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

import fad
import fad.numpy as fnp
from benchmarks.libraries import Library
from benchmarks.scenarios import CHAIN, SMALL_NET, Scenario, Workload

__all__ = ["SCENARIOS", "backward", "leaves"]

BOUND = {"torch": 1.5}
# Of what replay leaves to single nodes: graphs that are kept, and steps that call Functions.
BY_NODES = {"torch": 4.0}


def leaves(library: Library, workload: Workload) -> list[Any]:
    """The inputs as Tensors of the library that require grad."""
    if library.name == "fad":
        return [fad.tensor(x, requires_grad=True) for x in workload.inputs]
    return [torch.tensor(x, requires_grad=True) for x in workload.inputs]


def array(library: Library, x: Any) -> Any:
    return x.array if library.name == "fad" else x.detach()


def backward(workload: Workload, by_nodes: Mapping[str, float] = BY_NODES) -> Iterator[Scenario]:
    """Forward and backward in one, as in a training step, and a backward pass of a kept graph alone."""

    def step(library: Library) -> Callable[[], Any]:
        inputs = leaves(library, workload)

        def call() -> Any:
            for x in inputs:
                x.grad = None
            workload.function(library.numpy, *inputs).backward()
            return tuple(array(library, x.grad) for x in inputs)

        return call

    def alone(library: Library) -> Callable[[], Any]:
        inputs = leaves(library, workload)
        loss = workload.function(library.numpy, *inputs)

        def call() -> Any:
            for x in inputs:
                x.grad = None
            loss.backward(retain_graph=True)
            return tuple(array(library, x.grad) for x in inputs)

        return call

    yield Scenario(workload.name, "tape: forward, .backward()", step, ("fad", "torch"), BOUND)
    yield Scenario(workload.name, "tape: .backward() alone", alone, ("fad", "torch"), by_nodes)


class MulExp(fad.Function):
    """x exp(y), with a rule."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * fnp.exp(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        _, y, out = ctx.saved_tensors
        return g * fnp.exp(y), g * out


class TorchMulExp(torch.autograd.Function):
    """The same in PyTorch."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * torch.exp(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        _, y, out = ctx.saved_tensors
        return g * torch.exp(y), g * out


FUNCTIONS = {"fad": MulExp, "torch": TorchMulExp}
PAIR = Workload(
    "custom Function, 2 inputs of 16",
    lambda xp, x, y: xp.sum(x * xp.exp(y)),
    (SMALL_NET.inputs[0], SMALL_NET.inputs[0] / 2.0),
)


def apply(library: Library) -> Callable[[], Any]:
    """What is returned is read: a result that nobody reads has not been computed."""
    function, inputs = FUNCTIONS[library.name], leaves(library, PAIR)
    return lambda: np.asarray(array(library, function.apply(*inputs)))


def through(library: Library) -> Callable[[], Any]:
    function, inputs = FUNCTIONS[library.name], leaves(library, PAIR)

    def call() -> Any:
        for x in inputs:
            x.grad = None
        library.numpy.sum(function.apply(*inputs)).backward()
        return tuple(array(library, x.grad) for x in inputs)

    return call


class Squash(fad.Function):
    """tanh, scale and shift, with a rule that may be compiled."""

    is_traceable = True

    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.tanh(x) * 1.1 + 0.1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        t = (ctx.saved_tensors[0] - 0.1) / 1.1
        return g * (1.0 - t * t) * 1.1


class TorchSquash(torch.autograd.Function):
    """The same in PyTorch."""

    @staticmethod
    def forward(x: Any) -> Any:
        return torch.tanh(x) * 1.1 + 0.1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        t = (ctx.saved_tensors[0] - 0.1) / 1.1
        return g * (1.0 - t * t) * 1.1


def layers(library: Library) -> Callable[[], Any]:
    """A step of the small net, its layers' nonlinearity a Function."""
    squash = {"fad": Squash, "torch": TorchSquash}[library.name].apply
    inputs = leaves(library, SMALL_NET)

    def call() -> Any:
        for x in inputs:
            x.grad = None
        x = inputs[0]
        for weight in inputs[1:]:
            x = squash(library.numpy.matmul(weight, x))
        library.numpy.sum(x).backward()
        return tuple(array(library, x.grad) for x in inputs)

    return call


SCENARIOS: list[Scenario] = [
    *backward(SMALL_NET),
    *backward(CHAIN),
    Scenario(PAIR.name, "apply, tracked, and read", apply, ("fad", "torch"), BOUND),
    Scenario(PAIR.name, "apply, sum, .backward()", through, ("fad", "torch"), BOUND),
    Scenario(SMALL_NET.name, "tape: 6 Functions, .backward()", layers, ("fad", "torch"), BY_NODES),
]
