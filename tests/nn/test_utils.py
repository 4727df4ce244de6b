"""Norms and clipping of gradients, and parameters as one vector, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import assert_close

import fad
from fad.errors import HostValueError

SHAPES = [(3,), (2, 2), ()]
VALUES = [np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate(SHAPES)]


def with_grads(library: Any) -> list[Any]:
    found = [library.tensor(v, requires_grad=True) for v in VALUES]
    (2.0 * sum([(p * p).sum() for p in found])).backward()
    return [*found, library.tensor(1.0, requires_grad=True)]  # the last has no gradient


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_norms_are_clipped_as_in_pytorch(torch: Any, norm_type: float, max_norm: float) -> None:
    own, theirs = with_grads(fad), with_grads(torch)
    utils = torch.nn.utils
    found = fad.nn.utils.clip_grad_norm_(iter(own), max_norm, norm_type)
    assert_close(found.array, utils.clip_grad_norm_(theirs, max_norm, norm_type).numpy(), rtol=1e-5)
    for p, q in zip(own[:-1], theirs[:-1], strict=True):
        assert_close(p.grad.array, q.grad.numpy(), rtol=1e-5)
    assert own[-1].grad is None


def test_values_are_clipped_as_in_pytorch(torch: Any) -> None:
    own, theirs = with_grads(fad), with_grads(torch)
    before = own[0].grad
    fad.nn.utils.clip_grad_value_(own, 0.5)
    torch.nn.utils.clip_grad_value_(theirs, 0.5)
    for p, q in zip(own[:-1], theirs[:-1], strict=True):
        assert_close(p.grad.array, q.grad.numpy())
    assert own[0].grad is before


def test_a_norm_that_is_known() -> None:
    own = with_grads(fad)
    expected = [p.grad.array / 4 for p in own[:-1]]
    total = fad.nn.utils.get_total_norm([p.grad for p in own[:-1]])
    fad.nn.utils.clip_grads_with_norm_(own, total / 4, total)
    for p, grad in zip(own[:-1], expected, strict=True):
        assert_close(p.grad.array, grad, rtol=1e-5)
    assert fad.nn.utils.get_total_norm([]).item() == 0


def test_in_compiled_code_and_batched() -> None:
    """A tree of parameters, of values that have no numbers yet."""

    def clipped(value: Any) -> Any:
        params = {"w": value.clone().detach().requires_grad_()}
        (params["w"] ** 2).sum().backward()
        norm = fad.nn.utils.clip_grad_norm_(params, 1.0)
        return norm, params["w"].grad

    x = fad.tensor(VALUES[1])
    expected = clipped(x)
    assert_close(fad.jit(clipped)(x), expected, rtol=1e-5)
    found = fad.vmap(clipped)(x[None])
    assert_close(tuple(a[0] for a in found), expected, rtol=1e-5)


def test_a_norm_that_is_not_finite() -> None:
    w = fad.tensor([1.0, 2.0], requires_grad=True)
    (w * fad.tensor([math.inf, 1.0])).sum().backward()
    with pytest.raises(ArithmeticError, match="the norm of order 2.0 is inf.*detect_anomaly"):
        fad.nn.utils.clip_grad_norm_(w, 1.0, error_if_nonfinite=True)
    assert w.grad.tolist() == [math.inf, 1.0]
    with pytest.raises(HostValueError, match="error_if_nonfinite=True reads the norm"):
        fad.jit(lambda: fad.nn.utils.clip_grad_norm_(w, 1.0, error_if_nonfinite=True))()


def test_parameters_as_a_vector(torch: Any) -> None:
    own = [fad.tensor(v, requires_grad=True) for v in VALUES]
    theirs = [torch.tensor(v) for v in VALUES]
    vector = fad.nn.utils.parameters_to_vector(own)
    assert_close(vector.array, torch.nn.utils.parameters_to_vector(theirs).numpy())
    vector.sum().backward()
    assert own[1].grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    fad.nn.utils.vector_to_parameters(2 * vector, own)
    for p, value in zip(own, VALUES, strict=True):
        assert_close(p.array, 2 * value)
        assert p.is_leaf and p.requires_grad


def test_errors() -> None:
    with pytest.raises(fad.errors.ArgumentError, match="clip_grad_norm_: expected Tensors, got"):
        fad.nn.utils.clip_grad_norm_([np.zeros(3)], 1.0)
    with pytest.raises(fad.errors.ArgumentError, match="got none"):
        fad.nn.utils.parameters_to_vector([])
    with pytest.raises(
        fad.errors.ArgumentError, match=r"have 3 elements, and vec the shape \(2,\)"
    ):
        fad.nn.utils.vector_to_parameters(fad.zeros(2), [fad.zeros(3)])


@pytest.mark.parametrize(
    "collected", [list, set, iter, lambda x: {0: x[0]}, lambda x: {0: x[0]}.values()]
)
def test_any_iterable_of_parameters_is_taken(collected):
    w = fad.tensor([3.0, 4.0], requires_grad=True)
    w.grad = fad.tensor([3.0, 4.0])
    assert fad.nn.utils.clip_grad_norm_(collected([w]), 1.0).item() == 5.0
    assert fad.nn.utils.parameters_to_vector(collected([w])).tolist() == [3.0, 4.0]
    with pytest.raises(fad.errors.ArgumentError, match=r"got none; an iterator has its items once"):
        fad.nn.utils.parameters_to_vector(iter([]))
