"""``to_torch``: a function of fad as a ``torch.autograd.Function``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax

from fad import Tensor, jvp, to_jax, vjp, vmap
from fad.errors import ArgumentError, describe
from fad.extend import partition
from fad.extend.types import Array, PyTree
from fad.torch.checks import struct_of_tensor
from fad.torch.flat_operations import FlatOperation, Library, MadeOnce, flattened, spread
from fad.torch.memory import TorchTensor, borrowed_array, load, noted, plain, returned

LIBRARY: Library = SimpleNamespace(vjp=vjp, jvp=jvp, vmap=vmap)


def to_torch(f: Callable[..., PyTree], *, jit: bool = False) -> Callable[..., PyTree]:
    """A function of fad as a function of PyTorch, under autograd and every transform of ``torch.func``.

    fad computes it, and its derivatives and batches, to any order. It reads the memory of its arguments, and
    its results are copied. Where ``torch.compile`` compiles, a call of it breaks
    the graph.

    Arguments:
        f: a function of pytrees of Tensors, as for `fad.to_jax`; it must not change anything outside of
            itself. What is no ``torch.Tensor`` is passed as it is. It returns a pytree of Tensors and
            arrays.
        jit: compile f, and each of its derivatives and batches, as one program for arguments of the same
            shapes, as `fad.jit` does. Without it f runs as Python at each call.

    Returns:
        A function that takes and returns pytrees of ``torch.Tensor``, on the CPU.

    Raises:
        ImportError: PyTorch is not installed.
        ArgumentError: f is not a function, or returns something other than arrays; an argument is a Tensor
            or an array of JAX, is not on the CPU, or has 64 bits where JAX computes in 32.
        LevelError: the result depends on a Tensor of a running fad transform that f closes over.

    Source: ``torch.autograd.Function`` with ``setup_context``, ``jvp`` and ``vmap``.

    >>> import fad, fad.numpy as fnp, torch
    >>> f = fad.to_torch(lambda x: fnp.sum(x**3))
    >>> torch.func.hessian(f)(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    torch = load()
    if not callable(f):
        raise ArgumentError(f"to_torch: the first argument must be a function, got {describe(f)}")
    name = getattr(f, "__name__", type(f).__name__)
    calls: MadeOnce[tuple[FlatOperation, Callable[..., PyTree]]] = MadeOnce()

    def run(args: tuple[PyTree, ...], kwargs: dict[str, PyTree]) -> PyTree:
        tensors, rest = partition((args, kwargs), torch.Tensor, ordered=True)
        for x in rest.statics():
            _check(x, name)
        for t in tensors:
            if t.is_quantized:  # refused, before it is asked for its dtype
                plain(t, f"to_torch({name})")
        structs = tuple([struct_of_tensor(t) for t in tensors])

        def make() -> tuple[FlatOperation, Callable[..., PyTree]]:
            expected = f"to_torch({name}): the function must return Tensors and arrays, alone or in pytrees"
            kinds = (Tensor, jax.Array)
            fn, result = flattened(f, rest, kinds, expected, "fad.tensor(...)")
            # What comes out, and of which dtypes, is known after the first call; see `_computed`.
            return FlatOperation(name, fn, LIBRARY, structs, (), jit), result

        operation, result = calls.get((rest, structs), make)
        return result(_function().apply(operation, *tensors))

    @functools.wraps(f, updated=())
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if torch.compiler.is_compiling():  # torch.compile calls fad; it does not look into it
            return torch.compiler.disable(run, reason="fad computes it")(args, kwargs)
        return run(args, kwargs)

    return wrapped


def _check(x: object, name: str) -> None:
    """Refuse what is neither a tensor nor static."""
    if isinstance(x, (Tensor, jax.Array)):
        raise ArgumentError(
            f"to_torch({name}): an argument is {describe(x)}: the result is a function of tensors of "
            "PyTorch; write torch.from_dlpack(x), or call the function of fad itself"
        )
    try:
        hash(x)
    except TypeError:
        raise ArgumentError(
            f"to_torch({name}): an argument that is no torch.Tensor must be hashable, got {describe(x)}: "
            "write torch.as_tensor(x)"
        ) from None


def _computed(operation: FlatOperation, tensors: Sequence[TorchTensor]) -> tuple[TorchTensor, ...]:
    """The results of an operation of fad for tensors of PyTorch."""
    name = f"to_torch({operation.name})"
    arrays = [borrowed_array(t, name) for t in tensors]
    with noted(name, operation.arguments):
        outs = jax.block_until_ready(tuple(_program(operation)(*arrays)))
    if not operation.results:
        operation.results = tuple([jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outs])
    return tuple([returned(x, name) for x in outs])


def _program(operation: FlatOperation) -> Callable[..., tuple[Array, ...]]:
    """The operation as a function of arrays, which is compiled where that is wanted."""
    if operation.function is None:
        program = to_jax(operation.fn)
        operation.function = jax.jit(program) if operation.compiled else program
    function: Callable[..., PyTree] = operation.function
    return function


@functools.cache
def _function() -> type[Any]:
    """The ``torch.autograd.Function`` that calls operations; it is made when PyTorch is there."""
    torch = load()

    class FadFunction(torch.autograd.Function):  # type: ignore[misc,name-defined]
        """A call of an operation of fad: its rules call the operations that are derived from it."""

        @staticmethod
        def forward(operation: FlatOperation, *tensors: TorchTensor) -> PyTree:
            return _computed(operation, tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: PyTree, output: PyTree) -> None:
            ctx.operation, *tensors = inputs
            ctx.save_for_backward(*tensors)
            ctx.save_for_forward(*tensors)
            ctx.set_materialize_grads(False)
            fixed = [t for t in output if not (t.is_floating_point() or t.is_complex())]
            ctx.mark_non_differentiable(*fixed)

        @staticmethod
        def backward(ctx: Any, *cotangents: TorchTensor) -> PyTree:
            need = tuple(ctx.needs_input_grad[1:])
            have = tuple([g is not None for g in cotangents])
            if not any(need) or not any(have):
                return (None,) * (len(need) + 1)
            present = [g for g in cotangents if g is not None]
            pull = ctx.operation.vjp(need, have)
            return (None, *spread(need, FadFunction.apply(pull, *ctx.saved_tensors, *present)))

        @staticmethod
        def jvp(ctx: Any, _: object, *tangents: TorchTensor) -> PyTree:
            mask = tuple([t is not None for t in tangents])
            present = [t for t in tangents if t is not None]
            push = ctx.operation.jvp(mask)
            pushed = FadFunction.apply(push, *ctx.saved_tensors, *present)
            return tuple(spread(ctx.operation.differentiable, pushed))

        @staticmethod
        def vmap(
            info: Any, in_dims: PyTree, operation: FlatOperation, *tensors: TorchTensor
        ) -> PyTree:
            lanes = operation.batched(in_dims[1:], info.batch_size, info.randomness)
            outs = FadFunction.apply(lanes, *tensors)
            if not operation.results:  # it has run only for batches
                results = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in lanes.results]
                operation.results = tuple(results)
            return outs, (0,) * len(outs)

    return FadFunction
