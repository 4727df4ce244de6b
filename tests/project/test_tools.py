"""Tools stand on public names alone.

``python -m tests.project.test_tools`` lists what each tool takes.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

from fad import methods

PACKAGE = ROOT / "fad"
# The files of each tool, by how their paths begin; the longest beginning counts.
TOOLS = {
    "formulas": ["formulas/"],
    "hints": ["hints/"],
    "nn": ["nn/losses", "nn/utils"],
    "autograd": ["autograd/nested", "autograd/builtin_nodes", "autograd/functional", "autograd/host_memory"],
    "bridge": ["bridge/custom_rules", "bridge/numpy_calls", "bridge/protocols"],
    "compile": ["compile/hooks", "compile/shardings"],
    "extend": ["extend/interpretation", "extend/derivatives", "extend/operations"],
    "func": ["func/module_state"],
    "methods": ["methods/functions", "methods/placement", "methods/shapes", "methods/text"],
    "implicit": ["implicit/"],
    "taylor": ["taylor/"],
    "laplacians": ["laplacians/"],
    "profiling": ["profiling/"],
    "sparse": ["sparse/"],
    "testing": ["testing/"],
    "torch": ["torch/"],
    "transforms": ["transforms/transposition"],
    "views": ["views/masked_parts"],
    "viz": ["viz/"],
}  # fmt: skip
# Tools that code of the library looks up when it runs, by ``tool("...")``, ``import_module`` or a table.
LOOKED_UP = {"bridge", "compile", "formulas", "hints", "methods", "views"}
# Public modules of the library, and those of tools.
PUBLIC = {
    "fad",
    *"""fad.autograd fad.autograd.forward_ad fad.autograd.function fad.autograd.functional
    fad.autograd.grad_mode fad.autograd.graph fad.errors fad.extend fad.extend.types fad.func
    fad.lax fad.lax.linalg fad.nn fad.numpy fad.numpy.fft fad.numpy.linalg fad.random fad.scipy
    fad.formulas fad.implicit fad.taylor fad.testing fad.viz""".split(),
}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def tool_of(module: str) -> str | None:
    """The tool that a module is part of; None for the library."""
    path = module.removeprefix("fad.").replace(".", "/") + "/"
    fits = [
        (len(start), tool) for tool, all in TOOLS.items() for start in all if path.startswith(start)
    ]
    return max(fits)[1] if fits else None


def imports(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of each name of fad that is imported or read off a module that is imported."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fad":
            for alias in node.names:
                if f"{node.module}.{alias.name}" in MODULES:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    yield f"{node.module}.{alias.name}", ""
                else:
                    yield str(node.module), alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in MODULES:
                    modules[alias.asname or alias.name] = alias.name
                    yield alias.name, ""
    for node in ast.walk(tree):
        of = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(of, ast.Name) and of.id in modules:
            yield modules[of.id], node.attr  # type: ignore[attr-defined]


def looked_up(source: str) -> set[str]:
    """The modules of fad that ``tool("...")`` or ``import_module("fad....")`` name in a source."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function, name = ast.unparse(node.func), str(node.args[0].value)
            if function == "tool":
                assert f"fad.{name}" in MODULES, name
                modules.add(f"fad.{name}")
            elif function.endswith("import_module") and name.startswith("fad."):
                modules.add(name)
    return modules


def is_public(module: str, name: str) -> bool:
    if module not in PUBLIC:
        return False
    found = importlib.import_module(module)
    return not name or name in getattr(found, "__all__", dir(found))


def internal_names(tool: str) -> set[str]:
    """The names, with their modules, that a tool takes from inside of the library or of other tools."""
    found = set()
    for module, path in MODULES.items():
        if tool_of(module) == tool:
            for source, name in imports(path.read_text()):
                if tool_of(source) != tool and name and not is_public(source, name):
                    found.add(f"{source}.{name}")
    return found


def test_tools_take_public_names_alone() -> None:
    taken = {tool: sorted(internal_names(tool)) for tool in TOOLS}
    assert {tool: names for tool, names in taken.items() if names} == {}


def test_the_library_imports_no_tool() -> None:
    """What is public in `fad`, `fad.autograd` is looked up later, see `fad.core.faces`."""
    sources = {m: path.read_text() for m, path in MODULES.items() if tool_of(m) is None}
    wrong = [
        f"{module} imports {source}"
        for module, text in sources.items()
        for source, _ in imports(text)
        if tool_of(source) is not None
    ]
    assert not wrong, "\n".join(wrong)
    later = {tool_of(name): module for module, text in sources.items() for name in looked_up(text)}
    later |= {tool_of(f"fad.{name}"): "fad.methods" for name in methods.LATER}
    assert later.keys() - {None} == LOOKED_UP, later


def test_the_library_is_counted_without_them() -> None:
    outside = pytest.importorskip("benchmarks.size").OUTSIDE
    assert {*outside} == {"replay/", *[start for starts in TOOLS.values() for start in starts]}


def test_the_contract_is_small() -> None:
    extend = importlib.import_module("fad.extend")
    types = importlib.import_module("fad.extend.types")
    assert len(extend.__all__) + len(types.__all__) <= 80


def test_the_page_lists_the_contract() -> None:
    extend = importlib.import_module("fad.extend")
    page = (ROOT / "docs" / "extending.md").read_text().partition("## All names")[2]
    assert {name for name in extend.__all__ if f"`{name}`" not in page} == set()


def test_what_is_counted() -> None:
    text = "from fad.core import trees\nfrom fad.core.level import bind\nimport fad\nfad.grad(trees.f)\n"
    found = set(imports(text))
    assert {("fad.core.level", "bind"), ("fad.core.trees", "f"), ("fad", "grad")} <= found
    text = "tool('hints.calls').f()\nimportlib.import_module('fad.viz')\nimport_module('jax')\n"
    assert looked_up(text) == {"fad.hints.calls", "fad.viz"}
    assert is_public("fad", "grad") and not is_public("fad.core.level", "bind")
    assert not is_public("fad", "core") and not is_public("fad.extend", "_face")


if __name__ == "__main__":
    for tool in TOOLS:
        found = sorted(internal_names(tool))
        print(tool, len(found))
        print(*[f"    {name}" for name in found], sep="\n")
    print(len({name for tool in TOOLS for name in internal_names(tool)}), "in all")
