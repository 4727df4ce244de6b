"""Primitives of JAX with rules of their own, and the programs that such rules are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax

from fad.core import jaxapi
from fad.core.jaxapi import (
    WhileParts,
    Zero,
    define_primitive,
    instantiate_zeros,
    new_primitive,
    shaped_array,
)
from fad.core.jaxprs import where_batched
from fad.core.threads import make_jit
from fad.core.types import Array, ArrayFunction, Aval, JaxObject, JaxProgram, Operand, Outputs


def native_primitive(
    name: str,
    run: ArrayFunction,
    avals: ArrayFunction,
    *,
    jvp: ArrayFunction,
    batch: ArrayFunction,
    transpose: ArrayFunction | None = None,
    effects: ArrayFunction | None = None,
    loop: ArrayFunction | None = None,
) -> JaxObject:
    """Make a primitive of JAX, where the rules that JAX and fad derive of a function do not do.

    It has several results, which backward passes keep. Functions that bind it work under all transforms of
    JAX and of fad. All rules get its parameters by keyword.

    Arguments:
        name: what programs call it.
        run: ``run(*arrays, **parameters)`` returns its results: it is compiled.
        avals: from shapes and dtypes of operands to those of results.
        jvp: ``jvp(primals, tangents, **parameters)`` returns ``(results, tangents)``; a tangent that is zero
            is None.
        batch: ``batch(axis, operands, dims, **parameters)`` returns ``(results, dims)``, where one operand at
            least is batched; ``axis.size`` is the number of lanes.
        transpose: ``transpose(cotangents, operands, linear, **parameters)`` returns a cotangent, or None, for
            each operand; ``linear`` says which operands it is transposed in, which have no values.
        effects: from shapes and dtypes of operands to what JAX calls the effects of it, if it has some.
        loop: for a ``while`` of one's own: from its parameters to what `while_parts` says of it.

    Returns:
        The primitive; ``bind(*operands, **parameters)`` calls it.

    >>> import fad, jax
    >>> twice = fad.extend.native_primitive(
    ...     "twice", lambda x: [2.0 * x], lambda x: [x],
    ...     jvp=lambda primals, tangents: (twice.bind(*primals), twice.bind(*tangents)),
    ...     batch=lambda axis, operands, dims: (twice.bind(*operands), dims),
    ...     transpose=lambda cotangents, operands, linear: twice.bind(*cotangents),
    ... )
    >>> float(jax.grad(lambda x: twice.bind(x)[0])(1.0))
    2.0
    """
    primitive = new_primitive(name, expensive=True)
    if loop is not None:
        primitive.loop = lambda eqn: WhileParts(*loop(**eqn.params))

    def eagerly(*values: Array, **parameters: object) -> Outputs:
        return make_jit(functools.partial(run, **parameters))(*values)

    def abstractly(*operands: Aval, **parameters: object) -> list[Aval]:
        made = avals(*operands, **parameters)
        return [a if isinstance(a, shaped_array) else shaped_array(a.shape, a.dtype) for a in made]

    def push(
        primals: Sequence[Array], tangents: Sequence[JaxObject], **parameters: object
    ) -> tuple[Outputs, Outputs]:
        or_none = [None if isinstance(t, Zero) else t for t in tangents]
        outs, outs_t = jvp(primals, or_none, **parameters)
        return outs, [
            Zero(jax.typeof(o).to_tangent_aval()) if t is None else t
            for o, t in zip(outs, outs_t, strict=True)
        ]

    def pull(cotangents: Sequence[JaxObject], *operands: Operand, **parameters: object) -> Outputs:
        linear = list(map(jaxapi.is_undefined_primal, operands))
        assert transpose is not None
        return transpose(list(map(instantiate_zeros, cotangents)), operands, linear, **parameters)

    define_primitive(
        primitive,
        eagerly,
        abstractly,
        traced=run,
        effects=effects,
        jvp=push,
        transpose=pull if transpose is not None else None,
        batch=where_batched(primitive, batch),
    )
    return primitive


def derivative_program(
    program: JaxProgram, differentiated: Sequence[bool], wanted: Sequence[bool]
) -> tuple[JaxProgram, list[bool]]:
    """The derivative of a program, for `native_primitive`.

    Arguments:
        program: a closed jaxpr.
        differentiated: which of its inputs have a tangent.
        wanted: which of its outputs are to have one, zeros where it is zero.

    Returns:
        The program of all inputs, and of the tangents that there are, which gives all outputs and their
        tangents; and which outputs have one.

    >>> import fad, jax, jax.numpy as jnp
    >>> program = jax.make_jaxpr(lambda x, y: (x * y, y))(2.0, 3.0)
    >>> derivative, moved = fad.extend.derivative_program(program, [True, False], [False, False])
    >>> [float(x) for x in fad.extend.run_program(derivative, 2.0, 3.0, 1.0)], moved
    ([6.0, 3.0, 3.0], [True, False])
    """
    derivative, moved = jaxapi.jvp_jaxpr(program, list(differentiated), list(wanted))
    return derivative, list(moved)


def batched_program(
    program: JaxProgram, axis: JaxObject, batched: Sequence[bool], wanted: Sequence[bool] | bool
) -> tuple[JaxProgram, list[bool]]:
    """A program of batches, for `native_primitive`: what is batched is so along the first dimension.

    Arguments:
        program: a closed jaxpr.
        axis: what the rule ``batch`` was given.
        batched: which of its inputs are batched.
        wanted: which of its outputs are to be batched in any case; one bool stands for all.

    Returns:
        The program, and which of its outputs are batched.

    >>> import fad, jax, jax.numpy as jnp
    >>> program, seen = jax.make_jaxpr(lambda x, y: (x * y, y))(2.0, 3.0), []
    >>> def batch(axis, operands, dims):
    ...     batched, outs = fad.extend.batched_program(program, axis, [True, False], False)
    ...     seen.append((outs, fad.extend.run_program(batched, *operands)[0].tolist()))
    ...     return operands[:1], dims[:1]
    >>> run = fad.extend.native_primitive(
    ...     "run", lambda x, y: [x], lambda x, y: [x], jvp=lambda *_: None, batch=batch)
    >>> _ = jax.vmap(lambda x: run.bind(x, jnp.float32(3.0))[0])(jnp.arange(2.0))
    >>> seen
    [([True, False], [0.0, 3.0])]
    """
    made, outs = jaxapi.batch_jaxpr(program, axis, list(batched), wanted)
    return made, list(outs)
