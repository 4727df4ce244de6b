"""Replay: a repeated trace runs as one program. Nothing but ``fad/__init__`` imports it.

Operations go in, from the core (`fad.core.replay_protocol`); lazy Tensors and programs come out. Read first
NOTE [traces] in `fad.replay.trace`; then `policy` and `inputs`; `program` and `states`, which have what was
seen so far; `segment`, which has what has run and may be differentiated; and `trace`, what is deferred now.
"""

from __future__ import annotations

from fad.core.primitive import forget_shapes
from fad.core.replay_protocol import seam
from fad.replay.policy import at_once, steps_begun
from fad.replay.program import worker
from fad.replay.states import forget_outcomes, tree
from fad.replay.trace import open_step, open_trace

__all__ = ["Engine", "install"]


class Engine:
    """See `fad.core.replay_protocol.Replay`."""

    __slots__ = ()

    open = staticmethod(open_trace)
    open_step = staticmethod(open_step)
    log = staticmethod(tree.ended)

    def cache_info(self) -> dict[str, int]:
        programs = [e.program for e in tree.endings() if e.program is not None]
        return {
            "structures": len(tree.roots),
            "compiled": sum(p.call is not None for p in programs),
            "hits": tree.hits,
            "queued": len(worker.queue),
            "refused": sum(bool(p.refused) for p in programs),
        }

    def clear_cache(self) -> None:
        tree.forget()
        tree.hits = 0
        forget_outcomes()
        steps_begun.clear()
        forget_shapes()

    def compile_at_once(self, on: bool) -> None:
        at_once.append(True) if on else at_once.pop()


def install() -> None:
    """Put the engine behind the seam of the core."""
    seam.replay = Engine()
