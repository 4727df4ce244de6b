"""Hooks, on Tensors, on nodes and on groups of Tensors; and what happens at a leaf, where they run last.

NOTE [order of hooks]

    y, log = x * 2.0, []
    y.grad_fn.register_prehook(lambda g: log.append("node"))
    y.register_hook(lambda g: log.append("Tensor"))
    y.backward()
    assert log == ["Tensor", "node"]

When a node's gradients have arrived and been added up: hooks of the Tensors that it produced, in
the order in which they were registered; ``retain_grad``; the node's pre-hooks; its work; its
post-hooks. For a leaf: hooks of the Tensor, the accumulator's pre-hooks, accumulation,
post-accumulate hooks, the accumulator's post-hooks. This is PyTorch's order ("Backward Hooks
execution" in its autograd notes), down to where it surprises: a hook also runs, and gets None, where
no gradient has arrived; and for a Tensor among ``inputs`` the gradient is that before its own hooks have
run if the pass goes on through its node, after them if the pass ends there.

A hook sees Tensors of the level that recorded the node: inside ``fad.grad``, ``vmap`` or ``jvp``
those of that level. In traced code, where Python runs once and the program many times, hooks are
refused; or, with ``jit(f, hooks=True)``, written into the program as calls of the host.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.jaxapi import array_type, is_tracing
from fad.core.level import bind, inside, outside, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom, meta_of, new_tensor
from fad.core.types import MaybeValue, Value
from fad.errors import GradientError, HostValueError, describe
from fad.tape.graph import (
    AccumulateGrad,
    Node,
    RemovableHandle,
    alias,
    extra_of,
    gradient_edge,
    host_for,
    node_of,
    running,
)
from fad.tape.recorder import ROOT, as_tensor, level_of

Gradients: TypeAlias = tuple[MaybeValue, ...]

# What happens where a graph ends: gradients are added to ``.grad``, without loss between threads.

ADD = Primitive("add", jnp.add, deferrable=True)
_adding = threading.RLock()


def add_to_grad(t: Tensor, gradient: Value, create_graph: bool = False) -> None:
    """Add a gradient, a Tensor of t's level or its detached value, to ``t.grad``.

    ``t.grad`` is changed in place, unless ``create_graph``: then it becomes another Tensor, with history.

    NOTE [the tangent of a gradient]

        p = fad.tensor(2.0, requires_grad=True)
        with fad.dual_level():
            (fad.make_dual(p, fad.tensor(1.0)) ** 3).backward(create_graph=True)
            assert fad.unpack_dual(p.grad).tangent == 12.0

    A gradient that comes from a dual level is a dual, and is added as one: ``.grad`` has its tangent as
    long as the level runs, and reads as its primal afterwards. As in PyTorch, a pass that is not recorded
    starts ``.grad`` with the detached gradient, which has no tangent.
    """
    meta, level = meta_of(t), t.level
    level.note("gradient", t)
    if type(gradient) is not array_type and level is ROOT and type(t._value) is array_type:
        _refuse_traced(t, gradient)
    with _adding:
        old = meta.grad
        if create_graph:
            new = gradient if old is None else bind(ADD, (old, gradient))
            new = level.lift(new)
            meta.grad = alias(new) if new is gradient else new
        elif old is None:
            value = level.detach(_primal(gradient))
            new = level.lift(value)
            meta.grad = alias(new) if new is value else new
        else:
            total = bind(ADD, (level.detach(old), _unrecorded(level.detach(gradient))))
            AccumulateGrad.write(old, level, total)


def _refuse_traced(t: Tensor, gradient: Value) -> None:
    """Refuse to leave a value that JAX traces in the ``.grad`` of a Tensor from before the trace."""
    if isinstance(bottom(gradient), jax.core.Tracer) and is_tracing():
        raise GradientError(
            f"backward() in code that JAX traces (jax.jit, ...) reaches a leaf from outside of it "
            f"({describe(t)}), "
            "and a value of the trace must not stay in its .grad. Write fad.jit in place of "
            "jax.jit, which takes "
            "the leaf for an input and puts the gradient there at each call; or pass the leaf as an argument."
        )


def _primal(x: Value) -> Value:
    """``x`` without the tangents that it has at dual levels of the eager tape."""
    while isinstance(x, Tensor) and x.level.on_tape and x.level is not ROOT:
        x = x.value
    return x


def _unrecorded(x: Value) -> Value:
    """``x`` without history at the levels of the eager tape; it keeps its tangents."""
    if not isinstance(x, Tensor) or not x.level.on_tape:
        return x
    value, aux = x.value, x.aux
    if x.level is not ROOT:
        aux = None if aux is None else _unrecorded(aux)
        value = new_tensor(_unrecorded(value), x.level, aux)
    return value  # type: ignore[no-any-return]


def accumulate(node: AccumulateGrad, gradient: MaybeValue, create_graph: bool = False) -> None:
    """The work of an accumulator: ``.grad``, and the hooks that run after it."""
    variable = node.variable
    if gradient is None or not variable.requires_grad:
        return
    meta = variable.meta
    host = None
    if meta is not None and meta.post_hooks:
        host = host_for("a post accumulate grad hook", node, running=True)
    add_to_grad(variable, gradient, create_graph)
    meta = variable.meta
    if meta is not None and meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            if host is None:
                _call_after(hook, outside(variable))
            else:
                on_copy = functools.partial(_call_on_copy, hook)
                call_observer(on_copy, [variable, meta.grad], hook)


def _call_after(hook: Callable[..., object], variable: Tensor) -> None:
    """A post accumulate grad hook."""
    result = hook(variable)
    if result is not None:
        error = GradientError if isinstance(result, Tensor) else TypeError
        raise error(
            "Tensor post accumulate grad hooks should return None, but hook returned "
            f"'{type(result).__name__}' ({describe(result)}): what it returns is not used"
        )


def _call_on_copy(hook: Callable[..., object], values: list[Tensor]) -> None:
    """`_call_after` at an execution of compiled code: with a leaf that has this value and ``.grad``."""
    leaf, gradient = map(alias, values)
    leaf._requires_grad = True
    meta_of(leaf).grad = gradient
    versions = (leaf.version, gradient.version)
    _call_after(hook, leaf)
    written = (leaf.version, gradient.version) != versions
    if written or meta_of(leaf).grad is not gradient:
        raise GradientError(
            f"post accumulate grad hook {name_of(hook)!r} has changed its Tensor or its .grad: in compiled "
            "code it gets a copy of them, and the program does not see what it changes. Change the gradient "
            "in a hook of the Tensor (register_hook), and the Tensor after the pass."
        )


AccumulateGrad.work = accumulate


# Calls of hooks, now or at each execution of code that is traced.


def name_of(hook: Callable[..., object]) -> str:
    """What messages call a hook."""
    return str(getattr(hook, "__name__", type(hook).__name__))


def call_hook(
    host: Any,
    hook: Callable[..., object],
    f: Callable[..., Sequence[MaybeValue]],
    values: Sequence[Any],
    count: int,
) -> tuple[MaybeValue, ...]:
    """``f(*values)``, which calls ``hook``: what replaces the first ``count`` values.

    Arguments:
        host: what `host_for` gave; f is called now if it is None, else at each execution.
        hook: with a true attribute ``in_the_trace``, it is called now in any case.
        f: it gives None exactly where the value is None.
    """
    if host is None or getattr(hook, "in_the_trace", False):
        try:
            return tuple(f(*values))
        except HostValueError as error:
            raise HostValueError(
                f"hook {name_of(hook)!r} needs a number in code that is being traced: write "
                "fnp.where(condition, g, h) for a branch, or compile with fad.jit(f, hooks=True), which "
                f"calls hooks of Tensors made in f at each execution. {error}"
            ) from None
    present = [v is not None for v in values]

    def run(*arrays: MaybeValue) -> Sequence[Value]:
        it = iter(arrays)
        outs = f(*[next(it) if p else None for p in present])
        return [o for o in outs if o is not None]

    operands = [v for v in values if v is not None]
    outs = iter(host.call(name_of(hook), run, operands, sum(present[:count])))
    return tuple([next(outs) if p else None for p in present[:count]])


def call_observer(
    f: Callable[[list[Any]], object], values: Sequence[MaybeValue], hook: Callable[..., object]
) -> None:
    """``f(values)``, which calls ``hook`` and replaces nothing; at each execution, in traced code."""
    host = state.host
    if host is None:
        f(list(values))
        return

    def run(*arrays: MaybeValue) -> Sequence[Value]:
        f(list(arrays))
        return ()

    plain = [v.level.detach(v) if isinstance(v, Tensor) else v for v in values]
    call_hook(host, hook, run, plain, 0)


# Registering


def register_hook(t: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call ``hook(grad)`` whenever a gradient of this Tensor has been computed.

    The hook may return a replacement for the gradient, of the same shape and dtype. It gets None in
    a pass that comes through the operation which made the Tensor, but not through the Tensor.

    Returns:
        A handle, whose ``remove()`` takes the hook away.

    Raises:
        GradientError: the Tensor does not require grad; or the code is being traced.

    Source: ``torch.Tensor.register_hook``.
    """
    _check_requires_grad(t)
    host_for("a hook", t)
    node = node_of(t)
    if node is None:
        meta = meta_of(t)
        if meta.hooks is None:
            meta.hooks = {}
        return RemovableHandle(meta.hooks, hook)
    return RemovableHandle(extra_of(node).tensor_hooks.setdefault(t.output_nr, {}), hook)


