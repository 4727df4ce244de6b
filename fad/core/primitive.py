"""Primitive: a JAX function with rules derived from JAX, each of which is again a Primitive."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.avals import SCALARS, aval_key, aval_of, struct_of, with_constants
from fad.core.borrowed import borrowed, waited
from fad.core.dataflow import READ, DependenceRows, flows, tangent_rows
from fad.core.dtypes import is_inexact
from fad.core.equal_programs import EqualPrograms
from fad.core.jaxapi import (
    array_type,
    barrier_op,
    current_program,
    define_primitive,
    new_primitive,
    run_jaxpr,
    x64_enabled,
)
from fad.core.jaxprs import (
    EXECUTED,
    KnownCall,
    calls_with_rules,
    equations_in,
    inlined_when_traced,
    jvp_by_vjp,
    jvp_in,
    known_call,
    run_pullback,
    select,
    spread,
    trace,
    vjp_in,
    write_call,
)
from fad.core.level import LanesLevel, batching, bind, state
from fad.core.observation import observable
from fad.core.residuals import (
    Dependence,
    Residuals,
    dependence_of_jvp,
    residuals_of,
)
from fad.core.threads import make_jit, pace, without_collector
from fad.core.types import (
    Array,
    ArrayFunction,
    Aval,
    Dims,
    DType,
    Mask,
    MaybeValue,
    Operand,
    Operation,
    OutputDims,
    Outputs,
    PyTree,
    Runner,
    Value,
)

T = TypeVar("T")

# Barriers: XLA compiles what stands between them as it would alone; see NOTE [exact programs] in
# `fad.replay.exact_programs`.


def barrier(values: Sequence[PyTree]) -> list[Array]:
    """The same values, behind an optimization barrier and in row-major layout.

    XLA does not fuse an operation with others across a barrier: it compiles it as it would alone.
    """
    plain = [
        isinstance(v, jax.Array) and not jax.dtypes.issubdtype(v.dtype, jax.dtypes.extended)
        for v in values
    ]
    rows = [
        with_layout_constraint(v, Layout(tuple(range(v.ndim)))) if v.ndim > 1 else v
        for v in select(plain, values)
    ]
    bind = (
        barrier_primitive.bind if rows and current_program() is not None else optimization_barrier
    )
    pace.yield_gil()
    return spread(plain, bind(*rows), values)


def optimization_barrier(*values: Operand) -> Sequence[Array]:
    behind: Sequence[Array] = jax.lax.optimization_barrier(values)
    return behind


def _lower_barrier(_: object, *values: object) -> Sequence[object]:
    pace.yield_gil()
    return list(barrier_op(values).results)


# `jax.lax.optimization_barrier`, in programs of the compile thread: see NOTE [pace] in `fad.core.threads`.
barrier_primitive = new_primitive("barrier")
define_primitive(
    barrier_primitive,
    lambda *values: list(values),
    lambda *avals: avals,
    lowering=_lower_barrier,
)


# Primitive: a JAX function with rules derived from JAX, each of which is again a Primitive.

# By their ids: a WeakSet cannot be gone through while other threads add to it.
_all: weakref.WeakValueDictionary[int, Primitive] = weakref.WeakValueDictionary()


def forget_shapes() -> None:
    """Clear what all Primitives have cached per shapes and dtypes."""
    for primitive in [reference() for reference in _all.valuerefs()]:
        if primitive is not None:
            primitive._plans.clear()
            primitive._jaxprs.clear()
            primitive.cache.clear()
            if primitive.shared is not None:
                primitive.shared.forget()


class Primitive(Operation):
    """A pure JAX function of flat array arguments, and its rules.

    Arguments:
        name: what graphs and errors call it.
        fn: the function. Its arguments are arrays or Python scalars, its result any pytree of
            arrays. Static values are in its closure.
        jit: False for a function that needs concrete values, whose output shape depends on data.
        collective: the function uses a named vmap axis, so it cannot be traced outside of that vmap.
        planner: makes the `VjpPlan`, in place of the derived one.
        deferrable: the function is pure and cheap to trace, so replay may defer it, where ``jit`` holds and
            ``collective`` does not.
        positions: some arguments are positions in an array. Eagerly they are arguments of the compiled
            function; in traced code, positions that are Python numbers become constants.
        custom_jvp, custom_vjp: the function as a ``jax.custom_jvp`` or ``jax.custom_vjp``, where a rule that
            is written by hand is better than the derived one. They have the same results as that.
        custom_vmap: ``custom_vmap(size, dims)`` returns the function on batched values, with the batch in
            dimension 0 of each output.
        shared: the function may be one that is made anew again and again: what is compiled for it is shared
            with others of equal programs, see NOTE [functions made anew].

    A *mask* is a tuple of bools, one for each input: whether it is differentiated.

    ``flat``: the function, with a flat result: an array or a tuple of arrays.
    ``shared``: how it is compiled, if that is shared.
    ``compiled``: ``flat``, compiled. ``call``: the same, which takes tracers too.
    ``to_jvp``, ``to_vjp``: the functions to pass to `jax.jvp` and `jax.vjp` in place of ``flat``.
    ``dependence``: from a mask, which outputs have a derivative in the masked inputs; None: all outputs
    that are floating or complex. See NOTE [what a derived vjp saves].
    ``primals``: in a jvp with outputs, how many of the first inputs are primals (the rest are
    tangents); else 0.
    ``paths``: how an output may depend on an input, see `fad.core.dataflow`; if empty, one output does.
    ``cache``: what is derived of it, by whom, and by what that depends on; see `kept`.
    ``calls_host``: the function calls Python when it runs, as far as `fad.tape.staged` has seen.
    ``calls``: of functions with derivatives of their own in it (`fad.core.jaxprs.calls_with_rules`), as far
    as has been seen among named axes.

    >>> import fad, jax.numpy as jnp
    >>> cube = fad.extend.Primitive("cube", lambda x: x**3)
    >>> fad.grad(lambda x: fad.extend.bind(cube, [x]))(2.0)
    Array(12., dtype=float32, weak_type=True)
    """

    lineage: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        fn: ArrayFunction,
        *,
        jit: bool = True,
        collective: bool = False,
        planner: Callable[..., VjpPlan] | None = None,
        positions: bool = False,
        deferrable: bool = False,
        custom_jvp: ArrayFunction | None = None,
        custom_vjp: ArrayFunction | None = None,
        custom_vmap: Callable[[int, Dims], ArrayFunction] | None = None,
        shared: bool = False,
    ) -> None:
        self.name = name
        self.lineage = (name,)
        self.fn = fn
        self.deferrable = deferrable and jit and not collective
        self.planner = planner
        self.positions = positions
        self.jit = jit
        self.calls_host = False
        self.calls: frozenset[str] = frozenset()
        self.paths = ""
        self.collective = collective
        self._structures: dict[int, PyTreeDef] = {}
        self.primals = 0
        self.dependence: Dependence | None = None
        self.cache: dict[Hashable, PyTree] = {}
        self._plans: dict[Hashable, VjpPlan] = {}
        self._jaxprs: dict[Hashable, KnownCall] = {}
        self.shared: EqualPrograms | None = None
        _all[id(self)] = self
        flat = self._flattened(fn)
        self.flat = flat = without_collector(flat) if jit else flat
        self.to_jvp = flat if custom_jvp is None else self._flattened(custom_jvp)
        self.to_vjp = self.to_jvp if custom_vjp is None else self._flattened(custom_vjp)
        self._custom_vmap = custom_vmap
        self.compiled = self.call = make_jit(flat, inline=True) if jit else flat
        if shared and jit:
            self.shared = EqualPrograms(name, flat, self.call, self._jaxprs)
            self.compiled = self.shared.table()
        if positions:
            self.call = inlined_when_traced(flat, self.call)

    def _flattened(self, fn: ArrayFunction) -> ArrayFunction:
        """``fn`` with a flat result, whose structure is noted."""

        def flat(*values: Operand) -> Outputs:
            leaves, structure = trees.flatten(fn(*values))
            if structure == trees.LEAF:
                return jnp.asarray(leaves[0]) if not isinstance(leaves[0], jax.Array) else leaves[0]
            self._structures[len(leaves)] = structure
            return tuple([x if isinstance(x, jax.Array) else jnp.asarray(x) for x in leaves])

        flat.__name__ = flat.__qualname__ = self.name
        return flat

    def __repr__(self) -> str:
        return f"Primitive({self.name})"

    @property
    def primitive(self) -> Primitive | None:
        return self if self.jit else None

    @property
    def keeps_numbers(self) -> bool:  # type: ignore[override]
        return self.positions or not self.jit

    def execute(self, values: Sequence[Operand]) -> Outputs:
        """Run on arrays: one array, or a tuple of them."""
        scalars = False
        for v in values:
            if type(v) is array_type:
                continue
            if type(v) in SCALARS:
                scalars = True
            else:
                if any([isinstance(v, jax.core.Tracer) for v in values]):
                    return self._write_exact(values) if state.exact else self._write(values)
                return waited(self.compiled(*with_constants(values)), values)
        out = self.compiled(*(with_constants(values) if scalars else values))
        return waited(out, values) if borrowed else out

    def _write_exact(self, values: Sequence[Operand]) -> Outputs:
        """`_write` between barriers, so that the results are bitwise those of eager execution: NOTE
        [exact programs].
        """
        with jax.ensure_compile_time_eval():  # numbers are arrays, behind the barrier too
            numbers = with_constants(values)
            values = [jax.device_put(v) if type(v) in SCALARS else v for v in numbers]
        out = self._write(barrier(values))
        return tuple(barrier(out)) if type(out) is tuple else out

    def _write(self, values: Sequence[Operand]) -> Outputs:
        """Run on tracers: `write_call` does what ``call`` does, but not through the caches of `jax.jit`,
        which are slower.
        """
        if self.jit and not self.collective and not self.positions:
            out = write_call(self._jaxprs, self.flat, values)
            if out is not None:
                return out
        return self.call(*values) if self.shared is None else self.shared.call(values)

    def executable(self, values: Sequence[Operand]) -> tuple[ArrayFunction, list[Array]]:
        """A function of `jax.jit` that runs on such arrays, and the operands that it takes before these."""
        if self.shared is None:
            return self.call, []
        return self.shared.find(values, EXECUTED)[0]

    def unflatten(self, out: Outputs) -> PyTree:
        """The structure that ``fn`` returned, from a flat output of `bind`."""
        if type(out) is not tuple:
            return out
        return trees.unflatten(self._structures[len(out)], out)

    def derived(self, key: Hashable, suffix: str, make: Callable[[], ArrayFunction]) -> Primitive:
        """The derivative that a level runs in the place of this one; it is kept with it.

        Arguments:
            key: the level, and all that the function depends on.
            suffix: what it has behind the name.
            make: makes the function; called where there is none for this key yet.
        """
        return self.kept(key, lambda: self.derivative(suffix, make()))

    def derivative(self, suffix: str, fn: ArrayFunction, **options: PyTree) -> Primitive:
        """A Primitive that is named as a derivative of this one; it has its options, or those given."""
        made = Primitive(f"{self.name}_{suffix}", fn, **(options or self._options()))
        made.lineage = (f"{self.lineage[0]}_{suffix}", *self.lineage)
        return made

    def kept(self, key: Hashable, make: Callable[..., T], *args: Hashable) -> T:
        """``make(*args)``, which is kept with this Primitive by ``key`` and ``args``, and made once."""
        key = (key, *args)
        kept: T | None = self.cache.get(key)
        if kept is None:
            kept = self.cache.setdefault(key, make(*args))  # of several threads, the first
        return kept

    def _options(self) -> dict[str, PyTree]:
        """The options that are passed on to Primitives derived from this one."""
        return {
            "jit": self.jit,
            "collective": self.collective,
            "positions": self.positions,
            "deferrable": self.deferrable,
            "shared": self.shared is not None,
        }

    # Forward mode

    def jvp(
        self, primals: Sequence[Operand], tangents: Sequence[MaybeValue]
    ) -> tuple[Outputs, Outputs]:
        mask = tuple([t is not None for t in tangents])
        operands = [*primals, *[t for t in tangents if t is not None]]
        if state.uncompiled:  # as two operations
            out, out_t = bind(self, primals), bind(self.tangent(mask), operands)
        else:
            derived = self.kept("jvp", self._derive_jvp, mask, True)
            results = bind(derived, operands)
            # Never flat: it is a pair.
            out, out_t = derived._structures[len(results)].unflatten(results)
        if type(out) is not tuple:
            return out, (out_t[0] if out_t else None)
        return out, tuple(spread(self.differentiable_outputs(mask, out), out_t))

    def differentiable_outputs(
        self, mask: tuple[bool, ...], outs: Sequence[Value | Aval]
    ) -> tuple[bool, ...]:
        """Which outputs have a derivative in the masked inputs."""
        if self.dependence is not None:
            return self.dependence(mask)
        return tuple([is_inexact(o.dtype) for o in outs])

    def tangent(self, mask: tuple[bool, ...]) -> Primitive:
        """The jvp without its outputs: from all inputs and the masked tangents to the tangents of the
        `differentiable_outputs`.
        """
        return self.kept("jvp", self._derive_jvp, mask, False)

    def linear(
        self, mask: Mask, primals: Sequence[Operand], outs: Sequence[Value]
    ) -> tuple[Operation, list[Operand], Mask]:
        return self.tangent(mask), list(primals), self.differentiable_outputs(mask, outs)

    def _derive_jvp(self, mask: tuple[bool, ...], outputs: bool) -> Primitive:
        n = len(mask)
        flat = self.to_jvp

        def jvp(*values: Array) -> tuple[Outputs, ...]:
            pushed = jvp_by_vjp if self._has_no_jvp(mask, values) else jvp_in
            out, out_t = pushed(mask, flat, values[:n], values[n:])
            outs, outs_t = (out, out_t) if type(out) is tuple else ((out,), (out_t,))
            differentiable = self.differentiable_outputs(mask, outs)
            kept = tuple(select(differentiable, outs_t))
            return (out, kept) if outputs else kept

        derived = self.derivative("jvp", jvp)
        derived.primals = n if outputs else 0
        if self.dependence is not None and outputs:
            derived.dependence = functools.partial(dependence_of_jvp, self.dependence, mask)
        return derived

    def _has_no_jvp(self, mask: tuple[bool, ...], values: Sequence[Array]) -> bool:
        """Whether JAX refuses the jvp at these primals and tangents, because of a ``jax.custom_vjp``."""
        avals, n = list(map(aval_of, values)), len(mask)
        if (
            self.deferrable
            or not self.jit
            or not any(name.startswith("custom_vjp_call") for name in self._find_calls(avals[:n]))
        ):
            return False
        closed, _ = trace(lambda *at: jvp_in(mask, self.to_jvp, at[:n], at[n:])[1], avals)
        return any(eqn.primitive.name == "custom_lin" for eqn in equations_in(closed.jaxpr))

    # Batching

    def batch(
        self, values: Sequence[Operand], dims: Dims, level: LanesLevel, run: Runner | None = None
    ) -> tuple[Outputs, OutputDims]:
        if self.primals and dims[: self.primals] == (None,) * self.primals:
            return self._batch_tangents(values, dims, level, run or bind)
        derived = self.kept("vmap", self._derive_batched, dims, level.batch_size, level.axis_name)
        out = (run or bind)(derived, values)
        return out, (0,) * len(out) if type(out) is tuple else 0

    def _derive_batched(self, dims: Dims, size: int, axis_name: Hashable) -> Primitive:
        mapped = functools.partial(
            jax.vmap, in_axes=dims, out_axes=0, axis_size=size, axis_name=axis_name
        )
        rule = self._custom_vmap
        run = batching(mapped(self.flat) if rule is None else self._flattened(rule(size, dims)))
        derived = self._same(f"{self.name}_vmap", run)
        if self.to_vjp is not self.flat:  # there are hand-written rules
            derived.to_jvp = batching(mapped(self.to_jvp))
            derived.to_vjp = batching(mapped(self.to_vjp))
        return derived

    def _batch_tangents(
        self, values: Sequence[Operand], dims: Dims, level: LanesLevel, run: Runner
    ) -> tuple[Outputs, OutputDims]:
        """`batch` of a jvp whose primals are not batched.

        Its outputs need not be batched either: so `jacfwd` runs the function itself once, not once for
        each tangent.
        """
        derive = self._derive_batched_tangents
        derived = self.kept("vmap of tangents", derive, dims, level.batch_size, level.axis_name)
        out = run(derived, values)
        shared = derived._structures[len(out)].children()[0].num_leaves
        return out, (None,) * shared + (0,) * (len(out) - shared)

    def _derive_batched_tangents(self, dims: Dims, size: int, axis_name: Hashable) -> Primitive:
        batched = functools.partial(jax.vmap, in_axes=dims, axis_size=size, axis_name=axis_name)

        def jvp(*values: Array) -> PyTree:
            return self.unflatten(self.flat(*values))

        def mapped(*values: Array) -> PyTree:
            """What is not batched, then what is."""
            try:
                return batched(jvp, out_axes=(None, 0))(*values)
            except ValueError:  # JAX batches the outputs of some operations as a whole
                return (), batched(jvp, out_axes=0)(*values)

        derived = Primitive(f"{self.name}_vmap", batching(mapped), **self._options())
        derived.lineage = self.lineage
        return derived

    # Reverse mode

    def plan(self, mask: Mask, values: Sequence[Operand]) -> VjpPlan:
        """What to save and how to run the vjp, for inputs with the avals of ``values``."""
        return self.plan_of(mask, aval_key(values), values)

    def plan_of(
        self, mask: Mask, avals: tuple[Hashable, ...], values: Sequence[Operand]
    ) -> VjpPlan:
        """`plan`, for values whose `aval_key` is known."""
        key = (mask, avals)
        plan = self._plans.get(key)
        if plan is None:
            # A Python scalar and an array with its aval have different keys, but share a plan.
            by_aval = (mask, tuple(map(aval_of, values)))
            plan = self._plans.get(by_aval)
            if plan is None:
                make = self.planner or derived_plan
                plan = self._plans[by_aval] = make(self, mask, list(by_aval[1]))
                plan.simple = plan.single and not plan.extras and plan.differentiable == (True,)
            self._plans[key] = plan
        return plan

    def flows(self, bits: Sequence[int], values: Sequence[Operand]) -> list[int] | None:
        """How the outputs depend on what is transposed, where the inputs, with the avals of ``values``, do as
        ``bits`` says (see `fad.core.dataflow.flows`); None if that is unknown.
        """
        if not self.jit or self.collective:
            return None
        key = ("flows", tuple(bits), aval_key(values))
        return self.kept(key, lambda: flows(self.flat, bits, list(map(aval_of, values))))

    def is_replaced(self, values: Sequence[Operand | Aval]) -> bool:
        """Whether JAX differentiates other programs in the place of calls in it, for inputs like these;
        see NOTE [calls with rules].
        """
        if self.to_vjp is not self.flat:
            return False
        calls = self.calls
        if self.jit and not self.collective:
            # As `aval_key`, but fewer functions in Python: a checkpoint asks this of each operation.
            kinds: list[object] = ["calls"]
            for v in values:
                if type(v) in SCALARS:
                    kinds += [type(v), x64_enabled()]
                else:
                    kinds.append(v.aval if type(v) is array_type else aval_of(v))
            key = tuple(kinds)
            if key not in self.cache:
                self.cache[key] = self._find_calls(list(map(aval_of, values)))
            calls = self.cache[key]
        return not REPLACED.isdisjoint(calls)

    def _find_calls(self, avals: Sequence[Aval]) -> frozenset[str]:
        closed, _ = known_call(self._jaxprs, self.flat, avals)
        if closed is None:
            closed, _ = trace(self.flat, list(map(struct_of, avals)))
        return self.calls | calls_with_rules(closed.jaxpr)

    def full_vjp(
        self, mask: tuple[bool, ...], present: tuple[bool, ...] | None, need: tuple[bool, ...]
    ) -> Primitive:
        """The vjp, a Primitive of (all inputs, cotangents that are present); it runs the function again."""
        return self.kept("vjp", self._derive_full_vjp, mask, present, need)

    def _derive_full_vjp(
        self, mask: tuple[bool, ...], present: tuple[bool, ...] | None, need: tuple[bool, ...]
    ) -> Primitive:
        n = len(mask)
        flat = self.to_vjp

        def vjp(*values: Array) -> tuple[Array, ...]:
            out, pullback = vjp_in(mask, flat, values[:n])
            return run_pullback(pullback, out, values[n:], present, need)

        return as_derivative(self.derivative("vjp", vjp))

    def _derive_forward(self, mask: Mask) -> Primitive:
        """This Primitive as JAX computes it in reverse mode; see NOTE [calls with rules]."""
        flat = self.flat

        def forward(*values: Array) -> Outputs:
            return vjp_in(mask, flat, values)[0]

        return self._same(self.name, forward)

    def _same(self, name: str, fn: ArrayFunction) -> Primitive:
        """A Primitive that computes the same as this one, in another way."""
        made = Primitive(name, fn, **self._options())
        made.lineage, made.calls = self.lineage, self.calls
        made.dependence, made.paths = self.dependence, self.paths
        return made


observable(Primitive, "execute", "execution")


# NOTE [calls with rules]
#
#     f = jax.custom_vjp(lambda x: jnp.sin(x))
#     f.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (3.0 * g * jnp.cos(x),))
#     _, (product,) = fad.hvp(fad.from_jax(f), (1.0,), (1.0,))
#     assert jnp.allclose(product, -3.0 * jnp.sin(1.0))
#
# The gradient runs ``fwd`` and ``bwd`` in the place of the call, so the second derivative is that of their
# programs, in which the rule does not count any more. It is the same with the rule of a custom_jvp. So where
# a Primitive has such a call in it, a level that records it runs what ``jax.vjp`` runs
# (`VjpPlan.forward`) one level down. The level of the body of a checkpoint records too, but levels below it
# differentiate: it runs the call itself (`VjpPlan.as_called`), and they replace it. In the checkpointed
# call as a whole they do so by `fad.functions.derived_rules.ReplacedRules`.
REPLACED = frozenset(["custom_jvp_call", "custom_vjp_call"])

_plan_ids = itertools.count()


class VjpPlan:
    """How one Primitive is differentiated in reverse, for one mask and one choice of input avals.

    This class keeps all inputs, and the vjp runs the function again: nothing is known of residuals, or
    the function has no reverse mode (a while loop), and then the vjp raises if it is used.

    ``id``: a number of its own.
    ``mask``: which inputs are differentiated.
    ``forward``: the operation to run in the forward pass: the Primitive itself, or one that returns
    ``extras`` residuals after the Primitive's outputs.
    ``extras``: the number of these residuals.
    ``kept_inputs``, ``kept_outputs``: the positions of the inputs and outputs that are saved by
    reference.
    ``from_inputs``: it is of this class.
    ``differentiable``: for each output, whether it has a derivative; None if that is not known.
    ``out_avals``: the avals of the outputs; None if they are not known.
    ``single``: the Primitive is known to return one array, not a tuple.
    ``simple``: one output, which is differentiable, and no extras.
    ``routed``: the inputs that a gradient is passed on to: ``mask``, unless it is narrowed.
    ``rows``: for each output the inputs that it depends on; None where that is ``routed`` for all of them.
    ``as_called``: where ``forward`` is another program than the Primitive, a plan that runs the Primitive;
    see NOTE [calls with rules].
    """

    from_inputs = True

    def __init__(self, primitive: Primitive, mask: tuple[bool, ...]) -> None:
        self.id = next(_plan_ids)
        self.primitive = primitive
        self.mask = mask
        self.routed = mask
        self.forward = primitive
        self.extras = 0
        self.kept_inputs: tuple[int, ...] = tuple(range(len(mask)))
        self.kept_outputs: tuple[int, ...] = ()
        self.differentiable: tuple[bool, ...] | None = None
        self.out_avals: tuple[Aval, ...] | None = None
        self.single = self.simple = False
        self.rows: DependenceRows | None = None
        self.as_called: VjpPlan | None = None
        self._vjps: dict[Hashable, Primitive] = {}

    def narrow(self, rows: DependenceRows) -> None:
        """Pass gradients on to what the outputs depend on alone."""
        of_differentiable = select(self.differentiable or (), rows)
        self.routed = tuple(
            [any([row[k] for row in of_differentiable]) for k in range(len(self.mask))]
        )
        if any([row != self.routed for row in of_differentiable]):
            self.rows = rows

    def sends(self, cotangents: Sequence[MaybeValue], need: Sequence[bool]) -> tuple[bool, ...]:
        """Which of the inputs in ``need`` get a gradient from the outputs that have a cotangent."""
        rows = select([c is not None for c in cotangents], self.rows or ())
        return tuple([n and any([row[k] for row in rows]) for k, n in enumerate(need)])

    def vjp(self, present: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        """The vjp as a Primitive of (kept inputs, kept outputs, extras, cotangents that are present).

        Arguments:
            present: which outputs have a cotangent; None if the one output has.
            need: which of the masked inputs need a gradient.
        """
        key = (present, need)
        derived = self._vjps.get(key)
        if derived is None:
            derived = self._vjps[key] = self._derive(present, need)
        return derived

    def _derive(self, present: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        return self.primitive.full_vjp(self.mask, present, need)


def as_derivative(primitive: Primitive) -> Primitive:
    """``primitive``, a derivative: what it does not read is unused in it."""
    primitive.paths = READ
    return primitive


# The plan by which a Primitive is differentiated in reverse, derived from its function.


class ResidualPlan(VjpPlan):
    """A plan that saves what ``residuals`` says; see NOTE [what a derived vjp saves]."""

    from_inputs = False

    def __init__(self, primitive: Primitive, mask: tuple[bool, ...], residuals: Residuals) -> None:
        super().__init__(primitive, mask)
        self.single = residuals.single
        self.out_avals = residuals.out_avals
        self.differentiable = residuals.differentiable
        self.kept_inputs, self.kept_outputs = residuals.inputs, residuals.outputs
        self.extras = len(residuals.extras)
        self._residuals = residuals
        if residuals.rows is not None:
            self.narrow(residuals.rows)
        if residuals.extras:
            self.forward = _with_residuals(primitive, residuals)

    def _derive(self, present: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        residuals = self._residuals
        out = residuals.out_avals[0] if residuals.single else residuals.out_avals
        count = len(residuals.sources)

        def vjp(*values: Array) -> tuple[Array, ...]:
            pullback = residuals.pullback(values[:count])
            return run_pullback(pullback, out, values[count:], present, need, residuals.sparse)

        return as_derivative(
            self.primitive.derivative(
                "vjp",
                vjp,
                deferrable=self.primitive.deferrable,
                shared=self.primitive.shared is not None,
            )
        )


def derived_plan(primitive: Primitive, mask: tuple[bool, ...], avals: list[Aval]) -> VjpPlan:
    """The plan that follows from the function of ``primitive``."""
    plan = VjpPlan(primitive, mask)
    if primitive.jit and not primitive.collective:
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            residuals = residuals_of(
                primitive.to_vjp, mask, avals, primitive.differentiable_outputs, primitive.paths
            )
            plan = ResidualPlan(primitive, mask, residuals)
    if primitive.is_replaced(avals):
        plan.as_called = VjpPlan(primitive, mask)
        if not plan.extras:
            plan.forward = primitive.kept("forward", primitive._derive_forward, mask)
    return plan


def _with_residuals(primitive: Primitive, residuals: Residuals) -> Primitive:
    """``primitive`` with the extras as further outputs, after its own."""
    run = functools.partial(run_jaxpr, residuals.closed)
    count = len(residuals.out_avals)

    def forward(*values: Array) -> tuple[Array, ...]:
        leaves = run(*values)
        return (*leaves[:count], *[leaves[i] for i in residuals.extras])

    saving = Primitive(
        f"{primitive.name}_saving",
        forward,
        deferrable=primitive.deferrable,
        shared=primitive.shared is not None,
    )
    jaxpr = residuals.closed.jaxpr
    outs = [*jaxpr.outvars[:count], *[jaxpr.outvars[i] for i in residuals.extras]]
    saved = residuals.closed.replace(jaxpr=jaxpr.replace(outvars=outs))
    saving.dependence = functools.cache(functools.partial(tangent_rows, saved))
    saving.lineage, saving.paths = primitive.lineage, primitive.paths
    return saving


# Conversion of dtypes.


@functools.lru_cache(maxsize=64)
def cast_to(dtype: DType) -> Primitive:
    """The conversion to a dtype: to a real one, of the real part."""

    def cast(x: Array) -> Array:
        is_complex = jnp.issubdtype(x.dtype, np.complexfloating)
        if is_complex and not jnp.issubdtype(dtype, np.complexfloating):
            x = x.real
        return x.astype(dtype)

    return Primitive("astype", cast, deferrable=True)
