"""A tool: for JAX, products that have transposes of their own, and which derivatives are linear."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp

from fad.extend import native_primitive, varying_alike
from fad.extend.types import Array, Aval, PyTree, Value

# ``linear_call``: for JAX, a function that is linear in its second argument, and its transpose.
#
# NOTE [a product and its transpose]
#
#     class Product:
#         def __call__(self, point, vector):
#             return [jax.pure_callback(lambda p, v: p * v, vector[0], point[0], vector[0])]
#         transposed = property(lambda self: self)
#
#     matvec = lambda v: fad.extend.linear_call(Product(), [jnp.float32(2.0)], [v])[0]
#     solve = lambda matvec, b: b / 2.0
#     assert jax.grad(lambda b: jax.lax.custom_linear_solve(matvec, b, solve, solve))(1.0) == 0.5
#
# JAX's ``custom_linear_solve`` transposes the function that it is given, whether that is used or not, by its
# program. But a product with a Jacobian may be computed by a rule of the user's, which may have no transpose:
# here it calls the host. And none is needed where the other product is known: the transpose of a pullback is
# the pushforward, and the other way round. So a product is one primitive of JAX, whose transpose is the other
# product. Each is traced where it is used.

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


def _run_product(*values: Array, product: Product, count: int) -> list[Value]:
    return list(product(values[:count], values[count:]))


def _avals_of_product(*avals: Aval, product: Product, count: int) -> list[PyTree]:
    every: Sequence[PyTree] = avals
    return [aval.to_tangent_aval() for aval in every[count:]]


def _jvp_product(
    primals: Sequence[Array], tangents: Sequence[Array | None], *, product: Product, count: int
) -> tuple[list[Value], list[PyTree]]:
    point, vector = primals[:count], primals[count:]
    outs = linear_call(product, point, vector)
    terms = []
    moved = [k for k in range(count) if tangents[k] is not None]
    if moved:

        def at(*values: Array) -> list[Value]:
            new = dict(zip(moved, values, strict=True))
            return list(product([new.get(k, p) for k, p in enumerate(point)], vector))

        terms.append(jax.jvp(at, [point[k] for k in moved], [tangents[k] for k in moved])[1])
    if any([t is not None for t in tangents[count:]]):
        pairs = zip(tangents[count:], vector, strict=True)
        along = [jnp.zeros_like(v) if t is None else t for t, v in pairs]
        terms.append(linear_call(product, point, along))
    return outs, [sum(ts[1:], ts[0]) for ts in zip(*terms, strict=True)]


def _transpose_product(
    cotangents: Sequence[Array],
    operands: Sequence[Array],
    _: object,
    *,
    product: Product,
    count: int,
) -> list[PyTree]:
    return [None] * count + linear_call(product.transposed, operands[:count], cotangents)


def _batch_product(
    axis: PyTree,
    values: Sequence[Array],
    dims: Sequence[int | None],
    *,
    product: Product,
    count: int,
) -> tuple[list[Value], Sequence[int | None]]:
    vector = [
        jnp.broadcast_to(v, (axis.size, *v.shape)) if d is None else jnp.moveaxis(v, d, 0)
        for v, d in zip(values[count:], dims[count:], strict=True)
    ]
    lanes = _OfLanes(product, tuple(dims[:count]))
    return linear_call(lanes, values[:count], vector), [0] * len(vector)


product_p = native_primitive(
    "fad_product",
    _run_product,
    _avals_of_product,
    jvp=_jvp_product,
    transpose=_transpose_product,
    batch=_batch_product,
)
product_p.def_impl(_run_product)  # outside of compiled code a product is called as it is


# Whether an equation is linear in some of its operands.

# Their derivative is zero.
_STEPS = frozenset({"ceil", "floor", "round", "sign", "stop_gradient"})


def depends_on_point(derivative: PyTree, differentiated: Sequence[int]) -> bool:
    """Whether the derivative of an equation has itself a derivative, in some of its operands.

    Arguments:
        derivative: the program that `derivative_of` returns, without its constants.
        differentiated: the operands.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> eqn = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns[0]
    >>> derivative = extend.derivative_of(eqn, [0], [0], [jnp.float32(2.0), jnp.float32(3.0)])
    >>> [extend.depends_on_point(derivative.jaxpr, [k]) for k in (0, 1)]
    [False, True]
    """
    reached = {derivative.invars[k] for k in differentiated}
    for eqn in derivative.eqns:
        if eqn.primitive.name in _STEPS:
            continue
        if any([_is_variable(v) and v in reached for v in eqn.invars]):
            inexact = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in eqn.outvars]
            reached.update(itertools.compress(eqn.outvars, inexact))
    return any([_is_variable(v) and v in reached for v in derivative.outvars])


def _is_variable(atom: object) -> bool:
    return not hasattr(atom, "val")  # a literal has a value
