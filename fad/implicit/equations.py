"""Equations, and their solutions as operations with rules by the implicit function theorem.

NOTE [a solution and its equation]

A solver runs on constants; nothing of it is recorded. Then an operation takes its solution, and the
parameters of the equation, ``residual(x, parameters) = 0``. It returns the solution as it is. Its rules are

    tangent of x      the t with  ∂residual/∂x t = -∂residual/∂parameters (tangents of the parameters)
    gradients         -(∂residual/∂parameters)ᵀ u, for the u with  (∂residual/∂x)ᵀ u = g

They read x as an output of the operation, which depends on the parameters; so their derivatives are right
too, to any order.

The function that the user writes for the equation is staged: traced at each call, with all that it closes
over among the parameters, into a program that is the same for equal jaxprs. The rules, and the solvers of
`fad.implicit.solvers`, are compiled for programs, not for functions. So a function that is made anew for each
call compiles nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend
from fad.errors import (
    GradientError,
    HostValueError,
    LevelError,
    SingularError,
    StructureError,
    describe,
)
from fad.extend import HOST_ERRORS, Primitive, aval_of, bind, bottom, flush
from fad.extend.types import Array, Aval, PyTree, Value
from fad.implicit.systems import System, in_words

Leaves = Sequence[Any]
OPERANDS = (Tensor, jax.Array, np.ndarray, np.inexact, float, complex)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """How an equation follows from the function that the user writes for it.

    Arguments:
        name: what that function is called in errors.
        residual: what is zero, from the program, the unknowns and the parameters.
        symmetric: its derivative in the unknowns is.
    """

    name: str
    residual: Callable[[Primitive, Leaves, Leaves], Leaves]
    symmetric: bool = False


def _fixed_point(program: Primitive, x: Leaves, parameters: Leaves) -> Leaves:
    return [new - old for new, old in zip(run(program, x, parameters), x, strict=True)]


def _argmin(program: Primitive, x: Leaves, parameters: Leaves) -> Leaves:
    return jax.grad(lambda x: run(program, x, parameters)[0])(list(x))


def _linear(program: Primitive, x: Leaves, parameters: Leaves) -> Leaves:
    """The last parameters are the right side, which the program does not take."""
    constants, b = parameters[: -len(x)], parameters[-len(x) :]
    return [new - old for new, old in zip(run(program, x, constants), b, strict=True)]


def run(program: Primitive, x: Leaves, parameters: Leaves) -> Leaves:
    """The function of the user's. A program takes the unknowns last, as `staged` makes it."""
    return program.flat(*parameters, *x)


