"""``while_loop`` and ``fori_loop`` with a reverse mode, of any order, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from fad.arrays.loop_rules import loop_p
from fad.arrays.loops import Loop
from fad.core.jaxapi import run_jaxpr, while_parts
from fad.core.types import ArrayFunction, Operand, PyTree
from fad.errors import ArgumentError, describe

# Without a bound: carries that are kept, and further ones on the way back.
UNBOUNDED = (32, 32)


def while_loop(
    cond_fun: Callable[[PyTree], PyTree],
    body_fun: Callable[[Any], Any],
    init_val: PyTree,
    max_steps: int | None = None,
    checkpoints: int | str = "auto",
) -> PyTree:
    """``jax.lax.while_loop`` with a reverse mode: ``body_fun`` is applied while ``cond_fun`` is true.

    The backward pass computes the steps again from checkpoints, so its memory does not grow with
    the number of steps; see docs/loops.md.

    Arguments:
        cond_fun: from the carry to a bool.
        body_fun: from the carry to the next one, of the same structure, shapes and dtypes.
        init_val: the first carry, a pytree of arrays.
        max_steps: the loop stops after so many steps, whatever cond_fun says.
        checkpoints: how many carries the memory of the backward pass holds. "auto": twice the root of
            max_steps, where each step is computed again once; 64 without a bound.

    Returns:
        The last carry.

    Raises:
        ArgumentError: max_steps or checkpoints is no such number.
        TypeError: as in JAX, for a carry that changes its structure or type.

    >>> import fad
    >>> root = lambda a: fad.lax.while_loop(lambda x: x * x - a > 1e-5, lambda x: (x + a / x) / 2, a)
    >>> round(float(fad.grad(root)(4.0)), 3)
    0.25
    """
    slots = _slots(max_steps, checkpoints)
    return _with_derivatives(
        lambda init: jax.lax.while_loop(cond_fun, body_fun, init), (init_val,), max_steps, slots
    )


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, PyTree], PyTree],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
) -> PyTree:
    """``jax.lax.fori_loop``, with a reverse mode for bounds that are arrays too.

    Arguments:
        lower, upper: the first number, and the one after the last.
        body_fun: from a number and the carry to the next carry.
        init_val: the first carry, a pytree of arrays.
        unroll: as in JAX, where both bounds are Python numbers.

    Returns:
        The last carry.

    >>> import fad, fad.numpy as fnp
    >>> power = lambda x, n: fad.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> float(fad.grad(power)(2.0, fnp.asarray(5)))
    80.0
    """
    bounds = [b for b in (lower, upper) if isinstance(b, jax.Array)]

    def loop(bounds: list[Operand], init: PyTree) -> PyTree:
        it = iter(bounds)
        ends = [next(it) if isinstance(b, jax.Array) else b for b in (lower, upper)]
        return jax.lax.fori_loop(ends[0], ends[1], body_fun, init, unroll=unroll)

    return _with_derivatives(loop, (bounds, init_val), None, UNBOUNDED)


def _slots(max_steps: Any, checkpoints: Any) -> tuple[int, int]:
    """Slots of the forward loop, and further ones on the way back."""
    if max_steps is not None and (
        not isinstance(max_steps, int) or isinstance(max_steps, bool) or not 0 <= max_steps < 2**31
    ):
        raise ArgumentError(
            "while_loop: max_steps must be None or a Python int from 0 to 2**31 - 1, got "
            f"{describe(max_steps)}: a bound that is an array belongs into cond_fun, with a counter in the "
            "carry"
        )
    if checkpoints == "auto":
        if max_steps is None:
            return UNBOUNDED
        kept = max(1, math.isqrt(max(max_steps - 1, 0)) + 1)
        return kept, max(1, -(-max_steps // kept))
    if not isinstance(checkpoints, int) or isinstance(checkpoints, bool) or checkpoints < 3:
        raise ArgumentError(
            f'while_loop: checkpoints must be "auto" or a Python int, 3 or more, got {describe(checkpoints)}'
        )
    kept = max(2, checkpoints // 4 * 2)  # even: every second one is dropped
    return kept, checkpoints - kept


def _with_derivatives(
    f: ArrayFunction, args: tuple[PyTree, ...], max_steps: int | None, slots: tuple[int, int]
) -> PyTree:
    """A call of ``f`` with the loop that it binds replaced by the primitive of this module."""
    closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
    eqns = []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "while" and not (eqn.effects and max_steps is None):
            if eqn.effects:
                raise ArgumentError(
                    "while_loop: cond_fun or body_fun has an effect (a print or a callback), which "
                    "max_steps does not support: count the steps in the carry, and stop in cond_fun"
                )
            loop = Loop(*while_parts(eqn), max_steps, *slots)
            eqn = eqn.replace(primitive=loop_p, params={"loop": loop, "stored": False})
        eqns.append(eqn)
    program = closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))
    outs = run_jaxpr(program, *jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shape), outs)
