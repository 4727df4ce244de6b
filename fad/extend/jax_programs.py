"""Programs of JAX: made of functions of fad and of primitives with rules, and asked about their equations."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import jax

from fad.compile.signatures import OPERANDS, check_static, key_of
from fad.core import avals, jaxapi
from fad.core.caches import Cache, exact
from fad.core.dataflow import COMPUTED, dependence_rows
from fad.core.jaxapi import (
    WhileParts,
    Zero,
    define_primitive,
    evaluate_equation,
    flag_of,
    instantiate_zeros,
    new_primitive,
    rules_of,
    shaped_array,
    varying_axes,
    without_unused,
)
from fad.core.jaxprs import jvp_in, trace, where_batched
from fad.core.level import bind, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.threads import make_jit
from fad.core.trees import PyTreeDef, Rest, partition
from fad.core.types import (
    Array,
    ArrayFunction,
    Aval,
    JaxEquation,
    JaxObject,
    JaxProgram,
    Operand,
    Outputs,
    PyTree,
    Value,
)
from fad.functions.context import Template
from fad.functions.derived_rules import BatchedRules, DerivativeRules, LinearRules
from fad.functions.rules import FunctionClass
from fad.functions.user_rules import UserRules, over_devices
from fad.tape import staged
from fad.tape.staged import StagedLevel, in_body

# Functions as programs: what they close over becomes operands, and what a program is, is asked of it.


def stage(
    f: Callable[..., PyTree],
    operands: Sequence[Operand],
    *,
    name: str,
    bodies: Sequence[Callable[..., PyTree]] = (),
    kept: bool = False,
) -> tuple[Primitive, list[Value], PyTreeDef]:
    """Trace a function of fad into an operation; what the function closes over becomes an operand too.

    The operation is the same one for equal programs, so that a function that is made anew for each call
    compiles nothing.

    Arguments:
        f: a function of Tensors, one for each operand; it returns a pytree of arrays.
        operands: Tensors, arrays and numbers, whose shapes and dtypes count.
        name: what graphs and errors call the operation.
        bodies: the functions of the user that f calls: numbers in them that change from trace to trace
            become operands.
        kept: the operation is for later calls too, and Tensors from outside that f computes with
            are read again at each: they are operands as they are.

    Returns:
        The operation; the values to bind it on: those from outside, then the operands; and the structure of
        what f returns. The operation returns its leaves in a tuple.

    Raises:
        HOST_ERRORS: f reads a value, where there is none.

    >>> import fad, fad.numpy as fnp
    >>> scale = fad.tensor(3.0, requires_grad=True)
    >>> op, values, _ = fad.extend.stage(lambda x: fnp.sin(x) * scale, [fad.tensor(0.0)], name="f")
    >>> values
    [Tensor(3., dtype=float32, requires_grad=True), Tensor(0., dtype=float32)]
    >>> fad.extend.bind(op, values)
    (Tensor(0., dtype=float32, grad_fn=<FBackward>),)
    """

    def run(level: StagedLevel, *tracers: Array) -> PyTree:
        return in_body(level, f)(*tracers)

    run.name = name  # type: ignore[attr-defined]
    return staged.stage(run, operands, bodies=bodies, kept=kept)


def split_call(
    who: str, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> tuple[list[Operand], Rest, Hashable]:
    """Take a call of a function apart, to find what was made for such calls again.

    Arguments:
        who: for messages.
        args, kwargs: pytrees; leaves other than arrays and numbers are static, and hashable.

    Returns:
        The leaves that are arrays, Tensors and numbers; the rest of ``(args, kwargs)``, as `partition` gives
        it; and a key: calls with equal ones are traced into equal programs. It has the rest, shapes and
        dtypes, which arguments share storage, named axes and modes.

    Raises:
        TypeError: a static leaf is not hashable.

    >>> import fad, jax.numpy as jnp
    >>> leaves, rest, key = fad.extend.split_call("f", [jnp.ones(2), "sum"], {})
    >>> rest.combine(["x"]), key == fad.extend.split_call("f", [jnp.zeros(2), "sum"], {})[2]
    ((('x', 'sum'), {}), True)
    """
    call = tuple(args), {name: kwargs[name] for name in sorted(kwargs)}
    leaves, rest = partition(call, OPERANDS, ordered=True)
    for x in rest.statics():
        check_static(x, who)
    leaves = list(map(outlived, leaves))
    return leaves, rest, key_of(leaves, rest)


def body_of(eqn: JaxEquation) -> JaxProgram | None:
    """The program of what an equation computes, where it is a primitive of fad: a call of a Function, ...

    None for equations of JAX.

    >>> import fad, jax
    >>> class Twice(fad.Function):
    ...     forward = staticmethod(lambda x: x * 2.0)
    >>> (eqn,) = jax.make_jaxpr(Twice.apply)(jax.numpy.ones(())).eqns
    >>> [inner.primitive.name for inner in fad.extend.body_of(eqn).jaxpr.eqns]
    ['mul']
    """
    if flag_of(eqn, "expensive") is None:
        return None
    body = functools.partial(eqn.primitive.impl, **eqn.params)
    return trace(body, [avals.struct_of(v.aval) for v in eqn.invars])[0]


def aval_of(x: Operand) -> Aval:
    """Shape, dtype and weak type of a Tensor, as its level shows them, of an array or of a number.

    Returns:
        Something hashable that `trace` and ``jax.make_jaxpr`` take in the place of ``x``.

    >>> import fad, fad.numpy as fnp
    >>> y = fad.vmap(lambda x: print(fad.extend.aval_of(x).shape))(fnp.ones((2, 3)))
    (3,)
    """
    return avals.struct_of(avals.aval_of(x))


def dependence(f: ArrayFunction, operands: Sequence[Aval]) -> Sequence[Sequence[bool]]:
    """For each output of a function of JAX, on which of its operands it depends, as far as derivatives go.

    Paths lead through values of floating or complex dtype, and end at ``stop_gradient``.

    Arguments:
        f: a function of arrays that returns an array, or a tuple of them.
        operands: what has their shapes and dtypes, see `aval_of`.

    >>> import fad, jax
    >>> f = lambda x, y: (x * y, jax.lax.stop_gradient(x) + y)
    >>> fad.extend.dependence(f, [fad.extend.aval_of(1.0)] * 2)
    ((True, True), (False, True))
    """
    return dependence_rows(f, [True] * len(operands), operands, COMPUTED)


def varying_alike(values: Sequence[Value]) -> list[Value]:
    """The values, made to vary along all axes of ``shard_map`` along which one of them does.

    JAX's own operations do this to their operands; the transpose sums a gradient over the devices.

    >>> import fad, jax.numpy as jnp
    >>> fad.extend.varying_alike([jnp.ones(2)])  # outside of shard_map nothing varies
    [Array([1., 1.], dtype=float32)]
    """
    arrays = [x for x in values if not isinstance(x, Tensor)]
    if len(arrays) == len(values):
        return list(jaxapi.varying_alike(arrays))
    every = [varying_axes(avals.aval_of(x)) for x in values]
    axes = frozenset[Hashable]().union(*every)
    return [
        bind(over_devices((), tuple(axes - along)), (x,)) if axes - along else x
        for x, along in zip(values, every, strict=True)
    ]


# Primitives of JAX with rules of their own, and the programs that such rules are made of.


def native_primitive(
    name: str,
    run: ArrayFunction,
    avals: ArrayFunction,
    *,
    jvp: ArrayFunction,
    batch: ArrayFunction,
    transpose: ArrayFunction | None = None,
    effects: ArrayFunction | None = None,
    loop: ArrayFunction | None = None,
) -> JaxObject:
    """Make a primitive of JAX, where the rules that JAX and fad derive of a function do not do.

    It has several results, which backward passes keep. Functions that bind it work under all transforms of
    JAX and of fad. All rules get its parameters by keyword.

    Arguments:
        name: what programs call it.
        run: ``run(*arrays, **parameters)`` returns its results. It is compiled: outside of compiled code
            once for equal parameters that are numbers, texts, programs, avals, or tuples of these, and at
            each call for others, which may mean something else by then.
        avals: from shapes and dtypes of operands to those of results.
        jvp: ``jvp(primals, tangents, **parameters)`` returns ``(results, tangents)``; a tangent that is zero
            is None.
        batch: ``batch(axis, operands, dims, **parameters)`` returns ``(results, dims)``, where one operand at
            least is batched; ``axis.size`` is the number of lanes.
        transpose: ``transpose(cotangents, operands, linear, **parameters)`` returns a cotangent, or None, for
            each operand; ``linear`` says which operands it is transposed in, which have no values.
        effects: from shapes and dtypes of operands to what JAX calls the effects of it, if it has some.
        loop: for a ``while`` of one's own: from its parameters to what `while_parts` says of it.

    Returns:
        The primitive; ``bind(*operands, **parameters)`` calls it.

    >>> import fad, jax
    >>> twice = fad.extend.native_primitive(
    ...     "twice", lambda x: [2.0 * x], lambda x: [x],
    ...     jvp=lambda primals, tangents: (twice.bind(*primals), twice.bind(*tangents)),
    ...     batch=lambda axis, operands, dims: (twice.bind(*operands), dims),
    ...     transpose=lambda cotangents, operands, linear: twice.bind(*cotangents),
    ... )
    >>> float(jax.grad(lambda x: twice.bind(x)[0])(1.0))
    2.0
    """
    primitive = new_primitive(name, expensive=True)
    if loop is not None:
        primitive.loop = lambda eqn: WhileParts(*loop(**eqn.params))

    compiled = Cache(64)

    def eagerly(*values: Array, **parameters: object) -> Outputs:
        call = functools.partial(run, **parameters)
        if not _is_constant(tuple(parameters.values())):
            return make_jit(call)(*values)
        key = exact(tuple(parameters.items()))
        return (compiled.get(key) or compiled.put(key, make_jit(call)))(*values)

    def abstractly(*operands: Aval, **parameters: object) -> list[Aval]:
        made = avals(*operands, **parameters)
        return [a if isinstance(a, shaped_array) else shaped_array(a.shape, a.dtype) for a in made]

    def push(
        primals: Sequence[Array], tangents: Sequence[JaxObject], **parameters: object
    ) -> tuple[Outputs, Outputs]:
        or_none = [None if isinstance(t, Zero) else t for t in tangents]
        outs, outs_t = jvp(primals, or_none, **parameters)
        return outs, [
            Zero(jax.typeof(o).to_tangent_aval()) if t is None else t
            for o, t in zip(outs, outs_t, strict=True)
        ]

    def pull(cotangents: Sequence[JaxObject], *operands: Operand, **parameters: object) -> Outputs:
        linear = list(map(jaxapi.is_undefined_primal, operands))
        assert transpose is not None
        return transpose(list(map(instantiate_zeros, cotangents)), operands, linear, **parameters)

    define_primitive(
        primitive,
        eagerly,
        abstractly,
        traced=run,
        effects=effects,
        jvp=push,
        transpose=pull if transpose is not None else None,
        batch=where_batched(primitive, batch),
    )
    return primitive


def _is_constant(value: object) -> bool:
    """Whether what a program is made with means the same in each call."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    programs = jaxapi.Jaxpr, jaxapi.ClosedJaxpr
    return value is None or isinstance(value, (numbers.Number, str, *programs, shaped_array))


