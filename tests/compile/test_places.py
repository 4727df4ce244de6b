"""Places: whichever way the code of a compiled function comes to a Tensor, it is the one of that call."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types

import pytest

import fad


def one(x=1.0):
    return fad.tensor(x)


class Global:
    """A class of settings."""

    scale = None
    table: dict[str, fad.Tensor] = {}


GLOBAL = one()
VIEWED: dict[str, fad.Tensor] = {}
module = types.ModuleType("settings")
module.inner = types.ModuleType("settings.inner")


def set_global(x):
    global GLOBAL
    GLOBAL = x


class Model:
    """An object whose methods use more than its attributes."""

    shared = None

    def __init__(self, w=None):
        self.w = one() if w is None else w

    def loss(self):
        return self.w * GLOBAL * 2.0

    def step(self):
        return self.loss() * 1.0

    @classmethod
    def of_class(cls):
        return cls.shared * 2.0

    @staticmethod
    def of_none():
        return GLOBAL * 3.0

    @property
    def doubled(self):
        return GLOBAL * 2.0

    def __call__(self):
        return GLOBAL * 4.0


class Slots:
    __slots__ = ("__w", "more")

    def __init__(self):
        self.__w = one()

    def get(self):
        return self.__w + self.more if hasattr(self, "more") else self.__w * 1.0

    def put(self, x):
        self.__w = x


@dataclasses.dataclass
class Record:
    w: fad.Tensor
    bias: fad.Tensor | None = None


class Dict(dict):
    """A dict with attributes."""


class List(list):
    """A list with attributes."""


class Pair(collections.namedtuple("Pair", "a b")):
    """A named tuple with attributes."""


def with_attribute(x):
    x.scale = one(2.0)
    return x


def closure(w):
    return lambda: w * 2.0


def biased(x):
    return x.w * 1.0 if x.bias is None else x.w + x.bias


def nested(x, depth):
    return nested(types.SimpleNamespace(below=x), depth - 1) if depth else x


def innermost(x):
    while hasattr(x, "below"):
        x = x.below
    return x


def in_order(values):
    return sum(10.0**k * x for k, x in enumerate(values))


def table(**items):
    return {k: one(v) for k, v in items.items()}


def defaults(x=GLOBAL, *, y=GLOBAL):
    return x + 10 * y


def function_with(attribute):
    def f():
        return f.w * 2.0

    f.w = attribute
    return f


# How code comes to what is in a box, by its items; and what changes there.
WAYS = {
    "items of an OrderedDict": (
        lambda: collections.OrderedDict(table(a=1.0, b=2.0)),
        lambda box: in_order(box.values()),
        lambda box: box.move_to_end("a"),
    ),
    "numbers in an OrderedDict": (
        lambda: collections.OrderedDict(a=one(), b=2.0),
        lambda box: in_order(box.values()),
        lambda box: box.move_to_end("a"),
    ),
    "a view of a dict": (
        lambda: (VIEWED.update(a=one()), VIEWED.values())[1],
        lambda box: sum(box) * 1.0,
        lambda _: VIEWED.update(b=one()),
    ),
    "a proxy of a dict": (
        lambda: (VIEWED.update(c=one()), types.MappingProxyType(VIEWED))[1],
        lambda box: sum(box.values()) * 1.0,
        lambda _: VIEWED.update(c=one(2.0)),
    ),
    "a ChainMap": (
        lambda: collections.ChainMap(table(a=1.0), table(b=2.0)),
        lambda box: sum(box.values()) * 1.0,
        lambda box: box.update(b=one()),
    ),
    "a default of a dict": (
        lambda: collections.defaultdict(one, table(a=1.0)),
        lambda box: sum(box.values()) * 1.0,
        lambda box: box["b"],
    ),
    "an attribute of a dict": (
        lambda: with_attribute(Dict(a=one())),
        lambda box: box["a"] * box.scale,
        lambda box: setattr(box, "scale", one(3.0)),
    ),
    "an attribute of a list": (
        lambda: with_attribute(List([one()])),
        lambda box: box[0] * box.scale,
        lambda box: setattr(box, "scale", one(3.0)),
    ),
    "an attribute of a named tuple": (
        lambda: with_attribute(Pair(one(), None)),
        lambda box: box.a * box.scale,
        lambda box: setattr(box, "scale", one(3.0)),
    ),
    "a named tuple for another": (
        lambda: [Pair(one(), None), one()],
        lambda box: box[1] * (2.0 if box[0].b is None else box[0].b),
        lambda box: box.__setitem__(0, box[0]._replace(b=one(3.0))),
    ),
    "a dataclass": (
        lambda: Record(one()),
        biased,
        lambda box: setattr(box, "bias", one()),
    ),
    "a dataclass for another": (
        lambda: [Record(one())],
        lambda box: biased(box[0]),
        lambda box: box.__setitem__(0, Record(box[0].w, one())),
    ),
    "all attributes": (
        lambda: Record(one()),
        biased,
        lambda box: setattr(box, "__dict__", vars(Record(one(3.0)))),
    ),
    "a name of an attribute": (
        lambda: types.SimpleNamespace(w=one(), a=one()),
        lambda box: box.w * (2.0 if hasattr(box, "a") else 3.0),
        lambda box: setattr(box, "b", vars(box).pop("a")),
    ),
    "a name with a dot": (
        lambda: types.SimpleNamespace(**{"a.b": one()}),
        lambda box: vars(box)["a.b"] * 2.0,
        lambda box: vars(box).update({"a.b": one(2.0)}),
    ),
    "a private slot": (Slots, Slots.get, lambda box: box.put(one(2.0))),
    "an empty slot": (Slots, Slots.get, lambda box: setattr(box, "more", one(2.0))),
    "the lengths of two lists": (
        lambda: [[one(), one(3.0)], [one(2.0)]],
        lambda box: box[0][0] * len(box[0]) + 10 * box[1][0] * len(box[1]),
        lambda box: box[1].append(box[0].pop()),
    ),
    "a tuple in a list": (
        lambda: [(one(), None), one()],
        lambda box: box[1] * (1.0 if box[0][1] is None else box[0][1]),
        lambda box: box.__setitem__(0, (box[0][0], one(2.0))),
    ),
    "far inside": (
        lambda: nested(Record(one()), 9),
        lambda box: innermost(box).w * 2.0,
        lambda box: setattr(innermost(box), "w", one(2.0)),
    ),
    "far behind in a list": (
        lambda: [None] * 2500 + [one()],
        lambda box: box[2500] * 1.0,
        lambda box: box.__setitem__(2500, one(2.0)),
    ),
    "None in an object for another": (
        lambda: [one(), Record(2.0)],
        lambda box: box[0] * (1.0 if box[1].bias is None else box[1].bias),
        lambda box: box.__setitem__(1, Record(2.0, one(3.0))),
    ),
    "an empty list in an object for another": (
        lambda: [one(), Record(2.0, [])],
        lambda box: sum(box[1].bias, box[0] * 1.0),
        lambda box: box.__setitem__(1, Record(2.0, [one(3.0)])),
    ),
    "a class": (
        lambda: setattr(Global, "scale", one()),
        lambda _: Global.scale * 2.0,
        lambda _: setattr(Global, "scale", one(2.0)),
    ),
    "a class, and an object of it that has another": (
        lambda: (setattr(Model, "shared", one()), setattr(m := Model(), "shared", 1.0), m)[2],
        lambda box: box.w * box.shared * Model.shared,
        lambda _: setattr(Model, "shared", Model.shared + 1.0),
    ),
    "a dict of a class": (
        lambda: Global.table.update(a=one()),
        lambda _: sum(Global.table.values()) * 1.0,
        lambda _: Global.table.update(c=one()),
    ),
    "a module": (
        lambda: setattr(module, "w", one()),
        lambda _: module.w * 2.0,
        lambda _: setattr(module, "w", one(2.0)),
    ),
    "a module in a module": (
        lambda: setattr(module.inner, "w", one()),
        lambda _: module.inner.w * 2.0,
        lambda _: setattr(module.inner, "w", one(2.0)),
    ),
    "a module in a list": (
        lambda: [setattr(module, "v", one()), module],
        lambda box: box[1].v * 2.0,
        lambda _: setattr(module, "v", one(2.0)),
    ),
    "a global of a method": (
        Model,
        lambda box: box.loss() * 1.0,
        lambda _: set_global(GLOBAL + 1.0),
    ),
    "a global of a static method": (
        Model,
        lambda box: box.of_none() * 1.0,
        lambda _: set_global(GLOBAL + 1.0),
    ),
    "a global of a property": (
        Model,
        lambda box: box.doubled * 1.0,
        lambda _: set_global(GLOBAL + 1.0),
    ),
    "a global of an operator": (Model, lambda box: box() * 1.0, lambda _: set_global(GLOBAL + 1.0)),
    "a function for another": (
        lambda: [closure(one())],
        lambda box: box[0]() * 1.0,
        lambda box: box.__setitem__(0, closure(one(2.0))),
    ),
    "a method for another": (
        lambda: [Model().step],
        lambda box: box[0]() * 1.0,
        lambda box: box.__setitem__(0, Model(one(2.0)).step),
    ),
    "a partial function for another": (
        lambda: [functools.partial(Model.loss, Model())],
        lambda box: box[0]() * 1.0,
        lambda box: box.__setitem__(0, functools.partial(Model.loss, Model(one(2.0)))),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_is_the_one_that_the_code_would_come_to(way):
    make, use, change = WAYS[way]
    box = make()
    f = fad.jit(lambda: use(box))
    assert float(f()) == float(f()) == float(use(box))
    before = float(use(box))
    change(box)
    assert float(f()) == float(f()) == float(use(box)) != before


# Functions that are compiled themselves.
FUNCTIONS = {
    "a method": (lambda: Model().step, lambda f: setattr(f.__self__, "w", one(7.0))),
    "a global of a method": (lambda: Model().step, lambda f: set_global(GLOBAL + 1.0)),
    "a method of a class": (
        lambda: (setattr(Model, "shared", one()), Model.of_class)[1],
        lambda f: setattr(Model, "shared", one(2.0)),
    ),
    "an object": (Model, lambda f: set_global(GLOBAL + 1.0)),
    "arguments by name": (
        lambda: functools.partial(lambda w: w * 2.0, w=one()),
        lambda f: f.keywords.update(w=one(2.0)),
    ),
    "defaults": (
        lambda: defaults,
        lambda f: setattr(f, "__defaults__", (f.__defaults__[0] + 1.0,)),
    ),
    "defaults by name": (
        lambda: defaults,
        lambda f: f.__kwdefaults__.update(y=f.__kwdefaults__["y"] + 1.0),
    ),
    "an attribute": (lambda: function_with(one()), lambda f: setattr(f, "w", one(2.0))),
}


@pytest.mark.parametrize("way", FUNCTIONS)
def test_a_function_uses_the_tensors_that_it_leads_to_now(way):
    make, change = FUNCTIONS[way]
    f = make()
    compiled = fad.jit(f)
    assert float(compiled()) == float(compiled()) == float(f())
    before = float(f())
    change(f)
    assert float(compiled()) == float(compiled()) == float(f()) != before
