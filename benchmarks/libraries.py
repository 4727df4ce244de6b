"""The libraries that are compared, each behind the same few names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import torch

import fad
import fad.numpy as fnp
from fad.core.jaxapi import array_type

__all__ = ["FAD", "JAX", "LIBRARIES", "NODES", "PLAIN", "TORCH", "Library", "gpu", "library_on"]


@dataclass(frozen=True)
class Library:
    """One library: its array functions, its transforms, and how to wait for a result.

    `grad`, `jvp`, `vmap` and `hessian` are called with positional arguments only, in the order that
    the three libraries share: `vmap(f, in_dims, out_dims)`, `jvp(f, primals, tangents)`. ``forward_ad``
    has `dual_level`, `make_dual` and `unpack_dual`; JAX has no such thing. Calls are made inside of
    `around()`.
    """

    name: str
    title: str
    numpy: Any
    asarray: Callable[[np.ndarray], Any]
    grad: Callable[..., Any]
    jvp: Callable[..., Any]
    vmap: Callable[..., Any]
    hessian: Callable[..., Any]
    jacfwd: Callable[..., Any]
    forward_ad: Any
    wait: Callable[[Any], Any]
    versions: Mapping[str, str]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def wait(result: Any) -> Any:
    """A result, once its arrays are there; of a single one at the least cost."""
    if type(result) in _SINGLE:
        # To look for arrays in a pytree takes 1 to 3 µs longer.
        return result.block_until_ready()
    return jax.block_until_ready(result)


_SINGLE = frozenset([fad.Tensor, array_type])


FAD = Library(
    name="fad",
    title="fad",
    numpy=fnp,
    asarray=jnp.asarray,
    grad=fad.grad,
    jvp=fad.jvp,
    vmap=fad.vmap,
    hessian=fad.hessian,
    jacfwd=fad.jacfwd,
    forward_ad=fad,
    wait=wait,
    versions={"fad": fad.__version__},
)
TORCH = Library(
    name="torch",
    title="PyTorch",
    numpy=torch,
    asarray=torch.from_numpy,
    grad=torch.func.grad,
    jvp=torch.func.jvp,
    vmap=torch.func.vmap,
    hessian=torch.func.hessian,
    jacfwd=torch.func.jacfwd,
    forward_ad=torch.autograd.forward_ad,
    wait=lambda result: result,
    versions={"torch": torch.__version__},
)
JAX = Library(
    name="jax",
    title="JAX",
    numpy=jnp,
    asarray=jnp.asarray,
    grad=jax.grad,
    jvp=jax.jvp,
    vmap=jax.vmap,
    hessian=jax.hessian,
    jacfwd=jax.jacfwd,
    forward_ad=None,
    wait=wait,
    versions={"jax": jax.__version__, "jaxlib": jaxlib.__version__},
)
# fad without replay: operation by operation, and backward passes node by node.
NODES = replace(
    FAD, name="nodes", title="fad node by node", around=lambda: fad.autograd.compiled(False)
)
# fad without the function that is measured: nested transforms, and dense matrices.
PLAIN = replace(FAD, name="plain", title="nested or dense")
LIBRARIES = {library.name: library for library in (FAD, TORCH, JAX, NODES, PLAIN)}


@cache
def gpu() -> Any:
    """The first GPU of JAX, or None."""
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        return None


def library_on(device: str, name: str) -> Library:
    """The library whose arrays are on a device: "cpu", or "gpu" for the first one.

    On a GPU all multiply in 32 bits, which PyTorch and JAX do when they are told to.
    """
    library = LIBRARIES[name]
    if device == "cpu":
        return library
    if name == "torch":
        torch.backends.cudnn.allow_tf32 = False  # in convolutions; products do so by themselves
        return replace(
            library, asarray=lambda x: torch.from_numpy(x).to("cuda"), wait=wait_for_cuda
        )
    return replace(library, around=lambda: on_gpu(library))


@contextmanager
def on_gpu(library: Library) -> Iterator[None]:
    """New arrays are on the GPU, not committed to it, as they are where there is one."""
    with library.around(), jax.default_device(gpu()), jax.default_matmul_precision("highest"):
        yield


def wait_for_cuda(result: Any) -> Any:
    """A result of PyTorch, once its kernels have run."""
    torch.cuda.synchronize()
    return result
