"""What a vjp read off JAX keeps: the residuals of ``jax.vjp``, sorted by what they cost.

NOTE [what a derived vjp saves]

JAX's own reverse mode is read off a jaxpr once for each Primitive, choice of differentiated inputs
and input avals: `jax.vjp` is traced, and each residual that it would keep is found to be

* an input or an output of the call: kept by reference, it costs nothing;
* an intermediate that is cheap to compute again from inputs and outputs: the equations that lead to
  it are sliced out of the forward jaxpr and become part of the vjp, where XLA fuses them;
* an intermediate behind an expensive equation (`EXPENSIVE`: factorizations, sorts, convolutions,
  loops, products): it becomes an extra output of the forward call.

Only inputs that the slices read are kept, so ``x + 1`` keeps nothing and ``exp`` keeps its output.

JAX does not differentiate an extra output that does not depend on a differentiated input, such as the
factorization of ``a`` in ``solve(a, b)``, for the derivative in ``b``. Neither does fad: ``dependence`` says
so. JAX's own rules do not always take a tangent for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from fad.core import jaxapi
from fad.core.avals import struct_of
from fad.core.collector import without_collector
from fad.core.jaxapi import Literal, is_inexact

__all__ = [
    "Dependence",
    "Residuals",
    "dependence_of_jaxpr",
    "dependence_of_jvp",
    "on_active",
    "residuals_of",
]

EXPENSIVE = frozenset(
    """approx_top_k cholesky cond conv_general_dilated custom_linear_solve custom_root
    cumlogsumexp cumprod cumsum cummax cummin dot_general eig eigh fad_call fad_linear_call fft
    geqrf hessenberg householder_product igamma igamma_grad_a io_callback linear_solve lu ormqr
    pure_callback qr ragged_dot random_bits random_gamma_grad reduce_window scan schur
    select_and_scatter select_and_scatter_add sort svd symmetric_product threefry2x32 top_k
    triangular_solve tridiagonal tridiagonal_solve while""".split()
)

Dependence = Callable[[tuple[bool, ...]], tuple[bool, ...]]


def on_active(
    flat: Callable[..., Any], values: Sequence[Any], mask: tuple[bool, ...]
) -> Callable[..., Any]:
    """``flat`` as a function of its masked arguments."""

    def on_active(*active: Any) -> Any:
        it = iter(active)
        return flat(*[next(it) if m else v for v, m in zip(values, mask, strict=True)])

    return on_active


@dataclass(slots=True)
class Residuals:
    """What ``jax.vjp`` of a function keeps, for inputs of certain avals; see the NOTE above.

    ``out_avals`` are those of the outputs, of which there is a ``single`` one or a tuple, and
    ``differentiable`` says which of them have a derivative. The pullback is the pytree ``structure``
    of the variables ``leaves``, which the equations ``eqns`` compute from ``consts`` and what is kept:
    the inputs ``inputs``, the outputs ``outputs``, and the leaves at positions ``extras`` of what
    ``closed`` returns. ``sources`` are the variables of what is kept, in that order.
    ``sparse``: there are no loops and the like in it, for which JAX 0.10 mixes up cotangents when some are
    not there.
    """

    closed: Any
    out_avals: tuple[Any, ...]
    single: bool
    differentiable: tuple[bool, ...]
    structure: Any
    leaves: list[Any]
    eqns: list[Any]
    consts: dict[Any, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    extras: tuple[int, ...]
    sources: list[Any]
    sparse: bool

    def pullback(self, kept: Sequence[Any]) -> Callable[..., Any]:
        """JAX's pullback from the values of ``sources``."""
        env = dict(self.consts)
        env.update(zip(self.sources, kept, strict=True))
        jaxapi.map_equations(self.eqns, env)
        leaves = [r.val if isinstance(r, Literal) else env[r] for r in self.leaves]
        pullback: Callable[..., Any] = jax.tree_util.tree_unflatten(self.structure, leaves)
        return pullback


