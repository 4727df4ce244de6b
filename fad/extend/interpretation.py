"""A tool: what a transform replaces the values of a program by, and where a scatter puts its updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax.numpy as jnp
from jax import lax

from fad.extend.types import Array, JaxEquation, JaxProgram, PyTree

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
    env: dict[object, V] = dict(zip(jaxpr.constvars, map(constant, program.consts), strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: PyTree) -> V:
        return constant(atom.val) if hasattr(atom, "val") else env[atom]  # a literal has a value

    for eqn in jaxpr.eqns:
        outs = equation(eqn, list(map(read, eqn.invars)))
        env.update(zip(eqn.outvars, outs, strict=True))
    return list(map(read, jaxpr.outvars))


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
