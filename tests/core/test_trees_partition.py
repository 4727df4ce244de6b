"""Splitting a call: what is traced comes out in order, all else is one key, and both make the whole again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad.core.trees import HOLE, Rest, Static, partition

X = jnp.arange(3.0)
KINDS = (fad.Tensor, jax.Array)


@pytest.mark.parametrize(
    "tree",
    [
        X,
        (X, fad.tensor(1.0)),
        (),
        ((X, "mode"), {"b": X, "a": None}),
        [None, (X,), {"z": 1.0, "y": [X]}],
        "static",
    ],
)
def test_both_parts_make_the_whole(tree):
    traced, rest = partition(tree, KINDS)
    again = rest.combine(traced)
    is_leaf = lambda x: x is None or isinstance(x, fad.Tensor)
    before, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
    after, found = jax.tree.flatten(again, is_leaf=is_leaf)
    assert structure == found
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert all(
        a is b for a, b in zip(traced, [x for x in before if isinstance(x, KINDS)], strict=True)
    )


def rest_of(tree, **options):
    return partition(tree, KINDS, **options)[1]


def test_the_rest_is_a_key_that_ignores_traced_values():
    assert rest_of((X, 2)) == rest_of((fad.tensor(5.0), 2))
    assert hash(rest_of((X, 2))) == hash(rest_of((X + 1, 2)))


@pytest.mark.parametrize(
    "a, b",
    [
        ((X, 1), (X, 1.0)),
        ((X, 0.0), (X, -0.0)),
        ((X, None), (X, ())),
        ((X,), [X]),
        ((X, X), (X, 1.0)),
        ((X, True), (X, 1)),
    ],
)
def test_the_rest_differs_with_what_is_static(a, b):
    assert rest_of(a) != rest_of(b)


def test_nan_is_found_again_and_what_has_no_key_by_identity():
    assert rest_of((X, float("nan"))) == rest_of((X, float("nan")))
    unhashable = np.ones(2)
    assert rest_of((X, unhashable)) == rest_of((X, unhashable))
    assert rest_of((X, unhashable)) != rest_of((X, np.ones(2)))


def test_what_is_static_stays_so_whatever_its_value():
    traced, rest = partition((X, Static(X)), KINDS)
    assert len(traced) == 1
    assert rest.leaves[0] is HOLE
    assert rest.combine([0.0])[1] is X


def test_dicts_keep_their_order_where_that_is_asked_for():
    one, other = {"b": X, "a": X}, {"a": X, "b": X}
    assert rest_of(one) == rest_of(other)
    traced, rest = partition(one, KINDS, ordered=True)
    assert list(rest.combine(traced)) == ["b", "a"]
    assert rest != rest_of(other, ordered=True)


def test_static_leaves_may_be_replaced():
    traced, rest = partition((X, "a", ["b"]), KINDS)
    assert rest.combine([1.0], str.upper) == (1.0, "A", ["B"])
    assert traced[0] is X


def test_the_rest_of_arrays_alone_is_one_object():
    assert rest_of((X, X)) is rest_of((X + 1, fad.tensor(1.0))) is Rest.flat_of(2)
    assert rest_of(X) is Rest.flat_of(None)
    assert list(rest_of((X, X)).statics()) == []
