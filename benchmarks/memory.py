"""Bytes that are kept alive for a backward pass, besides the function's own arguments."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.libraries import Library
from benchmarks.models import block, rnn, transformer_block
from benchmarks.scenarios import CHAIN, SMALL_NET, Scenario, Workload, chain, small_net
from benchmarks.tape import leaves

__all__ = ["SCENARIOS", "kept"]


def buffers(arrays: list[Any]) -> dict[int, int]:
    """Sizes of different buffers."""
    return {a.unsafe_buffer_pointer(): a.nbytes for a in arrays if a.size}


def kept(library: Library, workload: Workload) -> int:
    """Bytes of the arrays that live as long as the result of the forward pass does.

    fad: all arrays of the process that were not there before. JAX: the leaves of what `jax.vjp`
    returns. PyTorch: the storages that go through hooks on saved tensors.
    """
    if library.name == "torch":
        return _kept_by_torch(workload)
    if library.name == "jax":
        f, inputs = workload.on(library)
        _, pull = jax.vjp(f, *inputs)
        own = buffers(inputs)
        leaves_ = [x for x in jax.tree.leaves(pull) if isinstance(x, jax.Array)]
        return sum(n for at, n in buffers(leaves_).items() if at not in own)
    inputs = leaves(library, workload)
    workload.function(library.numpy, *inputs)  # constants and compiled code are made here
    gc.collect()
    before = buffers(jax.live_arrays())
    loss = workload.function(library.numpy, *inputs)
    size = loss.array.nbytes  # it has been computed then, and what is kept with it
    gc.collect()
    now = {at: n for at, n in buffers(jax.live_arrays()).items() if at not in before}
    return sum(now.values()) - size


def _kept_by_torch(workload: Workload) -> int:
    inputs = [torch.tensor(x, requires_grad=True) for x in workload.inputs]
    found: dict[int, int] = {}
    alive = []  # an address means one storage as long as that lives

    def pack(x: Any) -> Any:
        storage = x.untyped_storage()
        alive.append(storage)
        found[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        workload.function(torch, *inputs)
    own = {x.untyped_storage().data_ptr() for x in inputs}
    return sum(n for at, n in found.items() if at not in own)


_draw = np.random.default_rng(4)
LARGE = [
    Workload(
        "small net, batch of 4,096",
        small_net,
        (_draw.normal(size=(16, 4096)).astype(np.float32), *SMALL_NET.inputs[1:]),
    ),
    Workload("chain on 65,536 floats", chain, (np.resize(CHAIN.inputs[0], 65536),)),
    Workload("transformer block, 64 tokens of 128", transformer_block, block(64, 128)),
    Workload(
        "recurrent net, 20 steps, batch of 512",
        rnn,
        tuple(
            _draw.normal(size=s).astype(np.float32)
            for s in ((16, 512), (16, 16), (16, 8), (20, 8, 512))
        ),
    ),
]


def counting(workload: Workload) -> Callable[[Library], Callable[[], float]]:
    return lambda library: lambda: kept(library, workload) / 1e3


SCENARIOS: list[Scenario] = [
    Scenario(w.name, "kept for backward", counting(w), bounds={"torch": 1.0, "jax": 1.0}, unit="kB")
    for w in LARGE
]
