"""Programs as their users write them, in eager fad: what the first minute of a process is made of.

Each function prepares a program and returns one call of it: a gradient, or a step of training. The call
returns arrays of NumPy: it ends when its result is there. `benchmarks.torch_programs` has some of
them in PyTorch, name by name. PyTorch is not imported here: fresh processes import this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp

__all__ = [
    "ATTENTION",
    "BATCH",
    "PROGRAMS",
    "adaptive",
    "attention",
    "gan",
    "gan_inputs",
    "kalman",
    "kalman_inputs",
    "pinn",
    "tokens",
]

STEPS = 40  # of the filter
BATCH = 16  # samples in a step of the GAN
RATE, MOMENTUM = 0.05, 0.9
TOLERANCE, END = 1e-3, 6.0  # of the solver
START, DAMPING = (1.5, 0.0), (1.0, 0.3)


def host(tree: Any) -> Any:
    """The arrays of a result, as NumPy's."""
    return jax.tree.map(np.asarray, tree)


def kalman_inputs() -> tuple[np.ndarray, ...]:
    """A transition of two positions and two velocities, log variances, and what was observed."""
    draw = np.random.default_rng(5)
    transition = np.eye(4) + 0.1 * np.eye(4, k=2)
    observed = np.cumsum(draw.normal(size=(STEPS, 2)), axis=0)
    return tuple(np.asarray(x, np.float32) for x in (transition, [-2.0, -1.0], observed))


def kalman() -> Callable[[], Any]:
    """The gradient of a filter's log likelihood with respect to transition and noise."""
    transition, noise, observed = map(jnp.asarray, kalman_inputs())
    observe = jnp.eye(2, 4)

    def negative_log_likelihood(transition: Any, noise: Any) -> Any:
        mean, covariance = fnp.zeros(4), fnp.eye(4)
        process, sensor = fnp.exp(noise[0]) * fnp.eye(4), fnp.exp(noise[1]) * fnp.eye(2)
        total = 0.0
        for y in observed:
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + process
            residual = y - observe @ mean
            spread = observe @ covariance @ observe.T + sensor
            gain = fnp.linalg.solve(spread, observe @ covariance).T
            scaled = fnp.linalg.solve(spread, residual)
            total = total + 0.5 * (residual @ scaled + fnp.linalg.slogdet(spread)[1])
            mean = mean + gain @ residual
            covariance = covariance - gain @ observe @ covariance
        return total

    gradient = fad.grad(negative_log_likelihood, argnums=(0, 1))
    return lambda: host(gradient(transition, noise))


def pinn() -> Callable[[], Any]:
    """A step for a net that is to solve u_t + u u_x + u_xxx = 0, with derivatives by nested grad."""
    draw = np.random.default_rng(6)
    shapes = [(16, 2), (16,), (16, 16), (16,), (16,)]
    params = [jnp.asarray(draw.normal(size=s) / np.sqrt(s[-1]), jnp.float32) for s in shapes]
    xs = jnp.linspace(-1.0, 1.0, 32)
    ts = jnp.linspace(0.0, 1.0, 32)

    def u(x: Any, t: Any, params: Any) -> Any:
        w1, b1, w2, b2, w3 = params
        hidden = fnp.tanh(w1 @ fnp.stack([x, t]) + b1)
        return w3 @ fnp.tanh(w2 @ hidden + b2)

    u_x = fad.grad(u)
    u_t = fad.grad(u, argnums=1)
    u_xxx = fad.grad(fad.grad(u_x))

    def residual(x: Any, t: Any, params: Any) -> Any:
        slope = u_x(x, t, params)
        return u_t(x, t, params) + u(x, t, params) * slope + u_xxx(x, t, params)

    def loss(params: Any) -> Any:
        return fnp.mean(fad.vmap(residual, (0, 0, None))(xs, ts, params) ** 2)

    step = fad.value_and_grad(loss)

    def call() -> Any:
        nonlocal params
        value, gradient = step(params)
        params = [p - 1e-3 * g for p, g in zip(params, gradient, strict=True)]
        return host(value)

    return call


