"""The garbage collector is off while threads trace."""

from __future__ import annotations

import gc
import threading
import time

import jax
import jax.numpy as jnp
import pytest

import fad
from fad.core import threads


def test_the_collector_runs_while_a_thread_that_traces_sleeps() -> None:
    collected = threading.Event()
    done = threading.Event()

    @threads.without_collector
    def trace() -> tuple[bool, bool]:
        before = gc.isenabled()
        while not collected.is_set():
            threads.sleep(0.001)
        return before, gc.isenabled()

    def look() -> None:
        while not done.is_set() and not gc.isenabled():
            time.sleep(0.0)
        collected.set()

    watcher = threading.Thread(target=look)
    found = []
    tracer = threading.Thread(target=lambda: found.append(trace()))
    tracer.start()
    watcher.start()
    tracer.join(60.0)
    done.set()
    watcher.join(60.0)
    assert found == [(False, False)] and gc.isenabled()


def test_a_finalizer_in_the_sleep_of_a_thread_that_traces_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector may run on that very thread, where all else is traced."""
    x = fad.tensor([1.0, 2.0])
    computed = []

    class Thing:
        def __del__(self) -> None:
            computed.append(x * 2.0 + x.clone())

    @jax.jit
    @threads.without_collector
    def traced(v: jax.Array) -> jax.Array:
        thing = Thing()
        thing.itself = thing  # type: ignore[attr-defined]
        del thing
        threads.sleep(0.0)
        return v + 1.0

    monkeypatch.setattr(threads.time, "sleep", lambda seconds: gc.collect())
    assert traced(jnp.float32(1.0)) == 2.0
    assert computed[0].tolist() == [3.0, 6.0]


def test_a_compiled_function_is_made_with_the_collector_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JAX holds a lock meanwhile: a finalizer that makes another one would wait for it forever."""
    seen = []
    monkeypatch.setattr(
        jax, "jit", lambda f, **options: seen.append((gc.isenabled(), options)) or f
    )
    assert threads.make_jit(abs, inline=True)(-1) == 1
    assert seen == [(False, {"inline": True})] and gc.isenabled()
