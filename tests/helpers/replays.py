"""What the tests of replay share: the law is that replay changes no bit, however often a call comes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import is_idle

import fad
import fad.numpy as fnp
from fad.replay.program import worker

TIMES = 6  # calls after which a program has repeated often enough to be compiled
MODES = ("background", "at once")
NESTED_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": fad.grad,
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (x + 1.0,)),
    "vmap": lambda f: lambda x: fad.vmap(f)(fnp.stack([x, x * 2.0])),
    "grad of grad": lambda f: fad.grad(lambda x: fnp.sum(fad.grad(f)(x))),
    "vmap of grad": lambda f: lambda x: fad.vmap(fad.grad(f))(fnp.stack([x, x * 2.0])),
}


def replay(mode: str) -> AbstractContextManager[Any]:
    """A block with replay on; "at once" compiles programs in the calling thread, where the engine can."""
    if mode == "at once":
        try:
            return fad.autograd.compiled(wait=True)
        except TypeError:  # it has no such option
            pass
    return fad.autograd.compiled(True)


def off() -> AbstractContextManager[Any]:
    """A block with replay off."""
    return fad.autograd.compiled(False)


def clear() -> None:
    """Give back all that can be given back."""
    fad.autograd.compiled.clear_cache()
    worker.wait()  # for the program that it is at
    jax.clear_caches()
    gc.collect()


def bare(x: Any) -> np.ndarray:
    """A copy of the value of a Tensor, an array or a number."""
    return np.array(x.detach().array if isinstance(x, fad.Tensor) else x)


def bits(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes of each leaf: equal where two results are indistinguishable.

    All NaNs count as one: XLA says nothing of their sign.
    """
    found = []
    for v in map(bare, _leaves(tree)):
        if v.dtype.kind in "fc":
            v[np.isnan(v)] = np.nan
        found.append((str(v.dtype), v.shape, v.tobytes()))
    return found


def assert_bits(found: Any, expected: Any, what: str = "") -> None:
    """Refuse two trees of which one bit differs."""
    ours, theirs = bits(found), bits(expected)
    if ours == theirs:
        return
    assert len(ours) == len(theirs), f"{what}: {len(ours)} leaves, replay off gives {len(theirs)}"
    wrong = [k for k, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    a, b = bare(_leaves(found)[wrong[0]]), bare(_leaves(expected)[wrong[0]])
    raise AssertionError(
        f"{what}: {len(wrong)} of {len(ours)} leaves differ, first number {wrong[0]}: {a.dtype} "
        f"{a.tolist()}, replay off gives {b.dtype} {b.tolist()}"
    )


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, fad.Tensor))


def assert_idle(what: str = "") -> None:
    """Refuse a level that still runs in this thread, and a grad mode that is not the default."""
    assert is_idle(), (
        f"{what}: running levels {fad.core.level.active_levels()}, recording {fad.is_grad_enabled()}"
    )
    assert not fad.autograd.is_inference_mode_enabled(), f"{what}: in inference mode"


def in_thread(work: Callable[[], Any], timeout: float = 60.0) -> Any:
    """What ``work()`` returns or raises in a thread of its own, which must end in time."""
    (result,) = in_threads([work], timeout)
    return result


def in_threads(works: list[Callable[[], Any]], timeout: float = 60.0) -> list[Any]:
    """What each of ``works`` returns in threads that start together; the first exception is raised."""
    start = threading.Barrier(len(works))
    found: list[Any] = [None] * len(works)
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            start.wait(timeout)
            found[k] = works[k]()
            assert_idle(f"thread {k}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(works))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout)
    if failures:
        raise failures[0]
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    return found


def info(name: str) -> int:
    """An entry of `cache_info`."""
    return fad.autograd.compiled.cache_info()[name]


def compiled_all() -> None:
    """Wait for what is compiled in the background."""
    while info("queued"):
        time.sleep(0.01)


def replayed() -> bool:
    """Programs have run in place of single operations, where they may."""
    return info("hits") > 0 or not fad.core.level.state.replaying


def exact(tree: Any) -> list[Any]:
    """Dtype, weak type, shape and bytes of each leaf, NaNs as they are."""
    leaves = [
        v.array if isinstance(v, fad.Tensor) else jnp.asarray(v) for v in jax.tree.leaves(tree)
    ]
    return [(v.dtype, v.shape, v.weak_type, np.asarray(v).tobytes()) for v in leaves]
