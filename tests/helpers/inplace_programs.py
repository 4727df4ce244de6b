"""Random programs of views, writes and arithmetic, as source text that fad, PyTorch and NumPy run.

A program is a list of lines over the leaves ``a`` and ``b``; each line makes a Tensor (``v3 = v1[0]``) or
changes one in place. A NumPy run alongside tells the shapes while lines are drawn. Views of what is
contiguous are reshaped, where the memory allows that as views and elsewhere as copies; what is computed has
the order of its operands in PyTorch and NumPy, and is contiguous in fad.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LEAVES = {"a": (2, 3), "b": (3,), "c": (2, 2, 3), "z": (3,)}
COMPLEX = {"z"}
SIMPLE = ("a", "b")
REAL = ("a", "b", "c")


class Array(np.ndarray):
    """A NumPy array with the method names that fad and PyTorch share."""

    def __getitem__(self, index: Any) -> Any:
        out = super().__getitem__(index)
        if isinstance(out, np.ndarray):
            return out
        entries = index if isinstance(index, tuple) else (index,)
        return super().__getitem__((*entries, ...))  # a 0-d view, where NumPy gives a scalar

    def clone(self) -> Any:
        return self.copy()

    def detach(self) -> Any:
        return self[...]

    def expand(self, *sizes: int) -> Any:
        return np.broadcast_to(self, sizes, subok=True)

    def unbind(self, dim: int = 0) -> Any:
        return [self[i] for i in range(self.shape[0])]

    def sin_(self) -> Any:
        return np.sin(self, out=self)

    def mul_(self, other: Any) -> Any:
        return np.multiply(self, other, out=self)

    def add_(self, other: Any) -> Any:
        return np.add(self, other, out=self)

    def copy_(self, other: Any) -> Any:
        self[...] = other
        return self

    def zero_(self) -> Any:
        return self.copy_(0.0)

    def masked_fill_(self, mask: Any, value: float) -> Any:
        self[mask] = value
        return self

    grad_fn = None

    def register_hook(self, hook: Any) -> None: ...

    def retain_grad(self) -> None: ...


def owner(x: Any) -> Any:
    """The array that ``x`` is a view of, or itself."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def as_numpy(x: Any) -> Any:
    """A 0-d or larger Array."""
    return np.array(x, np.complex64 if np.iscomplexobj(x) else np.float32).view(Array)


def leaf_values(leaves: Sequence[str] = tuple(LEAVES)) -> dict[str, np.ndarray]:
    """The values of the leaves."""
    rng = np.random.default_rng(0)
    values = {n: rng.uniform(-1.0, 1.0, s).astype(np.float32) for n, s in LEAVES.items()}
    for n in COMPLEX:
        values[n] = (values[n] + 1j * values[n][::-1]).astype(np.complex64)
    return {n: values[n] for n in leaves}


def numpy_names() -> dict[str, Any]:
    """What the lines call, in NumPy."""
    return {"sin": np.sin, "double_": lambda x: x.mul_(2.0), "shift_": lambda x, y: x.add_(y * y)}


