"""Threads that replay the same functions at once, and threads that read what another one is computing.

The law: each result is, bit for bit, that of one thread alone with replay off; no thread hangs or leaves
a level behind. Python switches between the threads as often as it can.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from replays import (
    MODES,
    TIMES,
    TRANSFORMS,
    bare,
    in_threads,
    off,
    one_mode,
    outcome,
    replay,
    shown,
)

import fad
import fad.numpy as fnp

THREADS = 8
X = jnp.array([0.5, 1.0, 1.5, 2.0])
LEAF = fad.tensor([0.3, -0.7, 1.1, 0.2], requires_grad=True)


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    fad.autograd.compiled.clear_cache()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def f(x: Any) -> Any:
    y = fnp.tanh(x * 0.5) + x[::-1]
    return fnp.sum(y * y + fnp.sin(x))


def asked() -> Any:
    loss = f(LEAF * X)
    return [loss, *fad.autograd.grad(loss, LEAF)]


OF_F = ("grad", "value and grad", "jvp", "vmap", "vmap of grad", "hessian", "dual level", "tape")
PROGRAMS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: TRANSFORMS[name](f)(X) for name in OF_F},
    "a leaf that is closed over": lambda: fad.grad(lambda x: f(x) * f(LEAF.detach()))(X),
    "a leaf of the tape": asked,
}


EACH = [((name,), mode) for name in PROGRAMS for mode in one_mode(name)]


@pytest.mark.parametrize(("names", "mode"), [*EACH, *[((*PROGRAMS,), mode) for mode in MODES]])
def test_programs_in_all_threads(names: tuple[str, ...], mode: str, full: bool) -> None:
    """Each alone, and all at once."""
    with off():
        expected = {name: outcome(PROGRAMS[name]) for name in names}

    def work(seed: int) -> None:
        draw = random.Random(seed)
        with replay(mode):
            for k in range((40 if full else 1) * TIMES * min(len(names), 5)):
                name = draw.choice(names)
                assert outcome(PROGRAMS[name]) == expected[name], f"call {k}: {name}"

    in_threads([lambda seed=seed: work(seed) for seed in range(THREADS)], timeout=300.0)


@pytest.mark.parametrize("mode", MODES)
def test_replay_that_one_thread_switches_off_is_on_in_the_others(mode: str) -> None:
    with off():
        expected = outcome(PROGRAMS["value and grad"])

    def work(k: int) -> None:
        for n in range(4 * TIMES):
            with off() if (n + k) % 2 else replay(mode):
                assert outcome(PROGRAMS["value and grad"]) == expected, n
            if k == 0 and n % TIMES == 0:
                fad.autograd.compiled.clear_cache()

    in_threads([lambda k=k: work(k) for k in range(THREADS)])


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_added_up_without_loss(mode: str) -> None:
    """The numbers are small integers, so that the order of the sums does not matter."""
    leaf = fad.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    data = jnp.array([1.0, -2.0, 3.0, 2.0])

    def work() -> None:
        with replay(mode):
            for _ in range(20):
                (leaf * data * 2.0 + leaf * leaf).sum().backward()

    in_threads([work] * THREADS)
    expected = THREADS * 20 * (2.0 * np.asarray(data) + 2.0 * np.arange(1.0, 5.0))
    assert leaf.grad.tolist() == expected.tolist()


READS: list[Callable[[Any], Any]] = [
    lambda y: fad.stop_gradient(y).array,
    lambda y: bare(y),
    lambda y: fad.stop_gradient(y).numpy().copy(),
    lambda y: np.array(y.tolist(), np.float32),
    lambda y: bare(fad.stop_gradient(y) * 1.0),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["grad", "value and grad", "jvp", "dual level", "tape"])
def test_values_that_are_read_while_they_are_computed(name: str, mode: str, full: bool) -> None:
    """Three threads read; one computes, and its results are right too, as long as it goes on."""
    latest: list[Any] = [None]
    done = threading.Event()

    def call(note: Callable[[Any], None]) -> Any:
        def g(x: Any) -> Any:
            y = fnp.tanh(x * 0.5)
            note(y)
            z = y
            for _ in range(12):
                z = z * 0.9 + y
            note(z)
            return fnp.sum(z * y)

        return shown(TRANSFORMS[name](g)(X))

    known: list[list[float]] = []
    with off():
        expected = call(lambda y: known.append(fad.stop_gradient(y).tolist()))

    def compute() -> None:
        try:
            with replay(mode):
                for k in range(200 if full else 24):
                    count = iter(range(100))
                    found = call(lambda y, count=count: latest.__setitem__(0, (next(count), y)))
                    assert found == expected, k
        finally:
            done.set()

    def look(seed: int) -> None:
        draw, seen = random.Random(seed), None
        while not done.is_set():
            now = latest[0]
            if now is None or now is seen:
                continue
            for _ in range(draw.randrange(300)):  # somewhere in the middle of what comes after it
                pass
            seen = now
            assert np.asarray(draw.choice(READS)(now[1])).tolist() == known[now[0]]

    in_threads([compute, *[lambda seed=seed: look(seed) for seed in range(3)]])
