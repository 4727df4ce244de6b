"""Anomaly mode: where a NaN comes from, in values, tangents and gradients, and what its errors say.

The library asks where it watches a program, see `fad.tape.anomaly`.

NOTE [a NaN that reaches a result]

    x = fad.tensor([0.0, 4.0], requires_grad=True)
    with fad.autograd.detect_anomaly():
        fad.safe_where(x > 0, fad.numpy.sqrt, fad.numpy.zeros_like, x).sum().backward()
    x.grad.tolist()  # -> [0.0, 0.25]

The backward pass of a branch that is not taken may well compute a NaN, which the choice then drops. So the
node that makes a NaN is remembered, along with the nodes that it flows into, and it is an error where it
arrives: at a leaf, or at an input that a gradient is asked for. PyTorch raises at the node.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor
from fad.autograd import Node
from fad.errors import GradientError
from fad.extend import Level, Primitive, bind, choosing
from fad.extend.types import Array, Operand, PyTree
from fad.hints.tracebacks import users_frames

# Calls

_COMPILED = "That is a compiled function, one operation:"
_NAMES_IT = "names the operation in it"


def in_compiled(error: GradientError) -> str:
    """The message for a NaN that a compiled function gave: how to look inside."""
    return f"{error}. {_COMPILED} fad.jit(f, hooks=True) {_NAMES_IT}"


def check_call(
    name: str,
    level: Level | None,
    args: Sequence[Operand],
    outs: Sequence[Operand],
    host: PyTree,
) -> None:
    """Raise if a call made a NaN, in a value or a tangent, that was not in its arguments; in traced code,
    write the check into the program, by its ``host``.
    """
    message = f"'{name}' gave nan in the {{what}} of its {{k}}th output"
    message += (f", at {level!r}" if level else "") + "{lanes}, from arguments without nan"
    for k, o in enumerate(outs):
        for what, lanes in _nans(o):
            if any([nan for a in args for nan in _nans(a)]):
                return
            raise GradientError(message.format(what=what, k=k, lanes=lanes))
    flags = [] if host is None else _flags_of([*outs, *args])
    if not any([k < len(outs) for (_, k, _), _ in flags]):
        return
    stack = _of_user(traceback.format_stack()[:-1])

    def check(nan_values: list[list[tuple[str, int, str]]]) -> None:
        (values,) = nan_values
        if values and all([k < len(outs) for _, k, _ in values]):
            what, k, lanes = values[0]
            error = message.format(what=what, k=k, lanes=lanes)
            raise GradientError(f"{error}. Traceback of the call:\n{stack}")

    _check_when_executed(host, [flags], check)


def _parts_of(x: Operand) -> Iterator[tuple[str, Operand, tuple[int, ...]]]:
    """The value and the tangents that a value consists of, each with the dimensions of its lanes.

    Those of traced code are Tensors of its level.
    """
    parts: list[tuple[str, Operand, tuple[int, ...]]] = [("value", x, ())]
    while parts:
        what, x, dims = parts.pop(0)
        while isinstance(x, Tensor) and not x.level.traces:
            dim, tangent = x.aux if x.level.maps else None, x.level.tangent(x)
            if dim is not None:
                dims = (dim, *dims)
            if tangent is not None:
                parts.append(("tangent", tangent, dims))
            x = x.value
        yield what, x, dims


def _nans(x: Operand) -> Iterator[tuple[str, str]]:
    """Where a value has NaN: ("value" or "tangent", lanes of vmap in words)."""
    for what, part, dims in _parts_of(x):
        lanes = _nan_lanes(part, dims)
        if lanes is not None:
            yield what, lanes


def _has_nan(x: Operand) -> bool:
    """Whether there is a NaN in a value or its tangents, in any lane."""
    return any(True for _ in _nans(x))


@functools.lru_cache(maxsize=256)
def _lanes_with_nan(dims: tuple[int, ...]) -> Primitive:
    """For each lane, NaN if there is one in it, else 0; the dimensions of lanes first."""

    def flag(x: Array) -> Array:
        bad = jnp.isnan(x)
        for depth, dim in enumerate(dims):
            bad = jnp.moveaxis(bad, depth + dim, depth)
        bad = bad.any(tuple(range(len(dims), bad.ndim)))
        return jnp.where(bad, jnp.float32(jnp.nan), jnp.float32(0))

    return Primitive("lanes_with_nan", flag)


# What a flag tells of: "value" or "tangent", the number of the value, and its dimensions of lanes.
Place = tuple[str, int, tuple[int, ...]]
Flags = list[tuple[Place, Operand]]


def _flags_of(values: Sequence[Operand | None]) -> Flags:
    """For the parts of values that a program computes, what each is, and a flag with NaN where it has one."""
    flags: Flags = []
    with choosing("detect_anomaly", ()):  # the check is not checked
        for k, value in enumerate(values):
            for what, part, dims in () if value is None else _parts_of(value):
                if isinstance(part, Tensor) and jnp.issubdtype(part.dtype, np.inexact):
                    flag = bind(_lanes_with_nan(dims), (part.level.detach(part),))
                    flags.append(((what, k, dims), flag))
    return flags


def _check_when_executed(
    host: PyTree,
    several: Sequence[Flags],
    check: Callable[[list[list[tuple[str, int, str]]]], None],
) -> None:
    """Write a call of ``check`` into the program that is traced.

    It is given, for each of the lists of flags, the values that have NaN when the program is executed: what,
    which, and the lanes in words.
    """

    def run(*operands: Array) -> tuple[()]:
        values = iter(operands)
        check([list(_flagged([(place, next(values)) for place, _ in flags])) for flags in several])
        return ()

    with choosing("detect_anomaly", ()):
        host.call("detect_anomaly", run, [flag for flags in several for _, flag in flags], 0)


def _flagged(flags: Flags) -> Iterator[tuple[str, int, str]]:
    for (what, k, batch), flag in flags:
        for _, part, dims in _parts_of(flag):
            lanes = _nan_lanes(part, (*dims, *[0] * len(batch)))
            if lanes is not None:
                yield what, k, lanes


def _nan_lanes(x: Operand, dims: tuple[int, ...]) -> str | None:
    """In which lanes an array has NaN, in words; None if there is none.

    ``dims``: the batch dimension of each vmap, outermost first, each as seen inside of those before.
    """
    if isinstance(x, jax.core.Tracer) or not isinstance(x, (jax.Array, np.ndarray)):
        return None
    if not jnp.issubdtype(x.dtype, np.inexact):
        return None
    bad = np.isnan(np.asarray(x).astype(np.complex64 if np.iscomplexobj(x) else np.float32))
    if not bad.any():
        return None
    if not dims:
        return ""
    for depth, dim in enumerate(dims):
        bad = np.moveaxis(bad, depth + dim, depth)
    lanes = np.argwhere(bad.reshape(*bad.shape[: len(dims)], -1).any(-1))
    shown = [str(lane[0]) if len(dims) == 1 else str(tuple(lane)) for lane in lanes[:8].tolist()]
    more = ", ..." if len(lanes) > 8 else ""
    return f", in vmap lane {', '.join(shown)}{more}"


# Nodes


def _of_user(frames: list[str]) -> str:
    """Frames of a stack, without those of fad and of JAX."""
    return "".join(users_frames(frames))


def of_write(stack: list[str] | None) -> str:
    """Where a write was made, from its stack, or how that can be known."""
    if stack is None:
        return (
            "Or enable anomaly detection before the write, with fad.autograd.set_detect_anomaly(True): then "
            "this error has the line of the write, and that of the operation that failed to compute its "
            "gradient."
        )
    return "Traceback of the write:\n" + _of_user(stack)


def explain(node: Node) -> str:
    """The forward tracebacks of a node, and of those whose backward pass made it."""
    parts: list[str] = []
    at: Node | None = node
    while at is not None:
        lines = at.metadata.get("traceback_")
        what = "\nPrevious calculation was induced by" if parts else "Error detected in"
        where = (
            "No forward pass information available. Enable detect_anomaly during the forward pass for more "
            "information."
        )
        if lines is not None:
            frames = _of_user(lines)
            where = f"Traceback of forward call that caused the error:\n{frames}"
        parts.append(f"{what} {at.name()}. {where}")
        if at.metadata.get("compiled_"):
            inside = "fad.jit(fad.grad(f), hooks=True), with the derivative inside,"
            parts.append(f"{_COMPILED} {inside} {_NAMES_IT}.\n")
        at = at.metadata.get("parent_")
    return "".join(parts)


class NanOrigins:
    """The NaN of one backward pass: for each node that one flows into, what made it.

    ``host``: of a program that is traced, what calls Python when it is executed.
    ``traced``: of such a program the flags of what each node gave so far.
    """

    __slots__ = ("host", "origins", "traced")

    def __init__(self, host: PyTree) -> None:
        self.host = host
        self.origins: dict[Node, str] = {}
        self.traced: list[tuple[Node, Flags]] = []

    def follow(
        self,
        node: Node,
        cotangents: Sequence[Operand | None],
        grads: Sequence[Operand | None],
        edges: Sequence[tuple[Node, int] | None],
    ) -> None:
        """Remember a NaN among the gradients that a node gave for its edges."""
        if self.host is not None:
            self.traced.append((node, _flags_of(grads)))
        bad = {i: g for i, g in enumerate(grads) if g is not None and _has_nan(g)}
        if not bad:
            return
        origin = self.origins.get(node)
        if origin is None:
            k, grad = next(iter(bad.items()))
            _, lanes = next(_nans(grad))
            origin = _said(node, k, lanes, _dropped(cotangents, grad))
        for i in bad:
            edge = edges[i] if i < len(edges) else None
            if edge is not None:
                self.origins.setdefault(edge[0], origin)

    def arrive(self, node: Node, value: Operand | None) -> None:
        """Raise if a result has a NaN.

        Raises:
            GradientError: it has; the error says which node made it, and where that was recorded.
        """
        if value is None:
            return
        if node in self.origins and _has_nan(value):
            raise GradientError(self.origins[node])
        flags = _flags_of([value]) if self.traced else []
        if not flags:
            return
        nodes = [(node.name(), explain(node)) for node, _ in self.traced]

        def check(nan_values: list[list[tuple[str, int, str]]]) -> None:
            arrived, *outputs = nan_values
            for (name, told), values in zip(nodes, outputs if arrived else (), strict=False):
                for _, k, lanes in values:
                    raise GradientError(_returned(name, k, lanes) + told)

        _check_when_executed(self.host, [flags, *[of_node for _, of_node in self.traced]], check)


def _returned(name: str, k: int, lanes: str) -> str:
    return f"Function '{name}' returned nan values in its {k}th output{lanes}. "


def _said(node: Node, k: int, lanes: str, element: str) -> str:
    dropped = ""
    if element:
        dropped = (
            f"At element {element} the cotangent is 0: the value is not used, as where `where` takes the "
            "other branch, but its derivative is infinite or nan, and 0 times that is nan. Write "
            "fad.safe_where(condition, f, g, x), which keeps it out. "
        )
    return _returned(node.name(), k, lanes) + dropped + explain(node)


def _dropped(cotangents: Sequence[Operand | None], grad: Operand) -> str:
    """The first element of a gradient that is NaN, if each has the cotangent 0; else an empty text."""
    of_grad = [part for _, part, _ in _parts_of(grad)][:1]
    of_cotangents = [[part for _, part, _ in _parts_of(c)][:1] for c in cotangents if c is not None]
    if len(of_cotangents) != 1:
        return ""
    arrays = [*of_cotangents[0], *of_grad]
    if not all(isinstance(a, (jax.Array, np.ndarray)) for a in arrays):
        return ""
    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        return ""
    cotangent, gradient = (np.asarray(a) for a in arrays)
    bad = np.isnan(gradient.astype(np.complex64))
    if cotangent.shape != gradient.shape or (cotangent[bad] != 0).any():
        return ""
    return str([int(i) for i in np.argwhere(bad)[0]])
