"""SVG and the page: what is drawn is what the graph has, in one file without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from drawn_graphs import Halve, Step, chain, of_dot, tangle

import fad
import fad.numpy as fnp
from fad import viz
from fad.viz import layout
from fad.viz.drawing import lines_of, path_of
from fad.viz.folding import fold
from fad.viz.layout import coordinates, plan_of
from fad.viz.nodes import read, roots_of

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


def in_node(graph: viz.Graph, folder: Path, clicks: str) -> dict[str, Any]:
    """Where the script of the page puts boxes and edges, after clicks."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("runs the script of the page: Node.js")
    data, script = folder / "data.json", resources.files("fad.viz").joinpath("page.js")
    data.write_text(json.dumps(data_of(graph.html())))
    program = Path(__file__).parents[1] / "helpers" / "page_in_node.js"
    with resources.as_file(script) as file:
        done = subprocess.run(
            [node, program, data, file, clicks], capture_output=True, text=True, check=True
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("clicks", ["", "close", "close,open", "b1", "b1,b1", "b1,b2"])
def test_the_script_opens_and_closes_boxes(clicks: str, tmp_path: Path) -> None:
    node = tangle(40)
    drawn = read(roots_of(node))
    folded = fold(drawn, True, 6)
    graph = viz.graph(node, limit=6)
    found = in_node(graph, tmp_path, clicks)
    for click in filter(None, clicks.split(",")):
        for box in folded.boxes[1:]:
            if click in ("open", "close"):
                box.open = click == "open"
            elif click == f"b{box.number}":
                box.open = not box.open
    plan = plan_of(drawn, folded, 10_000)
    at = coordinates(plan)
    expected = {f"b{number}": place for number, place in at.items() if number > 0}
    assert found["places"].keys() == expected.keys()
    for name, place in expected.items():
        assert found["places"][name] == pytest.approx(place)
    lines = {(a, b): d for a, b, d in found["lines"]}
    assert lines.keys() == {line.ends for line in lines_of(plan, at)}
    for line in lines_of(plan, at):
        numbers = [float(x) for x in re.findall(r"[-\d.]+(?:e-?\d+)?", lines[line.ends])]
        assert numbers == pytest.approx(
            [float(x) for x in re.findall(r"[-\d.]+", path_of(line.points))], abs=0.06
        )
