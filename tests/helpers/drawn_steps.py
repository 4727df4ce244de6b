"""Steps of training put together by chance: a model, a loss, what is done to gradients, an optimizer, and
what the program does between calls. ``DrawnStep(seed)`` makes the same one each time."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from steps import batch, draw, leaf

import fad
import fad.numpy as fnp

__all__ = ["BETWEEN", "DrawnStep"]

N = 4  # features
Loss = Callable[[Any, fad.Tensor, fad.Tensor], fad.Tensor]


# Models: parameters in lists, dicts, attributes; shared, or views of a buffer; with state of their own.


class OfList:
    """A list of matrices."""

    training = True

    def __init__(self) -> None:
        self.weights = [leaf(N, N, seed=k) for k in range(3)]

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        for w in self.weights[:-1]:
            x = fnp.tanh(x @ w)
        return x @ self.weights[-1]

    def parameters(self) -> list[fad.Tensor]:
        return self.weights

    def buffers(self) -> list[fad.Tensor]:
        return []

    def replace(self) -> None:
        self.weights[1] = leaf(N, N, seed=9)


class OfDict(OfList):
    """A dict of them, by name."""

    def __init__(self) -> None:
        self.params = {"in": leaf(N, N), "b": leaf(N, seed=1), "out": leaf(N, N, seed=2)}

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        h = fad.nn.gelu(x @ self.params["in"] + self.params["b"])
        return h @ self.params["out"]

    def parameters(self) -> list[fad.Tensor]:
        return list(self.params.values())

    def replace(self) -> None:
        self.params["b"] = leaf(N, seed=9)


@dataclasses.dataclass
class Linear:
    weight: fad.Tensor
    bias: fad.Tensor

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        return x @ self.weight + self.bias


class OfLayers(OfList):
    """Dataclasses by attributes, and an activation in place."""

    def __init__(self) -> None:
        self.one, self.two = (Linear(leaf(N, N, seed=k), leaf(N, seed=k)) for k in range(2))

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        h = self.one(x)
        h.clamp_(min=-0.1)
        return self.two(h)

    def parameters(self) -> list[fad.Tensor]:
        return [t for layer in (self.one, self.two) for t in (layer.weight, layer.bias)]

    def replace(self) -> None:
        self.two.bias = leaf(N, seed=9)


class Tied(OfList):
    """One matrix used twice, and under two names."""

    def __init__(self) -> None:
        self.encoder = leaf(N, N)
        self.decoder = self.encoder

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        return fnp.tanh(x @ self.encoder) @ self.decoder.T

    def parameters(self) -> list[fad.Tensor]:
        return [self.encoder]

    def replace(self) -> None:
        self.encoder = self.decoder = leaf(N, N, seed=9)


class OfFlat(OfList):
    """Parameters cut out of one flat leaf at each call."""

    def __init__(self) -> None:
        self.flat = leaf(2 * N * N)

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        one, two = self.flat[: N * N].reshape(N, N), self.flat[N * N :].reshape(N, N)
        return fnp.tanh(x @ one) @ two

    def parameters(self) -> list[fad.Tensor]:
        return [self.flat]

    def replace(self) -> None:
        self.flat = leaf(2 * N * N, seed=9)


class Normed(OfList):
    """Batch norm with running statistics, of which evaluation makes use."""

    def __init__(self) -> None:
        self.weights = [leaf(N, N), leaf(N, N, seed=1)]
        self.mean, self.var, self.count = fad.zeros(N), fad.ones(N), fad.tensor(0)

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        h = x @ self.weights[0]
        if self.training:
            mean, var = h.mean(0), h.var(0)
            with fad.no_grad():
                self.count += 1
                self.mean.lerp_(mean, 0.1)
                self.var.mul_(0.9).add_(var, alpha=0.1)
        else:
            mean, var = self.mean, self.var
        return fnp.tanh((h - mean) / fnp.sqrt(var + 1e-5)) @ self.weights[1]

    def buffers(self) -> list[fad.Tensor]:
        return [self.mean, self.var, self.count]

    def replace(self) -> None:
        self.mean = fad.tensor(draw(N, seed=9))


class Recurrent(OfList):
    """A GRU over rows of its argument, whose hidden state goes on to the next call."""

    def __init__(self) -> None:
        self.weights = [leaf(N, 3 * N), leaf(N, 3 * N, seed=1)]
        self.hidden = fad.zeros(N)

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        h, outs = self.hidden.detach().clone(), []
        for row in x[:3]:
            i, r = row @ self.weights[0], h @ self.weights[1]
            z, s = fad.nn.sigmoid(i[:N] + r[:N]), fad.nn.sigmoid(i[N : 2 * N] + r[N : 2 * N])
            h = (1 - z) * fnp.tanh(i[2 * N :] + s * r[2 * N :]) + z * h
            outs.append(h)
        self.hidden.copy_(h.detach())
        return fnp.stack(outs).mean(0) + 0.0 * x

    def buffers(self) -> list[fad.Tensor]:
        return [self.hidden]

    def replace(self) -> None:
        self.hidden = fad.tensor(draw(N, seed=9))


class Attending(OfList):
    """One head of attention, in bfloat16 in the middle."""

    def __init__(self) -> None:
        self.weights = [leaf(N, N, seed=k) for k in range(3)]

    def __call__(self, x: fad.Tensor) -> fad.Tensor:
        q, k, v = (x @ w for w in self.weights)
        chances = fad.nn.softmax(q @ k.T / N**0.5, axis=-1)
        return (chances.astype("bfloat16").astype("float32")) @ v


MODELS = [OfList, OfDict, OfLayers, Tied, OfFlat, Normed, Recurrent, Attending]


# Losses: what is between a model and a number.


def mse(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return ((model(x) - y) ** 2).mean()


def cross_entropy(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return -(fad.nn.log_softmax(model(x), axis=-1) * fad.nn.softmax(y, axis=-1)).sum(-1).mean()


def gradient_penalty(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    x = x.detach().requires_grad_()
    out = ((model(x) - y) ** 2).mean()
    (slope,) = fad.autograd.grad(out, x, create_graph=True)
    return out + 0.1 * (slope**2).sum()


def checkpointed(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    h = fad.checkpoint(fnp.sin)(x)
    return ((model(h) - y) ** 2).mean()


class Scaled(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: fad.Tensor, by: float) -> fad.Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return fnp.sin(x) * by

    @staticmethod
    def backward(ctx: Any, g: fad.Tensor) -> tuple[fad.Tensor, None]:
        (x,) = ctx.saved_tensors
        return g * fnp.cos(x) * ctx.by, None


def through_function(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return ((Scaled.apply(model(x), 1.5) - y) ** 2).mean()


def by_sample(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    errors = fad.vmap(lambda a, b: ((a - b) ** 2).sum())(model(x), y)
    weights = fad.nn.softmax(errors.detach(), axis=0)
    return (weights * errors).sum()


_smooth = fad.jit(lambda a: fnp.sqrt(1.0 + a * a) - 1.0)


def nested_jit(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    return _smooth(model(x) - y).mean()


def scanned(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    out = model(x)
    total, _ = fad.lax.scan(
        lambda s, row: (s * 0.5 + (row**2).sum(), s), fnp.sum(out) * 0.0, out - y
    )
    return total


def branched(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    error = model(x) - y
    far = abs(error.detach()).max() > 1.0
    return fad.lax.cond(far, lambda e: abs(e).mean(), lambda e: (e**2).mean(), error)


def tangent_norm(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    f = lambda x: fnp.tanh(x) * 2.0
    value, tangent = fad.jvp(f, (x,), (y,))
    return ((model(value) - tangent) ** 2).mean()


def watched(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    out = model(x)
    out.register_hook(lambda g: g * 0.5)
    out.retain_grad()
    return ((out - y) ** 2).mean()


def measured(model: Any, x: fad.Tensor, y: fad.Tensor) -> fad.Tensor:
    with fad.inference_mode():
        scale = abs(y).mean() + 1.0
    return ((model(x) - y) ** 2).mean() / scale.clone().detach()


LOSSES: list[Loss] = [
    mse, cross_entropy, gradient_penalty, checkpointed, through_function, by_sample, nested_jit, scanned,
    branched, tangent_norm, watched, measured,
]  # fmt: skip


# What is done between a loss and an optimizer.


def plain(params: list[fad.Tensor], group: dict[str, Any]) -> None:
    pass


def clip_norm(params: list[fad.Tensor], group: dict[str, Any]) -> None:
    fad.nn.utils.clip_grad_norm_(params, group["clip"])


def clip_value(params: list[fad.Tensor], group: dict[str, Any]) -> None:
    for p in params:
        if p.grad is not None:
            p.grad.clamp_(-group["clip"], group["clip"])


def decay(params: list[fad.Tensor], group: dict[str, Any]) -> None:
    for p in params:
        if p.grad is not None:
            p.grad = p.grad + 0.1 * p.detach()


def centred(params: list[fad.Tensor], group: dict[str, Any]) -> None:
    for p in params:
        if p.grad is not None and p.grad.ndim > 1:
            p.grad.sub_(p.grad.mean(0))


GRADIENTS = [plain, clip_norm, clip_value, decay, centred]


# Optimizers: ``(p, g, state, group)`` for each parameter; ``state`` is a dict of Tensors.


def sgd(p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]) -> None:
    p.sub_(g * group["lr"])


def momentum(
    p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]
) -> None:
    state["m"].mul_(0.9).add_(g)
    p.add_(state["m"], alpha=-group["lr"])


def nesterov(
    p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]
) -> None:
    m = state["m"]
    m *= 0.9
    m += g
    p -= group["lr"] * (g + 0.9 * m)


def adam(p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]) -> None:
    m, v, t = state["m"], state["v"], state["t"]
    t += 1.0
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m / (1 - 0.9**t), fnp.sqrt(v / (1 - 0.99**t)) + 1e-3, value=-group["lr"])


def adamw(
    p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]
) -> None:
    p.mul_(1 - group["lr"] * group["decay"])
    adam(p, g, state, group)


def rmsprop(
    p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]
) -> None:
    state["v"].mul_(0.9).add_(g * g * 0.1)
    p.data.sub_(group["lr"] * g / (fnp.sqrt(state["v"]) + 1e-2))


def lamb(p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]) -> None:
    state["m"].mul_(0.9).add_(g, alpha=0.1)
    state["v"].mul_(0.99).add_(g * g, alpha=0.01)
    move = state["m"] / (state["v"].sqrt() + 1e-2)
    ratio = fnp.sqrt((p**2).sum()) / (fnp.sqrt((move**2).sum()) + 1e-3)
    p.sub_(group["lr"] * fnp.where(ratio > 0, ratio, 1.0) * move)


def lion(p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]) -> None:
    p -= group["lr"] * 0.1 * fnp.tanh(100 * (0.9 * state["m"] + 0.1 * g))
    state["m"].copy_(0.99 * state["m"] + 0.01 * g)


def adagrad(
    p: fad.Tensor, g: fad.Tensor, state: dict[str, fad.Tensor], group: dict[str, Any]
) -> None:
    state["v"][...] = state["v"] + g * g
    p[...] = p - group["lr"] * g / (fnp.sqrt(state["v"]) + 1e-1)


OPTIMIZERS = [sgd, momentum, nesterov, adam, adamw, rmsprop, lamb, lion, adagrad, optax.adam]


class Optimizer:
    """Groups, and a dict of state for each parameter."""

    def __init__(self, params: list[fad.Tensor], update: Callable[..., Any]) -> None:
        self.update = update
        self.groups = [{"params": list(params), "lr": 0.05, "clip": 0.2, "decay": 0.1}]
        self.state = [
            {"m": fad.zeros_like(p), "v": fad.zeros_like(p), "t": fad.tensor(0.0)} for p in params
        ]
        if update is optax.adam:
            self.update = optax.adam(0.05)
            zeros = jax.tree.map(
                fad.tensor, self.update.init([p.detach().numpy(copy=True) for p in params])
            )
            self.moments = zeros

    @fad.no_grad()
    def step(self) -> None:
        for group in self.groups:
            if isinstance(self.update, optax.GradientTransformation):
                grads = [fad.zeros_like(p) if p.grad is None else p.grad for p in group["params"]]
                moves, new = fad.from_jax(self.update.update)(grads, self.moments)
                for p, move in zip(group["params"], moves):
                    p.add_(move)
                for t, n in zip(jax.tree.leaves(self.moments, is_leaf=is_tensor),
                                jax.tree.leaves(new, is_leaf=is_tensor)):  # fmt: skip
                    t.copy_(n)
                continue
            for p, state in zip(group["params"], self.state):
                if p.grad is not None:
                    self.update(p, p.grad, state, group)

    def zero_grad(self, to_none: bool) -> None:
        for group in self.groups:
            for p in group["params"]:
                if to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad.zero_()

    def tensors(self) -> list[fad.Tensor]:
        every = [t for s in self.state for t in s.values()]
        return every + jax.tree.leaves(getattr(self, "moments", ()), is_leaf=is_tensor)


def is_tensor(x: object) -> bool:
    return isinstance(x, fad.Tensor)


# Between calls, ``(step, number of the call)``.


def nothing(s: DrawnStep, k: int) -> None:
    pass


def schedule(s: DrawnStep, k: int) -> None:
    for group in s.optimizer.groups:
        group["lr"] *= 0.5


def evaluate(s: DrawnStep, k: int) -> None:
    s.model.training = k % 2 == 0


def freeze(s: DrawnStep, k: int) -> None:
    s.model.parameters()[0].requires_grad_(k % 2 == 0)


def replace(s: DrawnStep, k: int) -> None:
    if k == 1:
        s.model.replace()
        s.optimizer.groups[0]["params"] = list(s.model.parameters())


def copied(s: DrawnStep, k: int) -> None:
    if k == 1:
        s.old = s.model
        s.model = copy.deepcopy(s.model)
        s.optimizer.groups[0]["params"] = list(s.model.parameters())


def eager_pass(s: DrawnStep, k: int) -> None:
    mse(s.model, *s.arguments(k + 20)[:2]).backward()


def write(s: DrawnStep, k: int) -> None:
    with fad.no_grad():
        s.model.parameters()[-1].mul_(1.5)


def grads_away(s: DrawnStep, k: int) -> None:
    s.model.parameters()[0].grad = None


def other_rows(s: DrawnStep, k: int) -> None:
    s.rows = 8 if k % 2 else 6


def hold_arrays(s: DrawnStep, k: int) -> None:
    s.arrays += [(p.array, np.array(p.array)) for p in s.model.parameters()]


def hook(s: DrawnStep, k: int) -> None:
    if k == 0:
        s.handle = s.model.parameters()[0].register_hook(lambda g: g * 0.5)
    elif k == 2:
        s.handle.remove()


def another_clip(s: DrawnStep, k: int) -> None:
    s.optimizer.groups[0]["clip"] = 0.05 * (k + 1)


def another_method(s: DrawnStep, k: int) -> None:
    if k == 2:
        s.optimizer.update = sgd


def another_loss(s: DrawnStep, k: int) -> None:
    s.loss = mse if k % 2 else cross_entropy


def fail(s: DrawnStep, k: int) -> None:
    s.fails = k == 1


def views(s: DrawnStep, k: int) -> None:
    p = s.model.parameters()[0].detach()
    p[..., 0] = 0.25


def fewer(s: DrawnStep, k: int) -> None:
    if k == 2 and len(s.optimizer.groups[0]["params"]) > 1:
        s.optimizer.groups[0]["params"].pop()


BETWEEN = [
    nothing, schedule, evaluate, freeze, replace, copied, eager_pass, write, grads_away, other_rows,
    hold_arrays, hook, another_clip, another_method, another_loss, fail, views, fewer,
]  # fmt: skip


class Failed(Exception):
    pass


class DrawnStep:
    """A step, what it uses, and what happens between its calls; ``parts`` says which it is."""

    def __init__(self, seed: int, is_compiled: bool = False) -> None:
        self.is_compiled = is_compiled
        r = random.Random(seed)
        self.model: Any = r.choice(MODELS)()
        self.loss: Loss = r.choice(LOSSES)
        self.gradients = r.choice(GRADIENTS)
        self.optimizer = Optimizer(self.model.parameters(), r.choice(OPTIMIZERS))
        # Each comes in its turn.
        self.between = [BETWEEN[seed % len(BETWEEN)], r.choice(BETWEEN)]
        self.microbatches = r.choice([1, 1, 2])
        self.clears = r.choice(["none before", "none after", "zero before", "zero after", "never"])
        self.averages = r.random() < 0.3
        self.returns = r.choice(["loss", "detached", "number and outputs", "nothing"])
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.rows, self.fails = 8, False
        self.arrays: list[Any] = []
        self.parts = [
            type(self.model).__name__, self.loss.__name__, self.gradients.__name__,
            getattr(self.optimizer.update, "__name__", "optax"), self.clears, self.returns,
            self.microbatches, self.averages, *[b.__name__ for b in self.between],
        ]  # fmt: skip

    def arguments(self, k: int) -> tuple[Any, ...]:
        return batch(k, self.rows, N), batch(k + 50, self.rows, N)

    def __call__(self, x: fad.Tensor, y: fad.Tensor) -> Any:
        params = self.optimizer.groups[0]["params"]
        if self.fails and not self.is_compiled:
            raise Failed  # a compiled step that fails later has done as little
        when = self.clears.partition(" ")
        if when[2] == "before":
            self.optimizer.zero_grad(when[0] == "none")
        total = fad.tensor(0.0)
        size = x.shape[0] // self.microbatches
        for k in range(self.microbatches):
            rows = slice(k * size, (k + 1) * size)
            loss = self.loss(self.model, x[rows], y[rows]) / self.microbatches
            loss.backward()
            total += loss.detach()
        with fad.no_grad():
            self.gradients([p for p in params if p.grad is not None], self.optimizer.groups[0])
        self.optimizer.step()
        if self.fails and self.is_compiled:
            raise Failed
        if self.averages:
            with fad.no_grad():
                for a, p in zip(self.average, params):
                    a.lerp_(p, 0.1)
        if when[2] == "after":
            self.optimizer.zero_grad(when[0] == "none")
        if self.returns == "loss":
            return loss
        if self.returns == "number and outputs":
            with fad.no_grad():
                return {"loss": total, "out": self.model(x)}
        return total if self.returns == "detached" else None

    def state(self) -> Iterator[fad.Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()
        yield from self.optimizer.tensors()
        yield from self.average

    def change(self, k: int) -> None:
        for between in self.between:
            between(self, k)
