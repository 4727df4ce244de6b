"""Keys of static values: equal keys mean the same value to every function.

Python's ``==`` does not give such keys. ``0.0 == -0.0`` and ``1 == 1.0 == True``, with equal hashes, so
a dict would return the entry of one for the other. NaN is not equal to itself, so it would never be
found.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np


def exact(value: Any) -> Hashable:
    """A key of ``value``: numbers by type and bits, also inside of tuples; other things by ``==``.

    Raises:
        TypeError: the value is not hashable.

    >>> exact(0.0) == exact(-0.0), exact((1,)) == exact((True,)), exact(1) == exact(1)
    (False, False, True)
    """
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, tuple):
        return kind, *map(exact, value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if kind is frozenset:
        return kind, frozenset(map(exact, value))
    hash(value)
    return kind, value
