"""Switching recording off and on: ``no_grad``, ``enable_grad``, ``inference_mode``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, NoReturn, Self, TypeVar, overload

import numpy as np

from fad.core.level import Level, last_level_id, map_tensors, state
from fad.core.tensor import Tensor, meta_of, storage_of
from fad.core.types import PyTree
from fad.errors import ArgumentError, describe

# The type of classes whose instances are blocks of ``with``: the class itself is none.


class BlockType(type):
    """A type that refuses ``with no_grad:``, where ``with no_grad():`` is meant.

    >>> class block(metaclass=BlockType):
    ...     def __enter__(self): return self
    ...     def __exit__(self, *exc): return None
    >>> with block: pass
    Traceback (most recent call last):
    fad.errors.ArgumentError: block is a class, and needs parentheses: write `with block():`
    """

    def __enter__(cls) -> NoReturn:
        name = cls.__name__
        raise ArgumentError(f"{name} is a class, and needs parentheses: write `with {name}():`")

    def __exit__(cls, *exc: object) -> None: ...


# Switching recording off and on: ``no_grad``, ``enable_grad``, ``inference_mode``.
#
# NOTE [grad mode]
#
#     with fad.no_grad():
#         assert fad.grad(lambda y: y * y)(3.0) == 6.0  # a transform that begins inside records
#         assert not (x * 2.0).requires_grad
#
# Recording is switched off for *levels*, not for a thread as a whole: ``no_grad`` forbids it to every
# level that exists when it is entered, and a transform started inside gets a newer level, which records.
# So ``grad(f)`` under ``no_grad`` still differentiates f, while the tape around it does not
# record, and ``no_grad`` inside f applies to every transform around it. These are the rules of
# torch.func ("grad and vjp interaction with no_grad"). One comparison with the no_grad watermark decides:
# ``level.id > state.watermark``. ``state.base_watermark`` is what ``state.watermark`` was when the innermost
# recording transform began: the most that ``enable_grad`` can restore inside of it.
#
# Tangents (``jvp``, ``dual_level``) are not recordings, and go on under ``no_grad``.
#
# ``inference_mode`` raises the base watermark too, so that ``enable_grad`` inside records nothing, and marks
# new Tensors as inference Tensors, which later graphs refuse to save. Both are as in PyTorch, where
# the mode saves time; here ``no_grad`` is as fast.

F = TypeVar("F", bound=Callable[..., object])


def is_grad_enabled() -> bool:
    """Whether operations on Tensors that require grad are recorded here.

    >>> import fad
    >>> with fad.no_grad():
    ...     fad.is_grad_enabled()
    False
    """
    return state.watermark == state.base_watermark


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in `inference_mode`.

    >>> import fad
    >>> with fad.inference_mode():
    ...     fad.autograd.is_inference_mode_enabled()
    True
    """
    return state.inference is not None


def mark_inference(out: PyTree) -> PyTree:
    """Make inference Tensors of fresh results; without tangents of a level outside of the mode."""
    return map_tensors(_mark, out)


def _mark(t: object) -> object:
    if isinstance(t, Tensor):
        meta_of(t).inference = True
        storage_of(t)
        if t.level.id <= state.base_watermark and t.level.tangent(t) is not None:
            t._aux = None
    return t


class _GradMode(metaclass=BlockType):
    """A grad mode as context manager and as decorator, of functions and generators."""

    __slots__ = ("_saved", "enabled")

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._saved: list[int] = []

    def __enter__(self) -> Self:
        self._saved.append(state.watermark)
        state.watermark = state.base_watermark if self.enabled else last_level_id()
        return self

    def __exit__(self, *exc: object) -> None:
        state.watermark = self._saved.pop()

    def _again(self) -> _GradMode:
        return _GradMode(self.enabled)

    def __call__(self, f: F) -> F:
        if not callable(f):
            raise TypeError(
                f"{type(self).__name__}: only functions can be decorated, got {describe(f)}"
            )
        if inspect.isclass(f):
            raise TypeError(
                f"{type(self).__name__}: decorate the methods of {f.__name__}, not the class"
            )
        if inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f):
            mode, function = type(self).__name__, getattr(f, "__name__", f)
            raise TypeError(
                f"{mode}: {function} is asynchronous, and the mode would be on in what runs while it "
                f"waits: write `with fad.{mode}(...):` in it, around code without await"
            )

        @functools.wraps(f)
        def wrapper(*args: object, **kwargs: object) -> PyTree:
            with self._again():
                return f(*args, **kwargs)

        @functools.wraps(f)
        def generator(*args: object, **kwargs: object) -> PyTree:
            return (yield from _Steps(f(*args, **kwargs), self._again))

        return generator if inspect.isgeneratorfunction(f) else wrapper  # type: ignore[return-value]


