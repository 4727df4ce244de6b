"""One node of a backward pass: its hooks, its work, and the checks between them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fad.core.casts import cast_to
from fad.core.jaxapi import array_type
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, is_operand
from fad.core.types import Array, MaybeValue, Value
from fad.errors import GradientError, describe
from fad.tape.accumulate import accumulate
from fad.tape.edges import InputMetadata, sharding_of
from fad.tape.graph import AccumulateGrad, Node, extra_of
from fad.tape.hooks import call_post_hooks, call_pre_hooks, call_tensor_hooks
from fad.tape.recorded_node import RecordedNode, for_edges
from fad.tape.recorder import PrimitiveNode, as_tensor, level_of
from fad.tape.saved import raise_released


def step(
    node: Node,
    cotangents: list[MaybeValue],
    need: tuple[bool, ...],
    create_graph: bool,
    keep_graph: bool,
) -> Sequence[MaybeValue]:
    """Gradients for every edge of ``node``; None where there is none, or ``need`` says no."""
    extra = node.extra
    if extra is not None:
        cotangents = call_tensor_hooks(node, cotangents, create_graph)
        cotangents = call_pre_hooks(node, cotangents, create_graph)
    if type(node) is PrimitiveNode:
        if any(need):
            grads = for_edges(node.run(cotangents, need, create_graph), need)
        elif node.values is None:
            raise_released(node)
        else:
            grads = [None] * len(need)
    else:
        if not keep_graph:
            node.will_release_variables()
        if isinstance(node, RecordedNode):
            grads = for_edges(node.run(cotangents, need, create_graph), need)
        else:
            grads = _run_by_hand(node, cotangents, create_graph)
        grads = _validated(node, grads)
    if extra is not None:
        grads = call_post_hooks(node, grads, cotangents, create_graph)
    return grads


def reach_leaf(
    node: AccumulateGrad, cotangents: list[MaybeValue], create_graph: bool
) -> Sequence[MaybeValue]:
    """Everything that happens at a leaf: hooks of the Tensor, of the node, and accumulation."""
    cotangents = call_tensor_hooks(node, cotangents, create_graph)
    cotangents = call_pre_hooks(node, cotangents, create_graph)
    accumulate(node, cotangents[0], create_graph)
    return call_post_hooks(node, (), cotangents, create_graph)


def release_by_hand(node: Node) -> None:
    """Let a node that a user wrote drop what it saved, while no other thread runs it."""
    with extra_of(node).lock:
        node.release_variables()


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
        if type(target) is AccumulateGrad and _is_alike(g, target.variable):
            continue
        known = target.metadata_of_inputs()
        if nr >= len(known) or known[nr].is_undefined:
            continue
        expected = known[nr]
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
        if not isinstance(target, RecordedNode):
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
    own = sharding_of(g)
    if expected.sharding is None or own is None:
        return g
    wanted, found = expected.sharding.device_set, own.device_set
    if wanted == found:
        return g
    if g.shape == ():
        result: Value = bind(_put_on(expected.sharding), (g,))
        return result
    names = [", ".join(sorted(map(str, devices))) for devices in (wanted, found)]
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
