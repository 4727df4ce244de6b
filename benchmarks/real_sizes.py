"""Steps of training at the sizes of networks: an MLP, a CNN, a transformer block, batch norms, an LSTM."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

import fad
from benchmarks.libraries import Library
from benchmarks.models import block, transformer_block
from benchmarks.scenarios import Scenario
from benchmarks.traced import jit

__all__ = ["NETS", "SCENARIOS", "Net", "steps"]

RATE = 0.01
BATCH = 128
CLASSES = 10

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Functions:
    """What layers are made of, under the names of each library."""

    relu: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    log_softmax: Callable[[Any], Any]
    convolve: Callable[[Any, Any], Any]  # of images (n, channels, height, width), padded with zeros


FUNCTIONS = {
    "fad": Functions(
        fad.nn.relu,
        fad.nn.sigmoid,
        fad.nn.log_softmax,
        lambda x, w: fad.lax.conv(x, w, (1, 1), "SAME"),
    ),
    "jax": Functions(
        jax.nn.relu,
        jax.nn.sigmoid,
        jax.nn.log_softmax,
        lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
    ),
    "torch": Functions(
        torch.relu,
        torch.sigmoid,
        lambda x: torch.log_softmax(x, -1),
        lambda x, w: torch.nn.functional.conv2d(x, w, padding="same"),
    ),
}


@dataclass(frozen=True)
class Net:
    """``loss(library, parameters, *data)``, with parameters and data.

    ``bound``: the largest ratio of an eager step to the compiled step of JAX that the project accepts.
    """

    name: str
    loss: Callable[..., Any]
    parameters: Arrays
    data: Arrays
    bound: float = 1.25


def cross_entropy(library: Library, logits: Any, targets: Any) -> Any:
    xp, of = library.numpy, FUNCTIONS[library.name]
    return -xp.mean(xp.sum(of.log_softmax(logits) * targets, axis=-1))


def mlp(library: Library, parameters: Any, x: Any, targets: Any) -> Any:
    """Layers with a bias, and relu between them."""
    xp, of = library.numpy, FUNCTIONS[library.name]
    *hidden, last = zip(parameters[::2], parameters[1::2])
    for weight, bias in hidden:
        x = of.relu(xp.matmul(x, weight) + bias)
    return cross_entropy(library, xp.matmul(x, last[0]) + last[1], targets)


def pooled(xp: Any, x: Any) -> Any:
    """The maxima of squares of 2 by 2."""
    n, channels, height, width = x.shape
    parts = xp.reshape(x, (n, channels, height // 2, 2, width // 2, 2))
    return xp.amax(parts, axis=(3, 5))


def cnn(library: Library, parameters: Any, x: Any, targets: Any) -> Any:
    """Two convolutions with relu and pooling, and a layer."""
    xp, of = library.numpy, FUNCTIONS[library.name]
    *kernels, weight = parameters
    for kernel in kernels:
        x = pooled(xp, of.relu(of.convolve(x, kernel)))
    return cross_entropy(library, xp.matmul(xp.reshape(x, (x.shape[0], -1)), weight), targets)


def batch_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=0)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=0) + 1e-5) * scale + shift


def normalized(library: Library, parameters: Any, x: Any, targets: Any) -> Any:
    """Layers with a batch norm and relu behind each but the last."""
    xp, of = library.numpy, FUNCTIONS[library.name]
    *hidden, last = parameters
    for weight, scale, shift in zip(hidden[::3], hidden[1::3], hidden[2::3]):
        x = of.relu(batch_norm(xp, xp.matmul(x, weight), scale, shift))
    return cross_entropy(library, xp.matmul(x, last), targets)


def lstm(library: Library, parameters: Any, xs: Any, h: Any, targets: Any) -> Any:
    """An LSTM over the rows of ``xs`` in a Python loop, and a layer; ``h`` is where it begins."""
    xp, of = library.numpy, FUNCTIONS[library.name]
    of_input, of_state, bias, weight = parameters
    units, c = h.shape[-1], h
    for i in range(xs.shape[0]):
        gates = xp.matmul(xs[i], of_input) + xp.matmul(h, of_state) + bias
        entry, keep, new, out = (gates[:, k * units : (k + 1) * units] for k in range(4))
        c = of.sigmoid(keep) * c + of.sigmoid(entry) * xp.tanh(new)
        h = of.sigmoid(out) * xp.tanh(c)
    return cross_entropy(library, xp.matmul(h, weight), targets)


def transformer(library: Library, parameters: Any, x: Any, mask: Any) -> Any:
    return transformer_block(library.numpy, x, *parameters, mask)


_draw = np.random.default_rng(6)


def normal(*shape: int, fan_in: int = 1) -> np.ndarray:
    return np.asarray(_draw.normal(size=shape) / fan_in**0.5, np.float32)


def targets(count: int) -> np.ndarray:
    """One row for each example, 1 at its class."""
    return np.eye(CLASSES, dtype=np.float32)[_draw.integers(CLASSES, size=count)]


def layers(*widths: int) -> list[np.ndarray]:
    return [normal(m, n, fan_in=m) for m, n in itertools.pairwise(widths)]


def nets() -> Iterator[Net]:
    weights = layers(784, 512, 512, CLASSES)
    biased = tuple(x for w in weights for x in (w, np.zeros(w.shape[1], np.float32)))
    data = (normal(BATCH, 784), targets(BATCH))
    yield Net(f"MLP, 784-512-512-10, batch of {BATCH}", mlp, biased, data)

    kernels = (normal(16, 1, 3, 3, fan_in=9), normal(32, 16, 3, 3, fan_in=144))
    last = normal(32 * 7 * 7, CLASSES, fan_in=32 * 7 * 7)
    images = (normal(32, 1, 28, 28), targets(32))
    yield Net("CNN, 32 images, 2 convolutions", cnn, (*kernels, last), images, bound=1.4)

    _, *parameters, mask = block(64, 128)
    tokens = (normal(8, 64, 128), mask)
    yield Net("transformer block, 8 × 64 tokens of 128", transformer, tuple(parameters), tokens)

    first, second, last = layers(256, 512, 512, CLASSES)
    ones, zeros = np.ones(512, np.float32), np.zeros(512, np.float32)
    parameters = (first, ones, zeros, second, ones, zeros, last)
    data = (normal(BATCH, 256), targets(BATCH))
    yield Net(f"batch norm, 256-512-512-10, batch of {BATCH}", normalized, parameters, data)

    parameters = (
        normal(64, 4 * 128, fan_in=64),
        normal(128, 4 * 128, fan_in=128),
        np.zeros(4 * 128, np.float32),
        normal(128, CLASSES, fan_in=128),
    )
    data = (normal(16, BATCH, 64), np.zeros((BATCH, 128), np.float32), targets(BATCH))
    yield Net(f"LSTM, 16 steps, 128 units, batch of {BATCH}", lstm, parameters, data)


def forward(library: Library, net: Net) -> Callable[[], Any]:
    """The loss alone, operation by operation."""
    parameters, data = ([library.asarray(x) for x in xs] for xs in (net.parameters, net.data))
    return lambda: net.loss(library, parameters, *data)


def eager(library: Library, net: Net) -> Callable[[], Any]:
    """`.backward()`, and updates in place."""
    ours = library.name == "fad"
    no_grad = fad.no_grad if ours else torch.no_grad
    tensor: Callable[..., Any] = fad.tensor if ours else torch.clone
    parameters = [tensor(library.asarray(x)).requires_grad_() for x in net.parameters]
    data = [tensor(library.asarray(x)) for x in net.data]

    def step() -> Any:
        loss = net.loss(library, parameters, *data)
        loss.backward()
        with no_grad():
            for w in parameters:
                w.sub_(w.grad, alpha=RATE)
                w.grad = None
        return [x.array if ours else x.detach() for x in (loss, *parameters)]

    return step


def functional(library: Library, net: Net) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """A compiled function from parameters and data to the loss and new parameters; parameters and data."""
    parameters, data = (tuple(library.asarray(x) for x in xs) for xs in (net.parameters, net.data))
    count = tuple(range(len(parameters)))
    # `fad.grad` and `jax.grad` have twins that give the value too, with one signature.
    value_and_grad = {"fad": fad.value_and_grad, "jax": jax.value_and_grad}[library.name]

    @jit(library)
    def step(parameters: Any, *data: Any) -> Any:
        loss, gradients = value_and_grad(lambda *ws: net.loss(library, ws, *data), count)(
            *parameters
        )
        return loss, tuple(w - RATE * g for w, g in zip(parameters, gradients))

    return step, parameters, data


def compiled(library: Library, net: Net) -> Callable[[], Any]:
    """A call of it, which goes on from the parameters that it has."""
    step, parameters, data = functional(library, net)

    def call() -> Any:
        nonlocal parameters
        loss, parameters = step(parameters, *data)
        return [loss, *parameters]

    return call


def step_of_training(library: Library, net: Net) -> Callable[[], Any]:
    return compiled(library, net) if library.name == "jax" else eager(library, net)


WHATS = ("forward", "a step, eager; jit in JAX", "jit of a step")


def steps(net: Net) -> Iterator[Scenario]:
    """The loss, an eager step beside the compiled one of JAX, and both compiled."""
    name = net.name
    for what, make, libraries, bounds in (
        (WHATS[0], forward, ("fad", "torch", "jax"), {"jax": 1.25}),
        (WHATS[1], step_of_training, ("fad", "torch", "jax"), {"jax": net.bound}),
        (WHATS[2], compiled, ("fad", "jax"), {"jax": 1.03}),
    ):

        def build(library: Library, make: Any = make) -> Callable[[], Any]:
            return make(library, net)

        yield Scenario(name, what, build, libraries, bounds)


NETS = list(nets())
SCENARIOS: list[Scenario] = [row for net in NETS for row in steps(net)]
