"""Template: a pytree without its arrays, and what a body marked; so calls run on flat lists of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.partition import HOLE, Rest, partition
from fad.core.tensor import Tensor
from fad.core.types import Aval, PyTree, Value
from fad.errors import RuleError, describe
from fad.views.chains import Step

ARRAYS = (Tensor, jax.Array, np.ndarray, np.inexact)
SCALARS = (*ARRAYS, np.generic, float, complex)


def is_array(x: object) -> bool:
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
    chain: tuple[Step, ...] | None
    as_is: bool = False
    detached: bool = False
    of_output: bool = False


class Marks(NamedTuple):
    """What a body says of its outputs, by their numbers.

    ``aliases``: for each, the number of the input that it is (changed in place), or None.
    ``non_differentiable``: those that have no derivative.
    ``views``: a `View` for each that shares storage with an input, or is returned once more after it.
    """

    aliases: tuple[int | None, ...] = ()
    non_differentiable: frozenset[int] = frozenset()
    views: tuple[View, ...] = ()


_NO_MARKS = Marks()


class Template(Rest):
    """What is left of the arguments or of the output of a call: a pytree without its arrays.

    ``marks``: for an output, what the body says of it.
    """

    __slots__ = ("marks",)

    def __init__(
        self, structure: PyTreeDef, leaves: tuple[object, ...], ordered_as: PyTree = None
    ) -> None:
        super().__init__(structure, leaves, ordered_as)
        self.marks = _NO_MARKS

    __hash__ = Rest.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Template) and super().__eq__(other) and self.marks == other.marks
        )

    def __repr__(self) -> str:
        return f"Template({self})"

    def __str__(self) -> str:
        return _in_words(self.structure)

    @property
    def slots(self) -> Sequence[int]:
        """The place of each array among all leaves."""
        if self.flat:
            return range(len(self.leaves))
        return tuple([k for k, x in enumerate(self.leaves) if x is HOLE])

    def marked(self, marks: Marks) -> Template:
        """This template with these marks."""
        if marks == self.marks:
            return self
        made = Template(self.structure, self.leaves)
        made.marks = marks
        return made

    def differentiable(self, outs: Sequence[Value | Aval]) -> tuple[bool, ...]:
        """Which of these outputs have a derivative."""
        without = self.marks.non_differentiable
        return tuple([is_inexact(o.dtype) and k not in without for k, o in enumerate(outs)])

    def combine_only(self, traced: Sequence[object]) -> PyTree:
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

    def any_of(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        """For each child of the root, whether one of the flags of its arrays is true."""
        if self.flat and self is not SINGLE:
            return tuple(map(bool, flags))
        it = iter(flags)
        if self.structure.num_leaves == self.structure.num_nodes - 1:
            return tuple([x is HOLE and bool(next(it)) for x in self.leaves])
        return tuple([any([next(it) for x in part.leaves if x is HOLE]) for part in self.parts()])

    def collect(self, tree: PyTree, what: str) -> list[Any]:
        """What ``tree``, which matches this structure, has in the place of each array.

        None may cover a whole subtree; a dict may lack keys. Both mean None for the arrays there.

        Raises:
            RuleError: it does not match; the message begins with ``what``.
        """
        if self is SINGLE:
            return [tree]
        found: list[object] = []
        if not _match(self.structure, tree, found):
            rest: Rest = partition(tree, ())[1]
            got = describe(tree) if rest.structure == trees.LEAF else _in_words(rest.structure)
            raise RuleError(f"{what} must have the structure {self}, got {got}")
        return [f for f, x in zip(found, self.leaves, strict=True) if x is HOLE]


def _in_words(structure: PyTreeDef) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


def _match(structure: PyTreeDef, tree: PyTree, found: list[object]) -> bool:
    """Add an entry to ``found`` for each leaf of ``structure``; False if ``tree`` differs from it."""
    if tree is None:
        found.extend([None] * structure.num_leaves)
        return True
    if structure == trees.LEAF:
        found.append(tree)
        return True
    node: Any = structure.node_data()
    kind, data = node
    children = structure.children()
    if issubclass(kind, (tuple, list)):
        if not isinstance(tree, (tuple, list)):
            return False
        given = list(tree)
    elif kind is dict:
        if not isinstance(tree, dict) or set(tree) - set(data):
            return False
        given = [tree.get(key) for key in data]
    else:
        one_level: PyTreeDef
        given, one_level = jax.tree_util.tree_flatten(tree, is_leaf=lambda x: x is not tree)
        if one_level.node_data() != (kind, data):
            return False
    return len(given) == len(children) and all(
        [_match(c, g, found) for c, g in zip(children, given)]
    )


SINGLE = Template.flat_of(None)


def split(tree: PyTree, kinds: tuple[type, ...] = ARRAYS) -> tuple[list[Any], Template]:
    """The arrays of ``tree`` (its leaves of these ``kinds``), in order, and what is left."""
    return partition(tree, kinds, rest=Template)
