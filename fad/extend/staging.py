"""Functions as programs: what they close over becomes operands, and what a program is, is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from fad.core import avals, jaxapi
from fad.core.dataflow import COMPUTED, dependence_rows
from fad.core.jaxapi import varying_axes
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.trees import PyTreeDef
from fad.core.types import Array, ArrayFunction, Aval, Operand, PyTree, Value
from fad.functions.user_rules import over_devices
from fad.tape import staged
from fad.tape.staged import StagedLevel, in_body


def stage(
    f: Callable[..., PyTree],
    operands: Sequence[Operand],
    *,
    name: str,
    bodies: Sequence[Callable[..., PyTree]] = (),
    kept: bool = False,
) -> tuple[Primitive, list[Value], PyTreeDef]:
    """Trace a function of fad into an operation, of which what the function closes over is an operand too.

    The operation is the same one for equal programs, so that a function that is made anew for each call
    compiles nothing.

    Arguments:
        f: a function of Tensors, one for each operand; it returns a pytree of arrays.
        operands: Tensors, arrays and numbers, whose shapes and dtypes count.
        name: what graphs and errors call the operation.
        bodies: the functions of the user that f calls: numbers in them that change from trace to trace
            become operands.
        kept: the operation is for later calls too, and Tensors from outside that f computes with
            are read again at each: they are operands as they are.

    Returns:
        The operation; the values to bind it on: those from outside, then the operands; and the structure of
        what f returns. The operation returns its leaves in a tuple.

    Raises:
        HOST_ERRORS: f reads a value, where there is none.

    >>> import fad, fad.numpy as fnp
    >>> scale = fad.tensor(3.0, requires_grad=True)
    >>> op, values, _ = fad.extend.stage(lambda x: fnp.sin(x) * scale, [fad.tensor(0.0)], name="f")
    >>> values
    [Tensor(3., dtype=float32, requires_grad=True), Tensor(0., dtype=float32)]
    >>> fad.extend.bind(op, values)
    (Tensor(0., dtype=float32, grad_fn=<FBackward>),)
    """

    def run(level: StagedLevel, *tracers: Array) -> PyTree:
        return in_body(level, f)(*tracers)

    run.name = name  # type: ignore[attr-defined]
    return staged.stage(run, operands, bodies=bodies, kept=kept)


def aval_of(x: Operand) -> Aval:
    """Shape, dtype and weak type of a Tensor, as its level shows them, of an array or of a number.

    Returns:
        Something hashable that `trace` and ``jax.make_jaxpr`` take in the place of ``x``.

    >>> import fad, fad.numpy as fnp
    >>> y = fad.vmap(lambda x: print(fad.extend.aval_of(x).shape))(fnp.ones((2, 3)))
    (3,)
    """
    return avals.struct_of(avals.aval_of(x))


def dependence(f: ArrayFunction, operands: Sequence[Aval]) -> Sequence[Sequence[bool]]:
    """For each output of a function of JAX, on which of its operands it depends, as far as derivatives go.

    Paths lead through values of floating or complex dtype, and end at ``stop_gradient``.

    Arguments:
        f: a function of arrays that returns an array, or a tuple of them.
        operands: what has their shapes and dtypes, see `aval_of`.

    >>> import fad, jax
    >>> f = lambda x, y: (x * y, jax.lax.stop_gradient(x) + y)
    >>> fad.extend.dependence(f, [fad.extend.aval_of(1.0)] * 2)
    ((True, True), (False, True))
    """
    return dependence_rows(f, [True] * len(operands), operands, COMPUTED)


def varying_alike(values: Sequence[Value]) -> list[Value]:
    """The values, made to vary along all axes of ``shard_map`` along which one of them does.

    JAX's own operations do this to their operands; the transpose sums a gradient over the devices.

    >>> import fad, jax.numpy as jnp
    >>> fad.extend.varying_alike([jnp.ones(2)])  # outside of shard_map nothing varies
    [Array([1., 1.], dtype=float32)]
    """
    arrays = [x for x in values if not isinstance(x, Tensor)]
    if len(arrays) == len(values):
        return list(jaxapi.varying_alike(arrays))
    every = [varying_axes(avals.aval_of(x)) for x in values]
    axes = frozenset[Hashable]().union(*every)
    return [
        bind(over_devices((), tuple(axes - along)), (x,)) if axes - along else x
        for x, along in zip(values, every, strict=True)
    ]
