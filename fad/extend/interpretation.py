"""What a transform does with the program of an operation: interpret it, or differentiate one equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fad.core.avals import aval_of, struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import Literal, evaluate_equation, without_unused
from fad.core.jaxprs import jvp_in, trace
from fad.core.types import Array, Atom, JaxBody, JaxEquation, JaxProgram, Outputs

V = TypeVar("V")


def interpret(
    program: JaxProgram,
    inputs: Sequence[V],
    equation: Callable[[JaxEquation, list[V]], Sequence[V]],
    constant: Callable[[object], V],
) -> list[V]:
    """What a program gives where its values are replaced by something else, such as intervals.

    Arguments:
        program: a closed jaxpr, such as `trace` makes.
        inputs: what stands for its inputs.
        equation: ``equation(eqn, operands)`` returns what stands for the results of one equation.
        constant: what stands for a constant.

    Returns:
        What stands for its outputs.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> program = jax.make_jaxpr(lambda x, y: (x * y + 2.0, x))(1.0, 1.0)
    >>> def equation(eqn, operands):
    ...     return [f"{eqn.primitive.name}({', '.join(operands)})"]
    >>> extend.interpret(program, ["x", "y"], equation, lambda value: f"{value:.0f}")
    ['add(mul(x, y), 2)', 'x']
    """
    jaxpr = program.jaxpr
    env: dict[Atom, V] = dict(zip(jaxpr.constvars, map(constant, program.consts), strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Atom) -> V:
        return constant(atom.val) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        outs = equation(eqn, list(map(read, eqn.invars)))
        env.update(zip(eqn.outvars, outs, strict=True))
    return list(map(read, jaxpr.outvars))


def derivative_of(
    eqn: JaxEquation, differentiated: Sequence[int], kept: Sequence[int], point: Sequence[Array]
) -> JaxProgram:
    """The derivative of an equation, as a program.

    Arguments:
        eqn: the equation.
        differentiated: which of its operands it is differentiated in.
        kept: for each of its results, whether its tangent is wanted.
        point: operands, whose shapes and dtypes count.

    Returns:
        A program of all operands, and of tangents of those that are differentiated; it gives the tangents of
        the results.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> eqn = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns[0]
    >>> derivative = extend.derivative_of(eqn, [0], [0], [jnp.float32(2.0), jnp.float32(3.0)])
    >>> [float(t) for t in extend.run_program(derivative, 2.0, 3.0, 1.0)]
    [3.0]
    """
    mask = tuple([k in differentiated for k in range(len(point))])

    def outputs(*at: Array) -> list[Array]:
        outs = evaluate_equation(eqn, at)
        return [outs[k] for k in kept]

    def derivative(*values: Array) -> Outputs:
        return jvp_in(mask, outputs, values[: len(point)], values[len(point) :])[1]

    operands = [*point, *[point[k] for k in differentiated]]
    return without_unused(trace(derivative, [struct_of(aval_of(v)) for v in operands])[0])


# Their derivative is zero.
_STEPS = frozenset({"ceil", "floor", "round", "sign", "stop_gradient"})


def depends_on_point(derivative: JaxBody, differentiated: Sequence[int]) -> bool:
    """Whether the derivative of an equation has itself a derivative, in some of its operands.

    Arguments:
        derivative: the program that `derivative_of` returns, without its constants.
        differentiated: the operands.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> eqn = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns[0]
    >>> derivative = extend.derivative_of(eqn, [0], [0], [jnp.float32(2.0), jnp.float32(3.0)])
    >>> [extend.depends_on_point(derivative.jaxpr, [k]) for k in (0, 1)]
    [False, True]
    """
    reached = {derivative.invars[k] for k in differentiated}
    for eqn in derivative.eqns:
        if eqn.primitive.name in _STEPS:
            continue
        if any([not isinstance(v, Literal) and v in reached for v in eqn.invars]):
            reached.update([v for v in eqn.outvars if is_inexact(v.aval.dtype)])
    return any([not isinstance(v, Literal) and v in reached for v in derivative.outvars])
