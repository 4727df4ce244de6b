"""The parameters of a JAX function, and which argument of a call belongs to which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature

from fad.arrays.arguments import STATIC, role_of
from fad.arrays.keywords import aliases_of
from fad.arrays.lists import Kwargs, Role, lists_in
from fad.core.devices import device_of
from fad.core.types import PyTree

Entry = tuple[object, int, int]


class Parameters:
    """The parameters of a JAX function: order, name and role of each."""

    def __init__(self, jax_function: Callable[..., PyTree], roles: dict[str, Role]) -> None:
        self.signature = signature(jax_function)
        self.positional: list[tuple[int, int]] = []
        self.named: dict[str, tuple[int, int]] = {}
        self.names: list[str] = list(self.signature.parameters)
        self.rest: int | None = None
        self.rest_named: int | None = None
        # What a list is for a parameter, where it is an array or several.
        self.lists: dict[int, int] = {}
        self.rest_lists = 0
        for i, p in enumerate(self.signature.parameters.values()):
            given = roles[p.name] if p.name in roles else role_of(p)
            role, lists = given if isinstance(given, tuple) else (given, lists_in(p))
            lists = 0 if role == STATIC else lists
            if p.kind is Parameter.VAR_POSITIONAL:
                self.rest = role
                self.rest_lists = lists
            elif p.kind is Parameter.VAR_KEYWORD:
                self.rest_named = role
            else:
                if lists:
                    self.lists[i] = lists
                if p.kind is not Parameter.KEYWORD_ONLY:
                    self.positional.append((i, role))
                if p.kind is not Parameter.POSITIONAL_ONLY:
                    self.named[p.name] = (i, role)
        self.others = {
            name: role
            for name, role in roles.items()
            if name not in self.signature.parameters and isinstance(role, int)
        }
        self.aliases = aliases_of(self.named)
        for alias, name in self.aliases.items():
            self.named[alias] = self.named[name]

    def entries(self, count: int, keywords: Sequence[str]) -> list[Entry] | None:
        """Label, position and role of each argument of a call, in the order of the parameters.

        Arguments:
            count: how many arguments are positional.
            keywords: the names of the others.

        Returns:
            None if the call does not fit the signature.
        """
        found: list[Entry] = []
        for position in range(count):
            if position < len(self.positional):
                label, role = self.positional[position]
                found.append((label, position, role))
            elif self.rest is not None:
                found.append((f"*{position}", position, self.rest))
            else:
                return None
        taken = {label for label, _, _ in found}
        named: list[Entry] = []
        others: list[Entry] = []
        for position, name in enumerate(keywords, count):
            known = self.named.get(name)
            if known is not None and known[0] not in taken:
                named.append((known[0], position, known[1]))
                taken.add(known[0])
            elif known is None and self.rest_named is not None:
                others.append((name, position, self.others.get(name, self.rest_named)))
            else:
                return None
        return found + sorted(named) + sorted(others)

    def lists_of(self, label: int | str) -> int:
        """What a list is for a parameter, by its label; see `fad.arrays.lists`."""
        if isinstance(label, str):
            return self.rest_lists if label.startswith("*") else 0
        return self.lists.get(label, 0)

    def renamed(self, kwargs: Kwargs) -> Kwargs:
        """Keywords under JAX's names, and devices that are strings as devices."""
        return {
            self.aliases.get(name, name): device_of(v) if name == "device" else v
            for name, v in kwargs.items()
        }
