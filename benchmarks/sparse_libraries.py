"""Sparse derivatives beside the library asdex, on its own published cases and larger ones.

``pip install asdex``, then ``python -m benchmarks.sparse_libraries``. It prints, for each case, how many
products both libraries take, and what share of asdex' CPU time fad takes to find the pattern, to colour it,
and to compute the numbers by a compiled function, whose instructions of XLA it counts in both. ``--check``
fails where fad takes more products, or more than `BOUND` of the time for the numbers.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp
from fad.sparse.coloring import best_coloring

__all__ = ["BOUND", "CASES", "Case", "Row", "Share", "line", "measure"]

BOUND = 1.1  # of asdex' time for the numbers, 1.0 and what the clock does not resolve
TURNS = 24


@dataclass(frozen=True)
class Case:
    """``f(xp, *args)`` and its arguments; the derivatives are by all of them."""

    name: str
    f: Callable[..., Any]
    args: tuple[Any, ...]
    hessian: bool = False


def heat(xp: Any, u: Any) -> Any:
    """The right-hand side of the heat equation."""
    return xp.concatenate(
        [-2 * u[0:1] + u[1:2], u[:-2] - 2 * u[1:-1] + u[2:], u[-2:-1] - 2 * u[-1:]]
    )


def differences(xp: Any, x: Any) -> Any:
    return (x[1:] - x[:-1]) ** 2


def rosenbrock(xp: Any, x: Any) -> Any:
    return xp.sum((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2)


def brusselator(xp: Any, uv: Any) -> Any:
    """On a periodic grid."""
    n = round((len(uv) / 2) ** 0.5)
    u, v = uv[: n * n].reshape(n, n), uv[n * n :].reshape(n, n)

    def laplacian(w: Any) -> Any:
        neighbours = [xp.roll(w, k, axis) for k in (1, -1) for axis in (0, 1)]
        return (sum(neighbours) - 4 * w) * n**2

    du = 1.0 + u**2 * v - 4.4 * u + 10.0 * laplacian(u)
    dv = 3.4 * u - u**2 * v + 10.0 * laplacian(v)
    return xp.concatenate([du.reshape(-1), dv.reshape(-1)])


_draw = np.random.default_rng(0)
KERNELS = [
    _draw.normal(size=shape).astype(np.float32) for shape in ((5, 1, 8), (3, 8, 4), (3, 4, 2))
]


def convolutions(xp: Any, x: Any) -> Any:
    """Three layers with rectifiers."""
    lax = jax.lax if xp is jnp else fad.lax
    h = x[None, :, None]
    for k, kernel in enumerate(KERNELS):
        h = lax.conv_general_dilated(
            h, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        h = h if k == 2 else xp.maximum(h, 0.0)
    return h.reshape(-1)


def coupled(xp: Any, p: Any, y: Any) -> Any:
    """Outputs and arguments in pytrees."""
    return {"z": xp.sin(p["a"]) * p["b"], "w": p["b"][1:] * y[:-1] ** 2}


def numbers(n: int) -> Any:
    return jnp.asarray(_draw.normal(size=n).astype(np.float32))


CASES: Sequence[Case] = [
    Case("differences, n = 1,000", differences, (numbers(1000),)),
    Case("heat equation, n = 200", heat, (numbers(200),)),
    Case("three convolutions, n = 200", convolutions, (numbers(200),)),
    Case("Rosenbrock's function, n = 200", rosenbrock, (numbers(200),), True),
    Case("Brusselator, 32 × 32", brusselator, (numbers(2048),)),
    Case("Brusselator, 128 × 128", brusselator, (numbers(2 * 128**2),)),
    Case("Rosenbrock's function, n = 20,000", rosenbrock, (numbers(20_000),), True),
    Case(
        "two arguments, a pytree, 3 × 5,000",
        coupled,
        ({"a": numbers(5000), "b": numbers(5000)}, numbers(5000)),
    ),
]


class Share(NamedTuple):
    """The median of fad's CPU time over asdex' in all turns, and fad's own seconds in its fastest turn."""

    ratio: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """What one case takes: products and instructions of both, and a `Share` for each stage."""

    case: Case
    products: tuple[int, int]
    instructions: tuple[int, int]
    pattern: Share
    coloring: Share
    numbers: Share

    @property
    def missed(self) -> bool:
        """Whether fad takes more than it may."""
        return self.products[0] > self.products[1] or self.numbers.ratio > BOUND


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Share:
    """Both by turns, the first one first in every other turn."""
    for f in (ours, theirs):
        jax.block_until_ready(f())
    start = time.process_time()
    jax.block_until_ready(theirs())
    calls = max(1, min(200, int(0.02 / max(time.process_time() - start, 1e-5))))
    turns: list[dict[Any, float]] = []
    for turn in range(TURNS):
        seconds = {}
        for f in (ours, theirs)[:: 1 - turn % 2 * 2]:
            start = time.process_time()
            for _ in range(calls):
                result = f()
            jax.block_until_ready(result)
            seconds[f] = (time.process_time() - start) / calls
        turns.append(seconds)
    ratio = statistics.median([seconds[ours] / seconds[theirs] for seconds in turns])
    return Share(ratio, min([seconds[ours] for seconds in turns]))


