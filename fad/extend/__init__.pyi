"""Extending fad: operations of one's own, and transforms of one's own.

`operation` makes an operation from a JAX function. A transform is a `Level` and a function that enters it:
`bind` hands an operation to the highest level among its arguments, and that level's ``process`` binds what it
is made of one level down. What a transform is given goes through `enter`, what it returns through `leave`.
docs/extending.md shows one of each.
"""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.core.level import Level as Level
from fad.core.level import bind as bind
from fad.core.level import map_tensors as _map_outputs
from fad.core.level import restores_modes as restores_modes
from fad.core.level import uncompiled as uncompiled
from fad.core.tensor import Tensor as Tensor
from fad.core.tensor import new_tensor as new_tensor
from fad.core.types import Operation as Operation
from fad.extend.observing import is_deferred as is_deferred
from fad.extend.observing import observe as observe
from fad.extend.observing import running_levels as running_levels
from fad.extend.observing import thread_id as thread_id
from fad.extend.operations import operation as operation
from fad.transforms.boundary import enter as enter
from fad.transforms.boundary import has_tensor as has_tensor
from fad.transforms.boundary import leave as leave

map_outputs = _map_outputs