class _Steps(Generator[Any, Any, Any]):
    """Drives the generator ``inner``, with the mode on while its body runs, and not while it is suspended.

    Each resumption enters the mode anew: one that stayed on while the body is suspended would be that of
    the caller, and would end in another order than it began. What is thrown in, or closes it, runs the
    body too.
    """

    def __init__(self, inner: Any, mode: Callable[[], _GradMode]) -> None:
        self.inner = inner
        self.mode = mode

    def send(self, value: object) -> PyTree:
        with self.mode():
            return self.inner.send(value)

    def throw(self, *exc: Any) -> PyTree:
        with self.mode():
            return self.inner.throw(*exc)

    def close(self) -> None:
        with self.mode():
            self.inner.close()


class _FixedMode(_GradMode):
    """A mode that is either on or off: ``records``."""

    __slots__ = ()
    records: bool

    def __init__(self, f: object = None) -> None:
        super().__init__(self.records)


class _FixedModeOrFunction(_FixedMode):
    """`_FixedMode`, or a function in it: type checkers go by ``__new__`` where a base has ``__init__``."""

    __slots__ = ()

    @overload
    def __new__(cls, f: None = None) -> Self: ...
    @overload
    def __new__(cls, f: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, f: Any = None) -> Any:
        return super().__new__(cls) if f is None else cls()(f)


class no_grad(_FixedModeOrFunction):
    """Stop recording on every level that exists here. Tangents of forward mode go on.

    A context manager, and a decorator for functions and generators.
    Source: ``torch.no_grad`` and torch.func's rules for it, see NOTE [grad mode].

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """

    __slots__ = ()
    records = False


class enable_grad(_FixedModeOrFunction):
    """Record again inside ``no_grad``. Context manager and decorator, as ``torch.enable_grad``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.no_grad():
    ...     with fad.enable_grad():
    ...         (x * x).requires_grad
    True
    """

    __slots__ = ()
    records = True


class set_grad_enabled(_GradMode):
    """Switch recording by a bool: at once, and until the ``with`` block ends if used as one.

    Arguments:
        mode: whether to record.

    Raises:
        ArgumentError: ``mode`` is not a bool.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.set_grad_enabled(False):
    ...     (x * x).requires_grad
    False
    """

    __slots__ = ()

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, (bool, np.bool_)):
            raise ArgumentError(f"set_grad_enabled: mode must be a bool, got {describe(mode)}")
        super().__init__(bool(mode))
        super().__enter__()

    def __enter__(self) -> Self:
        return self

    def __call__(self, f: F) -> F:
        super().__exit__(None, None, None)
        return super().__call__(f)


class _InferenceMode(_GradMode):
    """`inference_mode` without its ``__new__``, for the reason that `_FixedMode` gives."""

    __slots__ = ("_outside",)

    def __init__(self, mode: bool | Callable[..., Any] = True) -> None:
        super().__init__(not mode)
        self._outside: list[Any] = []

    def __enter__(self) -> Self:
        self._saved.append(state.watermark)
        self._outside.append((state.base_watermark, state.inference))
        if not self.enabled:
            if state.inference is None:
                state.inference = state.base_watermark
            # Levels up to `base_watermark` never record here, with enable_grad neither; `watermark` is a new
            # id above them, so that the two differ and is_grad_enabled gives False.
            state.base_watermark = last_level_id()
            state.watermark = Level().id
        else:
            if state.inference is not None:
                state.base_watermark, state.inference = state.inference, None
            state.watermark = state.base_watermark
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        state.base_watermark, state.inference = self._outside.pop()

    def _again(self) -> _GradMode:
        return inference_mode(not self.enabled)


class inference_mode(_InferenceMode):
    """No recording, for good: Tensors made here cannot be part of what autograd saves later.

    Arguments:
        mode: False switches the mode off, inside of a block that switched it on, and switches
            recording on.

    Forward mode stops too: results have no tangents. A transform inside of the block differentiates.
    Context manager and decorator. Source: ``torch.inference_mode``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.inference_mode():
    ...     y = x * x
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    __slots__ = ()

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, mode: Any = True) -> Any:
        return cls()(mode) if callable(mode) else super().__new__(cls)
