"""The one place where Tensor gains its operators and methods."""

from __future__ import annotations

from types import FunctionType

from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.methods import history, in_place, names, notebook, operators, placement, shapes, values
from fad.methods.in_place import IN_PLACE


def install() -> None:
    """Put all members into the class."""
    for table in (
        IN_PLACE,
        names.MEMBERS,
        operators.MEMBERS,
        values.MEMBERS,
        notebook.MEMBERS,
        shapes.MEMBERS,
        in_place.MEMBERS,
        placement.MEMBERS,
        history.MEMBERS,
    ):
        for name, member in table.items():
            if isinstance(member, FunctionType) and "<locals>" in member.__qualname__:
                member.__name__, member.__qualname__ = name, f"Tensor.{name}"
            setattr(Tensor, name, member)
    observable(Tensor, "__getitem__", "indexing")
    observable(Tensor, "__setitem__", "indexing")
