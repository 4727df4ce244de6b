"""Programs of Python loops, made of steps that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp

SIZE = 5
WEIGHTS = np.cos(np.arange(SIZE * SIZE)).reshape(SIZE, SIZE) / 3


class Cubed(fad.Function):
    """A Function with rules that are not those of what it computes."""

    @staticmethod
    def forward(x):
        return x * x * x / 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return 0.9 * g * x * x

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 0.9 * t * x * x


class Loop:
    """What steps know: the state, what was there before, numbers for each repeat, and a list of results."""

    def __init__(self, x: Any, count: int) -> None:
        self.x, self.before, self.oldest = x, x * 0.5, x * 0.25
        self.count, self.t = count, 0
        self.xs = fnp.stack([x * float(np.sin(k)) for k in range(2)])
        self.data = jnp.asarray(np.sin(np.arange(count * SIZE)).reshape(count, SIZE))
        self.numbers = [0.1 + 0.05 * float(np.cos(3 * k)) for k in range(count)]
        self.results: list[Any] = []
        self.table = fnp.zeros((count, SIZE))
        self.key = jax.random.key(0)
        self.keys = jax.random.split(jax.random.key(1), count)
        self.scale = x[1] * 0.3
        self.total = fnp.zeros(())


def contract(s: Loop) -> None:
    s.x = fnp.sin(s.x) * 0.9 + s.before * 0.1


def remember(s: Loop) -> None:
    s.oldest, s.before = s.before, s.x
    s.x = 0.5 * s.x + 0.25 * s.oldest


def in_place(s: Loop) -> None:
    d = fnp.zeros_like(s.x)
    f = s.scale * (s.x[1:] - s.x[:-1])
    d[:-1] += f
    d[1:] -= f
    s.x = s.x + d


def in_place_of_state(s: Loop) -> None:
    s.x = s.x * 1.0
    s.x[1:-1] += 0.1 * fnp.cos(s.before[:-2])
    s.x[0] = s.scale


def number(s: Loop) -> None:
    s.x = s.x - s.numbers[s.t] * fnp.sin(s.x) * s.x


def power(s: Loop) -> None:
    s.x = s.x * (1 - 0.5 ** (s.t + 1)) / (1 + 0.1 * s.t)


def read(s: Loop) -> None:
    s.x = fnp.tanh(WEIGHTS @ s.x + s.data[s.t])


def read_backwards(s: Loop) -> None:
    s.x = s.x + 0.1 * s.data[s.count - 1 - s.t]


def collect(s: Loop) -> None:
    s.results.append(fnp.sum(s.x * s.x))


def collect_rows(s: Loop) -> None:
    s.results.append(s.x * 2.0)


def write(s: Loop) -> None:
    s.table[s.t] = s.x * s.scale


def read_written(s: Loop) -> None:
    s.table[s.t] = s.x
    s.x = s.x + 0.1 * s.table[max(s.t - 1, 0)]


def function(s: Loop) -> None:
    s.x = s.x - 0.3 * Cubed.apply(s.x)


def draw(s: Loop) -> None:
    s.key, key = jax.random.split(s.key)
    s.x = s.x * 0.9 + 0.05 * fad.random.normal(key, (SIZE,))


def draw_of_many(s: Loop) -> None:
    s.x = s.x * 0.9 + 0.05 * fad.random.uniform(s.keys[s.t], (SIZE,))


def branch(s: Loop) -> None:
    s.x = fad.lax.cond(fnp.sum(s.x) > 0.3, lambda x: x * 0.8, lambda x: x * x + s.scale, s.x)


def checkpointed(s: Loop) -> None:
    scale = s.scale
    s.x = fad.checkpoint(lambda x: fnp.sin(x * scale) + x * 0.5)(s.x)


def loop_in_body(s: Loop) -> None:
    """A loop in what is one operation of the repeat."""

    def body(x: Any) -> Any:
        for k in range(9):
            x = x - 0.1 * fnp.sin(x) * s.numbers[k] + 0.01 * x * x
        return x

    if s.t % 3 == 0:
        s.x = fad.checkpoint(body)(s.x)
    else:
        s.x = fad.lax.cond(fnp.sum(s.x) > 0.3, body, lambda x: x * 0.5, s.x)


def inner_loop(s: Loop) -> None:
    y = s.x
    for _ in range(9):
        y = y - 0.1 * fnp.sin(y) * s.scale + 0.01 * y * y
    s.x = 0.5 * y + 0.5 * s.before


def early_end(s: Loop) -> None:
    if s.t < s.count - 2:
        s.x = s.x * 0.95 + 0.1
    else:
        s.x = fnp.exp(-s.x)


def late_begin(s: Loop) -> None:
    if s.t > 1:
        s.x = s.x - 0.1 * s.before * s.scale


def every_other(s: Loop) -> None:
    s.x = fnp.cos(s.x) if s.t % 2 else s.x * s.x * 0.5 + 0.2


def accumulate(s: Loop) -> None:
    s.total = s.total + fnp.sum(s.x) * s.numbers[s.t]


def gradient_step(s: Loop) -> None:
    s.x = s.x - 0.2 * fad.grad(lambda y: fnp.sum(fnp.sin(y) * y) * s.scale)(s.x)


def batched(s: Loop) -> None:
    s.x = fad.vmap(lambda a, b: a * b + fnp.sin(a))(s.x, s.before) * 0.5


def jitted(s: Loop) -> None:
    s.x = fad.jit(lambda x: fnp.tanh(x) * x + 0.1)(s.x)


def concatenated(s: Loop) -> None:
    s.x = fnp.concatenate([s.x[1:], s.x[:1] * 0.5])


def whole(s: Loop) -> None:
    k = fnp.arange(SIZE) % 3
    s.x = s.x + 0.1 * s.x[k]


STEPS: Sequence[Callable[[Loop], None]] = (
    contract,
    remember,
    in_place,
    in_place_of_state,
    number,
    power,
    read,
    read_backwards,
    collect,
    collect_rows,
    write,
    read_written,
    function,
    draw,
    draw_of_many,
    branch,
    checkpointed,
    loop_in_body,
    inner_loop,
    early_end,
    late_begin,
    every_other,
    accumulate,
    gradient_step,
    batched,
    jitted,
    concatenated,
    whole,
)


def program(steps: Sequence[Callable[[Loop], None]], count: int) -> Callable[[Any], Any]:
    """A function of an array to a number: ``count`` repeats of the steps."""

    def f(x: Any) -> Any:
        s = Loop(x * 1.0, count)
        for s.t in range(count):
            for step in steps:
                step(s)
        out = fnp.sum(fnp.sin(s.x)) + fnp.sum(s.before) + s.total + fnp.sum(s.table * s.table)
        if s.results:
            same = [r for r in s.results if r.ndim == s.results[0].ndim]
            out = out + fnp.sum(fnp.cos(fnp.stack(same))) + fnp.sum(s.results[3])
        return out

    return f
