"""Programs as their users write them, in eager fad: what the first minute of a process is made of.

Each function takes a module, fad or, where the program is the same one there, jax. It prepares a program and
returns one call of it: a gradient, or a step of training. The call returns arrays of NumPy: it ends when
its result is there. `benchmarks.torch_programs` has some of them in PyTorch, name by name. Neither PyTorch
nor fad is imported here: fresh processes import this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
    "maml",
    "maml_steps",
    "pinn",
    "runge_kutta",
    "runge_kutta_inputs",
    "runge_kutta_loss",
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


def kalman(library: Any) -> Callable[[], Any]:
    """The gradient of a filter's log likelihood with respect to transition and noise."""
    xp = library.numpy
    transition, noise, observed = map(jnp.asarray, kalman_inputs())
    observe = jnp.eye(2, 4)

    def negative_log_likelihood(transition: Any, noise: Any) -> Any:
        mean, covariance = xp.zeros(4), xp.eye(4)
        process, sensor = xp.exp(noise[0]) * xp.eye(4), xp.exp(noise[1]) * xp.eye(2)
        total = 0.0
        for y in observed:
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + process
            residual = y - observe @ mean
            spread = observe @ covariance @ observe.T + sensor
            gain = xp.linalg.solve(spread, observe @ covariance).T
            scaled = xp.linalg.solve(spread, residual)
            total = total + 0.5 * (residual @ scaled + xp.linalg.slogdet(spread)[1])
            mean = mean + gain @ residual
            covariance = covariance - gain @ observe @ covariance
        return total

    gradient = library.grad(negative_log_likelihood, argnums=(0, 1))
    return lambda: host(gradient(transition, noise))


def pinn(library: Any) -> Callable[[], Any]:
    """A step for a net that is to solve u_t + u u_x + u_xxx = 0, with derivatives by nested grad."""
    xp, grad = library.numpy, library.grad
    draw = np.random.default_rng(6)
    shapes = [(16, 2), (16,), (16, 16), (16,), (16,)]
    params = [jnp.asarray(draw.normal(size=s) / np.sqrt(s[-1]), jnp.float32) for s in shapes]
    xs = jnp.linspace(-1.0, 1.0, 32)
    ts = jnp.linspace(0.0, 1.0, 32)

    def u(x: Any, t: Any, params: Any) -> Any:
        w1, b1, w2, b2, w3 = params
        hidden = xp.tanh(w1 @ xp.stack([x, t]) + b1)
        return w3 @ xp.tanh(w2 @ hidden + b2)

    u_x = grad(u)
    u_t = grad(u, argnums=1)
    u_xxx = grad(grad(u_x))

    def residual(x: Any, t: Any, params: Any) -> Any:
        slope = u_x(x, t, params)
        return u_t(x, t, params) + u(x, t, params) * slope + u_xxx(x, t, params)

    def loss(params: Any) -> Any:
        return xp.mean(library.vmap(residual, (0, 0, None))(xs, ts, params) ** 2)

    step = library.value_and_grad(loss)

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


def gan(library: Any) -> Callable[[], Any]:
    """A step of a GAN: both nets have an optimizer with momentum; each step draws other samples."""
    xp = library.numpy
    generator, discriminator = (
        [library.tensor(x, requires_grad=True) for x in net] for net in gan_inputs()
    )
    velocities = {id(p): xp.zeros(p.shape) for p in [*generator, *discriminator]}
    draw = np.random.default_rng(8)

    def apply(net: Any, x: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = net
        return xp.tanh(xp.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    def softplus(x: Any) -> Any:
        return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))

    def update(net: Any) -> None:
        with library.no_grad():
            for p in net:
                velocities[id(p)] = MOMENTUM * velocities[id(p)] + p.grad
                p -= RATE * velocities[id(p)]

    def clear() -> None:
        for p in [*generator, *discriminator]:
            p.grad = None

    def call() -> Any:
        real = library.tensor(draw.normal(size=(BATCH, 2)).astype(np.float32) + 2.0)
        noise = library.tensor(draw.normal(size=(BATCH, 4)).astype(np.float32))
        clear()
        fake = apply(generator, noise)
        told_apart = xp.mean(softplus(-apply(discriminator, real))) + xp.mean(
            softplus(apply(discriminator, fake.detach()))
        )
        told_apart.backward()
        update(discriminator)
        clear()
        fooled = xp.mean(softplus(-apply(discriminator, fake)))
        fooled.backward()
        update(generator)
        return np.asarray([told_apart.item(), fooled.item()])

    return call


