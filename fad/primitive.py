"""Primitive: a JAX function with rules derived from JAX, each of which is again a Primitive.

NOTE [what a derived vjp saves]

JAX's own reverse mode is read off a jaxpr once for each Primitive, choice of differentiated inputs
and input avals: `jax.vjp` is traced, and each residual that it would keep is found to be

* an input or an output of the call: kept by reference, it costs nothing;
* an intermediate that is cheap to compute again from inputs and outputs: the equations that lead to
  it are sliced out of the forward jaxpr and become part of the vjp, where XLA fuses them;
* an intermediate behind an expensive equation (`EXPENSIVE`: factorizations, sorts, convolutions,
  loops, products): it becomes an extra output of the forward call.

Only inputs that the slices read are kept, so ``x + 1`` keeps nothing and ``exp`` keeps its output.

An extra output is a value that JAX would not differentiate where no differentiated input reaches it: the
factorization of ``a`` in ``solve(a, b)``, for the derivative in ``b``. So neither is it here, by ``reach``;
JAX's own rules do not always take a tangent for it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import jaxapi, trees
from fad.dispatch import below
from fad.jaxapi import Literal, is_inexact, shaped_array

__all__ = ["Primitive", "VjpPlan", "aval_key", "aval_of"]

EXPENSIVE = frozenset(
    """approx_top_k cholesky cond conv_general_dilated custom_linear_solve custom_root
    cumlogsumexp cumprod cumsum cummax cummin dot_general eig eigh fad_call fad_linear_call fft
    geqrf hessenberg householder_product igamma igamma_grad_a io_callback linear_solve lu ormqr
    pure_callback qr ragged_dot random_bits random_gamma_grad reduce_window scan schur
    select_and_scatter select_and_scatter_add sort svd symmetric_product threefry2x32 top_k
    triangular_solve tridiagonal tridiagonal_solve while""".split()
)

SCALARS: dict[type, Any] = {bool: np.bool_, int: np.int32, float: np.float32, complex: np.complex64}


_constants: dict[Any, Any] = {}
_CONSTANTS = 4096  # kept


def with_constants(values: Sequence[Any]) -> Sequence[Any]:
    """``values`` with cached arrays, weakly typed, in the place of Python scalars.

    JAX takes microseconds to make an array of a number. Under a trace numbers stay what they are, so
    that they are literals in the program.
    """
    found = []
    for v in values:
        kind = type(v)
        if kind in SCALARS:
            v = constant(v)
        else:
            concrete = _concrete_types.get(kind)
            if concrete is None:
                concrete = _concrete_types[kind] = jaxapi.is_concrete(v)
            if not concrete:
                return values
        found.append(v)
    return found


_concrete_types: dict[type, bool] = {}


def constant(x: Any) -> Any:
    """A cached array, weakly typed, for a Python scalar; the scalar itself under a trace."""
    key = (type(x), x or str(x), jaxapi.x64_enabled())  # 0.0 and -0.0 are equal
    found = _constants.get(key)
    if found is None:
        if x != x or jaxapi.is_tracing():
            return x
        found = jnp.asarray(x)
        if len(_constants) >= _CONSTANTS:
            _constants.clear()
        _constants[key] = found
    return found


def aval_key(values: Sequence[Any]) -> tuple[Any, ...]:
    """A hashable summary of the avals of ``values`` (arrays, Tensors, Python scalars)."""
    key: list[Any] = []
    scalars = False
    for v in values:
        if type(v) in SCALARS:
            key.append(type(v))
            scalars = True
        else:
            key.append(aval_of(v))
    if scalars:
        key.insert(0, jaxapi.x64_enabled())
    return tuple(key)


def aval_of(value: Any) -> Any:
    """JAX's abstract value of an array, Tensor or Python scalar."""
    aval = getattr(value, "aval", None)
    return jax.typeof(value) if aval is None else aval


def struct_of(aval: Any) -> Any:
    """``aval`` in the form that `jax.make_jaxpr` takes."""
    if isinstance(aval, shaped_array):
        return aval  # with its sharding, and the shard_map axes that it varies along
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def conjugate(x: Any) -> Any:
    """Complex conjugate; real values pass untouched."""
    return jnp.conj(x) if jnp.issubdtype(x.dtype, np.complexfloating) else x


