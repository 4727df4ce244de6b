"""``linear_call``: for JAX, a function that is linear in its second argument, and its transpose.

NOTE [a product and its transpose]

    class Product:
        def __call__(self, point, vector):
            return [jax.pure_callback(lambda p, v: p * v, vector[0], point[0], vector[0])]
        transposed = property(lambda self: self)

    matvec = lambda v: fad.extend.linear_call(Product(), [jnp.float32(2.0)], [v])[0]
    solve = lambda matvec, b: b / 2.0
    assert jax.grad(lambda b: jax.lax.custom_linear_solve(matvec, b, solve, solve))(1.0) == 0.5

JAX's ``custom_linear_solve`` transposes the function that it is given, whether that is used or not, by its
program. But a product with a Jacobian may be computed by a rule of the user's, which may have no transpose:
here it calls the host. And none is needed where the other product is known: the transpose of a pullback is
the pushforward, and the other way round. So a product is one primitive of JAX, whose transpose is the other
product. Each is traced where it is used.
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
from fad.core.jaxprs import lanes_first, where_batched
from fad.core.types import Array, PyTree, Value

Leaves = Sequence[Array]


class Product(Protocol):
    """A hashable function of (point, vector), linear in the vector alone; both in leaves.

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


def linear_call(product: Product, point: Leaves, vector: Leaves) -> list[Value]:
    """``product(point, vector)``, a function that is linear in the vector, with a transpose of its own.

    It is for code of JAX, in every transform of JAX. Under ``vmap`` the product is mapped; in the point it is
    differentiated by its code; see NOTE [a product and its transpose].

    Arguments:
        product: a hashable function of two lists of arrays, which returns a list with the shapes and dtypes
            of the vector. Its attribute ``transposed`` is the transposed one, whose own is this one.
        point: arrays.
        vector: arrays.

    Returns:
        A list of arrays like the vector.

    Source: ``jax.custom_derivatives.linear_call``, which has no rule for ``vmap`` and no derivative in the
    point.

    >>> import dataclasses, fad, jax
    >>> from fad import extend
    >>> @dataclasses.dataclass(frozen=True)
    ... class Product:
    ...     of_transpose: bool = False
    ...     def __call__(self, point, vector):
    ...         matrix = point[0].T if self.of_transpose else point[0]
    ...         return [matrix @ vector[0]]
    ...     @property
    ...     def transposed(self):
    ...         return Product(not self.of_transpose)
    >>> a, v = jax.numpy.array([[1.0, 2.0], [0.0, 1.0]]), jax.numpy.ones(2)
    >>> f = lambda v: extend.linear_call(Product(), [a], [v])[0]
    >>> f(v).tolist(), jax.vjp(f, v)[1](v)[0].tolist()
    ([3.0, 1.0], [1.0, 3.0])
    """
    operands = varying_alike([*point, *vector])
    return list(product_p.bind(*operands, product=product, count=len(point)))


def _run(*values: Array, product: Product, count: int) -> list[Value]:
    return list(product(values[:count], values[count:]))


def _jvp(
    primals: Sequence[Array], tangents: Sequence[PyTree], *, product: Product, count: int
) -> tuple[list[Value], list[PyTree]]:
    point, vector = primals[:count], primals[count:]
    outs = linear_call(product, point, vector)
    terms = []
    with_tangent = [k for k in range(count) if not isinstance(tangents[k], Zero)]
    if with_tangent:

        def of_differentiable(*values: Array) -> list[Value]:
            new = dict(zip(with_tangent, values, strict=True))
            return list(product([new.get(k, p) for k, p in enumerate(point)], vector))

        directions = [tangents[k] for k in with_tangent]
        terms.append(jax.jvp(of_differentiable, [point[k] for k in with_tangent], directions)[1])
    if not all([isinstance(t, Zero) for t in tangents[count:]]):
        terms.append(linear_call(product, point, list(map(instantiate_zeros, tangents[count:]))))
    return outs, [sum(ts[1:], ts[0]) for ts in zip(*terms, strict=True)]


def _transpose(
    cotangents: Sequence[PyTree], *operands: PyTree, product: Product, count: int
) -> list[PyTree]:
    vector = list(map(instantiate_zeros, cotangents))
    return [None] * count + linear_call(product.transposed, operands[:count], vector)


def _batch(
    axis_data: PyTree,
    values: Sequence[Array],
    dims: Sequence[int | None],
    *,
    product: Product,
    count: int,
) -> tuple[list[Value], Sequence[int | None]]:
    vector = [lanes_first(v, d, axis_data.size) for v, d in zip(values[count:], dims[count:])]
    lanes = _OfLanes(product, tuple(dims[:count]))
    return linear_call(lanes, values[:count], vector), [0] * len(vector)


product_p = new_primitive("fad_product", expensive=True)
define_primitive(
    product_p,
    _run,
    lambda *avals, product, count: [a.to_tangent_aval() for a in avals[count:]],
    jvp=_jvp,
    transpose=_transpose,
    batch=where_batched(product_p, _batch),
)
