"""Hand-written rules of a Primitive, in the forms that JAX has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.tree_util import PyTreeDef

from fad.core.types import Array, ArrayFunction, Outputs


@dataclass(frozen=True, slots=True)
class Rules:
    """Hand-written rules of a Primitive, where they are better than the derived ones.

    They are JAX functions of flat values in JAX's conventions. They have the same results as the
    derived rules; a rule that is None is derived.

    ``structures``: pytree structures of the outputs, by the number of leaves; rules add theirs here.
    ``jvp``: ``jvp(primals, tangents)`` returns outputs and tangents, as for ``jax.custom_jvp``.
    ``vjp``: a pair of functions, as for ``jax.custom_vjp``: from inputs to (outputs, residuals), and
    from residuals and cotangents to one cotangent for each input.
    ``batch``: ``batch(size, dims, *values)`` returns the outputs and the batch dimension of each.
    """

    structures: dict[int, PyTreeDef]
    jvp: ArrayFunction | None = None
    vjp: tuple[ArrayFunction, ArrayFunction] | None = None
    batch: ArrayFunction | None = None

    def to_jvp(self, flat: ArrayFunction) -> ArrayFunction:
        """The function to pass to `jax.jvp` in place of ``flat``: with the hand-written jvp, if there
        is one.
        """
        if self.jvp is None:
            return flat
        made = jax.custom_jvp(flat)
        made.defjvp(self.jvp)
        return made

    def to_vjp(self, flat: ArrayFunction) -> ArrayFunction:
        """The function to pass to `jax.vjp` in place of ``flat``: with the hand-written rule, if there
        is one.
        """
        if self.vjp is None:
            return self.to_jvp(flat)
        made = jax.custom_vjp(flat)
        made.defvjp(*self.vjp)
        return made

    def batched(self, size: int, dims: Sequence[int | None]) -> ArrayFunction | None:
        """The hand-written ``batch`` rule as a function that has the batch in dimension 0 of each output;
        None if there is none.
        """
        rule = self.batch
        if rule is None:
            return None

        def lead(x: Array, dim: int | None) -> Array:
            if dim is None:
                return jnp.broadcast_to(x, (size, *x.shape))
            return jnp.moveaxis(x, dim, 0)

        def run(*values: Array) -> Outputs:
            out, out_dims = rule(size, dims, *values)
            if type(out) is not tuple:
                return lead(out, out_dims)
            return tuple([lead(o, d) for o, d in zip(out, out_dims, strict=True)])

        return run
