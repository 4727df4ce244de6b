"""A program that runs in PyTorch and in fad alike: the library as it sees it, and the log that is compared.

A program is written once, against a small `Library`; what it logs (values, names, orders, error
classes and phrases) is compared. Values are compared as numbers, node names as names of operations.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")
pytest.importorskip("torch.utils.checkpoint")  # not a part of `import torch`

# What a recorded operation is called in the log, from its name in either library.
NAMES = {
    "MulBackward0": "multiply",
    "MultiplyBackward": "multiply",
    "AddBackward0": "add",
    "AddBackward": "add",
    "ExpBackward0": "exp",
    "ExpBackward": "exp",
    "SinBackward0": "sin",
    "SinBackward": "sin",
    "SumBackward0": "sum",
    "SumBackward": "sum",
    "SqrtBackward0": "sqrt",
    "SqrtBackward": "sqrt",
    "SplitBackward0": "split",
    "SplitBackward": "split",
    "AccumulateGrad": "accumulate",
    "torch::autograd::AccumulateGrad": "accumulate",
    "ToCopyBackward0": "copy",
    "CopyBackwards": "copy",
    "ScaleBackward": "Scale",
}


class Library:
    """One of the two libraries, as programs see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_torch = name == "torch"
        self.np: Any = torch if self.is_torch else fnp
        self.lib: Any = torch if self.is_torch else fad
        self.autograd: Any = torch.autograd if self.is_torch else fad.autograd
        self.graph: Any = torch.autograd.graph if self.is_torch else fad.autograd
        self.backward = self.autograd.backward
        self.grad = self.autograd.grad
        self.Function: Any = torch.autograd.Function if self.is_torch else fad.Function
        self.once_differentiable = (
            torch.autograd.function if self.is_torch else fad.autograd
        ).once_differentiable
        self.forward_ad: Any = torch.autograd.forward_ad if self.is_torch else fad
        self.func: Any = torch.func if self.is_torch else fad.func
        self.functional: Any = self.autograd.functional
        self.gradcheck: Any = self.autograd.gradcheck
        self.gradgradcheck: Any = self.autograd.gradgradcheck
        for op in "exp sin sqrt".split():
            setattr(self, op, getattr(self.np, op))
        for mode in "no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled".split():
            setattr(self, mode, getattr(self.lib, mode))
        self.edge = self.graph.get_gradient_edge

    def tensor(self, data: Any, requires_grad: bool = False) -> Any:
        if self.is_torch:
            return torch.tensor(data, requires_grad=requires_grad)
        return fad.tensor(data, requires_grad=requires_grad)

    def var(self, data: Any) -> Any:
        """A leaf that requires grad."""
        return self.tensor(data, requires_grad=True)

    def double(self, data: Any) -> Any:
        """A value whose dtype is not that of the rest."""
        if self.is_torch:
            return torch.tensor(data, dtype=torch.float16)
        return fad.tensor(data, dtype=jnp.float16)

    def halves(self, x: Any) -> Any:
        """Two halves of a vector, from one node."""
        return torch.split(x, x.shape[0] // 2) if self.is_torch else fnp.split(x, 2)

    def checkpoint(self, f: Callable[..., Any], *args: Any) -> Any:
        """The result of a checkpointed call."""
        if self.is_torch:
            return torch.utils.checkpoint.checkpoint(f, *args, use_reentrant=False)
        return fad.checkpoint(f)(*args)

    def queue(self, callback: Callable[[], None]) -> None:
        if self.is_torch:
            torch.autograd.Variable._execution_engine.queue_callback(callback)
        else:
            fad.autograd.queue_callback(callback)

    def set_sequence_nr(self, node: Any, nr: int) -> None:
        if self.is_torch:
            node._set_sequence_nr(nr)
        else:
            node.sequence_nr = nr

    def sequence_nr(self, node: Any) -> int:
        return node._sequence_nr() if self.is_torch else node.sequence_nr

    def accumulator(self, leaf: Any) -> Any:
        """The AccumulateGrad node of a leaf."""
        return (leaf * 1.0).grad_fn.next_functions[0][0]

    def write(self, x: Any) -> None:
        """An in-place change."""
        with (torch if self.is_torch else fad).no_grad():
            x += 1.0

    def version(self, x: Any) -> int:
        return x._version if self.is_torch else x.version

    @contextlib.contextmanager
    def warnings(self) -> Iterator[list[str]]:
        """The first words of the warnings that come."""
        found: list[str] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
        found += [str(w.message).partition(".grad a")[0] + w.category.__name__ for w in caught]

    def op(self, node: Any) -> str | None:
        return None if node is None else NAMES[node.name()]


class Log(list):
    """What a program tells, in plain Python values."""

    def __init__(self, lib: Library) -> None:
        super().__init__()
        self.lib = lib

    def __call__(self, *items: Any) -> None:
        self.append(plain(items[0] if len(items) == 1 else items))

    def hook(self, name: Any, result: Any = None) -> Callable[..., Any]:
        """A hook that logs its name and what it got, and returns ``result``, or ``result(g)``."""

        def hook(*args: Any) -> Any:
            self(name, *args)
            return result(*args) if callable(result) else result

        return hook

    @contextlib.contextmanager
    def raises(self, phrase: str = "", caught: tuple[()] | type[Exception] = ()) -> Iterator[None]:
        """Log the builtin class of the exception that must come; its text must contain the phrase.

        ``caught``: the class to log where it is one of several that the exception is of.
        """
        try:
            yield
        except Exception as error:
            kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
            if isinstance(error, caught):
                kind = caught
            text = f"{error}"
            assert phrase.lower() in text.lower(), f"{self.lib.name} says {text!r}, not {phrase!r}"
            self("raises", kind.__name__, phrase)
        else:
            self("raises nothing", phrase)


def plain(x: Any) -> Any:
    if isinstance(x, (str, int, type(None))):
        return x
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (fad.Tensor, torch.Tensor)):
        return x.detach().tolist()
    return x.tolist() if isinstance(x, np.ndarray) else x


def same(a: Any, b: Any, tolerance: float = 1e-5) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k], tolerance) for k in a)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance / 10.0)
    return type(a) is type(b) and a == b


TORCH, FAD = Library("torch"), Library("fad")


def story(lib: Library, f: Callable[[Any, Any], None]) -> Log:
    log = Log(lib)
    f(lib, log)
    return log


def compare(program: Callable[[Any, Any], None]) -> None:
    """Fail where the two libraries tell different stories."""
    expected, got = story(TORCH, program), story(FAD, program)
    if not same(list(expected), list(got)):
        lines = "\n".join(f"torch {a!r}\nfad   {b!r}" for a, b in zip(expected, got))
        pytest.fail(f"{len(expected)} and {len(got)} entries\n{lines}", pytrace=False)
    assert len(got) > 0, "the program logs nothing"
