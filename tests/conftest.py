"""What every test shares: eight CPU devices, seeds, sampled sweeps, and a check that no mode leaks.

- `--full` runs whole sweeps and the long hypothesis profile; without it, sweeps are sampled and
  hypothesis runs fewer examples, the same ones each time. `HYPOTHESIS_PROFILE=full` chooses the
  long profile alone.
- `--seed N` seeds the `rng` fixture, Python's and NumPy's global generators, and the samples.
  A failing test says which seed it ran with.
- `--waiting` lets operations wait that were not seen before: most tests run each of them once.
- `@pytest.mark.sweep("name", values, sample=50)` is `parametrize` over a sample of `values`.
- `@pytest.mark.full` is a test that only `--full` runs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.metadata
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
_FLAGS = [
    "--xla_force_host_platform_device_count=8",
    # Thousands of small functions are compiled and run once or twice: compile fast, not well.
    "--xla_backend_optimization_level=0",
    # One piece of code each: splitting them takes half as long again.
    "--xla_cpu_parallel_codegen_split_count=1",
]
if importlib.metadata.version("jaxlib").startswith("0.10."):  # newer ones do not know this flag
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
for _flag in _FLAGS:
    if _flag.partition("=")[0] not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_flag}".strip()

# Tests compile the same small programs again and again: each process finds those that it has compiled.
_COMPILED = os.environ.get("FAD_TESTS_COMPILED", "")
if not _COMPILED:
    _COMPILED = os.environ["FAD_TESTS_COMPILED"] = tempfile.mkdtemp(prefix="fad-compiled-")
    atexit.register(shutil.rmtree, _COMPILED, ignore_errors=True)
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(
    _COMPILED, os.environ.get("PYTEST_XDIST_WORKER", "main")
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Each collection goes through all that JAX keeps, and asks XLA to collect too: a fifth of the time else.
gc.set_threshold(100_000, 50, 100)

# These read the environment set above, so they come after it.
import hypothesis
import jax
import numpy as np
import pytest

import fad
from fad import jaxapi, runs
from fad.avals import struct_of
from fad.primitive import Primitive
from fad.structures import budget

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=40,
    print_blob=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "full",
    parent=hypothesis.settings.get_profile("ci"),
    derandomize=False,
    max_examples=2_000,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fad")
    group.addoption("--full", action="store_true", help="whole sweeps and long hypothesis runs")
    group.addoption("--waiting", action="store_true", help="operations wait at first sight")
    group.addoption("--seed", type=int, default=0, help="seed of random inputs and of samples")


def pytest_configure(config: pytest.Config) -> None:
    default = "full" if config.getoption("--full") else "ci"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))
    if config.getoption("--waiting"):
        _wait_at_first_sight()


def _wait_at_first_sight() -> None:
    first = runs.Run._first

    def wait(self: runs.Run, op: Any, key: Any, args: Any) -> Any:
        if jaxapi.is_tracing():
            return first(self, op, key, args)
        try:
            out = jax.eval_shape(op.flat, *map(struct_of, key))
        except Exception:  # something is wrong with it: running it says what
            return first(self, op, key, args)
        self._note(op, key, out)
        return self.call(op, args)

    runs.Run._first = wait  # type: ignore[method-assign]
    # And what a transform's function does is one operation at first sight.
    budget.impatient += 1

    def plan(self: Primitive, mask: Any, avals: Any) -> Any:
        try:
            structs = [jax.ShapeDtypeStruct((), a) if isinstance(a, type) else a for a in avals]
            return self.plan_of(mask, avals, [a for a in structs if not isinstance(a, bool)])
        except Exception:  # something is wrong with it: running it says what
            return None

    Primitive.known_plan = plan  # type: ignore[method-assign]


def pytest_report_header(config: pytest.Config) -> str:
    seed, full = config.getoption("--seed"), config.getoption("--full")
    return f"fad {fad.__version__}, seed {seed}, {'whole' if full else 'sampled'} sweeps"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("sweep"):
        name, values = mark.args[0], list(mark.args[1])
        sample = mark.kwargs.get("sample", 50)
        if not metafunc.config.getoption("--full") and len(values) > sample:
            draw = random.Random(
                f"{metafunc.config.getoption('--seed')} {metafunc.function.__name__}"
            )
            values = [values[i] for i in sorted(draw.sample(range(len(values)), sample))]
        metafunc.parametrize(name, values, ids=mark.kwargs.get("ids"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="runs only with --full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


MEMORY = 2 << 30  # bytes of a process, in which some 1,500 programs fit


def _resident() -> int:
    """How many bytes of memory this process uses; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def pytest_runtest_logfinish() -> None:
    """Let go of compiled programs before they fill a small machine: XLA keeps a megabyte for each."""
    if _resident() > MEMORY:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        seed = item.config.getoption("--seed")
        report.sections.append(("random seed", f"--seed {seed}"))


def _seed(request: pytest.FixtureRequest) -> int:
    """A seed of its own for each test, the same whatever order or worker the tests run in."""
    return zlib.crc32(f"{request.config.getoption('--seed')} {request.node.nodeid}".encode())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A seeded NumPy generator; `--seed` changes it."""
    return np.random.default_rng(_seed(request))


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether `--full` was given."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(autouse=True)
def _seed_globals(request: pytest.FixtureRequest) -> None:
    seed = _seed(request)
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Fails a test that leaves a transform's level running or the grad mode changed."""
    before = (fad.dispatch.active_levels(), fad.is_grad_enabled())
    yield
    after = (fad.dispatch.active_levels(), fad.is_grad_enabled())
    if after != before:
        fad.set_grad_enabled(before[1])
        pytest.fail(
            f"the test left (running levels, grad mode) as {after}; they were {before}",
            pytrace=False,
        )
