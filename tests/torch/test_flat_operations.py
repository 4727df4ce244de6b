"""Operations derived from one another, here by `fad.func`, which both bridges to PyTorch are made of."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from helpers import assert_close

import fad.func
import fad.numpy as fnp
from fad.torch.flat_operations import FlatOperation

X, Y = jnp.arange(1.0, 4.0), jnp.array([0.5, -1.0, 2.0])
STRUCTS = [jax.ShapeDtypeStruct((3,), jnp.float32)] * 2


def operation():
    def fn(x, y):
        return fnp.sin(x) * y, fnp.sum(x * x), fnp.argmax(x)

    integer = jax.ShapeDtypeStruct((), jnp.int32)
    results = [STRUCTS[0], jax.ShapeDtypeStruct((), jnp.float32), integer]
    return FlatOperation("fn", fn, fad.func, STRUCTS, results)


def shapes(op):
    return [(x.shape, x.dtype) for x in op.results]


def is_as_said(op, outs):
    assert isinstance(outs, tuple) and shapes(op) == [(x.shape, x.dtype) for x in outs]


def test_each_derived_operation_returns_the_shapes_that_it_states():
    op = operation()
    assert op.differentiable == (True, True, False)
    g, s = jnp.ones(3), jnp.float32(2.0)
    for need, have in itertools.product(
        [(True, True), (True, False), (False, True)],
        [(True, True, False), (True, False, False), (False, True, False)],
    ):
        cotangents = [c for c, h in zip((g, s), have) if h]
        outs = op.vjp(need, have).fn(X, Y, *cotangents)
        is_as_said(op.vjp(need, have), outs)
        f = lambda x, y: sum(
            jnp.sum(o) * w
            for o, w, h in zip((jnp.sin(x) * y, jnp.sum(x * x)), (1.0, 2.0), have)
            if h
        )
        expected = jax.grad(f, (0, 1))(X, Y)
        assert_close(outs, tuple(e for e, n in zip(expected, need) if n))
    is_as_said(op.jvp((True, False)), op.jvp((True, False)).fn(X, Y, g))
    is_as_said(
        op.batched((1, None), 2, "error"),
        op.batched((1, None), 2, "error").fn(jnp.stack([X, X], 1), Y),
    )


def test_a_derived_operation_is_made_once():
    op = operation()
    need, have = (True, False), (True, False, False)
    assert op.vjp(need, have) is op.vjp(need, have)
    assert op.jvp(need) is op.jvp(need) is not op.jvp((True, True))
    assert op.batched((0, 0), 2, "error") is not op.batched((0, 0), 3, "error")
    assert op.vjp(need, have).name == "fn.vjp" and op.vjp(need, have).derived and not op.derived


def test_a_library_without_a_forward_derivative_is_transposed_twice():
    class Reverse:
        vjp, vmap = staticmethod(fad.func.vjp), staticmethod(fad.func.vmap)

        @staticmethod
        def jvp(*args):
            raise NotImplementedError

    op, tangent = operation(), jnp.array([1.0, 2.0, -1.0])
    op.library = Reverse
    expected = jax.jvp(lambda x: (jnp.sin(x) * Y, jnp.sum(x * x)), (X,), (tangent,))[1]
    assert_close(op.jvp((True, False)).fn(X, Y, tangent), expected)
