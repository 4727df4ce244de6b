"""Making views: a fresh result is made a view of an argument, or a peer that shares its storage."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import jax

from fad.core.jaxapi import array_type
from fad.core.level import bind, bodies, captured_by_jit, inside, state
from fad.core.primitive import Primitive
from fad.core.tensor import UNSHARED, Meta, Storage, Tensor, meta_of, new_tensor, storage_of
from fad.core.types import Binder, Operand, Outputs, PyTree, Value
from fad.tape.recorder import ROOT
from fad.views.addresses import Test, gives_view, origin
from fad.views.aliases import Link, has_only_values, link_of, only_value, set_state
from fad.views.chains import IDENTITY, Step, Write, same_chain, view_op
from fad.views.creation import DEFAULT, Creation
from fad.views.pytree import original
from fad.views.stop_gradient import stopped


def attach(
    out: Value, x: Tensor, step: Step, creation: Creation | None = None, nr: int = 0
) -> Outputs:
    """Make ``out``, a fresh Tensor that ``step`` made of ``x``, a view of it."""
    if not isinstance(out, Tensor):
        return out
    x = original(x)
    storage = storage_of(x)
    own: Any = x.meta
    meta = out.meta
    if meta is None:
        meta = out.meta = Meta()
    if own.inference:
        meta.inference = True
        if out.requires_grad:  # nothing is recorded of inference Tensors
            set_state(out, stopped(out))
    if creation is None:
        creation = DEFAULT
        if x._level.id <= state.watermark:
            creation = Creation.NO_GRAD
            if state.inference is not None and not own.inference:
                creation = Creation.INFERENCE
                meta.inference = False
    known = own.link
    if known is not None and known.base is not None:
        if creation is DEFAULT:
            creation = known.creation
        link = Link(known.base, (*known.chain, step), creation, storage.version, nr)
    else:
        link = Link(x, (step,), creation, storage.version, nr)
    meta.storage, meta.link = storage, link
    return out


def bind_view(x: Any, step: Step) -> Outputs:
    """The view that ``step`` makes of ``x``; of an array, an array."""
    value = None
    if step.constants and not state.levels and has_only_values():
        value = only_value(x)
    if type(value) is array_type:
        out = new_tensor(step.op.primitive.execute((value, *step.constants)), ROOT)
    else:
        out = bind(step.op.primitive, (x, *step.numbers))
    return attach(out, x, step)


def view_binder(write: Write, copies_unless: Test | None = None) -> Binder:
    """What stands in for `bind` in functions that return views, or tuples of views.

    Arguments:
        write: how a changed view is put back.
        copies_unless: of the addresses of the result; it is a view if this holds, see NOTE [addresses].
    """

    def binder(primitive: Primitive, args: Sequence[Operand]) -> Outputs:
        out = bind(primitive, args)
        x = args[0]
        if not isinstance(x, Tensor):
            return out
        if copies_unless is not None and not gives_view(primitive, x, copies_unless):
            return out
        if type(out) is not tuple:
            return attach(out, x, Step(view_op(primitive, write), tuple(args[1:])))
        recording = x.level.id > state.watermark
        creation = Creation.MULTI_OUTPUT if recording else None
        for k, o in enumerate(out):
            op = view_op(_output(primitive, k), Write.INDICES, len(out))
            attach(o, x, Step(op, tuple(args[1:])), creation, k)
        return out

    return binder


@functools.lru_cache(maxsize=4096)
def _output(primitive: Primitive, k: int) -> Primitive:
    """One output of a Primitive that has several."""
    return Primitive(
        primitive.name, lambda *values: primitive.flat(*values)[k], deferrable=primitive.deferrable
    )


def attach_chain(out: Value, x: Tensor, chain: Sequence[Step], nr: int) -> Outputs:
    """Make ``out``, an output of a Function, the view of its argument ``x`` that the body made."""
    out = attach(out, x, chain[0], Creation.FUNCTION, nr)
    link = link_of(out) if isinstance(out, Tensor) else None
    if link is not None:
        link.chain = (*link.chain, *chain[1:])
    return out


# Peers


def detach(x: Tensor) -> Tensor:
    """A Tensor with the value of ``x`` and no history, which shares its storage and version."""
    x = original(x)
    out: Tensor = stopped(x)
    attach_peer(out, x, ())
    out.meta.link.detached = True  # type: ignore[union-attr]
    return out


def attach_peer(out: Tensor, x: Tensor, chain: tuple[Step, ...]) -> None:
    """Make ``out``, a fresh Tensor, share the storage of the view of ``x`` that ``chain`` makes."""
    x = original(x)
    storage = storage_of(x)
    root, before = origin(x)
    if storage.data is None:
        storage.data = stopped(root)
    make_peer(root, storage, ())
    out.meta = Meta()
    out.meta.inference = x.meta.inference  # type: ignore[union-attr]
    make_peer(out, storage, (*before, *chain))
    out.born = root.born  # since then there is what it shares


def stop_gradient(x: PyTree) -> PyTree:
    """``x`` as a constant: no gradient and no tangent passes through it, at any level.

    Arguments:
        x: a pytree of Tensors and arrays.

    Source: ``torch.Tensor.detach``, ``jax.lax.stop_gradient``.

    >>> import fad
    >>> float(fad.grad(lambda x: x * fad.stop_gradient(x))(3.0))
    3.0
    """
    return jax.tree_util.tree_map(_stop, x, is_leaf=lambda v: isinstance(v, Tensor))


def _stop(x: Operand) -> Operand:
    if isinstance(x, Tensor) and x.level is ROOT and captured_by_jit(x):
        return detach(x)
    found: Operand = stopped(x)
    return found


def make_peer(t: Tensor, storage: Storage, chain: tuple[Step, ...]) -> None:
    """Make ``t`` an alias of the view that ``chain`` makes of the storage's data, if it is no alias yet."""
    meta = meta_of(t)
    if meta.link is not None:
        return
    meta.storage = storage
    meta.link = Link(None, chain, DEFAULT, storage.version)
    storage.peers = [p for p in storage.peers if p() is not None]
    storage.peers.append(weakref.ref(t))


