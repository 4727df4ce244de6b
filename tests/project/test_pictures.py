"""Pictures of pages are those that the code beside them makes: the same boxes, edges and parts."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))
import pictures  # noqa: E402

sys.path.remove(str(DOCS / "_site"))

SVG = "{http://www.w3.org/2000/svg}"


def structure(svg: str) -> dict[str, Any]:
    """What a picture shows: texts without numbers of nodes, edges, how many images there are."""
    tree = ET.fromstring(svg)
    texts = ["".join(text.itertext()) for text in tree.iter(f"{SVG}text")]
    edges = [
        (path.attrib["data-from"], path.attrib["data-to"])
        for path in tree.iter(f"{SVG}path")
        if "data-from" in path.attrib
    ]
    return {
        "texts": sorted([re.sub(r"#\d+", "#", text) for text in texts]),
        "edges": sorted(edges),
        "boxes": sorted([g.attrib["class"] for g in tree.iter(f"{SVG}g") if "id" in g.attrib]),
        "images": len(list(tree.iter(f"{SVG}image"))),
    }


@pytest.mark.parametrize("page", pictures.PAGES)
def test_pictures_are_those_of_the_code(page: str) -> None:
    pytest.importorskip("fast_sugiyama", reason="places boxes (extra: viz)")
    found = pictures.pictures(DOCS / page)
    assert found
    for file, shown in found.items():
        again = f"{file.name} is not what the page makes: run python docs/_site/pictures.py"
        assert structure(file.read_text(encoding="utf-8")) == structure(shown.svg()), again


def test_every_picture_is_shown() -> None:
    shown = "".join([(DOCS / page).read_text(encoding="utf-8") for page in pictures.PAGES])
    for file in (DOCS / "images").glob("*.svg"):
        assert f"(images/{file.name})" in shown


def test_a_picture_that_is_another_one_is_found(tmp_path: Path) -> None:
    box = '<g class="leaf" id="b1"><text>leaf #1</text></g>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg">{box}</svg>'
    assert structure(svg) == structure(svg.replace("#1", "#7"))
    assert structure(svg) != structure(svg.replace("leaf #1", "Sin #1"))
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\n![one](images/a.svg)\n![no](wave.png)\n")
    assert pictures.pictures(page) == {tmp_path / "images/a.svg": 1}
