"""What a transform does with the program of an operation: interpret it, or differentiate one equation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax.numpy as jnp
from jax import lax

from fad.core.avals import aval_of, struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import Literal, evaluate_equation, without_unused
from fad.core.jaxprs import jvp_in, trace
from fad.core.types import Array, Atom, JaxBody, JaxEquation, JaxProgram, Outputs, PyTree

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


def scattered_to(
    shape: tuple[int, ...],
    updates: tuple[int, ...],
    indices: PyTree,
    numbers: lax.ScatterDimensionNumbers,
    mode: PyTree,
    outside: int,
) -> Array:
    """Where in a flat array of a shape each element of the updates of a scatter goes.

    Arguments:
        shape, updates: the shapes of the array and of the updates.
        indices, numbers, mode: those of the scatter.
        outside: what stands for elements that are dropped.

    >>> import fad, jax, jax.numpy as jnp
    >>> add = lambda x: jnp.zeros(3).at[jnp.array([2, 5])].add(x)
    >>> eqn = jax.make_jaxpr(add)(jnp.ones(2)).eqns[-1]
    >>> numbers, mode = fad.extend.parameters(eqn)
    >>> fad.extend.scattered_to((3,), (2,), jnp.array([[2], [5]]), numbers, mode, -1).tolist()
    [2, -1]
    """
    places = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
    windows = iter([updates[d] for d in numbers.update_window_dims])
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    mirrored = lax.GatherDimensionNumbers(
        offset_dims=tuple(numbers.update_window_dims),
        collapsed_slice_dims=tuple(numbers.inserted_window_dims),
        start_index_map=tuple(numbers.scatter_dims_to_operand_dims),
        operand_batching_dims=tuple(numbers.operand_batching_dims),
        start_indices_batching_dims=tuple(numbers.scatter_indices_batching_dims),
    )
    sizes = [1 if d in single else next(windows) for d in range(len(shape))]
    return lax.gather(places, indices, mirrored, sizes, mode=mode, fill_value=outside)
