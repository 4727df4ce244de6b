"""The switch of replay: `fad.autograd.compiled`."""

from __future__ import annotations

from typing import Self

from fad.core.level import flush, state
from fad.core.replay_protocol import seam

__all__ = ["compiled"]


class compiled:
    """Switch replay: at once, and until the ``with`` block ends.

    Repeated functions in transforms, steps of the eager tape and backward passes are compiled in the
    background, and then run as one program. Results are the same either way; see docs/performance.md.

    Arguments:
        mode: whether what repeats is replayed.
        wait: compile at once, in the calling thread, also what is new: for tests and benchmarks.

    ``compiled.cache_info()`` counts what is cached (``structures``), ``compiled``, ``queued`` and
    ``refused``, and how often programs ran (``hits``); ``compiled.clear_cache()`` drops all of it;
    ``compiled.explain()`` says how the last traces ended.

    >>> import fad
    >>> with fad.autograd.compiled(False):
    ...     fad.grad(lambda x: x * x)(3.0).item()
    6.0
    """

    __slots__ = ("_before", "_wait")

    def __init__(self, mode: bool = True, *, wait: bool = False) -> None:
        self._before = state.replaying
        self._wait = bool(wait and mode)
        if not mode:
            flush()
        state.replaying = bool(mode)
        if self._wait:
            seam.replay.compile_at_once(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        state.replaying = self._before
        if self._wait:
            self._wait = False
            seam.replay.compile_at_once(False)

    @staticmethod
    def cache_info() -> dict[str, int]:
        """Counts of what is cached, compiled, queued and refused, and of how often programs ran."""
        return seam.replay.cache_info()

    @staticmethod
    def clear_cache() -> None:
        """Forget everything that was compiled."""
        seam.replay.clear_cache()

    @staticmethod
    def explain() -> str:
        """How the last traces ended: replayed or not, and which guard failed."""
        return seam.replay.explain()
