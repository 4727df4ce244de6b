"""Views: Tensors that show a part of another, read by replaying how they were made from it.

NOTE [views by replay]

Arrays are immutable, so a view cannot point into the memory of its base. It holds its base and the
chain of steps that lead from the base to it. A write to a view replays the chain in reverse: it
makes a new value for the base (see `fad.inplace`), and counts up the version that all aliases of the
base share. A view that is read and finds its version behind replays the chain on the base, once, and
so gets its value *and* its history: the nodes of the replayed steps lead to whatever the base's
history is by then. XLA back ends do the same in place of strides.

The attributes of a Tensor that has a `Link` look at the version first; for all others that is one
look at ``meta``.

A detached Tensor shares the value but not the history. It and the Tensor it came from are *peers*:
each has a history of its own, and the value without history (`Storage.data`) is what they follow.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import jaxapi
from fad.dispatch import bind, bodies, constants, followed, outlived, state
from fad.errors import GradientError, LevelError, describe
from fad.graph import accumulator_of, alias, extra_of
from fad.levels import BatchLevel, broadcast, move_axis
from fad.primitive import Primitive
from fad.stopping import stopped
from fad.tape.record import ROOT
from fad.tensor import UNSHARED, Meta, Tensor, meta_of, new_tensor, storage_of

__all__ = [
    "Creation",
    "Link",
    "Step",
    "TrackedTensor",
    "ViewOp",
    "attach",
    "bind_view",
    "stop_gradient",
    "view_function",
    "view_op",
]


class Creation(enum.Enum):
    """What is special about how a view was made, for the errors of writes through it."""

    DEFAULT = ""
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    MULTI_OUTPUT = "multi_output"
    FUNCTION = "function"


class Write(enum.Enum):
    """How the base is made anew from a changed view, for one step."""

    RESHAPE = "reshape"
    PERMUTE = "permute"
    INDICES = "indices"
    SELECTION = "selection"  # INDICES, for a function of the user's, which is checked
    BROADCAST = "broadcast"
    FUNCTION = "function"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ViewOp:
    """One kind of step.

    Attributes:
        primitive: the view of its parent, from the parent and the step's numbers.
        write: how to put a changed view back.
        put: for ``Write.FUNCTION``, ``put(parent, view, *numbers)`` in plain JAX.
        add: ``add(parent, v, *numbers)`` in plain JAX, the parent with ``v`` added to the view where
            there is a way that is better than to put back the sum; None elsewhere.
        selects: each element of the view is one of the parent, so that a gradient of the parent is
            viewed and written to as the parent is.
        whole: the elements of the view are whole elements of the parent, not parts of them.
    """

    primitive: Primitive
    write: Write
    put: Callable[..., Any] | None = None
    add: Callable[..., Any] | None = None
    selects: bool = True
    whole: bool = True

    def forward(self, parent: Any, numbers: Sequence[Any]) -> Any:
        """The view, in plain JAX."""
        return self.primitive.flat(parent, *numbers)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One view of a chain: its kind, and the numbers (indices, starts of windows) of this one."""

    op: ViewOp
    numbers: tuple[Any, ...] = ()


class Link:
    """Whose value a Tensor follows.

    ``base`` is the Tensor that it is a view of, None for a peer, which follows ``Storage.data``.
    ``seen`` is the version at which the state of the Tensor was made; ``poison`` the error that the
    use of its history raises.
    """

    __slots__ = ("base", "chain", "creation", "output_nr", "poison", "seen")

    def __init__(
        self,
        base: Tensor | None,
        chain: tuple[Step, ...],
        creation: Creation,
        seen: int,
        output_nr: int = 0,
    ) -> None:
        self.base = base
        self.chain = chain
        self.creation = creation
        self.seen = seen
        self.poison: str | None = None
        self.output_nr = output_nr

    def sync(self, t: Tensor) -> None:
        """Bring the state of ``t``, which has this link, up to date."""
        if self.seen != t.meta.storage.version:  # type: ignore[union-attr]
            refresh(t)

    def enter(self, t: Tensor) -> None:
        """`sync` for an argument of an operation, which is refused if it cannot be recorded rightly."""
        if self.seen != t.meta.storage.version:  # type: ignore[union-attr]
            refresh(t)
        if self.poison is not None and t._level.id > state.blocked:
            raise GradientError(self.poison)

    def sync_history(self, t: Tensor) -> None:
        """`sync`, for those who want its place in the graph.

        Raises:
            GradientError: the base of a special view was changed.
        """
        if self.seen != t.meta.storage.version:  # type: ignore[union-attr]
            refresh(t)
        if self.poison is not None:
            raise GradientError(self.poison)


