"""Numbers that are equal and not the same, and what tells them apart: their bits."""

from __future__ import annotations

from typing import Any

import numpy as np

NAN = float("nan")
# Each is equal to the first of its row, but for NaN, which is equal to nothing.
ALIKE: list[list[Any]] = [
    [
        0.0,
        -0.0,
        0,
        False,
        0j,
        complex(0.0, -0.0),
        complex(-0.0, 0.0),
        np.float32(0),
        np.float32(-0.0),
    ],
    [1, True, 1.0, 1 + 0j, complex(1.0, -0.0), np.float32(1), np.float64(1), np.int32(1)],
    [complex(-1, 0.0), complex(-1, -0.0), -1, -1.0],
    [2j, complex(-0.0, 2), np.complex64(2j), np.complex64(complex(-0.0, 2))],
]
COMPLEX = [complex(a, b) for a in (1.0, -1.0, 0.0, -0.0) for b in (0.0, -0.0, 2.0)]


def bits(x: Any) -> tuple[Any, bytes]:
    x = np.asarray(x)
    return x.dtype, x.tobytes()
