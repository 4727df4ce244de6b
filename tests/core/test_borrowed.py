"""Memory that NumPy, PyTorch or DLPack share with an array, and arrays that are given up.

Who owns a buffer may write to it again once a call has returned, as a loader of data does that fills one
buffer with batch after batch. Replay must not read it later than single operations would: the law is that
results are, bit for bit, those with replay off, and those of a program that copies each batch.

Arrays that JAX itself shares are small here. A large operation may still be running when its call returns
(JAX dispatches it asynchronously, with replay or without): there a result is read before the buffer is
filled again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replays import MODES, TIMES, assert_bits, assert_idle, bare, bits, in_thread, off, replay

import fad
import fad.numpy as fnp

try:
    import torch
except ImportError:
    torch = None

ROWS, WIDTH = 4, 3
MICRO = 4  # batches that gradients are accumulated over
STEPS = 6
HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


@pytest.fixture(autouse=True)
def _fresh():
    fad.autograd.compiled.clear_cache()


def aligned(shape: tuple[int, ...], offset: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """A buffer that begins ``offset`` bytes behind a multiple of 64: with 0, XLA uses it as it is."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


# How a buffer is read: in terms of (array of NumPy) -> value that fad computes with.

SHARING: dict[str, Callable[[Any], Any]] = {
    "fnp.from_dlpack": fnp.from_dlpack,
    "fnp.from_dlpack, no copy": lambda b: fnp.from_dlpack(b, copy=False),
    "fad.from_dlpack": fad.from_dlpack,
    "fad.asarray of a shared Tensor": lambda b: fad.asarray(fnp.from_dlpack(b)),
    "jnp.from_dlpack": jnp.from_dlpack,
    "jax.dlpack": jax.dlpack.from_dlpack,
    "jax.device_put": jax.device_put,
    "jax.device_put to a device": lambda b: jax.device_put(b, jax.devices()[0]),
    "make_array_from_callback": lambda b: jax.make_array_from_callback(
        b.shape, HERE, lambda index: b[index]
    ),
    "make_array_from_single_device_arrays": lambda b: jax.make_array_from_single_device_arrays(
        b.shape, HERE, [jax.device_put(b)]
    ),
    "a Tensor, detached": lambda b: fad.from_dlpack(b).detach(),
    "a Tensor, moved to where it is": lambda b: fad.from_dlpack(b).to(jax.devices()[0]),
    "fad.asarray of a Tensor": lambda b: fad.asarray(fnp.from_dlpack(b)),
    "a Tensor's array": lambda b: fad.from_dlpack(b).array,
    "NumPy's array itself": lambda b: b,
    "a view of NumPy's array": lambda b: b[:],
    "a memoryview of NumPy's array": lambda b: np.asarray(memoryview(b)),
}
COPYING: dict[str, Callable[[Any], Any]] = {
    "fad.tensor": fad.tensor,
    "fad.asarray": fad.asarray,
    "fnp.asarray": fnp.asarray,
    "fnp.array": fnp.array,
    "fnp.array, no copy": lambda b: fnp.array(b, copy=False),
    "jnp.asarray": jnp.asarray,
    "jnp.asarray, no copy": lambda b: jnp.asarray(b, copy=False),
    "fad.tensor of a shared array": lambda b: fad.tensor(jax.device_put(b)),
    "fnp.frombuffer": lambda b: fnp.frombuffer(memoryview(b).cast("B"), np.float32).reshape(
        b.shape
    ),
    "a whole slice of a Tensor": lambda b: fad.from_dlpack(b)[:],
    "a list": lambda b: fnp.asarray(b.tolist(), dtype=np.float32),
}
if torch is not None:
    SHARING["fnp.from_dlpack of PyTorch"] = lambda b: fnp.from_dlpack(torch.from_numpy(b))
    SHARING["fad.from_dlpack of PyTorch"] = lambda b: fad.from_dlpack(torch.from_numpy(b))
    SHARING["jax.dlpack of PyTorch"] = lambda b: jax.dlpack.from_dlpack(torch.from_numpy(b))
    COPYING["fad.tensor of PyTorch"] = lambda b: fad.tensor(torch.from_numpy(b))
