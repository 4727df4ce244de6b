"""SVG and the page: what is drawn is what the graph has, in one file without a network."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from drawn_graphs import Halve, Step, chain, of_dot

import fad
import fad.numpy as fnp
from fad import viz
from fad.viz import layout

pytest.importorskip("fast_sugiyama", reason="places boxes (extra: viz)")

SVG = "{http://www.w3.org/2000/svg}"


def example() -> viz.Graph:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = Halve.apply(x)
    for _ in range(6):
        y = fnp.tanh(y) * x
    return viz.graph(y.sum())


def boxes(svg: str) -> dict[str, list[str]]:
    """The lines of each box that is drawn, by its name."""
    return {
        g.attrib["id"]: [span.text or "" for span in g.iter(f"{SVG}tspan")]
        for g in ET.fromstring(svg).iter(f"{SVG}g")
        if "id" in g.attrib and "display:none" not in g.attrib.get("style", "")
    }


def edges(svg: str) -> list[tuple[str, str]]:
    paths = ET.fromstring(svg).iter(f"{SVG}path")
    return [
        (f"b{p.attrib['data-from']}", f"b{p.attrib['data-to']}")
        for p in paths
        if "data-to" in p.attrib
    ]


def test_the_picture_has_the_boxes_and_edges_of_the_dot_text() -> None:
    graph = example()
    drawn = boxes(graph.svg())
    labels, pairs = of_dot(graph.dot())
    assert {name: r"\n".join(lines) for name, lines in drawn.items() if name in labels} == labels
    frames = {name: lines for name, lines in drawn.items() if name not in labels}
    assert list(frames.values()) == [["6 × 2 nodes"]]
    assert sorted(edges(graph.svg())) == sorted(pairs)


def test_pictures_of_no_node_and_of_one() -> None:
    assert boxes(viz.graph(fad.tensor(1.0)).svg()) == {}
    (lines,) = boxes(viz.graph(fad.tensor(1.0, requires_grad=True)).svg()).values()
    assert lines == ["leaf", "float32[]", "→ result"]


def test_names_are_escaped() -> None:
    graph = viz.graph(Step("</script><b>&", Step("end")))
    assert "</script><b>&" in str(boxes(graph.svg()))
    assert graph.html().count("</script>") == 2


def data_of(html: str) -> Any:
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])  # type: ignore[index]


def test_the_page_has_all_boxes_and_needs_no_network() -> None:
    graph = example()
    html = graph.html()
    data = data_of(html)
    assert len(data["boxes"]) == len(json.loads(graph.json())["boxes"]) + 1
    for number, *_ in data["boxes"][1:]:
        assert f'id="b{number}"' in html
    fetched = re.findall(r"""(?:src|href)=["'][^"']*|https?://[^"' ]*|@\w+@""", html)
    assert set(fetched) == {"http://www.w3.org/2000/svg"}


def test_the_page_of_a_large_graph_stays_small() -> None:
    node = Step("end")
    for k in range(20_000):
        node = Step(f"n{k}", node)
    html = viz.graph(node).html()
    assert len(html) < 5_000_000
    assert 150 < len(data_of(html)["boxes"]) <= 3_000


def test_the_script_computes_places_as_python_does() -> None:
    script = resources.files("fad.viz").joinpath("page.js").read_text(encoding="utf-8")
    line = "const GAP = {:g}, ROW_GAP = {:g}, PAD = {:g}, TITLE = {:g};"
    assert line.format(layout.GAP, layout.ROW_GAP, layout.PAD, layout.TITLE) in script


def test_in_a_notebook() -> None:
    graph = viz.graph(chain(2))
    assert graph._repr_svg_() == graph.svg()
    shown = graph._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;') and shown.count("<") == 2


def test_files_of_pictures(tmp_path: Path) -> None:
    graph = viz.graph(chain(2))
    graph.save(tmp_path / "a.svg")
    graph.save(tmp_path / "a.html")
    assert (tmp_path / "a.svg").read_text() == graph.svg()
    assert (tmp_path / "a.html").read_text() == graph.html()
