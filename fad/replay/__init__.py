"""Replay: a repeated trace runs as one program. Nothing but ``fad/__init__`` imports it.

Operations go in, from the core (`fad.core.replay_protocol`); lazy Tensors and programs come out. Read first
NOTE [traces] in `fad.replay.trace`; then `settings`, `policy` and `inputs`; `program`, `states`, `outcomes`
and `next_states`, which have what was seen so far; `entries`, `buffer`, `untracked`, `writes` and `stretch`,
which have what is deferred now; `program_node`, `trace` and `opening`. `compiled_backward` stands by itself.
"""

from __future__ import annotations

from fad.core.primitive import forget_shapes
from fad.core.replay_protocol import seam
from fad.replay import compiled_backward, states
from fad.replay.log import explain
from fad.replay.opening import open_step, open_trace
from fad.replay.outcomes import forget_outcomes
from fad.replay.policy import at_once, forget_steps
from fad.replay.program import worker

__all__ = ["Engine", "install"]


class Engine:
    """See `fad.core.replay_protocol.Replay`."""

    __slots__ = ()

    open = staticmethod(open_trace)
    open_step = staticmethod(open_step)
    backward = staticmethod(compiled_backward.backward)
    explain = staticmethod(explain)

    def cache_info(self) -> dict[str, int]:
        passes = compiled_backward.structures.values()
        endings = [*states.endings(), *passes]
        programs = [e.program for e in endings if e.program is not None]
        return {
            "structures": len(states.tree.roots) + len(passes),
            "compiled": sum(p.call is not None for p in programs),
            "hits": states.tree.hits + states.tree.passes,
            "queued": worker.busy,
            "refused": sum(bool(p.refused) for p in programs),
        }

    def clear_cache(self) -> None:
        worker.clear()
        states.clear_cache()
        compiled_backward.structures.clear()
        compiled_backward.policy.failures = 0
        forget_outcomes()
        forget_steps()
        forget_shapes()

    def compile_at_once(self, on: bool) -> None:
        with at_once.lock:
            at_once.count += 1 if on else -1


def install() -> None:
    """Put the engine behind the seam of the core."""
    seam.replay = Engine()
