"""What a Tensor gains besides its value: operators, methods, in-place methods, and how Tensors are made.

Each module has a table of members; `install` puts all of them into the class. `shapes`, `placement`,
`text` and `functions`, the functions at the top of fad, are a tool: they are written on public names.
"""

from types import FunctionType

from fad.core.faces import tool
from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.methods import history, in_place, names, operators, values, views

# The members in tools, by module.
LATER = {
    "shapes": """H T __contains__ adjoint contiguous copy dim expand expand_as flatten flip index_put mH mT
        narrow narrow_copy ndimension nelement numel permute replay_on reshape reshape_as select split
        split_with_sizes sum_to_size t tile transpose unbind unsqueeze view_as""",
    "text": "__repr__ _repr_html_",
    "placement": """__round__ astype bfloat16 bool byte cdouble cfloat char cpu cuda device devices double
        element_size float half int is_complex is_floating_point is_nonzero is_same_size is_signed itemsize
        long nbytes new_empty new_full new_ones new_tensor new_zeros resolve_conj resolve_neg sharding short
        to type type_as weak_type""",
}


class _ToolMember:
    """Stands in the class for a member that a tool has. The first use imports the tool and puts it here."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def _load(self) -> PyTree:
        member = tool(f"methods.{self.module}").MEMBERS[self.name]
        _put(self.name, member)
        return member

    def __get__(self, t: Tensor | None, cls: type[Tensor]) -> object:
        # The member itself: looked up by name, it would be that of a subclass, which calls `super`.
        member = self._load()
        return member.__get__(t, cls) if hasattr(member, "__get__") else member

    def __set__(self, t: Tensor, value: object) -> None:
        member = self._load()
        if hasattr(member, "__set__"):
            member.__set__(t, value)
        else:
            setattr(t, self.name, value)


def _put(name: str, member: object) -> None:
    if isinstance(member, FunctionType) and "<locals>" in member.__qualname__:
        member.__name__, member.__qualname__ = name, f"Tensor.{name}"
    setattr(Tensor, name, member)


def install() -> None:
    """Put all members into the class."""
    for module in (in_place, names, operators, values, views, history):
        for name, member in module.MEMBERS.items():
            _put(name, member)
    for tool_module, members in LATER.items():
        for name in members.split():
            _put(name, _ToolMember(tool_module, name))
    observable(Tensor, "__getitem__", "indexing")
    observable(Tensor, "__setitem__", "indexing")
