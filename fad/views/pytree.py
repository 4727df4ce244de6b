"""A Tensor among JAX's pytrees: what `jax.tree` and `jax.jit` find in it.

NOTE [Tensors in JAX's pytrees]

    doubled = jax.tree.map(lambda p: 2 * p, {"w": x})
    assert doubled["w"].grad_fn is not None
    jax.tree.map(jnp.sin, {"w": x})  # raises TypeError: plain JAX would lose the derivative

A Tensor is a node with its array for a child, so that jax.jit and optax take it. A Tensor that is
part of a graph or of a running transform keeps that: its child is a Tensor
too, of a type that JAX takes for a leaf. `jax.tree.map(lambda p: 2 * p, params)` then computes with
the Tensor itself, and plain JAX functions refuse it.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.borrowed import as_array
from fad.core.jaxapi import array_type
from fad.core.level import bodies, captured_by_jit, flush, inside, outlived, state
from fad.core.tensor import Tensor, given_away, new_tensor
from fad.core.types import DType
from fad.tape.graph import accumulator_of
from fad.tape.recorder import ROOT


class _Flattening(threading.local):
    """``check``: called where JAX flattens views, and other Tensors that are more than an array.

    ``made``: where it is a list, the Tensors that JAX has made since, of what took the place of an array.
    """

    check: Callable[[Tensor], None] | None = None
    made: list[Tensor] | None = None


flattening = _Flattening()


def _of_origin(name: str, convert: Callable[[Tensor], object] | None = None) -> property:
    """The attribute ``name`` of the Tensor that was flattened, read through ``convert``."""
    read = convert or operator.attrgetter(name)
    return property(
        lambda self: read(self.origin), lambda self, value: setattr(self.origin, name, value)
    )


def _node_of(t: Tensor) -> Any:
    """Where gradients of ``t`` go: for a leaf that is its AccumulateGrad."""
    node = t._node
    return accumulator_of(t) if node is None and t._requires_grad else node


class TrackedTensor(Tensor):
    """A tracked Tensor as a leaf of JAX's pytrees: all it has is that of the Tensor flattened, ``origin``."""

    __slots__ = ("origin",)

    origin: Tensor
    born = _of_origin("born")
    meta = _of_origin("meta")
    _value = _of_origin("_value")
    _level = _of_origin("_level")
    _aux = _of_origin("_aux")
    _lazy = _of_origin("_lazy")
    _requires_grad = _of_origin("_requires_grad")
    _output_nr = _of_origin("_output_nr")
    _node = _of_origin("_node", _node_of)


def original(t: Tensor) -> Tensor:
    """``t`` itself; for a `TrackedTensor` the Tensor that was flattened; in a body of `jit`, its twin."""
    if type(t) is TrackedTensor:
        t = t.origin
    return inside(t) if bodies.traced else t


def _flatten_tensor(t: Tensor) -> tuple[tuple[Any], None]:
    """The one child of ``t``: its array, or where that would lose something a TrackedTensor."""
    if t.meta is None and not t._requires_grad and t._level is ROOT and not bodies.traced:
        value = t._value
        if type(value) is array_type:  # most of them
            flush()  # the caller may donate the array
            return (value,), None
    if flattening.check is not None:
        flattening.check(t)
    bare = not t.requires_grad or ROOT.id <= state.watermark
    if t.level is ROOT and bare and not captured_by_jit(t):
        value = t.value
        given_away(t)
        flush()
        return (value,), None
    if not t.level.alive:
        return _flatten_tensor(outlived(t))
    leaf: Any = object.__new__(TrackedTensor)
    leaf.origin = t
    return (leaf,), None


def _is_numeric(dtype: DType) -> bool:
    """Whether JAX has arrays of this dtype of NumPy."""
    return bool(jnp.issubdtype(dtype, np.number) or dtype == np.bool_)


def _unflatten_tensor(_: None, children: tuple[Any]) -> Tensor:
    """The very Tensor that was flattened, or a new one around what took its child's place."""
    (child,) = children
    if type(child) is array_type:
        return new_tensor(child, ROOT)
    if isinstance(child, TrackedTensor):
        return child.origin
    if isinstance(child, (np.ndarray, np.generic)) and _is_numeric(child.dtype):
        return new_tensor(as_array(child), ROOT)  # a function of NumPy was mapped over the tree
    if isinstance(child, Tensor):
        return child
    t = new_tensor(child, ROOT)
    if flattening.made is not None:
        flattening.made.append(t)
    return t


jax.tree_util.register_pytree_node(Tensor, _flatten_tensor, _unflatten_tensor)
