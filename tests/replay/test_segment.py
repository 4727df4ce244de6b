"""Segments: passes that free their graph go through them whole, all else finds the nodes of operations."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from helpers import leaf
from replays import assert_bits, hits, law, off, outcome, shown, single_runs

import fad
import fad.numpy as fnp
from fad.autograd.graph import GradientEdge
from fad.errors import LevelError
from fad.tape.anomaly import observed_nodes
from fad.testing.gradient_checks import gradcheck, gradgradcheck

pytestmark = pytest.mark.usefixtures("cleared_caches")
X = np.array([0.3, 0.7, 1.1, 1.9], np.float32)
G = fad.autograd.grad


# Graphs that are kept or gone on from


def outputs_that_are_inputs() -> Any:
    """Each output of a pullback has its own gradient, also the one that is a cotangent itself."""
    xs = [leaf(np.ones(k + 2)) for k in range(4)]
    ws = [leaf(np.ones(k + 2)) for k in range(4)]
    _, pull = fad.vjp(lambda a, b, c, x: [a * 2.0, b * 2.0, c * 2.0, x], *xs)
    found = []
    for out in pull(list(ws)):
        for _ in range(3):
            ones = fnp.ones(out.shape)
            found.append(G(out, [*xs, *ws], ones, retain_graph=True, allow_unused=True))
    assert [g is not None for g in found[-1]] == [False] * 7 + [True]
    return found


def influence() -> Any:
    """A pass that frees its own graph stands between a gradient and its derivative."""
    w = leaf(X)
    (g,) = G(fnp.tanh(w).sum() + (w**2).sum(), w, create_graph=True)
    (u,) = G(fnp.sin(w).sum(), w)
    return [G(g, w, u, retain_graph=True) for _ in range(2)]


def products_with_a_wider_vector() -> Any:
    m, v = leaf(X[:4].reshape(2, 2)), fad.tensor(np.arange(4.0))
    (g,) = G((fnp.sin(m) ** 3).sum(), m, create_graph=True)
    (h,) = G(g, m, v.reshape(2, 2), retain_graph=True)
    (again,) = G(g, m, h.reshape(-1).reshape(2, 2), retain_graph=True)
    return h, again


KEPT: list[Callable[[], Any]] = [outputs_that_are_inputs, influence, products_with_a_wider_vector]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("program", KEPT, ids=lambda f: f.__name__)
def test_graphs_that_are_kept(program: Callable[[], Any], x64: bool) -> None:
    with jax.enable_x64(x64):
        law(program, calls=8)


def test_gradgradcheck_after_gradcheck() -> None:
    x = fad.tensor(np.ones(3), requires_grad=True)
    with fad.autograd.compiled(wait=True):
        for _ in range(3):
            assert gradcheck(fnp.atleast_2d, (x,)) and gradgradcheck(fnp.atleast_2d, (x,))


# Passes through segments


def test_a_step_that_reads_runs_as_programs() -> None:
    """Forward to the read, and the whole pass: no operation alone."""
    w = leaf(X)

    def step(x: Any) -> Any:
        w.grad = None
        y = fnp.tanh(w * x)
        scale = fnp.max(y).item()
        loss = fnp.sum(fnp.sin(y) * y) * scale
        value = loss.item()
        loss.backward()
        return value, w.grad

    with off():
        expected = step(X)
    with fad.autograd.compiled(wait=True):
        for _ in range(4):
            with single_runs() as names:
                assert_bits(step(X), expected)
    assert not {"tanh", "sin", "multiply", "sum"} & set(names), names


@pytest.mark.parametrize("way", ["cotangents", "some leaves", "unused", "order"])
def test_passes_that_free_their_graph_are_programs(way: str) -> None:
    """But for those to leaves that are not used, which run node by node."""
    a, b, c = leaf(X), leaf(X + 1.0), leaf(X + 2.0)

    def run() -> Any:
        y = fnp.sin(a) * b
        if way == "cotangents":
            return G([y * 2.0, y * a], [a, b], [fnp.full(4, 0.5), fnp.ones(4)])
        loss = (y * y).sum()
        if way == "some leaves":
            return G(loss, [b])
        if way == "order":
            return G(loss, [b, a, b])
        return G(loss, [a, c, b], allow_unused=True)

    law(run, way != "unused", modes=["at once"])


def test_what_a_program_saved_is_freed_in_the_nodes() -> None:
    """As without replay: what saves nothing can be gone through again, all else is an error."""

    def run() -> Any:
        w = leaf(X)
        y, z = w + 1.0, fnp.sin(w)
        (y.sum() + z.sum()).backward()
        y.sum().backward()
        found = [w.grad.clone(), outcome(lambda: z.sum().backward())]
        return [*found, y.grad_fn.name(), z.grad_fn.next_functions[0][0].name()]

    law(run)
    with fad.autograd.compiled(wait=True):
        assert "a second time" in run()[1]


def test_many_segments_are_opened_without_recursion() -> None:
    w = leaf(np.float32(0.5))

    def run(count: int) -> Any:
        y = w * 1.0
        for _ in range(count):
            y = fnp.sin(y) + w
            y.item()
        return y

    with fad.autograd.compiled(wait=True):
        for _ in range(3):
            run(3)
        before = hits()
        y = run(2_000)
        assert hits() > before + 1_000
        node, count = y.grad_fn, 0
        while node.next_functions:
            node, count = node.next_functions[0][0], count + 1
    assert count > 4_000


def test_the_numbers_of_a_segment_die_with_its_pass() -> None:
    """The loss keeps its place in the graph, and nothing of the data."""
    w = leaf(X)
    losses = []
    with fad.autograd.compiled(wait=True):
        for _ in range(4):
            loss = fnp.sum(w * fad.tensor(X) * 2.0)
            loss.backward()
            losses.append(loss)
        (segment,) = {t._lazy.trace for t in losses[-1:]}
        assert [x.parts for x in segment.stretch.inputs] == [(), (), ()]
        assert losses[-1].grad_fn.name() == "SumBackward" and losses[-1]._lazy is None


# What has changed since a segment ran


def required_later() -> Any:
    """A constant of a segment requires grad later: nothing leads to it from before."""
    w, c = leaf(X), fad.tensor(X)
    y = fnp.sin(w) * c
    y.sum().item()
    c.requires_grad_()
    z = (y * c).sum()
    z.backward()
    return z, w.grad, c.grad


def required_earlier() -> Any:
    """A leaf of a segment does not require grad while it is opened: it is a leaf of it all the same."""
    w, c = leaf(X), leaf(X + 1.0)
    y = fnp.sin(w) * c
    y.sum().item()
    c.requires_grad_(False)
    found = shown(y)
    c.requires_grad_(True)
    y.sum().backward()
    return found, w.grad, c.grad


def deleted() -> Any:
    """Errors of arrays that were deleted since are those of the nodes that saved them."""
    found = []
    for k in range(4):
        w = leaf(jax.numpy.array(X))
        y = fnp.exp(w) if k < 2 else fnp.sin(w)
        y.sum().item()
        z = (y * w).sum() if k % 2 else (y * 3.0).sum()
        z.item()
        w.array.delete()
        found += [outcome(lambda z=z: z.backward()), w.grad] if k else []
    return found


def deleted_and_not_saved() -> Any:
    """Arrays that no node saves are not needed: looked at, gone through, kept, in another program."""
    found = []
    for ending in [
        lambda z: z.grad_fn.next_functions[0][0].name(),
        lambda z: z.backward(),
        lambda z: z.backward(retain_graph=True),
        lambda z: (z * z).backward(),
        lambda z: (z.detach() + 1.0).item(),
    ]:
        w, data, more = leaf(X), jax.numpy.array(X), fad.tensor(X + 1.0)
        z = ((w + data - more) * 2.0).sum()
        found.append(z.item())
        data.delete()
        more.array.delete()
        found += [ending(z), w.grad]
    return found


def watched_later() -> Any:
    """Who begins to watch after it has run sees no node of it being made."""
    w, names = leaf(X), []
    y = fnp.sqrt(w) * w
    y.sum().item()
    with observed_nodes(lambda node: names.append(node.name())):
        z = fnp.sum(y)
        z.backward()
    return names, w.grad


def opened_in_other_settings() -> Any:
    """Its nodes have the numbers of its operations, wherever it is opened."""
    w = leaf(X)
    first = w * 0.1
    nodes = [first.grad_fn]
    y = fnp.sin(w) * w
    y.sum().item()
    with jax.enable_x64(True):
        nodes.append(y.grad_fn)
    nodes.append((w * 0.7).grad_fn)
    numbers = [node.sequence_nr for node in nodes]
    return numbers == sorted(numbers), len({*numbers})


def freed_in_part() -> Any:
    """What a pass to some of the leaves has not gone through keeps what it has saved."""
    w, b = leaf(X), leaf(X + 1.0)
    loss = ((w * fad.tensor(X)) * b).sum()
    loss.item()
    found = G(loss, [b])
    node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    return found, node.name(), G(GradientEdge(node, 0), [w], fnp.ones(4))


SINCE = [
    freed_in_part,
    required_later,
    required_earlier,
    deleted,
    deleted_and_not_saved,
    watched_later,
    opened_in_other_settings,
]


@pytest.mark.parametrize("program", SINCE, ids=lambda f: f.__name__)
def test_what_has_changed_since_a_segment_ran(program: Callable[[], Any]) -> None:
    law(program)
    law(program, True, modes=["at once"])


def test_a_pass_through_a_node_that_has_saved_a_deleted_array_raises_its_error() -> None:
    with fad.autograd.compiled(wait=True):
        for _ in range(4):
            w = leaf(jax.numpy.array(X))
            y = fnp.sin(w)
            z = fnp.sum(y)
            z.item()
        w.array.delete()
        for t in (z, y, z):
            assert t.grad_fn.name() == ("SinBackward" if t is y else "SumBackward")
            with pytest.raises(RuntimeError, match="deleted"):
                t.sum().backward()


@pytest.mark.parametrize("f", [fnp.linalg.cholesky, fnp.linalg.det, fnp.sort])
def test_what_a_node_has_computed_from_a_deleted_array_is_not_made_up(
    f: Callable[..., Any],
) -> None:
    """A factor, an order: it cannot be computed again, and nothing else stands in its place."""
    with fad.autograd.compiled(wait=True):
        for k in range(3):
            w = leaf(jax.numpy.array(np.eye(3) * 4.0 + 0.5, np.float32))
            z = fnp.sum(f(w) * 3.0)
            z.item()
            if k < 2:
                z.backward()
        w.array.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            z.backward()
        assert w.grad is None


def test_an_array_that_was_deleted_before_its_trace_has_run() -> None:
    """What needs it raises JAX's error, its program too; all else is right."""
    with fad.autograd.compiled(wait=True):
        for _ in range(4):
            w, data = leaf(X), jax.numpy.array(X)
            y, z = w * 3.0, (w + data) * 2.0
            data.delete()
            assert fnp.sum(y * y).item() == pytest.approx(float(((X * 3.0) ** 2).sum()), rel=1e-5)
            with pytest.raises(RuntimeError, match="deleted"):
                z.sum().item()
            fnp.sum(y).backward()
            assert w.grad.tolist() == [3.0] * 4


