"""The laws of vmap: each finds its fault without the others, on lanes that differ."""

from __future__ import annotations

import numpy as np
import pytest
from functions import Product
from law_cases import check_that_it_holds, check_that_it_is_found_alone, laws_of
from wrong_rules import X, Y

from fad.testing import batch_laws
from fad.testing.batch_laws import combinations, lane, lanes
from fad.testing.cases import Case, Subject

NAMES = laws_of(batch_laws)


@pytest.mark.parametrize("law", NAMES)
def test_each_law_finds_what_breaks_it(law: str) -> None:
    check_that_it_is_found_alone(law)


def test_they_hold_for_right_rules() -> None:
    check_that_it_holds(Product, X, Y, laws=NAMES)


def test_combinations_begin_with_the_plainest_and_name_what_is_new() -> None:
    assert combinations(1, every=False) == [((0,), -1), ((-1,), 0)]
    two = combinations(2, every=False)
    assert two[0] == ((0, 0), -1) and ((None, 0), 0) in two and ((0, -1), 1) in two
    every = [dims for dims, _ in combinations(3, every=True)]
    assert len(every) == len(set(every)) == 3**3 - 1  # all but the one that maps nothing
    assert all([any([d is not None for d in dims]) for dims in every])


@pytest.mark.parametrize("size", [0, 1, 3])
def test_lanes_differ_and_are_found_again(size: int) -> None:
    case = Case(Subject(Product, (X, Y), {}), [X, Y])
    for dims in ((0, 0), (None, -1), (-1, None)):
        batched = lanes(case, dims, size)
        assert [b.ndim for b in batched] == [1 + (d is not None) for d in dims]
        rows = [lane(batched, dims, k) for k in range(size)]
        for k, (a, d) in enumerate(zip((X, Y), dims)):
            assert all([r[k].shape == a.shape for r in rows])
            if d is not None:
                assert len({r[k].tobytes() for r in rows}) == size
        if size:
            np.testing.assert_array_equal(rows[0], [X, Y])  # the first lane is the case itself