KINDS = {
    "root": Kind("residual", run),
    "fixed_point": Kind("step", _fixed_point),
    "argmin": Kind("objective", _argmin, True),
    "linear": Kind("matvec", _linear),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Equation:
    """An equation for ``unknowns`` arrays, and how linear systems with its derivative are solved.

    Arguments:
        name: what graphs and errors call it.
        kind, program: what is zero.
        structure: that of the unknowns.
    """

    name: str
    kind: Kind
    program: Primitive
    structure: jax.tree_util.PyTreeDef
    system: System

    @property
    def unknowns(self) -> int:
        return self.structure.num_leaves

    def residual(self, x: Leaves, parameters: Leaves) -> Leaves:
        return self.kind.residual(self.program, x, parameters)

    def check_depends(self, values: Leaves) -> None:
        """Refuse an equation of which the unknowns, or some, are no part.

        Raises:
            GradientError: the residual does not depend on them.
        """
        rows = _rows(self, tuple(map(aval_of, values)))
        for k in range(self.unknowns):
            if not any([row[k] for row in rows]):
                alone = self.unknowns == 1
                what = "its first argument" if alone else f"leaf {k} of its first argument"
                derivative = "the gradient of " if self.kind.symmetric else ""
                raise GradientError(
                    f"{self.name}: {derivative}{self.kind.name}(x, ...) does not depend on x, {what} "
                    f"({describe(values[k])}), so it does not say what x is: compute it with x, without "
                    "detach, stop_gradient or no_grad"
                )

    def solution(self, x: Leaves, parameters: Leaves) -> list[Value]:
        """``x``, which solves the equation, as a function of the parameters."""
        values = [*x, *parameters]
        self.check_depends(values)
        return extend.with_derivative(ImplicitRules(self), x, parameters)


@functools.lru_cache(maxsize=256)
def _rows(equation: Equation, avals: tuple[Aval, ...]) -> Sequence[Sequence[bool]]:
    """For each element of the residual, whether it depends on each unknown."""
    count = equation.unknowns

    def flat(*values: Array) -> tuple[Value, ...]:
        return tuple(equation.residual(values[:count], values[count:]))

    return extend.dependence(flat, avals)


@dataclasses.dataclass(frozen=True, slots=True)
class ImplicitRules:
    """The derivatives of a solution in the parameters, as `extend.with_derivative` takes them."""

    equation: Equation

    @property
    def name(self) -> str:
        return self.equation.name

    def pushforward(
        self, x: Leaves, parameters: Leaves, tangents: Sequence[Value | None]
    ) -> list[Value]:
        mask = tuple([t is not None for t in tangents])
        present = [t for t in tangents if t is not None]
        derivative = _derivative(self.equation, mask, _tangents)
        pushed = list(bind(derivative, [*x, *parameters, *present]))
        check_finite(self.equation, pushed, [*x, *present])
        return pushed

    def pullback(
        self, x: Leaves, parameters: Leaves, cotangents: Leaves, need: Sequence[bool]
    ) -> list[Value | None]:
        derivative = _derivative(self.equation, tuple(need), _gradients)
        grads = list(bind(derivative, [*x, *parameters, *cotangents]))
        check_finite(self.equation, grads, [*x, *cotangents])
        wanted = iter(grads)
        return [next(wanted) if n else None for n in need]


@functools.lru_cache(maxsize=256)
def _derivative(
    equation: Equation, mask: tuple[bool, ...], rule: Callable[..., PyTree]
) -> Primitive:
    """One of the rules as a Primitive of solution, parameters, and tangents or cotangents."""
    count = equation.unknowns

    def fn(*values: Array) -> tuple[Array, ...]:
        x, rest = values[:count], values[count:]
        parameters, directions = rest[: len(mask)], rest[len(mask) :]
        return tuple(rule(equation, mask, x, parameters, directions))

    return Primitive(f"{equation.name}_{rule.__name__.strip('_')}", fn)


def _at(
    equation: Equation, mask: tuple[bool, ...], x: Leaves, parameters: Leaves
) -> tuple[Callable[..., list[Value]], list[Array]]:
    """The residual as a function of the masked parameters, and these."""

    def residual(*masked: Array) -> list[Value]:
        new = iter(masked)
        mixed = [next(new) if m else p for m, p in zip(mask, parameters, strict=True)]
        return list(equation.residual(x, mixed))

    return residual, list(itertools.compress(parameters, mask))


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class JacobianProduct:
    """The `Product` of ∂residual/∂x, or of its transpose, with a vector; a point is [*x, *parameters]."""

    equation: Equation
    of_transpose: bool = False

    def __call__(self, point: Leaves, vector: Leaves) -> Leaves:
        count = self.equation.unknowns
        x, parameters = list(point[:count]), point[count:]

        def residual(x: Leaves) -> list[Value]:
            return list(self.equation.residual(x, parameters))

        if self.of_transpose:
            (product,) = jax.vjp(residual, x)[1](list(vector))
        else:
            product = jax.jvp(residual, (x,), (list(vector),))[1]
        return list(product)

    @property
    def transposed(self) -> JacobianProduct:
        return JacobianProduct(self.equation, not self.of_transpose)


def _solved(product: JacobianProduct, x: Leaves, parameters: Leaves, right: Leaves) -> list[Value]:
    """The vector of which the product is ``right``."""
    equation = product.equation
    point = [*x, *parameters]

    def matvec(vector: Leaves) -> list[Value]:
        return extend.linear_call(product, point, vector)

    return equation.system.solve(equation.name, matvec, right, equation.structure)


def _tangents(
    equation: Equation, mask: tuple[bool, ...], x: Leaves, parameters: Leaves, tangents: Leaves
) -> Leaves:
    residual, primals = _at(equation, mask, x, parameters)
    cast = [t.astype(p.dtype) for p, t in zip(primals, tangents, strict=True)]
    right = [-t for t in jax.jvp(residual, primals, cast)[1]]
    return _solved(JacobianProduct(equation), x, parameters, right)


def _gradients(
    equation: Equation, mask: tuple[bool, ...], x: Leaves, parameters: Leaves, cotangents: Leaves
) -> Leaves:
    right = [_conjugate(c.astype(v.dtype)) for c, v in zip(cotangents, x, strict=True)]
    u = _solved(JacobianProduct(equation, of_transpose=True), x, parameters, right)
    residual, primals = _at(equation, mask, x, parameters)
    return list(map(_conjugate, jax.vjp(residual, *primals)[1]([-v for v in u])))


def _conjugate(x: Array) -> Array:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def check_finite(equation: Equation, derivative: Leaves, operands: Leaves) -> None:
    """Refuse a derivative that is not finite where all that it is computed of is; numbers alone are checked.

    Raises:
        SingularError: it is so.
    """
    if are_finite(derivative) is False and are_finite(operands):
        linear = equation.kind is KINDS["linear"]
        x = "" if linear else f" (the derivative of {equation.kind.name} in x, at the solution)"
        raise SingularError(
            f"{equation.name}: the linear system {'' if linear else 'of the derivative '}is singular, or its "
            f"solver failed{x}. Write the equation so that its solution is unique nearby, or use a linear "
            "solver that copes, such as lineax.SVD()"
        )


def are_finite(xs: Leaves) -> bool | None:
    """Whether all numbers are finite; None where JAX traces them."""
    flush()
    values = [bottom(x) for x in xs]
    if any([isinstance(v, jax.core.Tracer) for v in values]):
        return None
    return bool(_FINITE.execute([v for v in values if jnp.issubdtype(v.dtype, jnp.inexact)]))


_FINITE = Primitive(
    "are_finite", lambda *xs: jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in xs]))
)


