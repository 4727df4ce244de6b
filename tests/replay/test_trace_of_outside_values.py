"""Operations of a transform on values that it does not track: they run at once, and its trace goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from functions import Product
from replays import (
    TRANSFORMS,
    Outside,
    assert_interrupts,
    in_thread,
    info,
    law,
    modes_of,
    one_mode,
    outcome,
    replay,
)

import fad
import fad.numpy as fnp

X = np.linspace(-1.0, 1.0, 4).astype(np.float32)
pytestmark = pytest.mark.usefixtures("cleared_caches")


Body = Callable[[Outside, Any], Any]


def of_rows(o: Outside, x: Any) -> Any:
    for i in range(3):
        x = fnp.tanh(x + o.rows[i] * 0.5)
    return fnp.sum(x)


def kept_outside(o: Outside, x: Any) -> Any:
    y = o.rows[1] * 2.0
    o.kept += [y, fnp.sin(y), y[1:]]
    return fnp.sum(x * y)


def read(o: Outside, x: Any) -> Any:
    y = fnp.cos(o.rows)
    for k in range(3):
        if float(y[k, 1]) > 0.5:
            x = x * y[k]
        o.kept.append(y[k].tolist())
    return fnp.sum(x)


def read_by_numpy(o: Outside, x: Any) -> Any:
    y = o.rows[0] + 1.0
    o.kept += [np.asarray(y), y.array, str(y), y.shape, y.requires_grad, y.is_leaf, y.grad_fn]
    return fnp.sum(x * y + np.asarray(y * 2.0))


def filled(o: Outside, x: Any) -> Any:
    y = fnp.zeros_like(o.rows)
    for k in range(3):
        y[k] = x * (k + 1.0)
    return fnp.sum(y * y)


def filled_with_untracked(o: Outside, x: Any) -> Any:
    y = o.rows * 3.0
    y[0] = o.rows[1] * 2.0
    y[1:, 2] += 1.0
    y.mul_(0.5)
    z = y[2] + 1.0
    y[2] = x * z
    return fnp.sum(y * fnp.sin(y))


def stale_views(o: Outside, x: Any) -> Any:
    y = o.rows * 3.0
    first, last = y[0], y[2]
    before = first * 1.0
    y[0, 1] = 5.0
    last[3] = first[1] * x[0]
    return fnp.sum(x * first + before + last)


def written_outside(o: Outside, x: Any) -> Any:
    row = o.rows[1]
    y = row * 2.0
    o.buffer.copy_(y)
    o.buffer[1:] += row[:-1]
    o.rows[1] = y + 1.0
    return fnp.sum(x * y + o.buffer * row)


def written_after_it_was_saved(o: Outside, x: Any) -> Any:
    row = o.rows[1]
    y = x * row
    o.rows[1, 2] = 0.0
    return fnp.sum(y)


def written_where_only_values_are_needed(o: Outside, x: Any) -> Any:
    row = o.rows[1]
    y = row * 2.0 + row[0]
    row.mul_(0.5)
    o.kept += [y, o.rows[1] * 2.0]
    return fnp.sum(x * row * y)


def written_by_an_inner_transform(o: Outside, x: Any) -> Any:
    def inner(y: Any) -> Any:
        o.rows[0] = c * 2.0
        return fnp.sum(y * y * o.rows[0])

    c = o.rows[0] + 1.0
    return fnp.sum(x * c) + fnp.sum(fad.grad(inner)(c))


def written_after_an_inner_transform(o: Outside, x: Any) -> Any:
    """What the inner transform is given, and what it closes over, is saved by the outer one."""
    y = fad.vmap(lambda r: fnp.sum(o.rows[1] * x * r))(o.rows)
    z = fad.jvp(lambda x: fnp.sum(o.buffer * x * o.rows[1]), (x,), (x * 2.0,))[1]
    o.buffer.add_(1.0)
    o.rows[1, 3] = 3.0
    return fnp.sum(y) + z


def written_after_it_was_mapped(o: Outside, x: Any) -> Any:
    row = o.rows[1]
    y = fad.vmap(lambda r: fnp.sum(o.buffer + x) * r)(o.rows)
    with fad.no_grad():
        o.rows[2] = row * 0.5
    return fnp.sum(y)


def in_modes(o: Outside, x: Any) -> Any:
    y = o.rows[0] * 2.0
    with fad.no_grad():
        y = y + 1.0
        o.kept.append(y)
    with fad.inference_mode():
        z = fnp.sin(o.rows[2])
        o.kept.append(z.is_inference())
    return fnp.sum(x * y * (o.rows[1] - 1.0))


def on_the_tape(o: Outside, x: Any) -> Any:
    c = o.rows[0] * 2.0
    loss = fnp.sum((o.leaf * c + fnp.cos(c)) ** 2)
    loss.backward()
    d = (c * 3.0).requires_grad_()
    fnp.sum(d * d + c).backward()
    o.kept.append(d.grad)
    return fnp.sum(x * c * d.detach())


def nested(o: Outside, x: Any) -> Any:
    c = fnp.exp(o.rows[0])

    def inner(y: Any) -> Any:
        d = c * o.rows[1] + 1.0
        o.kept.append(d)
        return fnp.sum(fnp.sin(y * d) * c)

    return fnp.sum(fad.grad(inner)(x) * x) + fnp.sum(fad.grad(inner)(c))


def mapped_inside(o: Outside, x: Any) -> Any:
    c = o.rows * 2.0
    return fnp.sum(fad.vmap(lambda r: r * x * x * c[0] + fnp.cos(o.rows[1]))(c))


def of_functions(o: Outside, x: Any) -> Any:
    return fnp.sum(Product.apply(x, Product.apply(o.rows[0] + 1.0, o.rows[1])))


def compiled_inside(o: Outside, x: Any) -> Any:
    c = o.rows[0] * 2.0
    return fnp.sum(fad.jit(lambda a, b: a * b + c)(x, c + 1.0))


def of_one_value(o: Outside, x: Any) -> Any:
    return o.rows[0, 1] * 2.0 + x[0] * 0.0


def several_outputs(o: Outside, x: Any) -> Any:
    low, high = fnp.split(o.rows[0] * 2.0, 2)
    q, r = fnp.linalg.qr(o.rows[:2, :2] + fnp.eye(2))
    o.kept += [low, q]
    return fnp.sum(x[:2] * low + x[2:] * high @ r)


def iterated(o: Outside, x: Any) -> Any:
    for row in o.rows * 2.0:
        x = x * row + 1.0
    return fnp.sum(x)


def of_large(o: Outside, x: Any) -> Any:
    big = fnp.ones((300, 300)) * o.rows[0, 1]
    return fnp.sum(x * fnp.sum(big @ big, axis=0)[:4] * o.rows[1])


def a_long_chain(o: Outside, x: Any) -> Any:
    y = o.rows[0]
    for _ in range(100):
        y = y * 0.99
    return fnp.sum(x * float(y[1]) * y)


def read_by_another_thread(o: Outside, x: Any) -> Any:
    y = o.rows[1] * 2.0
    o.kept.append(in_thread(lambda: (y + 1.0).tolist()))
    return fnp.sum(x * y)


def under_settings(o: Outside, x: Any) -> Any:
    y = o.rows[1] * 2.0
    with jax.enable_x64(True), jax.default_matmul_precision("float32"):
        assert y.numpy().dtype == np.float32
        z = y / 3.0
    return fnp.sum(x * z * y)


def with_an_error(o: Outside, x: Any) -> Any:
    y = o.rows[1] * 2.0
    o.kept.append(outcome(lambda: y + fnp.ones(3)))
    return fnp.sum(x * y)


BODIES: list[Body] = [
    *[of_rows, kept_outside, read, read_by_numpy, filled, filled_with_untracked, stale_views],
    *[written_outside, written_after_it_was_saved, written_where_only_values_are_needed],
    *[written_by_an_inner_transform, written_after_an_inner_transform],
    *[written_after_it_was_mapped, in_modes, on_the_tape, nested, mapped_inside, of_functions],
    *[compiled_inside, of_one_value, several_outputs, iterated, of_large, a_long_chain],
    *[read_by_another_thread, under_settings, with_an_error],
]


def of_body(body: Body, transform: str) -> Callable[[], Any]:
    """What a call gives and leaves behind."""

    def call() -> Any:
        o = Outside()
        return o.after(lambda: TRANSFORMS[transform](lambda x: body(o, x))(fad.tensor(X)))

    return call


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_gradients_are_as_without_replay(body):
    law(of_body(body, "grad"), calls=4, modes=modes_of(body.__name__))


CASES = [*itertools.product(BODIES, [t for t in TRANSFORMS if t != "grad"])]


@pytest.mark.sweep("body, transform", CASES, sample=32)
def test_transforms_are_as_without_replay(body, transform):
    law(of_body(body, transform), calls=4, modes=one_mode(body.__name__, transform))


def test_a_program_of_which_an_outer_level_tracks_the_last_outputs():
    def second_tangent() -> Any:
        with fad.dual_level():
            r = fad.make_dual(fad.tensor(np.float32(0.2)), fad.tensor(np.float32(1.0)))
            with fad.dual_level():
                u = fad.make_dual(fad.tensor(X), fad.tensor(X)) * 1.0
                u[1] = u[2] * r
                inner = fad.unpack_dual(fnp.sum(u**3))
            return list(fad.unpack_dual(inner.tangent))

    law(second_tangent)


# What is run


def differentiated_inside(o: Outside, x: Any) -> Any:
    c = fnp.exp(o.rows[0])
    return fnp.sum(fad.grad(lambda y: fnp.sum(fnp.sin(y * c * o.rows[1])))(x) * c)


REPLAYED = [
    *[(of_rows, name) for name in ("grad", "jvp", "vmap", "vmap of grad", "hessian", "jacrev")],
    *[(body, name) for body in (differentiated_inside, mapped_inside) for name in ("jvp", "vmap")],
]


@pytest.mark.parametrize("body, transform", REPLAYED)
def test_the_trace_goes_on(body, transform):
    outside = Outside()
    call = TRANSFORMS[transform](lambda x: body(outside, x))
    x = fad.tensor(X)
    with replay("at once"):
        for _ in range(3):
            call(x)
            outside.kept.clear()
        hits = info("hits")
        call(x)
        assert info("hits") > hits


# In the middle


def test_interrupts():
    left: list[Any] = []

    def run() -> Any:
        assert np.all([np.isfinite((y + 0.0).numpy()) for y in left])  # of an interrupted call
        left.clear()
        o = Outside()
        o.kept = left
        f = lambda x: of_rows(o, x) + filled_with_untracked(Outside(), x) + nested(o, x)
        return [fad.grad(f)(X), o.kept]

    assert_interrupts(run, 60)
