"""What is added to an error of JAX in a function of a namespace: the call, and what to write instead."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Mapping, Sequence

from fad.core.types import PyTree
from fad.errors import FadError, describe
from fad.errors.advice import say_too
from fad.errors.tracebacks import is_users

# Names of PyTorch's parameters, and those of NumPy.
_PARAMETERS = {
    "input": "the first argument, by position",
    "other": "the second argument, by position",
    "unbiased": "ddof",
    "correction": "ddof",
    "device": "x.to(device)",
    "requires_grad": "x.requires_grad_()",
}

# NumPy's functions that write to their first argument; JAX's return a new array.
_WRITES = {
    "fill_diagonal": "x.fill_diagonal_(value)",
    "place": "x[mask] = values",
    "put": "x.put_(indices, values)",
    "put_along_axis": "x.scatter_(axis, indices, values)",
    "at": "x.index_put_((indices,), values, accumulate=True) for add, or x = x.at[indices].add(values)",
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
    "Zero-dimensional arrays cannot be concatenated": "the arrays are one argument, a list: [x, y]",
}


def note_call(
    error: Exception,
    who: str,
    names: Sequence[str],
    args: Sequence[object],
    kwargs: Mapping[str, PyTree],
) -> None:
    """Add to ``error``, which a call has raised, what was called, if neither fad nor the user raised it.

    What to write instead is said in its message; the call alone is a note.

    Arguments:
        error: the error.
        who: the function that was called.
        names: the names of its parameters.
        args: what it was given.
        kwargs: what it was given by name.

    >>> error = TypeError("got an unexpected keyword argument 'axs'")
    >>> note_call(error, "fad.numpy.sum", ["a", "axis"], [1.0], {"axs": 0})
    >>> str(error).splitlines()[2]
    "in fad.numpy.sum(float 1.0, axs=int 0): for 'axs' write axis"
    """
    notes = getattr(error, "__notes__", ())
    if isinstance(error, FadError) or any(note.startswith("in fad.") for note in notes):
        return
    if "\n\nin fad." in str(error):
        return
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and is_users(frames[-1].f_code):
        return
    given = [*map(_short, args), *[f"{name}={_short(x)}" for name, x in kwargs.items()]]
    advice = _advice(str(error), who, names, [*args, *kwargs.values()])
    call = f"in {who}({', '.join(given)})"
    if advice:
        say_too(error, f"{call}: {advice}")
    else:
        error.add_note(call)


def _short(x: PyTree) -> str:
    if type(x) in (list, tuple) and x:
        return f"{type(x).__name__} of {', '.join(map(_short, x[:3]))}{', ...' * (len(x) > 3)}"
    return describe(x)


def _advice(message: str, who: str, names: Sequence[str], values: Sequence[object]) -> str:
    """What to write instead; "" where that is not known."""
    keyword = re.search(r"unexpected keyword argument '(\w+)'", message)
    if keyword is not None:
        name = keyword[1]
        meant = _PARAMETERS.get(name) or next(iter(difflib.get_close_matches(name, names, 1)), "")
        return f"for {name!r} write {meant}" if meant else f"it takes {', '.join(names)}"
    if "immutable" in message and who.rpartition(".")[2] in _WRITES:
        return f"to write to a Tensor x, write {_WRITES[who.rpartition('.')[2]]}"
    if any(type(x).__module__.partition(".")[0] == "torch" for x in values):
        return "for a torch.Tensor t write fad.tensor(t), or fad.from_dlpack(t) without a copy"
    if who in ("fad.random.key", "fad.random.PRNGKey"):
        return "a seed is one integer: write fad.random.key(0)"
    if "accepts a single key" in message:
        return f"for an array of keys write fad.vmap({who})(keys)"
    if "key" in message and "consumed" not in message and who.startswith("fad.random."):
        return f"the first argument is a key: write {who}(fad.random.key(0), ...)"
    return next((advice for text, advice in _TEXTS.items() if text in message), "")
