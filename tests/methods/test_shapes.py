"""Views under PyTorch's names: writes reach the base, gradients flow, and errors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad

A = np.arange(12.0, dtype=np.float32).reshape(3, 4)
# A view of a (3, 4), where PyTorch's writes to it reach `a`.
PROGRAMS = """
a.t()  a.permute(1, 0)  a.unsqueeze(1)  a.narrow(1, 1, 2)  a.select(0, 1)  a.view(2, 6)  a.flatten(0)
a.view_as(c)  a.unflatten(1, (2, 2))  a.movedim(0, 1)  a.swapdims(0, 1)  a.chunk(2)[1]
a.split(3, dim=1)[0]  a.unbind(1)[2]  a.unfold(1, 2, 2)  a.mT  a.adjoint()  a.H  a.diagonal()
a.squeeze(dim=0)  a.transpose(dim0=0, dim1=1)  a.split_with_sizes([1, 2])[1]
"""
VIEWS = [v for line in PROGRAMS.strip().splitlines() for v in line.split("  ")]


def run(library: Any, view: str, data: Any, tracked: bool) -> tuple[Any, Any]:
    """The values of the base after a write to a view of it; and its gradient."""
    start = library.tensor(data)
    a = start.requires_grad_() * 1.0 if tracked else start
    v = eval(view, {"a": a, "c": library.tensor(data.reshape(4, 3))})
    v.mul_(2.0)
    if not tracked:
        return a.tolist(), None
    (a * a).sum().backward()
    return a.tolist(), start.grad.tolist()


@pytest.mark.sweep("view", VIEWS, sample=10)
def test_writes_to_views_reach_their_base_as_in_pytorch(torch: Any, view: str) -> None:
    assert run(fad, view, A, False) == run(torch, view, A, False)
    several = any([name in view for name in ("chunk", "split", "unbind")])
    if several:
        for library in (fad, torch):
            with pytest.raises(RuntimeError, match="(?s)view.*inplace|multiple views"):
                run(library, view, A, True)
    else:
        assert run(fad, view, A, True) == run(torch, view, A, True)


@pytest.mark.parametrize("view", ["a.unfold(1, 2, 1)", "a[:1].expand_as(a)"])
def test_elements_that_overlap_are_not_written_to(torch: Any, view: str) -> None:
    for library in (
        (fad, torch) if "expand" in view else (fad,)
    ):  # PyTorch sees it in what is expanded
        with pytest.raises(RuntimeError, match="single memory location"):
            run(library, view, A, False)


@pytest.mark.parametrize("replayed", [True, False])
def test_views_in_transforms(replayed: bool) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y.narrow(0, 1, 2).t()[0] *= 3.0
        y.unsqueeze(0).select(2, 1).zero_()
        return (y.permute(1, 0).flatten(0) * jnp.arange(12.0)).sum()

    weights = jnp.arange(12.0).reshape(4, 3).T
    expected = weights.at[:, 1].set(0.0).at[1:, 0].multiply(3.0)
    with fad.autograd.compiled(replayed):
        assert_close(fad.grad(f)(jnp.asarray(A)), expected)
    assert_close(fad.jit(fad.grad(f))(jnp.asarray(A)), expected)
    assert_close(fad.vmap(fad.grad(f))(jnp.stack([A, A]))[1], expected)
    assert_close(fad.jvp(f, (A,), (np.ones_like(A),))[1], expected.sum())


def test_what_numpy_means_stays() -> None:
    x = fad.tensor(A)
    assert_close(x.transpose(0, 1), jnp.asarray(A))
    assert_close(x.transpose(1, 0), jnp.asarray(A.T))
    assert [p.shape for p in x.split(2, 1)] == [(3, 2)] * 2
    assert_close(x.repeat(2, 1), jnp.asarray(A.repeat(2, 1)))
    assert not x.flatten().is_view and x.flatten(0).is_view and not x.flatten("C").is_view
    assert_close(x.flatten(order="F"), jnp.asarray(A.flatten("F")))
    assert x.view(jnp.int32).dtype == x.view(dtype="int32").dtype == jnp.int32


def test_permute_has_a_keyword() -> None:
    x = leaf(A[None])
    assert_close(x.permute(dims=(2, 0, 1)), jnp.asarray(A[None].transpose(2, 0, 1)))
    assert x.permute(dims=(2, 0, 1)).is_view


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: x.transpose(0, 1), r"write x.swapaxes\(0, 1\) or x.transpose\(dim0=0, dim1=1\)"),
        (lambda x: x.t(), "t: expected a Tensor with at most 2 dimensions"),
        (lambda x: x.H, "H: expected a matrix"),
        (lambda x: x.narrow(0, 1, 3), "narrow: 3 from 1 on is out of range"),
        (lambda x: x.narrow(3, 0, 1), "narrow: dim 3 is out of range"),
        (lambda x: x.select(-4, 0), "select: dim -4 is out of range"),
        (lambda x: x.sum_to_size(2, 4), r"\[2, 4\] does not broadcast to"),
        (lambda x: x.repeat(2, 1, 1), r"write x.tile\(2, 3\)"),
        (lambda x: x.squeeze(0), r"write x.squeeze\(dim=0\)"),
        (lambda x: x.sort(0, True), r"write x.sort\(dim=-1\)"),
        (lambda x: x.max(x), r"write x.maximum\(y\)"),
        (lambda x: x.min(x), r"write x.minimum\(y\)"),
    ],
)
def test_calls_that_only_pytorch_has_say_what_to_write(call: Any, words: str) -> None:
    x = leaf(A[None])
    with pytest.raises((ValueError, TypeError, IndexError, RuntimeError), match=words):
        call(x if words[:3] != "wri" or "squeeze" not in words else leaf(A))


@pytest.mark.parametrize("size", [0, 3])
def test_parts_from_any_place_on_are_those_of_torch(torch: Any, size: int) -> None:
    def outcome(library: Any, start: int, length: int) -> Any:
        try:
            return library.arange(size).narrow(0, start, length).tolist()
        except (IndexError, RuntimeError):
            return None

    for start in range(-5, 6):
        for length in range(5):
            assert outcome(fad, start, length) == outcome(torch, start, length)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: x.flatten(1.0), r"Tensor.flatten\(\): a dimension must be an integer"),
        (lambda x: x.flatten(0, 1.0), r"Tensor.flatten\(\): a dimension must be an integer"),
        (lambda x: x.flatten(0, 1, 2), r"Tensor.flatten\(\) takes from 1 to 3 positional"),
        (
            lambda x: x.flatten(dim=1),
            r"Tensor.flatten\(\) got an unexpected keyword argument 'dim'",
        ),
        (lambda x: x.flatten(0, order="C"), r"Tensor.flatten\(\) takes order, or dimensions"),
    ],
)
def test_wrong_arguments_of_flatten_are_type_errors(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call(fad.tensor(A))


def test_flatten_writes_into_out() -> None:
    x, flat = fad.tensor(A), fad.zeros(12)
    for arguments in ({}, {"start_dim": 0}, {"order": "F"}):
        assert x.flatten(**arguments, out=flat) is flat
        assert_close(flat, jnp.asarray(A.flatten(arguments.get("order", "C"))))
    line = fad.zeros(3)
    assert fad.ones(3).flatten(0, out=line) is line and line.tolist() == [1.0] * 3


def test_members_do_not_reach_those_of_a_subclass():
    class Loud(fad.Tensor):
        def clone(self):
            raise AssertionError

        is_contiguous = index_put_ = clone

    x = fad.ones(3)
    x.__class__ = Loud
    assert x.copy().tolist() == x.contiguous().tolist() == [1.0, 1.0, 1.0]
    assert x.index_put(([0],), 2.0).tolist() == [2.0, 1.0, 1.0]


def test_replay_on_of_no_view_is_an_error_of_gradients():
    with pytest.raises(fad.errors.GradientError, match="is not a view") as caught:
        fad.ones(3).replay_on(fad.ones(3))
    assert not isinstance(caught.value, AttributeError)  # hasattr would not see it
