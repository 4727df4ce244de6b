"""What an error of Python or JAX says too: `fad.hints` knows what to write instead."""

from __future__ import annotations

import importlib
from types import ModuleType

# What is recorded, for code that sets elements under no_grad or through .data.
AS_RECORDED = "fad.numpy.where(mask, 0.0, g), or g = g.clone() and g[mask] = 0.0 outside of no_grad"


def instead_of_a_number(what: str, in_jit: bool = False) -> str:
    """What to write instead of ``what``, which reads the number of a value that has none."""
    return str(_mistakes().instead_of_a_number(what, in_jit))


def _mistakes() -> ModuleType:
    """The tool that knows what to write; it is imported at the first error."""
    return importlib.import_module("fad.hints.mistakes")


def say_too(error: BaseException, text: str) -> None:
    """Add a text to the message of an error, once: into what ``str(error)`` gives, if that is its argument.

    Elsewhere it is a note: a KeyError shows its key, and some errors make their message of several arguments.

    Arguments:
        error: the error, which is changed.
        text: what to say too, a sentence on what to write.

    >>> from fad.errors import say_too
    >>> error = ValueError("bad")
    >>> say_too(error, "Write good.")
    >>> str(error)
    'bad\\n\\nWrite good.'
    """
    if text in str(error) or text in getattr(error, "__notes__", ()):
        return
    before = error.args
    if before and isinstance(before[0], str) and str(error) == before[0]:
        error.args = (f"{before[0].rstrip()}\n\n{text}", *before[1:])
        if text in str(error):
            return
        error.args = before
    error.add_note(text)


def advise(error: BaseException, inside: bool = False) -> None:
    """Say in an error of others what to write, once.

    Arguments:
        error: the error.
        inside: whether it was raised inside of a transform of fad.

    >>> error = TypeError("JAX arrays are immutable and do not support in-place item assignment.")
    >>> advise(error)
    >>> str(error).splitlines()[2][:31]
    'A Tensor can be written to, in '
    """
    if not isinstance(
        error, (TypeError, AttributeError, IndexError, NameError, RuntimeError, ValueError)
    ):
        return
    try:
        mistakes = _mistakes()
    except (ImportError, OSError):  # advice that cannot be had must not hide the error
        return
    for advice in mistakes.advices(error, inside):
        say_too(error, advice)
