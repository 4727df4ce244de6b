"""Python loops in compiled functions: their gradients, beside the scan that one would write by hand.

``python -m benchmarks.python_loops`` shows first call, settled call and memory for 20, 200 and 2,000 steps,
and for 20 steps the unrolled program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["LOOPS", "SCENARIOS"]

SIZE = 64
BOTH = ("fad", "jax")


def drawn(seed: int, *shape: int) -> jax.Array:
    """The same for each library."""
    draws = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(draws / SIZE**0.5, jnp.float32)


class Loop(NamedTuple):
    """A loop of so many steps: the Python loop, the scan, and arguments."""

    loop: Callable[..., Any]
    scan: Callable[..., Any]
    args: Sequence[Any]


def heat(steps: int) -> Loop:
    def loop(u: Any, a: Any) -> Any:
        for _ in range(steps):
            fx, fy = a * (u[1:] - u[:-1]), a * (u[:, 1:] - u[:, :-1])
            d = fnp.zeros_like(u)
            d[:-1] += fx
            d[1:] -= fx
            d[:, :-1] += fy
            d[:, 1:] -= fy
            u = u + d
        return (u * u).sum()

    def scan(u: Any, a: Any) -> Any:
        def step(u: Any, _: None) -> tuple[Any, None]:
            fx, fy = a * (u[1:] - u[:-1]), a * (u[:, 1:] - u[:, :-1])
            d = jnp.zeros_like(u)
            d = d.at[:-1].add(fx).at[1:].add(-fx).at[:, :-1].add(fy).at[:, 1:].add(-fy)
            return u + d, None

        u, _ = jax.lax.scan(step, u, None, steps)
        return (u * u).sum()

    return Loop(loop, scan, (drawn(0, SIZE, SIZE), jnp.float32(0.1)))


def wave(steps: int) -> Loop:
    start = jnp.zeros(SIZE).at[SIZE // 2].set(1.0)

    def loop(c: Any) -> Any:
        before, now = fnp.zeros(SIZE), fnp.asarray(start)
        for _ in range(steps):
            after = 2 * now - before
            after[1:-1] += c[1:-1] * (now[2:] - 2 * now[1:-1] + now[:-2])
            before, now = now, after
        return (now * now).sum()

    def scan(c: Any) -> Any:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            before, now = carry
            after = 2 * now - before
            after = after.at[1:-1].add(c[1:-1] * (now[2:] - 2 * now[1:-1] + now[:-2]))
            return (now, after), None

        (_, now), _ = jax.lax.scan(step, (jnp.zeros(SIZE), start), None, steps)
        return (now * now).sum()

    return Loop(loop, scan, (jnp.full(SIZE, 0.3),))


def recurrent(steps: int) -> Loop:
    def loop(w: Any, v: Any, xs: Any) -> Any:
        h = fnp.zeros(SIZE)
        for t in range(steps):
            h = fnp.tanh(w @ h + v @ xs[t])
        return (h * h).sum()

    def scan(w: Any, v: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(w @ h + v @ x), None)
        h, _ = jax.lax.scan(step, jnp.zeros(SIZE), xs)
        return (h * h).sum()

    return Loop(loop, scan, (drawn(0, SIZE, SIZE), drawn(1, SIZE, SIZE), 8 * drawn(2, steps, SIZE)))


def adam(steps: int) -> Loop:
    a = drawn(0, SIZE, SIZE)
    a = a @ a.T

    def step(xp: Any, grad: Any, x: Any, m: Any, v: Any, t: Any, rate: Any) -> Any:
        g = grad(lambda x: 0.5 * x @ (a @ x))(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - rate * (m / (1 - 0.9**t)) / (xp.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return x, m, v

    def loop(x: Any, rate: Any) -> Any:
        m = v = fnp.zeros(SIZE)
        for t in range(1, steps + 1):
            x, m, v = step(fnp, fad.grad, x, m, v, t, rate)
        return (x * x).sum()

    def scan(x: Any, rate: Any) -> Any:
        body = lambda carry, t: (step(jnp, jax.grad, *carry, t, rate), None)
        start = (x, jnp.zeros(SIZE), jnp.zeros(SIZE))
        (x, _, _), _ = jax.lax.scan(body, start, jnp.arange(1.0, steps + 1))
        return (x * x).sum()

    return Loop(loop, scan, (jnp.ones(SIZE), jnp.float32(0.01)))


def lengths(steps: int) -> Loop:
    sizes = [0.01 * (1 + 0.5 * float(np.cos(k))) for k in range(steps)]

    def loop(x: Any) -> Any:
        for h in sizes:
            x = x + h * (fnp.sin(x) - x * x * x)
        return (x * x).sum()

    def scan(x: Any) -> Any:
        x, _ = jax.lax.scan(
            lambda x, h: (x + h * (jnp.sin(x) - x * x * x), None), x, jnp.asarray(sizes)
        )
        return (x * x).sum()

    return Loop(loop, scan, (jnp.linspace(-1, 1, SIZE * SIZE),))


LOOPS: dict[str, Callable[[int], Loop]] = {
    "heat in place": heat,
    "wave, two steps of memory": wave,
    "recurrent net": recurrent,
    "Adam on a quadratic": adam,
    "list of step sizes": lengths,
}


def gradient(library: str, found: Loop) -> Any:
    """The compiled gradient in all arguments."""
    every = tuple(range(len(found.args)))
    if library == "fad":
        return fad.jit(fad.grad(found.loop, argnums=every))
    return jax.jit(jax.grad(found.scan, argnums=every))


def running(found: Callable[[int], Loop], steps: int) -> Callable[[Library], Callable[[], Any]]:
    def build(library: Library) -> Callable[[], Any]:
        loop = found(steps)
        compiled = gradient(library.name, loop)
        return lambda: compiled(*loop.args)

    return build


def memory(found: Callable[[int], Loop], steps: int) -> Callable[[Library], Callable[[], float]]:
    """What XLA sets aside for the program, besides arguments and results, in kB."""

    def build(library: Library) -> Callable[[], float]:
        loop = found(steps)
        lowered = gradient(library.name, loop).lower(*loop.args)
        return lambda: float(lowered.compile().memory_analysis().temp_size_in_bytes) / 1e3

    return build


def scenarios() -> Iterator[Scenario]:
    for name, found in LOOPS.items():
        work = f"{name}, 200 steps, lax.scan in JAX"
        yield Scenario(work, "jit of grad", running(found, 200), BOTH, {"jax": 1.5})
        yield Scenario(work, "memory of jit of grad", memory(found, 200), BOTH, {"jax": 1.5}, "kB")


SCENARIOS: list[Scenario] = [*scenarios()]


def measured(compile: Callable[[], Any], args: Sequence[Any]) -> tuple[float, float, float]:
    """CPU seconds to compile, the fastest of ten calls in ms, and temporary memory in MB."""
    begin = time.process_time()
    compiled = compile()
    first = time.process_time() - begin
    fastest = np.inf
    for _ in range(10):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        fastest = min(fastest, time.perf_counter() - begin)
    return first, fastest * 1e3, compiled.memory_analysis().temp_size_in_bytes / 1e6


def in_words(figures: tuple[float, float, float]) -> str:
    first, run, memory = figures
    return f"{first:.1f} s, {run:.2f} ms, {memory:.2f} MB"


def show() -> None:
    """The table of docs/loops.md."""
    print("| loop | steps | trace | rolled | scan by hand | unrolled |")
    print("|" + "---|" * 6)
    for name, found in LOOPS.items():
        for steps in (20, 200, 2000):
            loop = found(steps)
            ours, theirs = gradient("fad", loop), gradient("jax", loop)
            begin = time.process_time()
            traced = ours.trace(*loop.args)
            trace = time.process_time() - begin
            cells = [name, f"{steps:,}", f"{trace:.1f} s"]
            cells.append(in_words(measured(traced.lower().compile, loop.args)))
            cells.append(in_words(measured(theirs.lower(*loop.args).compile, loop.args)))
            whole = fad.jit(ours.__wrapped__, roll=False)
            unrolled = steps == 20 and measured(whole.lower(*loop.args).compile, loop.args)
            cells.append(in_words(unrolled) if unrolled else "not measured")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    show()
