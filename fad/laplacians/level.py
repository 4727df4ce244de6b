"""The level of forward Laplacians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad import jvp, vmap
from fad.extend import (
    Operation,
    Primitive,
    RecordingLevel,
    Tensor,
    bind,
    called,
    depends_on_point,
    derivative_of,
    evaluate_equation,
    interpret,
    is_elementwise,
    map_outputs,
    new_argument,
    new_tensor,
    program_key,
    programs,
    run_program,
    trace,
)
from fad.extend.types import (
    Array,
    ArrayFunction,
    DType,
    JaxEquation,
    JaxProgram,
    Operand,
    Outputs,
    Value,
)
from fad.laplacians.jacobian_rows import (
    Coordinates,
    JacobianRows,
    RowPattern,
    added,
    aligned,
    dense_pattern,
    smallest,
)
from fad.laplacians.row_rules import (
    kept_axes,
    rearranged,
    rows_of_product,
    rows_of_sum,
    sum_of_row_products,
)
from fad.taylor import rule_of

# NOTE [forward Laplacians]
#
#     f = lambda x: fnp.sum(x**3)
#     assert fad.laplacian(f)(array) == 6 * array.sum()  # in one pass, without a Hessian
#
# A value is a list of three: the value ``x`` itself; its Jacobian ``J`` in the coordinates, as rows (see
# NOTE [rows of Jacobians]), None where it is constant; and its Laplacian ``L``, None where it is zero. The
# coordinates themselves have rows of ones, which the program of each operation that takes them makes, so that
# XLA leaves out products with them. An operation ``y = f(x)`` has
#
#     J' = Df[J[k]] for each k,    L' = Df[L] + sum over k of D²f[J[k], J[k]]
#
# and a primitive of JAX is evaluated by the first of these that fits:
#
# * its derivative does not depend on the point (see NOTE [series]): it is applied to J and L;
# * a product: its second derivative is the product of the Jacobians, twice;
# * ``slogdet``: by the inverse;
# * a function of each element: D²f is diagonal, so the sum over k is taken of products of Jacobians first;
#   its derivatives are those of NOTE [series], where it has a rule by hand;
# * else D²f by jvp of jvp, for each k.
#
# Source: R. Li, H. Ye, D. Jiang et al., "A computational framework for neural network-based variational Monte
# Carlo with Forward Laplacian", Nature Machine Intelligence 6 (2024).


class LaplacianLevel(RecordingLevel):
    """Laplacians: each Tensor has a value, and in ``aux`` its Jacobian, as `JacobianRows`, and its Laplacian.

    ``aux`` is None for a constant; the Laplacian is left out where it is zero.
    """

    __slots__ = ()

    kind = "laplacian"
    settings = ()

    def evaluate(self, op: Operation, args: Sequence[Any]) -> Outputs:
        values, beside, some = self.unwrapped(args)
        if not some:
            return map_outputs(lambda o: new_tensor(o, self), bind(op, values))
        differentiated = [aux or () for aux in beside]
        if op.primitive is not None:
            return self._by_equations(op.primitive, values, differentiated)
        return self._by_jvp(op, values, differentiated)

    def _by_equations(
        self, op: Primitive, values: list[Any], differentiated: Sequence[Any]
    ) -> Outputs:
        """One Primitive for all; see NOTE [forward Laplacians]."""
        layouts = tuple(map(_layout, differentiated))
        avals = tuple([v.aval if isinstance(v, Tensor) else jax.typeof(v) for v in values])
        make = functools.partial(_derive, op, layouts)
        derived = op.derived((self.kind, layouts, avals), "laplacian", make)
        operands = [part for aux in differentiated for part in _arrays(aux)]
        results = derived.unflatten(bind(derived, [*values, *operands]))
        outs = tuple([self.with_derivatives(*parts) for parts in results["outs"]])
        return outs[0] if "single" in results else outs

    def _by_jvp(self, op: Operation, values: list[Any], differentiated: Sequence[Any]) -> Outputs:
        """By the jvp of ``op`` in the jvp of ``op``, along each row of the Jacobian: the rule of a Function.

        The second derivative along ``x + t J[k] + t² / 2 * L / n`` is ``D²f[J[k], J[k]] + Df[L] / n``.
        """
        places = [k for k, parts in enumerate(differentiated) if parts]
        jacobians = [_whole(values[k], differentiated[k])[0] for k in places]
        pattern = dense_pattern([j.pattern for j in jacobians])
        size = len(pattern)
        rows = [bind(_densification(j.pattern, pattern), (j.array,)) for j in jacobians]
        parts = [differentiated[k] for k in places]
        bends = [bind(_division(size), (p[1],)) if len(p) > 1 else None for p in parts]
        points = [values[k] for k in places]

        def along(points: Sequence[Value], directions: Sequence[Value]) -> Outputs:
            def at(*moved: Value) -> Outputs:
                args = list(values)
                for k, x in zip(places, moved, strict=True):
                    args[k] = x
                return bind(op, args)

            return jvp(at, points, directions)

        def of_row(*row: Value) -> Outputs:
            return jvp(along, (points, list(row)), (list(row), bends))

        (out, slope), (_, bend) = vmap(of_row, randomness="same")(*rows)
        single = type(out) is not tuple
        outs = [(out, slope, bend)] if single else zip(out, slope, bend, strict=True)
        wrapped = []
        for values_of, rows_of, bends_of in outs:
            value = bind(_FIRST, (values_of,))  # it is the same for all rows
            if not jnp.issubdtype(value.dtype, jnp.inexact):
                wrapped.append(self.with_derivatives(value))
                continue
            jacobian = JacobianRows(rows_of, pattern.of_ndim(len(value.shape)))
            wrapped.append(self.with_derivatives(value, jacobian, bind(_SUM, (bends_of,))))
        return wrapped[0] if single else tuple(wrapped)

    def tangent(self, t: Tensor) -> Any:
        return t.aux

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        return (t._value, *_arrays(t._aux or ())), _layout(t._aux or ())

    def unflatten(self, rest: Any, parts: Iterator[Any]) -> Tensor:
        return self.with_derivatives(next(parts), *_aux_of(parts, rest))

    def with_derivatives(self, value: Value, *parts: Any) -> Tensor:
        """A Tensor of this level; ``parts``: its Jacobian and its Laplacian, if it has them."""
        return new_tensor(value, self, parts or None)

    def coordinates(self, value: Array, first: int) -> Tensor:
        """A Tensor whose elements are the coordinates from number ``first`` on."""
        return new_argument(value, self, (Coordinates(first),) if value.size else None)

    def unpack(self, x: Operand) -> tuple[Any, ...]:
        """The value of ``x`` at this level, and its Jacobian and Laplacian, where they are not zero."""
        value, parts = self.value_and_aux(x)
        return (value, *_whole(value, parts or ()))


def _layout(aux: Sequence[object]) -> tuple[RowPattern | Coordinates | None, ...]:
    """What is static in a Jacobian and a Laplacian, as many as there are."""
    fixed = [part if type(part) is Coordinates else None for part in aux]
    return tuple([p.pattern if type(p) is JacobianRows else f for p, f in zip(aux, fixed)])


def _arrays(aux: Sequence[object]) -> list[Any]:
    """What is not static in a Jacobian and a Laplacian."""
    parts = [part for part in aux if type(part) is not Coordinates]
    return [part.array if type(part) is JacobianRows else part for part in parts]


def _aux_of(arrays: Iterator[Any], layout: Sequence[Any]) -> list[Any]:
    """A Jacobian and a Laplacian, as many as there are, of a `_layout`."""
    parts = [p if type(p) is Coordinates else next(arrays) for p in layout]
    return [JacobianRows(x, p) if type(p) is RowPattern else x for x, p in zip(parts, layout)]


def _whole(value: Array, aux: Sequence[object]) -> Carried:
    """A Jacobian and a Laplacian, as many as there are, where coordinates have rows too."""
    return [part.rows(value) if type(part) is Coordinates else part for part in aux]


_SUM = Primitive("sum", lambda x: jnp.sum(x, 0), deferrable=True)
_FIRST = Primitive("first", lambda x: x[0], deferrable=True)


@functools.lru_cache(maxsize=256)
def _densification(pattern: RowPattern, dense: RowPattern) -> Primitive:
    def densify(x: Value) -> Any:
        return JacobianRows(x, pattern).to(dense.of_ndim(x.ndim - 1))

    return Primitive("densify", densify, deferrable=True)


@functools.lru_cache(maxsize=256)
def _division(n: int) -> Primitive:
    return Primitive("divide", lambda x: x / n, deferrable=True)


def _derive(op: Primitive, layouts: tuple[Any, ...]) -> ArrayFunction:
    """The function from values, and their Jacobians and Laplacians, to those of all outputs."""
    n = len(layouts)

    def laplacian(*values: Array) -> dict[str, Any]:
        rest = iter(values[n:])
        parts = [[*_aux_of(rest, layout), None, None][:2] for layout in layouts]
        closed, shape = trace(op.to_jvp, values[:n])
        inputs = [[v, *_whole(v, m)] for v, m in zip(values[:n], parts, strict=True)]
        outs = _evaluate_all(closed, inputs)
        results = {"outs": [[part for part in o if part is not None] for o in outs]}
        return results if type(shape) is tuple else {**results, "single": ()}

    return laplacian


# Programs of JAX

Carried = list[Any]  # value, Jacobian, Laplacian


def _evaluate_all(closed: JaxProgram, inputs: Sequence[Carried]) -> list[Carried]:
    return interpret(closed, inputs, _evaluate, lambda value: [value, None, None])


def _evaluate(eqn: JaxEquation, inputs: list[Carried]) -> list[Carried]:
    """One equation."""
    point = [x[0] for x in inputs]
    differentiated = [k for k, x in enumerate(inputs) if x[1] is not None]
    if not differentiated:
        return [[o, None, None] for o in evaluate_equation(eqn, point)]
    closed = called(eqn)
    if closed is not None:
        return _evaluate_all(closed, inputs[len(inputs) - len(closed.jaxpr.invars) :])
    outs = evaluate_equation(eqn, point)
    kept = [k for k, o in enumerate(outs) if jnp.issubdtype(o.dtype, jnp.inexact)]
    constants: list[Carried] = [[o, None, None] for o in outs]
    if not kept:
        return constants
    if _is_product(eqn, len(differentiated)):
        return [_product(eqn, outs[0], *inputs)]
    if eqn.primitive.name == "reduce_sum":
        ((_, rows, bend),) = inputs
        summed = None if bend is None else evaluate_equation(eqn, [bend])[0]
        return [[outs[0], rows_of_sum(eqn, rows), summed]]
    if _is_real_function_of_elements(eqn, point, differentiated, outs):
        return [_by_element(eqn, point, differentiated, outs[0], inputs)]
    if _is_slogdet(eqn):
        return _slogdet(outs, *inputs)
    derivative = derivative_of(eqn, differentiated, kept, point)
    directions = range(len(point), len(point) + len(differentiated))
    if not depends_on_point(derivative.jaxpr, directions):
        return constants  # zero in all directions, as that of `stop_gradient`
    if depends_on_point(derivative.jaxpr, differentiated):
        results = _by_second_derivatives(eqn, derivative, point, differentiated, inputs)
    else:
        results = _linear(eqn, derivative, point, differentiated, inputs)
    by_place = dict(zip(kept, results, strict=True))
    return [[o, *by_place.get(k, [None, None])] for k, o in enumerate(outs)]


def _linear(
    eqn: JaxEquation,
    derivative: JaxProgram,
    point: list[Array],
    differentiated: list[int],
    inputs: list[Carried],
) -> list[Carried]:
    """Jacobians and Laplacians from a derivative that is the same at all points."""
    along = functools.partial(run_program, derivative, *point)
    carried = [inputs[k] for k in differentiated]
    arrays, pattern = rearranged(eqn, [x[1] for x in inputs]) or _aligned(
        eqn, differentiated, inputs
    )
    rows = _jacobians(jax.vmap(along)(*arrays), pattern)
    return [[j, b] for j, b in zip(rows, _of_laplacians(along, carried, len(rows)), strict=True)]


def _aligned(
    eqn: JaxEquation, differentiated: list[int], inputs: list[Carried]
) -> tuple[list[Array], RowPattern]:
    axes = kept_axes(eqn)
    ndim = eqn.outvars[0].aval.ndim
    return aligned([inputs[k][1] for k in differentiated], [axes[k] for k in differentiated], ndim)


def _jacobians(arrays: Sequence[Array], pattern: RowPattern) -> list[JacobianRows]:
    """Those of all outputs; a pattern that is not dense is that of a single output."""
    return [JacobianRows(a, pattern.of_ndim(a.ndim - 1)) for a in arrays]


def _of_laplacians(along: Callable[..., Outputs], inputs: list[Carried], count: int) -> list[Any]:
    """A derivative applied to Laplacians; None where all are zero."""
    if all([x[2] is None for x in inputs]):
        return [None] * count
    pushed: list[Array] = along(*[jnp.zeros_like(x[0]) if x[2] is None else x[2] for x in inputs])
    return pushed


def _by_second_derivatives(
    eqn: JaxEquation,
    derivative: JaxProgram,
    point: list[Array],
    differentiated: list[int],
    inputs: list[Carried],
) -> list[Carried]:
    """By jvp of jvp, for each row of the Jacobians."""

    def along(*directions: Array) -> Outputs:
        def first(*moved: Array) -> Outputs:
            at = list(point)
            for k, v in zip(differentiated, moved, strict=True):
                at[k] = v
            return run_program(derivative, *at, *directions)

        return jax.jvp(first, tuple([point[k] for k in differentiated]), directions)

    carried = [inputs[k] for k in differentiated]
    arrays, pattern = _aligned(eqn, differentiated, inputs)
    rows, bends = jax.vmap(along)(*arrays)
    rest = _of_laplacians(functools.partial(run_program, derivative, *point), carried, len(rows))
    sums = [jnp.sum(b, 0) for b in bends]
    jacobians = _jacobians(rows, pattern)
    return [[j, plus(b, c)] for j, b, c in zip(jacobians, sums, rest, strict=True)]


def _is_real_function_of_elements(
    eqn: JaxEquation, point: list[Array], differentiated: list[int], outs: list[Array]
) -> bool:
    """Whether each element of the one output depends on one of each differentiated operand. Complex functions
    need not have a derivative in the complex sense, so they are left to others, as is a choice of elements.
    """
    if len(outs) != 1 or not is_elementwise(eqn) or eqn.primitive.name == "select_n":
        return False
    related = [outs[0], *[point[k] for k in differentiated]]
    return all([x.ndim in (0, outs[0].ndim) and jnp.isrealobj(x) for x in related])


def _by_element(
    eqn: JaxEquation,
    point: list[Array],
    differentiated: list[int],
    out: Array,
    inputs: list[Carried],
) -> Carried:
    """A function of each element."""
    rule = rule_of(eqn)
    if len(inputs) == 1 and rule is not None:
        ((_, *coefficients),) = rule(eqn, 2, [[point[0], 1.0, None]])
        return _by_series(coefficients, out, *inputs[0][1:])
    total: Carried = [out, None, None]
    for place, i in enumerate(differentiated):
        first = derivative_of(eqn, [i], [0], point)
        if not depends_on_point(first.jaxpr, [len(point)]):
            continue  # zero, as that of `stop_gradient`
        ones = jnp.ones_like(point[i])

        def slope(x: Array, k: int, first: Any = first, ones: Any = ones) -> Array:
            """The derivative, where argument ``k`` is ``x``."""
            return run_program(first, *point[:k], x, *point[k + 1 :], ones)[0]

        along = slope(point[i], i)
        bend = inputs[i][2]
        rows = inputs[i][1].of_ndim(out.ndim).map(lambda x: x.astype(out.dtype))  # of a conversion
        total[1] = added(total[1], rows.map(functools.partial(jnp.multiply, along)))
        if bend is not None:
            total[2] = plus(total[2], along * bend.astype(out.dtype))
        for j in differentiated[place:]:
            if depends_on_point(first.jaxpr, [j]):
                tangent = (jnp.ones_like(point[j]),)
                second = jax.jvp(functools.partial(slope, k=j), (point[j],), tangent)[1]
                squares = _sum_of_products(rows, inputs[j][1].of_ndim(out.ndim))
                total[2] = plus(total[2], (second if i == j else 2 * second) * squares)
    return total


def _by_series(
    coefficients: Sequence[Any], out: Array, rows: JacobianRows, bend: Array | None
) -> Carried:
    """The same by a rule of NOTE [series], in fewer operations than a jvp of a jvp takes."""
    slope, half = [0.0 if c is None else c for c in coefficients]  # such as of x**0 and x**1
    curved = 2 * half * _sum_of_products(rows, rows)
    bent = curved if bend is None else curved + slope * bend
    return [out, rows.map(functools.partial(jnp.multiply, slope)), bent]


def _sum_of_products(a: JacobianRows, b: JacobianRows) -> Array:
    pattern = smallest([a.pattern, b.pattern])
    return jnp.sum(a.to(pattern) * b.to(pattern), 0)


def plus(a: Array | None, b: Array | None) -> Array | None:
    """The sum, where None is zero."""
    return b if a is None else a if b is None else a + b


def _is_product(eqn: JaxEquation, count: int) -> bool:
    """Whether `_product` is the fastest rule for it; ``count`` factors depend on the coordinates."""
    name = eqn.primitive.name
    if name == "mul":
        a, b = eqn.invars
        return count == 2 and bool(a.aval.shape == b.aval.shape)
    return name == "dot_general" or (name == "conv_general_dilated" and count == 2)


def _product(eqn: JaxEquation, out: Array, *factors: Carried) -> Carried:
    rows: JacobianRows | None = None
    bend: Array | None = None
    for place, (a, b) in enumerate([factors, factors[::-1]]):
        if a[1] is not None:
            rows = added(rows, rows_of_product(eqn, place, a[1], b[0]))
        if a[2] is not None:
            both = [a[2], b[0]] if place == 0 else [b[0], a[2]]
            bend = plus(bend, evaluate_equation(eqn, both)[0])
    if all([x[1] is not None for x in factors]):
        bend = plus(bend, 2 * sum_of_row_products(eqn, [x[1] for x in factors]))
    return [out, rows, bend]


def _is_slogdet(eqn: JaxEquation) -> bool:
    """Whether an equation is the call of `jnp.linalg.slogdet`: it has the same program."""
    if eqn.primitive.name != "custom_jvp_call" or len(eqn.outvars) != 2 or len(eqn.invars) != 1:
        return False
    (x,) = eqn.invars
    shape = x.aval.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or not jnp.issubdtype(x.aval.dtype, jnp.inexact):
        return False
    return bool(program_key(next(programs(eqn)).jaxpr) == _key_of_slogdet(shape, x.aval.dtype)[0])


@functools.lru_cache(maxsize=64)
def _key_of_slogdet(shape: tuple[int, ...], dtype: DType) -> tuple[Any, Any]:
    """The key of slogdet's program for one shape, and that program: the key holds as long as it is alive."""
    closed: Any = jax.make_jaxpr(jnp.linalg.slogdet)(jax.ShapeDtypeStruct(shape, dtype))
    (eqn,) = closed.jaxpr.eqns
    while called(eqn) is not None:
        closed = called(eqn)
        (eqn,) = closed.jaxpr.eqns
    program = next(programs(eqn))
    return program_key(program.jaxpr), program


