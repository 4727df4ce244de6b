"""Chains: the steps that lead from a base to a view, as data and as one function."""

from __future__ import annotations

import dataclasses
import enum
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from fad.core import jaxapi
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import bottom
from fad.core.types import Array, ArrayFunction, Aval, Operand, Value


class Write(enum.Enum):
    """How the base is made anew from a changed view, for one step."""

    RESHAPE = "reshape"
    PERMUTE = "permute"
    INDICES = "indices"
    SELECTION = "selection"  # INDICES, for a function of the user's, which is checked
    BROADCAST = "broadcast"
    FUNCTION = "function"


BROADCAST = Write.BROADCAST  # a look-up in the Enum takes longer
_view_primitives: weakref.WeakSet[Primitive] = weakref.WeakSet()


def makes_views(primitive: Primitive) -> bool:
    """Whether there is a kind of view that ``primitive`` makes."""
    return primitive in _view_primitives


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ViewOp:
    """One kind of step.

    Attributes:
        primitive: the view of its parent, from the parent and the step's numbers.
        write: how to put a changed view back.
        put: for ``Write.FUNCTION``, ``put(parent, view, *numbers)`` in plain JAX.
        add: ``add(parent, v, *numbers)`` in plain JAX, the parent with ``v`` added to the view, where
            that is better than to put back the sum; else None.
        selects: each element of the view is one of the parent, so that a gradient of the parent is
            viewed and written to as the parent is.
        whole: the elements of the view are whole elements of the parent, not parts of them.
        places: for a view of parts, ``places(addresses, parent, *numbers)``: where its elements are,
            counted in elements of its own dtype, from where those of the parent are, whose shape and dtype
            are ``parent``'s; None from it, or in place of it, if they are not at places of their own.
        pieces: how many views there are of the parent that only differ in the kind of step.
    """

    primitive: Primitive
    write: Write
    put: ArrayFunction | None = None
    add: ArrayFunction | None = None
    selects: bool = True
    whole: bool = True
    places: Callable[..., Array | None] | None = None
    pieces: int = 1

    def __post_init__(self) -> None:
        _view_primitives.add(self.primitive)

    def forward(self, parent: Array, numbers: Sequence[Operand]) -> Array:
        """The view, in plain JAX."""
        found: Array = self.primitive.flat(parent, *numbers)
        return found


@functools.lru_cache(maxsize=4096)
def view_op(primitive: Primitive, write: Write, pieces: int = 1) -> ViewOp:
    """The ViewOp around a Primitive."""
    return ViewOp(primitive, write, pieces=pieces)


IDENTITY = ViewOp(Primitive("alias", lambda x: x, deferrable=True), Write.RESHAPE)


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """One view of a chain: its kind, and the numbers (indices, starts of windows) of this one.

    ``constants``: the numbers as arrays, for a step that is used again and again; else empty.
    """

    op: ViewOp
    numbers: tuple[Operand, ...] = ()
    constants: tuple[Operand, ...] = ()


def same_chain(ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Whether two chains make the same view, as far as can be told without a look at values."""
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if a is b:
            continue
        if a.op is not b.op or len(a.numbers) != len(b.numbers):
            return False
        for i, j in zip(a.numbers, b.numbers, strict=True):
            if i is not j and not (isinstance(i, int) and isinstance(j, int) and i == j):
                return False
    return True


# Chains as functions


Form = tuple[tuple[ViewOp, int], ...]


def form_of(chain: Sequence[Step]) -> Form:
    """What is static of a chain: the kinds of its steps, and how many numbers each takes."""
    return tuple([(step.op, len(step.numbers)) for step in chain])


def numbers_of(chain: Sequence[Step]) -> list[Any]:
    """The numbers of all steps, in order."""
    return [n for step in chain for n in step.numbers]


def split_numbers(form: Form, numbers: Sequence[Operand]) -> list[Sequence[Operand]]:
    """The numbers of each step."""
    it = iter(numbers)
    return [[next(it) for _ in range(count)] for _, count in form]


@functools.lru_cache(maxsize=4096)
def chain_primitive(form: Form) -> Primitive:
    """All steps of a chain as one Primitive of (base, *numbers)."""
    if len(form) == 1:
        return form[0][0].primitive
    ops = [op for op, _ in form]

    def view(x: Array, *numbers: Operand) -> Array:
        return chain_forward(ops, x, split_numbers(form, numbers))

    deferrable = all([op.primitive.deferrable for op in ops])
    return Primitive(ops[-1].primitive.name, view, positions=True, deferrable=deferrable)


def chain_forward(ops: Sequence[ViewOp], x: Array, numbers: Sequence[Sequence[Operand]]) -> Array:
    """The view that the steps make of the array ``x``, in plain JAX."""
    for op, own in zip(ops, numbers, strict=True):
        x = op.forward(x, own)
    return x


def addresses_after(
    op: ViewOp, addresses: Array, parent: Aval, numbers: Sequence[Operand]
) -> tuple[Array | None, Aval]:
    """Where the elements of a step's view are, and its shape and dtype; see NOTE [addresses].

    Arguments:
        op: the step.
        addresses: where the elements of what it is a view of are.
        parent: shape and dtype of that.
        numbers: those of the step.

    Returns:
        None for the addresses, if the elements are not at places of their own.
    """
    if op.whole:
        found = op.forward(addresses, numbers)
        return found, jax.ShapeDtypeStruct(found.shape, parent.dtype)
    kind = jax.eval_shape(lambda x: op.forward(x, numbers), parent)
    return None if op.places is None else op.places(addresses, parent, *numbers), kind


def chain_addresses(
    ops: Sequence[ViewOp], addresses: Array, parent: Aval, numbers: Sequence[Sequence[Operand]]
) -> Array | None:
    """`addresses_after` all steps; None if they lead to no places."""
    for op, own in zip(ops, numbers, strict=True):
        found, parent = addresses_after(op, addresses, parent, own)
        if found is None:
            return None
        addresses = found
    return addresses


def replay(base: Value, chain: Sequence[Step]) -> Any:
    """The view that a chain makes of ``base``."""
    numbers = numbers_of(chain)
    forward = chain_primitive(form_of(chain))
    if jaxapi.is_tracing() and not isinstance(bottom(base), jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            return bind(forward, [base, *numbers])
    return bind(forward, [base, *numbers])
