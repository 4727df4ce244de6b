"""Derived operations: which calls share a Primitive, what is compiled, and what comes out."""

from __future__ import annotations

import gc
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from namespace_cases import BITS, B, H, I, M, V, assert_same

import fad
import fad.numpy as fnp
from fad.arrays import operations
from fad.arrays.arguments import STATIC
from fad.arrays.operations import Op


def primitives(function: Any) -> list[Any]:
    return list(function.op.primitives.values())


def compilations(function: Any) -> int:
    """How many programs XLA has compiled for a function."""
    return sum(p.call._cache_size() for p in primitives(function) if p.jit)


# Static and array arguments


def test_a_new_number_compiles_nothing() -> None:
    x = fad.asarray(V)
    fnp.multiply(x, 0.1)
    before = compilations(fnp.multiply)
    for rate in (0.2, 0.3, 1e-9):
        fnp.multiply(x, rate)
    assert compilations(fnp.multiply) == before
    fnp.clip(x, 0.1, max=0.2)
    before, count = compilations(fnp.clip), len(primitives(fnp.clip))
    fnp.clip(x, 0.3, max=0.4)
    fnp.clip(x, max=0.5, min=0.4)
    fnp.clip(x, 0.3, 0.4)
    assert (compilations(fnp.clip), len(primitives(fnp.clip))) == (before, count)


def test_calls_of_the_same_meaning_share_a_primitive() -> None:
    x = fad.asarray(B)
    op = Op("sum", "test", jnp.sum)
    for call in (
        lambda: op.function(x, 1),
        lambda: op.function(x, axis=1),
        lambda: op.function(a=x, axis=1),
        lambda: op.function(axis=1, a=x),
        lambda: op.function(B, axis=1),
        lambda: op.function(np.asarray(B), axis=1),
        lambda: op.function(x, axis=np.int64(1)),
    ):
        np.testing.assert_allclose(np.asarray(call()), B.sum(1), rtol=1e-6)
    assert len(op.primitives) == 1


def test_shapes_as_lists_tuples_and_arrays_share_a_primitive() -> None:
    x = fad.asarray(B)
    op = Op("reshape", "test", jnp.reshape)
    for shape in ((4, 6), [4, 6], (np.int32(4), np.int64(6))):
        assert op.function(x, shape).shape == (4, 6)
    assert len(op.primitives) == 1


def test_equal_keys_of_other_types_are_other_functions() -> None:
    seen = []

    def jax_function(x: Any, flag: Any) -> Any:
        """Records the static values that it is traced with."""
        seen.append(flag)
        return x * 1

    op = Op("record", "test", jax_function, {"flag": STATIC})
    values = [1, 1.0, True, (1,), (1.0,), (True,), ((1, 2),), ((1.0, 2),), "1", None]
    values += [0.0, -0.0, float("nan"), 2j, jnp.float32, np.dtype("float32"), slice(1, 2)]
    for _ in range(2):
        for value in values:
            op.function(V, value)
            op.function(V, flag=value)
    assert [repr(s) for s in seen if s is not jnp.float32] == [
        repr(v) for v in values if v is not jnp.float32
    ][: len(seen)]
    assert len(op.primitives) == len(values) - 1  # jnp.float32 is the dtype float32


def test_a_static_list_cannot_change_later() -> None:
    shape = [4, 6]
    x = fad.asarray(B)
    assert fnp.reshape(x, shape).shape == (4, 6)
    shape[:] = [6, 4]
    assert fnp.reshape(x, shape).shape == (6, 4)
    assert fnp.reshape(x, (4, 6)).shape == (4, 6)


def test_dtypes_are_one_key() -> None:
    x = fad.asarray(V)
    op = Op("astype", "test", jnp.astype)
    for dtype in (jnp.float16, np.float16, np.dtype("float16")):
        assert op.function(x, dtype).dtype == np.float16
    assert len(op.primitives) == 1


def test_calls_that_do_not_fit_the_signature() -> None:
    x = fad.asarray(V)
    with pytest.raises(TypeError, match=r"fad\.numpy\.sum\(\).*axs"):
        fnp.sum(x, axs=0)
    with pytest.raises(TypeError, match="too many positional"):
        fnp.sin(x, x, x)
    with pytest.raises(TypeError, match="missing"):
        fnp.sum()
    with pytest.raises(TypeError, match="multiple values"):
        fnp.sum(x, 0, axis=0)
    with pytest.raises(TypeError):
        fnp.sin([1.0, x])
    with pytest.raises(TypeError):
        fnp.sin("abc")


def test_primitives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PRIMITIVES", 4)
    op = Op("roll", "test", jnp.roll)
    x = fad.asarray(V)
    for i in range(9):
        np.testing.assert_allclose(np.asarray(op.function(x, i)), jnp.roll(V, i))
    assert len(op.primitives) <= 4


