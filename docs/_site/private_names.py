"""Writes the table of `docs/private-names.md`: the names of JAX that fad uses and JAX does not document.

    python docs/_site/private_names.py

A test compares the page with the code.
"""

from __future__ import annotations

from pathlib import Path

from fad.core.private_names import ATTRIBUTES, PRIVATE_NAMES

PAGE = Path(__file__).resolve().parents[1] / "private-names.md"
START = "| name | for | what public way was tried |\n|---|---|---|\n"


def table() -> str:
    """The rows, as Markdown."""
    names = {f"`{name}`": row for name, row in PRIVATE_NAMES.items()}
    names |= {f"attribute `{name}`": row for name, row in ATTRIBUTES.items()}
    return "".join([f"| {name} | {used} | {tried} |\n" for name, (used, tried) in names.items()])


def written(text: str) -> str:
    """The page with its table made anew."""
    before, _, after = text.partition(START)
    rest = after[after.index("\n\n") :] if "\n\n" in after else "\n"
    return before + START + table().rstrip() + rest


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
