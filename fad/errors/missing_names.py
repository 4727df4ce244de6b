"""Names that are not there: the error, and what may have been meant; `fad.hints` says what to write."""

from __future__ import annotations

import difflib
import dis
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

# The error for a name that a module does not have, with what may have been meant.


def no_name(module: str, name: str, instead: str, names: Iterable[str] = ()) -> AttributeError:
    """The AttributeError for ``module.name``.

    Arguments:
        module: where the name was looked up, such as "fad".
        name: the name that it does not have.
        instead: what to write; "" if that is not known.
        names: the names that there are; those that are spelt almost like this one are listed.

    >>> print(no_name("fad", "gard", "", ["grad", "vmap"]))
    fad has no 'gard': did you mean 'grad'?
    """
    text = f"{module} has no {name!r}"
    if instead:
        text += f": {instead}"
    else:
        close = difflib.get_close_matches(name, list(names), n=3)
        if close:
            text += f": did you mean {' or '.join(map(repr, close))}?"
    return AttributeError(text, name=name)


class _Later:
    """A text that is made when it is read."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make

    def __str__(self) -> str:
        return str(self.make())

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def no_name_later(
    module: str, name: str, instead: Callable[[], str], names: Callable[[], Iterable[str]]
) -> AttributeError | ImportError:
    """`no_name`, whose text is made when it is read: ``hasattr`` reads none.

    For ``from module import name`` it is an ImportError.

    >>> print(no_name_later("fad.numpy", "sinn", lambda: "", lambda: ["sin", "cos"]))
    fad.numpy has no 'sinn': did you mean 'sin'?
    """
    text = _Later(lambda: no_name(module, name, instead(), names()))
    if _is_from_import() and f"{module}.{name}" not in sys.modules:
        return ImportError(text, name=module)
    return AttributeError(text, name=name)


_FAD = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def _is_from_import() -> bool:
    """Whether the name is looked up by ``from module import name``.

    Python puts an error of its own in the place of an AttributeError there, without what to write.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_FAD) and frame.f_back is not None:
        frame = frame.f_back
    at = frame.f_lasti
    return at >= 0 and dis.opname[frame.f_code.co_code[at]] == "IMPORT_FROM"


def _hint(function: str, *names: str) -> str:
    """What a function of the tool that knows what to write says of names; "" if that is not known."""
    return str(getattr(importlib.import_module("fad.hints.names"), function)(*names))


instead_in_module = functools.partial(_hint, "instead_in_module")  # of a module and a name
instead_of_attribute = functools.partial(_hint, "instead_of_attribute")


def hints_of(module: str) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a public module: the error for a name that is not there says what to write.

    Arguments:
        module: its name; names of its ``__all__`` that are spelt almost alike are offered.

    Returns:
        A function of a name, which raises an AttributeError; its text is made when it is read.

    >>> hints_of("fad.nn.utils")("clip_grad_norm")
    Traceback (most recent call last):
        ...
    AttributeError: fad.nn.utils has no 'clip_grad_norm': did you mean 'clip_grad_norm_'...
    """

    def get(name: str) -> NoReturn:
        def names() -> list[str]:
            public: list[str] = importlib.import_module(module).__all__
            return public

        raise no_name_later(module, name, lambda: instead_in_module(module, name), names)

    return get


def missing(name: str, public: Sequence[str]) -> AttributeError | ImportError:
    """The error for ``fad.<name>``, which says where the name is, or what comes near to it.

    Arguments:
        name: the name.
        public: those that there are.

    >>> import fad
    >>> fad.sin
    Traceback (most recent call last):
    AttributeError: fad has no 'sin': write fad.numpy.sin
    """
    if name.startswith("_"):
        return no_name("fad", name, "")

    return no_name_later("fad", name, lambda: _hint("instead_at_top", name), lambda: public)
