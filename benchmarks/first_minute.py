"""What replay costs before it pays: calls of a fresh process, new lengths, and programs of any length.

NOTE [rows of the first minute]
A program runs 20 times in a process of its own, and 20 times in another one with replay off, some
pairs in turns. Of each call the median over the processes counts. Two numbers are bounded: the total in
proportion to that without replay, and the longest time that a call after the first takes more than the
same call does without replay, which is the pause that somebody feels. Of a program that ends after
so many calls (`SHORT`) the total is compared with that in PyTorch instead. Modules have been imported before.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from rich.table import Table

import fad
import fad.numpy as fnp
from benchmarks import processes, programs, timing, torch_programs
from benchmarks.libraries import LIBRARIES, Library
from benchmarks.scenarios import Scenario

__all__ = ["CALLS", "SCENARIOS", "calls", "chain", "forget", "table"]

CALLS = 20  # of a program in a process
PAUSE = 0.1  # seconds
ONCE_COMPILED = {"torch": 1.2}
SHORT: Mapping[str, Mapping[str, float]] = {"MAML, sines": {"torch": 1.0}}
_times: dict[tuple[str, str, int], list[float]] = {}
"""Of program, library and turn: seconds of each call. Rows that look at the same processes share them."""


PREPARE = {
    "fad": """
import contextlib, fad
from benchmarks.programs import PROGRAMS
around, arguments = contextlib.nullcontext(), [fad]
""",
    "nodes": """
import fad
from benchmarks.programs import PROGRAMS
around, arguments = fad.autograd.compiled(False), [fad]
""",
    "torch": """
import contextlib, torch
from benchmarks.torch_programs import PROGRAMS
torch.set_num_threads(1)
around, arguments = contextlib.nullcontext(), []
""",
}


def in_a_process(program: str, library: str) -> list[float]:
    """Seconds of each of the first calls of a program in a fresh process."""
    code = f"""
import gc, json, time
{PREPARE[library]}
call = PROGRAMS[{program!r}](*arguments)
gc.collect()
gc.freeze()  # else modules just imported are looked at by a collection, in one process or the other
times = []
with around:
    for _ in range({CALLS}):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
print(json.dumps(times))
"""
    return json.loads(processes.output(code))


def first_calls(program: str) -> Callable[[Library], Callable[[], list[float]]]:
    def build(library: Library) -> Callable[[], list[float]]:
        turns = itertools.count()

        def call() -> list[float]:
            key = (program, library.name, next(turns))
            if key not in _times:
                _times[key] = in_a_process(program, library.name)
            return _times[key]

        return call

    return build


def each(turns: list[list[float]]) -> list[float]:
    """Of each call, the median over the processes."""
    return [statistics.median(found) for found in zip(*turns, strict=True)]


def total(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    return {name: sum(each(found)) for name, found in turns.items()}


def longest_pause(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    """How much longer a call after the first takes than without replay, at most."""
    if set(turns) != {"fad", "nodes"}:
        return {}
    pairs = zip(each(turns["fad"]), each(turns["nodes"]), strict=True)
    return {"fad": max([on - off for on, off in list(pairs)[1:]])}


def calls() -> dict[str, dict[str, list[float]]]:
    """Of each program that has been measured, for each library: seconds of each call."""
    turns: dict[str, dict[str, list[list[float]]]] = {}
    for (program, library, _), times in _times.items():
        turns.setdefault(program, {}).setdefault(library, []).append(times)
    return {
        program: {library: each(found) for library, found in of.items()}
        for program, of in turns.items()
    }


def table(found: Mapping[str, Mapping[str, list[float]]]) -> Table:
    """A row for each call."""
    made = Table(title="each call in a fresh process, ms: medians")
    made.add_column("call", justify="right")
    columns = []
    for program, of in found.items():
        for library, times in of.items():
            made.add_column(f"{program}, {LIBRARIES[library].title}", justify="right")
            columns.append(times)
    for number, row in enumerate(zip(*columns, strict=True), 1):
        made.add_row(str(number), *[f"{seconds * 1e3:,.1f}" for seconds in row])
    return made


def settled(program: str) -> Callable[[Library], Callable[[], Any]]:
    """A program in this process, called until it is settled."""

    def build(library: Library) -> Callable[[], Any]:
        if library.name == "torch":
            return torch_programs.PROGRAMS[program]()
        return programs.PROGRAMS[program](fad)

    return build


LENGTH = 8  # tokens, of the program as it is known
NEW = (12, 20, 28)
_new: dict[int, dict[str, list[float]]] = {}


def with_new_lengths() -> dict[str, list[float]]:
    """Seconds of the first call with each of some new lengths, of `fad.grad` and of `jax.jit(jax.grad)`.

    Both are called with another length until they are settled; one and then the other goes first.
    """
    return json.loads(
        processes.output(f"""
import json, time
import jax, jax.numpy as jnp
import fad, fad.numpy as fnp
from benchmarks.programs import ATTENTION, attention, host, tokens
from benchmarks.timing import settle
weights = [jnp.asarray(w) for w in ATTENTION]
gradients = {{
    "fad": fad.grad(lambda x, *ws: attention(fnp, x, *ws)),
    "jax": jax.jit(jax.grad(lambda x, *ws: attention(jnp, x, *ws))),
}}
def call(name, length):
    x = jnp.asarray(tokens(length))
    start = time.perf_counter()
    host(gradients[name](x, *weights))
    return time.perf_counter() - start
for name in gradients:
    for _ in range({timing.WARM}):
        call(name, {LENGTH})
settle(lambda: call("fad", {LENGTH}))
times = {{name: [] for name in gradients}}
for number, length in enumerate({NEW}):
    for name in list(gradients)[:: 1 if number % 2 else -1]:
        times[name].append(call(name, length))
