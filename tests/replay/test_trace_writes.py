"""Laws of writes, which end a trace: bits, graphs and errors are those of single operations."""

from __future__ import annotations

import itertools
import random

import inplace_programs as programs
import jax.numpy as jnp
import numpy as np
import pytest
from lines import at_finalizers
from replays import (
    MODES,
    TRANSFORMS,
    Table,
    assert_interrupts,
    in_steps,
    last_trace,
    law,
    modes_of,
    off,
    one_mode,
    outcome,
    replay,
)

import fad
import fad.numpy as fnp
from fad.errors import GradientError

pytestmark = pytest.mark.usefixtures("fresh_traces")
X = np.linspace(-1.0, 1.0, 8).astype(np.float32)


def stencil(x, steps=3):
    u = x * 1.0
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        u[0], u[-1] = u[1], u[-2]
    return u


def into_zeros(x):
    u = fad.tensor(np.zeros((4, 8), np.float32))
    for k in range(4):
        u[k] = x * float(k)
    return u


def through_views(x):
    u = x * 2.0
    first, last = u[:4], u[4:]
    first.mul_(3.0)
    last.copy_(first)
    last += 1.0
    first[1:3] = last[::2]
    return u + u.reshape((2, 4)).T.reshape((-1,))


def of_whole(x):
    u = fnp.exp(x) + 0.0
    u += x
    u *= 0.5
    u -= 1.0
    return u


def by_numbers(x):
    u = x * 1.0
    u[u.detach() > 0.2] = 0.0
    u[fad.tensor([0, 3])] += 1.0
    u.clamp_(-0.5, 0.5)
    return u


def with_branches(x):
    u = x * 1.0
    for k in range(3):
        u[k] = u[k + 1] * 2.0
        if u.sum() > 0:  # reads a value in the middle
            u += 1.0
    return u


PROGRAMS = {
    f.__name__: f for f in (stencil, into_zeros, through_views, of_whole, by_numbers, with_branches)
}


def loss(f):
    return lambda x: (f(x) ** 2).sum()


@pytest.mark.sweep("case", [*itertools.product(PROGRAMS, TRANSFORMS)], sample=20, ids="-".join)
def test_transforms_are_as_without_replay(case):
    program, transform = case
    call = lambda: TRANSFORMS[transform](loss(PROGRAMS[program]))(jnp.asarray(X))
    law(call, calls=3, modes=one_mode(*case))


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_and_gradients_are_as_without_replay(name):
    f = PROGRAMS[name]

    def step(x, i):
        out = f(x)
        (out**2).sum().backward()
        return out

    mode = one_mode(name)
    law(lambda: fad.grad(loss(f))(X), calls=4, modes=mode)
    law(in_steps(step, X, count=6), calls=2, modes=[m for m in MODES if m not in mode])


def test_a_write_ends_the_trace_and_explain_says_so():
    def f(x):
        u = fnp.sin(x) * 2.0
        u[0] = 1.0
        return (u * u).sum()

    law(lambda: fad.grad(f)(X), False, modes=["at once"])
    assert "f (2 operations): recorded: set_item in" in last_trace()


def test_a_long_loop_of_writes(short_segments):
    """More operations than fit into one segment, before it and after it."""
    f = loss(lambda x: stencil(x, 12))
    law(lambda: fad.grad(f)(X), calls=3, modes=["at once"])


OVERWRITTEN = {
    "an input": lambda u: (fnp.sin(u), u.add_(1.0))[0],
    "an output": lambda u: fnp.exp(u).add_(1.0),
    "a view": lambda u: (u[1:] * u[:-1], u.zero_())[0],
    "by a view": lambda u: (u * u, u[2:].zero_())[0],
    "by the same write": lambda u: u[1:].mul_(u[:-1]),
    "a constant": lambda u: _constant(u),
    "a view of a constant": lambda u: _constant(u, slice(2, 5)),
}


def _constant(u, part=slice(None)):
    c = fad.tensor(np.ones(8, np.float32))
    y = u[part] * c[part]
    c[0] = u[0]
    return y


def long_after(f):
    """What ``f`` saves is in an earlier segment."""

    def g(u):
        y = f(u)
        for _ in range(150):
            y = y + 1.0
        return y

    return g


