"""Programs of JAX (jaxprs): looked through, evaluated, compared, written into others, and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from fad.core import jaxapi
from fad.core.avals import SCALARS, aval_of, struct_of
from fad.core.caches import exact
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    barrier_op,
    called,
    computed_by,
    convert_constvars_jaxpr,
    current_program,
    define_primitive,
    defined_rule,
    evaluate_equation,
    has_own_rules,
    has_rule_made_anew,
    is_tracing,
    new_primitive,
    other_effects,
    parameters,
    programs,
    run_jaxpr,
    shaped_array,
    telling_parameters,
    trace_context,
    write_equations,
)
from fad.core.threads import pace, without_collector
from fad.core.types import (
    Array,
    ArrayFunction,
    Atom,
    Aval,
    Dims,
    DType,
    JaxBody,
    JaxEquation,
    JaxLiteral,
    JaxObject,
    JaxProgram,
    Operand,
    Outputs,
    PyTree,
)
from fad.errors import RuleError

# ``jax.jvp`` and ``jax.vjp`` of a function in some of its arguments.
#
# A *mask* is a tuple of bools, one for each argument: whether the function is differentiated in it.

T = TypeVar("T")


def conjugate(x: Any) -> Array:
    """Complex conjugate; real values pass untouched."""
    return jnp.conj(x) if jnp.issubdtype(x.dtype, np.complexfloating) else x


def select(mask: Sequence[bool], values: Sequence[T]) -> list[T]:
    """The masked values."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def spread(
    mask: Sequence[bool], some: Iterable[Any], others: Sequence[Any] | None = None
) -> list[Any]:
    """``others``, or None for each, with ``some`` in the masked places."""
    it = iter(some)
    rest = [None] * len(mask) if others is None else others
    return [next(it) if m else o for m, o in zip(mask, rest, strict=True)]


def active(
    f: Callable[..., Outputs], mask: Sequence[bool], values: Sequence[T]
) -> tuple[Callable[..., Outputs], list[T]]:
    """``f`` as a function of its masked arguments, and these; the others are fixed."""

    return lambda *masked: f(*spread(mask, masked, values)), select(mask, values)


def jvp_in(
    mask: tuple[bool, ...],
    flat: ArrayFunction,
    values: Sequence[Array],
    tangents: Sequence[Array],
) -> tuple[Outputs, Outputs]:
    """The outputs, and their tangents for the tangents of the masked arguments."""
    on_active, primals = active(flat, mask, values)
    cast = [
        t if t.dtype == p.dtype else t.astype(p.dtype)
        for p, t in zip(primals, tangents, strict=True)
    ]
    out, out_t = jax.jvp(on_active, primals, cast)
    return out, out_t


def jvp_by_vjp(
    mask: tuple[bool, ...],
    flat: ArrayFunction,
    values: Sequence[Array],
    tangents: Sequence[Array],
) -> tuple[Outputs, Outputs]:
    """`jvp_in` of what JAX only pulls back (``jax.custom_vjp``): the pullback is linear; it is transposed."""
    dtypes = [p.dtype for p in select(mask, values)]
    try:
        out, pullback = vjp_in(mask, flat, values)
        outs, structure = jax.tree.flatten(out)
        inexact = [is_inexact(o.dtype) for o in outs]
        none = [np.zeros(o.shape, jax.dtypes.float0) for o in outs]

        def pull(*cotangents: Array) -> list[Array]:
            every = jax.tree.unflatten(structure, spread(inexact, cotangents, none))
            return [_as_its_argument(g, d) for g, d in zip(pullback(every), dtypes, strict=True)]

        pushed = jax.linear_transpose(pull, *select(inexact, outs))(list(tangents))
    except (AssertionError, ValueError) as error:
        avals = error.args[0] if error.args else None
        if "Reverse-mode differentiation does not work" in str(error):
            raise _refused("not possible through a while_loop", _LOOPS) from error
        if isinstance(avals, tuple) and all([isinstance(a, shaped_array) for a in avals]):
            dtypes_added = " and ".join([str(a.dtype) for a in avals])
            raise _refused(
                f"it returned gradients of {dtypes_added} for one value", _REAL
            ) from error
        raise
    return out, jax.tree.unflatten(structure, spread(inexact, pushed, none))


_LOOPS = "scan, or fori_loop with a fixed number of steps"
_REAL = "g.real for the gradient of a real argument"


