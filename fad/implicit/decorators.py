"""``custom_root``, ``custom_fixed_point``, ``custom_argmin``: decorators of solvers of one's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend, no_grad, stop_gradient, tensor
from fad.errors import ArgumentError, HostValueError, StructureError, describe
from fad.extend import (
    HOST_ERRORS,
    Primitive,
    aval_of,
    bind,
    bottom,
    enter,
    flush,
    has_tensor,
    leave,
    outlived,
    partition,
    restores_modes,
)
from fad.extend.types import Array, Aval, PyTree, Rest, Value
from fad.implicit.equations import KINDS, OPERANDS, Kind, staged
from fad.implicit.systems import System, hashable, in_words, system_of

F = TypeVar("F", bound=Callable[..., Any])


def custom_root(residual: Callable[..., PyTree], linear_solve: object = None) -> Callable[[F], F]:
    """A decorator of ``solve(init, *args)``, whose result x has ``residual(x, *args) = 0``.

    The result has derivatives in all args, and in what residual closes over, by the implicit function
    theorem: ∂x = -(∂residual/∂x)⁻¹ ∂residual, of any order, in both modes, under every transform of fad and
    of JAX. None of what solve does is differentiated, recorded or kept. init has no derivative.

    ``solve`` is called with Tensors, on which nothing is recorded. It may be written in anything: fad, NumPy,
    SciPy, a Python loop that branches on values. In compiled code and under ``vmap``, a solver that reads
    values is called on the host at each execution (``jax.pure_callback``), lane by lane; there it must return
    something of init's form, and take what is traced as an argument. A solver in plain JAX is
    ``fad.from_jax(solve)``. A solver that finds no solution has to say so itself.

    Arguments:
        residual: ``residual(x, *args)``, in fad: a pytree of x's structure, shapes and dtypes. It is traced
            at each call, without numbers, as the body of ``fad.lax.cond`` is.
        linear_solve: solves the linear systems of the derivatives: a function ``(matvec, b) -> x`` in fad, or
            a solver of lineax. By default the matrix of ∂residual/∂x is made and factorized, for n
            unknowns at a cost of n products and n³.

    Returns:
        A decorator. The decorated function takes keyword arguments too; what solve has as keyword-only
        parameters is for solve alone, and has no derivative.

    Raises:
        ArgumentError: residual is no function, or linear_solve no linear solver; a result is not floating.
        StructureError: residual, or solve in compiled code, returns something of another form.
        GradientError: residual does not depend on x.
        SingularError: ∂residual/∂x is singular; in compiled code the derivative is infinite or NaN.

    Source: Blondel et al., "Efficient and Modular Implicit Differentiation" (2022), and its library
    ``jaxopt``; ``jax.lax.custom_root``.

    >>> import fad, numpy as np
    >>> @fad.implicit.custom_root(lambda x, a: x**3 - a)
    ... def cube_root(init, a):
    ...     return np.cbrt(a)
    >>> float(fad.grad(cube_root, 1)(1.0, 8.0)), float(fad.jit(fad.grad(cube_root, 1))(1.0, 8.0))
    (0.0833333358168602, 0.0833333358168602)
    """
    return _decorator("custom_root", KINDS["root"], residual, linear_solve)


def custom_fixed_point(
    step: Callable[..., PyTree], linear_solve: object = None
) -> Callable[[F], F]:
    """A decorator of ``solve(init, *args)``, whose result x has ``step(x, *args) = x``.

    Arguments, errors and conventions are those of `custom_root` with the residual ``step(x, *args) - x``.

    >>> import fad, fad.numpy as fnp
    >>> @fad.implicit.custom_fixed_point(lambda x, a: fnp.cos(a * x))
    ... def solve(x, a):
    ...     for _ in range(100):
    ...         x = fnp.cos(a * x)
    ...     return x
    >>> round(float(fad.grad(solve, 1)(1.0, 1.0)), 4)
    -0.2975
    """
    return _decorator("custom_fixed_point", KINDS["fixed_point"], step, linear_solve)


def custom_argmin(
    objective: Callable[..., PyTree], linear_solve: object = None
) -> Callable[[F], F]:
    """A decorator of ``solve(init, *args)``, whose result x is a minimum of ``objective(x, *args)``.

    Arguments, errors and conventions are those of `custom_root` with the gradient of the objective in x as
    the residual, whose derivative is the Hessian. The objective returns a real scalar.

    >>> import fad, fad.numpy as fnp, scipy.optimize
    >>> def cost(x, a):
    ...     return fnp.sum((x - a) ** 2) + fnp.sum(x**2)
    >>> @fad.implicit.custom_argmin(cost)
    ... def solve(init, a):
    ...     return scipy.optimize.minimize(lambda x: float(cost(fnp.asarray(x), a)), init).x
    >>> a = fnp.array([1.0, 2.0])
    >>> fad.jacrev(solve, 1)(fnp.zeros(2), a).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    return _decorator("custom_argmin", KINDS["argmin"], objective, linear_solve)


