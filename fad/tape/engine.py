"""The engine: runs a recorded graph backward, node by node."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.dispatch import STATE_NAMES, below, outlived, state
from fad.errors import GradientError, describe
from fad.graph import AccumulateGrad, Edge, GradientEdge, Node, gradient_edge, running
from fad.levels import BatchLevel
from fad.primitive import Primitive
from fad.tape import compiled
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import watched_node
from fad.tape.hooks import call_tensor_hooks, retain_grad
from fad.tape.leaves import ADD, accumulate
from fad.tape.record import ROOT
from fad.tape.step import level_of, reach_leaf, release, step
from fad.tensor import Tensor, new_tensor

__all__ = ["ADD", "ONES_LIKE", "ZEROS_LIKE", "backward", "grad", "pull_back", "run"]


def _filled(name: str, number: int) -> Primitive:
    """A Primitive that gives ``number`` in the shape, dtype and sharding of its argument.

    The argument is read, though XLA then sees that it need not be: a program without inputs would not
    know on which devices to run.
    """

    def fill(x: Any) -> Any:
        full = jax.lax.full_like(x, number)
        return jax.lax.select(x == x, full, full)

    return Primitive(name, fill, lazy=True)


ZEROS_LIKE = _filled("zeros_like", 0)
ONES_LIKE = _filled("ones_like", 1)


class _Task:
    """One backward pass: how deep it is nested in others, and what to call when it is done."""

    __slots__ = ("__weakref__", "callbacks", "depth", "nodes")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.callbacks: list[Callable[[], Any]] = []
        self.nodes: Any = ()

    def will_run(self, node: Node | None) -> bool:
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
    if not create_graph and not anomaly.watch:
        ends = captures if targets is None else [(n, 0) for n in dict.fromkeys(targets)]
        found = compiled.prepare(roots, ends)
        grads = None if found is None else found.run()
        if found is not None and grads is not None:
            return _finish_compiled(found, grads, captures is None, keep_graph)
    outer = running.task
    task = _Task(0 if outer is None else outer.depth + 1)
    if task.depth and task.depth % _THREAD_DEPTH == 0:
        return _in_thread(task, roots, captures, targets, create_graph, keep_graph)
    return _run_task(task, roots, captures, targets, create_graph, keep_graph)


def _finish_compiled(
    found: compiled.Pass, grads: list[Any], to_leaves: bool, keep_graph: bool
) -> list[Any]:
    """What is left to do after a pass that ran as one call."""
    if not keep_graph:
        for node in found.order:
            node.release_variables()
    if not to_leaves:
        return grads
    for (node, _), g in zip(found.captures, grads, strict=True):
        accumulate(node, g)
    return []


def _in_thread(task: _Task, *args: Any) -> list[Any]:
    """Run a deeply nested pass on a thread of its own, with this thread's modes and levels."""
    modes = {name: getattr(state, name) for name in STATE_NAMES if name != "run"}
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
    targets: Sequence[Node] | None,
    create_graph: bool,
    keep_graph: bool,
) -> list[Any]:
    wanted: dict[Node, list[int]] = {}
    results: list[Any] = []
    if captures is not None:
        results = [None] * len(captures)
        for k, (node, _) in enumerate(captures):
            wanted.setdefault(node, []).append(k)
    starts = [e[0] for e, _ in roots]
    dependencies, needed = _dependencies(starts, wanted, targets)
    buffers: dict[Node, list[Any]] = {}
    for (node, nr), cotangent in roots:
        _add_to(buffers, node, nr, cotangent)
    task.nodes = dependencies
    # A root that other roots lead to waits for them; it is pushed when its last input arrives.
    ready = [(-n.sequence_nr, i, n) for i, n in enumerate(buffers) if not dependencies.get(n)]
    heapq.heapify(ready)
    tie = len(buffers)
    before = (state.blocked, running.task, running.current, running.need)
    running.task = task
    if create_graph:
        state.blocked = state.floor
    elif all([level_of(n) is ROOT for n in starts]):
        # Hooks and rules compute without recording. At a higher level they cannot: what they compute
        # is part of the levels below, and nothing of their own level is tracked here anyway.
        state.blocked = max(state.blocked, ROOT.id)
    try:
        while ready:
            node = heapq.heappop(ready)[2]
            cotangents = buffers.pop(node)
            running.current = node
            runs = needed is None or node in needed
            is_leaf = type(node) is AccumulateGrad
            if node in wanted or (not runs and len(roots) == 1):
                # Hooks of Tensors run where the pass ends. Also, as in PyTorch, those of a root that
                # leads nowhere, if it is the only one.
                if not runs or is_leaf:
                    cotangents = call_tensor_hooks(node, cotangents, create_graph)
                for k in wanted.get(node, ()):
                    assert captures is not None
                    results[k] = cotangents[captures[k][1]]
            if is_leaf:
                assert isinstance(node, AccumulateGrad)
                if runs and captures is None:
                    if anomaly.watch:
                        watched_node(reach_leaf, node, cotangents, create_graph)
                    else:
                        reach_leaf(node, cotangents, create_graph)
                continue
            if not runs:
                continue
            edges = node.edges
            if needed is None:
                need = tuple([e is not None for e in edges])
            else:
                need = tuple([e is not None and e[0] in dependencies for e in edges])
            running.need = need
            if anomaly.watch:
                grads = watched_node(step, node, cotangents, need, create_graph, keep_graph)
            else:
                grads = step(node, cotangents, need, create_graph, keep_graph)
            if not keep_graph:
                release(node)
            for edge, g in zip(edges, grads, strict=True):
                if edge is None:
                    continue
                n, nr = edge
                count = dependencies.get(n)
                if count is None:
                    continue
                _add_to(buffers, n, nr, g)
                dependencies[n] = count - 1
                if count == 1:
                    tie += 1
                    heapq.heappush(ready, (-n.sequence_nr, tie, n))
        running.current, running.need = before[2:]
        for callback in task.callbacks:  # a callback may queue others
            callback()
    finally:
        state.blocked, running.task, running.current, running.need = before
    return results


