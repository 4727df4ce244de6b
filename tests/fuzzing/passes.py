"""Random programs whose graphs are gone through in more ways than once.

Graphs that are kept, second losses, cotangents of other dtypes, outputs that are inputs, a pass for each
output, derivatives of derivatives with another loss between: each gives at every call, compiled or not, the
bits that it gives without replay, or the same kind of error.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

import fad.numpy as fnp
from fad.autograd.compiled import compiled
from fad.core.jaxapi import x64_enabled
from fad.core.tensor import Tensor
from fad.errors import GradientError
from fad.methods.functions import asarray
from fad.testing.comparison import bare
from fad.transforms.backward import backward, grad
from fad.transforms.grad import vjp
from tests.fuzzing.comparison import difference_in_bits
from tests.fuzzing.functions import forget_late_rules
from tests.fuzzing.programs import Program
from tests.fuzzing.repeats import in_32_bits, with_bits
from tests.fuzzing.stacks import IN_FAD, inexact_leaves, leaves_of, weigh

__all__ = ["WAYS", "check_passes"]

CALLS = 5


@dataclasses.dataclass(slots=True)
class Graph:
    """A program that has been recorded: its leaves, its outputs that require grad, a cotangent for each."""

    leaves: list[Tensor]
    outs: list[Tensor]
    cts: list[Any]

    @property
    def losses(self) -> list[Tensor]:
        return [weigh(IN_FAD, o) for o in self.outs]

    def grad(self, outs: Any, cts: Any = None, **options: Any) -> Any:
        """Gradients of the leaves."""
        return grad(outs, self.leaves, cts, allow_unused=True, **options)


def _kept(g: Graph) -> Any:
    return [g.grad(g.outs, g.cts, retain_graph=k < 2) for k in range(3)]


def _each_output(g: Graph) -> Any:
    last = len(g.outs) - 1
    return [
        g.grad(o, c, retain_graph=k < last)
        for k, (o, c) in enumerate(zip(g.outs, g.cts, strict=True))
    ]


def _second_loss(g: Graph) -> Any:
    """Both from before the first pass: what the first one frees, the second one may need."""
    first, second = sum(g.losses), fnp.sum(fnp.real(g.outs[-1] * 2.0))
    backward(first)
    found = [v.grad for v in g.leaves]
    backward(second)
    return [found, [v.grad for v in g.leaves]]


def _going_on(g: Graph) -> Any:
    """Another loss of the same outputs is computed after the first pass."""
    first = weigh(IN_FAD, g.outs[:1])
    kept = first * 2.0
    backward(first)
    return [g.grad(weigh(IN_FAD, g.outs[-1])), kept]


def _from_other_dtypes(g: Graph) -> Any:
    """A cotangent of 64 bits for an output of 32, of 16 where there are no 64, and the other way round."""
    other = {"float32": "float64" if x64_enabled() else "bfloat16", "float64": "float32"}
    cts = [jnp.asarray(c, other.get(str(c.dtype), c.dtype)) for c in g.cts]
    mixed = [cts, g.cts, cts]
    return [g.grad(g.outs, c, retain_graph=k < 2) for k, c in enumerate(mixed)]


def _of_inputs(g: Graph) -> Any:
    """Outputs that are inputs, pulled back by cotangents that require grad, and further."""
    ws = [asarray(v.detach()).clone().requires_grad_() for v in g.leaves]
    _, pull = vjp(lambda *xs: [xs[0] * 2.0, *xs], *g.leaves)
    found = []
    for out in pull([ws[0], *ws]):
        for _ in range(2):
            ones = fnp.ones_like(out)
            found.append(grad(out, [*g.leaves, *ws], ones, retain_graph=True, allow_unused=True))
    return found


def _derived_again(g: Graph) -> Any:
    """A gradient is differentiated, twice, after a pass of another loss has freed its own graph."""
    first = g.grad(sum(g.losses), create_graph=True)
    others = g.grad(sum([weigh(IN_FAD, v * 0.5) for v in g.leaves]))
    pairs = [
        (a, o) for a, o in zip(first, others, strict=True) if a is not None and a.requires_grad
    ]
    if not pairs:
        return [first, others]
    roots, cts = zip(*pairs, strict=True)
    return [others, *[g.grad(roots, cts, retain_graph=True) for _ in range(2)]]


def _read_before(g: Graph) -> Any:
    """A value is read before the pass, as in most steps of training."""
    loss: Any = sum(g.losses)
    value = loss.item()
    backward(loss * 0.5)
    return [value, [v.grad for v in g.leaves], g.outs]


WAYS: dict[str, Callable[[Graph], Any]] = {
    f.__name__[1:]: f
    for f in (
        *[_kept, _each_output, _second_loss, _going_on, _from_other_dtypes],
        *[_of_inputs, _derived_again, _read_before],
    )
}


def check_passes(program: Program, x64: bool = False, ways: Sequence[str] = tuple(WAYS)) -> bool:
    """Check that passes through the graph of a program give the same bits at each call.

    Arguments:
        program: what to run; its floats are the leaves.
        x64: as for `tests.fuzzing.repeats.check_again`.
        ways: names of `WAYS`.

    Returns:
        Whether there was something to compare: some outputs depend on no leaf.

    Raises:
        AssertionError: a call differs from the same one without replay; the message says which.

    >>> check_passes(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)))
    True
    """
    program = program if x64 else in_32_bits(program)
    return with_bits(x64, lambda: all([_check(program, name) for name in ways]))


def _check(program: Program, name: str) -> bool:
    with compiled(False):
        expected = _outcome(program, name)
    if expected is None:
        return False
    for wait in (False, True):
        compiled.clear_cache()
        with compiled(wait=wait):
            for call in range(CALLS):
                got = _outcome(program, name)
                assert got is not None
                at = f"{name}, {'at once' if wait else 'in the background'}, call {call}"
                assert got[1] is expected[1], f"{at}: {got[1]}, expected {expected[1]}"
                found = difference_in_bits(got[0], expected[0])
                assert found is None, f"{at}: {found}"
                while compiled.cache_info()["queued"]:
                    time.sleep(0.001)
    return True


def _outcome(program: Program, name: str) -> tuple[Any, type[Exception] | None] | None:
    """What a way through the graph gives, or the class of its error; None if there is no graph."""
    forget_late_rules()
    x, n = program.inputs()
    leaves = [asarray(v).clone().requires_grad_() for v in leaves_of(x)]
    try:
        out = program.run(IN_FAD, leaves, n)
        outs = [o for o in inexact_leaves(out) if isinstance(o, Tensor) and o.requires_grad]
        if not outs:
            return None
        cts = [jnp.full(o.shape, 0.5 + k, o.dtype) for k, o in enumerate(outs)]
        return bare(WAYS[name](Graph(leaves, outs, cts))), None
    except GradientError as error:
        return None, type(error)
