"""The views that a vmap returns: what is a view of an argument in each lane, as a view of the batch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax

from fad.core.level import Level, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Array, Aval, Operand, PyTree
from fad.tape.graph import alias
from fad.tape.recorder import as_tensor
from fad.views.aliases import link_of
from fad.views.chains import (
    IDENTITY,
    Form,
    Step,
    ViewOp,
    Write,
    chain_addresses,
    chain_primitive,
    form_of,
    numbers_of,
    split_numbers,
)
from fad.views.creation import Creation
from fad.views.make_view import attach, chain_from, shares
from fad.views.write_back import chain_put


@dataclasses.dataclass(slots=True, eq=False)
class BatchedView:
    """An output of a mapped function that is ``source``, or the view of it that ``step`` makes."""

    source: Tensor
    step: Step | None = None
    creation: Creation | None = None
    output_nr: int = 0

    def attached(self, out: Operand) -> Tensor:
        """The output for the caller, whose value ``out`` is."""
        if self.step is None:
            return self.source
        view: Tensor = attach(
            alias(as_tensor(out)), self.source, self.step, self.creation, self.output_nr
        )
        return view


def view_of_argument(
    out: PyTree,
    target: int | None,
    arguments: Sequence[Any],
    inside: Sequence[Any],
    dims: Sequence[int | None],
    level: Level,
) -> BatchedView | None:
    """How an output of a mapped function is a view of an argument; None if it is none.

    Arguments:
        out: the output, inside of ``level``, the BatchLevel.
        target: where its batch dimension goes.
        arguments: what the caller gave.
        inside: the same as the function has seen it.
        dims: the batch dimension of each; None where all lanes share it.
    """
    if out.level is not level:
        if target is None or not any(
            [shares(out, x) for x, d in zip(arguments, dims, strict=True) if d is None]
        ):
            return None
        return BatchedView(out, _batched((Step(IDENTITY),), None, target, level))
    found = chain_from(out, inside)
    if found is None or target is None:
        return None
    k, chain = found
    if not isinstance(arguments[k], Tensor):
        return None
    if out is inside[k] and target == dims[k]:
        return BatchedView(arguments[k])
    link = link_of(out)
    step = _batched(chain, dims[k], target, level)
    if link is None or link.creation is Creation.DEFAULT:
        return BatchedView(arguments[k], step)
    return BatchedView(arguments[k], step, link.creation, link.output_nr)


def _batched(chain: Sequence[Step], dim: int | None, target: int, level: Any) -> Step:
    """The steps of a chain, in each lane of a batch, as one step."""
    numbers: list[Operand] = []
    axes: list[int | None] = []
    for n in map(outlived, numbers_of(chain)):
        of_lanes = isinstance(n, Tensor) and n.level is level
        numbers.append(n.value if of_lanes else n)
        axes.append(n.aux if of_lanes else None)
    return Step(
        _batched_op(form_of(chain), dim, target, tuple(axes), level.batch_size), tuple(numbers)
    )


@functools.lru_cache(maxsize=1024)
def _batched_op(
    form: Form, dim: int | None, target: int, axes: tuple[int | None, ...], size: int
) -> ViewOp:
    ops = [op for op, _ in form]
    view = chain_primitive(form).flat

    def put(x: Array, changed: Array, *numbers: Array) -> Array:
        return chain_put(ops, x, changed, split_numbers(form, numbers))

    def places(addresses: Array, parent: Aval, *numbers: Array) -> Array | None:
        shape = parent.shape if dim is None else (*parent.shape[:dim], *parent.shape[dim + 1 :])
        lane = jax.ShapeDtypeStruct(shape, parent.dtype)
        found: Array | None = jax.vmap(
            lambda x, *own: chain_addresses(ops, x, lane, split_numbers(form, own)),
            (dim, *axes),
            target,
            axis_size=size,
        )(addresses, *numbers)
        return found

    repeats = dim is None or any([op.write is Write.BROADCAST for op in ops])
    name = "broadcast" if dim is None else ops[-1].primitive.name
    deferrable = all([op.primitive.deferrable for op in ops])
    return ViewOp(
        Primitive(
            name,
            jax.vmap(view, (dim, *axes), target, axis_size=size),
            positions=True,
            deferrable=deferrable,
        ),
        Write.BROADCAST if repeats else Write.FUNCTION,
        None if repeats else jax.vmap(put, (dim, target, *axes), dim, axis_size=size),
        selects=all([op.selects for op in ops]),
        whole=all([op.whole for op in ops]),
        places=places,
        pieces=max([op.pieces for op in ops]),
    )
