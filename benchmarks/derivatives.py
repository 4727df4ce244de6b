"""What derivatives cost beside JAX's: `python -m benchmarks.derivatives`.

NOTE [the price of a derivative]

    python -m benchmarks.derivatives --only numpy.arcsinh

Value and gradient of a function, and its Hessian-vector product, are compiled twice: fad's by `fad.jit`, that
of JAX by `jax.jit`. XLA counts what a call of each takes (floating point operations, transcendental
functions, bytes that its kernels read and write); no clock is involved. It does not count the work of LAPACK,
so calls of it count as well. Only where one of the counts is higher than allowed are the two timed, in turns:
a function is above the rule if a count is and the time is.

Functions and arguments are those of the laws (`tests.helpers.operation_arguments`), enlarged; other forms of
a call, and Tensor methods that JAX does not have, are in `benchmarks.derivative_forms`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import random
import re
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import fad
from benchmarks.derivative_forms import FORMS
from fad.arrays import special_cases
from fad.core.jaxapi import programs
from tests.helpers.helpers import MODULES
from tests.helpers.operation_arguments import B, accepted, found_in, names, on_arrays

__all__ = [
    "COUNTED",
    "EXCEPTIONS",
    "NAMES",
    "WITHIN",
    "Cost",
    "NoDerivative",
    "costs",
    "uncovered",
]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
START, END = "<!-- costlier derivatives -->\n", "<!-- end -->\n"
COUNTED, TIMED, EXCEPTED = 1.15, 1.1, 1.5  # of JAX's, at most
MEASURES = ("flops", "transcendentals", "bytes accessed", "calls")
ORDERS = ("gradient", "Hessian-vector product")

# Where JAX's derivative is wrong at a finite point at which the function is smooth, it may cost more.
_QUOTIENT = "JAX's slope `x / y**2` is 0 or infinite where `y**2` is, at `1e20 / 1e20`"
EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys(
        [f"numpy.divide{of}" for of in (", a number", ", by a scalar", ", by rows")], _QUOTIENT
    ),
    **dict.fromkeys(
        ["lax.acosh", "lax.asinh", "numpy.arccosh", "numpy.acosh", "numpy.arcsinh", "numpy.asinh"],
        "JAX's slope is 0 where the square of the argument overflows, at `1e25`",
    ),
    **dict.fromkeys(
        ["lax.betainc", "scipy.special.betainc"], "JAX's derivative by `x` is NaN at `(1, 1, 0)`"
    ),
    **dict.fromkeys(
        ["scipy.special.boxcox", "scipy.special.boxcox1p"],
        "JAX's derivative by `lmbda` is 0 at `lmbda = 0`",
    ),
    **dict.fromkeys(
        ["scipy.special.dawsn", "scipy.special.erfcx"],
        "JAX's second derivative has wrong digits where arguments are large, at `1e6`",
    ),
    "scipy.special.log_ndtr": "JAX's derivative is 2981 at `-1e4`, where it should be 10000",
    "scipy.special.poch": "JAX's derivative by `z` is NaN at `(0, 2)`",
    "scipy.special.sici": "JAX's second derivative is 0 at `1e-8`",
    "scipy.special.spence": "JAX's derivative is 0 at 1 and NaN at 2",
    **dict.fromkeys(
        ["lax.bessel_i1e", "scipy.special.i1e"], "JAX's second derivative is 0 at `1e-9`"
    ),
    "numpy.kaiser": "JAX's second derivative by `beta` is 0 at 0",
    **dict.fromkeys(
        ["numpy.linalg.det", "numpy.linalg.det, of 8 rows", "scipy.linalg.det"],
        "JAX's derivative is 0 at singular matrices, at `diag(1, 2, 0, 3)`",
    ),
    "numpy.angle, complex": "JAX's derivative is NaN at tiny numbers, `1e-30`",
    "numpy.hypot": "JAX's derivatives are NaN at `(1e-30, 0)`, JAX 0.12's second one is 0 at `(1, 1e-4)`",
    "numpy.linalg.cond": "JAX's second derivative is NaN where singular values are equal",
}

# Above the rule by counts and within it by time, with the largest count in proportion to JAX's: what the
# program finds by its clock, written down for those who have none.
WITHIN: dict[str, float] = {
    **dict.fromkeys(["lax.pow", "numpy.float_power", "numpy.pow", "numpy.power"], 1.6),
    "Tensor.hardshrink": 1.35,
    "Tensor.sort": 1.7,
    "indexing, a slice": 1.2,
    **dict.fromkeys(["lax.digamma", "scipy.special.digamma", "scipy.special.polygamma"], 1.6),
    **dict.fromkeys(["lax.lgamma", "scipy.special.gammaln"], 1.4),
    "lax.betainc": 2.6,
    "lax.polygamma": 2.8,  # of which most is a branch that positive numbers do not take
    "nn.log1mexp": 2.05,
    "nn.squareplus": 2.05,
    "numpy.abs, complex": 8.0,
    "numpy.sign, complex": 8.0,
    "numpy.linalg.det, of 4 rows": 3.7,  # of a polynomial, where JAX calls LAPACK
    **dict.fromkeys(["scipy.special.boxcox", "scipy.special.boxcox1p"], 2.6),
    "scipy.special.comb, of repetition": 1.5,  # with fewer transcendental functions
    "scipy.special.gamma": 1.25,
    "scipy.special.i1": 1.7,
    **dict.fromkeys(["scipy.special.kl_div", "scipy.special.rel_entr"], 1.55),
    "numpy.nanprod": 1.3,  # of bytes, with half of the flops
    "numpy.sinc": 1.9,  # by series, without the sine and cosine that JAX 0.10 takes
    "scipy.special.sici": 1.9,  # of bytes, with half of JAX's transcendental functions
}

NAMES = [*dict.fromkeys([*sorted(names()), *FORMS])]


class NoDerivative(Exception):
    """JAX has no derivative of a function, or no compiled one."""


# What is compiled


@dataclass(frozen=True)
class Case:
    """A function of arrays in both libraries, and the places of the arrays that it is differentiated in."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[Any, ...]
    places: tuple[int, ...] = ()
    second: bool = True


