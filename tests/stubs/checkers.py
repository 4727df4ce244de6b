"""Runs mypy and pyright in their strict modes, and reads what they say of each line."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.stubs.stubs import ROOT

__all__ = ["CHECKERS", "Findings", "check", "normal"]

CHECKERS = ("mypy", "pyright")
# pyright as it is on PyPI brings its own node.
MISSING = [name for name in CHECKERS if importlib.util.find_spec(name) is None]
ALSO = [
    "--strict",
    "--follow-imports=silent",
    "--no-error-summary",
    "--show-error-codes",
]


@dataclasses.dataclass
class Findings:
    """What a checker says of a file, by line: the types that it reveals, and its errors."""

    types: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    errors: dict[int, list[str]] = dataclasses.field(default_factory=dict)


def check(checker: str, folder: Path) -> dict[str, Findings]:
    """The findings of a checker in each file of a folder, by the name of the file."""
    return (_mypy if checker == "mypy" else _pyright)(folder)


def _run(command: list[str], folder: Path) -> str:
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


def _mypy(folder: Path) -> dict[str, Findings]:
    cache = ["--cache-dir", str(folder / "cache"), "--config-file="]
    return _read(_run(["mypy", *ALSO, *cache, "."], folder))


def _read(output: str) -> dict[str, Findings]:
    """The findings in mypy's output."""
    found: dict[str, Findings] = {}
    for line in output.splitlines():
        match = re.match(r"(\w+\.py):(\d+): (\w+): (.*)", line)
        if match is None:
            raise RuntimeError(line)
        file, number, kind, text = match.groups()
        findings = found.setdefault(file, Findings())
        revealed = re.fullmatch(r'Revealed type is "(.*)"', text)
        if revealed:
            findings.types.setdefault(int(number), []).append(normal(revealed[1]))
        elif kind == "error":
            findings.errors.setdefault(int(number), []).append(text)
    return found


def _pyright(folder: Path) -> dict[str, Findings]:
    settings = {"typeCheckingMode": "strict", "include": ["."], "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    output = _run(["pyright", "--outputjson", "--pythonpath", sys.executable], folder)
    found: dict[str, Findings] = {}
    for entry in json.loads(output[output.index("{") :])["generalDiagnostics"]:
        findings = found.setdefault(Path(entry["file"]).name, Findings())
        number = entry["range"]["start"]["line"] + 1
        revealed = re.fullmatch(r'Type of ".*" is "(.*)"', entry["message"], re.DOTALL)
        if entry["severity"] == "information" and revealed:
            findings.types.setdefault(number, []).append(normal(revealed[1]))
        else:
            findings.errors.setdefault(number, []).append(entry["message"])
    return found


def normal(text: str) -> str:
    """A type as one text: without the names of modules, the members of unions in order."""
    short = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    try:
        return _ordered(ast.parse(short, mode="eval").body)
    except SyntaxError:
        return short


def _ordered(node: ast.expr) -> str:
    members = _members(node)
    if "int" in members:
        members -= {"bool"}  # which mypy leaves out: it is a subclass
    return " | ".join(sorted(members))


def _members(node: ast.expr) -> set[str]:
    if isinstance(node, ast.BinOp):
        return _members(node.left) | _members(node.right)
    if isinstance(node, ast.Subscript):
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if ast.unparse(node.value) == "Union":
            return {m for e in entries for m in _members(e)}
        return {f"{ast.unparse(node.value)}[{', '.join([_ordered(e) for e in entries])}]"}
    return {ast.unparse(node)}
