"""How a thread that traces and lowers programs yields the GIL to other threads.

NOTE [pace]

A thread that has to acquire the GIL after a call into XLA waits until the thread that has it releases it,
which Python requests after 5 ms: while another thread traces a program, each operation would take so long.
So the thread that traces releases the GIL for a moment, after ``WORK`` seconds, wherever it has traced or
lowered an operation (`fad.core.jaxapi.barrier`). If it does not get the GIL back at once, other threads need
it, and it sleeps for ``SLEEP`` seconds. No number depends on it.
"""

from __future__ import annotations

import threading
import time

from fad.core.collector import sleep

__all__ = ["pace"]


class Pace(threading.local):
    """For each thread, whether it yields the GIL, and when it did last."""

    WORK = 0.0003
    MOMENT = 0.00005
    SLEEP = 0.002
    yields = False
    began = 0.0

    def yield_gil(self) -> None:
        """In a thread that ``yields``: release the GIL, if it has worked for long enough."""
        if not self.yields:
            return
        now = time.perf_counter()
        if now - self.began < self.WORK:
            return
        time.sleep(self.MOMENT)
        self.began = time.perf_counter()
        if self.began - now > 10 * self.MOMENT:
            sleep(self.SLEEP)
            self.began = time.perf_counter()


pace = Pace()
