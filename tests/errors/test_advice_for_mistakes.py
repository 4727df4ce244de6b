"""Mistakes of real use: fad says what was got, and what to write; docs/what-errors-tell.md lists them."""

from __future__ import annotations

import re
from typing import Any

import jax
import pytest
from helpers import ROOT
from mistakes import OF_JAX, OF_TORCH, Mistake

from fad.hints.tracebacks import shown

PAGE = ROOT / "docs" / "what-errors-tell.md"
ALL = (*OF_TORCH, *OF_JAX)


def said(error: BaseException) -> str:
    """What a user reads of an error that nothing catches: texts and notes, those of its causes too."""
    texts = []
    with shown(error):
        e: BaseException | None = error
        while e is not None:
            texts += [str(e), *getattr(e, "__notes__", ())]
            e = e.__cause__ or e.__context__
    return "\n".join(texts)


def name(mistake: Mistake) -> str:
    return mistake.what


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("mistake", ALL, ids=name)
def test_fad_says_what_to_write(mistake: Mistake) -> None:
    with pytest.raises(Exception) as caught:  # which class, test_misuses says
        mistake.program()
    text = said(caught.value)
    for words in mistake.words:
        assert words in text, text


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("mistake", [m for m in OF_TORCH if m.says], ids=name)
def test_what_pytorch_says_is_as_in_the_table(mistake: Mistake) -> None:
    torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")
    with pytest.raises(Exception) as caught:
        mistake.peer(torch)
    assert mistake.says in str(caught.value)


@pytest.mark.parametrize("mistake", OF_JAX, ids=name)
def test_what_jax_says_is_as_in_the_table(mistake: Mistake) -> None:
    with pytest.raises(Exception) as caught:
        mistake.peer(jax)
    assert mistake.says in str(caught.value)


def row(mistake: Mistake) -> str:
    """A mistake as a line of the page's table."""
    link, _, anchor = mistake.page.partition("#")
    target = f"#{anchor}" if link == PAGE.name else mistake.page
    title = _heading(anchor, link)
    says = f"`{mistake.says}`" if mistake.says else ""
    return f"| {mistake.what} | {says} | `{mistake.words[-1]}` | [{title}]({target}) |"


def _heading(anchor: str, page: str) -> str:
    """The heading that an anchor of a page is of."""
    text = (ROOT / "docs" / page).read_text()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        if re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") == anchor:
            return re.sub(r"^\d+\. ", "", heading)
    raise AssertionError(f"{page} has no heading #{anchor}")


@pytest.mark.parametrize(("title", "table"), [("PyTorch", OF_TORCH), ("JAX", OF_JAX)])
def test_the_page_lists_them(title: str, table: tuple[Mistake, ...]) -> None:
    section = PAGE.read_text().partition(f"### {title}")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    assert rows[1:] == [row(m) for m in table], "\n".join(map(row, table))


def test_there_are_fifty() -> None:
    assert len({m.what for m in ALL}) == len(ALL) >= 50


def test_a_note_on_lines_needs_the_word_in_the_line() -> None:
    def run(x: Any) -> Any:
        return 0.1 * x

    with pytest.raises(TypeError) as caught:
        run(None)
    assert "x.grad" not in said(caught.value)
