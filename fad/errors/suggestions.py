"""The error for a name that a module does not have, with what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


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
) -> AttributeError:
    """`no_name`, whose text is made when it is read: ``hasattr`` reads none.

    >>> print(no_name_later("fad.numpy", "sinn", lambda: "", lambda: ["sin", "cos"]))
    fad.numpy has no 'sinn': did you mean 'sin'?
    """
    text = _Later(lambda: no_name(module, name, instead(), names()))
    return AttributeError(text, name=name)
