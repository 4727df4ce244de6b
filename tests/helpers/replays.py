"""What the tests of replay share: the law is that replay changes no bit, however often a call comes."""

from __future__ import annotations

import contextlib
import gc
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import is_idle
from lines import at_interrupts, interrupt

import fad
import fad.numpy as fnp
from fad.core.level import flush
from fad.core.primitive import Primitive
from fad.replay import states

TIMES = 6  # calls after which a program has repeated often enough to be compiled
MODES = ("background", "at once")


def one_mode(*names: str) -> list[str]:
    """One of `MODES` for a case of a sweep: about half of the cases are in each."""
    return [MODES[zlib.crc32("".join(names).encode()) % 2]]


def modes_of(*names: str) -> Sequence[str]:
    """Both of `MODES` with --full; else the one that `one_mode` has for the case."""
    full = hypothesis.settings.get_current_profile_name() == "full"
    return MODES if full else one_mode(*names)


NESTED_TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": fad.grad,
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (x + 1.0,)),
    "vmap": lambda f: lambda x: fad.vmap(f)(fnp.stack([x, x * 2.0])),
    "grad of grad": lambda f: fad.grad(lambda x: fnp.sum(fad.grad(f)(x))),
    "vmap of grad": lambda f: lambda x: fad.vmap(fad.grad(f))(fnp.stack([x, x * 2.0])),
}


def _aux(f: Any) -> Any:
    def g(x: Any) -> Any:
        y = f(x)
        return y, (y * 2.0, x)

    return fad.grad(g, has_aux=True)


def _dual(f: Any) -> Any:
    def run(x: Any) -> Any:
        with fad.dual_level():
            return list(fad.unpack_dual(f(fad.make_dual(x, x + 1.0))))

    return run


def _tape(f: Any) -> Any:
    """Two steps, of which the graph is looked at; and one whose graph is kept."""

    def run(x: Any) -> Any:
        w, found = fad.tensor(x, requires_grad=True), []
        for kept in (False, False, True):
            loss = f(w)
            loss.backward(retain_graph=kept)
            if kept:
                loss.backward()
            found += [loss, w.grad.clone()]
            with fad.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        return [*found, w.detach()]

    return run


def _tape_twice(f: Any) -> Any:
    def run(x: Any) -> Any:
        w = fad.tensor(x, requires_grad=True)
        (g,) = fad.autograd.grad(f(w * 1.5), w, create_graph=True)
        size = (g * g).sum()
        size.item()
        return [g.detach(), *fad.autograd.grad(size, w)]

    return run


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    **NESTED_TRANSFORMS,
    "value and grad": fad.value_and_grad,
    "aux": _aux,
    "vjp": lambda f: lambda x: fad.vjp(f, x)[1](jnp.float32(2.0)),
    "linearize": lambda f: lambda x: fad.linearize(f, x)[1](x),
    "hvp": lambda f: lambda x: fad.hvp(f, (x,), (x + 1.0,)),
    "jacrev": lambda f: fad.jacrev(lambda x: f(x) * x),
    "jacfwd": lambda f: fad.jacfwd(lambda x: f(x) * x),
    "hessian": fad.hessian,
    "jvp of grad": lambda f: lambda x: fad.jvp(fad.grad(f), (x,), (x + 1.0,)),
    "jvp of jvp": lambda f: lambda x: fad.jvp(lambda y: fad.jvp(f, (y,), (y,)), (x,), (x,)),
    "grad of vmap": lambda f: fad.grad(lambda x: fnp.sum(fad.vmap(f)(fnp.stack([x, x * 2.0])))),
    "grad of a read grad": lambda f: fad.grad(
        lambda x: fad.grad(f)(x).sum() * fad.grad(f)(x)[0].item()
    ),
    "dual level": _dual,
    "tape": _tape,
    "tape twice": _tape_twice,
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
    compiled_all()  # for the program that it is at
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
        f"{what}: running levels {fad.core.level.state.levels}, recording {fad.is_grad_enabled()}"
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


def hits() -> int:
    """How many programs of traces have run."""
    return states.tree.hits


def same(ours: Any, theirs: Any) -> None:
    """Refuse trees of other dtypes, weak types, shapes, or values that are not close."""
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    for a, b in zip(ours, theirs, strict=True):
        a, b = (v.array if isinstance(v, fad.Tensor) else jnp.asarray(v) for v in (a, b))
        assert (a.dtype, a.weak_type, a.shape) == (b.dtype, b.weak_type, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def graph(node: Any) -> list[Any]:
    """A node and those behind it: names, and edges by their numbers in a walk."""
    nodes, at = [node], {node: 0}
    for n in nodes:
        for m, _ in n.next_functions:
            if m is not None and m not in at:
                at[m] = len(nodes)
                nodes.append(m)
    return [(n.name(), [(at.get(m), k) for m, k in n.next_functions]) for n in nodes]


def shown(x: Any) -> Any:
    """A result as data: numbers to the last bit, types, versions, graphs; what is no array as it is."""
    if isinstance(x, fad.Tensor):
        node = x.grad_fn
        form = (x.requires_grad, x.is_leaf, x.output_nr, outcome(lambda: x.version))
        return "Tensor", shown(x.detach().array), *form, node if node is None else graph(node)
    if isinstance(x, (jax.Array, np.ndarray, np.generic)):
        return str(x.dtype), getattr(x, "weak_type", False), x.shape, str(x.tolist())
    if isinstance(x, dict):
        return {name: shown(v) for name, v in x.items()}
    return [shown(v) for v in x] if isinstance(x, (list, tuple)) else x


def outcome(run: Callable[[], Any]) -> Any:
    """What ``run()`` gives, as data; or its error, without numbers of levels and what may be freed by now."""
    try:
        return shown(run())
    except Exception as error:
        said = re.sub(r", which is output [^,]*|(?<=level )\d+", "", str(error))
        return f"{type(error).__name__}: {said}"


def outcomes(*values: Any) -> list[Any]:
    """The values as data, or the errors of reading them."""
    return [outcome(lambda v=v: v) for v in values]


class Outside:
    """What functions find outside of themselves, and what they leave there."""

    def __init__(self) -> None:
        self.rows = fad.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 7.0)
        self.buffer = fad.tensor(np.full(4, 0.7, np.float32))
        self.leaf = fad.tensor(np.full(4, 0.3, np.float32), requires_grad=True)
        self.kept: list[Any] = []
        self.log: list[Any] = []

    def after(self, run: Callable[[], Any]) -> list[Any]:
        """What ``run()`` gives, and leaves here."""
        found = outcome(run)
        assert all([v._lazy is None for v in self.kept if isinstance(v, fad.Tensor)])
        left = (self.rows, self.buffer, self.leaf.grad, *self.kept)
        return [found, *self.log, *outcomes(*left)]


