"""Variances and deviations of equal elements, and of too few: against PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

X = np.array([[1.0, 1.0, 1.0], [3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [1.0, -5.0, 4.0]])


def total(f: Any) -> Any:
    return lambda *args: fnp.sum(f(*args))


@pytest.mark.parametrize("correction", [0, 1])
def test_deviations_vs_torch(correction: int, torch: Any) -> None:
    with jax.enable_x64(True):
        x = jnp.array(X)
        t = torch.tensor(X)
        of_torch = lambda t: t.std(1, correction=correction).sum()
        want = torch.autograd.functional.jacobian(of_torch, t).numpy()
        second = torch.autograd.functional.hessian(of_torch, t).numpy()
        for f in (
            lambda x: fnp.std(x, axis=1, ddof=correction),
            lambda x: fnp.std(x, 1, correction=correction, keepdims=True),
            lambda x: fnp.nanstd(x, axis=1, ddof=correction),
            lambda x: fnp.std(x.T, 0, ddof=correction, mean=fnp.mean(x.T, 0, keepdims=True)),
            lambda x: fad.asarray(x).std(dim=1, correction=correction),
            fad.vmap(lambda x: fad.asarray(x).std(ddof=correction)),
        ):
            np.testing.assert_allclose(fad.grad(total(f))(x), want, atol=1e-12)
            hessian = fad.hessian(total(f))(x)
            np.testing.assert_allclose(hessian[1::2, :, 1::2], second[1::2, :, 1::2], atol=1e-12)
            assert not np.any(hessian[::2])  # of equal elements


def test_variances_vs_jax() -> None:
    with jax.enable_x64(True):
        x = jnp.array(X).at[1, 2].set(jnp.nan)
        z = jnp.array(X + 1j * X[::-1])
        where, mean = jnp.array(X > -1.0), jnp.array([[1.0], [2.0], [3.0], [4.0]])
        for name, options, a in (
            ("var", {"axis": 1}, X),
            ("var", {"ddof": 1}, X),
            ("var", {"axis": (0, 1), "keepdims": True}, X),
            ("var", {"axis": 0, "where": where, "correction": 0.5}, X),
            ("var", {"axis": 1, "mean": mean}, X),
            ("var", {"axis": 1, "dtype": jnp.float32}, X),
            ("var", {"axis": 1}, z),
            ("nanvar", {"axis": 1, "where": where}, x),
            ("nanstd", {"axis": 1, "mean": mean, "ddof": 1}, x),
            ("std", {"axis": 1, "mean": mean}, z),
            ("std", {"where": where, "keepdims": True}, X),
        ):
            ours = lambda a, n=name, o=options: getattr(fnp, n)(a, **o)
            theirs = lambda a, n=name, o=options: getattr(jnp, n)(a, **o)
            a = jnp.array(a)
            v = jnp.cos(jnp.where(jnp.isnan(a), 0, a))
            np.testing.assert_allclose(ours(a), theirs(a), rtol=1e-14)
            got, want = fad.jvp(ours, (a,), (v,))[1], jax.jvp(theirs, (a,), (v,))[1]
            want = jnp.nan_to_num(want)  # of equal elements
            assert got.dtype == want.dtype
            rtol = 1e-5 if "dtype" in options else 1e-12
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
            real = lambda f: lambda a: jnp.sum(f(a))
            got, want = fad.grad(total(ours))(a), jnp.nan_to_num(jax.grad(real(theirs))(a).conj())
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def test_by_the_mean_and_the_correction() -> None:
    with jax.enable_x64(True):
        x, mean, correction = jnp.array(X[1]), jnp.array([2.5]), jnp.array(0.5)
        for name in ("std", "var"):
            for options in ({"mean": mean}, {"correction": correction}):
                ours = lambda v, n=name, o=options: getattr(fnp, n)(x, **dict.fromkeys(o, v)).sum()
                theirs = lambda v, n=name, o=options: getattr(jnp, n)(
                    x, **dict.fromkeys(o, v)
                ).sum()
                (v,) = options.values()
                np.testing.assert_allclose(fad.grad(ours)(v), jax.grad(theirs)(v), rtol=1e-12)
                np.testing.assert_allclose(
                    fad.jvp(ours, (v,), (v,))[1], jax.jvp(theirs, (v,), (v,))[1], rtol=1e-12
                )


@pytest.mark.parametrize("name", ["std", "var", "nanstd", "nanvar"])
def test_too_few_elements_are_nan_in_both_modes(name: str) -> None:
    """As in PyTorch; JAX's forward mode has 0 for `var`."""
    one, row = jnp.array([3.0]), jnp.array([[3.0], [4.0]])
    for ddof in (1, 2):
        f = lambda x, ddof=ddof: getattr(fnp, name)(x, ddof=ddof)
        assert np.isnan(f(one))
        assert np.isnan(fad.grad(f)(one)).all()
        assert np.isnan(fad.jvp(f, (one,), (one,))[1])
        assert np.isnan(jax.grad(fad.to_jax(f))(one)).all()
        assert np.isnan(fad.vmap(fad.grad(f))(row)).all()
    for f in (lambda x: getattr(fnp, name)(x), lambda x: getattr(fnp, name)(x, axis=1).sum()):
        x = one[None]
        assert not np.any(fad.grad(f)(x)) and float(fad.jvp(f, (x,), (x,))[1]) == 0.0


def test_one_element_with_correction_vs_torch(torch: Any) -> None:
    t = torch.tensor([3.0], requires_grad=True)
    x = fad.tensor([3.0], requires_grad=True)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        t.std().backward()
    x.std(dim=0).backward()
    assert np.isnan(t.grad.numpy()).all() and np.isnan(x.grad.numpy()).all()


def test_what_is_masked_has_the_derivative_zero() -> None:
    x = jnp.array([[3.0, 1.0, jnp.nan], [2.0, 2.0, 5.0]])
    mask = jnp.array([[True, True, False], [False, False, False]])
    for f in (lambda x: fnp.std(x, axis=1, where=mask), lambda x: fnp.nanvar(x, 1, where=mask)):
        found = fad.grad(total(f))(x)
        assert np.isfinite(found).all() and not np.any(found[~mask])


def test_low_precision() -> None:
    for dtype in (jnp.float16, jnp.bfloat16):
        x = jnp.array([1.0, 1.0, 4.0], dtype)
        found = fad.grad(lambda x: fnp.std(x) + fnp.linalg.norm(x - x[0]))(x)
        want = jax.grad(lambda x: jnp.std(x) + jnp.linalg.norm(x - x[0]))(x.astype(jnp.float32))
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(jnp.float32), want, atol=0.02)
        assert not np.any(fad.grad(fnp.std)(x[:2]))


def test_standard_errors() -> None:
    x = jnp.array([[1.0, 1.0], [3.0, 5.0], [2.0, jnp.nan]])
    sem = fad.scipy.stats.sem
    for options in ({"axis": 1}, {"axis": 1, "nan_policy": "omit"}, {"ddof": 0, "keepdims": True}):
        np.testing.assert_array_equal(sem(x, **options), jax.scipy.stats.sem(x, **options))
    assert fad.grad(total(lambda x: sem(x, axis=1)))(x[:2]).tolist() == [[0.0, 0.0], [-0.5, 0.5]]
    with pytest.raises(ValueError, match="no is not supported"):
        sem(x, nan_policy="no")