Reach = Callable[[tuple[bool, ...]], tuple[bool, ...]]


class Primitive:
    """A pure JAX function of flat array arguments, and its rules.

    Arguments:
        name: what graphs and errors call it.
        fn: the function. Its arguments are arrays or Python scalars, its result any pytree of
            arrays; what is static is closed over.
        jit: False for a function that needs concrete values, whose output shape depends on data.
        collective: it names a vmap axis, so that it cannot be traced outside of that vmap.
        planner: makes its `VjpPlan`, where the derived one is not the best.
        lazy: it is pure and cheap to trace, so that calls on small arrays may wait, see `fad.runs`.
        hot: its structure has come back often enough to be worth compiling.
        positions: some of its arguments are positions in an array. Where they are numbers, code that
            is traced has them as constants; run eagerly, they are arguments of what is compiled.

    ``reach`` says which outputs have a derivative in the masked inputs; None is all that are floating
    or complex. See NOTE [what a derived vjp saves].
    """

    __slots__ = (
        "__weakref__",
        "_batched",
        "_full_vjps",
        "_jvps",
        "_plans",
        "_structures",
        "_tangents",
        "call",
        "collective",
        "flat",
        "fn",
        "hot",
        "jit",
        "lazy",
        "name",
        "planner",
        "positions",
        "primals",
        "reach",
        "shapes",
        "splits",
    )

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        jit: bool = True,
        collective: bool = False,
        planner: Callable[..., VjpPlan] | None = None,
        positions: bool = False,
        lazy: bool = False,
        hot: bool = False,
    ) -> None:
        self.name = name
        self.fn = fn
        self.lazy = lazy and jit
        self.hot = hot
        # The avals of its outputs for those of its arguments; False where it must not wait.
        self.shapes: dict[Any, Any] = {}
        self.planner = planner
        self.positions = positions
        self.jit = jit
        self.collective = collective
        self._structures: dict[int, Any] = {}
        self.primals = 0
        self.splits: dict[int, int] = {}
        self.reach: Reach | None = None
        self._jvps: dict[Any, Primitive] = {}
        self._tangents: dict[Any, Primitive] = {}
        self._batched: dict[Any, Primitive] = {}
        self._full_vjps: dict[Any, Primitive] = {}
        self._plans: dict[Any, VjpPlan] = {}

        def flat(*values: Any) -> Any:
            leaves, structure = trees.flatten(fn(*values))
            if structure == trees.LEAF:
                return jnp.asarray(leaves[0]) if not isinstance(leaves[0], jax.Array) else leaves[0]
            self._structures[len(leaves)] = structure
            return tuple([x if isinstance(x, jax.Array) else jnp.asarray(x) for x in leaves])

        flat.__name__ = flat.__qualname__ = name
        self.flat = flat
        self.call = jax.jit(flat, inline=True) if jit else flat
        if positions:
            self.call = _opened(flat, self.call)

    def __repr__(self) -> str:
        return f"Primitive({self.name})"

    def execute(self, values: Sequence[Any]) -> Any:
        """Run on arrays: one array, or a tuple of them."""
        for v in values:
            if type(v) in SCALARS:
                return self.call(*with_constants(values))
        return self.call(*values)

    def unflatten(self, out: Any) -> Any:
        """The structure that ``fn`` returned, from a flat output of `bind`."""
        if type(out) is not tuple:
            return out
        return trees.unflatten(self._structures[len(out)], out)

    def _options(self) -> dict[str, Any]:
        """What the Primitives derived from this one have in common with it."""
        return {
            "jit": self.jit,
            "collective": self.collective,
            "positions": self.positions,
            "lazy": self.lazy,
            "hot": self.hot,
        }

    # Forward mode

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Outputs and their tangents; a tangent of None is zero."""
        mask = tuple([t is not None for t in tangents])
        derived = self._jvps.get(mask)
        if derived is None:
            derived = self._jvps[mask] = self._derive_jvp(mask, outputs=True)
        out = below(derived, [*primals, *[t for t in tangents if t is not None]])
        count = derived.splits[len(out)]
        if count < 0:
            return out[0], (out[1] if len(out) == 2 else None)
        given = iter(out[count:])
        outs = out[:count]
        return outs, tuple([next(given) if m else None for m in self.moving(mask, outs)])

    def moving(self, mask: tuple[bool, ...], outs: Sequence[Any]) -> tuple[bool, ...]:
        """Which outputs have a derivative in the masked inputs."""
        if self.reach is not None:
            return self.reach(mask)
        return tuple([is_inexact(o.dtype) for o in outs])

    def tangent(self, mask: tuple[bool, ...]) -> Primitive:
        """The tangents of the `moving` outputs alone, from all inputs and the masked tangents."""
        derived = self._tangents.get(mask)
        if derived is None:
            derived = self._tangents[mask] = self._derive_jvp(mask, outputs=False)
        return derived

    def linear(
        self, mask: tuple[bool, ...], primals: Sequence[Any], outs: Sequence[Any]
    ) -> tuple[Primitive, list[Any], tuple[bool, ...]]:
        """An operation linear in the masked tangents, the operands that go before them, and which
        outputs it gives tangents of.
        """
        return self.tangent(mask), list(primals), self.moving(mask, outs)

    def _derive_jvp(self, mask: tuple[bool, ...], outputs: bool) -> Primitive:
        n = len(mask)
        flat = self.flat

        def jvp(*values: Any) -> tuple[Any, ...]:
            active = [v for v, m in zip(values[:n], mask, strict=True) if m]
            out, out_t = jax.jvp(
                _on_active(flat, values[:n], mask), active, _match(active, values[n:])
            )
            single = type(out) is not tuple
            outs, outs_t = ((out,), (out_t,)) if single else (out, out_t)
            moving = self.moving(mask, outs)
            kept = [t for t, m in zip(outs_t, moving, strict=True) if m]
            result = (*outs, *kept) if outputs else tuple(kept)
            derived.splits[len(result)] = -1 if single else len(outs)
            return result

        derived = Primitive(f"{self.name}_jvp", jvp, **self._options())
        derived.primals = n if outputs else 0
        if self.reach is not None and outputs:
            derived.reach = functools.partial(_reach_of_jvp, self.reach, mask)
        return derived

    # Batching

    def batch(self, values: Sequence[Any], dims: tuple[int | None, ...], level: Any) -> Any:
        """Outputs with the batch along dimension 0."""
        key = (dims, level.batch_size, level.axis_name)
        derived = self._batched.get(key)
        if derived is None:
            derived = self._batched[key] = self._derive_batched(*key)
        return below(derived, values)

    def _derive_batched(self, dims: tuple[int | None, ...], size: int, axis_name: Any) -> Primitive:
        mapped = jax.vmap(self.flat, in_axes=dims, out_axes=0, axis_size=size, axis_name=axis_name)
        derived = Primitive(f"{self.name}_vmap", mapped, **self._options())
        derived.reach = self.reach
        return derived

    def batch_tangents(
        self, values: Sequence[Any], dims: tuple[int | None, ...], level: Any
    ) -> tuple[tuple[Any, ...], int]:
        """`batch` of a jvp whose primals are not batched: outputs, and how many of them, the first
        ones, are not batched either.

        So `jacfwd` runs the function itself once, not once for each tangent.
        """
        key = (dims, level.batch_size, level.axis_name)
        derived = self._batched.get(key)
        if derived is None:
            derived = self._batched[key] = self._derive_batched_tangents(*key)
        out = below(derived, values)
        return out, derived.splits[len(out)]

    def _derive_batched_tangents(
        self, dims: tuple[int | None, ...], size: int, axis_name: Any
    ) -> Primitive:
        options = {"in_axes": dims, "axis_size": size, "axis_name": axis_name}

        def split(*values: Any) -> tuple[Any, Any]:
            out = self.flat(*values)
            count = max(1, self.splits[len(out)])
            return out[:count], out[count:]

        def mapped(*values: Any) -> tuple[Any, ...]:
            try:
                outs, tangents = jax.vmap(split, out_axes=(None, 0), **options)(*values)
                shared = len(outs)
            except ValueError:  # JAX batches the outputs of some operations as a whole
                outs, tangents = jax.vmap(split, out_axes=0, **options)(*values)
                shared = 0
            derived.splits[len(outs) + len(tangents)] = shared
            return (*outs, *tangents)

        derived = Primitive(f"{self.name}_vmap", mapped, **self._options())
        return derived

    # Reverse mode

    def plan(self, mask: tuple[bool, ...], values: Sequence[Any]) -> VjpPlan:
        """What to save and how to run the vjp, for inputs with the avals of ``values``."""
        return self.plan_of(mask, aval_key(values), values)

    def plan_of(
        self, mask: tuple[bool, ...], avals: tuple[Any, ...], values: Sequence[Any]
    ) -> VjpPlan:
        """`plan`, for values whose `aval_key` is known."""
        key = (mask, avals)
        plan = self._plans.get(key)
        if plan is None:
            make = VjpPlan if self.planner is None else self.planner
            plan = self._plans[key] = make(self, mask, [aval_of(v) for v in values])
            plan.simple = plan.single and not plan.extras and plan.differentiable == (True,)
        return plan

    def full_vjp(
        self, mask: tuple[bool, ...], given: tuple[bool, ...] | None, need: tuple[bool, ...]
    ) -> Primitive:
        """The vjp from all inputs and the given cotangents, with nothing saved."""
        key = (mask, given, need)
        derived = self._full_vjps.get(key)
        if derived is None:
            derived = self._full_vjps[key] = self._derive_full_vjp(*key)
        return derived

    def _derive_full_vjp(
        self, mask: tuple[bool, ...], given: tuple[bool, ...] | None, need: tuple[bool, ...]
    ) -> Primitive:
        n = len(mask)
        flat = self.flat

        def vjp(*values: Any) -> tuple[Any, ...]:
            active = [v for v, m in zip(values[:n], mask, strict=True) if m]
            out, pullback = jax.vjp(_on_active(flat, values[:n], mask), *active)
            return _pull(pullback, out, values[n:], given, need)

        return Primitive(f"{self.name}_vjp", vjp, **self._options())


def _opened(flat: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """``compiled``, but ``flat`` itself where it is traced: XLA does better by a slice at a constant.

    And so does JAX: its vmap of a slice at a variable is a gather.
    """

    def call(*values: Any) -> Any:
        for v in values:
            if isinstance(v, jax.core.Tracer):
                return flat(*values) if jaxapi.is_tracing() else compiled(*values)
        return compiled(*values)

    return call


def _on_active(
    flat: Callable[..., Any], values: Sequence[Any], mask: tuple[bool, ...]
) -> Callable[..., Any]:
    """``flat`` as a function of its masked arguments."""

    def on_active(*active: Any) -> Any:
        it = iter(active)
        return flat(*[next(it) if m else v for v, m in zip(values, mask, strict=True)])

    return on_active


def _match(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Tangents in the dtypes of their primals."""
    return [
        t if t.dtype == p.dtype else t.astype(p.dtype)
        for p, t in zip(primals, tangents, strict=True)
    ]


