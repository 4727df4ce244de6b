"""Bodies that close over tracked values: how that is detected, and the error that names the value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from fad.core import trees
from fad.core.level import outlived
from fad.core.tensor import Tensor, bottom, new_tensor
from fad.errors import RuleError, describe
from fad.functions.rules import CallRules
from fad.tape.graph import AccumulateGrad, gradient_edge
from fad.tape.recorder import ROOT
from fad.tape.running import running

__all__ = [
    "checked_arrays",
    "closure_error",
    "is_plain",
    "is_tracer",
    "noting_leaves",
    "numbers_suffice",
    "without_leaves",
]


class noting_leaves:
    """A block around a body; gives the Tensors on which ``requires_grad_`` was called in it."""

    __slots__ = ("before",)

    def __enter__(self) -> list[Tensor]:
        self.before = running.leaves
        own: list[Tensor] = []
        running.leaves = own
        return own

    def __exit__(self, *exc: object) -> None:
        running.leaves = self.before


def without_leaves(x: Any, leaves: Sequence[Tensor]) -> Any:
    """What a body returned, without a history that begins in leaves that it made itself."""
    if not leaves or not isinstance(x, Tensor) or x.level is not ROOT or not x.requires_grad:
        return x
    made = set(map(id, leaves))
    todo: list[Any] = [gradient_edge(x)[0]]
    seen = set()
    while todo:
        node = todo.pop()
        if isinstance(node, AccumulateGrad):
            if id(node.variable) not in made:
                return x
        elif node not in seen:
            seen.add(node)
            todo += [edge[0] for edge in node.edges if edge is not None]
    return new_tensor(x.value, ROOT)


def checked_arrays(
    rules: CallRules, outs: Sequence[Any], leaves: Sequence[Tensor] = ()
) -> list[Any]:
    """Outputs of a body that ran on bare arrays, as bare arrays, or as deferred values.

    ``leaves`` are those that it made itself, see `noting_leaves`.

    Raises:
        RuleError: one of them is part of a running transform or graph: the body closed over it.
    """
    result = []
    for o in outs:
        if type(o) is Tensor and o.meta is None and o._level is ROOT and not o._requires_grad:
            result.append(o._value)  # most of them
            continue
        o = outlived(without_leaves(o, leaves))
        if isinstance(o, Tensor):
            if _is_tracked(o):
                raise closure_error(rules, o, _is_tracked)
            o = o.value
        result.append(o)
    return result


def _is_tracked(x: Any) -> bool:
    """Whether ``x`` belongs to a running fad transform or to the eager graph."""
    x = outlived(x)
    return isinstance(x, Tensor) and (x.level is not ROOT or x.requires_grad)


def is_tracer(x: Any) -> bool:
    """Whether a JAX transform traces ``x``."""
    return isinstance(bottom(x), jax.core.Tracer)


def closure_error(rules: CallRules, reached: Any, blamed: Callable[[Any], bool]) -> RuleError:
    """The error for a body that closes over a value which a transform tracks.

    Arguments:
        reached: an output that depends on it, None if unknown.
        blamed: says of a value whether it is such a one.
    """
    name = rules.name.removesuffix("_jvp")
    called = getattr(rules.function, "_called", f"{name}.apply")
    for body in rules.bodies():
        for variable, value in _closed_over(body):
            if blamed(value):
                what = f"{variable!r} ({describe(value)}{_where(value)})"
                return RuleError(
                    f"{name}.{body.__name__} closes over {what}, which is not among its arguments, "
                    f"so its derivative would be lost. Pass {variable} as an argument of "
                    f"{called}, or use fad.stop_gradient({variable}) if no derivative is wanted."
                )
    through = "" if reached is None else f"; it reached the output {describe(reached)}"
    lanes = (
        " (A body that draws random numbers or names the axis of a vmap needs an argument that this "
        "vmap maps over.)"
        if isinstance(reached, Tensor) and reached.level.maps
        else ""
    )
    return RuleError(
        f"{name} closes over a value{_where(reached)} that is not among its arguments, so its "
        f"derivative would be lost{through}. Pass the value as an argument of {called}, or use "
        f"fad.stop_gradient on it if no derivative is wanted.{lanes}"
    )


def _closed_over(body: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The variables of outer scopes that ``body`` names, and the leaves of their values."""
    try:
        found = inspect.getclosurevars(inspect.unwrap(body))
    except TypeError:  # not written in Python
        return
    for variable, value in (*found.nonlocals.items(), *found.globals.items()):
        try:
            leaves = trees.flatten(value)[0]
        except (TypeError, ValueError):  # a dict whose keys do not compare
            leaves = [value]
        for leaf in leaves:
            yield variable, leaf


def _where(x: Any) -> str:
    """Which transform tracks ``x``, for a message."""
    x = outlived(x)
    if isinstance(x, Tensor) and x.level is not ROOT:
        return f" of {x.level!r}"
    if isinstance(x, Tensor) and x.requires_grad:
        return " of the eager graph"
    return " of a running JAX transform" if is_tracer(x) else ""


def is_plain(x: Any) -> bool:
    """Whether ``x`` is an array, or a batch of arrays, that no level or JAX transform tracks."""
    while isinstance(x, Tensor):
        if x.requires_grad or (x.aux is not None and not x.level.maps):
            return False
        x = x.value
    return not is_tracer(x)


def numbers_suffice(values: Sequence[Any]) -> bool:
    """Whether values known as numbers alone suffice for a call; see NOTE [one run of the body]."""
    return all([is_plain(v) and not _is_watched(v) for v in values])


def _is_watched(x: Any) -> bool:
    """Whether a checkpointed body computes ``x``: a number would be one from outside of it."""
    while isinstance(x, Tensor):
        if x.level.notes_captures:
            return True
        x = x.value
    return False
