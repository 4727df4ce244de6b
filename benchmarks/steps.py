"""Steps of training as they are written, eagerly and under `fad.jit`, beside functional twins and PyTorch.

Run with ``python -m benchmarks.steps``: the CPU time of a settled call, the fastest of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import fad
import fad.numpy as fnp

__all__ = ["main"]

Step = Callable[[], Any]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers for weights and data."""
    return (0.1 * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def fastest(step: Step, rounds: int = 5, seconds: float = 0.05) -> float:
    """The CPU time of a call, in microseconds."""
    for _ in range(10):
        step()
    start = time.process_time()
    step()
    count = max(1, int(seconds / max(time.process_time() - start, 1e-6)))
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(count):
            out = step()
        jax.block_until_ready(out.array if isinstance(out, fad.Tensor) else out)
        best = min(best, (time.process_time() - start) / count)
    return best * 1e6


def momentum(size: int, rows: int) -> dict[str, Step]:
    """Three layers, SGD with momentum: one step of each kind."""
    arrays = [draw(size, size, seed=k) for k in range(3)]
    x, y = draw(rows, size, seed=5), draw(rows, size, seed=6)

    def written(lib: Any, tanh: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
        h = x
        for w in weights[:-1]:
            h = tanh(h @ w)
        loss = ((h @ weights[-1] - y) ** 2).mean()
        loss.backward()
        with lib.no_grad():
            for w, m in zip(weights, buffers):
                m.mul_(0.9).add_(w.grad)
                w.sub_(m * 0.05)
                w.grad = None
        return loss.detach()

    def of_fad() -> tuple[Any, ...]:
        weights = [fad.tensor(a, requires_grad=True) for a in arrays]
        return weights, [fad.zeros_like(w) for w in weights], fad.tensor(x), fad.tensor(y)

    state = of_fad()
    compiled_state = of_fad()
    call = fad.jit(lambda x, y: written(fad, fnp.tanh, compiled_state[0], compiled_state[1], x, y))
    torch_weights = [torch.tensor(a, requires_grad=True) for a in arrays]
    torch_state = (torch_weights, [torch.zeros_like(w) for w in torch_weights])
    tx, ty = torch.tensor(x), torch.tensor(y)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        h = x
        for w in weights[:-1]:
            h = jnp.tanh(h @ w)
        return ((h @ weights[-1] - y) ** 2).mean()

    def twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        buffers = [0.9 * m + g for m, g in zip(buffers, grads)]
        return value, [w - 0.05 * m for w, m in zip(weights, buffers)], buffers

    jitted = jax.jit(twin, donate_argnums=(0, 1))
    held = [[jnp.array(a) for a in arrays], [jnp.zeros_like(a) for a in arrays]]
    jx, jy = jnp.asarray(x), jnp.asarray(y)

    def functional() -> Any:
        value, held[0], held[1] = jitted(held[0], held[1], jx, jy)
        return value

    return {
        "fad.jit": lambda: call(compiled_state[2], compiled_state[3]),
        "jax.jit of the twin": functional,
        "fad, eager": lambda: written(fad, fnp.tanh, *state),
        "PyTorch, eager": lambda: written(torch, torch.tanh, *torch_state, tx, ty),
    }


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(
        "| SGD with momentum | fad.jit | jax.jit of the twin | ratio | fad, eager | PyTorch, eager |"
    )
    print("|---|---|---|---|---|---|")
    for size, rows in ((32, 32), (256, 128)):
        steps = momentum(size, rows)
        times = {name: fastest(step) for name, step in steps.items()}
        pairs = [
            (fastest(steps["fad.jit"]), fastest(steps["jax.jit of the twin"])) for _ in range(2)
        ]
        ours = min([times["fad.jit"], *[a for a, _ in pairs]])
        twin = min([times["jax.jit of the twin"], *[b for _, b in pairs]])
        cells = [ours, twin, times["fad, eager"], times["PyTorch, eager"]]
        texts = [f"{c:,.0f} µs" for c in cells]
        texts.insert(2, f"{ours / twin:.2f}")
        print(f"| 3 layers of {size}, {rows} rows | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
