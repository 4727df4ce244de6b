"""Programs of JAX: evaluated, compared and written into others."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
from helpers import assert_close
from jax._src.interpreters import mlir

from fad.core import jaxapi, jaxprs, primitive
from fad.core.jaxprs import (
    bind_jaxpr,
    calls_host,
    inlined_when_traced,
    inner_jaxprs,
    jaxpr_key,
    map_equations,
    write_call,
)
from fad.rolling import repeats, scans

X = jnp.array([0.3, -0.8, 1.2])


def f(x: Any) -> Any:
    return jax.jit(lambda y: jnp.sin(y) * X)(x) + jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)


def test_equations_are_evaluated_with_calls_opened_up() -> None:
    closed = jax.make_jaxpr(f)(X)

    def run(x: Any) -> Any:
        env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        env[closed.jaxpr.invars[0]] = x
        map_equations(closed.jaxpr.eqns, env)
        return env[closed.jaxpr.outvars[0]]

    assert_close(run(X), f(X))
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(run)(X).jaxpr.eqns]
    assert "jit" not in names and "cond" in names


def test_the_constants_of_a_program_are_its_first_arguments() -> None:
    closed = jax.make_jaxpr(lambda x: x * X)(X)
    run = bind_jaxpr(closed)
    assert_close(run(*closed.consts, X), [X * X])
    assert_close(jax.jit(run)(*closed.consts, X), [X * X])


def test_keys_tell_programs_apart() -> None:
    programs = [lambda x: x * 2, lambda x: x * 3, lambda x: x + 2, f]
    keys = [[jaxpr_key(jax.make_jaxpr(p)(X).jaxpr) for p in programs] for _ in range(2)]
    assert len(set(keys[0])) == len(programs) and keys[0][:3] == keys[1][:3]


def test_what_calls_python_is_seen_inside_of_loops() -> None:
    def prints(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, y: jax.pure_callback(lambda z: z, y, y), x)

    assert calls_host(jax.make_jaxpr(prints)(X).jaxpr)
    closed = jax.make_jaxpr(f)(X)
    assert not calls_host(closed.jaxpr)
    assert sum([len(list(inner_jaxprs(eqn))) for eqn in closed.jaxpr.eqns]) == 3


def test_a_call_is_written_into_the_program_that_is_being_traced() -> None:
    known: dict[Any, Any] = {}
    assert write_call(known, jnp.sin, [X]) is None, "nothing is being traced"
    traced = []

    def g(x: Any) -> Any:
        traced.append(1)
        return jnp.sin(x), 2.0 * x

    program = lambda x: [write_call(known, g, [x]), write_call(known, g, [x])]
    assert_close(jax.jit(program)(X), [g(X), g(X)])
    assert len(traced) == 1 + 2 and len(known) == 1


def test_a_function_that_closes_over_a_tracer_is_not_written() -> None:
    found: list[Any] = []

    def program(x: Any) -> Any:
        found.append(write_call({}, lambda y: y * x, [X]))
        return x

    jax.make_jaxpr(program)(X)
    assert found == [None]


def test_numbers_are_constants_in_traced_code_alone() -> None:
    take = lambda x, i: x[i]
    call = inlined_when_traced(take, jax.jit(take))
    assert call(X, 1) == X[1]
    assert "dynamic_slice" not in str(jax.make_jaxpr(lambda x: call(x, 1))(X))
    assert jax.vmap(call, (0, None))(X[None], 1) == X[1]


def test_names_in_tables_are_those_of_primitives() -> None:
    """A name that JAX has changed would never be looked up again."""
    importlib.import_module("fad.formulas.while_loops")  # a tool, which has primitives of its own
    registries = (mlir._lowerings, *mlir._platform_specific_lowerings.values())
    names = {primitive.name for registry in registries for primitive in registry}
    tables = (
        primitive.EXPENSIVE,
        jaxprs.ELEMENTWISE,
        repeats._CHEAP,
        repeats._COSTLY,
        scans._WITH_BODIES,
        jaxapi._PARAMETERS,
    )
    for table in tables:
        assert set(table) - names <= {"polynomial"}  # which came later than JAX 0.11
