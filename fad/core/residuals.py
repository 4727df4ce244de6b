"""What a derived vjp saves: the residuals of ``jax.vjp``, sorted by what it costs to keep them.

NOTE [what a derived vjp saves]

    assert not (x + 1.0).grad_fn.saved_values()
    assert len(fnp.exp(x).grad_fn.saved_values()) == 1  # the output
    a = fad.tensor(np.eye(3, dtype=np.float32), requires_grad=True)
    assert len(fnp.linalg.solve(a, fnp.ones(3)).grad_fn.saved_values()) > 3  # the factors of ``a`` too

``jax.vjp`` is traced to a jaxpr once for each Primitive, mask of differentiated inputs, and avals of
the inputs. Each residual that it would keep is one of these:

* an input or an output of the call: it is kept by reference, which costs nothing;
* an intermediate that is cheap to compute again from inputs and outputs: the equations that compute
  it (a slice of the forward jaxpr) become part of the vjp, where XLA fuses them;
* an intermediate whose slice has an expensive equation (`EXPENSIVE`: factorizations, sorts,
  convolutions, products, loops and what XLA makes one of, and scans of pairs, which pad): it becomes an
  extra output of the forward call.

Only inputs that the slices read are kept, so ``x + 1`` keeps nothing and ``exp`` keeps its output. If
there are extra outputs, all inputs are kept: a second derivative recomputes the extras from them.

An extra output may not depend on any differentiated input: an example is the factorization of ``a``
in ``solve(a, b)``, for the derivative in ``b``. Such an output gets no tangent (`Primitive.dependence`),
since some of JAX's own rules do not accept one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
from jax.tree_util import PyTreeDef

from fad.core.avals import struct_of
from fad.core.dataflow import COMPUTED, DependenceRows, rows_of
from fad.core.jaxapi import Literal, called, flag_of
from fad.core.jaxprs import (
    inner_jaxprs,
    is_ref,
    map_equations,
    read,
    run_inlined,
    trace,
    vjp_in,
)
from fad.core.types import (
    Array,
    ArrayFunction,
    Atom,
    Aval,
    JaxEquation,
    JaxProgram,
    Outputs,
)

EXPENSIVE = frozenset(
    """approx_top_k cholesky cond conv_general_dilated cumlogsumexp cummax cummin cumprod cumsum
    custom_linear_solve dot_general eig eigh fft geqrf hessenberg householder_product igamma igamma_grad_a
    igammac io_callback lu ormqr pad pure_callback qr ragged_dot_general random_bits reduce_window
    regularized_incomplete_beta scan schur select_and_scatter select_and_scatter_add sort svd
    symmetric_product threefry2x32 top_k triangular_solve tridiagonal tridiagonal_solve while""".split()
)

Dependence = Callable[[tuple[bool, ...]], tuple[bool, ...]]


@dataclass(slots=True)
class Residuals:
    """The residuals of one function for one choice of input avals; see NOTE [what a derived vjp saves].

    ``closed``: the jaxpr of the forward function; it returns the outputs, then the leaves of the
    pullback.
    ``out_avals``: the avals of the outputs.
    ``single``: the function returns one array, not a tuple.
    ``differentiable``: for each output, whether it has a derivative.
    ``rows``: for each output, the inputs that it depends on; None: all.
    ``structure``: JAX's pullback is a pytree of residuals; this is its structure.
    ``leaves``: the variables that are its leaves.
    ``eqns``: the equations that compute the leaves, from ``consts`` and from what is kept.
    ``consts``: values of constant variables.
    ``inputs``, ``outputs``: positions of the inputs and outputs that are kept.
    ``extras``: positions, among what ``closed`` returns, of the leaves that are kept as extra outputs.
    ``sources``: the variables that are kept: those of ``inputs``, ``outputs`` and ``extras``, in this
    order.
    ``sparse``: the pullback accepts symbolic zeros as cotangents. False if there is a loop, a branch or
    a custom rule in it: there JAX 0.10 confuses the cotangents when some are symbolic zeros.
    """

    closed: JaxProgram
    out_avals: tuple[Aval, ...]
    single: bool
    differentiable: tuple[bool, ...]
    rows: DependenceRows | None
    structure: PyTreeDef
    leaves: list[Atom]
    eqns: list[JaxEquation]
    consts: dict[Atom, Array]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    extras: tuple[int, ...]
    sources: list[Atom]
    sparse: bool

    def pullback(self, kept: Sequence[Array]) -> ArrayFunction:
        """JAX's pullback, rebuilt from the values of ``sources``."""
        env = dict(self.consts)
        env.update(zip(self.sources, kept, strict=True))
        map_equations(self.eqns, env)
        pullback: ArrayFunction = self.structure.unflatten(read(self.leaves, env))
        return pullback


