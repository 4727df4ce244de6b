"""The table of JAX's private names in the docs: complete; and a missing name is named."""

from __future__ import annotations

import ast
import re

import jax
import pytest
from helpers import ROOT

from fad.core import jaxapi

SOURCE = (ROOT / "fad" / "core" / "jaxapi.py").read_text()
DOOR = ast.parse(SOURCE)
ROWS = re.findall(
    r"^\| (attribute )?`(\S+)` \| \S.* \| \S.* \|$",
    (ROOT / "docs" / "private-names.md").read_text(),
    re.MULTILINE,
)


def test_the_page_has_the_names_that_are_used_and_no_other() -> None:
    used = [
        node.args[0].value
        for node in ast.walk(DOOR)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "private"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert sorted(used) == sorted([name for is_attribute, name in ROWS if not is_attribute])
    attributes = {node.attr for node in ast.walk(DOOR) if isinstance(node, ast.Attribute)}
    listed = {name.rpartition(".")[2] for is_attribute, name in ROWS if is_attribute}
    texts = {node.value for node in ast.walk(DOOR) if isinstance(node, ast.Constant)}
    assert listed <= attributes | texts
    hidden = {name for name in attributes if name.startswith("_") and not name.endswith("__")}
    assert hidden <= listed


def test_a_name_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jax._src.core, "mapped_aval")  # type: ignore[attr-defined]
    with pytest.raises(
        ImportError, match=r"fad uses jax\._src\.core\.mapped_aval, which jax .* not"
    ):
        jaxapi.private("jax._src.core.mapped_aval")
    with pytest.raises(ImportError, match=r"pip install 'jax>=0\.10\.2,<0\.13'"):
        exec(compile(SOURCE, jaxapi.__file__, "exec"), {"__name__": "jaxapi"})
