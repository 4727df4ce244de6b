"""Programs of `benchmarks.programs`, as a user of PyTorch writes them: the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks import programs
from benchmarks.programs import BATCH, DAMPING, END, MOMENTUM, RATE, START, TOLERANCE

__all__ = ["PROGRAMS", "adaptive", "gan", "kalman", "maml", "runge_kutta"]


def kalman() -> Callable[[], Any]:
    """The gradient of a filter's log likelihood with respect to transition and noise."""
    transition, noise, observed = map(torch.from_numpy, programs.kalman_inputs())
    observe = torch.eye(2, 4)

    def negative_log_likelihood(transition: Any, noise: Any) -> Any:
        mean, covariance = torch.zeros(4), torch.eye(4)
        process, sensor = torch.exp(noise[0]) * torch.eye(4), torch.exp(noise[1]) * torch.eye(2)
        total = 0.0
        for y in observed:
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + process
            residual = y - observe @ mean
            spread = observe @ covariance @ observe.T + sensor
            gain = torch.linalg.solve(spread, observe @ covariance).T
            scaled = torch.linalg.solve(spread, residual)
            total = total + 0.5 * (residual @ scaled + torch.linalg.slogdet(spread)[1])
            mean = mean + gain @ residual
            covariance = covariance - gain @ observe @ covariance
        return total

    gradient = torch.func.grad(negative_log_likelihood, argnums=(0, 1))
    return lambda: tuple(x.numpy() for x in gradient(transition, noise))


def gan() -> Callable[[], Any]:
    """A step of a GAN: both nets have an optimizer with momentum; each step draws other samples."""
    generator, discriminator = (
        [torch.tensor(x, requires_grad=True) for x in net] for net in programs.gan_inputs()
    )
    velocities = {id(p): torch.zeros(p.shape) for p in [*generator, *discriminator]}
    draw = np.random.default_rng(8)

    def apply(net: Any, x: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = net
        return torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    def softplus(x: Any) -> Any:
        return torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-torch.abs(x)))

    def update(net: Any) -> None:
        with torch.no_grad():
            for p in net:
                velocities[id(p)] = MOMENTUM * velocities[id(p)] + p.grad
                p -= RATE * velocities[id(p)]

    def clear() -> None:
        for p in [*generator, *discriminator]:
            p.grad = None

    def call() -> Any:
        real = torch.from_numpy(draw.normal(size=(BATCH, 2)).astype(np.float32) + 2.0)
        noise = torch.from_numpy(draw.normal(size=(BATCH, 4)).astype(np.float32))
        clear()
        fake = apply(generator, noise)
        told_apart = torch.mean(softplus(-apply(discriminator, real))) + torch.mean(
            softplus(apply(discriminator, fake.detach()))
        )
        told_apart.backward()
        update(discriminator)
        clear()
        fooled = torch.mean(softplus(-apply(discriminator, fake)))
        fooled.backward()
        update(generator)
        return np.asarray([told_apart.item(), fooled.item()])

    return call


def adaptive() -> Callable[[], Any]:
    """The gradient through a solver (Heun's method and Euler's in it) that chooses its steps."""
    start, parameters = torch.tensor(START), torch.tensor(DAMPING)

    def slope(y: Any, p: Any) -> Any:
        return torch.stack([y[1], -p[0] * torch.sin(y[0]) - p[1] * y[1]])

    def energy_at_the_end(p: Any) -> Any:
        y, t, dt = start, 0.0, 0.1
        while t < END:
            dt = min(dt, END - t)
            k1 = slope(y, p)
            k2 = slope(y + dt * k1, p)
            error = torch.max(torch.abs(0.5 * dt * (k2 - k1))).item()
            if error <= TOLERANCE:
                t, y = t + dt, y + 0.5 * dt * (k1 + k2)
            dt = dt * min(2.0, max(0.3, 0.9 * (TOLERANCE / (error + 1e-12)) ** 0.5))
        return torch.sum(y * y)

    gradient = torch.func.grad(energy_at_the_end)
    return lambda: gradient(parameters).numpy()


def runge_kutta() -> Callable[[], Any]:
    """The gradient of a neural differential equation on the tape, through all steps of the solver."""
    arrays, *others = programs.runge_kutta_inputs()
    net = [torch.tensor(x, requires_grad=True) for x in arrays]
    start, observed = map(torch.from_numpy, others)

    def call() -> Any:
        for w in net:
            w.grad = None
        programs.runge_kutta_loss(torch, net, start, observed).backward()
        return [w.grad.numpy() for w in net]

    return call


def maml() -> Callable[[], Any]:
    """A step of meta-learning: a gradient in a gradient, under `vmap` over tasks."""

    def value_and_grad(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: reversed(torch.func.grad_and_value(f)(*args))

    return programs.maml_steps(torch, torch.func, value_and_grad, torch.from_numpy)


PROGRAMS: Mapping[str, Callable[[], Callable[[], Any]]] = {
    "Kalman filter, 40 steps": kalman,
    "GAN, two optimizers": gan,
    "adaptive solver": adaptive,
    "Runge-Kutta, neural ODE": runge_kutta,
    "MAML, sines": maml,
}
