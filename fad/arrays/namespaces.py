"""Modules of array functions: the names of a JAX module, each derived at its first use."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from fad.arrays import special_cases
from fad.arrays.derive import derive
from fad.core.types import PyTree
from fad.errors.suggestions import no_name, no_name_later
from fad.errors.synonyms import instead_in_module


@dataclasses.dataclass(slots=True, eq=False)
class Namespace:
    """A fad module whose names are those of a JAX module.

    Arguments:
        name: the fad module.
        jax_module: the name of the JAX module; it is imported when a name is first looked up.
        children: submodules that fad has too.
        own: names that the fad module defines itself.

    A module uses its ``get`` and ``names`` as ``__getattr__`` and ``__dir__`` (PEP 562). A name
    that was looked up is put into the module, so that the next look-up costs nothing.
    """

    name: str
    jax_module: str
    children: Sequence[str] = ()
    own: Sequence[str] = ()

    def get(self, attribute: str) -> PyTree:
        """The fad version of a public name.

        Raises:
            AttributeError: the JAX module has no such public name, or fad does not have it.
        """
        if attribute.startswith("_"):
            raise no_name(self.name, attribute, "")
        if attribute in self.children:
            return importlib.import_module(f"{self.name}.{attribute}")
        try:
            value = getattr(importlib.import_module(self.jax_module), attribute)
        except AttributeError as error:
            raise self._missing(attribute, str(error)) from None
        reason = special_cases.missing(self.jax_module, attribute, value)
        if reason is not None:
            raise AttributeError(f"fad has no {self.jax_module}.{attribute}: {reason}")
        if isinstance(value, types.ModuleType):
            raise self._missing(attribute)
        result = derive(attribute, self.name, self.jax_module, value)
        setattr(sys.modules[self.name], attribute, result)
        return result

    def _missing(self, attribute: str, of_jax: str = "") -> AttributeError:
        """The error for a name that is not there; ``of_jax`` is what JAX says of it."""

        def instead() -> str:
            deprecated = "" if "has no attribute" in of_jax else of_jax
            return instead_in_module(self.name, attribute) or deprecated

        return no_name_later(self.name, attribute, instead, self.names)

    def names(self) -> list[str]:
        """The public names."""
        module = importlib.import_module(self.jax_module)
        found = {*self.children, *self.own}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in dir(module):
                if name.startswith("_"):
                    continue
                try:
                    value = getattr(module, name)
                except (AttributeError, Warning):
                    continue
                if isinstance(value, types.ModuleType):
                    continue
                if special_cases.missing(self.jax_module, name, value) is None:
                    found.add(name)
        return sorted(found)


class _DerivedModule(types.ModuleType):
    """A module without a file: one of the many small ones in ``jax.scipy``."""

    def __init__(self, namespace: Namespace, doc: str) -> None:
        super().__init__(namespace.name, doc)
        self.__spec__ = ModuleSpec(namespace.name, None, is_package=bool(namespace.children))
        self.__namespace = namespace

    def __getattr__(self, attribute: str) -> PyTree:
        return self.__namespace.get(attribute)

    def __dir__(self) -> list[str]:
        return self.__namespace.names()


def install_tree(name: str, jax_module: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Make a module for each public submodule of a JAX package, without importing any of them.

    Arguments:
        name: the fad package.
        jax_module: the JAX package.
        paths: where the JAX package's files are.

    Returns:
        The names of the direct submodules.
    """
    children: list[str] = []
    for directory in map(Path, paths):
        for entry in sorted(directory.iterdir()):
            if entry.name.startswith("_"):
                continue
            if entry.suffix == ".py":
                child = entry.stem
                inside: tuple[str, ...] = ()
            elif (entry / "__init__.py").exists():
                child = entry.name
                inside = install_tree(f"{name}.{child}", f"{jax_module}.{child}", [str(entry)])
            else:
                continue
            namespace = Namespace(f"{name}.{child}", f"{jax_module}.{child}", inside)
            doc = f"The names of {jax_module}.{child}, for Tensors and arrays."
            sys.modules[namespace.name] = _DerivedModule(namespace, doc)
            children.append(child)
    return tuple(children)
