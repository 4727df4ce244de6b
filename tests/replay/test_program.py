"""What replay keeps is bounded and can be given back; and a process ends well whatever is being compiled.

With ``--full``: 6,000 structures, 2,000 shapes, 200 contexts of JAX; memory has a plateau. Objects are
counted after ``jax.clear_caches()``, so that what JAX keeps for each shape is not in it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT
from replays import assert_bits, chain, clear, compiled_all, info, last_trace, off, outcome

import fad
import fad.numpy as fnp
from fad.replay import policy
from fad.replay.program import Program

REPEATS = 4  # calls of each program
X = jnp.array([0.5, 1.0, 1.5])
pytestmark = pytest.mark.usefixtures("cleared_caches")


def live() -> int:
    """How many objects are live besides those in JAX's own caches."""
    jax.clear_caches()
    gc.collect()
    return len(gc.get_objects())


def resident() -> float:
    """Megabytes of memory of this process."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def sizes() -> dict[str, int]:
    """How many entries replay has."""
    return {k: n for k, n in fad.autograd.compiled.cache_info().items() if k != "hits"}


# Many programs, shapes and contexts: each a function of its number.


def structure(k: int) -> Callable[[Any], Any]:
    """A program that no other number gives; all are made of four operations."""
    steps = [fnp.sin, lambda x: x * x, lambda x: x + x, fnp.negative]

    def f(x: Any) -> Any:
        for place in range(7):
            x = steps[k // 4**place % 4](x)
        return fnp.sum(x)

    return f


def of_structures(k: int) -> None:
    g, w = structure(k), fad.tensor(X, requires_grad=True)
    for _ in range(REPEATS):
        a = fad.grad(g)(X)
        w.grad = None
        g(w).backward()
    assert_bits(a, w.grad)


def of_shapes(k: int) -> None:
    x = jnp.asarray(np.linspace(0.0, 1.0, k + 1, dtype=np.float32))
    w = fad.tensor(x, requires_grad=True)
    for _ in range(REPEATS):
        fad.jvp(lambda v: v * v, (x,), (x,))
        fad.grad(lambda v: fnp.sum(v * v))(x)
        w.grad = None
        fnp.sum(w * w).backward()
    assert_bits(w.grad, np.asarray(x) * np.float32(2.0))


def context(k: int) -> AbstractContextManager[Any]:
    """The settings of JAX that number k stands for."""
    kinds: list[tuple[Callable[..., Any], Sequence[Any]]] = [
        (jax.numpy_rank_promotion, ("allow", "warn", "raise")),
        (jax.default_matmul_precision, ("float32", "bfloat16", "tensorfloat32")),
        (jax.numpy_dtype_promotion, ("standard", "strict")),
        (jax.default_device, jax.devices()),
    ]
    setting, values = kinds[k % 4]
    return setting(values[k // 4 % len(values)])


def of_contexts(k: int) -> None:
    f = lambda v: fnp.sum(v * v)
    with context(k):
        for inner in (k // 4, k // 16):
            with context(inner):
                for _ in range(REPEATS):
                    g = fad.grad(f)(X)
                    t = fad.jvp(f, (X,), (X,))[1]
    assert_bits([g, t], [2.0 * np.asarray(X), np.float32(7.0)])


KINDS: dict[str, tuple[Callable[[int], None], int, int]] = {
    # what is done; how often, and with --full
    "structures": (of_structures, 6, 6_000),
    "shapes": (of_shapes, 6, 2_000),
    "contexts": (of_contexts, 10, 200),
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_given_back(kind: str) -> None:
    """After a small sample: what is left does not grow with the number of programs, shapes or contexts."""
    work, count, _ = KINDS[kind]
    work(0)
    clear()
    before = live()
    for k in range(count):
        work(k)
    clear()
    left = live() - before
    # JAX keeps some 30 objects for each signature of a function that lives on; a program has thousands.
    assert left < 60 * count + 500, f"{left} objects are left after {count} {kind}"
    assert set(sizes().values()) == {0}, sizes()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_memory_has_a_plateau(kind: str) -> None:
    """The last third adds little to what the second has added, and all of it can be given back."""
    work, _, count = KINDS[kind]
    work(0)
    clear()
    before = live()
    objects, known, memory = [before], [sizes()], [resident()]
    for third in range(3):
        for k in range(third * count // 3, (third + 1) * count // 3):
            work(k)
        known.append(sizes())
        objects.append(live())
        memory.append(resident())
    growth = np.diff(objects)
    message = f"{kind}: objects {objects}, caches {known}, megabytes {np.round(memory)}"
    print(message)
    third = count // 3
    assert growth[2] < max(0.2 * growth[0], 5 * third), message
    assert memory[3] - memory[2] < max(0.3 * (memory[1] - memory[0]), 100.0), message
    for name, n in known[3].items():
        assert n - known[2].get(name, 0) <= max(0.2 * third, 20), message
    clear()
    assert live() - before < 20 * third, message


def test_programs_are_right_after_the_caches_were_cleared() -> None:
    f = lambda v: fnp.sum(fnp.sin(v) * v)
    call = lambda: outcome(lambda: [fad.grad(f)(X), fad.jvp(f, (X,), (X,)), fad.hessian(f)(X)])
    with off():
        expected = call()
    for k in range(12):
        assert call() == expected, k
        if k % 4 == 3:
            fad.autograd.compiled.clear_cache()
        if k % 6 == 5:
            jax.clear_caches()


# The end of a process while programs may still be compiling.

PRELUDE = """
import os, signal, sys, threading
import jax, jax.numpy as jnp
import fad, fad.numpy as fnp
X = jnp.array([0.5, 1.0, 1.5])

