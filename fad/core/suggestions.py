"""The error for a name that a module does not have, with what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["no_name"]


def no_name(module: str, name: str, instead: str, names: Iterable[str] = ()) -> AttributeError:
    """The AttributeError for ``module.name``.

    Arguments:
        module: what is asked, such as "fad".
        name: for what it is asked.
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
