"""``check_operation``: the hand-written rules of an operation against those derived from its function."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import jvp, vjp, vmap
from fad.errors import FadError
from fad.extend import operation
from fad.testing.comparison import bare, difference
from fad.testing.finite_differences import random_like


class OperationError(FadError, AssertionError):
    """A hand-written rule of an operation gives something else than the derived one.

    >>> import fad, jax.numpy as jnp
    >>> slope = lambda primals, tangents: (primals[0] ** 2, 3.0 * primals[0] * tangents[0])
    >>> square = fad.extend.operation(lambda x: x**2, jvp=slope)
    >>> fad.testing.check_operation(square, jnp.float32(2.0))
    Traceback (most recent call last):
    fad.testing.OperationError: <lambda> under jvp
    """


def check_operation(
    op: Callable[..., Any],
    *args: Any,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    seed: int = 0,
    **static: Any,
) -> None:
    """Compare an operation with the same one without hand-written rules.

    Forward and reverse mode, in all and in each of the arguments; batches along the first and the last
    dimension, in all and in each of the arguments; derivatives of batches, and batches of derivatives.

    Arguments:
        op: made by `fad.extend.operation`.
        args: its positional arguments, pytrees of arrays.
        rtol, atol: as `difference` has them.
        seed: of tangents, cotangents and batches.
        static: its keyword arguments.

    Raises:
        OperationError: a rule is wrong; the message says in which transform.
        TypeError: ``op`` is not an operation.

    >>> import fad, jax.numpy as jnp
    >>> @fad.extend.operation(jvp=lambda p, t: (p[0] ** 2, p[0] * t[0]))
    ... def square(x):
    ...     return x**2
    >>> check_operation(square, jnp.float32(3.0))
    Traceback (most recent call last):
    ...
    fad.testing.operation_checks.OperationError: square under jvp: [1]: 6.0, ...
    """
    if not hasattr(op, "primitives") or not hasattr(op, "__wrapped__"):
        raise TypeError(f"check_operation: not made by fad.extend.operation: {op!r}")
    plain = operation(op.__wrapped__)
    for name, run in _ways(args, np.random.default_rng(seed)):
        got, expected = (run(lambda *a, f=f: f(*a, **static)) for f in (op, plain))
        text = difference(got, expected, rtol, atol)
        if text is not None:
            called = getattr(op, "__name__", "an operation")
            raise OperationError(f"{called} under {name}: {text}")


def _ways(
    args: tuple[Any, ...], draw: np.random.Generator
) -> Iterator[tuple[str, Callable[[Callable[..., Any]], Any]]]:
    """Transforms of a function of the arguments, by name."""
    yield "no transform", lambda f: f(*args)
    differentiable = [
        k for k, a in enumerate(args) if all(map(_is_differentiable, jax.tree.leaves(bare(a))))
    ]
    for chosen in _choices(differentiable):
        yield f"jvp{_of(chosen, args)}", _jvp(args, chosen, draw)
        yield f"vjp{_of(chosen, args)}", _vjp(args, chosen, draw)
    for chosen, last in itertools.product(_choices(list(range(len(args)))), (False, True)):
        batched, dims = _batched(args, chosen, last, draw)
        where = "last" if last else "first"
        name = f"vmap over the {where} dimension{_of(chosen, args)}"
        over = functools.partial(vmap, in_dims=dims)
        yield name, _of_batches(over, None, batched)
        if differentiable:
            yield f"jvp of {name}", _of_batches(over, _jvp(batched, differentiable, draw), batched)
            yield f"vjp of {name}", _of_batches(over, _vjp(batched, differentiable, draw), batched)
            yield (
                f"{name} of vjp",
                _of_lanes(over, _vjp_of_lanes(args, differentiable, draw), batched),
            )


def _of_batches(
    over: Any, run: Any, batched: tuple[Any, ...]
) -> Callable[[Callable[..., Any]], Any]:
    return lambda f: over(f)(*batched) if run is None else run(over(f))


def _of_lanes(
    over: Any, lanes: Any, batched: tuple[Any, ...]
) -> Callable[[Callable[..., Any]], Any]:
    return lambda f: over(lanes(f))(*batched)


def _is_differentiable(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _choices(places: list[int]) -> list[list[int]]:
    """All of them together, and each alone."""
    alone = [[k] for k in places] if len(places) > 1 else []
    return [places, *alone] if places else []


def _of(chosen: list[int], args: tuple[Any, ...]) -> str:
    return "" if len(chosen) == len(args) else f" in argument {', '.join(map(str, chosen))}"


def _like(tree: Any, draw: np.random.Generator) -> Any:
    """Random values in the place of arrays."""
    return jax.tree.map(lambda x: jax.numpy.asarray(random_like(x, draw)), bare(tree))


def _in(f: Callable[..., Any], args: tuple[Any, ...], chosen: list[int]) -> Callable[..., Any]:
    """``f`` as a function of the chosen arguments."""

    def call(*values: Any) -> Any:
        full = list(args)
        for k, v in zip(chosen, values, strict=True):
            full[k] = v
        return f(*full)

    return call


def _jvp(args: tuple[Any, ...], chosen: list[int], draw: np.random.Generator) -> Any:
    tangents = tuple([_like(args[k], draw) for k in chosen])
    return lambda f: jvp(_in(f, args, chosen), tuple([args[k] for k in chosen]), tangents)


def _vjp(args: tuple[Any, ...], chosen: list[int], draw: np.random.Generator) -> Any:
    seed = int(draw.integers(1 << 30))

    def run(f: Callable[..., Any]) -> Any:
        out, pull = vjp(_in(f, args, chosen), *[args[k] for k in chosen])
        return pull(_cotangent(out, seed))

    return run


def _cotangent(out: Any, seed: int) -> Any:
    """A random cotangent; None for what has none."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda x: _like(x, draw) if _is_differentiable(x) else None, bare(out))


def _vjp_of_lanes(
    args: tuple[Any, ...], differentiable: list[int], draw: np.random.Generator
) -> Any:
    seed = int(draw.integers(1 << 30))

    def make(f: Callable[..., Any]) -> Callable[..., Any]:
        cotangent = _cotangent(f(*args), seed)

        def lane(*values: Any) -> Any:
            _, pull = vjp(_in(f, values, differentiable), *[values[k] for k in differentiable])
            return pull(cotangent)

        return lane

    return make


def _batched(
    args: tuple[Any, ...], chosen: list[int], last: bool, draw: np.random.Generator
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments, the chosen ones with three lanes, and where the lanes of each are."""
    full: list[Any] = []
    dims: list[Any] = []
    for k, a in enumerate(args):
        if k not in chosen:
            full.append(a)
            dims.append(None)
            continue

        def lanes(x: Any) -> Any:
            x = np.asarray(x)
            parts = [x]
            for _ in range(2):
                parts.append(np.asarray(_like(x, draw)) if _is_differentiable(x) else x)
            return jax.numpy.stack(parts, axis=-1 if last else 0)

        full.append(jax.tree.map(lanes, bare(a)))
        dims.append(-1 if last else 0)
    return tuple(full), tuple(dims)
