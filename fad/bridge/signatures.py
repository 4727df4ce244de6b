"""What a call of a compiled function is made of: array leaves, and a key for everything else."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import jax
import numpy as np

from fad.core import trees
from fad.core.keys import exact
from fad.core.level import outlived
from fad.core.partition import Rest, Static, partition
from fad.core.tensor import Tensor
from fad.core.types import Operand, PyTree
from fad.errors import StructureError, describe

OPERANDS = (
    Tensor,
    jax.Array,
    jax.ShapeDtypeStruct,
    np.ndarray,
    np.generic,
    bool,
    int,
    float,
    complex,
)


def is_dynamic(x: object) -> bool:
    """Whether a leaf is traced, and not part of what is compiled."""
    return isinstance(x, OPERANDS)


class Arguments:
    """Which arguments of a function are static, and which are donated, by position or by name.

    Raises:
        TypeError: f is not a function.
        StructureError: a name or position that f does not have, or one that is static and donated.
    """

    __slots__ = ("donated_names", "donated_nums", "names", "nums", "who")

    def __init__(
        self,
        f: Callable[..., PyTree],
        who: str,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Sequence[str] | None = None,
    ) -> None:
        if not callable(f):
            raise TypeError(f"{who}: the first argument must be a function, got {describe(f)}")
        self.who = who
        resolve = functools.partial(positions_and_names, f, who)
        self.nums, self.names = resolve("static", static_argnums, static_argnames)
        self.donated_nums, self.donated_names = resolve("donate", donate_argnums, donate_argnames)
        both = [*sorted(self.nums & self.donated_nums), *sorted(self.names & self.donated_names)]
        if both:
            raise StructureError(
                f"{who}: argument {both[-1]!r} is both static and donated; only arrays can be donated"
            )

    def split(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[list[Operand], Rest]:
        """Array leaves, and the rest of the call, which is a key."""
        leaves, rest = partition(self.mark(args, kwargs), OPERANDS)
        for x in rest.statics():
            self._check(x)
        return [outlived(x) for x in leaves], rest

    def part(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[tuple[PyTree, ...], list[PyTree], dict[str, PyTree]]:
        """Static arguments, hashable, and the arguments without them; None is where they stood."""
        given, named = list(args), dict(kwargs)
        static: list[PyTree] = []
        for n in self.nums:
            if n < len(given):
                static.append((n, self._fixed(given[n])))
                given[n] = None
        for name in self.names:
            if name in named:
                static.append((name, self._fixed(named.pop(name))))
        return tuple(static), given, named

    def whole(
        self, static: tuple[PyTree, ...], args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[list[PyTree], dict[str, PyTree]]:
        """The arguments that `part` has taken apart."""
        given, named = list(args), dict(kwargs)
        for place, fixed in static:
            if isinstance(place, int):
                given[place] = fixed.value
            else:
                named[place] = fixed.value
        return given, named

    def mark(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> tuple[PyTree, PyTree]:
        """The arguments, with those that are static kept from being taken for pytrees."""
        if not self.names and not self.nums:
            return tuple(args), kwargs
        marked = tuple([Static(a) if i in self.nums else a for i, a in enumerate(args)])
        return marked, {k: Static(v) if k in self.names else v for k, v in kwargs.items()}

    def donated(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> list[int]:
        """The positions of donated arguments' leaves among the array leaves."""
        flags: list[bool] = []
        every = [(i in self.donated_nums, a) for i, a in enumerate(self.mark(args, {})[0])]
        named = self.mark((), kwargs)[1]
        every += [(k in self.donated_names, named[k]) for k in sorted(named)]
        for donated, tree in every:
            flags += [donated for x in trees.flatten(tree)[0] if isinstance(x, OPERANDS)]
        return [k for k, donated in enumerate(flags) if donated]

    def _fixed(self, x: object) -> Static:
        self._check(x)
        return Static(x)

    def _check(self, x: object) -> None:
        try:
            exact(x)
        except TypeError:
            if any([isinstance(value, Tensor) for value in getattr(x, "__dict__", {}).values()]):
                return  # an object with Tensors, which are read from it: it is known by its identity
            raise TypeError(
                f"{self.who}: a static argument must be hashable, got {describe(x)}. Pass it as "
                f"arrays, as a tuple, or as an object with __hash__ and __eq__.{trees.how_to_register(x)}"
            ) from None


def positions_and_names(
    f: Callable[..., PyTree],
    who: str,
    what: str,
    nums: int | Sequence[int] | None,
    names: str | Sequence[str] | None,
) -> tuple[set[int], set[str]]:
    """Positions and names that mean the same arguments of ``f``."""
    given_nums = (nums,) if isinstance(nums, int) else tuple(nums or ())
    given_names = (names,) if isinstance(names, str) else tuple(names or ())
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # not written in Python
        return set(given_nums), set(given_names)
    kinds = {p.kind for p in parameters}
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count = len(positional)
    for n in given_nums:
        if not -count <= n < count and inspect.Parameter.VAR_POSITIONAL not in kinds:
            raise StructureError(
                f"{who}: {what}_argnums={nums!r} is out of range: the function takes {count} "
                "positional arguments"
            )
    known = {p.name for p in parameters}
    for name in given_names:
        if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise StructureError(
                f"{who}: {what}_argnames={names!r}: the function has no argument {name!r}, it has "
                f"{', '.join(sorted(known)) or 'none'}"
            )
    found = {n + count if n < 0 else n for n in given_nums}
    found |= {positional.index(n) for n in given_names if n in positional}
    return found, set(given_names) | {positional[n] for n in found if n < count}
