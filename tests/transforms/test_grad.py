"""``grad`` and ``vjp``: complex gradients, and pullbacks that are called later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import InFad, InJax, assert_close, bare
from pytree_functions import PARAMS, f_layer, j_layer

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


# Complex numbers


def test_the_gradient_of_a_real_function_of_a_complex_number_is_pytorchs() -> None:
    z = jnp.array(1.0 + 2.0j)
    square = lambda z: fnp.real(z * fnp.conj(z))
    assert complex(fad.grad(square)(z)) == 2 + 4j  # JAX's is the conjugate
    value, g = fad.value_and_grad(lambda z: fnp.abs(z) ** 2)(z)
    np.testing.assert_allclose(complex(g), 2 + 4j, rtol=1e-6)
    assert float(value) == pytest.approx(5.0)
    # Steepest descent: a step against the gradient makes the value smaller.
    f = lambda z: fnp.abs(z**2 - 1j)
    assert f(z - 0.01 * fad.grad(f)(z)) < f(z)


Z = jnp.array([0.5 + 1.0j, -0.7 + 0.2j])
COMPLEX: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda xp, z: z * z,
    "exp": lambda xp, z: xp.exp(z * (1 - 2j)),
    "conj": lambda xp, z: xp.conj(z) * z * z,
    "abs": lambda xp, z: xp.abs(z) * z,
    "parts": lambda xp, z: z.real * 1j + z.imag,
    "to real": lambda xp, z: z.real * z.imag,
}


@pytest.mark.parametrize("f", COMPLEX.values(), ids=COMPLEX)
def test_complex_derivatives(f: Callable[[Any, Any], Any]) -> None:
    ff, jf = functools.partial(f, fnp), functools.partial(f, jnp)
    assert_close(fad.jvp(ff, (Z,), (Z * 1j,)), jax.jvp(jf, (Z,), (Z * 1j,)))
    y, pull = fad.vjp(ff, Z)
    expected, jax_pull = jax.vjp(jf, Z)
    assert_close(y, expected)
    g = (jnp.array([1.0, 2.0]) + (0.5j if jnp.iscomplexobj(y) else 0.0)).astype(y.dtype)
    assert_close(pull(g)[0], jnp.conj(jax_pull(jnp.conj(g))[0]))
    # The adjoint law, with the real inner product of complex vectors.
    y_t = fad.jvp(ff, (Z,), (Z * 1j,))[1]
    left = np.real(np.vdot(bare(g), bare(y_t)))
    right = np.real(np.vdot(bare(pull(g)[0]), bare(Z * 1j)))
    np.testing.assert_allclose(left, right, rtol=1e-5)


@pytest.mark.parametrize("f", COMPLEX.values(), ids=COMPLEX)
def test_complex_vjps_are_pytorchs(torch: Any, f: Callable[[Any, Any], Any]) -> None:
    z = torch.tensor(np.asarray(Z), requires_grad=True)
    y = f(torch, z)
    g = torch.ones_like(y) * (2.0 - 1j if y.is_complex() else 2.0)
    (expected,) = torch.autograd.grad(y, z, g)
    _, pull = fad.vjp(functools.partial(f, fnp), Z)
    assert_close(pull(jnp.asarray(g.numpy()))[0], expected.resolve_conj().numpy())


def test_nested_complex_gradients() -> None:
    f = lambda xp, z: xp.sum(xp.abs(z) ** 4)
    h = fad.grad(lambda z: fnp.sum(fnp.abs(fad.grad(functools.partial(f, fnp))(z)) ** 2))(Z)
    # |grad f|^2 = 16 |z|^6, whose gradient is 96 |z|^4 z.
    assert_close(h, 96.0 * jnp.abs(Z) ** 4 * Z, rtol=1e-3)


# vjp_fn and jvp_fn


def test_a_pullback_may_be_called_many_times() -> None:
    y, pull = fad.vjp(f_layer, PARAMS, X)
    _, expected = jax.vjp(j_layer, PARAMS, X)
    for k in (1.0, 2.0, -3.0):
        g = jax.tree.map(lambda v, k=k: k * jnp.cos(v), y)
        assert_close(pull(g), expected(g))


def test_a_pullback_takes_none_for_zero() -> None:
    y, pull = fad.vjp(f_layer, PARAMS, X)
    zero = jax.tree.map(jnp.zeros_like, y)
    g = {"hidden": jnp.ones(2), "norm": (None,)}
    assert_close(pull(g), pull({**zero, "hidden": jnp.ones(2)}))
    assert_close(pull(None), jax.tree.map(jnp.zeros_like, (PARAMS, X)))


def test_a_pullback_inside_other_transforms() -> None:
    _, pull = fad.vjp(lambda x: fnp.sin(x) * x, X)
    _, jax_pull = jax.vjp(lambda x: jnp.sin(x) * x, X)
    basis = jnp.eye(3)
    assert_close(fad.vmap(pull)(basis), jax.vmap(jax_pull)(basis))
    assert_close(fad.jvp(pull, (X,), (X * 2.0,)), jax.jvp(jax_pull, (X,), (X * 2.0,)))
    square = lambda xp, p: lambda g: xp.sum(p(g)[0] ** 2)
    assert_close(fad.grad(square(fnp, pull))(X), jax.grad(square(jnp, jax_pull))(X))
    assert_close(fad.jit(pull)(X), jax_pull(X))


def test_a_pullback_of_a_value_inside_of_another_transform() -> None:
    def f(lib: Any, x: Any) -> Any:
        vjp = fad.vjp if lib is InFad else jax.vjp
        y, pull = vjp(lambda v: lib.numpy.sin(v) * x, x * x)
        return lib.numpy.sum(pull(y)[0] ** 2)

    assert_close(fad.grad(lambda x: f(InFad, x))(X), jax.grad(lambda x: f(InJax, x))(X))
    assert_close(fad.jacfwd(lambda x: f(InFad, x))(X), jax.jacfwd(lambda x: f(InJax, x))(X))


def test_integer_outputs_take_no_cotangent() -> None:
    y, pull = fad.vjp(lambda x: {"value": x * x, "index": fnp.argmax(x)}, X)
    assert y["index"].dtype == np.int32
    assert_close(pull({"value": jnp.ones(3), "index": None}), (2.0 * X,))
    assert_close(pull({"value": jnp.ones(3), "index": jnp.int32(5)}), (2.0 * X,))
    y, y_t = fad.jvp(lambda x: {"value": x * x, "index": fnp.argmax(x)}, (X,), (X,))
    assert y_t["index"].dtype != jax.dtypes.float0 and y_t["index"] == 0
