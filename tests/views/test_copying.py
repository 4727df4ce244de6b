"""Copies and pickles of Tensors and of views."""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from values import assert_close

import fad
import fad.numpy as fnp
from fad.errors import GradientError

V = jnp.array([1.0, 2.0, 3.0])
X = jnp.arange(6.0).reshape(2, 3) + 1


def test_a_deep_copy_of_a_leaf_has_a_gradient_of_its_own():
    x = leaf(V)
    called = []
    x.register_hook(called.append)
    y = x * 2  # there is a place for the gradient of x now
    x.grad = fad.tensor(V)
    c = copy.deepcopy(x)
    (c * 3).sum().backward()
    assert c.is_leaf and c.grad.tolist() == [4.0, 5.0, 6.0]
    assert x.grad.tolist() == [1.0, 2.0, 3.0] and not called
    c.detach().zero_()
    assert x.tolist() == [1.0, 2.0, 3.0] and y.version == 0
    with pytest.raises(GradientError, match="only leaves can be copied deeply"):
        copy.deepcopy(y)


def test_what_is_copied_together_stays_together():
    x = fad.tensor(X)
    view, peer = x[0], x.detach()
    x2, view2, peer2 = copy.deepcopy((x, view, peer))
    assert view2.base is x2
    peer2 += 1
    view2 *= 2
    expected = (X + 1).at[0].multiply(2)
    assert_close([x2.array, view2.array, peer2.array], [expected, expected[0], expected])
    assert_close([x.array, view.array], [X, X[0]])
    x2.mul_(leaf(X))
    saved = x2 * x2
    x2.zero_()
    saved.sum()
    lone = copy.deepcopy(view)
    lone += 1
    assert lone.base is not x and x.version == 0


def test_a_shallow_copy_shares_the_storage():
    x = fad.tensor(V)
    c = copy.copy(x)
    c += 1
    x *= 2
    assert x.tolist() == c.tolist() == [4.0, 6.0, 8.0]
    x = leaf(V)
    c = copy.copy(x)
    assert c.is_leaf and c.requires_grad
    (c * c).sum().backward()
    assert x.grad is None and c.grad.tolist() == [2.0, 4.0, 6.0]
    with fad.no_grad():
        x += 1
    assert c.tolist() == [2.0, 3.0, 4.0]
    y = x * 1
    c = copy.copy(y)
    c *= 3
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_pickles_contain_values():
    x = fad.tensor(X)
    view = x.T[0]
    x += 1
    again = pickle.loads(pickle.dumps(view))
    assert_close(again.array, X[:, 0] + 1)
    again += 1
    assert not again.is_view and again.version == 1 and x.version == 1
    w = leaf(V)
    w.grad = fad.tensor(V)
    again = pickle.loads(pickle.dumps(w))
    (again * 2).sum().backward()
    assert again.grad.tolist() == [3.0, 4.0, 5.0]
    with pytest.raises(GradientError, match=r"pickle x.detach\(\)"):
        pickle.dumps(w * 1)


@pytest.mark.parametrize("of", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_copy_outlives_the_donation_of_its_original(of, requires_grad):
    params = {"w": fad.tensor([1.0, 2.0], requires_grad=requires_grad), "key": fad.random.key(3)}
    best, view = of(params), of(fad.tensor(X)[0])
    given = params["w"].array
    moved = fad.jit(lambda w: w + 1.0, donate_argnums=0)(params["w"].detach())
    assert given.is_deleted() and moved.tolist() == [2.0, 3.0]
    assert best["w"].tolist() == [1.0, 2.0] and best["w"].requires_grad == requires_grad
    assert_close(view.array, X[0])


def test_a_deep_copy_has_no_memory_of_numpy():
    given = np.ones(64, np.float32)
    x = fad.from_dlpack(given)
    copied = copy.deepcopy(x)
    given[:] = 5.0
    assert copied.tolist() == [1.0] * 64


def test_attributes_of_the_user_are_copied_and_pickled():
    p = leaf([1.0, 2.0])
    p.momentum, p.group, p.itself = fad.zeros(2), "weights", p
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert q.group == "weights" and q.requires_grad
        q.momentum.add_(1.0)
        assert q.momentum.tolist() == [1.0, 1.0] and p.momentum.tolist() == [0.0, 0.0]
    assert copy.deepcopy(p).itself is not p


TRANSFORMS = {
    "jit": fad.jit,
    "vmap": fad.vmap,
    "vmap in jit": lambda f: fad.jit(fad.vmap(f)),
    "grad": lambda f: fad.grad(lambda x: f(x).sum()),
    "checkpoint": fad.checkpoint,
    "checkpoint in jit": lambda f: fad.jit(fad.checkpoint(f)),
}


@pytest.mark.parametrize("transform", [name for name in TRANSFORMS if name != "checkpoint in jit"])
@pytest.mark.parametrize("of", [copy.deepcopy, copy.copy])
def test_a_copy_of_a_leaf_made_in_a_transform_is_a_leaf_of_its_own(transform, of):
    def f(x):
        p = x.detach().requires_grad_()
        c = of(p)
        assert c.is_leaf and c.requires_grad
        ((p - c) * 3.0).sum().backward()
        return x * (p.grad - c.grad)

    got = TRANSFORMS[transform](f)(fnp.ones((1, 2)))
    assert got.tolist() == [[6.0, 6.0]]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_copy_in_a_transform_of_a_view_is_a_view_of_the_copy(transform):
    def f(x):
        base = x * 0.0
        with fad.no_grad():
            part = base.detach()[..., :1]
            whole = part.base
            copied, copied_part = copy.deepcopy((whole, part))
            copied.add_(2.0)
            part.add_(1.0)
        return x * copied_part + x * part

    assert TRANSFORMS[transform](f)(fnp.ones((1, 2))).tolist() == [[3.0, 3.0]]


def test_what_is_returned_from_jit_passes_no_gradient_through_a_copy():
    w = leaf(V)
    for of in (copy.deepcopy, copy.copy):
        for _ in range(2):
            w.grad = None
            fad.jit(lambda of=of: ((w - of(w)) * 3.0).sum())().backward()
            assert w.grad.tolist() == [3.0, 3.0, 3.0]


def test_a_copy_of_an_argument_keeps_the_derivatives_of_transforms_around():
    def f(x):
        return (x * copy.deepcopy(x)).sum()

    expected = fad.grad(f)(V)
    assert expected.tolist() == (2 * V).tolist()
    assert fad.grad(fad.jit(f))(V).tolist() == expected.tolist()
    assert fad.jit(fad.grad(f))(V).tolist() == expected.tolist()
    assert fad.jvp(fad.jit(f), (V,), (V,))[1] == fad.jvp(f, (V,), (V,))[1] == 2 * (V * V).sum()