READS = {**SHARING, **COPYING}
# Ways in which fad, not JAX, reads a buffer: then it may be filled before a trace ends, and while a program
# runs. JAX's ``asarray`` copies, but it may do so after it has returned.
READ_BY_FAD = [
    w for w in READS if not w.startswith(("jnp.", "jax.", "make_array", "a Tensor, moved"))
]


class Inward:
    """A buffer of NumPy; each batch is read from it in one of the ways of `READS`."""

    def __init__(self, way: str, shape: tuple[int, ...] = (ROWS, WIDTH), offset: int = 0) -> None:
        self.buffer = aligned(shape, offset)
        self.way = READS[way]

    def fill(self, values: np.ndarray) -> None:
        self.buffer[:] = values

    def read(self) -> Any:
        return self.way(self.buffer)


class Copies(Inward):
    """The same, and each batch is a copy."""

    def __init__(self, shape: tuple[int, ...] = (ROWS, WIDTH)) -> None:
        super().__init__("fad.tensor", shape)

    def read(self) -> Any:
        return jnp.array(self.buffer)


class Outward:
    """An array of fad's; the view of it that PyTorch gets can be written to."""

    def __init__(self, tensor: bool, through_numpy: bool) -> None:
        value = fad.tensor(np.zeros((ROWS, WIDTH), np.float32))
        self.value = value if tensor else value.array
        view = torch.from_dlpack(value)
        self.view = torch.from_numpy(view.numpy()) if through_numpy else view

    def fill(self, values: np.ndarray) -> None:
        self.view.copy_(torch.from_numpy(values))

    def read(self) -> Any:
        return self.value


SOURCES: dict[str, Callable[[], Any]] = {way: lambda way=way: Inward(way) for way in READS}
SOURCES |= {
    f"{way}, not aligned": lambda way=way: Inward(way, offset=4)
    for way in READS
    if "no copy" not in way
}
if torch is not None:
    SOURCES["torch.from_dlpack of a Tensor"] = lambda: Outward(True, False)
    SOURCES["torch.from_dlpack of its array"] = lambda: Outward(False, False)
    SOURCES["NumPy's view of PyTorch's"] = lambda: Outward(True, True)


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x.array if isinstance(x, fad.Tensor) else x)


@pytest.mark.parametrize("way", READS)
def test_what_shares_memory(way: str) -> None:
    """An aligned buffer; JAX copies one that is not aligned, but ``copy=False`` refuses to."""
    source = Inward(way)
    source.fill(np.ones((ROWS, WIDTH)))
    x = source.read()
    source.fill(np.full((ROWS, WIDTH), 2.0))
    assert (numbers(x) == (2.0 if way in SHARING else 1.0)).all()


@pytest.mark.parametrize("way", READS)
def test_what_shares_memory_that_is_not_aligned(way: str) -> None:
    source = Inward(way, offset=4)
    source.fill(np.ones((ROWS, WIDTH)))
    if way == "fnp.from_dlpack, no copy":
        with pytest.raises(ValueError, match="aligned"):
            source.read()
        return
    x = source.read()
    source.fill(np.full((ROWS, WIDTH), 2.0))
    shares = isinstance(x, np.ndarray)
    assert (numbers(x) == (2.0 if shares else 1.0)).all()


def test_views_that_others_get_of_a_tensor() -> None:
    """NumPy's cannot be written to, PyTorch's can."""
    x = fad.tensor([1.0, 2.0, 3.0])
    pointer = x.array.unsafe_buffer_pointer()
    views = [np.asarray(x), x.numpy(), np.from_dlpack(x), np.asarray(x.array)]
    for view in views:
        assert view.ctypes.data == pointer and not view.flags.writeable
        assert memoryview(view).readonly
    assert np.array(x).ctypes.data != pointer
    if torch is not None:
        view = torch.from_dlpack(x)
        assert view.data_ptr() == pointer
        view.fill_(7.0)
        assert x.tolist() == [7.0, 7.0, 7.0] and views[0].tolist() == [7.0, 7.0, 7.0]


# Steps of gradient descent, whose gradients are accumulated over batches that lie in one buffer.


def loss_of(w: Any, b: Any, x: Any) -> Any:
    return fnp.sum(fnp.square(fnp.tanh(x * w) * x + b - 0.5)) * 0.25


def _accumulate(w: Any, b: Any, x: Any) -> Any:
    loss = loss_of(w, b, x)
    loss.backward()
    return loss


