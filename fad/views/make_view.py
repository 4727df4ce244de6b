"""Making views: which results are views, and how a fresh result is made one."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.jaxapi import array_type
from fad.core.level import bind, bodies, captured_by_jit, inside, state
from fad.core.primitive import Primitive
from fad.core.tensor import UNSHARED, Meta, Storage, Tensor, meta_of, new_tensor, storage_of
from fad.core.types import Array, Aval, Binder, DType, NumpyArray, Operand, Outputs, PyTree, Value
from fad.tape.recorder import ROOT
from fad.views.aliases import (
    DEFAULT,
    Creation,
    DualLink,
    Link,
    has_only_values,
    link_of,
    only_value,
    set_state,
    snapshot,
    stopped,
)
from fad.views.chains import (
    IDENTITY,
    Form,
    Step,
    ViewOp,
    Write,
    addresses_after,
    form_of,
    keeps_order,
    numbers_of,
    same_chain,
    view_op,
)
from fad.views.pytree import original

# Which results are views and which are copies: decided as in NumPy and PyTorch, by where elements are.
#
# NOTE [addresses]
#
#     b = fad.tensor(np.zeros((2, 3)))
#     view, copy = b.reshape(6), b.T.reshape(6)  # no strides lead through the second one
#     b += 1.0
#     assert view[0] == 1.0 and copy[0] == 0.0
#
# An array of JAX has no strides. A view is seen as if its base were stored in row-major order: its chain, run
# on the numbers of the base's elements, says where its own are. A function such as ``reshape`` gives a view
# where strides can describe what it makes of these addresses, and a copy elsewhere.
#
# What stands for an argument inside of a transformed function has the addresses of that: a `Place`, which is
# part of the key of compiled code too.

Test = Callable[[np.ndarray], bool]

# The kinds of steps that lead to a Tensor, shape and dtype of the base, the shapes of the steps' numbers.
Place = tuple[Form, tuple[int, ...], Any, tuple[tuple[int, ...], ...]]


def origin(x: Tensor) -> tuple[Tensor, tuple[Step, ...]]:
    """What ``x`` is a view of, behind dual Tensors too, and the chain from the data of the storage."""
    chain: tuple[Step, ...] = ()
    while True:
        link = link_of(x)
        if link is None:
            return x, chain
        chain = (*link.chain, *chain)
        if isinstance(link, DualLink):
            x = link.primal
        elif link.base is None:  # a peer, which may have a chain of its own
            return x, chain
        else:
            x = link.base


def has_strides(addresses: np.ndarray) -> bool:
    """Whether the addresses along each dimension are at equal distances, the same everywhere."""
    if not addresses.size:
        return True
    wanted = addresses.ravel()[0]
    for k, n in enumerate(addresses.shape):
        line = addresses[tuple([slice(None) if d == k else 0 for d in range(addresses.ndim)])]
        step = line[1] - line[0] if n > 1 else 0
        wanted = np.add.outer(wanted, step * np.arange(n))
    return np.array_equal(addresses, wanted)


def is_row_major(addresses: np.ndarray) -> bool:
    """Whether the addresses follow each other, one by one."""
    flat = addresses.ravel()
    return not flat.size or np.array_equal(flat, flat[0] + np.arange(flat.size))


def is_contiguous(x: Tensor) -> bool:
    """Whether the elements of ``x`` are next to each other in row-major order, see NOTE [addresses]."""
    return not _moved(x) or _decide(None, is_row_major, *_place(x))


def gives_view(primitive: Primitive, x: Tensor, test: Test) -> bool:
    """Whether the result of ``primitive``, which moves the elements of ``x``, is a view by ``test``."""
    if not _moved(x):
        aval = x.aval
        if keeps_order(primitive, aval.shape, aval.dtype):
            return True
    return _decide(primitive, test, *_place(x))


def place_of(x: Operand, dim: int | None = None) -> Place | None:
    """Where the elements of ``x`` are, or those of a lane along ``dim``; None if next to each other."""
    if not isinstance(x, Tensor) or not (_moved(x) or dim):
        return None
    place = _place(x)
    if dim is not None:
        form, *rest = place
        place = ((*form, (_lane(dim), 0)), *rest)
    return None if _decide(None, is_row_major, *place) else place


def stand_at(inside: Any, place: Place | None) -> None:
    """Let ``inside``, which stands for an argument with this place, have its elements there."""
    if place is not None:
        storage_of(inside).place = place


@functools.lru_cache(maxsize=64)
def _lane(dim: int) -> ViewOp:
    return view_op(Primitive("lane", lambda x: jnp.take(x, 0, dim)), Write.INDICES)


def _moved(x: Tensor) -> bool:
    """Whether the elements of ``x`` may not be next to each other."""
    meta = x.meta
    return meta is not None and (meta.link is not None or meta.storage.place is not None)


def _place(x: Tensor) -> Place:
    root, chain = origin(x)
    form = form_of(chain)
    shapes = tuple([() if type(n) is int else tuple(n.shape) for n in numbers_of(chain)])
    storage = None if root.meta is None else root.meta.storage
    if storage is not None and storage.place is not None:
        before, shape, dtype, earlier = storage.place
        return (*before, *form), shape, dtype, (*earlier, *shapes)
    data = root if storage is None or link_of(root) is None else storage.data
    return form, data.aval.shape, data.aval.dtype, shapes


@functools.lru_cache(maxsize=4096)
def _decide(
    primitive: Primitive | None,
    test: Test,
    form: Form,
    shape: tuple[int, ...],
    dtype: DType,
    shapes: tuple[tuple[int, ...], ...],
) -> bool:
    """Whether ``test`` holds of the addresses that the steps, and the primitive, lead to."""
    numbers = iter([np.zeros(s, np.int32)[()] for s in shapes])  # they only move a view
    with jax.ensure_compile_time_eval():
        addresses: Any = _numbered(shape)
        kind: Aval = jax.ShapeDtypeStruct(shape, dtype)
        for op, count in form:
            step_numbers = [next(numbers) for _ in range(count)]
            after, kind = addresses_after(op, addresses, kind, step_numbers)
            if after is None and not is_row_major(np.asarray(addresses)):
                return False
            # None: the same bytes, read in another way.
            addresses = _numbered(kind.shape) if after is None else after
        if primitive is not None:
            addresses = primitive.flat(addresses)
        return test(np.asarray(addresses))


def _numbered(shape: tuple[int, ...]) -> NumpyArray | Array:
    return jnp.arange(int(np.prod(shape))).reshape(shape)


# Making views: a fresh result is made a view of an argument, or a peer that shares its storage.


def attach(
    out: Value, x: Tensor, step: Step, creation: Creation | None = None, nr: int = 0
) -> Outputs:
    """Make ``out``, a fresh Tensor that ``step`` made of ``x``, a view of it."""
    if not isinstance(out, Tensor):
        return out
    x = original(x)
    storage = storage_of(x)
    x_meta: Any = x.meta
    meta = out.meta
    if meta is None:
        meta = out.meta = Meta()
    if x_meta.inference:
        meta.inference = True
        if out.requires_grad:  # nothing is recorded of inference Tensors
            set_state(out, stopped(out))
    if creation is None:
        creation = DEFAULT
        if x._level.id <= state.watermark:
            creation = Creation.NO_GRAD
            if state.inference is not None and not x_meta.inference:
                creation = Creation.INFERENCE
                meta.inference = False
    parent = x_meta.link
    if parent is not None and parent.base is not None:
        if creation is DEFAULT:
            creation = parent.creation
        link = Link(parent.base, (*parent.chain, step), creation, storage.version, nr)
    else:
        link = Link(x, (step,), creation, storage.version, nr)
    meta.storage, meta.link = storage, link
    return out


def bind_view(x: Any, step: Step) -> Outputs:
    """The view that ``step`` makes of ``x``; of an array, an array."""
    value = None
    if step.constants and has_only_values():
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
    stopped_x: Operand = stopped(x)
    return stopped_x


def make_peer(t: Tensor, storage: Storage, chain: tuple[Step, ...]) -> None:
    """Make ``t`` an alias of the view that ``chain`` makes of the storage's data, unless it is an alias."""
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
    if meta is None or link is None or link.base is not None or link.chain:
        return
    storage = meta.storage
    with storage.lock:
        link.sync(t)
        if link.detached and type(t._value) is not array_type:  # a transform of JAX may be around
            return
        if not any([p() is not None and p() is not t for p in storage.peers]):
            meta.link = storage.data = None
            storage.peers = []


