"""Template: a pytree without its arrays, and what a body marked; so calls run on flat lists of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fad.core import trees
from fad.core.partition import HOLE, Rest, partition
from fad.core.tensor import Tensor
from fad.errors import RuleError, describe

__all__ = ["SCALARS", "SINGLE", "Template", "is_array", "split"]

ARRAYS = (Tensor, jax.Array, np.ndarray, np.inexact)
SCALARS = (*ARRAYS, np.generic, float, complex)


def is_array(x: Any) -> bool:
    """Whether ``x`` is an operand of a call; everything else is static."""
    return isinstance(x, ARRAYS)


class View(NamedTuple):
    """What an array among the outputs is beside.

    The input ``of`` itself (``as_is``), or the view of it that ``chain`` makes, with its history or
    ``detached`` from it; with ``of_output``, such a view of the output ``of``; or, without a chain, the same
    as the later output ``of``.
    """

    at: int
    of: int
    chain: Any
    as_is: bool = False
    detached: bool = False
    of_output: bool = False


class Template(Rest):
    """What is left of the arguments or of the output of a call: a pytree without its arrays.

    For an output it also says what the body marked:
    ``aliases``: for each array, the number of the input that it is (changed in place), or None;
    ``non_differentiable``: the numbers of the arrays that have no derivative;
    ``views``: a `View` for each array that shares storage with an input, or is returned once more after it.
    """

    __slots__ = ("aliases", "non_differentiable", "views")

    def __init__(self, structure: Any, leaves: tuple[Any, ...], ordered_as: Any = None) -> None:
        super().__init__(structure, leaves, ordered_as)
        self.aliases: tuple[int | None, ...] = ()
        self.non_differentiable: frozenset[int] = frozenset()
        self.views: tuple[View, ...] = ()

    __hash__ = Rest.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Template) and super().__eq__(other) and self._marks == other._marks
        )

    @property
    def _marks(self) -> Any:
        return self.aliases, self.non_differentiable, self.views

    def __repr__(self) -> str:
        return f"Template({self})"

    def __str__(self) -> str:
        return _in_words(self.structure)

    @property
    def slots(self) -> tuple[int, ...] | None:
        """The place of each array among all leaves; None where all leaves are arrays."""
        if self.flat:
            return None
        found = tuple([k for k, x in enumerate(self.leaves) if x is HOLE])
        return None if len(found) == len(self.leaves) else found

    def _with(self, aliases: Any, non_differentiable: Any, views: Any) -> Template:
        made = Template(self.structure, self.leaves)
        made.aliases, made.non_differentiable = aliases, non_differentiable
        made.views = tuple(views)
        return made

    def marked(
        self, aliases: tuple[int | None, ...], non_differentiable: frozenset[int]
    ) -> Template:
        """This template with marks."""
        if not non_differentiable and not any([a is not None for a in aliases]):
            return self
        views: list[View] = []
        for v in self.views:
            if aliases[v.at] is not None:
                continue
            if v.as_is and v.of in aliases:
                v = View(v.at, aliases.index(v.of), None)
            views.append(v)
        return self._with(aliases, non_differentiable, views)

    def viewing(self, views: tuple[View, ...]) -> Template:
        """This template with what is known of outputs that are views of inputs."""
        if views == self.views:
            return self
        return self._with(self.aliases, self.non_differentiable, views)

    def combine_only(self, traced: Sequence[Any]) -> Any:
        """The tree with ``traced`` in it and None for all else."""
        return self.combine(traced, lambda _: None)

    def parts(self) -> list[Template]:
        """A Template for each child of the root."""
        if self.flat and self is not SINGLE:
            return [SINGLE] * len(self.leaves)
        result, start = [], 0
        for child in self.structure.children():
            stop = start + child.num_leaves
            result.append(Template(child, self.leaves[start:stop]))
            start = stop
        return result

    def any_of(self, flags: Sequence[Any]) -> tuple[bool, ...]:
        """For each child of the root, whether one of the flags of its arrays is true."""
        if self.flat and self is not SINGLE:
            return tuple(map(bool, flags))
        it = iter(flags)
        if self.structure.num_leaves == self.structure.num_nodes - 1:
            return tuple([bool(next(it)) if x is HOLE else False for x in self.leaves])
        return tuple([any([next(it) for x in part.leaves if x is HOLE]) for part in self.parts()])

    def collect(self, tree: Any, what: str) -> list[Any]:
        """What ``tree``, which matches this structure, has in the place of each array.

        None may cover a whole subtree; a dict may lack keys. Both mean None for the arrays there.

        Raises:
            RuleError: it does not match; the message begins with ``what``.
        """
        if self is SINGLE:
            return [tree]
        found: list[Any] = []
        if not _match(self.structure, tree, found):
            raise RuleError(f"{what} must have the structure {self}, got {_shape_of(tree)}")
        return [f for f, x in zip(found, self.leaves, strict=True) if x is HOLE]


def _shape_of(tree: Any) -> str:
    _, rest = partition(tree, ())
    return describe(tree) if rest.structure == trees.LEAF else _in_words(rest.structure)


def _in_words(structure: Any) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


def _match(structure: Any, tree: Any, found: list[Any]) -> bool:
    """Add an entry to ``found`` for each leaf of ``structure``; False if ``tree`` differs from it."""
    if tree is None:
        found.extend([None] * structure.num_leaves)
        return True
    if structure == trees.LEAF:
        found.append(tree)
        return True
    kind, data = structure.node_data()
    children = structure.children()
    if issubclass(kind, (tuple, list)):
        if not isinstance(tree, (tuple, list)) or len(tree) != len(children):
            return False
        given = list(tree)
    elif kind is dict:
        if not isinstance(tree, dict) or set(tree) - set(data):
            return False
        given = [tree.get(key) for key in data]
    else:
        one_level: Any
        given, one_level = jax.tree_util.tree_flatten(tree, is_leaf=lambda x: x is not tree)
        if one_level.node_data() != (kind, data) or len(given) != len(children):
            return False
    return all([_match(c, g, found) for c, g in zip(children, given, strict=True)])


SINGLE = Template.flat_of(None)


def split(tree: Any, kinds: tuple[type, ...] = ARRAYS) -> tuple[list[Any], Template]:
    """The arrays of ``tree`` (its leaves of these ``kinds``), in order, and what is left."""
    return partition(tree, kinds, rest=Template)
