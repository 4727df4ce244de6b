"""The reading path: each call that ``fad.grad(fad.numpy.sin)(x)`` makes inside of fad, in order.

    python -m benchmarks.reading_path

Replay is off, and the call is a second one: what is made once for a function or a shape has been made. These
are the functions that docs/how-a-call-travels.md follows; their number and that of their modules are bounded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import jax.numpy as jnp

import fad
import fad.numpy as fnp

__all__ = ["CALLS", "MODULES", "Step", "calls_of", "path"]

CALLS = 60
MODULES = 10
COMPREHENSIONS = (
    "<listcomp>",
    "<dictcomp>",
    "<setcomp>",
    "<genexpr>",
)  # no calls, from Python 3.12 on
PACKAGE = str(Path(fad.__file__).parent)


class Step(NamedTuple):
    """A call: how deep it is in others, the module, the function, and the line at which it is defined."""

    depth: int
    module: str
    function: str
    line: int


def calls_of(f: Callable[[], Any]) -> list[Step]:
    """The calls of functions of fad that ``f`` makes, in order."""
    found: list[Step] = []
    depth = 0

    def is_own(code: CodeType) -> bool:
        return code.co_filename.startswith(PACKAGE)

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if not is_own(code) or code.co_name in COMPREHENSIONS:
            return
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            found.append(Step(depth, module, code.co_qualname, code.co_firstlineno))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(look)
    try:
        f()
    finally:
        sys.setprofile(None)
    return found


def path() -> list[Step]:
    """The reading path."""
    x = jnp.asarray(0.5)
    slope = fad.grad(fnp.sin)
    with fad.autograd.compiled(False):
        for _ in range(2):
            slope(x)
        return calls_of(lambda: slope(x))


def main() -> int:
    steps = path()
    for step in steps:
        print(f"{'  ' * step.depth}{step.function}  ({step.module}:{step.line})")
    modules = {s.module for s in steps}
    print(f"{len(steps)} calls of {len({(s.module, s.line) for s in steps})} functions ", end="")
    print(f"in {len(modules)} modules: {', '.join(sorted(modules))}")
    return 0 if len(steps) <= CALLS and len(modules) <= MODULES else 1


if __name__ == "__main__":
    sys.exit(main())
