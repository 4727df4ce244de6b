"""The engine: runs a recorded graph backward, node by node."""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.core.jaxapi import array_type
from fad.core.level import MODES, bind, state
from fad.core.primitive import Primitive, cast_to
from fad.core.tensor import Tensor, is_operand
from fad.core.threads import on_new_thread
from fad.core.types import Array, MaybeValue, Operand, Value
from fad.errors import GradientError, describe
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import nan_origins, watched_node
from fad.tape.graph import (
    InputMetadata,
    Node,
    extra_of,
    gradient_edge,
    running,
    sharding_of,
)
from fad.tape.hooks import (
    ADD,
    accumulate,
    call_post_hooks,
    call_pre_hooks,
    call_tensor_hooks,
)
from fad.tape.recorder import ROOT, as_tensor, level_of
from fad.tape.saved import for_edges

# One node of a backward pass: its hooks, its work, and the checks between them.


def step(
    node: Any,
    cotangents: list[MaybeValue],
    need: tuple[bool, ...],
    create_graph: bool,
    keep_graph: bool,
) -> Sequence[MaybeValue]:
    """Gradients for every edge of ``node``; None where there is none, or ``need`` says no."""
    grads: Sequence[MaybeValue] = ()
    hooked = node._leaf is not None or node.extra is not None
    if hooked:
        cotangents = call_tensor_hooks(node, cotangents, create_graph)
        cotangents = call_pre_hooks(node, cotangents, create_graph)
    if node._leaf is not None:
        accumulate(node, cotangents[0], create_graph)
    else:
        if not keep_graph:
            node.will_release_variables()
        if node._is_recorded:
            grads = for_edges(node.run(cotangents, need, create_graph), need)
        else:
            grads = _run_by_hand(node, cotangents, create_graph)
        if not node._is_derived:
            grads = _validated(node, grads)
    return call_post_hooks(node, grads, cotangents, create_graph) if hooked else grads


def _run_by_hand(
    node: Node, cotangents: Sequence[MaybeValue], create_graph: bool
) -> Sequence[MaybeValue]:
    """Run a node that the user wrote: on Tensors, one thread at a time, the results counted."""
    level = level_of(node)
    with extra_of(node).lock:
        out = node.apply(*[None if c is None else level.lift(c) for c in cotangents])
    grads = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(grads) != len(node.edges):
        raise GradientError(
            f"Function {node.name()} returned an incorrect number of gradients "
            f"(expected {len(node.edges)}, got {len(grads)})"
        )
    for i, g in enumerate(grads):
        if g is not None and not is_operand(g):
            raise GradientError(
                f"Function {node.name()} returned an invalid gradient at index {i} - got {describe(g)} "
                "but expected a Tensor or None"
            )
    grads = [None if g is None else as_tensor(g) for g in grads]
    return grads if create_graph else [None if g is None else level.detach(g) for g in grads]


