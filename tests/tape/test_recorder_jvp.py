"""The level of forward mode: primals and tangents, what has none, and operations on both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.core.level import bind, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.tape.recorder import JvpLevel

X = jnp.array([0.3, -0.8, 1.2])
V = jnp.array([1.0, 2.0, -1.0])


def test_an_operation_computes_primal_and_tangent() -> None:
    with JvpLevel() as level:
        x = level.dual(X, V)
        assert level.unpack(x)[0] is X and level.unpack(x)[1] is V
        y = fnp.sin(x) * 2.0
        assert isinstance(y, Tensor) and y.level is level
        assert_close(level.unpack(y), (2 * jnp.sin(X), 2 * jnp.cos(X) * V))
    assert state.levels == ()


def test_a_tangent_that_is_zero_is_none() -> None:
    with JvpLevel() as level:
        x, constant = level.dual(X, V), level.dual(X, None)
        assert level.unpack(constant * 2.0)[1] is None
        assert level.unpack(fnp.argmax(x))[1] is None
        assert level.unpack(fad.stop_gradient(x))[1] is None
        # One tangent of two.
        assert_close(level.unpack(x * constant)[1], V * X)
        assert level.unpack(X)[0] is X and level.unpack(X)[1] is None


def test_an_operation_without_tangents_is_that_of_the_level_below() -> None:
    """The derivative is not even derived."""
    op = Primitive("op", jnp.sin)
    with JvpLevel() as level:
        out = bind(op, (level.dual(X, None),))
        assert level.unpack(out)[1] is None and not op.cache


def test_outputs_of_several_kinds() -> None:
    op = Primitive("op", lambda x: (x * 2.0, jnp.argmax(x), x.sum()))
    with JvpLevel() as level:
        outs = bind(op, (level.dual(X, V),))
        tangents = [level.unpack(o)[1] for o in outs]
    assert_close(tangents[::2], [V * 2.0, V.sum()])
    assert tangents[1] is None


def test_levels_nest_in_any_number() -> None:
    """The third derivative of x^5, by three levels that are entered at once."""
    with JvpLevel() as a, JvpLevel() as b, JvpLevel() as c:
        x = c.dual(b.dual(a.dual(X, jnp.ones(3)), jnp.ones(3)), jnp.ones(3))
        y = x**5
        third = a.unpack(b.unpack(c.unpack(y)[1])[1])[1]
    assert_close(third, 60 * X**2)


def test_a_tensor_keeps_its_tangent_where_its_history_stops() -> None:
    with JvpLevel() as level:
        x = level.dual(X, V).requires_grad_()
        y = x * 2.0
        assert y.requires_grad
        with fad.no_grad():
            z = x * 2.0
        assert not z.requires_grad
        assert_close(level.unpack(z)[1], 2 * V)
        assert level.detach(y) is not y and not level.detach(y).requires_grad
        assert level.detach(z) is z
        assert_close(level.unpack(level.detach(y))[1], 2 * V)


@pytest.mark.parametrize("tangent", [None, V], ids=["zero", "tangent"])
def test_parts_make_the_same_tensor_again(tangent: Any) -> None:
    with JvpLevel() as level:
        x = level.dual(X, tangent)
        parts, rest = level.flatten(x)
        assert len(parts) == 1 + (tangent is not None)
        again = level.unflatten(rest, iter(parts))
        assert again.value is x.value and again.aux is x.aux
        assert level.tangent(again) is tangent


def test_the_dtype_of_a_tangent_is_that_of_its_primal() -> None:
    half = X.astype(jnp.bfloat16)
    out, tangent = fad.jvp(lambda x: x * fnp.float32(2.0).astype("bfloat16"), (half,), (half,))
    assert out.dtype == tangent.dtype == jnp.bfloat16
    z = X + 1j * V
    assert_close(
        fad.jvp(lambda z: z * fnp.conj(z), (z,), (z,)),
        jax.jvp(lambda z: z * jnp.conj(z), (z,), (z,)),
    )
