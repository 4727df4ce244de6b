"""Where a graph ends: gradients are added up, from several threads too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, leaf
from nodes import edge

import fad
from fad import autograd
from fad.autograd import GradientEdge
from fad.errors import LevelError


def test_threads_accumulate_without_loss() -> None:
    x = leaf(np.zeros(4, np.float32))

    def work(k: int) -> None:
        for _ in range(20):
            (x * float(k)).sum().backward()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert_close(x.grad, np.full(4, 20.0 * 28.0, np.float32))


def test_accumulate_grad() -> None:
    x = leaf([1.0, 2.0])
    node = edge(x).node
    assert isinstance(node, autograd.AccumulateGrad) and node.variable is x
    assert node.sequence_nr == 2**64 - 1 and node.topological_nr == 0 and node.num_outputs == 0
    assert node.input_metadata(0)[:2] == ((2,), np.float32)
    made = autograd.AccumulateGrad(x)
    assert made(fad.tensor([3.0, 4.0])) == () and x.grad.tolist() == [3.0, 4.0]
    autograd.backward(GradientEdge(made, 0), fad.tensor([1.0, 1.0]))
    assert x.grad.tolist() == [4.0, 5.0]


# In place, as in PyTorch. Each program takes `tensor`, and returns what it has seen.


def _version(t: Any) -> int:
    return t.version if isinstance(t, fad.Tensor) else t._version


def _same_tensor(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    held, version = x.grad, _version(x.grad)
    (x * x).sum().backward()
    return [x.grad is held, held.tolist(), _version(held) - version]


def _views_of_it(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    part, detached = x.grad[1:], x.grad.detach()
    (x * x).sum().backward()
    return [part.tolist(), detached.tolist(), x.grad.tolist()]


def _view_of_a_flat_one(tensor: Any) -> list[Any]:
    flat = tensor([0.0, 0.0, 5.0])
    x = tensor([1.0, 2.0], requires_grad=True)
    x.grad = flat[:2]
    (x * x).sum().backward()
    return [flat.tolist(), x.grad.tolist()]


def _one_for_two(tensor: Any) -> list[Any]:
    a, b = tensor(1.0, requires_grad=True), tensor(1.0, requires_grad=True)
    a.backward(tensor(5.0))
    b.grad = a.grad
    (b * 2.0).backward()
    return [a.grad.item(), b.grad is a.grad]


def _given_ones(tensor: Any) -> list[Any]:
    seen = []
    for create_graph in (False, True):
        x, g = tensor(1.0, requires_grad=True), tensor(5.0)
        x.backward(g, create_graph=create_graph)
        seen.append(x.grad is g)
        (x * 2.0).backward()
        seen += [g.item(), x.grad.item()]
    return seen


def _with_create_graph(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    before = x.grad
    (x * x).sum().backward(create_graph=True)
    held, version = x.grad, _version(x.grad)
    seen = [held is before, before.tolist(), held.requires_grad]
    (x * x).sum().backward()
    return [*seen, x.grad is held, held.tolist(), _version(held) - version, held.requires_grad]


def _with_create_graph_of_a_constant(tensor: Any) -> list[Any]:
    x = tensor(3.0, requires_grad=True)
    (2.0 * x).backward(create_graph=True)
    before = x.grad
    (2.0 * x).backward(create_graph=True)
    return [x.grad is before, before.item(), x.grad.item(), x.grad.requires_grad]


def _saved_by_a_graph(tensor: Any) -> list[Any]:
    x = tensor(2.0, requires_grad=True)
    (x**3).backward(create_graph=True)
    square = x.grad * x.grad
    (x * x).backward()
    try:
        square.backward()
    except RuntimeError as error:
        return ["modified by an inplace operation" in str(error)]
    return [False]


def _retained(tensor: Any) -> list[Any]:
    x = tensor(3.0, requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    y.backward(retain_graph=True)
    before = y.grad
    y.backward()
    return [y.grad is before, before.item(), y.grad.item()]


def _zeroed(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    seen = []
    for _ in range(4):
        (x * x).sum().backward()
        held = x.grad
        seen.append(held.tolist())
        held.zero_()
    return [*seen, x.grad is held]


def _by_hand(tensor: Any) -> list[Any]:
    x = tensor([1.0, 2.0], requires_grad=True)
    node = (x * 1.0).grad_fn.next_functions[0][0]
    node(tensor([1.0, 1.0]))
    first = x.grad
    node(tensor([1.0, 1.0]))
    return [first.tolist(), x.grad.tolist(), x.grad is first]


PROGRAMS = [
    _same_tensor,
    _views_of_it,
    _view_of_a_flat_one,
    _one_for_two,
    _given_ones,
    _with_create_graph,
    _with_create_graph_of_a_constant,
    _saved_by_a_graph,
    _retained,
    _zeroed,
    _by_hand,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_grad_is_accumulated_into(program: Callable[[Any], list[Any]], torch: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of create_graph
        expected = program(torch.tensor)
    assert program(fad.tensor) == expected


def test_grad_inside_a_level_is_accumulated_into() -> None:
    def f(x: Any) -> Any:
        t = x.detach().requires_grad_()
        (t * t * x).sum().backward()
        held = t.grad
        (t * t).sum().backward()
        assert t.grad is held
        return (held * x).sum()

    x = np.array([1.0, 2.0], np.float32)
    # The gradient is held = 2 t x + 2 t, t a constant everywhere; outer levels differentiate it.
    assert_close(fad.grad(f)(x), 2 * x * x + 2 * x)
    assert_close(fad.vmap(fad.grad(f))(x), 2 * x * x + 2 * x)
    assert_close(fad.grad(lambda x: fad.grad(f)(x).sum())(x), 2 * x)


def test_grad_of_outside_is_not_written_to_in_traced_code() -> None:
    x = leaf([1.0, 2.0])
    x.grad = fad.tensor([1.0, 1.0])
    held = x.grad

    def f(y: Any) -> Any:
        t = y.detach().requires_grad_()
        t.grad = held
        (t * t).sum().backward()
        return y

    with pytest.raises(LevelError, match="runs more than once"):
        fad.jit(f)(np.ones(2, np.float32))
    assert held.tolist() == [1.0, 1.0]
