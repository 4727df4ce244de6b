"""Runs the code blocks of pages and says where one does not give what it states: also as a program.

`python tests/helpers/pages.py PAGE...` pastes each page into a Python of its own, as a reader would, and
needs what the page imports alone.

The ```python blocks of one page run in order and share a namespace.
What a line gives stands behind it, or below it:

    fad.grad(f)(2.0)        # -> 4.0
    print(a, b)             # -> 1 2
    x = fnp.arange(3)       # -> [0 1 2]
    fad.grad(f)(2)          # raises TypeError: an integer

A stated number may be rounded, and `...` stands for anything. Blocks of `>>>` examples and ```pycon
blocks are doctests. Only blocks with another language (```text, ```bash) and directives
(```{toctree}) are not run.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import math
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from xla_flags import with_flags

import fad

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
BRACKET = re.compile(r" ?([\[\](){},:=]) ?")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")


@dataclass
class Block:
    """A fenced block of a page: its language, its text, and the line its text starts on."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a Markdown text."""
    found: list[Block] = []
    fence: tuple[str, str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(page.splitlines(), 1):
        match = re.match(r"^(\s*)(`{3,}|~{3,})\s*([\w+{}-]*)", line)
        if fence is None and match:
            fence = (*match.groups(), number + 1)  # type: ignore[assignment]
            body = []
        elif fence is not None and line.strip() == fence[1]:
            text = "\n".join(row.removeprefix(fence[0]) for row in body) + "\n"
            found.append(Block(fence[2], text, fence[3]))
            fence = None
        elif fence is not None:
            body.append(line)
    assert fence is None, f"the block that starts in line {fence[3]} has no end" if fence else ""
    return found


def stated(block: str) -> dict[int, str]:
    """What the comments of a block state, by line: `-> ...` or `raises ...`."""
    found: dict[int, str] = {}
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(block).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        text = token.string.lstrip("#").strip()
        whole_line = not token.line[: token.start[1]].strip()
        if text.startswith(("-> ", "raises ")):
            found[line] = text
            previous = line if whole_line else None
        elif whole_line and previous == line - 1 and token.string.startswith("#    "):
            # An indented comment below goes on with what was stated.
            found[line] = text
            previous = line
        else:
            previous = None
    return found


def plain(value: Any) -> Any:
    """The value with arrays and Tensors as lists and numbers, for output that is easy to read."""
    return jax.tree.map(
        lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else leaf,
        value,
        is_leaf=lambda leaf: isinstance(leaf, fad.Tensor),
    )


def same_text(expected: str, got: str) -> bool:
    """Whether the texts agree, white space aside; a number agrees to the digits stated."""
    expected, got = (BRACKET.sub(r"\1", " ".join(t.split())) for t in (expected, got))
    wanted, numbers = NUMBER.findall(expected), NUMBER.findall(got)
    if "..." in expected:
        pattern = ".*".join(re.escape(part.strip()) for part in expected.split("..."))
        return re.fullmatch(pattern, got) is not None
    if NUMBER.sub("#", expected) != NUMBER.sub("#", got) or len(wanted) != len(numbers):
        return False
    return all(same_number(a, b) for a, b in zip(wanted, numbers, strict=True))


def same_number(expected: str, got: str) -> bool:
    mantissa, _, exponent = expected.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits)
    # A stated integer is exact up to float rounding; "0.3" is anything that rounds to it.
    slack = unit * 0.51 if digits else 0.0
    return math.isclose(float(expected), float(got), rel_tol=1e-5, abs_tol=slack)


def check_output(where: str, expected: str, value: Any, printed: str) -> None:
    seen = [printed] if printed else [str(value), repr(value), str(plain(value))]
    if hasattr(value, "tolist") and not printed:
        seen.append(str(np.array(plain(value), value.dtype)))
    if not any(same_text(expected, text) for text in seen):
        raise AssertionError(f"{where} states {expected!r} but gives {seen[-1]!r}")