def gan_inputs() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights and biases of a generator and of a discriminator."""
    draw = np.random.default_rng(7)

    def net(*sizes: int) -> list[np.ndarray]:
        layers = []
        for a, b in itertools.pairwise(sizes):
            layers += [draw.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)]
        return [x.astype(np.float32) for x in layers]

    return net(4, 16, 16, 2), net(2, 16, 16, 1)


def gan() -> Callable[[], Any]:
    """A step of a GAN: both nets have an optimizer with momentum; each step draws other samples."""
    generator, discriminator = (
        [fad.tensor(x, requires_grad=True) for x in net] for net in gan_inputs()
    )
    velocities = {id(p): fnp.zeros(p.shape) for p in [*generator, *discriminator]}
    draw = np.random.default_rng(8)

    def apply(net: Any, x: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = net
        return fnp.tanh(fnp.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    def softplus(x: Any) -> Any:
        return fnp.maximum(x, 0.0) + fnp.log1p(fnp.exp(-fnp.abs(x)))

    def update(net: Any) -> None:
        with fad.no_grad():
            for p in net:
                velocities[id(p)] = MOMENTUM * velocities[id(p)] + p.grad
                p -= RATE * velocities[id(p)]

    def clear() -> None:
        for p in [*generator, *discriminator]:
            p.grad = None

    def call() -> Any:
        real = fad.tensor(draw.normal(size=(BATCH, 2)).astype(np.float32) + 2.0)
        noise = fad.tensor(draw.normal(size=(BATCH, 4)).astype(np.float32))
        clear()
        fake = apply(generator, noise)
        told_apart = fnp.mean(softplus(-apply(discriminator, real))) + fnp.mean(
            softplus(apply(discriminator, fake.detach()))
        )
        told_apart.backward()
        update(discriminator)
        clear()
        fooled = fnp.mean(softplus(-apply(discriminator, fake)))
        fooled.backward()
        update(generator)
        return np.asarray([told_apart.item(), fooled.item()])

    return call


def adaptive() -> Callable[[], Any]:
    """The gradient through a solver (Heun's method and Euler's in it) that chooses its steps."""
    start, parameters = jnp.asarray(START), jnp.asarray(DAMPING)

    def slope(y: Any, p: Any) -> Any:
        return fnp.stack([y[1], -p[0] * fnp.sin(y[0]) - p[1] * y[1]])

    def energy_at_the_end(p: Any) -> Any:
        y, t, dt = start, 0.0, 0.1
        while t < END:
            dt = min(dt, END - t)
            k1 = slope(y, p)
            k2 = slope(y + dt * k1, p)
            error = fnp.max(fnp.abs(0.5 * dt * (k2 - k1))).item()
            if error <= TOLERANCE:
                t, y = t + dt, y + 0.5 * dt * (k1 + k2)
            dt = dt * min(2.0, max(0.3, 0.9 * (TOLERANCE / (error + 1e-12)) ** 0.5))
        return fnp.sum(y * y)

    gradient = fad.grad(energy_at_the_end)
    return lambda: host(gradient(parameters))


PROGRAMS: Mapping[str, Callable[[], Callable[[], Any]]] = {
    "Kalman filter, 40 steps": kalman,
    "third derivatives under vmap": pinn,
    "GAN, two optimizers": gan,
    "adaptive solver": adaptive,
}

WIDTH = 16


def tokens(length: int) -> np.ndarray:
    """So many tokens."""
    return np.random.default_rng(length).normal(size=(length, WIDTH)).astype(np.float32)


_draw = np.random.default_rng(9)
ATTENTION = [(_draw.normal(size=(WIDTH, WIDTH)) / 4.0).astype(np.float32) for _ in range(4)]


def attention(xp: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """Attention with one head, and the mean square of what comes out."""
    scores = (x @ wq) @ (x @ wk).T / WIDTH**0.5
    weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    y = x + (weights @ (x @ wv)) @ wo
    return xp.mean(y * y)
