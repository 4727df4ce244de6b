"""``linearize``: the derivative of a function as a linear one; ``linear_transpose``: its transpose."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of, struct_of
from fad.core.jaxapi import ClosedJaxpr, Zero, define_primitive, new_primitive
from fad.core.jaxprs import bind_jaxpr, of_branches_not_taken, with_programs
from fad.core.level import bind, map_tensors, outlived, restores_modes
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, is_operand, new_tensor
from fad.core.types import Aval, JaxBody, Operation, Outputs, PyTree, Value
from fad.errors import ArgumentError, FadError, GradientError, StructureError, describe
from fad.errors.advice import no_transpose
from fad.tape.recorder import RecordingLevel
from fad.tape.staged import StagedLevel, in_body, stage, unrecorded_p
from fad.transforms.boundary import (
    Call,
    check_callable,
    enter,
    filled,
    has_tensor,
    leave,
    lower,
)
from fad.transforms.jvp import directions_of

# ``linearize``: run a function once, then apply its derivative to any number of tangents.


class LinearizeLevel(RecordingLevel):
    """Forward mode with tangents left open: ``aux`` is the number of a tangent that is not known yet.

    Each call that a tangent reaches is written on ``tape`` as (operation for its tangents, primal
    inputs, numbers of the tangents that go in, numbers of those that come out).
    """

    __slots__ = ("count", "tape")

    kind = "linearize"
    settings = ()

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
        by_number: dict[int, Value] = dict(enumerate(tangents))
        for op, operands, numbers, produced in self.tape:
            out = bind(op, [*operands, *[by_number[n] for n in numbers]])
            by_number.update(zip(produced, out if type(out) is tuple else (out,), strict=True))
        return by_number


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
    call = Call(who, primals)
    with LinearizeLevel() as level:
        variables = [level.variable(v) for v in call.values]
        level.arguments += [v for v in call.values if isinstance(v, Tensor)]
        outs = call.outputs(call.run(f, None, variables, has_aux))
        numbers = [level.value_and_aux(o)[1] for o in outs]
        written = call.written(variables, lambda x: level.value_and_aux(x)[0])
    call.write_back(written)
    results = [outlived(o) for o in outs]

    def jvp_fn(*tangents: PyTree) -> PyTree:
        pushed = level.push(filled(directions_of(call, tangents), call.values))
        out_t = filled([None if n is None else pushed[n] for n in numbers], results)
        out_t = trees.unflatten(call.out_structure, out_t, call.out_like)
        return leave(out_t, call.tensors or has_tensor(tangents))

    result = call.result(results)
    call.who = "jvp_fn"
    return call.and_aux(result, jvp_fn)


# ``linear_transpose``: the transpose of a linear function.
#
# NOTE [branches of which lanes take several]
#
#     choice = lambda p, v: fad.lax.cond(p, lambda v: 2.0 * v, lambda v: 3.0 * v, v)
#     f = lambda vs: fad.vmap(choice)(np.array([True, False]), vs)
#     (sent,) = fad.linear_transpose(f, np.zeros(2, np.float32))(np.ones(2, np.float32))
#     assert sent.tolist() == [2.0, 3.0]
#
# JAX's vmap of a ``cond`` runs each branch on all lanes of ``select_n(taken, stop_gradient(x), x)``: that is
# x, but nothing is pulled back from lanes that do not take the branch. JAX does not transpose
# ``stop_gradient``. Here such a one is replaced, before the program is transposed, by an identity whose
# transpose is zero.
#
# Under ``no_grad`` (NOTE [no_grad in traced code]) a value is computed whose derivative in reverse is zero:
# the transpose of a function that returns it would miss its part. There it is replaced by a value that has
# no transpose.


@restores_modes
def linear_transpose(f: Callable[..., PyTree], *primals: PyTree) -> Callable[..., PyTree]:
    """The transpose of a function that is linear in all of its arguments.

    Arguments:
        f: the function, of pytrees of Tensors. It is traced, as by `jit`. It may close over tracked Tensors,
            in which the result can be differentiated.
        primals: arguments of it, pytrees of arrays and numbers whose shapes and dtypes alone are read; a
            ``jax.ShapeDtypeStruct`` may stand for an array.

    Returns:
        A function from a cotangent, of the structure of f's result, to a tuple of cotangents, one for each
        argument. Nothing is conjugated.

    Raises:
        ArgumentError: an argument is neither an array nor a number.
        GradientError: f is not linear in its arguments, makes constants of them (`stop_gradient`), or runs on
            the host (`from_torch`), where linearity is not known: `vjp` transposes a function that is
            linear. Or it does not go from floating or complex numbers to such, or from integers to
            integers.
        StructureError: a cotangent is not of the structure, shape and dtype of f's result.

    Source: ``jax.linear_transpose``.

    >>> import fad, fad.numpy as fnp
    >>> transposed = fad.linear_transpose(lambda x: fnp.cumsum(2.0 * x), fad.ones(3))
    >>> transposed(fad.ones(3))[0].tolist()
    [6.0, 4.0, 2.0]
    """
    check_callable(f, "linear_transpose")
    leaves, structure = trees.flatten(primals)
    structs = list(map(_struct, leaves))
    like = trees.skeleton(primals)

    def run(level: StagedLevel, *tracers: PyTree) -> PyTree:
        return in_body(level, f)(*trees.unflatten(structure, tracers, like=like))

    primitive, values, out_structure = stage(run, structs, bodies=[f])
    captures = values[: len(values) - len(structs)]
    expected = _outputs(primitive, tuple(map(aval_of, values)))
    _check_dtypes(structs, expected)
    transposed = _transposed(primitive, len(captures), tuple(structs))
    try:
        jax.eval_shape(transposed.flat, *map(aval_of, captures), *expected)
    except (NotImplementedError, AssertionError, TypeError, ValueError) as error:
        if isinstance(error, FadError):
            raise
        if f"{jax.lax.stop_gradient.__name__!r}" in str(error):
            raise GradientError(no_transpose("stop_gradient or detach")) from error
        raise GradientError(
            f"linear_transpose: the function is not linear in its arguments, or not known to be ({error}). "
            "If it is, its transpose is the pullback at any point: write fad.vjp(f, *args)[1], which "
            "conjugates complex cotangents"
        ) from error

    def function(cotangent: PyTree) -> PyTree:
        cotangents, cotangent_structure = trees.flatten(enter(cotangent))
        avals = [aval_of(x) for x in cotangents if is_operand(x)]
        shapes = [(tuple(a.shape), a.dtype) for a in avals]
        if cotangent_structure != out_structure or shapes != [
            (tuple(a.shape), a.dtype) for a in expected
        ]:
            shown = trees.unflatten(out_structure, [f"{a.dtype}{list(a.shape)}" for a in expected])
            raise StructureError(
                f"linear_transpose: the cotangent must be like the result of the function, {shown}, got "
                f"{describe(cotangent)}"
            )
        out = bind(transposed, [*captures, *map(lower, cotangents)])
        outs = list(out) if type(out) is tuple else [out]
        return leave(trees.unflatten(structure, outs, like=like), has_tensor(cotangent))

    return function


def _struct(x: PyTree) -> Aval:
    """The shape and dtype of an argument."""
    if not (is_operand(x) or hasattr(x, "dtype")):
        raise ArgumentError(
            f"linear_transpose: the arguments must be arrays or numbers, got {describe(x)}: let the function "
            "close over what is neither"
        )
    aval: Aval = aval_of(x) if is_operand(x) else x
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _check_dtypes(inputs: Sequence[Aval], outputs: Sequence[Aval]) -> None:
    """Refuse a function that is not one of floating or complex numbers, or of integers."""
    dtypes = [a.dtype for a in (*inputs, *outputs)]
    for kind in (np.inexact, np.integer):
        if all([jnp.issubdtype(d, kind) for d in dtypes]):
            return
    taken, made = [", ".join([str(a.dtype) for a in avals]) for avals in (inputs, outputs)]
    raise GradientError(
        "linear_transpose: the function must go from floating or complex numbers to such, or from integers "
        f"to integers, got one from {taken} to {made}: let it close over other arguments, and leave other "
        "results out"
    )


@functools.lru_cache(maxsize=256)
def _outputs(primitive: Primitive, avals: tuple[Aval, ...]) -> list[Aval]:
    """The avals of the results of a Primitive."""
    out = jax.eval_shape(primitive.flat, *map(struct_of, avals))
    return list(out) if type(out) is tuple else [out]


@functools.lru_cache(maxsize=256)
def _transposed(primitive: Primitive, count: int, structs: tuple[Aval, ...]) -> Primitive:
    """The transpose of a Primitive in its inputs after the first ``count``."""

    def transposed(*values: PyTree) -> Outputs:
        fixed, cotangents = values[:count], values[count:]

        def linear(*xs: PyTree) -> tuple[Value, ...]:
            out = primitive.flat(*fixed, *xs)
            return out if type(out) is tuple else (out,)

        program = jax.make_jaxpr(linear)(*structs)
        run = bind_jaxpr(ClosedJaxpr(_transposable(program.jaxpr), program.consts))
        transposed = jax.linear_transpose(lambda *xs: tuple(run(*program.consts, *xs)), *structs)
        return transposed(tuple(cotangents))

    return Primitive(f"{primitive.name}_transpose", transposed)


untaken_p = new_primitive("fad_untaken")
define_primitive(
    untaken_p,
    lambda x: [x],
    lambda x: [x],
    jvp=lambda primals, _: (
        untaken_p.bind(*primals),
        [Zero(aval_of(primals[0]).to_tangent_aval())],
    ),
    transpose=lambda cotangents, x: [Zero(x.aval)],
    batch=lambda _, values, dims: (untaken_p.bind(*values), dims),
)


def _transposable(jaxpr: JaxBody) -> JaxBody:
    """A program to transpose: `untaken_p` stands for the operands of branches that are not taken, and
    values that are not recorded have no transpose.
    """
    not_taken = set(map(id, of_branches_not_taken(jaxpr)))
    eqns = []
    for eqn in jaxpr.eqns:
        if id(eqn) in not_taken:
            eqn = eqn.replace(primitive=untaken_p, params={})
        elif eqn.primitive is unrecorded_p:
            eqn = eqn.replace(params={"refuses": True})
        else:
            eqn = with_programs(eqn, _transposable)
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
