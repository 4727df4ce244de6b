"""Products with the derivative of an equation, and equations whose rules call the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad import extend
from fad.core.primitive import Primitive
from fad.core.trees import LEAF
from fad.implicit import custom_argmin, custom_fixed_point, custom_root
from fad.implicit.equations import KINDS, Equation, JacobianProduct
from fad.implicit.systems import System

A = jnp.array([2.0, 3.0])


def residual(x: Any, a: Any) -> Any:
    """Zero where x³ + x = a, and each lane has a share of the others."""
    return x**3 + x - a * x.sum()


def newton(x: Any, a: Any) -> Any:
    step = lambda x: x - fnp.linalg.solve(fad.jacfwd(residual)(x, a), residual(x, a))
    return fad.lax.fori_loop(0, 20, lambda k, x: step(x), x)


def on_host(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` of NumPy, of a last dimension, called from JAX; its result is like the first argument."""
    called = lambda *xs: np.asarray(f(*map(np.asarray, xs)), np.float32)
    return lambda *xs: jax.pure_callback(called, xs[0], *xs, vmap_method="broadcast_all")


forward = on_host(lambda x, a: x**3 + x - a * x.sum(-1, keepdims=True))
to_x = on_host(lambda x, a, g: (3 * x**2 + 1) * g - (a * g).sum(-1, keepdims=True))
to_a = on_host(lambda x, a, g: -g * x.sum(-1, keepdims=True))


class OnHost(fad.Function):
    """Its forward and its vjp call the host, and it has no jvp."""

    forward = staticmethod(fad.from_jax(forward))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return tuple([fad.from_jax(rule)(*ctx.saved_tensors, g) for rule in (to_x, to_a)])


in_jax = jax.custom_vjp(forward)
in_jax.defvjp(
    lambda x, a: (forward(x, a), (x, a)), lambda saved, g: (to_x(*saved, g), to_a(*saved, g))
)

FIRST: dict[str, Callable[[Any], Any]] = {
    "grad": fad.grad,
    "jit": lambda f: fad.jit(fad.grad(f)),
    "vmap": lambda f: lambda a: fad.vmap(fad.grad(f))(fnp.stack([a, 1.5 * a])),
    "jit of vmap": lambda f: lambda a: fad.jit(fad.vmap(fad.grad(f)))(fnp.stack([a, 1.5 * a])),
    "grad of vmap": lambda f: fad.grad(lambda a: fad.vmap(f)(fnp.stack([a, 1.5 * a])).sum()),
    "jax.grad": lambda f: jax.grad(fad.to_jax(f)),
}
SECOND: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: lambda a: fad.jvp(f, (a,), (fnp.ones(2),))[1],
    "hessian": fad.hessian,
    "jacrev of grad": lambda f: fad.jacrev(fad.grad(f)),
    "jacfwd of jacfwd": lambda f: fad.jacfwd(fad.jacfwd(f)),
    "jit of hessian": lambda f: fad.jit(fad.hessian(f)),
    "vmap of hessian": lambda f: lambda a: fad.vmap(fad.hessian(f))(fnp.stack([a, 1.5 * a])),
    "grad of grad": lambda f: fad.grad(lambda a: (fad.grad(f)(a) ** 2).sum()),
    "jax.hessian": lambda f: jax.jit(jax.hessian(fad.to_jax(f))),
}


def loss_of(equation: Callable[..., Any]) -> Callable[[Any], Any]:
    solve = custom_root(equation)(newton)
    return lambda a: fnp.sum(fnp.sin(solve(2.0 * fnp.ones(2), a)))


@pytest.mark.parametrize("transform", FIRST)
@pytest.mark.parametrize("equation", [OnHost.apply, fad.from_jax(in_jax)], ids=["fad", "jax"])
def test_a_gradient_takes_the_vjp_rule_and_no_other(
    equation: Callable[..., Any], transform: str
) -> None:
    """The rule calls the host, which has no derivative and no transpose."""
    derivative = FIRST[transform]
    assert_close(derivative(loss_of(equation))(A), derivative(loss_of(residual))(A), rtol=1e-4)


