"""The engine: runs a recorded graph backward, node by node."""

from __future__ import annotations

import functools
import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.dispatch import STATE_NAMES, bind, outlived, state
from fad.errors import GradientError, describe
from fad.graph import AccumulateGrad, GradientEdge, Node, gradient_edge, running
from fad.levels import BatchLevel
from fad.primitive import Primitive
from fad.tape import compiled
from fad.tape.anomaly import check_gradients, warn_of
from fad.tape.anomaly import mode as anomaly
from fad.tape.hooks import call_post_hooks, call_pre_hooks, call_tensor_hooks, hook_result
from fad.tape.record import ROOT, PrimitiveNode, RecordedNode, as_tensor, spread
from fad.tensor import Tensor, meta_of, new_tensor

__all__ = ["ADD", "ZEROS_LIKE", "backward", "grad", "pull_back", "run"]

ADD = Primitive("add", jnp.add)
ZEROS_LIKE = Primitive("zeros_like", lambda x: jax.lax.full_like(x, 0))
ONES_LIKE = Primitive("ones_like", lambda x: jax.lax.full_like(x, 1))
_accumulate_lock = threading.RLock()


class _Task:
    """One backward pass: how deep it is nested in others, and what to call when it is done."""

    __slots__ = ("__weakref__", "callbacks", "depth", "nodes")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.callbacks: list[Callable[[], Any]] = []
        self.nodes: Any = ()

    def will_run(self, node: Node) -> bool:
        """Whether this pass reaches ``node``."""
        return node in self.nodes


_THREAD_DEPTH = 12  # reentrant passes nested deeper than this continue on a stack of their own


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call ``callback()`` when the backward pass that is running now has finished.

    Raises:
        GradientError: no backward pass is running in this thread.

    Source: ``torch.autograd.Variable._execution_engine.queue_callback``.
    """
    if running.task is None:
        raise GradientError("Final callbacks can only be installed during backward pass.")
    running.task.callbacks.append(callback)


def run(
    roots: Sequence[tuple[tuple[Node, int], Any]],
    captures: Sequence[tuple[Node, int]] | None,
    *,
    create_graph: bool = False,
    keep_graph: bool = False,
) -> list[Any]:
    """Send cotangents back from ``roots``.

    Arguments:
        roots: pairs of a gradient edge and the cotangent that enters there.
        captures: edges whose gradients are wanted; None accumulates into the leaves instead.
        create_graph: record the backward pass itself; gradients are then Tensors of the level that
            recorded the graph, otherwise its detached values.
        keep_graph: keep saved values for another pass.

    Returns:
        The gradient for each of ``captures``, None where nothing arrived.

    Nodes run in the order of their ``sequence_nr``, latest first, once all gradients that flow into
    them have arrived and been added up.
    """
    if not create_graph and not anomaly.on:
        found = compiled.prepare(roots, captures)
        grads = None if found is None else found.run()
        if found is not None and grads is not None:
            return _finish_compiled(found, grads, captures is None, keep_graph)
    outer = running.task
    task = _Task(0 if outer is None else outer.depth + 1)
    if task.depth and task.depth % _THREAD_DEPTH == 0:
        return _in_thread(task, roots, captures, create_graph, keep_graph)
    return _run_task(task, roots, captures, create_graph, keep_graph)


def _finish_compiled(
    found: compiled.Pass, grads: list[Any], accumulate: bool, keep_graph: bool
) -> list[Any]:
    """What is left to do after a pass that ran as one call."""
    if not keep_graph:
        for node in found.order:
            node.release_variables()
    if not accumulate:
        return grads
    for (node, _), g in zip(found.captures, grads, strict=True):
        if g is not None:
            _accumulate(node, g)
    return []


def _in_thread(task: _Task, *args: Any) -> list[Any]:
    """Run a deeply nested pass on a thread of its own, with this thread's modes and levels."""
    modes = {name: getattr(state, name) for name in STATE_NAMES}
    result: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        for name, value in modes.items():
            setattr(state, name, value)
        try:
            result.append(_run_task(task, *args))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, name="fad-reentrant-backward")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    found: list[Any] = result[0]
    return found


