"""Which outputs of a program depend on which inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fad
from fad.core.avals import aval_of
from fad.core.dataflow import (
    COMPUTED,
    DROPPED,
    READ,
    RECORDED,
    dependence_rows,
    flows,
    tangent_rows,
)
from fad.tape.staged import unrecorded


@jax.custom_jvp
def straight(x: Any) -> Any:
    return jnp.sign(x).astype(int).astype(float)


straight.defjvps(lambda t, out, x: t)


def scanned(x: Any, a: Any) -> Any:
    """``a`` comes into the second part of the carry with the second step."""
    step = lambda c, e: ((c[0] * x, c[0] + c[1] * 0.5, c[2]), (c[1], e * 2.0))
    carry, (seconds, others) = jax.lax.scan(step, (a, 1.0, 2.0), jnp.ones(3))
    return (*carry, seconds, others)


# From x and a: for each output, whether it depends on x, and on a.
PROGRAMS: dict[str, tuple[Any, list[tuple[bool, bool]]]] = {
    "each of its own": (
        lambda x, a: (x * 2.0, a * x, 1.0),
        [(True, False), (True, True), (False, False)],
    ),
    "nested jit": (lambda x, a: jax.jit(lambda u, v: (v, u))(x, a), [(False, True), (True, False)]),
    "stop_gradient": (lambda x, a: jax.lax.stop_gradient(x) * a, [(False, True)]),
    "unrecorded": (lambda x, a: unrecorded(x) * unrecorded(x, a), [(False, True)]),
    "integers": (lambda x, a: x.astype(int) * a, [(False, True)]),
    "a comparison": (lambda x, a: jnp.where(x > 0.0, a, 1.0), [(False, True)]),
    "a rule of its own": (lambda x, a: straight(x) + 0.0 * x.astype(int), [(True, False)]),
    "a branch": (
        lambda x, a: jax.lax.cond(x > 0.0, lambda a: (a, 1.0), lambda a: (2.0, a), a),
        [(False, True), (False, True)],
    ),
    "a scan": (scanned, [(True, True), (True, True), (False, False), (True, True), (False, False)]),
    "a loop": (
        lambda x, a: jax.lax.while_loop(
            lambda c: c[0] < x, lambda c: (c[0] + 1.0, c[1] * a), (0.0, 1.0)
        ),
        [(False, False), (False, True)],
    ),
    "a loop of fad": (
        lambda x, a: fad.to_jax(
            lambda x, a: fad.lax.while_loop(
                lambda c: c[0] < x, lambda c: (c[0] + 1.0, c[1] * a), (0.0, 1.0)
            )
        )(x, a),
        [(False, False), (False, True)],
    ),
    "checkpoint": (
        lambda x, a: jax.checkpoint(lambda u, v: (v * 2.0, u))(x, a),
        [(False, True), (True, False)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_programs(name: str) -> None:
    f, expected = PROGRAMS[name]
    avals = [aval_of(2.5), aval_of(3.0)]
    assert list(dependence_rows(f, (True, True), avals, COMPUTED)) == expected
    masked = [(x, False) for x, _ in expected]
    assert list(dependence_rows(f, (True, False), avals, COMPUTED)) == masked


@pytest.mark.parametrize("name", [*PROGRAMS, "a scan of constants"])
def test_what_has_a_tangent(name: str) -> None:
    scan = lambda x, a: jax.lax.scan(lambda c, e: (c * e + x, (c, e * a)), x, jnp.ones(3))
    function = scan if name == "a scan of constants" else PROGRAMS[name][0]
    point = (2.0, 3.0)
    jaxpr = jax.make_jaxpr(function)(*point).jaxpr
    for mask in ((True, False), (False, True), (True, True)):
        found = tangent_rows(jaxpr, mask)
        tangents = jax.jvp(function, point, tuple(map(float, mask)))[1]
        nonzero = [
            t.dtype != jax.dtypes.float0 and bool(jnp.any(t != 0))
            for t in map(jnp.asarray, jax.tree.leaves(tangents))
        ]
        assert all(f or not n for f, n in zip(found, nonzero, strict=True))
        if function is scan:
            assert [*found] == nonzero


def test_paths_that_end_are_followed_where_a_program_is_transposed() -> None:
    avals = [aval_of(2.5), aval_of(3.0)]
    given = (RECORDED, 0)
    branch = lambda x: jax.lax.cond(x > 0.0, lambda x: 2.0 * x, lambda x: x, x)
    programs: dict[str, tuple[Any, list[int]]] = {
        "recorded": (lambda x, a: (x * a, a), [RECORDED, 0]),
        "detached": (lambda x, a: (x - jax.lax.stop_gradient(2.0 * x), x), [3, RECORDED]),
        "of another": (lambda x, a: x + jax.lax.stop_gradient(a), [RECORDED]),
        "not recorded": (lambda x, a: jax.jit(unrecorded)(x) * a, [DROPPED]),
        "a write": (lambda x, a: unrecorded(a, x), [DROPPED]),
        "a mask": (lambda x, a: jnp.where(jax.lax.stop_gradient(x) > 0.0, x, 0.0), [RECORDED]),
        "a loop": (
            lambda x, a: jax.lax.fori_loop(
                0, 2, lambda _, c: (jax.lax.stop_gradient(c[1]), c[0]), (a, x)
            ),
            [DROPPED, 3],
        ),
        "branches of lanes": (lambda x, a: jax.vmap(branch)(jnp.stack([x, x])), [RECORDED]),
    }
    for name, (f, expected) in programs.items():
        assert flows(f, given, avals) == expected, name
        assert not any(flows(f, (0, 0), avals))


def test_what_a_derivative_compares_is_read() -> None:
    avals = [aval_of(2.5), aval_of(3.0)]
    f = lambda x, g: jnp.where(x > 0.0, g, 0.0)
    assert dependence_rows(f, (True, True), avals, READ) == ((True, True),)
    assert dependence_rows(f, (True, True), avals, COMPUTED) == ((False, True),)


def test_a_rule_that_goes_on_where_the_numbers_do_not() -> None:
    """The derivative of a custom rule is not lost, though its program goes through integers."""
    f = fad.jit(fad.from_jax(straight))
    assert float(fad.grad(f)(2.0)) == 1.0
    x = fad.tensor(2.0, requires_grad=True)
    f(x).backward()
    assert float(x.grad) == 1.0
