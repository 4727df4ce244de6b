"""The solvers of optimistix and lineax: which may be given, closures, convergence, and errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.implicit import argmin, fixed_point, linear_solve, root

optx = pytest.importorskip("optimistix", reason="the extra implicit")
lx = pytest.importorskip("lineax", reason="the extra implicit")

A = jnp.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]])
B = jnp.array([1.0, 2.0, 3.0])


def equilibrium(x: Any, w: Any, b: Any) -> Any:
    return fnp.tanh(w @ x + b)


def unrolled(w: Any, b: Any) -> Any:
    x = jnp.zeros_like(b)
    for _ in range(60):
        x = jnp.tanh(w @ x + b)
    return x


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "jacfwd of hessian"])
def test_against_unrolled_differentiation(transform: str) -> None:
    w = A / 10
    ours: Callable[..., Any] = lambda b: fixed_point(equilibrium, jnp.zeros(3), w, b)
    theirs: Callable[..., Any] = lambda b: unrolled(w, b)
    for name in reversed(transform.split(" of ")):
        ours, theirs = getattr(fad, name)(ours), getattr(jax, name)(theirs)
    expected = jax.jit(theirs)(B)
    assert_close(ours(B), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jit(ours)(B), expected, rtol=1e-3, atol=1e-4)


def test_against_finite_differences() -> None:
    with jax.enable_x64(True):
        a = np.array([1.0, 2.0])
        f = lambda a: root(lambda x: x**3 + fnp.sin(x[::-1]) - a, fnp.ones(2))
        assert fad.testing.gradcheck(f, (fad.tensor(a, requires_grad=True),))
        assert fad.testing.gradgradcheck(f, (fad.tensor(a, requires_grad=True),))


def test_parameters_of_a_ridge_regression() -> None:
    rng = np.random.default_rng(0)
    x, y = (
        jnp.asarray(rng.normal(size=(20, 3)), jnp.float32),
        jnp.asarray(rng.normal(size=20), jnp.float32),
    )

    def cost(w: Any, strength: Any) -> Any:
        return fnp.mean((x @ w - y) ** 2) + strength * fnp.sum(w**2)

    def closed(strength: Any) -> Any:
        return jnp.linalg.solve(x.T @ x / 20 + strength * jnp.eye(3), x.T @ y / 20)

    ours = lambda s: argmin(cost, jnp.zeros(3), s, tol=1e-6)
    for name in ("jacrev", "jacfwd", "hessian"):
        expected = getattr(jax, name)(closed)(0.3)
        assert_close(getattr(fad, name)(ours)(0.3), expected, rtol=1e-3, atol=1e-4)


ROOTS = [
    optx.Newton(1e-6, 1e-6),
    optx.Chord(1e-6, 1e-6),
    optx.Dogleg(1e-6, 1e-6),
    optx.LevenbergMarquardt(1e-6, 1e-6),
    optx.BFGS(1e-6, 1e-6),
    optx.Newton(1e-6, 1e-6, linear_solver=lx.LU()),
]


@pytest.mark.parametrize("solver", ROOTS, ids=lambda s: type(s).__name__)
def test_solvers_of_optimistix(solver: Any) -> None:
    f = lambda a: root(lambda x: {"x": x["x"] ** 2 - a}, {"x": jnp.ones(2)}, solver=solver)["x"]
    a = jnp.array([2.0, 3.0])
    assert_close(f(a), jnp.sqrt(a), rtol=1e-4)
    assert_close(fad.jacrev(f)(a), jnp.diag(0.5 / jnp.sqrt(a)), rtol=1e-4)


def test_a_solver_with_options() -> None:
    solver = optx.Bisection(1e-6, 1e-6)
    f = lambda a, top: root(
        lambda x: x**2 - a, 1.0, solver=solver, options={"lower": 0.0, "upper": top}
    )
    assert_close(fad.grad(f)(2.0, 3.0), jnp.float32(0.35355), rtol=1e-4)
    assert_close(fad.jit(fad.hessian(f))(2.0, 3.0), jnp.float32(-0.08839), rtol=1e-3)
    assert_close(fad.grad(f, 1)(2.0, 3.0), jnp.float32(0.0))  # the way to it does not matter


@pytest.mark.parametrize("transform", ["grad", "jacfwd", "hessian"])
@pytest.mark.parametrize("library", ["fad", "jax", "jit", "vmap", "checkpoint"])
def test_closures(transform: str, library: str) -> None:
    f = lambda a: root(lambda x: x**2 - a * fnp.sin(a), 1.0)
    expected = getattr(jax, transform)(lambda a: jnp.sqrt(a * jnp.sin(a)))(1.3)
    around = {
        "fad": lambda f: getattr(fad, transform)(f)(1.3),
        "jax": lambda f: getattr(jax, transform)(f)(1.3),
        "jit": lambda f: fad.jit(getattr(fad, transform)(f))(1.3),
        "vmap": lambda f: fad.vmap(getattr(fad, transform)(f))(jnp.array([1.3]))[0],
        "checkpoint": lambda f: getattr(fad, transform)(fad.checkpoint(f))(1.3),
    }
    assert_close(around[library](f), expected, rtol=1e-4, atol=1e-5)


def test_functions_made_anew_compile_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def step(k: float) -> Any:
        scale = fad.tensor(k)
        f = lambda a: root(lambda x: x**3 + scale * x - a * k, 1.0)
        return fad.grad(f)(2.0), fad.jvp(f, (2.0,), (1.0,)), fad.vmap(f)(jnp.ones(2))

    def compiled() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]

    with jax.log_compiles():
        step(1.0)
        assert compiled()
        step(2.0), step(3.0)  # a number that changes is an operand from the third trace on
        caplog.clear()
        for k in (4.0, 5.0, 6.0):
            step(k)
        assert not compiled()


def test_lanes_of_a_vmap() -> None:
    a = jnp.array([1.0, 2.0, 4.0])
    f = lambda a: root(lambda x: x**2 - a, 1.0)
    assert_close(fad.vmap(f)(a), jnp.sqrt(a), rtol=1e-5)
    assert_close(fad.grad(lambda a: fad.vmap(f)(a).sum())(a), 0.5 / jnp.sqrt(a), rtol=1e-5)
    assert_close(fad.vmap(fad.hessian(f))(a), -0.25 * a**-1.5, rtol=1e-4)
    assert_close(jax.vmap(jax.grad(f))(a), 0.5 / jnp.sqrt(a), rtol=1e-5)


# Convergence


def test_no_convergence_says_how_far_it_came() -> None:
    far = lambda a: root(lambda x: x**2 + a, 0.5, max_steps=20)
    with pytest.raises(
        fad.errors.ConvergenceError,
        match=r"took all 20 steps, and the residual has elements of up to 1\.",
    ):
        far(1.0)
    with pytest.raises(fad.errors.ConvergenceError, match="in 1 of 2 lanes"):
        fad.vmap(far)(jnp.array([-1.0, 1.0]))
    with pytest.raises(fad.errors.ConvergenceError, match=r"step\(x\) - x has elements"):
        fixed_point(lambda x: 2.0 * x + 1.0, 1.0, max_steps=5)
    with pytest.raises(fad.errors.ConvergenceError, match="the gradient has elements"):
        argmin(lambda x: fnp.sum((x - 3.0) ** 4), jnp.zeros(2), max_steps=2)


def test_no_convergence_in_compiled_code_is_nan() -> None:
    far = lambda a: root(lambda x: x**2 + a, 0.5, max_steps=20)
    assert np.isnan(fad.jit(far)(1.0)) and np.isnan(fad.jit(fad.grad(far))(1.0))
    assert np.isnan(jax.jit(far)(1.0))
    found = fad.jit(fad.vmap(far))(jnp.array([-4.0, 1.0]))
    assert_close(found[0], jnp.float32(2.0)) and np.isnan(found[1])


def test_a_tolerance() -> None:
    halves = lambda tol: fixed_point(lambda x: 0.5 * x + 1.0, 0.0, tol=tol)
    assert abs(halves(1e-1) - 2.0) > 1e-2 > abs(halves(1e-3) - 2.0)


# Linear systems


SOLVERS = [
    None,
    lx.AutoLinearSolver(well_posed=True),
    lx.CG(1e-6, 1e-6),
    lx.GMRES(1e-6, 1e-6),
    lx.SVD(),
    lambda matvec, b: fad.scipy.sparse.linalg.cg(matvec, b, tol=1e-6)[0],
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_linear_systems(solver: Any) -> None:
    ours = lambda a, b: linear_solve(lambda x: a @ x, b, positive=True, solver=solver)
    for f, g in (
        (ours, jnp.linalg.solve),
        (lambda a, b: fad.jacrev(ours, (0, 1))(a, b), jax.jacrev(jnp.linalg.solve, (0, 1))),
        (lambda a, b: fad.jacfwd(ours)(a, b), jax.jacfwd(jnp.linalg.solve)),
        (
            lambda a, b: fad.jit(fad.vmap(fad.jacrev(ours)))(a[None], b[None])[0],
            jax.jacrev(jnp.linalg.solve),
        ),
        (
            lambda a, b: fad.hessian(lambda b: ours(a * b.sum(), b).sum())(b),
            lambda a, b: jax.hessian(lambda b: jnp.linalg.solve(a * b.sum(), b).sum())(b),
        ),
    ):
        assert_close(f(A, B), g(A, B), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "solver",
    [lx.GMRES(1e-6, 1e-6), lambda matvec, b: fad.scipy.sparse.linalg.gmres(matvec, b, tol=1e-6)[0]],
    ids=["lineax", "function"],
)
def test_linear_solvers_of_derivatives(solver: Any) -> None:
    w = A / 10
    ours = lambda b: fixed_point(equilibrium, jnp.zeros(3), w, b, linear_solve=solver)
    for name in ("jacrev", "jacfwd", "hessian"):
        expected = getattr(jax, name)(lambda b: unrolled(w, b))(B)
        assert_close(getattr(fad, name)(ours)(B), expected, rtol=1e-3, atol=1e-4)


def test_linear_systems_of_pytrees() -> None:
    matvec = lambda x: {"a": 2.0 * x["a"] + x["b"], "b": x["b"] * 3.0}
    x = linear_solve(matvec, {"a": 1.0, "b": jnp.float32(6.0)})
    assert_close(x, {"a": jnp.float32(-0.5), "b": jnp.float32(2.0)})
    complex_b = jnp.array([1.0 + 2.0j, 3.0j, 1.0])
    assert_close(
        linear_solve(lambda x: A @ x, complex_b), jnp.linalg.solve(A + 0j, complex_b), rtol=1e-5
    )


def test_singular_and_nonlinear_systems() -> None:
    ones = jnp.ones((2, 2))
    with pytest.raises(
        fad.errors.SingularError, match=r"linear_solve: the linear system is singular"
    ):
        linear_solve(lambda x: fnp.asarray(ones) @ x, jnp.array([1.0, 2.0]))
    for matvec in (lambda x: x + 1.0, lambda x: x * x, lambda x: fnp.abs(x) * 2.0):
        with pytest.raises(fad.errors.ConvergenceError, match="matvec is not linear"):
            linear_solve(matvec, jnp.ones(2))
        assert np.isnan(fad.jit(lambda b, f=matvec: linear_solve(f, b))(jnp.ones(2))).all()
    with pytest.raises(fad.errors.SingularError):  # a solver that finds nothing
        linear_solve(lambda x: A @ x, B, solver=lambda matvec, b: b)
    slope = fad.grad(lambda a: root(lambda x: x**3 - a, 1.0, linear_solve=lambda m, b: b))
    with pytest.raises(fad.errors.SingularError, match="or its solver failed"):
        slope(8.0)


def test_a_linear_solver_of_another_form() -> None:
    with pytest.raises(fad.errors.StructureError, match=r"take \[0\]"):
        linear_solve(lambda x: A @ x, B, solver=fad.scipy.sparse.linalg.cg)


# Errors


def test_arguments() -> None:
    bad = fad.errors.ArgumentError
    with pytest.raises(
        bad, match=r"root: the first argument must be a function residual\(x, \*args\)"
    ):
        root(1.0, 1.0)
    with pytest.raises(
        bad,
        match=r"init must be a pytree of floating or complex arrays, got int 1 in it: write 1\.0",
    ):
        root(lambda x: x, 1)
    with pytest.raises(bad, match="init has no arrays"):
        root(lambda x: x, ())
    with pytest.raises(bad, match=r"such as optimistix\.Newton.*fad\.implicit\.custom_root"):
        root(lambda x: x, 1.0, solver=3)
    with pytest.raises(bad, match=r"write Newton\(\.\.\.\)"):
        root(lambda x: x, 1.0, solver=optx.Newton)
    with pytest.raises(bad, match="custom_argmin"):
        argmin(lambda x: x**2, 1.0, solver=optx.Newton(1e-6, 1e-6))
    with pytest.raises(bad, match=r"give it to Newton\(rtol=, atol=\)"):
        root(lambda x: x, 1.0, solver=optx.Newton(1e-6, 1e-6), tol=1e-3)
    with pytest.raises(bad, match="max_steps must be a positive int"):
        root(lambda x: x, 1.0, max_steps=0)
    with pytest.raises(bad, match="write lambda x: A @ x"):
        linear_solve(jnp.eye(2), jnp.ones(2))
    with pytest.raises(fad.errors.StructureError, match="the square of an absolute value"):
        argmin(lambda z: fnp.sum(z**2), jnp.ones(2, complex))
    with pytest.raises(bad, match=r"write CG\(\.\.\.\)"):
        linear_solve(lambda x: x, 1.0, solver=lx.CG)
    with pytest.raises(
        fad.errors.StructureError, match=r"returned float32\[1\], but init is float32\[2\]"
    ):
        root(lambda x: x[:1], jnp.ones(2))
    with pytest.raises(fad.errors.GradientError, match="does not depend on x"):
        linear_solve(lambda x: fnp.ones(2), jnp.ones(2))


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optimistix", None)
    with pytest.raises(
        fad.errors.MissingLibrary,
        match=r"fad\.implicit\.root: this takes optimistix.*fad-jax\[implicit\]",
    ):
        root(lambda x: x, 1.0)
    monkeypatch.setitem(sys.modules, "lineax", None)
    with pytest.raises(ImportError, match="takes lineax"):
        linear_solve(lambda x: 2.0 * x, jnp.ones(7), solver=lx.CG(1e-3, 1e-3))
    assert_close(linear_solve(lambda x: 2.0 * x, jnp.ones(7)), jnp.full(7, 0.5))


def test_the_libraries_are_imported_when_they_are_used() -> None:
    import subprocess

    code = "import sys, fad; print([m for m in sys.modules if m in ('optimistix', 'lineax', 'equinox')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