def _add_to(buffers: dict[Node, list[Any]], node: Node, nr: int, value: Any) -> None:
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * max(node.num_inputs, nr + 1)
    elif nr >= len(slots):
        slots.extend([None] * (nr + 1 - len(slots)))
    if value is not None:
        slots[nr] = value if slots[nr] is None else below(ADD, (slots[nr], value))


def _dependencies(
    roots: Sequence[Node], wanted: Container[Node], targets: Sequence[Node] | None
) -> tuple[dict[Node, int], set[Node] | None]:
    """How many edges of this pass lead to each of its nodes; and which nodes run (None: all).

    A pass with ``wanted`` nodes consists of these and of what leads to them, which runs. With
    ``targets``, these run too.
    """
    counts: dict[Node, int] = dict.fromkeys(roots, 0)
    ends = wanted if targets is None else set(targets)
    stack = list(counts)
    stray = any([bool(n.edges) for n in ends])  # type: ignore[attr-defined]
    order: list[Node] = []
    while stack:
        node = stack.pop()
        order.append(node)
        edges = node.edges
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
        return counts, None
    # Reverse reachability: from the ends up, along edges turned round.
    parents: dict[Node, list[Node]] = {}
    for node in order:
        for edge in node.edges:
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
    return {n: c for n, c in counts.items() if n in needed or n in ends}, needed


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
            if known and t.output_nr >= len(known):
                raise GradientError(
                    f"{who}: output {k} is the edge to input {t.output_nr} of {t.node.name()}, which "
                    f"takes {len(known)} gradients"
                )
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
            c = _implicit(t, expected, who)
        else:
            c = _given(c, k, expected, who)
        roots.append((edge, level.lift(c) if create_graph else level.detach(c)))
    return roots


def _implicit(t: Any, expected: Any, who: str) -> Any:
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
        return below(ONES_LIKE, (t.level.detach(t),))
    return jnp.ones(expected.shape, expected.dtype)


def _given(c: Any, k: int, expected: Any, who: str) -> Any:
    """A gradient that the user gave for root ``k``, checked against what is known of the root."""
    if not isinstance(c, (Tensor, jax.Array, np.ndarray, np.generic, int, float, complex)):
        raise TypeError(
            f"{who}: gradients can be either Tensors or None, but got {type(c).__name__} "
            f"({describe(c)})"
        )
    if isinstance(c, Tensor):
        c = outlived(c)
    shape = c.shape if isinstance(c, Tensor) else jnp.shape(c)
    if expected is None:
        return c if isinstance(c, Tensor) else jnp.asarray(c)
    if tuple(shape) != tuple(expected.shape):
        raise GradientError(
            f"{who}: Mismatch in shape: grad_output[{k}] has a shape of {tuple(shape)} and "
            f"output[{k}] has a shape of {tuple(expected.shape)}"
        )
    dtype = c.dtype if isinstance(c, Tensor) else jnp.result_type(c)
    if jnp.issubdtype(dtype, jnp.complexfloating) and not jnp.issubdtype(
        expected.dtype, jnp.complexfloating
    ):
        raise GradientError(
            f"{who}: Mismatch in dtype: grad_output[{k}] is complex and output[{k}] has a dtype of "
            f"{expected.dtype}: pass its real part"
        )
    return c if isinstance(c, Tensor) else jnp.asarray(c, expected.dtype)


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
    if isinstance(x, (GradientEdge, Edge)):
        items = [x]
    elif isinstance(x, dict):
        items = list(x.values())
    else:
        items = list(x) if isinstance(x, (tuple, list)) else [x]
    return [
        GradientEdge(i.node, i.input_nr) if isinstance(i, Edge) and i.node is not None else i
        for i in items
    ]


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
        inputs: the Tensors (or edges, or a dict of them) to accumulate into; default all leaves. One that
            is not a leaf is made to retain its gradient (`Tensor.retain_grad`).

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
    targets = [node for node, _ in _edges(inputs, "backward()")]
    for t in inputs:
        if isinstance(t, Tensor):
            retain_grad(t)
    run(roots, None, targets=targets, create_graph=create_graph, keep_graph=keep)


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


def _level(x: Any) -> Any:
    """The level of a Tensor or of a gradient edge."""
    return x.level if isinstance(x, Tensor) else level_of(x.node)


def _finish(k: int, x: Any, g: Any, allow_unused: bool, materialize: bool) -> Any:
    level = _level(x)
    if g is not None:
        return level.lift(g)
    if materialize:
        if isinstance(x, Tensor):
            return level.lift(below(ZEROS_LIKE, (level.detach(x),)))
        m = x.node.input_metadata(x.output_nr)
        return level.lift(jnp.zeros(m.shape, m.dtype))
    if not allow_unused:
        raise GradientError(
            f"autograd.grad(): The differentiated Tensor at index {k} appears to not have been used "
            "in the graph. Set allow_unused=True if this is the desired behavior."
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
    cotangents = [c if c is None or isinstance(c, Tensor) else jnp.asarray(c) for c in cotangents]
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
                None if g is None else _level(x).lift(level.unwrap(g, 0))
                for x, g in zip(inputs, out, strict=True)
            ]
        )