def link_of(t: Tensor) -> Link | None:
    """Whose value ``t`` follows; None if it is nobody's alias."""
    link: Link | None = None if t.meta is None else t.meta.link
    return link


# Following


def _of_origin(name: str, convert: Callable[[Tensor], Any] | None = None) -> Any:
    read = convert or operator.attrgetter(name)
    return property(
        lambda self: read(self.origin), lambda self, value: setattr(self.origin, name, value)
    )


def _node_of(t: Tensor) -> Any:
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
    _requires_grad = _of_origin("_requires_grad")
    _output_nr = _of_origin("_output_nr")
    _node = _of_origin("_node", _node_of)


_refreshing = threading.RLock()


def refresh(t: Tensor) -> None:
    """Bring the state of an alias up to the version of its storage."""
    if bodies.traced and state.body is not None:
        with constants():
            return refresh(t)
    with _refreshing:
        meta = t.meta
        assert meta is not None
        link: Link = meta.link
        version = meta.storage.version
        if link.seen == version:
            return
        if link.base is None:
            data = meta.storage.data
            data = outlived(replay(data, link.chain) if link.chain else data)
            if _is_plain(t) and isinstance(data, Tensor):
                set_value(t, data)
            else:
                graft(t, data)
        else:
            _follow(t, link, link.base)
        link.seen = version


def _follow(t: Tensor, link: Link, base: Tensor) -> None:
    """Replay the chain of a view on its base, as recorded code whatever the grad mode is."""
    link.poison = None
    source: Any = base
    special = link.creation is not Creation.DEFAULT
    if special and base.requires_grad:
        link.poison = _forbidden(t, link, indirect=True)
        source = base.level.lift(base.level.detach(base))
        source = new_tensor(source.value, source.level, source.aux)
    before = (state.blocked, state.floor)
    state.blocked = state.floor = -1
    try:
        out = replay(source, link.chain)
    finally:
        state.blocked, state.floor = before
    own = t._requires_grad and t._node is None  # the user made it a leaf
    move_retained(t, t._node, t._output_nr, out)
    set_state(t, out)
    if own and not out.requires_grad:
        t._requires_grad = True


