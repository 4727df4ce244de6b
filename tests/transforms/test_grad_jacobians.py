"""Jacobians, Hessians and their products, of pytrees and of complex numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.flatten_util import ravel_pytree
from pytree_functions import PARAMS, f_layer, f_loss, j_layer, j_loss

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, StructureError

X = jnp.array([0.3, -0.8, 1.2])


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_jacobians_of_pytrees(name: str, argnums: Any) -> None:
    got = getattr(fad, name)(f_layer, argnums)(PARAMS, X)
    assert_close(got, jax.jit(getattr(jax, name)(j_layer, argnums))(PARAMS, X))


def test_gradients_and_hessians_of_pytrees() -> None:
    for name, argnums in (("grad", (0, 1)), ("hessian", 0), ("hessian", (0, 1))):
        got = getattr(fad, name)(f_loss, argnums)(PARAMS, X)
        assert_close(got, jax.jit(getattr(jax, name)(j_loss, argnums))(PARAMS, X))


def test_hvp() -> None:
    tangents = (jax.tree.map(jnp.cos, PARAMS), jnp.sin(X))
    got = fad.hvp(f_loss, (PARAMS, X), tangents)
    expected = jax.jvp(jax.grad(j_loss, (0, 1)), (PARAMS, X), tangents)
    assert_close(got, expected)
    # Against the whole Hessian.
    (h,) = fad.hessian(lambda x: f_loss(PARAMS, x), (0,))(X)
    _, (product,) = fad.hvp(lambda x: f_loss(PARAMS, x), (X,), (X,))
    assert_close(product, h[0] @ X)


def test_hvp_of_a_loss_with_labels_that_are_integers() -> None:
    """They have no derivative: their tangent is None, as in jvp, and so are their parts of the results."""
    w, labels = jnp.arange(6.0).reshape(2, 3), jnp.array([2, 0])

    def loss(w: Any, labels: Any) -> Any:
        return -fad.nn.log_softmax(w)[fnp.arange(2), labels].sum()

    alone = fad.hvp(lambda w: loss(w, labels), (w,), (jnp.cos(w),))
    product = functools.partial(fad.hvp, loss)
    for transform in (product, fad.jit(product)):
        for k in (labels, fad.tensor(labels)):
            found = transform((w, k), (jnp.cos(w), None))
            assert [part[1] for part in found] == [None, None]
            assert_close([part[0] for part in found], [part[0] for part in alone])
    both = fad.hvp(
        lambda w, k: (w["a"] * k["of"] ** 2).sum(), ({"a": w}, {"of": 3}), ({"a": w}, None)
    )
    assert_close(both, (({"a": w * 0 + 9.0}, None), ({"a": w * 0.0}, None)))
    zero = fad.hvp(lambda w, v: (w * v).sum(), (w, w), (w, None))  # of floating dtype: a zero
    assert_close(zero, ((w, w), (w * 0.0, w)))


def test_what_has_no_derivative_is_said_with_what_to_write() -> None:
    k = fad.tensor([1, 2])
    functional = fad.autograd.functional
    calls: dict[str, Any] = {
        "hvp": lambda: fad.hvp(lambda k: k.sum(), (k,), (None,)),
        "vjp": lambda: fad.vjp(lambda k: k, k),
        "linearize": lambda: fad.linearize(lambda k: k, k),
        "hessian": lambda: functional.hessian(lambda k: k.sum(), k),
        "vhp": lambda: functional.vhp(lambda k: k.sum(), k, k),
        "jvp": lambda: functional.jvp(lambda k: k.sum(), k, k),
        "jacobian": lambda: functional.jacobian(lambda k: k, k),
    }
    for name, call in calls.items():
        write = rf"give {name} a function of what is .* lambda w: loss\(w, labels\)"
        with pytest.raises(ArgumentError, match=write):
            call()
    with pytest.raises(
        StructureError, match="hvp: argument 0 has dtype int32, .* its tangent must be None"
    ):
        fad.hvp(lambda k, x: x * k.sum(), (k, 1.0), (k, 1.0))
    with pytest.raises(StructureError, match="hvp: argument 0 has dtype int32"):
        fad.hvp(lambda k, x: x * k.sum(), (k, 1.0), (jnp.zeros(2), 1.0))
    with pytest.raises(ArgumentError, match="hvp: argument 0 must have a floating"):
        fad.hvp(lambda k, x: x * k.sum(), (k, 1.0), (np.zeros(2, jax.dtypes.float0), 1.0))


def outputs_loss(xp: Any, outs: Any) -> Any:
    """A scalar of the outputs of `pytree_functions.layer` that is not convex, and mixes them."""
    return xp.sum(xp.sin(outs["hidden"])) * outs["norm"][0] ** 2 + xp.exp(outs["hidden"][0])


def dense_ggn(params: Any) -> jax.Array:
    """JᵀHJ of `layer` and `outputs_loss`, by JAX."""
    flat, unravel = ravel_pytree(params)
    outs, unravel_outs = ravel_pytree(j_layer(params, X))
    jacobian = jax.jacrev(lambda p: ravel_pytree(j_layer(unravel(p), X))[0])(flat)
    hessian = jax.hessian(lambda z: outputs_loss(jnp, unravel_outs(z)))(outs)
    return jacobian.T @ hessian @ jacobian


GGN: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: f,
    "jit": fad.jit,
    "jax.jit of to_jax": lambda f: jax.jit(fad.to_jax(f)),
    "vmap": lambda f: (
        lambda p, v: jax.tree.map(
            lambda x: x[1],
            fad.vmap(f, (None, 0))(p, jax.tree.map(lambda x: jnp.stack([0 * x, x]), v)),
        )
    ),
    "jvp, since it is linear": lambda f: lambda p, v: fad.jvp(lambda v: f(p, v), (v,), (v,))[1],
}


@pytest.mark.parametrize("how", GGN)
def test_ggnvp(how: str) -> None:
    v = jax.tree.map(jnp.cos, PARAMS)
    product = lambda p, v: fad.ggnvp(
        lambda p: f_layer(p, X), lambda outs: outputs_loss(fnp, outs), p, v
    )
    got = GGN[how](product)(PARAMS, v)
    assert jax.tree.structure(got) == jax.tree.structure(PARAMS)
    expected = dense_ggn(PARAMS) @ ravel_pytree(v)[0]
    assert_close(ravel_pytree(got)[0], expected, rtol=1e-4)


def test_ggnvp_runs_the_model_once_and_its_gradient_is_right() -> None:
    runs = []

    def model(p: Any) -> Any:
        runs.append(p)
        return f_layer(p, X)

    v = jax.tree.map(jnp.cos, PARAMS)
    product = lambda p: fad.ggnvp(model, lambda outs: outputs_loss(fnp, outs), p, v)
    product(PARAMS)
    assert len(runs) == 1
    total = lambda p: sum(fnp.sum(x) for x in jax.tree.leaves(product(p)))
    of_dense = lambda p: jnp.sum(dense_ggn(p) @ ravel_pytree(v)[0])
    assert_close(fad.grad(total)(PARAMS), jax.grad(of_dense)(PARAMS), rtol=1e-3)


def test_ggnvp_of_tensors_and_with_zeros_for_none() -> None:
    params = [fad.tensor([1.0, 2.0]), fad.tensor(3.0)]
    model, loss = lambda p: fnp.sin(p[0]) * p[1], lambda z: fnp.sum(z**3)
    found = fad.ggnvp(model, loss, params, [fad.tensor([1.0, -1.0]), None])
    x = jnp.array([1.0, 2.0])
    z, c = jnp.sin(x) * 3.0, jnp.cos(x)
    curved = 6.0 * z * 3.0 * c * jnp.array([1.0, -1.0])
    assert all(isinstance(x, fad.Tensor) for x in found)
    assert_close(found[0].array, 3.0 * c * curved, rtol=1e-4)
    assert_close(found[1].array, jnp.sum(jnp.sin(x) * curved), rtol=1e-4)


def test_ggnvp_refuses_outputs_without_derivatives() -> None:
    loss = lambda y: fnp.sum(y[0] ** 2)
    with pytest.raises(GradientError, match=r"ggnvp: output\[1\] of the model has dtype int32"):
        fad.ggnvp(lambda p: (p, fnp.argmax(p)), loss, jnp.ones(3), jnp.ones(3))
    with pytest.raises(
        ArgumentError, match="ggnvp: output 1 of the function must be an array, got str"
    ):
        fad.ggnvp(lambda p: (p, "a"), loss, jnp.ones(3), jnp.ones(3))


def test_what_a_loss_without_a_return_gets_to_read() -> None:
    x = jnp.ones(2)
    none = r"must return a real scalar, got None. Return the number itself"
    with pytest.raises(GradientError, match="ggnvp: the loss " + none) as caught:
        fad.ggnvp(lambda p: p, lambda y: None, x, x)
    assert "has_aux" not in str(caught.value)
    for transform in (fad.grad, fad.value_and_grad, fad.func.grad_and_value):
        with pytest.raises(GradientError, match="the function " + none):
            transform(lambda x: None)(x)
        with pytest.raises(GradientError, match="or pass has_aux=True and return"):
            transform(lambda x: (x.sum(), x))(x)
    with pytest.raises(GradientError, match="ggnvp: the loss .* got tuple.* to one number.$"):
        fad.ggnvp(lambda p: p, lambda y: (y.sum(), y), x, x)


def test_ggnvp_of_complex_parameters_is_the_hessian_of_a_linear_model() -> None:
    matrix = jnp.array([[1.0 + 2.0j, -0.5j], [0.3, 1.1 - 1.0j]])
    model = lambda z: matrix @ z
    loss = lambda y: fnp.sum(fnp.abs(y) ** 4)
    v = jnp.array([1.0 - 1.0j, 0.5 + 2.0j])
    _, (expected,) = fad.hvp(lambda z: loss(model(z)), (Z,), (v,))
    assert_close(fad.ggnvp(model, loss, Z, v), expected, rtol=1e-4)


Z = jnp.array([0.5 + 1.0j, -0.7 + 0.2j])


def test_jacobians_where_one_side_is_complex() -> None:
    x = jnp.array([0.4, -0.3])
    to_complex = lambda x: fnp.exp(1j * x) * x[0]
    to_real = lambda z: fnp.abs(z) * z.imag[0]

    def differences(f: Any, x: Any, unit: Any) -> Any:
        steps = 1e-2 * unit * jnp.eye(2)
        columns = [(f(fad.asarray(x + s)) - f(fad.asarray(x - s))).array / 2e-2 for s in steps]
        return jnp.stack(columns, 1)

    from_real = differences(to_complex, x, 1)  # dy = J dx
    from_complex = differences(to_real, Z, 1) - 1j * differences(to_real, Z, 1j)  # dy = Re(J dx)
    mixed = lambda x, z: (to_complex(x), to_real(z) * x, fnp.sum(z) * x)
    for jacobian in (fad.jacrev, fad.jacfwd):
        assert_close(jacobian(to_complex)(x), from_real, rtol=1e-3)
        assert_close(jacobian(to_real)(Z), from_complex, rtol=1e-3)
        assert_close(jacobian(to_real, chunk_size=1)(Z), jacobian(to_real)(Z))
        assert_close(fad.jit(jacobian(mixed, (0, 1)))(x, Z), fad.jacrev(mixed, (0, 1))(x, Z))
    gradient = fad.grad(lambda z: to_real(z).sum())(Z)
    assert_close(fad.jacfwd(to_real)(Z).sum(0), jnp.conj(gradient))


def test_complex_jacobians_are_the_derivative_itself() -> None:
    f = lambda z: fnp.exp(z) * z
    expected = jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True)(Z)
    assert_close(fad.jacfwd(f)(Z), expected)
    assert_close(fad.jacrev(f)(Z), expected)
    assert_close(
        fad.jacrev(fad.jacfwd(f))(Z),
        jax.jacfwd(jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True), holomorphic=True)(Z),
    )