def _check_requires_grad(t: Tensor) -> None:
    if not t.requires_grad:
        raise GradientError(
            "cannot register a hook on a tensor that doesn't require gradient: write "
            "x.requires_grad_() before it is used"
        )


def register_post_accumulate_grad_hook(
    t: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call ``hook(tensor)`` after a gradient was added to the ``.grad`` of this leaf.

    Raises:
        GradientError: the Tensor does not require grad, or is not a leaf; or the code is being
            traced.

    Source: ``torch.Tensor.register_post_accumulate_grad_hook``.
    """
    _check_requires_grad(t)
    if t.node is not None:
        raise GradientError(
            "post accumulate grad hooks cannot be registered on non-leaf tensors: write "
            "x.register_hook(hook), which is given the gradient"
        )
    host_for("a post accumulate grad hook", t)
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
        raise GradientError(
            "can't retain_grad on Tensor that has requires_grad=False: compute it from what requires grad, "
            "outside of no_grad"
        )
    t = inside(t)
    node = node_of(t)
    if node is not None:
        meta_of(t).retains_grad = True
        extra_of(node).retains[t.output_nr] = weakref.ref(t)


# What the engine calls


def _name(hook: Callable[..., object]) -> str:
    return repr(name_of(hook))


def _checked(hook: Callable[..., object], result: object, before: MaybeValue) -> MaybeValue:
    """A gradient that a hook returned in place of ``before``."""
    if result is None:
        return None
    if not isinstance(result, Tensor):
        if not isinstance(result, (jax.Array, np.ndarray)):
            raise TypeError(
                f"expected a Tensor or None, but hook returned '{type(result).__name__}': hook "
                f"{_name(hook)}, {describe(result)}"
            )
        result = as_tensor(result)
    if before is None:
        raise GradientError(
            f"can't replace a None gradient with a non-None value: hook {_name(hook)}, "
            f"{describe(result)}"
        )
    if tuple(result.shape) != tuple(before.shape):
        raise GradientError(
            f"hook {_name(hook)} has changed the size of value (was {list(before.shape)} got "
            f"{list(result.shape)})"
        )
    if result.dtype != before.dtype:
        raise GradientError(
            f"hook {_name(hook)} has changed the type of value (was {before.dtype} got "
            f"{result.dtype})"
        )
    return result


def separates_outputs(node: Node) -> bool:
    """Whether a node stands for one for each output: hooks of those that are not reached do not run."""
    return getattr(getattr(node, "rules", None), "separates_outputs", False)


def call_tensor_hooks(
    node: Node, cotangents: list[MaybeValue], create_graph: bool
) -> list[MaybeValue]:
    """Hooks of the Tensors that ``node`` produced, or of its leaf, then ``retain_grad``."""
    if node._leaf is not None:
        meta = node._leaf.meta
        if meta is None or not meta.hooks:
            return cotangents
        return _through_hooks(meta.hooks, _of_tensor, node, cotangents[:1], create_graph)
    extra = node.extra
    if extra is None or not (extra.tensor_hooks or extra.retains):
        return cotangents
    values = list(cotangents)
    for nr, hooks in list(extra.tensor_hooks.items()):
        if nr < len(values):
            if values[nr] is None and separates_outputs(node):
                hooks = {k: h for k, h in hooks.items() if getattr(h, "counts", False)}
            (values[nr],) = _through_hooks(hooks, _of_tensor, node, [values[nr]], create_graph)
    for nr, ref in list(extra.retains.items()):
        t = ref()
        value = values[nr] if nr < len(values) else None
        if t is not None and value is not None:
            add_to_grad(t, value, True)  # in another Tensor, as in PyTorch
    return values


def call_pre_hooks(
    node: Node, cotangents: list[MaybeValue], create_graph: bool
) -> list[MaybeValue]:
    """The node's pre-hooks."""
    hooks = {} if node.extra is None else node.extra.pre_hooks
    return _through_hooks(hooks, _before_node, node, cotangents, create_graph)


def call_post_hooks(
    node: Node, grads: Sequence[MaybeValue], cotangents: Sequence[MaybeValue], create_graph: bool
) -> Sequence[MaybeValue]:
    """The node's post-hooks."""
    hooks = {} if node.extra is None else node.extra.post_hooks
    return _through_hooks(hooks, _after_node, node, list(grads), create_graph, cotangents)


def _of_tensor(hook: Any, gs: Gradients, _: Gradients) -> Gradients:
    result = _checked(hook, hook(*gs), *gs)
    return gs if result is None else (result,)


def _before_node(hook: Any, gs: Gradients, _: Gradients) -> Gradients:
    return _replaced(hook, hook(gs), gs)


def _after_node(hook: Any, gs: Gradients, others: Gradients) -> Gradients:
    return _replaced(hook, hook(gs, others), gs)


def _through_hooks(
    hooks: dict[int, Any],
    call: Callable[[Any, Gradients, Gradients], Gradients],
    node: Node,
    values: list[MaybeValue],
    create_graph: bool,
    others: Sequence[MaybeValue] = (),
) -> list[MaybeValue]:
    """Gradients, after each of ``hooks`` in turn has replaced them by ``call(hook, values, others)``."""
    if not hooks:
        return values
    host = host_for("a hook" if call is _of_tensor else "a hook on a node", node, running=True)
    level, count = level_of(node), len(values)
    lifted = [None if v is None else level.lift(v) for v in (*values, *others)]
    gradients, beside = tuple(lifted[:count]), tuple(lifted[count:])
    for hook in list(hooks.values()):

        def run(*gs: MaybeValue, hook: Callable[..., object] = hook) -> Gradients:
            return call(hook, gs[:count], gs[count:])

        gradients = call_hook(host, hook, run, (*gradients, *beside), count)
    return [g if g is None or create_graph else level.detach(g) for g in gradients]


def _replaced(hook: Callable[..., object], result: object, before: Gradients) -> Gradients:
    """What a hook on a node returned in place of ``before``: all of the gradients, or None."""
    if result is None:
        return before
    if not isinstance(result, (tuple, list)):
        raise TypeError(
            f"expected tuple, but hook returned '{type(result).__name__}': hook {_name(hook)} must "
            f"return None or a tuple of {len(before)} gradients"
        )
    if len(result) != len(before):
        raise GradientError(
            f"hook {_name(hook)} has returned an incorrect number of values (got {len(result)}, but "
            f"expected {len(before)})"
        )
    return tuple([_checked(hook, r, b) for r, b in zip(result, before, strict=True)])


class _MultiHandle(RemovableHandle):
    """Removes a hook that is registered in several places."""

    __slots__ = ("handles",)

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Iterable[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` when the gradients of several Tensors have been computed in one backward pass.

    Arguments:
        tensors: Tensors that require grad; "any" leaves out those that do not.
        fn: with "all", ``fn(grads)`` is called with a sequence of gradients, None for those that this pass
            does not reach; with "any", ``fn(grad)`` with the first that is computed.
        mode: "all" or "any".

    Returns:
        A handle with ``remove()``.

    Source: ``torch.autograd.graph.register_multi_grad_hook``.

    >>> import fad
    >>> a, b = fad.tensor(2.0, requires_grad=True), fad.tensor(3.0, requires_grad=True)
    >>> def show(grads): print([g.item() for g in grads])
    >>> with fad.autograd.register_multi_grad_hook([a, b], show):
    ...     (a * b).backward()
    [3.0, 2.0]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if not callable(fn):
        raise TypeError(f"register_multi_grad_hook: fn must be a function, got {describe(fn)}")
    tensors = list(tensors)
    lock = threading.RLock()
    if mode == "any":
        done: weakref.WeakSet[Any] = weakref.WeakSet()

        def any_hook(g: Tensor) -> None:
            with lock:
                if running.task in done:
                    return
                done.add(running.task)
            call_observer(lambda grads: fn(*grads), [g], fn)

        any_hook.in_the_trace = True  # type: ignore[attr-defined]
        return _MultiHandle([register_hook(t, any_hook) for t in tensors if t.requires_grad])

    nodes: list[Any] = []  # weak: the hooks below belong to these nodes
    passes: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

    def all_hook(index: int) -> Callable[[Tensor], None]:
        def inner(g: Tensor) -> None:
            task = running.task
            with lock:
                state = passes.get(task)
                if state is None:
                    expected = sum([task.will_run(ref()) for ref in nodes])
                    state = passes[task] = [expected, [None] * len(nodes)]
                state[0] -= 1
                state[1][index] = g
                complete = state[0] == 0
                if complete:
                    del passes[task]
            if complete:
                alone = [n for n in (ref() for ref in nodes) if n and separates_outputs(n)]
                if len(alone) < len(nodes) or any([g is not None for g in state[1]]):
                    call_observer(fn, state[1], fn)

        inner.in_the_trace = True  # type: ignore[attr-defined]
        inner.counts = True  # type: ignore[attr-defined]
        return inner

    handles = [register_hook(t, all_hook(i)) for i, t in enumerate(tensors)]
    # A leaf is identified by its Tensor: its accumulator may be another one in a later graph.
    for t in tensors:
        nodes.append(weakref.ref(t.node) if t.node is not None else _AccumulatorOf(t))
    return _MultiHandle(handles)


class _AccumulatorOf:
    """Finds the accumulator that a leaf has at the moment, without keeping the leaf."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Tensor) -> None:
        self.leaf = weakref.ref(leaf)

    def __call__(self) -> Node | None:
        t = self.leaf()
        return None if t is None or t.node is not None else gradient_edge(t)[0]
