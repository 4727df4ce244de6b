"""``linear_transpose``: the transpose of a linear function.

NOTE [branches of which lanes take several]

JAX's vmap of a ``cond`` runs each branch on all lanes of ``select_n(taken, stop_gradient(x), x)``: that is x,
but nothing is pulled back from lanes that do not take the branch. JAX does not transpose ``stop_gradient``.
Here such a one is replaced, before the program is transposed, by an identity whose transpose is zero.

Under ``no_grad`` (NOTE [no_grad in traced code]) a value is computed whose derivative in reverse is zero: the
transpose of a function that returns it would lack it. There it is replaced by what has no transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from fad.core import trees
from fad.core.avals import aval_of, struct_of
from fad.core.jaxapi import ClosedJaxpr, Zero, define_primitive, new_primitive
from fad.core.jaxprs import bind_jaxpr, of_branches_not_taken, with_programs
from fad.core.level import bind, restores_modes
from fad.core.primitive import Primitive
from fad.core.types import Aval, JaxBody, Outputs, PyTree, Value
from fad.core.unrecorded import unrecorded_p
from fad.errors import ArgumentError, FadError, GradientError, StructureError, describe
from fad.errors.advice import AS_RECORDED
from fad.levels.staged import StagedLevel, in_body, stage
from fad.transforms.boundary import check_callable, enter, has_tensor, leave, lower


@restores_modes
def linear_transpose(f: Callable[..., PyTree], *primals: PyTree) -> Callable[..., PyTree]:
    """The transpose of a function that is linear in all of its arguments.

    Arguments:
        f: the function, of pytrees of Tensors. It is traced, as by `jit`. It may close over tracked Tensors,
            in which the result can be differentiated.
        primals: arguments of it, whose shapes and dtypes alone are read; a ``jax.ShapeDtypeStruct`` may
            stand for an array.

    Returns:
        A function from a cotangent, of the structure of f's result, to a tuple of cotangents, one for each
        argument. Nothing is conjugated.

    Raises:
        GradientError: f is not linear in its arguments, or runs on the host (`from_torch`), where that is not
            known: `vjp` transposes what is.
        StructureError: a cotangent is not of the structure, shape and dtype of f's result.

    Source: ``jax.linear_transpose``.

    >>> import fad, fad.numpy as fnp
    >>> transposed = fad.linear_transpose(lambda x: fnp.cumsum(2.0 * x), fad.ones(3))
    >>> transposed(fad.ones(3))[0].tolist()
    [6.0, 4.0, 2.0]
    """
    check_callable(f, "linear_transpose")
    leaves, structure = trees.flatten(primals)
    for x in leaves:
        if not hasattr(x, "dtype"):
            raise ArgumentError(
                f"linear_transpose: the arguments must be arrays, got {describe(x)}: let the function close "
                "over what is no array"
            )
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]

    like = trees.skeleton(primals)

    def run(level: StagedLevel, *tracers: PyTree) -> PyTree:
        return in_body(level, f)(*trees.unflatten(structure, tracers, like=like))

    primitive, values, out_structure = stage(run, structs, bodies=[f])
    captures = values[: len(values) - len(structs)]
    expected = _outputs(primitive, tuple(map(aval_of, values)))
    transposed = _transposed(primitive, len(captures), tuple(structs))
    try:
        jax.eval_shape(transposed.flat, *map(aval_of, captures), *expected)
    except (NotImplementedError, AssertionError, TypeError, ValueError) as error:
        if isinstance(error, FadError):
            raise
        if "stop_gradient" in str(error):
            advice = f"Compute what it detaches with recorded operations ({AS_RECORDED})"
        else:
            advice = (
                "If it is, its transpose is the pullback at any point: write fad.vjp(f, *args)[1], which "
                "conjugates complex cotangents"
            )
        raise GradientError(
            f"linear_transpose: the function is not linear in its arguments, or not known to be ({error}). "
            f"{advice}"
        ) from error

    def function(cotangent: PyTree) -> PyTree:
        given, found = trees.flatten(enter(cotangent))
        shapes = [(tuple(x.shape), x.dtype) for x in given if hasattr(x, "dtype")]
        if found != out_structure or shapes != [(tuple(a.shape), a.dtype) for a in expected]:
            shown = trees.unflatten(out_structure, [f"{a.dtype}{list(a.shape)}" for a in expected])
            raise StructureError(
                f"linear_transpose: the cotangent must be like the result of the function, {shown}, got "
                f"{describe(cotangent)}"
            )
        out = bind(transposed, [*captures, *map(lower, given)])
        outs = list(out) if type(out) is tuple else [out]
        return leave(trees.unflatten(structure, outs, like=like), has_tensor(cotangent))

    return function


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
    """A program to transpose: `untaken_p` is in it for branches that are not taken, and what is not recorded
    has no transpose.
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
