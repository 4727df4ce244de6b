"""Products with the derivative of an equation in its unknowns, and with its transpose.

NOTE [products that are each other's transposes]

The linear systems of an equation have the matrix ∂residual/∂x or its transpose. JAX's ``custom_linear_solve``
transposes the one that it gets, whether it is used or not, and JAX would transpose the
program of the product. But that of a pullback is a vjp rule of the user's, which may have no transpose: it
may call the host, as those of `fad.from_torch` do. And none is needed: the transpose of a pullback is the
pushforward, and the other way round. So a product is one JAX primitive, whose transpose is the other product.
Each is traced where it is used; a gradient uses the vjp rules of what is in the equation, no others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import jax

from fad.core.jaxapi import (
    Zero,
    define_primitive,
    instantiate_zeros,
    new_primitive,
    varying_alike,
)
from fad.extend.types import Array, PyTree, Value
from fad.implicit.systems import Leaves, Map


class Product(Protocol):
    """A hashable function of (point, vector), of which only the vector is linear; both in leaves.

    The result has the shapes and dtypes of the vector.
    """

    def __call__(self, point: Leaves, vector: Leaves) -> Leaves: ...

    @property
    def transposed(self) -> Product: ...


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class _OfLanes:
    """A product under vmap: lanes are along dimension 0 of the vector, and along ``dims`` of the point."""

    product: Product
    dims: tuple[int | None, ...]

    def __call__(self, point: Leaves, vector: Leaves) -> Leaves:
        return list(jax.vmap(self.product, (list(self.dims), 0))(list(point), list(vector)))

    @property
    def transposed(self) -> _OfLanes:
        return _OfLanes(self.product.transposed, self.dims)


def multiply(product: Product, point: Leaves) -> Map:
    """The product at a point, as a function of the vector."""

    def matvec(vector: Leaves) -> list[Value]:
        operands = varying_alike([*point, *vector])
        return list(product_p.bind(*operands, product=product, count=len(point)))

    return matvec


def _run(*values: Array, product: Product, count: int) -> list[Value]:
    return list(product(values[:count], values[count:]))


def _jvp(
    primals: Sequence[Array], tangents: Sequence[PyTree], *, product: Product, count: int
) -> tuple[list[Value], list[PyTree]]:
    point, vector = primals[:count], primals[count:]
    outs = multiply(product, point)(vector)
    terms = []
    with_tangent = [k for k in range(count) if not isinstance(tangents[k], Zero)]
    if with_tangent:

        def of_differentiable(*given: Array) -> list[Value]:
            new = dict(zip(with_tangent, given, strict=True))
            return list(product([new.get(k, p) for k, p in enumerate(point)], vector))

        directions = [tangents[k] for k in with_tangent]
        terms.append(jax.jvp(of_differentiable, [point[k] for k in with_tangent], directions)[1])
    if not all([isinstance(t, Zero) for t in tangents[count:]]):
        given = [instantiate_zeros(t) for t in tangents[count:]]
        terms.append(multiply(product, point)(given))
    return outs, [sum(ts[1:], ts[0]) for ts in zip(*terms, strict=True)]


def _transpose(
    cotangents: Sequence[PyTree], *operands: PyTree, product: Product, count: int
) -> list[PyTree]:
    given = [instantiate_zeros(c) for c in cotangents]
    return [None] * count + multiply(product.transposed, operands[:count])(given)


def _batch(
    axis_data: PyTree,
    values: Sequence[Array],
    dims: Sequence[int | None],
    *,
    product: Product,
    count: int,
) -> tuple[list[Value], Sequence[int | None]]:
    if all([d is None for d in dims]):
        outs = multiply(product, values[:count])(values[count:])
        return outs, [None] * len(outs)
    vector = [
        jax.numpy.broadcast_to(v, (axis_data.size, *v.shape))
        if d is None
        else jax.numpy.moveaxis(v, d, 0)
        for v, d in zip(values[count:], dims[count:], strict=True)
    ]
    lanes = _OfLanes(product, tuple(dims[:count]))
    return multiply(lanes, values[:count])(vector), [0] * len(vector)


product_p = new_primitive("fad_product", expensive=True)
define_primitive(
    product_p,
    _run,
    lambda *avals, product, count: [a.to_tangent_aval() for a in avals[count:]],
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)
