"""Links between the pages of the project lead somewhere: to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)


def links(text: str) -> Iterator[str]:
    """The targets of the links of a page, without those of code."""
    yield from LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The names by which its headings are linked to, as Markdown hosts make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in links(text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or path.startswith("reference/"):
            continue  # outside; or made when the site is built, where its checker looks
        other = page.parent / path if path else page
        is_there = other.exists()
        if is_there and anchor:
            is_there = anchor in anchors(text if other == page else other.read_text())
        if not is_there:
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_links_that_lead_nowhere_are_found() -> None:
    page = ROOT / "docs" / "views.md"
    text = "# A `name`, twice\n[a](graph.md#nodes) [b](none.md) [c](#a-name-twice) [d](#none) `[e](none.md)`"
    assert broken(page, text) == ["none.md", "#none"]
