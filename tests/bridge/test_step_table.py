"""The table of docs/functions-and-compiled-calls.md, row by row: what things mean in a body of `fad.jit`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, counted, is_idle

import fad
from fad.errors import GradientError, HostValueError, LevelError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


def descent(w: fad.Tensor) -> Callable[[Any], fad.Tensor]:
    def step(x):
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss.detach()

    return step


def test_what_is_returned_with_its_history_passes_gradients_on():
    w = leaf(1.0, 2.0)
    f = fad.jit(lambda x: (w * x).sum())
    for _ in range(2):
        w.grad = None
        loss = f(3.0)
        assert loss.requires_grad
        loss.backward()
        assert w.grad.tolist() == [3.0, 3.0]
    g = w * 2.0
    assert fad.autograd.grad(fad.jit(lambda x: (g * x).sum())(3.0), w)[0].tolist() == [6.0, 6.0]
    with pytest.raises(GradientError, match="whose history is outside"):
        fad.jit(lambda: (g * w).sum().backward())()
    assert w.grad.tolist() == [3.0, 3.0]


def test_a_result_whose_graph_the_body_has_freed_says_so():
    w = leaf(1.0)

    @fad.jit
    def step(x, keep):
        loss = (w * w * x).sum()
        loss.backward(retain_graph=keep)
        return loss

    step = fad.jit(step.__wrapped__, static_argnames="keep")
    for _ in range(2):
        loss = step(fad.tensor(2.0), keep=False)
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
    w.grad = None
    step(fad.tensor(2.0), keep=True).backward()
    assert w.grad.tolist() == [8.0]


def test_gradients_are_state_and_none_is_part_of_the_program():
    w = leaf(1.0)
    step, traces = counted(lambda x: (w * x).sum().backward())
    for k in range(4):
        step(2.0)
        assert w.grad.tolist() == [2.0 * (k + 1)]
    assert len(traces) == 2
    w.grad = None
    held = None
    for _ in range(2):
        step(3.0)
        held = held or w.grad
    assert w.grad is held and held.tolist() == [6.0] and len(traces) == 2

    @fad.jit
    def clear(x):
        had = w.grad is not None
        w.grad = x
        return had

    x = fad.tensor([5.0])
    clear.__wrapped__(x)
    assert w.grad is x


def test_grads_given_from_outside_and_inside():
    w, other = leaf(1.0), fad.tensor([7.0])

    @fad.jit
    def step(x):
        w.grad = other
        (w * x).sum().backward()
        return w.grad

    for k in range(3):
        out = step(fad.tensor(1.0))
        assert w.grad is other and out is other and other.tolist() == [8.0 + k]


def test_views_and_aliases_outside_see_what_is_written():
    base = fad.zeros(4)
    view, peer, held = base[1:3], base.detach(), base.array

    @fad.jit
    def step(x):
        view.add_(x)
        base[0] = view.sum()
        return peer * 1.0

    for k in (1.0, 2.0, 3.0):
        out = step(fad.tensor(1.0))
        assert base.tolist() == peer.tolist() == out.tolist() == [2 * k, k, k, 0.0]
        assert view.tolist() == [k, k] and base.version == view.version == 2 * k
    assert held.tolist() == [0.0] * 4
    y = (leaf(1.0, 1.0, 1.0, 1.0) * base).sum()
    step(fad.tensor(1.0))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        y.backward()


def test_what_is_changed_outside_between_calls_is_read():
    w = leaf(1.0, 2.0)
    step, traces = counted(descent(w))
    eager = leaf(1.0, 2.0)
    for k, change in enumerate(
        [
            lambda t: None,
            lambda t: fad.no_grad()(t.mul_)(2.0),
            lambda t: setattr(t, "data", fad.tensor([3.0, 4.0])),
            lambda t: fad.no_grad()(t.copy_)(fad.tensor([0.5, 0.25])),
            lambda t: None,
        ]
    ):
        change(w), change(eager)
        assert_close(step(1.0 + k), descent(eager)(1.0 + k))
        assert_close(w.detach(), eager.detach())
    w.requires_grad_(False)
    with pytest.raises(GradientError, match="does not require grad"):
        step(1.0)
    w.requires_grad_(True)
    step(1.0)
    assert len(traces) <= 7


def test_an_argument_that_is_written_to_is_that_of_the_caller():
    @fad.jit
    def step(p, x):
        ((p["w"] * x) ** 2).sum().backward()
        with fad.no_grad():
            p["w"] -= p["w"].grad
            p["w"].grad = None
        x *= 2.0
        return p["w"].sum()

    for _ in range(3):
        w, x = leaf(1.0, 2.0), fad.tensor(0.5)
        step({"w": w}, x)
        assert w.tolist() == [0.5, 1.0] and float(x) == 1.0 and w.grad is None and w.is_leaf
    array = jnp.array(0.5)
    step({"w": w}, array)
    assert array == 0.5


def test_one_tensor_as_an_argument_and_from_outside():
    w = fad.tensor([1.0, 2.0])
    step = fad.jit(lambda x: (w.mul_(2.0), x + w)[1])
    assert step(fad.tensor([1.0, 1.0])).tolist() == [3.0, 5.0]
    assert step(w).tolist() == [8.0, 16.0] and w.tolist() == [4.0, 8.0]
    assert step(fad.tensor([1.0, 1.0])).tolist() == [9.0, 17.0]
    for bad in (w[:], w.detach()):
        with pytest.raises(LevelError, match="shares its storage with leaf 0"):
            step(bad)
    assert w.tolist() == [8.0, 16.0]


def test_hooks_registered_in_the_body_and_outside():
    w = leaf(1.0)
    seen = []
    handle = w.register_hook(lambda g: (seen.append(1), g * 3)[1])

    @fad.jit
    def step(x):
        y = w * x
        y.register_hook(lambda g: g * 2)
        inner = w.register_hook(lambda g: g + 1)
        y.sum().backward()
        inner.remove()
        g = w.grad
        w.grad = None
        return g

    assert step(fad.tensor(2.0)).tolist() == step(fad.tensor(2.0)).tolist() == [13.0]
    assert len(seen) == 1
    handle.remove()
    assert step(fad.tensor(2.0)).tolist() == [5.0]
    with pytest.raises(HostValueError, match=r"fnp\.where.*hooks=True"):
        w.register_hook(lambda g: g if float(g.sum()) > 0 else -g)
        step(fad.tensor(2.0))


def test_a_value_of_the_trace_that_stays_outside_is_an_error():
    log: list[Any] = []
    state = {"last": None}

    class Model:
        seen: Any = None

    model = Model()

    def appends(x):
        log.append(x * 2)

    def sets(x):
        state["last"] = x * 2

    def attribute(x):
        model.seen = x * 2

    for f, place in ((appends, r"log\[0\]"), (sets, r"state\['last'\]"), (attribute, "model.seen")):
        with pytest.raises(
            LevelError, match=rf"{place} is a Tensor of it.*test_step_table.py:\d+.*Return"
        ):
            fad.jit(f)(fad.tensor(1.0))
    assert is_idle()


def test_a_number_outside_that_the_body_changes_is_warned_of():
    class Model:
        def __init__(self):
            self.t = 0

        def step(self, x):
            self.t += 1
            return x * self.t

    model, count = Model(), 0

    def counts(x):
        nonlocal count
        count += 1
        return x

    with pytest.warns(UserWarning, match=r"self.t from 0 to 1 .*self.t \+= 1.*Keep it as a Tensor"):
        fad.jit(model.step)(1.0)
    with pytest.warns(UserWarning, match=r"changes count from 0 to 1 .*count \+= 1"):
        fad.jit(counts)(1.0)


def test_a_failed_trace_or_call_writes_nothing():
    w = leaf(1.0, 2.0)
    buffer = fad.zeros(2)

    def fails(x, how):
        buffer.add_(1.0)
        (w * x).sum().backward()
        with fad.no_grad():
            w.mul_(2.0)
        if how:
            raise how
        return x

    def untouched():
        same = w.tolist() == [1.0, 2.0] and buffer.tolist() == [0.0, 0.0] and w.grad is None
        return same and w.version == buffer.version == 0 and is_idle() and w.level.kind == "eager"

    f = fad.jit(fails, static_argnums=1)
    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            f(fad.tensor(1.0), error)
        assert untouched()
    with pytest.raises(TypeError):
        f(fad.tensor([1.0, 2.0, 3.0]), None)
    assert untouched()
    f(fad.tensor(1.0), None)
    assert w.tolist() == [2.0, 4.0] and buffer.version == 1


def test_transforms_around_a_step():
    def eager_and_compiled(make):
        for compile in (lambda f: f, fad.jit):
            yield make(compile)

    def counting(compile):
        count = fad.tensor(0.0)

        def f(x):
            count.add_(1.0)
            return (x * count).sum()

        return compile(f), count

    for f, count in eager_and_compiled(counting):
        assert fad.grad(f)(jnp.ones(2)).tolist() == [1.0, 1.0] and float(count) == 1.0
        assert fad.jvp(f, (jnp.ones(2),), (jnp.ones(2),))[1] == 4.0 and float(count) == 2.0
        assert fad.vmap(f)(jnp.ones((2, 3))).tolist() == [9.0, 9.0] and float(count) == 3.0

    def writing(compile):
        kept = fad.zeros(2)
        return compile(lambda x: (kept.copy_(x), x.sum())[1]), kept

    for f, kept in eager_and_compiled(writing):
        assert fad.grad(f)(jnp.ones(2)).tolist() == [1.0, 1.0] and kept.tolist() == [1.0, 1.0]
        with pytest.raises(LevelError, match="captured from outside of the mapped function"):
            fad.vmap(f)(jnp.full((2, 2), 3.0))
        assert kept.tolist() == [1.0, 1.0]

    for compile in (lambda f: f, fad.jit):
        w = leaf(1.0, 2.0)
        with pytest.raises(GradientError, match="inside of a transform"):
            fad.grad(compile(descent(w)))(jnp.ones(2))
        assert w.tolist() == [1.0, 2.0] and w.grad is None


def test_jit_in_jit():
    w, count = leaf(1.0, 2.0), fad.tensor(0)
    inner = fad.jit(descent(w))

    @fad.jit
    def outer(x):
        total = 0.0
        for k in range(3):
            total = total + inner(x * (k + 1))
            count.add_(1)
        return total

    eager = leaf(1.0, 2.0)
    for k in (1.0, 0.5):
        x = fad.tensor([k, k])
        expected = sum([descent(eager)(x * (i + 1)) for i in range(3)])
        assert_close(outer(x), expected)
        assert_close(w.detach(), eager.detach())
    assert int(count) == 6 and w.version == eager.version and w.grad is None


@pytest.mark.parametrize("loop", ["scan", "cond", "while"])
def test_bodies_inside_that_write_to_what_is_outside_are_refused(loop):
    total = fad.tensor(0.0)

    def body(c):
        total.add_(c)
        return c + 1.0

    @fad.jit
    def step(x):
        total.add_(1.0)
        if loop == "scan":
            return fad.lax.scan(lambda c, _: (body(c), None), x, None, length=2)[0]
        if loop == "cond":
            return fad.lax.cond(x > 0, body, lambda c: c, x)
        return fad.lax.while_loop(lambda c: c < 3.0, body, x)

    with pytest.raises(LevelError, match="which runs more than once.*carry it"):
        step(fad.tensor(1.0))
    assert float(total) == 0.0


def test_a_loop_inside_reads_what_is_outside():
    w = leaf(2.0)

    @fad.jit
    def step(x):
        y = fad.lax.scan(lambda c, _: (c * w, None), x, None, length=3)[0]
        y.sum().backward()
        g, w.grad = w.grad, None
        return g

    for _ in range(2):
        assert step(fad.tensor([1.0])).tolist() == [12.0]


# Memory


def test_what_is_overwritten_is_donated():
    w, m = leaf(*range(64)), fad.zeros(64)

    @fad.jit
    def step(x):
        (w * x).sum().backward()
        with fad.no_grad():
            m.mul_(0.9).add_(w.grad)
            w.sub_(m)
        w.grad = None

    x = fad.tensor(1.0)
    step(x), step(x)
    places = {t._value.unsafe_buffer_pointer() for t in (w, m)}
    step(x)
    assert {t._value.unsafe_buffer_pointer() for t in (w, m)} == places


@pytest.mark.parametrize(
    "hold",
    {
        "array": lambda w: w.array,
        "data of a device": lambda w: w.array.addressable_data(0),
        "data of the Tensor": lambda w: w.addressable_data(0),
        "numpy": lambda w: np.asarray(w.array),
        "numpy of it": lambda w: w.detach().numpy(),
        "dlpack": lambda w: np.from_dlpack(w.array),
        "leaf of a tree": lambda w: jax.tree.leaves(w.detach())[0],
        "detached and stopped": lambda w: fad.stop_gradient(w),
        "saved": lambda w: (w * w).sum().grad_fn,
        "view": lambda w: w.array[:],
    }.items(),
    ids=lambda item: item[0],
)
def test_an_array_that_somebody_has_is_not_donated(hold):
    w = leaf(*range(64))

    @fad.jit
    def step(x):
        (w * x).sum().backward()
        with fad.no_grad():
            w.sub_(w.grad)
        w.grad = None

    x = fad.tensor(1.0)
    step(x), step(x), step(x)
    held = hold[1](w)
    expected = list(range(-3, 61))
    for _ in range(3):
        step(x)
        if hold[0] != "saved":
            assert np.asarray(held).tolist() == expected
    assert w.tolist() == list(range(-6, 58))


# Threads and interrupts


def test_threads_step_one_after_the_other_and_see_no_trace():
    w, count = fad.tensor(np.zeros(64)), fad.tensor(0.0)
    started, errors, seen = threading.Barrier(5), [], []

    @fad.jit
    def step(x):
        for _ in range(20):
            w.add_(x)
        count.add_(1.0)

    def work():
        try:
            started.wait()
            for _ in range(50):
                step(fad.tensor(1.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    started.wait()
    while any([t.is_alive() for t in threads]):
        values = set(w.numpy().tolist())
        seen.append(values)
        assert len(values) == 1 and values.pop() % 20 == 0
    for t in threads:
        t.join()
    assert errors == [] and float(count) == 200.0 and w.tolist() == [4000.0] * 64


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX alone")
def test_an_interrupt_leaves_all_or_nothing():
    tensors = [fad.zeros(8) for _ in range(20)]
    step = fad.jit(lambda: [t.add_(1.0) for t in tensors] and None)
    step(), step()

    class Interrupt(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    try:
        for k in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + 1e-6 * (k % 100))
                for _ in range(50):
                    step()
            except Interrupt:
                interrupts += 1
            finally:
                while True:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0.0)
                        break
                    except Interrupt:
                        interrupts += 1
            values = {float(t.array[0]) for t in tensors}
            assert len(values) == 1 and {t.version for t in tensors} == values
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100 and is_idle()
