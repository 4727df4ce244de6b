"""What a fresh process pays: importing, the first derivative of a function, memory of a large step.

Each call starts a Python process and returns what it prints. JAX's cache of compiled programs on disk is
off, and nothing is compiled yet, except where a row says so.
"""

from __future__ import annotations

import inspect
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario, small_net

__all__ = ["SCENARIOS", "forget", "output", "run"]

ROOT = Path(__file__).resolve().parents[1]


def run(code: str) -> float:
    """The number that a fresh process prints."""
    return float(output(code))


def output(code: str) -> str:
    """What a fresh process prints."""
    # Modules are compiled once, too.
    unwanted = ("JAX_COMPILATION_CACHE", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a process of the benchmarks failed:\n{done.stderr}")
    return done.stdout


IMPORTS = {"fad": "import fad", "jax": "import jax, jax.numpy"}


def importing(library: Library) -> Callable[[], float]:
    code = f"""
import time
start = time.process_time()
{IMPORTS[library.name]}
print(time.process_time() - start)
"""
    return lambda: run(code)


PREPARE = {
    "fad": "import fad, fad.numpy as xp; import jax.numpy as jnp; asarray, grad = jnp.asarray, fad.grad",
    "jax": "import jax, jax.numpy as xp; asarray, grad = xp.asarray, jax.grad",
}


def first_gradient(*functions: Callable[..., Any]) -> Callable[[Library], Callable[[], float]]:
    """The last of the functions makes inputs, the one before it is differentiated."""
    *_, function, inputs = functions
    source = "\n".join(inspect.getsource(f) for f in functions)

    def build(library: Library) -> Callable[[], float]:
        code = f"""
from __future__ import annotations
import gc, time
from typing import Any
import numpy as np
{PREPARE[library.name]}
HEADS = {models.HEADS}
{source}
args = [asarray(a) for a in {inputs.__name__}()]
gradient = grad(lambda *args: {function.__name__}(xp, *args))
gc.collect()
gc.freeze()  # else modules just imported are looked at by a collection, in one process or the other
start = time.perf_counter()
np.asarray(gradient(*args))
print(time.perf_counter() - start)
"""
        return lambda: run(code)

    return build


def net_inputs() -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=s).astype(np.float32) for s in [(16,)] + [(16, 16)] * 6]


FIRST = {
    "small net": first_gradient(small_net, net_inputs),
    "transformer block": first_gradient(
        models.layer_norm, models.softmax, models.gelu, models.transformer_block, models.block
    ),
}


# Programs as people write them: the same ones in eager fad and in eager JAX, which has no GAN in place.
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "Kalman filter, 40 steps": ("fad", "jax"),
    "third derivatives under vmap": ("fad", "jax"),
    "GAN, two optimizers": ("fad",),
    "adaptive solver": ("fad", "jax"),
    "Runge-Kutta, neural ODE": ("fad", "jax"),
}
SECOND = (
    0.5  # of the time of the first process, where the second one finds compiled programs on disk
)
_first: dict[tuple[str, str, int], float] = {}
"""Of program, library and turn: seconds of the first call. Both rows of a program look at it."""


def first_call(program: str, library: str, folder: str | None = None) -> float:
    """Seconds of a program's first call in a fresh process; with JAX's cache in a folder, if one is given."""
    cache = "" if folder is None else f"fad.autograd.compiled.cache_on_disk({folder!r})"
    code = f"""
import gc, time
import {library}, {library}.numpy
from benchmarks.programs import PROGRAMS
{cache}
call = PROGRAMS[{program!r}]({library})
gc.collect()
gc.freeze()  # else modules just imported are looked at by a collection, in one process or the other
start = time.perf_counter()
call()
print(time.perf_counter() - start)
"""
    return run(code)


def first_call_in_turn(program: str, library: str, turn: int) -> float:
    key = (program, library, turn)
    if key not in _first:
        _first[key] = first_call(*key[:2])
    return _first[key]


def first_of(program: str) -> Callable[[Library], Callable[[], float]]:
    def build(library: Library) -> Callable[[], float]:
        turns = itertools.count()
        return lambda: first_call_in_turn(program, library.name, next(turns))

    return build


def second_of(program: str) -> Callable[[Library], Callable[[], tuple[float, float]]]:
    """Seconds of a process that finds what another one has compiled, and of one that finds nothing."""

    def build(library: Library) -> Callable[[], tuple[float, float]]:
        turns = itertools.count()

        def call() -> tuple[float, float]:
            first = first_call_in_turn(program, library.name, next(turns))
            with tempfile.TemporaryDirectory() as folder:
                first_call(program, library.name, folder)
                return first_call(program, library.name, folder), first

        return call

    return build


def second_over_first(turns: Mapping[str, list[Any]]) -> dict[str, float]:
    seconds = {name: [min(found) for found in zip(*pairs)] for name, pairs in turns.items()}
    return {name: second / first for name, (second, first) in seconds.items()}


def forget() -> None:
    """What was measured is measured anew."""
    _first.clear()


def program_scenarios() -> Iterator[Scenario]:
    for program, libraries in PROGRAMS.items():
        bounds = {"jax": 1.0} if "jax" in libraries else {}
        yield Scenario(
            program, "first gradient, eager", first_of(program), libraries, bounds, "s", 3
        )
        yield Scenario(
            program,
            "first gradient, cache on disk; over one without",
            second_of(program),
            ("fad",),
            {},
            "ratio",
            2,
            SECOND,
            second_over_first,
        )


STEP = {
    "fad": """
import fad, fad.numpy as xp
make = lambda a: fad.tensor(a, requires_grad=True)
""",
    "torch": """
import torch, torch as xp
torch.set_num_threads(1)
make = lambda a: torch.tensor(a, requires_grad=True)
""",
}


def peak(library: Library) -> Callable[[], float]:
    """How much more memory the process has at most while steps run with large arrays (on Linux).

    Steps with such arrays have run before: code is compiled, which takes some 25 MB of its own.
    """
    code = f"""
from __future__ import annotations
import gc
from pathlib import Path
from typing import Any
import numpy as np
{STEP[library.name]}
{inspect.getsource(small_net)}
draw = np.random.default_rng(0)
weights = [make(draw.normal(size=(256, 256)).astype(np.float32) / 16) for _ in range(6)]
def step(columns):
    x = make(np.ones((256, columns), np.float32))
    for _ in range(4):
        small_net(xp, x, *weights).backward()
        x.grad = None
        for w in weights:
            float(xp.sum(w.grad))
            w.grad = None
step(32768)
gc.collect()
def status(field):  # in kB
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = status("VmRSS")
step(32768)
print((status("VmHWM") - before) * 1024 / 1e6)
"""
    return lambda: run(code)


SCENARIOS: list[Scenario] = [
    Scenario(
        "a fresh process",
        "import, CPU time; JAX with jax.numpy",
        importing,
        ("fad", "jax"),
        {"jax": 1.15},
        "s",
        turns=8,
    ),
    *[
        Scenario(
            "a fresh process",
            f"first grad of the {what}",
            build,
            ("fad", "jax"),
            {"jax": 1.0},
            "s",
            4,
        )
        for what, build in FIRST.items()
    ],
    *program_scenarios(),
    Scenario(
        "training step, 256 × 32,768", "peak memory", peak, ("fad", "torch"), {"torch": 1.1}, "MB"
    ),
]
