"""The switch of replay: `fad.autograd.compiled`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Self

from fad.core.faces import tool
from fad.core.jaxapi import keep_compiled
from fad.core.level import flush, state
from fad.core.replay_protocol import seam


class compiled:
    """Switch replay: at once, and until the ``with`` block ends.

    Repeated functions in transforms, steps of the eager tape and backward passes are compiled in the
    background, and then run as one program. Results are the same either way; see docs/replay.md.

    Arguments:
        mode: whether what repeats is replayed.
        wait: compile at once, in the calling thread, also what is new: for tests and benchmarks.

    ``compiled.cache_info()`` counts what is cached (``structures``), ``compiled``, ``queued`` and
    ``refused``, and how often programs ran (``hits``); ``compiled.clear_cache()`` drops all of it;
    ``compiled.explain()`` says how the last traces ended. ``compiled.cache_on_disk()`` keeps what XLA
    compiles for later processes.

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
        """How the last traces ended: what ran as a program, what one by one, and why; the latest last.

        Of equal lines there is one, with their number. ``then 12 nodes one by one``: before the next trace so
        many nodes were recorded or gone through by backward passes. Where steps differ in it, each number
        stands with how often it was (``then 12 (40 ×) or 500 (3 ×) nodes one by one``); of more than three
        numbers there are the least and the most.
        """
        text: str = tool("hints.replay").explanation(seam.replay.log())
        return text

    @staticmethod
    def cache_on_disk(folder: str | os.PathLike[str] | None = None) -> str:
        """Keep what XLA compiles in a folder, where later processes find it: JAX's compilation cache.

        Programs of any size and compile time are kept, JAX's own included: fad's are many and small,
        below the thresholds that JAX has by default. This sets ``jax_compilation_cache_dir``,
        ``jax_persistent_cache_min_compile_time_secs`` and ``jax_persistent_cache_min_entry_size_bytes``
        for the process. Call it first: what has been compiled is not written. The folder grows without
        bound, unless ``jax_compilation_cache_max_size`` (bytes) is set. A process runs what it reads there:
        no other user should be able to write to it.

        Arguments:
            folder: where; by default the folder ``fad`` of the user's cache directory (``$XDG_CACHE_HOME``
                or ``~/.cache``, ``~/Library/Caches`` on macOS, ``%LOCALAPPDATA%`` on Windows).

        Returns:
            The folder. It is made when the first program is compiled.

        >>> import fad
        >>> fad.autograd.compiled.cache_on_disk("compiled")
        'compiled'
        """
        directory = os.fspath(_user_cache() / "fad" if folder is None else folder)
        keep_compiled(directory)
        return directory


def _user_cache() -> Path:
    """The user's cache directory, as the platform has it."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    variable, usual = "XDG_CACHE_HOME", home / ".cache"
    if sys.platform == "win32":
        variable, usual = "LOCALAPPDATA", home / "AppData" / "Local"
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else usual