def adaptive(library: Any) -> Callable[[], Any]:
    """The gradient through a solver (Heun's method and Euler's in it) that chooses its steps."""
    xp = library.numpy
    start, parameters = jnp.asarray(START), jnp.asarray(DAMPING)

    def slope(y: Any, p: Any) -> Any:
        return xp.stack([y[1], -p[0] * xp.sin(y[0]) - p[1] * y[1]])

    def energy_at_the_end(p: Any) -> Any:
        y, t, dt = start, 0.0, 0.1
        while t < END:
            dt = min(dt, END - t)
            k1 = slope(y, p)
            k2 = slope(y + dt * k1, p)
            error = xp.max(xp.abs(0.5 * dt * (k2 - k1))).item()
            if error <= TOLERANCE:
                t, y = t + dt, y + 0.5 * dt * (k1 + k2)
            dt = dt * min(2.0, max(0.3, 0.9 * (TOLERANCE / (error + 1e-12)) ** 0.5))
        return xp.sum(y * y)

    gradient = library.grad(energy_at_the_end)
    return lambda: host(gradient(parameters))


# The pair of Dormand and Prince (1980): weights of the stages, of the error, of the middle of a step.
STAGES: Sequence[Sequence[float]] = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
MIDDLE = (
    0.10013431883002395,
    0.0,
    0.3918321794184259,
    -0.02982460176594817,
    0.05893268337240795,
    -0.04497888809104361,
    0.023904308236133973,
)
RELATIVE, ABSOLUTE = 1e-5, 1e-6  # tolerances
TIMES = tuple(0.4 * k for k in range(11))  # of the trajectory, 21 steps of the solver


def combined(weights: Sequence[float], slopes: Sequence[Any]) -> Any:
    return sum(weight * k for weight, k in zip(weights, slopes, strict=True) if weight)


def dopri5(xp: Any, f: Callable[[Any], Any], y: Any, times: Sequence[float]) -> Any:
    """The solution of y' = f(y) at some times; steps are as long as the error of each allows."""
    solution, t, dt = [y], times[0], 0.1
    slope = f(y)
    for time in times[1:]:
        while t < time:
            slopes, new = [slope], y
            for weights in STAGES:
                new = y + dt * combined(weights, slopes)
                slopes.append(f(new))
            scale = ABSOLUTE + RELATIVE * xp.maximum(xp.abs(y), xp.abs(new))
            error = dt * combined(ERROR, slopes)
            ratio = xp.sqrt(xp.mean((error / scale) ** 2)).item()
            if ratio <= 1.0:
                middle = y + dt * combined(MIDDLE, slopes)
                step = t, dt, quartic(y, new, middle, dt * slope, dt * slopes[-1])
                t, y, slope = t + dt, new, slopes[-1]
            dt = dt * min(10.0, max(0.2, 0.9 * (ratio + 1e-10) ** -0.2))
        start, length, (a, b, c, d, e) = step
        x = (time - start) / length
        solution.append((((a * x + b) * x + c) * x + d) * x + e)
    return xp.stack(solution)


def quartic(y0: Any, y1: Any, middle: Any, d0: Any, d1: Any) -> tuple[Any, ...]:
    """The polynomial with these values at 0, 1 and 1/2, and these slopes at 0 and 1."""
    a = 2.0 * (d1 - d0) - 8.0 * (y1 + y0) + 16.0 * middle
    b = 5.0 * d0 - 3.0 * d1 + 18.0 * y0 + 14.0 * y1 - 32.0 * middle
    c = d1 - 4.0 * d0 - 11.0 * y0 - 5.0 * y1 + 16.0 * middle
    return a, b, c, d0, y0


