"""The node of a call of a Function: what it keeps, and what it finds out of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = jnp.array([0.3, -0.5, 0.7])


class Exp(fad.Function):
    """exp(x); what it keeps is its output."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = fnp.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


class PureExp(Exp):
    jax_rules = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = jnp.exp(x)
        ctx.save_for_backward(out)
        return out


def test_an_output_that_was_saved_and_then_changed_is_an_error(replay_mode: None) -> None:
    for F in (Exp, PureExp):
        for change in (
            lambda y: y.mul_(2.0),
            lambda y: y[:1].zero_(),
            lambda y: y.detach().zero_(),
        ):
            for _ in range(3):
                x = leaf(X)
                y = F.apply(x)
                total = y.sum()
                change(y)
                with pytest.raises(
                    GradientError, match=r"output 0 of \w*ExpBackward, is at version 1; expected"
                ):
                    total.backward()
                with pytest.raises(GradientError, match="modified by an inplace operation"):
                    y.sum().backward()
        x = leaf(X)
        with fad.autograd.allow_mutation_on_saved_tensors():
            y = F.apply(x)
        y.mul_(2.0)
        y.sum().backward()
        assert_close(x.grad, 2 * jnp.exp(X))

        def f(x: Any, F: Any = F) -> Any:
            y = F.apply(x)
            y.mul_(2.0)
            return y.sum()

        with pytest.raises(GradientError, match="modified by an inplace operation"):
            fad.grad(f)(X)


def test_an_output_that_was_changed_may_have_been_kept_in_another_way() -> None:
    class Attribute(fad.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.out = fnp.exp(x)
            return ctx.out

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * ctx.out

    x = leaf(X)
    Attribute.apply(x).mul_(2.0).sum().backward()
    assert_close(x.grad, 2 * jnp.exp(X))


# Outputs that are no Tensors


def mixed(function: Any) -> Any:
    class Mixed(function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            c = x * 4
            ctx.save_for_backward(c)
            return x * 2, 3, c, None, "s"

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any, *rest: Any) -> Any:
            assert b is None or not b.any()
            return a * 2 + c * ctx.saved_tensors[0]

    return Mixed


def seen_by_hooks(lib: Any, function: Any, used: str) -> Any:
    """What hooks and edges show of a node of which some outputs are no Tensors."""
    log: list[Any] = []
    listed = lambda gs: [g if g is None else g.tolist() for g in gs]
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    a, _, c, _, _ = mixed(function).apply(x)
    node = a.grad_fn
    node.register_prehook(lambda gs: log.append(listed(gs)))
    node.register_prehook(lambda gs: tuple([g if g is None else g * 10 for g in gs]))
    node.register_hook(lambda gi, go: log.append((listed(gi), listed(go))))
    c.register_hook(lambda g: g if g is None else g * 3)
    c.retain_grad()
    {"a": a, "c": c, "both": a + c}[used].sum().backward()
    edge = lib.autograd.graph.get_gradient_edge(c)
    shapes = [tuple(m.shape) for m in node._input_metadata]
    kept = None if c.grad is None else c.grad.tolist()
    return log, x.grad.tolist(), kept, (a.output_nr, c.output_nr, edge.output_nr), shapes


@pytest.mark.parametrize("used", ["a", "c", "both"])
def test_outputs_that_are_no_tensors_have_their_places(torch: Any, used: str) -> None:
    expected = seen_by_hooks(torch, torch.autograd.Function, used)
    assert seen_by_hooks(fad, fad.Function, used) == expected


def test_outputs_that_are_no_tensors_at_every_level(replay_mode: None) -> None:
    class Traceable(mixed(fad.Function)):  # type: ignore[misc]
        is_traceable = True

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any, *rest: Any) -> Any:
            return a * 2 + c * ctx.saved_tensors[0]

    def f(x: Any) -> Any:
        outs = Traceable.apply(x)
        return (outs[0] + outs[2] * outs[2]).sum()

    g = lambda x: 2 + 2 * (4 * x) * (4 * x)
    rows = jnp.stack([X, 2 * X])
    assert_close(fad.grad(f)(X), g(X))
    assert_close(fad.vmap(fad.grad(f))(rows), g(rows))
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(rows), g(rows))
    for _ in range(4):
        x = leaf(X)
        f(x * 1).backward()
        assert_close(x.grad, g(X))
    x = leaf(X)
    c = Traceable.apply(x)[2]
    c.mul_(2.0)
    with pytest.raises(GradientError, match="output 2 of TraceableBackward, is at version 1"):
        c.sum().backward()
