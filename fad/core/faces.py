"""The names of a public module: tables say where each of them is, and `Face` looks it up."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from fad.core.types import PyTree


class Face:
    """The names of a public module, by the modules that have them.

    Arguments:
        module: the public module, such as "fad".
        missing: the error for a name that is not there.
        now: names that are looked up at once. The keys are modules, "" for modules inside of the public
            one; the values are names with spaces between them, ``name=other`` for what is ``other`` there.
        later: names that are imported when they are asked for.

    >>> face = Face("fad.core.faces", AttributeError, later={"math": "pi root=sqrt"})
    >>> face.names, face.find("root")(4.0)
    (['pi', 'root'], 2.0)
    """

    __slots__ = ("homes", "missing", "module", "names")

    def __init__(
        self,
        module: str,
        missing: Callable[[str], AttributeError | ImportError],
        now: dict[str, str] | None = None,
        later: dict[str, str] | None = None,
    ) -> None:
        self.module = module
        self.missing = missing
        at_once = _homes_of(now or {})
        self.homes = at_once | _homes_of(later or {})
        self.names = sorted(self.homes)
        for name in at_once:
            self.find(name)

    def find(self, name: str) -> object:
        """What the module has under a name: its ``__getattr__``.

        Raises:
            AttributeError: it has no such name; ImportError where that is imported from the module.
        """
        if name not in self.homes:
            raise self.missing(name)
        home, attribute = self.homes[name]
        value: object = importlib.import_module(home or f"{self.module}.{name}")
        if home:
            value = getattr(value, attribute)
        setattr(sys.modules[self.module], name, value)
        return value


def _homes_of(table: dict[str, str]) -> dict[str, tuple[str, str]]:
    """For each name of a table, the module that has it and what it is called there."""
    homes: dict[str, tuple[str, str]] = {}
    for home, names in table.items():
        for entry in names.split():
            name, _, attribute = entry.partition("=")
            homes[name] = (home, attribute or name)
    return homes


def tool(name: str) -> Any:
    """A tool of fad, imported when the library needs it: what stands on the library is not known before.

    >>> tool("formulas").__name__
    'fad.formulas'
    """
    return importlib.import_module(f"fad.{name}")


class ToolMember:
    """Stands in a class for a member that a tool has. The first use imports the tool and puts it there."""

    def __init__(self, owner: type, module: str, name: str) -> None:
        self.owner = owner
        self.module = module
        self.name = name

    def _load(self) -> PyTree:
        member: PyTree = tool(self.module).MEMBERS[self.name]
        put_member(self.owner, self.name, member)
        return member

    def __get__(self, instance: object, cls: type) -> object:
        # The member itself: looked up by name, it would be that of a subclass, which calls `super`.
        member = self._load()
        return member.__get__(instance, cls) if hasattr(member, "__get__") else member

    def __set__(self, instance: object, value: object) -> None:
        member = self._load()
        if hasattr(member, "__set__"):
            member.__set__(instance, value)
        else:
            setattr(instance, self.name, value)


def tool_members(owner: type, table: dict[str, str]) -> None:
    """Members of a class that tools have: their names, by the tools' modules."""
    for module, names in table.items():
        for name in names.split():
            setattr(owner, name, ToolMember(owner, module, name))


def put_member(owner: type, name: str, member: object) -> None:
    """Put a member into a class; a function that another one made has the name of a method then."""
    if isinstance(member, FunctionType) and "<locals>" in member.__qualname__:
        member.__name__, member.__qualname__ = name, f"{owner.__name__}.{name}"
    setattr(owner, name, member)


def module_without_file(name: str, doc: str, is_package: bool = False, **names: object) -> None:
    """A module that is made here: what it has is looked up by the ``__getattr__`` among its names.

    >>> module_without_file("fad.example", "An example.", __getattr__=str.upper)
    >>> from fad.example import loud
    >>> loud
    'LOUD'
    """
    module = ModuleType(name, doc)
    vars(module).update(names, __spec__=ModuleSpec(name, None, is_package=is_package))
    sys.modules[name] = module
