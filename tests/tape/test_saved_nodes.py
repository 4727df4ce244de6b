"""The saved values of a node as its attributes: by name and by number, bare and packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import leaf

import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError


def test_hooks_of_single_values() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    log: list[str] = []
    for name in ("self", "other"):
        getattr(y.grad_fn, f"_raw_saved_{name}").register_hooks(
            lambda t, name=name: log.append(f"pack {name}") or t,
            lambda t, name=name: log.append(f"unpack {name}") or t,
        )
    assert log == ["pack self", "pack other"]
    (g,) = autograd.grad(y, x, create_graph=True)
    assert log[2:] == ["unpack self", "unpack other"]
    assert float(autograd.grad(g, w)[0]) == 1.0
    with pytest.raises(GradientError, match="hooks have already been set"):
        y.grad_fn._raw_saved_self.register_hooks(print, print)


def test_hooks_of_single_values_after_a_failure() -> None:
    x = leaf(2.0)
    y = fnp.exp(x)
    raw = y.grad_fn._raw_saved_result
    with pytest.raises(ZeroDivisionError):
        raw.register_hooks(lambda t: 1 / 0, lambda t: t)
    raw.register_hooks(lambda t: t, lambda t: t)
    y.backward()
    assert float(x.grad) == pytest.approx(float(np.exp(2.0)))
    z = leaf(2.0) * 3.0
    with pytest.raises(TypeError, match="number 3.0"):
        z.grad_fn._raw_saved_other.register_hooks(lambda t: t, lambda t: t)


def test_saved_values_have_names() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    assert y.grad_fn._saved_self.item() == 2.0 and y.grad_fn._saved_other.item() == 3.0
    assert y.grad_fn._saved_0.item() == 2.0 and y.grad_fn._saved_1.grad_fn is None
    e = fnp.exp(x * 1.0)
    assert float(e.grad_fn._saved_result) == pytest.approx(np.exp(2.0))
    with pytest.raises(AttributeError, match="it saved _saved_result"):
        e.grad_fn._saved_self
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        e.grad_fn.nonsense
    assert isinstance(y.grad_fn._raw_saved_self, autograd.SavedTensor)


def test_each_value_is_checked_or_has_hooks_for_itself() -> None:
    def product() -> Any:
        x = leaf(2.0)
        y = x * 1.0
        return x, y, fnp.exp(y) * y

    x, y, z = product()
    z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    y += 1.0
    with pytest.raises(
        GradientError, match=r"saved for MultiplyBackward, is at version 1; expected"
    ):
        z.backward()
    assert z.grad_fn._saved_self.item() == pytest.approx(float(np.exp(2.0)))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        z.grad_fn._saved_other
    x, y, z = product()
    z.grad_fn._raw_saved_other.register_hooks(lambda t: t.clone(), lambda t: t)
    y += 1.0
    z.backward()
    assert float(x.grad) == pytest.approx(3 * float(np.exp(2.0)))


def test_an_output_that_is_packed_is_not_checked() -> None:
    for hooks_first in (True, False):
        x = leaf(2.0)
        y = fnp.exp(x)
        z, node = y * 1.0, y.grad_fn
        if hooks_first:
            node._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
        y += 1.0
        if not hooks_first:
            node._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
        z.backward()
        assert float(x.grad) == pytest.approx(float(np.exp(2.0)))
