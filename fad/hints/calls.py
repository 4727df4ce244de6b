"""What to write instead of a call of a function of arrays that raised an error of JAX."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from fad import Tensor
from fad.errors import describe
from fad.hints.names import instead_of_writing

# Names of PyTorch's parameters, and those of NumPy.
_PARAMETERS = {
    "input": "the first argument, by position",
    "other": "the second argument, by position",
    "unbiased": "ddof",
    "correction": "ddof",
    "device": "x.to(device)",
    "requires_grad": "x.requires_grad_()",
}

# Texts of errors, and what to write.
_TEXTS = {
    "contracting dimensions": "the last dimension of the first operand must be as long as the last but one "
    "of the second (the only one of a vector): one of them may want .T or .mT",
    "ncompatible shapes for broadcasting": "shapes are compared from their ends, where two lengths must be "
    "equal, or one of them 1: write x[:, None] or x.reshape(...)",
    "cannot reshape": "the sizes must have the same product; one of them may be -1, for what is left",
    "Shapes must be 1D sequences of concrete": "what sets a shape must be a number when the function is "
    "compiled: make that argument static, fad.jit(f, static_argnums=...)",
    "to have the same dtypes": "functions of fad.lax convert nothing: write the function of fad.numpy, or "
    "x.astype(y.dtype)",
    "got <class 'NoneType'>": "None is no array: x.grad is None until backward() has reached x, and what a "
    "function without return gives is None too",
    "Zero-dimensional arrays cannot be concatenated": "the arrays are one argument, a list: [x, y]",
}


def instead_of_call(message: str, who: str, names: Sequence[str], values: Sequence[object]) -> str:
    """What to write instead; "" where that is not known."""
    keyword = re.search(r"unexpected keyword argument '(\w+)'", message)
    if keyword is not None:
        name = keyword[1]
        meant = _PARAMETERS.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), "")
        return f"for {name!r} write {meant}" if meant else f"it takes {', '.join(names)}"
    if "immutable" in message:
        writes = instead_of_writing(who.rpartition(".")[2])
        if writes:
            return f"to write to a Tensor x, write {writes}"
    if any(type(x).__module__.partition(".")[0] == "torch" for x in values):
        return "for a torch.Tensor t write fad.tensor(t), or fad.from_dlpack(t) without a copy"
    if who in ("fad.random.key", "fad.random.PRNGKey"):
        return "a seed is one integer: write fad.random.key(0)"
    if "accepts a single key" in message:
        return f"for an array of keys write fad.vmap({who})(keys)"
    if "key" in message and "consumed" not in message and who.startswith("fad.random."):
        return f"the first argument is a key: write {who}(fad.random.key(0), ...)"
    return next((advice for text, advice in _TEXTS.items() if text in message), "")


def unhashable(who: str, parameter: str, value: object) -> str:
    """The message for a static argument that cannot be part of a key."""
    if isinstance(value, set):
        advice = "a frozenset or a tuple"
    elif callable(value):
        advice = "a function, or an object with __hash__ and __eq__"
    else:
        advice = "a tuple, a number, a string, or an object with __hash__ and __eq__"
    return (
        f"{who}: the argument {parameter!r} is static (it shapes the compiled function), so it "
        f"must be hashable, but got {describe(value)}. Write {advice} instead"
    )


def not_static(who: str, static: Mapping[str, object]) -> str:
    """The message where JAX says that a static argument must be hashable: arrays are not."""
    arrays = [
        f"{name} is {describe(x)}"
        for name, x in static.items()
        if isinstance(x, (Tensor, jax.Array, np.ndarray))
    ]
    what = " and ".join(arrays) or "an array is given for it"
    return (
        f"{who}: an argument that shapes the compiled function must be a Python number: {what}. Write "
        "float(x) or int(x); no derivative goes through it"
    )
