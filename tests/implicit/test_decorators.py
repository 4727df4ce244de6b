"""Solvers of one's own, in fad, NumPy and SciPy: their derivatives under stacks of transforms, and errors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.implicit import custom_argmin, custom_fixed_point, custom_root

Fn = Callable[[Any], Any]


def cubic(x: Any, a: Any) -> Any:
    """Zero where x³ + x = a."""
    return x**3 + x - a


def closed(a: Any) -> Any:
    """The real root of `cubic`, by Cardano's formula."""
    r = jnp.sqrt(a**2 / 4 + 1 / 27)
    return jnp.cbrt(a / 2 + r) - jnp.cbrt(r - a / 2)


@custom_root(cubic)
def in_fad(init: Any, a: Any) -> Any:
    step = lambda k, x: x - cubic(x, a) / (3 * x**2 + 1)
    return fad.lax.fori_loop(0, 20, step, init + 0 * a)


@custom_root(cubic)
def by_branches(x: Any, a: Any) -> Any:
    """Python decides when it ends."""
    while abs(cubic(x, a)) > 1e-6:
        x = x - cubic(x, a) / (3 * x**2 + 1)
    return x


@custom_root(cubic)
def in_numpy(init: Any, a: Any) -> Any:
    roots = np.roots([1.0, 0.0, 1.0, -np.asarray(a).item()])
    return np.float32(roots[np.abs(roots.imag) < 1e-6].real[0])


@custom_root(cubic)
def in_scipy(init: Any, a: Any) -> Any:
    return np.float32(scipy.optimize.brentq(lambda x: float(cubic(x, a)), -10.0, 10.0))


@custom_fixed_point(lambda x, a: x - cubic(x, a) / (3 * x**2 + 1))
def of_a_step(init: Any, a: Any) -> Any:
    return np.float32(scipy.optimize.brentq(lambda x: float(cubic(x, a)), -10.0, 10.0))


@custom_argmin(lambda x, a: x**4 / 4 + x**2 / 2 - a * x)
def of_an_objective(init: Any, a: Any) -> Any:
    found = scipy.optimize.minimize(
        lambda x: (x**4 / 4 + x**2 / 2 - float(a) * x).item(), 1.0, tol=1e-9
    )
    return found.x[0].astype(np.float32)


def in_jax(init: Any, a: Any) -> Any:
    return jax.lax.fori_loop(0, 20, lambda k, x: x - cubic(x, a) / (3 * x**2 + 1), init + 0 * a)


def ready(a: Any) -> Any:
    pytest.importorskip("optimistix", reason="the extra implicit")
    return fad.implicit.root(lambda x: cubic(x, a), 1.0)


SOLVERS: dict[str, Fn] = {
    "fad": lambda a: in_fad(1.0, a),
    "a Python loop": lambda a: by_branches(1.0, a),
    "NumPy": lambda a: in_numpy(1.0, a),
    "SciPy": lambda a: in_scipy(1.0, a),
    "fixed point": lambda a: of_a_step(1.0, a),
    "argmin": lambda a: of_an_objective(1.0, a),
    "JAX": lambda a: custom_root(cubic)(fad.from_jax(in_jax))(1.0, a),
    "closure": lambda a: custom_root(lambda x: cubic(x, a))(lambda init: in_fad(init, a))(1.0),
    "optimistix": ready,
}


def over(m: Any) -> dict[str, Callable[[Fn], Fn]]:
    """Transforms of functions of a number, of fad or of JAX."""
    return {
        "grad": m.grad,
        "jvp": lambda f: lambda a: m.jvp(f, (a,), (a * 0 + 1.0,))[1],
        "jacrev": m.jacrev,
        "jacfwd": m.jacfwd,
        "hessian": m.hessian,
        "vmap": lambda f: lambda a: m.vmap(f)(jnp.array([0.5, 2.0]) * a).sum(),
        "jit": m.jit,
        "checkpoint": m.checkpoint,
    }


FAD, JAX = over(fad), over(jax)
STACKS = [s for n in (1, 2, 3) for s in itertools.product(FAD, repeat=n)]
# Beyond third derivatives, single precision says little.
STACKS = [
    s for s in STACKS if sum([{"hessian": 2}.get(t, t[0] in "gj" and t != "jit") for t in s]) <= 3
]