def replay(base: Any, chain: Sequence[Step]) -> Any:
    """The view that a chain makes of ``base``."""
    numbers = numbers_of(chain)
    forward = chain_primitive(form_of(chain))
    if jaxapi.is_tracing() and not isinstance(_bottom(base), jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            return bind(forward, [base, *numbers])
    return bind(forward, [base, *numbers])


def _bottom(x: Any) -> Any:
    x = outlived(x)
    while isinstance(x, Tensor):
        x = outlived(x.value)
    return x


def set_state(t: Tensor, new: Tensor) -> None:
    """Let ``t`` be what ``new`` is."""
    value, level, aux = new.value, new.level, new.aux
    requires_grad, node, output_nr = new.requires_grad, new.node, new.output_nr
    t._value = value
    t._level = level
    t._aux = aux
    t._requires_grad = requires_grad
    t._node = node
    t._output_nr = output_nr


def move_retained(t: Tensor, node: Any, nr: int, new: Tensor) -> None:
    """``retain_grad`` is about the Tensor: it goes along from its place to that of ``new``."""
    if t.meta is None or not t.meta.retains_grad or node is None or new.node is None:
        return
    known = extra_of(node).retains.pop(nr, None)
    if known is not None:
        extra_of(new.node).retains[new.output_nr] = known


def set_value(t: Tensor, new: Tensor) -> None:
    """Let ``t`` have the value (and tangents, lanes, lower history) of ``new``, and keep its place."""
    value, level, aux = new.value, new.level, new.aux
    t._value = value
    t._level = level
    t._aux = aux


def snapshot(t: Tensor) -> Tensor:
    """What ``t`` is now at all its levels, in a handle of its own; without a history that may not be used."""
    value = t.value  # brings an alias up to date
    if t._level is ROOT and not t._requires_grad and followed(t):
        return bind(IDENTITY.primitive, (t,))  # type: ignore[no-any-return]
    link = link_of(t)
    poisoned = link is not None and link.poison is not None
    copy: Tensor = new_tensor(value, t.level, t.aux) if poisoned else alias(t)
    if isinstance(copy.value, Tensor):  # it may be that of the caller, who gets the result
        copy.value = snapshot(copy.value)
    return copy


def _is_plain(t: Any) -> bool:
    """Whether no level keeps a history or tangent for an alias, so that it can be of any level."""
    if t._requires_grad or not (t._level is ROOT or t._aux is None):
        return False
    t = outlived(t._value)
    while isinstance(t, Tensor):
        if t.requires_grad or t.aux is not None:
            return False
        t = outlived(t.value)
    return not isinstance(t, jax.core.Tracer)


def graft(t: Tensor, data: Any) -> None:
    """Give ``t`` the value ``data``, which has no history, and keep the history that ``t`` has."""
    value, aux = grafted(t._value, t._level, t._aux, outlived(data))
    t._value = value
    t._aux = aux


def grafted(value: Any, level: Any, aux: Any, data: Any) -> tuple[Any, Any]:
    """The value and aux of a Tensor of ``level`` once its primal is ``data``."""
    if isinstance(level, BatchLevel):
        if isinstance(data, Tensor) and data.level is level and data.aux is not None:
            size, inner = level.batch_size, data.value
            if aux is None:
                value, aux = broadcast(value, size, 0), 0
            inner = move_axis(inner, data.aux, aux)
        else:
            inner = data.value if isinstance(data, Tensor) and data.level is level else data
            if aux is not None:
                inner = broadcast(inner, level.batch_size, aux)
        return _inner(value, inner, level), aux
    if isinstance(data, Tensor) and data.level is level:
        data = data.value
    return _inner(value, data, level), aux


def _inner(value: Any, data: Any, level: Any) -> Any:
    """A value of ``level`` with a new primal."""
    value, data = outlived(value), outlived(data)
    if not isinstance(value, Tensor):
        if isinstance(data, Tensor) and data.level is ROOT:
            data = data.value
        if isinstance(data, Tensor):
            raise LevelError(
                f"writing {describe(data)} through a detached Tensor would hide it from the Tensor that "
                "shares its storage, which does not belong to that transform: write to that Tensor"
            )
        if isinstance(value, jax.core.Tracer):  # JAX may be differentiating it
            return bind(_GRAFT, (new_tensor(value, level), new_tensor(data, level))).value
        return data
    t = new_tensor(value.value, value.level, value.aux)
    t.value, t.aux = grafted(value.value, value.level, value.aux, data)
    t.requires_grad, t.node, t.output_nr = value.requires_grad, value.node, value.output_nr
    return t


@jax.custom_jvp
def _graft(old: Any, new: Any) -> Any:
    return new


@_graft.defjvp
def _graft_jvp(primals: Any, tangents: Any) -> Any:
    return primals[1], tangents[0]


_GRAFT = Primitive("graft", _graft)


# Making views


def attach(out: Any, x: Tensor, step: Step, creation: Creation | None = None, nr: int = 0) -> Any:
    """Make ``out``, a fresh Tensor that ``step`` made of ``x``, a view of it."""
    if not isinstance(out, Tensor):
        return out
    if type(x) is TrackedTensor:
        x = x.origin
    storage = storage_of(x)
    meta = out.meta
    if meta is None:
        meta = out.meta = Meta()
    if creation is None:
        creation = Creation.DEFAULT
        if x.level.id <= state.blocked:
            creation = Creation.NO_GRAD
            if state.inference is not None and not x.meta.inference:  # type: ignore[union-attr]
                creation = Creation.INFERENCE
                meta.inference = False
    known = link_of(x)
    if known is not None and known.base is not None:
        if creation is Creation.DEFAULT:
            creation = known.creation
        link = Link(known.base, (*known.chain, step), creation, storage.version, nr)
    else:
        link = Link(x, (step,), creation, storage.version, nr)
    meta.storage, meta.link = storage, link
    return out


IDENTITY = ViewOp(Primitive("alias", lambda x: x), Write.RESHAPE)


def attach_chain(out: Any, x: Tensor, chain: Sequence[Step], nr: int) -> Any:
    """Make ``out``, an output of a Function, the view of its argument ``x`` that the body made."""
    out = attach(out, x, chain[0], Creation.FUNCTION, nr)
    link = link_of(out) if isinstance(out, Tensor) else None
    if link is not None:
        link.chain = (*link.chain, *chain[1:])
    return out


def chain_from(x: Any, bases: Sequence[Any]) -> tuple[int, tuple[Step, ...]] | None:
    """Which of ``bases`` the Tensor ``x`` is (a view of), and by which chain; None if of none."""
    base: Any = x
    chain: tuple[Step, ...] = (Step(IDENTITY),)
    link = link_of(x)
    if link is not None and link.base is not None:
        base, chain = link.base, link.chain
    for i, b in enumerate(bases):
        if b is base:
            return i, chain
    return None


def shares(a: Any, b: Any) -> bool:
    """Whether a write to one of two Tensors is seen in the other."""
    if a is b:
        return True
    known = isinstance(a, Tensor) and isinstance(b, Tensor) and a.meta and b.meta
    return bool(known) and a.meta.storage is b.meta.storage is not UNSHARED


def same_view(a: Any, b: Any) -> bool:
    """Whether two views show the same part of one base."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    ours, theirs = link_of(a), link_of(b)
    if ours is None or theirs is None:
        return False
    return (
        ours.base is not None and ours.base is theirs.base and same_chain(ours.chain, theirs.chain)
    )


def same_chain(ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Whether two chains make the same view, as far as can be told without a look at values."""
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if a.op is not b.op or len(a.numbers) != len(b.numbers):
            return False
        for i, j in zip(a.numbers, b.numbers, strict=True):
            if i is not j and not (isinstance(i, int) and isinstance(j, int) and i == j):
                return False
    return True


def bind_view(op: ViewOp, args: Sequence[Any]) -> Any:
    """`bind` for a view of ``args[0]``."""
    out = bind(op.primitive, args)
    x = args[0]
    if not isinstance(x, Tensor):
        return out
    numbers = [snapshot(n) if isinstance(n, Tensor) else n for n in args[1:]]
    return attach(out, x, Step(op, tuple(numbers)))


def view_binder(write: Write) -> Callable[[Any, Sequence[Any]], Any]:
    """What stands in for `bind` in functions that return views, or tuples of views."""

    def binder(primitive: Primitive, args: Sequence[Any]) -> Any:
        out = bind(primitive, args)
        x = args[0]
        if not isinstance(x, Tensor):
            return out
        if type(out) is not tuple:
            return attach(out, x, Step(view_op(primitive, write), tuple(args[1:])))
        recording = x.level.id > state.blocked
        creation = Creation.MULTI_OUTPUT if recording else None
        for k, o in enumerate(out):
            op = view_op(_output(primitive, k), Write.INDICES)
            attach(o, x, Step(op, tuple(args[1:])), creation, k)
        return out

    return binder


def view_function(
    forward: Callable[..., Any],
    write_back: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
) -> Callable[..., Any]:
    """A function whose results are views of its argument: a view op of your own.

    Arguments:
        forward: ``forward(x, *numbers)`` in plain JAX: the view of an array.
        write_back: ``write_back(x, view, *numbers)`` in plain JAX: ``x`` with a changed view in it.
            Without it, ``forward`` must select elements of ``x`` (of any dtype), none of them twice;
            what they are is found by calling it on their numbers.
        name: its name in graphs; default is that of ``forward``.

    Returns:
        A function of a Tensor, and of numbers that do not need a new compilation each. Its results
        follow the Tensor, and writes to them change it, at every level. Given an array it returns
        an array.

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

    def function(x: Any, *numbers: Any) -> Any:
        if numbers and write_back is None:
            raise TypeError(
                f"{label}: a view function that takes numbers needs a write_back(x, view, *numbers)"
            )
        return bind_view(op, (x, *numbers))

    function.__name__ = function.__qualname__ = label
    function.__doc__ = forward.__doc__
    return function


@functools.lru_cache(maxsize=4096)
def view_op(primitive: Primitive, write: Write) -> ViewOp:
    """The ViewOp around a Primitive."""
    return ViewOp(primitive, write)


@functools.lru_cache(maxsize=4096)
def _output(primitive: Primitive, k: int) -> Primitive:
    """One output of a Primitive that has several."""
    return Primitive(primitive.name, lambda *values: primitive.flat(*values)[k])


def detach(x: Tensor) -> Tensor:
    """A Tensor with the value of ``x`` and no history, which shares its storage and version."""
    if type(x) is TrackedTensor:
        x = x.origin
    out: Tensor = stopped(x)
    storage = storage_of(x)
    chain: tuple[Step, ...] = ()
    root = x
    link = link_of(x)
    if link is not None:
        chain = link.chain
        if link.base is not None:
            root = link.base
            peer = link_of(root)
            if peer is not None:  # with a chain of its own
                chain = (*peer.chain, *chain)
    if storage.data is None:
        storage.data = stopped(root)
    _make_peer(root, storage, ())
    out.meta = Meta()
    out.meta.inference = x.meta.inference  # type: ignore[union-attr]
    _make_peer(out, storage, chain)
    out.born = root.born  # since then there is what it shares
    return out


def stop_gradient(x: Any) -> Any:
    """``x`` as a constant: no gradient and no tangent passes through it, at any level.

    Arguments:
        x: a pytree of Tensors and arrays.

    Source: ``torch.Tensor.detach``, ``jax.lax.stop_gradient``.

    >>> import fad
    >>> float(fad.grad(lambda x: x * fad.stop_gradient(x))(3.0))
    3.0
    """
    return jax.tree_util.tree_map(_stop, x, is_leaf=lambda v: isinstance(v, Tensor))


def _stop(x: Any) -> Any:
    if isinstance(x, Tensor) and x.level is ROOT and followed(x):
        return detach(x)
    return stopped(x)


def _make_peer(t: Tensor, storage: Any, chain: tuple[Step, ...]) -> None:
    meta = meta_of(t)
    if meta.link is not None:
        return
    meta.storage = storage
    meta.link = Link(None, chain, Creation.DEFAULT, storage.version)
    storage.peers = [p for p in storage.peers if p() is not None]
    storage.peers.append(weakref.ref(t))


# Chains as functions


Form = tuple[tuple[ViewOp, int], ...]


def form_of(chain: Sequence[Step]) -> Form:
    """What is static of a chain: the kinds of its steps, and how many numbers each takes."""
    return tuple([(step.op, len(step.numbers)) for step in chain])


def numbers_of(chain: Sequence[Step]) -> list[Any]:
    """The numbers of all steps, in order."""
    return [n for step in chain for n in step.numbers]


def split_numbers(form: Form, numbers: Sequence[Any]) -> list[Sequence[Any]]:
    """The numbers of each step."""
    it = iter(numbers)
    return [[next(it) for _ in range(count)] for _, count in form]


@functools.lru_cache(maxsize=4096)
def chain_primitive(form: Form) -> Primitive:
    """All steps of a chain as one Primitive of (base, *numbers)."""
    if len(form) == 1:
        return form[0][0].primitive
    ops = [op for op, _ in form]

    def view(x: Any, *numbers: Any) -> Any:
        return chain_forward(ops, x, split_numbers(form, numbers))

    return Primitive(ops[-1].primitive.name, view, positions=True)


def chain_forward(ops: Sequence[ViewOp], x: Any, numbers: Sequence[Sequence[Any]]) -> Any:
    for op, own in zip(ops, numbers, strict=True):
        x = op.forward(x, own)
    return x


def chain_put(
    ops: Sequence[ViewOp], parent: Any, view: Any, numbers: Sequence[Sequence[Any]]
) -> Any:
    """``parent`` with ``view`` in the place of the view that the steps make of it, in plain JAX."""
    if not ops:
        return view
    op, own = ops[0], numbers[0]
    if op.write is Write.BROADCAST and len(ops) > 1:
        for later in ops[1:]:
            if not later.whole:
                raise ValueError(
                    f"cannot write through {later.primitive.name!r} of a broadcast view: clone() it first"
                )
        return _put_by_indices(lambda x: chain_forward(ops, x, numbers), parent, view)
    if len(ops) > 1:
        view = chain_put(ops[1:], op.forward(parent, own), view, numbers[1:])
    return put(op, parent, view, own)


def put(op: ViewOp, parent: Any, view: Any, numbers: Sequence[Any]) -> Any:
    """``parent`` with ``view`` written back through one step."""
    if op.put is not None:
        return op.put(parent, view, *numbers)
    if op.write is Write.PERMUTE:
        order = _permutation(op.primitive, parent.ndim)
        return jnp.transpose(view, np.argsort(order).tolist())
    if op.write is Write.RESHAPE and _keeps_order(op.primitive, parent.shape, parent.dtype):
        return jnp.reshape(view, parent.shape)
    if op.write is Write.SELECTION:
        _check_selects(op, parent.shape)
    return _put_by_indices(lambda x: op.forward(x, numbers), parent, view)


def _check_selects(op: ViewOp, shape: tuple[int, ...]) -> None:
    """Refuse to write through a function of the user's that does more than select."""
    with jax.ensure_compile_time_eval():
        size = math.prod(shape)
        indices = np.asarray(op.forward(jnp.arange(size).reshape(shape), ()))
        probe = np.sin(1.0 + np.arange(size, dtype=np.float32))
        seen = np.asarray(op.forward(jnp.asarray(probe).reshape(shape), ()))
    selected = indices.dtype.kind in "iu" and (not indices.size or indices.max() < size)
    if not selected or not np.array_equal(seen, probe[indices]):
        raise ValueError(
            f"the view {op.primitive.name!r} does not only select elements, so how a write goes back "
            "cannot be derived: give view_function a write_back(x, view)"
        )
    if np.unique(indices).size != indices.size:
        raise ValueError(
            f"the view {op.primitive.name!r} shows an element twice, so it cannot be written to: "
            "clone() it first"
        )


def _put_by_indices(forward: Callable[[Any], Any], parent: Any, view: Any) -> Any:
    """The general write-back of a view that selects elements: replay it on their numbers."""
    indices = forward(jnp.arange(parent.size).reshape(parent.shape))
    return parent.ravel().at[indices.ravel()].set(view.ravel()).reshape(parent.shape)


_LENGTHS = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@functools.lru_cache(maxsize=1024)
def _permutation(primitive: Primitive, ndim: int) -> tuple[int, ...]:
    """The order of dimensions that a transpose gives, read off shapes."""
    struct = jax.ShapeDtypeStruct(_LENGTHS[:ndim], np.float32)
    return tuple([_LENGTHS.index(n) for n in jax.eval_shape(primitive.flat, struct).shape])


_ORDERLY = frozenset(["reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy"])


@functools.lru_cache(maxsize=1024)
def _keeps_order(primitive: Primitive, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether a reshape keeps elements in row-major order, as ``order="C"`` does."""
    closed = jax.make_jaxpr(primitive.flat)(jax.ShapeDtypeStruct(shape, dtype))

    def orderly(jaxpr: Any) -> bool:
        for eqn in jaxpr.eqns:
            inner = list(jaxapi.inner_jaxprs(eqn.params))
            if inner:
                if not all([orderly(j) for j in inner]):
                    return False
            elif eqn.primitive.name not in _ORDERLY or eqn.params.get("dimensions") is not None:
                return False
        return True

    return orderly(closed.jaxpr)


def overlaps(link: Link, base: Any) -> bool:
    """Whether two elements of the view are one of the base, as in what ``broadcast_to`` returns."""
    chain = link.chain
    if not any([step.op.write is Write.BROADCAST for step in chain]):
        return False
    numbers = [step.numbers for step in chain]
    if any([isinstance(_bottom(n), jax.core.Tracer) for own in numbers for n in own]):
        return chain[-1].op.write is Write.BROADCAST
    with jax.ensure_compile_time_eval():
        indices = np.asarray(
            chain_forward(
                [step.op for step in chain],
                jnp.arange(base.size).reshape(base.shape),
                [[_bottom(n) for n in own] for own in numbers],
            )
        )
    return bool(np.unique(indices).size != indices.size)


# Errors


def _forbidden(t: Tensor, link: Link, indirect: bool) -> str:
    """Why a view of a special kind may not be written to, or used after its base was."""
    what = (
        "its base or another view of its base has been modified"
        if indirect
        else "is being modified"
    )
    node = t._node
    if node is not None:
        text = f"Output {link.output_nr} of {node.name()} is a view and {what} inplace."
    elif link.creation is Creation.INFERENCE:
        text = f"A view was created in inference mode and {what} inplace in normal mode."
    else:
        text = f"A view was created in no_grad mode and {what} inplace with grad mode enabled."
    return f"{text} {_ADVICE[link.creation]}"


_BLOCK = (
    "Whether the write should be recorded is not clear, so it is refused: put both the view and the "
    "inplace operation inside the {mode} block (not recorded), or both outside (recorded)."
)
_ADVICE: dict[Creation, str] = {
    Creation.NO_GRAD: _BLOCK.format(mode="no_grad"),
    Creation.INFERENCE: _BLOCK.format(mode="inference_mode"),
    Creation.MULTI_OUTPUT: (
        "This view is the output of a function that returns multiple views. Such functions do not "
        "allow the output views to be modified inplace: use an operation that is not in place, or "
        "take the views one by one (x[i])."
    ),
    Creation.FUNCTION: (
        "This view was created inside a custom Function (or because an input was returned as-is), "
        "and following its base would override the backward of that Function: clone the output of "
        "the Function."
    ),
}


def check_creation(t: Tensor, link: Link, who: str) -> None:
    """Refuse a recorded write through a view of a special kind."""
    if link.creation is not Creation.DEFAULT:
        raise GradientError(f"{who}: {_forbidden(t, link, indirect=False)}")
