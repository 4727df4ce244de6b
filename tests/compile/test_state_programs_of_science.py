"""Steps of optimizers with state of their own, of samplers, filters and games on grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
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


def cleared(parameters: list[fad.Tensor]) -> None:
    for p in parameters:
        p.grad = None


@kind
def lamb_with_trust_ratios() -> Any:
    weights, t = net(), fad.tensor(0)
    m, v = [fad.zeros_like(w) for w in weights], [fad.zeros_like(w) for w in weights]

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        with fad.no_grad():
            t.add_(1)
            for w, a, b in zip(weights, m, v):
                a.mul_(0.9).add_(w.grad, alpha=0.1)
                b.mul_(0.99).addcmul_(w.grad, w.grad, value=0.01)
                u = (a / (1 - 0.9**t)) / ((b / (1 - 0.99**t)).sqrt() + 1e-6) + 0.01 * w
                size, change = fnp.linalg.norm(w), fnp.linalg.norm(u)
                ratio = fnp.where((size > 0) & (change > 0), size / change, 1.0)
                w.sub_(0.02 * ratio * u)
        cleared(weights)
        return loss.detach()

    return step, xy, [*weights, *m, *v, t]


@kind
def rmsprop_centred_with_momentum() -> Any:
    weights = net(2)
    square, mean, buffer = [[fad.zeros_like(w) for w in weights] for _ in range(3)]

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        with fad.no_grad():
            for w, s, g, b in zip(weights, square, mean, buffer):
                s.mul_(0.9).addcmul_(w.grad, w.grad, value=0.1)
                g.lerp_(w.grad, 0.1)
                b.mul_(0.5).addcdiv_(w.grad, (s - g * g).sqrt_().add_(1e-3))
                w.add_(b, alpha=-0.01)
                w.grad.zero_()
        return loss.item() if not fad.is_grad_enabled() else loss

    return step, xy, [*weights, *square, *mean, *buffer]


@kind
def rprop_with_signs_of_before() -> Any:
    weights = net(2)
    signs = [fad.zeros_like(w) for w in weights]
    sizes = [fad.full_like(w, 0.05) for w in weights]

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        with fad.no_grad():
            for w, s, d in zip(weights, signs, sizes):
                same = fnp.sign(w.grad) * s
                d.copy_(
                    (d * fnp.where(same > 0, 1.2, fnp.where(same < 0, 0.5, 1.0))).clip(1e-4, 1.0)
                )
                w.grad[same < 0] = 0.0
                s.copy_(fnp.sign(w.grad))
                w.sub_(s * d)
        cleared(weights)
        return loss.detach()

    return step, xy, [*weights, *signs, *sizes]


@kind
def lookahead_every_third_call() -> Any:
    fast, t = net(2), fad.tensor(0)
    slow = [w.detach().clone() for w in fast]

    def step(x, y):
        loss = mse(forward(fast, x), y)
        loss.backward()
        t.add_(1)
        with fad.no_grad():
            for w, s in zip(fast, slow):
                w -= 0.1 * w.grad
                s += fnp.where(t % 3 == 0, 0.5 * (w - s), 0.0)
                w.copy_(fnp.where(t % 3 == 0, s, w))
        cleared(fast)
        return loss.detach(), t

    return step, xy, [*fast, *slow, t]


@kind
def cosine_with_restarts_by_a_counter() -> Any:
    weights, t, rate = net(2), fad.tensor(0.0), fad.tensor(0.1)

    class Cosine:
        def __init__(self, period: float) -> None:
            self.period, self.last = period, rate

        def step(self) -> None:
            t.add_(1.0)
            self.last.fill_(0.05).mul_(1 + fnp.cos(fnp.pi * (t % self.period) / self.period))

    schedule = Cosine(3.0)

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        with fad.no_grad():
            for w in weights:
                w.sub_(schedule.last * w.grad)
        schedule.step()
        cleared(weights)
        return {"loss": loss.detach(), "rate": rate}

    return step, xy, [*weights, t, rate]


@kind
def blocks_that_are_checkpointed() -> Any:
    blocks, gains = net(4), [leaf(4, seed=9 + k) for k in range(4)]

    def block(w, gain, x):
        return x + gain * fad.nn.gelu(x @ w)

    def step(x, y):
        for w, gain in zip(blocks, gains):
            x = fad.checkpoint(block)(w, gain, x)
        loss = mse(x, y)
        loss.backward()
        with fad.no_grad():
            for p in [*blocks, *gains]:
                p.sub_(0.1 * p.grad)
        cleared([*blocks, *gains])
        return loss.detach()

    return step, xy, [*blocks, *gains]


@kind
def half_precision_with_masters() -> Any:
    masters = net(2)
    halves = [w.detach().to(jnp.float16).requires_grad_() for w in masters]

    def step(x, y):
        loss = mse(forward(halves, x.to(jnp.float16)).to(jnp.float32), y)
        (loss * 64.0).backward()
        with fad.no_grad():
            for w, h in zip(masters, halves):
                w.sub_(0.1 / 64.0 * h.grad.to(jnp.float32))
                h.copy_(w.to(jnp.float16))
        cleared(halves)
        return loss.detach()

    return step, xy, masters


class Module:
    """A class as PyTorch's: parameters and buffers by attributes, ``training``, and a call of ``forward``."""

    training = True

    def parameters(self) -> list[fad.Tensor]:
        return [p for m in self.modules() for p in vars(m).values() if _requires_grad(p)]

    def modules(self) -> list[Module]:
        parts = [v if isinstance(v, list) else [v] for v in vars(self).values()]
        inner = [m for part in parts for m in part if isinstance(m, Module)]
        return [self, *[n for m in inner for n in m.modules()]]

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


