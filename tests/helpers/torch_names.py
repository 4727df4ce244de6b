"""Goes through names of PyTorch, NumPy and JAX, and prints those without a counterpart in fad.

    python tests/helpers/torch_names.py

The reasons are in two tables of docs/pytorch-names.md, "Names that fad does not have" and "Names by
group".
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import numpy as np

import fad

# PyTorch's modules, and fad's.
MODULES = {
    "torch.autograd": "fad.autograd",
    "torch.autograd.graph": "fad.autograd.graph",
    "torch.autograd.forward_ad": "fad.autograd.forward_ad",
    "torch.autograd.function": "fad.autograd.function",
    "torch.autograd.functional": "fad.autograd.functional",
    "torch.autograd.grad_mode": "fad.autograd.grad_mode",
    "torch.func": "fad.func",
}
# Submodules, and what a module has without listing it.
UNLISTED = {
    "torch.autograd": ["SavedTensor", "forward_ad", "function", "functional", "grad_mode", "graph"],
}
# The members of torch.Tensor that are part of autograd.
MEMBER = re.compile(
    "grad|hook|leaf|detach|backward|version|output_nr|is_inference|^_base$|is_view|^name$|^data$|^clone$"
)
# Where fad has another name: those with an underscore are private in PyTorch.
RENAMED = {
    "_base": "base",
    "_grad": "grad",
    "_grad_fn": "grad_fn",
    "_version": "version",
}


def listed(module: Any) -> list[str]:
    """The public names of a module: those in ``__all__``, or those that do not start with an underscore."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            n
            for n, x in vars(module).items()
            if not n.startswith("_") and not isinstance(x, ModuleType)
        ]
    return sorted({*names, *UNLISTED.get(module.__name__, [])})


def missing() -> Iterator[str]:
    """PyTorch's names that fad does not have, with their modules."""
    for theirs, ours in MODULES.items():
        module = importlib.import_module(ours)
        for name in listed(importlib.import_module(theirs)):
            if not hasattr(module, name):
                yield f"{theirs}.{name}"
    tensor: Any = importlib.import_module("torch").Tensor
    for name in sorted(dir(tensor)):
        is_member = MEMBER.search(name) and not name.startswith("__")
        if is_member and not hasattr(fad.Tensor, RENAMED.get(name, name)):
            yield f"torch.Tensor.{name}"


def missing_elsewhere() -> Iterator[str]:
    """Names of all of torch.Tensor, and of the top levels of NumPy and JAX, that fad does not have.

    Those of autograd are in `missing`. NumPy's are looked for in fad.numpy too, JAX's at the top of fad.
    """
    tensor: Any = importlib.import_module("torch").Tensor
    for name in sorted(dir(tensor)):
        if not name.startswith("_") and not MEMBER.search(name) and not hasattr(fad.Tensor, name):
            yield f"torch.Tensor.{name}"
    for name in sorted(np.__all__):
        if not hasattr(fad.numpy, name) and not hasattr(fad, name):
            yield f"numpy.{name}"
    for name in sorted(dir(jax)):
        if inspect.ismodule(getattr(jax, name)):
            continue  # which there are depends on what else was imported
        if not name.startswith("_") and not hasattr(fad, name):
            yield f"jax.{name}"


if __name__ == "__main__":
    print("\n".join([*missing(), *missing_elsewhere()]))
