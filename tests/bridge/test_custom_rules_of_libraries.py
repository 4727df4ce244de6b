"""Custom rules of other libraries, with `jax.custom_vjp` and `jax.custom_jvp` renamed to `fad.custom_rules`.

The library's own source is run with nothing but that name changed, and is compared with the library: with its
derivatives, and with those that JAX refuses.
"""

from __future__ import annotations

import ast
import inspect
import re
import types

import jax
import jax.flatten_util  # equinox uses it without importing it
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad

X = jnp.array([0.1, 0.9, 0.3, -2.0])
MISSING = "a client of JAX that is not installed"
RULES = r"(?<![`\w.])jax\.custom_(?:vjp|jvp)(?!\w)"


def renamed(name):
    """A module of a library, and the same with the rules of fad."""
    module = pytest.importorskip(name, reason=MISSING)
    source, count = re.subn(RULES, "fad.custom_rules", inspect.getsource(module))
    assert count
    copy = types.ModuleType(name)
    vars(copy).update(fad=fad, __package__=module.__spec__.parent, __file__=module.__file__)
    exec(compile(source, module.__file__, "exec"), vars(copy))
    return module, copy


def functions_with(name, decorator, instead):
    """A module of a library, and its functions that have ``decorator``, with ``instead`` in its place."""
    module = pytest.importorskip(name, reason=MISSING)
    source = inspect.getsource(module)
    found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    first = [n.name for n in found if decorator in map(ast.unparse, n.decorator_list)]
    assert first
    space = {**vars(module), "instead": instead}
    for node in found:
        rule = any(ast.unparse(d).startswith(f"{n}.") for d in node.decorator_list for n in first)
        if node.name in first or rule:
            text = ast.unparse(node).replace(f"@{decorator}", "@instead")
            exec(compile(text, module.__file__, "exec"), space)
    return module, {n: space[n] for n in first}


def check_all(ours, theirs, forward=None):
    """Derivatives of a function of an array, beside the library's; ``forward`` is for what JAX refuses."""
    forward = forward or jax.jacfwd(theirs)
    assert_close(ours(X), theirs(X))
    lanes = jnp.stack([X, 2 * X])
    assert_close(jax.jit(jax.vmap(jax.jacrev(ours)))(lanes), jax.vmap(jax.jacrev(theirs))(lanes))
    assert_close(jax.jacrev(jax.jacrev(ours))(X), jax.jacrev(jax.jacrev(theirs))(X))
    assert_close(jax.jacfwd(ours)(X), forward(X))
    assert_close(fad.jacfwd(fad.from_jax(ours))(X), forward(X))
    assert_close(fad.jacrev(fad.from_jax(ours))(X), jax.jacrev(theirs)(X))


def test_optax_scales_gradients():
    theirs, ours = renamed("optax._src.utils")
    f = lambda library: lambda x: library.scale_gradient({"a": x}, 3.0)["a"] ** 2
    # JAX refuses forward mode of a custom_vjp.
    check_all(f(ours), f(theirs), forward=jax.jacrev(f(theirs)))


def test_optax_projects():
    theirs, ours = renamed("optax.projections._projections")
    check_all(ours.projection_l1_ball, theirs.projection_l1_ball)


def test_optax_has_a_logsoftmax_with_weights():
    theirs, ours = renamed("optax.losses._classification")
    weights = jnp.array([0.0, 0.5, 0.5, 0.0])
    f = lambda library: lambda x: library.weighted_logsoftmax(x.at[0].set(-jnp.inf), weights)
    check_all(f(ours), f(theirs))


def test_lineax_has_norms_with_a_derivative_at_zero():
    theirs, ours = renamed("lineax._norm")
    check_all(ours.two_norm, theirs.two_norm)
    zero = jnp.zeros(3)
    for name in ("two_norm", "rms_norm", "max_norm"):
        assert_close(jax.grad(getattr(ours, name))(zero), jax.grad(getattr(theirs, name))(zero))


def test_equinox_filters_what_is_differentiated():
    theirs, ours = renamed("equinox._ad")

    def program(library):
        @library.filter_custom_vjp
        def f(both, scale, *, how):
            x, y = both
            return how(x) * y * scale

        @f.def_fwd
        def fwd(perturbed, both, scale, *, how):
            return f(both, scale, how=how), (jnp.cos(both[0]), how)

        @f.def_bwd
        def bwd(residuals, g, perturbed, both, scale, *, how):
            (cos, same), (x, y) = residuals, both
            assert same is how
            return 3.0 * g * cos * y * scale, g * how(x) * scale if perturbed[1] else None

        return lambda x: f((x, jnp.float32(2.0)), jnp.float32(3.0), how=jnp.sin)

    check_all(program(ours), program(theirs), forward=jax.jacrev(program(theirs)))

    def forward(library):
        @library.filter_custom_jvp
        def f(x, y, *, how):
            return how(x) * y

        @f.def_jvp
        def rule(primals, tangents, *, how):
            (x, y), (x_t, y_t) = primals, tangents
            assert y_t is None
            return f(x, y, how=how), 3.0 * x_t * y * jnp.cos(x)

        return lambda x: f(x, jnp.float32(2.0), how=jnp.sin)

    check_all(forward(ours), forward(theirs))


def test_diffrax_solves_backwards(monkeypatch):
    diffrax = pytest.importorskip("diffrax", reason=MISSING)
    _, equinox = renamed("equinox._ad")
    module, found = functions_with(
        "diffrax._adjoint", "eqx.filter_custom_vjp", equinox.filter_custom_vjp
    )

    def solve(rate, steps):
        term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
        adjoint = diffrax.BacksolveAdjoint()
        options = {"args": rate, "adjoint": adjoint, "max_steps": steps}
        y = jnp.array([1.0, 2.0])
        return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.05, y, **options).ys.sum()

    rate = jnp.float32(0.5)
    expected = jax.grad(solve)(rate, 32)
    monkeypatch.setattr(module, "_loop_backsolve", found["_loop_backsolve"])
    assert_close(jax.grad(solve)(rate, 33), expected)  # 33: the solver is compiled anew
    with_rules = lambda rate: solve(rate, 33)
    # Forward mode, which diffrax refuses, solves once more.
    assert_close(jax.jvp(with_rules, (rate,), (1.0,))[1], expected, rtol=1e-2)


def test_optimistix_differentiates_implicitly(monkeypatch):
    optimistix = pytest.importorskip("optimistix", reason=MISSING)
    _, equinox = renamed("equinox._ad")
    module, found = functions_with(
        "optimistix._ad", "eqx.filter_custom_jvp", equinox.filter_custom_jvp
    )

    def root(a, steps):
        solver = optimistix.Newton(1e-6, 1e-6)
        f = lambda y, a: y**2 - a
        return optimistix.root_find(f, solver, jnp.float32(1.0), a, max_steps=steps).value

    a = jnp.float32(3.0)
    expected = jax.grad(root)(a, 16), jax.jvp(lambda a: root(a, 16), (a,), (1.0,))
    monkeypatch.setattr(module, "_implicit_impl", found["_implicit_impl"])
    with_rules = lambda a: root(a, 17)
    assert_close((jax.grad(with_rules)(a), jax.jvp(with_rules, (a,), (1.0,))), expected)
    assert_close(fad.grad(fad.from_jax(with_rules))(a), expected[0])
