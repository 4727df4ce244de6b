"""Classes of JAX whose instances contain arrays, as classes of fad."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fad.extend import array_function
from fad.extend.types import Array, PyTree

Settings = dict[str, PyTree]


def derived(name: str, where: str, jax_class: type) -> type:
    """The fad version of a class.

    An instance keeps the arguments that it was made of; each method is one operation, which makes
    the JAX object inside and calls the method on it, with those of other instances that it is given.
    """

    @functools.cache
    def operation(attribute: str) -> Callable[..., PyTree]:
        def run(
            options: PyTree,
            named: dict[str, int | Array],
            args: PyTree,
            kwargs: dict[str, int | Array],
            others: tuple[int | Array, ...],
        ) -> PyTree:
            member = getattr(jax_class(*options, **named), attribute)
            arguments: PyTree = {**dict(enumerate(args)), **kwargs}
            for place, its_options, its_named in others:  # type: ignore[misc]
                arguments[place] = jax_class(*its_options, **its_named)
            args = [arguments.pop(k) for k in range(len(args))]
            return member(*args, **arguments) if callable(member) else member

        full, lists = f"{name}.{attribute}", ["options", "args"]
        made: Callable[..., PyTree] = array_function(run, name=full, module=where, lists=lists)
        return made

    class Instance:
        __slots__ = ("_named", "_options")

        def __init__(self, *options: PyTree, **named: PyTree) -> None:
            self._options = options
            self._named = named

        def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
            return operation("__call__")(self._options, self._named, args, kwargs, ())

        def __getattr__(self, attribute: str) -> PyTree:
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            run = operation(attribute)
            if not callable(getattr(jax_class, attribute, None)):
                return run(self._options, self._named, (), {}, ())

            @functools.wraps(getattr(jax_class, attribute))
            def method(*args: PyTree, **kwargs: PyTree) -> PyTree:
                arguments: list[tuple[int | str, PyTree]] = [*enumerate(args), *kwargs.items()]
                instances = {k: a for k, a in arguments if isinstance(a, Instance)}
                others = tuple([(k, a._options, a._named) for k, a in instances.items()])
                args = tuple([0 if k in instances else a for k, a in enumerate(args)])
                kwargs = {k: 0 if k in instances else a for k, a in kwargs.items()}
                return run(self._options, self._named, args, kwargs, others)

            method.__module__, method.__qualname__ = where, attribute
            return method

    Instance.__name__ = Instance.__qualname__ = name
    Instance.__module__ = where
    Instance.__doc__ = jax_class.__doc__
    return Instance