def _shapes(size: int, ndim: int) -> dict[int, int]:
    """Of the sizes of the laws' arrays: what they are enlarged to."""
    return {2: size if ndim > 1 else size**2, 3: 2 * size if ndim > 1 else size**2 + size}


LANES = 4096  # of functions whose other arguments fit the small shapes alone
UNROLLED = {
    # Their programs grow with the size, or their time does with its cube.
    **dict.fromkeys(["lax.stack", "lax.unstack", "numpy.poly", "numpy.select"], (8,)),
    "numpy.roll": (2,),  # one after the other; for 16, XLA takes 13 GB on JAX 0.12
    **dict.fromkeys(["numpy.unravel_index", "numpy.unstack", "scipy.linalg.solve_sylvester"], (8,)),
    # They have arrays of indices as constants, or take minutes to compile.
    **dict.fromkeys([f"scipy.linalg.{n}" for n in ("circulant", "hankel", "toeplitz")], (16,)),
    **dict.fromkeys(["lax.ragged_dot", "lax.ragged_dot_general"], (16,)),
}
LARGEST, LONGEST = 1 << 24, 3000  # elements of an array in between, and equations


def _enlarged(x: np.ndarray, sizes: dict[int, int], draw: np.random.Generator) -> np.ndarray:
    """Numbers between the least and the greatest of ``x``; symmetric, or triangular, as ``x`` is."""
    shape = tuple([sizes.get(n, n) for n in x.shape])
    if x.dtype.kind not in "fc":
        return np.resize(x, shape)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        part = lambda v: draw.uniform(v.min(), v.max(), shape) if v.size else np.resize(v, shape)
        return part(x.real) + 1j * part(x.imag) if x.dtype.kind == "c" else part(x)
    full = draw.uniform(0.1, 0.9, shape) / shape[-1] + np.eye(shape[-1]) * draw.uniform(
        1, 1.5, shape[-1:]
    )
    if (x == np.tril(x)).all():
        return np.tril(full)
    return full + full.mT if (x == x.mT).all() else full


