"""Methods that are functions of the Tensor, by the tables of `fad.methods.names`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import ArgumentError
from fad.methods.names import COPIES, ELEMENTWISE, METHODS, Where, method_of, say

# What to write for a call that NumPy does not have and PyTorch has.
HINTS = {
    "max": "for the greater of two elements, write x.maximum(y)",
    "min": "for the less of two elements, write x.minimum(y)",
    "repeat": "for PyTorch's x.repeat(2, 3), write x.tile(2, 3)",
    "sort": "for values and indices, write x.sort(dim=-1)",
    "squeeze": "for PyTorch's, which keeps a dimension that is longer, write x.squeeze(dim=0)",
}


def _hinted(where: Where, hint: str) -> Callable[..., PyTree]:
    """`method_of`, whose errors say what else may have been meant."""
    function = method_of(where)

    def method(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
        try:
            return function(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if type(error) not in (TypeError, ValueError):
                raise
            raise ArgumentError(f"{error}; {hint}") from None

    return functools.wraps(function)(method)


def _copy(where: Where) -> Callable[..., PyTree]:
    """`method_of` for a function that returns a view: the method returns a copy."""
    method = method_of(where, bind)
    method.__doc__ = f"A copy of what {say(where)[:-1]} is."
    return method


def _of_complex(where: Where) -> Callable[..., PyTree]:
    """`method_of` for what changes nothing but complex numbers: of others it is the Tensor itself."""
    function = method_of(where)

    def method(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if args or kwargs or self.dtype.kind == "c":
            return function(self, *args, **kwargs)
        return self

    method.__doc__ = f"{say(where)} Of what is not complex it is the Tensor itself."
    return method


def _member(where: Where, name: str) -> Callable[..., PyTree]:
    if name in HINTS:
        return _hinted(where, HINTS[name])
    if name in ("conj", "conjugate", "positive"):
        return _of_complex(where)
    return _copy(where) if name in COPIES else method_of(where)


MEMBERS: dict[str, object] = {
    name: _member(where, name) for name, where in (ELEMENTWISE | METHODS | COPIES).items()
}
