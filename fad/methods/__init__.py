"""What a Tensor gains besides its value: operators, methods, in-place methods, and how Tensors are made.

Each module has a table of members; `install` puts all of them into the class.
"""

from types import FunctionType

from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.methods import history, in_place, names, operators, placement, shapes, values


def install() -> None:
    """Put all members into the class."""
    for module in (in_place, names, operators, values, shapes, placement, history):
        for name, member in module.MEMBERS.items():
            if isinstance(member, FunctionType) and "<locals>" in member.__qualname__:
                member.__name__, member.__qualname__ = name, f"Tensor.{name}"
            setattr(Tensor, name, member)
    observable(Tensor, "__getitem__", "indexing")
    observable(Tensor, "__setitem__", "indexing")
