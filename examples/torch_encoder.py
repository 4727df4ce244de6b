"""Training a network of PyTorch through a simulation in fad.

    python examples/torch_encoder.py
    python examples/torch_encoder.py --steps 300

A network of PyTorch reads a picture of a material (a row of 12 numbers) and says how fast waves are in each
part of it. A simulation in fad, which updates slices in place, sends a wave through. The loss compares what
arrives with what has been recorded, so its gradient goes back through the simulation into the parameters
of the network. The gradient is compared with a finite difference at the start.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import torch

import fad
import fad.numpy as fnp

PARTS, POINTS, TIMES = 4, 40, 60


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, PARTS), torch.nn.Sigmoid()
    )


def arriving(speeds):
    """The wave at the right end, at each time: PARTS materials, one behind the other."""
    squares = fnp.repeat(speeds**2, POINTS // PARTS)
    before, now = fnp.zeros(POINTS), fnp.zeros(POINTS)
    heard = []
    for time in range(TIMES):
        after = fnp.zeros(POINTS)
        after[1:-1] = 2 * now[1:-1] - before[1:-1]
        after[1:-1] += squares[1:-1] * (now[2:] - 2 * now[1:-1] + now[:-2])
        after[1] += fnp.exp(-((time - 8.0) ** 2) / 8)
        before, now = now, after
        heard.append(now[-2])
    return fnp.stack(heard)


def data(count: int = 8) -> tuple[jax.Array, jax.Array]:
    """Pictures of materials, and what arrives through each."""
    speeds = np.random.default_rng(1).uniform(0.6, 0.95, (count, PARTS)).astype("f4")
    mixing = np.random.default_rng(2).normal(size=(PARTS, 12)).astype("f4")
    return jnp.asarray(speeds @ mixing), fad.vmap(arriving)(jnp.asarray(speeds))


def train(steps: int) -> tuple[torch.nn.Module, list[float]]:
    """The trained network, and the loss of each step."""
    module = network()
    encode, parameters = fad.from_torch(module, parameters=True)
    pictures, recorded = data()

    @fad.jit
    def loss(parameters):
        speeds = 0.5 + 0.5 * encode(parameters, pictures)
        return fnp.mean((fad.vmap(arriving)(speeds) - recorded) ** 2)

    step = fad.jit(fad.value_and_grad(loss))
    check(loss, step, parameters)
    moments = jax.tree.map(lambda p: p * 0, parameters)
    values = []
    for _ in range(steps):
        value, gradient = step(parameters)
        values.append(float(value))
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
        parameters = jax.tree.map(lambda p, m: p - 0.1 * m, parameters, moments)
    trained = {k: torch.from_dlpack(p.detach()).clone() for k, p in parameters.items()}
    module.load_state_dict(trained)
    return module, values


def check(loss, step, parameters) -> None:
    """Compare the gradient with a finite difference along it."""
    gradient = step(parameters)[1]
    length = float(sum([fnp.sum(g * g) for g in gradient.values()])) ** 0.5
    size = 1e-2
    moved = [
        jax.tree.map(lambda p, g, s=s: p + s * g / length, parameters, gradient)
        for s in (-size, size)
    ]
    difference = (float(loss(moved[1])) - float(loss(moved[0]))) / (2 * size)
    np.testing.assert_allclose(difference, length, rtol=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    module, values = train(parser.parse_args().steps)
    count = sum(p.numel() for p in module.parameters())
    print(f"{count} parameters of PyTorch: loss {values[0]:.5f} -> {values[-1]:.5f}")


if __name__ == "__main__":
    main()