def leave_peers(t: Tensor) -> None:
    """Let ``t`` share its storage with nothing, if all that it shared it with is gone."""
    t = inside(t) if bodies.traced else t
    meta, link = t.meta, link_of(t)
    if meta is None or link is None or link.base is not None or link.chain or link.detached:
        return
    storage = meta.storage
    with storage.lock:
        link.sync(t)
        if not any([p() is not None and p() is not t for p in storage.peers]):
            meta.link = storage.data = None
            storage.peers = []


# Relations between views


def chain_from(x: Tensor, bases: Sequence[Operand]) -> tuple[int, tuple[Step, ...]] | None:
    """Which of ``bases`` the Tensor ``x`` is (a view of), and by which chain; None if of none."""
    base = x
    chain: tuple[Step, ...] = (Step(IDENTITY),)
    link = link_of(x)
    if link is not None and link.base is not None:
        base, chain = link.base, link.chain
    for i, b in enumerate(bases):
        if b is base:
            return i, chain
    return None


def peer_chain_from(x: Tensor, bases: Sequence[Operand]) -> tuple[int, tuple[Step, ...]] | None:
    """Which of ``bases``, Tensors that are no views, ``x`` shares its storage with, and by which chain."""
    for i, b in enumerate(bases):
        if shares(x, b):
            return i, origin(x)[1]
    return None


def shares(a: object, b: object) -> bool:
    """Whether a write to one of two Tensors is seen in the other."""
    if a is b:
        return True
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    a, b = original(a), original(b)
    if a is b or not a.meta or not b.meta:
        return a is b
    return a.meta.storage is b.meta.storage is not UNSHARED


def same_view(a: object, b: object) -> bool:
    """Whether two views show the same part of one base."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    ours, theirs = link_of(a), link_of(b)
    if ours is None or theirs is None:
        return False
    return (
        ours.base is not None and ours.base is theirs.base and same_chain(ours.chain, theirs.chain)
    )
