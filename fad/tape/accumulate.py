"""What happens where a graph ends: gradients are added to ``.grad``, without loss between threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fad.core.jaxapi import array_type, is_tracing
from fad.core.level import bind, outside
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom, meta_of, new_tensor
from fad.core.types import MaybeValue, Value
from fad.errors import GradientError, describe
from fad.tape.graph import AccumulateGrad, alias
from fad.tape.handles import call_observer, host_for, name_of
from fad.tape.recorder import ROOT

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
    if level is ROOT and type(t._value) is array_type and is_tracing():
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
    if isinstance(bottom(gradient), jax.core.Tracer):
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