def _run_task(
    task: _Task,
    roots: Sequence[tuple[tuple[Node, int], Any]],
    captures: Sequence[tuple[Node, int]] | None,
    create_graph: bool,
    keep_graph: bool,
) -> list[Any]:
    wanted: dict[Node, list[int]] = {}
    results: list[Any] = []
    if captures is not None:
        results = [None] * len(captures)
        for k, (node, _) in enumerate(captures):
            wanted.setdefault(node, []).append(k)
    dependencies, useful = _dependencies([e[0] for e, _ in roots], wanted, captures is not None)

    buffers: dict[Node, list[Any]] = {}
    for (node, nr), cotangent in roots:
        _add_to(buffers, node, nr, cotangent)
        dependencies.setdefault(node, 0)
    task.nodes = dependencies
    # A root that other roots lead to waits for them; it is pushed when its last input arrives.
    ready = [(-n.sequence_nr, i, n) for i, n in enumerate(buffers) if dependencies.get(n, 0) == 0]
    heapq.heapify(ready)
    tie = len(buffers)
    before = (state.blocked, running.task, running.current, running.need)
    running.task = task
    if create_graph:
        state.blocked = state.floor
    try:
        while ready:
            node = heapq.heappop(ready)[2]
            cotangents = buffers.pop(node)
            is_needed = useful is None or node in useful
            if node in wanted:
                if not is_needed and type(node) is not AccumulateGrad and node.extra is not None:
                    cotangents = call_tensor_hooks(node, cotangents, create_graph)
                elif type(node) is AccumulateGrad:
                    cotangents = _leaf_hooks(node, cotangents, create_graph)
                for k in wanted[node]:
                    assert captures is not None
                    results[k] = cotangents[captures[k][1]]
            if type(node) is AccumulateGrad:
                if captures is None:
                    _reach_leaf(node, cotangents, create_graph)
                continue
            if not is_needed:
                continue
            edges = node.edges
            if useful is None:
                need = tuple([e is not None for e in edges])
            else:
                need = tuple([e is not None and (e[0] in useful or e[0] in wanted) for e in edges])
            grads = _run_node(node, cotangents, need, create_graph)
            if not keep_graph:
                node.will_release_variables()
                node.release_variables()
            for edge, g in zip(edges, grads, strict=True):
                if edge is None:
                    continue
                n, nr = edge
                if n not in dependencies:
                    continue
                _add_to(buffers, n, nr, g)
                dependencies[n] -= 1
                if dependencies[n] == 0:
                    tie += 1
                    heapq.heappush(ready, (-n.sequence_nr, tie, n))
        for callback in task.callbacks:  # a callback may queue others
            callback()
    finally:
        state.blocked, running.task, running.current, running.need = before
    return results


def _run_node(
    node: Node, cotangents: list[Any], need: tuple[bool, ...], create_graph: bool
) -> Sequence[Any]:
    """Gradients for every edge of ``node``: hooks, its work, hooks."""
    extra = node.extra
    if extra is not None:
        cotangents = call_tensor_hooks(node, cotangents, create_graph)
        cotangents = call_pre_hooks(node, cotangents, create_graph)
    if not any(need):
        return [None] * len(need)
    running.current, running.need = node, need
    if type(node) is PrimitiveNode:
        if all([c is None for c in cotangents]):
            grads: Sequence[Any] = [None] * len(need)
        elif anomaly.on:
            grads = _watched(node, cotangents, need, create_graph)
        else:
            grads = spread(node.run(cotangents, need, create_graph), need)
    else:
        work = _watched if anomaly.on else _work
        grads = validated(node, work(node, cotangents, need, create_graph))
    running.current = None
    if extra is not None and extra.post_hooks:
        grads = call_post_hooks(node, grads, cotangents, create_graph)
    return grads


def _work(
    node: Node, cotangents: list[Any], need: tuple[bool, ...], create_graph: bool
) -> Sequence[Any]:
    if isinstance(node, RecordedNode):
        return spread(node.run(cotangents, need, create_graph), need)
    return run_by_hand(node, cotangents, create_graph)


def _watched(
    node: Node, cotangents: list[Any], need: tuple[bool, ...], create_graph: bool
) -> Sequence[Any]:
    """Run a node in anomaly mode."""
    try:
        grads = _work(node, cotangents, need, create_graph)
    except Exception:
        warn_of(node)
        raise
    if anomaly.check_nan:
        check_gradients(node, grads)
    return grads


