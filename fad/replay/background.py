"""The thread that compiles in the background.

XLA compiles outside of the GIL. When the process ends, the thread finishes what it is at; in a forked child
it does not exist.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fad.core.threads import pace
from fad.core.types import Aval

if TYPE_CHECKING:
    from fad.replay.program import Program

LONGEST_QUEUE = 256  # what is queued; the rest is submitted again at a later call


class _Worker:
    """One thread for all, which compiles what is queued, in order. It is at the first in the ``queue``."""

    def __init__(self) -> None:
        self._reset()
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=lambda: self.compiling.acquire(),
                after_in_parent=lambda: self.compiling.release(),
                after_in_child=lambda: self._reset(stopped=True),
            )

    def _reset(self, stopped: bool = False) -> None:
        """Begin anew; ``stopped`` in a forked child: the threads of XLA do not exist there."""
        self.changed = threading.Condition()
        self.compiling = threading.RLock()  # locked while the thread compiles, and by forks
        self.queue: list[tuple[weakref.ref[Program], Sequence[Aval]]] = []
        self.thread: threading.Thread | None = None
        self.stopped = stopped

    def submit(self, program: Program, avals: Sequence[Aval]) -> bool:
        """Have a program compiled for arrays of these avals; False if that cannot be."""
        with self.changed:
            if self.stopped or len(self.queue) >= LONGEST_QUEUE:
                return False
            if self.thread is None:
                thread = threading.Thread(target=self._work, name="fad-compile", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # there are too many, or the process ends
                    return False
                self.thread = thread
            self.queue.append((weakref.ref(program), avals))
            self.changed.notify_all()
        return True

    def _work(self) -> None:
        pace.yields = True
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.queue or self.stopped)
                if self.stopped:
                    return
                reference, avals = self.queue[0]
            program = reference()
            if program is not None:
                with self.compiling:
                    program.compile(avals)
            del program, self.queue[:1]

    def stop(self) -> None:
        """Finish the program that is being compiled, and no other: the process ends."""
        with self.changed:
            self.stopped = True
            self.queue.clear()
            self.changed.notify_all()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join()


worker = _Worker()
