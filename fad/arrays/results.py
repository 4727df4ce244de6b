"""What the functions of a namespace return: Tensors, or JAX arrays.

NOTE [what makes a Tensor]

A function has one of three roles, by the tables of `fad.arrays.special_cases`:

``TENSORS``: it makes an array from a shape, numbers, lists or a random key (``zeros``, ``array``,
``zeros_like``, a draw). Its results are Tensors, whatever it is given: they can be written to.
``FOLLOWS``: all others. A Tensor or a NumPy array among the arguments gives Tensors; JAX arrays alone,
and Python numbers alone, give JAX arrays.
``KEYS``: it handles random keys. Its results are JAX arrays, unless an argument is a Tensor.

The role is applied at the edge. A function that makes arrays has it around its call. NumPy arrays are
seen in the types of the arguments, by which `fad.arrays.operations` finds the Primitive anyway: calls with
them do not take the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from fad.arrays.arguments import NUMPY_TYPES
from fad.arrays.lists import Args, Kwargs
from fad.core import trees
from fad.core.level import state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import ArrayFunction, PyTree
from fad.errors import ArgumentError, describe
from fad.tape.grad_mode import mark_inference
from fad.tape.recorder import ROOT
from fad.views.aliases import snapshot
from fad.views.inplace import write
from fad.views.make_view import shares

FOLLOWS, TENSORS, KEYS = range(3)


def _as_tensor(x: object) -> object:
    if not isinstance(x, jax.Array):
        return x
    t = new_tensor(x, ROOT)
    return t if state.inference is None else mark_inference(t)


def as_tensors(out: PyTree) -> PyTree:
    """A result with its JAX arrays as Tensors of level 0."""
    if isinstance(out, (Tensor, jax.Array)):
        return _as_tensor(out)
    return trees.map_leaves(_as_tensor, out)


def making_tensors(function: ArrayFunction) -> Callable[..., PyTree]:
    """``function``, with Tensors as results."""

    def made(*args: PyTree, **kwargs: PyTree) -> PyTree:
        return as_tensors(function(*args, **kwargs))

    return made


def numpy_alone(values: Sequence[object]) -> bool:
    """Whether there is a NumPy array and no Tensor among ``values``."""
    types = set(map(type, values))
    return not NUMPY_TYPES.isdisjoint(types) and Tensor not in types


# ``out=``


def write_out(who: str, out: PyTree, result: PyTree) -> PyTree:
    """Write a result into the Tensor that was given as ``out=``."""
    if not isinstance(out, Tensor):
        raise ArgumentError(
            f"{who}: out must be a Tensor, which can be changed, got {describe(out)}"
        )
    if type(result) in (tuple, list):
        raise ArgumentError(f"{who}: out= is for functions with one result")
    if jnp.shape(result) != out.shape:
        raise ArgumentError(
            f"{who}: out has shape {out.shape}, but the result has shape {jnp.shape(result)}"
        )
    return write(OUT, [out, result])


def snapshots(out: PyTree, args: Args, kwargs: Kwargs) -> tuple[PyTree, PyTree]:
    """Arguments that share memory with ``out``, as snapshots, which a graph may save."""

    def one(a: object) -> PyTree:
        return snapshot(a) if isinstance(a, Tensor) and shares(a, out) else a

    return tuple([one(a) for a in args]), {k: one(v) for k, v in kwargs.items()}


OUT = Primitive("out", lambda _, result: jnp.asarray(result))
