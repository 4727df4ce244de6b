"""The engine: runs a recorded graph backward, node by node."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.dispatch import bind, outlived, state
from fad.errors import GradientError, describe
from fad.graph import AccumulateGrad, Node, gradient_edge
from fad.levels import BatchLevel
from fad.primitive import Primitive
from fad.tensor import Tensor, meta_of, new_tensor

__all__ = ["ADD", "ZEROS_LIKE", "backward", "grad", "pull_back", "run"]

ADD = Primitive("add", jnp.add)
ZEROS_LIKE = Primitive("zeros_like", lambda x: jax.lax.full_like(x, 0))
ONES_LIKE = Primitive("ones_like", lambda x: jax.lax.full_like(x, 1))
_accumulate_lock = threading.RLock()


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
    ready = [(-n.sequence_nr, i, n) for i, n in enumerate(buffers) if dependencies.get(n, 0) == 0]
    heapq.heapify(ready)
    tie = len(buffers)
    # A root that other roots lead to waits for them; it is pushed when its last input arrives.
    saved = state.blocked
    if create_graph:
        state.blocked = state.floor
    try:
        while ready:
            _, _, node = heapq.heappop(ready)
            cotangents = buffers.pop(node)
            for k in wanted.get(node, ()):
                assert captures is not None
                results[k] = cotangents[captures[k][1]]
            if useful is not None and node not in useful:
                continue
            if type(node) is AccumulateGrad:
                if captures is None and cotangents[0] is not None:
                    _accumulate(node, cotangents[0])
                continue
            edges = node.next_edges
            if useful is None:
                need = (True,) * len(edges)
            else:
                need = tuple([n in useful or n in wanted for n, _ in edges])
            grads: Sequence[Any] = (None,) * len(edges)
            if any(need) and any([c is not None for c in cotangents]):
                grads = _spread(node.apply(cotangents, need, create_graph), need)
            if not keep_graph:
                node.release()
            for (n, nr), g in zip(edges, grads, strict=True):
                if n not in dependencies:
                    continue
                _add_to(buffers, n, nr, g)
                dependencies[n] -= 1
                if dependencies[n] == 0:
                    tie += 1
                    heapq.heappush(ready, (-n.sequence_nr, tie, n))
    finally:
        state.blocked = saved
    return results


def _spread(grads: Sequence[Any], need: tuple[bool, ...]) -> Sequence[Any]:
    """Gradients per edge, from gradients of the needed edges alone."""
    if len(grads) == len(need):
        return grads
    it = iter(grads)
    return [next(it) if n else None for n in need]


def _add_to(buffers: dict[Node, list[Any]], node: Node, nr: int, value: Any) -> None:
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * node.num_inputs
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
    stray = any(wanted and n.next_edges for n in wanted)
    while stack:
        node = stack.pop()
        order.append(node)
        if not node.next_edges and prune and node not in wanted:
            stray = True
        for n, _ in node.next_edges:
            counts[n] = counts.get(n, 0) + 1
            if n not in seen:
                seen.add(n)
                stack.append(n)
    if not (prune and stray):
        return counts, None
    # Reverse reachability: from the wanted nodes up, along edges turned round.
    parents: dict[Node, list[Node]] = {}
    for node in order:
        for n, _ in node.next_edges:
            parents.setdefault(n, []).append(node)
    useful: set[Node] = set()
    stack = [n for n in wanted if n in seen]
    while stack:
        for p in parents.get(stack.pop(), ()):
            if p not in useful:
                useful.add(p)
                stack.append(p)
    for node in order:
        if node not in useful:
            for n, _ in node.next_edges:
                counts[n] -= 1
    return {n: c for n, c in counts.items() if n in useful or n in wanted}, useful


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
    tensors: Sequence[Tensor], cotangents: Sequence[Any] | None, create_graph: bool, who: str
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
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: output {k} must be a Tensor, got {describe(t)}")
        t = outlived(t)
        if not isinstance(t, Tensor) or not t.requires_grad:
            raise GradientError(_untracked(t, k, who))
        aval = t.aval
        if c is None:
            if aval.shape != ():
                raise GradientError(
                    f"{who}: grad can be implicitly created only for scalar outputs, got an output "
                    f"of shape {aval.shape}. Pass a gradient of that shape, or reduce it (y.sum())."
                )
            c = bind(ONES_LIKE, (t.level.detach(t),))
        else:
            shape = jnp.shape(c) if not isinstance(c, Tensor) else c.aval.shape
            if tuple(shape) != aval.shape:
                raise GradientError(
                    f"{who}: Mismatch in shape: grad_output[{k}] has a shape of {tuple(shape)} and "
                    f"output[{k}] has a shape of {aval.shape}"
                )
            c = outlived(c) if isinstance(c, Tensor) else jnp.asarray(c, aval.dtype)
        roots.append((gradient_edge(t), t.level.lift(c) if create_graph else t.level.detach(c)))
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
        tensors: a Tensor or a sequence of them, each part of a graph.
        grad_tensors: the cotangent of each, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the gradients can be differentiated.
        inputs: the leaves to accumulate into; default all.

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
            "backward(): inputs is empty: pass at least one Tensor, or leave it out for all leaves"
        )
    edges = _edges(inputs, "backward()")
    grads = run(roots, edges, create_graph=create_graph, keep_graph=keep)
    for (node, _), t, g in zip(edges, inputs, grads, strict=True):
        if g is None:
            continue
        if isinstance(node, AccumulateGrad):
            _accumulate(node, g)
        else:
            _accumulate(AccumulateGrad(t), g)


def _edges(inputs: Sequence[Any], who: str) -> list[tuple[Node, int]]:
    for k, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"{who}: input {k} must be a Tensor, got {describe(x)}")
        if not x.requires_grad:
            raise GradientError(
                f"{who}: One of the differentiated Tensors does not require grad: input {k}. "
                "Make it with requires_grad=True, or call x.requires_grad_() before computing."
            )
    return [gradient_edge(x) for x in inputs]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of ``outputs`` with respect to ``inputs``, returned rather than accumulated.

    Arguments:
        outputs: a Tensor or a sequence of them.
        inputs: a Tensor or a sequence of them, leaves or not.
        grad_outputs: the cotangent of each output, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the results can be differentiated again.
        allow_unused: give None for an input that the outputs do not depend on, rather than raise;
            default is the value of ``materialize_grads``.
        is_grads_batched: ``grad_outputs`` have a leading batch dimension, and so have the results.
        materialize_grads: give zeros rather than None for unused inputs.

    Returns:
        A tuple with one Tensor (or None) for each input, of its shape and dtype.

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
            "autograd.grad(): allow_unused=False contradicts materialize_grads=True: leave it out"
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    keep = create_graph if retain_graph is None else retain_graph
    outputs, inputs = _sequence(outputs), _sequence(inputs)
    cts = None if grad_outputs is None else _sequence(grad_outputs)
    if is_grads_batched:
        if cts is None:
            raise GradientError("autograd.grad(): is_grads_batched=True needs grad_outputs")
        return _batched_grad(
            outputs, inputs, cts, keep, create_graph, allow_unused, materialize_grads
        )
    roots = _start(outputs, cts, create_graph, "autograd.grad()")
    edges = _edges(inputs, "autograd.grad()")
    _check_levels(outputs, inputs)
    grads = run(roots, edges, create_graph=create_graph, keep_graph=keep)
    return tuple(
        [
            _finish(k, x, g, allow_unused, materialize_grads)
            for k, (x, g) in enumerate(zip(inputs, grads, strict=True))
        ]
    )


def _check_levels(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Refuse a gradient with respect to a Tensor from outside of a transform that outputs are in.

    Its place in the outer graph is hidden by the wrappers of the transform: the answer would be
    "unused", which is wrong without a word.
    """
    for k, x in enumerate(inputs):
        for y in outputs:
            if y.level.id > x.level.id and y.level.alive:
                raise GradientError(
                    f"autograd.grad(): input {k} belongs to {x.level!r}, the output to {y.level!r}, "
                    "which is inside of it. Pass the input as an argument of the transformed "
                    "function, or take the gradient of what the transform returns, outside of it."
                )


def _finish(k: int, x: Tensor, g: Any, allow_unused: bool, materialize: bool) -> Any:
    if g is not None:
        return x.level.lift(g)
    if materialize:
        return x.level.lift(bind(ZEROS_LIKE, (x.level.detach(x),)))
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
