"""The size of fad: lines, and lines of code, of each room.

    python -m benchmarks.size

Lines of code are those that are neither empty, nor a comment, nor part of a docstring. The library is all but
replay and the tools.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

__all__ = ["Size", "lines_of_code", "module_sizes"]

# Replay and the tools, by how the paths of their files begin: all else is the library.
OUTSIDE = """autograd/builtin_nodes autograd/functional autograd/host_memory autograd/nested
    bridge/custom_rules bridge/numpy_calls bridge/protocols compile/hooks
    compile/shardings extend/derivatives extend/interpretation extend/operations formulas/
    func/module_state hints/ implicit/ laplacians/ methods/functions methods/placement methods/shapes
    methods/text nn/losses nn/utils profiling/ replay/ sparse/ taylor/ testing/ torch/
    transforms/transposition views/masked_parts viz/""".split()
PACKAGE = Path(__file__).resolve().parents[1] / "fad"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


class Size(NamedTuple):
    """Of a module or a room."""

    modules: int
    lines: int
    code: int

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(*map(sum, zip(self, other, strict=True)))


def lines_of_code(source: str) -> int:
    """How many lines of a Python source have code on them."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                found -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(found)


def module_sizes(package: Path = PACKAGE) -> dict[str, Size]:
    """The size of each module, by its path in the package."""
    sizes = {}
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        size = Size(1, len(source.splitlines()), lines_of_code(source))
        sizes[path.relative_to(package).as_posix()] = size
    return sizes


def main() -> int:
    """Print the table."""
    rooms: dict[str, Size] = defaultdict(lambda: Size(0, 0, 0))
    for module, size in module_sizes().items():
        room = module.partition("/")[0].removesuffix(".py")
        library = [] if module.startswith(tuple(OUTSIDE)) else ["library"]
        if library and room != "rolling":  # an accelerator too, behind its protocol as replay is
            library.append("but rolling")
        for row in (room, "all", *library, *(["all but testing"] if room != "testing" else [])):
            rooms[row] = rooms[row].plus(size)
    totals = {row: rooms.pop(row) for row in ("library", "but rolling", "all but testing", "all")}
    print(f"{'room':16} {'modules':>8} {'lines':>8} {'code':>8}")
    for room, size in [*sorted(rooms.items(), key=lambda r: -r[1].lines), *totals.items()]:
        print(f"{room:16} {size.modules:8,} {size.lines:8,} {size.code:8,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
