"""The graph as data, the engine's order, deep graphs, and the table in docs/graph.md."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import re
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import GradientEdge, Node
from fad.errors import GradientError


def leaf(data: Any) -> fad.Tensor:
    return fad.tensor(data, requires_grad=True)


# Nodes of recorded operations


def test_next_functions_and_edges_agree() -> None:
    x, w = leaf(2.0), leaf(3.0)
    node = (x * w).grad_fn
    assert node.name() == "MultiplyBackward" and node.num_inputs == 1 and node.num_outputs == 2
    assert node.next_functions == tuple((e.node, e.input_nr) for e in node.next_edges)
    assert node.next_edge(1).node.variable is w
    half = (x * 2.0).grad_fn
    assert half.next_functions[1] == (None, 0) and not half.next_edges[1].is_valid()
    a, b = fnp.split(leaf([1.0, 2.0]), 2)
    assert (b * a).grad_fn.next_functions == ((a.grad_fn, 1), (a.grad_fn, 0))
    assert a.grad_fn.num_inputs == 2 and [m.shape for m in a.grad_fn._input_metadata] == [(1,)] * 2


def test_topological_numbers() -> None:
    x = leaf(2.0)
    y = x * 2.0
    z = fnp.sin(y)
    w = z * y + x
    numbers = [n.topological_nr for n in (y.grad_fn, z.grad_fn, w.grad_fn)]
    assert numbers == [1, 2, 4]
    assert autograd.get_gradient_edge(x).node.topological_nr == 0
    node = Node()
    assert node.topological_nr == 0
    node.add_next_edge(autograd.create_gradient_edge(w))
    assert node.topological_nr == 5


def test_sequence_numbers_are_settable() -> None:
    x = leaf(1.0)
    order: list[str] = []
    parts = {name: x * k for k, name in enumerate("abc", 1)}
    for name, t in parts.items():
        t.grad_fn.register_hook(lambda i, o, name=name: order.append(name))
    total = parts["a"] + parts["b"] + parts["c"]
    total.backward(retain_graph=True)
    parts["a"].grad_fn.sequence_nr = total.grad_fn.sequence_nr + 1
    total.backward(retain_graph=True)
    assert order == ["c", "b", "a", "a", "c", "b"]
    # Never before its gradients have arrived, whatever its number.
    total.grad_fn.sequence_nr = 0
    total.backward()
    assert order[6:] == ["a", "c", "b"] and float(x.grad) == 18.0


def test_nodes_with_one_number_run_in_the_order_in_which_they_became_ready() -> None:
    x = leaf(1.0)
    order: list[int] = []
    parts = [x * float(k) for k in range(4)]
    for k, t in enumerate(parts):
        t.grad_fn.register_hook(lambda i, o, k=k: order.append(k))
        t.grad_fn.sequence_nr = 7
    autograd.backward(parts)
    assert order == [0, 1, 2, 3]


def test_thread_ids() -> None:
    x = leaf(1.0)
    assert (x * 2.0).grad_fn.thread_id == (x * 3.0).grad_fn.thread_id


def test_metadata_is_a_dict_of_the_users() -> None:
    node = (leaf(1.0) * 2.0).grad_fn
    node.metadata["who"] = "me"
    assert node.metadata == {"who": "me"}


# Pruning


def test_pruned_nodes_never_run() -> None:
    ran: list[str] = []

    class Tell(Node):
        def __init__(self, name: str, *targets: Any) -> None:
            super().__init__([autograd.create_gradient_edge(t) for t in targets])
            self.label = name
            self.add_input_metadata((), np.float32)

        def apply(self, g: Any) -> Any:
            ran.append(self.label)
            return tuple([g] * len(self.edges))

    def tensor(name: str, *targets: Any) -> Any:
        node = Tell(name, *targets)
        node.register_prehook(lambda o: ran.append(f"pre {name}"))
        node.register_hook(lambda i, o: ran.append(f"post {name}"))
        out = fad.tensor(0.0)
        out.requires_grad, out.node, out.output_nr = True, node, 0
        return out

    x, y = leaf(1.0), leaf(2.0)
    a, b = tensor("a", x), tensor("b", y)
    c = tensor("c", a, b)
    y.register_hook(lambda g: ran.append("hook y"))
    autograd.grad(c, x)
    wanted = ["pre c", "c", "post c", "pre a", "a", "post a"]
    assert ran == wanted
    ran.clear()
    autograd.backward(c, inputs=[x])
    assert ran == wanted and float(x.grad) == 1.0 and y.grad is None
    ran.clear()
    assert [float(g) for g in autograd.grad(c, [a, b])] == [1.0, 1.0]
    assert ran == ["pre c", "c", "post c"], "what is beyond the inputs does not run"
    ran.clear()
    assert autograd.grad(a, y, allow_unused=True) == (None,)
    assert ran == []


def test_only_what_ran_is_released() -> None:
    x, y = leaf(2.0), leaf(3.0)
    a, b = x * x, y * y
    c = a * b
    autograd.grad(c, x)
    assert [t.grad_fn.values is None for t in (a, b, c)] == [True, False, True]
    assert float(autograd.grad(b, y)[0]) == 6.0


def test_nothing_runs_for_leaves_that_are_not_reached() -> None:
    x, other = leaf(2.0), leaf(1.0)
    y = x * x
    autograd.backward(y, inputs=[other])
    assert other.grad is None and y.grad_fn.values is not None
    y.backward()
    assert float(x.grad) == 4.0


def test_release_of_a_leaf_that_stopped_requiring_grad() -> None:
    x = leaf(2.0)
    for _ in range(6):  # the last ones compiled
        y = x * x
        x.requires_grad_(False)
        y.backward()
        x.requires_grad_(True)
    assert x.grad is None


# Roots and inputs


def test_roots_and_inputs_in_every_form() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    edge = autograd.get_gradient_edge(y)
    assert edge == GradientEdge(y.grad_fn, 0) and edge.node is y.grad_fn
    root: Any
    for root in (y, edge, [y], (edge,)):
        for inputs in (x, [x], (autograd.get_gradient_edge(x),), {"x": x}):
            g = autograd.grad(root, inputs, retain_graph=True)
            assert float(g["x"] if isinstance(g, dict) else g[0]) == 3.0
    autograd.backward([y, edge], [fad.tensor(1.0), None], retain_graph=True, inputs={"w": w})
    assert float(w.grad) == 4.0 and x.grad is None
    autograd.backward(edge, 5.0)
    assert float(w.grad) == 14.0 and float(x.grad) == 15.0


def test_materialized_zeros_for_an_edge() -> None:
    x, other = leaf(2.0), leaf([1.0, 2.0])
    edge = autograd.get_gradient_edge(other)
    (g,) = autograd.grad(x * x, edge, materialize_grads=True)
    assert g.tolist() == [0.0, 0.0], "PyTorch refuses this"


def test_batched_gradients_with_edges_and_create_graph() -> None:
    x = leaf([1.0, 2.0])
    y = x * x * x
    (g,) = autograd.grad(
        y, autograd.get_gradient_edge(x), fnp.eye(2), is_grads_batched=True, create_graph=True
    )
    assert np.allclose(g.detach().numpy(), np.diag([3.0, 12.0]))
    (h,) = autograd.grad(g, x, fnp.ones((3, 2, 2)), is_grads_batched=True)
    assert np.allclose(h.numpy(), [[6.0, 12.0]] * 3)


def test_errors_name_what_was_passed() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="output 0 must be a Tensor, got str 'text'"):
        autograd.backward("text")
    with pytest.raises(TypeError, match="input 0 must be a Tensor, got int 3"):
        autograd.grad(x.sum(), 3)
    with pytest.raises(GradientError, match="got 1 tensors and 2 gradients"):
        autograd.backward([x.sum()], [None, None])
    with pytest.raises(GradientError, match="needs grad_outputs"):
        autograd.grad(x, x, is_grads_batched=True)
    with pytest.raises(GradientError, match="same leading batch dimension"):
        y = x * 2.0
        autograd.grad([y, y], x, [fnp.ones((3, 2)), fnp.ones((2, 2))], is_grads_batched=True)


# Modes around code that is suspended


@pytest.mark.parametrize("mode", [fad.no_grad, fad.inference_mode])
def test_modes_decorate_asynchronous_code(mode: Any) -> None:
    log: list[Any] = []

    @mode()
    async def coroutine() -> Any:
        log.append(fad.is_grad_enabled())
        await asyncio.sleep(0)
        return fad.is_grad_enabled()

    @mode()
    async def generator() -> Any:
        try:
            got = yield fad.is_grad_enabled()
            await asyncio.sleep(0)
            log.append((got, fad.is_grad_enabled()))
            try:
                yield "second"
            except KeyError:
                log.append(fad.is_grad_enabled())
            yield "third"
        finally:
            log.append(("closed", fad.is_grad_enabled()))

    async def drive() -> Any:
        assert await coroutine() is False and fad.is_grad_enabled()
        g = generator()
        assert await anext(g) is False and fad.is_grad_enabled()
        assert await g.asend("value") == "second"
        assert await g.athrow(KeyError()) == "third"
        await g.aclose()
        return [v async for v in generator()]

    assert asyncio.run(drive()) == [False, "second", "third"]
    assert log == [
        False,
        ("value", False),
        False,
        ("closed", False),
        (None, False),
        ("closed", False),
    ]
    assert fad.is_grad_enabled()


def test_modes_do_not_decorate_classes() -> None:
    with pytest.raises(TypeError, match="no_grad: decorate the methods of Model, not the class"):

        @fad.no_grad()
        class Model:
            pass


# Compiled passes


def test_a_compiled_pass_does_what_the_engine_does() -> None:
    def run(compiled: bool) -> list[Any]:
        found: list[Any] = []
        with autograd.compiled(compiled):
            for k in range(6):
                x, w = leaf([1.0, 2.0 + k]), leaf([3.0, 4.0])
                y = (fnp.sin(x * w) * x).sum()
                z = (x * 2.0).sum()
                autograd.backward([y, z], inputs=[x, w] if k % 2 else None)
                with pytest.raises(GradientError, match="second time"):
                    y.backward()
                found += [x.grad.tolist(), w.grad.tolist()]
        return found

    np.testing.assert_allclose(run(True), run(False), rtol=1e-5)


# Deep graphs


@pytest.fixture(scope="module")
def length(request: pytest.FixtureRequest) -> int:
    return 1_000_000 if request.config.getoption("--full") else 100_000


@pytest.fixture
def low_recursion_limit() -> Any:
    """Whatever recurses over a chain fails."""
    before = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    sys.setrecursionlimit(depth + 150)
    yield
    sys.setrecursionlimit(before)


def test_a_deep_recorded_chain(length: int, low_recursion_limit: None) -> None:
    x = leaf(1.0)
    (x + 1.0).backward()
    x.grad = None
    y = x
    for _ in range(length):
        y = y + 1.0
    assert "AddBackward" in repr(y) and repr(y.grad_fn) == "<AddBackward>"
    assert y.grad_fn.topological_nr == length
    assert y.grad_fn.device is not None
    y.backward()
    assert float(x.grad) == 1.0
    first, last = weakref.ref(x.meta.accumulator()), weakref.ref(y.grad_fn)
    gc.disable()
    try:
        del y
        assert last() is None and first() is None
    finally:
        gc.enable()


def test_a_deep_chain_by_hand(length: int, low_recursion_limit: None) -> None:
    class Pass(Node):
        __slots__ = ()

        def apply(self, g: Any) -> Any:
            return g

    x = leaf(1.0)
    edge = autograd.create_gradient_edge(x)
    for _ in range(length):
        node = Pass([edge])
        edge = autograd.Edge(node, 0)
    node.add_input_metadata(x)
    assert node.topological_nr == length
    autograd.backward(GradientEdge(node, 0))
    assert float(x.grad) == 1.0
    last = weakref.ref(node)
    del node, edge
    gc.collect()
    assert last() is None


def test_a_deep_chain_that_is_dropped_unused(low_recursion_limit: None) -> None:
    y = leaf(1.0)
    for _ in range(20_000):
        y = fnp.sin(y)
    last = weakref.ref(y.grad_fn)
    del y
    assert last() is None


def test_a_deep_chain_with_pruning_and_hooks(low_recursion_limit: None) -> None:
    x, w = leaf(1.0), leaf(1.0)
    y = x * w
    for _ in range(5_000):
        y = y + w
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    assert float(autograd.grad(y, x, retain_graph=True)[0]) == 1.0
    autograd.backward(y, inputs=[w])
    assert float(w.grad) == 5_001.0 and seen == [1.0]


def test_a_wide_fan_in() -> None:
    x = leaf(1.0)
    y = x * 1.0
    autograd.backward([y * float(k) for k in range(1_000)])
    assert float(x.grad) == 999 * 500


def test_the_benchmark_of_deep_chains_runs(torch: Any) -> None:
    pytest.importorskip("rich", reason="the benchmark prints with rich (extra: bench)")
    deep = importlib.import_module("benchmarks.deep_chains")
    chains = [deep.measure(200), deep.measure(400)]
    assert [c.length for c in chains] == [200, 400] and chains[0].build > 0.0
    assert all(v >= 1.0 for v in deep.flatness(chains).values())
    assert deep.best(chains[:1] * 2) == chains[0]


# The table


def rows() -> list[tuple[str, str, str, str]]:
    """Rows of the tables in docs/graph.md that have tests: names, behaviour, PyTorch's name, test."""
    page = (ROOT / "docs" / "graph.md").read_text()
    found = []
    has_tests = False
    for line in page.splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            has_tests = False
        elif cells[-1] == "test":
            has_tests = True
        elif has_tests and not cells[0].startswith("---"):
            assert len(cells) == 4, line
            found.append((cells[0], cells[1], cells[2], cells[3]))
    return found


