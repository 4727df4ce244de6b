"""PyTorch's tensors and JAX's arrays: one as the other, without a copy where memory can be shared.

NOTE [memory shared with PyTorch]

An array of JAX never changes, and a tensor can be written to. So:

* An argument of a function of PyTorch is the memory of the array itself (`lent`). A function that writes to
  it is refused, see `fad.torch.checks`.
* A result of a function of PyTorch becomes an array on its own memory (`taken`), unless that is also the
  memory of an argument, of another result, or of a tensor that the function reads from outside: then it is
  copied. Nobody else has it, so it is not borrowed (see NOTE [borrowed memory]).
* An argument of a function of fad is borrowed (`borrowed_array`): the caller may write to it after the call.
* A result of a function of fad is copied (`returned`): the caller may write to it, and fad or JAX may have it
  in a table of constants.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fad import from_dlpack
from fad.errors import ArgumentError, HostValueError, describe, say_too
from fad.extend.types import Array, Aval, DType

TorchTensor: TypeAlias = Any  # a `torch.Tensor`: PyTorch is optional


@functools.cache
def load() -> Any:
    """The module ``torch``.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(
            "fad.from_torch and fad.to_torch need PyTorch, which is not installed: pip install "
            "'fad-jax[torch]'"
        ) from error


def is_fake(t: TorchTensor) -> bool:
    """Whether ``t`` has a shape, and no numbers."""
    return isinstance(t, importlib.import_module("torch._subclasses.fake_tensor").FakeTensor)


def dtype_of(t: TorchTensor) -> DType:
    """The dtype of NumPy that has the name of that of ``t``."""
    return np.dtype(str(t.dtype).removeprefix("torch."))


def in_words(x: Aval) -> str:
    """Dtype and shape of a tensor, for errors."""
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def listed(structs: Sequence[jax.ShapeDtypeStruct]) -> str:
    """Dtypes and shapes of arrays, for errors."""
    return ", ".join([f"{s.dtype}{list(s.shape)}" for s in structs]) or "nothing"


@contextmanager
def noted(who: str, structs: Sequence[jax.ShapeDtypeStruct]) -> Iterator[None]:
    """Adds to an error what the function was called with."""
    try:
        yield
    except Exception as error:
        note = f"in {who}, called with {listed(structs)}"
        if who.startswith("from_torch") and any([s.dtype == np.int32 for s in structs]):
            say_too(
                error,
                f"{note}; where PyTorch needs 64 bits (targets of cross_entropy), write x.long()",
            )
        else:
            error.add_note(note)
        raise


# Arguments and results of a function of PyTorch


def lent(array: Array, name: str) -> TorchTensor:
    """A tensor for a function of PyTorch to read: the array's memory if it is on the CPU, else a copy.

    Raises:
        ArgumentError: PyTorch has no such dtype.
    """
    torch = load()
    try:
        if isinstance(array, jax.Array) and _is_first_cpu(array):
            return torch.from_dlpack(array.block_until_ready())
        return torch.from_numpy(np.array(array))
    except (TypeError, BufferError, RuntimeError, ValueError) as error:
        raise ArgumentError(
            f"{name}: PyTorch cannot have {describe(array)}: {error}. Convert it first, x.astype(...)"
        ) from error


def _is_first_cpu(array: jax.Array) -> bool:
    devices = array.devices()
    if len(devices) != 1:
        return False
    (device,) = devices
    return bool(device.platform == "cpu" and device.id == 0)


def taken(
    tensors: Sequence[TorchTensor],
    others: Sequence[TorchTensor],
    like: TorchTensor,
    structs: Sequence[jax.ShapeDtypeStruct],
    name: str,
) -> list[jax.Array]:
    """Results of PyTorch as arrays.

    Arguments:
        tensors: the results.
        others: tensors whose memory others have: the arguments, and what is read from outside.
        like: an array on whose device the results belong, or None.
        structs: the shapes and dtypes of the results.
        name: whose results they are.
    """
    seen = {_memory(t) for t in others}
    arrays = []
    for t, struct in zip(tensors, structs, strict=True):
        t = narrowed(plain(t, name), struct.dtype, name)
        if _memory(t) in seen:
            t = t.clone()
        seen.add(_memory(t))
        array = jnp.from_dlpack(t)
        arrays.append(array if like is None else _beside(array, like))
    return arrays


