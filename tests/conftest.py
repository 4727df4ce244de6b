"""What every test shares: eight CPU devices, seeds, sampled sweeps, and a check that no mode leaks.

`tests/<room>/test_<module>.py` has the tests of `fad/<room>/<module>.py`; a theme may stand behind the name
of the module. Two rooms are none of fad's: `laws/`, for what holds of the whole library, so that nobody would
look for it under one module (laws, random programs, compositions, comparisons with PyTorch and with libraries
of others), and `project/`, for what stands around the library: pages, examples, benchmarks, the shape of the
code, and these tools. What several files use is in `helpers/`, from where all can import.

- `--full` runs whole sweeps and the long hypothesis profile; without it, sweeps are sampled and
  hypothesis runs fewer examples, the same ones each time. `HYPOTHESIS_PROFILE=full` chooses the
  long profile alone.
- `--one-in N` runs of each test's cases one in so many, and one at least. README's command runs one in three:
  the oldest and the newest Python of CI run two thirds between them, and a step with `--part 1` the others.
- `--seed N` seeds the `rng` fixture, Python's and NumPy's global generators, and the samples.
  A failing test says which seed it ran with.
- `--replay off` runs them without replay, `--replay wait` with all programs compiled at first sight.
- `@pytest.mark.sweep("name", values, sample=50)` is `parametrize` over a sample of `values`; of tuples,
  one in which each part comes at least once, if that many can have it.
- `@pytest.mark.full` is a test that only `--full` runs.
- `JAX_ENABLE_X64=1` in the environment runs tests in 64 bits: the laws, random programs and compositions,
  and what is written in place, are right in both.
- `FAD_TESTS_PLATFORMS=cuda,cpu` runs them on the first GPU; `JAX_DEFAULT_MATMUL_PRECISION=highest` has it
  multiply as the CPU does.
- `-m oracle` runs the comparisons with PyTorch alone: the tests that take the fixture `torch`, or whose
  module has it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from typing import Any

from xla_flags import with_flags

os.environ["JAX_PLATFORMS"] = os.environ.get("FAD_TESTS_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = with_flags(
    os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"
)

# Tests compile the same small programs again and again: each process finds those that any has compiled.
_COMPILED = os.environ.get("FAD_TESTS_COMPILED", "")
if not _COMPILED:
    _COMPILED = os.environ["FAD_TESTS_COMPILED"] = tempfile.mkdtemp(prefix="fad-compiled-")
    atexit.register(shutil.rmtree, _COMPILED, ignore_errors=True)
os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Each collection goes through all that JAX keeps, and asks XLA to collect too: a fifth of the time else.
gc.set_threshold(100_000, 50, 100)

# These read the environment set above, so they come after it.
import hypothesis
import jax
import numpy as np
import pytest
from jax._src import cache_key
from jax._src.interpreters import mlir

import fad
from fad.core.level import MODES, ThreadState

# For each program that it lowers JAX makes an MLIR context: a megabyte, and a fifth of the time of these
# tests. Newer ones use each context of a thread ten times, as is done here for older ones.
if not hasattr(mlir, "_create_ir_context"):
    _new_context, _contexts = mlir.make_ir_context, threading.local()

    def _context() -> Any:
        with contextlib.suppress(ValueError):  # there is none
            if mlir.ir.Context.current is not None:
                return _new_context()  # in the middle of lowering another program: with its own
        context, uses = getattr(_contexts, "last", (None, 10))
        if uses == 10:
            context, uses = _new_context(), 0
        _contexts.last = context, uses + 1
        return context

    mlir.make_ir_context = _context

# A program that differs from a compiled one in its name alone, or in the names of its results, is that one.
_key, _ir = cache_key.get, mlir.ir


def _key_without_names(module: Any, *args: Any, **kwargs: Any) -> str:
    with module.context:
        program = module.operation.clone(ip=False)  # not into a module that is being made
        program.attributes["sym_name"] = _ir.StringAttr.get("program")
        for function in program.regions[0].blocks[0]:
            if "res_attrs" in function.attributes:
                results = [
                    {a.name: a.attr for a in result if a.name != "jax.result_info"}
                    for result in function.attributes["res_attrs"]
                ]
                function.attributes["res_attrs"] = _ir.ArrayAttr.get(
                    [_ir.DictAttr.get(result) for result in results]
                )
        return str(_key(program, *args, **kwargs))


cache_key.get = _key_without_names

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=25,
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
    group.addoption(
        "--replay",
        choices=("on", "off", "wait"),
        default="on",
        help="on: as users have it; off: nothing is replayed; wait: everything, at first sight",
    )
    group.addoption(
        "--one-in",
        type=int,
        default=1,
        help="of each test's cases one in so many, and one at least",
    )
    group.addoption(
        "--part",
        type=int,
        help="which of the parts --one-in runs, of tests that have as many; else others on 3.11 than on 3.13",
    )
    group.addoption("--seed", type=int, default=0, help="seed of random inputs and of samples")


def pytest_configure(config: pytest.Config) -> None:
    default = "full" if config.getoption("--full") else "ci"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))
    replay = config.getoption("--replay")
    if replay == "off":
        ThreadState.replaying = MODES["replaying"] = (
            False  # a thread begins so, and so after an error
        )
    elif replay == "wait":
        fad.autograd.compiled(wait=True)


def pytest_report_header(config: pytest.Config) -> str:
    seed, full = config.getoption("--seed"), config.getoption("--full")
    sweeps, replay = "whole" if full else "sampled", config.getoption("--replay")
    cases = config.getoption("--one-in")
    return (
        f"fad {fad.__version__}, seed {seed}, {sweeps} sweeps, replay {replay}"
        + f", one in {cases} cases" * (cases > 1)
    )


def _parts(value: Any, place: tuple[int, ...] = ()) -> set[tuple[Any, ...]]:
    """What stands in tuples, each with its place."""
    value = getattr(value, "values", value)  # of a `pytest.param`
    if type(value) is not tuple:
        return {(place, repr(value))}
    return set().union(*[_parts(v, (*place, k)) for k, v in enumerate(value)])


def _sample(values: list[Any], count: int, draw: random.Random) -> list[int]:
    """Places of so many values, first of those with most parts that no earlier one has."""
    order, parts = draw.sample(range(len(values)), len(values)), list(map(_parts, values))
    chosen: list[int] = []
    seen: set[tuple[Any, ...]] = set()
    for new in range(max(map(len, parts)), -1, -1):
        for i in order:
            if len(chosen) < count and i not in chosen and len(parts[i] - seen) >= new:
                chosen.append(i)
                seen |= parts[i]
    return sorted(chosen)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("sweep"):
        name, values = mark.args[0], list(mark.args[1])
        sample = mark.kwargs.get("sample", 50)
        if not metafunc.config.getoption("--full") and len(values) > sample:
            draw = random.Random(
                f"{metafunc.config.getoption('--seed')} {metafunc.function.__name__}"
            )
            values = [values[i] for i in _sample(values, sample, draw)]
        metafunc.parametrize(name, values, ids=mark.kwargs.get("ids"))


# What says that something was replayed, and so has nothing to say with ``--replay off``.
OF_REPLAY = """
    tests/replay/ test_replay_protocol.py test_finalizers.py test_interrupts.py test_same_bits.py
    test_what_is_called_again_runs_as_one_operation test_what_goes_wrong_only_later_is_found
    test_a_bit_that_differs_is_found test_a_call_that_differs_is_named test_a_call_that_raises_is_named
    test_exact_checks_of_repeats test_the_fuzzer_compares_bits_and_says_how_to_do_it_again
    test_the_collector_runs_while_a_thread_that_traces_sleeps
    docs/replay.md docs/how-replay-works.md docs/functions-and-compiled-calls.md
    docs/making-programs-fast.md docs/known-limitations.md
