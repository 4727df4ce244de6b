"""Steps of training as they are written: what `fad.jit` makes of them is what they are eagerly."""

from __future__ import annotations

import dataclasses
import threading
import types
from collections.abc import Callable
from typing import Any

import jax
import pytest
from steps import Make, assert_alike, batch, draw, forward, leaf, net, xy

import fad
import fad.numpy as fnp

STEPS: dict[str, Make] = {}


def kind(make: Make) -> Make:
    STEPS[make.__name__] = make
    return make


# The seven


@kind
def momentum() -> Any:
    weights = net()
    buffers = [fad.zeros_like(w) for w in weights]

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            for w, m in zip(weights, buffers):
                m.mul_(0.9).add_(w.grad)
                w.sub_(m * 0.05)
                w.grad = None
        return loss.detach()

    return step, xy, [*weights, *buffers]


@kind
def adam_with_hooks() -> Any:
    weights = net()
    first = [fad.zeros_like(w) for w in weights]
    second = [fad.zeros_like(w) for w in weights]
    t = fad.tensor(0.0)
    for w in weights:
        w.register_hook(lambda g: g.clip(-0.1, 0.1))

    def step(x, y):
        h = forward(weights, x)
        h.register_hook(lambda g: g * 0.5)
        loss = ((h - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            t.add_(1.0)
            for w, m, v in zip(weights, first, second):
                m.mul_(0.9).add_(w.grad * 0.1)
                v.mul_(0.999).add_(w.grad * w.grad * 0.001)
                w -= 0.01 * (m / (1 - 0.9**t)) / (fnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
                w.grad = None
        return loss

    return step, xy, [*weights, *first, *second, t]


@kind
def gan() -> Any:
    g, d = [leaf(4, 4, seed=1), leaf(4, 4, seed=2)], [leaf(4, 4, seed=3), leaf(4, 1, seed=4)]

    def step(z, real):
        fake = forward(g, z)
        loss_d = -(
            fad.nn.log_sigmoid(forward(d, real)) + fad.nn.log_sigmoid(-forward(d, fake.detach()))
        ).mean()
        loss_d.backward()
        with fad.no_grad():
            for w in d:
                w -= 0.1 * w.grad
        for w in d:
            w.grad = None
        loss_g = -fad.nn.log_sigmoid(forward(d, fake)).mean()
        loss_g.backward()
        with fad.no_grad():
            for w in g:
                w -= 0.1 * w.grad
        for w in [*g, *d]:
            w.grad = None
        return {"d": loss_d.detach(), "g": loss_g.detach()}

    return step, xy, [*g, *d]


@kind
def accumulation_with_a_running_buffer() -> Any:
    weights = net(2)
    running, count = fad.zeros(4), fad.tensor(0)

    def step(x, y):
        for w in weights:
            w.grad = None
        total = 0.0
        for part in range(4):
            h = x[2 * part : 2 * part + 2] @ weights[0]
            with fad.no_grad():
                running.mul_(0.9).add_(0.1 * h.mean(0))
                count.add_(1)
            loss = (
                (fnp.tanh(h - running) @ weights[1] - y[2 * part : 2 * part + 2]) ** 2
            ).mean() / 4
            loss.backward()
            total = total + loss.detach()
        with fad.no_grad():
            for w in weights:
                w.sub_(0.1 * w.grad)
        return total

    return step, xy, [*weights, running, count]


@kind
def gru_with_a_gradient_penalty() -> Any:
    cell = [leaf(4, 12, seed=1), leaf(4, 12, seed=2)]
    head = leaf(4, 1, seed=3)

    def run_cell(x):
        h = fad.zeros(8, 4)
        for t in range(3):
            i, r = x[t] @ cell[0], h @ cell[1]
            z, s = fnp.split(fad.nn.sigmoid(i[:, :8] + r[:, :8]), 2, axis=1)
            h = (1 - z) * fnp.tanh(i[:, 8:] + s * r[:, 8:]) + z * h
        h.register_hook(
            lambda g: fnp.where(fnp.linalg.norm(g) > 0.1, g * 0.1 / fnp.linalg.norm(g), g)
        )
        return (h @ head).sum()

    def step(x):
        x = x.detach().requires_grad_()
        y = run_cell(x)
        (g,) = fad.autograd.grad(y, x, create_graph=True)
        loss = (y - 1.0) ** 2 + 0.1 * (fnp.sqrt((g**2).sum()) - 1.0) ** 2
        loss.backward()
        with fad.no_grad():
            for w in [*cell, head]:
                w.sub_(0.01 * w.grad)
                w.grad.zero_()
        return loss.detach()

    return step, lambda k: (batch(k, 3, 8, 4),), [*cell, head]


@kind
def simulation_in_place() -> Any:
    u, v = fad.tensor(draw(16, seed=1)), fad.zeros(16)
    speed = leaf(14, seed=2)

    def step(source):
        with fad.no_grad():
            for _ in range(3):
                v[1:-1] += 0.1 * speed * (u[2:] - 2 * u[1:-1] + u[:-2])
                u.add_(v)
                u[0], u[-1] = 0.0, source
        loss = (u[1:-1] * speed).sum()
        loss.backward()
        return loss.detach()

    return step, lambda k: (fad.tensor(float(k)),), [u, v, speed]


@kind
def adaptive_integrator() -> Any:
    y, h, taken = fad.tensor([1.0, 0.0]), fad.tensor(0.1), fad.tensor(0)
    rate = leaf(2, 2, seed=5)

    def slope(y):
        return fnp.sin(rate @ y)

    def step(tolerance):
        with fad.no_grad():
            for _ in range(4):
                k1 = slope(y)
                k2 = slope(y + h * k1)
                error = fnp.abs(h * (k2 - k1)).max() / 2
                good = error < tolerance
                y.copy_(fnp.where(good, y + h * (k1 + k2) / 2, y))
                taken.add_(good.astype(int))
                h.mul_(fnp.where(good, 1.5, 0.5))
        loss = (slope(y) ** 2).sum()
        loss.backward()
        return y.clone(), loss

    return step, lambda k: (fad.tensor(0.01 * (k + 1)),), [y, h, taken, rate]


# Others


@kind
def gradients_added_up_over_calls() -> Any:
    weights = net()

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        return loss

    return step, xy, weights


@kind
def zero_grad_at_the_beginning() -> Any:
    weights = net()

    def step(x, y):
        for w in weights:
            if w.grad is not None:
                w.grad.zero_()
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            for w in weights:
                w -= 0.1 * w.grad
        return loss.detach()

    return step, xy, weights


@kind
def tied_weights() -> Any:
    w, b = leaf(4, 4), leaf(4)
    layers = [w, w.T, w]  # a view, made outside

    def step(x, y):
        h = fnp.tanh(x @ layers[0] + b)
        loss = ((h @ layers[1] @ layers[2].T - y) ** 2).mean()
        loss.backward(retain_graph=True)
        with fad.no_grad():
            for p in (w, b):
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, [w, b]


@kind
def views_of_a_flat_parameter() -> Any:
    flat = leaf(20)
    buffer = fad.zeros(20)

    def step(x, y):
        w, b = flat[:16].reshape(4, 4), flat[16:]
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            buffer[:16] = flat.grad[:16]
            buffer[16:].copy_(flat.grad[16:] * 2)
            flat.sub_(0.1 * buffer)
        flat.grad = None
        return loss.detach()

    return step, xy, [flat, buffer]


@kind
def views_made_outside() -> Any:
    base = fad.zeros(3, 4)
    rows = [base[k] for k in range(3)]
    column = base[:, 1]

    def step(x, y):
        rows[0].add_(x.mean(0))
        rows[1].copy_(rows[0] * 2)
        column.mul_(0.5)
        rows[2][1:3] = y[0, :2]
        return base.sum() + column.sum()

    return step, xy, [base, *rows, column]


@kind
def frozen_parameters_and_schedule() -> Any:
    weights = net()
    weights[1].requires_grad_(False)
    rate = fad.tensor(0.1)

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            for w in weights:
                if w.requires_grad:
                    w.sub_(rate * w.grad)
                    w.grad = None
            rate.mul_(0.9)
        return loss.detach()

    return step, xy, [*weights, rate]


@kind
def ema_and_clipping_by_norm() -> Any:
    weights = net()
    ema = [w.detach().clone() for w in weights]

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        norm = fnp.sqrt(sum((w.grad**2).sum() for w in weights))
        for w in weights:
            w.grad.mul_(fnp.minimum(1.0, 0.05 / (norm + 1e-6)))
        with fad.no_grad():
            for w, e in zip(weights, ema):
                w -= w.grad
                e.mul_(0.99).add_(0.01 * w)
                w.grad = None
        return loss.detach(), norm

    return step, xy, [*weights, *ema]


@kind
def by_data() -> Any:
    weights = net()

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        for w in weights:
            w.data -= 0.1 * w.grad
            w.grad.data.zero_()
        return loss.detach()

    return step, xy, weights


@kind
def batch_norm() -> Any:
    weights = net(2)
    mean, var, seen = fad.zeros(4), fad.ones(4), fad.tensor(0)

    def step(x, y):
        h = x @ weights[0]
        m, v = h.mean(0), h.var(0)
        with fad.no_grad():
            seen.add_(1)
            mean.copy_(0.9 * mean + 0.1 * m)
            var.copy_(0.9 * var + 0.1 * v)
        loss = (((h - m) / fnp.sqrt(v + 1e-5) @ weights[1] - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            for w in weights:
                w -= 0.1 * w.grad
        for w in weights:
            w.grad = None
        return loss

    return step, xy, [*weights, mean, var, seen]


@kind
def post_accumulate_hooks() -> Any:
    weights = net()
    momenta = {id(w): fad.zeros_like(w) for w in weights}

    def update(p):
        with fad.no_grad():
            momenta[id(p)].mul_(0.9).add_(p.grad)
            p.sub_(0.1 * momenta[id(p)])
        p.grad = None

    for w in weights:
        w.register_post_accumulate_grad_hook(update)

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        loss.backward()
        return loss

    return step, xy, [*weights, *momenta.values()]


@kind
def grad_of_torch_style() -> Any:
    weights = net()

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        grads = fad.autograd.grad(loss, weights)
        with fad.no_grad():
            for w, g in zip(weights, grads):
                w -= 0.1 * g
        return loss, grads[0]

    return step, xy, weights


@kind
def create_graph_and_grad_of_grad() -> Any:
    weights = net(2)

    def step(x, y):
        loss = ((forward(weights, x) - y) ** 2).mean()
        grads = fad.autograd.grad(loss, weights, create_graph=True)
        total = loss + 0.1 * sum((g**2).sum() for g in grads)
        total.backward()
        with fad.no_grad():
            for w in weights:
                w -= 0.1 * w.grad
                w.grad = None
        return total.detach()

    return step, xy, weights


@dataclasses.dataclass
class Model:
    w: fad.Tensor
    b: fad.Tensor
    steps: fad.Tensor

    def __call__(self, x):
        return fnp.tanh(x @ self.w) + self.b


@kind
def an_object() -> Any:
    model = Model(leaf(4, 4), leaf(4), fad.tensor(0))

    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            model.w -= 0.1 * model.w.grad
            model.b -= 0.1 * model.b.grad
            model.steps += 1
        model.w.grad = model.b.grad = None
        return loss.detach()

    return step, xy, lambda: [model.w, model.b, model.steps]


@kind
def parameters_as_arguments() -> Any:
    params = {"w": leaf(4, 4), "b": [leaf(4)]}
    momenta = {"w": fad.zeros(4, 4), "b": fad.zeros(4)}

    def step(p, m, x, y):
        loss = ((x @ p["w"] + p["b"][0] - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            for t, v in ((p["w"], m["w"]), (p["b"][0], m["b"])):
                v.mul_(0.9).add_(t.grad)
                t -= 0.1 * v
                t.grad = None
        return loss.detach()

    return (
        step,
        lambda k: (params, momenta, *xy(k)),
        [params["w"], params["b"][0], momenta["w"], momenta["b"]],
    )


@kind
def with_optax() -> Any:
    optax = pytest.importorskip("optax", reason="the extra recipes")
    params = {"w": leaf(4, 4), "b": leaf(4)}
    optimizer = optax.adam(0.01)
    with fad.no_grad():
        state = jax.tree.map(lambda x: x, optimizer.init(params))
    state = jax.tree.map(lambda x: fad.tensor(x), state)

    def step(x, y):
        loss = ((x @ params["w"] + params["b"] - y) ** 2).mean()
        loss.backward()
        with fad.no_grad():
            grads = {k: p.grad for k, p in params.items()}
            updates, new = fad.from_jax(optimizer.update)(grads, state, params)
            changed = fad.from_jax(optax.apply_updates)(params, updates)
            is_tensor = lambda t: isinstance(t, fad.Tensor)
            for k, p in params.items():
                p.copy_(changed[k])
                p.grad = None
            for old, now in zip(
                jax.tree.leaves(state, is_leaf=is_tensor), jax.tree.leaves(new, is_leaf=is_tensor)
            ):
                old.copy_(now)
        return loss.detach()

    is_tensor = lambda t: isinstance(t, fad.Tensor)
    return step, xy, [*params.values(), *jax.tree.leaves(state, is_leaf=is_tensor)]


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_a_step_is_compiled_as_it_is_written(make: Callable[[], Any]) -> None:
    assert_alike(make)


@pytest.mark.parametrize("tracked", [False, True])
def test_threads_that_call_a_step_for_the_first_time_lose_no_write(tracked):
    """A result with a history takes no fast path, and the first write changes what the program is for."""
    for _ in range(3):
        w, n = leaf(4), fad.zeros(())
        start = threading.Barrier(4)

        @fad.jit
        def count(w=w, n=n):
            n.add_(w.sum() * 0.0 + 1.0 if tracked else 1.0)
            return n * 1.0

        def work(count=count, start=start, seen=(seen := [])):
            start.wait()
            for _ in range(5):
                seen.append(float(count()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert float(n) == 20.0 and sorted(seen) == [float(k + 1) for k in range(20)]


@pytest.mark.filterwarnings("ignore:jit. the function changes")
def test_a_trace_is_not_made_again_for_the_step_of_another_thread():
    """What it did to attributes would be lost: here that the buffer has been set."""
    other, init = fad.zeros(1), fad.full((1,), 100.0)
    model = types.SimpleNamespace(is_new=True, buffer=fad.zeros(1))
    traced, acted = threading.Event(), threading.Event()

    @fad.jit
    def step():
        if model.is_new:
            traced.set()
            acted.wait(30.0)
            model.is_new = False
            model.buffer.copy_(init)
        return model.buffer.add_(1.0).sum()

    @fad.jit
    def another():
        return other.add_(1.0).sum()

    def act():
        traced.wait(30.0)
        another()
        acted.set()

    thread = threading.Thread(target=act)
    thread.start()
    assert (float(step()), float(step())) == (101.0, 102.0)
    thread.join()
    assert float(other) == 1.0
