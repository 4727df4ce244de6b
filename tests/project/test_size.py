"""No module is longer than what one reads at once; the script that measures the rooms counts right."""

from __future__ import annotations

import re

import pytest

size = pytest.importorskip("benchmarks.size")

LONGEST = 900


def test_no_module_is_too_long():
    sizes = size.module_sizes()
    over = {module: s.lines for module, s in sizes.items() if s.lines > LONGEST}
    assert not over, f"over {LONGEST} lines: {over}"


def test_lines_of_code():
    source = '''"""Of a
module."""

# A comment.
x = 1  # Another.


def f(
    a,
):
    """What it does."""
    return """a
    string"""
'''
    assert size.lines_of_code(source) == 6
    assert size.lines_of_code("") == 0


def test_it_prints(capsys):
    assert size.main() == 0
    table = capsys.readouterr().out
    found = re.findall(r"^([a-z_ ]+?) +\d+ +([\d,]+) ", table, re.MULTILINE)
    rows = {room: int(lines.replace(",", "")) for room, lines in found}
    sizes = size.module_sizes()
    assert rows["all"] == sum(s.lines for s in sizes.values())
    assert rows["core"] == sum(s.lines for m, s in sizes.items() if m.startswith("core/"))
    assert rows["library"] < rows["all but testing"] < rows["all"]