def _slogdet(outs: list[Array], a: Carried) -> list[Carried]:
    """With ``M[k] = inv(A) J[k]``, the logarithm of the determinant has the Jacobian ``tr(M[k])`` and
    the Laplacian ``tr(inv(A) L) - sum over k of tr(M[k] M[k])``.
    """
    sign, value = outs
    # The transpose is how LAPACK's inverse lies in memory.
    inverse = jnp.swapaxes(jnp.linalg.inv(a[0]), -1, -2)
    rows, squares = _by_rows(inverse, a[1]) or _of_matrices(inverse, a[1])
    bend = -squares
    if a[2] is not None:
        bend = bend + jnp.sum(inverse * a[2], (-2, -1))
    if jnp.isrealobj(sign):
        return [[sign, None, None], [value, rows, bend]]
    angle = rows.map(jnp.imag)
    turn = sign * (1j * bend.imag - jnp.sum(angle.array**2, 0))  # the sign is exp(i angle)
    of_sign = angle.map(lambda x: 1j * sign * x)
    return [[sign, of_sign, turn], [value, rows.map(jnp.real), bend.real]]


def _of_matrices(inverse: Array, jacobian: JacobianRows) -> tuple[JacobianRows, Array]:
    """``tr(M[k])``, and the sum over k of ``tr(M[k] M[k])``, by the transpose of the inverse."""
    ndim = inverse.ndim
    array, pattern = jacobian.uniform((ndim - 2, ndim - 1))
    products = jnp.einsum("...li,k...lj->k...ij", inverse, array)
    squares = jnp.sum(products * jnp.swapaxes(products, -1, -2), (0, -2, -1))
    traces = jnp.trace(products, axis1=-2, axis2=-1)
    return JacobianRows(traces, pattern.on_axes([*range(ndim - 2), None, None], ndim - 2)), squares


def _by_rows(inverse: Array, jacobian: JacobianRows) -> tuple[JacobianRows, Array] | None:
    """The same, if each coordinate is in one row of a matrix only, or in one column, as in a Slater
    determinant: then ``M[k]`` has rank one, and ``tr(M[k] M[k])`` is the square of its trace.
    """
    ndim = inverse.ndim
    for axis, letters in ((ndim - 2, "k...ij,...ij->ki..."), (ndim - 1, "k...ji,...ji->ki...")):
        array, pattern = jacobian.uniform([2 * ndim - 3 - axis])
        apart = pattern.apart(axis)
        if apart is not None:
            traces = jnp.einsum(letters, array, inverse)
            traces = traces.reshape(-1, *traces.shape[2:])
            return JacobianRows(traces, RowPattern(apart.at[..., 0])), jnp.sum(traces * traces, 0)
    return None
