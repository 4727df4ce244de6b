"""The contract of operations, levels and nodes: what is asked of them are members, not their classes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from helpers import ROOT

from fad.autograd import Node
from fad.core.level import Level
from fad.core.types import Operation

METHODS_OF_A_LEVEL = 12
PLACES_THAT_ASK = 3  # for the class of an operation or a node, in the library and replay
ANY_IN_THE_CORE = 5  # in the modules of operations, levels and Primitives


TOOLS = {"implicit", "laplacians", "profiling", "sparse", "taylor", "testing", "torch", "viz"}


def classes_below(kind: type) -> Iterator[str]:
    for c in kind.__subclasses__():
        if c.__module__.startswith("fad."):  # other tests have classes too
            yield c.__name__
        yield from classes_below(c)


def asked_classes(source: str) -> list[str]:
    """The classes of operations and nodes that a source tests for, by `isinstance` or `type`."""
    classes = {"Operation", *classes_below(Operation), *classes_below(Node)}
    found = []
    for n in ast.walk(ast.parse(source)):
        of: list[ast.expr] = []
        if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "isinstance":
            of = [n.args[1]]
        elif isinstance(n, ast.Compare) and isinstance(n.ops[0], (ast.Is, ast.IsNot, ast.In)):
            left = n.left
            if isinstance(left, ast.Call) and getattr(left.func, "id", "") == "type":
                of = n.comparators
        names = [x.id for e in of for x in ast.walk(e) if isinstance(x, ast.Name)]
        names += [x.attr for e in of for x in ast.walk(e) if isinstance(x, ast.Attribute)]
        found += [name for name in names if name in classes]
    return found


def modules() -> Iterator[Path]:
    for path in sorted((ROOT / "fad").rglob("*.py")):
        if path.relative_to(ROOT / "fad").parts[0] not in TOOLS:
            yield path


def test_a_level_has_few_methods() -> None:
    methods = [n for n, f in vars(Level).items() if n[0] != "_" and inspect.isfunction(f)]
    assert len(methods) <= METHODS_OF_A_LEVEL, methods


def test_few_places_ask_for_a_class() -> None:
    found = {
        str(path.relative_to(ROOT)): asked
        for path in modules()
        if (asked := asked_classes(path.read_text(encoding="utf-8")))
    }
    assert sum(map(len, found.values())) <= PLACES_THAT_ASK, found


def test_any_is_rare_in_the_core() -> None:
    core = ROOT / "fad" / "core"
    texts = [(core / f"{name}.py").read_text() for name in ("types", "level", "primitive")]
    nodes = [n for text in texts for n in ast.walk(ast.parse(text))]
    names = [getattr(n, "id", getattr(n, "name", None)) for n in nodes]  # uses and imports
    assert names.count("Any") <= ANY_IN_THE_CORE


def test_the_search_finds_what_it_should() -> None:
    source = "isinstance(x, (Tensor, Primitive)), type(n) is autograd.AccumulateGrad, isinstance(x, Tensor)"
    assert asked_classes(source) == ["Primitive", "AccumulateGrad"]
