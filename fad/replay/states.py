"""All traces so far, as a tree: to append costs one look-up, and a state has the programs of its traces."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from fad.core.types import Aval
from fad.replay.inputs import FOREIGN
from fad.replay.policy import Ending, Policy, Use

__all__ = ["Root", "State", "clear_cache", "endings", "root_of", "segment_of", "tree"]

CAPACITY = 1 << 14  # states, roots and endings remembered


@dataclasses.dataclass(slots=True, eq=False)
class State:
    """What was appended up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for input k. The first ``own`` of
    them are written to. What is known of its outputs is an `Outcome`. ``first`` is the number of its first
    output, ``size`` counts all outputs so far, ``taken`` the inputs, ``work`` the operations, those of
    programs among them included. ``has_writes``, ``has_untracked``: some of them are writes, or
    untracked. ``content`` is a hash of the operation and of the relative places of its arguments. ``cuts``: a
    segment ends here. ``use`` says whether the operation is new. ``next`` has the states that came after it,
    by their keys. ``passes`` has what `Stretch.passed` finds.
    """

    op: Any
    refs: tuple[int, ...]
    own: int
    avals: Sequence[Aval]
    layouts: Sequence[Hashable]
    requires_grad: Sequence[bool]
    routed: Sequence[bool]
    kept: Sequence[int]
    single: bool
    size: int
    taken: int
    work: int = 0
    has_writes: bool = False
    has_untracked: bool = False
    content: int = 0
    cuts: bool = False
    use: Use = dataclasses.field(default_factory=Use)
    next: dict[Hashable, State] = dataclasses.field(default_factory=dict)
    endings: dict[Hashable, Ending] = dataclasses.field(default_factory=dict)
    passes: dict[Hashable, tuple[frozenset[int], frozenset[int]]] = dataclasses.field(
        default_factory=dict
    )
    first: int = dataclasses.field(init=False)
    untracked: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.first = self.size - len(self.avals)
        self.untracked = FOREIGN in self.layouts

    def ending(self, key: Hashable) -> Ending:
        """That of stretches that end here in the way that ``key`` says."""
        found = self.endings.get(key)
        if found is None:
            grow()
            found = self.endings.setdefault(key, Ending())
        return found


class Root(State):
    """The beginning of traces at levels of one kind, with its `Policy`.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays unique. ``is_cut``: its traces are
    cut.
    """

    __slots__ = ("code", "is_cut", "name", "policy")

    def __init__(self, code: object, name: str, taken: int) -> None:
        super().__init__(None, (), 0, (), (), (), (), (), True, 0, taken)
        self.code = code
        self.name = name
        self.policy = Policy()
        self.is_cut = False

    def cut(self) -> None:
        """Cut its traces from now on; what is known of them was not cut."""
        self.is_cut = True
        self.next.clear()


class _Tree:
    """All states, and their number; forgotten as a whole when there are too many. ``hits``: programs run,
    ``passes``: those of backward passes of single nodes.
    """

    __slots__ = ("hits", "passes", "roots", "size")

    def __init__(self) -> None:
        self.hits = self.passes = 0
        self.forget()

    def forget(self) -> None:
        """Forget all states."""
        self.roots: dict[Hashable, Root] = {}
        self.size = 0


tree = _Tree()
_growing = threading.RLock()


def clear_cache() -> None:
    """Forget all states, and what was counted."""
    tree.forget()
    tree.hits = tree.passes = 0


def root_of(key: Hashable, code: object, name: str, taken: int = 0) -> Root:
    """The root of traces with this key, which may have ``code`` by its `id`, and begin with inputs."""
    root = tree.roots.get(key)
    if root is None:
        grow()
        root = tree.roots.setdefault(key, Root(code, name, taken))
    return root


def segment_of(key: Iterable[Hashable]) -> Root:
    """The root of what comes after a flush, in a trace with this key."""
    root = root_of(("a segment", *key), None, "")
    root.is_cut = True
    return root


def grow() -> None:
    """Count one more state, root or ending; clear all of them at `CAPACITY`."""
    with _growing:
        if tree.size >= CAPACITY:
            tree.forget()
        tree.size += 1


def endings() -> list[Ending]:
    """All that are remembered."""
    found: list[Ending] = []
    todo: list[State] = list(tree.roots.values())
    while todo:
        at = todo.pop()
        found += at.endings.values()
        todo += at.next.values()
    return found
