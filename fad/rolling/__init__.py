"""Rolling: Python loops, which tracing unrolls, become loops again. Nothing but ``fad/__init__`` imports it.

A program comes in, from the library (`fad.core.rolling_protocol`); the same program goes out, with a ``scan``
in place of equations that repeat. Read first NOTE [rolled loops] in `fad.rolling.scans`, which writes them;
`repeats` finds them.
"""

from __future__ import annotations

from fad.core import rolling_protocol
from fad.rolling.scans import rolled

__all__ = ["install"]


def install() -> None:
    """Put it behind the seam of the core."""
    rolling_protocol.roll = rolled
