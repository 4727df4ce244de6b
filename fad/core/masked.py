"""``jax.jvp`` and ``jax.vjp`` of a function in some of its arguments.

A *mask* is a tuple of bools, one for each argument: whether the function is differentiated in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import jaxapi
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import shaped_array
from fad.core.types import Array, ArrayFunction, Outputs

T = TypeVar("T")


def conjugate(x: Any) -> Array:
    """Complex conjugate; real values pass untouched."""
    return jnp.conj(x) if jnp.issubdtype(x.dtype, np.complexfloating) else x


def select(mask: Sequence[bool], values: Sequence[T]) -> list[T]:
    """The masked values."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def spread(
    mask: Sequence[bool], some: Iterable[Any], others: Sequence[Any] | None = None
) -> list[Any]:
    """``others``, or None for each, with ``some`` in the masked places."""
    it = iter(some)
    rest = [None] * len(mask) if others is None else others
    return [next(it) if m else o for m, o in zip(mask, rest, strict=True)]


def active(
    f: Callable[..., Outputs], mask: Sequence[bool], values: Sequence[T]
) -> tuple[Callable[..., Outputs], list[T]]:
    """``f`` as a function of its masked arguments, and these; the others are fixed."""

    return lambda *given: f(*spread(mask, given, values)), select(mask, values)


def jvp_in(
    mask: tuple[bool, ...],
    flat: ArrayFunction,
    values: Sequence[Array],
    tangents: Sequence[Array],
) -> tuple[Outputs, Outputs]:
    """The outputs, and their tangents for the tangents of the masked arguments."""
    on_active, primals = active(flat, mask, values)
    cast = [
        t if t.dtype == p.dtype else t.astype(p.dtype)
        for p, t in zip(primals, tangents, strict=True)
    ]
    out, out_t = jax.jvp(on_active, primals, cast)
    return out, out_t


def vjp_in(
    mask: tuple[bool, ...], flat: ArrayFunction, values: Sequence[Array]
) -> tuple[Outputs, ArrayFunction]:
    """The outputs, and the pullback from their cotangents to those of the masked arguments."""
    on_active, primals = active(flat, mask, values)
    out, pullback = jax.vjp(on_active, *primals)
    return out, pullback


def run_pullback(
    pullback: ArrayFunction,
    out: Outputs,
    cotangents: Sequence[Array | None],
    given: tuple[bool, ...] | None,
    need: tuple[bool, ...],
    sparse: bool = False,
) -> tuple[Array, ...]:
    """Run a JAX pullback with PyTorch's convention for complex values.

    Arguments:
        out: the outputs or their avals.
        cotangents: those of the outputs that have one.
        given: which outputs have a cotangent; None: the function has one output, which has one.
        need: which of the gradients to return.
        sparse: the pullback accepts symbolic zeros. They are used for missing cotangents, so that
            nothing is computed from these (an array of zeros times infinity would be NaN).
    """
    outs = out if type(out) is tuple else (out,)
    if given is None:
        given = (True,) * len(outs)
    cts = spread(given, cotangents)
    for k, (o, ct) in enumerate(zip(outs, cts, strict=True)):
        if not is_inexact(o.dtype):
            ct = np.zeros(o.shape, jaxapi.float0)
        elif ct is None:
            aval = o if isinstance(o, shaped_array) else jax.typeof(o)
            ct = jaxapi.Zero(aval.to_ct_aval()) if sparse else jaxapi.zeros(aval)
        else:
            ct = conjugate(ct if ct.dtype == o.dtype else ct.astype(o.dtype))
        cts[k] = ct
    grads = pullback(tuple(cts) if type(out) is tuple else cts[0])
    return tuple(map(conjugate, select(need, grads)))
