"""``linear_transpose``: the transpose of a linear function.

NOTE [branches of which lanes take several]

    choice = lambda p, v: fad.lax.cond(p, lambda v: 2.0 * v, lambda v: 3.0 * v, v)
    f = lambda vs: fad.vmap(choice)(np.array([True, False]), vs)
    (sent,) = fad.linear_transpose(f, np.zeros(2, np.float32))(np.ones(2, np.float32))
    assert sent.tolist() == [2.0, 3.0]

JAX's vmap of a ``cond`` runs each branch on all lanes of ``select_n(taken, stop_gradient(x), x)``: that is
x, but nothing is pulled back from lanes that do not take the branch. JAX does not transpose
``stop_gradient``. Here such a one is replaced, before the program is transposed, by an identity whose
transpose is zero.

Under ``no_grad`` (NOTE [no_grad in traced code]) a value is computed whose derivative in reverse is zero:
the transpose of a function that returns it would miss its part. There it is replaced by a value that has
no transpose.

A tool: `fad.linear_transpose` is imported when it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.errors import ArgumentError, FadError, GradientError, StructureError, describe
from fad.extend import (
    Call,
    Dataflow,
    Primitive,
    Tensor,
    aval_of,
    bind,
    enter,
    flatten,
    has_tensor,
    leave,
    native_primitive,
    restores_modes,
    run_program,
    skeleton,
    stage,
    unflatten,
    with_programs,
)
from fad.extend.types import Array, Aval, Outputs, PyTree, Value

_OPERANDS = (Tensor, jax.Array, np.ndarray, np.number, np.bool_, int, float, complex)
Dims = Sequence[int | None]
# What is not transposed, by what errors of JAX say of it.
_CONSTANTS = {
    f"{jax.lax.stop_gradient.__name__!r}": "stop_gradient or detach",
    "'fad_unrecorded'": "under no_grad",
}


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
    Call.check(f, "linear_transpose")
    leaves, structure = flatten(primals)
    structs: list[PyTree] = list(map(_struct, leaves))
    like = skeleton(primals)

    def run(*tracers: PyTree) -> PyTree:
        return f(*unflatten(structure, tracers, like=like))

    primitive, values, out_structure = stage(run, structs, name="staged", bodies=[f])
    captures = values[: len(values) - len(structs)]
    expected = _outputs(primitive, tuple(map(aval_of, values)))
    _check_dtypes(structs, expected)
    transposed = _transposed(primitive, len(captures), tuple(structs))
    try:
        jax.eval_shape(transposed.flat, *map(aval_of, captures), *expected)
    except (NotImplementedError, AssertionError, TypeError, ValueError) as error:
        if isinstance(error, FadError):
            raise
        by = next((by for name, by in _CONSTANTS.items() if name in str(error)), None)
        if by is not None:
            raise GradientError(
                "linear_transpose: the function makes a constant of a value that depends on its arguments "
                f"({by}), which has no transpose. Compute it with recorded operations "
                "(fad.numpy.where(mask, 0.0, g), or g = g.clone() and g[mask] = 0.0 outside of no_grad), or "
                "write fad.vjp(f, *args)[1] for the pullback, to which this value does not contribute"
            ) from error
        raise GradientError(
            f"linear_transpose: the function is not linear in its arguments, or not known to be ({error}). "
            "If it is, its transpose is the pullback at any point: write fad.vjp(f, *args)[1], which "
            "conjugates complex cotangents"
        ) from error
    shapes = [(tuple(a.shape), a.dtype) for a in expected]

    def function(cotangent: PyTree) -> PyTree:
        cotangents, cotangent_structure = flatten(enter(cotangent))
        avals = [aval_of(x) for x in cotangents if isinstance(x, _OPERANDS)]
        if cotangent_structure != out_structure or shapes != [
            (tuple(a.shape), a.dtype) for a in avals
        ]:
            shown = unflatten(out_structure, [f"{a.dtype}{list(a.shape)}" for a in expected])
            raise StructureError(
                f"linear_transpose: the cotangent must be like the result of the function, {shown}, got "
                f"{describe(cotangent)}"
            )
        out = bind(transposed, [*captures, *cotangents])
        outs = list(out) if type(out) is tuple else [out]
        return leave(unflatten(structure, outs, like=like), has_tensor(cotangent))

    return function


def _struct(x: PyTree) -> Aval:
    """The shape and dtype of an argument."""
    if isinstance(x, _OPERANDS):
        return aval_of(x)
    if hasattr(x, "dtype"):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
    raise ArgumentError(
        f"linear_transpose: the arguments must be arrays or numbers, got {describe(x)}: let the function "
        "close over what is neither"
    )


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
    """The shapes and dtypes of the results of a Primitive."""
    out = jax.eval_shape(primitive.flat, *avals)
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
        program = program.replace(jaxpr=_transposable(program.jaxpr))
        transpose = jax.linear_transpose(lambda *xs: tuple(run_program(program, *xs)), *structs)
        return transpose(tuple(cotangents))

    return Primitive(f"{primitive.name}_transpose", transposed)


def _jvp(primals: Sequence[Array], tangents: object) -> tuple[Outputs, list[None]]:
    return _untaken_p.bind(*primals), [None]


def _batch(axis: object, values: Sequence[Array], dims: Dims) -> tuple[Outputs, Dims]:
    return _untaken_p.bind(*values), dims


_untaken_p = native_primitive(
    "fad_untaken",
    lambda x: [x],
    lambda x: [x],
    jvp=_jvp,
    transpose=lambda cotangents, operands, linear: [None],
    batch=_batch,
)


def _transposable(jaxpr: PyTree) -> PyTree:
    """A program to transpose: ``fad_untaken`` stands for the operands of branches that are not taken, and
    values that are not recorded have no transpose.
    """
    not_taken = set(map(id, Dataflow.not_taken(jaxpr)))
    eqns = []
    for eqn in jaxpr.eqns:
        if id(eqn) in not_taken:
            eqn = eqn.replace(primitive=_untaken_p, params={})
        elif eqn.primitive.name == "fad_unrecorded":
            eqn = eqn.replace(params={"refuses": True})
        else:
            eqn = with_programs(eqn, _transposable)
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
