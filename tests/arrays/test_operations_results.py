"""What makes a Tensor: the role of each function, what it gives, and that it can be written to."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import MODULES
from namespace_cases import MAKERS_OF_ARRAYS, A, M, V, makes_tensors, public

import fad
import fad.numpy as fnp
from fad.arrays import special_cases as cases
from fad.arrays.operations import FOLLOWS, KEYS, TENSORS, Op
from fad.core import trees

N = np.asarray(V)
KEY = jax.random.key(3)


def kinds(out: Any) -> set[type]:
    """Tensor, jax.Array, or both: what the arrays in a result are."""
    leaves = [x for x in trees.flatten(out)[0] if isinstance(x, (fad.Tensor, jax.Array))]
    assert leaves
    return {fad.Tensor if isinstance(x, fad.Tensor) else jax.Array for x in leaves}


@pytest.mark.parametrize("module", MODULES)
def test_the_role_of_every_function(module: str) -> None:
    derived = importlib.import_module(module.replace("jax", "fad", 1))
    where = module.removeprefix("jax.")
    names = {name for name, value in public(module) if cases.missing(module, name, value) is None}
    assert names.issuperset(MAKERS_OF_ARRAYS.get(where, "").split())
    for name in names:
        op = getattr(getattr(derived, name), "op", None)
        if isinstance(op, Op):
            roles = {True: TENSORS, False: FOLLOWS, None: KEYS}
            assert op.results == roles[makes_tensors(f"{where}.{name}")], name


MADE: list[Callable[[], Any]] = [
    lambda: fnp.zeros(3),
    lambda: fnp.ones((2, 3), dtype=int),
    lambda: fnp.empty(2),
    lambda: fnp.full((2,), 1.5),
    lambda: fnp.full((5,), V),
    lambda: fnp.eye(3),
    lambda: fnp.identity(2),
    lambda: fnp.arange(5),
    lambda: fnp.arange(V.size),
    lambda: fnp.linspace(0, 1, 3),
    lambda: fnp.linspace(0, 1, 3, retstep=True),
    lambda: fnp.linspace(V[0], V[1], 3),
    lambda: fnp.logspace(0, 1, 3),
    lambda: fnp.geomspace(1, 2, 3),
    lambda: fnp.array([1, 2]),
    lambda: fnp.array(3.0),
    lambda: fnp.array(V),
    lambda: fnp.array([V, V]),
    lambda: fnp.array(N),
    lambda: fnp.asarray([[1, 2], [3, 4]]),
    lambda: fnp.asarray(V),
    lambda: fnp.asarray(N),
    lambda: fnp.zeros_like(V),
    lambda: fnp.ones_like(N),
    lambda: fnp.empty_like(V),
    lambda: fnp.full_like(V, 2.0),
    lambda: fnp.tri(3),
    lambda: fnp.meshgrid(V, V),
    lambda: fnp.indices((2, 3)),
    lambda: fnp.diag_indices(3),
    lambda: fnp.tril_indices(3),
    lambda: fnp.triu_indices_from(M),
    lambda: fnp.mask_indices(3, jnp.triu),
    lambda: fnp.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
    lambda: fnp.fromfunction(jnp.add, (2, 3)),
    lambda: fnp.frombuffer(b"\x01\x02", dtype="uint8"),
    lambda: fnp.fromstring("1 2", sep=" "),
    lambda: fnp.from_dlpack(np.array(V)),
    lambda: fnp.hanning(4),
    lambda: fnp.fft.fftfreq(4),
    lambda: fnp.r_[0:3, 5],
    lambda: fnp.c_[V, V],
    lambda: fnp.mgrid[0:2, 0:3],
    lambda: fnp.ogrid[0:2, 0:3],
    lambda: fad.lax.iota(jnp.int32, 3),
    lambda: fad.lax.full((2,), 1.0),
    lambda: fad.random.normal(KEY, (2,)),
    lambda: fad.random.uniform(KEY, (2,)),
    lambda: fad.random.permutation(KEY, 5),
    lambda: fad.random.choice(KEY, V),
    lambda: fad.random.normal(jax.random.PRNGKey(0)),
    lambda: fad.nn.initializers.zeros(KEY, (2,)),
    lambda: fad.nn.initializers.he_normal()(KEY, (2, 3)),
    lambda: fad.nn.initializers.constant(2.0)(KEY, (2,)),
    lambda: fad.scipy.linalg.hilbert(3),
    lambda: fad.scipy.special.bernoulli(3),
    # A NumPy array among the arguments.
    lambda: fnp.sin(N),
    lambda: fnp.add(V, N),
    lambda: fnp.add(1.0, N),
    lambda: fnp.sum(N, axis=0),
    lambda: fnp.stack([N, V]),
    lambda: fnp.where(N > 0.4, 1.0, 0.0),
    lambda: fnp.reshape(N, (5, 1)),
    lambda: fnp.split(N, 5),
    lambda: fnp.real(N),
    lambda: fnp.nonzero(N),
    lambda: fnp.add.reduce(N),
    lambda: fnp.linalg.svd(np.asarray(A)),
    lambda: fnp.fft.fft(N),
    lambda: fnp.piecewise(N, [N > 0.4], [1.0, 0.0]),
    lambda: fnp.vectorize(lambda x: x + 1)(N),
    lambda: fnp.sin(np.asarray(M).view(np.matrix)),
    lambda: fad.nn.relu(N),
    lambda: fad.lax.scan(lambda c, x: (c + x, c), 0.0, N),
    lambda: fad.lax.stop_gradient((N, N)),
    lambda: fad.scipy.special.erf(N),
    lambda: fad.scipy.stats.gaussian_kde(N)(V),
]  # fmt: skip
ARRAYS: list[Callable[[], Any]] = [
    lambda: fnp.sin(V),
    lambda: fnp.sin(1.0),
    lambda: fnp.add(1, 2),
    lambda: fnp.add(V, 2.0),
    lambda: fnp.copy(V),
    lambda: fnp.stack([V, V]),
    lambda: fnp.stack([1.0, 2.0]),
    lambda: fnp.broadcast_to(1.0, (3,)),
    lambda: fnp.repeat(0, 3),
    lambda: fnp.nonzero(V),
    lambda: fnp.linalg.svd(A),
    lambda: fnp.vectorize(lambda x: x + 1)(V),
    lambda: fad.lax.scan(lambda c, x: (c + x, c), 0.0, V),
    lambda: fad.lax.fori_loop(0, 3, lambda i, c: c + i, 0),
    lambda: fad.lax.stop_gradient(V),
    lambda: fad.nn.relu(V),
    lambda: fad.scipy.special.erf(0.5),
    lambda: fad.scipy.stats.gaussian_kde(V)(V),
    lambda: fad.random.key(0),
    lambda: fad.random.PRNGKey(0),
    lambda: fad.random.split(KEY),
    lambda: fad.random.split(np.zeros(2, np.uint32)),
    lambda: fad.random.fold_in(KEY, 3),
    lambda: fad.random.key_data(KEY),
]  # fmt: skip


@pytest.mark.parametrize("call", [pytest.param(f, id=str(k)) for k, f in enumerate(MADE)])
def test_gives_tensors(call: Callable[[], Any]) -> None:
    for _ in range(3):  # a call is found in another way when it is repeated
        assert kinds(call()) == {fad.Tensor}


@pytest.mark.parametrize("call", [pytest.param(f, id=str(k)) for k, f in enumerate(ARRAYS)])
def test_gives_jax_arrays(call: Callable[[], Any]) -> None:
    for _ in range(3):
        assert kinds(call()) == {jax.Array}


def test_a_saved_array_is_loaded_as_a_tensor() -> None:
    file = io.BytesIO()
    fnp.save(file, V)
    file.seek(0)
    assert kinds(fnp.load(file)) == {fad.Tensor}


def test_copies_and_what_stays() -> None:
    """`array` copies; `asarray` of a JAX array is a Tensor around that array."""
    copy, same = fnp.array(V), fnp.asarray(V)
    assert same.array is V
    assert copy.array is not V
    same[0] = 9.0
    assert float(V[0]) != 9.0  # JAX arrays never change
    assert float(same[0]) == 9.0


def test_dtypes_weak_types_and_devices_are_those_of_jax() -> None:
    device = jax.devices()[-1]
    for name, args, kwargs in [
        ("zeros", (3,), {"device": device}),
        ("full", ((2,), 1), {}),
        ("array", (1.0,), {}),
        ("asarray", (1.0,), {}),
        ("asarray", ([1, 2.0],), {"dtype": "bfloat16"}),
        ("arange", (3,), {"dtype": "float16"}),
        ("linspace", (0, 1), {}),
        ("zeros_like", (2.0,), {}),
        ("full_like", (jnp.asarray(2.0), 1), {}),
    ]:
        made, expected = getattr(fnp, name)(*args, **kwargs), getattr(jnp, name)(*args, **kwargs)
        assert made.aval == expected.aval, name
        assert made.devices() == expected.devices(), name


def test_a_result_can_be_written_to_under_every_transform() -> None:
    def f(x: Any) -> Any:
        u = fnp.zeros(3)
        u[0] = x
        u[1:] += x * fnp.arange(1.0, 3.0)
        return (u * u).sum()  # 6 x**2

    x = jnp.float32(0.5)
    assert float(f(0.5)) == 1.5
    assert float(fad.grad(f)(x)) == 6.0
    assert float(fad.grad(fad.grad(f))(x)) == 12.0
    assert float(fad.jvp(f, (x,), (jnp.ones(()),))[1]) == 6.0
    np.testing.assert_allclose(fad.vmap(fad.grad(f))(jnp.arange(3.0)), [0, 12, 24])
    assert float(fad.jit(f)(x)) == 1.5
    assert float(jax.jit(f)(x).array) == 1.5
    assert float(jax.grad(fad.to_jax(f))(x)) == 6.0
    leaf = fad.tensor(0.5, requires_grad=True)
    f(leaf).backward()
    assert float(leaf.grad) == 6.0


def test_what_a_transform_of_arrays_returns_is_an_array() -> None:
    """A Tensor made inside is an array again outside, as all results are."""
    for f in (lambda x: fnp.ones(2), lambda x: (fnp.zeros(()), {"made": fnp.arange(2)})):
        assert kinds(fad.vmap(f)(V)) == {jax.Array}
        assert kinds(fad.jit(f)(V)) == {jax.Array}
        assert kinds(fad.to_jax(f)(V)) == {jax.Array}
        assert kinds(fad.jvp(f, (V,), (V,))) == {jax.Array}
        assert kinds(fad.vmap(f)(fad.asarray(V))) == {fad.Tensor}
    value, made = fad.value_and_grad(lambda x: (x.sum(), fnp.ones(2)), has_aux=True)(V)
    assert kinds((value, made)) == {jax.Array}


def test_a_tensor_from_outside_is_read_at_each_call_of_a_jitted_function() -> None:
    scale = fnp.ones(2)
    f = fad.jit(lambda x: x * scale)
    assert float(f(V[0])[1]) == float(V[0])
    scale[1] = 3.0
    assert float(f(V[0])[1]) == float(V[0] * 3.0)


def test_draws_in_vmap() -> None:
    with pytest.raises(fad.errors.LevelError, match="all lanes share"):
        fad.vmap(lambda x: x + fad.random.normal(KEY))(V)
    same = fad.vmap(lambda x: fad.random.normal(KEY), randomness="same")(V)
    assert len({float(x) for x in same}) == 1
    different = fad.vmap(lambda x: fad.random.normal(KEY), randomness="different")(V)
    assert len({float(x) for x in different}) == 5


def test_inference_mode() -> None:
    with fad.inference_mode():
        made = [fnp.zeros(2), fad.tensor([1.0]), fad.asarray(V), fnp.sin(N)]
    for x in made:
        assert x.is_inference()


def test_jax_rules_of_a_function_get_arrays() -> None:
    class Scale(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * jnp.arange(1.0, 3.0)

    assert kinds(Scale.apply(jnp.ones(2))) == {jax.Array}
    assert kinds(Scale.apply(fnp.ones(2))) == {fad.Tensor}
    np.testing.assert_allclose(fad.grad(lambda x: Scale.apply(x).sum())(fnp.ones(2)), [1, 2])


def test_calls_that_fail_say_what_jax_says() -> None:
    with pytest.raises(TypeError, match="shape"):
        fnp.zeros()
    with pytest.raises(TypeError):
        fnp.arange("3")


@pytest.mark.parametrize("make", [fnp.ones_like, fad.ones_like])
def test_what_a_shape_alone_makes_has_no_tangent(make: Callable[..., Any]) -> None:
    """Zeros would make NaN where the first derivative is infinite, and the second one is not."""

    def slope(x: Any) -> Any:
        return fad.jvp(lambda x: x**3, (x,), (make(x),))[1]

    assert fad.jvp(slope, (1e20,), (1.0,))[1] == jnp.float32(6e20)
    x = jnp.array([1e20, 2.0])
    assert fad.jvp(fad.vmap(slope), (x,), (jnp.ones(2),))[1].tolist() == [jnp.float32(6e20), 12.0]
