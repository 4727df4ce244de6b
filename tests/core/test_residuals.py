"""What a vjp keeps: a constant where no differentiated input reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from namespace_cases import A, M, assert_same

import fad


def test_what_does_not_depend_on_differentiated_inputs_is_not_differentiated() -> None:
    """The factorization that solve saves is a constant where b alone is differentiated, at any order."""
    a, b = A[:2, :2], M[:2, :2]

    def pulled(m: Any) -> Any:
        return lambda b: m.vjp(m.numpy.linalg.solve, a, b)[1](b * 0.5)

    def check(f: Callable[[Any], Any]) -> None:
        assert_same(f(fad), f(jax))

    check(lambda m: m.jvp(pulled(m), (b,), (a,))[1])
    check(lambda m: m.vjp(pulled(m), b)[1]((a, b)))
    check(lambda m: m.linearize(pulled(m), b)[1](a))
    check(lambda m: m.vmap(lambda t: m.jvp(pulled(m), (b,), (t,))[1])(jnp.stack([a, b])))
    check(lambda m: m.jvp(m.vmap(pulled(m)), (b[None],), (a[None],))[1])
    check(lambda m: m.jvp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], (b,), (b,))[1])
    check(lambda m: m.vjp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], b)[1]((a, b)))
