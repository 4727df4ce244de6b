"""Where boxes stand: below what leads to them, next to each other, inside of their frames."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_graphs import chain, tangle

import fad
import fad.numpy as fnp
from fad import viz
from fad.viz import layout
from fad.viz.folding import fold
from fad.viz.layout import Spot, arrange, coordinates, plan_of
from fad.viz.nodes import read, roots_of

pytest.importorskip("fast_sugiyama", reason="places boxes (extra: viz)")


def plan_for(x: Any, limit: int = 150, budget: int = 0) -> layout.Plan:
    drawn = read(roots_of(x))
    return plan_of(drawn, fold(drawn, True, limit), budget)


def loops() -> Any:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    y = x
    for _ in range(5):
        for _ in range(3):
            y = fnp.sin(y) * x
        y = fnp.exp(y) + x[0]
    return y.sum()


@pytest.mark.parametrize("make", [loops, lambda: tangle(60)], ids=["loops", "tangle"])
def test_boxes_do_not_overlap_and_frames_go_around_what_is_in_them(make: Any) -> None:
    plan = plan_for(make())
    at = coordinates(plan)
    assert set(at) >= {box.number for box in plan.boxes}
    for box in plan.boxes:
        x, y, w, h = at[box.number]
        if box.parent is not None:
            u, v, width, height = at[box.parent.number]
            assert u < x and v < y and x + w < u + width and y + h < v + height
        inside = [at[child.number] for child in box.children]
        for k, (a, b, c, d) in enumerate(inside):
            for e, f, g, i in inside[:k]:
                assert a + c <= e or e + g <= a or b + d <= f or f + i <= b


@pytest.mark.parametrize("make", [loops, lambda: tangle(60)], ids=["loops", "tangle"])
def test_edges_go_downwards_through_their_bends(make: Any) -> None:
    plan = plan_for(make())
    at = coordinates(plan)
    for (a, b), route in plan.routes.items():
        heights = [at[n][1] for n in (a, *route, b)]
        assert heights == sorted(heights) and len(set(heights)) == len(heights)
    for a, b in plan.edges:
        assert at[a][1] + at[a][3] <= at[b][1]
    assert plan.routes


def test_a_plan_holds_what_is_open_and_as_much_as_the_budget_allows() -> None:
    x = tangle(600)
    small, large = plan_for(x, 20), plan_for(x, 20, 10_000)
    assert len(small.boxes) <= 21 and len(large.boxes) > 600
    assert {n for pair in small.edges for n in pair} <= {box.number for box in small.boxes}
    some = plan_for(x, 20, 100)
    assert len(small.boxes) < len(some.boxes) <= 100
    assert sum(some.edges.values()) >= sum(small.edges.values())


def test_arrange_puts_rows_below_each_other() -> None:
    found, (width, height) = arrange(
        [Spot(1, 0, 0.0), Spot(2, 1, -10.0), Spot(3, 1, 10.0)],
        {1: (40.0, 20.0), 2: (60.0, 30.0), 3: (60.0, 10.0)},
    )
    gap, row_gap = layout.GAP, layout.ROW_GAP
    assert (width, height) == (120 + gap, 50 + row_gap)
    assert found[2] == (0.0, 20 + row_gap) and found[3] == (60 + gap, 30 + row_gap)
    assert found[1][0] + 20 == pytest.approx(60 + gap / 2)
    assert arrange([], {}) == ({}, (0.0, 0.0))


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(layout.importlib, "import_module", missing)
    graph = viz.graph(chain(2))
    for show in (graph.svg, graph.html, lambda: graph.save(tmp_path / "a.svg")):
        with pytest.raises(ImportError, match=r"fast_sugiyama.*pip install fast-sugiyama"):
            show()
    with pytest.raises(ImportError, match="matplotlib"):
        graph.png()
    assert not (tmp_path / "a.svg").exists()
    assert graph._repr_svg_() is None
    assert graph._repr_html_().startswith("<pre>graph: 2 nodes")
    assert "SinBackward" in str(graph) and "SinBackward" in graph.dot()


def test_a_tangle_that_would_take_long_has_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_BENDS_OPEN", 10)
    plan = plan_for(tangle(60))
    at = coordinates(plan)
    assert len(plan.spots[0]) == len(plan.boxes) - 1 and not plan.routes
    for a, b in plan.edges:
        assert at[a][1] + at[a][3] <= at[b][1]
    monkeypatch.setattr(layout, "_BENDS_OPEN", -1)
    framed = plan_for(loops())
    assert not framed.ports and any(box.copies > 1 for box in framed.boxes)
    for a, b in framed.edges:
        paths = [next(box for box in framed.boxes if box.number == n).path() for n in (a, b)]
        assert framed.way(*paths) == []


def test_ports_lead_through_the_borders_of_frames() -> None:
    plan = plan_for(loops())
    at = coordinates(plan)
    assert plan.ports
    for (a, b), port in plan.ports.items():
        outer, *_ = [n for n in (a, b) if any(s.number == port for s in plan.spots.get(n, ()))]
        x, y, width, height = at[outer]
        assert x <= at[port][0] <= x + width and y <= at[port][1] <= y + height