def run_by_hand(node: Node, cotangents: Sequence[Any], create_graph: bool) -> Sequence[Any]:
    """Run a node that the user wrote: on Tensors, with the number of results checked."""
    level = level_of(node)
    blocked = state.blocked
    if not create_graph:
        state.blocked = max(blocked, level.id) if level is ROOT else blocked
    try:
        out = node.apply(*[None if c is None else level.lift(c) for c in cotangents])
    finally:
        state.blocked = blocked
    grads = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(grads) != len(node.edges):
        raise GradientError(
            f"Function {node.name()} returned an incorrect number of gradients "
            f"(expected {len(node.edges)}, got {len(grads)})"
        )
    return [g if g is None or create_graph else level.detach(as_tensor(g)) for g in grads]


def level_of(node: Node) -> Any:
    """The level of a node; one built by hand has that of what it leads to."""
    todo, seen = [node], {node}
    while todo:
        n = todo.pop()
        if n.level is not None:
            return n.level
        for edge in n.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                todo.append(edge[0])
    return ROOT


def validated(node: Node, grads: Sequence[Any]) -> Sequence[Any]:
    """Gradients in the shape and dtype that the next nodes expect; broadcast ones are summed."""
    result = list(grads)
    for i, (g, edge) in enumerate(zip(grads, node.edges, strict=True)):
        if g is None or edge is None:
            continue
        known = edge[0].metadata_of_inputs()
        if edge[1] >= len(known) or known[edge[1]].is_undefined:
            continue
        expected = known[edge[1]]
        shape = tuple(g.shape)
        if shape != tuple(expected.shape):
            if not _is_broadcast(expected.shape, shape):
                raise GradientError(
                    f"Function {node.name()} returned an invalid gradient at index {i} - got "
                    f"{list(shape)} but expected shape compatible with {list(expected.shape)}"
                )
            g = bind(_sum_to(tuple(expected.shape), len(shape)), (g,))
        if g.dtype != expected.dtype:
            g = bind(_cast_to(jnp.dtype(expected.dtype)), (g,))
        result[i] = g
    return result


def _is_broadcast(small: Sequence[int], large: Sequence[int]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False))


@functools.lru_cache(maxsize=1024)
def _sum_to(shape: tuple[int, ...], ndim: int) -> Primitive:
    def sum_to(x: Any) -> Any:
        x = jnp.sum(x, axis=tuple(range(ndim - len(shape))))
        axes = tuple([i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1])
        return jnp.sum(x, axis=axes, keepdims=True)

    return Primitive("sum_to", sum_to)


@functools.lru_cache(maxsize=64)
def _cast_to(dtype: Any) -> Primitive:
    def cast(x: Any) -> Any:
        is_complex = jnp.issubdtype(x.dtype, np.complexfloating)
        if is_complex and not jnp.issubdtype(dtype, np.complexfloating):
            x = x.real
        return x.astype(dtype)

    return Primitive("astype", cast)


def _add_to(buffers: dict[Node, list[Any]], node: Node, nr: int, value: Any) -> None:
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * max(node.num_inputs, nr + 1)
    elif nr >= len(slots):
        slots.extend([None] * (nr + 1 - len(slots)))
    if value is not None:
        slots[nr] = value if slots[nr] is None else bind(ADD, (slots[nr], value))


def _dependencies(
    roots: Sequence[Node], wanted: dict[Node, list[int]], prune: bool
) -> tuple[dict[Node, int], set[Node] | None]:
    """How many edges lead to each node, and which nodes lead to wanted ones (None: all do)."""
    counts: dict[Node, int] = {}
    seen = set(roots)
    stack = list(seen)
    order: list[Node] = []
    stray = any([bool(n.edges) for n in wanted])
    while stack:
        node = stack.pop()
        order.append(node)
        edges = node.edges
        if not edges and prune and node not in wanted:
            stray = True
        for edge in edges:
            if edge is None:
                continue
            n = edge[0]
            counts[n] = counts.get(n, 0) + 1
            if n not in seen:
                seen.add(n)
                stack.append(n)
    if not (prune and stray):
        return counts, None
    # Reverse reachability: from the wanted nodes up, along edges turned round.
    parents: dict[Node, list[Node]] = {}
    for node in order:
        for edge in node.edges:
            if edge is not None:
                parents.setdefault(edge[0], []).append(node)
    useful: set[Node] = set()
    stack = [n for n in wanted if n in seen]
    while stack:
        for p in parents.get(stack.pop(), ()):
            if p not in useful:
                useful.add(p)
                stack.append(p)
    for node in order:
        if node not in useful:
            for edge in node.edges:
                if edge is not None:
                    counts[edge[0]] -= 1
    return {n: c for n, c in counts.items() if n in useful or n in wanted}, useful


