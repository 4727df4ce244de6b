"""``linearize``: run a function once, then apply its derivative to any number of tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.core import trees
from fad.core.level import bind, map_tensors, outlived, restores_modes
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Operation, Outputs, PyTree, Value
from fad.tape.recorder import RecordingLevel
from fad.transforms.boundary import (
    check_arrays,
    check_callable,
    differentiable_leaves,
    has_tensor,
    leave,
    stand_for,
    with_aux,
)
from fad.transforms.call import filled
from fad.transforms.forward import call_along


class LinearizeLevel(RecordingLevel):
    """Forward mode with tangents left open: ``aux`` is the number of a tangent yet to be given.

    Each call that a tangent reaches is written on ``tape`` as (operation for its tangents, primal
    inputs, numbers of the tangents that go in, numbers of those that come out).
    """

    __slots__ = ("count", "tape")

    kind = "linearize"

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Operation, list[Value], list[int], list[int]]] = []
        self.count = 0

    def variable(self, value: PyTree) -> Tensor:
        """A fresh input."""
        self.count += 1
        return new_tensor(value, self, self.count - 1)

    def evaluate(self, op: Any, args: Sequence[PyTree]) -> Outputs:
        primals, numbers, some = self.unwrapped(args)
        out = bind(op, primals)
        if not some:
            return map_tensors(lambda o: new_tensor(o, self), out)
        mask = tuple([n is not None for n in numbers])
        outs = out if type(out) is tuple else (out,)
        tangent, operands, differentiable = op.linear(mask, primals, outs)
        results: list[Tensor] = []
        produced: list[int] = []
        for o, is_differentiable in zip(outs, differentiable, strict=True):
            if is_differentiable:
                produced.append(self.count)
                results.append(self.variable(o))
            else:
                results.append(new_tensor(o, self))
        if produced:
            self.tape.append((tangent, operands, [n for n in numbers if n is not None], produced))
        return tuple(results) if type(out) is tuple else results[0]

    def push(self, tangents: Sequence[Value]) -> dict[int, Value]:
        """Tangents of everything on the tape, from those of the inputs."""
        known: dict[int, Value] = dict(enumerate(tangents))
        for op, operands, numbers, produced in self.tape:
            out = bind(op, [*operands, *[known[n] for n in numbers]])
            known.update(zip(produced, out if type(out) is tuple else (out,), strict=True))
        return known


def linearize(f: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> PyTree:
    """The output of ``f`` and its derivative as a linear function of tangents.

    Arguments:
        f: any function of the primals.
        primals: pytrees of floating or complex arrays.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, jvp_fn)``, or ``(output, jvp_fn, aux)``. ``jvp_fn(*tangents)`` takes a tangent for
        each primal (None is zero) and returns the output tangent; f does not run again.

    Raises:
        StructureError: a tangent differs from its primal in structure, shape or dtype.

    Source: ``torch.func.linearize``, ``jax.linearize``.

    >>> import fad, fad.numpy as fnp
    >>> y, push = fad.linearize(fnp.sin, 0.0)
    >>> [float(push(t)) for t in (1.0, 2.0)]
    [1.0, 2.0]
    """
    return linearization_of(f, primals, has_aux, "linearize")


@restores_modes
def linearization_of(f: Callable[..., PyTree], primals: PyTree, has_aux: bool, who: str) -> PyTree:
    """`linearize`, under the name ``who`` in messages."""
    check_callable(f, who)
    values, structure = differentiable_leaves(primals, range(len(primals)), who)
    tensors = has_tensor(primals)
    with LinearizeLevel() as level:
        variables = [level.variable(v) for v in values]
        for v in values:
            level.note_argument(v)
        if tensors:
            stand_for(variables, primals)
        inside = trees.unflatten(structure, variables, primals)
        out, aux = with_aux(f(*inside), has_aux, who)
        outs, out_structure = trees.flatten(out)
        check_arrays(outs, who)
        like = trees.skeleton(out)
        numbers = [level.value_and_aux(o)[1] for o in outs]
    results = [outlived(o) for o in outs]

    def jvp_fn(*tangents: PyTree) -> PyTree:
        _, directions = call_along(primals, tangents, "jvp_fn")
        known = level.push(filled(directions, values))
        out_t = filled([None if n is None else known[n] for n in numbers], results)
        return leave(trees.unflatten(out_structure, out_t, like), tensors or has_tensor(tangents))

    result = leave(trees.unflatten(out_structure, results, like), tensors)
    return (result, jvp_fn, leave(aux, tensors)) if has_aux else (result, jvp_fn)