def law(
    run: Callable[[], Any],
    replayed: bool | None = None,
    calls: int = TIMES,
    modes: Sequence[str] = MODES,
) -> Any:
    """Call by call, ``run()`` gives what it gives without replay, which is returned.

    The same bits and weak types, errors, versions and graphs. ``replayed``: whether programs have run.
    """
    with off():
        expected = outcome(run)
    for mode in modes:
        fad.autograd.compiled.clear_cache()
        with replay(mode):
            for call in range(calls):
                assert outcome(run) == expected, f"{mode}, call {call}"
                assert_idle(mode)
            flush()
        if replayed is not None:
            assert (hits() > 0) == replayed, f"{mode}: {last_trace()}"
    return expected


def in_steps(step: Callable[..., Any], *values: Any, count: int = 14) -> Callable[[], Any]:
    """What ``step(*leaves, i)`` gives, or its error, and the gradients it leaves, in so many steps."""

    def run() -> Any:
        leaves = [fad.tensor(v, requires_grad=True) for v in values]
        found: list[Any] = []
        for i in range(count):
            found += [outcome(lambda i=i: step(*leaves, i)), [shown(w.grad) for w in leaves]]
            for w in leaves:
                w.grad = None
        return found

    return run


def assert_interrupts(run: Callable[[], Any], count: int, last: int = 6000) -> None:
    """After an interrupt at any of so many places ``run()`` gives what it gives without replay."""
    places = random.Random(0).sample(range(1, last), count)
    with off():
        expected = outcome(run)
    with replay("at once"):
        outcome(run)
        for place in places:
            with at_interrupts(place, interrupt), contextlib.suppress(KeyboardInterrupt):
                run()
            assert_idle(f"interrupt {place}")
            assert outcome(run) == expected, f"after interrupt {place}"


def ready(f: Callable[[], Any]) -> Callable[[], Any]:
    """``f()``, which computes with leaves, after steps that began so: it is deferred then."""
    for _ in range(TIMES):
        found = f()
        sum([v.sum() for v in (found if type(found) is tuple else (found,))]).backward()
    return f


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """A block in which nothing that is in a cycle is freed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def single_runs() -> Iterator[list[str]]:
    """A block in which the names of Primitives that are run by themselves on arrays are noted."""
    names: list[str] = []
    execute = Primitive.execute

    def noted(self: Primitive, values: Any) -> Any:
        if all([not isinstance(v, jax.core.Tracer) for v in values]):
            names.append(self.name)
        return execute(self, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Primitive, "execute", noted)
        yield names


def last_trace() -> str:
    """What became of the last trace, in words."""
    return (
        fad.autograd.compiled.explain()
        .splitlines()[-1]
        .rpartition(" × ")[2]
        .partition("; then ")[0]
    )


class Table(dict[str, tuple[Callable[[], Any], Any]]):
    """Programs by name: what runs, and whether it is replayed."""

    def row(self, replayed: bool | None = True) -> Callable[[Any], Any]:
        """Add a function of no arguments."""

        def add(f: Any) -> Any:
            self[f.__name__] = f, replayed
            return f

        return add

    def steps(self, *leaves: Any, replayed: bool | None = True, count: int = 14) -> Any:
        """Add ``step(*leaves, i)``, see `in_steps`."""

        def add(f: Any) -> Any:
            self[f.__name__] = in_steps(f, *leaves, count=count), replayed
            return f

        return add


def cube(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x**3 * 2.0 + 1.0)


def chain(length: int) -> Callable[[Any], Any]:
    """A loop of so many iterations, of two operations each."""

    def f(x: Any) -> Any:
        for _ in range(length):
            x = fnp.sin(x) * 0.9
        return fnp.sum(x)

    return f


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": cube,
    "views": lambda x: fnp.sum((x.reshape(2, 2).T @ x.reshape(2, 2)) ** 2) + x[1:-1].sum(),
    "several outputs": lambda x: sum([p.sum() * k for k, p in enumerate(fnp.split(x * x, 2), 1)]),
    "integers": lambda x: fnp.sum(x * fnp.argsort(x)) + x[fnp.argmax(x)],
    "masks": lambda x: fnp.sum(fnp.where(x > 1.0, x * x, -x)),
    "constants": lambda x: fnp.sum(x * jnp.arange(4.0) + np.arange(4.0, dtype=np.float32)),
    "constant in part": lambda x: fnp.sum(x * 0.0 + 2.0),
}
