"""Reverse mode: ``grad``, ``value_and_grad``, ``vjp``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.level import Level, bind, restores_modes
from fad.core.tensor import Tensor
from fad.core.types import DType, MaybeValue, PyTree, Shape, Value
from fad.errors import GradientError, StructureError, describe
from fad.tape.engine import UNIT_COTANGENT, pull_back
from fad.tape.recorder import GradLevel
from fad.transforms.boundary import (
    Call,
    check_callable,
    filled,
    has_tensor,
    leave,
    lower,
    zeros_like,
)

WITH_AUX = ("grad", "value_and_grad", "grad_and_value")  # these take has_aux


def value_and_grad(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., PyTree]:
    """The value of ``f`` and its gradient, in one pass.

    Arguments:
        f: returns a real scalar, shape ``()``; with ``has_aux``, a pair of that and anything.
        argnums: which positional arguments to differentiate; a tuple gives a tuple of gradients.
            Each may be a pytree of floating or complex arrays.
        has_aux: ``f`` returns ``(value, aux)``.

    Returns:
        A function with f's arguments that returns ``(value, gradient)``, or
        ``((value, aux), gradient)``. A gradient has the structure, shapes and dtypes of its
        argument; for complex arguments it is the conjugate of JAX's, as in PyTorch.

    Raises:
        GradientError: the output is not a real scalar.
        TypeError: an argument to differentiate is not of floating or complex dtype.
        StructureError: ``argnums`` is out of range.

    >>> import fad
    >>> fad.value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    return gradient_function(f, argnums, has_aux, "value_and_grad", True)


def grad(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., PyTree]:
    """The gradient of a scalar function.

    Arguments, errors and conventions are those of `value_and_grad`.

    Returns:
        A function with f's arguments that returns the gradient, or ``(gradient, aux)``.

    Source: ``torch.func.grad``; the maths is ``jax.grad``'s.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.grad(fad.grad(fnp.sin))(0.5) + fnp.sin(0.5))
    0.0
    """
    return gradient_function(f, argnums, has_aux, "grad", False)


def gradient_function(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int],
    has_aux: bool,
    who: str,
    with_value: bool,
) -> Callable[..., PyTree]:
    check_callable(f, who, argnums)

    @restores_modes
    @functools.wraps(f)
    def gradient(*args: PyTree, **kwargs: PyTree) -> PyTree:
        call = Call(who, args, kwargs, argnums)
        with GradLevel() as level:
            variables = [level.variable(v) for v in call.values]
            outs = [call.run(f, level, variables, has_aux)]
            _check_scalar(outs[0], who)
            trace, replayed = level.trace, None  # None if it has ended
            if trace is not None:
                replayed = trace.finish(outs, _gradients, leaves=variables, values=with_value)
            grads = replayed[1] if replayed else _gradients(level, outs, variables, call.values)
            pairs = zip(grads, call.values, strict=True)
            leaves = [zeros_like(v) if g is None else g for g, v in pairs]
        result = leave(call.argument(leaves), call.tensors)
        if not with_value:
            return call.and_aux(result) if has_aux else result
        (out,) = outs
        value = leave(as_array(out) if not isinstance(out, Tensor) else out, call.tensors)
        return call.and_aux(value), result

    return gradient


def _gradients(
    level: Level, outs: Sequence[Value], variables: Sequence[Tensor], values: Sequence[Value]
) -> list[MaybeValue]:
    """Gradients of the one output, a scalar, as values one level down; None is zero."""
    (out,) = outs
    grads: Sequence[Any] = [None] * len(variables)
    if variables and isinstance(out, Tensor):
        grads = pull_back([out], [bind(UNIT_COTANGENT, (out.level.detach(out),))], variables)
    return list(grads)


def _check_scalar(out: PyTree, who: str) -> None:
    """Refuse an output that is not a real scalar."""
    if type(out) is Tensor:
        aval = out.aval
        if aval.shape == () and aval.dtype.kind == "f":
            return
    what = "loss" if who == "ggnvp" else "function"
    if not isinstance(out, (Tensor, jax.Array, np.ndarray, np.generic, float, int)):
        advice = "Reduce the output to one number"
        if out is None:
            advice = (
                "Return the number itself: without return it is None, and y.backward() is None too"
            )
        elif who in WITH_AUX:
            advice += ", or pass has_aux=True and return (scalar, anything)"
        raise GradientError(
            f"{who}: the {what} must return a real scalar, got {describe(out)}. {advice}."
        )
    shape = np.shape(out) if not isinstance(out, Tensor) else out.shape
    if shape != ():
        raise GradientError(
            f"{who}: the {what} must return a real scalar, got an output of shape {shape}. Reduce "
            "it (.sum(), .mean()), or use fad.vjp or fad.jacrev for outputs that are not scalar."
        )
    if isinstance(out, Tensor) and not jnp.issubdtype(out.dtype, np.floating):
        advice = (
            "Take a real part or absolute value, or use fad.vjp."
            if jnp.issubdtype(out.dtype, np.complexfloating)
            else "Comparisons, argmax and conversions to integers have no derivative."
        )
        raise GradientError(
            f"{who}: the {what} must return a real scalar, got dtype {out.dtype}. {advice}"
        )


