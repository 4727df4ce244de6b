"""``to``: between devices and shardings and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from shards import BY_ROWS, lies_by_rows

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError

VALUES = jnp.linspace(-1.0, 1.0, 16).reshape(8, 2)


def test_to_moves_between_devices_and_shardings_and_back():
    x = fad.tensor(VALUES, requires_grad=True)
    y = x.to(BY_ROWS)
    assert lies_by_rows(y) and not lies_by_rows(x)
    z = (y * y).to(jax.devices()[3])
    assert z.devices() == {jax.devices()[3]}
    z.sum().backward()
    assert_close(x.grad, 2 * VALUES)
    assert x.grad.devices() == x.devices()
    assert lies_by_rows(fad.jit(lambda x: x * 2)(y))


def test_astype_with_a_device_moves_too() -> None:
    x, device = fad.tensor(VALUES), jax.devices()[2]
    y = x.astype("float16", device=device)
    assert (y.dtype, y.device) == (fad.float16, device) and x.device != device
    assert x.astype(x.dtype, copy=False, device=x.device) is x


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: lambda x: f(fad.asarray(x)),
        fad.jit,
        lambda f: jax.jit(fad.to_jax(f)),
        lambda f: lambda x: fad.jvp(f, (x,), (x,))[1],
        lambda f: fad.jit(lambda x: fad.linearize(f, x)[1](x)),
        lambda f: fad.jit(fad.grad(lambda x: (f(x) ** 2).sum())),
        lambda f: jax.jit(jax.grad(fad.to_jax(lambda x: (f(x) ** 2).sum()))),
    ],
)
def test_to_a_sharding_in_compiled_code_and_under_transforms(transform):
    out = transform(lambda x: x.to(BY_ROWS))(VALUES)
    expected = transform(lambda x: x.to("float32"))(VALUES)
    assert lies_by_rows(out), out.sharding
    assert_close(out, expected)


def like(x):
    return fnp.zeros_like(x, device=x.device) + fnp.ones(x.shape, device=x.device) + x


@pytest.mark.parametrize(
    "transform",
    [
        fad.vmap,
        fad.jit,
        lambda f: fad.vmap(fad.vmap(f)),
        lambda f: fad.vmap(fad.jit(f)),
        lambda f: fad.jit(fad.vmap(f)),
        lambda f: lambda x: fad.jvp(f, (x,), (x,))[0],
        lambda f: jax.jit(fad.to_jax(f)),
    ],
)
def test_arrays_are_made_where_another_one_is(transform):
    assert_close(transform(like)(VALUES), VALUES + 1)


def test_the_device_inside_of_transforms(torch):
    seen = []

    def f(x):
        seen.append(x.device)
        assert x.to(x.device) is not None
        return x

    x = fad.tensor(VALUES)
    fad.vmap(f)(x)
    fad.grad(lambda x: f(x).sum())(x)
    fad.jit(f)(x)
    assert seen == [x.device, x.device, None]
    fad.vmap(f)(x.to(BY_ROWS))  # of one lane there is no sharding
    assert seen[-1] is None

    t = torch.ones(3, 2)
    devices = []
    torch.func.vmap(lambda x: devices.append(x.device) or torch.zeros_like(x, device=x.device))(t)
    assert devices == [t.device]


@pytest.mark.parametrize(
    "target",
    [
        jax.random.key(0),
        fad.random.key(0),
        fad.tensor(jax.random.key(0)),
        jax.random.PRNGKey(0),
        jnp.ones(2),
        np.ones(2),
        3,
        [1, 2],
        object(),
    ],
)
def test_what_is_neither_a_device_nor_a_dtype(target):
    x = fad.tensor(VALUES)
    for call in (x.to, lambda t: x.to(device=t), lambda t: x.to(dtype=t)):
        with pytest.raises(
            ArgumentError, match=r"expected, got .*x.to\(y.dtype\).*random.normal\(key"
        ):
            call(target)
    with pytest.raises(ArgumentError, match="expected, got"):
        fad.vmap(lambda v: v.to(target))(x)
