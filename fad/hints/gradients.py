"""What errors of gradients say: of outputs without one, and of leaves that a backward pass does not reach.

The library asks where it raises them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor
from fad.errors import describe
from fad.extend import Level, layers
from fad.extend.types import DType, PyTree


def untracked(t: PyTree, k: int, who: str) -> str:
    """The message for an output that does not require grad."""
    for below in layers(t):
        if below.requires_grad:
            return (
                f"{who}: element {k} of tensors belongs to {t.level!r} and does not require grad "
                f"there; what it is computed from requires grad at {below.level!r}, which that "
                "transform is inside of. Call it on what the transform returns, outside of it."
            )
    text = f"{who}: element {k} of tensors does not require grad and does not have a grad_fn"
    if not jnp.issubdtype(t.dtype, jnp.inexact):
        return (
            f"{text}: it has dtype {t.dtype}, and comparisons, argmax and conversions to integers have no "
            "derivative. Compute the loss from values of floating dtype."
        )
    if "scan" in t.level.runs_again:  # a body that is traced, but not that of `jit`
        return (
            f"{text}: {describe(t)} is computed in the body of {t.level.runs_again}, where nothing from "
            "outside requires grad, no leaf and nothing that is carried. Carry the value of the leaf, and "
            "make a leaf of what the body is given (q = c.detach().requires_grad_()); or write fad.grad, "
            "which works there; or return the loss, and call backward() on it outside."
        )
    return (
        f"{text}: {describe(t)}. Set requires_grad=True on an input it is computed from, outside of "
        "no_grad, and without detach() and numpy() between. If it is a gradient, compute it with "
        "create_graph=True."
    )


def leaf_outside(k: int, x: object, level: Level, made_inside: bool) -> str:
    """The message for a leaf that a `backward` inside of ``level`` does not reach, made there or outside."""
    start = f"backward() inside of a transform ({level!r}): element {k} of tensors depends on"
    if isinstance(x, Tensor) and made_inside:
        return (
            f"{start} a leaf of {x.level!r} ({describe(x)}) that was made inside, and would give it no "
            "gradient. Make the leaf of what the function is given (t = x.detach().requires_grad_()), or "
            "take that gradient by fad.grad of a function of the leaf."
        )
    return (
        f"{start} a leaf from outside of it ({describe(x)}), whose .grad it does not reach or must not "
        "change. Return the loss and call backward() on it outside of the transform; or make the leaf an "
        "argument of the function, for which the transform gives the derivative; or, if it is a constant "
        "there, write w.detach(), or name the leaves that are meant: backward(inputs=[...])."
    )


def why_not_real_scalar(out: PyTree, who: str, takes_aux: bool) -> str:
    """Why an output is not a real scalar, and what to write; "" if it is one.

    >>> why_not_real_scalar("abc", "grad", False)
    "grad: the function must return a real scalar, got str 'abc'. Reduce the output to one number."
    """
    what = "loss" if who == "ggnvp" else "function"
    if not isinstance(out, (Tensor, jax.Array, np.ndarray, np.generic, float, int)):
        advice = "Reduce the output to one number"
        if out is None:
            advice = (
                "Return the number itself: without return it is None, and y.backward() is None too"
            )
        elif takes_aux:
            advice += ", or pass has_aux=True and return (scalar, anything)"
        return f"{who}: the {what} must return a real scalar, got {describe(out)}. {advice}."
    shape = np.shape(out) if not isinstance(out, Tensor) else out.shape
    if shape != ():
        return (
            f"{who}: the {what} must return a real scalar, got an output of shape {shape}. Reduce "
            "it (.sum(), .mean()), or use fad.vjp or fad.jacrev for outputs that are not scalar."
        )
    if isinstance(out, Tensor) and not jnp.issubdtype(out.dtype, np.floating):
        advice = (
            "Take a real part or absolute value, or use fad.vjp."
            if jnp.issubdtype(out.dtype, np.complexfloating)
            else "Comparisons, argmax and conversions to integers have no derivative."
        )
        return f"{who}: the {what} must return a real scalar, got dtype {out.dtype}. {advice}"
    return ""


def no_derivative(who: str, name: str, leaf: PyTree, dtype: DType) -> str:
    """The message for an argument of a dtype without derivatives."""
    convert = f"write {float(leaf)}" if isinstance(leaf, int) else "x.astype(float)"
    advice = f"Convert it ({convert}), or leave"
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        advice = "A random key has no derivative: leave"
    return (
        f"{who}: {name} must have a floating or complex dtype to be differentiated, got {describe(leaf)}. "
        f"{advice} it out: give {who} a function of what is to be differentiated alone, as in lambda w: "
        "loss(w, labels)."
    )
