"""The outputs of an operation at a level: avals and layouts, from abstract evaluation."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

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

__all__ = ["Known", "forget_outcomes", "outcome_of", "use_of"]

# What is known of an argument: its layout, and its aval as its level shows it.
Known = tuple[Hashable, Aval]


class Outcome(NamedTuple):
    """The outputs of an operation at a level: what users see of them, their layouts, which require grad,
    through which arguments gradients go on, and which arguments its node keeps (-1: an output). ``single``:
    it returns no tuple.
    """

    avals: tuple[Aval, ...]
    layouts: tuple[Hashable, ...]
    requires_grad: tuple[bool, ...]
    routed: tuple[bool, ...]
    kept: tuple[int, ...]
    single: bool


_MOST = 256  # outcomes remembered for each operation
_outcomes: weakref.WeakKeyDictionary[Operation | Expanding, Table] = weakref.WeakKeyDictionary()
_uses: weakref.WeakKeyDictionary[Operation | Expanding, Table] = weakref.WeakKeyDictionary()


def forget_outcomes() -> None:
    """Forget all."""
    _outcomes.clear()
    _uses.clear()


def _table_of(
    tables: weakref.WeakKeyDictionary[Operation | Expanding, Table], op: Operation | Expanding
) -> Table:
    found = tables.get(op)
    return tables.setdefault(op, Table(_MOST)) if found is None else found


def use_of(op: Operation | Expanding, args: Sequence[Known], key: Hashable) -> Use:
    """How ``op`` has been used with these arguments, where ``key`` has the levels around as well."""
    table = _table_of(_uses, op)
    place = (key, *args)
    found: Use = table.get(place) or table.put(place, Use())
    return found


def outcome_of(
    level: RecordingLevel,
    maker: Callable[[], Level],
    op: Operation | Expanding,
    args: Sequence[Known],
    key: Hashable,
) -> Outcome | None:
    """The outputs of ``op`` at a level like those that ``maker`` makes; None if they cannot be known.

    It is evaluated on abstract values, once; errors are raised by the evaluation proper.
    """
    table = _table_of(_outcomes, op)
    place = (key, *args)
    if place in table:
        known: Outcome | None = table[place]
        return known
    found: list[Outcome] = []

    @with_default_state()
    def run(*values: Value) -> Outputs:
        state.replaying = False
        with maker() as own:
            rest = iter(values)
            given = []
            for layout, _ in args:
                if layout is FOREIGN:
                    given.append(next(rest))
                else:
                    count = level.part_count(layout)
                    given.append(own.from_parts([next(rest) for _ in range(count)], layout))
            out = bind(op, given)
            outs = out if type(out) is tuple else (out,)
            untracked = level is not ROOT and all([layout is FOREIGN for layout, _ in args])
            layouts: list[Hashable]
            if untracked:
                avals, layouts = [aval_of(o) for o in outs], [FOREIGN] * len(outs)
            else:
                avals, layouts = [own.aval(o) for o in outs], [own.layout(o) for o in outs]
            routes = _routes(op, None if untracked else outs, len(args))
            requires_grad = [level.wraps and layout is True for layout in layouts]
            single = type(out) is not tuple
            found.append(
                Outcome(tuple(avals), tuple(layouts), tuple(requires_grad), *routes, single)
            )
            return out if untracked else [p for o in outs for p in own.parts(o)]

    structs: list[Aval] = []
    for layout, aval in args:
        structs += [aval] if layout is FOREIGN else level.part_avals(aval, layout)
    try:
        abstract_evaluation(run, *map(struct_of, structs))
    except Exception:  # of any kind: the evaluation proper raises it where the operation is called
        return None
    outcome = found[0] if all([a.size <= LARGE for a in found[0].avals]) else None
    table.put(place, outcome)
    return outcome


abstract_evaluation = without_collector(jax.eval_shape)
observable(sys.modules[__name__], "abstract_evaluation", "abstract_evaluation")


def _routes(
    op: Operation | Expanding, outs: Sequence[Any] | None, count: int
) -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """Which arguments the edges of the outputs' node belong to, and which it keeps (-1: an output)."""
    if outs is None:
        return (False,) * count, ()
    nodes = [o._node for o in outs if o._node is not None]
    for node in nodes:
        if type(node) is PrimitiveNode and type(op) is not Program and len(node.edges) == count:
            kept = (*node.plan.kept_inputs, *([-1] if node.plan.kept_outputs else []))
            return tuple([e is not None for e in node.edges]), kept
    if nodes or type(op) is Program:  # of several operations: any of them may do so
        return (True,) * count, (-1, *range(count))
    return (False,) * count, ()