def _asked(w: Any, b: Any, x: Any) -> Any:
    loss = loss_of(w, b, x)
    _add(w, b, fad.autograd.grad(loss, [w, b]))
    return loss


def _transformed(w: Any, b: Any, x: Any) -> Any:
    grads = fad.grad(loss_of, argnums=(0, 1))(w.detach(), b.detach(), x)
    _add(w, b, grads)
    return grads[0]


def _closed_over(w: Any, b: Any, x: Any) -> Any:
    loss, grads = fad.value_and_grad(lambda p: loss_of(*p, x))((w.detach(), b.detach()))
    _add(w, b, grads)
    return loss


def _rows(w: Any, b: Any, x: Any) -> Any:
    per_row = fad.vmap(fad.grad(loss_of, argnums=(0, 1)), in_dims=(None, None, 0))
    grads = per_row(w.detach(), b.detach(), x)
    _add(w, b, [g.sum(0) for g in grads])
    return grads[0]


def _pulled(w: Any, b: Any, x: Any) -> Any:
    loss, pull = fad.vjp(lambda w, b: loss_of(w, b, x), w.detach(), b.detach())
    _add(w, b, pull(fnp.ones_like(loss)))
    return loss


def _forward(w: Any, b: Any, x: Any) -> Any:
    grads = fad.jacfwd(loss_of, argnums=(0, 1))(w.detach(), b.detach(), x)
    _add(w, b, grads)
    return grads[0]


def _add(w: Any, b: Any, grads: Any) -> None:
    for leaf, g in zip((w, b), grads, strict=True):
        leaf.grad = fad.asarray(g) if leaf.grad is None else leaf.grad + g


ACCUMULATIONS = {
    "backward": _accumulate,
    "autograd.grad": _asked,
    "grad": _transformed,
    "value_and_grad": _closed_over,
    "vmap of grad": _rows,
    "vjp": _pulled,
    "jacfwd": _forward,
}


def batches(rng: np.random.Generator, shape: tuple[int, ...] = (ROWS, WIDTH)) -> list[np.ndarray]:
    return [rng.normal(size=shape).astype(np.float32) for _ in range(STEPS * MICRO)]


def descend(source: Any, data: list[np.ndarray], accumulate: Any, reads: bool = False) -> Any:
    """Weights after `STEPS` steps, and a result of each batch, read when all is done or at once."""
    w = fad.tensor(np.linspace(0.5, 1.0, WIDTH, dtype=np.float32), requires_grad=True)
    b = fad.tensor(0.25, requires_grad=True)
    losses = []
    for k, values in enumerate(data):
        source.fill(values)
        loss = accumulate(w, b, source.read()).detach()
        losses.append(bare(loss) if reads else loss)
        if k % MICRO == MICRO - 1:
            with fad.no_grad():
                for leaf in (w, b):
                    leaf.sub_(0.1 * leaf.grad)
                    leaf.grad = None
    return [bare(w), bare(b), [bare(v) for v in losses]]


@pytest.mark.sweep("case", [*itertools.product(SOURCES, ACCUMULATIONS, MODES)], sample=7, ids=str)
def test_a_buffer_that_is_filled_again_for_each_batch(
    case: tuple[str, str, str], rng: np.random.Generator
) -> None:
    name, kind, mode = case
    data, accumulate = batches(rng), ACCUMULATIONS[kind]
    with off():
        expected = descend(Copies(), data, accumulate)
        assert_bits(descend(SOURCES[name](), data, accumulate), expected, "replay off, shared")
    with replay(mode):
        assert_bits(descend(Copies(), data, accumulate), expected, "replay on, copied")
        for reads in (False, True):
            fad.autograd.compiled.clear_cache()
            found = descend(SOURCES[name](), data, accumulate, reads)
            assert_bits(found, expected, f"replay on, shared, losses read at once: {reads}")


