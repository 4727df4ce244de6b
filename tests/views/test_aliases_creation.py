"""Writes that are refused, for how a view was made or for what is written: nothing is changed by them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import FadError, GradientError

X = jnp.arange(1.0, 7.0).reshape(2, 3)
V = jnp.array([0.5, -1.0, 2.0])


def test_views_with_several_outputs_show_writes_to_their_base_and_refuse_recorded_writes():
    for make in (
        lambda x: x.split(3, 1),
        lambda x: x.unbind(1),
        lambda x: fnp.unstack(x, axis=1),
        lambda x: fnp.array_split(x, 2, axis=1),
        lambda x: fnp.hsplit(x, 3),
    ):
        x = fad.tensor(X)
        parts = make(x)
        assert all(p.is_view and p.base is x for p in parts)
        parts[1].zero_()
        x += 1
        assert_close(list(parts), list(make(fad.asarray(x.array))))
        with pytest.raises(GradientError, match="function that returns multiple views"):
            parts[0].mul_(leaf(2.0))
        y = leaf(X) * 1.0
        parts = make(y)
        with pytest.raises(
            GradientError, match=r"Output 0 of \w+Backward is a view and is being mod"
        ):
            parts[0].mul_(2.0)
        assert_close(y.detach(), X)
        y.mul_(2.0)
        with pytest.raises(
            GradientError, match="its base or another view of its base has been mod"
        ):
            parts[0] * 1.0
        assert_close(parts[0].detach(), make(fad.asarray(2 * X))[0])


def writes():
    expanded = lambda: (leaf(X) * 1.0).expand(2, 2, 3)

    def made_in(mode, x):
        with mode():
            return x[0]

    w = leaf(2.0)
    inference = made_in(fad.inference_mode, fad.tensor(X))
    with fad.inference_mode():
        of_inference = fad.tensor(X)
    plain = lambda: fad.tensor(X)
    tracked = lambda: leaf(X) * 1.0
    return {
        "leaf": (
            leaf(X),
            lambda t: t.add_(1.0),
            "add_: a leaf Variable that requires grad is being used",
        ),
        "view of a leaf": (
            leaf(X)[0],
            lambda t: t.add_(1.0),
            "a view of a leaf Variable that requires",
        ),
        "slice of a leaf": (leaf(X), lambda t: t.__setitem__(0, 1.0), "a view of a leaf Variable"),
        "split": (tracked().split(3, 1)[0], lambda t: t.add_(1.0), "returns multiple views"),
        "unbind": (
            tracked().unbind()[0],
            lambda t: t.add_(1.0),
            "Output 0 of UnstackBackward is a view",
        ),
        "view of unbind": (
            tracked().unbind()[0][1:],
            lambda t: t.zero_(),
            "returns multiple views",
        ),
        "no_grad view": (
            made_in(fad.no_grad, tracked()),
            lambda t: t.add_(1.0),
            "created in no_grad mode",
        ),
        "no_grad view, operand": (
            made_in(fad.no_grad, plain()),
            lambda t: t.mul_(w),
            "created in no_grad",
        ),
        "inference view": (inference, lambda t: t.mul_(w), "created in inference mode"),
        "inference": (
            of_inference,
            lambda t: t.add_(1.0),
            "Inplace update to inference tensor outside",
        ),
        "expanded": (
            expanded(),
            lambda t: t.add_(1.0),
            "more than one element of the written-to tensor",
        ),
        "shape": (
            plain(),
            lambda t: t.add_(jnp.ones((4, 2, 3))),
            r"add_: output with shape \[2, 3\]",
        ),
        "value": (
            plain(),
            lambda t: t.__setitem__(0, jnp.ones(4)),
            "could not broadcast a value of shape",
        ),
        "copy_": (plain(), lambda t: t.copy_(jnp.ones((1, 2, 3))), "copy_: cannot broadcast"),
        "dtype": (
            fad.tensor([1]),
            lambda t: t.add_(0.5),
            "add_: result type float32 can't be cast to",
        ),
        "fill_": (plain(), lambda t: t.fill_(V), "fill_: the value must have no dimensions"),
        "mask": (
            plain(),
            lambda t: t.masked_fill_(V, 0.0),
            "masked_fill: the mask must be of dtype bool",
        ),
        "mask shape": (plain(), lambda t: t.__setitem__(V > 0, 0.0), "bool mask of shape"),
        "index": (plain(), lambda t: t.__setitem__(5, 0.0), "out of bounds"),
        "index_put_": (plain(), lambda t: t.index_put_(V, 0.0), "indices must be a tuple"),
        "index_add_": (plain(), lambda t: t.index_add_(2, [0], 0.0), "dim 2 is out of range"),
        "scatter_": (
            plain(),
            lambda t: t.scatter_(0, jnp.array([0]), 1.0),
            "scatter: the index must be integers in the 2 dimensions",
        ),
        "detach_": (plain()[0], lambda t: t.detach_(), "Can't detach views in-place"),
        "out": (plain(), lambda t: fnp.add(V, 1.0, out=t), "out has shape"),
        "out array": (plain(), lambda t: fnp.add(t, 1.0, out=X), "out must be a Tensor"),
    }


@pytest.mark.parametrize("name", writes())
def test_a_refused_write_changes_nothing(name):
    t, write, words = writes()[name]
    base = t if t.base is None else t.base
    before, version = base.detach().array, None if base.is_inference() else base.version
    with pytest.raises((FadError, ValueError, TypeError, IndexError), match=words):
        write(t)
    assert_close(base.detach().array, before)
    assert version is None or base.version == version
