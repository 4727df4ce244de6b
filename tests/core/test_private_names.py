"""The table of JAX's private names: complete, shown in the docs, and a missing name is named."""

from __future__ import annotations

import ast
import runpy

import jax
import pytest
from helpers import ROOT

from fad.core import jaxapi, private_names
from fad.core.private_names import ATTRIBUTES, PRIVATE_NAMES, private

DOOR = ast.parse((ROOT / "fad" / "core" / "jaxapi.py").read_text())


def test_the_table_has_the_names_that_are_used_and_no_other() -> None:
    used = [
        node.args[0].value
        for node in ast.walk(DOOR)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "private"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert sorted(used) == sorted(PRIVATE_NAMES)
    attributes = {node.attr for node in ast.walk(DOOR) if isinstance(node, ast.Attribute)}
    listed = {name.rpartition(".")[2] for name in ATTRIBUTES}
    texts = {node.value for node in ast.walk(DOOR) if isinstance(node, ast.Constant)}
    assert listed <= attributes | texts
    hidden = {name for name in attributes if name.startswith("_") and not name.endswith("__")}
    assert hidden <= listed


def test_a_name_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jax._src.core, "mapped_aval")  # type: ignore[attr-defined]
    with pytest.raises(
        ImportError, match=r"fad uses jax\._src\.core\.mapped_aval, which jax .* not"
    ):
        private("jax._src.core.mapped_aval")
    source = (ROOT / "fad" / "core" / "jaxapi.py").read_text()
    with pytest.raises(ImportError, match=r"pip install 'jax>=0\.10\.2,<0\.13'"):
        exec(compile(source, jaxapi.__file__, "exec"), {"__name__": "jaxapi"})


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "private-names.md").read_text()
    written = runpy.run_path(str(ROOT / "docs" / "_site" / "private_names.py"))["written"]
    assert written(page) == page, "run: python docs/_site/private_names.py"
    assert private_names.supported() == "jax>=0.10.2,<0.13"