def written_long_after(u):
    y = long_after(fnp.sin)(u)
    u[2:].zero_()
    return (y + u).sum()


def written_after(inner):
    """Its program is one operation of the outer trace, and has many nodes when it is recorded."""

    def g(u):
        y = inner(u, u * 1.0)
        u[1] = 2
        return y * 3.0

    return g


def after_a_read(what, saved, written):
    """The product of what ``saved`` makes; a value is read, and ends its segment; then it is written to."""

    def g(u):
        c = fad.tensor(np.ones(8, np.float32))
        kept = saved(u, c)
        y = u[:1] * kept * kept
        float(y.sum().detach())
        written(u, c, kept)
        return y

    return {f"{what}, in a segment that a read has ended": g}


def _read(u):
    v = u * 2.0
    float(v.sum().detach())
    return v


CASES = {
    **OVERWRITTEN,
    **after_a_read("a view", lambda u, c: u[2:5], lambda u, c, kept: u[3:].zero_()),
    **after_a_read("by a view", lambda u, c: u[2:5], lambda u, c, kept: kept.zero_()),
    **after_a_read("of an earlier one", lambda u, c: _read(u), lambda u, c, kept: kept.zero_()),
    **after_a_read("a view of it", lambda u, c: _read(u)[1:], lambda u, c, kept: kept.zero_()),
    **after_a_read("of a constant", lambda u, c: c[2:5], lambda u, c, kept: c.copy_(u)),
    **after_a_read("no gradient", lambda u, c: (u > 0) * 2, lambda u, c, kept: kept.zero_()),
    **after_a_read("of a copy", lambda u, c: c.detach()[2], lambda u, c, kept: c.zero_()),
    "by an inner grad": written_after(lambda u, x: fad.grad(lambda a: (a * u * u).sum())(x)),
    "by an inner vmap": written_after(lambda u, x: fad.vmap(lambda a: a * u)(x)),
    "by an inner jvp": written_after(lambda u, x: fad.jvp(lambda a: a * u, (x,), (x,))[1]),
    "by an inner vmap, integers": lambda u: written_after(
        lambda n, x: fad.vmap(lambda a: a * n)(u)
    )((u > 0) * 2),
    "an input, in an earlier segment": long_after(OVERWRITTEN["an input"]),
    "by a view, in an earlier segment": long_after(OVERWRITTEN["by a view"]),
    "a constant, in an earlier segment": long_after(OVERWRITTEN["a constant"]),
    "in a later segment": written_long_after,
}


@pytest.mark.parametrize("what", CASES)
def test_what_was_saved_and_overwritten_is_an_error(what, short_segments):
    """The same one with and without replay; inside of allow_mutation_on_saved_tensors there is none."""
    f = lambda x: CASES[what](x * 2.0).sum()

    def call():
        w = fad.tensor(X, requires_grad=True)
        found = [outcome(lambda: f(w).backward()), outcome(lambda: fad.grad(f)(X))]
        with fad.autograd.allow_mutation_on_saved_tensors():
            return [*found, fad.grad(f)(X)]

    modes = sorted({*modes_of(what), "at once"}, reverse=True)
    expected = law(call, calls=3, modes=modes)
    assert all("modified by an inplace operation" in error for error in expected[:2])


STEPS = Table()


@STEPS.steps(X, replayed=None)
def written_to_after_its_trace(x, i):
    """It and its views are right after the backward pass, are written to again, and go into later steps."""
    u = x * 1.0
    u[0] = x[1] * 3.0
    part = u[:3]
    (part * 2.0).sum().backward(retain_graph=True)
    first = x.grad.clone()
    part.add_(1.0)
    u[1] = 5.0
    again = (u * 3.0).sum()
    again.backward()
    return first, u, part, again


@STEPS.steps(X, replayed=None)
def written_to_after_its_node_was_read(x, i):
    u = x * 1.0
    u.sum().item()
    assert u.grad_fn is not None
    u[0] = 2.0
    (u * u).sum().backward()
    return u