def test_threads_share_an_operation() -> None:
    op = Op("roll", "test", jnp.roll)
    failures = []

    def work(seed: int) -> None:
        for i in range(20):
            k = (seed + i) % 5
            if not np.array_equal(np.asarray(op.function(V, k)), np.roll(np.asarray(V), k)):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert len(op.primitives) == 5


# Kinds of functions


def test_results_are_arrays_for_arrays_and_tensors_for_tensors() -> None:
    assert isinstance(fnp.sin(V), jax.Array)
    assert isinstance(fnp.concatenate([V, V]), jax.Array)
    assert isinstance(fnp.sin(0.5), jax.Array)
    assert isinstance(fnp.sin(fad.asarray(V)), fad.Tensor)
    assert isinstance(fnp.add(V, fad.asarray(V)), fad.Tensor)
    assert isinstance(fnp.linalg.svd(fad.asarray(M)), type(jnp.linalg.svd(M)))
    assert isinstance(fnp.stack([np.asarray(V), fad.asarray(V)]), fad.Tensor)


def test_weak_types() -> None:
    assert fnp.multiply(fad.asarray(H), 2.0).dtype == jnp.bfloat16
    assert fnp.add(fad.asarray(I), 1.0).dtype == jnp.float32
    assert fnp.multiply(fad.asarray(H), np.float32(2)).dtype == jnp.float32
    assert fnp.where(fad.asarray(BITS), fad.asarray(H), 0.0).dtype == jnp.bfloat16


def test_under_jax_tracing() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.where(x > 0.4, fnp.multiply(x, 0.5), 0.0), axis=0)

    assert_same(jax.jit(f)(V), f(V))
    assert_same(jax.vmap(f)(M), jnp.stack([f(row) for row in M]))
    np.testing.assert_allclose(jax.grad(f)(V), jnp.where(V > 0.4, 0.5, 0.0))
    with pytest.raises((TypeError, IndexError)):
        jax.jit(lambda x: fnp.nonzero(x))(V)
    assert_same(fnp.nonzero(V), jnp.nonzero(V))
    assert_same(jax.jit(lambda x: fnp.nonzero(x, size=2))(V), jnp.nonzero(V, size=2))


def test_a_function_that_cannot_be_compiled_is_remembered() -> None:
    op = Op("flatnonzero", "test", jnp.flatnonzero)
    for _ in range(3):
        assert_same(op.function(I), jnp.flatnonzero(I))
    assert [p.jit for p in op.primitives.values()] == [False]
    assert_same(op.function(I, size=2), jnp.flatnonzero(I, size=2))
    assert [p.jit for p in op.primitives.values()] == [False, True]


def test_data_dependent_shapes_under_vmap_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fad\.numpy\.nonzero.*inside vmap.*Pass size= to fix"):
        fad.vmap(fnp.nonzero)(M)
    with pytest.raises(TypeError, match=r"fad\.numpy\.repeat.*total_repeat_length="):
        fad.vmap(lambda n: fnp.repeat(V, n))(jnp.stack([I, I]))
    (out,) = fad.vmap(lambda r: fnp.nonzero(r, size=2))(M)
    assert_same(out, jax.vmap(lambda r: jnp.nonzero(r, size=2))(M)[0])
    assert_same(fnp.nonzero(fad.asarray(M)), jnp.nonzero(M))


def test_numpy_scalars_and_wide_integers() -> None:
    x = fad.asarray(jnp.array([1, 2], jnp.uint32))
    with jax.enable_x64(True):
        assert_same(fnp.add(fad.asarray(np.int64(2**40)), 2**40), jnp.add(np.int64(2**40), 2**40))
    with pytest.raises(OverflowError):
        fnp.add(x, 2**70)
    assert fnp.add(x, np.uint32(3)).dtype == jnp.uint32


def test_operations_keep_no_arguments_alive() -> None:
    op = Op("add", "test", jnp.add)
    x = fad.asarray(V + 1)
    op.function(x, x)
    op.function(x, 2.0)
    count = sum(o is x for o in gc.get_referrers(x))
    assert count == 0


def test_an_error_names_the_parameter_that_takes_several_arguments() -> None:
    with pytest.raises(TypeError, match="the argument 'operands' is static"):
        fnp.einsum("i,i->i", fad.ones(2), {1.0, 2.0})


def test_a_call_with_static_values_that_were_seen_is_found_without_freezing_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = fad.tensor(np.ones((2, 3), np.float32))

    def shapes() -> list[tuple[int, ...]]:
        sums = [fnp.sum(x, axis=a, keepdims=k) for a in (0, (1,), (0, 1)) for k in (False, True)]
        return [y.shape for y in (*sums, fnp.swapaxes(x, 0, -1), fnp.reshape(x, (3, 2)))]

    expected = [(3,), (1, 3), (2,), (2, 1), (), (1, 1), (3, 2), (3, 2)]
    assert shapes() == shapes() == expected
    monkeypatch.setattr("fad.arrays.operations.freeze", None)
    assert shapes() == expected
