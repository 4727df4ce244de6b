"""Pytrees in which a Tensor is always a leaf, and the one way to split a call into leaves and all else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Self

from jax import tree_util as tree_util
from jax.tree_util import PyTreeDef as PyTreeDef

from fad.core.caches import exact
from fad.core.jaxapi import array_type
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import StructureError, describe

# Pytrees in which a Tensor is always a leaf.

_ARRAYS = (Tensor, array_type)
LEAF = tree_util.tree_structure(0)


def is_leaf(x: object) -> bool:
    """Whether ``x`` ends the descent into a pytree: a Tensor does, wherever it stands."""
    return isinstance(x, Tensor)


def is_leaf_or_none(x: object) -> bool:
    """`is_leaf`, and None is a leaf too: a tangent or cotangent that is zero."""
    return x is None or isinstance(x, Tensor)


def flatten_with_none(tree: PyTree) -> tuple[list[PyTree], PyTreeDef]:
    """`flatten`, where ``None`` is a leaf."""
    return tree_util.tree_flatten(tree, is_leaf=is_leaf_or_none)


def flatten(tree: PyTree) -> tuple[list[Any], PyTreeDef]:
    """Leaves and structure of ``tree``; Tensors are leaves, ``None`` is an empty subtree.

    >>> import fad
    >>> fad.extend.flatten({"b": fad.tensor(1.0), "a": 2.0})[0]
    [2.0, Tensor(1., dtype=float32)]
    """
    if isinstance(tree, _ARRAYS):
        return [tree], LEAF
    if type(tree) is tuple:
        for x in tree:
            if not isinstance(x, _ARRAYS):
                break
        else:
            return list(tree), _tuple_of(len(tree))
    return tree_util.tree_flatten(tree, is_leaf=is_leaf)


@functools.lru_cache(maxsize=256)
def _tuple_of(count: int) -> PyTreeDef:
    """The structure of a tuple of so many leaves."""
    return tree_util.tree_structure((0,) * count)


def is_flat(structure: PyTreeDef) -> bool:
    """Whether it is that of one leaf, or of a tuple of leaves."""
    flat: bool = structure == LEAF or structure == _tuple_of(structure.num_leaves)
    return flat


def unflatten(structure: PyTreeDef, leaves: Sequence[object], like: PyTree = None) -> PyTree:
    """Put ``leaves`` back into ``structure``.

    ``like`` is a tree of that structure, or its `skeleton`: dicts get the order of its keys, which a
    structure does not have: JAX sorts them.

    >>> import fad
    >>> tree = {"b": 1, "a": 2}
    >>> leaves, structure = fad.extend.flatten(tree)
    >>> fad.extend.unflatten(structure, leaves, tree)
    {'b': 1, 'a': 2}
    """
    if structure == LEAF:
        return leaves[0]
    if structure == _tuple_of(len(leaves)):
        return tuple(leaves)
    return _in_order_of(like, tree_util.tree_unflatten(structure, leaves))


def skeleton(tree: PyTree) -> PyTree:
    """The dicts, lists and tuples of ``tree``, without its leaves.

    >>> import fad
    >>> fad.extend.skeleton({"b": [1.0, 2.0], "a": 3.0})
    {'b': [None, None], 'a': None}
    """
    kind = type(tree)
    if kind is dict:
        return {k: skeleton(x) for k, x in tree.items()}
    return [skeleton(x) for x in tree] if _is_sequence(kind) else None


def order_of(tree: PyTree) -> tuple[Hashable, ...] | None:
    """The keys of the dicts in ``tree``, as a hashable value; None if all dicts have the order of JAX."""
    kind = type(tree)
    if kind is Tensor or kind is array_type:
        return None
    if kind is dict:
        keys = list(tree)
        inside = tuple([order_of(x) for x in tree.values()])
        return (*keys, inside) if any(inside) or (len(keys) > 1 and keys != sorted(keys)) else None
    if not _is_sequence(kind):
        return None
    inside = tuple([order_of(x) for x in tree])
    return inside if any(inside) else None


def _is_sequence(kind: type) -> bool:
    return kind is tuple or kind is list or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _in_order_of(like: PyTree, tree: PyTree) -> PyTree:
    kind = type(like)
    if kind is dict:
        return {k: _in_order_of(x, tree[k]) for k, x in like.items()}
    if not _is_sequence(kind):
        return tree
    items = [_in_order_of(x, y) for x, y in zip(like, tree)]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def leaves_like(structure: PyTreeDef, tree: PyTree) -> list[Any] | None:
    """The leaves of a tree of that structure; None if it has another one.

    None in the tree may also stand for a leaf, or for a subtree: it is what each leaf there is then.

    >>> import fad
    >>> structure = fad.core.trees.flatten({"a": 1.0, "b": None, "c": (2.0, 3.0)})[1]
    >>> fad.core.trees.leaves_like(structure, {"a": 4.0, "b": None, "c": None})
    [4.0, None, None]
    """
    leaves, structure_of_tree = flatten(tree)
    if structure_of_tree == structure:
        return leaves
    places = tree_util.tree_unflatten(structure, list(range(structure.num_leaves)))
    result: list[Any] = []

    def add(x: PyTree, place: PyTree) -> None:
        if x is not None and type(place) is not int:
            raise ValueError
        result.extend([x] * len(tree_util.tree_leaves(place)))

    try:
        tree_util.tree_map(add, tree, places, is_leaf=is_leaf_or_none)
    except (ValueError, TypeError):
        return None
    return result


def map_leaves(f: Callable[..., object], tree: PyTree, *rest: PyTree) -> PyTree:
    """Apply ``f`` to the leaves of ``tree`` (and of ``rest``, of the same structure).

    >>> import fad
    >>> fad.extend.map_leaves(lambda x: 2 * x, {"b": 1, "a": 2})
    {'b': 2, 'a': 4}
    """
    if not rest:
        if isinstance(tree, _ARRAYS):
            return f(tree)
        if type(tree) is tuple:
            return tuple([map_leaves(f, x) for x in tree])
        if tree is None or (type(tree) is dict and not tree):
            return tree
    mapped = tree_util.tree_map(f, tree, *rest, is_leaf=is_leaf)
    return _in_order_of(tree, mapped)


def path_names(tree: PyTree) -> list[str]:
    """A readable path for each leaf of ``tree``, such as ``['w'][0]``.

    >>> import fad
    >>> fad.extend.path_names({"w": [1.0, 2.0]})
    ["['w'][0]", "['w'][1]"]
    """
    leaves, _ = tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    return [tree_util.keystr(path) for path, _ in leaves]


def broadcast_prefix(prefix: PyTree, tree: PyTree, who: str, of: str = "argument") -> list[PyTree]:
    """Repeat the leaves of a pytree prefix over the leaves of ``tree``.

    ``None`` is a leaf of the prefix (as in ``in_dims``), not an empty subtree.

    Raises:
        StructureError: ``prefix`` is not a prefix of ``tree``; the message begins with ``who``, and
            calls the parts of the tree by the word ``of``.
    """
    if prefix is None or type(prefix) is int:
        return [prefix] * len(flatten(tree)[0])
    if type(prefix) is tuple and type(tree) is tuple and len(prefix) == len(tree):
        pairs = zip(prefix, tree)
        if all([(p is None or type(p) is int) and isinstance(x, _ARRAYS) for p, x in pairs]):
            return list(prefix)
    result: list[PyTree] = []

    def add(dim: object, subtree: PyTree) -> None:
        count = len(tree_util.tree_leaves(subtree, is_leaf=is_leaf))
        result.extend([dim] * count)

    try:
        tree_util.tree_map(add, prefix, tree, is_leaf=is_leaf_or_none)
    except (ValueError, TypeError) as error:
        shown = tree_util.tree_structure(tree, is_leaf=is_leaf)
        raise StructureError(
            f"{who} must be an int, None, or a pytree prefix of the {of}s; got "
            f"{describe(prefix)} for {of}s of structure {shown}. Write one entry for each "
            f"{of}, or a single int for all of them."
        ) from error
    return result


# One way to split a call: the leaves that are traced, and all else.
#
# `partition` takes the traced leaves out of a pytree. What is left, a `Rest`, is hashable, so it is part of
# the key by which compiled code is found, and `Rest.combine` puts others in their place. The names of JAX
# (`fad.arrays.operations`) have a faster form of their own, which does not flatten.


class _Hole:
    """Marks the place of a traced leaf in a `Rest`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "*"


