"""Programs of small arrays give bitwise what their operations give one by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import exact_programs
from fad.core.exact_programs import barrier, jit_exact

X = jnp.array([0.5, 1.0, 1.5, 2.0])


def test_bits_are_those_of_single_operations():
    """XLA would contract the product and the sum; the second result of the sort is not read."""
    operations = [jax.jit(f) for f in (jnp.multiply, jnp.add, lambda x: jax.lax.sort((x, -x)))]

    def run(x, y):
        for f in operations[:2]:
            (x,) = barrier([f(*barrier([x, y]))])
        first, _ = barrier(operations[2](*barrier([x])))
        return (first,)

    x, y = X / 3.0, X / 7.0
    (found,) = jit_exact(run, [jax.typeof(x), jax.typeof(y)])(x, y)
    product = operations[0](x, y)
    np.testing.assert_array_equal(found, operations[2](operations[1](product, y))[0])


def test_a_version_of_xla_that_does_not_know_the_options(monkeypatch):
    real = jax.jit

    def refuses(f, **options):
        if options.get("compiler_options"):
            raise RuntimeError("No such compile option")
        return real(f, **options)

    exact_programs._options_of_small_programs.cache_clear()
    monkeypatch.setattr(jax, "jit", refuses)
    assert float(exact_programs.jit_of_small(lambda x: x + 1.0)(1.0)) == 2.0
    monkeypatch.undo()
    exact_programs._options_of_small_programs.cache_clear()
    assert set(exact_programs._options_of_small_programs()) <= {
        "xla_cpu_scheduler_type",
        "xla_disable_hlo_passes",
    }
