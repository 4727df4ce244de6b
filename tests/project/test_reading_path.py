"""The reading path: what `fad.grad(fad.numpy.sin)(x)` calls inside of fad is bounded, and in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

reading_path = pytest.importorskip("benchmarks.reading_path")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-a-call-travels.md"
ROW = re.compile(r"^\| `([\w.]+)` \| `([\w.]+)` \| .+ \|$", re.MULTILINE)


def test_it_is_short():
    steps = reading_path.path()
    assert len(steps) <= reading_path.CALLS
    assert len({s.module for s in steps}) <= reading_path.MODULES


def test_the_docs_tell_it_in_order():
    found = dict.fromkeys(
        (s.function.replace(".<locals>", ""), s.module.removeprefix("fad."))
        for s in reading_path.path()
    )
    assert ROW.findall(PAGE.read_text(encoding="utf-8")) == list(found)


def test_it_prints(capsys):
    assert reading_path.main() == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match(r"\d+ calls of \d+ functions in \d+ modules: ", last)