def cases(name: str) -> Iterator[Case]:
    """Sizes of a function, largest first; then many small ones side by side."""
    if name in FORMS:
        ours, theirs, small = FORMS[name]
    else:
        found = accepted(name, ((B,), (B, 0.9 * B + 0.05), (B + 0.9j * B,)))
        if found is None:
            raise NoDerivative("no arguments are known")
        ours, theirs = [on_arrays(found_in(root, name), found)[0] for root in (fad, jax)]
        small = [x for x in jax.tree.leaves(found) if isinstance(x, np.ndarray)]
    if not any(x.dtype.kind in "fc" for x in small):
        raise NoDerivative("its arguments are no floating point numbers")
    ndim = max(x.ndim for x in small)
    for size in UNROLLED.get(name, (256, 64, 16)):
        draw = np.random.default_rng(0)
        arrays = [jnp.asarray(_enlarged(x, _shapes(size, ndim), draw)) for x in small]
        yield Case(ours, theirs, tuple(arrays))
    lanes = [jnp.asarray(np.repeat(x[None], LANES, 0)) for x in small]
    yield Case(fad.vmap(ours), jax.vmap(theirs), tuple(lanes))
    yield Case(ours, theirs, tuple(map(jnp.asarray, small)))


def _inexact(leaves: Sequence[Any]) -> list[Any]:
    return [x for x in leaves if jnp.issubdtype(getattr(x, "dtype", int), jnp.inexact)]


def _weights(case: Case) -> list[jax.Array]:
    """One array for each result that has a derivative."""
    outs = _inexact(jax.tree.leaves(jax.eval_shape(case.theirs, *case.arrays)))
    draw = np.random.default_rng(1)
    return [jnp.asarray(draw.uniform(0.5, 1.5, o.shape), o.dtype) for o in outs]


def _programs(root: Any, f: Callable[..., Any], case: Case) -> list[Callable[..., Any]]:
    """Value and gradient, and the product; gradients of complex numbers are fad's in both."""

    def loss(moving: list[Any], weights: list[Any], fixed: list[Any]) -> Any:
        given = dict(zip(case.places, moving, strict=True))
        rest = iter(fixed)
        outs = f(*[given[k] if k in given else next(rest) for k in range(len(case.arrays))])
        found = 0.0
        leaves = jax.tree.leaves(outs, is_leaf=lambda x: isinstance(x, fad.Tensor))
        for out, w in zip(_inexact(leaves), weights, strict=True):
            found = found + (out * w).real.sum()
        return found

    def conjugate(gradients: list[Any]) -> list[Any]:
        return [g.conj() if root is jax and jnp.iscomplexobj(g) else g for g in gradients]

    def first(moving: Any, weights: Any, fixed: Any) -> Any:
        value, gradients = root.value_and_grad(loss)(moving, weights, fixed)
        return value, conjugate(gradients)

    def second(moving: Any, weights: Any, fixed: Any, tangents: Any) -> Any:
        slope = lambda moving: conjugate(root.grad(loss)(moving, weights, fixed))
        return root.jvp(slope, (moving,), (tangents,))

    return [first, second]


def _operands(case: Case) -> list[tuple[Any, ...]]:
    moving = [case.arrays[k] for k in case.places]
    fixed = [x for k, x in enumerate(case.arrays) if k not in case.places]
    given = (moving, _weights(case), fixed)
    return [given, (*given, [0.5 * x + 0.1 for x in moving])]


def _sizes(jaxpr: Any) -> Iterator[int]:
    """Of all arrays of a program."""
    for eqn in jaxpr.eqns:
        yield from (getattr(v.aval, "size", 0) for v in eqn.outvars)
        for inner in programs(eqn):
            yield from _sizes(getattr(inner, "jaxpr", inner))


def _differentiable(case: Case) -> Case | None:
    """The case with the places that JAX has a derivative in; None where it has none."""
    places = tuple([k for k, x in enumerate(case.arrays) if jnp.issubdtype(x.dtype, jnp.inexact)])
    for chosen in [places, *[(k,) for k in reversed(places) if len(places) > 1]]:
        one = replace(case, places=chosen)
        try:
            weights = _weights(one)
        except Exception:  # JAX cannot run it on these arrays
            continue
        if not weights:
            return None
        operands = _operands(one)
        first, second = _programs(jax, case.theirs, one)
        try:
            program = jax.make_jaxpr(first)(*operands[0])
        except Exception:  # JAX has no derivative of it in these places
            continue
        sizes = list(_sizes(program.jaxpr))
        if max(sizes, default=0) > LARGEST or len(sizes) > LONGEST:
            return None
        try:
            jax.eval_shape(second, *operands[1])
        except Exception:  # nor a second one
            return replace(one, second=False)
        return one
    return None


