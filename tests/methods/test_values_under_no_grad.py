"""Looking at values: under ``no_grad``, and of views whose history is not valid."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import GradientError, TrackedValueError


def test_numpy_under_no_grad(torch: Any, replay_mode: None) -> None:
    def run(m: Any) -> Any:
        w = m.tensor([1.0, 2.0], requires_grad=True)
        y, found = w * 2.0, []
        for mode in (m.no_grad, m.inference_mode):
            with mode():
                found += [w.numpy().tolist(), np.asarray(y).tolist(), (y + 1.0).numpy().tolist()]
        with m.no_grad(), m.enable_grad(), pytest.raises((RuntimeError, TypeError)):
            w.numpy()
        for x in (w, y):
            with pytest.raises((RuntimeError, TypeError)):
                x.numpy()
        return found

    for _ in range(2):
        assert run(fad) == run(torch)


def test_numpy_of_levels_under_no_grad() -> None:
    def f(x: Any) -> Any:
        y = x * x
        with pytest.raises(TrackedValueError):
            y.numpy()
        with fad.no_grad():
            assert y.numpy().tolist() == [1.0, 4.0]
            fad.grad(inner)(y)  # a transform that began inside records
        return y.sum()

    def inner(z: Any) -> Any:
        with pytest.raises(TrackedValueError):
            z.numpy()
        return z.sum()

    assert fad.grad(f)(fnp.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    with fad.dual_level(), fad.no_grad(), pytest.raises(TrackedValueError):  # tangents go on
        fad.make_dual(fad.tensor(1.0), fad.tensor(2.0)).numpy()


def of_leaf(m: Any) -> Any:
    """A view of a leaf, made and written to under ``no_grad``."""
    w = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with m.no_grad():
        view = w[:2]
        view.add_(2.0)
    return view


def of_result(m: Any) -> Any:
    """A view made under ``no_grad`` of a result, which is written to there."""
    y = m.tensor([1.0, 2.0, 3.0], requires_grad=True) * 1.0
    with m.no_grad():
        view = y[:2]
        y.add_(2.0)
    return view


LOOKS: dict[str, Callable[[Any], Any]] = {
    "requires_grad": lambda v: v.requires_grad,
    "grad": lambda v: v.grad,
    "output_nr": lambda v: v.output_nr,
    "retains_grad": lambda v: v.retains_grad,
    "shape": lambda v: tuple(v.shape),
    "ndim": lambda v: (v.ndim, v.dim(), v.numel(), v.itemsize, v.nbytes, len(v)),
    "is_inference": lambda v: v.is_inference(),
    "tolist": lambda v: v.tolist(),
    "detach": lambda v: v.detach().tolist(),
    "invalid": lambda v: "Invalid" in repr(v) and "Invalid" in f"{v}" and "Invalid" in str(v),
    "requires_grad_": lambda v: v.requires_grad_() is v,
    "hash": lambda v: hash(v) == hash(v),
}


@pytest.mark.parametrize("make", [of_leaf, of_result])
def test_attributes_never_raise(make: Any, torch: Any, replay_mode: None) -> None:
    theirs = make(torch)
    for _, (name, look) in itertools.product(range(2), LOOKS.items()):
        ours = make(fad)
        assert look(ours) == look(theirs), name
        with fad.no_grad(), torch.no_grad():
            assert look(ours) == look(theirs), name
    view = make(fad)
    with fad.no_grad():  # these are computed with, which is not recorded here
        assert (
            view.numpy().tolist() == copy.copy(view).tolist() == view.clone().tolist() == [3.0, 4.0]
        )
        assert (float(view[0]), [float(v) for v in view]) == (3.0, [3.0, 4.0])
    assert not view.is_leaf
    for use in (lambda v: v.grad_fn, lambda v: v * 2.0, lambda v: v.sum().backward()):
        with pytest.raises(GradientError, match="created in no_grad mode"):
            use(view)
