"""Functions as programs: what they close over becomes operands, and what a program is, is asked of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence

from fad.compile.signatures import OPERANDS, check_static, key_of
from fad.core import avals, jaxapi
from fad.core.dataflow import COMPUTED, dependence_rows
from fad.core.jaxapi import flag_of, varying_axes
from fad.core.jaxprs import trace
from fad.core.level import bind, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.trees import PyTreeDef, Rest, partition
from fad.core.types import (
    Array,
    ArrayFunction,
    Aval,
    JaxEquation,
    JaxProgram,
    Operand,
    PyTree,
    Value,
)
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
    """Trace a function of fad into an operation; what the function closes over becomes an operand too.

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


def split_call(
    who: str, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> tuple[list[Operand], Rest, Hashable]:
    """Take a call of a function apart, to find what was made for such calls again.

    Arguments:
        who: for messages.
        args, kwargs: pytrees; leaves other than arrays and numbers are static, and hashable.

    Returns:
        The leaves that are arrays, Tensors and numbers; the rest of ``(args, kwargs)``, as `partition` gives
        it; and a key: calls with equal ones are traced into equal programs. It has the rest, shapes and
        dtypes, which arguments share storage, named axes and modes.

    Raises:
        TypeError: a static leaf is not hashable.

    >>> import fad, jax.numpy as jnp
    >>> leaves, rest, key = fad.extend.split_call("f", [jnp.ones(2), "sum"], {})
    >>> rest.combine(["x"]), key == fad.extend.split_call("f", [jnp.zeros(2), "sum"], {})[2]
    ((('x', 'sum'), {}), True)
    """
    call = tuple(args), {name: kwargs[name] for name in sorted(kwargs)}
    leaves, rest = partition(call, OPERANDS, ordered=True)
    for x in rest.statics():
        check_static(x, who)
    leaves = list(map(outlived, leaves))
    return leaves, rest, key_of(leaves, rest)


def body_of(eqn: JaxEquation) -> JaxProgram | None:
    """The program of what an equation computes, where it is a primitive of fad: a call of a Function, ...

    None for equations of JAX.

    >>> import fad, jax
    >>> class Twice(fad.Function):
    ...     forward = staticmethod(lambda x: x * 2.0)
    >>> (eqn,) = jax.make_jaxpr(Twice.apply)(jax.numpy.ones(())).eqns
    >>> [inner.primitive.name for inner in fad.extend.body_of(eqn).jaxpr.eqns]
    ['mul']
    """
    if flag_of(eqn, "expensive") is None:
        return None
    body = functools.partial(eqn.primitive.impl, **eqn.params)
    return trace(body, [avals.struct_of(v.aval) for v in eqn.invars])[0]


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
