"""Replay: a repeated trace runs as one program. Nothing but ``fad/__init__`` imports it.

Operations go in, from the core (`fad.core.replay_protocol`); lazy Tensors and programs come out. Read first
NOTE [traces] in `fad.replay.trace`; then `settings`, `policy` and `inputs`; `program`, `outcomes` and
`states`, which have what was seen so far; `buffer`, `writes` and `stretch`, which have what is
deferred now; `program_node` and `trace`. `compiled_backward` stands by itself.
"""

from __future__ import annotations

from fad.core.primitive import forget_shapes
from fad.core.replay_protocol import seam
from fad.replay import compiled_backward
from fad.replay.outcomes import forget_outcomes
from fad.replay.policy import at_once, steps_begun
from fad.replay.program import worker
from fad.replay.states import tree
from fad.replay.trace import open_step, open_trace

__all__ = ["Engine", "install"]


class Engine:
    """See `fad.core.replay_protocol.Replay`."""

    __slots__ = ()

    open = staticmethod(open_trace)
    open_step = staticmethod(open_step)
    backward = staticmethod(compiled_backward.backward)
    explain = staticmethod(tree.explain)

    def cache_info(self) -> dict[str, int]:
        passes = compiled_backward.structures.values()
        programs = [e.program for e in (*tree.endings(), *passes) if e.program is not None]
        return {
            "structures": len(tree.roots) + len(passes),
            "compiled": sum(p.call is not None for p in programs),
            "hits": tree.hits + tree.passes,
            "queued": worker.busy,
            "refused": sum(bool(p.refused) for p in programs),
        }

    def clear_cache(self) -> None:
        tree.forget()
        tree.hits = tree.passes = compiled_backward.policy.failures = 0
        compiled_backward.structures.clear()
        forget_outcomes()
        steps_begun.clear()
        forget_shapes()

    def compile_at_once(self, on: bool) -> None:
        at_once.append(True) if on else at_once.pop()


def install() -> None:
    """Put the engine behind the seam of the core."""
    seam.replay = Engine()