""".split()


def _keep_one_in(count: int, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the others of each test's cases. Python 3.11 and 3.13 keep different ones of them."""
    part = config.getoption("--part")
    place = (sys.version_info.minor // 2 if part is None else part) % count
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept: set[pytest.Item] = set()
    for name, of_test in cases.items():
        draw = random.Random(f"{config.getoption('--seed')} {name}")
        order = draw.sample(of_test, len(of_test))
        kept.update(order[place::count] or (order[:1] if part is None else []))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _keep_one_in(config.getoption("--one-in"), config, items)
    if config.getoption("--replay") == "off":
        of_replay = pytest.mark.skip(reason="tests replay, which is off")
        for item in items:
            if any([name in item.nodeid for name in OF_REPLAY]):
                item.add_marker(of_replay)
    for item in items:
        if "torch" in item.fixturenames or hasattr(item.module, "torch"):  # type: ignore[attr-defined]
            item.add_marker("oracle")
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="runs only with --full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


# Bytes of a process: in 2 GiB some 5,000 programs fit. What is let go of has to be traced again.
MEMORY = 2 << 30
with contextlib.suppress(AttributeError, ValueError):  # not every system says how much it has
    MEMORY = max(MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)


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
        gc.unfreeze()
        gc.collect()
        gc.freeze()
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


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch; a test that takes it is skipped where it is not installed."""
    return pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether `--full` was given."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """A module's collections go through what its tests make; what is there before takes seconds each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed_globals(request: pytest.FixtureRequest) -> None:
    seed = _seed(request)
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Fails a test that leaves a transform's level running or the grad mode changed."""
    fad.core.level.flush()  # a step that another test has begun
    before = (fad.core.level.state.levels, fad.is_grad_enabled())
    yield
    after = (fad.core.level.state.levels, fad.is_grad_enabled())
    if after != before:
        fad.set_grad_enabled(before[1])
        pytest.fail(
            f"the test left (running levels, grad mode) as {after}; they were {before}",
            pytrace=False,
        )


@pytest.fixture(params=["off", "on", "wait"])
def replay_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replay off, on, and with all programs compiled at first sight; nothing is cached before."""
    fad.core.level.flush()
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(request.param != "off", wait=request.param == "wait"):
        yield
        fad.core.level.flush()