def _requires_grad(x: object) -> bool:
    return isinstance(x, fad.Tensor) and x.requires_grad


class BatchNorm(Module):
    def __init__(self, n: int) -> None:
        self.weight, self.bias = fad.ones(n).requires_grad_(), fad.zeros(n).requires_grad_()
        self.mean, self.var, self.count = fad.zeros(n), fad.ones(n), fad.tensor(0)

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            with fad.no_grad():
                self.count += 1
                self.mean += (mean - self.mean) / self.count
                self.var += (var - self.var) / self.count
        else:
            mean, var = self.mean, self.var
        return (x - mean) / (var + 1e-3).sqrt() * self.weight + self.bias


class Dense(Module):
    def __init__(self, m: int, n: int, seed: int) -> None:
        self.weight, self.norm = leaf(m, n, seed=seed), BatchNorm(n)

    def forward(self, x):
        return fad.nn.relu(self.norm(x @ self.weight))


class Sequence(Module):
    def __init__(self, *layers: Module) -> None:
        self.layers = list(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@kind
def modules_with_buffers_in_both_modes() -> Any:
    model = Sequence(Dense(4, 6, 0), Dense(6, 4, 1))
    norms = [m for m in model.modules() if isinstance(m, BatchNorm)]

    def step(x, y, training):
        for m in model.modules():
            m.training = training == "train"
        loss = mse(model(x), y)
        for m in model.modules():
            m.training = True
        if training == "test":
            return loss.detach()
        loss.backward()
        with fad.no_grad():
            for p in model.parameters():
                p.sub_(0.1 * p.grad)
        cleared(model.parameters())
        return loss.detach()

    buffers = [b for n in norms for b in (n.mean, n.var, n.count)]
    return step, lambda k: (*xy(k), ["train", "test"][k == 3]), [*model.parameters(), *buffers]


@kind
def dropout_by_a_key_in_a_tensor() -> Any:
    w, key = leaf(4, 4), fad.tensor(fad.random.key(0))

    def dropout(x):
        new, used = fad.random.split(key)
        key.copy_(new)
        return x * fad.random.bernoulli(used, 0.5, x.shape) * 2.0

    def step(x, y):
        loss = mse(dropout(dropout(x) @ w), y)
        loss.backward()
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss.detach()

    return step, xy, lambda: [w, fad.random.key_data(key)]


@kind
def hamiltonian_leapfrog_in_place() -> Any:
    q, key = leaf(6), fad.tensor(jax.random.key_data(jax.random.key(3)))
    precision = fad.tensor(draw(6, 6) @ draw(6, 6).T + jnp.eye(6))
    accepted = fad.tensor(0)

    def energy(q):
        return 0.5 * q @ precision @ q + 0.1 * (q**4).sum()

    def step(size):
        first, second, third = fad.random.split(fad.random.wrap_key_data(key), 3)
        key.copy_(fad.random.key_data(first))
        p, start = fad.random.normal(second, (6,)), q.detach().clone()
        before = energy(start) + 0.5 * p @ p
        for _ in range(4):
            energy(q).backward()
            p.sub_(0.5 * size * q.grad)
            q.grad = None
            with fad.no_grad():
                q.add_(size * p)
            energy(q).backward()
            p.sub_(0.5 * size * q.grad)
            q.grad = None
        change = energy(q).detach() + 0.5 * p @ p - before
        good = fad.random.uniform(third) < fnp.exp(-change)
        accepted.add_(good)
        q.data = fnp.where(good, q.detach(), start)
        return change

    return step, lambda k: (0.1,), [q, key, accepted]


@kind
def game_of_life_in_place() -> Any:
    cells, age = fad.tensor((draw(8, 8) > 0).astype("int32")), fad.zeros((8, 8), dtype=jnp.int32)

    def step():
        for _ in range(3):
            around = sum(
                fnp.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
            )
            born, dies = (cells == 0) & (around == 3), (cells == 1) & ((around < 2) | (around > 3))
            cells[born] = 1
            cells[dies] = 0
            age.add_(1).mul_(cells)
        return cells.sum()

    return step, lambda k: (), [cells, age]


@kind
def an_ensemble_updated_by_a_measurement() -> Any:
    members, inflation = fad.tensor(draw(5, 3)), fad.tensor(0.1, requires_grad=True)
    H = fad.tensor(draw(2, 3, seed=1))

    def step(z, noise):
        with fad.no_grad():
            for k in range(5):
                members[k] += 0.1 * fnp.sin(members[k])
        spread = (members - members.mean(0)) * (1 + inflation)
        seen = spread @ H.T
        S = seen.T @ seen / 4 + 0.2 * fnp.eye(2)
        gap = z + noise - members @ H.T
        loss = (gap.mean(0) @ fnp.linalg.solve(S, gap.mean(0)) + fnp.log(fnp.linalg.det(S))).sum()
        loss.backward()
        with fad.no_grad():
            members.add_(fnp.linalg.solve(S, gap.T).T @ (seen.T @ spread / 4))
            inflation.sub_(0.01 * inflation.grad).clamp_(0.0, 1.0)
        inflation.grad = None
        return loss.detach()

    return step, lambda k: (batch(k, 2), batch(k + 9, 5, 2)), [members, inflation]


@kind
def gradients_reduced_by_a_snapshot() -> Any:
    weights, t = net(2), fad.tensor(0)
    old = [w.detach().clone().requires_grad_() for w in weights]
    full = [fad.zeros_like(w) for w in weights]

    def step(x, y):
        mse(forward(weights, x[:2]), y[:2]).backward()
        mse(forward(old, x[:2]), y[:2]).backward()
        loss = mse(forward(weights, x), y)
        slopes = fad.autograd.grad(loss, weights)
        fresh = t % 2 == 0
        t.add_(1)
        with fad.no_grad():
            for w, o, f, g in zip(weights, old, full, slopes):
                f.copy_(fnp.where(fresh, g, f))
                o.copy_(fnp.where(fresh, w, o))
                w.sub_(0.05 * (w.grad - o.grad + f))
        cleared([*weights, *old])
        return loss.detach()

    return step, xy, [*weights, *old, *full, t]


@kind
def rows_with_their_own_rates() -> Any:
    table, sums = leaf(10, 4), fad.zeros(10)

    def step(rows, y):
        loss = mse(table[rows].sum(1), y)
        loss.backward()
        with fad.no_grad():
            sums.add_((table.grad**2).sum(1))
            used = fnp.unique(rows, size=6, fill_value=0)
            table[used] -= 0.5 * table.grad[used] / (sums[used][:, None] + 1e-3) ** 0.5
        table.grad = None
        return loss.detach()

    return (
        step,
        lambda k: (fad.tensor((3 * jnp.arange(12) + k).reshape(4, 3) % 10), batch(k, 4, 4)),
        [table, sums],
    )


@kind
def momentum_made_orthogonal() -> Any:
    weights = net(2, 5)
    buffers = [fad.zeros_like(w) for w in weights]

    def orthogonal(g):
        x = g / (fnp.linalg.norm(g) + 1e-6)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        with fad.no_grad():
            for w, b in zip(weights, buffers):
                b.lerp_(w.grad, 0.1)
                w.sub_(0.02 * orthogonal(w.grad.lerp(b, 0.9)))
        cleared(weights)
        return loss.detach()

    return step, lambda k: (batch(k, 6, 5), batch(k + 50, 6, 5)), [*weights, *buffers]


@kind
def factors_of_curvature_kept_by_hooks() -> Any:
    weights = net(2)
    factors = [(fad.tensor(jnp.eye(4)), fad.tensor(jnp.eye(4))) for _ in weights]

    def watched(x, w, inner, outer):
        with fad.no_grad():
            inner.mul_(0.9).add_(0.1 * x.T @ x)
        out = x @ w
        out.register_hook(lambda g: noted(g, outer))
        return out

    def noted(g, outer):
        outer.mul_(0.9).add_(0.1 * g.T @ g)

    def step(x, y):
        h = x
        for w, (inner, outer) in zip(weights, factors):
            h = fnp.tanh(watched(h, w, inner, outer))
        loss = mse(h, y)
        loss.backward()
        with fad.no_grad():
            for w, (inner, outer) in zip(weights, factors):
                damp = 0.1 * fnp.eye(4)
                w.sub_(0.1 * fnp.linalg.solve(inner + damp, w.grad) @ fnp.linalg.inv(outer + damp))
        cleared(weights)
        return loss.detach()

    return step, xy, [*weights, *[f for pair in factors for f in pair]]


@kind
def strategies_evolved_without_gradients() -> Any:
    centre, spread, best = fad.tensor(draw(4)), fad.tensor(0.5), fad.tensor(jnp.inf)

    def step(key):
        noise = fad.random.normal(key, (6, 4))
        noise = fnp.concatenate([noise, -noise])
        scores = fad.vmap(lambda p: (p**2).sum() + fnp.sin(5 * p).sum())(centre + spread * noise)
        ranks = fnp.argsort(fnp.argsort(scores)) / 11.0 - 0.5
        centre.sub_(0.3 * (ranks @ noise) / 12)
        spread.mul_(fnp.where(scores.min() < best, 1.1, 0.9))
        best.copy_(fnp.minimum(best, scores.min()))
        return scores.mean()

    return step, lambda k: (jax.random.key(k),), [centre, spread, best]


@kind
def actor_and_critic_with_traces() -> Any:
    actor, critic = leaf(4, 3), leaf(4, 1)
    traces = [fad.zeros_like(actor), fad.zeros_like(critic)]

    def step(state, action, reward, after):
        value = (state @ critic)[0]
        error = (reward + 0.9 * (after @ critic)[0] - value).detach()
        (value + fad.nn.log_softmax(state @ actor)[action]).backward()
        for p, e in zip([actor, critic], traces):
            e.mul_(0.9 * 0.8).add_(p.grad)
            p.data.add_(0.1 * error * e)
        cleared([actor, critic])
        return error

    return (
        step,
        lambda k: (batch(k, 4), fad.tensor(k % 3), fad.tensor(0.1 * k), batch(k + 1, 4)),
        [actor, critic, *traces],
    )


@kind
def diagonals_of_hessians_by_probes() -> Any:
    weights = net(2)
    m, h = [[fad.zeros_like(w) for w in weights] for _ in range(2)]

    def step(x, y, key):
        loss = mse(forward(weights, x), y)
        slopes = fad.autograd.grad(loss, weights, create_graph=True)
        probes = [
            fad.random.rademacher(k, w.shape, jnp.float32)
            for k, w in zip(fad.random.split(key, 2), weights)
        ]
        products = fad.autograd.grad(slopes, weights, probes)
        with fad.no_grad():
            for w, g, a, b, u, p in zip(weights, slopes, m, h, probes, products):
                a.lerp_(g, 0.1)
                b.lerp_(u * p, 0.1)
                w -= 0.05 * (a / b.clamp(min=1e-2)).clamp_(-1.0, 1.0)
        return loss.detach()

    return step, lambda k: (*xy(k), jax.random.key(k)), [*weights, *m, *h]


@kind
def a_mixture_fitted_in_place() -> Any:
    means, weights = fad.tensor(draw(3, 4)), fad.full((3,), 1 / 3)

    def step(x):
        distance = ((x[:, None] - means) ** 2).sum(-1)
        share = fad.nn.softmax(fnp.log(weights) - distance, axis=1)
        for k in range(3):
            means[k] = (share[:, k, None] * x).sum(0) / (share[:, k].sum() + 1e-6)
        weights[:] = share.mean(0)
        return -fad.nn.logsumexp(-distance, axis=1).mean()

    return step, lambda k: (batch(k, 8, 4),), [means, weights]


@kind
def directions_learned_by_their_outputs() -> Any:
    basis = fad.tensor(jnp.linalg.qr(draw(5, 3))[0])

    def step(x):
        y = x @ basis
        basis.add_(0.1 * x.T @ y / len(x))
        q, r = fnp.linalg.qr(basis)
        basis[...] = q * fnp.sign(fnp.diagonal(r))
        return (y**2).mean(0)

    return step, lambda k: (batch(k, 7, 5),), [basis]


@kind
def averages_of_weights_from_the_third_call() -> Any:
    weights, n = net(2), fad.tensor(0)
    averages = [w.detach().clone() for w in weights]

    def step(x, y):
        loss = mse(forward(weights, x), y)
        loss.backward()
        n.add_(1)
        for w, a in zip(weights, averages):
            w.data -= 0.1 * w.grad
            a.add_(fnp.where(n > 2, (w.data - a) / fnp.maximum(n - 2, 1), 0.0))
            w.grad = None
        return mse(forward(averages, x), y)

    return step, xy, [*weights, *averages, n]


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_a_step_is_compiled_as_it_is_written(make: Callable[[], Any]) -> None:
    assert_alike(make)
