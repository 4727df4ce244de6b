"""What a Tensor gains besides its value: operators, methods, in-place methods, and how Tensors are made.

Each module has a table of members; `install` puts all of them into the class. `shapes`, `placement`,
`text` and `functions`, the functions at the top of fad, are a tool: they are written on public names. So are
members that other libraries call, `fad.bridge.protocols`.
"""

from fad.core.faces import put_member, tool_members
from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.methods import history, in_place, names, operators, values, views

# The members in tools, by module.
LATER = {
    "bridge.numpy_calls": "__array_function__ __array_ufunc__",
    "bridge.protocols": """__array_namespace__ __dlpack__ __dlpack_device__ addressable_data
        addressable_shards committed copy_to_host_async global_shards is_deleted is_fully_addressable
        is_fully_replicated is_ready to_device""",
    "hints.names": "__torch_function__",
    "methods.shapes": """H T __contains__ adjoint contiguous copy dim expand expand_as flatten flip
        index_put mH mT narrow narrow_copy ndimension nelement numel permute replay_on reshape reshape_as
        select split split_with_sizes sum_to_size t tile transpose unbind unsqueeze view_as""",
    "methods.text": "__repr__ _repr_html_",
    "methods.placement": """__round__ astype bfloat16 bool byte cdouble cfloat char cpu cuda device devices
        double element_size float half int is_complex is_floating_point is_nonzero is_same_size is_signed
        itemsize long nbytes new_empty new_full new_ones new_tensor new_zeros resolve_conj resolve_neg
        sharding short to type type_as weak_type""",
}


def install() -> None:
    """Put all members into the class."""
    for module in (in_place, names, operators, values, views, history):
        for name, member in module.MEMBERS.items():
            put_member(Tensor, name, member)
    tool_members(Tensor, LATER)
    observable(Tensor, "__getitem__", "indexing")
    observable(Tensor, "__setitem__", "indexing")
