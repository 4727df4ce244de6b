"""``sparsity``, ``sparse_jacobian`` and ``sparse_hessian``."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fad.bridge.compilation import jit
from fad.bridge.outer_values import is_traced
from fad.bridge.program_keys import key_of
from fad.bridge.signatures import Arguments
from fad.core.avals import aval_of, struct_of
from fad.core.caches import Cache
from fad.core.dtypes import is_inexact
from fad.core.level import bind, restores_modes
from fad.core.partition import Rest
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.errors import ArgumentError, GradientError, StructureError, describe
from fad.levels.staged import StagedLevel, in_body, stage
from fad.sparse.coloring import Coloring, best_coloring
from fad.sparse.patterns import pattern_of
from fad.sparse.rules import Constant
from fad.tape.recorder import ROOT
from fad.transforms.batching import vmap
from fad.transforms.boundary import check_callable, differentiable_leaves, has_tensor, leave, pick
from fad.transforms.forward import push_forward
from fad.transforms.reverse import gradient_function, vjp

__all__ = ["sparse_hessian", "sparse_jacobian", "sparsity"]

JACOBIAN, HESSIAN = "sparse_jacobian", "sparse_hessian"


def sparsity(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """Which entries of the Jacobian of ``f`` may differ from 0, for any values of its arguments.

    Arguments:
        f: a function of arrays that returns one array. It is traced, not computed.
        argnums: which positional argument to differentiate; it is one array.

    Returns:
        A function with f's arguments, of which the shapes and dtypes count. It returns a
        ``jax.experimental.sparse.BCOO`` of ones (``int8``), of shape ``output.shape + argument.shape``.
        An entry that is not in it is 0 at every point. One that is in it may be 0, for instance because two
        terms cancel.

    Raises:
        HostValueError: Python reads a number that f computes, as a branch on one does.
        StructureError: the argument or the output is not one array; the pattern is too large.

    >>> import fad, fad.numpy as fnp
    >>> fad.sparsity(fnp.diff)(fnp.zeros(4)).todense().tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    derivative = _Derivative(f, argnums, "sparsity")

    @restores_modes
    @functools.wraps(f, updated=())
    def pattern(*args: Any, **kwargs: Any) -> Any:
        plan = derivative.plan(args, kwargs)
        with jax.ensure_compile_time_eval():
            return plan.matrix(jax.numpy.ones(len(plan.rows), np.int8))

    return pattern


