"""PyTorch's names for autograd: each is in fad, or in the docs with the reason why it is not."""

from __future__ import annotations

import importlib
import re
from typing import Any

from helpers import ROOT

import fad

PAGE = ROOT / "docs" / "pytorch-names.md"


def excused() -> set[str]:
    """The names in the first column of the page's last table."""
    table = PAGE.read_text(encoding="utf-8").partition("## Names that fad does not have")[2]
    table = table.partition("## Names by group")[0]
    rows = re.findall(r"^\| (`torch\..*?) \| .+ \|$", table, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(.+?)`", row)}


def test_each_name_is_there_or_has_a_reason(torch: Any) -> None:
    missing = importlib.import_module("torch_names").missing
    assert set(missing()) == excused()


def grouped() -> list[str]:
    """The names in the table of groups, with the library that they are of."""
    table = PAGE.read_text(encoding="utf-8").partition("## Names by group")[2]
    rows = re.findall(r"^\| `([\w.]+)` \| ([\w -]+) \| (.+?) \| .+ \|$", table, re.MULTILINE)
    return [
        f"{library}.{name}" for library, _, names in rows for name in re.findall(r"`(.+?)`", names)
    ]


def test_each_name_of_tensor_numpy_and_jax_is_there_or_in_a_group(torch: Any) -> None:
    groups = grouped()
    assert len(groups) == len(set(groups))
    without = set(importlib.import_module("torch_names").missing_elsewhere())
    assert not without - set(groups)
    homes = {"torch.Tensor": fad.Tensor, "numpy": fad.numpy}
    there = [
        n for n in groups for home, _, name in [n.rpartition(".")] if hasattr(homes.get(home), name)
    ]
    assert not there, "these are in fad now"


def test_the_public_modules_can_be_imported_and_list_their_names() -> None:
    for name in ("forward_ad", "function", "functional", "grad_mode", "graph", "profiler"):
        module = importlib.import_module(f"fad.autograd.{name}")
        assert module is getattr(fad.autograd, name)
        assert all(hasattr(module, n) for n in module.__all__)
    assert all(hasattr(fad.func, n) for n in fad.func.__all__)
    assert fad.autograd.gradcheck is importlib.import_module("fad.testing").gradcheck
