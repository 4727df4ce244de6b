"""PyTorch's functions of `fad.formulas.torch_functions` as operations.

``torch_operations.addmm`` is a fad function, with its ``op``; it is made when it is first looked up.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import jax.numpy as jnp

from fad.arrays.arguments import Form
from fad.arrays.operations import Op
from fad.core.faces import tool
from fad.core.level import bind
from fad.views.chains import Write
from fad.views.make_view import view_binder

# Those that return views of their first argument, and how a write to one goes back. Windows overlap, as
# what is broadcast does.
VIEWS: dict[str, Write] = {
    "chunk": Write.INDICES,
    "movedim": Write.PERMUTE,
    "split": Write.INDICES,
    "squeeze": Write.RESHAPE,
    "swapdims": Write.PERMUTE,
    "unflatten": Write.RESHAPE,
    "unfold": Write.BROADCAST,
}


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        module = tool("formulas.torch_functions")
        for attribute in (name, f"{name}_"):  # `max_`, which would hide Python's `max`
            function: Any = getattr(module, attribute, None)
            if getattr(function, "__module__", None) == module.__name__:
                function = tool("formulas.torch_dimensions").of_numbers_too(name, function)
                binder = view_binder(VIEWS[name]) if name in VIEWS else bind
                method = Op(name, "fad.Tensor", function, binder=binder).function
                setattr(sys.modules[__name__], name, method)
                return method
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _form(keywords: str, name: str) -> Form:
    return Form(frozenset(keywords.split()), lambda: getattr(sys.modules[__name__], name).op)


@functools.cache
def _copying(name: str) -> Op:
    """The function of this name, which is a view in NumPy, as the copy that it is in PyTorch."""
    return Op(name, "fad.Tensor", getattr(jnp, name))


# Function of fad.numpy -> what it is with keywords that only PyTorch's has, where PyTorch means more by it.
FORMS: dict[str, Form] = {
    "add": _form("alpha other", "add"),
    "flip": Form(frozenset(["dims"]), lambda: _copying("flip")),
    "max": _form("dim keepdim", "max"),
    "median": _form("dim keepdim", "median"),
    "min": _form("dim keepdim", "min"),
    "nanmedian": _form("dim keepdim", "nanmedian"),
    "nonzero": _form("as_tuple", "nonzero"),
    "rot90": Form(frozenset(["dims"]), lambda: _copying("rot90")),
    "sort": _form("dim", "sort"),
    "split": _form("dim split_size split_size_or_sections", "split"),
    "squeeze": _form("dim", "squeeze"),
    "std": _form("dim keepdim unbiased", "std"),
    "subtract": _form("alpha other", "sub"),
    "true_divide": _form("other rounding_mode", "div"),
    "var": _form("dim keepdim unbiased", "var"),
}
