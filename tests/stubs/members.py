"""Writes fad/core/tensor_members.pyi: what a Tensor gains when fad is imported."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from typing import Any

from fad.arrays import torch_operations
from fad.core.tensor import Tensor
from fad.methods.operators import _BINARY, _COMPARE, _UNARY
from tests.stubs.signatures import signatures_of
from tests.stubs.stubs import IMPORTS, ROOT, definitions, overloads_of, with_builtins, written

__all__ = ["PATH", "members_stub"]

PATH = ROOT / "fad" / "core" / "tensor_members.pyi"

HEAD = f'''"""The operators and methods of Tensor that `fad.methods` installs."""
# Made by `python -m tests.stubs`.

{IMPORTS}
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Self

from fad.arrays.annotations import Index
from fad.formulas.torch_functions import MinMax, ValuesIndices
from fad.core.types import Axes, DeviceLike, Operand, PyTree
from fad.tape.graph import GradientEdge
from fad.tape.graph import Node
from fad.tape.graph import RemovableHandle
from fad.views.indexing import At

class TensorMembers:
'''
# What every object has, or only Python and NumPy call.
LEFT_OUT = (
    """__array_ufunc__ __copy__ __deepcopy__ __format__ __hash__ __reduce_ex__ __repr__""".split()
)
# What real code of PyTorch reads, though the names are private there.
TORCHS = ("_base", "_version")
# Of code that says what it does as ``fad.numpy.sum`` of this Tensor.
_OF_FUNCTION = re.compile(r"``((?:fad|torch)\.[\w.]+)\.(\w+)`` of this Tensor")


def members_stub() -> str:
    """The text of the stub."""
    by_hand = written("tensor")
    parts = []
    for name, member in sorted(_members().items()):
        if name in by_hand:
            parts.append("\n".join(by_hand[name]))
        else:
            parts.append(_operator(name) or _member(name, member))
    body = "\n".join([f"    {line}" for part in parts for line in part.splitlines()]) + "\n"
    return HEAD + with_builtins(body, _members())


def _members() -> dict[str, Any]:
    """What was put into the class, but what is in its own code."""
    own = Tensor.__module__
    for name in dir(Tensor):
        getattr(Tensor, name)  # those in tools are imported now
    return {
        name: member
        for name, member in vars(Tensor).items()
        if (name.startswith("__") or name[0] != "_" or name in TORCHS)
        and name not in LEFT_OUT
        and getattr(_code(member), "__module__", own) != own
    }


def _code(member: Any) -> Any:
    """The function of a method or property; None if it is neither."""
    f = member.fget if isinstance(member, property) else member
    return inspect.unwrap(f) if callable(f) else None


def _operator(name: str) -> str:
    """The definition of an operator; nothing if it is none."""
    if not name.startswith("__"):
        return ""
    bare = name.strip("_")
    if bare in _UNARY:
        return f"def {name}(self) -> Tensor: ..."
    if bare[:1] == "i" and bare[1:] in _BINARY:
        return f"def {name}(self, other: ListedValue) -> Self: ..."
    if bare.removeprefix("r") == "divmod":
        return f"def {name}(self, other: ListedValue) -> tuple[Tensor, Tensor]: ..."
    if bare in _COMPARE:
        ignored = "  # type: ignore[override]" if bare in ("eq", "ne") else ""
        return f"def {name}(self, other: ListedValue) -> Tensor: ...{ignored}"
    if bare in _BINARY or (bare[:1] == "r" and bare[1:] in _BINARY):
        return f"def {name}(self, other: ListedValue) -> Tensor: ..."
    return ""


def _member(name: str, member: Any) -> str:
    """The definition of another member."""
    f = _code(member)
    found = _OF_FUNCTION.search(member.__doc__ or "")
    if isinstance(member, property):
        kind = "Tensor" if found else inspect.signature(f).return_annotation
        setter = (
            f"\n@{name}.setter\ndef {name}(self, value: Value) -> None: ..." if member.fset else ""
        )
        return f"@property\ndef {name}(self) -> {_checked(name, kind)}: ...{setter}"
    if found:
        return _of_function(name, *found.groups())
    signature = inspect.signature(f)
    first, *others = signature.parameters.values()
    parameters = [first.replace(name="self", annotation=inspect.Parameter.empty), *others]
    text = re.sub(r"(?<=: |> )'([^']*)'", r"\1", str(signature.replace(parameters=parameters)))
    _checked(name, signature.return_annotation)
    return f"def {name}{text}: ..."


def _checked(name: str, annotation: Any) -> str:
    if annotation in ("Any", inspect.Signature.empty):
        raise LookupError(
            f"Tensor.{name}: annotate what it returns, or write it down in tests/stubs/by_hand/tensor.pyi"
        )
    return str(annotation)


def _of_function(name: str, module: str, function: str) -> str:
    """A method that is a function of fad with the Tensor as its first argument."""
    if module == "torch.Tensor":
        return _of_torch(name, getattr(torch_operations, function).__wrapped__)
    jax_name = module.replace("fad", "jax", 1)
    jax_function = getattr(importlib.import_module(jax_name), function)
    texts: list[str] = []
    signatures = signatures_of(jax_name, function, jax_function, ast.Name("Array"))
    for s in signatures:
        _, *others = s.parameters
        without_first = dataclasses.replace(s, parameters=tuple(others))
        texts += overloads_of(jax_name, without_first, jax_function, False, len(signatures) == 1)
    return definitions(name, [t.replace("(", "(self, ", 1).replace(", )", ")") for t in texts], "")


def _of_torch(name: str, function: Any) -> str:
    """A method that is one of PyTorch's functions, which are annotated for arrays."""
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    text = str(signature.replace(parameters=[self, *others], return_annotation="")).rpartition(
        " -> "
    )[0]
    text = re.sub(r"(?<=: )'([^']*)'", r"\1", text)
    arguments = re.sub(r"\bArray(Like)?\b", "Value", text)
    result = re.sub(r"\bArray\b", "Tensor", signature.return_annotation)
    return f"def {name}{arguments} -> {result}: ..."
