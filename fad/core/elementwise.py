"""Functions whose results have an element for each element of their operands, broadcast, and of no other."""

from __future__ import annotations

import functools

import jax
import numpy as np

from fad.core.jaxapi import called, parameters
from fad.core.jaxprs import inner_jaxprs, trace
from fad.core.types import ArrayFunction, JaxBody, JaxEquation

# Primitives of JAX.
ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt
    ceil clamp complex conj convert_element_type copy copy_p cos cosh device_put digamma div eq erf
    erf_inv erfc exp exp2 expm1 fad_unrecorded floor ge gt igamma igammac imag integer_pow is_finite le
    lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma polynomial pow pvary real
    reduce_precision rem round rsqrt sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta""".split()
)


@functools.lru_cache(maxsize=1024)
def is_elementwise(flat: ArrayFunction, avals: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    """Whether ``flat`` works element by element, as far as its program shows."""
    closed, _ = trace(flat, avals)
    shape = np.broadcast_shapes(*[a.shape for a in avals])
    shapes = all([a.shape == shape for a in closed.out_avals])
    return shapes and not any(map(np.ndim, closed.consts)) and _all(closed.jaxpr)


def _all(jaxpr: JaxBody) -> bool:
    return all(map(is_elementwise_equation, jaxpr.eqns))


def is_elementwise_equation(eqn: JaxEquation) -> bool:
    """Whether an equation works element by element, broadcast as NumPy does.

    >>> import fad, jax, jax.numpy as jnp
    >>> program = jax.make_jaxpr(lambda x: (x * x).sum())(jnp.ones(3))
    >>> [fad.extend.is_elementwise(eqn) for eqn in program.eqns]
    [True, False]
    """
    name = eqn.primitive.name
    if name in ELEMENTWISE or name == "select_n":
        return True
    if name in ("broadcast_in_dim", "expand_dims", "reshape"):  # as NumPy broadcasts: in front
        shape, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        if name == "broadcast_in_dim":
            last = tuple(range(len(out) - len(shape), len(out)))
            return bool(parameters(eqn)[1] == last)
        return bool(out == (1,) * (len(out) - len(shape)) + shape)
    if called(eqn) is None and name not in ("custom_jvp_call", "custom_vjp_call"):
        return False
    return all(map(_all, inner_jaxprs(eqn)))
