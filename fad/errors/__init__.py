"""Exception classes, and the wording of messages.

An error or a name that does not exist comes in, what to write instead goes out; the texts are those of
`fad.hints`. Nothing here depends on what a Tensor is. Begin with the classes below.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fad.errors import tracebacks
from fad.errors.advice import say_too as say_too
from fad.errors.missing_names import hints_of as hints_of

__all__ = [
    "ArgumentError",
    "ConvergenceError",
    "DroppedDerivativeWarning",
    "FadError",
    "GradientError",
    "HostValueError",
    "LevelError",
    "MissingLibrary",
    "RuleError",
    "SingularError",
    "StructureError",
    "TrackedValueError",
    "attribute",
    "describe",
    "hints_of",
    "reader",
    "say_too",
    "traceback_filtering",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = hints_of(__name__)


class FadError(RuntimeError):
    """Base of every exception that fad raises of its own; a RuntimeError, as PyTorch's are.

    >>> import fad
    >>> issubclass(fad.errors.FadError, RuntimeError)
    True
    """


class ArgumentError(FadError, TypeError, ValueError):
    """An argument is not of the kind, dtype or shape that is needed.

    For the same misuse PyTorch raises RuntimeError in one place, TypeError or ValueError in another: it is
    each of them.

    >>> import fad
    >>> fad.tensor([1, 2], requires_grad=True)
    Traceback (most recent call last):
    fad.errors.ArgumentError: only Tensors of floating or complex dtype can require gradients, got int32: ...
    """


class LevelError(FadError):
    """A value was used outside the transform that it belongs to.

    >>> import fad, jax.numpy as jnp
    >>> kept = []
    >>> y = fad.vmap(lambda x: kept.append(x) or x)(jnp.ones(2))
    >>> kept[0] + 1.0
    Traceback (most recent call last):
    fad.errors.LevelError: a batched Tensor (Tensor float32[]) was used after its vmap had finished: ...
    """


class GradientError(FadError):
    """A derivative cannot be computed from the graph or the arguments.

    >>> import fad
    >>> fad.tensor(1.0).backward()
    Traceback (most recent call last):
    fad.errors.GradientError: backward(): element 0 of tensors does not require grad ...
    """


class RuleError(FadError, TypeError):
    """A Function's rules are missing, malformed, or returned something of the wrong form.

    >>> import fad
    >>> fad.Function()
    Traceback (most recent call last):
    fad.errors.RuleError: Function is not instantiated: call Function.apply(...)
    """


class HostValueError(FadError, TypeError):
    """A concrete value was needed where there is none: inside ``vmap``, ``jit`` or a staged body.

    >>> import fad, jax.numpy as jnp
    >>> fad.vmap(lambda x: x if x > 0 else -x)(jnp.ones(2))
    Traceback (most recent call last):
    fad.errors.HostValueError: bool() of a batched Tensor (Tensor bool[] inside vmap), which has ...
    """


class TrackedValueError(GradientError, HostValueError):
    """A value through which a derivative flows was read as a number, which would lose the derivative.

    >>> import fad
    >>> fad.tensor(2.0, requires_grad=True).numpy()
    Traceback (most recent call last):
    fad.errors.TrackedValueError: numpy() of a Tensor that requires grad ... would lose its derivative: ...
    """


class StructureError(FadError, ValueError):
    """Pytrees, shapes or sizes that must match do not.

    >>> import fad, jax.numpy as jnp
    >>> fad.vmap(lambda x, y: x + y)(jnp.ones(2), jnp.ones(3))
    Traceback (most recent call last):
    fad.errors.StructureError: vmap: the mapped dimensions must have one length, got ...
    """


class ConvergenceError(FadError, ArithmeticError):
    """An iteration has ended before it was where it should be.

    >>> import fad
    >>> issubclass(fad.errors.ConvergenceError, ArithmeticError)
    True
    """


class SingularError(GradientError, ArithmeticError):
    """A linear system, that of an implicit derivative for one, has no solution, or more than one.

    >>> import fad
    >>> root = fad.implicit.custom_root(lambda x, a: x**2 - a)(lambda x, a: a**0.5)
    >>> fad.grad(lambda a: root(0.0, a))(0.0)
    Traceback (most recent call last):
    fad.errors.SingularError: <lambda>: the linear system of the derivative is singular, ...
    """


class MissingLibrary(FadError, ImportError):
    """What was called needs a library of one of fad's extras, which is not installed.

    >>> import fad
    >>> issubclass(fad.errors.MissingLibrary, ImportError)
    True
    """


class DroppedDerivativeWarning(UserWarning):
    """A value that a running transform tracks became a plain number, which has no derivative.

    Shown once for each line of the user's. ``x.item()`` and ``x.detach()`` say that it is meant.

    >>> import fad, warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     df = fad.grad(lambda x: x * float(x))(3.0)
    >>> caught[0].category.__name__, float(df), float(fad.grad(lambda x: x * x.item())(3.0))
    ('DroppedDerivativeWarning', 3.0, 3.0)
    """


def traceback_filtering(mode: str | None = None) -> str:
    """Whether tracebacks of errors that nothing caught leave out the frames of fad and JAX.

    The environment variable ``FAD_TRACEBACK_FILTERING`` sets what a program begins with. The frames of JAX
    stay where ``JAX_TRACEBACK_FILTERING`` is off. An error that is caught has all of its frames.

    Arguments:
        mode: "remove_frames" (the default at the start), "off", or None, which changes nothing.

    Returns:
        The mode before the call.

    Raises:
        ArgumentError: there is no such mode.

    Source: ``jax.config.jax_traceback_filtering``.

    >>> import fad
    >>> before = fad.errors.traceback_filtering("off")
    >>> fad.errors.traceback_filtering(before)
    'off'
    """
    before = tracebacks.filtering
    if mode is not None:
        if mode not in _FILTERINGS:
            raise ArgumentError(
                f"traceback_filtering: the mode must be one of {', '.join(map(repr, _FILTERINGS))}, "
                f"got {mode!r}"
            )
        tracebacks.filtering = mode
    return before


_FILTERINGS = ("remove_frames", "off")
traceback_filtering(os.environ.get("FAD_TRACEBACK_FILTERING") or None)


def attribute(
    get: Callable[[Any], object], put: Callable[[Any, Any], None] | None = None
) -> property:
    """A property that is read by a `reader`.

    >>> class Example: size = attribute(lambda self: 3)
    >>> Example().size
    3
    """
    return property(reader(get), put, doc=get.__doc__)


def reader(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``get``, its errors AttributeErrors as well as what they are: ``hasattr`` is False then.

    >>> def part(x): raise LevelError("used outside of its transform")
    >>> class Example: part = attribute(part)
    >>> hasattr(Example(), "part")
    False
    >>> Example().part
    Traceback (most recent call last):
    fad.errors.LevelError: used outside of its transform
    """

    @functools.wraps(get)
    def read(self: Any) -> Any:
        try:
            return get(self)
        except Exception as error:
            if isinstance(error, AttributeError):
                raise
            cls: Any = type(error)
            kind = _attribute_error(cls)
            again = kind.__new__(kind, *error.args)  # not every __init__ takes `args` again
            again.args = error.args
            raise again.with_traceback(error.__traceback__) from None

    return read


@functools.cache
def _attribute_error(kind: Any) -> type[Exception]:
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, AttributeError), members)


def describe(value: object) -> str:
    """Say what a value is, for an error message: type, and shape and dtype where it has them.

    >>> import numpy as np
    >>> describe(np.zeros((2, 3), np.float32))
    'ndarray float32[2,3]'
    >>> describe("abc")
    "str 'abc'"
    """
    kind = type(value).__name__.removesuffix("Impl")  # jax.Array's class is called ArrayImpl
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    except LevelError:  # a view whose trace has finished, and whose base was written to
        return kind
    if isinstance(shape, tuple) and dtype is not None:
        text = f"{kind} {dtype}[{','.join(map(str, shape))}]"
        if type(value).__module__.partition(".")[0] != "torch":
            return text
        text = text.replace("torch.", "", 1)  # of the dtype
        return f"torch.{text} (write fad.from_dlpack(t), or fad.tensor(t) for a copy)"
    if value is None:
        return "None"
    text = repr(value)
    return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"
