"""``vmap``: a function of one example, run on a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import Level, bind, outlived, restores_modes
from fad.core.primitive import Primitive
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand, version_of
from fad.core.types import Array, Aval, Operand, PyTree, Value
from fad.errors import ArgumentError, LevelError, StructureError, describe
from fad.tape.graph import alias
from fad.tape.recorder import as_tensor
from fad.tape.vmap import RANDOMNESS, BatchLevel
from fad.transforms.boundary import (
    Call,
    argument_names,
    check_chunk_size,
    check_written,
    enter,
    is_array,
    leave,
    lower,
    was_written,
    write_back,
)
from fad.views.aliases import Creation, link_of
from fad.views.chains import (
    IDENTITY,
    Form,
    Step,
    ViewOp,
    Write,
    chain_addresses,
    chain_primitive,
    chain_put,
    form_of,
    numbers_of,
    split_numbers,
)
from fad.views.copying import handle
from fad.views.make_view import attach, chain_from, place_of, shares, stand_at

# Views that a vmap returns: a view of an argument in each lane is a view of the batch.


def view_of_argument(
    out: PyTree,
    target: int | None,
    arguments: Sequence[Any],
    inside: Sequence[Any],
    dims: Sequence[int | None],
    level: Level,
) -> Callable[[Operand], Tensor] | None:
    """What makes a view of an argument, or the argument, of the value of an output; None if it is neither.

    Arguments:
        out: the output of the mapped function, inside of ``level``, the BatchLevel.
        target: where its batch dimension goes.
        arguments: those of the caller.
        inside: the same, as the function sees them.
        dims: the batch dimension of each; None where all lanes share it.
    """
    if target is None:
        return None
    if out.level is not level:
        if not any([shares(out, x) for x, d in zip(arguments, dims, strict=True) if d is None]):
            return None
        step = _batched((Step(IDENTITY),), None, target, level)
        return functools.partial(_view, out, step, None, 0)
    origin = chain_from(out, inside)
    if origin is None:
        return None
    k, chain = origin
    argument = arguments[k]
    if not isinstance(argument, Tensor):
        return None
    if out is inside[k] and target == dims[k]:
        return lambda _: argument
    link, step = link_of(out), _batched(chain, dims[k], target, level)
    plain = link is None or link.creation is Creation.DEFAULT
    how = (None, 0) if link is None or plain else (link.creation, link.output_nr)
    return functools.partial(_view, argument, step, *how)


def _view(
    source: Tensor, step: Step, creation: Creation | None, output_nr: int, out: Operand
) -> Tensor:
    """The view of ``source`` that ``step`` makes, whose value is ``out``."""
    view: Tensor = attach(alias(as_tensor(out)), source, step, creation, output_nr)
    return view


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
        batched: Array | None = jax.vmap(
            lambda x, *of_lane: chain_addresses(ops, x, lane, split_numbers(form, of_lane)),
            (dim, *axes),
            target,
            axis_size=size,
        )(addresses, *numbers)
        return batched

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


# ``vmap``: a function of one example, run on a batch.


class _Default(int):
    """The number that a parameter is where it is not given."""


_NOT_GIVEN = _Default(0)
# In the order of how fast `isinstance` can tell.
_ARRAYS = (array_type, Tensor, np.ndarray, jax.Array)


def vmap(
    f: Callable[..., PyTree],
    in_dims: PyTree = _NOT_GIVEN,
    out_dims: PyTree = _NOT_GIVEN,
    *,
    in_axes: PyTree = _NOT_GIVEN,
    out_axes: PyTree = _NOT_GIVEN,
    randomness: str = "error",
    chunk_size: int | None = None,
    axis_size: int | None = None,
    axis_name: Hashable = None,
) -> Callable[..., PyTree]:
    """``f`` mapped over a batch dimension of its arguments.

    Arguments:
        f: a function of one example.
        in_dims: where the batch dimension of each positional argument is: an int, None (all lanes
            share the argument), or a pytree prefix of the tuple of arguments. Negative dimensions
            count from the right. Arrays among keyword arguments are mapped over dimension 0, as in JAX;
            all lanes share other values.
        out_dims: where it goes in each output: an int, None, or a pytree prefix of the output; for a
            single array also a tuple of one.
        in_axes, out_axes: JAX's names of ``in_dims`` and ``out_dims``.
        randomness: what ``fad.random`` does with a key that all lanes share: "error", or the "same"
            numbers in all lanes. If it is "different", the number of the lane is folded into each key.
        chunk_size: run at most so many lanes at a time, to bound memory; not with ``axis_name``.
        axis_size: the batch size, needed only where no argument is mapped.
        axis_name: a name by which ``fad.lax.psum`` and other collectives refer to this dimension.

    Returns:
        A function with f's arguments, each with a batch dimension added where ``in_dims`` says so. What
        f returns of a Tensor (itself, or a view of it) is that Tensor or a view of it outside too, but
        where ``chunk_size`` splits the batch.

    Raises:
        StructureError: ``in_dims`` or ``out_dims`` do not fit, batch sizes differ, or a mapped
            argument has no such dimension.
        ArgumentError: an argument is given under both of its names.
        LevelError: f changes in place what all lanes share and also have a part of.

    Source: ``torch.func.vmap``; ``axis_size``, ``axis_name``, ``in_axes`` and ``out_axes`` are
    ``jax.vmap``'s.

    >>> import fad, fad.numpy as fnp
    >>> fad.vmap(fnp.dot, in_dims=(0, None))(fnp.eye(2), fnp.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    Call.check(f, "vmap")
    in_dims = _of_two_names("in_dims", in_dims, "in_axes", in_axes)
    out_dims = _of_two_names("out_dims", out_dims, "out_axes", out_axes)
    if randomness not in list(RANDOMNESS):
        raise ArgumentError(
            f"vmap: randomness must be one of {', '.join(map(repr, RANDOMNESS))}, got {randomness!r}"
        )
    check_chunk_size(chunk_size, "vmap")

    @restores_modes
    @functools.wraps(f)
    def mapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        arguments = (args, kwargs) if kwargs else args
        leaves, structure = trees.flatten(arguments)
        dims = trees.broadcast_prefix(in_dims_of(in_dims, args), args, "vmap: in_dims")
        dims += [0 if is_array(x) else None for x in leaves[len(dims) :]]  # those of kwargs
        values, dims, size = batch_inputs(
            leaves, dims, axis_size, lambda: argument_names(args, kwargs), in_dims
        )
        tensors = any([isinstance(x, Tensor) for x in leaves])
        shared = _shared_with_mapped(leaves, dims) if tensors else {}
        pairs = zip(leaves, dims, strict=True)
        own_places = [place_of(x, d) if tensors and d is not None else None for x, d in pairs]

        def run(
            chunk: list[PyTree], count: int, first: int
        ) -> tuple[list[Value], list[int | None], PyTree]:
            first = first if RANDOMNESS[randomness].by_lane else 0  # all that reads it
            with BatchLevel(count, axis_name, randomness, first) as level:
                handles: dict[int, object] = {}
                inside = [
                    level.mapped(v, d)
                    if d is not None
                    else handle(v, handles)
                    if k in shared
                    else enter(v)
                    for k, (v, d) in enumerate(zip(chunk, dims, strict=True))
                ]
                mapped = [x for x, d in zip(inside, dims, strict=True) if d is not None]
                for x, place in zip(inside, own_places, strict=True):
                    stand_at(x, place)
                begin_trace(level, mapped, f)
                called = trees.unflatten(structure, inside, arguments)
                if kwargs:
                    out = f(*called[0], **called[1])
                else:
                    out = f(*called)
                outs, out_structure = trees.flatten(out)
                out_like[:] = [trees.skeleton(out)]
                single = isinstance(out, Tensor) and type(out_dims) is tuple and len(out_dims) == 1
                places = out_dims[0] if single else out_dims
                targets = trees.broadcast_prefix(places, out, "vmap: out_dims", "output")
                del out
                targets = [
                    out_dim_of(o, d, k) for k, (o, d) in enumerate(zip(outs, targets, strict=True))
                ]
                result = [level.unwrap(o, d) for o, d in zip(outs, targets, strict=True)]
                if tensors and count == size:
                    views[:] = [
                        view_of_argument(o, d, leaves, inside, dims, level)
                        if isinstance(o, Tensor)
                        and (o.meta is not None or any([o is x for x in inside]))
                        else None
                        for o, d in zip(outs, targets, strict=True)
                    ]
                for k, j in shared.items():
                    if version_of(inside[k]):  # a handle, and so a Tensor
                        raise LevelError(
                            f"vmap: the function writes to {argument_names(args, kwargs)[k]} "
                            f"({describe(leaves[k])}), which all lanes share and which shares its "
                            f"storage with {argument_names(args, kwargs)[j]}, of which each lane has "
                            "a part that would keep its old value. Pass x.clone() for one of them."
                        )
                written[:] = [
                    k for k, x in enumerate(inside) if dims[k] is not None and was_written(x)
                ]
                for k in written:
                    result.append(level.unwrap(inside[k], dims[k]))
                    targets.append(dims[k])
                return result, targets, out_structure

        written: list[int] = []
        out_like: list[PyTree] = []
        views: list[Callable[[Operand], Tensor] | None] = []
        if axis_name is not None and chunk_size is not None and chunk_size < size:
            raise ArgumentError(
                f"vmap: chunk_size={chunk_size} splits the dimension {axis_name!r}, so that collectives "
                "over it would see one chunk only. Leave out chunk_size or axis_name."
            )
        outs, out_structure = in_chunks(run, values, dims, size, chunk_size)
        if written:  # arguments that f changed in place: so they are for the caller
            changed = outs[-len(written) :]
            outs = outs[: -len(written)]
            check_written(leaves, written, "vmap")
            write_back([leaves[k] for k in written], changed, "vmap")
        for n, view in enumerate(views):
            if view is not None:
                outs[n] = view(outs[n])
        return leave(trees.unflatten(out_structure, outs, *out_like), tensors)

    return mapped


def _of_two_names(name: str, value: PyTree, other: str, same: PyTree) -> PyTree:
    """The value of a parameter that has two names."""
    if value is not _NOT_GIVEN and same is not _NOT_GIVEN:
        raise ArgumentError(
            f"vmap: {name} and {other} are two names of one argument: give one of them"
        )
    chosen = same if value is _NOT_GIVEN else value
    return 0 if chosen is _NOT_GIVEN else chosen


def _shared_with_mapped(leaves: list[Value], dims: list[int | None]) -> dict[int, int]:
    """Leaves that all lanes share but whose storage is that of a mapped one, which is given too."""
    shared = [k for k, d in enumerate(dims) if d is None and isinstance(leaves[k], Tensor)]
    mapped = [k for k, d in enumerate(dims) if d is not None]
    return {k: j for k in shared for j in mapped if shares(leaves[k], leaves[j])}


def in_dims_of(in_dims: PyTree, args: tuple[PyTree, ...]) -> PyTree:
    """``in_dims`` as a prefix of the tuple of arguments."""
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise StructureError(
            f"vmap: in_dims has {len(in_dims)} entries for {len(args)} positional arguments, so it is not "
            "compatible with the structure of the inputs: write "
            "one entry for each, or a single int for all"
        )
    return in_dims


def batch_inputs(
    leaves: list[PyTree],
    dims: list[PyTree],
    axis_size: int | None,
    names: Callable[[], list[str]],
    in_dims: PyTree,
) -> tuple[list[Value], list[int | None], int]:
    """Values one level down, dimensions counted from the left, and the batch size.

    ``names`` gives a name for each leaf, for messages; so is ``in_dims``, as it was given.
    """
    values: list[Value] = []
    positive: list[int | None] = []
    sizes: dict[int, int] = {}
    for k, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            values.append(x)
            positive.append(None)
            continue
        if isinstance(d, bool) or not isinstance(d, (int, np.integer)):
            raise StructureError(
                f"vmap: in_dims entries must be ints or None, in a tuple matching the structure of the "
                f"inputs, got {describe(d)}"
            )
        if not isinstance(x, _ARRAYS):
            advice = tool("hints.mistakes").how_to_register(x)
            raise StructureError(
                f"vmap: {names()[k]} is mapped over dimension {d} but is {describe(x)}, not an "
                f"array: give it in_dims None, or pass an array.{advice}"
            )
        value = lower(x)
        shape = value.shape
        ndim = len(shape)
        if not -ndim <= d < ndim:
            raise StructureError(
                f"vmap: {names()[k]} has shape {tuple(shape)} and so no dimension {d} to map "
                "over: correct its entry in in_dims, or give it None if all lanes share it"
            )
        values.append(value)
        d = int(d) % ndim
        positive.append(d)
        sizes[k] = shape[d]
    distinct = set(sizes.values())
    if axis_size is not None:
        distinct.add(axis_size)
    if len(distinct) > 1:
        where = names()
        listed = ", ".join(f"{where[k]}: {n}" for k, n in sizes.items())
        asked = f", axis_size: {axis_size}" if axis_size is not None else ""
        raise StructureError(
            f"vmap: the mapped dimensions must have one length, got {listed}{asked}, with "
            f"in_dims={in_dims!r}. Give in_dims None to what all lanes share, or the position of the batch "
            "dimension."
        )
    if not distinct:
        raise StructureError(
            "vmap: no argument is mapped (there are no inputs, or in_dims is None for all), so the "
            "batch size is unknown: give at least one argument an int in in_dims, or pass axis_size"
        )
    return values, positive, distinct.pop()


def out_dim_of(out: PyTree, dim: PyTree, k: int) -> int | None:
    """An entry of ``out_dims``, checked against its output and counted from the left."""
    if dim is None:
        return None
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)):
        raise StructureError(f"vmap: out_dims entries must be ints or None, got {describe(dim)}")
    if not is_operand(out):
        raise StructureError(
            f"vmap: output {k} of the mapped function must be an array, got {describe(out)}. Return "
            "arrays only: other results have no value for each lane."
        )
    ndim = np.ndim(out)
    if not -(ndim + 1) <= dim <= ndim:
        raise StructureError(
            f"vmap: out_dims {dim} is out of range for output {k}, which has {ndim} dimensions in "
            "each lane"
        )
    return int(dim) % (ndim + 1)


