"""Sets of entries, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fad.errors import StructureError
from fad.sparse.entries import MOST, couple, send, take, unite

WIDTH = 5
DENSE = np.random.default_rng(0).random((4, WIDTH)) < 0.4


def entries_of(dense: np.ndarray) -> np.ndarray:
    return np.flatnonzero(dense.ravel())


def test_rows_are_taken() -> None:
    source = np.array([3, -1, 0, 0])
    expected = np.where(source[:, None] < 0, False, DENSE[source])
    np.testing.assert_array_equal(take(entries_of(DENSE), source, WIDTH), entries_of(expected))


def test_rows_are_sent() -> None:
    expected = np.stack([DENSE[2], DENSE[0] | DENSE[3]])
    found = send(entries_of(DENSE), np.array([1, -1, 0, 1]), WIDTH)
    np.testing.assert_array_equal(found, entries_of(expected))


def test_union_and_coupling() -> None:
    both = DENSE | DENSE[::-1]
    found = unite([entries_of(DENSE), None, entries_of(DENSE[::-1])])
    np.testing.assert_array_equal(found, entries_of(both))
    coupled = np.broadcast_to(DENSE.any(0), (2, WIDTH))
    np.testing.assert_array_equal(couple(entries_of(DENSE), 2, WIDTH), entries_of(coupled))
    assert unite([None]) is None


def test_too_many_entries_are_refused() -> None:
    with pytest.raises(StructureError, match="it is not sparse"):
        couple(np.arange(WIDTH), MOST, WIDTH)
