"""From the annotations of JAX to those of fad: what an array may be, and what comes of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

import jax

__all__ = ["ARRAYS", "EITHER", "JAX", "LISTED", "TENSOR", "names_arrays", "result", "translated"]

# What stands for the arrays of an argument.
JAX, TENSOR, EITHER, LISTED = "jax", "tensor", "either", "listed"
ARRAYS = frozenset(
    "Array ArrayLike BooleanNumeric DuckTypedArray IntegerArray RealArray RealNumeric".split()
)
_VALUE = {JAX: "JaxValue", TENSOR: "TensorValue", EITHER: "Value", LISTED: "ListedValue"}
_ARRAY = {
    JAX: "jax.Array",
    TENSOR: "Tensor",
    EITHER: "Tensor | jax.Array",
    LISTED: "ListedValue",
}
_NUMPY = {JAX: "", TENSOR: "NumpyArray", EITHER: "NumpyArray", LISTED: "NumpyArray"}

_OTHERS = {
    "Any": "Any",
    "Axis": "int | Sequence[int] | None",
    "_Axis": "int | Sequence[int] | None",
    "AxisName": "Hashable",
    "Callable": "Callable[..., Any]",
    "DType": "np.dtype[Any]",
    "DimSize": "int",
    "Initializer": "TensorInitializer",
    "NamedSharding": "jax.sharding.NamedSharding",
    "None": "None",
    "NoneType": "None",
    "P": "jax.sharding.PartitionSpec",
    "PartitionSpec": "jax.sharding.PartitionSpec",
    "PrecisionLike": "PrecisionArgument | None",
    "Sharding": "jax.sharding.Sharding",
    "Shape": "Sequence[int]",
    "StaticScalar": "bool | int | float | complex",
    "dtype": "np.dtype[Any]",
    "slice": "slice",
    **{name: name for name in "bool int float complex str bytes".split()},
}
_DTYPES = (
    "DTypeLike DTypeLikeFloat DTypeLikeInexact DTypeLikeInt DTypeLikeUInt SupportsDType".split()
)
_OTHERS |= dict.fromkeys(_DTYPES, "DTypeLike")
_EXPANDED = {"Array", "ndarray", "bool", "number", "int", "float", "complex"}
UNKNOWN = "Any"


def translated(annotation: ast.expr | None, arrays: str) -> str:
    """A parameter's annotation, where its arrays are of the given kind. What is not known is Any."""
    if annotation is None:
        return UNKNOWN
    members = _members(annotation, arrays)
    if arrays == TENSOR and {"Tensor", "TensorValue"}.intersection(members):
        members = [m for m in members if m not in _SCALARS]  # it is given, and is none of these
    return _joined(members)


def result(annotation: ast.expr, arrays: str, records: Mapping[str, str]) -> str:
    """A result's annotation. ``records`` has the names here of the named tuples that it may be."""
    name = _last(annotation)
    if isinstance(annotation, ast.BinOp):
        sides = [result(x, arrays, records) for x in (annotation.left, annotation.right)]
        return UNKNOWN if UNKNOWN in sides else " | ".join(dict.fromkeys(sides))
    if isinstance(annotation, ast.Subscript) and name in ("list", "tuple", "Sequence"):
        entries = annotation.slice
        every = entries.elts if isinstance(entries, ast.Tuple) else [entries]
        inner = [
            "..."
            if isinstance(e, ast.Constant) and e.value is Ellipsis
            else result(e, arrays, records)
            for e in every
        ]
        return f"{name}[{', '.join(inner)}]"
    if name in records:
        return f"{records[name]}[{_ARRAY[arrays]}]"
    return _ARRAY[arrays] if name in ARRAYS else _joined(_members(annotation, arrays))


def names_arrays(annotation: ast.expr | None) -> bool:
    """Whether an array may be given for it."""
    return "Tensor" in translated(annotation, TENSOR)


def _joined(members: Iterable[str]) -> str:
    """A union: without repetitions, None last."""
    flat = [part for m in members for part in _split(m)]
    if UNKNOWN in flat or not flat:
        return UNKNOWN
    if {"JaxValue", "TensorValue"} <= {*flat}:
        flat = ["Value", *flat]
    for kind in ("ListedValue", "Value", "JaxValue"):
        if kind in flat:
            flat = [kind, *[m for m in flat if m not in _WITHIN[kind]]]
    if "TensorValue" in flat:
        flat = [m for m in flat if m not in ("Tensor", "NumpyArray")]
    found = list(dict.fromkeys(flat))
    if "None" in found:
        found = [*[m for m in found if m != "None"], "None"]
    return " | ".join(found)


_SCALARS = {"bool", "int", "float", "complex", "None"}
_NUMBERS = {"jax.Array", *_SCALARS} - {"None"}
_WITHIN = {
    "JaxValue": {"JaxValue", *_NUMBERS},
    "Value": {"Value", "JaxValue", "TensorValue", "Tensor", "NumpyArray", *_NUMBERS},
}
_WITHIN["ListedValue"] = {"ListedValue", *_WITHIN["Value"]}


def _split(text: str) -> list[str]:
    """The members of a union at its top."""
    parts: list[str] = []
    depth = 0
    for piece in text.split(" | "):
        if depth:
            parts[-1] += f" | {piece}"
        elif piece:
            parts.append(piece)
        depth += piece.count("[") - piece.count("]")
    return parts


def _members(node: ast.expr, arrays: str) -> list[str]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return _members(ast.parse(node.value, mode="eval").body, arrays)
        return ["None" if node.value is None else UNKNOWN]
    if isinstance(node, ast.BinOp):
        return [*_members(node.left, arrays), *_members(node.right, arrays)]
    name = _last(node)
    if isinstance(node, ast.Subscript):
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Union":
            if _EXPANDED <= {_last(e) for e in entries}:  # `ArrayLike`, written out
                rest = [e for e in entries if _last(e) not in _EXPANDED]
                return [_VALUE[arrays], *[m for e in rest for m in _members(e, arrays)]]
            return [m for e in entries for m in _members(e, arrays)]
        if name == "Optional":
            return [*_members(entries[0], arrays), "None"]
        if name == "Literal":
            return [ast.unparse(node).replace("typing.", "")]
        if name in ("Sequence", "list", "tuple", "Iterable"):
            return [_sequence(name, entries, arrays)]
        return ["Callable[..., Any]" if name == "Callable" else UNKNOWN]
    if name == "Array":
        return _split(_ARRAY[arrays])
    if name in ARRAYS:
        return [_VALUE[arrays]]
    if name == "ndarray":
        return [_NUMPY[arrays]]
    if name in _OTHERS:
        return _split(_OTHERS[name])
    if isinstance(getattr(jax.lax, name, None), type):
        return [f"jax.lax.{name}"]
    return [UNKNOWN]


def _sequence(name: str, entries: list[ast.expr], arrays: str) -> str:
    inner = [
        "..." if isinstance(e, ast.Constant) and e.value is Ellipsis else translated(e, arrays)
        for e in entries
    ]
    return f"{'Sequence' if name == 'list' else name}[{', '.join(inner)}]"


def _last(node: ast.expr) -> str:
    """The last word of a dotted name."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
