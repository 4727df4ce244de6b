"""What a call of a compiled function is made of, and what its program depends on, as keys."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence

import jax
import numpy as np

from fad.core import jaxapi, trees
from fad.core.avals import aval_key
from fad.core.caches import exact
from fad.core.faces import tool
from fad.core.level import outlived, state
from fad.core.tensor import Tensor
from fad.core.trees import Rest, Static, partition
from fad.core.types import Operand, PyTree
from fad.errors import StructureError, describe
from fad.tape.anomaly import mode as anomaly
from fad.tape.grad_mode import is_grad_enabled, is_inference_mode_enabled
from fad.tape.recorder import ROOT
from fad.tape.vmap import axes_of, batch_levels, differs, named_levels
from fad.views.make_view import place_of

# What a call of a compiled function is made of: array leaves, and a key for everything else.

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


@dataclasses.dataclass(frozen=True, slots=True)
class Repeating:
    """A `Rest` of arguments that have a leaf of the graph in several places, as tied weights are.

    It is one Tensor in the body, too. ``places``: of each array leaf, where it is among those that differ.
    """

    rest: Rest
    places: tuple[int, ...]

    def statics(self) -> Iterator[object]:
        """The leaves that are not traced."""
        return self.rest.statics()

    def combine(self, traced: Sequence[object]) -> PyTree:
        """The arguments with these traced leaves."""
        return self.rest.combine([traced[k] for k in self.places])


def without_repeats(leaves: Sequence[Operand]) -> tuple[list[Operand], tuple[int, ...]]:
    """The leaves without those of the graph that have come before, and where each is among these; () if all
    are kept.
    """
    if len(set(map(id, leaves))) == len(leaves):
        return list(leaves), ()
    # By the id of a Tensor. Other leaves have numbers below zero, each another one.
    first: dict[int, int] = {}
    places = [first.setdefault(id(x) if _is_recorded(x) else -k, k) for k, x in enumerate(leaves)]
    kept = sorted(set(places))
    if len(kept) == len(leaves):
        return list(leaves), ()
    return [leaves[k] for k in kept], tuple(map(kept.index, places))


def _is_recorded(x: PyTree) -> bool:
    """Whether ``x`` is a Tensor whose ``.grad`` the body may use."""
    if type(x) is not Tensor or not (x._level is ROOT or x._level is state.body):
        return False
    return x.requires_grad or (x.meta is not None and x.meta.grad is not None)


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
    ) -> tuple[list[Operand], Rest | Repeating]:
        """Array leaves, and the rest of the call, which is a key."""
        leaves, rest = partition(self.mark(args, kwargs), OPERANDS)
        for x in rest.statics():
            check_static(x, self.who)
        leaves, places = without_repeats([outlived(x) for x in leaves])
        return leaves, Repeating(rest, places) if places else rest

    def part(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[tuple[PyTree, ...], list[PyTree], dict[str, PyTree]]:
        """Static arguments, hashable, and the arguments without them; None is where they stood."""
        positional, by_name = list(args), dict(kwargs)
        static: list[PyTree] = []
        for n in self.nums:
            if n < len(positional):
                static.append((n, self._fixed(positional[n])))
                positional[n] = None
        for name in self.names:
            if name in by_name:
                static.append((name, self._fixed(by_name.pop(name))))
        return tuple(static), positional, by_name

    def whole(
        self, static: tuple[PyTree, ...], args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[list[PyTree], dict[str, PyTree]]:
        """The arguments that `part` has taken apart."""
        positional, by_name = list(args), dict(kwargs)
        for place, fixed in static:
            if isinstance(place, int):
                positional[place] = fixed.value
            else:
                by_name[place] = fixed.value
        return positional, by_name

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
        check_static(x, self.who)
        return Static(x)


def check_static(x: object, who: str) -> None:
    """Refuse a static argument that is not hashable."""
    try:
        exact(x)
    except TypeError:
        if any([isinstance(value, Tensor) for value in getattr(x, "__dict__", {}).values()]):
            return  # an object with Tensors, which are read from it: it is known by its identity
        advice = tool("hints.mistakes").how_to_register(x)
        raise TypeError(
            f"{who}: a static argument must be hashable, got {describe(x)}. Pass it as "
            f"arrays, as a tuple, or as an object with __hash__ and __eq__.{advice}"
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
    names_of_f = {p.name for p in parameters}
    for name in given_names:
        if name not in names_of_f and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise StructureError(
                f"{who}: {what}_argnames={names!r}: the function has no argument {name!r}, it has "
                f"{', '.join(sorted(names_of_f)) or 'none'}"
            )
    positions = {n + count if n < 0 else n for n in given_nums}
    positions |= {positional.index(n) for n in given_names if n in positional}
    return positions, set(given_names) | {positional[n] for n in positions if n < count}


# What a compiled program depends on, as a key.
#
# NOTE [what compiled code depends on]
#
#     f = fad.jit(lambda v: v if fad.is_grad_enabled() else -v)
#     with fad.no_grad():
#         assert f(1.0) == -1.0
#     assert f(1.0) == 1.0
#
# A compiled program is found again by everything that its trace could see: the arguments' structure, shapes,
# dtypes and static values, and where the elements of views are, see NOTE [addresses]; the named axes of
# running vmaps; the grad mode and the hooks on saved values; JAX's configuration; and if the function draws
# random numbers, by the randomness of running vmaps, and which arguments differ between their lanes. It
# refers to no Tensor of a level and to nothing tracked (a closure over such is an error), and a program that
# closes over a tracer of an outer JAX transform is not kept at all. So no call can use a level, a tape or a
# tracer of an earlier one.


def key_of(leaves: list[PyTree], rest: object) -> tuple[Hashable, ...]:
    """The key of a call: its array leaves, the ``rest`` of its arguments, and what else a trace can see."""
    outside = state.outside_jax_trace >= 0
    places = tuple(map(place_of, leaves))
    return (
        rest,
        aval_key(leaves),
        places,
        axes_of(named_levels()),
        _modes(),
        outside,
        jaxapi.trace_context(),
    )


def lanes(leaves: Sequence[Operand]) -> tuple[Hashable, ...]:
    """What decides how a function draws random numbers: for each running vmap its randomness, and if that
    matters, which arguments differ between lanes.
    """
    draws: list[PyTree] = []
    for level in batch_levels():
        randomness = level.randomness if level.id > state.outside_jax_trace else "traced apart"
        strict = level.draws.strict and level.id > state.outside_jax_trace
        draws.append((randomness, tuple([differs(x, level) for x in leaves]) if strict else ()))
    return tuple(draws)


def _modes() -> tuple[Hashable, ...]:
    watched = (anomaly.on, anomaly.check_nan)
    return (is_grad_enabled(), is_inference_mode_enabled(), bool(state.saved_hooks), watched)