def _leaf_hooks(node: AccumulateGrad, cotangents: list[Any], create_graph: bool) -> list[Any]:
    """The hooks of a leaf Tensor."""
    meta = node.variable.meta
    if meta is None or not meta.hooks or cotangents[0] is None:
        return cotangents
    level = node.level
    g = level.lift(cotangents[0])
    for hook in list(meta.hooks.values()):
        g = hook_result(hook(g), g, "hook")
    return [g if create_graph else level.detach(g)]


def _reach_leaf(node: AccumulateGrad, cotangents: list[Any], create_graph: bool) -> None:
    """Everything that happens at a leaf: hooks of the Tensor, of the node, and accumulation."""
    extra = node.extra
    cotangents = _leaf_hooks(node, cotangents, create_graph)
    if extra is not None:
        cotangents = call_pre_hooks(node, cotangents, create_graph)
    if cotangents[0] is not None:
        _accumulate(node, cotangents[0])
        meta = node.variable.meta
        if meta is not None and meta.post_hooks:
            for hook in list(meta.post_hooks.values()):
                hook(node.variable)
    if extra is not None and extra.post_hooks:
        call_post_hooks(node, [], cotangents, create_graph)


def _accumulate(node: AccumulateGrad, gradient: Any) -> None:
    variable = node.variable
    meta = meta_of(variable)
    with _accumulate_lock:
        if meta.grad is None:
            meta.grad = variable.level.lift(gradient)
        else:
            tracked = isinstance(gradient, Tensor) and gradient.requires_grad
            old = meta.grad if tracked else variable.level.detach(meta.grad)
            meta.grad = variable.level.lift(bind(ADD, (old, gradient)))


def pull_back(
    outputs: Sequence[Any],
    cotangents: Sequence[Any],
    inputs: Sequence[Tensor],
    *,
    keep_graph: bool = False,
) -> list[Any]:
    """Gradients of ``inputs``, as values below their level; None is zero.

    ``outputs`` that are not part of the inputs' graph, and cotangents of None, contribute nothing.
    """
    level = inputs[0].level
    roots = [
        (gradient_edge(y), level.detach(c))
        for y, c in zip(outputs, cotangents, strict=True)
        if c is not None and isinstance(y, Tensor) and y.level is level and y.requires_grad
    ]
    return run(roots, [gradient_edge(x) for x in inputs], keep_graph=keep_graph)


def _start(
    tensors: Sequence[Any], cotangents: Sequence[Any] | None, create_graph: bool, who: str
) -> list[tuple[tuple[Node, int], Any]]:
    """Check roots and their cotangents, and pair them up."""
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
            meta = known[t.output_nr] if t.output_nr < len(known) else None
            level, edge = level_of(t.node), (t.node, t.output_nr)
            expected = None if meta is None or meta.is_undefined else meta
        elif isinstance(t, Tensor):
            t = outlived(t)
            if not isinstance(t, Tensor) or not t.requires_grad:
                raise GradientError(_untracked(t, k, who))
            level, edge, expected = t.level, gradient_edge(t), t.aval
        else:
            raise TypeError(f"{who}: output {k} must be a Tensor, got {describe(t)}")
        if c is None:
            if expected is None or tuple(expected.shape) != ():
                shape = "unknown" if expected is None else tuple(expected.shape)
                raise GradientError(
                    f"{who}: grad can be implicitly created only for scalar outputs, got an output "
                    f"of shape {shape}. Pass a gradient of that shape, or reduce it (y.sum())."
                )
            if isinstance(t, Tensor):
                c = bind(ONES_LIKE, (level.detach(t),))
            else:
                c = jnp.ones((), expected.dtype)
        else:
            shape = c.shape if isinstance(c, Tensor) else jnp.shape(c)
            if expected is not None and tuple(shape) != tuple(expected.shape):
                raise GradientError(
                    f"{who}: Mismatch in shape: grad_output[{k}] has a shape of {tuple(shape)} and "
                    f"output[{k}] has a shape of {tuple(expected.shape)}"
                )
            if isinstance(c, Tensor):
                c = outlived(c)
            else:
                c = jnp.asarray(c, None if expected is None else expected.dtype)
        roots.append((edge, level.lift(c) if create_graph else level.detach(c)))
    return roots


