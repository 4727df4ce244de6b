"""``transpose_``, ``squeeze_`` and the like: the shape changes in place, elements stay shared."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, bare

import fad
from fad.errors import GradientError, LevelError

VALUES = np.arange(1.0, 7.0, dtype=np.float32).reshape(1, 2, 3)
OURS = SimpleNamespace(
    tensor=fad.tensor,
    grad=fad.autograd.grad,
    no_grad=fad.no_grad,
    vmap=fad.vmap,
    func_grad=fad.grad,
)


@pytest.fixture(scope="module")
def theirs(torch: Any) -> SimpleNamespace:
    return SimpleNamespace(
        tensor=torch.tensor,
        grad=torch.autograd.grad,
        no_grad=torch.no_grad,
        vmap=torch.func.vmap,
        func_grad=torch.func.grad,
    )


def numbers(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return tuple(map(numbers, x))
    return x.detach().numpy() if type(x).__module__ == "torch" else bare(x)


def agree(f: Callable[[Any], Any], theirs: Any) -> None:
    expected = numbers(f(theirs))
    for _ in range(3):
        assert_close(numbers(f(OURS)), expected)


METHODS: dict[str, Callable[[Any], Any]] = {
    "transpose_": lambda x: x.transpose_(0, 2),
    "transpose_, negative": lambda x: x.transpose_(-1, 1),
    "transpose_, one dimension": lambda x: x.transpose_(1, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, -1),
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_, one": lambda x: x.squeeze_(0),
    "squeeze_, longer": lambda x: x.squeeze_(1),
    "squeeze_, some": lambda x: x.squeeze_((0, -1)),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "unsqueeze_, at the end": lambda x: x.unsqueeze_(-1),
    "t_": lambda x: x.squeeze_(0).t_(),
    "several": lambda x: x.transpose_(1, 2).unsqueeze_(0).squeeze_().t_(),
}


@pytest.mark.parametrize("name", METHODS)
def test_elements_stay_shared(name: str, theirs: Any) -> None:
    method = METHODS[name]

    def program(m: Any) -> Any:
        x = m.tensor(VALUES)
        row, detached = x[0, 1:], x.detach()
        assert method(x) is x
        after = x[0]
        row.mul_(2.0)
        x.add_(1.0)
        detached.mul_(3.0)
        after.sub_(1.0)
        return x, row, detached, after

    agree(program, theirs)


@pytest.mark.parametrize("name", METHODS)
def test_of_a_view_and_of_a_detached_tensor(name: str, theirs: Any) -> None:
    method = METHODS[name]

    def program(m: Any) -> Any:
        base = m.tensor(VALUES)
        view, peer = base[:, :, 1:], base.detach()
        method(view).mul_(2.0)
        part = peer[0]
        method(peer).add_(1.0)
        part.mul_(2.0)
        base[0, 0].sub_(1.0)
        return base, view, peer, part

    agree(program, theirs)


@pytest.mark.parametrize("name", METHODS)
def test_gradients(name: str, theirs: Any) -> None:
    method = METHODS[name]

    def program(m: Any) -> Any:
        x = m.tensor(VALUES, requires_grad=True)
        y = x * 1.0
        row = y[0, 1]
        method(y)
        y.mul_(y.detach().clone())
        row.mul_(3.0)
        with m.no_grad():
            z = m.tensor(VALUES, requires_grad=True)
            method(z)
        w = (z * z).sum()
        assert z.is_leaf and not y.is_leaf
        (g,) = m.grad((y * y).sum() + row.sum(), x, create_graph=True)
        return g, *m.grad((g * g).sum(), x), z, *m.grad(w, z)

    agree(program, theirs)


def test_what_was_saved_and_what_is_refused(theirs: Any) -> None:
    def program(m: Any) -> Any:
        leaf = m.tensor(VALUES, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            leaf.transpose_(0, 1)
        y = leaf * 1.0
        z = (y * y).sum()
        y.transpose_(0, 1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            m.grad(z, leaf)
        with pytest.raises((RuntimeError, ValueError), match="t_"):
            m.tensor(VALUES).t_()
        for call in (
            lambda x: x.transpose_(0, 3),
            lambda x: x.squeeze_(3),
            lambda x: x.unsqueeze_(5),
        ):
            x = m.tensor(VALUES)
            with pytest.raises((IndexError, ValueError)):
                call(x)
            assert x.shape == (1, 2, 3)
        wide = m.tensor(VALUES[0]).expand(4, 2, 3)
        assert wide.transpose_(0, 2).shape == (3, 2, 4)
        return leaf, y, wide

    agree(program, theirs)


def test_versions_vectors_and_numbers(theirs: Any) -> None:
    for m in (OURS, theirs):
        x = m.tensor(VALUES)
        before = x[0]
        x.transpose_(0, 1)
        version = x.version if m is OURS else x._version
        assert version == 1 and x.shape == (2, 1, 3) and before.shape == (2, 3)
        assert m.tensor([1.0, 2.0]).t_().shape == (2,)
        assert m.tensor(1.0).t_().shape == m.tensor(1.0).squeeze_(0).shape == ()
    assert fad.tensor(VALUES).expand_dims_((0, 2)).shape == (1, 1, 1, 2, 3)


def test_inside_of_transforms(theirs: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y.transpose_(0, 1)[0].mul_(2.0)
        return (y * y).sum()

    def program(m: Any) -> Any:
        x = m.tensor(VALUES)
        return m.func_grad(f)(x), m.vmap(f)(x), m.vmap(m.func_grad(f))(x)

    agree(program, theirs)
    x = fad.tensor(VALUES)
    assert_close(fad.jit(f)(x), f(x))
    assert_close(fad.jvp(f, (x,), (x,))[1], 2 * f(x))
    for transform in (fad.vmap, fad.jit, lambda f: lambda x: fad.jvp(f, (x,), (x,))):
        with pytest.raises(LevelError, match="shape of an argument"):
            transform(lambda a: a.transpose_(0, 1) * 1.0)(x)
        assert x.shape == VALUES.shape and x.base is None
    with pytest.raises(GradientError, match="leaf Variable"):
        fad.grad(lambda a: a.transpose_(0, 1).sum())(x)


@pytest.mark.parametrize("name", METHODS)
def test_under_no_grad(name: str) -> None:
    """The shape changes, the history goes on, whatever the grad mode is; PyTorch's gradients do not fit then,
    but for sizes of 1.
    """
    method = METHODS[name]
    changed = method(fad.tensor(VALUES)).shape

    def f(x: Any, mode: Any, of_view: bool) -> Any:
        y = x * 2.0
        row = y[0, 1]
        z = y[:, :, 1:] if of_view else y
        with mode():
            method(z)
        assert z.requires_grad and z.grad_fn is not None
        w = (z * z).sum() + row.sum()
        z.mul_(3.0)
        return w, (z * z).sum() + (row * row).sum()

    for of_view in (False, True):
        found = []
        for mode in (fad.enable_grad, fad.no_grad):
            x = fad.tensor(VALUES, requires_grad=True)
            w, v = f(x, mode, of_view)
            with pytest.raises(GradientError, match="modified by an inplace operation"):
                w.backward()
            v.backward()
            outer = fad.grad(lambda x: f(x, mode, of_view)[1])(fad.tensor(VALUES))
            found.append([float(v.detach()), x.grad.tolist(), outer.tolist()])
        assert found[0] == found[1]
    leaf = fad.tensor(VALUES, requires_grad=True)
    with fad.no_grad():
        method(leaf)
    (leaf * leaf).sum().backward()
    assert leaf.is_leaf and leaf.shape == changed == leaf.grad.shape


def test_views_of_a_leaf_keep_their_history(torch: Any, replay_mode: None) -> None:
    def run(m: Any) -> Any:
        leaf = m.tensor(VALUES[0], requires_grad=True)
        row = leaf[0]
        with m.no_grad():
            leaf.unsqueeze_(0)
        before = row.tolist()
        ((leaf * 3.0).sum() + (row * row).sum()).backward()
        return before, row.requires_grad, leaf.grad.tolist()

    assert run(fad) == run(torch)


@pytest.mark.parametrize("parts", ["view_as_real", "real"])
def test_a_write_to_parts_of_complex_numbers_whose_shape_was_changed(torch, parts):
    """Where fad differs from PyTorch, whose gradient is right for the same program out of place."""

    def gradient(m, in_place):
        a = m.tensor([[1.0 + 2.0j, 3.0], [0.5j, -1.0]], requires_grad=True)
        b = a * 1.0
        v = m.view_as_real(b) if parts == "view_as_real" else b.real
        v = v.transpose_(0, 1) if in_place else v.swapaxes(0, 1)
        v.mul_(m.tensor([[1.0, 2.0], [3.0, 4.0]]))
        ((b * b).real.sum() + (v * v).sum()).backward()
        return np.asarray(a.grad)

    right = gradient(torch, False)
    assert not np.allclose(gradient(torch, True), right)
    for in_place in (False, True):
        assert_close(gradient(fad, in_place), right)
