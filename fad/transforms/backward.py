"""The backward passes of the public API, `backward` and `grad`: where they start and end, and the call."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.borrowed import as_array
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import (
    Level,
    bind,
    captured_by_jit,
    constants,
    inside,
    layers,
    outlived,
    outside,
    restores_modes,
    state,
)
from fad.core.tensor import Tensor, bodies, is_operand, new_tensor
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import ArgumentError, GradientError, describe
from fad.tape.engine import ONES_LIKE, ZEROS_LIKE, pull_back, run
from fad.tape.graph import (
    Edge,
    GradientEdge,
    Node,
    accumulator_of,
    gradient_edge,
    running,
)
from fad.tape.hooks import accumulate, retain_grad
from fad.tape.recorder import ROOT, level_of
from fad.tape.saved import beyond_bodies, is_of_outer_graph
from fad.tape.vmap import BatchLevel
from fad.views.aliases import only_value

# Where a backward pass starts and ends: the user's Tensors, edges and cotangents, checked, as edges.

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
            metadata = t.node.metadata_of_inputs()
            if metadata and t.output_nr >= len(metadata):
                raise GradientError(
                    f"{who}: output {k} is the edge to input {t.output_nr} of {t.node.name()}, which "
                    f"takes {len(metadata)} gradients"
                )
            meta = metadata[t.output_nr] if t.output_nr < len(metadata) else None
            level: Any = level_of(t.node)
            edge = (t.node, t.output_nr)
            expected = None if meta is None or meta.is_undefined else meta
        elif isinstance(t, Tensor):
            t = outlived(t)
            if not isinstance(t, Tensor) or not t.requires_grad:
                raise GradientError(tool("hints.gradients").untracked(t, k, who))
            level, edge, expected = t.level, gradient_edge(t), t.aval
        else:
            raise ArgumentError(f"{who}: output {k} must be a Tensor, got {describe(t)}")
        if c is None:
            c = _implicit(t, expected, who)
        else:
            c = _checked(c, k, expected, who)
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
        one: Value = bind(ONES_LIKE, (t.level.detach(t),))
        return one
    return jnp.ones(expected.shape, expected.dtype)


def _checked(c: Any, k: int, expected: Any, who: str) -> Value:
    """A gradient that the user gave for root ``k``, checked against the shape and dtype of the root."""
    if not is_operand(c):
        raise TypeError(
            f"{who}: gradients can be either Tensors or None, but got {type(c).__name__} "
            f"({describe(c)}): for one array write fad.tensor(...)"
        )
    c = outlived(c)
    if expected is None:
        return c if isinstance(c, Tensor) else as_array(c)
    shape, dtype = np.shape(c), c.dtype if isinstance(c, Tensor) else jnp.result_type(c)
    if shape != tuple(expected.shape):
        raise GradientError(
            f"{who}: Mismatch in shape: grad_output[{k}] has a shape of {shape} and "
            f"output[{k}] has a shape of {tuple(expected.shape)}. Write "
            "fad.numpy.broadcast_to(g, y.shape), or reduce the output (y.sum())"
        )
    if jnp.issubdtype(dtype, jnp.complexfloating) and not jnp.issubdtype(
        expected.dtype, jnp.complexfloating
    ):
        raise GradientError(
            f"{who}: Mismatch in dtype: grad_output[{k}] is complex and output[{k}] has a dtype of "
            f"{expected.dtype}: pass its real part"
        )
    return c if isinstance(c, Tensor) else as_array(c, expected.dtype)


def edges_of(inputs: Sequence[Operand], who: str) -> list[tuple[Node, int]]:
    """The edges at which the gradients of ``inputs`` arrive; refuses inputs that do not require grad."""
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
    outside = []
    for k, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            continue
        on_tape = x.level.on_tape or x.level is state.body
        for y in outputs:
            level: Any = y.level if isinstance(y, Tensor) else x.level
            if level.id <= x.level.id or not level.alive or (level.on_tape and on_tape):
                continue
            if level.captured() is None:
                raise GradientError(
                    f"autograd.grad(): input {k} belongs to {x.level!r}, the output to {level!r}, "
                    "which is inside of it. Pass the input as an argument of the transformed "
                    "function, or take the gradient of what the transform returns, outside of it."
                )
            outside.append(k)
            break
    return outside


def refuse_paths_outside(roots: Sequence[PyTree], inputs: Sequence[PyTree]) -> None:
    """Raise where a pass in a body of `jit` would lose a path to an input: through the graph outside.

    NOTE [paths outside of a body]

        p = fad.tensor(2.0, requires_grad=True)
        h = p * p
        fad.jit(lambda: fad.autograd.grad(h * p, p))()  # raises GradientError

    ``h`` and ``p`` have twins in the body, and no path leads from one to the other there.
    """
    if not bodies.traced or state.body is None:
        return
    originals = [t for x in inputs for t in _originals(x)]
    with constants():
        ends = set(map(gradient_edge, originals))
    for node in itertools.chain.from_iterable([_graph(edge) for edge, _ in roots]):
        if _leads_outside(node, ends):
            node.run()  # raises


def _leads_outside(node: PyTree, ends: Set[PyTree]) -> bool:
    """Whether the graph outside, which goes on from ``node``, leads to one of these ends."""
    tensor = beyond_bodies(node)
    if tensor is None:
        return False
    with constants():
        behind = tensor.node, 0
    graph = list(_graph(behind))
    return any([_leads_outside(n, ends) or not ends.isdisjoint(n.edges) for n in graph])


def _originals(x: PyTree) -> list[Tensor]:
    """The Tensors around the bodies of `jit` that an input stands for."""
    if isinstance(x, GradientEdge):
        if x.node._leaf is None:
            tensor = beyond_bodies(x.node)
            return [] if tensor is None else [tensor]
        x = x.node._leaf
    return [] if state.body is None else state.body.origins(inside(x))


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
    below are searched for leaves that the user made. Dependence through an argument of the transformed
    function does not count if the pass reaches leaves that the user made inside: then it is meant for
    those.

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
            raise leaf_outside(k, lost, level)


def leaf_outside(k: int, x: object, level: Level) -> GradientError:
    """That a `backward` inside of ``level`` does not reach a leaf that output ``k`` depends on."""
    made_inside = isinstance(x, Tensor) and _since(x) >= level.id
    return GradientError(tool("hints.gradients").leaf_outside(k, x, level, made_inside))


def _levels(x: object) -> list[Level]:
    return [t.level for t in layers(x)]


def _is_outside(x: object, start: Level, level: Level) -> bool:
    """Whether an input is from outside of ``level``, where a pass is that starts at the level ``start``."""
    node = x.node if isinstance(x, GradientEdge) else None
    if node is not None:
        input_level: Level = level_of(node)
        x = x if node._leaf is None else node._leaf
    elif isinstance(x, Tensor):
        body = state.body if captured_by_jit(x) else None
        input_level = x.level if body is None else body
    else:
        return False
    if input_level.id >= level.id:
        return False
    if not (input_level is start or (input_level.on_tape and start.on_tape)):
        return True
    return isinstance(x, Tensor) and _since(x) < level.id


def _lost_leaf(y: Tensor, level: Level) -> Tensor | None:
    """A leaf made by the user that ``y`` depends on, and that gets no gradient from a pass that starts at
    ``y`` inside of ``level``; None if there is none.
    """
    y = outlived(y)
    tracked = [x for x in layers(y) if x.requires_grad]
    if len(tracked) == 1 and tracked[0].level is level and not level.notes_captures:
        return None  # all its leaves are of this level
    reached: set[int] = set()
    cut: set[tuple[Node, int]] = set()
    if level.deriving or any([_is_users(v) for v, _ in _leaves(y, cut)]):
        arguments = [x for at in _levels(y) for v in at.arguments for x in layers(v)]
        cut.update([gradient_edge(x) for x in arguments if x.requires_grad])
        arguments_too = False
    else:
        arguments_too = True
    for x in tracked:
        for leaf, is_stand_in in _leaves(x, cut, arguments_too):
            if not _is_users(leaf):
                continue
            is_here = x.level is y.level and not is_stand_in
            if is_here and (leaf.level.id >= level.id or _since(leaf) >= level.id):
                reached.add(id(leaf))
            elif id(leaf) not in reached:
                return leaf
    return None


def _is_users(leaf: Tensor) -> bool:
    """Whether the user made a leaf; else it is an argument of a transformed function."""
    return leaf._level.on_tape or (leaf.meta is not None and leaf.meta.made_leaf >= 0)


def _since(x: Tensor) -> int:
    """The id of the newest level when ``x`` was made, or made a leaf; of what stands for it, of the body."""
    if state.body is not None and outside(x) is not x:
        return state.body.id
    return x.born if x.meta is None else max(x.born, x.meta.made_leaf)


def _leaves(
    x: Tensor, cut: Container[tuple[Node, int]], arguments: bool = False
) -> Iterator[tuple[Tensor, bool]]:
    """The leaves that the graph of ``x`` at its level leads to, but by the edges in ``cut``.

    In place of a leaf that stands for a Tensor outside of a checkpointed body, the leaves of that, marked
    True; see `RecordingLevel.stands_for`. A Tensor with a history outside of a body of `jit` is like a leaf.
    """
    for node in _graph(gradient_edge(x), cut):
        if (tensor := beyond_bodies(node)) is not None:
            yield tensor, True
        if node._leaf is None:
            continue
        beyond = level_of(node).stands_for(node._leaf, arguments)
        if beyond is None:
            yield node._leaf, False
        else:
            for t in layers(beyond):
                if t.requires_grad:
                    yield from [(leaf, True) for leaf, _ in _leaves(t, cut, arguments)]


def _graph(edge: PyTree, cut: Container[tuple[Node, int]] = ()) -> Iterator[PyTree]:
    """The nodes that an edge leads to, but by the edges in ``cut``."""
    seen: set[Node] = set()
    stack = [edge]
    while stack:
        edge = stack.pop()
        if edge is None or edge in cut or edge[0] in seen:
            continue
        seen.add(edge[0])
        yield edge[0]
        stack.extend(edge[0].edges)


# The backward passes of the public API: `backward` and `grad`.


def backward(
    tensors: PyTree,
    grad_tensors: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: PyTree = None,
) -> None:
    """Accumulate gradients of ``tensors`` into the ``.grad`` of the leaves they depend on.

    Arguments:
        tensors: a Tensor or `GradientEdge`, or an iterable of them, each part of a graph.
        grad_tensors: the cotangent of each, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the gradients can be differentiated.
        inputs: the Tensors (or edges; an iterable or a dict of them) to accumulate into;
            default all leaves. One that is not a leaf is made to retain its gradient (`Tensor.retain_grad`).

    Raises:
        GradientError: an output does not require grad, is not scalar and has no cotangent, or the
            graph was freed by an earlier pass; or it is called inside of a transform, for a leaf outside of
            it, which would get nothing.

    Source: ``torch.autograd.backward``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> fad.autograd.backward(x * x)
    >>> float(x.grad)
    6.0
    """
    create_graph = create_graph or running.records is True
    keep = create_graph if retain_graph is None else retain_graph
    tensors = as_list(tensors)
    cts = None if grad_tensors is None else as_list(grad_tensors)
    inputs = None if inputs is None else as_list(inputs)
    refuse_leaves_outside(tensors, cts, inputs)
    if not keep and not create_graph and inputs is None:
        replayed = _of_trace(tensors, cts)
        if replayed is not None:
            for t, g in zip(*replayed, strict=True):
                if g is not None:
                    accumulate(accumulator_of(t), g)
            return
    roots = roots_of(tensors, cts, create_graph, "backward()")
    if inputs is None:
        run(roots, None, create_graph=create_graph, keep_graph=keep)
        return
    if not inputs:
        raise GradientError(
            "backward(): `inputs` argument to `backward()` cannot be empty: pass at least one Tensor, "
            "or leave it out for all leaves"
        )
    targets = [node for node, _ in edges_of(inputs, "backward()")]
    refuse_paths_outside(roots, inputs)
    for t in inputs:
        if isinstance(t, Tensor):
            retain_grad(t)
    run(roots, None, targets=targets, create_graph=create_graph, keep_graph=keep)


def _of_trace(
    tensors: Sequence[Value],
    cotangents: Sequence[MaybeValue] | None,
    inputs: Sequence[Value] | None = None,
) -> tuple[Sequence[Tensor], Sequence[MaybeValue]] | None:
    """Leaves of a deferred step, all or the ``inputs``, and their gradients, if its trace gives them.

    None if the step has to be recorded first, or if an input is not a leaf of it.
    """
    trace = state.trace
    if trace is None or not tensors:
        return None
    if not all([type(t) is Tensor and t._requires_grad for t in tensors]):
        return None
    arrays = [_array_of(c) for c in cotangents or ()]
    if cotangents is None:
        fits = [t.shape == () and jnp.issubdtype(t.dtype, jnp.floating) for t in tensors]
    else:
        pairs = zip(arrays, tensors, strict=False)
        fits = [c is not None and (c.shape, c.dtype) == (t.shape, t.dtype) for c, t in pairs]
    if not all(fits) or len(fits) != len(tensors):
        return None  # an error, or a pass over recorded nodes
    nonzero = [c for c in arrays if c is not None]
    return trace.finish(list(tensors), _of_leaves, leaves=inputs, cotangents=nonzero, values=True)


def _array_of(c: MaybeValue) -> MaybeValue:
    """The array of a cotangent; None where it has a history or a tangent, or is not an array."""
    value: MaybeValue = only_value(c) if type(c) is Tensor else c
    return value if type(value) is array_type else None


def _of_leaves(
    level: Level,
    outs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    values: Sequence[Value],
    *cotangents: Value,
) -> list[MaybeValue]:
    """Gradients of outputs with respect to the leaves of a step; None where nothing arrives."""
    seeds = cotangents or [bind(ONES_LIKE, (o.level.detach(o),)) for o in outs]
    return pull_back(outs, seeds, leaves)


def grad(
    outputs: Any,
    inputs: PyTree,
    grad_outputs: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Gradients of ``outputs`` with respect to ``inputs``, returned rather than accumulated.

    Arguments:
        outputs: a Tensor or `GradientEdge`, or an iterable of them.
        inputs: a Tensor or `GradientEdge`, an iterable (``model.parameters()``), or a dict of them; leaves
            or not.
        grad_outputs: the cotangent of each output, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the results can be differentiated again.
        only_inputs: ignored, as in PyTorch; False warns.
        allow_unused: give None for an input that the outputs do not depend on, rather than raise;
            default is the value of ``materialize_grads``.
        is_grads_batched: ``grad_outputs`` have a leading batch dimension, and so have the results.
        materialize_grads: give zeros rather than None for unused inputs; with ``create_graph``, zeros that
            require grad.

    Returns:
        A tuple with one Tensor (or None) for each input, of its shape and dtype; a dict for a dict.

    Raises:
        GradientError: as `backward`; or an input was unused and that was not allowed.

    Source: ``torch.autograd.grad``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> (g,) = fad.autograd.grad(x * x * x, x, create_graph=True)
    >>> float(g), float(fad.autograd.grad(g, x)[0])
    (27.0, 18.0)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "autograd.grad(): Expected allow_unused to be True or not passed when "
            "materialize_grads=True, but got: allow_unused=False."
        )
    if not only_inputs:
        warnings.warn(
            "autograd.grad(): only_inputs is ignored: to accumulate gradients of other leaves, call "
            "fad.autograd.backward",
            FutureWarning,
            stacklevel=2,
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    create_graph = create_graph or running.records is True
    keep = create_graph if retain_graph is None else retain_graph
    options = _Options(keep, create_graph, allow_unused, materialize_grads)
    names = list(inputs) if isinstance(inputs, dict) else None
    outputs, inputs = as_list(outputs), as_list(inputs)
    if not inputs:
        raise GradientError(
            "autograd.grad(): `inputs` argument to `grad()` cannot be empty: pass what to differentiate with "
            "respect to"
        )
    cts = None if grad_outputs is None else as_list(grad_outputs)
    if is_grads_batched:
        if cts is None:
            raise GradientError(
                "autograd.grad(): is_grads_batched=True needs grad_outputs: a cotangent for each output, "
                "with a leading batch dimension"
            )
        result = _batched_grad(outputs, inputs, cts, options)
    else:
        result = tuple(_grad(outputs, inputs, cts, options))
    return result if names is None else dict(zip(names, result, strict=True))


class _Options(NamedTuple):
    """Options of `grad`, once all are decided."""

    keep_graph: bool
    create_graph: bool
    allow_unused: bool
    zeros_for_unused: bool

    def run(self, roots: PyTree, edges: PyTree, keep_graph: bool = False) -> list[MaybeValue]:
        """A pass from these roots: the gradients that arrive at the edges."""
        keep = keep_graph or self.keep_graph
        return run(roots, edges, create_graph=self.create_graph, keep_graph=keep)


def _grad(
    outputs: Sequence[Tensor],
    inputs: Sequence[Value],
    cotangents: Sequence[MaybeValue] | None,
    options: _Options,
) -> list[MaybeValue]:
    """`grad` of lists."""
    if bodies.traced and state.body is not None and all(map(is_of_outer_graph, outputs)):
        with constants():  # the pass is over the graph outside
            return _grad(outputs, inputs, cotangents, options)
    replayed = None
    if not options.keep_graph and not options.create_graph:
        replayed = _of_trace(outputs, cotangents, inputs)
    if replayed is not None:
        grads = list(replayed[1])
    else:
        roots = roots_of(outputs, cotangents, options.create_graph, "autograd.grad()")
        edges = edges_of(inputs, "autograd.grad()")
        refuse_paths_outside(roots, inputs)
        outside = inputs_outside(outputs, inputs)
        if outside:
            grads = _through_captures(roots, inputs, outside, options)
        else:
            grads = options.run(roots, edges)
    pairs = zip(inputs, grads, strict=True)
    return [_finish(k, x, g, options) for k, (x, g) in enumerate(pairs)]


def _through_captures(
    roots: Sequence[PyTree], inputs: Sequence[Value], outside: Sequence[int], options: _Options
) -> list[MaybeValue]:
    """Gradients with respect to inputs some of which are ``outside`` of the level of the roots.

    First the gradients of Tensors that the level captured; from these on through the graph outside, which
    is kept.
    """
    level = level_of(roots[0][0][0])
    pairs = [(t, s) for t, s in zip(*level.captured(), strict=True) if s.requires_grad]
    inside = [x for k, x in enumerate(inputs) if k not in outside]
    ends = edges_of([*[s for _, s in pairs], *inside], "autograd.grad()")
    grads = options.run(roots, ends)
    captured = [(t, g) for (t, _), g in zip(pairs, grads) if g is not None]
    if not all([t.requires_grad for t, _ in captured]):
        raise GradientError(
            f"autograd.grad(): input {outside[0]} is from outside of {level!r}, which runs again after the "
            "transform outside of it has finished: pass it as an argument of the function"
        )
    outer = edges_of([inputs[k] for k in outside], "autograd.grad()")
    further = [(edges_of([t], "autograd.grad()")[0], g) for t, g in captured]
    refuse_paths_outside(further, [inputs[k] for k in outside])
    beyond = iter(options.run(further, outer, keep_graph=True))
    rest = iter(grads[len(pairs) :])
    return [next(beyond) if k in outside else next(rest) for k in range(len(inputs))]


def _level(x: Tensor | GradientEdge) -> Level:
    """The level of a Tensor or of a gradient edge."""
    return x.level if isinstance(x, Tensor) else level_of(x.node)


def _finish(k: int, x: PyTree, g: PyTree, options: _Options) -> PyTree:
    """What `grad` returns for input ``k``, which got the value ``g`` of its level, None if nothing."""
    level = _level(x)
    if g is not None:
        return level.lift(g)
    if options.zeros_for_unused:
        if isinstance(x, Tensor):
            zeros = level.lift(bind(ZEROS_LIKE, (level.detach(x),)))
        else:
            m = x.node.input_metadata(x.output_nr)
            zeros = level.lift(jnp.zeros(m.shape, m.dtype))
        return zeros.requires_grad_() if options.create_graph else zeros
    if not options.allow_unused:
        raise GradientError(
            f"autograd.grad(): The differentiated Tensor at index {k} appears to not have been used "
            "in the graph. Set allow_unused=True if this is the desired behavior."
        )
    return None


@restores_modes
def _batched_grad(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Value],
    options: _Options,
) -> tuple[MaybeValue, ...]:
    """`grad` for cotangents with a leading batch dimension, by a vmap over the backward pass."""
    cotangents = [c if c is None or isinstance(c, Tensor) else as_array(c) for c in cotangents]
    sizes = {tuple(c.shape[:1]) for c in cotangents if c is not None}
    if len(sizes) != 1 or sizes == {()}:
        raise GradientError(
            "autograd.grad(): with is_grads_batched=True each of grad_outputs needs the same "
            f"leading batch dimension, got leading sizes {sorted(sizes)}"
        )
    for k, (y, c) in enumerate(zip(outputs, cotangents)):
        shape = () if c is None else tuple(c.shape[1:])
        if c is not None and isinstance(y, Tensor) and shape != tuple(y.shape):
            raise GradientError(
                "autograd.grad(): If `is_grads_batched=True`, we interpret the first dimension of each "
                "grad_output as the batch dimension. The sizes of the remaining dimensions are "
                "expected to match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{k}] has a shape of {shape} and output[{k}] has a shape of "
                f"{tuple(y.shape)}"
            )
    with BatchLevel(sizes.pop()[0], randomness="same") as level:
        cts = [None if c is None else new_tensor(c, level, 0) for c in cotangents]
        pairs = zip(inputs, _grad(outputs, inputs, cts, options), strict=True)
        return tuple([g if g is None else _level(x).lift(level.unwrap(g, 0)) for x, g in pairs])