def _untracked(t: Any, k: int, who: str) -> str:
    """The message for an output that does not require grad."""
    below = t
    while isinstance(below, Tensor):
        if below.requires_grad:
            return (
                f"{who}: element {k} of tensors belongs to {t.level!r} and does not require grad "
                f"there; what it is computed from requires grad at {below.level!r}, which that "
                "transform is inside of. Call it on what the transform returns, outside of it."
            )
        below = below.value
    return (
        f"{who}: element {k} of tensors does not require grad and does not have a grad_fn. "
        "Set requires_grad=True on an input it is computed from, outside of no_grad."
    )


def _sequence(x: Any) -> list[Any]:
    if x is None:
        return []
    if isinstance(x, GradientEdge):
        return [x]
    if isinstance(x, dict):
        return list(x.values())
    return list(x) if isinstance(x, (tuple, list)) else [x]


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate gradients of ``tensors`` into the ``.grad`` of the leaves they depend on.

    Arguments:
        tensors: a Tensor or `GradientEdge`, or a sequence of them, each part of a graph.
        grad_tensors: the cotangent of each, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the gradients can be differentiated.
        inputs: the leaves (or edges, or a dict of them) to accumulate into; default all.

    Raises:
        GradientError: an output does not require grad, is not scalar and has no cotangent, or the
            graph was freed by an earlier pass.

    Source: ``torch.autograd.backward``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> fad.autograd.backward(x * x)
    >>> float(x.grad)
    6.0
    """
    keep = create_graph if retain_graph is None else retain_graph
    tensors = _sequence(tensors)
    cts = None if grad_tensors is None else _sequence(grad_tensors)
    roots = _start(tensors, cts, create_graph, "backward()")
    if inputs is None:
        run(roots, None, create_graph=create_graph, keep_graph=keep)
        return
    inputs = _sequence(inputs)
    if not inputs:
        raise GradientError(
            "backward(): `inputs` argument to `backward()` cannot be empty: pass at least one Tensor, "
            "or leave it out for all leaves"
        )
    edges = _edges(inputs, "backward()")
    targets = []
    for k, ((node, _), t) in enumerate(zip(edges, inputs, strict=True)):
        if isinstance(node, AccumulateGrad):
            targets.append(node)
        elif isinstance(t, Tensor):
            targets.append(AccumulateGrad(t))
        else:
            raise GradientError(
                f"backward(): input {k} is an edge into {node.name()}, which has no .grad to accumulate "
                "into: use autograd.grad() for gradients at inner edges"
            )
    for node, g in zip(
        targets, run(roots, edges, create_graph=create_graph, keep_graph=keep), strict=True
    ):
        if g is not None:
            _accumulate(node, g)
            meta = node.variable.meta
            if meta is not None and meta.post_hooks and node.variable.node is None:
                for hook in list(meta.post_hooks.values()):
                    hook(node.variable)


def _edges(inputs: Sequence[Any], who: str) -> list[tuple[Node, int]]:
    edges: list[tuple[Node, int]] = []
    for k, x in enumerate(inputs):
        if isinstance(x, GradientEdge):
            edges.append((x.node, x.output_nr))
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{who}: input {k} must be a Tensor, got {describe(x)}")
        if not x.requires_grad:
            raise GradientError(
                f"{who}: One of the differentiated Tensors does not require grad: input {k}. "
                "Make it with requires_grad=True, or call x.requires_grad_() before computing."
            )
        edges.append(gradient_edge(x))
    return edges


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Gradients of ``outputs`` with respect to ``inputs``, returned rather than accumulated.

    Arguments:
        outputs: a Tensor or `GradientEdge`, or a sequence of them.
        inputs: a Tensor or `GradientEdge`, a sequence, or a dict of them; leaves or not.
        grad_outputs: the cotangent of each output, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the results can be differentiated again.
        allow_unused: give None for an input that the outputs do not depend on, rather than raise;
            default is the value of ``materialize_grads``.
        is_grads_batched: ``grad_outputs`` have a leading batch dimension, and so have the results.
        materialize_grads: give zeros rather than None for unused inputs.

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
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    keep = create_graph if retain_graph is None else retain_graph
    names = list(inputs) if isinstance(inputs, dict) else None
    outputs, inputs = _sequence(outputs), _sequence(inputs)
    if not inputs:
        raise GradientError("autograd.grad(): `inputs` argument to `grad()` cannot be empty.")
    cts = None if grad_outputs is None else _sequence(grad_outputs)
    if is_grads_batched:
        if cts is None:
            raise GradientError("autograd.grad(): is_grads_batched=True needs grad_outputs")
        result = _batched_grad(
            outputs, inputs, cts, keep, create_graph, allow_unused, materialize_grads
        )
    else:
        roots = _start(outputs, cts, create_graph, "autograd.grad()")
        edges = _edges(inputs, "autograd.grad()")
        _check_levels(outputs, inputs)
        grads = run(roots, edges, create_graph=create_graph, keep_graph=keep)
        result = tuple(
            [
                _finish(k, x, g, allow_unused, materialize_grads)
                for k, (x, g) in enumerate(zip(inputs, grads, strict=True))
            ]
        )
    return result if names is None else dict(zip(names, result, strict=True))


def _check_levels(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Refuse a gradient with respect to a Tensor from outside of a transform that outputs are in.

    Its place in the outer graph is hidden by the wrappers of the transform: the answer would be
    "unused", which is wrong without a word.
    """
    for k, x in enumerate(inputs):
        for y in outputs:
            if not isinstance(x, Tensor) or not isinstance(y, Tensor):
                continue
            if y.level.id > x.level.id and y.level.alive:
                raise GradientError(
                    f"autograd.grad(): input {k} belongs to {x.level!r}, the output to {y.level!r}, "
                    "which is inside of it. Pass the input as an argument of the transformed "
                    "function, or take the gradient of what the transform returns, outside of it."
                )


