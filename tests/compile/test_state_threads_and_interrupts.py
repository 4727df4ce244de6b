"""Rows of the table of docs/functions-and-compiled-calls.md, called by threads at once and interrupted."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import jax
import pytest
from helpers import is_idle
from lines import at_interrupts, interrupt
from steps import described

import fad
import fad.numpy as fnp


def weight(*values: float) -> fad.Tensor:
    return fad.tensor(values, requires_grad=True)


def gradients() -> Any:
    w, x = weight(1.0, 2.0), fad.tensor([3.0, 4.0])
    return (lambda: (w * x).sum().backward()), (), [w]


def gradients_by_name() -> Any:
    w, total = weight(1.0, 2.0), fad.zeros(2)

    def step() -> None:
        (g,) = fad.autograd.grad((w * 3.0).sum(), [w])
        total.add_(g)

    return step, (), [w, total]


def gradient_read_and_cleared() -> Any:
    w, m = weight(1.0, 2.0), fad.zeros(2)

    def step() -> fad.Tensor:
        (w * 3.0).sum().backward()
        with fad.no_grad():
            m.add_(w.grad)
            w.sub_(w.grad * 0.5)
            w.grad = None
        return w.detach() * 1.0

    return step, (), [w, m]


def gradient_zeroed() -> Any:
    w, m = weight(1.0, 2.0), fad.zeros(2)
    w.grad = fad.ones(2)

    def step() -> None:
        w.grad.zero_()
        (w * 3.0).sum().backward()
        m.add_(w.grad)

    return step, (), [w, m]


def written_through_views() -> Any:
    t = fad.zeros(4)
    views = [t[1:3], t.reshape(2, 2)]

    def step() -> fad.Tensor:
        views[0].add_(1.0)
        t[3] += 2.0
        views[1][0].add_(4.0)
        return t.sum()

    return step, (), [t, *views]


def written_by_data() -> Any:
    w = weight(1.0, 2.0)

    def step() -> None:
        w.data.add_(1.0)

    return step, (), [w]


def argument_written_to() -> Any:
    t, n = fad.zeros(2), fad.zeros(())

    def step(x: fad.Tensor) -> fad.Tensor:
        n.add_(1.0)
        return x.add_(2.0)

    return step, (t,), [t, n]


def outside_is_read() -> Any:
    scale, n = fad.tensor(2.0), fad.zeros(())
    return (lambda: n.add_(fnp.square(scale)) * 1.0), (), [scale, n]


def hooks() -> Any:
    w, seen = weight(1.0, 2.0), fad.zeros(2)
    w.register_hook(lambda g: g * 2.0)

    def step() -> None:
        y = w * 3.0
        y.register_hook(lambda g: seen.add_(g) * 1.0)
        y.sum().backward()

    return step, (), [w, seen]


def result_with_history() -> Any:
    w, n = weight(1.0, 2.0), fad.zeros(())

    def step() -> fad.Tensor:
        n.add_(1.0)
        return (w * 3.0).sum()

    return step, (), [w, n]


def state_gets_history() -> Any:
    w, n = weight(1.0, 2.0), fad.zeros(())

    def step() -> fad.Tensor:
        n.add_(w.sum() * 0.0 + 1.0)
        return n * 1.0

    return step, (), [w, n]


ROWS: dict[str, Callable[[], Any]] = {
    f.__name__: f
    for f in (
        gradients,
        gradients_by_name,
        gradient_read_and_cleared,
        gradient_zeroed,
        written_through_views,
        written_by_data,
        argument_written_to,
        outside_is_read,
        hooks,
        result_with_history,
        state_gets_history,
    )
}


def state_of(tensors: list[fad.Tensor]) -> list[Any]:
    """All of these that a step may change, as plain values."""
    return [
        jax.tree.map(lambda v: getattr(v, "tolist", lambda: v)(), described(t)) for t in tensors
    ]


@pytest.mark.parametrize("row", ROWS)
def test_threads_at_once_do_what_calls_in_turn_do(row):
    step, arguments, tensors = ROWS[row]()
    for _ in range(20):
        step(*arguments)
    compiled, arguments, at_once = ROWS[row]()
    compiled, start, failed = fad.jit(compiled), threading.Barrier(4), []

    def work() -> None:
        start.wait()
        try:
            for _ in range(5):
                compiled(*arguments)
        except Exception as error:  # which a thread would only print
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and state_of(at_once) == state_of(tensors)


@pytest.mark.sweep("part", range(8), sample=1)
@pytest.mark.parametrize("first", [True, False], ids=["traced", "settled"])
@pytest.mark.parametrize("row", ROWS)
def test_an_interrupt_leaves_the_state_before_the_call_or_after_it(row, first, part):
    """Also of the first call, which is traced; the next call goes on from there."""

    def made() -> tuple[Callable[[], Any], list[fad.Tensor]]:
        step, arguments, tensors = ROWS[row]()
        compiled = fad.jit(step)
        for _ in range(0 if first else 3):
            compiled(*arguments)
        return (lambda: compiled(*arguments)), tensors

    call, tensors = made()
    states = [state_of(tensors)]
    with at_interrupts(0, interrupt) as moments:
        call()
    states.append(state_of(tensors))
    call()
    states.append(state_of(tensors))
    places = moments.count
    for number in range(1 + part, places, max(1, places // (4 if first else 24))):
        call, tensors = made()
        try:
            with at_interrupts(number, interrupt):
                call()
        except KeyboardInterrupt:
            pass
        assert is_idle()
        left = copy.deepcopy(state_of(tensors))
        assert left in states[:2], (number, places)
        call()
        assert state_of(tensors) == states[states.index(left) + 1], (number, places)
