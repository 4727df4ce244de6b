"""Hooks: on Tensors, on nodes, and on groups of Tensors.

NOTE [order of hooks]

When a node's gradients have arrived and been added up: hooks of the Tensors that it produced, in
the order in which they were registered; ``retain_grad``; the node's pre-hooks; its work; its
post-hooks. For a leaf: hooks of the Tensor, the accumulator's pre-hooks, accumulation,
post-accumulate hooks, the accumulator's post-hooks. This is PyTorch's order ("Backward Hooks
execution" in its autograd notes).

A hook sees Tensors of the level that recorded the node: inside ``fad.grad``, ``vmap`` or ``jvp``
those of that level.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from fad.errors import GradientError, describe
from fad.graph import Node, RemovableHandle, extra_of, gradient_edge, running
from fad.tape.record import ROOT, as_tensor
from fad.tensor import Tensor, meta_of

__all__ = [
    "call_post_hooks",
    "call_pre_hooks",
    "call_tensor_hooks",
    "hook_result",
    "register_hook",
    "register_multi_grad_hook",
    "register_post_accumulate_grad_hook",
    "retain_grad",
]


def register_hook(t: Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Call ``hook(grad)`` whenever a gradient of this Tensor has been computed.

    The hook may return a replacement for the gradient; it must not change it in place.

    Returns:
        A handle, whose ``remove()`` takes the hook away.

    Raises:
        GradientError: the Tensor does not require grad.

    Source: ``torch.Tensor.register_hook``.
    """
    if not t.requires_grad:
        raise GradientError("cannot register a hook on a tensor that doesn't require gradient")
    if t.node is None:
        meta = meta_of(t)
        if meta.hooks is None:
            meta.hooks = {}
        return RemovableHandle(meta.hooks, hook)
    return RemovableHandle(extra_of(t.node).tensor_hooks, (t.output_nr, hook))


def register_post_accumulate_grad_hook(
    t: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call ``hook(tensor)`` after a gradient was added to the ``.grad`` of this leaf.

    Raises:
        GradientError: the Tensor does not require grad, or is not a leaf.

    Source: ``torch.Tensor.register_post_accumulate_grad_hook``.
    """
    if not t.requires_grad:
        raise GradientError("cannot register a hook on a tensor that doesn't require gradient")
    if t.node is not None:
        raise GradientError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    meta = meta_of(t)
    if meta.post_hooks is None:
        meta.post_hooks = {}
    return RemovableHandle(meta.post_hooks, hook)


def retain_grad(t: Tensor) -> None:
    """Keep the gradient of this Tensor in ``.grad`` though it is not a leaf.

    Raises:
        GradientError: the Tensor does not require grad.

    Source: ``torch.Tensor.retain_grad``.
    """
    if not t.requires_grad:
        raise GradientError("can't retain_grad on Tensor that has requires_grad=False")
    if t.node is not None:
        meta_of(t).retains_grad = True
        extra_of(t.node).retains[t.output_nr] = weakref.ref(t)


# What the engine calls


def _level(node: Node) -> Any:
    return ROOT if node.level is None else node.level


def hook_result(result: Any, before: Any, what: str) -> Any:
    """What a hook returned, checked; None keeps what there was."""
    if result is None:
        return before
    if not isinstance(result, Tensor):
        try:
            result = as_tensor(result)
        except (TypeError, ValueError):
            raise TypeError(
                f"a {what} must return a Tensor or None, got {describe(result)}"
            ) from None
    if before is not None and tuple(result.shape) != tuple(before.shape):
        raise GradientError(
            f"a {what} has changed the size of the gradient from {list(before.shape)} to "
            f"{list(result.shape)}"
        )
    return result


def call_tensor_hooks(node: Node, cotangents: Sequence[Any], create_graph: bool) -> list[Any]:
    """Hooks of the Tensors that ``node`` produced, then ``retain_grad``."""
    extra = node.extra
    values = list(cotangents)
    if extra is None or not (extra.tensor_hooks or extra.retains):
        return values
    level = _level(node)
    for nr, hook in list(extra.tensor_hooks.values()):
        if nr < len(values) and values[nr] is not None:
            before = level.lift(values[nr])
            after = hook_result(hook(before), before, "hook")
            values[nr] = after if create_graph else level.detach(after)
    for nr, ref in extra.retains.items():
        t = ref()
        if t is not None and nr < len(values) and values[nr] is not None:
            meta = meta_of(t)
            new = level.lift(values[nr])
            meta.grad = new if meta.grad is None else meta.grad + new  # type: ignore[operator]
    return values


def call_pre_hooks(node: Node, cotangents: Sequence[Any], create_graph: bool) -> list[Any]:
    """The node's pre-hooks."""
    extra = node.extra
    if extra is None or not extra.pre_hooks:
        return list(cotangents)
    level = _level(node)
    lifted = tuple([None if c is None else level.lift(c) for c in cotangents])
    for hook in list(extra.pre_hooks.values()):
        lifted = _replaced(hook(lifted), lifted, "prehook")
    return [c if c is None or create_graph else level.detach(c) for c in lifted]


def call_post_hooks(
    node: Node, grads: Sequence[Any], cotangents: Sequence[Any], create_graph: bool
) -> Sequence[Any]:
    """The node's post-hooks."""
    extra = node.extra
    assert extra is not None
    level = _level(node)
    inputs = tuple([None if g is None else level.lift(g) for g in grads])
    outputs = tuple([None if c is None else level.lift(c) for c in cotangents])
    for hook in list(extra.post_hooks.values()):
        inputs = _replaced(hook(inputs, outputs), inputs, "hook")
    return [g if g is None or create_graph else level.detach(g) for g in inputs]


def _replaced(result: Any, before: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    if result is None:
        return before
    values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(values) != len(before):
        raise GradientError(
            f"a {what} must return None or as many gradients as it got, {len(before)}, "
            f"got {len(values)}"
        )
    return tuple(
        [
            None if v is None else hook_result(v, b, what)
            for v, b in zip(values, before, strict=True)
        ]
    )


class _MultiHandle:
    """Removes a hook that is registered in several places."""

    __slots__ = ("handles",)

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Take the hook away everywhere."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> _MultiHandle:
    """Call ``fn`` when the gradients of several Tensors have been computed in one backward pass.

    Arguments:
        tensors: Tensors that require grad.
        fn: with "all", ``fn(grads)`` is called with a sequence of gradients, None for those that this pass
            does not reach; with "any", ``fn(grad)`` with the first that is computed.
        mode: "all" or "any".

    Returns:
        A handle with ``remove()``.

    Source: ``torch.autograd.graph.register_multi_grad_hook``.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    edges = [gradient_edge(t) for t in tensors]
    passes: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def all_hook(index: int) -> Callable[[Any], None]:
        def inner(g: Any) -> None:
            task = running.task
            with lock:
                found = passes.get(task)
                if found is None:
                    expected = sum(task.will_run(node) for node, _ in edges)
                    found = passes[task] = [expected, [None] * len(tensors)]
                found[0] -= 1
                found[1][index] = g
                complete = found[0] == 0
            if complete:
                fn(found[1])

        return inner

    done: weakref.WeakSet[Any] = weakref.WeakSet()

    def any_hook(g: Any) -> None:
        with lock:
            if running.task in done:
                return
            done.add(running.task)
        fn(g)

    if mode == "any":
        return _MultiHandle([register_hook(t, any_hook) for t in tensors])
    return _MultiHandle([register_hook(t, all_hook(i)) for i, t in enumerate(tensors)])