@pytest.mark.sweep(
    "way, mode",
    [*itertools.product(["fnp.from_dlpack", "jax.device_put", "fad.from_dlpack"], MODES)],
    sample=3,
)
def test_one_weight_and_a_mean(mode: str, way: str, rng: np.random.Generator) -> None:
    """The case that went wrong first: a value that was not read before was computed too late."""
    data = [rng.normal(size=8).astype(np.float32) for _ in range(STEPS * MICRO)]

    def descend(source: Any) -> float:
        w = fad.tensor(1.0, requires_grad=True)
        for k, values in enumerate(data):
            source.fill(values)
            x = source.read()
            (((x * w - x * 3.0) ** 2).mean() / MICRO).backward()
            if k % MICRO == MICRO - 1:
                with fad.no_grad():
                    w.sub_(0.1 * w.grad)
                w.grad = None
        return float(w.detach())

    weight, right = np.float32(1.0), []
    for k, x in enumerate(data):
        right.append(np.mean(2.0 * x * (x * weight - x * 3.0)) / MICRO)
        if k % MICRO == MICRO - 1:
            weight = np.float32(weight - 0.1 * sum(right))
            right = []
    with off():
        expected = descend(Copies((8,)))
    assert abs(expected - weight) < 1e-5
    with replay(mode):
        assert descend(Inward(way, (8,))) == expected


ONCE = [w for w in READ_BY_FAD if w in SHARING]


@pytest.mark.sweep("case", [*itertools.product(ONCE, MODES, (False, True))], sample=6, ids=str)
def test_one_object_whose_buffer_is_filled_again(case: tuple[str, str, bool]) -> None:
    """Each operation uses what is there when it is called, whether or not a value is read in between."""
    way, mode, reads = case
    source = Inward(way)
    batch = source.read()

    def f(v: Any) -> Any:
        total = fnp.sum(v * v)
        for k in range(MICRO):
            source.fill(np.full((ROWS, WIDTH), k + 0.5, np.float32))
            part = fnp.sin(v) + batch
            total = total + part.sum() * (k + 1.0)
            if reads:
                repr(part)
        source.fill(np.zeros((ROWS, WIDTH), np.float32))
        return total

    def run() -> list[Any]:
        x = jnp.linspace(-1.0, 1.0, WIDTH)
        found: list[Any] = []
        for _ in range(TIMES):
            found.append(fad.value_and_grad(f)(x))
            found.append(fad.jvp(f, (x,), (x,)))
            found.append(fad.vmap(f)(jnp.stack([x, x + 1.0])))
            leaf = fad.tensor(x, requires_grad=True)
            loss = f(leaf)
            loss.backward()
            found += [loss.detach(), leaf.grad]
        return jax.tree.map(bare, found)

    with off():
        expected = run()
    with replay(mode):
        assert_bits(run(), expected)


OF_FAD = [w for w in COPYING if "jnp" not in w and "no copy" not in w]


@pytest.mark.sweep("way, size, offset", [*itertools.product(OF_FAD, (3, 600), (0, 4))], sample=4)
def test_a_copy_is_made_before_the_call_returns(way: str, size: int, offset: int) -> None:
    """JAX's own copies of NumPy's arrays may be made later, when a program that runs has ended."""
    matrix = jnp.full((600, 600), 1e-3)
    busy = jax.jit(lambda m: sum(jnp.sum(m @ (m + k)) for k in range(8)))
    size = min(size, 100) if way == "a list" else size  # which takes long to make
    source = Inward(way, (size, size), offset)
    for k in range(5):
        source.fill(np.full((size, size), k + 1.0))
        running = [busy(matrix) for _ in range(4)]
        x = source.read()
        source.fill(np.zeros((size, size)))
        assert (numbers(x) == k + 1.0).all()
        del running


@pytest.mark.sweep("way", ONCE, sample=4)
def test_an_operation_does_not_wait_for_another_operand_with_its_buffer(way: str) -> None:
    """Replay off: JAX runs it when all operands are there, which may be after its call has returned."""
    matrix = jnp.full((600, 600), 1e-3)
    busy = jax.jit(lambda m: sum(jnp.sum(m @ (m + k)) for k in range(8)) * 0.0 + 1.0)
    source = Inward(way)
    with off():
        for k in range(10):
            source.fill(np.full((ROWS, WIDTH), k + 1.0))
            y = source.read() * fad.asarray(busy(matrix))
            source.fill(np.zeros((ROWS, WIDTH)))
            assert (numbers(y) == k + 1.0).all()


