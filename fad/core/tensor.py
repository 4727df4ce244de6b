"""The Tensor handle: a value, the level it belongs to, and its place in a graph."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fad.core.avals import Count
from fad.core.types import Aval, DType, GraphNode, ViewLink
from fad.errors.missing_names import instead_of_attribute, no_name_later

if TYPE_CHECKING:
    from fad.core.level import Level
    from fad.core.tensor_members import TensorMembers
else:
    TensorMembers = object


class Storage:
    """What all aliases of a value share.

    ``version`` counts in-place changes. Some aliases share the value but not the history (`x.detach()`):
    ``peers`` are weak references to these, and once there are some, ``data`` is the current value without
    history. A write holds ``lock``. ``owned``: compiled code has put the value there, and its array was never
    given away, see NOTE [donated buffers]. ``place``: where the elements are, in the argument of a
    transformed function, see `fad.views.make_view`; None if they are next to each other.
    """

    __slots__ = ("__weakref__", "data", "lock", "owned", "peers", "place", "version")

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.owned = False
        self.data: Any = None
        self.peers: list[weakref.ref[Tensor]] = []
        self.place: Any = None
        self.lock = threading.RLock()


class _Bodies:
    """The bodies of `jit` that are being traced: ``traced`` is how many, in all threads.

    If it is 0, nothing need be read of the state of the thread, which is slower. ``inside(t)``: what stands
    for ``t`` in the body that this thread traces, ``t`` itself where nothing does; see
    `fad.core.level.inside`.
    """

    __slots__ = ("inside", "lock", "traced")

    inside: Callable[[Tensor], Tensor]

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.traced = 0


bodies = _Bodies()

# The Storage of all Tensors that have neither been written to nor viewed.
UNSHARED = Storage()

# The version of an inference Tensor starts here: it stays negative, which the check of versions of saved
# values sees without another test.
INFERENCE = -(2**62)


class Meta:
    """What only few Tensors have: a gradient, hooks, in-place history, aliases.

    ``link`` says from which Tensor a view (or another alias) takes its value, see `fad.views`. ``of_leaf``:
    it is what a leaf was before its shape was changed in place. ``made_leaf``: the id of
    the newest level when the user made it a leaf by ``requires_grad_``; -1 for a leaf of the eager tape that
    has been one since its ``born``, and for arguments of transformed functions.
    """

    grad: Tensor | None = None
    accumulator: weakref.ref[GraphNode] | None = None
    hooks: dict[int, Callable[[Tensor], Tensor | None]] | None = None
    post_hooks: dict[int, Callable[[Tensor], None]] | None = None
    retains_grad: bool = False
    inference: bool = False
    of_leaf: bool = False
    made_leaf: int = -1
    name: str = ""
    storage: Storage = UNSHARED
    link: ViewLink | None = None

    @property
    def has_hooks(self) -> bool:
        """Whether it is of a leaf with hooks, which replay leaves to single operations."""
        return bool(self.hooks or self.post_hooks)


# What JAX and NumPy put into their errors beside the type of an argument: no code of fad sees these.
_INSTEAD = {
    "jax": "plain JAX functions take arrays, not Tensors: write fad.numpy.f(x), fad.lax.f(x) or "
    "fad.from_jax(f)(x) to keep derivatives, or pass x.array for the bare value",
    "numpy": "NumPy writes to arrays of its own alone: write x[index] = values, x.put_(indices, values), "
    "x.fill_diagonal_(value), or fad.numpy.f(x)",
}


class _TensorType(type):
    """The type of Tensor; where JAX or NumPy print it, its repr says what to write instead."""

    def __repr__(cls) -> str:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        instead = _INSTEAD.get(caller)
        return "<class 'fad.Tensor'>" + (f" ({instead})" if instead else "")

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in STATE]


# For fad alone, and so not among the names of `dir`.
STATE = frozenset(["aux", "born", "meta", "node"])


class Tensor(TensorMembers, metaclass=_TensorType):
    """An array with a level and, where it requires grad, a place in a graph.

    A Tensor of level 0 holds a JAX array (or a JAX tracer). A Tensor of a running transform's level
    wraps what that transform needs: ``value`` is the value one level down, ``aux`` the tangent
    (forward mode), the batch dimension (vmap), or None. See docs/how-a-call-travels.md.

    Tensors are made with `fad.tensor` or `fad.asarray`, or by calling fad functions with Tensors.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2., 4.], dtype=float32)
    """

    # Operators and methods are installed by `fad.methods`; for type checkers they are in `TensorMembers`.

    # Slots with an underscore hold the state. The properties of the same names (without the underscore)
    # first update a view from its base. Code that has done so (`fad.core.level.bind`) reads the slots. What
    # changes the state writes to the slots.
    # ``__dict__`` is for attributes of the user, such as the state that an optimizer keeps on a parameter.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_aux",
        "_lazy",
        "_level",
        "_node",
        "_output_nr",
        "_requires_grad",
        "_value",
        "born",
        "meta",
    )

    _value: Any
    _level: Level
    _aux: Any
    _lazy: Lazy | None  # a `Lazy` while `_value`, `_aux` or `_node` may be unset; else None
    _requires_grad: bool
    _node: GraphNode | None
    _output_nr: int
    born: int  # the id of the newest level at the time that this Tensor was made
    meta: Meta | None

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(
            "Tensor() is not called directly: write fad.tensor(data) to copy data into a new Tensor, "
            "or fad.asarray(x) to wrap an array"
        )

    if not TYPE_CHECKING:  # else no misspelt name were an error

        def __getattr__(self, name: str) -> Any:
            """Called for an unset slot: that of a lazy Tensor is set by its trace.

            See `fad.core.replay_protocol`.
            """
            lazy = self._lazy if name in ("_value", "_aux", "_node") else None
            if lazy is not None:
                return lazy.trace.get(self, name)
            if name == "_value" and taken.now is not None:
                return taken.wait(self)
            try:
                return object.__getattribute__(self, name)
            except AttributeError:
                if name.startswith("_") or hasattr(type(self), name):
                    raise
            raise no_name_later(
                "Tensor", name, lambda: instead_of_attribute(name), lambda: _public(type(self))
            )

    @property
    def value(self) -> Any:
        """The value one level down."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
        return self._value

    @property
    def level(self) -> Level:
        """The level that it belongs to."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
        return self._level

    @property
    def aux(self) -> Any:
        """What the level keeps beside the value."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
        return self._aux

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
            return self._requires_grad or meta.link.deferred_error is not None
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self._requires_grad = requires_grad  # what users call is in `fad.methods.history`

    @property
    def node(self) -> GraphNode | None:
        """The node that it is an output of, None for a leaf."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync_history(self)
        if self._lazy is not None and self._requires_grad:
            self._lazy.trace.materialize()
        return self._node

    @property
    def output_nr(self) -> int:
        """Which output of `node` it is."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
        return self._output_nr

    @property
    def aval(self) -> Any:
        """JAX's abstract value: shape, dtype and weak type, as seen at this level."""
        if bodies.traced:
            self = bodies.inside(self)
        meta = self.meta
        if meta is not None and meta.link is not None:
            meta.link.sync(self)
        return self._level.aval(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions; inside ``vmap``, without the mapped one."""
        shape: tuple[int, ...] = self.aval.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The NumPy dtype of the elements."""
        dtype: DType = self.aval.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Count:
        """The number of elements; called, ``x.size()`` or ``x.size(0)``, the lengths of dimensions."""
        shape = self.shape
        count = Count(math.prod(shape))
        count.shape = shape
        return count


def _public(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_")]


def version_of(t: Tensor) -> int:
    """How often the value was changed in place."""
    if bodies.traced:
        t = bodies.inside(t)
    return 0 if t.meta is None else t.meta.storage.version


def at_version(t: Tensor, version: int) -> Tensor:
    """``t``, a new Tensor, as one whose value was changed in place so often."""
    if version:
        storage_of(t).version = version + (INFERENCE if meta_of(t).inference else 0)
    return t


def has_history(t: Tensor) -> bool:
    """Whether ``t`` has a node, or will have one once its trace has run: whether it is no leaf."""
    if bodies.traced:
        t = bodies.inside(t)
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.sync_history(t)
    return t._requires_grad and (t._lazy is not None or t._node is not None)


def given_away(t: Tensor) -> None:
    """Note that the array of ``t`` is returned to a caller: from now on ``t`` is not its only owner."""
    meta = t.meta
    if meta is not None and meta.storage is not UNSHARED:
        meta.storage.owned = False


def is_operand(x: object) -> bool:
    """Whether ``x`` is an `fad.core.types.Operand`: a Tensor, an array of JAX or NumPy, or a number."""
    return isinstance(x, (Tensor, jax.Array, np.ndarray, np.generic, int, float, complex))


def bottom(x: object) -> Any:
    """``x`` with the wrappers of all levels removed: an array or a JAX tracer.

    >>> import fad
    >>> def f(x):
    ...     print(fad.extend.bottom(x))
    ...     return x
    >>> y = fad.vmap(f)(fad.numpy.ones(2))
    [1. 1.]
    """
    while isinstance(x, Tensor):
        x = x.value
    return x


class _Taken:
    """Arrays that a compiled call has taken out of Tensors, to be overwritten; see NOTE [donated buffers].

    ``now``: the Tensors, whose slot ``_value`` is unset meanwhile, and their arrays. The call holds ``lock``.
    ``turn``: the number of calls that have changed something outside.
    """

    __slots__ = ("lock", "now", "turn")

    now: tuple[Sequence[Tensor], Sequence[object]] | None

    def __init__(self) -> None:
        self.now = None
        self.turn = 0
        self.lock = threading.RLock()

    def wait(self, t: Tensor) -> Any:
        """The value of ``t`` after the call; what was there before it, if that was interrupted."""
        with self.lock:
            if self.now is not None and not has_value(t):
                for other, array in zip(*self.now, strict=True):
                    if other is t:
                        t._value = array
            return _value_slot.__get__(t)


taken = _Taken()
_new = object.__new__
latest_level = -1  # the id of the newest level, for `Tensor.born`


def new_tensor(value: Any, level: Level, aux: Any = None) -> Tensor:
    """A Tensor of ``level`` around ``value`` that is not part of any graph.

    >>> import fad
    >>> from fad import extend
    >>> with extend.Level() as level:
    ...     t = extend.new_tensor(fad.tensor(2.0), level, aux="more than a value")
    ...     t.aux
    'more than a value'
    """
    t: Tensor = _new(Tensor)
    t._value = value
    t._level = level
    t._aux = aux
    t._lazy = None
    t.born = latest_level
    t._requires_grad = False
    t._node = None
    t._output_nr = 0
    t.meta = None
    return t


class Lazy:
    """What is known of a Tensor that has no value or no node yet.

    ``aval``: its abstract value. ``trace``: materializing this gives the Tensor its value and node.
    ``place``: the number of the output in the trace.
    """

    __slots__ = ("__weakref__", "aval", "place", "trace")

    def __init__(self, aval: Aval | None, trace: Any, place: int) -> None:
        self.aval = aval
        self.trace = trace
        self.place = place


def lazy_tensor(
    level: Level, aval: Aval, trace: Any, place: int, requires_grad: bool, output_nr: int
) -> Tensor:
    """A Tensor of ``level`` whose value and node are empty until its trace has run, with its `Lazy`."""
    lazy: Lazy = _new(Lazy)
    lazy.aval = aval
    lazy.trace = trace
    lazy.place = place
    t: Tensor = _new(Tensor)
    t._level = level
    t._lazy = lazy
    t.born = latest_level
    t._requires_grad = requires_grad
    t._output_nr = output_nr
    t.meta = None
    return t


def take_over(t: Tensor, o: Tensor) -> None:
    """Give ``t`` the value and the node of ``o``, if it is still lazy: a finalizer may have read it."""
    if t._lazy is None:
        return
    t._requires_grad, t._output_nr = o._requires_grad, o._output_nr
    t._node = o._node
    t._aux = o._aux
    t._value = o._value
    t._lazy = None


_value_slot: Any = Tensor.__dict__["_value"]


def has_value(t: Tensor) -> bool:
    """Whether a Tensor has its value, though maybe no node."""
    try:
        _value_slot.__get__(t)
    except AttributeError:
        return False
    return True


# A finalizer, which may come with any new object, may need the lock that its thread has: so it is
# re-entrant, new objects are made before, and each first use is found and noted in one line.
_meta_lock = threading.RLock()


def meta_of(t: Tensor) -> Meta:
    """The Meta of ``t``, made if it has none yet; one for all threads and finalizers."""
    if bodies.traced:
        t = bodies.inside(t)
    meta = t.meta
    if meta is None:
        fresh = Meta()
        with _meta_lock:
            meta = t.meta = t.meta or fresh
    return meta


def storage_of(t: Tensor) -> Storage:
    """The Storage of ``t``, made if it has none of its own yet; one for all threads and finalizers."""
    if bodies.traced:
        t = bodies.inside(t)
    meta = t.meta or meta_of(t)
    if meta.storage is UNSHARED:
        fresh = Storage(INFERENCE if meta.inference else 0)
        with _meta_lock:
            meta.storage = fresh if meta.storage is UNSHARED else meta.storage
    return meta.storage
