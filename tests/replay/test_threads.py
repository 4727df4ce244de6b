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
from replays import MODES, TIMES, assert_idle, bare, bits, in_threads, off, replay

import fad
import fad.numpy as fnp

THREADS = 8
X = jnp.array([0.5, 1.0, 1.5, 2.0])
ROWS = jnp.stack([X, X + 1.0, X - 1.0])
W = np.array([0.3, -0.7, 1.1, 0.2], np.float32)
LEAF = fad.tensor(W, requires_grad=True)


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


def shared(x: Any) -> Any:
    """It closes over a leaf of the tape, so that its gradient has a node of its own."""
    return fnp.sum(fnp.sin(x) * LEAF.detach() + x * x)


def step() -> Any:
    w = fad.tensor(W, requires_grad=True)
    losses = []
    for k in range(2):
        loss = f(w * X + float(k))
        loss.backward()
        losses.append(loss.detach())
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
    return [w.detach(), losses]


def asked() -> Any:
    loss = f(LEAF * X)
    return [loss.detach(), *fad.autograd.grad(loss, LEAF)]


def dual() -> Any:
    with fad.dual_level():
        return list(fad.unpack_dual(f(fad.make_dual(X, X + 1.0))))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "grad": lambda: fad.grad(f)(X),
    "value_and_grad": lambda: fad.value_and_grad(f)(X),
    "a leaf that is closed over": lambda: fad.grad(shared)(X),
    "jvp": lambda: fad.jvp(f, (X,), (X,)),
    "vmap": lambda: fad.vmap(f)(ROWS),
    "vmap of grad": lambda: fad.vmap(fad.grad(f))(ROWS),
    "hessian": lambda: fad.hessian(f)(X),
    "jacfwd": lambda: fad.jacfwd(lambda x: x * fnp.sin(x))(X),
    "dual_level": dual,
    "step": step,
    "a shared leaf": asked,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_in_all_threads(name: str, mode: str) -> None:
    program = PROGRAMS[name]
    with off():
        expected = bits(program())

    def work() -> None:
        with replay(mode):
            for k in range(3 * TIMES):
                assert bits(program()) == expected, f"call {k}"

    in_threads([work] * THREADS)
    assert_idle()


@pytest.mark.parametrize("mode", MODES)
def test_all_programs_in_all_threads(mode: str, full: bool, rng: np.random.Generator) -> None:
    with off():
        expected = {name: bits(program()) for name, program in PROGRAMS.items()}
    seeds = [int(n) for n in rng.integers(1 << 30, size=THREADS)]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        with replay(mode):
            for k in range(1_000 if full else 60):
                name = draw.choice(list(PROGRAMS))
                assert bits(PROGRAMS[name]()) == expected[name], f"call {k}: {name}"
                assert_idle(name)

    in_threads([lambda seed=seed: work(seed) for seed in seeds], timeout=300.0)


@pytest.mark.parametrize("mode", MODES)
def test_replay_that_one_thread_switches_off_is_on_in_the_others(mode: str) -> None:
    with off():
        expected = bits(PROGRAMS["value_and_grad"]())

    def work(k: int) -> None:
        for n in range(4 * TIMES):
            with off() if (n + k) % 2 else replay(mode):
                assert bits(PROGRAMS["value_and_grad"]()) == expected, n
            if k == 0 and n % TIMES == 0:
                fad.autograd.compiled.clear_cache()

    in_threads([lambda k=k: work(k) for k in range(THREADS)])


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_added_up_without_loss(mode: str) -> None:
    """The numbers are small integers, so that the order of the sums does not matter."""
    leaf = fad.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    data = jnp.array([1.0, -2.0, 3.0, 2.0])
    count = 20

    def work() -> None:
        with replay(mode):
            for _ in range(count):
                (leaf * data * 2.0 + leaf * leaf).sum().backward()

    in_threads([work] * THREADS)
    expected = THREADS * count * (2.0 * np.asarray(data) + 2.0 * np.arange(1.0, 5.0))
    assert bits(leaf.grad) == bits(expected.astype(np.float32))


