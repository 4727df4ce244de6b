"""``from_torch``: a function of PyTorch as an operation of fad."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Function, Tensor
from fad.autograd.function import FunctionCtx
from fad.errors import ArgumentError, HostValueError, StructureError, describe
from fad.extend import enter, outlived, partition
from fad.extend.types import Array, PyTree
from fad.torch.checks import Outside, first_run, struct_of_tensor, watched
from fad.torch.flat_operations import FlatOperation, MadeOnce, flattened, spread
from fad.torch.memory import TorchTensor, as_numpy, in_words, lent, listed, load, noted, taken

# Numbers are given as tensors without dimensions.
OPERANDS = (Tensor, jax.Array, np.ndarray, np.generic, float, complex)


def from_torch(f: Callable[..., PyTree], *, parameters: bool = False) -> PyTree:
    """A function of PyTorch as a function of fad, under every transform of fad and of JAX.

    PyTorch computes it, and its derivatives and batches by ``torch.func``, to any order. Called plainly it
    reads the memory of its arguments, and its results become Tensors, without copies on the CPU; compiled
    code (`fad.jit`, ``jax.jit``) calls back to Python, and the results are copied.

    ``f`` must be pure: no random numbers, and nothing written to its arguments or to what it reads from
    outside. Tensors that it reads from outside, such as the parameters of a module, are constants; with
    ``parameters`` they are an argument.

    Arguments:
        f: a ``torch.nn.Module``, or a function, of pytrees of ``torch.Tensor``. It is given arrays,
            Tensors, and Python's floats and complex numbers as tensors of the same shape and dtype, and
            integers and what else is no array as they are. It returns a pytree of tensors, in which None may
            stand.
        parameters: make the parameters of the module, those that require grad, the first argument.

    Returns:
        A function that takes Tensors and arrays; Tensors come out if one goes in. With ``parameters``, a
        pair: a function of ``(values, *args)``, and the values, a dict from names to copies as Tensors, as
        ``torch.func.functional_call`` takes it.

    Raises:
        ImportError: PyTorch is not installed.
        RuleError: f draws random numbers, or writes to what is not its own.
        ArgumentError: f is not a function, an argument is a ``torch.Tensor`` or of a dtype that PyTorch does
            not have, a result is not a dense tensor, or f reads a tensor of inference mode from outside.
        StructureError: what f returns has other shapes, for arguments of the same shapes.
        GradientError: a tensor that f reads from outside was written to between the call and its derivative.
        HostValueError: f reads numbers, and is compiled before its first call.

    Source: ``torch.func.vjp``, ``torch.func.jvp``, ``torch.func.vmap``, ``torch.func.functional_call``.

    >>> import fad, torch
    >>> f = fad.from_torch(lambda x: torch.sin(x) ** 2)
    >>> float(fad.grad(fad.grad(f))(0.0))
    2.0
    """
    load()
    if not callable(f):
        raise ArgumentError(f"from_torch: the first argument must be a function, got {describe(f)}")
    return _functional(f) if parameters else _wrapped(f, f)


def _wrapped(f: Callable[..., PyTree], of: Any) -> Callable[..., PyTree]:
    """``f``, which reads the tensors of ``of``, as a function of fad."""
    name = getattr(of, "__name__", type(of).__name__)
    calls: MadeOnce[tuple[type[Function], Callable[..., PyTree]]] = MadeOnce()

    @functools.wraps(f, updated=())
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        operands, rest = partition((args, kwargs), OPERANDS, ordered=True)
        for x in rest.statics():
            _check(x, name)
        arrays = list(map(_array, operands))
        structs = tuple([_struct(x, name) for x in arrays])

        def make() -> tuple[type[Function], Callable[..., PyTree]]:
            who, of_torch = f"from_torch({name})", load().Tensor
            expected = (
                f"{who}: the function must return tensors, alone or in tuples, lists and dicts"
            )
            fn, result = flattened(f, rest, of_torch, expected, "torch.as_tensor(...)")
            return _first_called(name, of, fn, arrays, structs), result

        function, result = calls.get((rest, structs), make)
        return result(function.apply(*arrays))

    return wrapped


def _functional(module: Any) -> tuple[Callable[..., PyTree], dict[str, Tensor]]:
    """A module as a function of its parameters, and their values."""
    torch = load()
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(
            f"from_torch: parameters=True needs a torch.nn.Module, got {describe(module)}: write a function "
            "that takes what it depends on as arguments"
        )

    def call(values: dict[str, TorchTensor], *args: PyTree, **kwargs: PyTree) -> PyTree:
        return torch.func.functional_call(module, values, args, kwargs)

    trained = {k: p for k, p in module.named_parameters() if p.requires_grad}
    start = {k: taken([p], [p], None, [struct_of_tensor(p)], k)[0] for k, p in trained.items()}
    return _wrapped(call, module), enter(start)


def _array(x: object) -> PyTree:
    """An argument as a Tensor or an array of JAX."""
    x = outlived(x)
    if isinstance(x, (Tensor, jax.Array)):
        return x
    return jnp.asarray(np.array(x) if isinstance(x, np.ndarray) else x)  # NumPy copies at once


def _struct(x: PyTree, name: str) -> jax.ShapeDtypeStruct:
    if not isinstance(x.dtype, np.dtype):
        raise ArgumentError(
            f"from_torch({name}): PyTorch cannot have {describe(x)}: write jax.random.key_data(x)"
        )
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _check(x: object, name: str) -> None:
    """Refuse what is neither an array nor static."""
    if isinstance(x, load().Tensor):
        raise ArgumentError(
            f"from_torch({name}): an argument is a torch.Tensor ({in_words(x)}): the result is a function of "
            "arrays; write fad.from_dlpack(x.detach())"
        )
    try:
        hash(x)
    except TypeError:
        raise ArgumentError(
            f"from_torch({name}): an argument that is no array must be hashable, got {describe(x)}"
        ) from None


def _first_called(
    name: str,
    of: object,
    fn: Callable[..., tuple[TorchTensor, ...]],
    arrays: Sequence[Array],
    structs: Sequence[jax.ShapeDtypeStruct],
) -> type[Function]:
    """The Function for ``fn`` of arguments of these shapes and dtypes, by a first run with them."""
    torch, values = load(), _concrete(arrays)
    with torch.inference_mode(False), noted(f"from_torch({name})", structs):
        tensors = None if values is None else [lent(x, name) for x in values]
        outs, read = first_run(fn, tensors, structs, name)
    operation = FlatOperation(name, fn, torch.func, structs, [struct_of_tensor(t) for t in outs])
    return _function(operation, Outside(of, read, name))


def _concrete(arrays: Sequence[Array]) -> list[Array] | None:
    """The values of the arguments, None if they have none under ``vmap`` or a trace."""
    try:
        values = list(map(_value, arrays))
    except HostValueError:
        return None
    return None if any([isinstance(x, jax.core.Tracer) for x in values]) else values


def _value(x: Tensor | Array) -> PyTree:
    return x.array if isinstance(x, Tensor) else x


def _function(operation: FlatOperation, outside: Outside) -> type[Function]:
    """The Function whose forward is the operation, and whose rules are those derived from it."""
    before: type[Function] | None = operation.function
    if before is not None:
        return before

    def forward(*tensors: Tensor) -> PyTree:
        values = list(map(_value, tensors))
        if any([isinstance(x, jax.core.Tracer) for x in values]):
            host = functools.partial(_called_back, operation, outside)
            return tuple(jax.pure_callback(host, operation.results, *values))
        return tuple(enter(_called(operation, outside, values)))

    def setup_context(ctx: FunctionCtx, inputs: PyTree, output: PyTree) -> None:
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        ctx.versions = outside.versions()

    def vjp(ctx: FunctionCtx, *cotangents: Tensor) -> PyTree:
        outside.check_unchanged(ctx.versions, operation.name)
        need = tuple(ctx.needs_input_grad)
        have = tuple([g is not None for g in cotangents])
        if not any(have) or not any(need):
            return (None,) * len(need)
        pull = _function(operation.vjp(need, have), outside)
        present = [g for g in cotangents if g is not None]
        return tuple(spread(need, pull.apply(*ctx.saved_tensors, *present)))

    def jvp(ctx: FunctionCtx, *tangents: Tensor) -> PyTree:
        outside.check_unchanged(ctx.versions, operation.name)
        mask = tuple([t is not None for t in tangents])
        push = _function(operation.jvp(mask), outside)
        present = [t for t in tangents if t is not None]
        return tuple(spread(operation.differentiable, push.apply(*ctx.saved_tensors, *present)))

    def vmap(info: PyTree, in_dims: PyTree, *tensors: Tensor) -> PyTree:
        lanes = operation.batched(in_dims, info.batch_size, info.randomness)
        return _function(lanes, outside).apply(*tensors), (0,) * len(operation.results)

    rules = (forward, setup_context, vjp, jvp, vmap)
    members = {rule.__name__: staticmethod(rule) for rule in rules}
    made = operation.function = type(operation.name, (Function,), members)
    return made


# Calls on the host


def _called(operation: FlatOperation, outside: Outside, values: Sequence[Array]) -> list[jax.Array]:
    tensors, outs = _computed(operation, outside, values)
    others = [*tensors, *outside.tensors]
    return taken(outs, others, values[0] if values else None, operation.results, operation.name)


def _called_back(operation: FlatOperation, outside: Outside, *values: Array) -> list[np.ndarray]:
    """What compiled code calls; its results are copied by JAX."""
    _, outs = _computed(operation, outside, values)
    pairs = zip(outs, operation.results, strict=True)
    return [as_numpy(t, struct.dtype, operation.name) for t, struct in pairs]


def _computed(
    operation: FlatOperation, outside: Outside, values: Sequence[Array]
) -> tuple[list[TorchTensor], tuple[TorchTensor, ...]]:
    """The arguments and the results of the operation as tensors."""
    name = operation.name
    torch, who = load(), f"from_torch({name})"
    # PyTorch keeps what a derivative needs only where gradients are enabled.
    with torch.inference_mode(False), torch.set_grad_enabled(operation.derived):
        tensors = [lent(x, name) for x in values]
        with noted(who, operation.arguments), watched(name, tensors, outside):
            outs = operation.fn(*tensors)
    results = [struct_of_tensor(t) for t in outs]
    if tuple(results) != operation.results:
        raise StructureError(
            f"from_torch({name}): the function returned {listed(results)}, and for arguments of the same "
            f"shapes it returned {listed(operation.results)} before: shapes must not depend on numbers"
        )
    return tensors, outs
