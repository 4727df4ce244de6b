"""Extending fad: operations of one's own, and transforms of one's own.

`operation` makes an operation from a JAX function. A transform is a `Level` and a function that enters it:
`bind` hands an operation to the highest level among its arguments, and that level's ``process`` binds what it
is made of one level down. What a transform is given goes through `enter`, what it returns through `leave`.
docs/extending.md shows one of each.
"""

from typing import TYPE_CHECKING

from fad.core.level import Level as Level
from fad.core.level import bind as bind
from fad.core.level import map_tensors as map_outputs
from fad.core.level import restores_modes as restores_modes
from fad.core.level import uncompiled as uncompiled
from fad.core.tensor import Tensor as Tensor
from fad.core.tensor import new_tensor as new_tensor
from fad.core.types import Operation as Operation
from fad.errors.missing_names import hints_of as _hints_of
from fad.extend.operations import operation as operation
from fad.transforms.boundary import enter as enter
from fad.transforms.boundary import has_tensor as has_tensor
from fad.transforms.boundary import leave as leave

__all__ = [
    "Level",
    "Operation",
    "Tensor",
    "bind",
    "enter",
    "has_tensor",
    "leave",
    "map_outputs",
    "new_tensor",
    "operation",
    "restores_modes",
    "uncompiled",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
