"""Functions as programs: what they close over, and what the program says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad import extend


def test_what_a_function_closes_over_is_an_operand() -> None:
    scale = fad.tensor(3.0, requires_grad=True)
    op, values, structure = extend.stage(
        lambda x: {"b": x * scale, "a": (x, scale)}, [fad.tensor(2.0)], name="f"
    )
    assert [v is scale for v in values] == [True, False]
    out = extend.unflatten(structure, extend.bind(op, values))
    assert [float(out["b"]), *map(float, out["a"])] == [6.0, 2.0, 3.0]
    out["b"].backward()
    assert float(scale.grad) == 2.0


def test_equal_functions_are_one_operation() -> None:
    made = [extend.stage(lambda x: fnp.sin(x) * 2.0, [jnp.ones(2)], name="f")[0] for _ in range(2)]
    assert made[0] is made[1]
    assert extend.stage(lambda x: fnp.cos(x), [jnp.ones(2)], name="f")[0] is not made[0]


@pytest.mark.parametrize("around", [fad.grad, lambda f: lambda x: fad.vmap(f)(x[None])[0], fad.jit])
def test_within_transforms(around: Any) -> None:
    def f(x: Any) -> Any:
        op, values, _ = extend.stage(lambda y: fnp.sum(fnp.sin(y) * x), [x * 2.0], name="f")
        return extend.bind(op, values)[0]

    assert_close(
        around(f)(3.0 * jnp.ones(())), around(lambda x: fnp.sin(2.0 * x) * x)(3.0 * jnp.ones(()))
    )


def test_what_reads_a_value_is_refused() -> None:
    with pytest.raises(extend.HOST_ERRORS):
        extend.stage(lambda x: x if x > 0 else -x, [1.0], name="f")


def test_what_is_kept_reads_tensors_again() -> None:
    scale = fad.tensor(1.0)
    op, values, _ = extend.stage(lambda x: x * (scale * 2.0), [3.0], name="f", kept=True)
    assert values[0] is scale
    assert float(extend.bind(op, values)[0]) == 6.0
    scale += 1.0
    assert float(extend.bind(op, values)[0]) == 12.0


def test_avals_and_dependence() -> None:
    assert extend.aval_of(np.ones((2, 3), np.float32)) == extend.aval_of(jnp.ones((2, 3)))
    assert extend.aval_of(1.0).weak_type and not extend.aval_of(jnp.ones(())).weak_type
    assert hash(extend.aval_of(fad.tensor([1.0])))
    avals = [extend.aval_of(jnp.ones(3))] * 2
    assert extend.dependence(lambda x, y: (x + jnp.floor(y), y.astype(int)), avals) == (
        (True, True),
        (False, False),
    )


def test_values_that_vary_over_devices() -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec

    def f(x: Any, w: Any) -> Any:
        with_tensors = extend.varying_alike([fad.tensor(w), x])
        both = [*extend.varying_alike([w, x]), *map(extend.bottom, with_tensors)]
        assert len({str(jax.typeof(v)) for v in both}) == 1
        return x * w

    mapped = jax.shard_map(f, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec("d"))
    assert_close(mapped(jnp.ones(2), jnp.array([3.0])), jnp.array([3.0, 3.0]))
