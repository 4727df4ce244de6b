"""What a tool that looks on sees."""

from __future__ import annotations

import threading

import jax.numpy as jnp

import fad
import fad.numpy as fnp
from fad import extend


class Log:
    """Notes the kinds and names of what it observes."""

    def __init__(self):
        self.seen = []

    def observed(self, kind, function, args, kwargs):
        if kind == "operation":
            self.seen.append(args[1].name)
        return function(*args, **kwargs)

    def node(self, function, work, node, *args):
        self.seen.append(node.name())
        return function(work, node, *args)


def test_operations_and_nodes_are_observed_until_observation_ends():
    log, x = Log(), fad.tensor(1.0, requires_grad=True)
    extend.observe(log)
    try:
        fnp.sin(x).backward()
    finally:
        extend.observe(None)
    seen = list(log.seen)
    assert seen[0] == "sin" and "SinBackward" in seen
    fnp.sin(x).backward()
    assert log.seen == seen


def test_levels_are_those_of_the_thread():
    def kinds():
        return [level.kind for level in extend.running_levels()]

    def f(x):
        found["inside"] = kinds()
        worker = threading.Thread(target=lambda: found.update(other=kinds()))
        worker.start()
        worker.join()
        return x * 2.0

    found = {}
    fad.vmap(fad.grad(f))(jnp.ones(2))
    assert found == {"inside": ["vmap", "grad"], "other": []} and kinds() == []


def test_a_thread_has_the_number_of_its_nodes():
    x = fad.tensor(1.0, requires_grad=True)
    numbers = []

    def record():
        numbers.append((extend.thread_id(), (x * 2.0).grad_fn.thread_id))

    record()
    worker = threading.Thread(target=record)
    worker.start()
    worker.join()
    assert all([a == b for a, b in numbers]) and numbers[0] != numbers[1]


def test_what_is_deferred_has_no_value_yet():
    def f(x):
        y = fnp.sin(x) * 2.0
        deferred.append(extend.is_deferred(y))
        return y

    deferred = []
    for _ in range(6):
        fad.grad(f)(1.0)
    assert not extend.is_deferred(fad.tensor(1.0)) and set(deferred) <= {True, False}
