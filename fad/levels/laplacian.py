"""The level of forward Laplacians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.core.collector import without_collector
from fad.core.dtypes import is_inexact
from fad.core.elementwise import is_elementwise_equation
from fad.core.jaxapi import called, evaluate_equation, programs, run_jaxpr
from fad.core.jaxprs import jaxpr_key
from fad.core.level import bind, map_tensors, outlived
from fad.core.primitive import Primitive
from fad.core.series import depends_on_point, derivative_of, evaluate_with
from fad.core.tensor import Tensor, new_tensor
from fad.levels.batch import BatchLevel
from fad.levels.jvp import JvpLevel
from fad.tape.recorder import RecordingLevel

__all__ = ["LaplacianLevel"]

# NOTE [forward Laplacians]
#
#     f = lambda x: fnp.sum(x**3)
#     assert fad.laplacian(f)(array) == 6 * array.sum()  # in one pass, without a Hessian
#
# A value that moves is a list of three: the value ``x``; its Jacobian ``J`` in the ``n`` coordinates, which
# are the first dimension; and its Laplacian ``L``, None where it is zero. With ``J`` None it is constant.
# An operation ``y = f(x)`` has
#
#     J' = Df[J[k]] for each k,    L' = Df[L] + sum over k of D²f[J[k], J[k]]
#
# and a primitive of JAX is evaluated by the first of these that fits:
#
# * its derivative does not depend on the point (see NOTE [series]): it is applied to J and L;
# * a product: its second derivative is the product of the Jacobians, twice;
# * ``slogdet``: by the inverse;
# * a function of each element: D²f is diagonal, so the sum over k is taken of products of Jacobians first;
# * else D²f by jvp of jvp, for each k.
#
# Source: R. Li, H. Ye, D. Jiang et al., "A computational framework for neural network-based variational Monte
# Carlo with Forward Laplacian", Nature Machine Intelligence 6 (2024).


class LaplacianLevel(RecordingLevel):
    """Laplacians in ``size`` coordinates: each Tensor has a value, and in ``aux`` its Jacobian and Laplacian.

    ``aux`` is None for a constant; the Laplacian is left out where it is zero.
    """

    __slots__ = ("size",)

    kind = "laplacian"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def evaluate(self, op: Any, args: Sequence[Any]) -> Any:
        values: list[Any] = []
        differentiated: list[tuple[Any, ...]] = []
        for a in args:
            own = isinstance(a, Tensor) and a._level is self
            values.append(a._value if own else a)
            differentiated.append((own and a._aux) or ())
        if not any(differentiated):
            return map_tensors(lambda o: new_tensor(o, self), bind(op, values))
        if type(op) is Primitive and op.jit:
            return self._by_equations(op, values, differentiated)
        return self._by_jvp(op, values, differentiated)

    def _by_equations(self, op: Primitive, values: list[Any], differentiated: Sequence[Any]) -> Any:
        """One Primitive for all; see NOTE [forward Laplacians]."""
        counts = tuple(map(len, differentiated))
        kinds = tuple([getattr(v, "dtype", type(v)) for v in values])
        key = (self.kind, self.size, counts, kinds)
        derived = op._jvps.get(key)
        if derived is None:
            derived = op._jvps[key] = _derive(op, counts)
        found = derived.unflatten(
            bind(derived, [*values, *[part for m in differentiated for part in m]])
        )
        outs = tuple([self.with_derivatives(*parts) for parts in found["outs"]])
        return outs[0] if "single" in found else outs

    def _by_jvp(self, op: Any, values: list[Any], differentiated: Sequence[Any]) -> Any:
        """By the jvp of ``op`` in the jvp of ``op``, along each row of the Jacobian: the rule of a Function.

        The second derivative along ``x + t J[k] + t² / 2 * L / n`` is ``D²f[J[k], J[k]] + Df[L] / n``.
        """
        with (
            BatchLevel(self.size, randomness="same") as rows,
            JvpLevel() as outer,
            JvpLevel() as inner,
        ):
            args = list(values)
            for k, parts in enumerate(differentiated):
                if parts:
                    row = new_tensor(parts[0], rows, 0)
                    bend = bind(_division(self.size), (parts[1],)) if len(parts) > 1 else None
                    args[k] = inner.dual(outer.dual(values[k], row), outer.dual(row, bend))
            out = bind(op, args)
            single = type(out) is not tuple
            found = []
            for o in (out,) if single else out:
                at, along = inner.unpack(o)
                value = _of_one_row(outer.unpack(at)[0], rows)
                if along is None:
                    found.append((value,))
                    continue
                row, bend = outer.unpack(along)
                parts = [rows.unwrap(t, 0) for t in (row, bend) if t is not None]
                found.append((value, *parts[:1], *[bind(_SUM, (t,)) for t in parts[1:]]))
        wrapped = tuple([self.with_derivatives(*parts) for parts in found])
        return wrapped[0] if single else wrapped

    def tangent(self, t: Tensor) -> Any:
        return t.aux

    def parts(self, t: Tensor) -> tuple[Any, ...]:
        return (t._value, *(t._aux or ()))

    def layout(self, t: Tensor) -> Hashable:
        return len(t._aux or ())

    def from_parts(self, parts: Sequence[Any], layout: Any) -> Tensor:
        return self.with_derivatives(*parts)

    def part_avals(self, aval: Any, layout: Any) -> tuple[Any, ...]:
        rows = aval.update(shape=(self.size, *aval.shape))
        return (aval, rows, aval)[: 1 + layout]

    def part_count(self, layout: Any) -> int:
        return 1 + int(layout)

    def maker(self) -> Callable[[], Any]:
        return functools.partial(LaplacianLevel, self.size)

    def key(self) -> Hashable:
        return self.kind, self.size

    def with_derivatives(self, value: Any, *parts: Any) -> Tensor:
        """A Tensor of this level; ``parts``: its Jacobian and its Laplacian, if it has them."""
        return new_tensor(value, self, parts or None)

    def unpack(self, x: Any) -> tuple[Any, ...]:
        """The value of ``x`` at this level, and its Jacobian and Laplacian, where they are not zero."""
        x = outlived(x)
        if isinstance(x, Tensor) and x.level is self:
            return (x.value, *(x.aux or ()))
        return (x,)


_SUM = Primitive("sum", lambda x: jnp.sum(x, 0), deferrable=True)
_FIRST = Primitive("first", lambda x: x[0], deferrable=True)


@functools.lru_cache(maxsize=256)
def _division(n: int) -> Primitive:
    return Primitive("divide", lambda x: x / n, deferrable=True)


def _of_one_row(x: Any, rows: BatchLevel) -> Any:
    """``x``, a value that is the same for all rows."""
    x = outlived(x)
    if isinstance(x, Tensor) and x.level is rows:
        return x.value if x.aux is None else bind(_FIRST, (rows.unwrap(x, 0),))
    return x


def _derive(op: Primitive, counts: tuple[int, ...]) -> Primitive:
    """The Primitive from values, and their Jacobians and Laplacians, to those of all outputs."""
    n = len(counts)

    def laplacian(*values: Any) -> dict[str, Any]:
        given = iter(values[n:])
        parts = [[next(given) for _ in range(count)] + [None] * (2 - count) for count in counts]
        trace = without_collector(jax.make_jaxpr(op.to_jvp, return_shape=True))
        closed, shape = trace(*values[:n])
        inputs = [[v, *m] for v, m in zip(values[:n], parts, strict=True)]
        outs = _evaluate_all(closed, inputs)
        found = {"outs": [[part for part in o if part is not None] for o in outs]}
        return found if type(shape) is tuple else {**found, "single": ()}

    return Primitive(f"{op.name}_laplacian", laplacian, **op._options())


# Programs of JAX

Carried = list[Any]  # value, Jacobian, Laplacian


def _evaluate_all(closed: Any, inputs: Sequence[Carried]) -> list[Carried]:
    return evaluate_with(_evaluate, closed, inputs, [None, None])


def _evaluate(eqn: Any, inputs: list[Carried]) -> list[Carried]:
    """One equation."""
    point = [x[0] for x in inputs]
    differentiated = [k for k, x in enumerate(inputs) if x[1] is not None]
    if not differentiated:
        return [[o, None, None] for o in evaluate_equation(eqn, point)]
    closed = called(eqn)
    if closed is not None:
        return _evaluate_all(closed, inputs[len(inputs) - len(closed.jaxpr.invars) :])
    outs = evaluate_equation(eqn, point)
    kept = [k for k, o in enumerate(outs) if is_inexact(o.dtype)]
    if not kept:
        return [[o, None, None] for o in outs]
    if len(differentiated) == 2 and _is_product(eqn, point):
        return [_product(eqn, outs[0], *inputs)]
    if _is_real_function_of_elements(eqn, point, differentiated, outs):
        return [_by_element(eqn, point, differentiated, outs[0], inputs)]
    if _is_slogdet(eqn):
        return _slogdet(outs, *inputs)
    derivative = derivative_of(eqn, differentiated, kept, point, [point[k] for k in differentiated])
    if depends_on_point(derivative.jaxpr, len(point), differentiated):
        parts = _by_second_derivatives(derivative, point, differentiated, inputs)
    else:
        parts = _linear(derivative, point, [inputs[k] for k in differentiated])
    by_place = dict(zip(kept, parts, strict=True))
    return [[o, *by_place.get(k, [None, None])] for k, o in enumerate(outs)]


def _linear(derivative: Any, point: list[Any], inputs: list[Carried]) -> list[Carried]:
    """Jacobians and Laplacians from a derivative that is the same at all points."""
    along = functools.partial(run_jaxpr, derivative, *point)
    rows = jax.vmap(along)(*[x[1] for x in inputs])
    return [[j, b] for j, b in zip(rows, _of_laplacians(along, inputs, len(rows)), strict=True)]


def _of_laplacians(along: Callable[..., Any], inputs: list[Carried], count: int) -> list[Any]:
    """A derivative applied to Laplacians; None where all are zero."""
    if all([x[2] is None for x in inputs]):
        return [None] * count
    found: list[Any] = along(*[jnp.zeros_like(x[0]) if x[2] is None else x[2] for x in inputs])
    return found


def _by_second_derivatives(
    derivative: Any, point: list[Any], differentiated: list[int], inputs: list[Carried]
) -> list[Carried]:
    """By jvp of jvp, for each row of the Jacobians."""

    def along(*directions: Any) -> Any:
        def first(*moved: Any) -> Any:
            at = list(point)
            for k, v in zip(differentiated, moved, strict=True):
                at[k] = v
            return run_jaxpr(derivative, *at, *directions)

        return jax.jvp(first, tuple([point[k] for k in differentiated]), directions)

    own = [inputs[k] for k in differentiated]
    rows, bends = jax.vmap(along)(*[x[1] for x in own])
    rest = _of_laplacians(functools.partial(run_jaxpr, derivative, *point), own, len(rows))
    sums = [jnp.sum(b, 0) for b in bends]
    return [[j, _plus(b, c)] for j, b, c in zip(rows, sums, rest, strict=True)]


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _is_real_function_of_elements(
    eqn: Any, point: list[Any], differentiated: list[int], outs: list[Any]
) -> bool:
    """Whether the one output has an element for each element of what moves. Complex functions need not have
    a derivative in the complex sense, so they are left to others.
    """
    if len(outs) != 1 or not is_elementwise_equation(eqn):
        return False
    related = [outs[0], *[point[k] for k in differentiated]]
    return all([x.shape == outs[0].shape and jnp.isrealobj(x) for x in related])


def _by_element(
    eqn: Any, point: list[Any], differentiated: list[int], out: Any, inputs: list[Carried]
) -> Carried:
    """A function of each element."""
    total: Carried = [out, None, None]
    for place, i in enumerate(differentiated):
        first = derivative_of(eqn, [i], [0], point, [point[i]])
        ones = jnp.ones_like(point[i])

        def slope(x: Any, k: int, first: Any = first, ones: Any = ones) -> Any:
            """The derivative, where argument ``k`` is ``x``."""
            return run_jaxpr(first, *point[:k], x, *point[k + 1 :], ones)[0]

        along = slope(point[i], i)
        _, rows, bend = inputs[i]
        total[1] = _plus(total[1], along * rows)
        if bend is not None:
            total[2] = _plus(total[2], along * bend)
        for j in differentiated[place:]:
            if depends_on_point(first.jaxpr, len(point), [j]):
                tangent = (jnp.ones_like(point[j]),)
                second = jax.jvp(functools.partial(slope, k=j), (point[j],), tangent)[1]
                squares = jnp.sum(rows * inputs[j][1], 0)
                total[2] = _plus(total[2], (second if i == j else 2 * second) * squares)
    return total


def _is_product(eqn: Any, point: list[Any]) -> bool:
    name = eqn.primitive.name
    if name == "mul":
        return bool(point[0].shape == point[1].shape)
    return name in ("dot_general", "conv_general_dilated")


def _product(eqn: Any, out: Any, a: Carried, b: Carried) -> Carried:
    """A product of two factors that move."""

    def product(x: Any, y: Any) -> Any:
        return evaluate_equation(eqn, [x, y])[0]

    rows = jax.vmap(product, (0, None))(a[1], b[0]) + jax.vmap(product, (None, 0))(a[0], b[1])
    bend = 2 * jnp.sum(jax.vmap(product)(a[1], b[1]), 0)
    for x, y in ((a[2], b[0]), (a[0], b[2])):
        if x is not None and y is not None:
            bend = bend + product(x, y)
    return [out, rows, bend]


def _is_slogdet(eqn: Any) -> bool:
    """Whether an equation is the call of `jnp.linalg.slogdet`: it has the same program."""
    if eqn.primitive.name != "custom_jvp_call" or len(eqn.outvars) != 2 or len(eqn.invars) != 1:
        return False
    (x,) = eqn.invars
    shape = x.aval.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or not is_inexact(x.aval.dtype):
        return False
    return bool(jaxpr_key(next(programs(eqn)).jaxpr) == _key_of_slogdet(shape, x.aval.dtype)[0])


@functools.lru_cache(maxsize=64)
def _key_of_slogdet(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """The key of its program, and the program, as long as which the key is valid."""
    closed = jax.make_jaxpr(jnp.linalg.slogdet)(jax.ShapeDtypeStruct(shape, dtype))
    (eqn,) = closed.jaxpr.eqns
    while called(eqn) is not None:
        closed = called(eqn)
        (eqn,) = closed.jaxpr.eqns
    program = next(programs(eqn))
    return jaxpr_key(program.jaxpr), program


def _slogdet(outs: list[Any], a: Carried) -> list[Carried]:
    """With ``M[k] = inv(A) J[k]``, the logarithm of the determinant has the Jacobian ``tr(M[k])`` and
    the Laplacian ``tr(inv(A) L) - sum over k of tr(M[k] M[k])``.
    """
    sign, value = outs
    inverse = jnp.linalg.inv(a[0])
    products = jnp.einsum("...il,k...lj->k...ij", inverse, a[1])
    rows = jnp.trace(products, axis1=-2, axis2=-1)
    bend = -jnp.sum(products * jnp.swapaxes(products, -1, -2), (0, -2, -1))
    if a[2] is not None:
        bend = bend + jnp.sum(jnp.swapaxes(inverse, -1, -2) * a[2], (-2, -1))
    if jnp.isrealobj(sign):
        return [[sign, None, None], [value, rows, bend]]
    turn = sign * (1j * bend.imag - jnp.sum(rows.imag**2, 0))  # the sign is exp(i angle)
    return [[sign, 1j * sign * rows.imag, turn], [value, rows.real, bend.real]]
