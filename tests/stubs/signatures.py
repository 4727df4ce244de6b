"""Signatures of JAX's functions: from its stubs, from overloads in its code, or as `inspect` sees them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import jax.numpy as jnp

__all__ = ["Parameter", "Signature", "annotation_of", "signatures_of"]

Kind = inspect._ParameterKind
SIMPLE = (bool, int, float, complex, str, type(None))


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: `default` is its text, None if it has none; `annotation` None if there is none."""

    name: str
    kind: Kind
    annotation: ast.expr | None
    default: str | None


@dataclasses.dataclass(frozen=True)
class Signature:
    """One signature, or one overload of it."""

    parameters: tuple[Parameter, ...]
    result: ast.expr | None


def signatures_of(module: str, name: str, function: Any, unsaid: ast.expr) -> list[Signature]:
    """The signature of a public function of a JAX module: one, or one for each overload.

    A stub says more than the code: it has the overloads, and results that the code does not name. It has no
    defaults, which the code has. The result is ``unsaid`` where neither says it.
    """
    if isinstance(function, jnp.ufunc):
        names = ["x", "y"][: function.nin]
        parameters = [
            Parameter(n, Kind.POSITIONAL_ONLY, ast.Name("ArrayLike"), None) for n in names
        ]
        return [Signature(tuple(parameters), ast.Name("Array"))]
    own = _inspected(function)
    found = _in_stub(module).get(name) or [_inspected(f) for f in _overloads(function)] or [own]
    defaults = {p.name: p.default for p in own.parameters if p.default is not None}
    return [_completed(s, defaults, own.result or unsaid) for s in found]


def _completed(signature: Signature, defaults: dict[str, str], unsaid: ast.expr) -> Signature:
    """What the code says where a stub says ``...``, or nothing."""
    filled = []
    for p in signature.parameters:
        default = defaults.get(p.name, "...")
        values = "" if p.annotation is None else ast.unparse(p.annotation)
        if p.default == "..." and ("Literal" not in values or default in values):
            p = dataclasses.replace(p, default=default)
        filled.append(p)
    return Signature(tuple(filled), signature.result or unsaid)


def _overloads(function: Any) -> list[Any]:
    try:
        return list(typing.get_overloads(inspect.unwrap(function)))
    except AttributeError:  # it is no function
        return []


def _inspected(function: Any) -> Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return Signature((), None)
    parameters = [
        Parameter(p.name, p.kind, annotation_of(p.annotation), _default(p.default))
        for p in signature.parameters.values()
    ]
    return Signature(tuple(parameters), annotation_of(signature.return_annotation))


def _default(value: Any) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    entries = value if isinstance(value, tuple) else (value,)
    return repr(value) if all(type(x) in SIMPLE for x in entries) else "..."


def annotation_of(value: Any) -> ast.expr | None:
    """An annotation as an expression, whether it is an object, or a string as in newer code."""
    if value is inspect.Parameter.empty:
        return None
    value = getattr(value, "__forward_arg__", value)
    if isinstance(value, type) and not typing.get_args(value):
        text = value.__name__
    else:
        text = value if isinstance(value, str) else str(value)
    text = re.sub(r"<class '([^']*)'>|~", r"\1", text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.Name("Any")


@functools.cache
def _in_stub(module: str) -> dict[str, list[Signature]]:
    """The functions in the ``.pyi`` file of a module; none if it has no such file."""
    path = Path(str(importlib.import_module(module).__file__)).with_suffix(".pyi")
    if not path.exists():
        return {}
    found: dict[str, list[Signature]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(_parsed(node))
    return found


def _parsed(node: ast.FunctionDef) -> Signature:
    a = node.args
    positional = [(x, Kind.POSITIONAL_ONLY) for x in a.posonlyargs]
    positional += [(x, Kind.POSITIONAL_OR_KEYWORD) for x in a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
    found = [_parameter(x, kind, d) for (x, kind), d in zip(positional, defaults, strict=True)]
    if a.vararg:
        found.append(_parameter(a.vararg, Kind.VAR_POSITIONAL, None))
    for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        found.append(_parameter(x, Kind.KEYWORD_ONLY, d))
    if a.kwarg:
        found.append(_parameter(a.kwarg, Kind.VAR_KEYWORD, None))
    return Signature(tuple(found), node.returns)


def _parameter(x: ast.arg, kind: Kind, default: ast.expr | None) -> Parameter:
    return Parameter(x.arg, kind, x.annotation, None if default is None else ast.unparse(default))
