"""Where a graph ends: gradients are added up, from several threads too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from helpers import assert_close, leaf
from nodes import edge

import fad
from fad import autograd
from fad.autograd import GradientEdge


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
