"""How a thread that traces and lowers programs lets other threads go on.

NOTE [pace]

Python's threads share one lock. A thread that needs it back after a call into XLA waits until the thread
that has it gives it up, which is asked of that thread after 5 ms: where another thread traces a program, each
operation would take so long. So the thread that traces gives the lock up for a moment, after ``WORK``
seconds, wherever it has traced or lowered an operation (`fad.core.jaxapi.barrier`). If it does not get the
lock back at once, other threads need it, and it sleeps for ``REST`` seconds. No number depends on it.
"""

from __future__ import annotations

import threading
import time

from fad.core.collector import sleep

__all__ = ["pace"]


class Pace(threading.local):
    """For each thread, whether and when it rests."""

    WORK = 0.0003
    MOMENT = 0.00005
    REST = 0.002
    rests = False
    began = 0.0

    def rest(self) -> None:
        """In a thread that ``rests``: sleep, if it has worked for long enough."""
        if not self.rests:
            return
        now = time.perf_counter()
        if now - self.began < self.WORK:
            return
        time.sleep(self.MOMENT)
        self.began = time.perf_counter()
        if self.began - now > 10 * self.MOMENT:
            sleep(self.REST)
            self.began = time.perf_counter()


pace = Pace()
