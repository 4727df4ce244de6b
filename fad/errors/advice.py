"""What to write instead, where an error of Python or JAX shows that Tensors and arrays were mixed up."""

from __future__ import annotations

import re

__all__ = ["advise"]

_NATIVE = "for a function of Tensors write fad.grad(f) (fad.vmap, fad.jit, ...), or jax.grad(fad.to_jax(f))"

# Texts of errors that say so, wherever they are raised.
_ANYWHERE = {
    r"JAX arrays are immutable": "A Tensor can be written to, in every transform: make it by fad.numpy "
    f"(fad.numpy.zeros(3)), or of an array (fad.tensor(array)). Under jax.grad and jax.jit: {_NATIVE}",
    r"\w*Tracer has no attribute (\w+_|requires_grad|grad_fn|register_hook|retain_grad|backward|detach)$": (
        f"Under jax.grad, jax.vmap and jax.jit a function is given arrays: {_NATIVE}"
    ),
    r"Gradient only defined for scalar-output functions\. Output was": (
        f"A Tensor is a pytree for jax.grad: {_NATIVE}"
    ),
    r"(array|destination|base) is read-only$": (
        "If it is x.numpy() of a Tensor: arrays of JAX do not change. Write a = x.numpy(copy=True), and "
        "x.copy_(a) to change the Tensor"
    ),
}

# Those that say so inside of a transform.
_INSIDE = {
    r"unsupported operand type.*'(list|tuple|dict)'|'(list|tuple|dict)' object has no attribute": (
        "An argument that is a list, tuple or dict is a pytree of separate Tensors: for one array pass "
        "fad.tensor([...]) or jax.numpy.array([...])"
    ),
}


def advise(error: BaseException, inside: bool = False) -> None:
    """Add a note to an error of others that says what to write, once.

    Arguments:
        error: the error.
        inside: whether it was raised inside of a transform of fad.

    >>> error = TypeError("JAX arrays are immutable and do not support in-place item assignment.")
    >>> advise(error)
    >>> error.__notes__[0][:31]
    'A Tensor can be written to, in '
    """
    if not isinstance(error, (TypeError, AttributeError, ValueError)):
        return
    text = str(error)
    for table in (_ANYWHERE, _INSIDE) if inside else (_ANYWHERE,):
        for pattern, advice in table.items():
            if re.search(pattern, text) and advice not in getattr(error, "__notes__", ()):
                error.add_note(advice)