def _pull(
    pullback: Callable[..., Any],
    out: Any,
    cotangents: Sequence[Any],
    given: tuple[bool, ...] | None,
    need: tuple[bool, ...],
) -> tuple[Any, ...]:
    """Run a JAX pullback with PyTorch's convention for complex values.

    ``out`` gives shapes and dtypes of the outputs; ``given`` says which of them have a cotangent
    (None: the one output has).
    """
    outs = out if type(out) is tuple else (out,)
    if given is None:
        given = (True,) * len(outs)
    it = iter(cotangents)
    cts: list[Any] = []
    for o, g in zip(outs, given, strict=True):
        ct = next(it) if g else None
        if not is_inexact(o.dtype):
            ct = np.zeros(o.shape, jaxapi.float0)
        elif ct is None:
            ct = jnp.zeros(o.shape, o.dtype)
        else:
            ct = conjugate(ct if ct.dtype == o.dtype else ct.astype(o.dtype))
        cts.append(ct)
    grads = pullback(tuple(cts) if type(out) is tuple else cts[0])
    return tuple([conjugate(g) for g, wanted in zip(grads, need, strict=True) if wanted])


_plan_ids = itertools.count()


class VjpPlan:
    """How one Primitive is differentiated in reverse, for one choice of inputs and avals.

    ``kept_inputs`` and ``kept_outputs`` are the positions of what is saved by reference;
    ``forward`` is the operation to run in the forward pass: the Primitive itself, or one that
    returns ``extras`` residuals after the Primitive's outputs.
    ``from_inputs``: the vjp starts from all inputs.
    ``routed``: the masked inputs whose gradients go on from here.
    ``simple``: one output, which is differentiable, and no extras.
    """

    __slots__ = (
        "_eqns",
        "_pull_structure",
        "_residuals",
        "_sources",
        "_vjps",
        "differentiable",
        "extras",
        "forward",
        "from_inputs",
        "id",
        "kept_inputs",
        "kept_outputs",
        "mask",
        "out_avals",
        "primitive",
        "routed",
        "simple",
        "single",
    )

    differentiable: tuple[bool, ...] | None

    def __init__(self, primitive: Primitive, mask: tuple[bool, ...], avals: list[Any]) -> None:
        self._start(primitive, mask, len(avals))
        if primitive.jit and not primitive.collective:
            try:
                self._analyse(avals)
            except (TypeError, ValueError, NotImplementedError):
                # It has no reverse mode (a while loop): that is an error only when one is asked for.
                self.from_inputs, self.differentiable = True, None

    def _start(self, primitive: Primitive, mask: tuple[bool, ...], count: int) -> None:
        """A plan that keeps all inputs."""
        self.id = next(_plan_ids)
        self.primitive = primitive
        self.mask = mask
        self.routed = mask
        self.simple = False
        self.forward: Primitive = primitive
        self.extras = 0
        self.kept_inputs: tuple[int, ...] = tuple(range(count))
        self.kept_outputs: tuple[int, ...] = ()
        self.out_avals: tuple[Any, ...] | None = None
        self.differentiable = None
        self.single = False
        self.from_inputs = True
        self._vjps: dict[Any, Primitive] = {}

    def _analyse(self, avals: list[Any]) -> None:
        """Trace ``jax.vjp`` and sort its residuals; see NOTE [what a derived vjp saves]."""
        mask, flat = self.mask, self.primitive.flat

        def forward(*values: Any) -> Any:
            active = [v for v, m in zip(values, mask, strict=True) if m]
            out, pullback = jax.vjp(_on_active(flat, values, mask), *active)
            return out, pullback

        closed, shapes = jax.make_jaxpr(forward, return_shape=True)(*map(struct_of, avals))
        if any(jaxapi.is_call(eqn) for eqn in closed.jaxpr.eqns):
            closed = _inline(closed, avals)
        out_shapes, _ = shapes
        self.single = type(out_shapes) is not tuple
        n_out = 1 if self.single else len(out_shapes)
        _, structure = jax.tree_util.tree_flatten(shapes[1])
        jaxpr = closed.jaxpr
        outs, residuals = jaxpr.outvars[:n_out], jaxpr.outvars[n_out:]
        self.out_avals = tuple([v.aval for v in outs])
        self.differentiable = self.primitive.moving(mask, self.out_avals)
        if not any(self.differentiable):
            self.kept_inputs, self.from_inputs = (), False
            return

        producer = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
        consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        inputs = {v: i for i, v in enumerate(jaxpr.invars)}
        outputs: dict[Any, int] = {}
        for i, v in enumerate(outs):
            if not isinstance(v, Literal) and v not in inputs and v not in consts:
                outputs.setdefault(v, i)
        slicer = _Slicer(producer, set(inputs) | set(outputs) | set(consts))
        extras: dict[Any, int] = {}
        for v in residuals:
            if isinstance(v, Literal) or v in inputs or v in outputs or v in consts:
                slicer.need(v)
            elif slicer.is_expensive(v):
                extras.setdefault(v, len(extras))
            else:
                slicer.need(v)
        self._eqns = [eqn for eqn in jaxpr.eqns if id(eqn) in slicer.kept]
        self._residuals = residuals
        self._pull_structure = structure
        self.kept_outputs = tuple(sorted(i for v, i in outputs.items() if v in slicer.reached))
        self.extras = len(extras)
        if extras:
            positions = tuple([n_out + residuals.index(v) for v in extras])
            self.forward = _with_residuals(self.primitive, closed, n_out, positions)
        else:
            self.kept_inputs = tuple(sorted(i for v, i in inputs.items() if v in slicer.reached))
        self.from_inputs = False
        self._sources = [
            *[jaxpr.invars[i] for i in self.kept_inputs],
            *[outs[i] for i in self.kept_outputs],
            *extras,
            consts,
        ]

    def vjp(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        """The vjp as a Primitive of (kept inputs, kept outputs, extras, given cotangents).

        Arguments:
            given: which outputs have a cotangent; None if the one output has.
            need: which of the masked inputs want a gradient.
        """
        if self.from_inputs:
            return self.primitive.full_vjp(self.mask, given, need)
        key = (given, need)
        derived = self._vjps.get(key)
        if derived is None:
            derived = self._vjps[key] = self._derive(given, need)
        return derived

    def _derive(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        *sources, consts = self._sources
        eqns, residuals, structure = self._eqns, self._residuals, self._pull_structure
        assert self.out_avals is not None
        out = self.out_avals[0] if self.single else self.out_avals

        def vjp(*values: Any) -> tuple[Any, ...]:
            env = dict(consts)
            env.update(zip(sources, values[: len(sources)], strict=True))
            jaxapi.map_equations(eqns, env)
            leaves = [r.val if isinstance(r, Literal) else env[r] for r in residuals]
            pullback = jax.tree_util.tree_unflatten(structure, leaves)
            return _pull(pullback, out, values[len(sources) :], given, need)

        return Primitive(
            f"{self.primitive.name}_vjp", vjp, lazy=self.primitive.lazy, hot=self.primitive.hot
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


def _inline(closed: Any, avals: list[Any]) -> Any:
    """Open up nested calls, so that slices can be taken through them."""

    def run(*values: Any) -> list[Any]:
        env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        env.update(zip(closed.jaxpr.invars, values, strict=True))
        jaxapi.map_equations(closed.jaxpr.eqns, env, jaxapi.is_call)
        return [v.val if isinstance(v, Literal) else env[v] for v in closed.jaxpr.outvars]

    return jax.make_jaxpr(run)(*map(struct_of, avals))


def _with_residuals(
    primitive: Primitive, closed: Any, n_out: int, positions: tuple[int, ...]
) -> Primitive:
    """``primitive`` with the residuals at ``positions`` as further outputs."""
    run = jaxapi.jaxpr_as_fun(closed)

    def forward(*values: Any) -> tuple[Any, ...]:
        leaves = run(*values)
        return (*leaves[:n_out], *[leaves[i] for i in positions])

    saving = Primitive(f"{primitive.name}_saving", forward, lazy=primitive.lazy, hot=primitive.hot)
    outs = closed.jaxpr.outvars
    saved = [*outs[:n_out], *[outs[i] for i in positions]]
    saving.reach = functools.partial(_reach_of_jaxpr, closed.jaxpr, saved)
    return saving


def _reach_of_jaxpr(jaxpr: Any, outs: Sequence[Any], mask: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which of the variables ``outs`` have a derivative in the masked inputs."""
    reached = {v for v, m in zip(jaxpr.invars, mask, strict=True) if m}
    for eqn in jaxpr.eqns:
        if any(not isinstance(v, Literal) and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return tuple(
        [not isinstance(v, Literal) and v in reached and is_inexact(v.aval.dtype) for v in outs]
    )


def _reach_of_jvp(reach: Reach, mask: tuple[bool, ...], own: tuple[bool, ...]) -> tuple[bool, ...]:
    """`Primitive.reach` of the jvp for ``mask``: which outputs and tangents its masked inputs reach."""
    tangents = iter(own[len(mask) :])
    primals = own[: len(mask)]
    either = tuple(
        [(next(tangents) if m else False) or p for p, m in zip(primals, mask, strict=True)]
    )
    moved = zip(reach(either), reach(mask), strict=True)
    return (*reach(primals), *[e for e, given in moved if given])
