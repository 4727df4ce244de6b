"""Operations of a transform on values that it does not track: part of its trace, and otherwise as ever."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from lines import at_finalizers, at_interrupts, interrupt
from replays import NESTED_TRANSFORMS, assert_bits, assert_idle, in_thread, info, off, replay

import fad
import fad.numpy as fnp
from fad.core.primitive import Primitive

X = np.linspace(-1.0, 1.0, 4).astype(np.float32)
pytestmark = pytest.mark.usefixtures("cleared_caches")


class Outside:
    """What the functions find outside of themselves, and what they leave there."""

    def __init__(self) -> None:
        rows = np.arange(12, dtype=np.float32).reshape(3, 4) / 7.0
        self.rows = fad.tensor(rows)
        self.buffer = fad.tensor(np.zeros(4, np.float32))
        self.leaf = fad.tensor(np.full(4, 0.3, np.float32), requires_grad=True)
        self.kept: list[Any] = []

    def left(self) -> list[Any]:
        return [self.rows, self.buffer, self.leaf.grad, *self.kept]


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
    class Double(fad.Function):
        @staticmethod
        def forward(a):
            return a * 2.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vjp(ctx, g):
            return g * 2.0

        @staticmethod
        def jvp(ctx, t):
            return t * 2.0

        @staticmethod
        def vmap(info, in_dims, a):
            return Double.apply(a), in_dims[0]

    return fnp.sum(Double.apply(x * Double.apply(o.rows[0] + 1.0)))


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


BODIES: list[Body] = [
    of_rows,
    kept_outside,
    read,
    read_by_numpy,
    filled,
    filled_with_untracked,
    stale_views,
    written_outside,
    written_after_it_was_saved,
    written_where_only_values_are_needed,
    written_by_an_inner_transform,
    written_after_an_inner_transform,
    written_after_it_was_mapped,
    in_modes,
    on_the_tape,
    nested,
    mapped_inside,
    of_functions,
    compiled_inside,
    of_one_value,
    several_outputs,
    iterated,
    of_large,
]
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    **NESTED_TRANSFORMS,
    "hessian": fad.hessian,
    "jacrev": fad.jacrev,
    "value and grad": fad.value_and_grad,
}


def results(body: Body, transform: str) -> Any:
    """What a call gives and leaves behind, or its error."""
    outside = Outside()

    def f(x: Any) -> Any:
        return body(outside, x)

    try:
        found = TRANSFORMS[transform](f)(fad.tensor(X))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    assert_idle()
    gc.collect()
    outside.kept = [k for k in outside.kept if not isinstance(k, (str, bool, type(None)))]
    return [found, *[x for x in outside.left() if x is not None]]


@pytest.mark.parametrize("mode", ["background", "at once"])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.sweep("body", BODIES, sample=7, ids=lambda b: b.__name__)
def test_gives_the_bits_of_replay_off(body, transform, mode):
    with off():
        expected = results(body, transform)
    with replay(mode):
        for call in range(5):
            found = results(body, transform)
            if isinstance(expected, str):
                assert found == expected
            else:
                assert_bits(found, expected, f"{body.__name__}, {transform}, call {call}")


def test_a_program_of_which_an_outer_level_tracks_the_last_outputs():
    def second_tangent() -> Any:
        with fad.dual_level():
            r = fad.make_dual(fad.tensor(np.float32(0.2)), fad.tensor(np.float32(1.0)))
            with fad.dual_level():
                u = fad.make_dual(fad.tensor(X), fad.tensor(X)) * 1.0
                u[1] = u[2] * r
                inner = fad.unpack_dual(fnp.sum(u**3))
            return fad.unpack_dual(inner.tangent)

    with off():
        expected = second_tangent()
    with replay("at once"):
        for call in range(4):
            assert_bits(second_tangent(), expected, f"call {call}")


# What is run


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Primitives that are run by themselves on arrays."""
    names: list[str] = []
    execute = Primitive.execute

    def noted(self: Primitive, values: Any) -> Any:
        if all([not isinstance(v, jax.core.Tracer) for v in values]):
            names.append(self.name)
        return execute(self, values)

    monkeypatch.setattr(Primitive, "execute", noted)
    return names


def differentiated_inside(o: Outside, x: Any) -> Any:
    c = fnp.exp(o.rows[0])
    return fnp.sum(fad.grad(lambda y: fnp.sum(fnp.sin(y * c * o.rows[1])))(x) * c)


RECORDING = ["grad", "grad of grad", "value and grad", "jacrev"]
IN_ONE_PROGRAM = [
    *[(of_rows, name) for name in TRANSFORMS if name != "grad of grad"],
    *[(body, name) for body in (differentiated_inside, mapped_inside) for name in ("jvp", "vmap")],
    *[(filled, name) for name in RECORDING],  # the others do not defer writes
]