# Relations between views


def chain_from(x: Tensor, bases: Sequence[Operand]) -> tuple[int, tuple[Step, ...]] | None:
    """Which of ``bases`` the Tensor ``x`` is, or is a view of, and the chain of that view; else None."""
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
    """With which of ``bases``, none of them a view, ``x`` shares its storage, and by which chain; or None."""
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


def same_view(a: object, b: object, *steps: Step) -> bool:
    """Whether ``b`` is the view that ``steps`` make of ``a``; without any, the same view as ``a``."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    ours, theirs = link_of(a), link_of(b)
    base, chain = (a, ()) if ours is None or ours.base is None else (ours.base, ours.chain)
    return theirs is not None and theirs.base is base and same_chain((*chain, *steps), theirs.chain)


# View ops of your own: `view_function`.


def view_function(
    forward: Callable[..., PyTree],
    write_back: Callable[..., Value] | None = None,
    *,
    name: str | None = None,
) -> Callable[..., PyTree]:
    """A function whose results are views of its argument: a view op of your own.

    Arguments:
        forward: ``forward(x, *numbers)`` in plain JAX: the view of an array.
        write_back: ``write_back(x, view, *numbers)`` in plain JAX: ``x`` with a changed view in it.
            Without it, ``forward`` must select elements of ``x`` (of any dtype), none of them twice;
            what they are is found by calling it on their numbers.
        name: its name in graphs; default is that of ``forward``.

    Returns:
        A function of a Tensor, and of numbers that do not need a new compilation each. Its results
        are views: they show writes to the Tensor, and writes to them change it, at every level. Given
        an array it returns an array.

    Raises:
        ValueError: at the first write, if ``forward`` does not select and there is no write_back.

    >>> import fad
    >>> corners = fad.autograd.view_function(lambda x: x[:: x.shape[0] - 1, :: x.shape[1] - 1])
    >>> x = fad.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    >>> corners(x).zero_().shape, x.tolist()
    ((2, 2), [[0.0, 2.0, 0.0], [4.0, 5.0, 6.0], [0.0, 8.0, 0.0]])
    """
    label = str(name or getattr(forward, "__name__", "view"))
    primitive = Primitive("view" if label == "<lambda>" else label, forward)
    if write_back is None:
        op = ViewOp(primitive, Write.SELECTION)
    else:
        op = ViewOp(primitive, Write.FUNCTION, write_back, selects=False, whole=False)

    def function(x: PyTree, *numbers: Operand) -> PyTree:
        if numbers and write_back is None:
            raise TypeError(
                f"{label}: a view function that takes numbers needs a write_back(x, view, *numbers)"
            )
        fixed = [snapshot(n) if isinstance(n, Tensor) else n for n in numbers]
        return attach(bind(primitive, (x, *numbers)), x, Step(op, tuple(fixed)))

    function.__name__ = function.__qualname__ = label
    function.__doc__ = forward.__doc__
    return function