def sparse_jacobian(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The Jacobian of ``f`` as a sparse matrix, by as many products as its pattern needs colours.

    The pattern and its colouring are found at the first call with arguments of these shapes; later
    calls run one compiled program. It goes forward or in reverse, whichever takes fewer products.

    Arguments:
        f: a function of arrays that returns one array, as for `jit`: without side effects, and without
            branches of Python on values.
        argnums: which positional argument to differentiate; it is one array.

    Returns:
        A function with f's arguments that returns a ``jax.experimental.sparse.BCOO`` of shape
        ``output.shape + argument.shape``: what `jacfwd` gives, without the entries that are 0 at every
        point. Under a transform its ``data`` is a Tensor, which is differentiated and batched as any other.

    Raises:
        HostValueError: Python reads a number that f computes.
        StructureError: the argument or the output is not one array; the pattern is too large.

    >>> import fad, fad.numpy as fnp
    >>> jacobian = fad.sparse_jacobian(lambda x: x[1:] * x[:-1])(fnp.array([1.0, 2.0, 3.0]))
    >>> jacobian.todense().tolist(), jacobian.nse
    ([[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]], 4)
    """
    return _values(f, argnums, JACOBIAN)


def sparse_hessian(f: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a scalar function as a sparse matrix.

    Each product is one of the Hessian with a vector, forward over reverse. A star colouring needs fewer of
    them than a Jacobian does, as an entry is read from either side of the diagonal.

    Arguments:
        f: a function of arrays that returns one real scalar, as for `jit`.
        argnums: which positional argument to differentiate; it is one array, of real dtype.

    Returns:
        A function with f's arguments that returns a ``jax.experimental.sparse.BCOO`` of shape
        ``argument.shape + argument.shape``: what `hessian` gives.

    Raises:
        HostValueError: Python reads a number that f computes.
        GradientError: the argument is complex.
        StructureError: the argument is not one array; the pattern is too large.

    >>> import fad, fad.numpy as fnp
    >>> chain = lambda x: (x[1:] * x[:-1] ** 2).sum()
    >>> fad.sparse_hessian(chain)(fnp.array([1.0, 2.0, 3.0])).todense().tolist()
    [[4.0, 2.0, 0.0], [2.0, 6.0, 4.0], [0.0, 4.0, 0.0]]
    """
    return _values(f, argnums, HESSIAN)


def _values(f: Callable[..., Any], argnums: int, who: str) -> Callable[..., Any]:
    derivative = _Derivative(f, argnums, who)

    @restores_modes
    @functools.wraps(f, updated=())
    def matrix(*args: Any, **kwargs: Any) -> Any:
        plan = derivative.plan(args, kwargs)
        return plan.matrix(plan.run(*args, **kwargs))

    return matrix


class _Prepared:
    """What is the same for all calls with arguments of the same shapes."""

    rows: np.ndarray
    cols: np.ndarray
    live: list[
        tuple[Tensor, int]
    ]  # Tensors that f closes over and the pattern depends on, and versions
    run: Callable[..., Any]  # the values of the entries

    def __init__(self, shape: tuple[int, ...], x: Any, dtype: Any) -> None:
        self.shape = (*shape, *x.shape)
        self.heights = shape, tuple(x.shape)
        self.dtype = dtype

    @functools.cached_property
    def indices(self) -> Any:
        with jax.ensure_compile_time_eval():
            places = [
                axis
                for flat, shape in zip((self.rows, self.cols), self.heights, strict=True)
                for axis in (np.unravel_index(flat, shape) if shape else ())
            ]
            nothing: np.ndarray = np.zeros((len(self.rows), 0), np.int32)
            return jax.numpy.asarray(np.stack(places, 1).astype(np.int32) if places else nothing)

    def matrix(self, data: Any) -> Any:
        """The matrix with these entries."""
        return _sorted_bcoo(data, self.indices, self.shape)


class _Derivative:
    """The plans of one function."""

    def __init__(self, f: Callable[..., Any], argnums: int, who: str) -> None:
        check_callable(f, who, argnums)
        self.f = f
        self.argnums = argnums
        self.who = who
        self.arguments = Arguments(f, who)
        self.plans = Cache()

    def plan(self, args: Any, kwargs: Any) -> _Prepared:
        """The plan for a call."""
        (num,) = self._picked(args)
        leaves, rest = self.arguments.split(args, kwargs)
        key = key_of(leaves, rest)
        plan: _Prepared | None = self.plans.get(key)
        if plan is None or any([x.version != version for x, version in plan.live]):
            plan, kept = self._new_plan(num, args, leaves, rest)
            if kept:
                self.plans.put(key, plan)
        return plan

    def _picked(self, args: Any) -> tuple[int, ...]:
        nums = pick(self.argnums, len(args), self.who)
        if len(nums) != 1 or isinstance(self.argnums, (tuple, list)):
            raise ArgumentError(
                f"{self.who}: argnums must be one int, got {self.argnums!r}. For the derivatives by "
                "several arguments, call it for each."
            )
        return nums

    def _new_plan(
        self, num: int, args: Any, leaves: list[Any], rest: Rest
    ) -> tuple[_Prepared, bool]:
        """The plan, and whether later calls may use it."""
        values, _ = differentiable_leaves(args, (num,), self.who)
        if len(values) != 1 or has_tree(args[num]):
            raise StructureError(
                f"{self.who}: argument {num} must be one array, got {describe(args[num])}. Pass one, and "
                "take it apart in the function; or use jacfwd."
            )
        x = values[0]
        if self.who == HESSIAN and not np.issubdtype(x.dtype, np.floating) and x.dtype.kind == "c":
            raise GradientError(
                f"{HESSIAN}: argument {num} is complex, {describe(x)}. Take the Hessian by its real and "
                "imaginary parts."
            )

        def tangent(t: Any, *args: Any, **kwargs: Any) -> Any:
            return self._push(self._of(num, args, kwargs), args[num], t)

        def run(level: StagedLevel, *operands: Any) -> Any:
            inside, inside_kwargs = rest.combine(operands[:-1])
            return in_body(level, tangent)(operands[-1], *inside, **inside_kwargs)

        run.name = self.who  # type: ignore[attr-defined]
        operands = [*leaves, x]
        primitive, bound, out_structure = stage(run, operands, kept=True)
        closed = jax.make_jaxpr(primitive.flat)(*[struct_of(aval_of(v)) for v in bound])
        if out_structure != jax.tree_util.tree_structure(0):
            raise StructureError(
                f"{self.who}: the output must be one array, got {out_structure}. Return one (flatten and "
                "fad.numpy.concatenate), or use jacfwd."
            )
        (out,) = closed.out_avals
        if not is_inexact(out.dtype):
            raise GradientError(
                f"{self.who}: the output has dtype {out.dtype}, which has no derivatives: convert it"
            )
        plan = _Prepared(out.shape, x, out.dtype)
        captures = bound[: len(bound) - len(operands)]
        tensors = [c for c in captures if isinstance(c, Tensor) and _is_fixed(c)]
        plan.live = [(c, c.version) for c in tensors]
        constants = [_constant(c) for c in captures]
        rows, cols = pattern_of(closed, [*constants, *[None] * len(leaves)])
        if self.who == HESSIAN:  # symmetric, as the matrix is
            both = np.unique(np.concatenate([rows * x.size + cols, cols * x.size + rows]))
            rows, cols = both // max(x.size, 1), both % max(x.size, 1)
        plan.rows, plan.cols = rows, cols
        tracked = any([isinstance(c, Tensor) and not _is_fixed(c) for c in captures])
        if self.who != "sparsity":
            values_of = self._values_of(plan, num)
            plan.run = _of_arguments(values_of) if tracked else jit(values_of)
        return plan, not tracked and not any([is_traced(c) for c in captures])

    def _of(self, num: int, args: Any, kwargs: Any) -> Callable[[Any], Any]:
        """What is differentiated, as a function of one argument: f, or its gradient."""

        def of(x: Any) -> Any:
            return self.f(*args[:num], x, *args[num + 1 :], **kwargs)

        return gradient_function(of, 0, False, HESSIAN, False) if self.who == HESSIAN else of

    def _push(self, of: Callable[[Any], Any], x: Any, t: Any) -> Any:
        return push_forward(of, (x,), (t,), False, self.who)[1]

    def _values_of(self, plan: _Prepared, num: int) -> Callable[..., Any]:
        """The function that computes the entries from the arguments."""
        coloring, forward = _colored(plan, self.who == HESSIAN)
        size = coloring.count
        shape = plan.heights[1] if forward else plan.heights[0]

        def values(*args: Any, **kwargs: Any) -> Any:
            x = args[num]
            of = self._of(num, args, kwargs)
            if not size:
                return jax.numpy.zeros(0, plan.dtype)
            dtype = np.asarray(x).dtype if isinstance(x, (float, complex)) else x.dtype
            hot = coloring.colors == np.arange(size)[:, None]
            seeds = jax.numpy.asarray(hot.reshape(size, *shape), dtype if forward else plan.dtype)
            if forward:
                products = vmap(lambda t: self._push(of, x, t))
            else:
                pull = vjp(of, x)[1]
                products = vmap(lambda c: pull(c)[0])
            shown = products(seeds)
            if (
                seeds.dtype.kind == "c" and shown.dtype.kind != "c"
            ):  # one side is real, see `jacrev`
                shown = shown - 1j * products(1j * seeds)
            return bind(_reader(plan, coloring, not forward), (shown,))

        return values


def _colored(plan: _Prepared, symmetric: bool) -> tuple[Coloring, bool]:
    """The colouring that takes the fewest products, and whether they go forward."""
    height, width = (math.prod(shape) for shape in plan.heights)
    return best_coloring(plan.rows, plan.cols, height, width, symmetric)


def _reader(plan: _Prepared, coloring: Coloring, conjugate: bool) -> Primitive:
    """Reads the entries off the products."""
    products: np.ndarray = coloring.products.astype(np.int32)
    places: np.ndarray = coloring.rows.astype(np.int32)

    def read(shown: Any) -> Any:
        found = shown.reshape(coloring.count, -1)[products, places]
        return found.conj() if conjugate and found.dtype.kind == "c" else found

    return Primitive("sparse_entries", read)


def _of_arguments(values: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return leave(values(*args, **kwargs), has_tensor((args, kwargs)))

    return run


def has_tree(x: Any) -> bool:
    """Whether ``x`` is not one leaf."""
    return not isinstance(x, Tensor) and not jax.tree_util.all_leaves([x])


def _is_fixed(x: Tensor) -> bool:
    return x.level is ROOT and not x.requires_grad and not isinstance(x.value, jax.core.Tracer)


def _constant(x: Any) -> Constant | None:
    if isinstance(x, Tensor):
        return Constant(lambda: x.value) if _is_fixed(x) else None
    return None if isinstance(x, jax.core.Tracer) else Constant(lambda: x)


def _sorted_bcoo(data: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """A ``jax.experimental.sparse.BCOO`` whose indices are sorted, each once; ``data`` may be a Tensor."""
    kept = {"shape": shape, "indices_sorted": True, "unique_indices": True}
    sparse = importlib.import_module("jax.experimental.sparse")  # takes long
    return sparse.BCOO.tree_unflatten(kept, (data, indices))
