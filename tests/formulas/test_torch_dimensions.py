"""Dimensions as PyTorch counts them, against PyTorch; NumPy's errors for NumPy's spelling."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp

# Calls of methods of a Tensor without dimensions, with `t` as fad and as torch.
ALONG = """
x.sum(dim=0)
x.sum(dim=(-1,), keepdim=True)
x.mean(dim=-1, keepdim=True)
x.prod(dim=0)
x.amax(dim=(0,))
x.amin(dim=-1)
x.argmax(dim=0)
x.argmin(dim=-1, keepdim=True)
x.any(dim=0)
x.all(dim=-1, keepdim=True)
x.nansum(dim=0)
x.nanmean(dim=0)
x.count_nonzero(dim=0)
x.cumsum(dim=0)
x.cumprod(dim=-1)
x.clone().cumsum_(dim=0)
x.argsort(dim=0)
x.quantile(0.5, dim=0, keepdim=True)
x.quantile(t.tensor([0.25, 0.5]), dim=0)
x.quantile(t.tensor([0.25, 0.5]), dim=-1, keepdim=True)
x.std(dim=0, correction=0)
x.var(dim=0, correction=0, keepdim=True)
x.softmax(dim=0)
x.flip(dims=(0,))
x.nonzero(as_tuple=True)
x.movedim(0, -1)
x.swapdims(0, -1)
x.transpose(dim0=0, dim1=0)
"""


def _leaves(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


@pytest.mark.parametrize("program", ALONG.strip().splitlines())
def test_a_number_has_one_dimension(torch: Any, program: str) -> None:
    found = []
    for t in (torch, fad):
        x = t.tensor(2.0, requires_grad=True)
        outs = _leaves(eval(program, {"t": t, "x": x}))
        if outs[0].requires_grad and "std" not in program:
            outs[0].sum().backward()
        grad = None if x.grad is None else x.grad.tolist()
        found.append([*[(tuple(o.shape), o.tolist()) for o in outs], grad])
    assert found[0] == found[1]


# `dim=()` is all dimensions, or none, by function.
EMPTY = """
x.sum(dim=())
x.mean(dim=(), keepdim=True)
x.amax(dim=())
x.nansum(dim=())
x.count_nonzero(dim=())
x.var(dim=())
x.norm(dim=())
x.any(dim=())
x.flip(())
"""


@pytest.mark.parametrize("program", EMPTY.strip().splitlines())
def test_no_dimensions(torch: Any, program: str) -> None:
    data = [[1.0, 2.0], [3.0, 5.0]]
    expected = eval(program, {"x": torch.tensor(data)})
    found = eval(program, {"x": fad.tensor(data)})
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.array, expected.numpy(), rtol=1e-5)


def test_a_lane_may_have_no_dimensions() -> None:
    xs = jnp.arange(3.0)
    assert_close(fad.vmap(lambda x: (x * x).sum(dim=0))(xs), xs * xs)
    assert_close(fad.vmap(fad.grad(lambda x: (x * x).cumsum(dim=-1)))(xs), 2 * xs)
    assert_close(fad.jit(lambda x: fnp.mean(x, dim=0))(jnp.asarray(2.0)), jnp.asarray(2.0))
    assert_close(fnp.sum(2.0, dim=0, keepdim=True), jnp.asarray(2.0))
    assert_close(fad.nn.softmax(jnp.asarray(2.0), dim=0), jnp.asarray(1.0))


@pytest.mark.parametrize("name", ["sum", "mean", "argmax", "cumsum", "std", "sort", "logsumexp"])
def test_a_dimension_that_is_not_there_is_named(name: str) -> None:
    for data, text in ((2.0, ""), ([1.0, 2.0], "2")):
        with pytest.raises(
            IndexError, match=rf"{name}: dim 1 is out of range for float32\[{text}\]"
        ):
            getattr(fad.tensor(data), name)(dim=1)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "argmax", "cumsum", "all", "quantile"])
def test_an_axis_that_is_not_there_is_an_error_of_numpy(name: str) -> None:
    x = fad.tensor(2.0)
    q = (0.5,) if name == "quantile" else ()
    for call in (
        lambda: getattr(x, name)(*q, axis=-1),
        lambda: getattr(x, name)(*q, -1),
        lambda: getattr(fnp, name)(x.array, *q, axis=-1),
    ):
        if name == "cumsum":  # there a number has one dimension in NumPy too
            assert call().shape == (1,)
        else:
            with pytest.raises(np.exceptions.AxisError, match="axis -1 is out of bounds"):
                call()


# PyTorch's name of the second operand.
OPERANDS = """
x.pow(exponent=2)
x.maximum(other=y)
x.fmod(other=2.0)
x.copysign(other=-1.0)
x.logaddexp(other=y)
x.mul(other=y)
x.clone().mul_(other=y)
x.matmul(other=y)
x.dot(tensor=y)
x.outer(vec2=y)
x.isclose(other=y, rtol=1e-3)
x.xlogy(other=y)
x.quantile(0.4, dim=0, interpolation="lower")
x.cov(correction=0)
"""


@pytest.mark.parametrize("program", OPERANDS.strip().splitlines())
def test_second_operands_by_name(torch: Any, program: str) -> None:
    results = [
        eval(program, {"x": t.tensor([1.0, 2.0, 4.0]), "y": t.tensor([3.0, 2.0, 1.0])})
        for t in (torch, fad)
    ]
    np.testing.assert_allclose(results[1].array, results[0].numpy(), rtol=1e-5)