def _refused(what: str, instead: str) -> RuleError:
    return RuleError(
        f"forward mode of a jax.custom_vjp is its rule transposed: {what}. Write {instead}; or write a "
        "jax.custom_jvp"
    )


def _as_its_argument(gradient: Array, dtype: DType) -> Array:
    """What a rule returned for an argument of this dtype, in it."""
    if np.iscomplexobj(gradient) and not jnp.issubdtype(dtype, np.complexfloating):
        raise _refused(f"it returned {gradient.dtype} for an argument of {dtype}", _REAL)
    return gradient.astype(dtype)


def vjp_in(
    mask: tuple[bool, ...], flat: ArrayFunction, values: Sequence[Array]
) -> tuple[Outputs, ArrayFunction]:
    """The outputs, and the pullback from their cotangents to those of the masked arguments."""
    on_active, primals = active(flat, mask, values)
    out, pullback = jax.vjp(on_active, *primals)
    return out, pullback


def run_pullback(
    pullback: ArrayFunction,
    out: Outputs,
    cotangents: Sequence[Array | None],
    present: tuple[bool, ...] | None,
    need: tuple[bool, ...],
    sparse: bool = False,
) -> tuple[Array, ...]:
    """Run a JAX pullback with PyTorch's convention for complex values.

    Arguments:
        out: the outputs or their avals.
        cotangents: those of the outputs that have one.
        present: which outputs have a cotangent; None: the function has one output, which has one.
        need: which of the gradients to return.
        sparse: the pullback accepts symbolic zeros. They are used for missing cotangents, so that
            nothing is computed from these (an array of zeros times infinity would be NaN).
    """
    outs = out if type(out) is tuple else (out,)
    if present is None:
        present = (True,) * len(outs)
    cts = spread(present, cotangents)
    for k, (o, ct) in enumerate(zip(outs, cts, strict=True)):
        if not is_inexact(o.dtype):
            ct = np.zeros(o.shape, jaxapi.float0)
        elif ct is None:
            aval = o if isinstance(o, shaped_array) else jax.typeof(o)
            ct = jaxapi.Zero(aval.to_ct_aval()) if sparse else jaxapi.zeros(aval)
        else:
            ct = conjugate(ct if ct.dtype == o.dtype else ct.astype(o.dtype))
        cts[k] = ct
    grads = pullback(tuple(cts) if type(out) is tuple else cts[0])
    return tuple(map(conjugate, select(need, grads)))


# Rules of vmap for primitives of JAX.


def where_batched(primitive: JaxObject, rule: ArrayFunction) -> ArrayFunction:
    """``rule``, the rule of vmap of a primitive, which JAX calls where no value is batched too."""

    def batch(axis: JaxObject, values: Outputs, dims: Dims, **parameters: object) -> Outputs:
        if any([d is not None for d in dims]):
            return rule(axis, values, dims, **parameters)
        outs = primitive.bind(*values, **parameters)
        return outs, [None] * len(outs)

    return batch


def lanes_first(x: Array, dim: int | None, size: int) -> Array:
    """``x`` with its ``size`` lanes along dimension 0, also if all share it."""
    return jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)


# Programs of JAX (jaxprs): looked through, evaluated, compared, and written into others.

# A program, None where it is valid for one call only; and whether it has one result, not a tuple.
KnownCall = tuple[JaxProgram | None, bool]
# From an equation to the program that it calls with its last operands; None of other equations.
Opens = Callable[[JaxEquation], JaxProgram | None]


def inner_jaxprs(eqn: JaxEquation) -> Iterator[JaxBody]:
    """The jaxprs in an equation."""
    return map(opened, programs(eqn))


