"""Which values are referenced, and whether single operations are observed."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from fad.core import jaxapi
from fad.core.level import state
from fad.tape.anomaly import mode as anomaly
from fad.tape.saved import UNCHANGED

__all__ = ["is_unobserved", "referenced"]


def referenced(values: Sequence[Any], containers: int = 1) -> list[int]:
    """The places of the values that something refers to, besides so many lists or tuples."""
    alone = _ALONE + containers - 1
    return [k for k, count in enumerate(_references(values)) if count > alone]


def _references(values: Sequence[Any]) -> list[int]:
    return [getrefcount(v) for v in values]


_ALONE = _references([object()])[0]


def is_unobserved() -> bool:
    """Whether no mode is on that observes single operations."""
    return not (
        anomaly.watch
        or state.inference is not None
        or jaxapi.checks_numbers()
        or any([hooks is not UNCHANGED for hooks in state.saved_hooks])
    )