def runge_kutta_inputs() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Weights and biases of a net, points to start from, and a spiral from each of them."""
    draw = np.random.default_rng(10)
    shapes = [(2, 32), (32,), (32, 2), (2,)]
    net = [draw.normal(size=shape) / shape[0] ** 0.5 for shape in shapes]
    start = draw.normal(size=(8, 2))
    turned = start @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    spiral = [np.exp(-0.1 * t) * (np.cos(t) * start + np.sin(t) * turned) for t in TIMES]
    return [np.float32(x) for x in net], np.float32(start), np.float32(spiral)


def runge_kutta_loss(xp: Any, net: Sequence[Any], start: Any, observed: Any) -> Any:
    """How far the trajectories of a neural differential equation are from what was observed."""
    w1, b1, w2, b2 = net
    predicted = dopri5(xp, lambda y: xp.tanh(y**3 @ w1 + b1) @ w2 + b2, start, TIMES)
    return xp.mean((predicted - observed) ** 2)


def runge_kutta(library: Any) -> Callable[[], Any]:
    """The gradient of a neural differential equation on the tape, through all steps of the solver."""
    net, start, observed = jax.tree.map(jnp.asarray, runge_kutta_inputs())
    if library is jax:  # which has no tape
        gradient = jax.grad(lambda net: runge_kutta_loss(jnp, net, start, observed))
        return lambda: host(gradient(net))
    net = [library.tensor(x, requires_grad=True) for x in net]

    def call() -> Any:
        for w in net:
            w.grad = None
        runge_kutta_loss(library.numpy, net, start, observed).backward()
        return [np.asarray(w.grad.array) for w in net]

    return call


TASKS, SHOTS = 16, 10  # in a step
INNER, OUTER = 0.01, 1e-3  # rates
DECAYS = (0.9, 0.999)  # of Adam's moments


def maml_steps(
    xp: Any, functions: Any, value_and_grad: Any, asarray: Callable[[np.ndarray], Any]
) -> Callable[[], Any]:
    """A step of Adam for a net that is to fit a sine after one step of descent on some of its points.

    Written for the names that `fad.numpy`, `jax.numpy` and `torch` share, and `grad` and `vmap`.
    """
    draw = np.random.default_rng(11)
    shapes = [(1, 40), (40,), (40, 40), (40,), (40, 1), (1,)]
    params = [asarray((draw.normal(size=s) / s[0] ** 0.5).astype(np.float32)) for s in shapes]
    moments = [(xp.zeros_like(p), xp.zeros_like(p)) for p in params]
    count = 0

    def loss(params: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params
        hidden = xp.tanh(xp.tanh(x @ w1 + b1) @ w2 + b2)
        return xp.mean((hidden @ w3 + b3 - y) ** 2)

    def after_a_step(params: Any, x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
        gradient = functions.grad(loss)(params, x1, y1)
        return loss([p - INNER * g for p, g in zip(params, gradient, strict=True)], x2, y2)

    def over_tasks(params: Any, *points: Any) -> Any:
        return xp.mean(functions.vmap(after_a_step, (None, 0, 0, 0, 0))(params, *points))

    def call() -> Any:
        nonlocal params, moments, count
        high = draw.uniform(0.1, 5.0, (TASKS, 1, 1))
        phase = draw.uniform(0.0, np.pi, (TASKS, 1, 1))
        xs = draw.uniform(-5.0, 5.0, (2, TASKS, SHOTS, 1))
        points = [asarray(p.astype(np.float32)) for x in xs for p in (x, high * np.sin(x + phase))]
        value, gradient = value_and_grad(over_tasks)(params, *points)
        count += 1
        (a, b), updated, averages = DECAYS, [], []
        for p, g, (m, v) in zip(params, gradient, moments, strict=True):
            m, v = a * m + (1.0 - a) * g, b * v + (1.0 - b) * g * g
            step = (m / (1.0 - a**count)) / (xp.sqrt(v / (1.0 - b**count)) + 1e-8)
            updated.append(p - OUTER * step)
            averages.append((m, v))
        params, moments = updated, averages
        return np.asarray(value)

    return call


def maml(library: Any) -> Callable[[], Any]:
    """A step of meta-learning: a gradient in a gradient, under `vmap` over tasks."""
    return maml_steps(library.numpy, library, library.value_and_grad, jnp.asarray)


PROGRAMS: Mapping[str, Callable[[Any], Callable[[], Any]]] = {
    "Kalman filter, 40 steps": kalman,
    "third derivatives under vmap": pinn,
    "GAN, two optimizers": gan,
    "adaptive solver": adaptive,
    "Runge-Kutta, neural ODE": runge_kutta,
    "MAML, sines": maml,
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