@pytest.mark.parametrize("body, transform", IN_ONE_PROGRAM)
def test_is_part_of_the_program(body, transform, runs):
    outside = Outside()
    call = TRANSFORMS[transform](lambda x: body(outside, x))
    x = fad.tensor(X)
    with replay("at once"):
        for _ in range(3):
            call(x)
            outside.kept.clear()
        hits = info("hits")
        runs.clear()
        call(x)
        assert info("hits") > hits
        assert not set(runs) & {"getitem", "sin", "cos", "tanh", "exp", "sum"}


def test_a_read_runs_only_what_it_depends_on(runs):
    def f(x: Any) -> Any:
        y = fnp.sin(x) * fnp.cos(rows[0])
        runs.clear()
        assert float(fnp.exp(rows[0, 0] * 2.0)) == 1.0
        assert sorted(runs) == ["exp", "getitem", "multiply"]
        runs.clear()
        assert rows[0].tolist() == rows.tolist()[0]
        return fnp.sum(y)

    rows = Outside().rows
    with replay("at once"):
        for _ in range(4):
            hits = info("hits")
            fad.grad(f)(fad.tensor(X))
        assert info("hits") > hits  # the trace was not ended by the reads


def test_a_long_chain_is_read():
    def f(x: Any) -> Any:
        y = rows[0]
        for _ in range(400):
            y = y * 0.99
        return fnp.sum(x * float(y[1]) * y)

    rows = Outside().rows
    with off():
        expected = fad.grad(f)(X)
    with replay("background"):
        for _ in range(4):
            assert_bits(fad.grad(f)(X), expected)


def test_another_thread_reads():
    def f(x: Any) -> Any:
        y = rows[1] * 2.0
        found.append(in_thread(lambda: (y + 1.0).tolist()))
        return fnp.sum(x * y)

    rows = Outside().rows
    with replay("at once"):
        for _ in range(4):
            found: list[Any] = []
            assert_bits(fad.grad(f)(X), fad.tensor(rows.numpy()[1] * 2.0))
            assert found == [(rows.numpy()[1] * 2.0 + 1.0).tolist()]


def test_settings_are_those_of_the_operation():
    def f(x: Any) -> Any:
        y = rows[1] * 2.0
        with jax.enable_x64(True), jax.default_matmul_precision("float32"):
            assert y.numpy().dtype == np.float32
            z = y / 3.0
        return fnp.sum(x * z * y)

    rows = Outside().rows
    with off():
        expected = fad.grad(f)(X)
    with replay("at once"):
        for _ in range(4):
            assert_bits(fad.grad(f)(X), expected)


def test_an_error_is_raised_where_it_is_made():
    def f(x: Any) -> Any:
        y = rows[1] * 2.0
        with pytest.raises((TypeError, ValueError), match="(4,)"):
            y + fnp.ones(3)
        return fnp.sum(x * y)

    rows = Outside().rows
    with replay("at once"):
        for _ in range(4):
            assert_bits(fad.grad(f)(X), fad.tensor(rows.numpy()[1] * 2.0))


def test_what_is_kept_frees_the_trace():
    def f(x: Any) -> Any:
        y = rows[1] * 2.0
        kept.append(y)
        return fnp.sum(fnp.sin(x) * y)

    rows, kept = Outside().rows, []
    with replay("at once"):
        for _ in range(4):
            fad.grad(f)(X)
    assert all([y._lazy is None for y in kept])
    assert_bits(kept, [fad.tensor(rows.numpy()[1] * 2.0)] * 4)


# In the middle


def test_interrupts():
    outside = Outside()

    def f(x: Any) -> Any:
        return of_rows(outside, x) + filled_with_untracked(Outside(), x) + nested(outside, x)

    with off():
        expected = fad.grad(f)(X)
    rng = random.Random(0)
    with replay("at once"):
        fad.grad(f)(X)
        for _ in range(60):
            outside.kept.clear()
            with at_interrupts(rng.randrange(1, 6000), interrupt) as moments:
                try:
                    assert_bits(fad.grad(f)(X), expected, str(moments.count))
                except KeyboardInterrupt:
                    pass
            assert_idle(str(moments.count))
            assert_bits(fad.grad(f)(X), expected, str(moments.count))
            values = [y + 0.0 for y in outside.kept]
            assert all([np.isfinite(y.numpy()).all() for y in values])


def test_finalizers_that_read(full):
    outside = Outside()

    def f(x: Any) -> Any:
        made = []
        y = outside.rows[1] * 2.0
        with at_finalizers(number, lambda: made.append([(y * 3.0).tolist(), (y * x).shape])):
            z = fnp.sin(outside.rows[0]) + y
            out = fnp.sum(x * z * y)
        return out

    number = 0
    with off():
        expected = fad.grad(f)(X)
    with replay("at once"):
        for number in range(1, 900, 1 if full else 23):
            assert_bits(fad.grad(f)(X), expected, str(number))