def stacked(transforms: dict[str, Callable[[Fn], Fn]], names: Any, f: Fn) -> Fn:
    for name in reversed(names):
        f = transforms[name](f)
    return f


@functools.cache
def reference(names: tuple[str, ...]) -> Any:
    return jax.jit(stacked(JAX, names, closed))(1.3)


def joined(names: Any) -> str:
    return "-".join(names)


@pytest.mark.sweep("solver, name", [*itertools.product(SOLVERS, FAD)], sample=24)
def test_each_transform(solver: str, name: str) -> None:
    found = FAD[name](SOLVERS[solver])(1.3)
    assert_close(found, reference((name,)), rtol=1e-4, atol=1e-5)


@pytest.mark.sweep("names", [s for s in STACKS if len(s) > 1], sample=10, ids=joined)
def test_stacks_of_transforms(names: tuple[str, ...]) -> None:
    for solver in ("fad", "a Python loop", "optimistix"):
        found = stacked(FAD, names, SOLVERS[solver])(1.3)
        assert_close(found, reference(names), rtol=2e-3, atol=2e-4)


@pytest.mark.sweep("names", STACKS, sample=6, ids=joined)
def test_stacks_of_native_transforms(names: tuple[str, ...]) -> None:
    for solver in ("SciPy", "closure"):
        f = fad.to_jax(SOLVERS[solver])
        assert_close(stacked(JAX, names, f)(1.3), reference(names), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_tape(solver: str) -> None:
    a = fad.tensor(1.3, requires_grad=True)
    x = SOLVERS[solver](a)
    (slope,) = fad.autograd.grad(x, a, create_graph=True)
    slope.backward()
    assert_close(slope, jax.grad(closed)(1.3), rtol=1e-4)
    assert_close(a.grad, jax.hessian(closed)(1.3), rtol=1e-3)


def test_linearize_vjp_and_dual_numbers() -> None:
    f = SOLVERS["NumPy"]
    slope = jax.grad(closed)(1.3)
    x, push = fad.linearize(f, 1.3)
    assert_close([x, push(2.0)], [closed(1.3), 2 * slope], rtol=1e-4)
    x, pull = fad.vjp(f, 1.3)
    assert_close([x, *pull(2.0)], [closed(1.3), 2 * slope], rtol=1e-4)
    with fad.dual_level():
        out = fad.unpack_dual(f(fad.make_dual(fad.tensor(1.3), fad.tensor(2.0))))
        assert_close(out.tangent, 2 * slope, rtol=1e-4)
    assert_close(
        fad.derivatives(f, 1.3, 2), [closed(1.3), slope, jax.hessian(closed)(1.3)], rtol=1e-3
    )


def test_a_loop_around_it() -> None:
    def f(m: Any, solve: Fn) -> Fn:
        return lambda a: m.lax.scan(lambda c, _: (solve(c) + 1.0, c), a, None, length=3)[0]

    expected = jax.grad(f(jax, closed))(1.3)
    for solver in ("fad", "SciPy"):
        assert_close(fad.grad(f(fad, SOLVERS[solver]))(1.3), expected, rtol=1e-4)
        assert_close(fad.jit(fad.jacfwd(f(fad, SOLVERS[solver])))(1.3), expected, rtol=1e-4)


def test_the_steps_are_not_recorded() -> None:
    seen = []

    @custom_root(cubic)
    def solve(x: Any, a: Any) -> Any:
        seen.append((x.requires_grad, a.requires_grad, fad.is_grad_enabled()))
        return in_fad(x, a)

    a = fad.tensor(1.3, requires_grad=True)
    x = solve(fad.tensor(1.0, requires_grad=True), a)
    assert seen == [(False, False, False)]
    assert x.grad_fn.name() == "solveBackward"
    assert [node.name() for node, _ in x.grad_fn.next_functions if node] == ["AccumulateGrad"]
    x.backward()
    assert a.grad is not None and seen == seen[:1]


# Pytrees


def system(x: Any, p: Any) -> Any:
    """Two unknowns of other shapes, coupled."""
    return {
        "u": x["u"] ** 3 + p["a"] * x["u"] - p["b"],
        "v": (x["v"][0] - fnp.sum(x["u"]) * p["c"][0],),
    }


@custom_root(system)
def solve_system(init: Any, p: Any) -> Any:
    def flat(z: Any) -> Any:
        x = {"u": fnp.asarray(z[:2]), "v": (fnp.asarray(z[2]),)}
        found = system(x, p)
        return np.concatenate([np.asarray(found["u"]), np.asarray(found["v"][0])[None]])

    z = scipy.optimize.fsolve(flat, np.array([*np.asarray(init["u"]), 1.0]))
    return {"u": z[:2].astype(np.float32), "v": (np.float32(z[2]),)}


def system_in_jax(init: Any, p: Any) -> Any:
    step = lambda _, u: u - (u**3 + p["a"] * u - p["b"]) / (3 * u**2 + p["a"])
    u = jax.lax.fori_loop(0, 30, step, init["u"])
    return {"u": u, "v": (jnp.sum(u) * p["c"][0],)}


INIT = {"u": jnp.ones(2), "v": (jnp.float32(1.0),)}
P = {"a": jnp.float32(1.0), "b": jnp.array([2.0, 3.0]), "c": [jnp.float32(0.5)]}


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_pytrees(transform: str, compiled: bool) -> None:
    ours, theirs = [getattr(m, transform) for m in (fad, jax)]
    f = ours(lambda p: solve_system(INIT, p))
    expected = jax.jit(theirs(lambda p: system_in_jax(INIT, p)))(P)
    assert_close((fad.jit(f) if compiled else f)(P), expected, rtol=1e-3, atol=1e-4)


def test_pytrees_under_vmap() -> None:
    batch = {"a": jnp.array([1.0, 2.0, 0.5]), "b": P["b"], "c": P["c"]}
    dims: Any = {"a": 0, "b": None, "c": [None]}
    ours = lambda p: fad.grad(lambda p: solve_system(INIT, p)["v"][0])(p)
    theirs = lambda p: jax.grad(lambda p: system_in_jax(INIT, p)["v"][0])(p)
    expected = jax.jit(jax.vmap(theirs, in_axes=(dims,)))(batch)
    assert_close(fad.vmap(ours, in_dims=(dims,))(batch), expected, rtol=1e-3)
    assert_close(fad.jit(fad.vmap(ours, in_dims=(dims,)))(batch), expected, rtol=1e-3)


def test_keywords_and_options() -> None:
    @custom_root(cubic)
    def solve(init: Any, a: Any = 2.0, *, steps: int = 3) -> Any:
        for _ in range(steps):
            init = init - cubic(init, a) / (3 * init**2 + 1)
        return init

    assert_close(solve(1.0), jnp.float32(1.0), rtol=1e-2)
    assert_close(
        fad.grad(lambda a: solve(1.0, a=a, steps=20))(1.3), jax.grad(closed)(1.3), rtol=1e-5
    )
    assert solve.__name__ == "solve"


def test_arrays_give_arrays_and_tensors_tensors() -> None:
    assert isinstance(in_numpy(1.0, jnp.float32(2.0)), jax.Array)
    assert isinstance(in_numpy(1.0, fad.tensor(2.0)), fad.Tensor)


def test_complex_unknowns_need_not_be_holomorphic() -> None:
    @custom_root(lambda x, a: x + 0.5 * fnp.conj(x) - a * a)
    def solve(init: Any, a: Any) -> Any:
        return fnp.real(a * a) / 1.5 + 2j * fnp.imag(a * a)

    def plain(a: Any) -> Any:
        return fnp.real(a * a) / 1.5 + 2j * fnp.imag(a * a)

    a, t = jnp.array([1.0 + 2.0j, 0.5j]), jnp.array([1.0 - 1.0j, 2.0 + 0j])
    assert_close(fad.jvp(lambda a: solve(1j, a), (a,), (t,)), fad.jvp(plain, (a,), (t,)), rtol=1e-5)
    loss = lambda f: lambda a: fnp.sum(fnp.abs(f(a)) ** 2)
    assert_close(fad.grad(loss(lambda a: solve(1j, a)))(a), fad.grad(loss(plain))(a), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_dtypes(dtype: Any) -> None:
    solve = custom_root(lambda x, a: x * x - a)(lambda init, a: fnp.sqrt(a))
    a = jnp.array([2.0, 3.0], dtype)
    slope = fad.jacrev(lambda a: solve(a, a))(a)
    assert slope.dtype == dtype
    assert_close(
        slope.astype(jnp.float32), jnp.diag(0.5 / jnp.sqrt(jnp.array([2.0, 3.0]))), rtol=1e-2
    )


def test_integers_among_the_arguments() -> None:
    solve = custom_root(lambda x, a, k: x - a[k])(lambda init, a, k: a[k])
    a = jnp.array([1.0, 2.0])
    assert_close(fad.grad(lambda a, k: solve(0.0, a, k))(a, jnp.int32(1)), jnp.array([0.0, 1.0]))
    assert_close(fad.jit(fad.grad(lambda a, k: solve(0.0, a, k)))(a, 1), jnp.array([0.0, 1.0]))


def test_large_arrays_on_the_host() -> None:
    @custom_root(lambda x, a: x**2 - a)
    def solve(init: Any, a: Any) -> Any:
        x = np.asarray(init)
        while np.abs(np.asarray(x**2 - a)).max() > 1e-4:  # operations of fad, on the host
            x = np.asarray(x - (x**2 - a) / (2 * x))
        return x

    a = jnp.linspace(1.0, 2.0, 500)
    slope = fad.jit(fad.grad(lambda a: solve(jnp.ones(500), a).sum()))(a)
    assert_close(slope, 0.5 / jnp.sqrt(a), rtol=1e-4)


def test_a_solver_on_the_host_is_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    f = fad.vmap(fad.grad(lambda a: in_numpy(1.0, a)))
    f(jnp.array([1.0, 2.0]))
    caplog.clear()
    with jax.log_compiles():
        f(jnp.array([3.0, 4.0]))
    assert not [r for r in caplog.records if r.getMessage().startswith("Compiling")]


def test_dicts_keep_the_order_of_their_keys() -> None:
    solve = custom_root(lambda x, a: {"b": x["b"] - a, "a": x["a"] - x["b"]})(
        lambda init, a: {"b": np.asarray(a), "a": np.asarray(a)}
    )
    for f in (lambda g: g, fad.vmap):
        found = f(lambda a: solve({"b": a * 0.0, "a": a * 0.0}, a))(jnp.ones(2))
        assert list(found) == ["b", "a"]


# Functions


class Cube(fad.Function):
    """x³, with a wrong factor in its vjp, by which its use is seen."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return 30.0 * g * ctx.saved_tensors[0] ** 2


@pytest.mark.parametrize(
    "transform",
    [fad.grad, fad.jacfwd, jax.grad, jax.jacfwd],
    ids=["grad", "jacfwd", "jax.grad", "jax.jacfwd"],
)
def test_rules_of_functions_in_the_equation(transform: Any) -> None:
    solve = custom_root(lambda x, a: Cube.apply(x) - a)(lambda init, a: np.cbrt(a))
    found = transform(lambda a: solve(1.0, a))(8.0)
    assert_close(found, jnp.float32(1 / (30 * 2.0**2)), rtol=1e-5)
    second = fad.hessian(lambda a: solve(1.0, a))(8.0)
    assert_close(second * 1e4, jnp.float32(-2e4 / (900 * 2.0**5)))


# Errors


def test_a_singular_derivative() -> None:
    solve = custom_root(lambda x, a: x**2 - a)(lambda init, a: fnp.sqrt(a))
    with pytest.raises(fad.errors.SingularError, match=r"derivative of residual in x.*lineax\.SVD"):
        fad.grad(lambda a: solve(1.0, a))(0.0)
    with pytest.raises(fad.errors.SingularError):
        fad.jvp(lambda a: solve(1.0, a), (0.0,), (1.0,))
    assert not np.isfinite(fad.jit(fad.grad(lambda a: solve(1.0, a)))(0.0))


def test_what_does_not_depend_on_the_unknown() -> None:
    for residual in (lambda x, a: a, lambda x, a: fad.stop_gradient(x) - a):
        with pytest.raises(
            fad.errors.GradientError, match=r"does not depend on x, its first argument"
        ):
            custom_root(residual)(lambda init, a: a)(1.0, 2.0)
    both = custom_root(lambda x: (x[0], x[0] + 1.0))(lambda init: init)
    with pytest.raises(fad.errors.GradientError, match="leaf 1 of its first argument"):
        both((0.0, 1.0))
    with pytest.raises(fad.errors.GradientError, match="the gradient of objective"):
        custom_argmin(lambda x: 2.0 * x)(lambda init: init)(1.0)


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        (
            lambda x: x[:1],
            r"residual\(x, \.\.\.\) returned float32\[1\], but what <lambda> returned is float32\[2\]",
        ),
        (lambda x: (x,), r"returned \(float32\[2\],\)"),
        (lambda x: x + 1j, r"returned complex64\[2\]"),
    ],
)
def test_equations_of_another_form(residual: Any, message: str) -> None:
    with pytest.raises(fad.errors.StructureError, match=message):
        custom_root(residual)(lambda init: init)(jnp.ones(2))


def test_an_objective_that_is_no_scalar() -> None:
    with pytest.raises(fad.errors.StructureError, match=r"real scalar, got float32\[2\]: write"):
        custom_argmin(lambda x: x**2)(lambda init: init)(jnp.ones(2))


def test_results_that_are_no_floating_arrays() -> None:
    for result, message in ((1, "int32"), ("a", "str 'a'"), ((), "expected a pytree")):
        solve = custom_root(cubic)(lambda init, a, *, result=result: result)
        with pytest.raises(fad.errors.ArgumentError, match=message):
            solve(1.0, 2.0)


def test_an_equation_that_reads_values() -> None:
    with pytest.raises(fad.errors.HostValueError, match=r"residual\(x, \.\.\.\) reads a value"):
        custom_root(lambda x: x if x > 0 else -x)(lambda init: init)(1.0)


def test_a_solver_on_the_host_that_closes_over_what_is_traced() -> None:
    def f(a: Any) -> Any:
        return custom_root(lambda x: x**2 - a)(lambda init: np.sqrt(np.asarray(a)))(1.0)

    assert_close(fad.grad(f)(4.0), jnp.float32(0.25))  # it has a value here
    with pytest.raises(fad.errors.HostValueError, match="pass it as an argument"):
        fad.jit(f)(4.0)
    with pytest.raises(fad.errors.HostValueError, match="pass it as an argument"):
        fad.vmap(f)(jnp.ones(2))


def test_a_solver_on_the_host_that_returns_another_form() -> None:
    solve = custom_root(lambda x, a: x - a)(lambda init, a: np.asarray(a)[:1])
    with pytest.raises(
        Exception, match=r"must return something of init's form: expected float32\[2\]"
    ):
        jax.block_until_ready(fad.jit(lambda a: solve(jnp.ones(2), a))(jnp.ones(2)))


def test_what_is_no_function() -> None:
    with pytest.raises(
        fad.errors.ArgumentError, match=r"custom_root: the first argument must be a function"
    ):
        custom_root(1.0)
    with pytest.raises(
        fad.errors.ArgumentError, match=r"write custom_argmin\(objective\)\(solve\)"
    ):
        custom_argmin(cubic)(1.0)
    with pytest.raises(fad.errors.ArgumentError, match="a linear solver is a function"):
        custom_root(cubic, linear_solve=3)
    with pytest.raises(TypeError, match="there must be a first argument"):
        custom_root(cubic)(lambda *args: 1.0)()
    with pytest.raises(
        TypeError,
        match=r"residual\(x, \*args\) is given x and .* 1 arguments in all: missing .* 'a'",
    ):
        custom_root(lambda x, a: x - a)(lambda x: x)(1.0)


def test_failure_leaves_no_trace() -> None:
    @custom_root(cubic)
    def solve(init: Any, a: Any) -> Any:
        raise KeyError("the solver")

    with pytest.raises(KeyError, match="the solver"):
        fad.grad(lambda a: solve(1.0, a))(1.0)
    assert fad.is_grad_enabled() and fad.core.level.state.levels == ()