def derivative_program(
    program: JaxProgram, differentiated: Sequence[bool], wanted: Sequence[bool]
) -> tuple[JaxProgram, list[bool]]:
    """The derivative of a program, for `native_primitive`.

    Arguments:
        program: a closed jaxpr.
        differentiated: which of its inputs have a tangent.
        wanted: which of its outputs are to have one, zeros where it is zero.

    Returns:
        The program of all inputs, and of the tangents that there are, which gives all outputs and their
        tangents; and which outputs have one.

    >>> import fad, jax, jax.numpy as jnp
    >>> program = jax.make_jaxpr(lambda x, y: (x * y, y))(2.0, 3.0)
    >>> derivative, moved = fad.extend.derivative_program(program, [True, False], [False, False])
    >>> [float(x) for x in fad.extend.run_program(derivative, 2.0, 3.0, 1.0)], moved
    ([6.0, 3.0, 3.0], [True, False])
    """
    derivative, moved = jaxapi.jvp_jaxpr(program, list(differentiated), list(wanted))
    return derivative, list(moved)


def batched_program(
    program: JaxProgram, axis: JaxObject, batched: Sequence[bool], wanted: Sequence[bool] | bool
) -> tuple[JaxProgram, list[bool]]:
    """A program of batches, for `native_primitive`: what is batched is so along the first dimension.

    Arguments:
        program: a closed jaxpr.
        axis: what the rule ``batch`` was given.
        batched: which of its inputs are batched.
        wanted: which of its outputs are to be batched in any case; one bool stands for all.

    Returns:
        The program, and which of its outputs are batched.

    >>> import fad, jax, jax.numpy as jnp
    >>> program, seen = jax.make_jaxpr(lambda x, y: (x * y, y))(2.0, 3.0), []
    >>> def batch(axis, operands, dims):
    ...     batched, outs = fad.extend.batched_program(program, axis, [True, False], False)
    ...     seen.append((outs, fad.extend.run_program(batched, *operands)[0].tolist()))
    ...     return operands[:1], dims[:1]
    >>> run = fad.extend.native_primitive(
    ...     "run", lambda x, y: [x], lambda x, y: [x], jvp=lambda *_: None, batch=batch)
    >>> _ = jax.vmap(lambda x: run.bind(x, jnp.float32(3.0))[0])(jnp.arange(2.0))
    >>> seen
    [([True, False], [0.0, 3.0])]
    """
    made, outs = jaxapi.batch_jaxpr(program, axis, list(batched), wanted)
    return made, list(outs)