def instructions(f: Any, args: Sequence[Any]) -> int:
    """How many instructions of XLA a jitted function has when it is compiled."""
    return len(re.findall(r"^ .* = ", f.lower(*args).compile().as_text(), re.MULTILINE))


def measure(case: Case, asdex: Any) -> Row:
    """Both libraries on one case, after a check that they give the same."""
    args, nums = case.args, tuple(range(len(case.args)))
    nums = nums if len(nums) > 1 else 0  # type: ignore[assignment]
    f = lambda *args: case.f(fnp, *args)
    g = lambda *args: case.f(jnp, *args)
    kind = "hessian" if case.hessian else "jacobian"
    find = getattr(asdex, f"{kind}_sparsity")
    color = getattr(asdex, f"{kind}_coloring_from_sparsity")
    compute = getattr(asdex, f"{kind}_from_coloring")
    transform = fad.sparse_hessian if case.hessian else fad.sparse_jacobian

    ours = fad.sparse_pattern(f, nums, hessian=case.hessian)(*args)
    pattern = find(g, *args, argnums=nums)
    theirs = color(pattern)
    fast = jax.jit(fad.to_jax(transform(f, nums, pattern=ours)))
    other = jax.jit(compute(g, theirs))
    same = zip(jax.tree.leaves(fast(*args)), jax.tree.leaves(other(*args)), strict=True)
    for a, b in same if ours.nse == pattern.nnz else ():
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-3)
    return Row(
        case,
        (ours.products, theirs.num_colors),
        (instructions(fast, args), instructions(other, args)),
        in_turns(
            lambda: fad.sparse_pattern(f, nums, hessian=case.hessian)(*args).nse,
            lambda: find(g, *args, argnums=nums).nnz,
        ),
        in_turns(
            lambda: best_coloring(ours.rows, ours.cols, *ours.shape, case.hessian)[0].count,
            lambda: color(pattern).num_colors,
        ),
        in_turns(lambda: fast(*args), lambda: other(*args)),
    )


HEAD = """| case | products | theirs | instructions | theirs | pattern | colouring | numbers | µs |
|---|---|---|---|---|---|---|---|---|"""


def line(r: Row) -> str:
    """A row in Markdown: shares of asdex' time, and microseconds of fad for the numbers."""
    counts = map(str, (*r.products, *r.instructions))
    shares = [f"{share.ratio:.2f}" for share in (r.pattern, r.coloring, r.numbers)]
    return f"| {' | '.join([r.case.name, *counts, *shares, f'{r.numbers.seconds * 1e6:.0f}'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this text")
    parser.add_argument("--check", action="store_true", help="fail where a bound is not kept")
    chosen = parser.parse_args()
    try:
        import asdex  # noqa: PLC0415
    except ImportError as error:
        raise SystemExit(f"it needs asdex ({error}): pip install asdex") from error
    rows = []
    print(HEAD)
    for case in CASES:
        if chosen.only in case.name:
            rows.append(measure(case, asdex))
            print(line(rows[-1]), flush=True)
    missed = [r.case.name for r in rows if r.missed]
    if missed and chosen.check:
        raise SystemExit(f"more products or time than asdex: {', '.join(missed)}")


if __name__ == "__main__":
    main()