def residuals_of(
    flat: Callable[..., Any],
    mask: tuple[bool, ...],
    avals: Sequence[Any],
    differentiable_outputs: Callable[[tuple[bool, ...], Sequence[Any]], tuple[bool, ...]],
) -> Residuals:
    """Trace ``jax.vjp`` of ``flat`` in its masked arguments, and sort what it keeps.

    Arguments:
        differentiable_outputs: which outputs of these avals have a derivative in the masked inputs.

    Raises:
        TypeError, ValueError, NotImplementedError: the function has no reverse mode.
    """

    def forward(*values: Any) -> Any:
        active = [v for v, m in zip(values, mask, strict=True) if m]
        out, pullback = jax.vjp(on_active(flat, values, mask), *active)
        return out, pullback

    trace = without_collector(jax.make_jaxpr(forward, return_shape=True))
    closed, shapes = trace(*map(struct_of, avals))
    if any(jaxapi.is_call(eqn) for eqn in closed.jaxpr.eqns):
        closed = _inline(closed, avals)
    out_shapes, _ = shapes
    single = type(out_shapes) is not tuple
    n_out = 1 if single else len(out_shapes)
    structure = jax.tree_util.tree_structure(shapes[1])
    jaxpr = closed.jaxpr
    outs, leaves = jaxpr.outvars[:n_out], jaxpr.outvars[n_out:]
    out_avals = tuple([v.aval for v in outs])
    differentiable = differentiable_outputs(mask, out_avals)
    if not any(differentiable):
        leaves = []

    producer = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    inputs = {v: i for i, v in enumerate(jaxpr.invars)}
    outputs: dict[Any, int] = {}
    for i, v in enumerate(outs):
        if not isinstance(v, Literal) and v not in inputs and v not in consts:
            outputs.setdefault(v, i)
    slicer = _Slicer(producer, set(inputs) | set(outputs) | set(consts))
    extras: dict[Any, int] = {}
    for i, v in enumerate(leaves):
        at_hand = isinstance(v, Literal) or v in inputs or v in outputs or v in consts
        if not at_hand and slicer.is_expensive(v):
            extras.setdefault(v, n_out + i)
        else:
            slicer.need(v)
    every = range(len(avals)) if extras else None  # to start again from, for higher derivatives
    kept_inputs = tuple(every or sorted(i for v, i in inputs.items() if v in slicer.reached))
    kept_outputs = tuple(sorted(i for v, i in outputs.items() if v in slicer.reached))
    return Residuals(
        closed=closed,
        out_avals=out_avals,
        single=single,
        differentiable=differentiable,
        structure=structure,
        leaves=leaves,
        eqns=[eqn for eqn in jaxpr.eqns if id(eqn) in slicer.kept],
        consts=consts,
        inputs=kept_inputs,
        outputs=kept_outputs,
        extras=tuple(extras.values()),
        sources=[
            *[jaxpr.invars[i] for i in kept_inputs],
            *[outs[i] for i in kept_outputs],
            *extras,
        ],
        sparse=not any(map(_has_body, jaxpr.eqns)),
    )


class _Slicer:
    """Backward slices of a jaxpr that stop at variables which are at hand."""

    def __init__(self, producer: dict[Any, Any], stops: set[Any]) -> None:
        self.producer = producer
        self.stops = stops
        self.kept: set[int] = set()
        self.reached: set[Any] = set()

    def _cone(self, var: Any) -> tuple[list[Any], set[Any]]:
        """Equations that lead to ``var``, and the stops that they read."""
        eqns: dict[int, Any] = {}
        stops: set[Any] = set()
        todo = [var]
        while todo:
            v = todo.pop()
            if isinstance(v, Literal):
                continue
            if v in self.stops:
                stops.add(v)
                continue
            eqn = self.producer[v]
            if id(eqn) not in eqns:
                eqns[id(eqn)] = eqn
                todo.extend(eqn.invars)
        return list(eqns.values()), stops

    def is_expensive(self, var: Any) -> bool:
        return any(_is_expensive(eqn) for eqn in self._cone(var)[0])

    def need(self, var: Any) -> None:
        eqns, stops = self._cone(var)
        self.kept.update(id(eqn) for eqn in eqns)
        self.reached |= stops


def _is_expensive(eqn: Any) -> bool:
    if eqn.primitive.name in EXPENSIVE:
        return True
    return any(_is_expensive(inner) for j in jaxapi.inner_jaxprs(eqn.params) for inner in j.eqns)


def _has_body(eqn: Any) -> bool:
    """Whether an equation runs code of its own: a loop, a branch, a rule."""
    return any(True for _ in jaxapi.inner_jaxprs(eqn.params)) or "custom" in eqn.primitive.name


def _inline(closed: Any, avals: Sequence[Any]) -> Any:
    """Open up nested calls, so that slices can be taken through them."""

    def run(*values: Any) -> list[Any]:
        env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        env.update(zip(closed.jaxpr.invars, values, strict=True))
        jaxapi.map_equations(closed.jaxpr.eqns, env, jaxapi.is_call)
        return [v.val if isinstance(v, Literal) else env[v] for v in closed.jaxpr.outvars]

    return without_collector(jax.make_jaxpr(run))(*map(struct_of, avals))


def dependence_of_jaxpr(
    jaxpr: Any, outs: Sequence[Any], mask: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Which of the variables ``outs`` have a derivative in the masked inputs."""
    reached = {v for v, m in zip(jaxpr.invars, mask, strict=True) if m}
    for eqn in jaxpr.eqns:
        if any(not isinstance(v, Literal) and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return tuple(
        [not isinstance(v, Literal) and v in reached and is_inexact(v.aval.dtype) for v in outs]
    )


def dependence_of_jvp(
    dependence: Dependence, mask: tuple[bool, ...], own: tuple[bool, ...]
) -> tuple[bool, ...]:
    """`Primitive.dependence` of the jvp for ``mask``: which outputs and tangents depend on masked inputs."""
    tangents = iter(own[len(mask) :])
    primals = own[: len(mask)]
    either = tuple(
        [(next(tangents) if m else False) or p for p, m in zip(primals, mask, strict=True)]
    )
    depends = zip(dependence(either), dependence(mask), strict=True)
    return (*dependence(primals), *[e for e, given in depends if given])
