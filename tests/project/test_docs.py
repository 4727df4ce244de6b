"""Every code block in README and docs/ runs, and says truly what it prints; so do all doctests.

The ```python blocks of one page run in order and share a namespace, as a reader would type them.
What a line gives stands behind it, or below it:

    fad.grad(f)(2.0)        # -> 4.0
    print(a, b)             # -> 1 2
    x = fnp.arange(3)       # -> [0 1 2]
    fad.grad(f)(2)          # raises TypeError: an integer

A stated number may be rounded, and `...` stands for anything. Blocks of `>>>` examples and ```pycon
blocks are doctests. Only blocks with another language (```text, ```bash) and directives
(```{toctree}) are not run, nor is what draws a figure where matplotlib is not installed, nor a page that
imports what is not: `EXTRAS` says which extra has it. With `-m extra` only pages run for which the extra
`test` is not enough.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import io
import math
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "fad").rglob("*.py"))
SOURCES += sorted(set((ROOT / "tests/fuzzing").glob("*.py")) - set(ROOT.rglob("test_*.py")))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
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


def docstrings(path: Path) -> Iterator[tuple[str, str, int]]:
    """(qualified name, docstring, line) of the docstrings written in a file.

    Read from the source and not from the objects, because the functions of `fad.numpy` and its
    like have the docstrings of their JAX twins, whose examples are JAX's.
    """

    def visit(node: Any, name: str) -> Iterator[tuple[str, str, int]]:
        text = ast.get_docstring(node, clean=False)
        if text and ">>>" in text:
            yield name, text, node.body[0].lineno - 1
        for child in ast.walk(node) if isinstance(node, ast.Module) else node.body:
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and id(child) not in seen:
                seen.add(id(child))
                yield from visit(child, f"{name}.{child.name}")

    seen: set[int] = set()
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