def _memory(t: TorchTensor) -> int:
    return int(t.untyped_storage().data_ptr())


def _beside(array: jax.Array, like: TorchTensor) -> jax.Array:
    """``array`` on the device of ``like``, if that is one and not the first CPU."""
    if not isinstance(like, jax.Array) or len(like.devices()) != 1 or _is_first_cpu(like):
        return array
    placed: jax.Array = jax.device_put(array, like.sharding)
    return placed


def plain(t: TorchTensor, name: str) -> TorchTensor:
    """A contiguous tensor on the CPU with the numbers of ``t``, which are its memory.

    Raises:
        ArgumentError: it is sparse, quantized or without numbers.
    """
    if t.layout is not load().strided or t.is_quantized or t.device.type == "meta":
        raise ArgumentError(
            f"{name}: a tensor must be dense and have numbers, got {in_words(t)} with layout {t.layout} "
            f"on {t.device}: write t.to_dense() or t.dequantize()"
        )
    return t.detach().resolve_conj().resolve_neg().cpu().contiguous()


def narrowed(t: TorchTensor, dtype: DType, name: str) -> TorchTensor:
    """``t`` in a dtype of JAX.

    Raises:
        ArgumentError: an integer is too large for it.
    """
    wanted = getattr(load(), np.dtype(dtype).name)
    if t.dtype is wanted:
        return t
    converted = t.to(wanted)
    if t.is_floating_point() or t.is_complex():
        return converted
    if not bool((converted.to(t.dtype) == t).all()):
        raise ArgumentError(
            f"{name}: an integer in {in_words(t)} does not fit into {np.dtype(dtype).name}: write "
            "jax.config.update('jax_enable_x64', True)"
        )
    return converted


def as_numpy(t: TorchTensor, dtype: DType, name: str) -> np.ndarray:
    """A result of PyTorch as an array of NumPy, on its memory."""
    t = narrowed(plain(t, name), dtype, name)
    if t.dtype is load().bfloat16:  # which PyTorch cannot give to NumPy
        return np.asarray(t.view(load().int16).numpy().view(dtype))
    return np.asarray(t.numpy())


# Arguments and results of a function of fad


def borrowed_array(t: TorchTensor, name: str) -> jax.Array:
    """A tensor as an array for a function of fad, on its memory where JAX can have it.

    Raises:
        ArgumentError: it is not on the CPU, not dense, or has 64 bits and JAX computes in 32.
    """
    if is_fake(t):
        raise HostValueError(f"{name}: a tensor without numbers was given: {in_words(t)}")
    if t.device.type != "cpu":
        raise ArgumentError(
            f"{name}: tensors must be on the CPU, got {in_words(t)} on {t.device}: pass t.cpu()"
        )
    source = plain(t, name)
    canonical = jax.dtypes.canonicalize_dtype(dtype_of(t))
    if canonical != dtype_of(t):
        if t.is_floating_point() or t.is_complex():
            raise ArgumentError(
                f"{name}: got {in_words(t)}, but JAX computes in 32 bits: write "
                "jax.config.update('jax_enable_x64', True) at the start of the program, or pass t.float()"
            )
        source = narrowed(source, canonical, name)
    if jax.default_backend() != "cpu":
        return jnp.asarray(source.numpy().copy())
    array: jax.Array = from_dlpack(source).array
    return array


def returned(array: Array, name: str) -> TorchTensor:
    """An array as a tensor on memory of its own."""
    return lent(array, name).clone()
