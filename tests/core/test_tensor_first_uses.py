"""What a Tensor or a node has only after its first use is made once, also by finalizers and threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lines import at_finalizers, before_line

import fad
from fad.core import tensor as tensors
from fad.core.tensor import meta_of, storage_of
from fad.tape import graph
from fad.tape.graph import accumulator_of, extra_of


def new_leaf() -> Any:
    return fad.tensor(np.ones(3, np.float32), requires_grad=True)


FIRST_USES: list[Callable[[Any], Any]] = [meta_of, storage_of, accumulator_of]


@pytest.mark.parametrize("use", FIRST_USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("when", ["finalizers", "lines"])
def test_a_finalizer_in_the_middle_of_a_first_use_finds_the_same(
    use: Callable[[Any], Any], when: str
) -> None:
    """With a lock that is not re-entrant, it would deadlock with its own thread."""
    places = {tensors.__file__, graph.__file__}
    for number in itertools.count(1):
        x, found = new_leaf(), []

        def act(x: Any = x, found: Any = found) -> None:
            found.append(use(x))

        block = (
            at_finalizers(number, act) if when == "finalizers" else before_line(number, places, act)
        )
        with block as moments:
            got = use(x)
        assert use(x) is got
        assert not found or found[0] is got, number
        if moments.over:
            break
    assert number > 3


def test_threads_find_the_same_at_first_use() -> None:
    for use in FIRST_USES:
        for _ in range(50):
            x, found = new_leaf(), []
            barrier = threading.Barrier(4)

            def run(use: Any = use, x: Any = x, found: Any = found, barrier: Any = barrier) -> None:
                barrier.wait()
                found.append(use(x))

            threads = [threading.Thread(target=run) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert all(f is found[0] for f in found) and len(found) == 4


def test_the_extra_of_a_node_is_made_once() -> None:
    node = graph.AccumulateGrad(new_leaf())
    found = []
    with before_line(3, {graph.__file__}, lambda: found.append(extra_of(node))):
        got = extra_of(node)
    assert found == [got] and extra_of(node) is got
