"""Captures: what the body of a staged or checkpointed function reads from outside of it."""

from __future__ import annotations

from fad.core.tensor import Tensor, version_of
from fad.tape.graph import alias


class Captures:
    """Tensors from outside that a body has used, each in the state at its first use, in order."""

    __slots__ = ("_captured", "_index", "_then")

    def __init__(self) -> None:
        self._captured: list[Tensor] = []
        self._then: list[Tensor] = []
        self._index: dict[tuple[int, int], int] = {}

    def position(self, x: Tensor) -> int:
        """The number of ``x``, as it is now."""
        key = (id(x), version_of(x))
        at = self._index.get(key)
        if at is None:
            at = self._index[key] = len(self._captured)
            self._captured.append(x)
            self._then.append(alias(x))
        return at

    @property
    def tensors(self) -> list[Tensor]:
        """The Tensors; for those changed in place since, a handle with the state at capture."""
        return [
            x if version == version_of(x) else then
            for x, then, (_, version) in zip(self._captured, self._then, self._index, strict=True)
        ]