@pytest.mark.sweep("way, mode", [*itertools.product(ONCE, MODES)], sample=4)
def test_large_operations_have_read_their_buffer_too(way: str, mode: str) -> None:
    size = 700
    source = Inward(way, (size, size))
    w = fad.tensor(np.full((size, size), 1e-3, np.float32), requires_grad=True)

    def run() -> list[Any]:
        found = []
        for k in range(TIMES):
            source.fill(np.full((size, size), k + 1.0))
            x = source.read()
            y = w @ x
            g = fad.grad(lambda v, x=x: fnp.sum(v @ x))(w.detach())
            source.fill(np.zeros((size, size)))
            found += [y.detach(), g]
        return [bare(v) for v in found]

    with replay(mode):
        found = run()
    for k in range(TIMES):
        y, g = found[2 * k : 2 * k + 2]
        np.testing.assert_allclose(y, (k + 1.0) * size * 1e-3, rtol=1e-4)
        np.testing.assert_allclose(g, (k + 1.0) * size, rtol=1e-4)


@pytest.mark.sweep("way, mode", [*itertools.product(READ_BY_FAD, MODES)], sample=2)
def test_a_program_does_not_read_its_buffer_after_its_call_has_returned(
    way: str, mode: str, rng: np.random.Generator
) -> None:
    """Single small operations have; as one program they are long enough to be run asynchronously."""

    def long(w: Any, x: Any) -> Any:
        total = fnp.sum(x * w)
        for k in range(60):
            total = total + fnp.sum(fnp.tanh(x * w + 0.01 * k) * x)
        return total

    w = fad.tensor(np.linspace(0.1, 0.4, 64, dtype=np.float32), requires_grad=True)
    data = [rng.normal(size=64).astype(np.float32) for _ in range(20)]

    def run(source: Any) -> list[Any]:
        found = []
        for values in data:
            source.fill(values)
            x = source.read()
            g = fad.grad(long)(w.detach(), x)
            h = fad.autograd.grad(long(w, x), [w])[0]
            source.fill(np.zeros(64))
            found += [g, h]
        return [bare(v) for v in found]

    with off():
        expected = run(Copies((64,)))
    with replay(mode):
        assert_bits(run(Inward(way, (64,))), expected)


# Transforms that are called in a loop. What they have returned does not change any more.

CONSTANT = jnp.array([0.5, -1.0, 1.5])

CALLS: dict[str, Callable[[Any], Any]] = {
    "grad": fad.grad(lambda x: fnp.sum(fnp.sin(x) * x * CONSTANT)),
    "grad of a linear function": fad.grad(lambda x: fnp.sum(x * CONSTANT)),
    "value_and_grad": fad.value_and_grad(lambda x: fnp.sum(fnp.exp(x) * CONSTANT)),
    "jvp": lambda x: fad.jvp(lambda v: fnp.sin(v) * v, (x,), (x,)),
    "jvp along": lambda x: fad.jvp(lambda v: v * 2.0 + x, (CONSTANT,), (CONSTANT,)),
    "vmap": fad.vmap(lambda row: fnp.tanh(row) * CONSTANT + row),
    "vmap of a closure": lambda x: fad.vmap(lambda c: fnp.sum(x * c))(CONSTANT),
    "vmap of grad": fad.vmap(fad.grad(lambda row: fnp.sum(row * row * CONSTANT))),
    "hessian": fad.hessian(lambda x: fnp.sum(fnp.sin(x) * x)),
    "jacfwd": fad.jacfwd(lambda x: fnp.sin(x) * x),
    "jacrev": fad.jacrev(lambda x: fnp.sin(x) * x),
    "linearize": lambda x: fad.linearize(lambda v: fnp.sin(v) * v, x)[1](CONSTANT + x),
    "grad of grad": fad.grad(lambda x: fnp.sum(fad.grad(lambda v: fnp.sum(v**3.0))(x) * x)),
    "grad of a closure": lambda x: fad.grad(lambda v: fnp.sum(fnp.sin(v * x) + x))(CONSTANT),
    "closure alone": lambda x: fad.grad(lambda v: fnp.sum(v * x))(CONSTANT),
    "operation on the tape": lambda x: (fad.tensor(CONSTANT, requires_grad=True) * x).detach(),
    "plain operation": lambda x: fad.asarray(CONSTANT) * x + 1.0,
}