@STEPS.steps(X, replayed=None)
def hooks_and_retained_gradients(x, i):
    seen = []
    u = x * 1.0
    u.retain_grad()
    u.register_hook(lambda g: seen.append(g.clone()))
    u[1:3] = u[2:4] * 2.0
    v = u[2:]
    v.retain_grad()
    v += 1.0
    (u * 3.0).sum().backward()
    return u.grad, v.grad, seen


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_as_without_replay(name):
    law(*STEPS[name], calls=2, modes=modes_of(name))


def test_random_programs_of_views_and_writes(pytestconfig):
    """Values, versions, graphs, gradients and errors are those without replay, under transforms too."""
    seed, full = pytestconfig.getoption("--seed"), pytestconfig.getoption("--full")
    args = [jnp.asarray(v) for v in programs.leaf_values(programs.REAL).values()]
    every = tuple(range(len(args)))
    checks = [
        lambda f: fad.grad(f, every)(*args),
        lambda f: fad.vmap(fad.grad(f, every))(*[jnp.stack([x, x * 0.5]) for x in args]),
        lambda f: fad.grad(lambda *a: sum([(g * g).sum() for g in fad.grad(f, every)(*a)]), every)(
            *args
        ),
        lambda f: fad.grad(lambda x: written_outside(f, x, map(fad.asarray, args[1:])))(args[0]),
    ]
    for k in range(400 if full else 3):
        rng = random.Random(f"{seed} {k}")
        lines = programs.Writer(rng, bool(k % 2)).program(rng.randint(2, 12))
        law(lambda lines=lines: left_by(lines), calls=2, modes=MODES[1:])
    for k in range(60 if full else 4):
        rng = random.Random(f"{seed} {k} transforms")
        lines = programs.Writer(rng, True, programs.REAL).program(rng.randint(3, 10))
        f = programs.function_of(lines, fad, fnp)
        law(lambda k=k, f=f: checks[k % 4](f), calls=2, modes=MODES[1:])


def written_outside(f, x, rest):
    """A gradient whose function reads a Tensor of the outer level, which is written to in between."""
    outer = x * 1.0

    def inner(y):
        first = f(y * outer.sum(), *rest)
        outer.mul_(0.5)
        return first + (y * outer).sum()

    return (fad.grad(inner)(x) * outer).sum()


def left_by(lines):
    """All that a program makes, and the gradients; or where and how it fails."""
    values = programs.leaf_values()
    leaves = {n: fad.tensor(v, requires_grad=True) for n, v in values.items()}
    env = {**leaves, "sin": fnp.sin, "no_grad": fad.no_grad, **programs.functions(fad)}
    failed = programs.run(lines, env, GradientError)
    if failed is not None:
        return failed
    made = {n: v for n, v in env.items() if n.startswith("v")}
    total = 0.0
    for k, v in enumerate(made.values()):
        if v.requires_grad:
            total = total + (abs(v) * (0.3 + 0.1 * k)).sum()
    if isinstance(total, fad.Tensor):
        total.backward()
    return {n: x.grad for n, x in leaves.items()}, made


def test_interrupts_leave_a_write_done_or_not_done():
    """After an interrupt anywhere, what was written is whole, and steps go on."""

    def run():
        x = fad.tensor(X, requires_grad=True)
        u = stencil(x, 2)
        (u**2).sum().backward()
        return u, x.grad, fad.grad(loss(stencil))(X)

    assert_interrupts(run, 60)


def test_finalizers_that_read_and_write(full):
    """A finalizer that reads what is being written to, or writes elsewhere, changes nothing."""
    x, other = fad.tensor(X, requires_grad=True), fad.tensor(X)
    boxes, made = [], []

    def act():
        other.add_(1.0)
        made.extend([u.detach() + 0.0 for u in boxes])

    def run(number=0):
        x.grad = None
        u = x * 1.0
        boxes[:] = [u]
        with at_finalizers(number, act):
            for _ in range(2):
                u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
                u[0], u[-1] = u[1], u[-2]
        (u**2).sum().backward()
        return x.grad, u

    with off():
        expected = outcome(run)
    with replay("at once"):
        for number in range(1, 3000, 1 if full else 61):
            assert outcome(lambda number=number: run(number)) == expected, number
    assert made
