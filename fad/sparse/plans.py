"""How a sparse derivative is computed, for calls with arguments of the same shapes.

A `Derivative` belongs to one function. The plan of a call has the pattern with its colouring, and the
compiled program that computes the entries: one array for each block, that is for each output and argument.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from fad import Tensor, extend, grad, jit, jvp, lax, vjp, vmap
from fad.errors import ArgumentError, GradientError, StructureError, describe
from fad.extend import Call, Primitive, aval_of, bind, has_tensor, leave, split_call, stage
from fad.extend.types import Array, DType, Operand, PyTree, Rest, Value
from fad.sparse.formats import FORMATS, Block
from fad.sparse.matrix_entries import Leaf, entries_of_pattern, offsets
from fad.sparse.patterns import pattern_of
from fad.sparse.rules import Constant
from fad.sparse.sparse_pattern import SparsePattern

JACOBIAN, HESSIAN = "sparse_jacobian", "sparse_hessian"


class _Differentiated:
    """The structure of a call: what is differentiated, and by what."""

    outputs: list[Leaf]
    out_structure: PyTreeDef
    out_like: PyTree

    def __init__(self, call: Call, hessian: bool) -> None:
        self.call, self.hessian = call, hessian
        self.arguments: list[Leaf] = []
        for name, x in zip(call.names, call.values, strict=True):
            if hessian and x.dtype.kind == "c":
                raise GradientError(
                    f"{call.who}: {name} is complex, {describe(x)}. Take the Hessian by its real and "
                    "imaginary parts."
                )
            self.arguments.append((name, tuple(x.shape)))
        self.dtypes = [x.dtype for x in call.values]
        call.forget()

    def of(self, f: Callable[..., PyTree], call: Call) -> Callable[..., PyTree]:
        """What is differentiated, as a function of the values of ``call`` that returns a tuple: f, or its
        gradient.
        """

        def output(*xs: Value) -> PyTree:
            out = call.run(f, None, xs)
            _check_scalar(out, call.who)
            return out

        def outputs(*xs: Value) -> tuple[Value, ...]:
            out = call.run(f, None, xs)
            leaves = call.outputs(out)
            self.out_structure, self.out_like = call.out_structure, call.out_like
            names = [f"output{path}" for path in extend.path_names(out)]
            shapes = [tuple(aval_of(x).shape) for x in leaves]
            self.outputs = list(zip(names, shapes, strict=True))
            return tuple(leaves)

        if not self.hessian:
            return outputs
        self.outputs = self.arguments
        every = tuple(range(len(self.arguments)))
        return grad(output, every)

    def assemble(self, blocks: Sequence[PyTree]) -> PyTree:
        """The blocks of each output and argument, as `jacfwd` returns them."""
        width = len(self.arguments)
        rows = [
            self.call.argument(blocks[k : k + width]) for k in range(0, len(blocks), max(width, 1))
        ]
        if self.hessian:
            return self.call.argument(rows)
        return extend.unflatten(self.out_structure, rows, self.out_like)


@dataclasses.dataclass(eq=False)
class Prepared:
    """What is the same for all calls with arguments of the same shapes.

    ``run`` gives the entries of each block. ``live``: Tensors that f closes over and the pattern depends
    on, and their versions.
    """

    call: _Differentiated
    out_dtypes: list[DType]
    pattern: SparsePattern
    live: list[tuple[Tensor, int | None]] = dataclasses.field(default_factory=list)
    run: Callable[..., PyTree] = dataclasses.field(init=False)

    @functools.cached_property
    def parts(self) -> list[np.ndarray]:
        """The numbers of the entries of each block."""
        (rows, cols), (down, across) = self._entries, self._bounds
        if len(down) == len(across) == 2:
            return [np.arange(len(rows))]
        block = np.searchsorted(down, rows, "right") - 1
        block = block * (len(across) - 1) + np.searchsorted(across, cols, "right") - 1
        order = np.argsort(block, kind="stable")
        counts = np.bincount(block, minlength=(len(down) - 1) * (len(across) - 1))
        return np.split(order, np.cumsum(counts)[:-1])[: len(counts)]

    @functools.cached_property
    def blocks(self) -> list[Block]:
        """For each output, and each argument: where the entries are."""
        (rows, cols), (down, across) = self._entries, self._bounds
        pairs = itertools.product(
            zip(self.call.outputs, down, strict=False),
            zip(self.call.arguments, across, strict=False),
        )
        return [
            Block(rows[part] - above, cols[part] - left, out, shape)
            for part, (((_, out), above), ((_, shape), left)) in zip(self.parts, pairs, strict=True)
        ]

    @property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        return self.pattern.rows, self.pattern.cols

    @property
    def _bounds(self) -> tuple[list[int], list[int]]:
        return offsets(self.call.outputs), offsets(self.call.arguments)

    def matrices(self, data: Sequence[Array], format: str, who: str) -> PyTree:
        """The matrices with these entries."""
        make = FORMATS[format]
        made = [make(block, d, who) for block, d in zip(self.blocks, data, strict=True)]
        return self.call.assemble(made)


@dataclasses.dataclass(eq=False)
class Derivative:
    """The plans of one function."""

    f: Callable[..., PyTree]
    argnums: int | Sequence[int]
    who: str
    hessian: bool
    pattern: PyTree = None
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        Call.check(self.f, self.who, self.argnums)
        size = self.chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ArgumentError(
                f"{self.who}: chunk_size should be None or an int greater than 0, got {size!r}"
            )
        self.computes = self.who in (JACOBIAN, HESSIAN)
        self.plans: Callable[..., list[Prepared]] = functools.lru_cache(maxsize=256)(_no_plan)

    def plan(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> Prepared:
        """The plan for a call."""
        leaves, rest, key = split_call(self.who, args, kwargs)
        place = self.plans(key)
        if place and all(map(_is_as_before, place[0].live)):
            return place[0]
        plan, kept = self._new_plan(args, leaves, rest)
        if kept:
            place[:] = [plan]
        return plan

    def _new_plan(
        self, args: Sequence[PyTree], leaves: Sequence[Operand], rest: Rest
    ) -> tuple[Prepared, bool]:
        """The plan, and whether later calls may use it."""
        first = self._call(args, {})
        xs = first.values
        if not xs:
            raise StructureError(
                f"{self.who}: the arguments at argnums={self.argnums!r} have no arrays"
            )
        call = _Differentiated(first, self.hessian)

        def tangents(*operands: Value) -> PyTree:
            inside, inside_kwargs = rest.combine(operands[: len(leaves)])
            inner = self._call(inside, inside_kwargs)
            return self._push(call.of(self.f, inner), inner.values, operands[len(leaves) :])

        operands = [*leaves, *xs]
        primitive, bound, _ = stage(tangents, operands, name=self.who, kept=True)
        closed = jax.make_jaxpr(primitive.flat)(*map(aval_of, bound))
        for (name, _), out in zip(call.outputs, closed.out_avals, strict=True):
            if not jnp.issubdtype(out.dtype, jnp.inexact):
                raise GradientError(
                    f"{self.who}: {name} has dtype {out.dtype}, which has no derivatives: convert it"
                )
        captures = bound[: len(bound) - len(operands)]
        fixed = [c for c in captures if isinstance(c, Tensor) and _is_fixed(c)]
        pattern = self._given(call)
        if pattern is None:
            constants = [*map(_constant, captures), *[None] * len(leaves)]
            pattern = self._pattern(call, *pattern_of(closed, constants))
        plan = Prepared(call, [out.dtype for out in closed.out_avals], pattern)
        plan.live = [(c, c.version if self.pattern is None else None) for c in fixed]
        tracked = any([isinstance(c, Tensor) and not _is_fixed(c) for c in captures])
        if self.computes:
            values_of = self._values_of(plan)
            plan.run = _each_time(values_of) if tracked else jit(values_of)
        return plan, not tracked and not any([isinstance(c, jax.core.Tracer) for c in captures])

    def _call(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> Call:
        return Call(self.who, args, kwargs, self.argnums)

    def _given(self, call: _Differentiated) -> SparsePattern | None:
        """The pattern that the caller gives."""
        if self.pattern is None:
            return None
        if isinstance(self.pattern, SparsePattern):
            self.pattern.check_fits(call.outputs, call.arguments, self.hessian, self.who)
            return self.pattern
        expected = call.assemble([0] * (len(call.outputs) * len(call.arguments)))
        rows, cols = entries_of_pattern(
            self.pattern, expected, call.outputs, call.arguments, self.who
        )
        return self._pattern(call, rows, cols)

    def _pattern(self, call: _Differentiated, rows: np.ndarray, cols: np.ndarray) -> SparsePattern:
        if self.hessian:  # symmetric, as the matrix is
            width = max(offsets(call.arguments)[-1], 1)
            both = np.unique(np.concatenate([rows * width + cols, cols * width + rows]))
            rows, cols = both // width, both % width
        return SparsePattern(rows, cols, call.outputs, call.arguments, self.hessian)

    def _push(self, of: Callable[..., PyTree], xs: Sequence[Value], ts: Sequence[Value]) -> PyTree:
        return jvp(of, tuple(xs), tuple(ts))[1]

    def _values_of(self, plan: Prepared) -> Callable[..., PyTree]:
        """The function that computes the entries of each block from the arguments."""
        call, (coloring, forward) = plan.call, plan.pattern.colored
        size = coloring.count
        leaves = call.arguments if forward else call.outputs
        dtypes = call.dtypes if forward else plan.out_dtypes
        others = plan.out_dtypes if forward else call.dtypes
        # One side is real, the other complex: see `jacrev`.
        turns = any([d.kind == "c" for d in dtypes]) and any([d.kind != "c" for d in others])
        read = _reader(plan, turns)

        def values(*args: PyTree, **kwargs: PyTree) -> PyTree:
            if not size:
                return [jnp.zeros(0, plan.out_dtypes[k // len(call.arguments)])
                        for k in range(len(plan.blocks))]  # fmt: skip
            inner = self._call(args, kwargs)
            xs, of = inner.values, call.of(self.f, inner)
            if forward:
                products = lambda *ts: self._push(of, xs, ts)  # noqa: E731
            else:
                pull = vjp(of, *xs)[1]
                products = lambda *cts: pull(cts)  # noqa: E731
            by_color = coloring.colors == np.arange(size)[:, None]
            parts = np.split(by_color, offsets(leaves)[1:-1], axis=1)
            seeds = [
                jnp.asarray(part.reshape(size, *shape), dtype)
                for part, (_, shape), dtype in zip(parts, leaves, dtypes, strict=True)
            ]
            stacked = self._over(products, seeds, size)
            if turns:
                turned = [1j * s if s.dtype.kind == "c" else jnp.zeros_like(s) for s in seeds]
                stacked = [*stacked, *self._over(products, turned, size)]
            return bind(read, tuple(stacked))

        return values

    def _over(
        self, products: Callable[..., PyTree], seeds: Sequence[Value], size: int
    ) -> Sequence[Value]:
        """The products with all of the seeds, stacked."""
        if self.chunk_size is None or self.chunk_size >= size:
            stacked: Sequence[Value] = vmap(products, randomness="same")(*seeds)
            return stacked
        stacked = lax.map(lambda ts: products(*ts), tuple(seeds), batch_size=self.chunk_size)
        return stacked


def _no_plan(key: Hashable) -> list[Prepared]:
    """Where the plan for calls with this key is kept: nothing is there yet."""
    return []


def _check_scalar(out: PyTree, who: str) -> None:
    """Refuse what has no Hessian."""
    is_real = isinstance(out, (int, float)) or (
        hasattr(out, "dtype") and jnp.issubdtype(out.dtype, np.floating)
    )
    if not is_real or getattr(out, "shape", ()) != ():
        shape = getattr(out, "shape", ())
        what = f"an output of shape {shape}" if shape != () else describe(out)
        raise GradientError(
            f"{who}: the function must return a real scalar, got {what}. Reduce it to one number "
            "(.sum(), .mean())"
        )


def _reader(plan: Prepared, turns: bool) -> Primitive:
    """Reads the entries of each block off the products: arrays with a row for each colour.

    ``turns``: those with the seeds times 1j, where they are complex, follow.
    """
    coloring, forward = plan.pattern.colored
    sides = plan.out_dtypes, plan.call.dtypes
    width = len(sides[1])
    of_block: list[tuple[np.ndarray, np.ndarray, Any, Any]] = []
    for k, part in enumerate(plan.parts):
        out, of = sides[0][k // width], sides[1][k % width]
        places = coloring.rows[part].astype(np.int32)
        of_block.append((coloring.products[part].astype(np.int32), places, out, of))

    def read(*stacked: Any) -> tuple[Value, ...]:
        rows = [p.reshape(coloring.count, -1) for p in stacked]
        half = len(rows) // 2 if turns else len(rows)
        flat = jnp.concatenate(rows[:half], 1) if half > 1 else rows[0]
        turned = jnp.concatenate(rows[half:], 1) if turns else flat
        blocks = []
        for products, places, out, of in of_block:
            seed, result = (of, out) if forward else (out, of)
            entries = _as(flat[products, places], result)
            if seed.kind == "c" and result.kind != "c":
                entries = entries - 1j * _as(turned[products, places], result)
            blocks.append(entries.conj() if not forward and entries.dtype.kind == "c" else entries)
        return tuple(blocks)

    return Primitive("sparse_entries", read)


def _as(x: Value, dtype: DType) -> Value:
    """What products of several dtypes were, before they were put together."""
    return (x.real if x.dtype.kind == "c" and dtype.kind != "c" else x).astype(dtype)


def _each_time(values: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``values``, run as it is: what it closes over is tracked."""

    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        return leave(values(*args, **kwargs), has_tensor((args, kwargs)))

    return run


def _is_as_before(read: tuple[Tensor, int | None]) -> bool:
    """Whether a plan holds for a Tensor that f closes over; its version is None if the pattern was given."""
    x, version = read
    return _is_fixed(x) and version in (None, x.version)


def _is_fixed(x: Tensor) -> bool:
    return x.level.id == 0 and not x.requires_grad and not isinstance(x.value, jax.core.Tracer)


def _constant(x: object) -> Constant | None:
    if isinstance(x, Tensor):
        return Constant(lambda: x.value) if _is_fixed(x) else None
    return None if isinstance(x, jax.core.Tracer) else Constant(lambda: x)