# What it costs


@dataclass(frozen=True)
class Cost:
    """What a derivative of fad costs in proportion to JAX's."""

    name: str
    order: str
    ratios: dict[str, float]
    time: float | None = None

    @property
    def counted(self) -> float:
        return max(self.ratios.values())

    @property
    def above(self) -> bool:
        """Whether it costs more than the rule allows, or than an exception may."""
        counted, timed = (EXCEPTED, EXCEPTED) if self.name in EXCEPTIONS else (COUNTED, TIMED)
        if self.time is None:
            return self.counted > max(counted, WITHIN.get(self.name, 0.0))
        return self.counted > counted and self.time > timed


def _counts(program: Any) -> dict[str, float]:
    found = program.cost_analysis()
    calls = len(re.findall(r" custom-call\(", program.as_text()))
    return {name: found.get(name, 0.0) for name in MEASURES[:-1]} | {"calls": float(calls)}


def _ratios(ours: dict[str, float], theirs: dict[str, float], elements: int) -> dict[str, float]:
    """Where JAX has next to nothing, something of less than an operation for eight elements is nothing."""
    least = {"calls": 1.0}
    floor = [least.get(name, elements / 8 + 64) for name in MEASURES]
    return {
        name: max(ours[name], low) / max(theirs[name], low)
        for name, low in zip(MEASURES, floor, strict=True)
    }


ROUNDS, TURN, ATTEMPTS = 15, 0.004, 3  # a turn in seconds


def _timed(programs: Sequence[Callable[..., Any]], operands: tuple[Any, ...]) -> float:
    """The least CPU time of the first, of turns that alternate, in proportion to that of the second."""
    clock = time.process_time

    def turn(program: Callable[..., Any], count: int) -> float:
        start = clock()
        for _ in range(count):
            jax.block_until_ready(program(*operands))
        return (clock() - start) / count

    for program in programs:
        turn(program, 1)
    count = max(1, int(TURN / max(1e-6, turn(programs[1], 1))))
    turns: list[list[float]] = []
    for _ in range(ATTEMPTS):  # others may work on the machine
        turns += [[turn(program, count) for program in programs] for _ in range(ROUNDS)]
        ours, theirs = [min(times) for times in zip(*turns, strict=True)]
        if ours <= TIMED * theirs:
            break
    return ours / theirs


def costs(name: str, clock: bool = True) -> list[Cost]:
    """Of the gradient and of the Hessian-vector product, if JAX has one.

    Arguments:
        clock: whether those are timed that are above the rule by their counts.

    Raises:
        NoDerivative: JAX has none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in filter(None, map(_differentiable, cases(name))):
            operands = _operands(case)[: 1 + case.second]
            theirs = [jax.jit(p) for p in _programs(jax, case.theirs, case)]
            jax_programs = []
            try:
                for p, given in zip(theirs, operands):
                    jax_programs.append(_compiled(p, given))
            except Exception:  # of whatever kind JAX raises
                if not jax_programs:
                    continue
            ours = [fad.jit(p) for p in _programs(fad, case.ours, case)]
            elements = sum(x.size for x in case.arrays)
            found = []
            for order, p, of_their, of_jax, given in zip(
                ORDERS, ours, theirs, jax_programs, operands
            ):
                counts = map(_counts, (_compiled(p, given), of_jax))
                cost = Cost(name, order, _ratios(*counts, elements))
                if clock and cost.counted > COUNTED:
                    fastest = [_compiled(q, given, level=3) for q in (p, of_their)]
                    cost = replace(cost, time=_timed(fastest, given))
                found.append(cost)
            return found
    raise NoDerivative("JAX has none, or does not compile it")


def _compiled(program: Any, operands: tuple[Any, ...], level: int = 0) -> Any:
    """The counts are those of any level of optimization by LLVM, whose work is a third of the compiler's."""
    options = {"xla_backend_optimization_level": level}
    return program.lower(*operands).compile(compiler_options=options)