def equations_in(jaxpr: JaxBody) -> Iterator[JaxEquation]:
    """The equations of a program, each followed by those of the programs in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations_in(inner)


def opened(program: JaxProgram | JaxBody) -> Any:
    """The jaxpr of a program that may be closed."""
    return getattr(program, "jaxpr", program)


def with_programs(eqn: JaxEquation, f: Callable[[JaxBody], JaxBody]) -> JaxEquation:
    """An equation with ``f`` of each jaxpr among its parameters in its place.

    >>> import fad, jax, jax.numpy as jnp
    >>> eqn = jax.make_jaxpr(lambda x: jax.jit(jnp.sin)(x))(1.0).eqns[0]
    >>> twice = fad.extend.with_programs(eqn, lambda body: body.replace(eqns=body.eqns * 2))
    >>> [inner.primitive.name for inner in twice.params["jaxpr"].eqns]
    ['sin', 'sin']
    """

    def mapped(value: Any) -> Any:
        if isinstance(value, Jaxpr):
            return f(value)
        if isinstance(value, ClosedJaxpr):
            return ClosedJaxpr(f(value.jaxpr), value.consts)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(mapped, value))
        return type(value)(map(mapped, value)) if type(value) in (tuple, list) else value

    if next(programs(eqn), None) is None:
        return eqn
    return eqn.replace(params={name: mapped(value) for name, value in eqn.params.items()})


def calls_with_rules(jaxpr: JaxBody) -> frozenset[str]:
    """The names of the primitives in a program that have derivatives of their own, which it does not show."""
    names = {eqn.primitive.name for eqn in equations_in(jaxpr)}
    prefixes = ("custom_jvp_call", "custom_vjp_call", "fad_call")
    return frozenset([name for name in names if name.startswith(prefixes)])


def calls_host(jaxpr: JaxBody) -> bool:
    """Whether a program has effects, or calls Python when it runs, as far as its equations show."""
    return other_effects(jaxpr) or any(
        "callback" in eqn.primitive.name or any(map(other_effects, inner_jaxprs(eqn)))
        for eqn in equations_in(jaxpr)
    )


def has_rules(jaxpr: JaxBody) -> bool:
    """Whether a program has calls with rules of their own."""
    return any(map(has_own_rules, equations_in(jaxpr)))


def read(atoms: Sequence[Atom], env: dict[Atom, Array]) -> list[Array]:
    """The values of ``atoms``: of variables those in ``env``."""
    return [v.val if isinstance(v, Literal) else env[v] for v in atoms]


def map_equations(
    eqns: Sequence[JaxEquation], env: dict[Atom, Array], opens: Opens = called
) -> None:
    """Evaluate ``eqns`` in order, reading and writing variables in ``env``; calls, of which ``opens`` gives
    the program, are opened up, and evaluated in place.
    """
    for eqn in eqns:
        inputs = read(eqn.invars, env)
        closed = opens(eqn)
        if closed is None:
            outputs = evaluate_equation(eqn, inputs)
        else:
            outputs = run_inlined(closed, inputs[len(inputs) - len(closed.jaxpr.invars) :], opens)
        env.update(zip(eqn.outvars, outputs, strict=True))


def run_inlined(closed: JaxProgram, values: Sequence[Array], opens: Opens = called) -> list[Array]:
    """`fad.core.jaxapi.run_jaxpr`, by `map_equations`."""
    env: dict[Atom, Array] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, values, strict=True))
    map_equations(closed.jaxpr.eqns, env, opens)
    return read(closed.jaxpr.outvars, env)


def trace(f: ArrayFunction, operands: Iterable[Operand | Aval]) -> tuple[JaxProgram, Outputs]:
    """The program of ``f``, and what it returns for such operands, as shapes; without the garbage
    collector, see NOTE [finalizers and tracing].

    >>> import fad
    >>> program, shape = fad.extend.trace(lambda x: (x + 1.0) * 2.0, [1.0])
    >>> [eqn.primitive.name for eqn in program.jaxpr.eqns], shape.shape
    (['add', 'mul'], ())
    """
    # JAX keeps a program as long as the function lives that it has traced. The program may refer to ``f``, by
    # the rules of a call in it; so JAX is given another function, which dies here.
    traced = without_collector(jax.make_jaxpr(lambda *values: f(*values), return_shape=True))
    program: tuple[JaxProgram, Outputs] = traced(*operands)
    return program


def write_call(
    cached: dict[Hashable, KnownCall], f: ArrayFunction, values: Sequence[Operand]
) -> Outputs:
    """Write a call of ``f`` into the program being traced: what it returns, an array or a tuple.

    None if no program is being traced, or if ``f`` closes over a tracer, so that its equations are valid
    for one call only.

    Arguments:
        cached: a cache of the equations of ``f``, see `known_call`.
    """
    program = current_program()
    if program is None:
        return None
    equations, single = known_call(cached, f, values)
    if equations is None:
        return None
    outs = write_equations(program, equations, values)
    return outs[0] if single else tuple(outs)


def known_call(
    cached: dict[Hashable, KnownCall], f: ArrayFunction, values: Sequence[Operand | Aval]
) -> KnownCall:
    """The equations of ``f`` for such ``values``, from a cache of them by the avals of these."""
    kinds: list[Any] = [type(v) if type(v) in SCALARS else aval_of(v) for v in values]
    key = (trace_context(), *kinds)
    call = cached.get(key)
    if call is None:
        operands = [
            v if type(v) in SCALARS else struct_of(k) for v, k in zip(values, kinds, strict=True)
        ]
        closed, shape = trace(f, operands)
        once = any([isinstance(c, jax.core.Tracer) for c in closed.consts])
        call = cached[key] = (None if once else closed, type(shape) is not tuple)
    return call


def inlined_when_traced(flat: ArrayFunction, compiled: ArrayFunction) -> ArrayFunction:
    """``compiled``; where JAX traces, ``flat`` instead, so that positions which are numbers become
    constants.

    XLA compiles a slice at a constant position to faster code. JAX's vmap of a slice at a variable
    position is a gather.
    """

    def call(*values: Array) -> Outputs:
        for v in values:
            if isinstance(v, jax.core.Tracer):
                return flat(*values) if is_tracing() else compiled(*values)
        return compiled(*values)

    return call


def is_ref(atom: Atom) -> bool:
    """Whether a variable of a program is a Ref, which can be written to."""
    return hasattr(atom.aval, "inner_aval")


def bind_jaxpr(closed: JaxProgram) -> Callable[..., list[Array]]:
    """A function of (consts, inputs) that evaluates a closed jaxpr with those consts."""
    opened = ClosedJaxpr(convert_constvars_jaxpr(closed.jaxpr), ())

    def run(*values: Array) -> list[Array]:
        program = current_program()
        if program is not None:
            return write_equations(program, opened, values)
        return run_jaxpr(opened, *values)

    return run


EXECUTED = 3  # as the depth of a program: none of its derivatives is taken any more


def parameters_key(eqn: JaxEquation, keys: dict[int, Hashable], depth: int = 0) -> Hashable:
    """A hashable form of the parameters of an equation, as in `jaxpr_key`.

    Arguments:
        keys: those of other equations: the equations that are written often share their parameters.
        depth: how deep in derivatives of derivatives the equation is, see `_key_with_rule`; `EXECUTED` if it
            is only executed.
    """
    key: Hashable = keys.get(id(eqn.params))
    if key is None:
        computed = computed_by(eqn) if depth == EXECUTED else None
        if computed is not None:
            key = (_parameter_key(computed, depth), _Alive(computed))
        elif has_rule_made_anew(eqn) or (depth and defined_rule(eqn) is not None):
            key = _key_with_rule(eqn, depth)
        else:
            key = tuple([(n, _parameter_key(p, depth)) for n, p in telling_parameters(eqn)])
        keys[id(eqn.params)] = key
    return key


class _Alive:
    """Keeps objects alive as long as the key is in which their identities are; all are equal."""

    def __init__(self, *objects: object) -> None:
        self._objects = objects

    def __eq__(self, other: object) -> bool:
        return type(other) is _Alive

    def __hash__(self) -> int:
        return 0


def _key_with_rule(eqn: JaxEquation, depth: int) -> Hashable:
    """What a call computes, and the program of its derivative, in which the call itself comes again.

    The program of a derivative is made anew, and so are the calls in it: a custom_jvp there is known by the
    rule that it was defined with. Calls in the derivatives of those count by what they compute.
    """
    inner = list(programs(eqn))
    key: tuple[Hashable, ...] = (*[_parameter_key(p, depth) for p in inner], _Alive(*inner))
    rule = defined_rule(eqn)
    if depth >= 2 or (depth and rule is None):
        return key
    if depth:
        key += (id(rule), _Alive(rule))
    inexact = tuple([is_inexact(v.aval.dtype) for v in eqn.invars])

    def run(*values: Array) -> tuple[Outputs, Outputs]:
        n = len(inexact)
        return jvp_in(inexact, lambda *at: evaluate_equation(eqn, at), values[:n], values[n:])

    avals = [struct_of(v.aval) for v in eqn.invars]
    made, _ = trace(run, [*avals, *select(inexact, avals)])
    return (*key, _parameter_key(made, depth + 1), _Alive(made))


def _parameter_key(p: object, depth: int) -> Hashable:
    if isinstance(p, ClosedJaxpr):
        return (jaxpr_key(p.jaxpr, depth), tuple([id(c) for c in p.consts]))
    if isinstance(p, Jaxpr):
        return jaxpr_key(p, depth)
    if isinstance(p, (tuple, list)):
        return (type(p), tuple([_parameter_key(x, depth) for x in p]))
    try:
        return exact(p)
    except TypeError:
        return (type(p), id(p))


def is_number(atom: Atom) -> TypeGuard[JaxLiteral]:
    """Whether an operand of an equation is a number that may as well be an array."""
    return isinstance(atom, Literal) and atom.aval.shape == () and not atom.aval.weak_type


def bits(x: np.ndarray) -> tuple[Hashable, ...]:
    """A key of an array of NumPy."""
    return str(x.dtype), x.shape, x.tobytes()


def jaxpr_key(
    jaxpr: JaxBody, depth: int = 0, lifted: list[JaxLiteral] | None = None
) -> tuple[Hashable, ...]:
    """A hashable form of a jaxpr: equal keys mean the same program.

    Unhashable parameters count by identity, so the jaxpr must be kept alive as long as the key is.

    Arguments:
        jaxpr: the program.
        depth: that of its equations in `parameters_key`; with `EXECUTED`, calls that have rules of their own
            count by what they compute.
        lifted: gets the numbers that are operands of its own equations, in order; of them the key has only
            the avals.

    >>> import fad, jax
    >>> one, two = [jax.make_jaxpr(lambda x: 2.0 * x)(1.0).jaxpr for _ in range(2)]
    >>> fad.extend.program_key(one) == fad.extend.program_key(two)
    True
    """
    numbers: dict[Atom, int] = {}
    params: dict[int, Hashable] = {}

    def atom(v: Atom) -> Hashable:
        if isinstance(v, Literal):
            return (*bits(np.asarray(v.val)), v.aval)
        return numbers.setdefault(v, len(numbers))

    key: list[Hashable] = []
    for v in (*jaxpr.constvars, *jaxpr.invars):
        key += (atom(v), v.aval)
    for eqn in jaxpr.eqns:
        key += (
            eqn.primitive,
            parameters_key(eqn, params, depth),
            len(eqn.invars),
            len(eqn.outvars),
        )
        if lifted is None:
            key += [atom(v) for v in eqn.invars]
        else:
            key += [v.aval if is_number(v) else atom(v) for v in eqn.invars]
            lifted += [v for v in eqn.invars if is_number(v)]
        for v in eqn.outvars:
            key += (atom(v), v.aval)
    key += [atom(v) for v in jaxpr.outvars]
    return tuple(key)


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


# Functions whose results have an element for each element of their operands, broadcast, and of no other.

# Primitives of JAX.
ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt
    ceil clamp complex conj convert_element_type copy cos cosh device_put digamma div eq erf
    erf_inv erfc exp exp2 expm1 fad_unrecorded floor ge gt igamma igammac imag integer_pow is_finite le
    lgamma log log1p logistic lt max min mul ne neg nextafter not or polygamma polynomial pow pvary real
    reduce_precision rem round rsqrt sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta""".split()
)


def _all(jaxpr: JaxBody) -> bool:
    return all(map(is_elementwise_equation, jaxpr.eqns))


def is_elementwise_equation(eqn: JaxEquation) -> bool:
    """Whether an equation works element by element, broadcast as NumPy does.

    >>> import fad, jax, jax.numpy as jnp
    >>> program = jax.make_jaxpr(lambda x: (x * x).sum())(jnp.ones(3))
    >>> [fad.extend.is_elementwise(eqn) for eqn in program.eqns]
    [True, False]
    """
    name = eqn.primitive.name
    if name in ELEMENTWISE or name == "select_n":
        return True
    if name in ("broadcast_in_dim", "reshape"):  # as NumPy broadcasts: in front
        shape, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        if name == "broadcast_in_dim":
            last = tuple(range(len(out) - len(shape), len(out)))
            return bool(parameters(eqn)[1] == last)
        return bool(out == (1,) * (len(out) - len(shape)) + shape)
    if called(eqn) is None and name not in ("custom_jvp_call", "custom_vjp_call"):
        return False
    return all(map(_all, inner_jaxprs(eqn)))