# The derivative of one equation.


def derivative_of(
    eqn: JaxEquation, differentiated: Sequence[int], kept: Sequence[int], point: Sequence[Array]
) -> JaxProgram:
    """The derivative of an equation, as a program.

    Arguments:
        eqn: the equation.
        differentiated: which of its operands it is differentiated in.
        kept: for each of its results, whether its tangent is wanted.
        point: operands, whose shapes and dtypes count.

    Returns:
        A program of all operands, and of tangents of those that are differentiated; it gives the tangents of
        the results.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> eqn = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns[0]
    >>> derivative = extend.derivative_of(eqn, [0], [0], [jnp.float32(2.0), jnp.float32(3.0)])
    >>> [float(t) for t in extend.run_program(derivative, 2.0, 3.0, 1.0)]
    [3.0]
    """
    mask = tuple([k in differentiated for k in range(len(point))])

    def outputs(*at: Array) -> list[Array]:
        outs = evaluate_equation(eqn, at)
        return [outs[k] for k in kept]

    def derivative(*values: Array) -> Outputs:
        return jvp_in(mask, outputs, values[: len(point)], values[len(point) :])[1]

    operands = [*point, *[point[k] for k in differentiated]]
    return without_unused(trace(derivative, [aval_of(v) for v in operands])[0])