def staged(
    name: str,
    kind: Kind,
    f: Callable[..., PyTree],
    x: Leaves,
    structure: jax.tree_util.PyTreeDef,
    args: PyTree,
    system: System,
    solution: str = "the solution",
) -> tuple[Equation, list[Value]]:
    """The equation that ``f(x, *args)`` stands for, and the values of its parameters.

    Arguments:
        x: the leaves of a solution, or what has their shapes and dtypes.
        solution: what x is called in an error.

    Raises:
        StructureError: ``f`` does not return what it must.
    """
    leaves, around = extend.partition(args, OPERANDS)

    def body(*inside: PyTree) -> PyTree:
        args = around.combine(inside[: len(leaves)])
        return f(extend.unflatten(structure, inside[len(leaves) :]), *args)

    body.__wrapped__ = f  # type: ignore[attr-defined]

    operands = extend.varying_alike([*leaves, *x])
    try:
        program, values, out_structure = extend.stage(body, operands, name=name, bodies=[f])
    except HOST_ERRORS as error:
        raise HostValueError(
            f"{name}: {kind.name}(x, ...) reads a value, and it is traced, without values: use "
            "fad.numpy.where or fad.lax.cond in the place of a Python branch, and for code of the host a "
            "fad.Function with rules, whose bodies call jax.pure_callback"
        ) from error
    parameters = values[: len(values) - len(x)]
    equation = Equation(name, kind, program, structure, system)
    _check_form(equation, x, parameters, out_structure, solution)
    return equation, parameters


@functools.lru_cache(maxsize=256)
def _results(equation: Equation, avals: tuple[Aval, ...]) -> Sequence[Aval]:
    """The avals of what the function of the user's returns.

    Raises:
        LevelError: it names the axis of a vmap, whose lanes it would couple.
    """
    closed = jax.make_jaxpr(equation.program.flat)(*avals)
    if extend.axes_named(closed.jaxpr):
        raise LevelError(
            f"{equation.name}: {equation.kind.name}(x, ...) names the axis of a vmap, as pmean and psum "
            "do, and each lane has an equation of its own: compute that outside, and pass it as an "
            "argument, or solve for all lanes at once, without the vmap"
        )
    return closed.out_avals


def _check_form(
    equation: Equation,
    x: Leaves,
    parameters: Leaves,
    out_structure: jax.tree_util.PyTreeDef,
    solution: str,
) -> None:
    who, kind = equation.name, equation.kind
    outs = _results(equation, tuple(map(aval_of, (*parameters, *x))))
    got = extend.unflatten(out_structure, list(outs))
    if kind.symmetric:
        if (
            out_structure != jax.tree.structure(0)
            or outs[0].shape
            or not np.issubdtype(outs[0].dtype, np.floating)
        ):
            advice = "write .sum() or .mean() in it"
            if any([o.dtype.kind == "c" for o in outs]):
                advice = "for complex unknowns write the square of an absolute value, abs(z) ** 2"
            raise StructureError(
                f"{who}: objective(x, ...) must return a real scalar, got {in_words(got)}: {advice}"
            )
        return
    form = [(o.shape, o.dtype) for o in outs], out_structure
    if form != ([(v.shape, v.dtype) for v in map(aval_of, x)], equation.structure):
        expected = extend.unflatten(equation.structure, [aval_of(v) for v in x])
        raise StructureError(
            f"{who}: {kind.name}(x, ...) returned {in_words(got)}, but {solution} is {in_words(expected)}. "
            "It must return one equation for each unknown, in the form of x"
        )