def _decorator(
    who: str, kind: Kind, f: Callable[..., PyTree], linear_solve: object
) -> Callable[[F], F]:
    if not callable(f):
        raise ArgumentError(
            f"{who}: the first argument must be a function {kind.name}(x, *args), got {describe(f)}"
        )
    system, taken = system_of(who, linear_solve, kind.symmetric), _signature_of(f)

    def decorate(solve: F) -> F:
        if not callable(solve):
            raise ArgumentError(
                f"{who}: what is decorated must be a function solve(init, *args), got {describe(solve)}: "
                f"write {who}({kind.name})(solve)"
            )
        name = getattr(solve, "__name__", type(solve).__name__)
        signature = _signature_of(solve)

        @functools.wraps(solve, updated=())
        def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
            options = kwargs
            if signature is not None:
                try:
                    bound = signature.bind(*args, **kwargs)
                except TypeError as error:
                    raise TypeError(f"{name}: {error}") from None
                bound.apply_defaults()
                args, options = bound.args, bound.kwargs
            if not args:
                raise TypeError(f"{name}: there must be a first argument, with which solve begins")
            if taken is not None:
                try:
                    taken.bind(*args)
                except TypeError as error:
                    raise TypeError(
                        f"{name}: {kind.name}(x, *args) is given x and what {name} is given after its first "
                        f"argument, {len(args)} arguments in all: {error}"
                    ) from None
            return differentiable(name, kind, f, system, solve, args[0], args[1:], options)

        return wrapped  # type: ignore[return-value]

    return decorate


def _signature_of(f: Callable[..., PyTree]) -> inspect.Signature | None:
    """The signature of ``f``; None if it is not written in Python."""
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


@restores_modes
def differentiable(
    name: str,
    kind: Kind,
    f: Callable[..., PyTree],
    system: System,
    solve: Callable[..., PyTree],
    init: PyTree,
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
) -> PyTree:
    """``solve(init, *args, **options)``, with the derivatives that its equation gives."""
    tensors = has_tensor((init, args, options))
    inside = enter((init, args, options))
    constants = extend.map_leaves(
        lambda x: stop_gradient(x) if isinstance(x, Tensor) else x, inside
    )
    with no_grad():
        solution = _solved(name, solve, constants)
    leaves, structure = extend.flatten(solution)
    x = [_unknown(name, v) for v in leaves]
    if not x:
        raise ArgumentError(
            f"{name} returned {describe(solution)}, expected a pytree of floating arrays"
        )
    tracked = tuple(leave(inside[1], False))
    equation, parameters = staged(
        name, kind, f, x, structure, tracked, system, f"what {name} returned"
    )
    outs = equation.solution(x, parameters)
    return leave(extend.unflatten(structure, outs, extend.skeleton(solution)), tensors)


def _unknown(name: str, x: PyTree) -> PyTree:
    """A leaf of a solution, as a constant."""
    x = stop_gradient(outlived(x)) if isinstance(x, (Tensor, jax.Array)) else x
    if not isinstance(x, (Tensor, jax.Array)):
        if not isinstance(x, (np.ndarray, np.generic, float, complex, int)):
            raise ArgumentError(f"{name} returned {describe(x)}, expected floating arrays")
        x = jnp.asarray(np.array(x))
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise ArgumentError(
            f"{name} returned {describe(x)}: a solution must have a floating or complex dtype to have a "
            "derivative; return what else there is to know by another way"
        )
    return leave(x, False)


def _solved(
    name: str, solve: Callable[..., PyTree], call: tuple[PyTree, tuple[PyTree, ...], PyTree]
) -> PyTree:
    init, args, options = call
    try:
        return solve(init, *args, **options)
    except HOST_ERRORS as error:
        operands, around = partition(call, OPERANDS)
        if not any([_is_hidden(x) for x in operands]):
            raise HostValueError(f"{name} {CLOSES_OVER}") from error
    leaves = _on_host(name, solve, operands, around)
    return extend.unflatten(extend.flatten(init)[1], list(leaves), init)


CLOSES_OVER = (
    "reads the value of something that it closes over, which has none in compiled code and under vmap: pass "
    "it as an argument, which the equation takes too"
)


def _is_hidden(x: PyTree) -> bool:
    """Whether ``x`` has no value here: it is traced, or it has one for each lane."""
    return isinstance(x, Tensor) and (x.level.id > 0 or isinstance(bottom(x), jax.core.Tracer))


def _on_host(
    name: str, solve: Callable[..., PyTree], operands: Sequence[Value], around: Rest
) -> PyTree:
    """The leaves of what a solver that reads values gives: a call for each execution and lane."""
    primitive = _host_call(name, hashable(solve), tuple(map(aval_of, operands)), around)
    return bind(primitive, leave(list(operands), False))


@functools.lru_cache(maxsize=256)
def _host_call(name: str, solve: Rest, avals: tuple[Aval, ...], around: Rest) -> Primitive:
    """A call of ``solve`` on the host, for operands of these shapes and dtypes."""
    like, structure = extend.flatten(around.combine(avals)[0])
    filled = [
        a if hasattr(a, "shape") else aval_of(a) for a in like
    ]  # a number is none of the operands
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in filled]

    @extend.with_default_state()
    def call(*arrays: Array) -> tuple[np.ndarray, ...]:
        with jax.ensure_compile_time_eval(), no_grad():
            init, args, options = around.combine([tensor(np.asarray(a)) for a in arrays])
            try:
                solution = solve.combine([])(init, *args, **options)
            except HOST_ERRORS as error:
                raise HostValueError(f"{name} {CLOSES_OVER}") from error
            flush()
            leaves, got = extend.flatten(solution)
            values = [np.asarray(bottom(v)) for v in leaves]
            if got != structure or [v.shape for v in values] != [s.shape for s in structs]:
                raise StructureError(
                    f"{name} reads values, so in compiled code and under vmap it is called on the host, and "
                    "must return something of init's form: expected "
                    f"{in_words(extend.unflatten(structure, structs))}, got "
                    f"{in_words(extend.unflatten(got, values))}"
                )
            return tuple([v.astype(s.dtype) for v, s in zip(values, structs, strict=True)])

    def host(*values: Array) -> PyTree:
        return jax.pure_callback(call, tuple(structs), *values, vmap_method="sequential")

    primitive = Primitive(name, host)
    primitive.calls_host = True
    return primitive
