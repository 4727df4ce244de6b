"""Between fad and JAX: ``from_jax``, ``to_jax``, ``jit``."""

from __future__ import annotations

import collections
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fad import trees
from fad.dispatch import bind, outlived, state
from fad.errors import GradientError, LevelError, describe
from fad.levels import BatchLevel
from fad.primitive import Primitive, aval_key
from fad.staging import StagedLevel, in_body, stage
from fad.tape.record import ROOT
from fad.tensor import Tensor
from fad.transforms.boundary import (
    check_written,
    enter,
    has_tensor,
    leave,
    was_written,
    write_back,
)
from fad.views import snapshot

__all__ = ["from_jax", "jit", "to_jax"]

_CACHED = 256


class _Cache:
    """A bounded table, oldest entry out, safe between threads."""

    __slots__ = ("entries", "lock")

    def __init__(self) -> None:
        self.entries: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self.lock:
            found = self.entries.get(key)
            if found is not None:
                self.entries.move_to_end(key)
            return found

    def put(self, key: Any, value: Any) -> Any:
        with self.lock:
            self.entries[key] = value
            if len(self.entries) > _CACHED:
                self.entries.popitem(last=False)
        return value


class _Arguments:
    """Which arguments of a function are static, by position or by name."""

    __slots__ = ("names", "nums", "signature", "who")

    def __init__(
        self,
        f: Callable[..., Any],
        who: str,
        static_argnums: int | Sequence[int] | None,
        static_argnames: str | Sequence[str] | None,
    ) -> None:
        if not callable(f):
            raise TypeError(f"{who}: the first argument must be a function, got {describe(f)}")
        self.who = who
        nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums or ())
        names = (
            (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames or ())
        )
        try:
            parameters = list(inspect.signature(f).parameters)
        except (TypeError, ValueError):
            parameters = []
        self.nums = {n + len(parameters) if n < 0 else n for n in nums}
        self.nums |= {parameters.index(n) for n in names if n in parameters}
        self.names = set(names) | {parameters[n] for n in self.nums if n < len(parameters)}

    def split(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[Any], tuple[Any, ...], Callable[[Sequence[Any]], tuple[Any, Any]]]:
        """Array leaves, a key for everything else, and how to put arrays back in place."""
        marked = [_Fixed(a) if i in self.nums else a for i, a in enumerate(args)]
        named = {k: _Fixed(v) if k in self.names else v for k, v in kwargs.items()}
        leaves, structure = trees.flatten((tuple(marked), named))
        dynamic = [isinstance(x, _ARRAYS) for x in leaves]
        rest = [None if d else x for x, d in zip(leaves, dynamic, strict=True)]
        key = (structure, tuple(dynamic), tuple([self._hashable(x) for x in rest]))

        def join(arrays: Sequence[Any]) -> tuple[Any, Any]:
            it = iter(arrays)
            full = [next(it) if d else r for d, r in zip(dynamic, rest, strict=True)]
            full = [x.value if isinstance(x, _Fixed) else x for x in full]
            joined: tuple[Any, Any] = trees.unflatten(structure, full)
            return joined

        return [outlived(x) for x, d in zip(leaves, dynamic, strict=True) if d], key, join

    def _hashable(self, x: Any) -> Any:
        value = x.value if isinstance(x, _Fixed) else x
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{self.who}: a static argument must be hashable, got {describe(value)}. Pass it as "
                "arrays, as a tuple, or as an object with __hash__ and __eq__."
            ) from None
        return (type(value), value)


