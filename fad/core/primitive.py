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
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.avals import SCALARS, aval_key, aval_of, struct_of, with_constants
from fad.core.borrowed import borrowed, waited
from fad.core.dataflow import COMPUTED, READ, DependenceRows, flows, rows_of, tangent_rows
from fad.core.dtypes import is_inexact
from fad.core.equal_programs import EqualPrograms
from fad.core.jaxapi import Literal, array_type, called, flag_of, run_jaxpr, x64_enabled
from fad.core.jaxprs import (
    EXECUTED,
    KnownCall,
    barrier,
    calls_with_rules,
    equations_in,
    inlined_when_traced,
    inner_jaxprs,
    is_ref,
    jvp_by_vjp,
    jvp_in,
    known_call,
    map_equations,
    read,
    run_inlined,
    run_pullback,
    select,
    spread,
    trace,
    vjp_in,
    write_call,
)
from fad.core.level import LanesLevel, batching, bind, state
from fad.core.observation import observable
from fad.core.threads import make_jit, without_collector
from fad.core.types import (
    Array,
    ArrayFunction,
    Atom,
    Aval,
    Dims,
    DType,
    JaxBody,
    JaxEquation,
    JaxProgram,
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

# Primitive: a JAX function with rules derived from JAX, each of which is again a Primitive.

# From a mask of inputs to one of outputs.
Dependence = Callable[[Mask], Mask]

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


def as_derivative(primitive: Primitive) -> Primitive:
    """``primitive``, a derivative: what it does not read is unused in it."""
    primitive.paths = READ
    return primitive


# What a derived vjp saves: the residuals of ``jax.vjp``, sorted by what it costs to keep them.
#
# NOTE [what a derived vjp saves]
#
#     assert not (x + 1.0).grad_fn.saved_values()
#     assert len(fnp.exp(x).grad_fn.saved_values()) == 1  # the output
#     a = fad.tensor(np.eye(3, dtype=np.float32), requires_grad=True)
#     assert len(fnp.linalg.solve(a, fnp.ones(3)).grad_fn.saved_values()) > 3  # the factors of ``a`` too
#
# ``jax.vjp`` is traced to a jaxpr once for each Primitive, mask of differentiated inputs, and avals of
# the inputs. Each residual that it would keep is one of these:
#
# * an input or an output of the call: it is kept by reference, which costs nothing;
# * an intermediate that is cheap to compute again from inputs and outputs: the equations that compute
#   it (a slice of the forward jaxpr) become part of the vjp, where XLA fuses them;
# * an intermediate whose slice has an expensive equation (`EXPENSIVE`: factorizations, sorts,
#   convolutions, products, loops and what XLA makes one of, and scans of pairs, which pad): it becomes an
#   extra output of the forward call.
#
# Only inputs that the slices read are kept, so ``x + 1`` keeps nothing and ``exp`` keeps its output. If
# there are extra outputs, all inputs are kept: a second derivative recomputes the extras from them.
#
# An extra output may not depend on any differentiated input: an example is the factorization of ``a``
# in ``solve(a, b)``, for the derivative in ``b``. Such an output gets no tangent (`Primitive.dependence`),
# since some of JAX's own rules do not accept one.

EXPENSIVE = frozenset(
    """approx_top_k cholesky cond conv_general_dilated cumlogsumexp cummax cummin cumprod cumsum
    custom_linear_solve dot_general eig eigh fft geqrf hessenberg householder_product igamma igamma_grad_a
    igammac io_callback lu ormqr pad pure_callback qr ragged_dot_general random_bits reduce_window
    regularized_incomplete_beta scan schur select_and_scatter select_and_scatter_add sort svd
    symmetric_product threefry2x32 top_k triangular_solve tridiagonal tridiagonal_solve while""".split()
)


class ResidualPlan(VjpPlan):
    """A plan that saves residuals; see NOTE [what a derived vjp saves].

    JAX's pullback is a pytree of residuals. ``structure`` is that pytree's, ``leaves`` are the variables of
    its leaves, ``eqns`` the equations that compute these from ``consts`` (values of constant variables) and
    from the variables ``sources``, which are kept: inputs, outputs, extras.
    ``accepts_zeros``: the pullback accepts symbolic zeros as cotangents. False if there is a loop, a branch
    or a custom rule in it: there JAX 0.10 confuses the cotangents when some are symbolic zeros.

    Raises:
        TypeError, ValueError, NotImplementedError: the function has no reverse mode.
    """

    from_inputs = False

    def __init__(self, primitive: Primitive, mask: Mask, avals: Sequence[Aval]) -> None:
        super().__init__(primitive, mask)
        flat, paths = primitive.to_vjp, primitive.paths
        structures: list[PyTreeDef] = []

        # JAX keeps the structure of what is traced. That of a pullback refers to all that the function calls.
        def forward(*values: Array) -> tuple[Outputs, list[Array]]:
            out, pullback = vjp_in(mask, flat, values)
            residuals, structure = jax.tree.flatten(pullback)
            structures.append(structure)
            return out, residuals

        # What is traced returns the outputs, then the residuals: the leaves of JAX's pullback. Calls in it
        # are inlined, so that slices can go through them.
        structs = list(map(struct_of, avals))
        closed, (out_shapes, _) = trace(forward, structs)
        if any(called(eqn) is not None for eqn in closed.jaxpr.eqns):
            closed, _ = trace(lambda *values, calls=closed: run_inlined(calls, values), structs)
        (self.structure,) = structures
        self.single = type(out_shapes) is not tuple
        n_out = 1 if self.single else len(out_shapes)
        jaxpr = closed.jaxpr
        outs, self.leaves = jaxpr.outvars[:n_out], list(jaxpr.outvars[n_out:])
        self.out_avals = tuple([v.aval for v in outs])
        differentiable = primitive.differentiable_outputs(mask, self.out_avals)
        if paths or not self.single:
            rows = rows_of(trace(flat, structs)[0], mask, paths or COMPUTED)
            pairs = zip(differentiable, rows, strict=True)
            differentiable = tuple([d and any(row) for d, row in pairs])
            # Gradients are passed on to what the differentiable outputs depend on alone.
            each = select(differentiable, rows)
            self.routed = tuple([any([row[k] for row in each]) for k in range(len(mask))])
            if any([row != self.routed for row in each]):
                self.rows = rows
        self.differentiable = differentiable
        if not any(differentiable):
            self.leaves = []  # no vjp will run

        # What costs nothing to keep: slices end there. An input that is returned counts as an input.
        self.consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        inputs = {v: i for i, v in enumerate(jaxpr.invars)}
        outputs: dict[Atom, int] = {}
        for i, v in enumerate(outs):
            if not isinstance(v, Literal) and v not in inputs and v not in self.consts:
                outputs.setdefault(v, i)
        # The slice of an extra is not kept: the forward call has computed it.
        slicer = _Slicer(jaxpr, {*inputs, *outputs, *self.consts})
        extras: dict[Atom, int] = {}
        for i, v in enumerate(self.leaves):
            if slicer.is_expensive(v):
                extras.setdefault(v, n_out + i)
            else:
                slicer.need(v)
        # With extras, all: a second derivative recomputes these.
        kept = inputs if extras else inputs.keys() & slicer.reached
        self.kept_inputs = tuple(sorted([inputs[v] for v in kept]))
        self.kept_outputs = tuple(sorted([i for v, i in outputs.items() if v in slicer.reached]))
        self.eqns = [eqn for eqn in jaxpr.eqns if id(eqn) in slicer.kept]
        self.sources = [
            *[jaxpr.invars[i] for i in self.kept_inputs],
            *[outs[i] for i in self.kept_outputs],
            *extras,
        ]
        self.accepts_zeros = not any(map(_has_body, jaxpr.eqns))
        self.extras = len(extras)
        if extras:
            saved = [*outs, *[jaxpr.outvars[i] for i in extras.values()]]
            self.forward = _saving(primitive, closed.replace(jaxpr=jaxpr.replace(outvars=saved)))

    def _derive(self, present: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        assert self.out_avals is not None
        out = self.out_avals[0] if self.single else self.out_avals
        count = len(self.sources)

        def vjp(*values: Array) -> tuple[Array, ...]:
            env = {**self.consts, **dict(zip(self.sources, values[:count], strict=True))}
            map_equations(self.eqns, env)
            # Rules of the user are given arrays of JAX, where a program has those of NumPy.
            leaves = [
                jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in read(self.leaves, env)
            ]
            pullback = self.structure.unflatten(leaves)
            return run_pullback(pullback, out, values[count:], present, need, self.accepts_zeros)

        return as_derivative(
            self.primitive.derivative(
                "vjp",
                vjp,
                deferrable=self.primitive.deferrable,
                shared=self.primitive.shared is not None,
            )
        )


def derived_plan(primitive: Primitive, mask: Mask, avals: list[Aval]) -> VjpPlan:
    """The plan that follows from the function of ``primitive``."""
    plan = VjpPlan(primitive, mask)
    if primitive.jit and not primitive.collective:
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            plan = ResidualPlan(primitive, mask, avals)
    if primitive.is_replaced(avals):
        plan.as_called = VjpPlan(primitive, mask)
        if not plan.extras:
            plan.forward = primitive.kept("forward", primitive._derive_forward, mask)
    return plan


def _saving(primitive: Primitive, program: JaxProgram) -> Primitive:
    """``primitive`` with the extras as further outputs, after its own, as ``program`` computes them."""
    saving = Primitive(
        f"{primitive.name}_saving",
        functools.partial(run_jaxpr, program),
        deferrable=primitive.deferrable,
        shared=primitive.shared is not None,
    )
    saving.dependence = functools.cache(functools.partial(tangent_rows, program))
    saving.lineage, saving.paths = primitive.lineage, primitive.paths
    return saving


class _Slicer:
    """Backward slices of a jaxpr, up to the variables ``stops``, whose values are available.

    ``kept``: ids of the equations in the slices so far; ``reached``: the stops that they read.
    """

    def __init__(self, jaxpr: JaxBody, stops: set[Atom]) -> None:
        self.producer = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
        self.stops = stops
        self.kept: set[int] = set()
        self.reached: set[Atom] = set()

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
