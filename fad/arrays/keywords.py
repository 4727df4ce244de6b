"""PyTorch's keywords in functions of JAX: ``dim=`` and ``keepdim=`` beside ``axis=`` and ``keepdims=``."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fad.arrays.operations import Op

# PyTorch's keyword -> JAX's, the first that a function has.
ALIASES = {
    "diagonal": ("k",),
    "dim": ("axis", "axes"),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "dims": ("axis", "axes", "reps"),
    "keepdim": ("keepdims",),
    "shifts": ("shift",),
}


def aliases_of(names: Container[str]) -> dict[str, str]:
    """Which of PyTorch's keywords a function with these parameters takes, and for which of them."""
    found = {}
    for alias, meant in ALIASES.items():
        if alias not in names:
            for name in meant:
                if name in names:
                    found[alias] = name
                    break
    return found


class Form(NamedTuple):
    """What a function means where it is called with keywords of PyTorch.

    Attributes:
        keywords: one of these makes the call one of PyTorch's.
        make: returns the operation that PyTorch's function is.
    """

    keywords: frozenset[str]
    make: Callable[[], Op]
