"""Pictures that Graphviz draws of the DOT text, and what is said where Graphviz is not installed."""

from __future__ import annotations

import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from drawn_graphs import Halve, Step, chain, of_dot, tangle

import fad
import fad.numpy as fnp
from fad import viz
from fad.viz import drawing

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def needs_dot() -> None:
    pytest.importorskip("graphviz", reason="draws graphs (extra: viz)")
    if shutil.which("dot") is None:
        pytest.skip("draws graphs: the program dot of Graphviz")


def example() -> viz.Graph:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = Halve.apply(x)
    for _ in range(6):
        y = fnp.tanh(y) * x
    return viz.graph(y.sum())


def of_svg(svg: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Nodes with their lines, and edges, of a picture that Graphviz drew."""
    nodes, edges = {}, []
    for g in ET.fromstring(svg).iter(f"{SVG}g"):
        title = g.findtext(f"{SVG}title") or ""
        kind = g.attrib["class"].split()[0]
        if kind == "node":
            nodes[title] = r"\n".join([text.text or "" for text in g.iter(f"{SVG}text")])
        elif kind == "edge":
            a, _, b = title.partition("->")
            edges.append((a, b))
    return nodes, edges


@pytest.mark.usefixtures("needs_dot")
@pytest.mark.parametrize(
    "make",
    [example, lambda: viz.graph(tangle(40)), lambda: viz.graph(Step("<b>&;\u00e9"))],
    ids=["folded", "tangle", "names"],
)
def test_the_picture_has_the_nodes_and_edges_of_the_dot_text(make: Any) -> None:
    graph = make()
    labels, pairs = of_dot(graph.dot())
    nodes, edges = of_svg(graph.svg())
    assert nodes == labels and sorted(edges) == sorted(pairs)


@pytest.mark.usefixtures("needs_dot")
def test_files_of_pictures(tmp_path: Path) -> None:
    graph = viz.graph(chain(2))
    graph.save(tmp_path / "a.svg")
    graph.save(tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_text() == graph.svg() == graph._repr_svg_()
    assert graph._repr_html_() is None
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in viz.graph(fad.tensor(1.0)).svg()


def test_without_the_program_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("graphviz", reason="looks for the program (extra: viz)")
    monkeypatch.setenv("PATH", str(tmp_path))
    graph = viz.graph(chain(2))
    for show in (graph.svg, graph.png, lambda: graph.save(tmp_path / "a.svg")):
        with pytest.raises(ImportError, match=r"the program dot .* apt install graphviz"):
            show()
    assert not (tmp_path / "a.svg").exists() and not drawing.can_draw()
    assert "SinBackward" in graph.dot() and "SinBackward" in graph.json()


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("graphviz", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs graphviz, .*: pip install graphviz"):
        viz.graph(chain(2)).svg()
    with pytest.raises(ImportError, match="pip install matplotlib"):
        viz.matrix(fnp.eye(2)).png()
    assert not drawing.can_draw()