@pytest.mark.parametrize("read", [lambda h: h.sum(), lambda h: (h * 2.0).max()])
def test_what_was_made_to_be_read_keeps_no_data_after_the_pass(read: Callable[[Any], Any]) -> None:
    w = leaf(X)
    losses, data = [], []
    with fad.autograd.compiled(wait=True):
        for _ in range(5):
            x = fad.tensor(X + 0.0)
            data.append(weakref.ref(x))
            y = x * w
            read(y).item()
            loss = fnp.sum(y * y)
            loss.item()
            loss.backward()
            losses.append(loss)
            del x, y
    assert [x() for x in data[1:]] == [None] * 4


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64:UserWarning")
def test_a_change_of_jaxs_config_before_a_result_is_read_is_an_error() -> None:
    def loss() -> fad.Tensor:
        x = fad.tensor([1.0, 2.0, 3.0], dtype="float64", requires_grad=True)
        return (fnp.sin(x * 2.0) + 1.0).sum()

    before = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_enable_x64", True)
        for _ in range(2):  # what is new runs at once
            loss().backward()
        late = loss()
        jax.config.update("jax_enable_x64", False)
        with pytest.raises(LevelError, match="jax.config was changed"):
            late.item()
        jax.config.update("jax_enable_x64", True)
        assert late.dtype == "float64" and late.item() == loss().item()
    finally:
        jax.config.update("jax_enable_x64", before)