print(json.dumps(times))
""")
    )


def new_length(library: Library) -> Callable[[], list[float]]:
    turns = itertools.count()

    def call() -> list[float]:
        turn = next(turns)
        if turn not in _new:
            _new[turn] = with_new_lengths()
        return _new[turn][library.name]

    return call


def median(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    return {
        name: statistics.median(itertools.chain.from_iterable(found))
        for name, found in turns.items()
    }


SIZES = (30, 300, 900, 3_000, 12_000, 100_000)
REFERENCE = 300  # operations; each one of longer programs is to cost not much more
LONG = 30_000
SPENT = 0.05  # seconds of calls in a turn
SETTLING = 8.0  # seconds until a program that has not settled is measured all the same
_costs: dict[tuple[str, int, str, int], tuple[float, float]] = {}


def chain(xp: Any, x: Any, length: int) -> Any:
    """So many operations, three by three, and a sum."""
    for _ in range(length // 3):
        x = x * 0.9 + xp.sin(x)
    return xp.sum(x)


def by_transform(library: Library, length: int) -> Callable[[], Any]:
    x = library.asarray(np.ones(8, np.float32))
    gradient = library.grad(lambda x: chain(library.numpy, x, length))
    return lambda: np.asarray(gradient(x))


def by_tape(library: Library, length: int) -> Callable[[], Any]:
    start = np.ones(8, np.float32)
    torchs = library.name == "torch"
    make, xp = (torch.tensor, torch) if torchs else (fad.tensor, fnp)
    x = make(start, requires_grad=True)

    def call() -> Any:
        x.grad = None
        chain(xp, x, length).backward()
        return np.asarray(x.grad if torchs else x.grad.array)

    return call


CHAINS = {"grad": by_transform, "tape": by_tape}


def cost(how: str, length: int) -> Callable[[Library], Callable[[], tuple[float, float]]]:
    """Seconds for each operation of a chain, settled; and for one of `REFERENCE`, before there is another.

    The latter is the same for short ones and in other libraries: nothing is compared with it there.
    """

    def build(library: Library) -> Callable[[], tuple[float, float]]:
        turns = itertools.count()
        alone = length <= REFERENCE or library.name != "fad"
        made: list[Callable[[], Any]] = []
        reference = 0.0

        def call() -> tuple[float, float]:
            nonlocal reference
            key = (how, length, library.name, next(turns))
            if key not in _costs:
                if not made:
                    if not alone:
                        short = ready(REFERENCE)
                        reference = min(fastest(short) for _ in range(3)) / REFERENCE
                    made.append(ready(length))
                own = fastest(made[0]) / length
                _costs[key] = own, own if alone else reference
            return _costs[key]

        def ready(size: int) -> Callable[[], Any]:
            call = CHAINS[how](library, size)
            warm(call, library)
            return call

        return call

    return build


def warm(call: Callable[[], Any], library: Library) -> None:
    began = time.perf_counter()
    for _ in range(timing.WARM if library.name == "fad" else 2):
        call()
        if time.perf_counter() - began > SETTLING:
            return
    if library.name == "fad":
        timing.settle(call, SETTLING - (time.perf_counter() - began))


def fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call among those that fit into a turn, of one at least."""
    found = [timing.spend(call, 1)]
    while sum(found) < SPENT:
        found.append(timing.spend(call, 1))
    return min(found)


def least(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    return {name: min(own for own, _ in found) for name, found in turns.items()}


def growth(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    """How much the cost of an operation is of that in a chain of `REFERENCE`."""
    references = {name: min(other for _, other in found) for name, found in turns.items()}
    return {name: own / references[name] for name, own in least(turns).items()}


def forget() -> None:
    """What was measured is measured anew."""
    for found in (_times, _new, _costs):
        found.clear()


def first_calls_scenarios() -> Iterator[Scenario]:
    both, every = ("fad", "nodes"), f"{CALLS} calls in a fresh process"
    for program in programs.PROGRAMS:
        build = first_calls(program)
        if program in SHORT:
            compared = ("fad", *SHORT[program])
            yield Scenario(program, every, build, compared, SHORT[program], "s", 3, summarize=total)
            continue
        rows: list[tuple[str, Any, Any, float | None]] = [
            (every, total, {"nodes": 1.1}, None),
            ("longest pause after the first call", longest_pause, {}, PAUSE),
        ]
        for what, summarize, bounds, limit in rows:
            yield Scenario(program, what, build, both, bounds, "s", 3, limit, summarize)
        if program in torch_programs.PROGRAMS:
            yield Scenario(
                program, "once compiled", settled(program), ("fad", "torch"), ONCE_COMPILED
            )


def length_scenarios() -> Iterator[Scenario]:
    for length, (how, bound) in itertools.product(SIZES, (("grad", 0.5), ("tape", 0.8))):
        work, build, long = f"{length:,} operations in a row", cost(how, length), length > LONG
        turns = 1 if long else 3  # the longest ones take seconds a call
        further = length > REFERENCE
        yield Scenario(
            work,
            f"{how}, each",
            build,
            ("fad", "torch"),
            {"torch": bound} if further else {},
            "µs each",
            turns,
            summarize=least,
            long=long,
        )
        if further:
            what = f"{how}, each; over one of {REFERENCE}"
            yield Scenario(
                work, what, build, ("fad",), {}, "ratio", turns, 1.5, summarize=growth, long=long
            )


SCENARIOS: list[Scenario] = [
    *first_calls_scenarios(),
    Scenario(
        "attention, a new length",
        "first grad; jit(grad) in JAX",
        new_length,
        ("fad", "jax"),
        {"jax": 1.5},
        "ms",
        2,
        summarize=median,
    ),
    *length_scenarios(),
]
