"""Programs of JAX, interpreted with other values, and the derivatives of their equations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fad import extend


def test_a_program_is_interpreted_with_constants_and_calls():
    table = np.arange(3.0, dtype=np.float32)
    program, _ = extend.trace(lambda x: jax.jit(jnp.sin)(x) * table, [jnp.ones(3)])

    def depths(program, inputs):
        def equation(eqn, operands):
            inner = extend.called(eqn)
            if inner is not None:
                return depths(inner, operands)
            return [1 + max(operands)] * len(eqn.outvars)

        return extend.interpret(program, inputs, equation, lambda value: 0)

    assert depths(program, [0]) == [2]


def test_what_is_evaluated_is_what_the_program_gives():
    def f(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: c * x, x), jnp.where(x > 0, x, -x)

    x = jnp.float32(2.0)
    program, shapes = extend.trace(f, [x])
    outs = extend.interpret(program, [x], extend.evaluate_equation, lambda value: value)
    assert (
        [float(o) for o in outs]
        == [16.0, 2.0]
        == [float(o) for o in extend.run_program(program, x)]
    )
    assert [s.shape for s in shapes] == [(), ()]


def test_the_derivative_of_an_equation():
    (eqn,) = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns
    point = [jnp.float32(2.0), jnp.float32(3.0)]
    both = extend.derivative_of(eqn, [0, 1], [0], point)
    (tangent,) = extend.run_program(both, *point, 1.0, 10.0)
    assert float(tangent) == 23.0
    assert extend.depends_on_point(both.jaxpr, [0]) and extend.depends_on_point(both.jaxpr, [1])
    (add,) = jax.make_jaxpr(jnp.add)(2.0, 3.0).eqns
    assert not extend.depends_on_point(extend.derivative_of(add, [0], [0], point).jaxpr, [0, 1])
