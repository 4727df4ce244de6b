"""Pytrees of arrays and of other things that go into a Function and come out of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Couple, Layer, TakeAndCount
from helpers import assert_close, leaf

import fad

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def layer(params, pair):
    hidden = params["w"] * pair.left + params["b"][0]
    return {"out": hidden, "rest": [pair.right * 2.0, None, "label", (hidden * hidden,)]}


def test_pytrees_in_and_out():
    params, pair = {"w": X, "b": [Y]}, Couple(V, X)

    def total(f):
        def run(params, pair):
            out = f(params, pair)
            return (out["out"] * out["rest"][3][0]).sum() + (out["rest"][0] * V).sum()

        return run

    ours, theirs = total(lambda p, q: Layer.apply(p, q, "linear")), total(layer)
    out = Layer.apply(params, pair, "linear")
    assert out["rest"][1:3] == [None, "label"]
    assert_close(out["rest"][3], layer(params, pair)["rest"][3])
    args = (params, pair)
    assert_close(fad.grad(ours, (0, 1))(*args), jax.grad(theirs, (0, 1))(*args))
    assert_close(fad.jvp(ours, args, args), jax.jvp(theirs, args, args))
    assert_close(
        fad.jacfwd(fad.grad(ours, (0, 1)), (0, 1))(*args),
        jax.jacfwd(jax.grad(theirs, (0, 1)), (0, 1))(*args),
    )
    batch = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), args)
    assert_close(
        fad.vmap(fad.grad(ours, (0, 1)))(*batch), jax.vmap(jax.grad(theirs, (0, 1)))(*batch)
    )
    assert_close(
        fad.grad(lambda p, q: fad.vmap(ours)(p, q).sum(), (0, 1))(*batch),
        jax.grad(lambda p, q: jax.vmap(theirs)(p, q).sum(), (0, 1))(*batch),
    )


def test_none_covers_a_whole_subtree_of_gradients_or_tangents():
    class First(fad.Function):
        @staticmethod
        def forward(tree, other):
            return {"a": tree["x"] * 2.0, "b": other[0]}

        @staticmethod
        def vjp(ctx, g):
            return {"x": 2 * g["a"]}, None  # a missing key is None too

        @staticmethod
        def jvp(ctx, tree_t, other_t):
            return {"a": 2 * tree_t["x"]}

    f = lambda x, u, v: First.apply({"x": x, "unused": u}, [v])
    grads = fad.grad(lambda *a: sum(v.sum() for v in f(*a).values()), (0, 1, 2))(X, Y, V)
    assert_close(grads, (jnp.full(3, 2.0), jnp.zeros(3), jnp.zeros(3)))
    assert_close(fad.jvp(f, (X, Y, V), (V, V, V))[1], {"a": 2 * V, "b": jnp.zeros(3)})


def test_integer_inputs_and_outputs_have_no_derivative():
    i = jnp.array([2, 2, 0])
    f = lambda x: TakeAndCount.apply(x, i)
    out, count, positive = f(leaf(X))
    assert out.requires_grad and not count.requires_grad and not positive.requires_grad
    assert_close(fad.grad(lambda x: (f(x)[0] * V).sum())(X), jnp.array([-2.0, 0.0, 1.5]))
    tangents = fad.jvp(f, (X,), (V,))[1]
    assert_close(tangents[0], V[i])
    assert not np.any(tangents[1]) and not np.any(tangents[2])
    rows = jnp.stack([X, Y])
    ours = lambda x: (TakeAndCount.apply(x, i)[0] * V).sum()
    assert_close(fad.vmap(fad.grad(ours))(rows), jax.vmap(jax.grad(lambda x: x[i] @ V))(rows))
    with pytest.raises(TypeError, match="floating or complex"):
        fad.grad(lambda i: TakeAndCount.apply(X, i)[0].sum())(i)


def test_python_numbers_returned_become_arrays_and_other_things_stay():
    class Facts(fad.Function):
        @staticmethod
        def forward(x):
            return 1.5, x.ndim, x, np.float32(2.0), "text"

    out = Facts.apply(X)
    assert isinstance(out[0], jax.Array) and out[0] == 1.5
    assert out[1] == 1 and type(out[1]) is int and out[4] == "text"
    assert isinstance(out[3], jax.Array)
    assert_close(
        fad.grad(lambda x: Facts.apply(x)[2].sum() * Facts.apply(x)[0])(X), jnp.full(3, 1.5)
    )


def test_numpy_scalars_are_arrays_and_python_scalars_are_not():
    class Show(fad.Function):
        @staticmethod
        def forward(x, a, b):
            Show.got = type(a), type(b)
            return x * a * b

    Show.apply(X, np.float32(2.0), 3.0)
    assert Show.got == (fad.Tensor, float)
