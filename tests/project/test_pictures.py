"""Pictures of pages are those that the code beside them makes: the same boxes, edges and parts."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from drawn_graphs import of_dot
from helpers import ROOT

from fad import viz

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))
import pictures  # noqa: E402

sys.path.remove(str(DOCS / "_site"))

SVG = "{http://www.w3.org/2000/svg}"


def of_svg(svg: str) -> dict[str, Any]:
    """What a picture shows: texts without numbers of nodes, nodes and edges, how many images there are."""
    tree = ET.fromstring(svg)
    texts = ["".join(text.itertext()) for text in tree.iter(f"{SVG}text")]
    titles = [title.text or "" for title in tree.iter(f"{SVG}title")]
    return {
        "texts": sorted([re.sub(r"#\d+", "#", text) for text in texts]),
        "nodes": sorted([t for t in titles if re.fullmatch(r"b\d+", t)]),
        "edges": sorted([t for t in titles if "->" in t]),
        "images": len(list(tree.iter(f"{SVG}image"))),
    }


def of_graph(dot: str) -> dict[str, Any]:
    """The same, of the picture that Graphviz draws of a DOT text."""
    nodes, edges = of_dot(dot)
    groups = re.findall(r'^ *label="([^"]*)";', dot, re.M)
    lines = [line for label in nodes.values() for line in label.split(r"\n")]
    times = [f"{count}×" for count in edges.values() if count > 1]
    return {
        "texts": sorted([re.sub(r"#\d+", "#", text) for text in [*groups, *lines, *times]]),
        "nodes": sorted(nodes),
        "edges": sorted([f"{a}->{b}" for a, b in edges]),
        "images": 0,
    }


@pytest.mark.parametrize("page", pictures.PAGES)
def test_pictures_are_those_of_the_code(page: str) -> None:
    found = pictures.pictures(DOCS / page)
    assert found
    for file, shown in found.items():
        again = f"{file.name} is not what the page makes: run python docs/_site/pictures.py"
        now = of_graph(shown.dot()) if isinstance(shown, viz.Graph) else of_svg(shown.svg())
        assert of_svg(file.read_text(encoding="utf-8")) == now, again


def test_every_picture_is_shown() -> None:
    shown = "".join([(DOCS / page).read_text(encoding="utf-8") for page in pictures.PAGES])
    for file in (DOCS / "images").glob("*.svg"):
        assert f"(images/{file.name})" in shown


def test_a_picture_that_is_another_one_is_found(tmp_path: Path) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><title>b0</title><text>leaf #1</text></svg>'
    assert of_svg(svg) == of_svg(svg.replace("#1", "#7")) == of_graph('b0 [label="leaf #3"];')
    assert of_svg(svg) != of_svg(svg.replace("leaf #1", "Sin #1"))
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\n![one](images/a.svg)\n![no](wave.png)\n")
    assert pictures.pictures(page) == {tmp_path / "images/a.svg": 1}