def functions(library: Any) -> dict[str, Any]:
    """What the lines call, made with ``fad`` or ``torch.autograd``: Functions that change an argument."""

    class Double(library.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2.0)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0

    class Shift(library.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            ctx.mark_dirty(x)
            return x.add_(y * y)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g, 2.0 * g * y.conj()

    return {"double_": Double.apply, "shift_": Shift.apply}


def function_of(
    lines: Sequence[str], library: Any, numpy: Any, leaves: Sequence[str] = REAL
) -> Callable[..., Any]:
    """A program as a function of its leaves: a sum over all that it makes."""

    def f(*values: Any) -> Any:
        env = dict(zip(leaves, values, strict=True)) | {"sin": numpy.sin} | functions(library)
        for line in lines:
            exec(line, {}, env)
        made = [v for n, v in env.items() if n.startswith("v")]
        return sum([(v * v).sum() * (0.3 + 0.1 * k) for k, v in enumerate(made)])

    return f


class Writer:
    """Draws the lines of one program."""

    def __init__(
        self, rng: random.Random, quiet: bool = False, leaves: Sequence[str] = tuple(LEAVES)
    ) -> None:
        self.rng = rng
        self.leaves = leaves
        self.quiet = quiet  # no lines that PyTorch may refuse, but for version errors
        self.lines: list[str] = []
        self.env: dict[str, Any] = {n: as_numpy(v) for n, v in leaf_values(leaves).items()}
        self.count = 0

    def program(self, length: int) -> list[str]:
        self.add("v0 = a.clone()")
        self.add("v1 = b * 2.0")
        self.count = 2
        for leaf in self.leaves[2:]:
            self.add(f"v{self.count} = {leaf} * 1.0")
            self.count += 1
        for _ in range(length):
            self.statement()
        return self.lines

    def add(self, line: str) -> bool:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                exec(line.replace("with no_grad(): ", ""), numpy_names(), self.env)
        except (ValueError, IndexError, TypeError, np.exceptions.ComplexWarning):
            return False
        self.lines.append(line)
        return True

    def some(self) -> str:
        names = [n for n in self.env if self.env[n].size]
        if self.quiet or self.rng.random() < 0.9:
            names = [n for n in names if n.startswith("v")]
        return self.rng.choice(names)

    def statement(self) -> None:
        kinds = ["view", "view", "write", "write", "write", "new", "set"]
        kind = self.rng.choice(kinds if self.quiet else [*kinds, "hook"])
        prefix = ""
        if not self.quiet and self.rng.random() < 0.08:
            prefix = "with no_grad(): "
        line = getattr(self, kind)()
        if kind in ("view", "new"):
            name = f"v{self.count}"
            line = f"{name} = {line}"
            if self.add(prefix + line):
                self.env[name] = np.asanyarray(self.env[name]).view(Array)
                self.count += 1
        else:
            self.add(prefix + line)

    def index(self, shape: tuple[int, ...]) -> str:
        entries = []
        for n in shape[: self.rng.randint(0, len(shape))]:
            kind = self.rng.randrange(5)
            if kind == 0 and n:
                entries.append(str(self.rng.randrange(-n, n)))
            elif kind == 1:
                entries.append(f"{self.rng.randrange(0, max(n, 1))}:")
            elif kind == 2:
                entries.append("::2")
            elif kind == 3:
                entries.append(":-1" if n > 1 else ":")
            else:
                entries.append(":")
        if self.rng.random() < 0.15:
            entries.insert(self.rng.randint(0, len(entries)), "None")
        if self.rng.random() < 0.2 or not entries:
            entries.append("...")
        return ", ".join(entries)

    def view(self) -> str:
        x = self.some()
        array = self.env[x]
        shape, ndim = array.shape, array.ndim
        options = [f"{x}[{self.index(shape)}]"] * 4
        if owner(array).flags.c_contiguous:
            options.append(f"{x}.reshape((-1,))")
            if array.size == 6:
                options += [f"{x}.reshape((3, 2))", f"{x}.reshape((2, 3))"]
            if array.size == 12:
                options += [f"{x}.reshape((3, 4))", f"{x}.reshape((2, 3, 2))"]
        if ndim == 3:
            options += [f"{x}.swapaxes(0, 2)", f"{x}.swapaxes(1, 2)", f"{x}.diagonal()"]
        if np.iscomplexobj(array):
            options += [f"{x}.real", f"{x}.imag"]
        if ndim == 2:
            options += [f"{x}.T", f"{x}.diagonal()", f"{x}.swapaxes(0, 1)"]
        if ndim >= 1:
            options.append(f"{x}.expand(2, {', '.join(map(str, shape))})")
        if ndim >= 1 and shape[0] and not self.quiet:
            options.append(f"{x}.unbind()[{self.rng.randrange(shape[0])}]")
        options.append(f"{x}.detach()")
        return self.rng.choice(options)

    def new(self) -> str:
        x, y = self.some(), self.some()
        return self.rng.choice(
            [f"{x} * {y}", f"{x} + {y}", f"sin({x})", f"{x} * 0.5", f"{x}.clone()"]
        )

    def value(self) -> str:
        y = self.some()
        return self.rng.choice([y, y, "0.5", f"{y} * 0.5", f"{y}.clone()"])

    def write(self) -> str:
        x = self.some()
        if self.quiet or self.rng.random() < 0.9:
            x = self.rng.choice([n for n in self.env if n.startswith("v")])
        return self.rng.choice(
            [
                f"{x}.mul_({self.value()})",
                f"{x}.add_({self.value()})",
                f"{x}.copy_({self.value()})",
                f"{x} += {self.value()}",
                f"{x} *= {self.value()}",
                f"{x}.sin_()",
                f"{x}.zero_()",
                f"{x}.masked_fill_({x}.detach().real > 0.2, 0.3)",
                f"double_({x})",
                f"shift_({x}, {self.like(x)})",
            ]
        )

    def like(self, x: str) -> str:
        """A Tensor of the same shape and dtype that shares no storage with it."""
        array = self.env[x]
        found = [
            n
            for n, a in self.env.items()
            if (a.shape, a.dtype) == (array.shape, array.dtype) and not np.shares_memory(a, array)
        ]
        return self.rng.choice(found) if found else f"{x}.clone()"

    def hook(self) -> str:
        x = self.some()
        what = self.rng.choice(["register_hook(lambda g: g * 2.0)", "retain_grad()"])
        return f"{x}.grad_fn, {x}.{what}"  # PyTorch 2.13 crashes at a hook of a view that is behind

    def set(self) -> str:
        x = self.rng.choice([n for n in self.env if n.startswith("v")])
        shape = self.env[x].shape
        target = f"{x}[{self.index(shape)}]"
        if shape and shape[0] > 1 and self.rng.random() < 0.2:
            target = f"{x}[[0, {shape[0] - 1}]]"
        return f"{target} {self.rng.choice(['=', '=', '+=', '*='])} {self.value()}"


def run(lines: list[str], env: dict[str, Any], error: Any) -> tuple[int, str] | None:
    """Execute a program; the number of the line at which it raised, and the message, if it did."""
    for k, line in enumerate(lines):
        try:
            exec(line, {}, env)
        except error as e:
            return k, str(e)
    return None
