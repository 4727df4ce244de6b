"""What bodies must not do: close over tracked values, or read numbers where there are none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from fad.core import trees
from fad.core.level import batch_dim, layers, outlived
from fad.core.tensor import Tensor, bottom, new_tensor
from fad.core.types import MaybeValue, PyTree
from fad.errors import RuleError, describe
from fad.functions.derived_rules import origin
from fad.functions.rules import CallRules, Values
from fad.tape.graph import node_of, running
from fad.tape.recorder import ROOT

if TYPE_CHECKING:
    from fad.functions.user_rules import UserRules


class noting_leaves:
    """A block around a body; gives the Tensors on which ``requires_grad_`` was called in it."""

    __slots__ = ("before",)

    def __enter__(self) -> list[Tensor]:
        self.before = running.leaves
        leaves: list[Tensor] = []
        running.leaves = leaves
        return leaves

    def __exit__(self, *exc: object) -> None:
        running.leaves = self.before


def without_leaves(x: MaybeValue, leaves: Sequence[Tensor]) -> MaybeValue:
    """What a body returned, without a history that begins in leaves that it made itself."""
    if not leaves or not isinstance(x, Tensor) or x.level is not ROOT or not x.requires_grad:
        return x
    made = set(map(id, leaves))
    return new_tensor(x.value, ROOT) if all(id(t) in made for t in leaves_of(x)) else x


def leaves_of(x: Tensor) -> Iterator[Tensor]:
    """The leaves of the graph that ``x`` is computed from."""
    node = node_of(x)
    if node is None:
        yield x
        return
    todo = [node]
    seen = {node}
    while todo:
        node = todo.pop()
        if node._leaf is not None:
            yield node._leaf
        nexts = {edge[0] for edge in node.edges if edge is not None} - seen
        seen |= nexts
        todo.extend(nexts)


def checked_arrays(rules: CallRules, outs: Values, leaves: Sequence[Tensor] = ()) -> list[Any]:
    """Outputs of a body that ran on bare arrays, as bare arrays, or as deferred values.

    ``leaves`` are those that it made itself, see `noting_leaves`.

    Raises:
        RuleError: one of them is part of a running transform or graph: the body closed over it.
    """
    result: list[Any] = []
    for o in outs:
        if type(o) is Tensor and o.meta is None and o._level is ROOT and not o._requires_grad:
            result.append(o._value)  # most of them
            continue
        o = outlived(without_leaves(o, leaves))
        if isinstance(o, Tensor):
            if is_tracked(o):
                raise closure_error(rules, o, is_tracked)
            o = o.value
        result.append(o)
    return result


def bare_arrays(tree: PyTree) -> PyTree:
    """What a body of JAX returned, with Tensors that it made itself as arrays; others stay what they are."""

    def bare(x: PyTree) -> PyTree:
        untracked = isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad
        return x.value if untracked else x

    return trees.map_leaves(bare, tree)


def is_tracked(x: object) -> bool:
    """Whether ``x`` belongs to a running fad transform or to the eager graph."""
    x = outlived(x)
    return isinstance(x, Tensor) and (x.level is not ROOT or x.requires_grad)


def is_tracer(x: object) -> bool:
    """Whether a JAX transform traces ``x``."""
    return isinstance(bottom(x), jax.core.Tracer)


def closure_error(rules: CallRules, reached: object, blamed: Callable[[object], bool]) -> RuleError:
    """The error for a body that closes over a value which a transform tracks.

    Arguments:
        reached: an output that depends on it, None if unknown.
        blamed: says of a value whether it is such a one.
    """
    rules = origin(rules)
    made_of_function = hasattr(rules.function, "__wrapped__")  # by `custom_rules`
    called = rules.name if made_of_function else f"{rules.name}.apply"
    return closure_error_of(rules.name, called, rules.bodies(), reached, blamed)


def closure_error_of(
    name: str,
    called: str,
    bodies: Sequence[Callable[..., object]],
    reached: object,
    blamed: Callable[[object], bool],
) -> RuleError:
    """`closure_error` for the ``bodies`` of the operation ``name``, which is ``called`` so."""
    for body in bodies:
        for variable, value in _closed_over(body):
            if blamed(value):
                what = f"{variable!r} ({describe(value)}{_where(value)})"
                of = getattr(body, "__name__", type(body).__name__)
                return RuleError(
                    f"{name}.{of} closes over {what}, which is not among its arguments, "
                    f"so its derivative would be lost. Pass {variable} as an argument of "
                    f"{called}, or use fad.stop_gradient({variable}) if no derivative is wanted."
                )
    through = "" if reached is None else f"; it reached the output {describe(reached)}"
    return RuleError(
        f"{name} closes over a value{_where(reached)} that is not among its arguments, so its "
        f"derivative would be lost{through}. Pass the value as an argument of {called}, or use "
        "fad.stop_gradient on it if no derivative is wanted."
    )


def _closed_over(body: Callable[..., object]) -> Iterator[tuple[str, object]]:
    """The variables of outer scopes that ``body`` names, and the leaves of their values."""
    try:
        variables = inspect.getclosurevars(inspect.unwrap(body))
    except TypeError:  # not written in Python
        return
    for variable, value in (*variables.nonlocals.items(), *variables.globals.items()):
        try:
            leaves = trees.flatten(value)[0]
        except (TypeError, ValueError):  # a dict whose keys do not compare
            leaves = [value]
        for leaf in leaves:
            yield variable, leaf


def _where(x: object) -> str:
    """Which transform tracks ``x``, for a message."""
    x = outlived(x)
    if isinstance(x, Tensor) and x.level is not ROOT:
        return f" of {x.level!r}"
    if isinstance(x, Tensor) and x.requires_grad:
        return " of the eager graph"
    return " of a running JAX transform" if is_tracer(x) else ""


def is_plain(x: object) -> bool:
    """Whether ``x`` is an array, or a batch of arrays, that no level or JAX transform tracks."""
    tracked = [t.requires_grad or (t.aux is not None and not t.level.maps) for t in layers(x)]
    return not any(tracked) and not is_tracer(x)


def numbers_suffice(values: Sequence[object]) -> bool:
    """Whether values known as numbers alone suffice for a call; see NOTE [one run of the body].

    In a checkpointed body they do not: they would be numbers from outside of it.
    """
    return all(map(is_plain, values)) and not any(
        [t.level.notes_captures for v in values for t in layers(v)]
    )


def host_error(
    rules: UserRules, rule: str, error: Exception, values: Sequence[object]
) -> RuleError:
    """The error for a body that needs numbers where its arguments have none."""
    if any([batch_dim(t) is not None for v in values for t in layers(v)]):
        names = ", ".join(rules.argument_names())
        advice = f"Write a vmap rule, which gets whole batches: vmap(info, in_dims, {names})."
    elif any(map(is_tracer, values)):
        advice = (
            "Under jit it would run on no numbers: call it outside of jit and of native JAX "
            "transforms, or wrap the host code in jax.pure_callback (fad.from_jax makes that a fad "
            "function)."
        )
    elif rule in ("forward", "setup_context"):
        missing = (
            "a vjp" if rules.signature.jvp else "a jvp" if rules.signature.vjp else "a vjp or jvp"
        )
        advice = (
            f"A derivative cannot be taken through a body that leaves JAX: write {missing} rule "
            "that keeps to fad.numpy, and save inputs and outputs alone."
        )
    else:
        advice = (
            "A derivative cannot be taken through a body that leaves JAX: write it with fad.numpy, "
            f"write the {'jvp' if rule == rules.signature.vjp else 'vjp'} rule too, or mark it with "
            "@once_differentiable."
        )
    return RuleError(f"{rules.name}.{rule} needs concrete values on the host. {advice} ({error})")
