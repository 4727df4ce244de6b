"""Roots and inputs of a pass: every form of them, and errors that name what was passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import is_idle, leaf
from nodes import edge

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import Edge, GradientEdge
from fad.errors import GradientError

# Errors


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: (x * x).backward(), ["scalar outputs", r"\(2,\)", "y.sum()"]),
        (
            lambda x: (x * x).backward(fad.tensor([1.0])),
            ["Mismatch in shape", r"\(1,\)", r"\(2,\)"],
        ),
        (lambda x: x.detach().sum().backward(), ["does not require grad", "requires_grad=True"]),
        (lambda x: x.sum().backward(inputs=[]), ["cannot be empty"]),
        (lambda x: fad.autograd.backward([x.sum()], [None, None]), ["1 tensors", "2 gradients"]),
        (lambda x: fad.autograd.grad(x.sum(), x.detach()), ["input 0", "requires_grad_()"]),
        (
            lambda x: fad.autograd.grad(x, x, is_grads_batched=True),
            ["is_grads_batched=True", "grad_outputs"],
        ),
        (
            lambda x: fad.autograd.grad(x, x, fad.tensor(1.0), is_grads_batched=True),
            ["leading batch dimension"],
        ),
    ],
)
def test_bad_calls_say_what_to_pass(call: Callable[[Any], Any], words: list[str]) -> None:
    with pytest.raises(GradientError) as caught:
        call(leaf([1.0, 2.0]))
    for word in words:
        assert word.replace("\\", "") in str(caught.value)
    assert is_idle()


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"output 0 must be a Tensor, got float 3\.0"):
        fad.autograd.backward(3.0)
    with pytest.raises(TypeError, match="input 0 must be a Tensor"):
        fad.autograd.grad(leaf(1.0) * 2.0, 3.0)


def test_the_input_of_a_gradient_must_be_of_the_outputs_level() -> None:
    w = leaf(2.0)

    def f(x: Any) -> Any:
        return fad.autograd.grad(x * w, w, allow_unused=True)[0]

    # None or a constant would be wrong without a word: the result depends on x.
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.grad(f)(1.0)
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.vmap(lambda x: (x * w).backward())(jnp.ones(2))
    assert is_idle() and w.grad is None


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


def test_plain_edges_are_roots_and_inputs_too() -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    assert float(autograd.grad(edge(z), [edge(x)], retain_graph=True)[0]) == 3.0
    autograd.backward([edge(z)], inputs=edge(y))
    assert float(y.grad) == 2.0 and x.grad is None
    with pytest.raises(TypeError, match="output 0 must be a Tensor, got Edge"):
        autograd.backward([Edge()])
    with pytest.raises(
        GradientError, match="edge to input 3 of MultiplyBackward, which takes 1 gradients"
    ):
        autograd.backward(GradientEdge(z.grad_fn, 3), fad.tensor(1.0))