HOLE = _Hole()


class Static:
    """A leaf that is not traced. Equal to another of the same key (see `exact`); by identity if it has none.

    A leaf that is one already, before `partition`, is not traced whatever its value is.

    >>> import fad
    >>> fad.extend.partition([1.0, fad.extend.Static(2.0)], float)[0]
    [1.0]
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        try:
            return hash(exact(self.value))
        except TypeError:
            return id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or type(self.value) is not type(other.value):
            return False
        if self.value is other.value:
            return True
        try:
            return bool(exact(self.value) == exact(other.value))
        except Exception:  # `==` is the leaf's own code, which may raise anything: not equal, then
            return False


class Rest:
    """A pytree without its traced leaves: its structure, where None is a leaf, and the other leaves.

    ``form``: the order of the keys of its dicts, see `fad.core.trees.skeleton`; None for that of JAX.
    ``flat``: it is that of a single traced leaf, or of a tuple of such.
    """

    __slots__ = ("_order", "flat", "form", "leaves", "structure")

    def __init__(
        self, structure: PyTreeDef, leaves: tuple[Any, ...], ordered_as: PyTree = None
    ) -> None:
        self.structure = structure
        self.leaves = leaves
        self.flat = False
        self._order = order_of(ordered_as)
        self.form = skeleton(ordered_as) if self._order else None

    @classmethod
    @functools.cache
    def flat_of(cls, count: int | None) -> Self:
        """That of a tuple of so many traced leaves; None: of a single one."""
        structure = LEAF if count is None else tree_util.tree_structure((0,) * count)
        rest = cls(structure, (HOLE,) * (1 if count is None else count))
        rest.flat = True
        return rest

    def __hash__(self) -> int:
        return hash((self.structure, self.leaves))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Rest)
            and self.structure == other.structure
            and self.leaves == other.leaves
            and self._order == other._order
        )

    def statics(self) -> Iterator[object]:
        """The leaves that are not traced."""
        return (x.value for x in self.leaves if x is not HOLE)

    def combine(
        self, traced: Sequence[object], static: Callable[[Any], object] | None = None
    ) -> PyTree:
        """The pytree with these traced leaves; the others are given through ``static``."""
        if self.flat:
            return traced[0] if self.structure == LEAF else tuple(traced)
        it = iter(traced)
        if static is None:
            leaves = [next(it) if x is HOLE else x.value for x in self.leaves]
        else:
            leaves = [next(it) if x is HOLE else static(x.value) for x in self.leaves]
        return unflatten(self.structure, leaves, self.form)


def partition(
    tree: PyTree,
    kinds: type | tuple[type, ...],
    *,
    ordered: bool = False,
    rest: type[Rest] = Rest,
) -> tuple[list[Any], Any]:
    """Split a pytree into the leaves that are traced and all else, such as the arguments of a call.

    Arguments:
        kinds: the types of traced leaves.
        ordered: keep the order of the keys of dicts, which JAX sorts.
        rest: the class of what is left.

    Returns:
        The traced leaves, in order, and a `Rest`. It is hashable, and equal to another one if structure
        and other leaves are, numbers by type and bits; so it can be part of a key. ``rest.combine(leaves)``
        puts leaves in their places, ``rest.statics()`` gives the other ones.

    >>> import fad, jax, jax.numpy as jnp
    >>> traced, rest = fad.extend.partition(([jnp.float32(2.0), None], "same"), jax.Array)
    >>> rest.combine([3.0])
    ([3.0, None], 'same')
    """
    if isinstance(tree, kinds):
        return [tree], rest.flat_of(None)
    if type(tree) is tuple and all([isinstance(x, kinds) for x in tree]):
        return list(tree), rest.flat_of(len(tree))
    leaves, structure = flatten_with_none(tree)
    others = tuple(
        [x if type(x) is Static else HOLE if isinstance(x, kinds) else Static(x) for x in leaves]
    )
    traced = [x for x in leaves if isinstance(x, kinds)]
    return traced, rest(structure, others, tree if ordered else None)
