"""Hooks on the outputs of checkpointed calls."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fad


def test_hooks_run_for_the_outputs_that_a_pass_reaches(torch: Any) -> None:
    """As in PyTorch, where each output of a checkpointed call has a node of its own."""
    again = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    ours = lambda f, *args: fad.checkpoint(f)(*args)
    logs = []
    for lib, checkpoint in ((torch, again), (fad, ours)):
        log: list[Any] = []

        def note(name: str, log: list[Any] = log) -> Any:
            return lambda g: log.append((name, np.asarray(g).tolist()))

        multi = lib.autograd.graph.register_multi_grad_hook
        for used in ("a", "b", "ab"):
            x = lib.tensor([1.0, 2.0], requires_grad=True)
            a, b = checkpoint(lambda x: (x * x, x * 3), x)
            a.register_hook(note("a"))
            b.register_hook(note("b"))
            a.retain_grad()
            multi([a], lambda gs, log=log: log.append(("only a", len(gs))))
            multi([a, b], lambda gs, log=log: log.append(("both", [g is None for g in gs])))
            multi([a, b], note("any"), mode="any")
            sum([{"a": a, "b": b}[n].sum() for n in used]).backward()
            log.append((np.asarray(x.grad).tolist(), a.grad is None))
        logs.append(sorted(map(str, log)))
    assert logs[0] == logs[1]
    batch = fad.tensor([[1.0, 2.0]], requires_grad=True)
    a, b = fad.vmap(fad.checkpoint(lambda x: (x * x, x * 3)))(batch)
    a.register_hook(lambda g: pytest.fail("it is not reached"))
    b.sum().backward()
    assert batch.grad.tolist() == [[3.0, 3.0]]