class _Fixed:
    """Keeps a static argument from being taken for a pytree."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_ARRAYS = (Tensor, jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def from_jax(
    f: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """A JAX function as a fad function: one Primitive, one compiled call, under every transform.

    Arguments:
        f: a pure function of pytrees of JAX arrays: plain ``jax.numpy`` code, a flax ``apply``, a
            loss from optax. Functions (``F.apply``) in it keep their rules.
        static_argnums, static_argnames: arguments that are not traced, as in ``jax.jit``. What is
            neither an array nor a number is static without being named.

    Returns:
        A function that takes Tensors and arrays; Tensors come out if one goes in.

    Raises:
        TypeError: a static argument is not hashable.

    >>> import fad, jax.numpy as jnp
    >>> f = fad.from_jax(lambda x: jnp.sin(x) ** 2)
    >>> float(fad.grad(f)(fad.tensor(0.0)))
    0.0
    """
    arguments = _Arguments(f, "from_jax", static_argnums, static_argnames)
    primitives = _Cache()
    name = getattr(f, "__name__", type(f).__name__)

    @functools.wraps(f, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, key, join = arguments.split(args, kwargs)
        primitive = primitives.get(key)
        if primitive is None:

            def fn(*arrays: Any) -> Any:
                inside, inside_kwargs = join(arrays)
                return f(*inside, **inside_kwargs)

            primitive = primitives.put(key, Primitive(name, fn))
        return primitive.unflatten(bind(primitive, leaves))

    return wrapped


def to_jax(f: Callable[..., Any]) -> Callable[..., Any]:
    """A fad function as a pure JAX function of arrays, for ``jax.jit``, ``jax.grad``, optax and so on.

    Arguments:
        f: a function of Tensors; it must not change anything outside of itself.

    Returns:
        A function that takes and returns pytrees of JAX arrays.

    Raises:
        LevelError: the result depends on a Tensor of a running fad transform that f closes over.

    >>> import fad, fad.numpy as fnp, jax
    >>> float(jax.jit(jax.grad(fad.to_jax(lambda x: x * fnp.cos(x))))(0.0))
    1.0
    """
    if not callable(f):
        raise TypeError(f"to_jax: the first argument must be a function, got {describe(f)}")

    @functools.wraps(f, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        inside, inside_kwargs = enter((args, kwargs))
        return trees.map_leaves(_bare, leave(f(*inside, **inside_kwargs), False))

    return wrapped


def _bare(x: Any) -> Any:
    if isinstance(x, Tensor):
        raise LevelError(
            f"to_jax: the result {describe(x)} belongs to {x.level!r} or to the eager graph, so as an "
            "array it would lose its derivative: pass the Tensor that the function closes over as an "
            "argument, or use stop_gradient on it"
        )
    return x


def jit(
    f: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """``f`` compiled by XLA: traced once for each combination of structures, shapes and dtypes.

    Transforms may stand inside of ``f`` and around the result; ``fad.grad(fad.jit(f))`` runs a
    compiled forward and a compiled backward call.

    Arguments:
        f: a fad function of pytrees of Tensors, without side effects but this one: Tensors among
            its arguments may be changed in place, and are so for the caller after the call.
        static_argnums, static_argnames: arguments that are not traced; each new value compiles
            again. What is neither an array nor a number is static without being named.

    Returns:
        A function that takes Tensors and arrays; Tensors come out if one goes in.

    Raises:
        GradientError: f closes over a Tensor that is tracked outside: pass it as an argument.
        TypeError: a static argument is not hashable.

    Source: ``jax.jit``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.jit(fad.grad(fnp.sin))(0.0))
    1.0
    """
    arguments = _Arguments(f, "jit", static_argnums, static_argnames)
    entries = _Cache()

    @functools.wraps(f, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves, key, join = arguments.split(args, kwargs)
        names = tuple(
            [
                (level.axis_name, level.batch_size)
                for level in state.levels
                if isinstance(level, BatchLevel) and level.axis_name is not None
            ]
        )
        key = (key, aval_key(leaves), names)
        entry = entries.get(key)
        if entry is None:
            written: list[int] = []

            def body(*inside: Any, **inside_kwargs: Any) -> Any:
                handles = [
                    x for x in trees.flatten((inside, inside_kwargs))[0] if isinstance(x, Tensor)
                ]
                out = f(*inside, **inside_kwargs)
                written[:] = [k for k, x in enumerate(handles) if was_written(x)]
                return out, [handles[k] for k in written]

            def run(level: StagedLevel, *tracers: Any) -> Any:
                inside, inside_kwargs = join(tracers)
                return in_body(level, body)(*inside, **inside_kwargs)

            run.name = getattr(f, "__name__", "jit")  # type: ignore[attr-defined]
            primitive, values, structure = stage(run, leaves)
            fixed = values[: len(values) - len(leaves)]
            for x in fixed:
                _check_capture(x)
            fixed = [x.value if isinstance(x, Tensor) else x for x in fixed]
            entry = entries.put(key, (primitive, fixed, structure, tuple(written)))
        primitive, fixed, structure, changed = entry
        if changed:
            check_written(leaves, changed, "jit")
        values = leaves
        if changed:  # what is saved of them is what they were
            values = [
                snapshot(x) if k in changed and isinstance(x, Tensor) else x
                for k, x in enumerate(leaves)
            ]
        out = bind(primitive, [*fixed, *values])
        tensors = has_tensor(leaves)
        result, new = trees.unflatten(structure, list(out) if type(out) is tuple else [out])
        write_back([leaves[k] for k in changed], new, "jit")
        return leave(result, tensors)

    return compiled


def _check_capture(x: Any) -> None:
    if isinstance(x, Tensor) and (x.level is not ROOT or x.requires_grad):
        where = "the eager graph" if x.level is ROOT else repr(x.level)
        raise GradientError(
            f"jit: the compiled function closes over a Tensor ({describe(x)}) that is tracked by "
            f"{where}. Compiled code outlives this call, so it cannot hold on to it: pass the Tensor "
            "as an argument, or use stop_gradient on it."
        )
