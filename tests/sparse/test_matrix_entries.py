"""Patterns that are given as matrices, as pairs of elements."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from fad.errors import RuleError, StructureError
from fad.sparse.matrix_entries import entries_of_pattern, offsets, pairs_of

sparse = importlib.import_module("jax.experimental.sparse")
OUTPUTS = [("output[0]", (2,)), ("output[1]", ())]
ARGUMENTS = [("argument 0", (2, 2))]


def test_pairs_of_shapes_and_flat_ones() -> None:
    dense = np.zeros((2, 2, 2))
    dense[1, 0, 1] = 3.0
    for x in (dense, dense.reshape(2, 4), sparse.BCOO.fromdense(dense)):
        rows, cols = pairs_of("it", x, (2,), (2, 2), RuleError)
        assert (rows.tolist(), cols.tolist()) == ([1], [1])
    assert len(pairs_of("it", None, (2,), (2, 2), RuleError)[0]) == 0


def test_entries_among_all_outputs_are_in_order() -> None:
    assert offsets(OUTPUTS) == [0, 2, 3]
    blocks = (np.eye(2, 4).reshape(2, 2, 2), np.ones((2, 2)))
    for pattern in (blocks, np.vstack([np.eye(2, 4), np.ones((1, 4))])):
        rows, cols = entries_of_pattern(pattern, (0, 0), OUTPUTS, ARGUMENTS, "f")
        assert rows.tolist() == [0, 1, 2, 2, 2, 2]
        assert cols.tolist() == [0, 1, 0, 1, 2, 3]


def test_other_shapes_and_batches_are_refused() -> None:
    with pytest.raises(RuleError, match=r"it has shape \(3,\), expected \(2, 2\)"):
        pairs_of("it", np.ones(3), (2,), (2,), RuleError)
    batched = sparse.BCOO.fromdense(np.ones((2, 2)), n_batch=1)
    with pytest.raises(StructureError, match="n_batch or n_dense"):
        pairs_of("it", batched, (2,), (2,), StructureError)
    outside = sparse.BCOO((np.ones(1), np.array([[-1, 0]])), shape=(2, 2))
    with pytest.raises(StructureError, match="negative index -1"):
        pairs_of("it", outside, (2,), (2,), StructureError)
