"""``fad.viz.graph`` of functions: what each transform records, and at which level; and files."""

from __future__ import annotations

import html
import threading
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from drawn_graphs import Halve, chain

import fad
import fad.numpy as fnp
from fad import viz
from fad.errors import ArgumentError
from fad.tape import anomaly
from fad.viz import drawing

X = jnp.arange(6.0).reshape(2, 3)


def f(x: Any) -> Any:
    return (fnp.sin(x) * x).sum()


FORWARD = ["SumBackward", "MultiplyBackward", "SinBackward"]


def names(graph: viz.Graph) -> dict[str, list[str]]:
    """The names of nodes at each level, without leaves."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        if node.kind != "leaf":
            found.setdefault(f"{node.level_kind} {node.level}", []).append(node.name)
    return found


@pytest.mark.parametrize(
    ("transformed", "expected"),
    [
        (fad.grad(f), {"grad 1": FORWARD}),
        (lambda x: fad.vjp(f, x)[1](1.0), {"grad 1": FORWARD}),
        (lambda x: fad.jvp(f, (x,), (x,)), {}),
        (fad.vmap(f), {}),
        (fad.vmap(fad.grad(f)), {"grad 1": FORWARD}),
        (fad.hessian(f), {"grad 1": FORWARD}),
        (
            fad.grad(lambda x: fad.vmap(fnp.sin)(x).sum()),
            {"grad 1": ["SumBackward", "SinVmapBackward"]},
        ),
        (
            fad.grad(lambda x: fad.jvp(fnp.sin, (x,), (x,))[1].sum()),
            {"grad 1": ["SumBackward", "SinJvpBackward"]},
        ),
    ],
    ids=["grad", "vjp", "jvp", "vmap", "vmap of grad", "hessian", "grad of vmap", "grad of jvp"],
)
def test_what_a_transform_records(transformed: Any, expected: dict[str, list[str]]) -> None:
    graph = viz.graph(transformed, X)
    assert names(graph) == expected
    assert names(viz.graph(transformed, X)) == expected  # again: replay does not hide it


def test_grad_of_grad_records_the_backward_pass_at_the_outer_level() -> None:
    graph = viz.graph(fad.grad(lambda x: fad.grad(fnp.sin)(x)), 1.0)
    found = names(graph)
    assert found["grad 2"] == ["SinBackward"]
    assert found["grad 1"][-1] == "SinBackward" and "SinVjpBackward" in found["grad 1"]
    levels = {node.level for node in graph.nodes}
    for i, j, _ in graph.edges:
        assert graph.nodes[i].level == graph.nodes[j].level
    assert levels == {1, 2}


def test_what_was_saved_is_shown_though_it_is_freed() -> None:
    graph = viz.graph(fad.grad(f), X)
    saved = {node.name: (node.saved, node.freed) for node in graph.nodes}
    assert saved["SinBackward"] == (24, True)
    assert saved["MultiplyBackward"] == (48, True)
    assert graph.saved == 48


def test_shapes_inside_of_vmap_are_those_of_one_lane() -> None:
    forms = [node.form() for node in viz.graph(fad.vmap(fad.grad(f)), X).nodes]
    assert forms == ["float32[]", "float32[3]", "float32[3]", "float32[3]"]


def test_a_function_on_the_tape() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    before = x * 3.0
    graph = viz.graph(f, before)
    assert [(n.name, n.kind) for n in graph.nodes] == [
        ("SumBackward", "operation"),
        ("MultiplyBackward", "operation"),
        ("SinBackward", "operation"),
        ("MultiplyBackward", "earlier"),
    ]
    assert graph.nodes[0].results == ("result",)
    # What is recorded and dropped is there too, and what a backward pass records.
    dropped = viz.graph(lambda: (fnp.cos(x), fnp.sin(x).sum().backward())[1])
    assert sorted(names(dropped)["eager 0"]) == ["CosBackward", "SinBackward", "SumBackward"]


def test_keyword_arguments_go_to_the_function() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    graph = viz.graph(lambda x, power: x**power, x, power=3.0, fold=False)
    assert graph.nodes[0].name == "PowerBackward"


def test_a_function_of_the_user_is_one_node() -> None:
    graph = viz.graph(fad.grad(Halve.apply), 2.0)
    assert [(n.name, n.kind) for n in graph.nodes] == [
        ("HalveBackward", "function"),
        ("AccumulateGrad", "leaf"),
    ]
    mapped = viz.graph(fad.grad(lambda x: fad.vmap(Halve.apply)(x).sum()), X[0])
    assert [n.kind for n in mapped.nodes] == ["operation", "function", "leaf"]


def test_checkpoint_records_its_body_again() -> None:
    kinds = [n.level_kind for n in viz.graph(fad.grad(fad.checkpoint(f)), X).nodes]
    assert "checkpoint" in kinds and "grad" in kinds


def test_compiled_code_is_one_node_and_records_nothing_inside() -> None:
    step = fad.jit(fad.grad(f))
    for _ in range(2):  # traced in the first call, run in the second
        graph = viz.graph(step, X)
        assert graph.nodes == []
    assert "compiled code records nothing" in str(graph)
    x = fad.tensor([1.0, 2.0], requires_grad=True)
    jitted = fad.jit(f)
    for _ in range(2):
        node, leaf = viz.graph(jitted, x).nodes
        assert (node.name, leaf.kind) == ("FBackward", "leaf")


def test_inside_of_jax_jit() -> None:
    graphs = []

    @jax.jit
    def g(x: Any) -> Any:
        graphs.append(viz.graph(fad.grad(f), x))
        return x

    g(X)
    assert names(graphs[0]) == {"grad 1": FORWARD}


def test_another_thread_is_not_shown() -> None:
    x = fad.tensor([1.0, 2.0], requires_grad=True)

    def both() -> Any:
        other = threading.Thread(target=lambda: fnp.cos(x))
        other.start()
        other.join()
        return fnp.sin(x)

    assert [n.name for n in viz.graph(both).nodes] == ["SinBackward", "AccumulateGrad"]


def test_a_failing_function_leaves_nothing_behind() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        viz.graph(fad.grad(fails), 1.0)
    assert not anomaly.mode.watch and not anomaly.mode.node_observers


def test_nothing_of_the_graph_is_kept_alive() -> None:
    y = chain(3)
    graph = viz.graph(y)
    node = y.grad_fn
    gone = weakref.ref(node)
    del y, node
    assert gone() is None
    assert len(graph.nodes) == 4


@pytest.mark.parametrize("limit", [1, 2.5, "3"])
def test_a_limit_that_is_none(limit: Any) -> None:
    with pytest.raises(ArgumentError, match="limit must be an int of at least 2"):
        viz.graph(fad.tensor(1.0), limit=limit)


def test_arguments_without_a_function() -> None:
    with pytest.raises(ArgumentError, match="arguments are for a function"):
        viz.graph(fad.tensor(1.0), fad.tensor(2.0))


def test_files(tmp_path: Path) -> None:
    graph = viz.graph(chain(2))
    graph.save(tmp_path / "a.dot")
    graph.save(str(tmp_path / "a.json"))
    graph.save(tmp_path / "a.TXT")
    assert (tmp_path / "a.dot").read_text() == graph.dot()
    assert (tmp_path / "a.json").read_text() == graph.json()
    assert (tmp_path / "a.TXT").read_text() == str(graph)
    with pytest.raises(ArgumentError, match=r"must end with one of \.svg, .*, got 'a\.pdf'"):
        graph.save("a.pdf")


def test_how_it_shows_itself() -> None:
    graph = viz.graph(chain(2))
    assert repr(graph) == "<fad.viz.Graph: 2 nodes, 1 leaf, 8 B saved>"
    assert str(graph).splitlines()[0] == "graph: 2 nodes, 1 leaf, 8 B saved"


@pytest.mark.parametrize(("there", "length"), [(False, 2), (True, 300)])
def test_in_a_notebook_without_a_picture(
    there: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "can_draw", lambda: there)
    graph = viz.graph(chain(length), fold=False)
    assert graph._repr_svg_() is None
    assert graph._repr_html_() == f"<pre>{html.escape(str(graph))}</pre>"