def names(cell: str) -> list[str]:
    """The dotted names in a cell, without arguments."""
    return [re.sub(r"[\[(].*", "", name) for name in re.findall(r"`([^`]+)`", cell)]


WHERE: dict[str, Callable[[], Any]] = {
    "Tensor": lambda: leaf([1.0]),
    "node": lambda: (leaf(1.0) * 2.0).grad_fn,
    "fad": lambda: fad,
    "autograd": lambda: autograd,
    "AccumulateGrad": lambda: autograd.get_gradient_edge(leaf(1.0)).node,
    "Edge": lambda: autograd.Edge(None, 0),
    "SavedTensor": lambda: autograd.SavedTensor,
    "RemovableHandle": lambda: autograd.RemovableHandle,
}


WRITTEN_BY_THE_USER = (
    "node._saved_*",
    "node._raw_saved_*",
    "forward_extended",
    "backward_extended",
)


def resolve(name: str) -> Any:
    """What a name of the table stands for: `x.f` of a Tensor `x`, `node.f`, `fad.f`, or `f`."""
    first, _, rest = name.partition(".")
    value: Any
    if first in WHERE and rest:
        value = WHERE[first]()
        path = rest
    else:
        value, path = autograd, name
    for part in path.split("."):
        value = getattr(value, part)
    return value


