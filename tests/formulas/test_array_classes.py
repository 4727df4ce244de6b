"""Classes of JAX that contain arrays, of Tensors: against JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
from namespace_cases import M, V, assert_same, tensors

import fad
import fad.scipy


def test_classes_that_contain_arrays() -> None:
    data = jnp.sort(V)
    jax_function, function = jax.scipy.stats.gaussian_kde(data), fad.scipy.stats.gaussian_kde
    assert_same(function(data)(V), jax_function(V))
    kde = function(fad.asarray(data))
    assert isinstance(kde(V), fad.Tensor)
    assert_same(kde.logpdf(V), jax_function.logpdf(V))
    assert_same(kde.integrate_box_1d(0.0, 1.0), jax_function.integrate_box_1d(0.0, 1.0))
    assert_same(kde.covariance, jax_function.covariance)
    of_both = lambda kde, x: kde(x).integrate_kde(kde(2.0 * x[1:], bw_method=0.5))
    jax_kde = jax.scipy.stats.gaussian_kde
    assert_same(of_both(function, fad.asarray(data)), of_both(jax_kde, data))
    assert_same(kde.integrate_kde(other=kde), jax_function.integrate_kde(other=jax_function))
    gradient = jax.grad(lambda x: of_both(jax_kde, x))(data)
    np.testing.assert_allclose(fad.grad(lambda x: of_both(function, x))(data), gradient, rtol=1e-5)
    lanes = fad.jit(fad.vmap(fad.grad(lambda x: of_both(function, x))))(data[None])
    np.testing.assert_allclose(lanes[0], gradient, rtol=1e-5)
    interpolator = fad.scipy.interpolate.RegularGridInterpolator
    points, query = (jnp.arange(3.0), jnp.arange(3.0)), jnp.array([[0.5, 1.5]])
    expected = jax.scipy.interpolate.RegularGridInterpolator(points, M)(query)
    assert_same(interpolator(points, M)(query), expected)
    assert_same(interpolator(tensors(points), fad.asarray(M))(query), expected)
    assert isinstance(interpolator(points, fad.asarray(M))(query), fad.Tensor)


def test_methods_name_the_public_module() -> None:
    pdf = fad.scipy.stats.gaussian_kde(jnp.sort(V)).pdf
    assert (pdf.__module__, pdf.__qualname__) == ("fad.scipy.stats", "pdf")
