"""A program for PyTorch, as it stands, and the same with its imports renamed for fad.

A program is a function that imports what it uses. Nothing but its import statements is changed.
Both run in double precision.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fad

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

__all__ = ["Numbers", "compare", "renamed"]

Program = Callable[["Numbers"], Any]

# `from torch import sin` is a name of fad.numpy; `import torch` is `import fad as torch`, for all the others.
FROM = {
    "torch": "fad.numpy",
    "torch.linalg": "fad.numpy.linalg",
    "torch.nn": "torch_layers",
    "torch.nn.functional": "torch_layers",
}


def module_in_fad(name: str) -> str:
    return FROM.get(name) or name.replace("torch", "fad", 1)


class _Renamed(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        assert node.module is not None
        if node.module.split(".")[0] == "torch":
            node.module = module_in_fad(node.module)
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            if alias.name == "torch":
                alias.name, alias.asname = "fad", "torch"
            elif alias.name.startswith("torch."):
                assert alias.asname is not None, "import torch.x as y"
                alias.name = module_in_fad(alias.name)
        return node


def renamed(program: Program) -> Program:
    """The same program for fad."""
    lines, first = inspect.getsourcelines(program)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    space: dict[str, Any] = {"Any": Any}
    exec(compile(_Renamed().visit(tree), inspect.getfile(program), "exec"), space)
    return space[program.__name__]


class Numbers:
    """Tensors of one library, with the same numbers in either."""

    def __init__(self, tensor: Callable[..., Any]) -> None:
        self.tensor = tensor
        self.draws = np.random.default_rng(0)

    def normal(self, *shape: int, requires_grad: bool = False) -> Any:
        return self.tensor(self.draws.normal(size=shape), requires_grad=requires_grad)

    def uniform(self, *shape: int, requires_grad: bool = False) -> Any:
        return self.tensor(self.draws.uniform(size=shape), requires_grad=requires_grad)

    def integers(self, high: int, *shape: int) -> Any:
        return self.tensor(self.draws.integers(high, size=shape))

    def fill(self, module: Any) -> Any:
        """Give the parameters of a module values."""
        for x in module.parameters():
            x.detach().copy_(0.5 * self.normal(*x.shape))
        return module


def flat(x: Any, path: str = "") -> dict[str, Any]:
    """What a program gives: numbers, arrays and texts, by their place."""
    if isinstance(x, dict):
        return {k: v for name, y in x.items() for k, v in flat(y, f"{path}/{name}").items()}
    if isinstance(x, (list, tuple)):
        return flat(dict(enumerate(x)), path)
    return {path: np.asarray(x.detach().tolist()) if hasattr(x, "detach") else x}


def compare(program: Program) -> None:
    """Fail where the program gives something else in fad than in PyTorch."""
    torch.set_default_dtype(torch.float64)
    try:
        expected = flat(program(Numbers(torch.tensor)))
    finally:
        torch.set_default_dtype(torch.float32)
    with jax.enable_x64(True):
        got = flat(renamed(program)(Numbers(fad.tensor)))
    assert list(got) == list(expected)
    assert expected, "the program gives nothing"
    for path, a in expected.items():
        b = got[path]
        if isinstance(a, (str, bool, int, type(None))):
            assert a == b, path
        else:
            np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9, err_msg=path)
