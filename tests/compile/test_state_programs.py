"""Steps as users of PyTorch write them, compiled: optimizers, two networks, two passes, buffers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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


class Module:
    """Parameters by attributes, in lists and in other modules."""

    def tensors(self) -> Iterator[fad.Tensor]:
        for x in vars(self).values():
            parts = x if isinstance(x, (list, tuple)) else [x]
            for part in parts:
                if isinstance(part, fad.Tensor):
                    yield part
                elif isinstance(part, Module):
                    yield from part.tensors()

    def parameters(self) -> list[fad.Tensor]:
        return list({id(p): p for p in self.tensors() if p.requires_grad}.values())


class Linear(Module):
    def __init__(self, m: int, n: int, seed: int = 0) -> None:
        self.weight, self.bias = leaf(m, n, seed=seed), leaf(n, seed=seed)

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        return x @ self.weight + self.bias


class MLP(Module):
    def __init__(self, *sizes: int, seed: int = 0) -> None:
        self.layers = [Linear(m, n, seed + k) for k, (m, n) in enumerate(itertools.pairwise(sizes))]

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        for layer in self.layers[:-1]:
            x = fad.nn.relu(layer(x))
        return self.layers[-1](x)


class SGD:
    def __init__(self, params: list[fad.Tensor], lr: float = 0.1) -> None:
        self.params, self.lr = params, lr

    @fad.no_grad()
    def step(self) -> None:
        for p in self.params:
            if p.grad is not None:
                p.add_(p.grad, alpha=-self.lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.params:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.detach_()
                p.grad.zero_()


class AdamW:
    """As in PyTorch: a dict of state for each parameter, groups with their own settings."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups
        self.state = {
            p: {
                "step": fad.tensor(0.0),
                "exp_avg": fad.zeros_like(p),
                "exp_avg_sq": fad.zeros_like(p),
            }
            for group in groups
            for p in group["params"]
        }

    @fad.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group.get("betas", (0.9, 0.999))
            for p in group["params"]:
                state = self.state[p]
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].lerp_(p.grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                scale = group["lr"] / (1 - beta1 ** state["step"])
                root = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt().add_(1e-8)
                p.sub_(scale * state["exp_avg"] / root)

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def tensors(self) -> list[fad.Tensor]:
        return [t for s in self.state.values() for t in s.values()]


@kind
def adamw_with_groups_and_a_dict_of_state() -> Any:
    model = MLP(4, 8, 4)
    weights = [layer.weight for layer in model.layers]
    biases = [layer.bias for layer in model.layers]
    groups = [
        {"params": weights, "lr": 0.01, "weight_decay": 0.1},
        {"params": biases, "lr": 0.02, "weight_decay": 0.0, "betas": (0.8, 0.99)},
    ]
    optimizer = AdamW(groups)

    def step(x, y):
        optimizer.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, xy, [*model.parameters(), *optimizer.tensors()]


@kind
def wasserstein_gan_with_clipped_weights() -> Any:
    critic, generator = MLP(4, 8, 1), MLP(4, 8, 4, seed=5)
    of_critic, of_generator = SGD(critic.parameters()), SGD(generator.parameters())

    def step(z, real):
        for _ in range(2):
            of_critic.zero_grad(set_to_none=False)
            loss_c = critic(generator(z).detach()).mean() - critic(real).mean()
            loss_c.backward()
            of_critic.step()
            for p in critic.parameters():
                p.data.clamp_(-0.3, 0.3)
        of_generator.zero_grad()
        loss_g = -critic(generator(z)).mean()
        loss_g.backward()
        of_generator.step()
        return loss_c.detach(), loss_g.detach()

    return step, xy, [*critic.parameters(), *generator.parameters()]


@kind
def frozen_by_requires_grad_and_thawed_again() -> Any:
    d, g = MLP(4, 4, 1), MLP(4, 4, 4, seed=5)

    def step(z, real):
        for p in d.tensors():
            p.requires_grad_(False)
        loss_g = -d(g(z)).mean()
        loss_g.backward()
        assert all(p.grad is None for p in d.tensors())
        for p in d.tensors():
            p.requires_grad_(True)
        loss_d = (d(g(z).detach()) - d(real)).mean()
        loss_d.backward()
        with fad.no_grad():
            for p in [*d.tensors(), *g.tensors()]:
                p -= 0.1 * p.grad
                p.grad = None
        return loss_g.detach() + loss_d.detach()

    return step, xy, [*d.parameters(), *g.parameters()]


@kind
def two_optimizers_on_a_shared_trunk() -> Any:
    trunk, actor, critic = Linear(4, 4), Linear(4, 3, 1), Linear(4, 1, 2)

    def step(x, y):
        h = fnp.tanh(trunk(x))
        value = critic(h)[:, 0]
        chances = fad.nn.log_softmax(actor(h), axis=-1)
        advantage = (y[:, 0] - value).detach()
        entropy = -(fnp.exp(chances) * chances).sum(-1).mean()
        loss_a = -(chances[:, 0] * advantage).mean() - 0.01 * entropy
        loss_a.backward(retain_graph=True)
        trunk.weight.grad *= 0.5
        loss_c = mse(value, y[:, 0])
        loss_c.backward()
        with fad.no_grad():
            for p in [*trunk.parameters(), *actor.parameters(), *critic.parameters()]:
                p -= 0.1 * p.grad
                p.grad.zero_()
        return {"actor": loss_a.detach(), "critic": loss_c.detach()}

    return step, xy, [*trunk.parameters(), *actor.parameters(), *critic.parameters()]


@kind
def clipped_by_the_global_norm() -> Any:
    model = MLP(4, 8, 4)
    optimizer = SGD(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        mse(model(x), y).backward()
        norm = fad.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        return norm

    return step, xy, model.parameters()


@kind
def sharpness_aware_in_two_passes() -> Any:
    model = MLP(4, 8, 4)
    params = model.parameters()

    def step(x, y):
        loss = mse(model(x), y)
        loss.backward()
        with fad.no_grad():
            norm = fnp.sqrt(sum((p.grad**2).sum() for p in params))
            moves = []
            for p in params:
                moves.append(p.grad * (0.05 / (norm + 1e-12)))
                p.add_(moves[-1])
                p.grad = None
        mse(model(x), y).backward()
        with fad.no_grad():
            for p, e in zip(params, moves):
                p.sub_(e)
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, params


@kind
def maml_with_an_inner_loop() -> Any:
    weights = net(2)

    def step(x, y):
        total = fad.tensor(0.0)
        for task in range(2):
            fast = list(weights)
            rows = slice(4 * task, 4 * task + 4)
            for _ in range(2):
                loss = mse(forward(fast, x[rows]), y[rows])
                grads = fad.autograd.grad(loss, fast, create_graph=True)
                fast = [w - 0.1 * g for w, g in zip(fast, grads)]
            total = total + mse(forward(fast, y[rows]), x[rows])
        total.backward()
        with fad.no_grad():
            for w in weights:
                w -= 0.05 * w.grad
                w.grad = None
        return total.detach()

    return step, xy, weights


@kind
def two_loops_of_lbfgs_over_lists() -> Any:
    w = leaf(6)
    moves, changes = ([fad.zeros(6) for _ in range(3)] for _ in range(2))
    w_before, g_before = fad.zeros(6), fad.zeros(6)

    def step(x):
        w.grad = None
        loss = ((w - x) ** 2 * fnp.arange(1.0, 7.0)).sum() + (w**4).sum()
        loss.backward()
        with fad.no_grad():
            for history in (moves, changes):
                for k in range(2):
                    history[k].copy_(history[k + 1])
            moves[-1].copy_(w - w_before)
            changes[-1].copy_(w.grad - g_before)
            w_before.copy_(w)
            g_before.copy_(w.grad)
            q, shares = w.grad.clone(), []
            for s, t in zip(reversed(moves), reversed(changes)):
                shares.append((s @ q) / (fnp.abs(s @ t) + 1.0))
                q.sub_(shares[-1] * t)
            for s, t, a in zip(moves, changes, reversed(shares)):
                q.add_(s * (a - (t @ q) / (fnp.abs(s @ t) + 1.0)))
            w.sub_(0.02 * q)
        return loss.detach()

    return step, lambda k: (batch(k, 6),), [w, *moves, *changes, w_before, g_before]


@kind
def gradients_kept_at_intermediate_tensors() -> Any:
    model = MLP(4, 6, 4)
    saliency = fad.zeros(6)

    def step(x, y):
        h = fad.nn.relu(model.layers[0](x))
        h.retain_grad()
        seen = []
        h.register_hook(lambda g: seen.append(g) or g.clip(-0.01, 0.01))
        loss = mse(model.layers[1](h), y)
        loss.backward()
        saliency.mul_(0.9).add_((h.grad * h).detach().mean(0))
        with fad.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return seen[0], h.grad

    return step, xy, [*model.parameters(), saliency]


@kind
def replay_buffer_with_a_traced_index() -> Any:
    buffer, place = fad.zeros(4, 4), fad.tensor(0)
    rewards = fad.zeros(4)
    q = Linear(4, 2)
    target = Linear(4, 2)
    for p in target.parameters():
        p.requires_grad_(False)

    def step(x, sample):
        i = place % 4
        buffer[i] = x[0]
        rewards[i] = x[0].sum()
        place.add_(1)
        states, gains = buffer[sample], rewards[sample]
        with fad.no_grad():
            wanted = gains + 0.9 * target(states).max(axis=1)
        loss = mse(q(states)[fnp.arange(3), fnp.argmax(states, axis=1) % 2], wanted)
        loss.backward()
        with fad.no_grad():
            for p, t in zip(q.parameters(), target.tensors()):
                p -= 0.1 * p.grad
                p.grad = None
                t.data.mul_(0.9)
                t.data.add_(0.1 * p.data)
        return loss.detach()

    sample = fad.tensor([0, 2, 1])
    state = [buffer, place, rewards, *q.tensors(), *target.tensors()]
    return step, lambda k: (batch(k, 2, 4), sample), state


@kind
def queue_of_keys_written_by_a_window() -> Any:
    encoder, queue, place = Linear(4, 4), fad.tensor(draw(4, 12)), fad.tensor(0)

    def step(x, y):
        queries = encoder(x)
        with fad.no_grad():
            keys = encoder(y)
        logits = fnp.concatenate(
            [(queries * keys).sum(1, keepdims=True), queries @ queue.clone()], 1
        )
        loss = -fad.nn.log_softmax(logits / 0.5, axis=1)[:, 0].mean()
        loss.backward()
        with fad.no_grad():
            queue[:, (place + fnp.arange(8)) % 12] = keys.T
            place.copy_((place + 8) % 12)
            for p in encoder.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss

    return step, xy, [*encoder.tensors(), queue, place]


@kind
def tied_weights_of_an_encoder_and_a_decoder() -> Any:
    encoder, decoder = Linear(4, 4), Linear(4, 4, 1)
    decoder.weight = encoder.weight
    params = list({id(p): p for p in [*encoder.parameters(), *decoder.parameters()]}.values())

    def step(x, y):
        loss = mse(fnp.tanh(encoder(x)) @ decoder.weight.T + decoder.bias, y)
        loss.backward()
        with fad.no_grad():
            for p in params:
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
        return loss.detach()

    return step, xy, params


@kind
def parameters_that_are_views_of_one_vector() -> Any:
    flat = fad.tensor(draw(20))
    w, b = flat[:16].view(4, 4), flat[16:]
    momentum = fad.zeros(20)

    def step(x, y):
        wl, bl = w.detach().requires_grad_(), b.detach().requires_grad_()
        loss = mse(x @ wl + bl, y)
        loss.backward()
        momentum.mul_(0.9)
        momentum[:16].view(4, 4).add_(wl.grad)
        momentum[16:].add_(bl.grad)
        w.sub_(0.1 * momentum[:16].view(4, 4))
        b.sub_(0.1 * momentum[16:])
        return loss.detach()

    return step, xy, [flat, w, b, momentum]


@kind
def loss_scale_with_a_skipped_update() -> Any:
    master = net(2)
    scale, good = fad.tensor(2.0**14), fad.tensor(0)

    def step(x, y):
        halves = [w.detach().to(fnp.float16).requires_grad_() for w in master]
        loss = mse(forward(halves, x.to(fnp.float16)).float(), y)
        (loss * scale).backward()
        with fad.no_grad():
            grads = [w.grad.float() / scale for w in halves]
            finite = fnp.all(fnp.stack([fnp.isfinite(g).all() for g in grads]))
            for w, g in zip(master, grads):
                w.copy_(fnp.where(finite, w - 0.1 * g, w))
            good.copy_(fnp.where(finite, good + 1, 0))
            scale.mul_(fnp.where(finite, fnp.where(good >= 2, 2.0, 1.0), 0.5))
        return loss.detach(), finite

    return (
        step,
        lambda k: (batch(k, 8, 4) * (1e4 if k == 2 else 1.0), batch(k + 50, 8, 4)),
        [*master, scale, good],
    )


@kind
def averaged_parameters_swapped_in_by_data() -> Any:
    model = MLP(4, 8, 4)
    params = model.parameters()
    average = [p.detach().clone() for p in params]

    def step(x, y):
        loss = mse(model(x), y)
        loss.backward()
        with fad.no_grad():
            for p, a in zip(params, average):
                p.data = p.data - 0.1 * p.grad
                a.mul_(0.9).add_(0.1 * p)
                p.grad = None
        kept = [p.data.clone() for p in params]
        for p, a in zip(params, average):
            p.data = a
        with fad.no_grad():
            tested = mse(model(x), y)
        for p, k in zip(params, kept):
            p.data = k
        return loss.detach(), tested

    return step, xy, [*params, *average]


@kind
def spectral_norm_with_a_buffer() -> Any:
    layer, u = Linear(4, 4), fad.tensor(draw(4))

    def step(x, y):
        with fad.no_grad():
            for _ in range(2):
                v = layer.weight.T @ u
                v /= fnp.linalg.norm(v) + 1e-6
                u.copy_(layer.weight @ v)
                u.div_(fnp.linalg.norm(u) + 1e-6)
        sigma = u.clone() @ layer.weight @ v
        loss = mse(x @ (layer.weight / sigma) + layer.bias, y)
        loss.backward()
        with fad.no_grad():
            for p in layer.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach(), sigma.detach()

    return step, xy, [*layer.tensors(), u]


@kind
def truncated_backpropagation_through_time() -> Any:
    w, v, out = leaf(4, 4), leaf(4, 4, seed=1), leaf(4, 4, seed=2)
    hidden = fad.zeros(8, 4)

    def step(x, y):
        h = hidden.detach()
        loss = fad.tensor(0.0)
        for t in range(3):
            h = fnp.tanh(x * (0.5 + t) @ v + h @ w)
            loss = loss + mse(h @ out, y)
        loss.backward()
        hidden.copy_(h.detach())
        with fad.no_grad():
            for p in (w, v, out):
                p.sub_(0.05 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, [w, v, out, hidden]


@kind
def codebook_with_counts_and_straight_through() -> Any:
    encoder, decoder = Linear(4, 3), Linear(3, 4, 1)
    codes, sums, counts = fad.tensor(draw(5, 3)), fad.tensor(draw(5, 3)), fad.ones(5)

    def step(x, y):
        z = encoder(x)
        nearest = fnp.argmin(((z[:, None] - codes) ** 2).sum(-1), axis=1)
        q = codes[nearest]
        straight = z + (q - z).detach()
        loss = mse(decoder(straight), y) + 0.25 * mse(z, q.detach())
        loss.backward()
        with fad.no_grad():
            counts.mul_(0.9)
            counts.index_add_(0, nearest, 0.1 * fnp.ones(8))
            sums.mul_(0.9).index_add_(0, nearest, 0.1 * z)
            codes.copy_(sums / counts[:, None])
            for p in [*encoder.parameters(), *decoder.parameters()]:
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach(), nearest

    return step, xy, [*encoder.tensors(), *decoder.tensors(), codes, sums, counts]


@kind
def equation_of_a_physical_net() -> Any:
    model = MLP(1, 6, 1)
    model.layers[0].weight.data.mul_(3.0)
    optimizer = AdamW([{"params": model.parameters(), "lr": 0.01, "weight_decay": 0.0}])

    def step(points):
        optimizer.zero_grad()
        x = points.detach().requires_grad_(True)
        u = fnp.sin(model.layers[0](x)) @ model.layers[1].weight
        ones = fad.ones_like(u)
        (du,) = fad.autograd.grad(u, x, grad_outputs=ones, create_graph=True)
        (ddu,) = fad.autograd.grad(du, x, grad_outputs=fad.ones_like(du), create_graph=True)
        loss = (
            ((ddu + u) ** 2).mean() + mse(u[0], fad.ones(1)) + model.layers[1].bias.sum() ** 2 * 0
        )
        loss = loss + (model.layers[0].bias ** 2).sum() * 0.0
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda k: (batch(k, 8, 1),), [*model.tensors(), *optimizer.tensors()]


@kind
def private_gradients_by_vmap_in_the_step() -> Any:
    weights = net(2)

    def of_one(params, x, y):
        return mse(forward(params, x), y)

    def step(x, y):
        each = fad.vmap(fad.grad(of_one), in_dims=(None, 0, 0))(weights, x, y)
        norms = fnp.sqrt(sum((g**2).sum((1, 2)) for g in each))
        share = fnp.minimum(1.0, 0.5 / norms)
        with fad.no_grad():
            for w, g in zip(weights, each):
                w -= 0.1 * (g * share[:, None, None]).mean(0)
        return norms.detach()

    return step, xy, weights


@kind
def tangents_of_captured_parameters() -> Any:
    weights = net(2)
    direction = [fad.tensor(draw(4, 4, seed=9 + k)) for k in range(2)]

    def step(x, y):
        f = lambda *ws: mse(forward(list(ws), x), y)
        value, slope = fad.jvp(f, tuple(weights), tuple(direction))
        with fad.no_grad():
            for w, d in zip(weights, direction):
                w.sub_(0.1 * slope * d)
                d.mul_(-0.9)
        return value.detach(), slope.detach()

    return step, xy, [*weights, *direction]


@kind
def a_function_with_its_rule_and_a_checkpoint() -> Any:
    class Round(fad.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(scale)
            return fnp.round(x * scale) / scale

        @staticmethod
        def backward(ctx, g):
            (scale,) = ctx.saved_tensors
            return g, (g / scale).sum()

    model, scale = MLP(4, 8, 8, 4), fad.tensor(8.0, requires_grad=True)

    def step(x, y):
        h = fad.checkpoint(lambda x: fad.nn.relu(model.layers[0](x)))(x)
        h = Round.apply(h, scale)
        loss = mse(model.layers[2](fad.nn.relu(model.layers[1](h))), y)
        loss.backward()
        with fad.no_grad():
            for p in [*model.parameters(), scale]:
                p -= 0.1 * p.grad
                p.grad = None
        return loss.detach()

    return step, xy, [*model.parameters(), scale]


@kind
def rows_of_an_embedding() -> Any:
    table, out = leaf(6, 4), leaf(4, 1, seed=1)
    used = fad.zeros(6, dtype=fnp.int32)

    def step(words, y):
        loss = mse((table[words].mean(1) @ out)[:, 0], y)
        (g_table, g_out) = fad.autograd.grad(loss, [table, out])
        with fad.no_grad():
            rows = words.reshape(-1)
            used[rows] += 1
            table[rows] = table[rows] - 0.1 * g_table[rows]
            out.sub_(0.1 * g_out)
        return loss.detach()

    def arguments(k: int) -> Any:
        return fad.tensor(np.random.default_rng(k).integers(6, size=(3, 2))), batch(k, 3)

    return step, arguments, [table, out, used]


@kind
def schedule_and_history_in_tensors() -> Any:
    model = MLP(4, 4)
    group = {"lr": fad.tensor(0.2), "warm": 2}
    t, history = fad.tensor(0), fad.zeros(3)

    def step(x, y):
        loss = mse(model(x), y)
        loss.backward()
        with fad.no_grad():
            group["lr"].copy_(0.2 * fnp.minimum(1.0, (t + 1) / group["warm"]) * 0.9**t)
            for p in model.parameters():
                p -= group["lr"] * p.grad
                p.grad = None
            history[t % 3] = loss
            t.add_(1)
        return group["lr"].clone()

    return step, xy, [*model.parameters(), group["lr"], t, history]


@kind
def red_and_black_cells_in_place() -> Any:
    u, source = fad.tensor(draw(6, 6)), fad.tensor(draw(6, 6, seed=3))
    residual = fad.zeros(())

    def step(rate):
        for parity in (0, 1):
            for i in range(1, 5):
                j = slice(1 + (i + parity) % 2, 5, 2)
                left, right = slice(j.start - 1, j.stop - 1, 2), slice(j.start + 1, j.stop + 1, 2)
                around = u[i - 1, j] + u[i + 1, j] + u[i, left] + u[i, right]
                u[i, j] += rate * ((around + source[i, j]) / 4 - u[i, j])
        u[0, :], u[:, 0] = 0.0, u[:, 1]
        residual.copy_(fnp.abs(u).max())

    return step, lambda k: (fad.tensor(0.5 + 0.1 * k),), [u, residual]


@kind
def decayed_gradients_put_back_into_grad() -> Any:
    model = MLP(4, 8, 4)
    params = model.parameters()

    def step(x, y):
        for p in params:
            p.grad = fad.zeros_like(p)
        fad.autograd.backward([mse(model(x), y), (model(y) ** 2).mean() * 0.1])
        for p in params:
            p.grad = p.grad + 0.01 * p.detach()
            p.grad.add_(p.detach(), alpha=0.01)
        with fad.no_grad():
            for p in params:
                p.add_(p.grad, alpha=-0.1)
        return sum(p.grad.abs().sum() for p in params)

    return step, xy, params


@kind
def cycle_of_two_losses_with_vector_gradients() -> Any:
    a, b = Linear(4, 4), Linear(4, 4, 1)

    def step(x, y):
        there = fnp.tanh(a(x))
        back = b(there)
        (back - x).backward(
            gradient=(back - x).detach() / 8, retain_graph=True, inputs=b.parameters()
        )
        (there - y).backward(gradient=(there - y).detach() / 8)
        grads = [p.grad.clone() for p in [*a.parameters(), *b.parameters()]]
        with fad.no_grad():
            for p, g in zip([*a.parameters(), *b.parameters()], grads):
                p -= 0.1 * g
                p.grad = None
        return grads[0]

    return step, xy, [*a.parameters(), *b.parameters()]


@kind
def activations_stored_on_the_module_and_cleared() -> Any:
    model = MLP(4, 6, 4)
    factors = [fad.zeros(4, 4), fad.zeros(6, 6)]
    cache: dict[str, Any] = {}

    def step(x, y):
        h = x
        for k, layer in enumerate(model.layers):
            cache[f"in {k}"] = h.detach()
            h = layer(h) if k else fad.nn.relu(layer(h))
        loss = mse(h, y)
        loss.backward()
        with fad.no_grad():
            for k, (layer, f) in enumerate(zip(model.layers, factors)):
                a = cache.pop(f"in {k}")
                f.mul_(0.9).add_(0.1 * a.T @ a / 8)
                layer.weight -= 0.1 * fnp.linalg.solve(f + fnp.eye(len(f)), layer.weight.grad)
                layer.weight.grad = layer.bias.grad = None
        return loss.detach()

    return step, xy, [*model.tensors(), *factors]


@kind
def a_module_by_functional_call() -> Any:
    model = Linear(4, 4)

    def step(x, y):
        fast = {"weight": model.weight * 0.9, "bias": model.bias - 0.1}
        loss = mse(fad.func.functional_call(model, fast, (x,)), y)
        loss.backward()
        with fad.no_grad():
            for p in model.parameters():
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, model.parameters()


@kind
def stacked_modules_under_vmap() -> Any:
    models = [Linear(4, 4, k) for k in range(3)]
    params, _ = fad.func.stack_module_state(models)

    def step(x, y):
        call = lambda p, x: fad.func.functional_call(models[0], p, (x,))
        loss = mse(fad.vmap(call, in_dims=(0, None))(params, x), y)
        loss.backward()
        with fad.no_grad():
            for p in params.values():
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, list(params.values())


@kind
def a_module_of_equinox_with_tensors() -> Any:
    eqx = pytest.importorskip("equinox", reason="the extra recipes")

    class Layer(eqx.Module):  # type: ignore[name-defined, misc]
        w: Any
        b: Any

        def __call__(self, x):
            return fnp.tanh(x @ self.w + self.b)

    layer = Layer(leaf(4, 4), leaf(4, seed=1))

    def step(x, y):
        loss = mse(layer(x), y)
        loss.backward()
        with fad.no_grad():
            for p in (layer.w, layer.b):
                p.sub_(0.1 * p.grad)
                p.grad = None
        return loss.detach()

    return step, xy, [layer.w, layer.b]


@kind
def dropout_by_a_key_and_a_counter() -> Any:
    w, seed = leaf(4, 4), fad.tensor(jax.random.key_data(jax.random.key(0)))

    def step(x, key):
        first, second = fad.random.split(fad.random.wrap_key_data(seed))
        seed.copy_(fad.random.key_data(first))
        keep = fad.random.bernoulli(key, 0.5, (8, 4)) & fad.random.bernoulli(second, 0.5, (8, 4))
        loss = ((x @ w) * keep).sum()
        loss.backward()
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss.detach()

    return step, lambda k: (batch(k, 8, 4), jax.random.key(k)), [w, seed]


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_a_step_is_compiled_as_it_is_written(make: Callable[[], Any]) -> None:
    assert_alike(make)
