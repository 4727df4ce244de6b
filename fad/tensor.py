"""The Tensor handle: a value, the level it belongs to, and its place in a graph."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fad.dispatch import Level
    from fad.graph import Node

__all__ = ["Meta", "Tensor", "new_tensor"]


class Meta:
    """What only few Tensors have: a gradient, hooks, in-place history, aliases."""

    __slots__ = ("accumulator", "grad", "hooks", "inference", "name", "post_hooks", "retains_grad",
                 "version")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.accumulator: weakref.ref[Any] | None = None
        self.hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.retains_grad = False
        self.version = 0
        self.inference = False
        self.name = ""


class _TensorType(type):
    """The type of Tensor; its repr is what JAX prints when a Tensor meets plain ``jax.numpy``."""

    def __repr__(cls) -> str:
        return (
            "<class 'fad.Tensor'> (plain JAX functions take arrays, not Tensors: write "
            "fad.numpy.f(x), fad.lax.f(x) or fad.from_jax(f)(x) to keep derivatives, "
            "or pass x.array for the bare value)"
        )


class Tensor(metaclass=_TensorType):
    """An array with a level and, where it requires grad, a place in a graph.

    A Tensor of level 0 holds a JAX array (or a JAX tracer). A Tensor of a running transform's level
    wraps what that transform needs: ``value`` is the value one level down, ``aux`` the tangent
    (forward mode), the batch dimension (vmap), or None. See docs/how-a-call-travels.md.

    Tensors are made with `fad.tensor` or `fad.asarray`, or by calling fad functions with Tensors.
    """

    __slots__ = (
        "__weakref__",
        "aux",
        "level",
        "meta",
        "node",
        "output_nr",
        "requires_grad",
        "value",
    )

    value: Any
    level: Level
    aux: Any
    requires_grad: bool
    node: Node | None
    output_nr: int
    meta: Meta | None

    def __init__(self) -> None:
        raise TypeError(
            "Tensor() is not called directly: write fad.tensor(data) to copy data into a new Tensor, "
            "or fad.asarray(x) to wrap an array"
        )

    @property
    def aval(self) -> Any:
        """JAX's abstract value: shape, dtype and weak type, as seen at this level."""
        return self.level.aval(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions; inside ``vmap``, without the mapped one."""
        shape: tuple[int, ...] = self.level.aval(self).shape
        return shape

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the elements."""
        return self.level.aval(self).dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


_new = object.__new__


def new_tensor(value: Any, level: Level, aux: Any = None) -> Tensor:
    """A Tensor of ``level`` around ``value`` that is not part of any graph."""
    t: Tensor = _new(Tensor)
    t.value = value
    t.level = level
    t.aux = aux
    t.requires_grad = False
    t.node = None
    t.output_nr = 0
    t.meta = None
    return t


_making_meta = threading.Lock()


def meta_of(t: Tensor) -> Meta:
    """The Meta of ``t``, made if it has none yet; the same one for all threads."""
    if t.meta is None:
        with _making_meta:
            if t.meta is None:
                t.meta = Meta()
    return t.meta
