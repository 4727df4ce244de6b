"""Steps of training and of simulation as they are written in PyTorch, under `fad.jit`.

Beside each are its functional twin under ``jax.jit``, which donates its state, and the step run eagerly by
PyTorch. `python -m benchmarks --only "step of"` measures them; ``--only "step of a GAN"`` one alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import fad
import fad.numpy as fnp
from benchmarks.hooks import looked_at, unchanged
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS", "STEPS", "Step"]

ALL = ("fad", "torch", "jax")
HOST, HISTORY = 3.0, 5.0  # what is accepted of the twin's time where a call is more than one of XLA
_draw = np.random.default_rng(0)


def drawn(*shape: int, scale: float = 0.1) -> np.ndarray:
    return np.asarray(scale * _draw.normal(size=shape), np.float32)


@dataclass(frozen=True)
class Step:
    """A step and its twin.

    ``written(lib, xp, parameters, buffers, *data)`` is for both ``fad`` and ``torch``, with ``xp`` their
    functions; ``twin(parameters, buffers, *data)`` returns a result, and both anew. Every parameter has the
    ``hook``. ``on_host``: hooks are called on the host, by ``fad.jit(hooks=True)``. ``jax_bound``,
    ``torch_bound``: the largest ratios of a settled call to the twin's, and to PyTorch's, that the project
    accepts.
    """

    name: str
    written: Callable[..., Any]
    twin: Callable[..., Any]
    parameters: list[np.ndarray]
    buffers: list[np.ndarray]
    data: list[np.ndarray]
    hook: Callable[[Any], Any] | None = None
    jax_bound: float = 2.0
    torch_bound: float = 0.5
    on_host: bool = False


def mlp(xp: Any, weights: Any, x: Any) -> Any:
    for w in weights[:-1]:
        x = xp.tanh(x @ w)
    return x @ weights[-1]


def momentum(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    loss = ((mlp(xp, weights, x) - y) ** 2).mean()
    loss.backward()
    with lib.no_grad():
        for w, m in zip(weights, buffers):
            m.mul_(0.9).add_(w.grad)
            w.sub_(m * 0.05)
            w.grad = None
    return loss.detach()


def momentum_twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    loss = lambda weights: ((mlp(jnp, weights, x) - y) ** 2).mean()
    value, grads = jax.value_and_grad(loss)(weights)
    buffers = [0.9 * m + g for m, g in zip(buffers, grads)]
    return value, [w - 0.05 * m for w, m in zip(weights, buffers)], buffers


def seen_on_host(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    h = mlp(xp, weights, x)
    h.register_hook(unchanged)
    loss = ((h - y) ** 2).mean()
    loss.backward()
    with lib.no_grad():
        for w in weights:
            w.sub_(w.grad * 0.05)
            w.grad = None
    return loss.detach()


def seen_on_host_twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    loss = lambda weights: ((looked_at(mlp(jnp, weights, x)) - y) ** 2).mean()
    value, grads = jax.value_and_grad(loss)(weights)
    return value, [w - 0.05 * g for w, g in zip(weights, grads)], buffers


def with_history(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    momentum(lib, xp, weights, buffers, x, y)
    return ((mlp(xp, weights, x) - y) ** 2).mean()  # a pass from here may come later


def with_history_twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    _, weights, buffers = momentum_twin(weights, buffers, x, y)
    result = jax.vjp(lambda weights: ((mlp(jnp, weights, x) - y) ** 2).mean(), weights)
    return result, weights, buffers


def clipped(g: Any) -> Any:
    return g.clip(-0.1, 0.1)


def adam(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    h = mlp(xp, weights, x)
    h.register_hook(lambda g: g * 0.5)
    loss = ((h - y) ** 2).mean()
    loss.backward()
    *moments, t = buffers
    with lib.no_grad():
        t.add_(1.0)
        for w, m, v in zip(weights, moments[::2], moments[1::2]):
            m.mul_(0.9).add_(w.grad * 0.1)
            v.mul_(0.999).add_(w.grad * w.grad * 0.001)
            w -= 0.01 * (m / (1 - 0.9**t)) / (xp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            w.grad = None
    return loss.detach()


def adam_twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    value, pull = jax.vjp(lambda weights: mlp(jnp, weights, x), weights)
    error = value - y
    (grads,) = pull(error / error.size)
    *moments, t = buffers
    t, new_weights, new = t + 1.0, [], []
    for w, m, v, g in zip(weights, moments[::2], moments[1::2], map(clipped, grads)):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        new_weights.append(w - 0.01 * step)
        new += [m, v]
    return (error**2).mean(), new_weights, [*new, t]


def softplus(xp: Any, x: Any) -> Any:
    return xp.log(1.0 + xp.exp(x))


def gan(lib: Any, xp: Any, weights: Any, buffers: Any, z: Any, real: Any) -> Any:
    g, d = weights[:3], weights[3:]
    fake = mlp(xp, g, z)
    loss_d = softplus(xp, -mlp(xp, d, real)).mean() + softplus(xp, mlp(xp, d, fake.detach())).mean()
    loss_d.backward()
    with lib.no_grad():
        for w in d:
            w -= 0.05 * w.grad
    for w in d:
        w.grad = None
    loss_g = softplus(xp, -mlp(xp, d, fake)).mean()
    loss_g.backward()
    with lib.no_grad():
        for w in g:
            w -= 0.05 * w.grad
    for w in weights:
        w.grad = None
    return loss_g.detach()


def gan_twin(weights: Any, buffers: Any, z: Any, real: Any) -> Any:
    g, d = weights[:3], weights[3:]
    fake = mlp(jnp, g, z)

    def loss_d(d: Any) -> Any:
        return softplus(jnp, -mlp(jnp, d, real)).mean() + softplus(jnp, mlp(jnp, d, fake)).mean()

    d = [w - 0.05 * s for w, s in zip(d, jax.grad(loss_d)(d))]
    loss_g = lambda g: softplus(jnp, -mlp(jnp, d, mlp(jnp, g, z))).mean()
    value, slopes = jax.value_and_grad(loss_g)(g)
    return value, [*[w - 0.05 * s for w, s in zip(g, slopes)], *d], buffers


def accumulation(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    (running,) = buffers
    total = 0.0
    for k in range(4):
        rows = slice(8 * k, 8 * k + 8)
        h = x[rows] @ weights[0]
        with lib.no_grad():
            running.mul_(0.9).add_(0.1 * h.mean(0))
        out = xp.tanh(xp.tanh(h - running) @ weights[1]) @ weights[2]
        loss = ((out - y[rows]) ** 2).mean() / 4
        loss.backward()
        total = total + loss.detach()
    with lib.no_grad():
        for w in weights:
            w.sub_(0.1 * w.grad)
            w.grad = None
    return total


def accumulation_twin(weights: Any, buffers: Any, x: Any, y: Any) -> Any:
    (running,), total, sums = buffers, 0.0, [jnp.zeros_like(w) for w in weights]
    for k in range(4):
        rows = slice(8 * k, 8 * k + 8)

        def loss(weights: Any, running: Any = running, rows: slice = rows) -> Any:
            h = x[rows] @ weights[0]
            running = 0.9 * running + 0.1 * jax.lax.stop_gradient(h).mean(0)
            out = jnp.tanh(jnp.tanh(h - running) @ weights[1]) @ weights[2]
            return ((out - y[rows]) ** 2).mean() / 4, running

        (value, running), grads = jax.value_and_grad(loss, has_aux=True)(weights)
        total, sums = total + value, [s + g for s, g in zip(sums, grads)]
    return total, [w - 0.1 * s for w, s in zip(weights, sums)], [running]


def gru(xp: Any, sigmoid: Any, weights: Any, x: Any) -> Any:
    n = x.shape[-1]
    h = x[0] * 0.0
    for t in range(x.shape[0]):
        i, r = x[t] @ weights[0], h @ weights[1]
        z, s = sigmoid(i[:, :n] + r[:, :n]), sigmoid(i[:, n : 2 * n] + r[:, n : 2 * n])
        h = (1 - z) * xp.tanh(i[:, 2 * n :] + s * r[:, 2 * n :]) + z * h
    return h


def penalty(lib: Any, xp: Any, weights: Any, buffers: Any, x: Any) -> Any:
    sigmoid = torch.sigmoid if lib is torch else fad.nn.sigmoid
    x = x.detach().requires_grad_()
    h = gru(xp, sigmoid, weights, x)
    h.register_hook(clipped)
    y = (h @ weights[2]).sum()
    grad = lib.autograd.grad
    (slope,) = grad(y, x, create_graph=True)
    loss = (y - 1.0) ** 2 + 0.1 * (xp.sqrt((slope**2).sum()) - 1.0) ** 2
    loss.backward()
    with lib.no_grad():
        for w in weights:
            w.sub_(0.001 * w.grad)
            w.grad = None
    return loss.detach()


@jax.custom_vjp
def hooked(h: Any) -> Any:
    return h


hooked.defvjp(lambda h: (h, None), lambda _, g: (clipped(g),))


def penalty_twin(weights: Any, buffers: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        f = lambda x: (hooked(gru(jnp, jax.nn.sigmoid, weights, x)) @ weights[2]).sum()
        y, slope = jax.value_and_grad(f)(x)
        return (y - 1.0) ** 2 + 0.1 * (jnp.sqrt((slope**2).sum()) - 1.0) ** 2

    value, grads = jax.value_and_grad(loss)(weights)
    return value, [w - 0.001 * g for w, g in zip(weights, grads)], buffers


def simulation(lib: Any, xp: Any, weights: Any, buffers: Any, source: Any) -> Any:
    (speed,), (u, v) = weights, buffers
    with lib.no_grad():
        for _ in range(10):
            v[1:-1] += 0.1 * speed * (u[2:] - 2 * u[1:-1] + u[:-2])
            u.add_(v)
            u[0] = source
            u[-1] = 0.0
    loss = (u[1:-1] * speed).mean()
    loss.backward()
    with lib.no_grad():
        speed.sub_(0.01 * speed.grad)
        speed.grad = None
    return loss.detach()


def simulation_twin(weights: Any, buffers: Any, source: Any) -> Any:
    (speed,), (u, v) = weights, buffers
    for _ in range(10):
        v = v.at[1:-1].add(0.1 * speed * (u[2:] - 2 * u[1:-1] + u[:-2]))
        u = (u + v).at[0].set(source).at[-1].set(0.0)
    value, slope = jax.value_and_grad(lambda speed: (u[1:-1] * speed).mean())(speed)
    return value, [speed - 0.01 * slope], [u, v]


def integrator(lib: Any, xp: Any, weights: Any, buffers: Any, tolerance: Any) -> Any:
    (rate,), (y, h) = weights, buffers
    with lib.no_grad():
        for _ in range(4):
            k1 = xp.sin(rate @ y)
            k2 = xp.sin(rate @ (y + h * k1))
            good = (h * (k2 - k1)).abs().max() / 2 < tolerance
            y.copy_(xp.where(good, y + h * (k1 + k2) / 2, y))
            h.mul_(xp.where(good, 1.5, 0.5))
    loss = (xp.sin(rate @ y) ** 2).mean()
    loss.backward()
    with lib.no_grad():
        rate.sub_(0.01 * rate.grad)
        rate.grad = None
    return loss.detach()


def integrator_twin(weights: Any, buffers: Any, tolerance: Any) -> Any:
    (rate,), (y, h) = weights, buffers
    for _ in range(4):
        k1 = jnp.sin(rate @ y)
        k2 = jnp.sin(rate @ (y + h * k1))
        good = jnp.abs(h * (k2 - k1)).max() / 2 < tolerance
        y = jnp.where(good, y + h * (k1 + k2) / 2, y)
        h = h * jnp.where(good, 1.5, 0.5)
    value, slope = jax.value_and_grad(lambda rate: (jnp.sin(rate @ y) ** 2).mean())(rate)
    return value, [rate - 0.01 * slope], [y, h]


def zeros(arrays: list[np.ndarray], times: int = 1) -> list[np.ndarray]:
    return [np.zeros_like(a) for a in arrays for _ in range(times)]


def steps() -> Iterator[Step]:
    w = [drawn(32, 32) for _ in range(3)]
    xy = [drawn(32, 32), drawn(32, 32)]
    # The twin itself takes nearly half of PyTorch's time.
    name = "SGD with momentum, 3 layers of 32"
    yield Step(name, momentum, momentum_twin, w, zeros(w), xy, torch_bound=0.75)
    large = [drawn(256, 256) for _ in range(3)]
    data = [drawn(128, 256), drawn(128, 256)]
    name = "SGD with momentum, 3 layers of 256"
    yield Step(name, momentum, momentum_twin, large, zeros(large), data, None, 1.05, 1.0)
    t = np.zeros((), np.float32)
    yield Step("Adam with hooks", adam, adam_twin, w, [*zeros(w, 2), t], xy, clipped)
    nets = [*w, drawn(32, 32), drawn(32, 32), drawn(32, 1)]
    yield Step("a GAN with two losses", gan, gan_twin, nets, [], xy)
    running = [np.zeros(32, np.float32)]
    yield Step("accumulation, running mean", accumulation, accumulation_twin, w, running, xy)
    cell = [drawn(32, 96), drawn(32, 96), drawn(32, 1)]
    yield Step("a GRU, gradient penalty", penalty, penalty_twin, cell, [], [drawn(5, 32, 32)])
    one = np.ones((), np.float32)
    rod = [drawn(64), np.zeros(64, np.float32)]
    yield Step("a wave in place", simulation, simulation_twin, [drawn(62)], rod, [one])
    start = [drawn(32), np.asarray(0.1, np.float32)]
    yield Step("an adaptive integrator", integrator, integrator_twin, [drawn(32, 32)], start, [one])
    name = "SGD, a hook called on the host"
    yield Step(name, seen_on_host, seen_on_host_twin, w, [], xy, None, HOST, 8.0, on_host=True)
    name = "SGD with momentum, a result with its history"
    yield Step(name, with_history, with_history_twin, w, zeros(w), xy, None, HISTORY, 3.0)


STEPS = list(steps())


def state_of(lib: Any, step: Step) -> tuple[list[Any], list[Any], list[Any]]:
    weights = [lib.tensor(np.array(a), requires_grad=True) for a in step.parameters]
    if step.hook is not None:
        for w in weights:
            w.register_hook(step.hook)
    return (
        weights,
        [lib.tensor(np.array(b)) for b in step.buffers],
        list(map(lib.tensor, step.data)),
    )


def compiled(step: Step) -> tuple[Any, Callable[[], Any]]:
    """The step under `fad.jit`, and a call of it."""
    weights, buffers, data = state_of(fad, step)
    run = lambda *data: step.written(fad, fnp, weights, buffers, *data)
    f = fad.jit(run, hooks=step.on_host)
    return f, lambda: f(*data)


def functional(step: Step) -> tuple[Any, tuple[Any, ...], Callable[[], Any]]:
    """The twin under ``jax.jit``, its arguments, and a call that goes on from its state."""
    f = jax.jit(lambda *args: step.twin(*args), donate_argnums=(0, 1))  # which is compiled anew
    parts = ([jnp.array(a) for a in xs] for xs in (step.parameters, step.buffers, step.data))
    weights, buffers, data = parts
    held = [weights, buffers]

    def call() -> Any:
        value, held[0], held[1] = f(*held, *data)
        return value[0] if isinstance(value, tuple) else value

    return f, (weights, buffers, *data), call


def settled(step: Step) -> Callable[[Library], Callable[[], Any]]:
    def build(library: Library) -> Callable[[], Any]:
        if library.name == "torch":
            weights, buffers, data = state_of(torch, step)
            call = lambda: step.written(torch, torch, weights, buffers, *data)
        else:
            call = compiled(step)[1] if library.name == "fad" else functional(step)[2]
        if step.written is not with_history or library.name == "jax":
            return call
        return lambda: call().detach()  # what is compared

    return build


def first(step: Step) -> Callable[[Library], Callable[[], float]]:
    """CPU seconds of the first call: tracing and compiling."""

    def build(library: Library) -> Callable[[], float]:
        def timed() -> float:
            call = compiled(step)[1] if library.name == "fad" else functional(step)[2]
            begin = time.process_time()
            jax.block_until_ready(call())
            return time.process_time() - begin

        return timed

    return build


def memory(step: Step) -> Callable[[Library], Callable[[], float]]:
    """Bytes of a call beside its arguments, in kB: results that take over no memory, and XLA's own."""

    def build(library: Library) -> Callable[[], float]:
        if library.name == "fad":
            f, call = compiled(step)
            call()
            lowered = f._quick[0].lower()
        else:
            f, args, _ = functional(step)
            lowered = f.lower(*args)
        found = lowered.compile().memory_analysis()
        new = found.output_size_in_bytes - found.alias_size_in_bytes
        return lambda: (found.temp_size_in_bytes + new) / 1e3

    return build


def scenarios() -> Iterator[Scenario]:
    both = ("fad", "jax")
    for step in STEPS:
        work = f"step of {step.name}"
        bounds = {"jax": step.jax_bound, "torch": step.torch_bound}
        yield Scenario(work, "settled call", settled(step), ALL, bounds)
        yield Scenario(work, "first call", first(step), both, {"jax": 2.0}, "s")
        if not step.on_host and step.written is not with_history:  # of which XLA gives no analysis
            yield Scenario(work, "memory", memory(step), both, {"jax": 1.1}, "kB")


SCENARIOS: list[Scenario] = [*scenarios()]