def f(x):
    y = x
    for k in range(LENGTH):
        y = fnp.tanh(y * x) + fnp.sin(y) * 0.5
    return fnp.sum(y * y)

def work(times):
    w = fad.tensor(X, requires_grad=True)
    for _ in range(times):
        g = fad.grad(f)(X)
        fad.jvp(f, (X,), (X,))
        w.grad = None
        f(w).backward()
    return [float(v) for v in g]
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program after `PRELUDE` in a new process, which must end in time."""
    command = [sys.executable, "-W", "error", "-c", PRELUDE.replace("LENGTH", "4") + code]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120.0)


ENDS = {  # each with the exception that ends it
    "after a thread, in the middle of a trace": (
        "t = threading.Thread(target=work, args=(3,))\nt.start()\nt.join()\n"
        "w = fad.tensor(X, requires_grad=True)\nwork(3)\nloss = f(w)\n",
        "",
    ),
    "after more calls, and at exit": (
        "import atexit\natexit.register(work, 3)\nwork(8)\n",
        "",
    ),
    "sys.exit in a transform": ("work(3)\nfad.grad(lambda x: [f(x), sys.exit(0)])(X)\n", ""),
    "os._exit": ("work(3)\nos._exit(0)\n", ""),
    "an exception": ("work(3)\nfad.grad(lambda x: f(x) / (1 // 0))(X)\n", "ZeroDivisionError"),
}


def last_line(errors: str) -> str:
    """The last line but for the note on frames that are not shown."""
    return ["", *[line for line in errors.splitlines() if not line.startswith("(")]][-1]


@pytest.mark.parametrize("how", ENDS)
def test_a_process_that_ends(how: str) -> None:
    code, error = ENDS[how]
    done = run(code)
    assert (done.returncode, done.stdout) == (bool(error), "")
    assert last_line(done.stderr).partition(":")[0] == error, done.stderr
    assert done.stderr.count("Traceback") == bool(error)
    assert "Exception ignored" not in done.stderr


FORKED = """
import warnings
warnings.filterwarnings("ignore", message=".*fork.*")
with fad.autograd.compiled(False):
    expected = work(2)