def _validated(node: Node, grads: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    """Gradients in the form that the next nodes expect; broadcast ones are summed.

    Shape, dtype, and for nodes that have it, the devices.
    """
    result = list(grads)
    for i, (g, edge) in enumerate(zip(grads, node.edges, strict=True)):
        if g is None or edge is None:
            continue
        target, nr = edge
        if target._leaf is not None and _is_alike(g, target._leaf):
            continue
        metadata = target.metadata_of_inputs()
        if nr >= len(metadata) or metadata[nr].is_undefined:
            continue
        expected = metadata[nr]
        shape = tuple(g.shape)
        if shape != tuple(expected.shape):
            if not is_broadcast(expected.shape, shape):
                raise GradientError(
                    f"Function {node.name()} returned an invalid gradient at index {i} - got "
                    f"{list(shape)} but expected shape compatible with {list(expected.shape)}"
                )
            g = bind(sum_to(tuple(expected.shape), len(shape)), (g,))
        if g.dtype != expected.dtype:
            g = bind(cast_to(jnp.dtype(expected.dtype)), (g,))
        if not target._is_recorded:
            g = _placed(node, i, g, expected)
        result[i] = g
    return result


def _is_alike(g: Value, variable: Tensor) -> bool:
    """Whether a gradient certainly has the shape, dtype and place of a leaf of level 0."""
    meta, value = variable.meta, variable._value
    if type(value) is not array_type or (meta is not None and meta.link is not None):
        return False
    aval = value.aval
    if type(g) is not array_type:
        return False
    return g.shape == aval.shape and g.dtype == aval.dtype and g.sharding == value.sharding


def _placed(node: Node, i: int, g: Value, expected: InputMetadata) -> Value:
    """A gradient on the devices where it is expected; a scalar is sent there, as in PyTorch."""
    sharding = sharding_of(g)
    if expected.sharding is None or sharding is None:
        return g
    wanted, devices_of_g = expected.sharding.device_set, sharding.device_set
    if wanted == devices_of_g:
        return g
    if g.shape == ():
        result: Value = bind(_put_on(expected.sharding), (g,))
        return result
    names = [", ".join(sorted(map(str, devices))) for devices in (wanted, devices_of_g)]
    raise GradientError(
        f"Function {node.name()} returned an invalid gradient at index {i} - expected device "
        f"{names[0]} but got {names[1]}"
    )


def is_broadcast(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether the shape ``small`` can be broadcast to ``large``."""
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False))


@functools.lru_cache(maxsize=1024)
def sum_to(shape: tuple[int, ...], ndim: int) -> Primitive:
    """The sum of a gradient with ``ndim`` dimensions over those along which ``shape`` was broadcast."""

    def sum_to(x: Array) -> Array:
        x = jnp.sum(x, axis=tuple(range(ndim - len(shape))))
        axes = tuple([i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1])
        return jnp.sum(x, axis=axes, keepdims=True)

    return Primitive("sum_to", sum_to, deferrable=True)


@functools.lru_cache(maxsize=64)
def _put_on(sharding: jax.sharding.Sharding) -> Primitive:
    return Primitive("to", lambda x: jax.device_put(x, sharding), jit=False)


# The engine: runs a recorded graph backward, node by node.


def _filled(name: str, number: int) -> Primitive:
    """A Primitive that gives ``number`` in the shape, dtype and sharding of its argument.

    The argument is read, though XLA removes that read: for a program without inputs it would not be
    known on which devices to run.
    """

    def fill(x: Array) -> Array:
        full = jax.lax.full_like(x, number)
        return jax.lax.select(x == x, full, full)

    return Primitive(name, fill, deferrable=True)


ZEROS_LIKE = _filled("zeros_like", 0)
ONES_LIKE = _filled("ones_like", 1)
# What `fad.grad` starts from. It has no tangent, so that a Hessian's product computes no terms of zeros.
# A pass of the tape starts from `ONES_LIKE`: gradients of duals are duals there, as in PyTorch.
UNIT_COTANGENT = _filled("unit_cotangent", 1)
UNIT_COTANGENT.dependence = lambda mask: (False,)


@dataclasses.dataclass(slots=True, eq=False, weakref_slot=True)
class _Task:
    """One backward pass: how deep it is nested in others, what to call when it is done, and its nodes."""

    depth: int
    callbacks: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    nodes: Container[Node] = ()

    def will_run(self, node: Node | None) -> bool:
        """Whether this pass reaches ``node``."""
        return node in self.nodes


_THREAD_DEPTH = 12  # reentrant passes nested deeper than this continue on a stack of their own
_MOST_NESTED = 3_000  # more than this is a hook or a rule that starts passes without end


def current_node() -> Node | None:
    """The node whose backward pass this thread is running now, None outside of one.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> handle = y.grad_fn.register_prehook(lambda g: print(fad.autograd.current_node()))
    >>> y.backward()
    <MultiplyBackward>
    """
    return running.current


def queue_callback(callback: Callable[[], object]) -> None:
    """Call ``callback()`` when the backward pass that is running now has finished.

    Raises:
        GradientError: no backward pass is running in this thread.

    Source: ``torch.autograd.Variable._execution_engine.queue_callback``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> hook = x.register_hook(lambda g: fad.autograd.queue_callback(lambda: print("done")))
    >>> (x * x).backward()
    done
    """
    if running.task is None:
        raise GradientError(
            "queue_callback: Final callbacks can only be installed during backward pass: call it in a hook, "
            "or in the backward of a Function"
        )
    running.task.callbacks.append(callback)


def run(
    roots: Sequence[tuple[tuple[Node, int], Value]],
    captures: Sequence[tuple[Node, int]] | None,
    *,
    targets: Sequence[Node] | None = None,
    create_graph: bool = False,
    keep_graph: bool = False,
) -> list[Any]:
    """Send cotangents back from ``roots``.

    Arguments:
        roots: pairs of a gradient edge and the cotangent that enters there.
        captures: edges whose gradients are wanted; None accumulates into the leaves instead.
        targets: where ``captures`` is None, the nodes that the pass is for (default all of them): these
            run, and what leads to them.
        create_graph: record the backward pass itself; gradients are then Tensors of the level that
            recorded the graph, otherwise its detached values.
        keep_graph: keep saved values for another pass.

    Returns:
        The gradient for each of ``captures``, None where nothing arrived.

    Nodes run in the order of their ``sequence_nr``, latest first, once all gradients that flow into
    them have arrived and been added up.
    """
    outer = running.task
    task = _Task(0 if outer is None else outer.depth + 1)
    if task.depth > _MOST_NESTED:
        raise RecursionError(
            f"{_MOST_NESTED} backward passes are nested, each started by a hook or a rule that runs in the "
            "one before. A pass that a hook starts must not call that hook again without end: start it from "
            "a detached Tensor, or take the hook away before (handle.remove())."
        )
    if task.depth and task.depth % _THREAD_DEPTH == 0:
        return _in_thread(task, roots, captures, targets, create_graph, keep_graph)
    return _run_task(task, roots, captures, targets, create_graph, keep_graph)


def pull_back(
    outputs: Sequence[Operand],
    cotangents: Sequence[MaybeValue],
    inputs: Sequence[Tensor],
    *,
    keep_graph: bool = False,
) -> list[MaybeValue]:
    """Gradients of ``inputs``, as values below their level; None is zero.

    ``outputs`` that are not part of the inputs' graph, and cotangents of None, contribute nothing.
    """
    level = inputs[0].level
    roots = [
        (gradient_edge(y), level.detach(c) if isinstance(c, Tensor) else c)
        for y, c in zip(outputs, cotangents, strict=True)
        if c is not None and isinstance(y, Tensor) and y.requires_grad and y._level is level
    ]
    return run(roots, [gradient_edge(x) for x in inputs], keep_graph=keep_graph)


def _in_thread(task: _Task, *args: Any) -> list[MaybeValue]:
    """Run a deeply nested pass on a thread of its own, with this thread's modes and levels."""
    modes = {name: getattr(state, name) for name in MODES if name != "trace"}

    def work() -> list[MaybeValue]:
        for name, value in modes.items():
            setattr(state, name, value)
        return _run_task(task, *args)

    try:
        return on_new_thread(work, "fad-reentrant-backward")
    except RecursionError as error:  # the frames of the outermost passes will do
        raise error.with_traceback(None) from None


def _run_task(
    task: _Task,
    roots: Sequence[tuple[tuple[Node, int], Value]],
    captures: Sequence[tuple[Node, int]] | None,
    targets: Sequence[Node] | None,
    create_graph: bool,
    keep_graph: bool,
) -> list[MaybeValue]:
    """`run`, node by node.

    The loop takes the latest node of which all gradients have arrived, runs it, and sends on what it gives.
    What looks at a pass is beside the loop: hooks and captures where it ends (`_end`), and all else that can
    be attached to a node (`_attended`).
    """
    wanted: dict[Node, list[int]] = {}
    results: list[MaybeValue] = []
    if captures is not None:
        results = [None] * len(captures)
        for k, (node, _) in enumerate(captures):
            wanted.setdefault(node, []).append(k)
    starts = [e[0] for e, _ in roots]
    graph = graph_of(starts, wanted, targets)
    nans = nan_origins() if anomaly.looks_for_nan else None
    dependencies, needed = graph.counts, graph.needed
    buffers: dict[Node, list[MaybeValue]] = {}
    for (node, nr), cotangent in roots:
        _add_to(buffers, node, nr, cotangent)
    task.nodes = dependencies
    # A root that other roots lead to is deferred: it is pushed when its last input arrives.
    ready = [(-n.sequence_nr, i, n) for i, n in enumerate(buffers) if not dependencies.get(n)]
    heapq.heapify(ready)
    tie = len(buffers)
    before = (state.watermark, running.task, running.current, running.need)
    try:
        running.task = task
        if create_graph:
            state.watermark = state.base_watermark
        else:
            # At the levels of the eager tape hooks and rules compute without recording. At others they
            # cannot: what they compute is part of the levels below, and nothing of their own level is
            # tracked here anyway.
            tape = [(n.level or ROOT).tape_id for n in starts]
            if min(tape, default=ROOT.id) >= ROOT.id:
                state.watermark = max(state.watermark, ROOT.id, *tape)
        while ready:
            node = heapq.heappop(ready)[2]
            cotangents = buffers.pop(node)
            running.current = node
            edges = graph.edges[node]
            runs = (needed is None or node in needed) and (captures is None or bool(edges))
            # What is captured is read before the node runs: its own hooks may still change what it is given.
            if node in wanted or (not runs and len(roots) == 1):
                cotangents = _end(node, cotangents, runs, create_graph)
                for k in wanted.get(node, ()):
                    assert captures is not None
                    results[k] = cotangents[captures[k][1]]
                    if nans is not None:
                        nans.arrive(node, results[k])
            if not runs:
                continue
            need = tuple(
                [e is not None and (needed is None or e[0] in dependencies) for e in edges]
            )
            running.need = need
            # Most nodes: of operations, which nothing looks at.
            if node._is_derived and node.extra is None and not anomaly.nodes:
                grads = node.run(cotangents, need, create_graph)
                if len(grads) != len(need):
                    grads = for_edges(grads, need)
                if not keep_graph:
                    node.release_variables()
            else:
                if nans is not None and node._leaf is not None:
                    nans.arrive(node, cotangents[0])
                grads = _attended(node, cotangents, need, create_graph, keep_graph)
                if nans is not None:
                    nans.follow(node, cotangents, grads, edges)
            for edge, g in zip(edges, grads, strict=True):
                if edge is None:
                    continue
                n, nr = edge
                count = dependencies.get(n)
                if count is None:  # it leads to nothing that is captured
                    continue
                _add_to(buffers, n, nr, g)
                dependencies[n] = count - 1  # also for None: a node runs when all have arrived
                if count == 1:
                    tie += 1
                    heapq.heappush(ready, (-n.sequence_nr, tie, n))
        running.current, running.need = before[2:]
        for callback in task.callbacks:  # a callback may queue others
            callback()
    finally:
        state.watermark, running.task, running.current, running.need = before
        running.passed += len(dependencies)
    return results


def _end(
    node: Node, cotangents: list[MaybeValue], runs: bool, create_graph: bool
) -> list[MaybeValue]:
    """What has arrived where a pass ends, after the hooks of Tensors, which run there.

    Also, as in PyTorch, those of a root that leads nowhere, if it is the only one.
    """
    if node._leaf is not None:
        meta = node._leaf.meta
        hooked = meta is not None and bool(meta.hooks)
    else:
        hooked = not runs and node.extra is not None
    return call_tensor_hooks(node, cotangents, create_graph) if hooked else cotangents


def _attended(
    node: Any,
    cotangents: list[MaybeValue],
    need: tuple[bool, ...],
    create_graph: bool,
    keep_graph: bool,
) -> Sequence[MaybeValue]:
    """What any node gives for its edges: it may be watched, or a leaf, or have hooks."""
    run = functools.partial(watched_node, step) if anomaly.nodes else step
    grads: Sequence[MaybeValue] = run(node, cotangents, need, create_graph, keep_graph)
    if not keep_graph and node._leaf is None:
        if node._is_recorded:
            node.release_variables()
        else:
            with extra_of(node).lock:  # no other thread runs what a user wrote
                node.release_variables()
    return grads


def _add_to(buffers: dict[Node, list[MaybeValue]], node: Node, nr: int, value: MaybeValue) -> None:
    """Add ``value`` to what has arrived at input ``nr`` of ``node``."""
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * max(node.num_inputs, nr + 1)
    elif nr >= len(slots):
        slots.extend([None] * (nr + 1 - len(slots)))
    if value is not None:
        sofar = slots[nr]
        slots[nr] = value if sofar is None else bind(ADD, (sofar, value))


@dataclasses.dataclass(slots=True)
class _PassGraph:
    """What a pass goes through, as it is when the pass begins: another thread may change edges later.

    ``counts``: how many edges of the pass lead to each of its nodes. ``needed``: which nodes run (None: all).
    """

    edges: dict[Node, Sequence[tuple[Node, int] | None]]
    counts: dict[Node, int]
    needed: set[Node] | None


def graph_of(
    roots: Sequence[Node], wanted: Container[Node], targets: Sequence[Node] | None
) -> _PassGraph:
    """The graph behind ``roots``.

    A pass with ``wanted`` nodes consists of these and of what leads to them, which runs. With
    ``targets``, these run too.
    """
    counts: dict[Node, int] = dict.fromkeys(roots, 0)
    ends = wanted if targets is None else set(targets)
    stack = list(counts)
    stray = any([bool(n.edges) for n in ends])  # type: ignore[attr-defined]
    edges_of: dict[Node, Sequence[tuple[Node, int] | None]] = {}
    while stack:
        node = stack.pop()
        edges = edges_of[node] = node.edges
        if not edges and node not in ends:
            stray = True
        for edge in edges:
            if edge is None:
                continue
            n = edge[0]
            if n in counts:
                counts[n] += 1
            else:
                counts[n] = 1
                stack.append(n)
    if not stray or (targets is None and not wanted):
        return _PassGraph(edges_of, counts, None)
    # Reverse reachability: from the ends up, along edges turned round.
    parents: dict[Node, list[Node]] = {}
    for node, edges in edges_of.items():
        for edge in edges:
            if edge is not None:
                parents.setdefault(edge[0], []).append(node)
    needed: set[Node] = set() if targets is None else set(targets)
    stack = [n for n in ends if n in counts]  # type: ignore[attr-defined]
    while stack:
        for p in parents.get(stack.pop(), ()):
            if p not in needed:
                needed.add(p)
                stack.append(p)
    # What leads to a node of the pass is itself needed, so all of the counted edges will be used.
    counts = {n: c for n, c in counts.items() if n in needed or n in ends}
    return _PassGraph(edges_of, counts, needed)
