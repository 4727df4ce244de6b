"""Steps of random programs: what they run, which operands they accept, and tables of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Aval", "Op", "Table"]

Aval = jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Op:
    """One kind of step: ``run(lib, *operands, **options)``, for operands that ``accepts`` allows.

    ``kind`` is "pure", "view" (its result aliases its operand: ``put`` writes a new value of the view
    into the value that it is a view of) or "write" (it changes its first operand, whose new value is
    ``put(lib, *operands)``). ``aliases``: a library may return a view where another returns a copy.
    """

    name: str
    run: Callable[..., Any]
    arity: int
    accepts: Callable[..., bool]
    options: tuple[dict[str, Any], ...] = ({},)
    differentiable: bool = True
    kind: str = "pure"
    put: Callable[..., Any] | None = None
    aliases: bool = False


_ALIASING = frozenset(
    "astype clip real imag conj einsum ravel reshape transpose expand_dims broadcast_to getitem "
    "getitem_last cond roll pad".split()
)


class Table(dict[str, Op]):
    """Steps by their names."""

    def add(
        self,
        arity: int,
        accepts: Callable[..., bool],
        options: Sequence[dict[str, Any]] = ({},),
        differentiable: bool = True,
        kind: str = "pure",
        put: Callable[..., Any] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that adds a step under the name of the function."""

        def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
            name = run.__name__ if kind == "write" else run.__name__.strip("_")
            self[name] = Op(
                name, run, arity, accepts, tuple(options), differentiable, kind, put,
                name in _ALIASING,
            )  # fmt: skip
            return run

        return decorate


def is_real(*avals: Aval) -> bool:
    """Whether all are floating."""
    return all(jnp.issubdtype(a.dtype, np.floating) for a in avals)


def is_inexact(*avals: Aval) -> bool:
    """Whether all are floating or complex."""
    return all(jnp.issubdtype(a.dtype, np.inexact) for a in avals)


def is_complex(*avals: Aval) -> bool:
    """Whether all are complex."""
    return all(jnp.issubdtype(a.dtype, np.complexfloating) for a in avals)


def is_number(*avals: Aval) -> bool:
    """Whether none is bool."""
    return all(a.dtype != bool for a in avals)


def is_bool(*avals: Aval) -> bool:
    """Whether all are bool."""
    return all(a.dtype == bool for a in avals)


def is_wide(*avals: Aval) -> bool:
    """Real, and of a precision that LAPACK has."""
    return all(a.dtype in (np.float32, np.float64) for a in avals)


def broadcasts(*avals: Aval) -> bool:
    """Whether they have a common shape of at most three dimensions."""
    try:
        return len(np.broadcast_shapes(*[a.shape for a in avals])) <= 3
    except ValueError:
        return False


def real_pair(a: Aval, b: Aval) -> bool:
    """Two floating operands that broadcast."""
    return is_real(a, b) and broadcasts(a, b)


def number_pair(a: Aval, b: Aval) -> bool:
    """Two operands that broadcast, one of them with a derivative."""
    return is_number(a, b) and broadcasts(a, b) and is_inexact(a) | is_inexact(b)


def array(kind: Callable[..., bool], *ndims: int) -> Callable[..., bool]:
    """Operands of a kind, with these numbers of dimensions."""
    return lambda *avals: kind(*avals) and all(a.ndim in ndims for a in avals)


def square(*avals: Aval) -> bool:
    """Square matrices of a precision that LAPACK has."""
    return all(is_wide(a) and a.ndim == 2 and a.shape[0] == a.shape[1] for a in avals)


def same_shape(x: Aval, y: Aval) -> bool:
    """Two operands of one shape and dtype, as the Functions need them."""
    return is_wide(x, y) and x.shape == y.shape and x.dtype == y.dtype
