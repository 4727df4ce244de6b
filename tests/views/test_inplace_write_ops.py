"""What writes cost: in-place updates in compiled code, as plain JAX has them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

SIZE = 4096


def optimized(f: Any, *args: Any, donate: tuple[int, ...] = ()) -> str:
    """The program that XLA makes of a fad function."""
    return jax.jit(fad.to_jax(f), donate_argnums=donate).lower(*args).compile().as_text()


def entry_and_bodies(hlo: str) -> str:
    """What runs as one instruction after another: the entry, and the bodies of loops."""
    bodies = set(re.findall(r"body=%([\w.\-]+)", hlo))
    found = []
    for part in hlo.split("\n\n"):
        name = re.match(r"\s*(ENTRY )?%([\w.\-]+)", part)
        if name and (name[1] or name[2] in bodies):
            found.append(part)
    return "\n\n".join(found)


def put_slices(x, value):
    """Slices of a Tensor set, added to and scaled, at places known when it is traced."""
    for k in range(0, 64, 8):
        x[k : k + 4] = value
        x[k + 2 : k + 6] += value
        x[k + 3] *= 2.0
    return x


def move_window(x, value):
    """A slice at a place that the loop counts."""

    def body(k, x):
        x[k] = value[0]
        x[k + 1] += value[1]
        return x

    return fad.lax.fori_loop(0, SIZE - 1, body, x)


def loop_over_slices(x, value):
    """The slices of a buffer that a loop carries."""

    def body(k, x):
        x[1:5] += value
        x[3:7] *= 0.5
        x[0] = x[1] + k
        return x

    return fad.lax.fori_loop(0, 100, body, x)


def blocks(x, value):
    """Rows, columns and a block of a matrix, boundaries included."""
    x[0] = value[0]
    x[-1] = value[1]
    x[:, 0] += value[2]
    x[1:-1, 1:-1] *= 0.5
    return x


def put_slices_plain(x, value):
    for k in range(0, 64, 8):
        x = x.at[k : k + 4].set(value)
        x = x.at[k + 2 : k + 6].add(value)
        x = x.at[k + 3].multiply(2.0)
    return x


def move_window_plain(x, value):
    def body(k, x):
        return x.at[k].set(value[0]).at[k + 1].add(value[1])

    return jax.lax.fori_loop(0, SIZE - 1, body, x)


def loop_over_slices_plain(x, value):
    def body(k, x):
        x = x.at[1:5].add(value).at[3:7].multiply(0.5)
        return x.at[0].set(x[1] + k)

    return jax.lax.fori_loop(0, 100, body, x)


def blocks_plain(x, value):
    x = x.at[0].set(value[0]).at[-1].set(value[1]).at[:, 0].add(value[2])
    return x.at[1:-1, 1:-1].multiply(0.5)


def made(hlo: str, shape: str) -> Counter[str]:
    """What a program makes buffers of this shape with, and how often: updates, copies, others."""
    found: Counter[str] = Counter()
    for name, op in re.findall(rf"%(\S+) = {re.escape(shape)}\S* (\S+?)\(", entry_and_bodies(hlo)):
        if op in ("parameter", "get-tuple-element", "bitcast"):
            continue
        update = "update" in name.replace("_", "-") or "scatter" in name
        found["update" if update and op != "copy" else op] += 1
    return found


def beyond(f: Any, plain: Any, *args: Any, donate: tuple[int, ...] = (0,)) -> Counter[str]:
    """What a fad function makes of the size of its result that ``plain``, written in JAX, does not."""
    x = args[0]
    shape = f"f32[{','.join(map(str, x.shape))}]"
    expected = jax.jit(plain, donate_argnums=0).lower(*args).compile()
    hlo = optimized(f, *args, donate=donate)
    found = made(hlo, shape) - made(expected.as_text(), shape)
    if donate and "input_output_alias" not in hlo:  # the donated buffer is not the result
        found["result"] += 1
    return found


@pytest.mark.parametrize(
    ("f", "plain"),
    [
        (put_slices, put_slices_plain),
        (loop_over_slices, loop_over_slices_plain),
        (move_window, move_window_plain),
        (blocks, blocks_plain),
    ],
)
def test_slice_updates_compile_to_the_in_place_updates_of_plain_jax(f: Any, plain: Any) -> None:
    x = jnp.zeros((64, 48)) if f is blocks else jnp.zeros(SIZE)
    assert not beyond(f, plain, x, jnp.arange(4.0))


@pytest.mark.parametrize("f", [loop_over_slices, move_window])
def test_slice_updates_in_loops_copy_nothing(f: Any) -> None:
    hlo = optimized(f, jnp.zeros(SIZE), jnp.arange(4.0), donate=(0,))
    assert set(made(hlo, f"f32[{SIZE}]")) == {"update"}


def test_cost_counts_the_slice_and_not_the_array() -> None:
    def flops(size: int) -> float:
        hlo = jax.jit(fad.to_jax(put_slices), donate_argnums=(0,)).lower(
            jax.ShapeDtypeStruct((size,), np.float32), jnp.arange(4.0)
        )
        return float(hlo.compile().cost_analysis()["flops"])  # type: ignore[index]

    assert flops(256) == flops(1 << 20) < 1000


def test_what_is_not_an_update_in_place_is_found() -> None:
    """The check of the check: programs that make one buffer too many, each in another way."""
    x, value = jnp.zeros(SIZE), jnp.arange(4.0)
    for f, plain in ((put_slices, put_slices_plain), (loop_over_slices, loop_over_slices_plain)):
        assert beyond(f, plain, x, value, donate=()) == {"copy": 1}  # the argument must be kept
        kept = lambda x, v, f=f: (x + 0.0, f(x, v))
        assert beyond(kept, plain, x, value) == {"copy": 1}
        read = lambda x, v, f=f: f(x, v) * fnp.arange(SIZE)
        assert beyond(read, plain, x, value)["fusion"] == 1
    masked = lambda x, v: fnp.where(fnp.arange(SIZE) < 4, v[0], x)
    assert beyond(masked, put_slices_plain, x, value)["fusion"] == 1
    assert beyond(lambda x, v: v * 2.0, put_slices_plain, x, value) == {"result": 1}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_adding_to_a_slice_is_differentiated_as_an_addition(sign: float) -> None:
    def f(x, v):
        x = x.clone()
        if sign > 0:
            x[1:-1] += v
            x[..., 2, None] += v[0]
        else:
            x[1:-1] -= v
            x[..., 2, None] -= v[0]
        return x

    def plain(x, v):
        return x.at[1:-1].add(sign * v).at[2].add(sign * v[0])

    x, v = jnp.arange(6.0), jnp.arange(1.0, 5.0)
    g = jnp.arange(1.0, 7.0)
    for of in (lambda f: f, jax.vmap):
        args = (x, v) if of is not jax.vmap else (jnp.stack([x, -x]), jnp.stack([v, 2 * v]))
        ours, pull = jax.vjp(of(jax.jit(fad.to_jax(f))), *args)
        theirs, pull_plain = jax.vjp(of(plain), *args)
        np.testing.assert_array_equal(ours, theirs)
        ct = jnp.broadcast_to(g, ours.shape)
        jax.tree.map(np.testing.assert_array_equal, pull(ct), pull_plain(ct))
    with pytest.raises(ValueError, match="add_"):
        jax.jit(fad.to_jax(lambda x: x[1:3].add_(jnp.ones((2, 2)))))(x)
