"""``safe_where``: a choice between two functions, where the one that is not taken has no derivative.

NOTE [why where is not enough]

    f = lambda v: fad.safe_where(v > 0.0, fnp.sqrt, fnp.negative, v)
    assert fad.grad(f)(0.0) == -1.0
    g = lambda v: fnp.where(v > 0.0, fnp.sqrt(v), -v)
    assert fnp.isnan(fad.grad(g)(0.0))

The derivative of ``where(c, f(x), g(x))`` is ``f'(x) * where(c, t, 0)`` and the same of g: where c is
false, zero times f'(x), which is NaN if f'(x) is infinite or NaN. So what goes into f has to be selected
too. ``where(c, x, stop_gradient(x))`` is x, and its derivative is zero where c is false, whatever the
derivative of f is. Now there is a selection at both ends of f. Each derivative, of either mode and any
order, is computed from values that come in through one of them and leave through the other; and an
elementwise f does not mix elements in between. So what f has of NaN and infinities where c is false
stays inside.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad import Tensor, stop_gradient
from fad.errors import ArgumentError, StructureError, describe
from fad.extend import choosing, flatten, has_tensor, leave, unflatten
from fad.extend.types import Array, PyTree, Value


def safe_where(
    condition: PyTree, f: Callable[..., PyTree], g: Callable[..., PyTree], *args: PyTree
) -> PyTree:
    """``where(condition, f(*args), g(*args))``; the function that is not taken has derivative zero.

    With ``where``, a function that is singular where it is not taken (the root at 0, a quotient by 0, the
    logarithm of what is masked) makes gradients and tangents NaN. Here they are exactly those of the
    function that is taken, in both modes, at every order, batched and compiled.

    Arguments:
        condition: bools: an array, a Tensor, or one bool. It is broadcast with each argument.
        f, g: elementwise functions of ``args`` with results of one structure. They may mix elements that
            have the same condition: rows, where it has one value for each row.
        args: pytrees of arrays. Numbers, and anything but an array, are passed on as they are. Values that
            f and g close over are not protected: pass them as arguments.

    Returns:
        Where the condition is true, what f gives, and elsewhere what g gives.

    Both functions are computed for all elements, as with ``where``. Beyond that it costs a selection for
    each argument and each function, and again in each derivative.

    Raises:
        ArgumentError: the condition is not of bools, or cannot be broadcast with an argument or a result.
        StructureError: f and g give results of different structures.

    >>> import fad, fad.numpy as fnp
    >>> norm = lambda x: fad.safe_where(x > 0.0, fnp.sqrt, fnp.zeros_like, x)
    >>> fad.vmap(fad.grad(norm))(fnp.array([0.0, 4.0])).tolist()
    [0.0, 0.25]
    >>> fad.grad(lambda x: fnp.where(x > 0.0, fnp.sqrt(x), 0.0))(0.0)
    Array(nan, dtype=float32, weak_type=True)
    """
    for name, function in (("f", f), ("g", g)):
        if not callable(function):
            raise TypeError(
                f"safe_where: {name} must be a function of args, got {describe(function)}: a constant is "
                f"written as lambda x: {function if np.isscalar(function) else 'value'}"
            )
    taken = _bools(condition)
    leaves, structure = flatten(args)
    for x in leaves:
        if is_array(x):
            _check_broadcast(taken, x, "an argument")
    with choosing("safe_where", [x for x in leaves if is_array(x)]) as checked:
        results = []
        for chosen, function in ((taken, f), (fnp.logical_not(taken), g)):
            inside = [_only_where(chosen, x) if is_array(x) else x for x in leaves]
            results.append(function(*unflatten(structure, inside, like=args)))
        (outs, out_structure), (others, other_structure) = map(flatten, results)
        if out_structure != other_structure:
            raise StructureError(
                f"safe_where: f gives results of the structure {out_structure}, g {other_structure}: "
                "they must be the same"
            )
        for x in (*outs, *others):
            _check_broadcast(taken, x, "a result")
        chosen_outs = [fnp.where(taken, a, b) for a, b in zip(outs, others, strict=True)]
        checked += chosen_outs
    out = unflatten(out_structure, chosen_outs, like=results[0])
    return leave(out, has_tensor((condition, args)))


def is_array(x: object) -> bool:
    """Whether ``x`` is a Tensor or an array."""
    return isinstance(x, (Tensor, jax.Array, np.ndarray))


def _only_where(chosen: Value, x: PyTree) -> PyTree:
    """``x``, with a derivative only where ``chosen`` is true."""
    return fnp.where(chosen, x, stop_gradient(x))


def _bools(condition: PyTree) -> PyTree:
    """The condition as an array or a Tensor."""
    if isinstance(condition, (bool, np.bool_)):
        return jnp.asarray(condition)
    if is_array(condition) and condition.dtype == np.bool_:
        return condition
    what = describe(condition) if is_array(condition) else repr(condition)
    raise ArgumentError(
        f"safe_where: the condition is {what}, expected bools: write a comparison, such as x > 0"
    )


def _check_broadcast(taken: Array, x: PyTree, what: str) -> None:
    if not hasattr(x, "shape"):
        return
    try:
        np.broadcast_shapes(tuple(taken.shape), tuple(x.shape))
    except ValueError as error:
        raise ArgumentError(
            f"safe_where: the condition has shape {list(taken.shape)} and {what} {list(x.shape)}, which "
            "cannot be broadcast together: the functions are elementwise, and what they need besides, they "
            "close over"
        ) from error