assert work(TIMES) == expected
child = os.fork()
if child == 0:
    signal.alarm(20)  # ends it if it hangs
    before = fad.autograd.compiled.cache_info()["compiled"]
    same = work(6) == expected
    info = fad.autograd.compiled.cache_info()
    os._exit(0 if same and (info["compiled"], info["queued"]) == (before, 0) else 3)
status = os.waitpid(child, 0)[1]
assert work(6) == expected
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("times", [1, 8])
def test_a_fork(times: int) -> None:
    """The child has none of the threads, so XLA cannot compile there; what needs no compiling goes on.

    ``times`` calls come before it, after calls in which all single operations were compiled.
    """
    done = run(FORKED.replace("TIMES", str(times)))
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import faulthandler
faulthandler.dump_traceback_later(45)  # where it hangs, if it does
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what runs in the background
print("ready", flush=True)
work(1000000)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_an_interrupt_from_the_keyboard(delay: float) -> None:
    """While programs are compiled: the process ends, with a traceback.

    Python drops an interrupt that comes in a callback of a weak reference; JAX's caches have such callbacks.
    A user tries again then.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE.replace("LENGTH", "40") + INTERRUPTED],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay)
        for times in (1, 2):
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                errors = child.communicate(timeout=20.0 * times)[1]
                break
    finally:
        child.kill()
        child.communicate()
    assert child.returncode in (130, -signal.SIGINT), errors
    assert last_line(errors).startswith("KeyboardInterrupt"), errors
    assert times == 2 or "Exception ignored" not in errors


def test_calls_while_their_program_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """They give the same bits, and do not count as failures: the first call after it is replayed."""
    may_end = threading.Event()
    compile = Program.compile

    def later(self: Program, avals: Any) -> None:
        assert may_end.wait(60.0)
        compile(self, avals)

    monkeypatch.setattr(Program, "compile", later)
    gradient = fad.grad(chain(20))  # its operations repeat: it is compiled in the background
    with off():
        expected = gradient(X)
    try:
        assert_bits([gradient(X) for _ in range(40)], [expected] * 40)
        assert "its program is being compiled" in last_trace()
    finally:
        may_end.set()
    compiled_all()
    assert_bits(gradient(X), expected)
    assert last_trace().endswith("replayed")


@pytest.mark.parametrize(
    ("iterations", "call"), [(30, 2), (40, 16), (250, None)], ids=["short", "long", "segments"]
)
def test_a_long_program_is_compiled_later(
    iterations: int, call: int | None, short_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it has repeated as often as compiling takes; segments that repeat in a call count more often."""
    monkeypatch.setattr(policy, "RUNS", 16)
    gradient, calls = fad.grad(chain(iterations)), 0
    with off():
        expected = gradient(X)
    while not info("compiled"):
        assert_bits(gradient(X), expected)
        compiled_all()
        calls += 1
        if calls == 2:
            assert ("long, compiled from call" in last_trace()) == (iterations > 30)
    assert calls == call if call is not None else 2 <= calls < 18
    for _ in range(12):
        assert_bits(gradient(X), expected)
        compiled_all()
    assert ": replayed" in last_trace()


def test_the_segments_of_a_loop_are_the_same_wherever_it_begins(short_segments: None) -> None:
    """Few programs, though the loop is long and something comes before it."""

    def f(x: Any) -> Any:
        x = fnp.cos(x) + x * 2.0
        for _ in range(260):
            x = fnp.sin(x) * 0.9 + fnp.exp(-x)
        return fnp.sum(x)

    gradient = fad.grad(f)
    with off():
        expected = gradient(X)
    with fad.autograd.compiled(wait=True):
        assert_bits([gradient(X) for _ in range(3)], [expected] * 3)
    # The first segment, those in the middle and the last one, which is another in the first call; both ways.
    assert info("compiled") <= 10
