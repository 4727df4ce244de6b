"""Each NOTE begins with a program, which runs: it would fail without what the NOTE describes."""

from __future__ import annotations

import ast
import functools
import gc
import re
import textwrap
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp

ROOMS = ("core", "tape", "views", "functions", "transforms", "compile")
TITLE = re.compile(r"^(?P<lead> *|# )NOTE \[(?P<title>[^\]]+)\]\n", re.MULTILINE)
RAISES = re.compile(r"# raises (\w+)")


def notes() -> dict[str, str]:
    """What follows each title, by its place."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / "fad" / room).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            for title in TITLE.finditer(text):
                lines = text[title.end() :].split("\n")
                body = [line.removeprefix(title["lead"].rstrip(" ")) for line in lines]
                if title["lead"] == "# ":
                    body = [line.removeprefix(" ") for line in body]
                found[f"{room}/{path.stem}: {title['title']}"] = textwrap.dedent("\n".join(body))
    return found


def program(text: str) -> str:
    """The indented lines that a NOTE begins with."""
    lines = text.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    kept = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) < max(margin, 4):
            break
        kept.append(line)
    return textwrap.dedent("\n".join(kept)).strip()


NOTES = {name: program(text) for name, text in notes().items()}


def function(**members: Any) -> Any:
    """A Function with these rules and settings."""
    rules = {k: staticmethod(v) if callable(v) else v for k, v in members.items()}
    return type(fad.Function)("F", (fad.Function,), rules)


def run(code: str) -> None:
    """Run a program, on a leaf ``x`` and an ``array``; a statement with ``# raises E`` raises E.

    ``function(forward=..., vjp=...)`` makes a Function.
    """
    space: dict[str, Any] = {
        "array": fnp.linspace(0.5, 1.5, 7).array,
        "fad": fad,
        "fnp": fnp,
        "function": function,
        "functools": functools,
        "gc": gc,
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "threading": threading,
        "x": fad.tensor(2.0, requires_grad=True),
    }
    for statement in ast.parse(code).body:
        source = "\n".join(code.split("\n")[statement.lineno - 1 : statement.end_lineno])
        expected = RAISES.search(source)
        if expected is None:
            exec(source, space)
        else:
            with pytest.raises(Exception) as caught:
                exec(source, space)
            assert expected[1] in [kind.__name__ for kind in type(caught.value).__mro__]


@pytest.mark.parametrize("name", NOTES)
def test_the_program_of_a_note(name: str) -> None:
    before = set(threading.enumerate())
    assert NOTES[name], "it has no program"
    run(NOTES[name])
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join()


def test_it_finds_what_is_wrong() -> None:
    run("1 / 0  # raises ZeroDivisionError")
    with pytest.raises(AssertionError):
        run("1 / 0  # raises KeyError")
    with pytest.raises(AssertionError):
        run(program("    assert 1 == 2\n\nText.\n"))
    assert program("Text.") == ""
