"""What a function of PyTorch does besides computing: a first run that finds it, and checks at each call.

NOTE [the first run of a function of PyTorch]

A function is called again for each derivative, maybe by compiled code, on the memory of immutable arrays. So
it has to be pure: no random numbers, nothing written to its arguments or to tensors that it reads from
outside, as batch normalization does with its statistics. A first run for arguments of certain shapes looks
at each operation below autograd, where all of them can be seen. It computes without numbers (with fake
tensors), so nothing is written, and what the results look like is known before the first call. A function
that reads numbers, to branch on them, cannot run so: it runs on copies of its arguments, if these have
numbers.

Each later call compares what costs nothing to read: the versions of the tensors that may not be written to,
and the state of the random numbers.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from fad.errors import ArgumentError, GradientError, HostValueError, RuleError, say_too
from fad.extend.types import Array, PyTree
from fad.torch.memory import TorchTensor, dtype_of, in_words, load

BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "batch_norm")
TRAINING = 5  # the position of this argument in all of them


class Outside:
    """The tensors that a function reads and was not given: parameters, buffers, what it closes over.

    Raises:
        ArgumentError: there is one of inference mode among them.
    """

    __slots__ = ("tensors",)

    def __init__(self, f: Any, read: Sequence[TorchTensor], name: str) -> None:
        of_module = [*f.parameters(), *f.buffers()] if _is_module(f) else []
        listed = {id(t) for t in of_module}
        self.tensors = [*of_module, *[t for t in read if id(t) not in listed]]
        for t in self.tensors:
            if t.is_inference():
                raise ArgumentError(
                    f"from_torch({name}): the function reads a tensor of inference mode from outside "
                    f"({in_words(t)}), which has no derivatives, and whose changes PyTorch does not count: "
                    "make it outside of torch.inference_mode(), or take t.clone() there"
                )

    def versions(self) -> int:
        """A number that grows with each write in place to one of them."""
        return sum([t._version for t in self.tensors])

    def check_unchanged(self, versions: int, name: str) -> None:
        """Refuse a derivative of a call that was made with other parameters."""
        if self.versions() != versions:
            raise GradientError(
                f"from_torch({name}): a tensor that the function reads from outside was changed in place "
                "between the call and its derivative, by an optimizer perhaps, and the derivative would be "
                "that of another function: take the derivative first, or make the parameters an argument, "
                "from_torch(module, parameters=True)"
            )


def _is_module(f: object) -> bool:
    return isinstance(f, load().nn.Module)


def first_run(
    f: Callable[..., tuple[TorchTensor, ...]],
    tensors: Sequence[TorchTensor] | None,
    structs: Sequence[jax.ShapeDtypeStruct],
    name: str,
) -> tuple[tuple[TorchTensor, ...], list[TorchTensor]]:
    """Run ``f`` for what it returns and reads, see NOTE [the first run of a function of PyTorch].

    Arguments:
        f: a function of flat tensors.
        tensors: the arguments, None where they have no numbers.
        structs: the shapes and dtypes of the arguments.
        name: the name of the function, for errors.

    Returns:
        The results, and the tensors that f reads from outside.

    Raises:
        RuleError: f draws random numbers, or writes to what is not its own.
        HostValueError: f needs numbers, and there are none.
    """
    torch = load()
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode:
            empty = [torch.empty(s.shape, dtype=getattr(torch, s.dtype.name)) for s in structs]
            return _observed(f, empty, name)
    except RuleError:
        raise
    except Exception as error:  # of any kind: a run with numbers raises it again, or succeeds
        if tensors is None:
            expected = (*_without_numbers(fake), NotImplementedError, HostValueError)
            if not isinstance(error, expected):
                say_too(
                    error,
                    "in a first run without numbers, under jit or vmap; a call outside of them has numbers",
                )
                raise
            raise HostValueError(
                f"from_torch({name}) reads numbers, so what it returns is not known before it runs, and "
                "under jit or vmap there are none yet: call it once outside of jit and vmap with arguments "
                f"of these shapes. ({error})"
            ) from error
    return _observed(f, [t.clone() for t in tensors], name)


def _without_numbers(fake: TorchTensor) -> tuple[TorchTensor, ...]:
    """What a branch on a number, or an operation that does not know fake tensors, raises."""
    branches = (fake.DataDependentOutputException, fake.DynamicOutputShapeException)
    return (*branches, fake.UnsupportedOperatorException, fake.UnsupportedFakeTensorException)


def _observed(
    f: Callable[..., tuple[TorchTensor, ...]], arguments: Sequence[Array], name: str
) -> tuple[tuple[TorchTensor, ...], list[TorchTensor]]:
    observer = _observer()(name, arguments)
    with load().no_grad(), observer:
        outs = f(*arguments)
    for t in outs:
        observer.note(t)  # a parameter that is returned as it is
    return outs, list(observer.outside.values())


@functools.cache
def _observer() -> type[Any]:
    """The class of the mode that sees each operation; it is made when PyTorch is there."""
    dispatch = importlib.import_module("torch.utils._python_dispatch")
    tree = importlib.import_module("torch.utils._pytree")
    torch = load()

    class TorchObserver(dispatch.TorchDispatchMode):  # type: ignore[misc,name-defined]
        """Refuses random numbers and writes; notes which tensors come from outside."""

        def __init__(self, name: str, arguments: Sequence[TorchTensor]) -> None:
            super().__init__()
            self.name = name
            self.arguments = {id(t): k for k, t in enumerate(arguments)}
            self.made: dict[int, TorchTensor] = {}  # what has been computed in the run, kept alive
            self.outside: dict[int, TorchTensor] = {}
            self.views: dict[int, tuple[TorchTensor, str]] = {}  # of what is not the function's own

        def __torch_dispatch__(
            self, func: PyTree, types: object, args: PyTree = (), kwargs: PyTree = None
        ) -> PyTree:
            kwargs = kwargs or {}
            if torch.Tag.nondeterministic_seeded in func.tags:
                raise RuleError(_random(self.name, str(func)))
            for t in tree.tree_leaves((args, kwargs)):
                if isinstance(t, torch.Tensor):
                    self.note(t)
            written = self._written(func, args, kwargs)
            if written is not None:
                raise RuleError(_writes(self.name, written, str(func)))
            out = func(*args, **kwargs)
            source = self._viewed(func, args)
            for t in tree.tree_leaves(out):
                if isinstance(t, torch.Tensor):
                    if source is None:
                        self.made[id(t)] = t
                    elif id(t) not in self.arguments and id(t) not in self.outside:
                        self.views[id(t)] = (t, source)
            return out

        def note(self, t: TorchTensor) -> None:
            """Note that ``t`` was read, if it comes from outside."""
            if not any([id(t) in table for table in (self.made, self.arguments, self.views)]):
                self.outside[id(t)] = t

        def _own(self, t: TorchTensor) -> bool:
            return id(t) in self.made

        def _what(self, t: TorchTensor) -> str:
            """Which tensor of others ``t`` is, in words."""
            if id(t) in self.views:
                return self.views[id(t)][1]
            if id(t) in self.arguments:
                return f"its argument {self.arguments[id(t)]} ({in_words(t)})"
            return f"a tensor from outside ({in_words(t)})"

        def _viewed(self, func: PyTree, args: PyTree) -> str | None:
            """What others have that the result of ``func`` shares memory with."""
            schema = func._schema
            if not any([r.alias_info is not None for r in schema.returns]):
                return None
            for argument, value in zip(schema.arguments, args):
                if argument.alias_info is not None:
                    for t in tree.tree_leaves(value):
                        if isinstance(t, torch.Tensor) and not self._own(t):
                            return self._what(t)
            return None

        def _written(self, func: PyTree, args: PyTree, kwargs: PyTree) -> str | None:
            """What others have that ``func`` writes to."""
            schema = func._schema
            values = dict(zip([a.name for a in schema.arguments], args)) | kwargs
            if schema.name.partition("::")[2] in BATCH_NORMS:
                mean = values.get("running_mean")
                if len(args) > TRAINING and args[TRAINING] is True and mean is not None:
                    return self._what(mean) + ", its statistics"
            for argument in schema.arguments:
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for t in tree.tree_leaves(values.get(argument.name)):
                        if isinstance(t, torch.Tensor) and not self._own(t):
                            return self._what(t)
            return None

    return TorchObserver


def _random(name: str, operation: str) -> str:
    return (
        f"from_torch({name}) draws random numbers ({operation}): a derivative calls the function again, "
        "and would get others. Call module.eval() where dropout draws them, or draw with fad.random and "
        "pass what was drawn as an argument"
    )


def _writes(name: str, what: str, operation: str) -> str:
    return (
        f"from_torch({name}) writes in place to {what} ({operation}): arrays of JAX never change, and a "
        "derivative calls the function again. Write x = x.clone() before x.add_(...), return what changes "
        "as a result, and call module.eval() where batch normalization keeps statistics"
    )


@contextmanager
def watched(name: str, tensors: Sequence[TorchTensor], outside: Outside) -> Iterator[None]:
    """Around a call: checks that nothing was written to, and that no random numbers were drawn."""
    generator = load().default_generator
    state = generator.get_state()
    before = outside.versions()
    versions = [t._version for t in tensors]
    yield
    if not load().equal(generator.get_state(), state):
        generator.set_state(state)
        raise RuleError(_random(name, "in this call, not in the first one"))
    for k, (t, version) in enumerate(zip(tensors, versions, strict=True)):
        if t._version != version:
            raise RuleError(_writes(name, f"its argument {k} ({in_words(t)})", "in this call"))
    if outside.versions() != before:
        raise RuleError(_writes(name, "a tensor from outside", "in this call"))


def struct_of_tensor(t: TorchTensor) -> jax.ShapeDtypeStruct:
    """The shape of ``t``, and the dtype in which JAX has it."""
    return jax.ShapeDtypeStruct(tuple(t.shape), jax.dtypes.canonicalize_dtype(dtype_of(t)))
