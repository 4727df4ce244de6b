"""A type checker learns something: `Any` is rare, room by room, and `fad.core.types` says what is meant."""

from __future__ import annotations

import ast
import functools
from collections import Counter

import pytest
from helpers import ROOT

# How often the word `Any` stands in the code of a room. Only to go down.
LIMITS = {
    "arrays": 15,
    "autograd": 16,
    "bridge": 7,
    "compile": 29,
    "core": 90,
    "errors": 12,
    "extend": 2,
    "formulas": 45,
    "func": 8,
    "functions": 90,
    "hints": 2,
    "implicit": 11,
    "laplacians": 37,
    "methods": 38,
    "nn": 9,
    "profiling": 10,
    "replay": 55,
    "rolling": 0,
    "sparse": 30,
    "tape": 136,
    "taylor": 18,
    "torch": 18,
    "transforms": 27,
    "views": 60,
    "viz": 15,
}
NOT_COUNTED = {"testing"}


def count(source: str) -> int:
    """How often the source names `Any`, as a name or in an import."""
    tree = ast.parse(source)
    imported = [
        a
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom)
        for a in n.names
        if a.name == "Any"
    ]
    named = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "Any"]
    return len(imported) + len(named)


@functools.cache
def counts() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in (ROOT / "fad").rglob("*.py"):
        first = path.relative_to(ROOT / "fad").parts[0]
        found[first.removesuffix(".py")] += count(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("room", sorted(LIMITS))
def test_any_is_rare(room: str) -> None:
    assert counts()[room] <= LIMITS[room]


def test_every_room_has_a_limit() -> None:
    unlimited = {room for room, n in counts().items() if n and room not in LIMITS}
    assert unlimited == NOT_COUNTED


def test_classes_of_types_say_what_they_are() -> None:
    source = (ROOT / "fad" / "core" / "types.py").read_text(encoding="utf-8")
    classes = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef)]
    assert classes
    assert all(map(ast.get_docstring, classes))


def test_the_count_finds_what_it_should() -> None:
    assert count("from typing import Any\nx: list[Any] = []\n") == 2
    assert count('"""Any"""\n# Any\ny = "Any"\n') == 0
