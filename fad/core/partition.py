"""One way to split a call: the leaves that are traced, and all else.

`partition` takes the traced leaves out of a pytree. What is left, a `Rest`, is hashable, so it is part of the
key by which compiled code is found, and `Rest.combine` puts others in their place. The names of JAX
(`fad.arrays.operations`) have a faster form of their own, which does not flatten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from jax import tree_util

from fad.core import trees
from fad.core.keys import exact
from fad.core.trees import PyTreeDef
from fad.core.types import PyTree


class _Hole:
    """Marks the place of a traced leaf in a `Rest`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "*"


HOLE = _Hole()


class Static:
    """A leaf that is not traced. Equal to another of the same key (see `exact`); by identity if it has none.

    A leaf that is one already, before `partition`, is not traced whatever its value is.
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
        self._order = trees.order_of(ordered_as)
        self.form = trees.skeleton(ordered_as) if self._order else None

    @classmethod
    @functools.cache
    def flat_of(cls, count: int | None) -> Self:
        """That of a tuple of so many traced leaves; None: of a single one."""
        structure = trees.LEAF if count is None else tree_util.tree_structure((0,) * count)
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
            return traced[0] if self.structure == trees.LEAF else tuple(traced)
        it = iter(traced)
        if static is None:
            leaves = [next(it) if x is HOLE else x.value for x in self.leaves]
        else:
            leaves = [next(it) if x is HOLE else static(x.value) for x in self.leaves]
        return trees.unflatten(self.structure, leaves, self.form)


def partition(
    tree: PyTree,
    kinds: type | tuple[type, ...],
    *,
    ordered: bool = False,
    rest: type[Rest] = Rest,
) -> tuple[list[Any], Any]:
    """The traced leaves of ``tree``, in order, and the `Rest`.

    Arguments:
        kinds: the types of traced leaves.
        ordered: keep the order of the keys of dicts, which JAX sorts.
        rest: the class of what is left.

    >>> import jax.numpy as jnp
    >>> traced, rest = partition(([jnp.float32(2.0), None], "same"), jax.Array)
    >>> rest.combine([3.0])
    ([3.0, None], 'same')
    """
    if isinstance(tree, kinds):
        return [tree], rest.flat_of(None)
    if type(tree) is tuple and all([isinstance(x, kinds) for x in tree]):
        return list(tree), rest.flat_of(len(tree))
    leaves, structure = trees.flatten_with_none(tree)
    others = tuple([HOLE if isinstance(x, kinds) else _static(x) for x in leaves])
    traced = [x for x in leaves if isinstance(x, kinds)]
    return traced, rest(structure, others, tree if ordered else None)


def _static(x: object) -> Static:
    return x if type(x) is Static else Static(x)
