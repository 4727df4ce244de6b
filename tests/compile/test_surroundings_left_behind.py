"""What Python code of a compiled function leaves behind when it is traced."""

from __future__ import annotations

import collections
from typing import Any

import jax
import pytest
from helpers import is_idle

import fad
from fad.errors import GradientError, HostValueError, LevelError


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
            LevelError,
            match=rf"{place} is a (Tensor|value) of it.*test_surroundings_left_behind.py:\d+.*Return",
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


def test_arrays_and_texts_that_the_body_changes_are_warned_of():
    class Model:
        phase = "warm"

        def __init__(self):
            self.key = jax.random.key(0)

        def draws(self, x):
            self.key, key = jax.random.split(self.key)
            return x + fad.random.normal(key, x.shape)

        def begins(self, x):
            self.phase = "main"
            return x

    model = Model()
    with pytest.warns(UserWarning, match=r"self\.key from .* to another one.*fold_in"):
        fad.jit(model.draws)(fad.ones(2))
    with pytest.warns(UserWarning, match=r"self\.phase from 'warm' to 'main'"):
        fad.jit(model.begins)(fad.ones(2))


def test_attributes_of_tensors_defaults_deques_and_sets_are_looked_at():
    w, kept, found = fad.ones(2), collections.deque(), set()

    def attribute(x):
        w.moment = x * 2

    def default(x, history=[]):  # noqa: B006
        history.append(x * 2)

    def places(x):
        kept.append(x * 2)

    def in_a_set(x):
        found.add(x * 2)

    for f, place in (
        (attribute, r"w\.moment"),
        (default, "history"),
        (places, "kept"),
        (in_a_set, "found"),
    ):
        with pytest.raises(
            LevelError, match=rf"after the trace, {place}.* is a (Tensor|value) of it"
        ):
            fad.jit(f)(fad.tensor(1.0))


def test_tensors_that_change_places_do_so_at_each_call():
    def make(compile):
        u, v = fad.zeros(2), fad.ones(2)
        row = collections.deque([fad.tensor(float(k)) for k in range(3)], maxlen=3)

        def step(x):
            nonlocal u, v
            u.add_(x)
            u, v = v, u
            row.rotate(1)
            row[0].add_(1.0)
            return u + 2 * v + row[0] * 10 + row[1] * 100

        return compile(step), lambda: [*u.tolist(), *v.tolist(), *map(float, row)]

    (eager, expected), (compiled, state) = make(lambda f: f), make(fad.jit)
    for k in range(7):
        x = fad.tensor([float(k), 1.0])
        assert eager(x).tolist() == compiled(x).tolist() and expected() == state()


def test_a_list_that_gets_longer_or_shorter_is_an_error():
    rows = [fad.zeros(2), fad.ones(2)]

    def adds(x):
        rows.append(rows[0])

    def takes(x):
        rows.pop()

    with pytest.raises(LevelError, match=r"adds rows\[2\].*history\[0\]\.copy_"):
        fad.jit(adds)(fad.ones(2))
    assert len(rows) == 2
    with pytest.raises(LevelError, match=r"takes rows\[1\] away"):
        fad.jit(takes)(fad.ones(2))


def test_an_object_or_list_in_the_place_of_another_is_found():
    class Head:
        def __init__(self, w):
            self.w = fad.tensor(w)

    class Model:
        scale = fad.tensor(1.0)

        def __init__(self):
            self.head, self.rows = Head(1.0), [fad.tensor(1.0)]

    model = Model()
    f = fad.jit(lambda: model.head.w * model.rows[0] * model.scale)
    assert float(f()) == float(f()) == 1.0
    model.head = Head(2.0)
    assert float(f()) == float(f()) == 2.0
    model.rows = [fad.tensor(3.0)]
    assert float(f()) == float(f()) == 6.0
    Model.scale = fad.tensor(4.0)
    assert float(f()) == 24.0


class _Slots:
    __slots__ = ("late", "x")


class _Model:
    count = 0
    last: Any = None


_kept: Any = 7.0


def test_a_call_that_is_refused_leaves_python_state_as_it_was():
    model, slots = _Model(), _Slots()
    model.h, slots.x = 7.0, 7.0
    w, v = fad.tensor(1.0), fad.tensor(5.0)
    pair, log, seen, queue = [w, v], [], {1}, collections.deque([1, 2], 2)
    table = collections.OrderedDict(a=w, b=v)
    local: Any = 7.0

    def leaves(x):
        global _kept
        nonlocal local
        model.h = model.new = slots.x = slots.late = _kept = local = _Model.last = x * 2
        _Model.count += 1

    def appends(x):
        pair[0], pair[1] = pair[1], pair[0]
        log.append(pair[0])

    def requires(x):
        table["a"], table["b"] = table["b"], table["a"]
        table.move_to_end("a")
        w.requires_grad_()
        return w * 2

    def fails(x):
        del pair[0]
        seen.add(x * 1)
        queue.append(x * 1)
        raise ZeroDivisionError

    for f, error in (
        (leaves, LevelError),
        (appends, LevelError),
        (requires, GradientError),
        (fails, ZeroDivisionError),
    ):
        with pytest.raises(error):
            fad.jit(f)(fad.tensor(1.0))
        assert vars(model) == {"h": 7.0} and slots.x == 7.0 and not hasattr(slots, "late")
        assert (_kept, local, _Model.last, _Model.count) == (7.0, 7.0, None, 0)
        assert pair[0] is w and pair[1] is v and len(pair) == 2 and log == [] and seen == {1}
        assert list(queue) == [1, 2] and not w.requires_grad
        assert [(k, x is table[k]) for k, x in zip("ab", (w, v), strict=True)] == [
            ("a", True),
            ("b", True),
        ]
        assert list(table) == ["a", "b"]
    assert is_idle()


@pytest.mark.parametrize("alias", [lambda w: w[:2], lambda w: w.detach(), lambda w: w.T[0]])
def test_an_alias_left_behind_of_what_is_written_to_later_is_named(alias):
    class Model:
        w, v = fad.ones((2, 2)), None

    model = Model()

    def f():
        model.v = alias(model.w)
        model.w.add_(1.0)

    with pytest.raises(LevelError, match=r"model\.v is a Tensor of it.*left_behind.py:\d+.*Return"):
        fad.jit(f)()
    assert model.v is None and model.w.tolist() == [[1.0, 1.0], [1.0, 1.0]]


class Observer(fad.Function):
    seen = fad.zeros(1)

    @staticmethod
    def forward(ctx, x):
        Observer.seen.copy_(x.detach())
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g


def checkpointed(x):
    Observer.seen.copy_(x.detach())
    return x * 1.0


@pytest.mark.parametrize("f", [Observer.apply, fad.checkpoint(checkpointed)])
def test_what_may_run_again_in_the_body_does_not_write_outside(f):
    with pytest.raises(LevelError, match="checkpoint.*return the new value"):
        fad.jit(f)(fad.ones(1))
    assert Observer.seen.tolist() == [0.0]


def test_how_one_number_of_a_tensor_from_outside_is_read():
    counts, x = fad.tensor([3.0, 4.0]), fad.ones(2)
    for read in (lambda: counts[0].item(), lambda: float(counts[0])):
        with pytest.raises(HostValueError, match=r"w\.tolist\(\)\[0\] for w\[0\]\.item\(\)"):
            fad.jit(lambda read=read: x * read())()
    assert fad.jit(lambda: x * counts.tolist()[0])().tolist() == [3.0, 3.0]
