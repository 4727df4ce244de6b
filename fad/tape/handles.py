"""Registering hooks: the handle that takes one away, and where a hook may not be registered."""

from __future__ import annotations

import itertools
from typing import Any

from fad.core import jaxapi
from fad.core.level import state
from fad.errors import GradientError, describe

__all__ = ["RemovableHandle", "refuse_in_traced_code"]


class RemovableHandle:
    """What registering a hook gives; ``remove()`` takes the hook away, any number of times.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> handle = x.register_hook(print)
    >>> handle.remove()
    >>> (x * x).backward()
    """

    __slots__ = ("__weakref__", "hooks", "id")

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        if not callable(hook):
            raise TypeError(f"a hook must be callable, got {describe(hook)}")
        self.hooks: dict[int, Any] | None = hooks
        self.id = next(RemovableHandle._ids)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away."""
        if self.hooks is not None:
            self.hooks.pop(self.id, None)
            self.hooks = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def refuse_in_traced_code(what: str, running: bool = False) -> None:
    """Raise where Python runs once for each trace, and so a hook would not run at each execution.

    Arguments:
        what: what is refused, for the message.
        running: it was registered before, outside, and a backward pass in traced code would run it.
    """
    staged = any([level.traces for level in state.levels])
    if not staged and not jaxapi.is_tracing():
        return
    where = "fad.jit, or the body of scan, cond, ..." if staged else "a JAX transform"
    if running:
        raise GradientError(
            f"a backward pass in code that is being traced ({where}) includes {what}: it would run once per "
            "trace, not at each execution. Remove it, or run the pass outside of the traced code."
        )
    raise GradientError(
        f"{what} cannot be registered in code that is being traced ({where}): it would run once "
        "per trace, not at each execution. Register it on a Tensor outside of the traced code, or "
        "leave the code that needs it outside."
    )
