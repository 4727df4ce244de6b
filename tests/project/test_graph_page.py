"""The tables of docs/graph.md and docs/graphs-by-hand.md: each name exists, is tested, none is left out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from helpers import ROOT, leaf

import fad
from fad import autograd
from fad.autograd import Node


def rows() -> list[tuple[str, str, str, str]]:
    """Rows of their tables that have tests: names, behaviour, PyTorch's name, test."""
    page = "\n\n".join(
        [(ROOT / "docs" / name).read_text() for name in ("graph.md", "graphs-by-hand.md")]
    )
    found = []
    has_tests = False
    for line in page.splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            has_tests = False
        elif cells[-1] == "test":
            has_tests = True
        elif has_tests and not cells[0].startswith("---"):
            assert len(cells) == 4, line
            found.append((cells[0], cells[1], cells[2], cells[3]))
    return found


def names(cell: str) -> list[str]:
    """The dotted names in a cell, without arguments."""
    return [re.sub(r"[\[(].*", "", name) for name in re.findall(r"`([^`]+)`", cell)]


WHERE: dict[str, Callable[[], Any]] = {
    "Tensor": lambda: leaf([1.0]),
    "node": lambda: (leaf(1.0) * 2.0).grad_fn,
    "fad": lambda: fad,
    "autograd": lambda: autograd,
    "AccumulateGrad": lambda: autograd.get_gradient_edge(leaf(1.0)).node,
    "Edge": lambda: autograd.Edge(None, 0),
    "SavedTensor": lambda: autograd.SavedTensor,
    "RemovableHandle": lambda: autograd.RemovableHandle,
}


WRITTEN_BY_THE_USER = (
    "node._saved_*",
    "node._raw_saved_*",
    "node.saved_tensors",  # of nodes of Functions alone
    "node.needs_input_grad",
    "forward_extended",
    "backward_extended",
)


def resolve(name: str) -> Any:
    """What a name of the table stands for: `x.f` of a Tensor `x`, `node.f`, `fad.f`, or `f`."""
    first, _, rest = name.partition(".")
    value: Any
    if first in WHERE and rest:
        value = WHERE[first]()
        path = rest
    else:
        value, path = autograd, name
    for part in path.split("."):
        value = getattr(value, part)
    return value


TABLE = rows()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].replace("`", ""))
def test_each_name_of_the_table_exists_and_is_tested(row: tuple[str, str, str, str]) -> None:
    for name in names(row[0]):
        if name not in WRITTEN_BY_THE_USER:
            resolve(name)
    assert row[1], "it says what the name does"
    tests = re.findall(r"`([\w/]+)::(\w+)`", row[3])
    assert row[0] and tests, "it says which test would fail without it"
    for file, test in tests:
        source = (ROOT / "tests" / f"{file}.py").read_text()
        assert re.search(rf"^def {test}\(", source, re.M), f"{file}.py has no {test}"


def test_a_name_that_does_not_exist_is_caught() -> None:
    for name in ("nonsense", "node.nonsense", "Tensor.nonsense", "fad.nonsense"):
        with pytest.raises(AttributeError):
            resolve(name)


def test_the_table_has_every_public_name() -> None:
    listed = {n.removeprefix("autograd.") for row in TABLE for n in names(row[0])}
    public = {n for n in autograd.__all__ if not inspect.ismodule(getattr(autograd, n))}
    not_in_the_graph_page = {"Function", "compiled", "once_differentiable", "view_function"}
    not_in_the_graph_page |= set(autograd._LATER["fad.testing.gradient_checks"].split()) | {"why"}
    assert public - listed - not_in_the_graph_page == set()
    members = {n for n in vars(Node) if not n.startswith("_")}
    internal = {"run", "edges", "extra", "has_parent", "level", "topology"}
    internal |= {"metadata_of_inputs", "output_written"}
    assert members - internal - {n.removeprefix("node.") for n in listed} == set()
