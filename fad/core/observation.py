"""What a profiler can observe, at no cost while it does not.

NOTE [observation]

    with fad.autograd.profile() as seen:
        y = fad.grad(fnp.sin)(0.0)  # the same code: it has no check whether it is observed
    assert y == 1.0 and seen.key_averages()

Code that can be observed is marked with `observable`: the methods that every operation, every call of
XLA and every program goes through. While an observer is there (`observe`), each marked function is
replaced, where it is defined, by one that calls the observer with it. So code without an observer has
nothing to check, and code with one takes the same path: it is recorded, deferred, replayed and
compiled as without.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

# Where functions are defined.
Holder: TypeAlias = "type | types.ModuleType"


class Observer(Protocol):
    """What is called in place of marked functions."""

    def observed(
        self,
        kind: str,
        function: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> object:
        """``function(*args, **kwargs)``; ``kind`` is that of `observable`."""


class Observable:
    """A base of classes: the methods in ``observables`` can be observed, also those of classes to come.

    ``observables`` has the kind of each name, as `observable` takes it.
    """

    __slots__ = ()

    observables: Mapping[str, str] = types.MappingProxyType({})

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name, kind in cls.observables.items():
            if name in vars(cls):
                observable(cls, name, kind)


class _Places:
    """The functions that are marked: for each class or module, their names and kinds.

    ``originals`` has those that are replaced now, ``observer`` is who observes.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.marked: weakref.WeakKeyDictionary[Holder, dict[str, str]] = weakref.WeakKeyDictionary()
        self.originals: list[tuple[Holder, str, object, object]] = []
        self.observer: Observer | None = None

    def replace(self, holder: Holder, name: str, kind: str, observer: Observer) -> None:
        function = vars(holder)[name]
        is_method = isinstance(holder, type)

        @functools.wraps(function)
        def observed(*args: object, **kwargs: object) -> object:
            if is_method and getattr(type(args[0]), name) is not observed:
                return function(*args, **kwargs)  # called by `super()`, inside of such a call
            return observer.observed(kind, function, args, kwargs)

        self.originals.append((holder, name, function, observed))
        setattr(holder, name, observed)


_places = _Places()


def observable(holder: Holder, name: str, kind: str) -> None:
    """Mark a function that can be observed.

    Arguments:
        holder: the class or the module that defines it.
        name: its name there.
        kind: what a call of it is, for the observer.
    """
    with _places.lock:
        _places.marked.setdefault(holder, {})[name] = kind
        if _places.observer is not None:
            _places.replace(holder, name, kind, _places.observer)


def observe(observer: Observer | None) -> None:
    """From now on call ``observer`` in place of marked functions; None: there is no observer."""
    with _places.lock:
        while _places.originals:
            holder, name, function, observed = _places.originals.pop()
            if vars(holder)[name] is observed:
                setattr(holder, name, function)
        _places.observer = observer
        if observer is not None:
            for holder, names in list(_places.marked.items()):
                for name, kind in names.items():
                    _places.replace(holder, name, kind, observer)
