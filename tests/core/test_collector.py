"""The garbage collector waits for threads that trace."""

from __future__ import annotations

import gc
import threading
import time

from fad.core import collector


def test_the_collector_runs_while_a_thread_that_traces_sleeps() -> None:
    collected = threading.Event()
    done = threading.Event()

    @collector.without_collector
    def trace() -> tuple[bool, bool]:
        before = gc.isenabled()
        while not collected.is_set():
            collector.sleep(0.001)
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
