"""Work of other shapes: a transformer block, and a recurrent net over 50 steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.scenarios import Scenario, Workload
from benchmarks.tape import backward
from benchmarks.transforms import BOUNDS, derivatives

__all__ = ["BLOCK", "RNN", "SCENARIOS", "block", "rnn", "transformer_block"]

HEADS = 4


def layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * scale + shift


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.amax(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def transformer_block(
    xp: Any, x: Any, norms: Any, qkv: Any, out: Any, up: Any, down: Any, mask: Any
) -> Any:
    """Attention with a causal mask and a feed-forward part, each after a layer norm; mean square.

    ``x``: tokens, or a batch of them, along the last two dimensions.
    """
    *batch, width = x.shape
    y = layer_norm(xp, x, norms[0], norms[1])
    q, k, v = (
        xp.swapaxes(xp.reshape(xp.matmul(y, qkv[i]), (*batch, HEADS, width // HEADS)), -3, -2)
        for i in range(3)
    )
    scores = xp.matmul(q, xp.swapaxes(k, -2, -1)) / (width // HEADS) ** 0.5 + mask
    mixed = xp.swapaxes(xp.matmul(softmax(xp, scores), v), -3, -2)
    x = x + xp.matmul(xp.reshape(mixed, (*batch, width)), out)
    y = layer_norm(xp, x, norms[2], norms[3])
    x = x + xp.matmul(gelu(xp, xp.matmul(y, up)), down)
    return xp.mean(x * x)


def block(tokens: int = 8, width: int = 32) -> tuple[np.ndarray, ...]:
    """The inputs of a block."""
    draw = np.random.default_rng(2)
    norms = np.ones((4, width))
    norms[1::2] = 0.0
    shapes = [(3, width, width), (width, width), (width, 4 * width), (4 * width, width)]
    return tuple(
        np.asarray(x, np.float32)
        for x in (
            draw.normal(size=(tokens, width)),
            norms,
            *[draw.normal(size=s) / np.sqrt(s[-2]) for s in shapes],
            np.triu(np.full((tokens, tokens), -1e9), 1),
        )
    )


def rnn(xp: Any, h: Any, w: Any, u: Any, xs: Any) -> Any:
    """A recurrent net over the rows of ``xs``."""
    loss = 0.0
    for i in range(xs.shape[0]):
        h = xp.tanh(xp.matmul(w, h) + xp.matmul(u, xs[i]))
        loss = loss + xp.sum(h * h)
    return loss


_draw = np.random.default_rng(3)
BLOCK = Workload("transformer block, 8 tokens of 32", transformer_block, block())
RNN = Workload(
    "recurrent net, 50 steps of 16",
    rnn,
    tuple(
        np.asarray(x, np.float32)
        for x in (
            _draw.normal(size=16),
            _draw.normal(size=(16, 16)) / 4.0,
            _draw.normal(size=(16, 8)) / 4.0,
            _draw.normal(size=(50, 8)),
        )
    ),
)
# It reads a row in each step, which nothing tracks: that is a call of XLA, as is the product with it.
RNN_BOUNDS = {
    **BOUNDS,
    "grad": {"torch": 1.0, "jax": 0.05},
    "vmap∘grad": {"torch": 0.8, "jax": 0.05},
}

SCENARIOS: list[Scenario] = [
    *derivatives(BLOCK, ("forward", "grad", "grad, all arguments", "vmap∘grad")),
    *backward(BLOCK, {"torch": 9.5}),
    *derivatives(RNN, ("forward", "grad", "grad, all arguments", "vmap∘grad"), RNN_BOUNDS),
    *backward(RNN),
]
