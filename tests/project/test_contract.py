"""The contract of operations, levels and nodes: what is asked of them are members, not their classes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

import fad
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


def test_the_page_states_all_of_an_operation_and_of_a_level() -> None:
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    members = [n for n in (*vars(Operation), *Operation.__annotations__) if n[0] != "_"]
    methods = [n for n, f in vars(Level).items() if n[0] != "_" and inspect.isfunction(f)]
    assert [n for n in (*members, *methods) if f"`{n}`" not in page and f"`{n}(" not in page] == []


def test_operations_are_of_three_kinds() -> None:
    """A pure function of JAX, a call of a Function, and a program, which expands."""
    assert set(classes_below(Operation)) == {"Primitive", "FunctionOp", "Program"}


class Cubed(fad.Function):
    jax_rules = True

    @staticmethod
    def forward(x):
        return x**3


CUSTOM = {
    "from_jax": (fad.from_jax, "Primitive"),
    "operation": (fad.extend.operation, "Primitive"),
    "operation with rules": (
        fad.extend.operation(jvp=lambda p, t: (p[0] ** 3, 3 * p[0] ** 2 * t[0])),
        "Primitive",
    ),
    "jax_rules": (lambda f: Cubed.apply, "FunctionOp"),
    "custom_rules": (fad.custom_rules, "FunctionOp"),
}


@pytest.mark.parametrize("way", CUSTOM)
def test_a_custom_operation_is_of_one_of_two_kinds(way: str) -> None:
    """Where rules say how a derivative is computed, a Primitive; where they say what it is, a call."""
    kinds = []

    class NotingLevel(fad.extend.Level):
        def process(self, op, args):
            kinds.append(type(op).__name__)
            below = [a.value if isinstance(a, fad.Tensor) else a for a in args]
            return fad.extend.map_outputs(self.lift, fad.extend.bind(op, below))

    make, kind = CUSTOM[way]
    with NotingLevel() as level:
        out = make(lambda x: x**3)(level.lift(fad.tensor(2.0)))
    assert (out.value.item(), kinds) == (8.0, [kind])


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
