"""Settled calls of functions with state: memory, threads, interrupts."""

from __future__ import annotations

import signal
import threading

import jax
import numpy as np
import pytest
from helpers import assert_close, is_idle

import fad
from fad.errors import LevelError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


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


def test_state_that_is_sharded_over_devices_is_donated_and_a_reference_kept():
    """The tests run with eight devices, see conftest."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    w = fad.tensor(np.ones((8, 2), np.float32)).to(rows).detach().requires_grad_()
    m, x = fad.zeros((8, 2)).to(rows), fad.tensor(np.ones((8, 2), np.float32)).to(rows)

    @fad.jit
    def step(x):
        (w * x).sum().backward()
        with fad.no_grad():
            m.mul_(0.5).add_(w.grad)
            w.sub_(m)
        w.grad = None

    def places() -> list[int]:
        arrays = [t._value.addressable_data(k) for t in (w, m) for k in range(4)]
        return [a.unsafe_buffer_pointer() for a in arrays]

    for _ in range(3):
        step(x)
    before = places()
    step(x)
    assert places() == before and len(step._quick) == 1
    assert w._value.sharding.is_equivalent_to(rows, 2)
    held = w.array
    parts = [s.data for s in m.array.addressable_shards]
    step(x)
    expected, speed, numbers = 1.0, 0.0, []
    for _ in range(5):
        speed = 0.5 * speed + 1.0
        expected -= speed
        numbers.append((expected, speed))
    assert not held.is_deleted() and not any([p.is_deleted() for p in parts])
    assert np.unique(held).tolist() == [numbers[3][0]]
    assert {float(v) for p in parts for v in np.ravel(p)} == {numbers[3][1]}
    assert np.unique(w.array).tolist() == [numbers[4][0]] and np.unique(m.array) == numbers[4][1]


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


def test_arguments_that_are_views_or_one_tensor_twice_take_the_fast_path(monkeypatch):
    w, data = leaf(1.0, 2.0), fad.tensor(np.arange(12.0).reshape(6, 2))

    @fad.jit
    def step(x, y):
        ((w * x - y) ** 2).sum().backward()
        with fad.no_grad():
            w.sub_(0.01 * w.grad)
        w.grad = None
        return x + y

    rows, peer = data[:2].clone(), data.detach()
    twice = [(rows, rows), (data[0], data[0]), (data[1], data[2]), (peer[0], data[1])]
    for x, y in twice:
        assert step(x, y).tolist() == (x + y).tolist()
    monkeypatch.setattr(step, "_run", None)  # any other way
    for x, y in [(rows, rows), (data[0], data[1]), (data[4], peer[5]), (data[2:4], rows)]:
        assert step(x, y).tolist() == (x + y).tolist()
    assert data.version == 0


def test_parameters_that_others_share_take_the_fast_path(monkeypatch):
    w = leaf(1.0, 2.0)

    @fad.jit
    def step(x):
        with fad.no_grad():
            w.sub_(x)

    x = fad.tensor(1.0)
    step(x), step(x)
    monkeypatch.setattr(step, "_run", None)  # any other way
    peer, view = w.detach(), w[1:]
    step(x), step(x)
    assert w.tolist() == peer.tolist() == [-3.0, -2.0] and view.tolist() == [-2.0]
    with fad.no_grad():
        peer.add_(10.0)
    step(x)
    assert w.tolist() == peer.tolist() == [6.0, 7.0] and view.tolist() == [7.0]
    del peer, view
    step(x)
    assert w.tolist() == [5.0, 6.0] and w.version == 7


@pytest.mark.parametrize(
    "alias",
    [lambda t: t.detach(), lambda t: t[:], lambda t: t.reshape(2)],
    ids=["detach", "[:]", "reshape"],
)
@pytest.mark.parametrize("written", ["outside", "momentum", "argument", "read grad"])
def test_a_settled_step_refuses_an_argument_that_shares_what_is_written_to(alias, written):
    """Each write to a ``.grad`` in place was once taken for a written argument."""
    w, p = fad.tensor([1.0, 2.0]), leaf(1.0, 1.0)
    p.grad = fad.zeros(2)

    def outside(v):
        w.add_(1.0)
        (p * v).sum().backward()
        return v * 1.0

    def momentum(v):
        (p * 2.0).sum().backward()
        w.mul_(0.9).add_(v)

    def argument(v):
        v.add_(1.0)
        return w * 1.0

    def read_grad(v):
        v.add_(1.0)
        return p.grad * 1.0

    step = fad.jit(
        {f.__name__: f for f in (outside, momentum, argument, read_grad)}[written.replace(" ", "_")]
    )
    for _ in range(3):
        step(fad.tensor([5.0, 5.0]))
    assert step._quick
    shared = p.grad if written == "read grad" else w
    before = w.tolist(), p.grad.tolist()
    for _ in range(2):
        with pytest.raises(LevelError, match="shares its storage with leaf 0 of the arguments"):
            step(alias(shared))
    assert (w.tolist(), p.grad.tolist()) == before
    step(fad.tensor([5.0, 5.0]))
    assert (w.tolist(), p.grad.tolist()) == before or written in ("outside", "momentum")


def test_a_settled_step_changes_the_bases_of_views_that_it_writes_to():
    @fad.jit
    def step(t):
        t.add_(1.0)

    step(fad.zeros(3)), step(fad.zeros(3))
    assert step._quick
    for view in (
        lambda t: t.reshape(3),
        lambda t: t[:],
        lambda t: t.detach(),
        lambda t: t.detach()[:],
        lambda t: t.reshape(3, 1).detach().reshape(3),
    ):
        base = fad.tensor([1.0, 2.0, 3.0])
        part = view(base)
        step(part), step(part), step(base)
        assert base.tolist() == part.tolist() == [4.0, 5.0, 6.0]
        assert base.version == part.version == 3
    whole = fad.zeros(6)
    step(whole[1:4]), step(whole.detach()[3:]), step(whole.reshape(2, 3)[1])
    assert whole.tolist() == [0.0, 1.0, 1.0, 3.0, 2.0, 2.0]


def test_a_step_first_called_with_a_transposed_argument():
    total = fad.zeros(())

    @fad.jit
    def step(x):
        x.reshape(-1).mul_(2.0)  # a view, unless strides cannot describe it
        total.add_(x.sum())

    step(fad.ones((2, 3)).T)
    for k in range(3):
        x = fad.ones((3, 2))
        step(x)
        assert x.tolist() == [[2.0, 2.0]] * 3 and float(total) == 6.0 + 12.0 * (k + 1)


def test_random_keys_as_arguments_take_the_fast_path(monkeypatch):
    total = fad.zeros(3)

    @fad.jit
    def step(key):
        total.add_(fad.random.normal(key, (3,)))

    keys = [jax.random.key(k, impl=impl) for k in range(3) for impl in ("rbg", "unsafe_rbg", None)]
    for key in keys[:3]:
        step(key)
    monkeypatch.setattr(step, "_run", None)  # any other way
    for key in keys[3:]:
        step(key)
    expected = sum([jax.random.normal(key, (3,)) for key in keys])
    assert_close(total, expected, rtol=1e-5)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_that_a_tensor_holds_take_the_fast_path(impl, monkeypatch):
    def make(compile):
        key, total = fad.tensor(fad.random.key(0, impl=impl)), fad.zeros(3)

        @compile
        def step(scale):
            following, used = fad.random.split(key)
            key.copy_(following)
            total.add_(scale * fad.random.normal(used, (3,)))
            return used

        return step, key, total

    def data(key):
        return fad.random.key_data(key).tolist()

    (eager, *expected), (step, key, total) = make(lambda f: f), make(fad.jit)
    for call in range(8):
        if call == 3:
            monkeypatch.setattr(step, "_run", None)  # any other way
        held, before = key.array, data(key)
        assert data(step(fad.tensor(2.0))) == data(eager(fad.tensor(2.0)))
        assert data(held) == before and data(key) == data(expected[0])
        assert_close(total, expected[1])
    assert key.version == 8
    monkeypatch.undo()
    key.copy_(fad.random.key(1, impl=impl))
    expected[0].copy_(fad.random.key(1, impl=impl))
    assert data(step(fad.tensor(2.0))) == data(eager(fad.tensor(2.0)))


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
            except BaseException as error:  # C++ code of JAX makes other errors of it
                assert "Interrupt" in f"{type(error)} {error}"
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