@pytest.mark.parametrize("transform", [*FIRST, *SECOND])
def test_an_equation_of_torch(torch: Any, transform: str) -> None:
    equation = fad.from_torch(lambda x, a: x**3 + x - a * x.sum())
    derivative = {**FIRST, **SECOND}[transform]
    expected = derivative(loss_of(residual))(A)
    assert_close(derivative(loss_of(equation))(A), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("derivative", [fad.grad, lambda f: fad.jacrev(fad.grad(f))])
def test_each_kind_of_equation_of_torch(torch: Any, derivative: Callable[..., Any]) -> None:
    of_torch = fad.from_torch
    step = lambda x, a: x - residual(x, a) / 8
    cost = lambda x, a: (x**4).sum() / 4 + (x**2).sum() / 2 - (a * x).sum()
    lowest = lambda init, a: fad.implicit.root(lambda x: x**3 + x - a, init)
    pytest.importorskip("optimistix", reason="the extra implicit")
    two = 2.0 * fnp.ones(2)
    root, linear = fad.implicit.root, fad.implicit.linear_solve
    scaled = lambda v, a: 9.0 * v + a * v.sum()
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (lambda f: lambda a: custom_fixed_point(f)(newton)(two, a), step),
        (lambda f: lambda a: custom_argmin(f)(lowest)(two, a), cost),
        (lambda f: lambda a: root(f, two, a), residual),
        (lambda f: lambda a: linear(lambda v: f(v, a), two), scaled),
    ]
    for solution, f in pairs:
        got, expected = [
            derivative(lambda a: fnp.sum(fnp.sin(solution(g)(a))))(A) for g in (of_torch(f), f)
        ]
        assert_close(got, expected, rtol=1e-3, atol=1e-5)


def test_products_are_each_others_transposes() -> None:
    program = Primitive("residual", lambda a, x: (x**3 + x - a * x.sum(),))
    equation = Equation("root", KINDS["root"], program, LEAF, System())
    forward = JacobianProduct(equation)
    backward = forward.transposed
    assert backward.transposed == forward != backward
    x, point = jnp.array([1.0, 2.0]), [jnp.array([1.0, 2.0]), A]
    matrix = jax.jacobian(residual)(x, A)
    for product, of in ((forward, matrix), (backward, matrix.T)):
        times = lambda v, product=product: extend.linear_call(product, point, v)
        v = jnp.array([0.3, -0.7])
        assert_close(times([v])[0], of @ v)
        assert_close(jax.linear_transpose(times, [v])([v])[0][0], of.T @ v)
        lanes = lambda x, v, product=product: extend.linear_call(product, [x, A], [v])[0]
        both = jax.vmap(lanes)(jnp.stack([x, 2 * x]), jnp.stack([v, v]))
        assert_close(both, jnp.stack([lanes(x, v), lanes(2 * x, v)]))
        assert_close(jax.vmap(lanes, (None, 0))(x, jnp.eye(2)), of.T)
        assert_close(jax.vmap(lanes, (0, None))(jnp.stack([x]), v)[0], of @ v)
        turned = lambda v, lanes=lanes: jax.vmap(lanes, (None, 0))(x, v)
        (back,) = jax.linear_transpose(turned, jnp.eye(2))(jnp.eye(2))
        assert_close(back, of)


SOLVED = {
    "root": lambda: fad.implicit.custom_root(lambda x, a, w: x * x * w.sum() - a),
    "fixed point": lambda: fad.implicit.custom_fixed_point(
        lambda x, a, w: 0.5 * (x + a / (x * w.sum()))
    ),
    "argmin": lambda: fad.implicit.custom_argmin(
        lambda x, a, w: fnp.sum(w.sum() * x**3 / 3.0 - a * x)
    ),
    "by a function": lambda: fad.implicit.custom_root(
        lambda x, a, w: x * x * w.sum() - a,
        linear_solve=lambda matvec, b: b / matvec(fnp.ones(b.shape)),  # of a diagonal matrix
    ),
}


@pytest.mark.parametrize("name", SOLVED)
def test_each_device_solves_equations_of_its_own(name: str) -> None:
    """Under ``shard_map``, with what differs between devices and what is the same on all of them."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    closed = lambda a, w: jnp.sqrt(a / w.sum())
    solve = SOLVED[name]()(lambda init, a, w: fnp.sqrt(a / w.sum()))
    a, w = jnp.linspace(1.0, 9.0, 8), jnp.array([0.5, 1.5])

    def on_devices(f: Any) -> Any:
        sharded = jax.shard_map(f, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec("d"))
        return lambda a, w: (sharded(a, w) * a).sum()

    ours = on_devices(fad.to_jax(lambda a, w: solve(fnp.ones_like(a), a, w)))
    theirs = lambda a, w: (closed(a, w) * a).sum()
    for transform in (lambda f: jax.grad(f, (0, 1)), lambda f: jax.jacfwd(jax.grad(f), 1)):
        assert_close(jax.jit(transform(ours))(a, w), transform(theirs)(a, w), 1e-3)
    inside = jax.grad(lambda a, w: fad.to_jax(solve)(jnp.ones(2), a, w).sum())
    found = jax.shard_map(inside, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec("d"))
    assert_close(found(a, w), jax.grad(lambda a: closed(a, w).sum())(a), 1e-3)