def residuals_of(
    flat: ArrayFunction,
    mask: tuple[bool, ...],
    avals: Sequence[Aval],
    differentiable_outputs: Callable[[tuple[bool, ...], Sequence[Aval]], tuple[bool, ...]],
    paths: str,
) -> Residuals:
    """Trace ``jax.vjp`` of ``flat`` in its masked arguments, and sort its residuals.

    Arguments:
        differentiable_outputs: from a mask and the avals of the outputs, which of them have a
            derivative.
        paths: which paths lead to an output, see `fad.core.dataflow`. If empty, one output depends on all
            inputs, and several on what they are computed from.

    Raises:
        TypeError, ValueError, NotImplementedError: the function has no reverse mode.
    """

    structures: list[PyTreeDef] = []

    # JAX keeps the structure of what is traced. That of a pullback refers to all that the function calls.
    def forward(*values: Array) -> tuple[Outputs, list[Array]]:
        out, pullback = vjp_in(mask, flat, values)
        residuals, structure = jax.tree.flatten(pullback)
        structures.append(structure)
        return out, residuals

    # What is traced returns the outputs, then the residuals: the leaves of JAX's pullback. Calls in it are
    # inlined, so that slices can go through them.
    structs = list(map(struct_of, avals))
    closed, shapes = trace(forward, structs)
    if any(called(eqn) is not None for eqn in closed.jaxpr.eqns):
        closed, _ = trace(lambda *values, calls=closed: run_inlined(calls, values), structs)
    (structure,) = structures
    out_shapes, _ = shapes
    single = type(out_shapes) is not tuple
    n_out = 1 if single else len(out_shapes)
    jaxpr = closed.jaxpr
    outs, leaves = jaxpr.outvars[:n_out], list(jaxpr.outvars[n_out:])
    out_avals = tuple([v.aval for v in outs])
    differentiable = differentiable_outputs(mask, out_avals)
    rows = None
    if paths or not single:
        program, _ = trace(flat, structs)
        rows = rows_of(program, mask, paths or COMPUTED)
        differentiable = tuple([d and any(r) for d, r in zip(differentiable, rows, strict=True)])
    if not any(differentiable):
        leaves = []  # no vjp will run

    # What costs nothing to keep: slices end there. An input that is returned counts as an input.

    producer = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    inputs = {v: i for i, v in enumerate(jaxpr.invars)}
    outputs: dict[Atom, int] = {}
    for i, v in enumerate(outs):
        if not isinstance(v, Literal) and v not in inputs and v not in consts:
            outputs.setdefault(v, i)
    # The slice of an extra is not kept: the forward call has computed it.
    slicer = _Slicer(producer, set(inputs) | set(outputs) | set(consts))
    extras: dict[Atom, int] = {}
    for i, v in enumerate(leaves):
        available = isinstance(v, Literal) or v in inputs or v in outputs or v in consts
        if not available and slicer.is_expensive(v):
            extras.setdefault(v, n_out + i)
        else:
            slicer.need(v)
    # With extras, all: a second derivative recomputes these.
    every = range(len(avals)) if extras else None
    kept_inputs = tuple(every or sorted(i for v, i in inputs.items() if v in slicer.reached))
    kept_outputs = tuple(sorted(i for v, i in outputs.items() if v in slicer.reached))
    return Residuals(
        closed=closed,
        out_avals=out_avals,
        single=single,
        differentiable=differentiable,
        rows=rows,
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


@dataclass(slots=True)
class _Slicer:
    """Backward slices of a jaxpr, up to the variables ``stops``, whose values are available.

    ``kept``: ids of the equations in the slices so far; ``reached``: the stops that they read.
    """

    producer: dict[Atom, JaxEquation]
    stops: set[Atom]
    kept: set[int] = field(default_factory=set)
    reached: set[Atom] = field(default_factory=set)

    def _cone(self, var: Atom) -> tuple[list[JaxEquation], set[Atom]]:
        """The slice of ``var``: the equations that compute it, and the stops that they read."""
        eqns: dict[int, JaxEquation] = {}
        stops: set[Atom] = set()
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

    def is_expensive(self, var: Atom) -> bool:
        """Whether the slice of ``var`` has an expensive equation."""
        return any(_is_expensive(eqn) for eqn in self._cone(var)[0])

    def need(self, var: Atom) -> None:
        """Add the slice of ``var``."""
        eqns, stops = self._cone(var)
        self.kept.update(id(eqn) for eqn in eqns)
        self.reached |= stops


def _is_expensive(eqn: JaxEquation) -> bool:
    if eqn.primitive.name in EXPENSIVE or flag_of(eqn, "expensive"):
        return True
    if any(map(is_ref, eqn.invars)):  # what wrote to it is not in a slice
        return True
    return any(_is_expensive(inner) for j in inner_jaxprs(eqn) for inner in j.eqns)


def _has_body(eqn: JaxEquation) -> bool:
    """Whether an equation contains a jaxpr or a custom rule: a loop, a branch, a custom_vjp."""
    return any(True for _ in inner_jaxprs(eqn)) or "custom" in eqn.primitive.name


def dependence_of_jvp(
    dependence: Dependence, mask: tuple[bool, ...], jvp_mask: tuple[bool, ...]
) -> tuple[bool, ...]:
    """`Primitive.dependence` of a jvp: which of its outputs, then tangents, depend on its masked
    inputs.

    Arguments:
        dependence: that of the Primitive which the jvp was derived from.
        mask: which of that Primitive's inputs have a tangent.
        jvp_mask: the masked inputs of the jvp, which are the primals, then the tangents.
    """
    tangents = iter(jvp_mask[len(mask) :])
    primals = jvp_mask[: len(mask)]
    either = tuple(
        [(next(tangents) if m else False) or p for p, m in zip(primals, mask, strict=True)]
    )
    depends = zip(dependence(either), dependence(mask), strict=True)
    return (*dependence(primals), *[e for e, has_tangent in depends if has_tangent])
