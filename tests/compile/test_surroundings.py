"""What surrounds a compiled function: what changes there between calls is seen, where it has to be."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import gc
import itertools
import operator
import pathlib
import re
import sys
import types
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, counted

import fad


class Holder:
    """An object of a user."""

    scale = None

    def __init__(self, **attributes):
        vars(self).update(attributes)


def objects(*items):
    array = np.empty(len(items), object)
    array[:] = items
    return array


def every(x):
    """All Tensors in containers and objects, in order."""
    if isinstance(x, fad.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    elif hasattr(x, "__dict__"):
        x = [*vars(x).values(), x.scale] if isinstance(x, Holder) else list(vars(x).values())
    return (
        [t for part in x for t in every(part)]
        if isinstance(x, (list, tuple, set, np.ndarray, collections.deque))
        else []
    )


def one():
    return fad.tensor([1.0, 2.0])


CHANGES = {
    "a list gets longer": (lambda: [one()], lambda x: x.append(one())),
    "a list in an object": (
        lambda: Holder(layers=[Holder(w=one())]),
        lambda x: x.layers.append(Holder(w=one())),
    ),
    "a list in a tuple": (lambda: ([], [one()]), lambda x: x[0].append(one())),
    "an empty list": (lambda: Holder(w=one(), more=[]), lambda x: x.more.append(one())),
    "an empty list for another": (
        lambda: Holder(w=one(), more=[]),
        lambda x: vars(x).update(more=[one()]),
    ),
    "a deque": (lambda: collections.deque([one()]), lambda x: x.append(one())),
    "a dict gets a key": (lambda: {"a": one()}, lambda x: x.update(b=one())),
    "a dict gets a key for another": (
        lambda: {"a": one(), "b": 1},
        lambda x: (x.pop("b"), x.update(c=one())),
    ),
    "a dict of another order": (
        lambda: {"a": one(), "b": one() * 2},
        lambda x: x.update(a=x.pop("a")),
    ),
    "an attribute that was None": (
        lambda: Holder(w=one(), bias=None),
        lambda x: setattr(x, "bias", one()),
    ),
    "one of the class": (lambda: Holder(w=one()), lambda x: setattr(x, "scale", one())),
    "an attribute that was a number": (
        lambda: Holder(w=one(), bias=0.0),
        lambda x: setattr(x, "bias", one()),
    ),
    "an attribute that was not there": (
        lambda: Holder(w=one()),
        lambda x: setattr(x, "bias", one()),
    ),
    "an item that was None": (lambda: [one(), None], lambda x: x.__setitem__(1, one())),
    "an object without Tensors": (lambda: [one(), Holder()], lambda x: x.__setitem__(1, one())),
    "None elsewhere": (lambda: [one(), [None]], lambda x: x[1].__setitem__(0, one())),
    "a set gets longer": (lambda: {one()}, lambda x: x.add(one())),
    "a set of another Tensor": (lambda: {one()}, lambda x: (x.clear(), x.add(one() * 2))),
    "an array of objects": (lambda: objects(one(), None), lambda x: x.__setitem__(1, one())),
    "another object in an array": (
        lambda: objects(one(), one()),
        lambda x: x.__setitem__(1, one() * 2),
    ),
    "a namespace": (lambda: types.SimpleNamespace(w=one()), lambda x: setattr(x, "w", one() * 2)),
}


def at_places(holder):
    return sum([(k + 1.0) * t.sum() for k, t in enumerate(every(holder))])


CASES = [(c, False) for c in CHANGES] + [(c, True) for c in list(CHANGES)[:4]]


@pytest.mark.parametrize(("change", "nested"), CASES)
def test_containers_that_change_between_calls_are_as_they_are_at_each(change, nested):
    make, act = CHANGES[change]
    for calls in (1, 3):
        holder = make()
        inner = fad.jit(functools.partial(at_places, holder))
        f = fad.jit(lambda: inner() * 1.0) if nested else inner
        for _ in range(calls):
            before = float(f())
        assert before == float(at_places(holder))
        act(holder)
        assert "traces anew, as what it uses outside has changed" in f.explain()
        assert float(f()) == float(f()) == float(at_places(holder)) != before
        assert "is compiled" in f.explain()


def test_a_container_that_is_as_before_has_its_program():
    parts, more = [one()], one()
    total, traces = counted(lambda: sum(x.sum() for x in parts))
    for _ in range(3):
        assert float(total()) == 3.0
        parts.append(more)
        assert float(total()) == 6.0
        del parts[1]
    assert len(traces) == 2
    parts += [more, more]
    assert total.explain().splitlines()[1].strip() == "parts has other parts now"


def test_a_variable_that_was_none_or_a_number():
    w, bias, scale = one(), None, 2.0
    f = fad.jit(lambda: (w * scale if bias is None else w * scale + bias).sum())
    assert float(f()) == 6.0
    bias = one()
    assert float(f()) == 9.0
    scale = one()
    assert float(f()) == 8.0


def test_what_is_kept_at_each_call_needs_no_trace():
    kept = Holder(w=one(), losses=[], last=None, numbers={}, n=0)
    step, traces = counted(lambda: (kept.w * 2.0).sum())
    for k in range(6):
        kept.last = step()
        kept.losses.append(kept.last)
        kept.numbers[k] = float(kept.last)
        kept.n += 1
    assert len(traces) == 2  # one more since three things are no longer None, or empty


def test_numbers_texts_arrays_and_equal_keys_need_no_trace():
    """Of what no code reads; see `test_what_the_code_reads_is_that_of_each_call`."""
    kept = Holder(w=one(), history=[], table={}, last=0.0)
    parameters = {"a": one(), (1, 2): one()}
    step, traces = counted(lambda: sum(x.sum() for x in parameters.values()) + kept.w.sum())
    for k, x in enumerate([1, 1.0, 1j, "1", b"1", np.float32(1), np.ones(1), jnp.ones(1), True]):
        assert float(step()) == 9.0
        kept.last = kept.table[k] = x
        setattr(kept, f"last{k}", x)
        kept.history.append(x)
        same = {"a": parameters["a"], tuple(range(1, 3)): parameters[1, 2]}
        parameters.clear()
        parameters.update(same)
    assert len(traces) == 1
    kept.history[5] = kept.last3 = one()
    changes = step.explain().splitlines()[1:]
    expected = ["kept has other parts now", "kept.history is no longer empty"]
    assert sorted(map(str.strip, changes)) == expected


class Mode(enum.Enum):
    HALF = 0.5
    WHOLE = 1.0


class Settings:
    scale = 1.0


# What code of a step reads outside, by what is there at the calls.
READ = {
    "a number": [0.1, 0.2, 0.2, 0.1, 0.3],
    "an integer": [1, 2, 2, 1, 3],
    "a zero": [0.0, -0.0, 0.0, -0.0, 0.0],
    "a flag": [True, False, False, True, False],
    "a text": ["half", "whole", "whole", "half", "half"],
    "an enum": [Mode.HALF, Mode.WHOLE, Mode.WHOLE, Mode.HALF, Mode.HALF],
    "an array": [jnp.ones(2), jnp.zeros(2), jnp.zeros(2), jnp.ones(2), jnp.ones(2)],
    "an array of numpy": [np.ones(2), np.zeros(2), np.zeros(2), np.ones(2), np.ones(2)],
    "a number of numpy": [np.float32(1.0), np.float32(2.0), np.float32(1.0)],
    "a key": [jax.random.key(k) for k in (0, 1, 1, 0, 2)],
    "a dtype": [np.dtype("int32"), np.dtype("float32"), np.dtype("float32"), np.dtype("int32")],
    "a slice": [slice(0, 1), slice(0, 2), slice(0, 2.0), slice(0, 1), slice(0, 1)],
    "a range": [range(1), range(3), range(3), range(1), range(2)],
    "bytes": [b"a", b"ab", b"ab", b"a", b""],
    "a frozenset": [frozenset(), frozenset("ab"), frozenset("ab"), frozenset(), frozenset("a")],
    "a fraction": [fractions.Fraction(1, k) for k in (1, 2, 2, 1, 4)],
    "a decimal": [decimal.Decimal(k) for k in (1, 2, 2, 1, 4)],
    "a time": [datetime.timedelta(seconds=k) for k in (1, 2, 2, 1, 4)],
    "a path": [pathlib.Path(k) for k in ("a", "ab", "ab", "a", "abc")],
    "a pattern": [re.compile(k) for k in ("a", "ab", "ab", "a", "abc")],
}
_scale: Any = None


def readers():
    """Places, by what puts something there and what reads it."""
    there, table, row, inner = Holder(), {}, [None], Holder(on=Holder())
    variable = None

    def put_variable(x):
        nonlocal variable
        variable = x

    return {
        "an attribute": (lambda x: setattr(there, "scale", x), lambda: there.scale),
        "an object of an object": (
            lambda x: setattr(inner.on, "scale", x),
            lambda: inner.on.scale,
        ),
        "another object": (lambda x: setattr(inner, "on", Holder(scale=x)), lambda: inner.on.scale),
        "an item": (lambda x: table.__setitem__("rate", x), lambda: table["rate"]),
        "an item of a list": (lambda x: row.__setitem__(0, x), lambda: row[0]),
        "an attribute of a class": (
            lambda x: setattr(Settings, "scale", x),
            lambda: Settings.scale,
        ),
        "a variable": (put_variable, lambda: variable),
        "a global variable": (lambda x: globals().__setitem__("_scale", x), lambda: _scale),
    }


def scaled(w, x):
    """What a step may do with it."""
    if isinstance(x, (str, enum.Enum)):
        return w * (0.5 if x in ("half", Mode.HALF) else 2.0)
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return w + fad.random.normal(x, (2,))
    if isinstance(x, (re.Pattern, datetime.timedelta)):
        return w * (len(x.pattern) if isinstance(x, re.Pattern) else x.seconds)
    if not isinstance(x, (np.ndarray, np.generic, jax.Array, float, int)):
        return w * float(len(str(x)) + sum(map(ord, str(x))))
    return w * x if x is not True else w + 1.0


@pytest.mark.sweep("case", list(itertools.product(READ, readers())), sample=16)
def test_what_the_code_reads_is_that_of_each_call(case):
    (kind, place), results = case, []
    for compile in (lambda f: f, fad.jit):
        w, (put, read) = fad.ones(2), readers()[place]
        step = compile(lambda w=w, read=read: w.copy_(scaled(w, read())).clone())
        for x in READ[kind]:
            put(x)
            results.append(step().tolist())
    half = len(results) // 2
    assert_close(np.array(results[half:]), np.array(results[:half]))
    assert np.array_equal(np.signbit(results[half:]), np.signbit(results[:half]))


def test_a_rate_that_changes_compiles_no_more_after_the_third():
    w, group, compiles = one(), {"lr": 0.5}, []  # each compiled once
    step, traces = counted(lambda: w.mul_(group["lr"]))
    for k in range(6):
        step()
        compiles.append(step._quick[0]._call)
        group["lr"] = 0.75 + k / 8
    assert len(traces) == 6 and len(set(map(id, compiles))) <= 3 and w.version == 6


def test_a_flag_that_the_trace_sets_says_that_a_call_was_the_first():
    w, state = one(), Holder(ready=False)

    def body():
        if not state.ready:
            state.ready = True
            w.add_(10.0)
        return w.mul_(2.0) + 0.0

    step = fad.jit(body)
    with pytest.warns(UserWarning, match="ready from False to True"):
        first = float(step().sum())
    assert [first, *[float(step().sum()) for _ in range(3)]] == [46.0, 92.0, 184.0, 368.0]


def test_a_number_that_the_body_changes_is_warned_of_and_traced_once():
    w, state = one(), Holder(t=0, step=0)

    def body():
        state.t += 1
        return w.add_(state.t)

    step, traces = counted(body)
    with pytest.warns(UserWarning, match=r"state.*t.* from 0 to 1"):
        step()
    for k in range(4):
        state.step = k  # of a name that code only calls, or does not name
        step()
    assert len(traces) == 1


def test_what_is_replaced_is_not_kept():
    class Batch(np.ndarray):
        pass

    w, batch, losses = one(), np.ones(2).view(Batch), []
    kept = Holder(w=w, losses=[])
    step = fad.jit(lambda: (w.mul_(len(batch) / 2) * kept.w).sum() + len(losses) * 0)
    losses.append(step())
    kept.losses.append(losses[0])
    old = [weakref.ref(batch), weakref.ref(losses[0])]
    for _ in range(4):
        step()
    batch, losses, kept.losses = np.ones(2).view(Batch), [], []
    step()
    gc.collect()
    assert [x() for x in old] == [None, None]


def steps(name):
    """A body, and what is done between two calls; each time with new things."""
    a, b = fad.tensor(1.0), fad.tensor(2.0)
    w = fad.tensor(10.0)
    x = Holder(p=[a, b], on=Holder(w=a), to=Holder(w=b), w=w, init=None)
    state = {}

    def rebuilt():
        x.p = x.p[::-1]
        return x.p[0] * 10 + x.p[1]

    def copied():
        x.p = list(x.p)
        return x.p[0] * 10 + x.p[1]

    def swapped_objects():
        x.on, x.to = x.to, x.on
        return x.on.w * 10 + x.to.w

    def first_time():
        if x.init is None:
            x.init = "done"
            w.mul_(10)
        return w * 1

    def new_attribute():
        if not hasattr(x, "cache"):
            x.cache = Holder()
            x.w.mul_(10)
        return x.w * 1

    def lazy_state():
        if "w" not in state:
            state["w"] = {"n": 0}
            w.mul_(10)
        return w * 1

    bodies = rebuilt, copied, swapped_objects, first_time, new_attribute, lazy_state
    return {f.__name__: f for f in bodies}[name]


CHANGED_BY_THE_BODY = "rebuilt copied swapped_objects first_time new_attribute lazy_state".split()


@pytest.mark.parametrize("name", CHANGED_BY_THE_BODY)
def test_what_a_body_changes_is_as_an_eager_call_has_left_it(name):
    eager, f = steps(name), fad.jit(steps(name))
    assert [float(f()) for _ in range(5)] == [float(eager()) for _ in range(5)]


def test_variables_of_one_name_are_several():
    """Each of two functions closes over a ``w``, and the body has them change places."""

    def make(value):
        w = fad.tensor(value)

        def get():
            return w

        def put(t):
            nonlocal w
            w = t

        return get, put

    def step():
        (first, put_first), (second, put_second) = make(1.0), make(2.0)

        def body():
            a, b = first(), second()
            put_first(b)
            put_second(a)
            return first() * 10 + second()

        return body

    eager, f = step(), fad.jit(step())
    assert [float(f()) for _ in range(5)] == [float(eager()) for _ in range(5)]


def test_numbers_do_not_hide_what_is_behind_them():
    x = Holder(words={str(k): k for k in range(5_000)}, layers=[{"w": one()}])
    f = fad.jit(lambda: x.layers[0]["w"] * x.words["2"])
    f()
    x.layers[0]["w"] = fad.tensor([5.0, 6.0])
    assert f().tolist() == [10.0, 12.0]


def test_what_wraps_a_function_has_attributes_of_its_own():
    class Scaled:
        def __init__(self, f):
            functools.update_wrapper(self, f)
            self.w = one()

        def __call__(self):
            return self.w * self.__wrapped__()

    scaled = Scaled(lambda: 3.0)
    f = fad.jit(lambda: scaled())
    f()
    scaled.w = fad.tensor([5.0, 6.0])
    assert f().tolist() == [15.0, 18.0]


class Unbound:
    """A proxy of what is not there."""

    @property
    def __class__(self):
        raise RuntimeError("no context")


class Odd(list):
    def __iter__(self):
        raise RuntimeError("no items")

    def __len__(self):
        raise RuntimeError("no length")


class Unnamed:
    def __repr__(self):
        raise RuntimeError("no name")


class Slots:
    __slots__ = ("z",)

    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize("make", [Unbound, lambda: Odd([1]), lambda: {Unnamed(): 1}, Slots])
def test_objects_that_raise_where_they_are_looked_at_do_not_matter(make):
    x, thing = Holder(w=one(), thing=make()), make()
    f = fad.jit(lambda: x.w * (2.0 if thing is not None else 1.0))
    for _ in range(3):
        assert f().tolist() == [2.0, 4.0]
    x.w = fad.tensor([5.0, 6.0])
    assert f().tolist() == [10.0, 12.0]


class OddTuple(tuple):
    def __iter__(self):
        raise RuntimeError("no items")


@pytest.mark.parametrize("kind", [Odd, OddTuple])
def test_the_items_of_odd_containers(kind):
    """They are found where they are, and not by code of the class."""
    x = kind([one(), 2.0])
    f = fad.jit(lambda: x[0] * x[1])
    assert [f().tolist() for _ in range(3)] == [[2.0, 4.0]] * 3


def test_what_many_ways_share_is_looked_at_once():
    """However many attributes are None: a call takes no Python call for each."""

    def tree(depth):
        parts = {"left": tree(depth - 1), "right": tree(depth - 1)} if depth else {}
        return Holder(none=None, empty=[], **parts)

    calls = []
    for x in Holder(w=one()), Holder(w=one(), config=tree(7)):
        f = fad.jit(lambda x=x: x.w * 2.0)
        f(), f(), f()
        seen = []
        sys.setprofile(lambda frame, event, _, seen=seen: seen.append(event == "call"))
        try:
            f()
        finally:
            sys.setprofile(None)
        calls.append(sum(seen))
    few, more = calls
    assert more < few + 60, calls
    x.config.left.right.none = one()
    assert f().tolist() == [2.0, 4.0]


class Squares:
    def __call__(self, x):
        return (x * x).sum()


class Absolute:
    def __call__(self, x):
        return abs(x).sum()


FUNCTIONS = {
    "an item": (lambda f: [f], lambda x, f: x.__setitem__(0, f), lambda x: x[0]),
    "an attribute": (lambda f: Holder(f=f), lambda x, f: setattr(x, "f", f), lambda x: x.f),
    "beside Tensors": (lambda f: [one(), f], lambda x, f: x.__setitem__(1, f), lambda x: x[1]),
    "one more": (lambda f: [f], lambda x, f: x.append(f), lambda x: x[-1]),
    "one more in a dict": (
        lambda f: Holder(table={"f": f}),
        lambda x, f: x.table.update(g=f),
        lambda x: list(x.table.values())[-1],
    ),
}
PAIRS = {
    "of the user": (lambda x: (x * x).sum(), lambda x: abs(x).sum()),
    "partial": (functools.partial(lambda x: (x * x).sum()), functools.partial(lambda x: x.max())),
    "of fad": (fad.numpy.sum, fad.numpy.max),
    "of objects": (Squares(), Absolute()),
    "methods": (Squares().__call__, Absolute().__call__),
}
TRANSFORMS = {
    "fad.grad": fad.grad,
    "fad.value_and_grad": fad.value_and_grad,
    "fad.vmap": lambda f: fad.vmap(f, in_dims=None, axis_size=1),
    "fad.jit": fad.jit,
    "fad.checkpoint": fad.checkpoint,
    "fad.jacrev": fad.jacrev,
    "fad.jacfwd": fad.jacfwd,
    "fad.hessian": fad.hessian,
    "twice": lambda f: fad.grad(fad.jit(f)),
    "no_grad": lambda f: fad.no_grad()(f),
    "wraps": lambda f: times(2.0)(f),
    "cache": functools.lru_cache,
    "partial": functools.partial,
    "object": lambda f: Holder(f=f).f,
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transformed_function_that_is_made_anew_with_equal_contents(transform):
    w, kept, mode = fad.tensor([2.0]), Holder(), "sum"
    step, traces = counted(lambda: jax.tree.leaves(kept.loss(w))[0] * 1.0)
    for _ in range(4):
        config, names, table = Holder(k=2.0), {"a", "b"}, {"lr": 1.0}

        def loss(p, config=config, names=names, table=table):
            return (p**config.k).sum() * len(names) * table["lr"] * len(mode)

        kept.loss = transform(loss)
        step()
    assert len(traces) == 1
    config.k = 3.0
    assert "traces anew" in step.explain()


CODE = [("an item", pair) for pair in PAIRS] + [(place, "of fad") for place in list(FUNCTIONS)[1:]]


@pytest.mark.parametrize(("place", "pair"), CODE)
def test_a_function_is_the_one_that_is_there_at_a_call(place, pair):
    (make, change, get), (f, g) = FUNCTIONS[place], PAIRS[pair]
    holder, w = make(f), one()
    step, traces = counted(lambda: get(holder)(w * 3.0).sum())
    for _ in range(2):
        assert float(step()) == float(f(w * 3.0))
    change(holder, g)
    assert "traces anew" in step.explain()
    for _ in range(2):
        assert float(step()) == float(g(w * 3.0))
    assert len(traces) == 2


def test_a_variable_that_is_another_function_or_class():
    w, f, kind = one(), lambda x: x.sum(), Squares
    step, traces = counted(lambda: f(w) + kind()(w))
    assert float(step()) == 3.0 + 5.0
    f = lambda x: x.max()
    assert step.explain().splitlines()[1].strip().startswith("f is ")
    assert float(step()) == 2.0 + 5.0
    kind = Absolute
    assert float(step()) == 2.0 + 3.0
    for _ in range(3):  # the same code, made anew
        f = functools.partial((lambda c: lambda x: x.min() + c)(0.0))
        assert float(step()) == 1.0 + 3.0
    assert len(traces) == 4


def focal(p, gamma, scale=1.0):
    return (p**gamma).sum() * scale


class Focal:
    def __init__(self, gamma):
        self.gamma = gamma

    def forward(self, p):
        return focal(p, self.gamma)

    def __call__(self, p):
        return self.forward(p)


class FlatFocal(Focal):
    def forward(self, p):
        return p.sum() * self.gamma


def powers(gamma):
    return lambda p: focal(p, gamma)


def times(k):
    def decorator(f):
        @functools.wraps(f)
        def call(p):
            return f(p) * k

        return call

    return decorator


def with_default(gamma):
    return lambda p, gamma=gamma: focal(p, gamma)


def with_keyword(gamma):
    return lambda p, *, gamma=gamma: focal(p, gamma)


MADE = {
    "a partial": lambda g: functools.partial(focal, gamma=g),
    "a partial of a position": lambda g: functools.partial(lambda g, p: focal(p, g), g),
    "a partial with more": lambda g: functools.partial(
        focal, gamma=g, **({"scale": 5.0} if g == 3.0 else {})
    ),
    "a closure": powers,
    "of a closure": lambda g: powers(powers(g)(fad.ones(1)).item() * g),
    "a function in a closure": lambda g: times(1.0)(powers(g)),
    "a bound method": lambda g: Focal(g).forward,
    "a method of another class": lambda g: (Focal if g == 1.0 else FlatFocal)(2.0).__call__,
    "a method of a function": lambda g: types.MethodType(lambda self, p: focal(p, self), g),
    "a decorator": lambda g: times(g)(focal_of_two),
    "a decorator twice": lambda g: times(2.0)(times(g)(focal_of_two)),
    "a default": with_default,
    "a keyword": with_keyword,
    "an array": lambda g: powers(jnp.asarray(g)),
    "an object": lambda g: (lambda x: lambda p: focal(p, x.gamma))(Focal(g)),
    "a list": lambda g: (lambda x: lambda p: focal(p, x[0]))([g]),
    "vmap": lambda g: fad.vmap(powers(g), in_dims=None, axis_size=1),
    "grad": lambda g: fad.grad(powers(g)),
    "jit": lambda g: fad.jit(powers(g)),
    "grad of jit": lambda g: fad.grad(fad.jit(powers(g))),
    "no_grad": lambda g: fad.no_grad()(powers(g)),
    "checkpoint": lambda g: fad.checkpoint(powers(g)),
    "another transform": lambda g: (fad.grad if g == 1.0 else fad.checkpoint)(powers(2.0)),
}


def focal_of_two(p):
    return focal(p, 2.0)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_function_of_the_same_code_that_is_made_anew(make):
    w, kept, loss = fad.tensor([2.0]), Holder(), make(1.0)
    kept.losses = [make(1.0)]
    held = Holder(w=w, loss=make(1.0))
    kept.loss = make(1.0)
    bodies = [
        lambda: kept.loss(w) * 1.0,
        lambda: loss(w) * 1.0,
        lambda: kept.losses[0](w) * 1.0,
        lambda: held.loss(held.w) * 1.0,
    ]
    steps, traces = zip(*map(counted, bodies), strict=True)
    for gamma in (1.0, 1.0, 1.0, 3.0, 3.0, 1.0):
        loss = kept.losses[0] = kept.loss = held.loss = make(gamma)
        for step in steps:
            assert_close(step(), loss(w) * 1.0)
    assert make is MADE["an array"] or [len(x) for x in traces] == [2] * 4


def test_a_second_way_to_the_same_tensors():
    w = [one()]
    optimizer = [functools.partial(lambda way, x: way[0] * x, w)]
    step = fad.jit(lambda: (w[0] + optimizer[0](1.0)).sum())
    assert float(step()) == 6.0
    optimizer[0] = functools.partial(lambda way, x: way[0] * x * 2.0, w)
    assert float(step()) == 9.0


def test_what_hooks_of_a_tensor_use():
    w, scale, norms = one().requires_grad_(), {"by": fad.tensor(2.0)}, []
    w.register_hook(lambda g: g * scale["by"])

    @fad.jit
    def step():
        w.grad = None
        w.sum().backward()

    step()
    assert w.grad.tolist() == [2.0, 2.0]
    scale["by"] = fad.tensor(7.0)
    step()
    assert w.grad.tolist() == [7.0, 7.0]
    w.register_hook(norms.append)
    with pytest.raises(fad.errors.LevelError, match=r"self\[0\] is a Tensor of it"):
        step()
    assert not norms


def test_an_object_whose_class_is_another_one():
    class Doubles(Holder):
        scale = 2.0

    holder = Holder(w=one())
    step = fad.jit(lambda: (holder.w * (holder.scale or 1.0)).sum())
    assert [float(step()), float(step())] == [3.0, 3.0]
    holder.__class__ = Doubles
    assert [float(step()), float(step())] == [6.0, 6.0]


def test_an_array_of_numpy_that_the_body_writes_to_is_warned_of():
    w, mask = one(), np.ones(2, np.float32)

    def body():
        mask[0] += 1
        return w.mul_(mask)

    with pytest.warns(UserWarning, match="changes mask from an array to one with other numbers"):
        fad.jit(body)()


class _Loud(float):
    def __repr__(self):
        raise ValueError("no text")


def test_numbers_are_compared_without_their_text():
    """An int of 5,000 digits has none, and `repr` of a class is code of the user."""
    w, counts, rates = fad.ones(2), {"n": 10**5000}, {"lr": _Loud(1.0)}
    scaled = fad.jit(lambda: w * (1.0 if counts["n"] > 5 else 2.0))
    times_rate = fad.jit(lambda: w * float(rates["lr"]))
    scaled(), times_rate()
    counts["n"], rates["lr"] = 3, _Loud(2.0)
    assert scaled().tolist() == times_rate().tolist() == [2.0, 2.0]


def test_an_equal_number_that_is_another_object_is_the_same():
    traces = []
    w, group = fad.ones(2), {"lr": 0.5, "name": "a b"}

    @fad.jit
    def shrink():
        traces.append(group["name"])
        return w * group["lr"]

    for _ in range(4):
        group["lr"], group["name"] = float("0.5"), " ".join(["a", "b"])
        assert shrink().tolist() == [0.5, 0.5]
    assert len(traces) == 1
    group["lr"] = -0.0
    shrink()
    group["lr"] = 0.0
    assert not np.signbit(shrink().numpy()).any()


class _Base:
    lr = 1.0


class _Step(_Base):
    def __init__(self):
        self.w = fad.ones(1)

    def step(self):
        return self.w * super().lr


def test_an_attribute_of_a_base_is_read_by_super(monkeypatch):
    step = fad.jit(_Step().step)
    for rate in (1.0, 2.0, 3.0):
        monkeypatch.setattr(_Base, "lr", rate)
        assert step().tolist() == [rate]


def test_a_variable_of_a_module_alone_leads_to_the_tensors():
    code = """
