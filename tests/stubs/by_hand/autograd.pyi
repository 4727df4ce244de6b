"""The eager graph, as PyTorch users know it: nodes, edges, the engine, hooks, saved values, anomaly mode.

The names are those of ``torch.autograd`` and ``torch.autograd.graph``; what PyTorch has only in C++ has its
C++ name. The table in docs/graph.md lists them all.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from fad.core.tensor import Tensor

_Tensors = Tensor | GradientEdge | Iterable[Tensor | GradientEdge]
_Key = TypeVar("_Key")

@overload
def grad(  # type: ignore[overload-overlap]
    outputs: _Tensors,
    inputs: Mapping[_Key, Tensor | GradientEdge],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> dict[_Key, Tensor]: ...
@overload
def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]: ...
@overload
def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: bool,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...