TABLE = rows()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].replace("`", ""))
def test_each_name_of_the_table_exists_and_is_tested(row: tuple[str, str, str, str]) -> None:
    for name in names(row[0]):
        if name not in WRITTEN_BY_THE_USER:
            resolve(name)
    assert row[1], "it says what the name does"
    tests = re.findall(r"`([\w/]+)::(\w+)`", row[3])
    assert row[0] and tests, "it says which test would fail without it"
    for file, test in tests:
        source = (ROOT / "tests" / f"{file}.py").read_text()
        assert re.search(rf"^def {test}\(", source, re.M), f"{file}.py has no {test}"


def test_a_name_that_does_not_exist_is_caught() -> None:
    for name in ("nonsense", "node.nonsense", "Tensor.nonsense", "fad.nonsense"):
        with pytest.raises(AttributeError):
            resolve(name)


def test_the_table_has_every_public_name() -> None:
    listed = {n.removeprefix("autograd.") for row in TABLE for n in names(row[0])}
    public = {
        n for n, v in vars(autograd).items() if not n.startswith("_") and not inspect.ismodule(v)
    }
    elsewhere = {"compiled", "once_differentiable", "view_function"}
    assert public - listed - elsewhere == set()
    members = {n for n in vars(Node) if not n.startswith("_")}
    internal = {"run", "edges", "extra", "has_parent", "level", "topology", "metadata_of_inputs"}
    assert members - internal - {n.removeprefix("node.") for n in listed} == set()
