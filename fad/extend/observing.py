"""What a tool that looks on sees: calls while they run, the levels of a thread, values that are deferred."""

from __future__ import annotations

from fad.core import observation
from fad.core.level import Level, state
from fad.core.observation import Observer
from fad.core.tensor import Tensor, has_value
from fad.tape.anomaly import mode
from fad.tape.graph import running


def observe(observer: Observer | None) -> None:
    """Call ``observer`` in place of what fad does, from now on, in all threads; None: observe no more.

    There is one observer at a time. While there is none, nothing is checked.

    Arguments:
        observer: ``observer.observed(kind, function, args, kwargs)`` is called in place of
            ``function(*args, **kwargs)``, and returns what it returns. The kinds are "operation" (``args``
            are a level, an operation and its operands), "execution" (an operation runs in XLA),
            "function" (a body of a Function), "compiled" (a function of `fad.jit`), "program" and
            "compilation" (of replay), "indexing", "release" (a node lets go of what it keeps).
            ``observer.node(function, work, node, *args)`` is called in place of ``function(work, node,
            *args)``, which runs a node in a backward pass.

    >>> import fad, fad.numpy as fnp
    >>> class Log:
    ...     def observed(self, kind, function, args, kwargs):
    ...         if kind == "operation":
    ...             print(args[1].name)
    ...         return function(*args, **kwargs)
    ...     def node(self, function, *args):
    ...         return function(*args)
    >>> fad.extend.observe(Log())
    >>> y = fnp.sin(fad.tensor(1.0)) + 1.0
    sin
    add
    >>> fad.extend.observe(None)
    """
    mode.observer = observer
    mode.update()
    observation.observe(observer)


def running_levels() -> tuple[Level, ...]:
    """The levels that this thread has entered, outermost first.

    >>> import fad
    >>> def f(x):
    ...     print([level.kind for level in fad.extend.running_levels()])
    ...     return x
    >>> y = fad.vmap(fad.grad(f))(fad.numpy.ones(2))
    ['vmap', 'grad']
    """
    levels: tuple[Level, ...] = state.__dict__.get("levels", ())
    return levels


def is_deferred(x: Tensor) -> bool:
    """Whether a Tensor has no value yet: its operation was appended to a trace, to be replayed.

    Reading the value, or anything that depends on it, makes it be computed.

    >>> import fad
    >>> fad.extend.is_deferred(fad.tensor(1.0))
    False
    """
    return not has_value(x)


def thread_id() -> int:
    """The number of this thread, which is the ``thread_id`` of the nodes that it records.

    >>> import fad
    >>> y = fad.tensor(1.0, requires_grad=True) * 2.0
    >>> y.grad_fn.thread_id == fad.extend.thread_id()
    True
    """
    number: int = running.id
    return number
