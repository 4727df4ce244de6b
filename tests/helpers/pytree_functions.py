"""Functions of parameters in a pytree, to a scalar and to a pytree, for fad and for JAX."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp

import fad.numpy as fnp

W = jnp.array([[0.5, -1.0, 0.2], [1.5, 0.7, -0.4]])
PARAMS = {"w": W, "b": (jnp.array([0.1, -0.2]), jnp.float32(0.3))}


def loss(xp: Any, params: Any, x: Any, scale: Any = 1.0) -> Any:
    """A scalar of parameters in a pytree."""
    b, c = params["b"]
    return xp.sum(xp.tanh(params["w"] @ x + b) * scale) + c * xp.sum(x * x)


def layer(xp: Any, params: Any, x: Any) -> Any:
    """Outputs in a pytree."""
    b, c = params["b"]
    hidden = xp.tanh(params["w"] @ x + b)
    return {"hidden": hidden, "norm": (c * xp.sum(x * x),)}


f_loss, j_loss = functools.partial(loss, fnp), functools.partial(loss, jnp)
f_layer, j_layer = functools.partial(layer, fnp), functools.partial(layer, jnp)
