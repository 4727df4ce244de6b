"""Linear systems, at the level of JAX: dense, or by a function or a solver of one's own."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from fad import extend, from_jax, to_jax
from fad.errors import ArgumentError, MissingLibrary, StructureError, describe
from fad.extend import varying_alike
from fad.extend.types import Array, PyTree, Rest, Value

GROSS = 1e-2  # of the largest element: more than rounding explains

Leaves = Sequence[Any]
Map = Callable[[Leaves], list[Any]]  # a linear one


def library(name: str, who: str) -> Any:
    """A library of the extra ``implicit``.

    Raises:
        MissingLibrary: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibrary(
            f"{who}: this takes {name}, which is not installed: pip install 'fad-jax[implicit]', or pip "
            f"install {name}. A solver of your own needs no library: see fad.implicit.custom_root"
        ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class System:
    """How linear systems are solved.

    NOTE [which linear solver]

    By default the matrix is made, by one product for each unknown, and factorized: that is right for every
    matrix that is not singular. Measured at the gradient of a fixed point of ``tanh(W x + b)``, n unknowns,
    compiled, on two cores: up to n = 30 all solvers take about the same. At n = 1,000 it takes 80 to 200 ms
    with the matrix, and with lineax's ``AutoLinearSolver``, which makes it too; 7 to 14 ms with BiCGStab or
    GMRES. These may fail where the matrix is not well conditioned, so they are for users to choose.

    Whichever it is, it stands in ``lax.custom_linear_solve``: a derivative solves a system again, nothing
    of the solver is differentiated. That pays for the matrix too: Hessians take a third less time at n = 32,
    and a fortieth at n = 200.

    Arguments:
        solver: a function ``(matvec, b) -> x``, or a solver of lineax, as `hashable` has it; None: the
            matrix.
        symmetric, positive: what is known of the matrix.

    A solution that is none is NaN.
    """

    solver: Rest | None = None
    symmetric: bool = False
    positive: bool = False

    def solve(self, who: str, matvec: Map, b: Leaves, structure: PyTreeDef) -> list[Value]:
        """x with ``matvec(x) = b``, as leaves of a pytree of this structure; all are inexact."""

        def solve(matvec: Callable[..., PyTree], b: PyTree) -> list[Value]:
            # What a solver makes may vary along no axis of ``shard_map``.
            def of_any(x: Leaves) -> list[Value]:
                return list(matvec(varying_alike([*x, *b])[: len(x)]))

            return self.run(who, of_any, b, structure)

        symmetric = self.symmetric or self.positive
        x = jax.lax.custom_linear_solve(matvec, list(b), solve, solve, symmetric=symmetric)
        return list(x)

    def run(self, who: str, matvec: Map, b: Leaves, structure: PyTreeDef) -> list[Value]:
        """What `solve` gives, without derivatives."""
        if self.solver is None:  # where the matrix is singular, infinite or NaN
            return by_matrix(matvec, b, self.positive)
        chosen = self.solver.combine([])
        find = by_lineax if is_lineax(chosen) else by_function

        def mapped(x: Array) -> Array:
            return extend.unflatten(structure, matvec(extend.flatten(x)[0]))

        x = extend.flatten(find(who, chosen, mapped, extend.unflatten(structure, list(b)), self))[0]
        error, scale = distance(matvec(x), b)
        return where(error <= GROSS * scale, x)


def system_of(who: str, solver: object, symmetric: bool = False, positive: bool = False) -> System:
    """The System for what a user gave for ``linear_solve`` or ``solver``.

    Raises:
        ArgumentError: it is neither a function nor a solver of lineax.
    """
    if (
        solver is not None
        and not is_lineax(solver)
        and (isinstance(solver, type) or not callable(solver))
    ):
        hint = f": write {solver.__name__}(...)" if isinstance(solver, type) else ""
        raise ArgumentError(
            f"{who}: a linear solver is a function (matvec, b) -> x or a solver of lineax, got "
            f"{describe(solver)}{hint}"
        )
    return System(None if solver is None else hashable(solver), symmetric, positive)


def hashable(x: object) -> Rest:
    """A solver, or a function, as part of a key; ``combine([])`` gives it back."""
    rest: Rest = extend.partition(x, ())[1]
    return rest


def is_lineax(x: PyTree) -> bool:
    """Whether ``x`` is a solver of lineax; lineax is not imported for it."""
    return any([c.__module__.startswith("lineax.") for c in type(x).__mro__])


def by_lineax(
    who: str, solver: object, matvec: Callable[..., PyTree], b: PyTree, system: System
) -> PyTree:
    """What a solver of lineax finds."""
    lx = library("lineax", who)
    structs = jax.eval_shape(lambda: b)
    tags = []
    if system.symmetric or system.positive:
        tags.append(lx.symmetric_tag)
    if system.positive:
        tags.append(lx.positive_semidefinite_tag)
    operator = lx.FunctionLinearOperator(matvec, structs, frozenset(tags))
    return lx.linear_solve(operator, b, solver, throw=False).value


def by_function(who: str, solver: PyTree, matvec: PyTree, b: PyTree, system: System) -> PyTree:
    """What a function of the user's finds."""

    def solve(b: PyTree) -> PyTree:
        return solver(from_jax(matvec), b)

    x = to_jax(solve)(b)
    got, expected = extend.flatten(x), extend.flatten(b)
    shapes = [[getattr(leaf, "shape", None) for leaf in leaves] for leaves, _ in (got, expected)]
    if got[1] != expected[1] or shapes[0] != shapes[1]:
        raise StructureError(
            f"{who}: linear_solve returned {in_words(x)}, expected the form of b, {in_words(b)}: return "
            "x with matvec(x) = b alone (solvers such as fad.scipy.sparse.linalg.cg return a pair: take [0])"
        )
    pairs = zip(got[0], expected[0], strict=True)
    return extend.unflatten(got[1], [jnp.asarray(x, dtype=y.dtype) for x, y in pairs])


def by_matrix(matvec: Map, b: Leaves, positive: bool) -> list[Value]:
    """The solution by the matrix of ``matvec``, factorized.

    A complex unknown counts as two real ones, so that the map need not be linear in complex numbers.
    """
    vector = to_vector(b)

    def mapped(x: Array) -> Array:
        return to_vector(matvec(from_vector(x, b)))

    if vector.size == 1:
        return from_vector(vector / mapped(jnp.ones_like(vector)), b)
    matrix = jax.vmap(mapped, out_axes=1)(jnp.eye(vector.size, dtype=vector.dtype))
    if positive:
        factor = jax.scipy.linalg.cho_factor(matrix)
        return from_vector(jax.scipy.linalg.cho_solve(factor, vector), b)
    return from_vector(jnp.linalg.solve(matrix, vector), b)


def to_vector(leaves: Leaves) -> Array:
    """The elements of the leaves, real and imaginary parts apart, in a dtype that can be factorized."""
    parts: list[Array] = []
    for x in leaves:
        parts += [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    dtype = jnp.result_type(jnp.float32, *parts)
    return jnp.concatenate([jnp.ravel(p).astype(dtype) for p in parts])


def from_vector(vector: Array, like: Leaves) -> list[Value]:
    """The leaves whose elements `to_vector` has put into ``vector``."""
    leaves: list[Value] = []
    start = 0

    def part(x: Value) -> Array:
        nonlocal start
        start += x.size
        return vector[start - x.size : start].reshape(x.shape)

    for x in like:
        if jnp.iscomplexobj(x):
            leaves.append(jax.lax.complex(part(x), part(x)).astype(x.dtype))
        else:
            leaves.append(part(x).astype(x.dtype))
    return leaves


def largest(xs: Leaves) -> Array:
    """The largest modulus among the elements."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x), initial=0.0).astype(float) for x in xs]))


def distance(xs: Leaves, ys: Leaves) -> tuple[Value, Value]:
    """How far two lists of arrays are apart, and how large their elements are."""
    apart = [x - y for x, y in zip(xs, ys, strict=True)]
    return largest(apart), largest([*xs, *ys])


def where(good: PyTree, xs: Leaves) -> list[Value]:
    """The arrays, NaN where ``good`` is false."""
    return [jnp.where(good, x, jnp.full_like(x, np.nan)) for x in xs]


def in_words(tree: PyTree) -> str:
    """The form of a pytree of arrays, for a message."""
    return str(extend.map_leaves(described, tree)).replace("'", "")


def described(x: PyTree) -> str:
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    return describe(x) if shape is None else f"{dtype}[{','.join(map(str, shape))}]"
