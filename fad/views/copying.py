"""``copy.copy``, ``copy.deepcopy`` and ``pickle`` of Tensors.

The aliases of a Tensor, its hooks and the place of its gradient belong to that Tensor alone, so a copy is
made anew and not slot by slot.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fad.core.level import bind, captured_by_jit, inside, last_level_id, outside, state
from fad.core.primitive import Primitive
from fad.core.tensor import Storage, Tensor, has_history, meta_of, new_tensor, storage_of
from fad.core.types import Operand, PyTree
from fad.errors import GradientError, describe
from fad.tape.graph import alias
from fad.tape.recorder import ROOT, as_tensor
from fad.views.aliases import DualLink, Link, has_error, link_dual, snapshot, stopped
from fad.views.chains import IDENTITY, Step
from fad.views.make_view import bind_view, detach

_CLONE = Primitive("clone", lambda x: jnp.array(x, copy=True), deferrable=True)


def clone(t: Tensor) -> Tensor:
    """A copy with the same history."""
    cloned: Tensor = bind(_CLONE, (t,))
    return cloned


def shallow_copy(t: Tensor) -> Tensor:
    """Another Tensor that shares the storage: writes to one are seen in both; a leaf of its own."""
    if t.requires_grad and not has_error(t) and _is_leaf(t):
        return _made_leaf(detach(t))
    view: Tensor = bind_view(t, Step(IDENTITY))
    return view


def deep_copy(t: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with a storage of its own; views and detached Tensors copied with it are aliases of its copy.

    Inside of a transform, a copy of what it differentiates has the same history.

    Raises:
        GradientError: the Tensor has a history, which cannot be copied.
    """
    attributes, t = outside(t).__dict__, inside(t)
    if id(t) in memo:  # what it stands for was copied as the base of a view
        copied: Tensor = memo[id(t)]
        return copied
    requires_grad = t.requires_grad
    if requires_grad and not _is_leaf(t):
        if t.level is not ROOT and t.level is not state.body:
            return as_tensor(clone(t))
        raise GradientError(
            "only leaves can be copied deeply (Tensors created explicitly by the user support the deepcopy "
            f"protocol), and {describe(t)} was computed from others: write x.clone() to keep its history, "
            "or copy x.detach()"
        )
    if t.level is ROOT:
        new = new_tensor(copy.deepcopy(t.value, memo), ROOT)  # the memory of `t` may be donated
    else:
        new = as_tensor(clone(stopped(t) if requires_grad else t))
    memo[id(t)] = _made_leaf(new) if requires_grad else new
    new.__dict__.update(copy.deepcopy(attributes, memo))
    if t.meta is None:
        return new
    meta = meta_of(new)
    meta.name = t.meta.name
    meta.grad = copy.deepcopy(t.meta.grad, memo)
    if t.meta.link is not None:
        _copy_link(new, t.meta, memo, copy.deepcopy)
    return new


def _is_leaf(t: Tensor) -> bool:
    """Whether the user made ``t``, which requires grad, a leaf: it is no argument of a transform."""
    if has_history(t):
        return False
    meta = inside(t).meta
    return t.level is ROOT or (meta is not None and meta.made_leaf >= 0)


def _made_leaf(t: Tensor) -> Tensor:
    """``t``, which has no history, as a leaf that requires grad."""
    if t.level is not ROOT:
        meta_of(t).made_leaf = last_level_id()
    t._requires_grad = True
    return t


def handle(x: Any, memo: dict[int, Any]) -> Any:
    """Another handle for the value and history of ``x``; handles of views are views of the bases' handles."""
    if not isinstance(x, Tensor):
        return x
    new = memo.get(id(x))
    if new is None:
        new = memo[id(x)] = snapshot(x) if captured_by_jit(x) else alias(x)
        if x.meta is not None and x.meta.link is not None:
            _copy_link(new, x.meta, memo, handle)
    return new


def _copy_link(new: Tensor, old: Any, memo: dict[int, Any], copied: Callable[..., PyTree]) -> None:
    """Make ``new`` an alias of the copy of what ``old`` is an alias of."""
    meta = meta_of(new)
    link: Link = old.link
    if isinstance(link, DualLink):
        tangent = None if link.tangent is None else copied(link.tangent, memo)
        link_dual(new, copied(link.primal, memo), tangent)
        return
    base = None
    if link.base is None:
        storage = memo.get(id(old.storage))
        if storage is None:
            storage = memo[id(old.storage)] = Storage()
            storage.data = old.storage.data
        storage.peers.append(weakref.ref(new))
    else:
        base = copied(link.base, memo)
        storage = storage_of(base)
    meta.storage = storage
    meta.link = Link(base, link.chain, link.creation, storage.version, link.output_nr)


def reduce(t: Tensor, protocol: object) -> Any:
    """How a Tensor is pickled: its value, its gradient and attributes that the user has given it.

    The relation of a view to its base is not kept, as in NumPy.

    Raises:
        GradientError: the Tensor has a history, or belongs to a running transform.
    """
    if t.level is not ROOT or has_history(t):
        raise GradientError(
            f"only leaves of the eager graph can be pickled, got {describe(t)}: pickle x.detach()"
        )
    grad = None if t.meta is None else t.meta.grad
    return _unpickled, (t.value, t.requires_grad, grad), t.__dict__ or None


def _unpickled(value: Operand, requires_grad: bool, grad: Tensor | None) -> Tensor:
    t = new_tensor(value, ROOT)
    t._requires_grad = requires_grad
    if grad is not None:
        meta_of(t).grad = grad
    return t
