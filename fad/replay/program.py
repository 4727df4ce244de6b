"""Programs: the operations of a trace as one operation.

NOTE [programs]

A program is a function of values that binds operations. Run on arrays, it is compiled: one call of
XLA. Run on Tensors, at any level, it has no rules of its own: it *expands*, that is, its
operations are bound one by one, and each level does with them what it does without replay. So
nothing that a program computes can differ from what its operations compute, its derivatives
included; inside of the program of an outer level it is part of that.

Most are compiled in the background (`fad.replay.background`). Until a program is ready its operations run one
by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from fad.core import jaxapi, trees
from fad.core.avals import struct_of
from fad.core.borrowed import borrowed, waited
from fad.core.level import bind, modes, state, with_default_state
from fad.core.observation import observable
from fad.core.types import Operand, Operation, Outputs, PyTree
from fad.replay import exact_programs
from fad.replay.background import worker
from fad.tape.graph import count_nodes, running


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Program(Operation):
    """A function of values that binds operations, and returns a pytree of values.

    Arguments:
        name: what it is called in messages.
        run: the function.
        work: how many operations it binds.

    ``in_foreground``: the calling thread compiles it. ``fresh``
    counts its operations that were new, see NOTE [first calls] in `fad.replay.policy`. ``call`` is what is
    compiled, None until then; ``refused`` says why it cannot be. ``structure`` is that of the result.
    """

    name: str
    run: Callable[..., PyTree]
    work: int
    call: Callable[..., Outputs] | None = None
    in_foreground: bool = False
    queued: bool = False
    refused: str = ""
    structure: Any = None
    fresh: int = 0

    expands = True
    deferrable = True

    @with_default_state("exact")
    def flat(self, *values: Operand) -> Outputs:
        """The leaves of the result, from operations that are run one by one, or traced; in the mode ``exact``
        so that they give the bits that they give alone.
        """
        state.replaying = False
        return self.expand(values)

    def expand(self, args: Sequence[Operand]) -> Outputs:
        """The leaves of the result, by binding its operations on Tensors."""
        leaves, self.structure = trees.flatten(self.run(*args))
        return tuple(leaves)

    def execute(self, values: Sequence[Operand]) -> Outputs:
        """Run on arrays: the leaves of the result."""
        call = self.call
        arrays = [type(v) is jaxapi.array_type for v in values]
        # Stopped: the process ends, or is a forked child, where XLA has no threads.
        if call is None or not all(arrays) or worker.stopped or not jaxapi.at_top_level():
            return self.flat(*values)
        out = call(*values)
        return waited(out, values) if borrowed else out

    def __call__(self, values: Sequence[Operand]) -> PyTree:
        """The result, at the level of these values."""
        leaves = bind(self, values)  # the first call finds the structure
        return self.structure.unflatten(leaves)

    def compile(self, avals: Sequence[Any]) -> None:
        """Compile it for arrays on the default device. The calls that it is traced with are not observed."""
        before, nodes = (running.watched, running.unwatched), count_nodes()
        running.watched = running.unwatched = True
        try:
            with modes(exact=True):
                call = exact_programs.jit_exact(self.flat, list(map(struct_of, avals)))
        except Exception as error:  # its operations, one by one, raise it again, or succeed
            self.refused = f"{type(error).__name__}: {error}"
        else:
            self.call = call
        finally:
            running.watched, running.unwatched = before
            traced = count_nodes() - nodes  # which changes `passed` too
            running.passed -= traced


observable(Program, "execute", "program")
observable(Program, "compile", "compilation")