def vjp(f: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> PyTree:
    """The output of ``f`` and the function that pulls cotangents back through it.

    Arguments:
        f: any function of the primals.
        primals: pytrees of floating or complex arrays.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, vjp_fn)``, or ``(output, vjp_fn, aux)``. ``vjp_fn(cotangent)`` takes a pytree like
        the output and returns a tuple with a gradient for each primal, of its structure; it may be
        called any number of times, inside other transforms too. Cotangents of integer outputs are
        ignored; None stands for zero.

    Raises:
        StructureError: a cotangent has another structure or shape than the output.
        TypeError: a primal is not of floating or complex dtype.

    Source: ``torch.func.vjp``; always returns a tuple of gradients, as ``jax.vjp``.

    >>> import fad, fad.numpy as fnp
    >>> y, pull = fad.vjp(fnp.multiply, 2.0, 5.0)
    >>> [float(g) for g in pull(1.0)]
    [5.0, 2.0]
    """
    return pullback_of(f, primals, has_aux, "vjp", "vjp_fn")


@restores_modes
def pullback_of(
    f: Callable[..., PyTree], primals: Sequence[PyTree], has_aux: bool, who: str, pull: str
) -> PyTree:
    """`vjp`, under the name ``who`` in messages, its result under the name ``pull``."""
    check_callable(f, who)
    call = Call(who, primals)
    with GradLevel() as level:
        variables = [level.variable(v) for v in call.values]
        outs = call.outputs(call.run(f, None, variables, has_aux))
    values = call.values
    call.forget()
    avals = [aval_like(o) for o in outs]

    def vjp_fn(cotangent: PyTree) -> PyTree:
        cts = cotangent_leaves(cotangent, call.out_structure, avals, pull)
        grads = pull_back(outs, cts, variables, keep_graph=True) if variables else []
        leaves = call.argument(filled(grads, values))
        return leave(leaves, call.tensors or has_tensor(cotangent))

    return call.and_aux(call.result(outs), vjp_fn)


def aval_like(x: PyTree) -> tuple[Shape, DType]:
    """Shape and dtype of an output leaf."""
    if isinstance(x, (Tensor, jax.Array, np.ndarray)):
        return tuple(x.shape), x.dtype
    x = jnp.asarray(x)
    return x.shape, x.dtype


def cotangent_leaves(
    cotangent: PyTree,
    structure: PyTreeDef,
    avals: Sequence[tuple[Shape, DType]],
    who: str,
) -> list[MaybeValue]:
    """The leaves of a cotangent, checked against the output; None is zero."""
    leaves = trees.leaves_like(structure, cotangent)
    if leaves is None:
        raise StructureError(
            f"{who}: the cotangent must have the structure of the output, {structure}, "
            f"got {trees.flatten(cotangent)[1]}"
        )
    result: list[MaybeValue] = []
    for k, (c, (shape, dtype)) in enumerate(zip(leaves, avals, strict=True)):
        if c is None or not is_inexact(dtype):
            result.append(None)
            continue
        if not isinstance(c, Tensor):
            if not isinstance(c, (jax.Array, np.ndarray, np.generic, float, int, complex)):
                raise StructureError(
                    f"{who}: cotangent {k} must be an array of shape {shape}, got {describe(c)}"
                )
            if jnp.iscomplexobj(c) and not jnp.issubdtype(dtype, np.complexfloating):
                raise StructureError(
                    f"{who}: cotangent {k} is complex, the output is {dtype}: pass its real part"
                )
            if not isinstance(c, jax.Array) or c.dtype != dtype:
                c = as_array(c, dtype)  # an array that fits keeps its weak type
        if tuple(c.shape) != shape:
            raise StructureError(
                f"{who}: cotangent {k} must have the shape {shape} of the output, got {describe(c)}: "
                "a mismatch in shape"
            )
        result.append(lower(c))
    return result
