"""How a thread that traces and lowers programs yields the GIL to other threads.

NOTE [pace]

    deep = lambda x: functools.reduce(lambda a, k: fnp.sin(a) * k, range(300), x)
    threading.Thread(target=fad.jit(deep), args=(1.0,)).start()  # traces for a second
    for _ in range(300):
        x = x + 1.0  # without a pause of the other thread, 5 ms each

A thread that returns from XLA has to acquire the GIL. If another thread holds it, Python asks that
thread to release it only after 5 ms. So while one thread traces a program, each operation of the others
would take 5 ms. Therefore the tracing thread checks, after each operation that it has traced or lowered
(`fad.core.exact_programs.barrier`), whether it has worked for ``WORK`` seconds. If so, it releases the GIL
for ``MOMENT`` seconds. If it does not get the GIL back at once, other threads need it, and it sleeps for
``SLEEP`` seconds. This changes timing only, never a result.
"""

from __future__ import annotations

import threading
import time

from fad.core.collector import sleep


class Pace(threading.local):
    """Per thread: whether it ``yields`` the GIL, and when it last did (``began`` to work again)."""

    WORK = 0.0003
    MOMENT = 0.00005
    SLEEP = 0.002
    yields = False
    began = 0.0

    def yield_gil(self) -> None:
        """Release the GIL if this thread ``yields`` and has worked for ``WORK`` seconds since it last
        did.
        """
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