w = fad.tensor(1.0, requires_grad=True)

@fad.jit
def step(x):
    ((w * x - 1.0) ** 2).backward()
    with fad.no_grad():
        w.sub_(0.1 * w.grad)
    w.grad = None
"""
    module: dict[str, Any] = {"fad": fad, "__name__": "a_module"}
    exec(code, module)
    module["step"](fad.tensor(3.0))
    assert round(float(module["w"]), 4) == -0.2
    module["w"] = fad.tensor(1.0, requires_grad=True)
    module["step"](fad.tensor(3.0))
    assert round(float(module["w"]), 4) == -0.2


def test_a_number_that_is_another_one_at_each_call_is_warned_of_once():
    w, group = fad.tensor(1.0), {"lr": 1.0, "decay": 0.5}

    @fad.jit
    def step():
        return w.mul_(group["lr"] * group["decay"]) + 0.0

    def call(rate: float) -> None:
        group["lr"] = rate
        step()

    for k in range(32):  # the first call, and 31 that are traced again
        call(1.0 + k)
    said = (
        r"step was traced again 32 times in 32 calls, because group\['lr'\] is 33.0 now, was 32.0"
    )
    with pytest.warns(UserWarning, match=said):
        call(33.0)
    for k in range(40):
        call(0.5 + k / 64)


def test_a_number_that_a_scheduler_changes_now_and_then_is_not():
    w, group = fad.tensor(1.0), {"lr": 1.0}
    step = fad.jit(lambda: w.mul_(group["lr"]) + 0.0)
    for k in range(60):
        if k % 5 == 0:
            group["lr"] *= 0.75
        step()


GROWING = {
    "values": (lambda: {"a": 1.0}, lambda g: sum(g.values()), lambda g: g.update(b=1.0)),
    "fewer": (lambda: {"a": 1.0, "b": 1.0}, lambda g: sum(g.values()), lambda g: g.pop("b")),
    "sum": (lambda: [1.0], sum, lambda g: g.append(1.0)),
    "length": (lambda: [1.0, 2.0], len, lambda g: g.append(3.0)),
    "order": (
        lambda: collections.OrderedDict(a=1.0, b=2.0),
        lambda g: next(iter(g.values())),
        lambda g: g.move_to_end("a"),
    ),
    "deque": (lambda: collections.deque([1.0]), sum, lambda g: g.appendleft(1.0)),
}


@pytest.mark.parametrize("make, read, change", GROWING.values(), ids=GROWING)
def test_a_container_of_numbers_that_is_longer_or_shorter(make, read, change):
    w, group, kept = fad.ones(1), make(), Holder(group=make())
    of_variable, traces = counted(lambda: w * read(group))
    of_attribute = fad.jit(lambda: w * read(kept.group))
    for _ in range(2):
        assert of_variable().tolist() == of_attribute().tolist() == [read(group)]
    assert len(traces) == 1
    change(group), change(kept.group)
    assert of_variable().tolist() == of_attribute().tolist() == [read(group)]


def test_what_is_only_written_beside_a_computed_key_traces_nothing():
    weights, log, rates = [fad.ones(2), fad.ones(2)], {"epoch": 0}, {"a": 0.5, "b": 0.5}
    names = ["a", "b"]

    def body():
        for k in range(2):  # the computed keys are those of lists and of `rates`
            weights[k].mul_(rates[names[k]])
        log["status"] = "done"
        return weights[0] + 0.0

    step, traces = counted(body)
    for epoch in range(4):
        log["epoch"] = epoch
        step()
    assert len(traces) <= 2  # the first trace has put "status" into the log


@pytest.mark.parametrize(
    "make", [lambda: np.full(2, 5.0, np.float32), lambda: fad.ones(2).array * 5]
)
def test_an_array_that_is_gone_is_not_one_that_is_none(make):
    w, kept, row = fad.ones(2), Holder(mask=make()), [make()]
    masked = fad.jit(lambda: w + 1 if kept.mask is None else w * kept.mask)
    first = fad.jit(lambda: w + 1 if row[0] is None else w * row[0])
    for _ in range(2):
        assert masked().tolist() == first().tolist() == [5.0, 5.0]
    kept.mask = row[0] = None
    gc.collect()
    assert masked().tolist() == first().tolist() == [2.0, 2.0]


def _by_attribute(kept):
    try:
        return kept.clip
    except AttributeError:
        return 1.0


def _by_key(kept):
    try:
        return kept.table["clip"]
    except KeyError:
        return 1.0


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize(
    "read",
    [
        lambda kept: getattr(kept, "clip", 1.0),
        lambda kept: kept.clip if hasattr(kept, "clip") else 1.0,
        lambda kept: kept.table.get("clip", 1.0),
        lambda kept: 4.0 * kept.table["clip"] / 4.0 if "clip" in kept.table else 1.0,
        _by_attribute,
        _by_key,
    ],
)
def test_what_was_missing_where_code_looks_for_it(read, leads):
    w, kept = fad.ones(1), Holder(table={"rate": 1.0})
    if leads:
        w = kept.w = kept.table["w"] = fad.ones(1)
    step, traces = counted(lambda: (kept.w if leads else w) * read(kept))
    for k in range(3):
        assert step().item() == 1.0
        setattr(kept, f"other{k}", 2.0)
    assert len(traces) == 1
    kept.clip = kept.table["clip"] = 0.25
    assert "traces anew" in step.explain()
    assert [step().item(), step().item()] == [0.25, 0.25]
    del kept.clip, kept.table["clip"]
    assert step().item() == 1.0


SETS = {
    "a set": (lambda: {"a"}, lambda x: x.add("w")),
    "an empty set": (set, lambda x: x.add("w")),
    "fewer": (lambda: {"a", "w"}, lambda x: x.remove("w")),
    "an empty list": (list, lambda x: x.append("w")),
    "an empty dict": (dict, lambda x: x.update(w=1.0)),
    "an empty deque": (collections.deque, lambda x: x.append("w")),
}
ASKED = {
    "in": lambda x: 2.0 if "w" in x else 1.0,
    "bool": lambda x: 2.0 if x else 1.0,
    "len": len,
    "items": lambda x: len("".join(sorted(x))),
}


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("kind", SETS)
def test_what_is_in_a_set_or_in_what_was_empty(kind, ask):
    (make, change), read = SETS[kind], ASKED[ask]
    w, names, kept = fad.ones(1), make(), Holder(names=make())
    of_variable, traces = counted(lambda: w * read(names))
    of_attribute = fad.jit(lambda: w * read(kept.names))
    for _ in range(3):
        assert of_variable().tolist() == of_attribute().tolist() == [read(names)]
        names = type(names)(names)  # equal ones that are made anew
    assert len(traces) == 1
    change(names), change(kept.names)
    assert of_variable().tolist() == of_attribute().tolist() == [read(names)]


def test_a_set_says_that_a_call_was_the_first():
    w, done = fad.ones(1), set()

    def body():
        if "first" not in done:
            done.add("first")
            return w * 5.0
        return w * 1.0

    step, traces = counted(body)
    assert [step().item() for _ in range(4)] == [5.0, 1.0, 1.0, 1.0]
    assert len(traces) == 2


def test_what_a_body_puts_into_what_was_empty_traces_nothing():
    w, log, table = fad.ones(1), [], {}

    def body():
        log.append("traced")
        table["rate"] = 2.0
        return w * table["rate"]

    step, traces = counted(body)
    assert [step().item() for _ in range(4)] == [2.0] * 4
    assert len(traces) == 1


def test_an_object_of_a_library_is_the_one_that_is_there():
    w, kept = fad.ones(2), Holder(generator=np.random.default_rng(0))
    step, traces = counted(lambda: w * kept.generator.random())
    assert step().tolist() == step().tolist()
    kept.generator = np.random.default_rng(1)
    assert "kept.generator is " in step.explain()
    assert_close(step()[0].item(), np.random.default_rng(1).random())
    assert len(traces) == 2


def test_the_attributes_of_a_simple_namespace():
    w, kept = fad.ones(1), types.SimpleNamespace(w=fad.ones(1))
    kept.settings = types.SimpleNamespace(a=1.0, b=1.0)
    total = fad.jit(lambda: w * sum(vars(kept.settings).values()))
    unpacked = fad.jit(lambda: w * (lambda a, b: a + b)(**vars(kept.settings)))
    assert total().tolist() == unpacked().tolist() == [2.0]
    kept.settings.a = 3.0
    assert "kept.settings.a is 3.0 now, was 1.0" in total.explain()
    assert total().tolist() == unpacked().tolist() == [4.0]
    step, traces = counted(lambda: kept.w * 2.0)
    for k in range(4):
        setattr(kept, f"loss{k}", 0.5)
        step()
    assert len(traces) == 1


_COMPUTED = "".join(["l", "r"])
_BY_NUMBER = {0: 0.5, 1: 0.5}
_GROUP = {"lr": 0.5, "decay": 0.5}
_NESTED = {"of": {"lr": 0.5}}


class Described:
    def __get__(self, x, kind=None):
        return self if x is None else x.__dict__["rate"]

    def __set__(self, x, value):
        raise NotImplementedError


class Rates:
    described = Described()

    def __init__(self) -> None:
        self.rate = 0.5

    def times(self, k):
        return self.rate * k

    doubled = functools.partialmethod(times, 2.0)


_SETTINGS = Rates()
_RATES = collections.deque([0.5])
_NAMES = ("ra" + "te",)
_RATE_OF, _LR_OF = operator.attrgetter(*_NAMES), operator.itemgetter("lr")


class Slotted:
    __slots__ = ("scale",)


_SLOTS = Slotted()


@pytest.mark.parametrize(
    "code",
    [
        lambda w: (lambda lr, decay: w * lr * decay)(**_GROUP),
        lambda w: w * sum(_GROUP.values()),
        lambda w: w * sum(v for _, v in _GROUP.items()),
        lambda w: w * sum(_GROUP[k] for k in _GROUP),
        lambda w: w * {**_GROUP}[_COMPUTED],
        lambda w: w * _GROUP.get(_COMPUTED, 0.0),
        lambda w: w * _GROUP[_COMPUTED],
        lambda w: w * _BY_NUMBER[0],
        lambda w: w * next(iter(_NESTED["of"].values())),
        lambda w: w * sum(vars(_SETTINGS).values()),
        lambda w: w * sum(_SETTINGS.__dict__.values()),
        lambda w: w * sum(_RATES),
        lambda w: w * sum(getattr(_SETTINGS, f"ra{x}") for x in ["te"]),
        lambda w: w * sum(getattr(_SETTINGS, n) for n in _NAMES),
        lambda w: w * getattr(_SETTINGS, _NAMES[0], 1.0),
        lambda w: w * _RATE_OF(_SETTINGS) * _LR_OF(_GROUP),
        lambda w: w * sum(getattr(_SLOTS, n) for n in _SLOTS.__slots__),
        lambda w: w * _SETTINGS.described,
        lambda w: w * _SETTINGS.doubled(),
    ],
)
def test_numbers_that_code_comes_to_without_naming_them(code):
    w = fad.tensor([1.0, 2.0])
    compiled = fad.jit(lambda: code(w))
    for rate in (0.5, 0.25, 0.125):
        _SLOTS.scale = _RATES[0] = _SETTINGS.rate = _GROUP["lr"] = _BY_NUMBER[0] = _NESTED["of"][
            "lr"
        ] = rate
        assert compiled().tolist() == code(w).tolist()


class Delegates(Holder):
    def __getattr__(self, name):
        return getattr(self.inner, name)


_ACTIVATION = "".join(["ab", "s"])


def test_computed_names_of_modules_and_names_handed_on_are_none_of_objects():
    w, kept = fad.ones(1), Delegates(inner=Holder(gain=2.0, calls=0), calls=0)
    body = lambda: getattr(fad.numpy, _ACTIVATION)(w) * kept.gain * kept.inner.gain
    step, traces = counted(body)
    for _ in range(4):
        step()
        kept.inner.calls += 1
    assert len(traces) == 1
    kept.inner.gain = 3.0
    assert step().tolist() == body().tolist()


def test_bytes_that_are_views_are_the_same_or_others():
    w, kept = fad.ones(1), Holder(view=memoryview(bytearray(b"ab")))
    step, traces = counted(lambda: w * len(kept.view))
    assert [step().item(), step().item(), len(traces)] == [2.0, 2.0, 1]
    kept.view = memoryview(bytearray(b"abc"))
    assert [step().item(), len(traces)] == [3.0, 2]


def test_a_number_in_a_dict_of_which_code_names_other_items_traces_nothing():
    w, group = fad.tensor(1.0), {"lr": 0.5, "calls": 0}
    step, traces = counted(lambda: w.mul_(group["lr"]) + 0.0)
    for _ in range(5):
        step()
        group["calls"] += 1
    assert len(traces) == 1