@functools.lru_cache(maxsize=1024)
def _slice(start: int, stop: int, dim: int) -> Primitive:
    return Primitive("slice", lambda x: jax.lax.slice_in_dim(x, start, stop, axis=dim))


@functools.lru_cache(maxsize=1024)
def _concatenate(dim: int) -> Primitive:
    return Primitive("concatenate", lambda *xs: jnp.concatenate(xs, axis=dim), deferrable=True)


def in_chunks(
    run: Callable[..., tuple[list[Value], Sequence[int | None], PyTree]],
    values: list[Value],
    dims: Sequence[int | None],
    size: int,
    chunk: int | None,
) -> tuple[list[PyTree], PyTree]:
    """Run ``chunk`` lanes at a time, all for None, and join the outputs.

    ``run`` is given the values of some lanes, their number, and the number of the first one. It returns
    outputs, the dimension of the lanes in each, and what it likes, of which the last is returned.
    """
    if chunk is None or chunk >= size:
        outs, _, structure = run(values, size, 0)
        return outs, structure
    parts = []
    for start in range(0, size, chunk):
        stop = min(start + chunk, size)
        piece = [
            v if d is None else bind(_slice(start, stop, d), (v,))
            for v, d in zip(values, dims, strict=True)
        ]
        outs, targets, structure = run(piece, stop - start, start)
        parts.append(outs)
    joined = [
        pieces[0] if d is None else bind(_concatenate(d), pieces)
        for d, pieces in zip(targets, zip(*parts, strict=True), strict=True)
    ]
    return joined, structure
