"""A base made anew from a changed view of it: every kind of step, alone and in chains, against NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

from fad.core.primitive import Primitive
from fad.views.chains import Step, Write, chain_put, overlaps, put, view_op

BASE = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)


def op_of(f: Callable[..., Any], write: Write) -> Any:
    return view_op(Primitive(getattr(f, "__name__", "view"), f), write)


# Each makes a view in NumPy, and is applied to a base of JAX.
OPS = {
    "reshape": op_of(lambda x: x.reshape(-1), Write.RESHAPE),
    "reshape to three": op_of(lambda x: x.reshape(4, 3, 2), Write.RESHAPE),
    "column major": op_of(lambda x: x.reshape(-1, order="F"), Write.RESHAPE),
    "transpose": op_of(lambda x: x.transpose(range(x.ndim)[::-1]), Write.PERMUTE),
    "rotate": op_of(lambda x: x.transpose(*range(1, x.ndim), 0), Write.PERMUTE),
    "slice": op_of(lambda x: x[1:], Write.INDICES),
    "backwards": op_of(lambda x: x[::-1], Write.INDICES),
    "diagonal": op_of(lambda x: x.diagonal(), Write.SELECTION),
}


def in_numpy(names: tuple[str, ...], base: np.ndarray) -> np.ndarray:
    """The numbers of the elements that the view shows."""
    for name in names:
        base = OPS[name].primitive.fn(base)
    return base


@pytest.mark.parametrize(
    "names",
    [
        *[(n,) for n in OPS],
        ("slice", "transpose"),
        ("transpose", "slice", "reshape"),
        ("rotate", "column major", "slice"),
        ("backwards", "diagonal", "reshape", "slice"),
        (),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("traced", [False, True])
def test_what_the_view_shows_is_replaced_and_nothing_else(
    names: tuple[str, ...], traced: bool
) -> None:
    places = in_numpy(names, np.arange(BASE.size).reshape(BASE.shape))
    view = -1.0 - np.arange(places.size, dtype=np.float32).reshape(places.shape)
    expected = BASE.copy().reshape(-1)
    expected[places.reshape(-1)] = view.reshape(-1)
    run = lambda x, v: chain_put([OPS[n] for n in names], x, v, [()] * len(names))
    got = (jax.jit(run) if traced else run)(jnp.asarray(BASE), jnp.asarray(view))
    assert_close(got, expected.reshape(BASE.shape))


def test_a_permutation_of_equal_lengths_is_read_off_shapes() -> None:
    x = np.arange(27.0, dtype=np.float32).reshape(3, 3, 3)
    view = OPS["rotate"].primitive.fn(x) * 2
    assert_close(put(OPS["rotate"], jnp.asarray(x), jnp.asarray(view), ()), x * 2)


def test_a_reshape_that_keeps_the_order_is_one_reshape() -> None:
    def text(name: str) -> str:
        op = OPS[name]
        view = op.primitive.fn(BASE)
        return str(jax.make_jaxpr(lambda x, v: put(op, x, v, ()))(BASE, view))

    assert "scatter" not in text("reshape") and "scatter" in text("column major")


def test_the_put_of_a_step_is_used_with_its_numbers() -> None:
    scaled = dataclasses.replace(
        op_of(lambda x, k: x * k, Write.FUNCTION), put=lambda x, view, k: view / k
    )
    got = chain_put([scaled, OPS["slice"]], jnp.ones(3), jnp.full(2, 8.0), [(2.0,), ()])
    assert_close(got, np.float32([1, 4, 4]))


@pytest.mark.parametrize(
    "f, words",
    [
        (lambda x: 2 * x, "does not only select elements"),
        (lambda x: x * x, "does not only select elements"),
        (lambda x: jnp.concatenate([x, x]), "shows an element twice"),
    ],
)
def test_a_function_that_does_more_than_select_is_refused(f: Any, words: str) -> None:
    op = op_of(f, Write.SELECTION)
    with pytest.raises(ValueError, match=words):
        put(op, jnp.arange(3.0), f(jnp.arange(3.0)), ())


def test_a_broadcast_is_written_through_where_its_parts_are_whole() -> None:
    wide = op_of(lambda x: jnp.broadcast_to(x, (2, 3)), Write.BROADCAST)
    row = op_of(lambda x: x[0], Write.INDICES)
    assert overlaps([Step(wide)], jnp.ones(3)) and not overlaps([Step(row)], jnp.ones((2, 3)))
    assert not overlaps([Step(wide), Step(row)], jnp.ones(3))
    got = chain_put([wide, row], jnp.ones(3), jnp.arange(3.0), [(), ()])
    assert_close(got, np.arange(3, dtype=np.float32))
    part = dataclasses.replace(op_of(jnp.real, Write.FUNCTION), whole=False)
    with pytest.raises(ValueError, match="cannot write through .* of a broadcast view: clone"):
        chain_put([wide, part], jnp.ones(3), jnp.ones((2, 3)), [(), ()])
