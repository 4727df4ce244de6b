"""The outputs of an operation at a level: avals and layouts, from abstract evaluation."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

from fad.core.avals import aval_of, struct_of
from fad.core.caches import Table
from fad.core.collector import without_collector
from fad.core.level import Level, bind, state, with_default_state
from fad.core.observation import observable
from fad.core.types import Aval, Expanding, Operation, Outputs, Value
from fad.replay.inputs import FOREIGN
from fad.replay.policy import Use
from fad.replay.program import Program
from fad.replay.settings import LARGE
from fad.tape.recorder import ROOT, PrimitiveNode, RecordingLevel

# What is known of an argument: its layout, and its aval as its level shows it.
Known = tuple[Hashable, Aval]


class Outcome(NamedTuple):
    """The outputs of an operation at a level: what users see of them, their layouts, and whether they
    require grad; through which arguments gradients go on, and which arguments its node keeps (-1: an
    output). ``single``: it returns no tuple.
    """

    avals: tuple[Aval, ...]
    layouts: tuple[Hashable, ...]
    requires: tuple[bool, ...]
    routed: tuple[bool, ...]
    kept: tuple[int, ...]
    single: bool


Bound: TypeAlias = Operation | Expanding
_MOST = 512  # outcomes and uses remembered for each operation
_outcomes: weakref.WeakKeyDictionary[Bound, Table] = weakref.WeakKeyDictionary()
forget_outcomes = _outcomes.clear


def made_of(level: Level, parts: Iterator[Any], layout: Any) -> Any:
    """A value with this layout at a level: a Tensor of the level from its next parts, or the next one."""
    if layout is FOREIGN:
        return next(parts)
    return level.from_parts([next(parts) for _ in range(level.part_count(layout))], layout)


def use_of(op: Bound, args: Sequence[Known], key: Hashable) -> Use:
    """How ``op`` has been used with these arguments, where ``key`` has the levels around as well."""
    return _outcomes.setdefault(op, Table(_MOST)).put(("uses", key, *args), Use())


def outcome_of(
    level: RecordingLevel, op: Bound, args: Sequence[Known], key: Hashable
) -> Outcome | None:
    """The outputs of ``op`` at a level like this one; None if they cannot be known.

    It is evaluated on abstract values, once; errors are raised by the evaluation proper.
    """
    table = _outcomes.setdefault(op, Table(_MOST))
    place = (key, *args)
    if place in table:
        return table[place]  # type: ignore[no-any-return]
    found: list[Outcome] = []
    maker = level.maker()

    @with_default_state()
    def run(*values: Value) -> Outputs:
        state.replaying = False
        with maker() as own:
            rest = iter(values)
            out = bind(op, [made_of(own, rest, layout) for layout, _ in args])
            outs = out if type(out) is tuple else (out,)
            untracked = level is not ROOT and all([layout is FOREIGN for layout, _ in args])
            avals = tuple([aval_of(o) if untracked else own.aval(o) for o in outs])
            layouts = tuple([FOREIGN if untracked else own.layout(o) for o in outs])
            routes = _routes(op, () if untracked else outs, len(args))
            requires = tuple([layout is True and level.wraps for layout in layouts])
            found.append(Outcome(avals, layouts, requires, *routes, type(out) is not tuple))
            return out if untracked else [p for o in outs for p in own.parts(o)]

    structs: list[Aval] = []
    for layout, aval in args:
        structs += [aval] if layout is FOREIGN else level.part_avals(aval, layout)
    try:
        abstract_evaluation(run, *map(struct_of, structs))
    except Exception:  # of any kind: the evaluation proper raises it where the operation is called
        return None
    are_small = all([a.size <= LARGE for a in found[0].avals])
    return table.put(place, found[0] if are_small else None)  # type: ignore[no-any-return]


abstract_evaluation = without_collector(jax.eval_shape)
observable(sys.modules[__name__], "abstract_evaluation", "abstract_evaluation")


def _routes(op: Bound, outs: Sequence[Any], count: int) -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """Which arguments the edges of the outputs' node belong to, and which it keeps (-1: an output)."""
    nodes = [o._node for o in outs if o._node is not None]
    for node in nodes:
        if type(node) is PrimitiveNode and type(op) is not Program and len(node.edges) == count:
            kept = (*node.plan.kept_inputs, *([-1] if node.plan.kept_outputs else []))
            return tuple([e is not None for e in node.edges]), kept
    if nodes or (outs and type(op) is Program):  # of several operations: any of them may do so
        return (True,) * count, (-1, *range(count))
    return (False,) * count, ()
