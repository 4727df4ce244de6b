"""Programs of JAX: made of functions of fad and of primitives with rules, and asked about their equations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeAlias

import jax
import numpy as np

from fad.compile.signatures import OPERANDS, check_static, key_of
from fad.core import avals, jaxapi
from fad.core.caches import Cache, exact
from fad.core.dataflow import COMPUTED, dependence_rows
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    Literal,
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
from fad.core.jaxprs import jvp_in, lanes_first, trace, where_batched
from fad.core.level import bind, outlived
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.threads import make_jit
from fad.core.trees import HOLE, PyTreeDef, Rest, partition
from fad.core.types import (
    Array,
    ArrayFunction,
    Aval,
    JaxBody,
    JaxEquation,
    JaxObject,
    JaxProgram,
    Operand,
    Outputs,
    PyTree,
    Value,
)
from fad.errors import RuleError, describe
from fad.functions.derived_rules import BatchedRules, DerivativeRules, LinearRules
from fad.functions.rules import CallRules
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
        run: ``run(*arrays, **parameters)`` returns its results: it is compiled.
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

    compiled = Cache()

    def eagerly(*values: Array, **parameters: object) -> Outputs:
        call = functools.partial(run, **parameters)
        try:
            key = exact(tuple(parameters.items()))
        except TypeError:  # parameters without a hash: compiled at each call
            return make_jit(call)(*values)
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


# ``linear_call``: for JAX, a function that is linear in its second argument, and its transpose.
#
# NOTE [a product and its transpose]
#
#     class Product:
#         def __call__(self, point, vector):
#             return [jax.pure_callback(lambda p, v: p * v, vector[0], point[0], vector[0])]
#         transposed = property(lambda self: self)
#
#     matvec = lambda v: fad.extend.linear_call(Product(), [jnp.float32(2.0)], [v])[0]
#     solve = lambda matvec, b: b / 2.0
#     assert jax.grad(lambda b: jax.lax.custom_linear_solve(matvec, b, solve, solve))(1.0) == 0.5
#
# JAX's ``custom_linear_solve`` transposes the function that it is given, whether that is used or not, by its
# program. But a product with a Jacobian may be computed by a rule of the user's, which may have no transpose:
# here it calls the host. And none is needed where the other product is known: the transpose of a pullback is
# the pushforward, and the other way round. So a product is one primitive of JAX, whose transpose is the other
# product. Each is traced where it is used.

Leaves = Sequence[Array]


class Product(Protocol):
    """A hashable function of (point, vector), linear in the vector alone; both in leaves.

    The result has the shapes and dtypes of the vector.
    """

    def __call__(self, point: Leaves, vector: Leaves) -> Leaves: ...

    @property
    def transposed(self) -> Product: ...


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class _OfLanes:
    """A product under vmap: lanes are along dimension 0 of the vector, and along ``dims`` of the point."""

    product: Product
    dims: tuple[int | None, ...]

    def __call__(self, point: Leaves, vector: Leaves) -> Leaves:
        return list(jax.vmap(self.product, (list(self.dims), 0))(list(point), list(vector)))

    @property
    def transposed(self) -> _OfLanes:
        return _OfLanes(self.product.transposed, self.dims)


def linear_call(product: Product, point: Leaves, vector: Leaves) -> list[Value]:
    """``product(point, vector)``, a function that is linear in the vector, with a transpose of its own.

    It is for code of JAX, in every transform of JAX. Under ``vmap`` the product is mapped; in the point it is
    differentiated by its code; see NOTE [a product and its transpose].

    Arguments:
        product: a hashable function of two lists of arrays, which returns a list with the shapes and dtypes
            of the vector. Its attribute ``transposed`` is the transposed one, whose own is this one.
        point: arrays.
        vector: arrays.

    Returns:
        A list of arrays like the vector.

    Source: ``jax.custom_derivatives.linear_call``, which has no rule for ``vmap`` and no derivative in the
    point.

    >>> import dataclasses, fad, jax
    >>> from fad import extend
    >>> @dataclasses.dataclass(frozen=True)
    ... class Product:
    ...     of_transpose: bool = False
    ...     def __call__(self, point, vector):
    ...         matrix = point[0].T if self.of_transpose else point[0]
    ...         return [matrix @ vector[0]]
    ...     @property
    ...     def transposed(self):
    ...         return Product(not self.of_transpose)
    >>> a, v = jax.numpy.array([[1.0, 2.0], [0.0, 1.0]]), jax.numpy.ones(2)
    >>> f = lambda v: extend.linear_call(Product(), [a], [v])[0]
    >>> f(v).tolist(), jax.vjp(f, v)[1](v)[0].tolist()
    ([3.0, 1.0], [1.0, 3.0])
    """
    operands = jaxapi.varying_alike([*point, *vector])
    return list(product_p.bind(*operands, product=product, count=len(point)))


def _run_product(*values: Array, product: Product, count: int) -> list[Value]:
    return list(product(values[:count], values[count:]))


def _jvp_product(
    primals: Sequence[Array], tangents: Sequence[PyTree], *, product: Product, count: int
) -> tuple[list[Value], list[PyTree]]:
    point, vector = primals[:count], primals[count:]
    outs = linear_call(product, point, vector)
    terms = []
    with_tangent = [k for k in range(count) if not isinstance(tangents[k], Zero)]
    if with_tangent:

        def of_differentiable(*values: Array) -> list[Value]:
            new = dict(zip(with_tangent, values, strict=True))
            return list(product([new.get(k, p) for k, p in enumerate(point)], vector))

        directions = [tangents[k] for k in with_tangent]
        terms.append(jax.jvp(of_differentiable, [point[k] for k in with_tangent], directions)[1])
    if not all([isinstance(t, Zero) for t in tangents[count:]]):
        terms.append(linear_call(product, point, list(map(instantiate_zeros, tangents[count:]))))
    return outs, [sum(ts[1:], ts[0]) for ts in zip(*terms, strict=True)]


def _transpose_product(
    cotangents: Sequence[PyTree], *operands: PyTree, product: Product, count: int
) -> list[PyTree]:
    vector = list(map(instantiate_zeros, cotangents))
    return [None] * count + linear_call(product.transposed, operands[:count], vector)


def _batch_product(
    axis_data: PyTree,
    values: Sequence[Array],
    dims: Sequence[int | None],
    *,
    product: Product,
    count: int,
) -> tuple[list[Value], Sequence[int | None]]:
    vector = [lanes_first(v, d, axis_data.size) for v, d in zip(values[count:], dims[count:])]
    lanes = _OfLanes(product, tuple(dims[:count]))
    return linear_call(lanes, values[:count], vector), [0] * len(vector)


product_p = new_primitive("fad_product", expensive=True)
define_primitive(
    product_p,
    _run_product,
    lambda *avals, product, count: [a.to_tangent_aval() for a in avals[count:]],
    jvp=_jvp_product,
    transpose=_transpose_product,
    batch=where_batched(product_p, _batch_product),
)


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


# Their derivative is zero.
_STEPS = frozenset({"ceil", "floor", "round", "sign", "stop_gradient"})


def depends_on_point(derivative: JaxBody, differentiated: Sequence[int]) -> bool:
    """Whether the derivative of an equation has itself a derivative, in some of its operands.

    Arguments:
        derivative: the program that `derivative_of` returns, without its constants.
        differentiated: the operands.

    >>> import fad, jax, jax.numpy as jnp
    >>> from fad import extend
    >>> eqn = jax.make_jaxpr(jnp.multiply)(2.0, 3.0).eqns[0]
    >>> derivative = extend.derivative_of(eqn, [0], [0], [jnp.float32(2.0), jnp.float32(3.0)])
    >>> [extend.depends_on_point(derivative.jaxpr, [k]) for k in (0, 1)]
    [False, True]
    """
    reached = {derivative.invars[k] for k in differentiated}
    for eqn in derivative.eqns:
        if eqn.primitive.name in _STEPS:
            continue
        if any([not isinstance(v, Literal) and v in reached for v in eqn.invars]):
            reached.update([v for v in eqn.outvars if is_inexact(v.aval.dtype)])
    return any([not isinstance(v, Literal) and v in reached for v in derivative.outvars])


# What Functions declare of the pattern of their derivatives, checked, and for a call under vmap.

# Elements of an output, and for each the element of an input on which it depends.
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]
# What reads the matrix that a rule returns: its name in messages, the matrix, the shapes of output and input.
Reader: TypeAlias = Callable[[str, PyTree, tuple[int, ...], tuple[int, ...]], Pairs]


def declared_sparsity(eqn: JaxEquation, read: Reader) -> list[Pairs | None] | None:
    """On which elements of its operands the output of a call of a Function depends, as it declares.

    Arguments:
        eqn: an equation of a program, a call of a Function, its derivative or its batch.
        read: ``read(what, matrix, out, shape)`` returns the places that may differ from 0 in a matrix that a
            ``sparsity`` rule returns, for an output and an input of these shapes: a pair of NumPy arrays,
            elements of the output and of the input. Errors begin with ``what``.

    Returns:
        Such a pair for each operand, None where nothing is known of it; or None where no rule says anything.

    Raises:
        RuleError: a rule returned something else than a matrix for each argument.

    >>> import fad, jax, jax.numpy as jnp, numpy as np
    >>> class Tail(fad.Function):
    ...     forward = staticmethod(lambda x: x[1:])
    ...     sparsity = staticmethod(lambda x: np.eye(x.shape[0] - 1, x.shape[0], k=1))
    >>> (eqn,) = jax.make_jaxpr(Tail.apply)(jnp.ones(3)).eqns
    >>> read = lambda what, matrix, out, shape: np.nonzero(matrix)
    >>> [[x.tolist() for x in pair] for pair in fad.extend.declared_sparsity(eqn, read)]
    [[[0, 1], [1, 2]]]
    """
    if flag_of(eqn, "expensive") is None or len(eqn.outvars) != 1:
        return None
    rules = rules_of(eqn)
    avals = [v.aval for v in eqn.invars]
    return None if rules is None else _declared(rules, avals, eqn.outvars[0].aval, read)


def _declared(
    rules: CallRules, avals: Sequence[Aval], out: Aval, read: Reader
) -> list[Pairs | None] | None:
    if isinstance(rules, LinearRules):
        return _declared(rules.base, avals, out, read)
    if isinstance(rules, DerivativeRules):
        if not rules.is_linear:
            return None
        inputs, outputs = len(rules.counts), len(rules.outputs)
        pairs = _declared(rules.base, avals[:inputs], out, read)
        if pairs is None:
            return None
        of_tangents = [p for p, m in zip(pairs, rules.counts, strict=True) if m]
        return [*[None] * (inputs + outputs), *of_tangents]
    if isinstance(rules, BatchedRules):
        lanes = rules.batch_size
        each = _declared(
            rules.base,
            [_lane(a, d) for a, d in zip(avals, rules.dims, strict=True)],
            _lane(out, 0),
            read,
        )
        if each is None:
            return None
        size = out.size // max(lanes, 1)
        return [
            p and _batched(p, a, d, lanes, size)
            for p, a, d in zip(each, avals, rules.dims, strict=True)
        ]
    if isinstance(rules, UserRules) and rules.signature.sparsity:
        return list(_returned(rules, avals, out, read))
    return None


def _lane(aval: Aval, dim: int | None) -> Aval:
    if dim is None:
        return aval
    shape = tuple([n for i, n in enumerate(aval.shape) if i != dim % len(aval.shape)])
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _batched(pairs: Pairs, aval: Aval, dim: int | None, lanes: int, size: int) -> Pairs:
    """The pairs of all lanes; the output has the batch in dimension 0, ``size`` elements in each lane."""
    outs, ins = pairs
    numbers = np.arange(aval.size).reshape(aval.shape)
    if dim is None:
        numbers = np.broadcast_to(numbers, (lanes, *aval.shape))
    else:
        numbers = np.moveaxis(numbers, dim, 0)
    rows = outs + size * np.arange(lanes)[:, None]
    return rows.ravel(), numbers.reshape(lanes, -1)[:, ins].ravel()


def _returned(rules: UserRules, avals: Sequence[Aval], out: Aval, read: Reader) -> list[Pairs]:
    who = f"{rules.name}.sparsity"
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    args, kwargs = rules.arguments(structs)
    names, patterns = rules.argument_names(), rules.cls.sparsity(*args, **kwargs)
    if len(names) == 1 and type(patterns) is not tuple:
        patterns = (patterns,)
    if type(patterns) is not tuple or len(patterns) != len(names):
        raise RuleError(
            f"{who} returned {describe(patterns)}, expected {len(names)} patterns in a tuple: one for each "
            f"argument of forward ({', '.join(names)}), None where the output does not depend on it"
        )
    result: list[Pairs] = []
    for name, part, pattern in zip(names, rules.inputs.parts(), patterns, strict=True):
        if HOLE in part.leaves:
            what = f"{who}: the pattern for argument {name!r}"
            for x in part.collect(pattern, what):
                shape = structs[len(result)].shape
                result.append(read(what, x, tuple(out.shape), shape))
    return result
