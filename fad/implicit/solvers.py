"""``root``, ``fixed_point``, ``argmin``, ``linear_solve``: solvers of libraries, with derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend, stop_gradient
from fad.errors import ArgumentError, ConvergenceError, describe
from fad.extend import (
    Primitive,
    aval_of,
    bind,
    bottom,
    enter,
    flush,
    has_tensor,
    leave,
    restores_modes,
)
from fad.extend.types import Array, PyTree, Rest, Value
from fad.implicit.equations import KINDS, OPERANDS, Equation, check_finite, run, staged
from fad.implicit.systems import GROSS, distance, hashable, largest, library, system_of, where

STEPS = 1000

_ROOT_FINDERS = ("AbstractRootFinder", "AbstractLeastSquaresSolver", "AbstractMinimiser")
# For each kind of equation: the function of optimistix, the solver that is used by default, and the classes
# of those that may be given.
ITERATIONS = {
    "root": ("root_find", "Newton", _ROOT_FINDERS),
    "fixed_point": (
        "fixed_point",
        "FixedPointIteration",
        ("AbstractFixedPointSolver", *_ROOT_FINDERS),
    ),
    "argmin": ("minimise", "BFGS", ("AbstractMinimiser",)),
}


def root(
    residual: Callable[..., PyTree],
    init: PyTree,
    *args: PyTree,
    solver: object = None,
    tol: float | None = None,
    max_steps: int | None = None,
    options: dict[str, object] | None = None,
    linear_solve: object = None,
) -> PyTree:
    """x with ``residual(x, *args) = 0``, by an iteration of optimistix, with derivatives as `custom_root`'s.

    Arguments:
        residual: ``residual(x, *args)``, in fad, a pytree of x's structure, shapes and dtypes. It may close
            over tracked Tensors; their derivatives are found too.
        init: where the iteration begins: a pytree of floating arrays, of the form of x.
        args: pytrees.
        solver: a solver of optimistix, such as ``optimistix.Dogleg(rtol=1e-6, atol=1e-6)``; default its
            ``Newton``.
        tol: relative and absolute tolerance of the default solver; None is the machine epsilon to the
            power of two thirds, 2.4e-5 in 32 bits, 3.7e-11 in 64.
        max_steps: the most steps that it takes; None is 1000.
        options: what the solver takes at run time, such as ``{"lower": 0.0, "upper": 2.0}`` for
            ``optimistix.Bisection``.
        linear_solve: for the derivatives, as in `custom_root`.

    Returns:
        x: JAX arrays where all arguments are, else Tensors. In compiled code x is NaN where
        the iteration did not converge.

    Raises:
        ConvergenceError: the iteration did not converge (it says after how many steps, with what residual).
        MissingLibrary: optimistix is not installed.
        ArgumentError, StructureError, GradientError, SingularError: as in `custom_root`.

    Source: ``optimistix.root_find``.

    >>> import fad
    >>> f = lambda a: fad.implicit.root(lambda x: x**2 - a, 1.0)
    >>> round(float(f(2.0)), 4), round(float(fad.grad(f)(2.0)), 4), round(float(fad.hessian(f)(2.0)), 4)
    (1.4142, 0.3536, -0.0884)
    """
    chosen = _Chosen(solver, tol, max_steps, options, linear_solve)
    return _iterated("root", residual, init, args, chosen)


def fixed_point(
    step: Callable[..., PyTree],
    init: PyTree,
    *args: PyTree,
    solver: object = None,
    tol: float | None = None,
    max_steps: int | None = None,
    options: dict[str, object] | None = None,
    linear_solve: object = None,
) -> PyTree:
    """x with ``step(x, *args) = x``, by an iteration of optimistix.

    Arguments, results and errors are those of `root`; the default solver is
    ``optimistix.FixedPointIteration``, and root finders are taken too.

    Source: ``optimistix.fixed_point``.

    >>> import fad, fad.numpy as fnp
    >>> f = lambda a: fad.implicit.fixed_point(lambda x: fnp.cos(a * x), 1.0)
    >>> round(float(f(1.0)), 3), round(float(fad.grad(f)(1.0)), 3)
    (0.739, -0.297)
    """
    chosen = _Chosen(solver, tol, max_steps, options, linear_solve)
    return _iterated("fixed_point", step, init, args, chosen)


def argmin(
    objective: Callable[..., PyTree],
    init: PyTree,
    *args: PyTree,
    solver: object = None,
    tol: float | None = None,
    max_steps: int | None = None,
    options: dict[str, object] | None = None,
    linear_solve: object = None,
) -> PyTree:
    """The x at which ``objective(x, *args)``, a real scalar, has a minimum, by an iteration of optimistix.

    Arguments, results and errors are those of `root`; the default solver is ``optimistix.BFGS``. The
    derivatives are those of the point where the gradient is zero.

    Source: ``optimistix.minimise``.

    >>> import fad, fad.numpy as fnp
    >>> f = lambda a: fad.implicit.argmin(lambda x: fnp.cosh(x - a) + 0.5 * x**2, 0.0)
    >>> round(float(fad.grad(f)(0.0)), 3)
    0.5
    """
    chosen = _Chosen(solver, tol, max_steps, options, linear_solve)
    return _iterated("argmin", objective, init, args, chosen)


@restores_modes
def linear_solve(
    matvec: Callable[..., PyTree],
    b: PyTree,
    *,
    symmetric: bool = False,
    positive: bool = False,
    solver: object = None,
) -> PyTree:
    """x with ``matvec(x) = b``, for a linear function; differentiable in b and in what matvec closes over.

    Arguments:
        matvec: a linear function, in fad, of pytrees of b's structure, shapes and dtypes. It may close over
            tracked Tensors.
        b: a pytree of floating or complex arrays.
        symmetric: the matrix of matvec is so; complex ones: it is its own transpose.
        positive: it is symmetric, and positive definite too.
        solver: a solver of lineax, such as ``lineax.CG(rtol=1e-5, atol=1e-5)``, or a function
            ``(matvec, b) -> x``; by default the matrix is made, and factorized.

    Returns:
        x: JAX arrays where b is, else Tensors. In compiled code x is NaN or infinite where there is none.

    Raises:
        SingularError: the matrix is singular.
        ConvergenceError: the solver found no solution, or matvec is not linear.
        MissingLibrary: lineax is not installed, and asked for.
        ArgumentError, StructureError, GradientError: as in `custom_root`.

    Source: ``jax.lax.custom_linear_solve``, ``lineax.linear_solve``.

    >>> import fad, fad.numpy as fnp
    >>> f = lambda k: fad.implicit.linear_solve(lambda x: k * x, fnp.array([2.0, 4.0]))
    >>> f(2.0).tolist(), fad.jacfwd(f)(2.0).tolist()
    ([1.0, 2.0], [-0.5, -1.0])
    """
    who = "linear_solve"
    _check_function(who, "matvec(x)", matvec)
    system = system_of(who, solver, symmetric, positive)
    tensors = has_tensor(b)
    right, structure = _unknowns(who, "b", enter(b))
    equation, constants = staged(who, KINDS["linear"], matvec, right, structure, (), system, "b")
    parameters = [*constants, *right]
    equation.check_depends([*right, *parameters])
    *x, error, scale = bind(_linear(equation), stop_gradient(parameters))
    numbers = _numbers(error, scale)
    if numbers is not None and np.any(numbers[0] > GROSS * numbers[1]):
        raise ConvergenceError(
            f"{who}: matvec(x) differs from b by up to {np.max(numbers[0]):.1e}, where elements are up to "
            f"{np.max(numbers[1]):.1e}: matvec is not linear (it must give zero for zero), or the solver "
            "found no solution: let it take more steps, or use another one"
        )
    check_finite(equation, x, right)
    outs = equation.solution(leave(x, False), parameters)
    return leave(extend.unflatten(structure, outs, extend.skeleton(b)), tensors)


@functools.lru_cache(maxsize=256)
def _linear(equation: Equation) -> Primitive:
    """The solution of a linear equation, how far it is off, and how large its terms are."""
    count = equation.unknowns

    def fn(*parameters: Array) -> tuple[Value, ...]:
        constants, b = parameters[:-count], parameters[-count:]

        def matvec(x: PyTree) -> list[Value | None]:
            return list(run(equation.program, x, constants))

        x = equation.system.run(equation.name, matvec, b, equation.structure)
        # At -2x, so that what is not linear is found too.
        products = matvec([-2 * v for v in x])
        error, scale = distance(products, [-2 * v for v in b])
        return (*where(error <= GROSS * scale, x), error, scale)

    return Primitive(equation.name, fn)


class _Chosen(NamedTuple):
    """What users choose of an iteration, see `root`."""

    solver: object
    tol: float | None
    max_steps: int | None
    options: dict[str, object] | None
    linear_solve: object


def _iterated(
    who: str, f: Callable[..., PyTree], init: PyTree, args: tuple[PyTree, ...], chosen: _Chosen
) -> PyTree:
    kind = KINDS[who]
    _check_function(who, f"{kind.name}(x, *args)", f)
    steps = STEPS if chosen.max_steps is None else chosen.max_steps
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError(f"{who}: max_steps must be a positive int, got {describe(steps)}")
    system = system_of(who, chosen.linear_solve, kind.symmetric)
    tensors = has_tensor((init, args))
    x, structure = _unknowns(who, "init", enter(init))
    solver = _solver(who, chosen.solver, chosen.tol, x)
    inside = leave(enter(args), False)
    equation, parameters = staged(who, kind, f, x, structure, inside, system, "init")
    equation.check_depends([*x, *parameters])
    taken, around = extend.partition(enter(chosen.options or {}), OPERANDS)
    iteration = _iteration(equation, hashable(solver), steps, around, len(taken))
    *x, good, count, error = bind(iteration, stop_gradient([*x, *parameters, *taken]))
    _check_converged(who, kind.name, good, count, error, steps)
    outs = equation.solution(leave(x, False), parameters)
    return leave(extend.unflatten(structure, outs, extend.skeleton(init)), tensors)


def _solver(who: str, solver: object, tol: float | None, x: Sequence[Value]) -> Any:
    """The solver of optimistix."""
    optx = library("optimistix", f"fad.implicit.{who}")
    _, default, classes = ITERATIONS[who]
    if solver is None:
        epsilon = max([float(jnp.finfo(v.dtype).eps) for v in x])
        tol = epsilon ** (2 / 3) if tol is None else float(tol)
        return getattr(optx, default)(rtol=tol, atol=tol)
    if not isinstance(solver, tuple([getattr(optx, c) for c in classes])):
        hint = f": write {solver.__name__}(...)" if isinstance(solver, type) else ""
        raise ArgumentError(
            f"{who}: solver must be a solver of optimistix, such as optimistix.{default}(rtol=1e-6, "
            f"atol=1e-6), got {describe(solver)}{hint}. For a solver of your own: "
            f"fad.implicit.custom_{who}"
        )
    if tol is not None:
        raise ArgumentError(
            f"{who}: tol is that of the default solver: give it to {type(solver).__name__}(rtol=, atol=)"
        )
    return solver


@functools.lru_cache(maxsize=256)
def _iteration(equation: Equation, solver: Rest, steps: int, around: Rest, size: int) -> Primitive:
    """The result of an iteration, whether it converged, in how many steps, and the largest residual.

    ``size``: how many operands the options have, which come last.
    """
    optx = library("optimistix", equation.name)
    iterate = getattr(optx, ITERATIONS[equation.name][0])
    count = equation.unknowns

    def fn(*values: Array) -> tuple[Value, ...]:
        last = len(values) - size
        x, parameters, taken = values[:count], values[count:last], values[last:]

        def f(x: PyTree, _: PyTree) -> PyTree:
            out = run(equation.program, extend.flatten(x)[0], parameters)
            return out[0] if equation.kind.symmetric else extend.unflatten(equation.structure, out)

        options = around.combine(taken)
        begin = extend.unflatten(equation.structure, x)
        done = iterate(f, solver.combine([]), begin, None, options, max_steps=steps, throw=False)
        end = extend.flatten(done.value)[0]
        error = largest(equation.residual(end, parameters))
        good = (done.result == optx.RESULTS.successful) & jnp.isfinite(error)
        return (*where(good, end), good, done.stats["num_steps"], error)

    return Primitive(equation.name, fn)


def _check_converged(
    who: str, name: str, good: object, count: object, error: object, steps: int
) -> None:
    numbers = _numbers(good, count, error)
    if numbers is None or numbers[0].all():
        return
    failed = ~numbers[0]
    taken, far = numbers[1][failed].max(), numbers[2][failed].max()
    lanes = f" in {failed.sum()} of {failed.size} lanes" if failed.size > 1 else ""
    what = {"residual": "the residual", "step": "step(x) - x", "objective": "the gradient"}[name]
    ended = "took all" if taken >= steps else "broke off after"
    raise ConvergenceError(
        f"{who}: the iteration did not converge{lanes}: it {ended} {taken} steps, and {what} has elements of "
        f"up to {far:.1e}. Begin nearer to a solution (init), allow more steps (max_steps) or a larger tol, "
        "or take another solver of optimistix"
    )


def _numbers(*xs: object) -> list[np.ndarray] | None:
    """The values as NumPy arrays; None where JAX traces them."""
    flush()
    values = [bottom(x) for x in xs]
    if any([isinstance(v, jax.core.Tracer) for v in values]):
        return None
    return list(map(np.asarray, np.broadcast_arrays(*values)))


def _unknowns(who: str, what: str, tree: PyTree) -> tuple[list[Value], jax.tree_util.PyTreeDef]:
    """The leaves of a pytree of floating arrays, and its structure."""
    leaves, structure = extend.flatten(tree)
    for x in leaves:
        if not isinstance(x, OPERANDS) or not jnp.issubdtype(aval_of(x).dtype, jnp.inexact):
            write = f": write {float(x)}" if type(x) is int else ""
            raise ArgumentError(
                f"{who}: {what} must be a pytree of floating or complex arrays, got {describe(x)} in "
                f"it{write}"
            )
    if not leaves:
        raise ArgumentError(f"{who}: {what} has no arrays, expected a pytree of floating arrays")
    arrays = [x if isinstance(x, Tensor) else jnp.asarray(np.array(x)) for x in leaves]
    values = leave(arrays, False)
    return values, structure


def _check_function(who: str, form: str, f: Callable[..., PyTree]) -> None:
    if not callable(f):
        matrix = ": write lambda x: A @ x" if hasattr(f, "shape") else ""
        raise ArgumentError(
            f"{who}: the first argument must be a function {form}, got {describe(f)}{matrix}"
        )
