"""Template: a pytree with its arrays taken out, so that calls run on flat lists of arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fad.core import trees
from fad.core.keys import exact
from fad.core.tensor import Tensor
from fad.errors import RuleError, describe

__all__ = ["HOLE", "SCALARS", "SINGLE", "Static", "Template", "flat_template", "is_array"]

ARRAYS = (Tensor, jax.Array, np.ndarray, np.inexact)
SCALARS = (*ARRAYS, np.generic, float, complex)


def is_array(x: Any) -> bool:
    """Whether ``x`` is an operand of a call; everything else is static."""
    return isinstance(x, ARRAYS)


class _Hole:
    """Marks the place of an array in a Template."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "*"


HOLE = _Hole()


class Static:
    """A static leaf. Equal to another of the same key (see `exact`); by identity if it has none."""

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


class Template:
    """A pytree with its arrays taken out: its structure, and what its other leaves are. Hashable.

    For the output of a call it also says what the body marked:
    ``aliases``: for each array, the number of the input that it is (changed in place), or None;
    ``non_differentiable``: the numbers of the arrays that have no derivative;
    ``views``: a `View` for each array that shares storage with an input, or is returned once more after it.
    ``flat``: it is the one template of a single array, or of a tuple of so many, without marks.
    """

    __slots__ = ("aliases", "flat", "leaves", "non_differentiable", "structure", "views")

    def __init__(
        self,
        structure: Any,
        leaves: tuple[Any, ...],
        aliases: tuple[int | None, ...] = (),
        non_differentiable: frozenset[int] = frozenset(),
        views: tuple[View, ...] = (),
    ) -> None:
        self.structure = structure
        self.flat = False
        self.views = views
        self.leaves = leaves
        self.aliases = aliases
        self.non_differentiable = non_differentiable

    def __hash__(self) -> int:
        return hash((self.structure, self.leaves))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Template)
            and self.structure == other.structure
            and self.leaves == other.leaves
            and self.aliases == other.aliases
            and self.non_differentiable == other.non_differentiable
            and self.views == other.views
        )

    def __repr__(self) -> str:
        return f"Template({self})"

    def __str__(self) -> str:
        return str(self.structure).removeprefix("PyTreeDef(").removesuffix(")")

    @property
    def slots(self) -> tuple[int, ...] | None:
        """The place of each array among all leaves; None where all leaves are arrays."""
        if self.flat:
            return None
        found = tuple([k for k, x in enumerate(self.leaves) if x is HOLE])
        return None if len(found) == len(self.leaves) else found

    @staticmethod
    def split(tree: Any, kinds: tuple[type, ...] = ARRAYS) -> tuple[list[Any], Template]:
        """The arrays of ``tree`` (its leaves of these ``kinds``), in order, and what is left."""
        if type(tree) is Tensor or isinstance(tree, kinds):
            return [tree], SINGLE
        if type(tree) is tuple and all([isinstance(x, kinds) for x in tree]):
            return list(tree), flat_template(len(tree))
        leaves, structure = jax.tree_util.tree_flatten(tree, is_leaf=_is_leaf)
        return (
            [x for x in leaves if isinstance(x, kinds)],
            Template(
                structure, tuple([HOLE if isinstance(x, kinds) else Static(x) for x in leaves])
            ),
        )

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
        return Template(self.structure, self.leaves, aliases, non_differentiable, tuple(views))

    def viewing(self, views: tuple[View, ...]) -> Template:
        """This template with what is known of outputs that are views of inputs."""
        if views == self.views:
            return self
        return Template(self.structure, self.leaves, self.aliases, self.non_differentiable, views)

    def join(self, arrays: Sequence[Any]) -> Any:
        """The tree with ``arrays`` in it."""
        if self.flat:
            return arrays[0] if self is SINGLE else tuple(arrays)
        it = iter(arrays)
        return self.structure.unflatten([next(it) if x is HOLE else x.value for x in self.leaves])

    def join_only(self, arrays: Sequence[Any]) -> Any:
        """The tree with ``arrays`` in it and None for all else."""
        if self.flat:
            return arrays[0] if self is SINGLE else tuple(arrays)
        it = iter(arrays)
        return self.structure.unflatten([next(it) if x is HOLE else None for x in self.leaves])

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


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, Tensor)


def _shape_of(tree: Any) -> str:
    structure: Any = jax.tree_util.tree_structure(tree, is_leaf=_is_leaf)
    if structure == trees.LEAF:
        return describe(tree)
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


SINGLE = Template(trees.LEAF, (HOLE,))
SINGLE.flat = True


@functools.lru_cache(maxsize=256)
def flat_template(count: int) -> Template:
    """The template of a tuple of arrays."""
    template = Template(jax.tree_util.tree_structure((0,) * count), (HOLE,) * count)
    template.flat = True
    return template
