"""``vmap``: in_dims, out_dims, chunks, empty batches and sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import _is_tensor, assert_close, bare
from pytree_functions import PARAMS, W, f_layer, j_layer

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, StructureError

X = jnp.array([0.3, -0.8, 1.2])

IN_DIMS = [
    (0, (X, X)),
    ((0, None), (X, X)),
    ((None, 0), (X, X)),
    ((1, 0), (W, X)),
    ((-1, 0), (W, X)),
    ((-2, None), (W, X)),
    ([1, 0], (W, X)),
    (0, ({"a": X, "b": W.T}, X)),
    (({"a": 0, "b": 1}, None), ({"a": X, "b": W}, X)),
    (({"a": None, "b": -1}, 0), ({"a": X, "b": W}, X)),
    ((0, None), (X, 2.0)),
    ((None, 0), ({"a": X, "b": 3}, X)),
]


@pytest.mark.parametrize(("in_dims", "args"), IN_DIMS)
def test_in_dims(in_dims: Any, args: Any) -> None:
    def f(xp: Any) -> Callable[..., Any]:
        def total(tree: Any) -> Any:
            return sum(xp.sum(xp.sin(v)) for v in jax.tree.leaves(tree, is_leaf=_is_tensor))

        return lambda x, y: total(x) * total(y)

    in_axes = tuple(in_dims) if isinstance(in_dims, list) else in_dims
    got = fad.vmap(f(fnp), in_dims)(*args)
    assert_close(got, jax.vmap(f(jnp), in_axes)(*args))


OUT_DIMS = [0, 1, -1, 2, -2, (0, 1), (1, None), (0, {"s": -1, "c": None}), (None, None)]


@pytest.mark.parametrize("out_dims", OUT_DIMS[5:])
def test_out_dims_are_a_pytree_prefix(out_dims: Any) -> None:
    def f(xp: Any) -> Callable[..., Any]:
        def g(x: Any, y: Any) -> Any:
            first = xp.stack([y, y * 2.0]) if out_dims[0] is None else xp.stack([x, x * 2.0])
            second = {"s": x * y, "c": xp.cos(y)}
            if out_dims[1] is None:
                second["s"] = y
            return first, second

        return g

    args = (W.T, X[:2])
    got = fad.vmap(f(fnp), (0, None), out_dims)(*args)
    assert_close(got, jax.vmap(f(jnp), (0, None), out_dims)(*args))


@pytest.mark.parametrize("out_dims", [(1,), (-1,), (0,)])
def test_out_dims_are_a_tuple_of_one_for_a_single_array(torch: Any, out_dims: Any) -> None:
    expected = torch.func.vmap(lambda x: torch.outer(x, x), out_dims=out_dims)(
        torch.tensor(np.array(W))
    )
    got = fad.vmap(lambda x: fnp.outer(x, x), out_dims=out_dims)(W)
    assert_close(got, expected.numpy())
    (one,) = fad.vmap(lambda x: (x * 2,), out_dims=out_dims)(W)  # its prefix, as before
    assert_close(one, jax.vmap(lambda x: x * 2, out_axes=out_dims[0])(W))
    for refused in ((1, 0), [1]):
        with pytest.raises(ValueError, match="out_dims"):
            torch.func.vmap(lambda x: x * 2, out_dims=refused)(torch.tensor(np.array(W)))
        with pytest.raises(StructureError, match="out_dims"):
            fad.vmap(lambda x: x * 2, out_dims=refused)(W)


@pytest.mark.parametrize("out_dims", OUT_DIMS[:5])
def test_out_dims(out_dims: int) -> None:
    got = fad.vmap(lambda x: fnp.outer(x, x), out_dims=out_dims)(W)
    assert_close(got, jax.vmap(lambda x: jnp.outer(x, x), out_axes=out_dims)(W))


def test_vmap_is_a_stacked_loop() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": fnp.cumsum(x) * y, "b": fnp.where(x > 0, x, y).sum()}

    batch = jnp.stack([X, X * 2, X - 1, X * X])
    loop = [f(fad.asarray(x), fad.asarray(y)) for x, y in zip(batch, batch[:, 0], strict=True)]
    expected = jax.tree.map(lambda *v: np.stack(v), *[bare(v) for v in loop])
    assert_close(fad.vmap(f)(batch, batch[:, 0]), expected)


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 100])
def test_chunk_size_changes_nothing(chunk_size: int) -> None:
    batch = jnp.linspace(-1.0, 1.0, 15).reshape(5, 3)

    def f(x: Any, s: Any) -> Any:
        return {"y": fnp.sin(x) * s, "n": (fnp.sum(x), fnp.outer(x, x))}

    expected = fad.vmap(f, (0, None), {"y": 1, "n": (0, -1)})(batch, 2.0)
    got = fad.vmap(f, (0, None), {"y": 1, "n": (0, -1)}, chunk_size=chunk_size)(batch, 2.0)
    assert_close(got, expected)
    widths = []

    def seen(x: Any) -> Any:
        widths.append(fad.core.level.state.levels[-1].batch_size)
        return x

    fad.vmap(seen, chunk_size=chunk_size)(batch)
    assert sum(widths) == 5 and max(widths) <= chunk_size
    expected = jax.jit(jax.jacrev(j_layer, (0, 1)))(PARAMS, X)
    for transform in (fad.jacrev, fad.jacfwd):
        got = transform(f_layer, (0, 1), chunk_size=chunk_size)(PARAMS, X)
        assert_close(got, expected)


def test_chunks_under_other_transforms() -> None:
    batch = jnp.linspace(-1.0, 1.0, 10).reshape(5, 2)
    got = fad.grad(lambda x: fnp.sum(fad.vmap(lambda v: v * v.sum(), chunk_size=2)(x)))(batch)
    assert_close(got, jax.grad(lambda x: jnp.sum(jax.vmap(lambda v: v * v.sum())(x)))(batch))


def test_an_empty_batch() -> None:
    for transform in (fad.vmap(fnp.sin), fad.vmap(fnp.sin, chunk_size=2)):
        assert transform(jnp.zeros((0, 3))).shape == (0, 3)
    assert fad.jacrev(lambda x: x[:0])(X).shape == fad.jacfwd(lambda x: x[:0])(X).shape == (0, 3)
    total = lambda x: fnp.sum(x) * fnp.ones(2)
    assert fad.jacrev(total)(X[:0]).shape == fad.jacfwd(total)(X[:0]).shape == (2, 0)


def test_axis_size() -> None:
    got = fad.vmap(lambda x: x * 2.0, in_dims=None, axis_size=4)(X)
    assert_close(got, jax.vmap(lambda x: x * 2.0, in_axes=None, axis_size=4)(X))
    got = fad.vmap(lambda: fad.lax.axis_index("i"), axis_size=3, axis_name="i")()
    assert_close(got, jnp.arange(3))
    assert_close(fad.vmap(lambda x: x, axis_size=3)(X), X)


def test_chunks_have_no_axis_name() -> None:
    with pytest.raises(ValueError, match=r"chunk_size=2.*'i'.*one chunk"):
        fad.vmap(lambda v: fad.lax.psum(v, "i"), axis_name="i", chunk_size=2)(X)
    assert_close(fad.vmap(lambda v: v, axis_name="i", chunk_size=3)(X), X)


def test_keyword_arguments_that_are_no_arrays_are_shared() -> None:
    def f(x: Any, *, scale: Any = 1.0, shift: Any = None, kind: str = "") -> Any:
        return x * scale + (0.0 if shift is None else shift) + len(kind)

    assert_close(fad.vmap(f)(W, scale=4.0, shift=W, kind="ab"), W * 5 + 2)
    assert_close(fad.vmap(f)(W, shift=W), jax.vmap(f)(W, shift=W))
    with pytest.raises(StructureError, match="no dimension 0"):
        fad.vmap(f)(W, scale=jnp.array(4.0))


@pytest.mark.parametrize(("ins", "outs"), [(0, 1), ((1, None), (0, 1)), ((-2, None), -1)])
def test_jaxs_names_of_the_dimensions(ins: Any, outs: Any) -> None:
    f = lambda x, y: (x * y.sum(), x)
    expected = jax.vmap(f, in_axes=ins, out_axes=outs)(W, W)
    assert_close(fad.vmap(f, in_axes=ins, out_axes=outs)(W, W), expected)
    assert_close(fad.vmap(f, ins, out_axes=outs)(W, W), expected)


def test_a_dimension_is_given_under_one_name() -> None:
    with pytest.raises(ArgumentError, match="in_dims and in_axes are two names of one argument"):
        fad.vmap(fnp.sin, 0, in_axes=0)
    with pytest.raises(ArgumentError, match="out_dims and out_axes"):
        fad.vmap(fnp.sin, out_dims=0, out_axes=None)
    assert "in_dims: 'PyTree' = 0" in str(inspect.signature(fad.vmap))