# Calls of Functions.


class FunctionCall(NamedTuple):
    """What `function_call` says of an equation."""

    function: FunctionClass
    names: Sequence[str]
    parts: Sequence[Template]
    arguments: Callable[[Sequence[Aval]], tuple[Sequence[PyTree], dict[str, PyTree]]]
    around: Sequence[tuple[str, Sequence[PyTree], PyTree]]


def function_call(eqn: JaxEquation) -> FunctionCall | None:
    """Which Function an equation calls, and what transforms have made of the call; None for other equations.

    Arguments:
        eqn: an equation of a program: a call of a Function, its derivative, or its batch.

    Returns:
        A named tuple. ``function``: the class. ``names``: of its arguments. ``parts``: for each argument,
        what `partition` gives of it; ``part.slots`` are the places of its arrays, and ``part.collect(tree,
        what)`` lists what a tree has there. ``arguments(arrays)``: the positional and keyword arguments, with
        these in the places of the arrays. ``around``: the transforms, the outermost first.
        ``("derivative", counts, outputs)``: the operands of the equation are those of the call, then its
        outputs where ``outputs`` says so, then a tangent for each operand where ``counts`` says so.
        ``("vmap", dims, size)``: the operands have lanes along ``dims``, the results along their first
        dimension. None for other equations, and for a derivative that is not linear in its last operands.

    >>> import fad, jax, jax.numpy as jnp
    >>> class Double(fad.Function):
    ...     forward = staticmethod(lambda x: 2.0 * x)
    >>> (eqn,) = jax.make_jaxpr(jax.vmap(Double.apply))(jnp.ones(3)).eqns
    >>> call = fad.extend.function_call(eqn)
    >>> call.function.__name__, call.names, call.around
    ('Double', ['x'], [('vmap', (0,), 3)])
    """
    rules = rules_of(eqn)
    around: list[tuple[str, Sequence[PyTree], PyTree]] = []
    while not isinstance(rules, UserRules):
        if isinstance(rules, BatchedRules):
            around.append(("vmap", rules.dims, rules.batch_size))
        elif isinstance(rules, DerivativeRules) and rules.is_linear:
            around.append(("derivative", rules.counts, rules.outputs))
        elif not isinstance(rules, LinearRules):
            return None
        rules = rules.base
    names, parts = rules.argument_names(), rules.inputs.parts()
    return FunctionCall(rules.cls, names, parts, rules.arguments, around)