def rows(x: Any) -> Any:
    return [x] if isinstance(x, np.ndarray) else x


@pytest.mark.sweep(
    "case",
    [*itertools.product(CALLS, SOURCES, MODES)],
    sample=24,
    ids=str,
)
def test_results_that_are_kept_until_the_buffer_is_filled_again(
    case: tuple[str, str, str], rng: np.random.Generator
) -> None:
    name, kind, mode = case
    call = CALLS[name]
    if not name.startswith("vmap") or name == "vmap of a closure":
        wide = call
        call = lambda x: wide(x[1])  # one row
    data = [rng.normal(size=(ROWS, WIDTH)).astype(np.float32) for _ in range(TIMES)]

    def run(source: Any, early: bool) -> list[Any]:
        """Results read before the buffer is filled again, or when all is done."""
        found = []
        for values in data:
            source.fill(values)
            r = call(source.read())
            found.append(jax.tree.map(bare, r) if early else r)
        source.fill(np.zeros((ROWS, WIDTH), np.float32))
        return jax.tree.map(bare, found)

    with off():
        expected = run(Copies(), True)
        assert_bits(run(SOURCES[kind](), False), expected, "replay off, read late")
    with replay(mode):
        for early in (True, False):
            assert_bits(run(SOURCES[kind](), early), expected, f"replay on, read early: {early}")


@pytest.mark.parametrize("way", SHARING)
@pytest.mark.parametrize("mode", MODES)
def test_a_result_that_is_the_argument_is_as_without_replay(mode: str, way: str) -> None:
    """It may share the buffer, with replay as much as without."""
    calls = {
        "vmap": lambda x: fad.vmap(lambda row: row)(x),
        "jvp": lambda x: fad.jvp(lambda v: v + 1.0, (jnp.ones((ROWS, WIDTH)),), (x,))[1],
        "vjp": lambda x: fad.vjp(lambda v: v + 1.0, jnp.ones((ROWS, WIDTH)))[1](x)[0],
    }
    for name, call in calls.items():

        def run(call: Any = call) -> list[Any]:
            found = []
            source = Inward(way)
            for k in range(TIMES):
                source.fill(np.full((ROWS, WIDTH), k))
                found.append(call(source.read()))
            return [bare(v) for v in found]

        with off():
            expected = run()
        with replay(mode):
            found = run()
        copied = [np.full((ROWS, WIDTH), k, np.float32) for k in range(TIMES)]
        assert bits(found) in (bits(expected), bits(copied)), name


@pytest.mark.sweep("way, mode", [*itertools.product(READ_BY_FAD, MODES)], sample=5)
def test_a_buffer_that_is_filled_again_inside_of_a_transform(mode: str, way: str) -> None:
    """The batches are only added to: a product would have saved the buffer itself, not its numbers."""

    def run(source: Any) -> list[Any]:
        def f(v: Any) -> Any:
            total, parts = fnp.sum(v * v), []
            for k in range(MICRO):
                source.fill(np.full((ROWS, WIDTH), k + 0.5, np.float32))
                parts.append(fnp.sin(v) + source.read())
            source.fill(np.zeros((ROWS, WIDTH), np.float32))
            return total + sum(p.sum() * (k + 1.0) for k, p in enumerate(parts))

        found: list[Any] = []
        x = jnp.linspace(-1.0, 1.0, WIDTH)
        for _ in range(TIMES):
            found.append(fad.value_and_grad(f)(x))
            found.append(fad.jvp(f, (x,), (x,)))
            found.append(fad.vmap(f)(jnp.stack([x, x + 1.0])))
            leaf = fad.tensor(x, requires_grad=True)
            loss = f(leaf)
            loss.backward()
            found += [loss.detach(), leaf.grad]
        return jax.tree.map(bare, found)

    with off():
        expected = run(Copies())
        assert_bits(run(Inward(way)), expected, "replay off")
    with replay(mode):
        assert_bits(run(Inward(way)), expected, "replay on")


