"""What was deferred is recorded on demand: values, nodes, and what each of them keeps."""

from __future__ import annotations

import gc

import jax.numpy as jnp
import numpy as np
import pytest
from repeated import TIMES, W, again, as_without, as_without_in_steps, hits, outcome, same, slope

import fad
import fad.numpy as fnp
from fad.core.level import flush
from fad.errors import GradientError

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_values_and_nodes_can_be_looked_at_in_the_middle():
    seen = []

    def f(x):
        y = fnp.sin(x)
        z = y * 2.0
        seen.append(
            (y.tolist(), z.grad_fn.name(), [n.name() for n, _ in z.grad_fn.next_functions if n])
        )
        return fnp.sum(z * z)

    again(fad.grad(f), X)  # up to the value
    assert len({str(s) for s in seen}) == 1
    assert seen[0][1:] == ("MultiplyBackward", ["SinBackward"])


def test_an_output_stored_outside_has_its_value_and_a_freed_node():
    kept = []

    def f(x):
        kept.append(fnp.sin(x))
        return fnp.sum(kept[-1] * kept[-1])

    again(fad.grad(f), X)
    for k in kept:
        same(fad.tensor(k).detach(), jnp.sin(X))
    (last,) = kept[-1:]
    assert last.grad_fn.name() == "SinBackward"
    with pytest.raises(GradientError, match="a second time"):
        last.grad_fn(jnp.ones(4))


ONES = jnp.ones((2, 3))


def test_a_pass_frees_what_it_has_gone_through_and_no_more():
    def two_losses(w, i):
        a, b = fnp.tanh(w * ONES).sum(), fnp.sin(w * 2.0).sum()
        a.backward()
        b.backward()
        return slope(w)

    def twice(w, i):
        a = (w + ONES).sum()
        a.backward()
        a.backward()
        return slope(w)

    def trunk(w, i):
        h = w + ONES
        h.sum().backward()
        (h * h).sum().backward()
        return slope(w)

    def freed(w, i):
        h = fnp.tanh(w * ONES)
        loss = h.sum()
        loss.backward()
        (h * h).sum().backward()

    def nodes(w, i):
        a, b = fnp.split(fnp.exp(w * ONES), [1], axis=1)
        loss = a.sum()
        loss.backward()
        n = loss.grad_fn
        edge = fad.autograd.GradientEdge(n, 0)
        return [
            a.grad_fn is b.grad_fn,
            n.next_functions != (),
            n.num_inputs,
            outcome(lambda: fad.autograd.grad(loss, w)),
            outcome(lambda: fad.autograd.backward(edge)),
            outcome(lambda: b.grad_fn._saved_result),
        ]

    for step in (two_losses, twice, trunk, freed, nodes):
        as_without_in_steps(step)


def test_what_is_kept_of_a_function_that_fails():
    def run(end):
        v, kept = fad.tensor(X), []

        def f(x):
            kept.append(x * v)
            return end()

        outcome(lambda: fad.grad(f)(X))
        v.add_(1.0)
        return kept[0].value.tolist()

    as_without(lambda: run(lambda: {}[0]))
    as_without(lambda: run(lambda: 1.0))


def test_nodes_of_functions_come_in_the_order_of_the_calls():
    order = []

    class Triple(fad.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3.0

        @staticmethod
        def backward(ctx, g):
            order.append("Function")
            return g * 3.0

    def step(w, i):
        order.clear()
        y = fnp.tanh(w * ONES)
        z = Triple.apply(w)
        if i < 8:
            y.sum().backward()
            return None
        y.register_hook(lambda g: order.append("y"))
        (y.sum() + z.sum()).backward()
        return list(order)

    as_without_in_steps(step)


def test_losses_that_are_kept_do_not_keep_what_their_graphs_had_saved():
    w = fad.tensor(W, requires_grad=True)
    losses, batches = [], []

    for k in range(3 * TIMES):
        batch = jnp.full((2, 3), float(k))
        loss = fnp.tanh(w * batch).sum()
        loss.backward()
        losses.append(loss)
        batches.append(batch)
        w.grad = None
    assert hits() > 0
    flush()
    assert [len(gc.get_referrers(batches[k])) for k in (-4, -3, -2)] == [1, 1, 1]  # the list
    for k, loss in enumerate(losses):
        np.testing.assert_allclose(loss.item(), np.tanh(W * k).sum(), rtol=1e-5)
        assert loss.grad_fn.next_functions[0][0].name() == "TanhBackward"
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()


def test_a_kept_value_that_the_pass_did_not_go_through_keeps_its_graph():
    w = fad.tensor(W, requires_grad=True)
    for _ in range(3 * TIMES):
        w.grad = None
        y = fnp.tanh(w * ONES)
        index = fnp.argsort(y, axis=1)
        other = fnp.take_along_axis(w * 2.0, index, axis=1)
        y.sum().backward()
        same(w.grad, 1.0 - jnp.tanh(W) ** 2)
        w.grad = None
        (other * other).sum().backward()
        same(w.grad, 8.0 * W)
    assert hits() > 0
