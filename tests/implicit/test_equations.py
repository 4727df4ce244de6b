"""The operation (solution, parameters) -> solution: what it saves, its nodes, programs that are shared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.core import trees
from fad.implicit.equations import KINDS, Equation, check_finite, staged
from fad.implicit.systems import System

ONE = jnp.float32(2.0)


def equation(f: Any, *args: Any, kind: str = "root", x: Any = ONE) -> tuple[Equation, list[Any]]:
    return staged("f", KINDS[kind], f, [x], trees.LEAF, args, System())


def test_equal_functions_have_one_program() -> None:
    one, values = equation(lambda x, a: x**2 - a, 4.0)
    other, _ = equation(lambda x, a: x**2 - a, 4.0)
    assert one == other and hash(one) == hash(other)
    assert one != equation(lambda x, a: x**3 - a, 4.0)[0]
    assert_close(list(one.residual([ONE], values)), [jnp.float32(0.0)])


def test_what_the_function_closes_over_is_a_parameter() -> None:
    k = fad.tensor(3.0, requires_grad=True)
    found, parameters = equation(lambda x, a: x * k - a, 6.0)
    assert parameters[0] is k
    (x,) = found.solution([ONE], parameters)
    x.backward()
    assert_close(k.grad, jnp.float32(-2.0 / 3.0))


@pytest.mark.parametrize(
    ("kind", "f", "expected"),
    [
        ("root", lambda x, a: x * x - a, 0.25),
        ("fixed_point", lambda x, a: 0.5 * (x + a / x), 0.25),
        ("argmin", lambda x, a: x**3 / 3 - a * x, 0.25),
    ],
)
def test_kinds(kind: str, f: Any, expected: float) -> None:
    def solution(a: Any) -> Any:
        return equation_at(f, a, kind)[0]

    def equation_at(f: Any, a: Any, kind: str) -> Any:
        found, parameters = equation(f, a, kind=kind)
        return found.solution([ONE], parameters)

    assert_close(fad.grad(solution)(4.0), jnp.float32(expected))
    assert_close(fad.jacfwd(solution)(4.0), jnp.float32(expected))
    assert_close(fad.hessian(solution)(4.0), jnp.float32(-0.03125))


def test_a_node_saves_the_solution_and_the_parameters() -> None:
    a = fad.tensor(4.0, requires_grad=True)
    found, parameters = equation(lambda x, a: x**2 - fnp.sin(a) * x, a)
    (x,) = found.solution([ONE], parameters)
    saved = x.grad_fn.saved_values()
    assert len(saved) == 3 and x.grad_fn.name() == "fBackward"
    with fad.autograd.saved_tensors_hooks(lambda t: t.numpy(), lambda a: fad.tensor(a)):
        (x,) = found.solution([ONE], parameters)
    assert_close(fad.autograd.grad(x, a)[0], fad.grad(lambda a: found.solution([ONE], [a])[0])(4.0))
    with pytest.raises(RuntimeError, match="a second time"):
        fad.autograd.grad(x, a)


def test_numbers_that_are_not_finite() -> None:
    found, _ = equation(lambda x, a: x**2 - a, 4.0)
    check_finite(found, [jnp.ones(2)], [])
    check_finite(found, [jnp.array(np.nan)], [jnp.array(np.inf)])
    with pytest.raises(
        fad.errors.SingularError, match="f: the linear system of the derivative is singular"
    ):
        check_finite(found, [jnp.array(np.nan)], [jnp.ones(2)])
    jax.jit(lambda x: check_finite(found, [x / 0], [x]))(1.0)


def test_hooks_and_anomaly_mode() -> None:
    a = fad.tensor(4.0, requires_grad=True)
    seen: list[float] = []
    a.register_hook(lambda g: seen.append(float(g)))
    with fad.autograd.detect_anomaly(check_nan=True):
        found, parameters = equation(lambda x, a: x**2 - a, a)
        found.solution([ONE], parameters)[0].backward()
    assert seen == [0.25]


def test_lanes_that_an_equation_would_couple() -> None:
    a = jnp.array([1.0, 2.0])
    solve = fad.implicit.custom_root(lambda x, a: x - a)(lambda init, a: a)
    mean = lambda a: solve(0.0, a * fad.lax.pmean(a, "i"))  # outside of the equation
    assert_close(fad.vmap(mean, axis_name="i")(a), a * 1.5)
    coupled = fad.implicit.custom_root(lambda x, a: x + fad.lax.pmean(x, "i") - a)(lambda i, a: a)
    for library in (fad, jax):
        with pytest.raises(fad.errors.LevelError, match="names the axis of a vmap"):
            library.vmap(lambda a: coupled(0.0, a), axis_name="i")(a)