@pytest.mark.sweep("way, mode", [*itertools.product(SHARING, MODES)], sample=8)
def test_a_buffer_that_another_thread_fills_after_the_call(
    way: str, mode: str, rng: np.random.Generator
) -> None:
    data = batches(rng)
    w = np.linspace(0.5, 1.0, WIDTH, dtype=np.float32)
    call = fad.grad(lambda v, x: loss_of(v, 0.25, x))

    def run(source: Any) -> list[Any]:
        found: list[Any] = []
        filled, taken = threading.Semaphore(0), threading.Semaphore(0)

        def load() -> None:
            for values in data:
                source.fill(values)
                filled.release()
                taken.acquire(timeout=60.0)

        loader = threading.Thread(target=load, daemon=True)
        loader.start()
        for _ in data:
            assert filled.acquire(timeout=60.0)
            found.append(call(jnp.asarray(w), source.read()))
            taken.release()
        loader.join(60.0)
        return [bare(v) for v in found]

    with off():
        expected = run(Copies())
    with replay(mode):
        assert_bits(run(Inward(way)), expected)


# Arrays that are given up: donated to a program of JAX, or deleted.

GIVE_UP: dict[str, Callable[[jax.Array], Any]] = {
    "donated": lambda a: jax.jit(lambda v: v + 1.0, donate_argnums=0)(a),
    "donated by name": lambda a: jax.jit(lambda v: v + 1.0, donate_argnames="v")(v=a),
    "donated to fad.jit": lambda a: fad.jit(lambda v: v + 1.0, donate_argnums=0)(a),
    "deleted": lambda a: a.delete(),
    "in another thread": lambda a: in_thread(
        lambda: jax.jit(lambda v: v + 1.0, donate_argnums=0)(a)
    ),
    "deleted in another thread": lambda a: in_thread(a.delete),
}


def or_deleted(read: Callable[[], Any]) -> Any:
    """What ``read()`` gives; None where it says that an array was given up."""
    try:
        return jax.tree.map(bare, read())
    except (RuntimeError, ValueError) as error:
        assert "deleted" in str(error)
        return None


@pytest.mark.sweep(
    "how, kind, mode", [*itertools.product(GIVE_UP, ("array", "tensor"), MODES)], sample=10
)
def test_values_from_before_an_array_was_given_up(how: str, kind: str, mode: str) -> None:
    """Those that do not depend on it are right, as are later operations and the step of the tape.

    Those that do are right too, or say what was given up, where fad did not hand out the array itself.
    """

    def run() -> tuple[list[Any], list[Any]]:
        w = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
        found: list[Any] = []
        dependent: list[Any] = []
        for k in range(TIMES):
            w.grad = None
            a = jnp.array([0.5, -1.5, 2.5]) + float(k)
            a.block_until_ready()
            v = fad.from_dlpack(a) if kind == "tensor" else a
            unrelated = w * 3.0
            related = fnp.sin(w) + v
            plain = fad.asarray(CONSTANT) * v
            results = [
                fad.grad(lambda t: fnp.sum(fnp.sin(t) * v))(CONSTANT),
                fad.jvp(lambda t: fnp.sin(t) * v, (CONSTANT,), (CONSTANT,)),
                fad.vmap(lambda t: fnp.sum(t * v))(CONSTANT),
            ]
            GIVE_UP[how](v.array if kind == "tensor" else v)
            later = unrelated * 2.0
            later.sum().backward()
            found.append([unrelated.detach(), plain, later.detach(), w.grad, results])
            dependent.append(or_deleted(related.detach))
        return jax.tree.map(bare, found), dependent

    with off():
        expected, all_of_them = run()
    with replay(mode):
        found, dependent = run()
    assert_bits(found, expected)
    assert kind == "array" or None not in dependent
    for ours, theirs in zip(dependent, all_of_them, strict=True):
        assert ours is None or bits(ours) == bits(theirs)


