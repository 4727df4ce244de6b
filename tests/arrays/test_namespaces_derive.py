"""Counterparts of everything but plain functions: ufuncs, answers from shapes, constants, indexing."""

from __future__ import annotations

import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest
from namespace_cases import B, I, M, V, assert_same, public

import fad
import fad.lax
import fad.numpy as fnp
import fad.random
import fad.scipy

KEY = jax.random.key(3)


@pytest.mark.sweep(
    "name", [n for n, v in public("jax.numpy") if isinstance(v, jnp.ufunc)], sample=7
)
def test_ufuncs(name: str) -> None:
    jax_function, function = getattr(jnp, name), getattr(fnp, name)
    for attribute in ("nin", "nout", "nargs", "identity"):
        assert getattr(function, attribute) == getattr(jax_function, attribute)
    for method in ("reduce", "accumulate", "outer", "at", "reduceat"):
        found = getattr(function, method)
        assert inspect.signature(found) == inspect.signature(getattr(jax_function, method))
    if jax_function.nin != 2:
        return
    x = I if name.startswith("bitwise") else V
    t = fad.asarray(x)
    assert_same(function.reduce(t), jax_function.reduce(x))
    assert_same(function.accumulate(t), jax_function.accumulate(x))
    assert_same(function.outer(t, t), jax_function.outer(x, x))
    index = jnp.array([0, 2])
    assert_same(
        function.at(t, index, t[:2], inplace=False), jax_function.at(x, index, x[:2], inplace=False)
    )
    assert_same(function.reduceat(t, index), jax_function.reduceat(x, index))


def test_answers_from_shapes_are_plain_python() -> None:
    for x in (B, fad.asarray(B)):
        assert fnp.shape(x) == (2, 3, 4)
        assert fnp.ndim(x) == 3
        assert fnp.size(x) == 24
        assert fnp.size(x, 1) == 3
        assert fnp.iscomplexobj(x) is False
        assert fnp.isrealobj(x) is True
        assert fnp.isscalar(x) is jnp.isscalar(B)
        assert fnp.iterable(x) is True
        assert fnp.result_type(x, 2.0) == jnp.float32
        assert fnp.result_type(x, jnp.bfloat16) == jnp.float32
        assert fnp.einsum_path("ijk,ijk", x, x)[0] == jnp.einsum_path("ijk,ijk", B, B)[0]
        assert fad.lax.dtype(x) == jnp.float32
    assert fnp.isscalar(fad.asarray(V[0])) == jnp.isscalar(V[0])
    weak = jnp.asarray(1.0)
    assert fnp.result_type(fad.asarray(weak), jnp.bfloat16) == jnp.bfloat16
    assert fnp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert fnp.promote_types("int8", "float16") == jnp.promote_types("int8", "float16")
    assert fnp.issubdtype(jnp.float32, jnp.floating) is True
    assert fnp.can_cast("int8", "int32") is True
    assert fnp.isdtype(jnp.float32, "real floating") is True
    assert_same(fnp.tril_indices_from(fad.asarray(M)), jnp.tril_indices_from(M))
    assert fad.random.key_impl(fad.asarray(KEY)) == jax.random.key_impl(KEY)


def test_what_is_printed_or_stored(tmp_path: Path) -> None:
    x = fad.asarray(V)
    assert fnp.array_str(x) == np.array_str(np.asarray(V))
    assert "0." in fnp.array_repr(x)
    fnp.save(tmp_path / "v.npy", x)
    assert_same(fnp.load(tmp_path / "v.npy"), V)


def test_constants_and_types_are_those_of_jax() -> None:
    for name in "pi inf nan newaxis float32 bfloat16 ndarray finfo iinfo dtype ufunc".split():
        found, jax_function = getattr(fnp, name), getattr(jnp, name)
        assert found is jax_function or found != found
    assert fad.lax.Precision is jax.lax.Precision
    with fnp.printoptions(precision=2):
        pass


def test_asarray_returns_a_tensor_as_it_is() -> None:
    x = fad.asarray(V)
    assert fnp.asarray(x) is x
    assert fnp.array(x) is not x
    assert fnp.from_dlpack(x) is x
    assert isinstance(fnp.from_dlpack(np.array(V)), fad.Tensor)
    assert isinstance(fnp.asarray([1.0, 2.0]), fad.Tensor)
    assert fnp.asarray([x, x]).shape == (2, 5)


def test_indexing_objects() -> None:
    x = fad.asarray(V)
    assert_same(fnp.r_[x, 1.0, x], jnp.r_[V, 1.0, V])
    assert_same(fnp.r_[0:3, 5.0], jnp.r_[0:3, 5.0])
    assert_same(fnp.c_[x, x], jnp.c_[V, V])
    assert fnp.s_[1:2] == slice(1, 2)
    assert_same(fnp.mgrid[0:2, 0:3], jnp.mgrid[0:2, 0:3])
    assert_same(fnp.ogrid[0:2, 0:1:3j], jnp.ogrid[0:2, 0:1:3j])