READS: dict[str, Callable[[Any], Any]] = {
    "array": lambda y: fad.stop_gradient(y).array,
    "detach": lambda y: bare(y),
    "numpy": lambda y: fad.stop_gradient(y).numpy().copy(),
    "tolist": lambda y: np.array(y.tolist(), np.float32),
    "float": lambda y: np.array(
        [float(v) for v in fad.stop_gradient(y).tolist()], np.float32
    ).reshape(y.shape),
    "computes": lambda y: bare(fad.stop_gradient(y) * 1.0),
}


def _published(run: Callable[[Callable[[Any], Any]], Any], note: Callable[[Any], None]) -> Any:
    def g(x: Any) -> Any:
        y = fnp.tanh(x * 0.5)
        note(y)
        z = y
        for _ in range(6):
            z = z * x + y
        note(z)
        return fnp.sum(z * y)

    return run(g)


def _of_dual(g: Callable[[Any], Any]) -> Any:
    with fad.dual_level():
        return list(fad.unpack_dual(g(fad.make_dual(X, X + 1.0))))


def _of_tape(g: Callable[[Any], Any]) -> Any:
    w = fad.tensor(X, requires_grad=True)
    loss = g(w)
    loss.backward()
    return [loss.detach(), w.grad]


WRITERS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda g: fad.grad(g)(X),
    "value_and_grad": lambda g: fad.value_and_grad(g)(X),
    "jvp": lambda g: fad.jvp(g, (X,), (X,)),
    "dual_level": _of_dual,
    "tape": _of_tape,
}


CASES = [(w, r, m) for w in WRITERS for r in READS for m in MODES]


@pytest.mark.full
@pytest.mark.sweep("case", CASES, ids=str)
def test_values_that_are_read_while_they_are_computed(
    case: tuple[str, str, str], rng: np.random.Generator
) -> None:
    """Three threads read; one computes, and its results are right too, as long as it goes on."""
    writer, how, mode = case
    read = READS[how]
    known: list[bytes] = []
    with off():
        expected = bits(
            _published(
                WRITERS[writer], lambda y: known.append(bare(fad.stop_gradient(y)).tobytes())
            )
        )
    assert len(known) == 2
    latest: list[Any] = [None]
    done = threading.Event()
    seeds = [int(n) for n in rng.integers(1 << 30, size=3)]

    def compute() -> None:
        try:
            with replay(mode):
                for k in range(100):
                    values: list[Any] = []

                    def note(y: Any, values: list[Any] = values) -> None:
                        latest[0] = (len(values), y)
                        values.append(y)

                    assert bits(_published(WRITERS[writer], note)) == expected, f"call {k}"
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
            assert np.asarray(read(now[1])).tobytes() == known[now[0]], how

    in_threads([compute, *[lambda seed=seed: look(seed) for seed in seeds]])


def test_values_of_a_step_that_are_read_while_it_is_traced() -> None:
    w, latest, done = fad.tensor(W, requires_grad=True), [None], threading.Event()

    def compute() -> None:
        try:
            for _ in range(400):
                w.grad = None
                y = z = latest[0] = fnp.tanh(w * X)
                for _ in range(20):
                    z = z + w
                (y * 2.0 + z - y).sum().backward()
                np.testing.assert_allclose(w.grad.array, 20 + 2 * X * (1 - y.array**2), rtol=1e-5)
        finally:
            done.set()

    def read() -> None:
        draw, seen = random.Random(0), None
        while not done.is_set():
            y = latest[0]
            if y is not None and y is not seen:
                for _ in range(draw.randrange(300)):  # somewhere in the middle of what comes after
                    pass
                np.testing.assert_allclose(y.detach().array, np.tanh(W * X), rtol=1e-5)
                seen = y

    in_threads([compute, read])
