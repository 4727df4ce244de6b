"""Functions of PyTorch as operations: when a call is one of PyTorch's, and under transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.arrays.torch_operations import FORMS
from fad.formulas.torch_functions import ValuesIndices

A = jnp.array([[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]])


def test_operations_are_found_by_name() -> None:
    assert torch_operations.topk is torch_operations.topk
    assert torch_operations.max.__doc__.startswith("The greatest elements")
    with pytest.raises(AttributeError, match="has no attribute 'math'"):
        torch_operations.math
    for name, form in FORMS.items():
        assert callable(getattr(fnp, name)) and form.make().name in (name, "sub", "div")


def test_a_keyword_of_pytorch_makes_the_call_pytorchs() -> None:
    out = fnp.max(A, dim=1)
    assert type(out) is ValuesIndices and isinstance(out.values, jax.Array)
    assert_close(out, ValuesIndices(jnp.array([5.0, 6.0]), jnp.array([1, 2])))
    x = fad.tensor(A)
    assert isinstance(x.max(dim=1).indices, fad.Tensor)
    assert_close(x.max(1), jnp.array([5.0, 6.0]))
    assert_close(x.std(dim=1), jnp.std(A, 1, ddof=1))
    assert_close(x.std(1), jnp.std(A, 1))
    assert_close(x.median(dim=1).values, jnp.array([2.0, 4.0]))
    assert_close(fnp.median(x), jnp.median(A))
    assert [p.shape for p in x.split(2, dim=1)] == [(2, 2), (2, 1)]
    assert [p.shape for p in x.split(3, axis=1)] == [(2, 1)] * 3
    assert_close(fnp.add(x, 1.0, alpha=2.0), A + 2)


# Calls of methods of a Tensor without dimensions, with `t` as fad and as torch.
OF_NUMBERS = """
x.topk(1, 0)
x.topk(1, 0, largest=False)
x.kthvalue(1)
x.mode(0, True)
x.sort(dim=0)
x.msort()
x.max(dim=-1, keepdim=True)
x.median(dim=0)
x.aminmax(dim=0)
x.cummax(0)
x.logcumsumexp(0)
x.softmax(0)
x.log_softmax(-1)
x.logsumexp(0)
x.norm(2, 0)
x.unfold(0, 1, 1)
x.unfold(0, 0, 2)
x.index_select(0, t.tensor([0]))
x.index_add(0, t.tensor([0]), t.tensor(1.0))
x.index_copy(0, t.tensor(0), t.tensor(3.0))
x.index_fill(0, t.tensor([0]), 3.0)
x.clone().index_add_(0, t.tensor([0]), t.tensor(1.0))
x.clone().squeeze_(-1)
"""


@pytest.mark.parametrize("program", OF_NUMBERS.strip().splitlines())
def test_a_number_counts_as_having_one_dimension(torch: Any, program: str) -> None:
    expected = eval(program, {"t": torch, "x": torch.tensor(2.0)})
    found = eval(program, {"t": fad, "x": fad.tensor(2.0)})
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for own, theirs in zip(found, expected, strict=True):
        assert own.shape == theirs.shape and own.tolist() == theirs.tolist()


# Calls that PyTorch refuses, where JAX's functions would make something of them.
REFUSED = """
t.tensor(3.0).repeat_interleave(2, dim=0)
t.tensor(3.0).repeat_interleave(t.tensor([2]), dim=-1)
t.tensor(3.0).repeat_interleave(2, dim=1)
t.tensor([1.0, 2.0]).repeat_interleave(2, dim=1)
t.tensor([1.0, 2.0]).repeat_interleave(-1)
t.tensor([1.0, 2.0]).repeat_interleave(t.tensor([-1, 2]))
t.tensor([1.0, 2.0]).repeat_interleave(t.tensor([1, 2, 1]))
t.tensor(3.0).renorm(2, 0, 1.0)
t.tensor([3.0]).renorm(2, 0, 1.0)
t.tensor([1.0, 2.0]).diag_embed(dim1=1, dim2=-1)
t.tensor([1.0, 2.0]).diag_embed(dim1=2)
"""


@pytest.mark.parametrize("program", REFUSED.strip().splitlines())
def test_what_pytorch_refuses(torch: Any, program: str) -> None:
    for t in (torch, fad):
        with pytest.raises((IndexError, RuntimeError, ValueError, TypeError)):
            eval(program, {"t": t})


def test_transforms() -> None:
    def f(x: Any) -> Any:
        values, indices = x.topk(2, dim=-1)
        return (values * (indices + 1)).sum() + x.sort(dim=0).values[0].sum() + x.std(dim=0).sum()

    def g(x: Any) -> Any:
        values, indices = jax.lax.top_k(x, 2)
        return (
            (values * (indices + 1)).sum() + jnp.sort(x, 0)[0].sum() + jnp.std(x, 0, ddof=1).sum()
        )

    assert_close(fad.grad(f)(A), jax.grad(g)(A))
    assert_close(fad.jit(fad.grad(f))(A), jax.grad(g)(A))
    assert_close(fad.jvp(f, (A,), (A,)), jax.jvp(g, (A,), (A,)))
    assert_close(fad.vmap(f)(jnp.stack([A, A + 1])), jax.vmap(g)(jnp.stack([A, A + 1])))
    assert_close(fad.hessian(f)(A), jax.jit(jax.hessian(g))(A))


@pytest.mark.parametrize(
    "name", ["max", "min", "median", "nanmedian", "squeeze", "split", "topk", "norm"]
)
def test_a_dimension_that_is_not_there_is_named(name: str) -> None:
    x = fad.tensor(A)
    args = (1,) if name in ("split", "topk") else ()
    with pytest.raises(IndexError, match=rf"{name}: dim 2 is out of range for float32\[2,3\]"):
        getattr(x, name)(*args, dim=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: x.topk(4), "topk: k must be from 0 to 3, got 4"),
        (lambda x: x.kthvalue(0), "kthvalue: k must be from 1 to 3, got 0"),
        (lambda x: x.mm(x[0]), r"mm: mat2 must have 2 dimensions, got float32\[3\]"),
        (
            lambda x: x.addmm(x[None], x),
            r"addmm: mat1 must have 2 dimensions, got float32\[1,2,3\]",
        ),
        (lambda x: x.split([1, 1], dim=1), r"the sizes \[1, 1\] do not add up to 3"),
        (lambda x: x.split(0, dim=1), "split_size must be at least 1, got 0"),
        (lambda x: x.chunk(0), "chunks must be at least 1, got 0"),
        (lambda x: x.div(2.0, rounding_mode="up"), "'floor' or 'trunc', got 'up'"),
        (lambda x: x.masked_fill(x, 0.0), "the mask must be of dtype bool"),
        (
            lambda x: x.unfold(1, 4, 1),
            "expected a size from 0 to 3 and a step of at least 1, got size 4",
        ),
        (lambda x: x.gather(0, np.array([0])), r"integers in the 2 dimensions of float32\[2,3\]"),
        (lambda x: x.index_add(0, np.ones(1), x), "index_add: the index must be integers"),
        (lambda x: x.scatter(0, np.array([[0]])), "expected either src or value"),
        (
            lambda x: x.scatter_reduce(0, np.array([[0]]), x, "xor"),
            "reduce must be one of .*, got 'xor'",
        ),
        (lambda x: x.scatter_add(0, np.zeros((2, 3), int), x[:1]), "src must be at least as large"),
        (lambda x: x.flatten(1, 0), "start_dim 1 is behind end_dim 0"),
    ],
)
def test_wrong_arguments_are_named(call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call(fad.tensor(A))


def test_gelu_takes_what_pytorch_calls_its_formulas() -> None:
    for name, approximate in (("none", False), ("tanh", True)):
        expected = jax.nn.gelu(A, approximate=approximate)
        assert_close(fad.nn.gelu(fad.tensor(A), approximate=name), expected)
        assert_close(fad.jit(fad.vmap(lambda x: fad.nn.gelu(x, approximate=name)))(A), expected)
    with pytest.raises(
        fad.errors.ArgumentError, match=r"'none' \(False\) or 'tanh' \(True\), got 'erf'"
    ):
        fad.nn.gelu(A, approximate="erf")
