"""Where a backward pass starts and ends: what a user gave for that, checked and put into edges."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.borrowed import as_array
from fad.core.level import Level, bind, captured_by_jit, layers, outlived, state
from fad.core.tensor import Tensor, is_operand
from fad.core.types import Operand, PyTree, Value
from fad.errors import ArgumentError, GradientError, describe
from fad.tape.edges import Edge, GradientEdge
from fad.tape.engine import ONES_LIKE
from fad.tape.graph import AccumulateGrad, Node, gradient_edge
from fad.tape.recorder import ROOT, level_of

_SINGLE = (
    GradientEdge,
    Edge,
    jax.Array,
    np.ndarray,
    str,
)  # one item, though it can be iterated over


def as_list(x: PyTree) -> list[Any]:
    """One Tensor or edge, an iterable or a dict of them, as a list; edges as gradient edges."""
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, dict):
        items = list(x.values())
    elif isinstance(x, _SINGLE) or not isinstance(x, Iterable):
        items = [x]
    else:
        items = list(x)
    return [
        GradientEdge(i.node, i.input_nr) if isinstance(i, Edge) and i.node is not None else i
        for i in items
    ]


def roots_of(
    tensors: Sequence[Operand], cotangents: Sequence[Any] | None, create_graph: bool, who: str
) -> list[tuple[tuple[Node, int], Any]]:
    """The gradient edges of outputs, each with the cotangent that enters there, checked."""
    if cotangents is None:
        cotangents = [None] * len(tensors)
    if len(cotangents) != len(tensors):
        raise GradientError(
            f"{who} got {len(tensors)} tensors and {len(cotangents)} gradients for them: pass one "
            "gradient (or None) for each tensor"
        )
    roots = []
    for k, (t, c) in enumerate(zip(tensors, cotangents, strict=True)):
        if isinstance(t, GradientEdge):
            known = t.node.metadata_of_inputs()
            if known and t.output_nr >= len(known):
                raise GradientError(
                    f"{who}: output {k} is the edge to input {t.output_nr} of {t.node.name()}, which "
                    f"takes {len(known)} gradients"
                )
            meta = known[t.output_nr] if t.output_nr < len(known) else None
            level: Any = level_of(t.node)
            edge = (t.node, t.output_nr)
            expected = None if meta is None or meta.is_undefined else meta
        elif isinstance(t, Tensor):
            t = outlived(t)
            if not isinstance(t, Tensor) or not t.requires_grad:
                raise GradientError(_untracked(t, k, who))
            level, edge, expected = t.level, gradient_edge(t), t.aval
        else:
            raise ArgumentError(f"{who}: output {k} must be a Tensor, got {describe(t)}")
        if c is None:
            c = _implicit(t, expected, who)
        else:
            c = _given(c, k, expected, who)
        roots.append((edge, level.seed(c) if create_graph else level.detach(c)))
    return roots


def _implicit(t: Tensor, expected: Any, who: str) -> Value:
    """The gradient 1 of a root with one element."""
    if expected is None or math.prod(expected.shape) != 1:
        shape = "unknown" if expected is None else tuple(expected.shape)
        raise GradientError(
            f"{who}: grad can be implicitly created only for scalar outputs, got an output of shape "
            f"{shape}. Pass a gradient of that shape, or reduce it (y.sum())."
        )
    if jnp.issubdtype(expected.dtype, jnp.complexfloating):
        raise GradientError(
            f"{who}: grad can be implicitly created only for real scalar outputs but got "
            f"{expected.dtype}. Pass a gradient, or take a real part or absolute value."
        )
    if isinstance(t, Tensor):
        found: Value = bind(ONES_LIKE, (t.level.detach(t),))
        return found
    return jnp.ones(expected.shape, expected.dtype)


def _given(c: Any, k: int, expected: Any, who: str) -> Value:
    """A gradient that the user gave for root ``k``, checked against what is known of the root."""
    if not is_operand(c):
        raise TypeError(
            f"{who}: gradients can be either Tensors or None, but got {type(c).__name__} "
            f"({describe(c)}): for one array write fad.tensor(...)"
        )
    if isinstance(c, Tensor):
        c = outlived(c)
    shape = c.shape if isinstance(c, Tensor) else jnp.shape(c)
    if expected is None:
        return c if isinstance(c, Tensor) else as_array(c)
    if tuple(shape) != tuple(expected.shape):
        raise GradientError(
            f"{who}: Mismatch in shape: grad_output[{k}] has a shape of {tuple(shape)} and "
            f"output[{k}] has a shape of {tuple(expected.shape)}. Write "
            "fad.numpy.broadcast_to(g, y.shape), or reduce the output (y.sum())"
        )
    dtype = c.dtype if isinstance(c, Tensor) else jnp.result_type(c)
    if jnp.issubdtype(dtype, jnp.complexfloating) and not jnp.issubdtype(
        expected.dtype, jnp.complexfloating
    ):
        raise GradientError(
            f"{who}: Mismatch in dtype: grad_output[{k}] is complex and output[{k}] has a dtype of "
            f"{expected.dtype}: pass its real part"
        )
    return c if isinstance(c, Tensor) else as_array(c, expected.dtype)


def _untracked(t: Any, k: int, who: str) -> str:
    """The message for an output that does not require grad."""
    for below in layers(t):
        if below.requires_grad:
            return (
                f"{who}: element {k} of tensors belongs to {t.level!r} and does not require grad "
                f"there; what it is computed from requires grad at {below.level!r}, which that "
                "transform is inside of. Call it on what the transform returns, outside of it."
            )
    text = f"{who}: element {k} of tensors does not require grad and does not have a grad_fn"
    if not jnp.issubdtype(t.dtype, jnp.inexact):
        return (
            f"{text}: it has dtype {t.dtype}, and comparisons, argmax and conversions to integers have no "
            "derivative. Compute the loss from values of floating dtype."
        )
    return (
        f"{text}: {describe(t)}. Set requires_grad=True on an input it is computed from, outside of "
        "no_grad, and without detach() and numpy() between. If it is a gradient, compute it with "
        "create_graph=True."
    )


def edges_of(inputs: Sequence[Operand], who: str) -> list[tuple[Node, int]]:
    """Where the gradients of ``inputs`` arrive; refuses what has none."""
    edges: list[tuple[Node, int]] = []
    for k, x in enumerate(inputs):
        if isinstance(x, GradientEdge):
            edges.append((x.node, x.output_nr))
            continue
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{who}: input {k} must be a Tensor, got {describe(x)}")
        if not x.requires_grad:
            raise GradientError(
                f"{who}: One of the differentiated Tensors does not require grad: input {k}. "
                "Make it with requires_grad=True, or call x.requires_grad_() before computing."
            )
        edges.append(gradient_edge(x))
    return edges


def inputs_outside(outputs: Sequence[Operand], inputs: Sequence[Operand]) -> list[int]:
    """The inputs that are Tensors from outside of the level of an output, by their numbers.

    Their place in the outer graph is hidden by the wrappers of that level: they would be reported as
    "unused", which is silently wrong.

    Raises:
        GradientError: it is not known what the level captured.
    """
    found = []
    for k, x in enumerate(inputs):
        for y in outputs:
            if not isinstance(x, Tensor) or not isinstance(y, Tensor):
                continue
            if (
                y.level.id > x.level.id
                and y.level.alive
                and not (y.level.on_tape and x.level.on_tape)
            ):
                level: Any = y.level
                if level.captured() is not None:
                    found.append(k)
                    break
                raise GradientError(
                    f"autograd.grad(): input {k} belongs to {x.level!r}, the output to {y.level!r}, "
                    "which is inside of it. Pass the input as an argument of the transformed "
                    "function, or take the gradient of what the transform returns, outside of it."
                )
    return found


# `backward` inside of a transform


def refuse_leaves_outside(
    outputs: Sequence[object],
    cotangents: Sequence[object] | None,
    inputs: Sequence[object] | None,
) -> None:
    """Raise where a `backward` inside of a transform would have to reach a leaf from outside of it.

    NOTE [leaves outside of a transform]

        w = fad.tensor(3.0, requires_grad=True)

        def f(v):
            loss = v * w
            loss.backward()  # w.grad would get nothing
            return loss

        fad.grad(f)(2.0)  # raises GradientError

    ``loss`` belongs to the level of ``grad``, and its graph there leads to ``v`` alone. How it depends on
    ``w`` is in the graph of its value, one level down, which this pass does not go through. So the graphs
    below are searched for leaves that the user made. What depends on them by an argument of the transformed
    function is left out, if the pass has leaves of the user's inside: then it is for these.

    Raises:
        GradientError: there is such a leaf, or one of ``inputs`` is outside.
    """
    pure = [] if state.pure is None else [state.pure]
    for k, y in enumerate(outputs):
        c = cotangents[k] if cotangents is not None and k < len(cotangents) else None
        of_tape = type(y) is Tensor and y._level is ROOT
        if of_tape and not pure and not (isinstance(c, Tensor) and c._level is not ROOT):
            continue
        of_output = [level_of(y.node)] if isinstance(y, GradientEdge) else _levels(y)
        inside = [level for level in (*of_output, *_levels(c)) if not level.on_tape]
        inside += pure
        if not inside or not of_output:
            continue
        level = max(inside, key=lambda level: level.id)
        if inputs is not None:
            lost = next((x for x in inputs if _is_outside(x, of_output[0], level)), None)
        else:
            lost = _lost_leaf(y, level) if isinstance(y, Tensor) and y.requires_grad else None
        if lost is not None:
            raise GradientError(leaf_outside(k, lost, level))


def _levels(x: object) -> list[Level]:
    return [t.level for t in layers(x)]


def _is_outside(x: object, start: Level, level: Level) -> bool:
    """Whether an input is from outside of ``level``, where a pass is that starts at the level ``start``."""
    node = x.node if isinstance(x, GradientEdge) else None
    if node is not None:
        own: Level = level_of(node)
        x = node.variable if isinstance(node, AccumulateGrad) else x
    elif isinstance(x, Tensor) and not captured_by_jit(x):
        own = x.level
    else:
        return False
    if own.id >= level.id:
        return False
    if not (own is start or (own.on_tape and start.on_tape)):
        return True
    return isinstance(x, Tensor) and _since(x) < level.id


def _lost_leaf(y: Tensor, level: Level) -> Tensor | None:
    """A leaf of the user's that ``y`` depends on, and that a pass from there, inside of ``level``, does not
    give a gradient; None if there is none.
    """
    y = outlived(y)
    tracked = [x for x in layers(y) if x.requires_grad]
    if len(tracked) == 1 and tracked[0].level is level and not level.notes_captures:
        return None  # all its leaves are of this level
    reached: set[int] = set()
    cut: set[tuple[Node, int]] = set()
    if level.deriving or any([_is_users(v) for v, _ in _leaves(y, cut)]):
        arguments = [x for own in _levels(y) for v in own.arguments for x in layers(v)]
        cut.update([gradient_edge(x) for x in arguments if x.requires_grad])
        arguments_too = False
    else:
        arguments_too = True
    for x in tracked:
        for leaf, is_stand_in in _leaves(x, cut, arguments_too):
            if not _is_users(leaf):
                continue
            own = x.level is y.level and not is_stand_in
            if own and (leaf.level.id >= level.id or _since(leaf) >= level.id):
                reached.add(id(leaf))
            elif id(leaf) not in reached:
                return leaf
    return None


def _is_users(leaf: Tensor) -> bool:
    """Whether the user made a leaf; else it is an argument of a transformed function."""
    return leaf.level.on_tape or (leaf.meta is not None and leaf.meta.made_leaf >= 0)


def _since(x: Tensor) -> int:
    """The id of the newest level when ``x`` was made, or made a leaf."""
    return x.born if x.meta is None else max(x.born, x.meta.made_leaf)


def _leaves(
    x: Tensor, cut: Container[tuple[Node, int]], arguments: bool = False
) -> Iterator[tuple[Tensor, bool]]:
    """The leaves that the graph of ``x`` at its level leads to, but by the edges in ``cut``.

    In place of a leaf that stands for a Tensor outside of a checkpointed body, the leaves of that, marked
    True; see `RecordingLevel.stands_for`.
    """
    seen: set[Node] = set()
    stack: list[tuple[Node, int] | None] = [gradient_edge(x)]
    while stack:
        edge = stack.pop()
        if edge is None or edge in cut or edge[0] in seen:
            continue
        node = edge[0]
        seen.add(node)
        if type(node) is not AccumulateGrad:
            stack.extend(node.edges)
            continue
        outside = level_of(node).stands_for(node.variable, arguments)
        if outside is None:
            yield node.variable, False
        else:
            for t in layers(outside):
                if t.requires_grad:
                    yield from [(leaf, True) for leaf, _ in _leaves(t, cut, arguments)]


def leaf_outside(k: int, x: object, level: Level) -> str:
    """The message for a leaf that a `backward` inside of ``level`` does not reach."""
    start = f"backward() inside of a transform ({level!r}): element {k} of tensors depends on"
    if isinstance(x, Tensor) and _since(x) >= level.id:
        return (
            f"{start} a leaf of {x.level!r} ({describe(x)}) that was made inside, and would give it no "
            "gradient. Make the leaf of what the function is given (t = x.detach().requires_grad_()), or "
            "take that gradient by fad.grad of a function of the leaf."
        )
    return (
        f"{start} a leaf from outside of it ({describe(x)}), whose .grad it does not reach or must not "
        "change. Return the loss and call backward() on it outside of the transform; or make the leaf an "
        "argument of the function, for which the transform gives the derivative; or, if it is a constant "
        "there, write w.detach(), or name the leaves that are meant: backward(inputs=[...])."
    )