def _finish(k: int, x: Any, g: Any, allow_unused: bool, materialize: bool) -> Any:
    level = x.level if isinstance(x, Tensor) else level_of(x.node)
    if g is not None:
        return level.lift(g)
    if materialize:
        if isinstance(x, Tensor):
            return level.lift(bind(ZEROS_LIKE, (level.detach(x),)))
        m = x.node.input_metadata(x.output_nr)
        return level.lift(jnp.zeros(m.shape, m.dtype))
    if not allow_unused:
        raise GradientError(
            f"autograd.grad(): One of the differentiated Tensors (input {k}) appears to not have "
            "been used in the graph. Set allow_unused=True if this is the desired behavior."
        )
    return None


def _batched_grad(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Any],
    keep: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize: bool,
) -> tuple[Any, ...]:
    """`grad` for cotangents with a leading batch dimension, by a vmap over the backward pass."""
    sizes = {
        jnp.shape(c)[:1] if not isinstance(c, Tensor) else c.aval.shape[:1]
        for c in cotangents
        if c is not None
    }
    if len(sizes) != 1 or sizes == {()}:
        raise GradientError(
            "autograd.grad(): with is_grads_batched=True each of grad_outputs needs the same "
            f"leading batch dimension, got leading sizes {sorted(sizes)}"
        )
    with BatchLevel(sizes.pop()[0]) as level:
        cts = [None if c is None else new_tensor(c, level, 0) for c in cotangents]
        roots = _start(outputs, cts, create_graph, "autograd.grad()")
        edges = _edges(inputs, "autograd.grad()")
        _check_levels(outputs, inputs)
        grads = run(roots, edges, create_graph=create_graph, keep_graph=keep)
        out = [
            _finish(k, x, g, allow_unused, materialize)
            for k, (x, g) in enumerate(zip(inputs, grads, strict=True))
        ]
        return tuple(
            [
                None if g is None else x.level.lift(level.unwrap(g, 0))
                for x, g in zip(inputs, out, strict=True)
            ]
        )