GROUP = 20  # a process keeps some 20 MB of each function
MEMORY = 8 << 30  # of a process, in bytes


def _outcome(name: str, clock: bool) -> list[Cost] | str:
    """The costs, or why there are none."""
    try:
        return costs(name, clock)
    except NoDerivative as error:
        return str(error)


def _bounded() -> None:
    """A compiler that needs more memory ends the process, and not those of others."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _outcomes(names: Sequence[str], clock: bool) -> Iterator[tuple[str, list[Cost] | str]]:
    """In a fresh process for each group: what has been compiled stays in memory until a process ends."""
    context = multiprocessing.get_context("spawn")
    rest = list(names)
    while rest:
        with ProcessPoolExecutor(1, context, initializer=_bounded) as pool:
            for name in rest[:GROUP]:
                rest.remove(name)
                try:
                    yield name, pool.submit(_outcome, name, clock).result()
                except BrokenProcessPool:
                    yield name, f"its program takes more than {MEMORY >> 30} GB to compile"
                    break


# What is not covered


def uncovered() -> dict[str, str]:
    """Public functions that may have derivatives, and are in none of the lists; why, in a word."""
    why = {
        "COLLECTIVES": "it needs devices",
        "FACTORIES": "it makes initializers, which draw",
        "BODIES": "it takes functions, and JAX has no reverse mode for it, or there is no form of it",
    }
    covered = {name.partition(",")[0] for name in NAMES}
    found = {}
    for module, table in itertools.product(MODULES, why):
        for name in sorted(getattr(special_cases, table).get(module, ())):
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                is_there = hasattr(importlib.import_module(module), name)
            if is_there:
                found.setdefault(f"{module[4:]}.{name}", why[table])
    return {name: reason for name, reason in found.items() if name not in covered}


# What is printed and written


def table(found: Sequence[Cost]) -> Table:
    """The worst first."""
    made = Table("function", "derivative", *MEASURES, "time", title="fad / JAX")
    for cost in found:
        values = [f"{cost.ratios[name]:.2f}" for name in MEASURES]
        timed = "" if cost.time is None else f"{cost.time:.2f}"
        style = "red" if cost.above else None
        made.add_row(cost.name, cost.order, *values, timed, style=style)
    return made


def as_markdown() -> str:
    """The exceptions, for docs/performance.md."""
    rows = [f"| `{name}` | {reason} |" for name, reason in sorted(EXCEPTIONS.items())]
    return "\n".join(["| function | why |", "|---|---|", *rows]) + "\n"


def written(text: str) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(START)
    return before + START + as_markdown() + END + rest.partition(END)[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.derivatives", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="names that contain one of these")
    parser.add_argument("--sample", type=int, help="so many of them, drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--rows", type=int, default=30, help="of the table")
    parser.add_argument("--counts", action="store_true", help="no clock: what is timed is a list")
    parser.add_argument("--check", action="store_true", help="fail if a function is above the rule")
    parser.add_argument("--write", action="store_true", help="the list of exceptions, in the docs")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(written(PAGE.read_text()))
        return 0
    chosen = [name for name in NAMES if any(part in name for part in options.only)]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    console = Console(width=140)
    found: list[Cost] = []
    without: dict[str, list[str]] = {}
    for name, outcome in _outcomes(chosen, not options.counts):
        if isinstance(outcome, str):
            without.setdefault(outcome, []).append(name)
        else:
            found += outcome
            counted = " ".join([f"{cost.counted:.2f}" for cost in outcome])
            style = "red" if any(cost.above for cost in outcome) else "dim"
            console.print(f"{name}: {counted}", style=style)
    found.sort(key=lambda cost: -cost.counted)
    console.print(table(found[: options.rows]))
    for why, those in without.items():
        console.print(f"no derivative, {why}: {', '.join(those)}")
    for name, why in uncovered().items():
        console.print(f"not covered: {name}: {why}")
    above = sorted({cost.name for cost in found if cost.above})
    measured = len({cost.name for cost in found})
    console.print(f"{measured} functions, above the rule: {', '.join(above) or 'none'}")
    return 1 if above and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
