"""Steps of the tape with several losses: a later one goes on with what an earlier pass left alone."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from lines import at_finalizers
from replays import (
    assert_idle,
    assert_interrupts,
    law,
    modes_of,
    off,
    outcome,
    outcomes,
    replay,
)

import fad
import fad.numpy as fnp

pytestmark = pytest.mark.usefixtures("cleared_caches")
CALLS = 5


class Nets:
    """Weights of two nets, and data."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)

        def leaf(*shape: int) -> fad.Tensor:
            return fad.tensor(draw.normal(size=shape).astype(np.float32), requires_grad=True)

        self.g, self.d, self.e = leaf(4, 4), leaf(4, 4), leaf(4)
        self.x = fad.tensor(draw.normal(size=(3, 4)).astype(np.float32))

    @property
    def leaves(self) -> list[fad.Tensor]:
        return [self.g, self.d, self.e]

    def fake(self) -> fad.Tensor:
        return fnp.tanh(self.x @ self.g + 0.5)

    def judged(self, x: Any) -> fad.Tensor:
        return fnp.mean(fnp.tanh(x @ self.d) @ self.e)

    def update(self, *leaves: fad.Tensor) -> None:
        with fad.no_grad():
            for p in leaves:
                if p.grad is not None:
                    p -= 0.1 * p.grad
                    p.grad = None


def of_gan(n: Nets) -> Any:
    fake = n.fake()
    first = n.judged(n.x) - n.judged(fake.detach())
    first.backward()
    n.update(n.d, n.e)
    second = n.judged(fake)
    second.backward()
    n.update(n.g)
    return [first, second, fake]


def of_three_parts(n: Nets) -> Any:
    a = n.fake()
    b = fnp.sin(a.detach() @ n.d)
    fnp.sum(b.detach() * n.e).backward()
    fnp.sum(b * b).backward()
    fnp.sum(a * a).backward()
    return [a, b]


def to_one_leaf(n: Nets) -> Any:
    a = n.x @ n.g
    fnp.sum(fnp.cos(a.detach() @ n.g)).backward()
    fnp.sum(fnp.sin(a) * 2.0).backward()
    return [a]


