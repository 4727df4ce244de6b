"""Registering hooks: the handle that takes one away, and where a hook may not be registered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fad.core import jaxapi
from fad.core.level import state
from fad.core.tensor import Tensor
from fad.core.types import MaybeValue, Value
from fad.errors import GradientError, HostValueError, describe


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

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., object]) -> None:
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


def host_for(what: str, owner: Any, running: bool = False) -> Any:
    """What calls hooks at each execution of the code that is being traced; None where Python itself does.

    Arguments:
        what, running: as for `refuse_in_traced_code`.
        owner: the Tensor or the node that the hook is on.

    Raises:
        GradientError: the code is traced without hooks; or the Tensor or node is from outside of it.
    """
    host = state.host
    if host is not None:
        owner = getattr(owner, "variable", owner)  # the leaf of an accumulator
        born = -1 if owner.level is None else owner.level.id
        if max(born, getattr(owner, "born", -1)) >= host.since:
            return host
        refuse_in_traced_code(what, running)
    elif state.body is None:  # in a body of `jit`, a hook is code of the program
        refuse_in_traced_code(what, running)
    return None


def name_of(hook: Callable[..., object]) -> str:
    """What messages call a hook."""
    return str(getattr(hook, "__name__", type(hook).__name__))


def call_hook(
    host: Any,
    hook: Callable[..., object],
    f: Callable[..., Sequence[MaybeValue]],
    values: Sequence[Any],
    count: int,
) -> tuple[MaybeValue, ...]:
    """``f(*values)``, which calls ``hook``: what replaces the first ``count`` values.

    Arguments:
        host: what `host_for` gave; f is called now if it is None, else at each execution.
        hook: with a true attribute ``in_the_trace``, it is called now in any case.
        f: it gives None exactly where the value is None.
    """
    if host is None or getattr(hook, "in_the_trace", False):
        try:
            return tuple(f(*values))
        except HostValueError as error:
            raise HostValueError(
                f"hook {name_of(hook)!r} needs a number in code that is being traced: write "
                f"fnp.where(condition, "
                f"g, h) for a branch, or compile with fad.jit(f, hooks=True), which calls hooks of "
                f"Tensors made "
                f"in f at each execution. {error}"
            ) from None
    present = [v is not None for v in values]

    def run(*arrays: MaybeValue) -> Sequence[Value]:
        it = iter(arrays)
        outs = f(*[next(it) if p else None for p in present])
        return [o for o in outs if o is not None]

    operands = [v for v in values if v is not None]
    outs = iter(host.call(name_of(hook), run, operands, sum(present[:count])))
    return tuple([next(outs) if p else None for p in present[:count]])


def call_observer(
    f: Callable[[list[Any]], object], values: Sequence[MaybeValue], hook: Callable[..., object]
) -> None:
    """``f(values)``, which calls ``hook`` and replaces nothing; at each execution, in traced code."""
    host = state.host
    if host is None:
        f(list(values))
        return

    def run(*arrays: MaybeValue) -> Sequence[Value]:
        f(list(arrays))
        return ()

    plain = [v.level.detach(v) if isinstance(v, Tensor) else v for v in values]
    call_hook(host, hook, run, plain, 0)


_WRITE = (
    "Compile with fad.jit(f, hooks=True), which calls hooks of Tensors made in f at each execution; or leave "
    "the code that needs it outside."
)


def refuse_in_traced_code(what: str, running: bool = False, write: str = _WRITE) -> None:
    """Raise where Python runs once for each trace, and so a hook would not run at each execution.

    Arguments:
        what: what is refused, for the message.
        running: it was registered before, outside, and a backward pass in traced code would run it.
        write: what to write instead of registering it.
    """
    staged = any([level.traces for level in state.levels])
    if not staged and not jaxapi.is_tracing():
        return
    where = "fad.jit, or the body of scan, cond, ..." if staged else "a JAX transform"
    if running:
        raise GradientError(
            f"a backward pass in code that is being traced ({where}) includes {what}: it would run once per "
            "trace, not at each execution. Remove it, or run the pass outside of the traced code; hooks of "
            "Tensors that are made inside of it run in fad.jit(f, hooks=True)."
        )
    raise GradientError(
        f"{what} cannot be registered in code that is being traced ({where}): it would run once "
        f"per trace, not at each execution. {write}"
    )
