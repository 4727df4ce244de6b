"""Methods that are functions of the Tensor, by the tables of `fad.methods.names`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fad.core.tensor import Tensor
from fad.errors import ArgumentError
from fad.methods.names import ELEMENTWISE, METHODS, Where, method_of

__all__ = ["MEMBERS"]

# What to write for a call that NumPy does not have and PyTorch has.
HINTS = {
    "max": "for the greater of two elements, write x.maximum(y)",
    "min": "for the less of two elements, write x.minimum(y)",
    "repeat": "for PyTorch's x.repeat(2, 3), write x.tile(2, 3)",
    "sort": "for values and indices, write x.sort(dim=-1)",
    "squeeze": "for PyTorch's, which keeps a dimension that is longer, write x.squeeze(dim=0)",
}


def _hinted(where: Where, name: str, hint: str) -> Callable[..., Any]:
    """`method_of`, whose errors say what else may have been meant."""
    function = method_of(where, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if type(error) not in (TypeError, ValueError):
                raise
            raise ArgumentError(f"{error}; {hint}") from None

    return functools.wraps(function)(method)


MEMBERS: dict[str, Any] = {
    name: _hinted(where, name, HINTS[name]) if name in HINTS else method_of(where, name)
    for name, where in (ELEMENTWISE | METHODS).items()
}