def after_a_read(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    scale = float(fnp.sum(fake))
    fnp.sum(fake * scale).backward()
    return [fake, scale]


def of_several_outputs(n: Nets) -> Any:
    fake = n.fake()
    other = fake * n.e
    n.judged(n.x).backward()
    fnp.sum(fake * other).backward()
    return [fake, other]


def freed_before(n: Nets) -> Any:
    a = n.x @ n.g
    b = fnp.sin(a)
    n.judged(a).backward()
    fnp.sum(b).backward()
    return [a, b]


def kept_graph(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake).backward(retain_graph=True)
    n.judged(fake * 2.0).backward()
    return [fake]


def written_between(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    n.update(n.d, n.e)
    with fad.no_grad():
        n.g.mul_(1.5)
    fnp.sum(fake * fake).backward()
    return [fake]


def others_written_between(n: Nets) -> Any:
    """The data, and another base of the same values."""
    fake = n.fake()
    n.judged(fake.detach()).backward()
    n.x.mul_(2.0)
    fnp.sum(fnp.sin(fake)).backward()
    other = n.fake()
    n.judged(other.detach()).backward()
    other.detach().mul_(2.0)
    fnp.sum(fnp.sin(other)).backward()
    return [fake, other]


def first_once_more(n: Nets) -> Any:
    fake = n.fake()
    first = n.judged(fake.detach())
    first.backward()
    n.judged(fake).backward()
    first.backward()


def second_once_more(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    second = n.judged(fake)
    second.backward()
    second.backward()


def nodes_are_read(n: Nets) -> Any:
    fake = n.fake()
    first = n.judged(fake.detach())
    first.backward()
    found = [fake.grad_fn.name()]
    second = n.judged(fake)
    found += [first.grad_fn.name(), second.grad_fn.next_functions[0][0].name()]
    second.backward()
    return [fake, first, second, *found, fake.grad_fn.name()]


def hooks(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    fake.register_hook(lambda g: g * 3.0)
    fake.retain_grad()
    n.judged(fake).backward()
    return [fake, fake.grad]


def by_grad(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    second = n.judged(fake) ** 2
    (slope,) = fad.autograd.grad(second, [fake], create_graph=True)
    found = fad.autograd.grad(fnp.sum(slope * slope) + second, [n.g, n.d, n.e])
    return [fake, slope.detach(), *found]


def in_place_on_it(n: Nets) -> Any:
    fake = n.x @ n.g
    n.judged(fake.detach()).backward()
    fake.add_(n.e)
    fake[0] = fake[1] * 2.0
    fnp.sum(fake * fake).backward()
    return [fake]


def never_differentiated(n: Nets) -> Any:
    fake = n.fake()
    n.judged(fake.detach()).backward()
    with fad.no_grad():
        value = n.judged(fake)
    n.judged(n.fake() + value).backward()
    return [fake, value, n.judged(fake), fnp.sin(fake)[0]]


def with_another_step(n: Nets) -> Any:
    fake, other = n.fake(), fnp.sin(n.e)
    n.judged(fake.detach()).backward()
    apart = fnp.cos(n.d)
    fnp.sum((fake @ apart) * other).backward()
    return [fake, other, apart]


def a_pass_in_a_pass(n: Nets) -> Any:
    """A hook goes back through what the pass that calls it needs, or has not reached yet."""
    found = []
    for both, inside in itertools.product((False, True), repeat=2):
        h = fnp.sin(n.e)
        first, second = fnp.sum(h * n.e), fnp.sum(h * 3.0)
        float(second)  # a stretch ends
        parts = [first, second][: 1 + both]

        def hook(_: Any, parts: list[Any] = parts if inside else []) -> None:
            for part in parts:
                part.backward(retain_graph=both and part is parts[0])

        total = sum(parts) * 2.0
        total.register_hook(hook)
        found.append(outcome(total.backward))
    return found


PROGRAMS: list[Callable[[Nets], Any]] = [
    *[of_gan, of_three_parts, to_one_leaf, after_a_read, of_several_outputs, freed_before],
    *[kept_graph, written_between, others_written_between],
    *[first_once_more, second_once_more, nodes_are_read],
    *[hooks, by_grad, in_place_on_it, never_differentiated, with_another_step],
    a_pass_in_a_pass,
]


def results(program: Callable[[Nets], Any], nets: Nets, around: Any = nullcontext()) -> Any:
    """What a step gives, with the gradients and parameters that it leaves; or its error."""

    def run() -> Any:
        with around:
            return program(nets)

    found = outcome(run)
    grads = outcomes(*[p.grad for p in nets.leaves])
    for p in nets.leaves:
        p.grad = None
    return found, grads, outcomes(*[p.detach() for p in nets.leaves])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_steps_are_as_without_replay(program):
    def run() -> Any:
        nets = Nets()
        return [results(program, nets) for _ in range(CALLS)]

    law(run, calls=1, modes=modes_of(program.__name__))


def test_interrupts():
    assert_interrupts(lambda: results(of_gan, Nets()), 40)


FINALIZERS: dict[str, Callable[[fad.Tensor], Any]] = {
    "reads a node": lambda t: t.grad_fn,
    "reads a value": lambda t: t.tolist(),
    "reads a node and a value": lambda t: (t.tolist(), t.grad_fn),
    "reads a detached copy": lambda t: t.detach().tolist(),
    "computes": lambda t: (t * 1.25).shape,
    "computes and reads": lambda t: fnp.sin(t).sum().item(),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_finalizers_at_random_places(program, full):
    """One that uses a Tensor which the program has by then changes nothing, nor is it remembered."""
    draw = random.Random(program.__name__)
    with off():
        expected = results(program, Nets())
    for _ in range(500 if full else 12 if program is of_gan else 3):
        what, number, first = draw.choice(list(FINALIZERS)), draw.randrange(1, 5000), draw.random()
        case = f"place {number}: {what}"

        def act(what: str = what, first: float = first) -> None:
            frame = sys._getframe()
            while frame is not None and frame.f_code is not program.__code__:
                frame = frame.f_back
            known = [] if frame is None else [*frame.f_locals.values()]
            known = [t for t in known if isinstance(t, fad.Tensor)]
            if known:
                FINALIZERS[what](known[int(first * len(known))])

        if draw.random() < 0.3:
            fad.autograd.compiled.clear_cache()
        with replay("at once"):
            during = results(program, Nets(), at_finalizers(number, act))
            assert_idle(case)
            assert during == results(program, Nets()) == expected, case
