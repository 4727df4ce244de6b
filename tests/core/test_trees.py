"""Pytrees in which a Tensor is a leaf: taken apart, put together, and prefixes of them."""

from __future__ import annotations

import collections
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad.core import trees
from fad.errors import StructureError

Point = namedtuple("Point", "x y")
T = fad.tensor([1.0, 2.0])
A = jnp.ones(3)
# A tree, and its leaves.
TREES: list[tuple[Any, list[Any]]] = [
    (T, [T]),
    (A, [A]),
    (2.0, [2.0]),
    (None, []),
    ((), []),
    ({}, []),
    ((T, A), [T, A]),
    ((T,), [T]),
    ((T, 1.0), [T, 1.0]),
    ([T, A], [T, A]),
    (Point(T, A), [T, A]),
    ((T, None, {"b": A, "a": [T, ()]}), [T, T, A]),
]


@pytest.mark.parametrize("tree, leaves", TREES, ids=lambda x: str(x)[:40])
def test_trees_are_taken_apart_and_put_together(tree: Any, leaves: list[Any]) -> None:
    found, structure = trees.flatten(tree)
    assert len(found) == len(leaves) and all([a is b for a, b in zip(found, leaves)])
    # The same structure as JAX has for a tree with numbers as leaves, however it was found.
    assert structure == jax.tree.structure(trees.map_leaves(lambda x: 0, tree))
    again = trees.unflatten(structure, found)
    assert type(again) is type(tree)
    assert all([a is b for a, b in zip(trees.flatten(again)[0], leaves)])
    flat = type(tree) is tuple and all([not isinstance(x, (dict, type(None))) for x in tree])
    assert trees.is_flat(structure) == (flat or leaves == [tree])


def test_functions_of_leaves() -> None:
    for tree, leaves in TREES:
        names: list[Any] = []
        trees.map_leaves(names.append, tree)
        assert all([a is b for a, b in zip(names, leaves, strict=True)])
    add = trees.map_leaves(lambda x, y: float(x) + y, {"a": (1.0, 2.0)}, {"a": (10.0, 20.0)})
    assert add == {"a": (11.0, 22.0)}
    with pytest.raises(ValueError, match="different lengths of tuple"):
        trees.map_leaves(lambda x, y: x, (1, 2), (1, 2, 3))


def test_paths_of_leaves() -> None:
    assert trees.path_names({"w": [T, A], "b": 1.0}) == ["['b']", "['w'][0]", "['w'][1]"]
    assert trees.path_names(Point(T, A)) == [".x", ".y"]
    assert trees.path_names(T) == [""]


@pytest.mark.parametrize(
    "prefix, tree, expected",
    [
        (0, (T, {"a": A}), [0, 0]),
        (None, (T, {"a": A}), [None, None]),
        ((0, None), (T, A), [0, None]),
        ((0, None), (T, {"a": A, "b": A}), [0, None, None]),
        ((0, {"a": 1, "b": None}), (T, {"a": A, "b": A}), [0, 1, None]),
        ([0, 1], [T, A], [0, 1]),
        ((1, 0), (T, ()), [1]),
        (0, (), []),
    ],
)
def test_prefixes_are_repeated_over_leaves(prefix: Any, tree: Any, expected: list[Any]) -> None:
    assert trees.broadcast_prefix(prefix, tree, "in_dims") == expected


@pytest.mark.parametrize("prefix", [(0,), (0, 0, 0), [0, 0], {"a": 0}, (0, (1, 2))], ids=str)
def test_what_is_no_prefix_is_refused_in_words(prefix: Any) -> None:
    with pytest.raises(StructureError, match="who must be an int, None, or a pytree prefix of the"):
        trees.broadcast_prefix(prefix, (T, A), "who")
    with pytest.raises(StructureError, match=r"Write one entry for each output"):
        trees.broadcast_prefix(prefix, (T, A), "who", "output")


def test_a_tensor_is_a_leaf_here_and_a_node_to_jax() -> None:
    assert trees.is_leaf(T) and not trees.is_leaf(A) and not trees.is_leaf((T,))
    (array,) = jax.tree.leaves(T)
    assert isinstance(array, jax.Array)
    np.testing.assert_array_equal(array, T.array)


def test_dicts_keep_the_order_of_their_keys() -> None:
    """JAX sorts them; a program that goes over the values of a dict would mean something else."""
    Pair = collections.namedtuple("Pair", "x y")
    tree = {"b": [T, {"z": 1, "y": A}], "a": Pair(T, {2: 0, 1: 0}), "c": (T, None)}
    leaves, structure = trees.flatten(tree)
    for other in (
        trees.unflatten(structure, leaves, tree),
        trees.unflatten(structure, leaves, trees.skeleton(tree)),
        trees.map_leaves(id, tree),
    ):
        assert list(other) == ["b", "a", "c"] and list(other["b"][1]) == ["z", "y"]
        assert list(other["a"].y) == [2, 1] and type(other["a"]) is Pair and other["c"][1] is None
    assert trees.map_leaves(lambda x: x, tree) == tree
    assert trees.skeleton(tree) == {
        "b": [None, {"z": None, "y": None}],
        "a": [None, {2: None, 1: None}],
        "c": [None, None],
    }


def test_the_order_of_keys_is_none_where_it_is_that_of_jax() -> None:
    for tree in (T, 1.0, (), [1, (2,)], {}, {"b": 1}, {"a": (1, {"c": 2}), "b": T}, Point(1, {})):
        assert trees.order_of(tree) is None
    one, other = {"b": 1, "a": {"d": 1, "c": 2}}, {"b": 1, "a": {"c": 1, "d": 2}}
    orders = [trees.order_of(x) for x in (one, other, [one], (T, Point(1, one)), {"a": other})]
    assert None not in orders and len(set(orders)) == len(orders)
    assert trees.order_of({"b": 5, "a": {"d": T, "c": A}}) == trees.order_of(one)


@pytest.mark.parametrize(
    ("tree", "other", "leaves"),
    [
        ({"w": A, "b": None}, {"w": 2.0, "b": None}, [2.0]),
        ({"w": A, "b": None}, {"w": None, "b": None}, [None]),
        ({"w": A, "b": None}, None, [None]),
        ((A, (T, None, A)), (3.0, None), [3.0, None, None]),
        ((A, (T, None, A)), (None, (3.0, None, T)), [None, 3.0, T]),
        (Point(A, [T, T]), Point(None, [T, None]), [None, T, None]),
        ((None, ()), (None, ()), []),
        (T, None, [None]),
        ({"w": A, "b": None}, {"w": 2.0, "b": 2.0}, None),
        ({"w": A, "b": None}, {"w": 2.0}, None),
        ({"w": A}, {"w": (2.0, 2.0)}, None),
        ((A, (T, A)), (A, A), None),
        ((A, (T, A)), (A, T), None),
        ((A, A), [A, None], None),
    ],
)
def test_none_stands_for_a_leaf_or_a_subtree(tree: Any, other: Any, leaves: Any) -> None:
    got = trees.leaves_like(trees.flatten(tree)[1], other)
    assert got == leaves