def code(page: Path) -> str:
    """All that runs of a page."""
    found = blocks(page.read_text())
    return "\n".join(block.text for block in found if block.language in ("python", "pycon"))


def run_block(block: Block, namespace: dict[str, Any], page: str) -> None:
    """Runs a block statement by statement, so that what a line states can be compared."""
    if block.language == "pycon" or re.search(r"^\s*>>> ", block.text, re.MULTILINE):
        run_doctest(block.text, namespace, page, block.line - 1)
        return
    comments = stated(block.text)
    statements = ast.parse("\n" * (block.line - 1) + block.text, page).body
    starts = [statement.lineno - block.line + 1 for statement in statements] + [10**9]
    for statement, next_start in zip(statements, starts[1:], strict=True):
        last = (statement.end_lineno or 0) - block.line + 1
        here = " ".join(comments[k] for k in sorted(comments) if last <= k < next_start)
        run_statement(statement, here, namespace, page)


def run_statement(statement: ast.stmt, expected: str, namespace: dict[str, Any], page: str) -> None:
    where = f"{page}:{statement.lineno}"
    shown: ast.expr | None = None
    if isinstance(statement, ast.Expr):
        shown = statement.value
    elif isinstance(statement, ast.Assign):
        # The name is read back as a value.
        shown = ast.parse(ast.unparse(statement.targets[0]), page, "eval").body
    printed = io.StringIO()
    value = None
    try:
        with contextlib.redirect_stdout(printed):
            if not isinstance(statement, ast.Expr):
                exec(compile(ast.Module([statement], []), page, "exec"), namespace)
            if shown is not None and (expected or isinstance(statement, ast.Expr)):
                value = eval(compile(ast.Expression(shown), page, "eval"), namespace)
    except Exception as error:
        if not expected.startswith("raises "):
            raise
        check_error(where, expected, error)
        return
    if expected.startswith("raises "):
        raise AssertionError(f"{where} states {expected!r} but raises nothing")
    if expected:
        wanted = " ".join(part.strip() for part in expected.split("->")[1:])
        check_output(where, wanted, value, printed.getvalue())


def check_error(where: str, expected: str, error: Exception) -> None:
    name, _, message = expected.removeprefix("raises ").partition(":")
    names = [cls.__name__ for cls in type(error).__mro__]
    text = " ".join(str(error).split())
    parts = [" ".join(part.split()) for part in message.split("...")]
    if name.strip().rpartition(".")[2] not in names or not all(part in text for part in parts):
        raise AssertionError(
            f"{where} states {expected!r} but raises {type(error).__name__}: {text}"
        ) from error


def run_doctest(text: str, namespace: dict[str, Any], name: str, line: int) -> None:
    """Runs `>>>` examples in `namespace`; what fails is reported with its line in the file."""
    test = doctest.DocTestParser().get_doctest(text, namespace, name, name, line)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    report = io.StringIO()
    runner.run(test, out=report.write, clear_globs=False)
    namespace.update(test.globs)
    assert not runner.failures, report.getvalue()


@contextlib.contextmanager
def restored_jax() -> Iterator[None]:
    """A page may switch float64 on, or another cache on disk; the next one starts without."""
    before, folder = jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
        fad.autograd.compiled.cache_on_disk(folder)


def run_page(page: Path) -> None:
    """Runs the blocks of a page in the working folder."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.language in ("python", "pycon"):
            run_block(block, namespace, str(page))


def main(pages: list[str]) -> int:
    if len(pages) == 1:
        page = Path(pages[0]).absolute()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run_page(page)
        return 0
    failed = []
    flags = with_flags(os.environ.get("XLA_FLAGS", ""))
    environment = {**os.environ, "MPLBACKEND": "agg", "XLA_FLAGS": flags}
    for name in pages:
        print(name, flush=True)
        if subprocess.run([sys.executable, __file__, name], env=environment).returncode:
            failed.append(name)
    print(*(f"failed: {name}" for name in failed), sep="\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
