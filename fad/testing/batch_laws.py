"""The laws of vmap: it is a loop over lanes, in every position of a stack."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad import jvp, vjp, vmap
from fad.testing.cases import Case, NotChecked, Violation
from fad.testing.comparison import bare, difference
from fad.testing.finite_differences import random_like
from fad.testing.laws import violation

Violations = Iterator[Violation]
Dims = tuple[int | None, ...]
SIZE = 3


def combinations(count: int, every: bool) -> list[tuple[Dims, int]]:
    """in_dims for ``count`` arrays, with the number of the array that is new in each (-1: none).

    The first is the plainest; each of the next differs from it in one array.
    """
    choices: list[tuple[Dims, int]] = [((0,) * count, -1)]
    for k in range(count):
        for d in (None, -1) if count > 1 else (-1,):
            choices.append(((*[0] * k, d, *[0] * (count - k - 1)), k))
        if count > 2:
            choices.append(((*[None] * k, 0, *[None] * (count - k - 1)), k))
    if every and count <= 3:
        seen = {dims for dims, _ in choices}
        rest = itertools.product((0, None, -1), repeat=count)
        choices += [(d, -1) for d in rest if d not in seen and any(x is not None for x in d)]
    return choices


def lanes(case: Case, dims: Dims, size: int, seed: int = 3) -> list[np.ndarray]:
    """The arrays of a case with ``size`` lanes along ``dims``."""
    rng = np.random.default_rng(seed)
    stacked = []
    for a, d in zip(case.arrays, dims, strict=True):
        if d is None:
            stacked.append(a)
            continue
        rows = [a]
        for k in range(1, max(size, 1)):
            if a.dtype.kind in "fc" or a.dtype.kind == "V":
                rows.append((a * (1.0 - 0.1 * k) + 0.05 * random_like(a, rng)).astype(a.dtype))
            else:
                rows.append(a)
        stacked.append(np.stack(rows[: max(size, 1)], d).take(range(size), d))
    return stacked


def lane(arrays: Sequence[Any], dims: Dims, k: int) -> list[np.ndarray]:
    """Lane ``k`` of batched arrays."""
    return [a if d is None else np.take(a, k, d) for a, d in zip(arrays, dims, strict=True)]


def _run(case: Case, arrays: Sequence[Any], dims: Dims, out_dims: int = 0) -> list[np.ndarray]:
    operands = [jnp.asarray(a) for a in arrays]
    return [
        bare(o)
        for o in vmap(lambda *v: case.subject.call(v), in_dims=dims, out_dims=out_dims)(*operands)
    ]


def _loop(case: Case, arrays: Sequence[Any], dims: Dims, size: int) -> list[np.ndarray]:
    """What vmap must give, lane by lane."""
    rows = []
    for k in range(size):
        operands = [jnp.asarray(a) for a in lane(arrays, dims, k)]
        rows.append([bare(o) for o in case.subject.call(operands)])
    if not rows:
        return [np.zeros((0, *o.shape), o.dtype) for o in case.outs]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _named(case: Case, at: int, dims: Dims) -> str:
    return "" if at < 0 else case.subject.argument(at)


def batched(case: Case) -> Violations:
    """vmap equals the stacked loop, for in_dims None, 0 and -1 and batches of 3, 1 and 0 lanes."""
    s = case.subject
    if not case.arrays:
        raise NotChecked("no argument is an array")
    by_rule = s.has("vmap")
    for number, (dims, at) in enumerate(combinations(len(case.arrays), by_rule)):
        for size in (3, 1, 0) if by_rule or number == 0 else (3,):
            if size == 0 and number > 0 and not by_rule:
                continue
            how = f"in_dims={dims if len(dims) > 1 else dims[0]}, batch size {size}"
            arrays = lanes(case, dims, size)
            try:
                got = _run(case, arrays, dims)
            except Exception as error:  # any error of a rule breaks the law
                broken = s.judge("vmap", error, f"{case}; {how}")
                rule = s.rule("vmap") if broken.rule == "apply" else broken.rule
                argument = broken.argument or _named(case, at, dims)
                yield Violation("vmap", s.name, rule, argument, broken.what, case=f"{case}; {how}")
                return
            want = _loop(case, arrays, dims, size)
            for k, (g, w) in enumerate(zip(got, want, strict=True)):
                if g.dtype != w.dtype:
                    what = f"output {k} has dtype {g.dtype} under vmap, and {w.dtype} without"
                    yield violation(case, "dtype", s.rule("vmap"), "", what, g, w, how)
                    return
                if case.differs(g, w):
                    what = f"output {k} differs from a loop over lanes, with {how}"
                    name = _named(case, at, dims)
                    yield violation(case, "vmap", s.rule("vmap"), name, what, g, w, how)
                    return
    # Where the batch goes to.
    dims = (0,) * len(case.arrays)
    arrays = lanes(case, dims, 3)
    for g, w in zip(_run(case, arrays, dims, -1), _run(case, arrays, dims), strict=True):
        if case.differs(np.moveaxis(g, -1, 0), w):
            what = "with out_dims=-1 the output is not that with out_dims=0, moved"
            yield violation(case, "vmap", s.rule("vmap"), "", what, g, w, "out_dims=-1")
            return


def nested(case: Case) -> Violations:
    """vmap of vmap is a loop over vmap."""
    s = case.subject
    count = len(case.arrays)
    if not count:
        raise NotChecked("no argument is an array")
    options: list[tuple[Dims, Dims]] = [((0,) * count, (0,) * count)]
    if count > 1:
        options.append(((0, *[None] * (count - 1)), (*[None] * (count - 1), 0)))
    for inner, outer in options:
        rows = lanes(case, inner, SIZE)
        again = Case.__new__(Case)
        again.arrays = rows
        both = lanes(again, outer, 2, seed=4)
        # An outer dimension 0 comes before the inner one.
        run = vmap(vmap(lambda *v: s.call(v), in_dims=inner), in_dims=outer)
        got = [bare(o) for o in run(*[jnp.asarray(a) for a in both])]
        loop = [_run(case, lane(both, outer, k), inner) for k in range(2)]
        for k, g in enumerate(got):
            want = np.stack([row[k] for row in loop])
            if case.differs(g, want):
                what = f"output {k} of vmap of vmap differs from a loop over vmap"
                how = f"in_dims={inner} inside, {outer} outside"
                yield violation(case, "nested vmap", s.rule("vmap"), "", what, g, want, how)
                return


# With derivatives


def _dims_for_derivatives(case: Case) -> list[Dims]:
    count = len(case.arrays)
    choices: list[Dims] = [(0,) * count]
    if count > 1:
        choices.append((0, *[None] * (count - 1)))
        choices.append((*[None] * (count - 1), -1))
    return choices


def _cotangents(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(case.seed + 5)
    return [np.stack([random_like(y, rng) for _ in range(SIZE)]) for y in case.ys]


def _lane_case(case: Case, arrays: Sequence[Any], dims: Dims, k: int) -> Case:
    """Lane ``k`` as a case with the same directions."""
    of_lane: Case = Case.__new__(Case)
    of_lane.__dict__.update(case.__dict__)
    of_lane.arrays = lane(arrays, dims, k)
    of_lane.xs = [of_lane.arrays[i] for i in case.differentiable]
    return of_lane


def _compare_lanes(
    case: Case, law: str, rule: str, got: Sequence[Any], want: Sequence[Any], dims: Dims, label: Any
) -> Violations:
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if difference(g, w, *[max(case.precision.fine, 1e-7)] * 2) is not None:
            how = f"in_dims={dims if len(dims) > 1 else dims[0]}"
            what = f"{law} differs from a loop over lanes"
            yield violation(case, law, rule, label(i), what, g, w, how)
            return


def _alone(
    case: Case, operands: Sequence[Any], call: Callable[[list[Any]], Sequence[Any]]
) -> Callable[..., list[Any]]:
    """``call`` as a function of the arrays that are differentiated, to outputs with a derivative."""

    def f(*xs: Any) -> list[Any]:
        full = list(operands)
        for k, x in zip(case.differentiable, xs, strict=True):
            full[k] = x
        outs = call(full)
        return [outs[k] for k in case.differentiable_outs]

    return f


def _vmapped(case: Case, operands: Sequence[Any], dims: Dims) -> Callable[..., list[Any]]:
    """vmap of the call, as a function of the arrays that are differentiated."""
    mapped = vmap(lambda *v: case.subject.call(v), in_dims=dims)
    return _alone(case, operands, lambda full: mapped(*full))


def vmap_of_vjp(case: Case) -> Violations:
    """vmap of the vjp is a loop over the vjp."""
    case.need_derivative()
    s, ws = case.subject, _cotangents(case)
    for dims in _dims_for_derivatives(case):
        arrays = lanes(case, dims, SIZE)

        def run(ws: Any, *operands: Any) -> Any:
            f = _alone(case, operands, s.call)
            return vjp(f, *[operands[k] for k in case.differentiable])[1](ws)

        mapped = vmap(run, in_dims=(0, *dims))
        got = bare(mapped([jnp.asarray(w) for w in ws], *[jnp.asarray(a) for a in arrays]))
        rows = [_lane_case(case, arrays, dims, k).pull([w[k] for w in ws]) for k in range(SIZE)]
        want = [np.stack(column) for column in zip(*rows, strict=True)]
        yield from _compare_lanes(
            case, "vmap of vjp", s.rule("vjp"), got, want, dims, case.argument
        )


def vmap_of_jvp(case: Case) -> Violations:
    """vmap of the jvp is a loop over the jvp."""
    case.need_derivative()
    s = case.subject
    rng = np.random.default_rng(case.seed + 6)
    vs = [np.stack([random_like(x, rng) for _ in range(SIZE)]) for x in case.xs]
    for dims in _dims_for_derivatives(case):
        arrays = lanes(case, dims, SIZE)

        def run(vs: Any, *operands: Any) -> Any:
            f = _alone(case, operands, s.call)
            return jvp(f, tuple([operands[k] for k in case.differentiable]), tuple(vs))[1]

        mapped = vmap(run, in_dims=(0, *dims))
        got = bare(mapped([jnp.asarray(v) for v in vs], *[jnp.asarray(a) for a in arrays]))
        rows = [_lane_case(case, arrays, dims, k).push([v[k] for v in vs]) for k in range(SIZE)]
        want = [np.stack(column) for column in zip(*rows, strict=True)]
        yield from _compare_lanes(
            case, "vmap of jvp", s.rule("jvp"), got, want, dims, lambda k: f"output {k}"
        )


def vjp_of_vmap(case: Case) -> Violations:
    """The vjp of vmap is the stacked vjp; summed over lanes where an input is shared by them."""
    case.need_derivative()
    s, ws = case.subject, _cotangents(case)
    for dims in _dims_for_derivatives(case):
        arrays = lanes(case, dims, SIZE)
        operands = [jnp.asarray(a) for a in arrays]
        f = _vmapped(case, operands, dims)

        got = bare(
            vjp(f, *[operands[k] for k in case.differentiable])[1]([jnp.asarray(w) for w in ws])
        )
        rows = [_lane_case(case, arrays, dims, k).pull([w[k] for w in ws]) for k in range(SIZE)]
        want = []
        for i, column in zip(case.differentiable, zip(*rows, strict=True), strict=True):
            d = dims[i]
            want.append(np.sum(column, 0) if d is None else np.stack(column, d))
        want = [np.asarray(w, g.dtype) for w, g in zip(want, got, strict=True)]
        yield from _compare_lanes(
            case, "vjp of vmap", s.rule("vjp"), got, want, dims, case.argument
        )


def jvp_of_vmap(case: Case) -> Violations:
    """The jvp of vmap is the stacked jvp."""
    case.need_derivative()
    s = case.subject
    rng = np.random.default_rng(case.seed + 7)
    for dims in _dims_for_derivatives(case):
        arrays = lanes(case, dims, SIZE)
        operands = [jnp.asarray(a) for a in arrays]
        vs = [random_like(arrays[k], rng) for k in case.differentiable]
        f = _vmapped(case, operands, dims)

        xs = tuple([operands[k] for k in case.differentiable])
        got = bare(jvp(f, xs, tuple([jnp.asarray(v) for v in vs]))[1])
        differentiable = tuple([dims[k] for k in case.differentiable])
        rows = [
            _lane_case(case, arrays, dims, k).push(lane(vs, differentiable, k)) for k in range(SIZE)
        ]
        want = [np.stack(column) for column in zip(*rows, strict=True)]
        yield from _compare_lanes(
            case, "jvp of vmap", s.rule("jvp"), got, want, dims, lambda k: f"output {k}"
        )
