"""The in-place methods: each writes what its function returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
from fad.methods import shapes_in_place

V = jnp.array([0.5, -1.0, 2.0])

A = jnp.array([0.3, 0.6, 0.9])
ARGUMENTS = {
    "lerp_": (2.0, 0.5),
    "addcmul_": (A, V),
    "addcdiv_": (A, V),
    "clip_": (0.4, 0.8),
    "clamp_": (0.4, 0.8),
    "copy_": (V,),
    "fill_": (2.0,),
    "masked_fill_": (A > 0.5, 7.0),
    "index_put_": ((jnp.array([0, 2]),), 5.0),
    "index_add_": (0, jnp.array([0, 0, 2]), V),
    "index_copy_": (0, jnp.array([2, 0]), V[:2]),
    "index_fill_": (0, jnp.array([2, 0]), 4.0),
    "scatter_": (0, jnp.array([2, 0]), V[:2]),
    "scatter_add_": (0, jnp.array([0, 0]), V[:2]),
}
EXPECTED = {
    "lerp_": lambda x: x + 0.5 * (2 - x),
    "addcmul_": lambda x: x + A * V,
    "addcdiv_": lambda x: x + A / V,
    "clip_": lambda x: jnp.clip(x, 0.4, 0.8),
    "clamp_": lambda x: jnp.clip(x, 0.4, 0.8),
    "copy_": lambda x: V,
    "fill_": lambda x: jnp.full(3, 2.0),
    "zero_": lambda x: jnp.zeros(3),
    "masked_fill_": lambda x: jnp.where(A > 0.5, 7.0, x),
    "index_put_": lambda x: x.at[jnp.array([0, 2])].set(5.0),
    "index_add_": lambda x: x.at[jnp.array([0, 0, 2])].add(V),
    "index_copy_": lambda x: x.at[jnp.array([2, 0])].set(V[:2]),
    "index_fill_": lambda x: x.at[jnp.array([2, 0])].set(4.0),
    "scatter_": lambda x: x.at[jnp.array([2, 0])].set(V[:2]),
    "scatter_add_": lambda x: x.at[jnp.array([0, 0])].add(V[:2]),
}
INTEGERS = """bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_not_ invert_ left_shift_ right_shift_ gcd_ lcm_
bitwise_left_shift_ bitwise_right_shift_""".split()
SQUARE = ["matmul_", "tril_", "triu_"]


def in_place_names():
    return sorted(n for n in dir(fad.Tensor) if n.endswith("_") and not n.startswith("_"))


OTHERS = ["detach_", "requires_grad_", *shapes_in_place.MEMBERS]  # that write no new values


@pytest.mark.sweep("name", [n for n in in_place_names() if n not in OTHERS], sample=30)
def test_in_place_methods_write_what_their_function_returns(name):
    start = jnp.array([3, 5, 6]) if name in INTEGERS else jnp.eye(3) + 0.2 if name in SQUARE else A
    method = getattr(fad.Tensor, name)
    reference = EXPECTED.get(name)
    arguments = ARGUMENTS.get(name, ())
    if reference is None:
        module, _, of = method.__doc__.split("``")[1].rpartition(".")
        modules = {"fad.numpy": jnp, "fad.nn": jax.nn, "fad.lax": jax.lax}
        function = getattr(modules[module], of)
        if name in INTEGERS + SQUARE or "ldexp" in name:
            other = jnp.array([1, 2, 2]) if name in INTEGERS or "ldexp" in name else start
        else:
            other = V
        try:
            function(start)
        except TypeError:
            arguments = (other,)
        reference = lambda x: function(x, *arguments)
    for view in (lambda x: x, lambda x: x[...], lambda x: x[None].T if x.ndim == 1 else x.T.T):
        if name in ("cumsum_", "cumprod_", "zero_", *SQUARE, *ARGUMENTS, *INTEGERS) or arguments:
            view = lambda x: x[...]
        x = fad.tensor(start)
        v = view(x)
        expected = reference(view(fad.asarray(start)).array)
        if name in ("cumsum_", "cumprod_"):
            arguments, expected = (0,), getattr(jnp, name[:-1])(start, 0)
        same = method(v, *arguments)
        assert same is v
        assert_close(v, jnp.asarray(expected).astype(start.dtype))
        assert x.version == 1


@pytest.mark.parametrize("name", ["add_", "sub_"])
@pytest.mark.parametrize("data", [[1.0, 2.0], [1, 2]])
@pytest.mark.parametrize("other", [[3.0, 5.0], [3, 5], 2, 0.5])
@pytest.mark.parametrize("alpha", [2, -1, 0.5])
def test_alpha_is_a_factor_as_in_torch(name, data, other, alpha, torch):
    def result(lib):
        x, operand = lib.tensor(data), lib.tensor(other) if isinstance(other, list) else other
        try:
            return getattr(x, name)(operand, alpha=alpha).tolist()
        except RuntimeError:
            return x.tolist(), "refused"

    assert result(fad) == result(torch)


def test_alpha_is_differentiated():
    def f(x, y, alpha):
        z = x * 1.0
        z.add_(other=y, alpha=alpha)
        z.sub_(y, alpha=3.0)
        return (z * z).sum()

    assert_close(
        fad.grad(f, (0, 1, 2))(V, A, 2.0),
        fad.grad(lambda x, y, a: ((x + (a - 3) * y) ** 2).sum(), (0, 1, 2))(V, A, 2.0),
    )
