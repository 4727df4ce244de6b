"""Steps whose parameters are trees, as in JAX, mapped over or given to optax; and more of simulations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from steps import Make, assert_alike, batch, draw, forward, leaf, net, xy

import fad
import fad.numpy as fnp

STEPS: dict[str, Make] = {}


def kind(make: Make) -> Make:
    STEPS[make.__name__] = make
    return make


def mse(a: fad.Tensor, b: fad.Tensor) -> fad.Tensor:
    return ((a - b) ** 2).mean()


def tensors_of(tree: Any) -> list[fad.Tensor]:
    return jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, fad.Tensor))


def descend(parameters: list[fad.Tensor], rate: float = 0.1) -> None:
    with fad.no_grad():
        for p in parameters:
            if p.grad is not None:
                p.sub_(rate * p.grad)
                p.grad = None


@kind
def a_penalty_mapped_over_a_dict() -> Any:
    params = {"w": leaf(4, 4), "b": leaf(4, seed=1)}

    def step(x, y):
        sizes = jax.tree.map(lambda p: (p * p).sum(), params)
        loss = mse(fnp.tanh(x @ params["w"] + params["b"]), y) + 0.01 * sum(jax.tree.leaves(sizes))
        loss.backward()
        descend(list(params.values()))
        return loss.detach()

    return step, xy, list(params.values())


@kind
def an_inner_step_over_trees() -> Any:
    params = [(leaf(4, 4), leaf(4, seed=1)), (leaf(4, 4, seed=2), leaf(4, seed=3))]

    def loss(params, x, y):
        for w, b in params:
            x = fnp.tanh(x @ w + b)
        return mse(x, y)

    def after(params, x, y):
        slopes = fad.grad(loss)(params, x, y)
        return loss(jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), x, y)

    def step(x, y):
        value = fad.vmap(after, in_dims=(None, 0, 0))(params, x, y).mean()
        value.backward()
        descend(tensors_of(params))
        return value.detach()

    return step, lambda k: (batch(k, 3, 5, 4), batch(k + 50, 3, 5, 4)), tensors_of(params)


@kind
def optax_with_a_schedule_and_clipping() -> Any:
    optax = pytest.importorskip("optax", reason="the extra recipes")
    params = {"a": leaf(4, 4), "b": leaf(4, 4, seed=1)}
    rates = optax.exponential_decay(0.05, 2, 0.5)
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(rates))
    with fad.no_grad():
        memory = jax.tree.map(fad.tensor, optimizer.init(params))

    def step(x, y):
        loss = mse(fnp.tanh(x @ params["a"]) @ params["b"], y)
        loss.backward()
        slopes = {k: p.grad for k, p in params.items()}
        with fad.no_grad():
            moves, new = fad.from_jax(optimizer.update)(slopes, memory, params)
            for old, x in zip(tensors_of(memory), tensors_of(new), strict=True):
                old.copy_(x)
            for k, p in params.items():
                p.add_(moves[k])
                p.grad = None
        return loss.detach()

    return step, xy, [*params.values(), *tensors_of(memory)]


@dataclasses.dataclass
class Cell:
    inwards: fad.Tensor
    across: fad.Tensor
    state: fad.Tensor

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        self.state.copy_(fnp.tanh(x @ self.inwards + self.state.clone() @ self.across))
        return self.state


@kind
def a_recurrent_dataclass_that_keeps_its_state() -> Any:
    cell, readout = Cell(leaf(4, 4), leaf(4, 4, seed=1), fad.zeros((8, 4))), leaf(4, 4, seed=2)

    def step(x, y):
        loss = mse(cell(x) @ readout, y)
        loss.backward()
        descend([cell.inwards, cell.across, readout])
        cell.state.detach_()
        return loss.detach()

    return step, xy, [cell.inwards, cell.across, cell.state, readout]


@kind
def gradients_summed_over_lists_for_four_calls() -> Any:
    weights, count = net(2), fad.tensor(0)
    sums = [fad.zeros(w.shape) for w in weights]

    def step(x, y):
        grads = fad.autograd.grad(mse(forward(weights, x), y), weights)
        with fad.no_grad():
            count.add_(1)
            now = count % 2 == 0
            for w, s, g in zip(weights, sums, grads, strict=True):
                s += g
                w.sub_(fnp.where(now, 0.1 * s, 0.0))
                s.mul_(fnp.where(now, 0.0, 1.0))

    return step, xy, [*weights, *sums, count]


@kind
def moving_averages_with_a_warm_up() -> Any:
    weights, steps = net(2), fad.tensor(0.0)
    means = [w.detach().clone() for w in weights]

    def step(x, y):
        loss = fnp.abs(forward(weights, x) - y).mean()
        loss.backward()
        descend(weights)
        steps.add_(1.0)
        decay = fnp.minimum(0.99, (1.0 + steps) / (10.0 + steps))
        for m, w in zip(means, weights, strict=True):
            m.lerp_(w.detach(), 1.0 - decay)
        return loss.detach(), [m * 1.0 for m in means]

    return step, xy, [*weights, *means, steps]


@kind
def clipped_by_value_and_by_each_norm() -> Any:
    weights = net(3)

    def step(x, y):
        loss = fad.nn.huber_loss(forward(weights, x), y)
        loss.backward()
        fad.nn.utils.clip_grad_value_(weights, 0.05)
        norm = fad.nn.utils.clip_grad_norm_(weights, 0.1)
        descend(weights)
        return loss.detach(), norm

    return step, xy, weights


@kind
def one_weight_used_three_times_with_a_hook() -> Any:
    w = leaf(4, 4)
    w.register_hook(lambda g: g / (1.0 + fnp.abs(g).max()))

    def step(x, y):
        h = fnp.tanh(x @ w) @ w.T
        loss = mse(h @ (w + w.T), y)
        loss.backward()
        descend([w])
        return loss.detach()

    return step, xy, [w]


@kind
def a_least_squares_gan_with_a_penalty() -> Any:
    g, d = net(2), net(2)

    def step(z, real):
        fake = forward(g, z)
        point = (0.5 * (fake + real)).detach().requires_grad_()
        (slope,) = fad.autograd.grad(forward(d, point).sum(), point, create_graph=True)
        loss_d = ((forward(d, real) - 1) ** 2).mean() + (forward(d, fake.detach()) ** 2).mean()
        (loss_d + 0.1 * (slope**2).mean()).backward()
        descend(d)
        loss_g = ((forward(d, fake) - 1) ** 2).mean()
        for w, s in zip(g, fad.autograd.grad(loss_g, g), strict=True):
            w.data.sub_(0.1 * s)
        return loss_d.detach(), loss_g.detach()

    return step, xy, [*g, *d]


@kind
def a_hypergradient_of_the_rate() -> Any:
    weights, rate = net(2), fad.tensor(0.1, requires_grad=True)

    def step(x, y):
        grads = fad.autograd.grad(mse(forward(weights, x), y), weights, create_graph=True)
        moved = [w - rate * g for w, g in zip(weights, grads, strict=True)]
        loss = mse(forward(moved, x), y)
        loss.backward(inputs=[rate])
        with fad.no_grad():
            rate.sub_(0.01 * rate.grad).clamp_(0.0, 1.0)
            for w, m in zip(weights, moved, strict=True):
                w.copy_(m)
        rate.grad.zero_()
        return loss.detach()

    return step, xy, [*weights, rate]


@kind
def reptile_with_two_inner_steps() -> Any:
    weights = net(2)

    def step(x, y):
        fast = [w.detach().clone().requires_grad_() for w in weights]
        for _ in range(2):
            mse(forward(fast, x), y).backward()
            descend(fast)
        with fad.no_grad():
            for w, f in zip(weights, fast, strict=True):
                w += 0.5 * (f - w)

    return step, xy, weights


@kind
def particles_bounced_in_views_of_one_buffer() -> Any:
    state = fad.tensor(draw(6, 4))
    place, speed = state[:, :2], state[:, 2:]

    def step(force):
        speed.add_(0.1 * force)
        place.add_(0.1 * speed)
        outside = fnp.abs(place) > 0.5
        speed[outside] *= -1.0
        place.clip_(-0.5, 0.5)
        return 0.5 * (speed**2).sum()

    return step, lambda k: (batch(k, 6, 2),), [state, place, speed]


@kind
def a_lattice_shifted_in_place() -> Any:
    cells, weights = fad.tensor(np.abs(draw(3, 8))), fad.tensor([0.25, 0.5, 0.25])

    def step(force):
        density = cells.sum(0)
        for k, shift in enumerate((-1, 0, 1)):
            cells[k] = fnp.roll(cells[k], shift)
            cells[k] += 0.3 * (weights[k] * density - cells[k])
        cells[2, 0] += force
        return density.max()

    return step, lambda k: (fad.tensor(0.01 * k),), [cells, weights]


@kind
def a_solver_with_a_carried_step_and_adjoint() -> Any:
    rate, y, h = leaf(4, 4), fad.tensor(draw(4)), fad.tensor(0.1)

    def step(target):
        def advance(y):
            k = fnp.tanh(rate @ y)
            return y + h * fnp.tanh(rate @ (y + 0.5 * h * k))

        z = y.clone()
        for _ in range(6):
            z = advance(z)
        loss = mse(z, target)
        loss.backward()
        descend([rate])
        y.copy_(z.detach())
        h.mul_(fnp.where(loss.detach() > 0.1, 0.9, 1.1))
        return loss.detach()

    return step, lambda k: (batch(k, 4),), [rate, y, h]


@kind
def contrastive_pairs_with_a_slow_encoder() -> Any:
    fast, slow = net(2), [w.detach().clone() for w in net(2)]
    temperature = fad.tensor(0.5, requires_grad=True)

    def step(x, y):
        a, b = forward(fast, x), forward(slow, y)
        a, b = (v / fnp.linalg.norm(v, axis=-1, keepdims=True) for v in (a, b))
        loss = fad.nn.cross_entropy(a @ b.T / temperature, fnp.arange(8))
        loss.backward()
        descend([*fast, temperature], 0.01)
        with fad.no_grad():
            for s, f in zip(slow, fast, strict=True):
                s.mul_(0.9).add_(f, alpha=0.1)
        return loss.detach()

    return step, xy, [*fast, *slow, temperature]


@kind
def returns_of_an_episode_backwards() -> Any:
    policy, baseline = leaf(4, 3), fad.tensor(0.0)

    def step(x, rewards):
        chances = fad.nn.log_softmax(x @ policy, axis=-1)
        total, returns = fad.tensor(0.0), fnp.zeros(8)
        for t in reversed(range(8)):
            total = rewards[t] + 0.9 * total
            returns[t] = total
        loss = -(chances[:, 0] * (returns - baseline)).mean()
        loss.backward()
        baseline.lerp_(returns.mean(), 0.1)
        descend([policy])
        return returns * 1.0

    return step, lambda k: (batch(k, 8, 4), batch(k + 9, 8)), [policy, baseline]


@kind
def coupling_layers_with_a_log_determinant() -> Any:
    scales, shifts = net(2, 2), net(2, 2)

    def step(x):
        a, b, logs = x[:, :2], x[:, 2:], 0.0
        for s, t in zip(scales, shifts, strict=True):
            log = fnp.tanh(a @ s)
            a, b, logs = b * fnp.exp(log) + a @ t, a, logs + log.sum(-1)
        loss = (0.5 * (a**2 + b**2).sum(-1) - logs).mean()
        loss.backward()
        descend([*scales, *shifts])
        return loss.detach()

    return step, lambda k: (batch(k, 8, 4),), [*scales, *shifts]


@kind
def batch_norm_with_running_statistics_and_a_switch() -> Any:
    w, gain = leaf(4, 4), fad.tensor(np.ones(4, np.float32), requires_grad=True)
    mean, var = fad.zeros(4), fad.ones(4)

    def step(x, y, mode):
        h = x @ w
        if mode == "train":
            m, v = h.mean(0), h.var(0)
            with fad.no_grad():
                mean.lerp_(m, 0.1)
                var.lerp_(v, 0.1)
        else:
            m, v = mean, var
        loss = mse((h - m) / fnp.sqrt(v + 1e-5) * gain, y)
        if mode == "train":
            loss.backward()
            descend([w, gain])
        return loss.detach()

    return step, lambda k: (*xy(k), "test" if k % 2 else "train"), [w, gain, mean, var]


@kind
def kalman_filter_in_place() -> Any:
    noise = fad.tensor(-1.0, requires_grad=True)
    x, P = fad.zeros(2), fad.tensor(np.eye(2, dtype=np.float32))
    F, H = fad.tensor([[1.0, 0.1], [0.0, 1.0]]), fad.tensor([[1.0, 0.0]])

    def step(z):
        a = F @ x
        S = F @ P @ F.T + fnp.exp(noise) * fnp.eye(2)
        gap, spread = z - H @ a, H @ S @ H.T + 0.1
        loss = 0.5 * (gap**2 / spread[0] + fnp.log(spread[0])).sum()
        loss.backward()
        K = S @ H.T / spread
        x.copy_((a + K @ gap).detach())
        P.copy_((S - K @ H @ S).detach())
        descend([noise])
        return loss.detach()

    return step, lambda k: (batch(k, 1),), [noise, x, P]


@kind
def fixed_point_iterations_with_a_stopped_start() -> Any:
    w, start = leaf(4, 4), fad.zeros((8, 4))

    def step(x, y):
        with fad.no_grad():
            z = fad.lax.fori_loop(0, 10, lambda _, z: fnp.tanh(0.3 * z @ w + x), start)
        start.copy_(z)
        loss = mse(fnp.tanh(0.3 * z @ w + x), y)
        loss.backward()
        descend([w])
        return loss.detach()

    return step, xy, [w, start]


@kind
def a_history_in_a_ring() -> Any:
    w, ring, place = leaf(4, 4), fad.zeros(3), fad.tensor(0)

    def step(x, y):
        loss = mse(x @ w, y)
        loss.backward()
        descend([w])
        ring[place % 3] = loss.detach()
        place.add_(1)
        return ring.sum() / fnp.minimum(place, 3)

    return step, xy, [w, ring, place]


@kind
def gauss_newton_with_damping_in_the_step() -> Any:
    w, damping = fad.tensor(draw(4)), fad.tensor(1.0)

    def step(x, y):
        residual = lambda w: fnp.tanh(x @ w) - y[:, 0]
        J, r = fad.jacfwd(residual)(w), residual(w)
        move = fnp.linalg.solve(J.T @ J + damping * fnp.eye(4), J.T @ r)
        better = (residual(w - move) ** 2).sum() < (r**2).sum()
        w.sub_(fnp.where(better, move, 0.0))
        damping.mul_(fnp.where(better, 0.5, 2.0))
        return (r**2).sum()

    return step, xy, [w, damping]


@kind
def langevin_dynamics_by_a_folded_key() -> Any:
    x, t, key = fad.tensor(draw(5)), fad.tensor(0), jax.random.key(3)

    def step(beta):
        slope = fad.grad(lambda x: ((x**2 - 1.0) ** 2).sum())(x)
        noise = fad.random.normal(fad.random.fold_in(key, t), (5,))
        x.sub_(0.01 * slope).add_(fnp.sqrt(0.02 / beta) * noise)
        t.add_(1)
        return x.mean()

    return step, lambda k: (fad.tensor(1.0 + k),), [x, t]


@kind
def teacher_and_student_of_two_dtypes() -> Any:
    student = net(2)
    teacher = [w.detach().astype("bfloat16") for w in net(2)]

    def step(x, y):
        want = fad.nn.softmax(forward(teacher, x.astype("bfloat16")).astype("float32"))
        got = fad.nn.log_softmax(forward(student, x))
        loss = -(want * got).sum(-1).mean() + 0.1 * mse(fnp.exp(got), y)
        loss.backward()
        descend(student)
        return loss.detach()

    return step, xy, student


@kind
def weights_normed_after_each_step() -> Any:
    weights = net(2)
    normed = functools.partial(fnp.linalg.norm, axis=0, keepdims=True)

    def step(x, y):
        loss = mse(forward([w / normed(w) for w in weights], x), y)
        loss.backward()
        descend(weights)
        for w in weights:
            w.data /= normed(w.data)
        return loss.detach()

    return step, xy, weights


@kind
def coordinates_updated_in_turn() -> Any:
    blocks, turn = net(3), fad.tensor(0)

    def step(x, y):
        loss = mse(forward(blocks, x), y)
        loss.backward()
        with fad.no_grad():
            for k, w in enumerate(blocks):
                w -= fnp.where(turn == k, 0.5, 0.0) * w.grad
                w.grad.zero_()
        turn.copy_((turn + 1) % 3)
        return loss.detach()

    return step, xy, [*blocks, turn]


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_a_step_is_compiled_as_it_is_written(make: Callable[[], Any]) -> None:
    assert_alike(make)