@pytest.mark.sweep("how, mode", [*itertools.product(GIVE_UP, MODES)], sample=6)
def test_an_array_that_is_given_up_inside_of_a_transform(how: str, mode: str) -> None:
    """The result is right, or the array is named; the next call of the same function is right."""

    def f(x: Any, give_up: Callable[[Any], Any]) -> Any:
        a = jnp.array([0.5, -1.5, 2.5]) + 0.0
        a.block_until_ready()
        y = fnp.sin(x) + a
        z = x * 2.0
        give_up(a)
        return fnp.sum(y * z)

    def dual(g: Callable[[Any], Any]) -> Any:
        with fad.dual_level():
            return list(fad.unpack_dual(g(fad.make_dual(CONSTANT, jnp.ones(3)))))

    calls: list[Callable[[Any], Any]] = [
        lambda g: fad.value_and_grad(g)(CONSTANT),
        lambda g: fad.jvp(g, (CONSTANT,), (CONSTANT,)),
        lambda g: fad.vmap(g)(jnp.stack([CONSTANT, CONSTANT * 2.0])),
        dual,
    ]
    gives_up = lambda x: f(x, GIVE_UP[how])
    keeps = lambda x: f(x, lambda a: None)
    was_right = False
    for call in calls:
        with off():
            expected = bits(call(gives_up))
        with replay(mode):
            results = []
            for _ in range(TIMES):
                results.append(or_deleted(lambda call=call: call(gives_up)))
                assert_idle()
                assert bits(call(keeps)) == expected
            right = [r for r in results if r is not None]
            was_right = was_right or bool(right)
            assert all([bits(r) == expected for r in right])
    assert was_right or mode == "at once"  # a call whose program is being compiled is not traced


@pytest.mark.parametrize("mode", MODES)
def test_what_has_saved_an_array_that_was_given_up_says_so(mode: str) -> None:
    """Its gradient is refused, unless replay had it already; all others are right."""
    w = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def step(gives_up: bool) -> Any:
        a = jnp.array([0.5, -1.5, 2.5]) + 0.0
        y = fnp.sum(fnp.sin(w) * a)
        other = fnp.sum(w * w)
        if gives_up:
            a.block_until_ready()
            a.delete()
            try:
                y.backward()
            except (RuntimeError, ValueError) as error:
                assert "deleted" in str(error)
            else:
                np.testing.assert_allclose(bare(w.grad), np.cos([1, 2, 3]) * [0.5, -1.5, 2.5], 1e-6)
            w.grad = None
            other.backward()
            found = w.grad
            w.grad = None
            return found
        (g,) = fad.autograd.grad(y, w)
        return g

    with off():
        expected = {gives_up: bits(step(gives_up)) for gives_up in (True, False)}
    with replay(mode):
        for k in range(3 * TIMES):
            gives_up = k >= TIMES and k % 2 == 1
            assert bits(step(gives_up)) == expected[gives_up], k


# Checks that are on in a block are not applied to operations called before it.


@pytest.mark.parametrize("mode", MODES)
def test_numbers_are_checked_for_operations_in_the_block_alone(mode: str) -> None:
    def run() -> list[Any]:
        w = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
        found: list[Any] = []
        for _ in range(TIMES):
            w.grad = None
            bad = fnp.log(-fnp.abs(w))
            worse = fad.asarray(CONSTANT) * float("nan")
            grads = fad.grad(lambda t: fnp.sum(fnp.sqrt(t)))(CONSTANT)
            both = fad.jvp(fnp.sqrt, (CONSTANT,), (CONSTANT,))
            batch = fad.vmap(fnp.sqrt)(CONSTANT)
            with jax.debug_nans(True):
                fine = w * 2.0
                found.append([fine.detach(), bare(bad), bare(worse), bare(grads)])
                found.append(jax.tree.map(bare, [both, batch]))
                fine.sum().backward()
                found.append(w.grad)
                with pytest.raises(FloatingPointError):
                    bare(fnp.log(-fnp.abs(w)))
            found.append([bad.detach(), w.grad])
        return [jax.tree.map(bare, r) for r in found]

    with off():
        expected = run()
    with replay(mode):
        assert_bits(run(), expected)
    assert_idle()


@pytest.mark.parametrize("mode", MODES)
def test_a_block_of_checks_inside_of_a_transform(mode: str) -> None:
    def f(x: Any) -> Any:
        bad = fnp.log(x - 10.0)
        with jax.debug_nans(True):
            y = x * 2.0
            total = fnp.sum(y * y)
        return total, bad

    def run() -> list[Any]:
        x, found = jnp.array([1.0, 2.0, 3.0]), []
        for _ in range(TIMES):
            found.append(fad.grad(f, has_aux=True)(x))
            found.append(fad.jvp(lambda v: f(v), (x,), (x,)))
            found.append(fad.vmap(f)(x))
        return [jax.tree.map(bare, r) for r in found]

    with off():
        expected = run()
    with replay(mode):
        assert_bits(run(), expected)
