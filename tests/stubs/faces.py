"""Writes the stubs of the modules whose names stand in tables, such as fad/__init__.pyi.

A name whose types are not in ``by_hand`` has those of the module that the table names.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.stubs.stubs import BY_HAND, ROOT, written

__all__ = ["FACES", "face_path", "face_stub"]

FACES = (
    "fad",
    "fad.autograd",
    "fad.autograd.forward_ad",
    "fad.autograd.function",
    "fad.autograd.grad_mode",
    "fad.autograd.graph",
    "fad.autograd.profiler",
    "fad.extend",
    "fad.func",
)


def face_path(module: str) -> Path:
    """Where the stub of a module is."""
    return ROOT.joinpath(*module.split("."), "__init__.pyi")


def face_stub(module: str) -> str:
    """The text of its stub."""
    source = importlib.import_module(module)
    file = module.rpartition(".")[2]
    path = BY_HAND / f"{file}.pyi"
    by_hand = path.read_text() if path.exists() else f'"""{source.__doc__}"""\n\n'
    names = [(n, *home) for n, home in sorted(source._face.homes.items()) if n not in written(file)]
    imports = [
        f"from {home or module} import {attribute} as {name if name == attribute else '_' + name}"
        for name, home, attribute in names
    ]
    renamed = [f"{name} = _{name}" for name, _, attribute in names if name != attribute]
    first = re.search(r"^(import|from) ", by_hand, re.MULTILINE)
    start = first.start() if first else len(by_hand)
    return "\n".join([by_hand[:start] + MADE, "", *imports, by_hand[start:], *renamed])


MADE = (
    "# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand."
)
