"""Every code block in README and docs/ runs, and says truly what it prints; so do all doctests.

`tests/helpers/pages.py` says how a block states what it gives. What draws a figure does not run where
matplotlib is not installed, nor does a page that imports what is not: `EXTRAS` says which extra has it.
With `-m extra` only pages run for which the extra `test` is not enough.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT
from pages import Block, blocks, code, restored_jax, run_block, run_doctest

import fad
import fad.numpy as fnp

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "fad").rglob("*.py"))
SOURCES += sorted(set((ROOT / "tests/fuzzing").glob("*.py")) - set(ROOT.rglob("test_*.py")))
DRAWS = importlib.util.find_spec("matplotlib") is not None
EXTRAS = {
    "diffrax": "test",
    "equinox": "test",
    "flax": "recipes",
    "orbax": "recipes",
    "safetensors": "recipes",
    "sklearn": "test",
    "torch": "torch",
}
IMPORT = re.compile(rf"^[> ]*(?:import|from)\b.*\b({'|'.join(EXTRAS)})\b", re.MULTILINE)


def docstrings(path: Path) -> Iterator[tuple[str, str, int]]:
    """(qualified name, docstring, line) of the docstrings written in a file.

    Read from the source and not from the objects, because the functions of `fad.numpy` and its
    like have the docstrings of their JAX twins, whose examples are JAX's.
    """

    def visit(node: Any, name: str) -> Iterator[tuple[str, str, int]]:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text and ">>>" in text:
                yield name, text, node.body[0].lineno - 1
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                yield from visit(child, f"{name}.{child.name}")
            elif isinstance(child, ast.stmt):
                yield from visit(child, name)

    if ">>>" not in path.read_text():
        return
    relative = path.relative_to(ROOT).with_suffix("")
    module = ".".join(relative.parts).removesuffix(".__init__")
    yield from visit(ast.parse(path.read_text()), module)


def marks(text: str) -> tuple[pytest.MarkDecorator, ...]:
    """The mark `extra` for a text that imports what the extra `test` does not bring."""
    return (
        (pytest.mark.extra,) if {EXTRAS[name] for name in IMPORT.findall(text)} - {"test"} else ()
    )


def skip_without_imports(text: str) -> None:
    for name in IMPORT.findall(text):
        pytest.importorskip(name, reason=f"imported there (extra: {EXTRAS[name]})")


DOCTESTS = [
    pytest.param(path, text, line, id=name, marks=marks(text))
    for path in SOURCES
    for name, text, line in docstrings(path)
]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks(code(page))) for page in PAGES],
)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # figures are saved where the reader is
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    skip_without_imports(code(page))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    fad.autograd.compiled.clear_cache()  # a reader's process is a fresh one
    with restored_jax():
        for block in blocks(page.read_text()):
            assert block.language, f"{page.name}:{block.line}: say which language the block is in"
            if block.language in ("python", "pycon") and (DRAWS or "matplotlib" not in block.text):
                run_block(block, namespace, str(page))


@pytest.mark.parametrize(("path", "text", "line"), DOCTESTS)
def test_docstring(path: Path, text: str, line: int) -> None:
    skip_without_imports(text)
    relative = path.relative_to(ROOT).with_suffix("")
    module = importlib.import_module(".".join(relative.parts).removesuffix(".__init__"))
    given = {"fad": fad, "fnp": fnp, "jax": jax, "jnp": jnp, "np": np}
    with restored_jax():
        run_doctest(text, {**vars(module), **given}, str(path), line)


@pytest.mark.parametrize(
    "line",
    [
        "1 + 1  # -> 3",
        "jnp.arange(3)  # -> [0 12]",
        "print('a', 1)  # -> a 2",
        "x = [1, 2]  # -> [1, 3]",
        "jnp.float32(1) / 3  # -> 0.34",
        "'a long text'  # -> a short...",
        "1 + 1  # raises TypeError",
        "int('a')  # raises TypeError",
        "int('a')  # raises ValueError: another text",
        ">>> 1 + 1\n3",
        "def f():\n    return 1\nf()\n# -> 2",
    ],
)
def test_wrong_statements_are_caught(line: str) -> None:
    with pytest.raises(AssertionError):
        run_block(Block("python", f"{line}\n", 1), {"fad": fad, "jnp": jnp}, "page")


@pytest.mark.parametrize(
    "line",
    [
        "1 + 1  # -> 2",
        "print('a', 1)  # -> a 1",
        "x, y = 1, 2  # -> (1, 2)",
        "jnp.float32(1) / 3  # -> 0.33",
        "(jnp.float32(2), {'a': jnp.arange(2)})  # -> (2.0, {'a': [0, 1]})",
        "'a long text'  # -> a ... text",
        "int('a')  # raises ValueError: invalid literal",
        ">>> 1 + 1\n2",
        "print(1)\nprint(\n    2\n)\n# -> 2",
        "print('1\\n2')\n# -> 1\n#    2",
        "x = 1  # an ordinary comment\n# -> 1",
        "jnp.arange(3.0)  # -> [0. 1. 2.]",
        "fad.tensor([1.0, 2.0])  # -> [1. 2.]",
        "fad.tensor([1.0, 2.0])  # -> [1.0, 2.0]",
        "jnp.eye(2)\n# -> [[1. 0.]\n#     [0. 1.]]",
    ],
)
def test_true_statements_pass(line: str) -> None:
    run_block(Block("python", f"{line}\n", 1), {"fad": fad, "jnp": jnp}, "page")


def test_blocks_are_found() -> None:
    page = "a\n```python\nx = 1\n```\n- b\n  ```text\n  y\n  ```\n"
    assert blocks(page) == [Block("python", "x = 1\n", 3), Block("text", "y\n", 7)]
