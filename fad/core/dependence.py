"""Which outputs of a program depend on which of its inputs, as far as derivatives go.

NOTE [what depends is decided by the graph]

Whether a result requires grad, and whether an input counts as used, is read off the program, as PyTorch reads
it off its graph; never off the numbers. A path leads from an input to an output, or none does.

* What compiled code computes (`COMPUTED`): paths lead through values of floating or complex dtype. What is
  computed of a comparison or of integers does not require grad, as in eager code.
* What a derivative computes (`READ`): paths lead through all that it reads, so comparisons too. The
  derivative of ``x * a`` in x is ``a``: there x is unused. That of ``relu`` compares x: there x is used, with
  a derivative of zero.

What is written to a Ref of JAX is read by all that uses the Ref afterwards.

A path ends at ``stop_gradient``, and where nothing was recorded (NOTE [no_grad in traced code]). A call with
rules of its own is not looked into: its outputs depend on all of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fad.core.avals import struct_of
from fad.core.collector import without_collector
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import Literal, branches, called, loop_parts, programs, scan_parts
from fad.core.jaxprs import is_ref

__all__ = ["COMPUTED", "READ", "DependenceRows", "dependence_rows"]

# For each output, for each input, whether it depends on it.
DependenceRows = tuple[tuple[bool, ...], ...]

# What is a path: see the NOTE above.
COMPUTED, READ = "computed", "read"


def dependence_rows(
    flat: Any, mask: Sequence[bool], avals: Sequence[Any], paths: str
) -> DependenceRows:
    """On which of its masked inputs each output of ``flat`` depends."""
    jaxpr = without_collector(jax.make_jaxpr(flat))(*map(struct_of, avals)).jaxpr
    found = _through(jaxpr, [m << k for k, m in enumerate(mask)], paths)
    return tuple([tuple([bool(bits >> k & 1) for k in range(len(mask))]) for bits in found])


def _through(jaxpr: Any, given: Sequence[int], paths: str) -> list[int]:
    """What the outputs of a jaxpr depend on, if its inputs depend on ``given``: each a set, as bits."""
    env: dict[Any, int] = {}

    def note(variables: Sequence[Any], bits: Sequence[int]) -> None:
        pairs = zip(variables, bits, strict=True)
        env.update([(v, b) for v, b in pairs if paths == READ or is_inexact(v.aval.dtype)])

    def read(atoms: Sequence[Any]) -> list[int]:
        return [0 if isinstance(v, Literal) else env.get(v, 0) for v in atoms]

    note(jaxpr.invars, given)
    for eqn in jaxpr.eqns:
        bits = read(eqn.invars)
        refs = [v for v in eqn.invars if is_ref(v)]
        if refs:  # what goes in may be written to each, and read from it later
            note([*refs, *eqn.outvars], [_union(bits)] * (len(refs) + len(eqn.outvars)))
        else:
            note(eqn.outvars, _equation(eqn, bits, paths))
    return read(jaxpr.outvars)


def _equation(eqn: Any, given: list[int], paths: str) -> list[int]:
    """`_through` for one equation."""
    if not any(given):
        return [0] * len(eqn.outvars)
    name = eqn.primitive.name
    closed = called(eqn)
    if closed is not None:
        return _through(closed.jaxpr, given[len(given) - len(closed.jaxpr.invars) :], paths)
    if name == "stop_gradient":
        return [0]
    if name == "fad_unrecorded":
        return [given[1] if len(given) > 1 else 0]
    if name == "optimization_barrier":
        return given
    if name in _REMATERIALIZED:
        return _through(_opened(next(programs(eqn))), given, paths)
    if name == "cond":
        found = [_through(_opened(branch), given[1:], paths) for branch in branches(eqn)]
        return [_union(bits) for bits in zip(*found, strict=True)]
    if name == "scan":
        scan = scan_parts(eqn)
        return _loop(_opened(scan.body), given, paths, scan.constants, scan.carried)
    loop = loop_parts(eqn)
    if loop is not None and len(eqn.outvars) == len(given) - loop.cond_count - loop.body_count:
        return _loop(_opened(loop.body), given[loop.cond_count :], paths, loop.body_count)
    return [_union(given)] * len(eqn.outvars)


_REMATERIALIZED = frozenset({"checkpoint", "remat", "remat2"})


def _opened(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _loop(
    body: Any, given: list[int], paths: str, constants: int, carried: int | None = None
) -> list[int]:
    """`_through` for a body that gets constants, what it carries (all the rest, if None), and elements."""
    end = len(given) if carried is None else constants + carried
    while True:
        outs = _through(body, given, paths)
        carry = [a | b for a, b in zip(given[constants:end], outs)]
        if carry == given[constants:end]:
            return [*carry, *outs[len(carry) :]]
        given = [*given[:constants], *carry, *given[end:]]


def _union(sets: Sequence[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found
