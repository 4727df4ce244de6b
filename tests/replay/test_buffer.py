"""What is appended and what is not: a call that is refused, or that fails, leaves nothing behind."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from replays import hits, last_trace, same

import fad
import fad.numpy as fnp
from fad.errors import GradientError
from fad.replay import states
from fad.replay.program import Program, worker

X = jnp.array([0.5, 1.0, 1.5])
LARGE = jnp.ones((20_000, 1))

pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_arguments_of_an_untracked_operation_that_is_not_deferred_are_no_inputs() -> None:
    """`fnp.multiply(small, LARGE)` is run at once; `small` is an input of what takes it later."""
    given: dict[str, Any] = {}

    def f(x: Any) -> Any:
        fnp.multiply(given["small"], LARGE)
        a = x * given["other"]
        b = a[0] * given["small"]
        return fnp.sum(b) / b.shape[0]

    for size in (1, 1, 1, 2, 2, 1, 2):
        given.update(small=fad.tensor(jnp.ones(size)), other=fad.tensor(jnp.arange(1.0, 4.0)))
        got = fad.value_and_grad(f)(X)
        with fad.autograd.compiled(False):
            same(got, fad.value_and_grad(f)(X))


def test_an_operation_on_what_has_failed_raises_and_the_next_ones_are_deferred() -> None:
    w = fad.tensor(X, requires_grad=True)

    def step(v: Any) -> Any:
        h = fnp.sin(w) * v
        return h, fnp.sum(h * h)

    for _ in range(4):
        step(jnp.ones(3))[1].backward()
    deleted = jnp.ones(3) * 1.0
    h = step(deleted)[0]
    deleted.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        _ = h.array
    with pytest.raises(RuntimeError, match="deleted"):
        fnp.sin(w) * h
    before = hits()
    for _ in range(4):
        step(jnp.ones(3))[1].backward()
    assert hits() >= before + 3


def nested(both: bool, inside: bool) -> Any:
    """A step whose hook goes back through what the pass that calls it has not reached yet."""

    def step(w: Any) -> Any:
        h = fnp.sin(w)
        y1, y2 = fnp.sum(h * w), fnp.sum(h * 3.0)
        float(y2)  # a stretch ends
        z = y1 * 2.0 + y2 if both else y1 * 2.0

        def hook(_: Any) -> None:
            if inside:
                y1.backward(retain_graph=both)
                if both:
                    y2.backward()

        z.register_hook(hook)
        z.backward()

    return step


@pytest.mark.parametrize("both", [False, True])
def test_a_pass_in_a_pass_frees_what_the_outer_one_needs(both: bool) -> None:
    w = fad.tensor(X, requires_grad=True)
    good, bad = nested(both, False), nested(both, True)
    for _ in range(3):
        for replays in (True, False):
            with fad.autograd.compiled(replays), pytest.raises(GradientError, match="second time"):
                bad(w)
        grads = []
        for replays in (True, False):
            w.grad = None
            with fad.autograd.compiled(replays):
                good(w)
            grads.append(np.asarray(w.grad))
        np.testing.assert_array_equal(*grads)


def test_the_log_names_the_function_that_has_run() -> None:
    def first(x: Any) -> Any:
        y = fnp.sin(x)
        return fnp.sum(y) if y[0].item() > 0 else fnp.sum(x)

    def second(x: Any) -> Any:
        y = fnp.cos(x) * x
        return fnp.sum(y) if y[0].item() > 0 else fnp.sum(x)

    for f in (first, second, first):
        for _ in range(4):
            fad.grad(f)(X)
        assert last_trace().startswith(f"{f.__name__} (")


def test_programs_that_ran_are_counted_on_when_the_table_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fad.grad(lambda x: fnp.sum(fnp.sin(x) * 1.1))
    for _ in range(4):
        f(X)
    before = hits()
    monkeypatch.setattr(states, "CAPACITY", 1)
    fad.grad(lambda x: fnp.sum(x * 3.0))(X)
    assert hits() >= before > 0
    fad.autograd.compiled.clear_cache()
    assert hits() == 0


def test_a_thread_that_cannot_start_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker, "thread", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not type(worker).submit(worker, Program("f", lambda x: x, 1), [])
    assert worker.thread is None and not worker.queue and not worker.busy
    w = fad.tensor(X, requires_grad=True)
    fnp.sum(fnp.sin(w) * w).backward()
    np.testing.assert_allclose(w.grad.array, jnp.cos(X) * X + jnp.sin(X), rtol=1e-6)
