"""Reverse mode, and Jacobians: ``grad``, ``vjp``, ``jacrev``, ``jacfwd``, ``hessian``, ``hvp``, ``ggnvp``."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef

from fad.core import jaxapi, trees
from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.level import Level, bind, restores_modes
from fad.core.primitive import Primitive
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor
from fad.core.types import Array, DType, MaybeValue, Operand, PyTree, Shape, Value
from fad.errors import ArgumentError, GradientError, StructureError, describe
from fad.tape.engine import UNIT_COTANGENT, pull_back
from fad.tape.recorder import GradLevel, JvpLevel
from fad.tape.vmap import BatchLevel
from fad.transforms.boundary import (
    Call,
    check_chunk_size,
    filled,
    has_tensor,
    leave,
    lower,
    zeros_like,
)
from fad.transforms.jvp import call_along, linearization_of, push_forward
from fad.transforms.vmap import in_chunks

WITH_AUX = ("grad", "value_and_grad", "grad_and_value")  # these take has_aux


def value_and_grad(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., PyTree]:
    """The value of ``f`` and its gradient, in one pass.

    Arguments:
        f: returns a real scalar, shape ``()``; with ``has_aux``, a pair of that and anything.
        argnums: which positional arguments to differentiate; a tuple gives a tuple of gradients.
            Each may be a pytree of floating or complex arrays.
        has_aux: ``f`` returns ``(value, aux)``.

    Returns:
        A function with f's arguments that returns ``(value, gradient)``, or
        ``((value, aux), gradient)``. A gradient has the structure, shapes and dtypes of its
        argument; for complex arguments it is the conjugate of JAX's, as in PyTorch.

    Raises:
        GradientError: the output is not a real scalar.
        TypeError: an argument to differentiate is not of floating or complex dtype.
        StructureError: ``argnums`` is out of range.

    >>> import fad
    >>> fad.value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    return gradient_function(f, argnums, has_aux, "value_and_grad", True)


def grad(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., PyTree]:
    """The gradient of a scalar function.

    Arguments, errors and conventions are those of `value_and_grad`.

    Returns:
        A function with f's arguments that returns the gradient, or ``(gradient, aux)``.

    Source: ``torch.func.grad``; the maths is ``jax.grad``'s.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.grad(fad.grad(fnp.sin))(0.5) + fnp.sin(0.5))
    0.0
    """
    return gradient_function(f, argnums, has_aux, "grad", False)


def gradient_function(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int],
    has_aux: bool,
    who: str,
    with_value: bool,
) -> Callable[..., PyTree]:
    Call.check(f, who, argnums)

    @restores_modes
    @functools.wraps(f)
    def gradient(*args: PyTree, **kwargs: PyTree) -> PyTree:
        call = Call(who, args, kwargs, argnums)
        with GradLevel() as level:
            variables = [level.variable(v) for v in call.values]
            outs = [call.run(f, level, variables, has_aux)]
            _check_scalar(outs[0], who)
            trace, replayed = level.trace, None  # None if it has ended
            if trace is not None:
                replayed = trace.finish(outs, _gradients, leaves=variables, values=with_value)
            grads = replayed[1] if replayed else _gradients(level, outs, variables, call.values)
            pairs = zip(grads, call.values, strict=True)
            leaves = [zeros_like(v) if g is None else g for g, v in pairs]
        result = leave(call.argument(leaves), call.tensors)
        if not with_value:
            return call.and_aux(result) if has_aux else result
        (out,) = outs
        value = leave(as_array(out) if not isinstance(out, Tensor) else out, call.tensors)
        return call.and_aux(value), result

    return gradient


def _gradients(
    level: Level, outs: Sequence[Value], variables: Sequence[Tensor], values: Sequence[Value]
) -> list[MaybeValue]:
    """Gradients of the one output, a scalar, as values one level down; None is zero."""
    (out,) = outs
    grads: Sequence[Any] = [None] * len(variables)
    if variables and isinstance(out, Tensor):
        grads = pull_back([out], [bind(UNIT_COTANGENT, (out.level.detach(out),))], variables)
    return list(grads)


def _check_scalar(out: PyTree, who: str) -> None:
    """Refuse an output that is not a real scalar."""
    if type(out) is Tensor:
        aval = out.aval
        if aval.shape == () and aval.dtype.kind == "f":
            return
    problem = tool("hints.gradients").why_not_real_scalar(out, who, who in WITH_AUX)
    if problem:
        raise GradientError(problem)


def vjp(f: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> PyTree:
    """The output of ``f`` and the function that pulls cotangents back through it.

    Arguments:
        f: any function of the primals.
        primals: pytrees of floating or complex arrays.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, vjp_fn)``, or ``(output, vjp_fn, aux)``. ``vjp_fn(cotangent)`` takes a pytree like
        the output and returns a tuple with a gradient for each primal, of its structure; it may be
        called any number of times, inside other transforms too. Cotangents of integer outputs are
        ignored; None stands for zero.

    Raises:
        StructureError: a cotangent has another structure or shape than the output.
        TypeError: a primal is not of floating or complex dtype.

    Source: ``torch.func.vjp``; always returns a tuple of gradients, as ``jax.vjp``.

    >>> import fad, fad.numpy as fnp
    >>> y, pull = fad.vjp(fnp.multiply, 2.0, 5.0)
    >>> [float(g) for g in pull(1.0)]
    [5.0, 2.0]
    """
    return pullback_of(f, primals, has_aux, "vjp", "vjp_fn")


@restores_modes
def pullback_of(
    f: Callable[..., PyTree], primals: Sequence[PyTree], has_aux: bool, who: str, pull: str
) -> PyTree:
    """`vjp`, under the name ``who`` in messages, its result under the name ``pull``."""
    Call.check(f, who)
    call = Call(who, primals)
    with GradLevel() as level:
        variables = [level.variable(v) for v in call.values]
        outs = call.outputs(call.run(f, None, variables, has_aux))
    values = call.values
    call.forget()
    avals = [aval_like(o) for o in outs]

    def vjp_fn(cotangent: PyTree) -> PyTree:
        cts = cotangent_leaves(cotangent, call.out_structure, avals, pull)
        grads = pull_back(outs, cts, variables, keep_graph=True) if variables else []
        leaves = call.argument(filled(grads, values))
        return leave(leaves, call.tensors or has_tensor(cotangent))

    return call.and_aux(call.result(outs), vjp_fn)


def aval_like(x: PyTree) -> tuple[Shape, DType]:
    """Shape and dtype of an output leaf."""
    if isinstance(x, (Tensor, jax.Array, np.ndarray)):
        return tuple(x.shape), x.dtype
    x = jnp.asarray(x)
    return x.shape, x.dtype


def cotangent_leaves(
    cotangent: PyTree,
    structure: PyTreeDef,
    avals: Sequence[tuple[Shape, DType]],
    who: str,
) -> list[MaybeValue]:
    """The leaves of a cotangent, checked against the output; None is zero."""
    leaves = trees.leaves_like(structure, cotangent)
    if leaves is None:
        raise StructureError(
            f"{who}: the cotangent must have the structure of the output, {structure}, "
            f"got {trees.flatten(cotangent)[1]}"
        )
    result: list[MaybeValue] = []
    for k, (c, (shape, dtype)) in enumerate(zip(leaves, avals, strict=True)):
        if c is None or not is_inexact(dtype):
            result.append(None)
            continue
        if not isinstance(c, Tensor):
            if not isinstance(c, (jax.Array, np.ndarray, np.generic, float, int, complex)):
                raise StructureError(
                    f"{who}: cotangent {k} must be an array of shape {shape}, got {describe(c)}"
                )
            if jnp.iscomplexobj(c) and not jnp.issubdtype(dtype, np.complexfloating):
                raise StructureError(
                    f"{who}: cotangent {k} is complex, the output is {dtype}: pass its real part"
                )
            if not isinstance(c, jax.Array) or c.dtype != dtype:
                c = as_array(c, dtype)  # an array that fits keeps its weak type
        if tuple(c.shape) != shape:
            raise StructureError(
                f"{who}: cotangent {k} must have the shape {shape} of the output, got {describe(c)}: "
                "a mismatch in shape"
            )
        result.append(lower(c))
    return result


# Jacobians and Hessians, and products with them.

CONJUGATE = Primitive("conj", jnp.conj, deferrable=True)
_OF_PARTS = Primitive("complex", lambda x, y: x + 1j * y, deferrable=True)


def jacrev(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., PyTree]:
    """The Jacobian of ``f``, row by row in reverse mode.

    Arguments:
        f: any function; its outputs have a floating or complex dtype.
        argnums: which positional arguments to differentiate; a tuple adds a tuple to the result.
        has_aux: ``f`` returns ``(output, aux)``.
        chunk_size: pull back at most so many rows at a time, to bound memory; 1 takes them one by one,
            without vmap.

    Returns:
        A function with f's arguments that returns, for each output leaf, the structure of the
        arguments with arrays of shape ``output.shape + argument.shape``. It is the same as `jacfwd` gives:
        ``dy = J dx``, and ``dy = Re(J dx)`` for real outputs of complex arguments: the rows are conjugates of
        gradients. A complex function of complex arguments must be holomorphic: there is no such J of
        others; differentiate their real and imaginary parts.

    Source: ``torch.func.jacrev``; complex functions as ``jax.jacrev(holomorphic=True)``.

    >>> import fad, fad.numpy as fnp
    >>> fad.jacrev(fnp.sin)(fnp.zeros(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return reverse_jacobian(f, argnums, has_aux, chunk_size, "jacrev")


def reverse_jacobian(
    f: Callable[..., PyTree], argnums: PyTree, has_aux: bool, chunk_size: int | None, who: str
) -> Callable[..., PyTree]:
    """`jacrev`, under the name ``who`` in messages."""

    def blocks_of(call: Call) -> list[list[Value]]:
        values, width = call.values, len(call.values)
        with GradLevel() as level:
            variables = [level.variable(v) for v in values]
            outs = _check_outputs(call.outputs(call.run(f, level, variables, has_aux)), who)
            rows_of = functools.partial(_rows, chunk_size)
            trace, replayed = level.trace, None  # None if it has ended
            if trace is not None:
                replayed = trace.finish(outs, rows_of, chunk_size, leaves=variables, frees=False)
            rows = replayed[1] if replayed else rows_of(level, outs, variables, values)
        return [
            [_reshape(g, (*o.shape, *g.shape[1:])) for g in rows[k * width : (k + 1) * width]]
            for k, o in enumerate(outs)
        ]

    return _jacobian(f, argnums, chunk_size, who, blocks_of)


def _jacobian(
    f: Callable[..., PyTree],
    argnums: PyTree,
    chunk_size: int | None,
    who: str,
    blocks_of: Callable[[Call], Sequence[Sequence[Value]]],
) -> Callable[..., PyTree]:
    """A Jacobian of ``f``; ``blocks_of`` gives its blocks of a call: for each output, one for each value."""
    Call.check(f, who, argnums)
    check_chunk_size(chunk_size, who)

    @restores_modes
    @functools.wraps(f)
    def jacobian(*args: PyTree, **kwargs: PyTree) -> PyTree:
        call = Call(who, args, kwargs, argnums)
        if not call.values:
            raise StructureError(f"{who}: the arguments at argnums={argnums!r} have no arrays")
        return call.and_aux(call.result(list(map(call.argument, blocks_of(call)))))

    return jacobian


def _rows(
    chunk_size: int | None,
    level: Level,
    outs: Sequence[Value],
    variables: Sequence[Tensor],
    values: Sequence[Operand],
) -> list[PyTree]:
    """For each output, and each input: its gradients for all cotangents of the basis, stacked."""

    def pull(k: int, cotangents: Sequence[Value]) -> list[Value]:
        cts: list[MaybeValue] = [None] * len(outs)
        cts[k] = cotangents[0]
        grads = pull_back(outs, cts, variables, keep_graph=True)
        return filled([g if g is None else _conjugate(g) for g in grads], values)

    rows: list[Value] = []
    for k, o in enumerate(outs):
        run, basis = functools.partial(pull, k), basis_of([o])
        block = _over_basis(run, basis, chunk_size, 0)
        if _is_complex(o) and not all(map(_is_complex, values)):
            parts = _over_basis(run, [1j * b for b in basis], chunk_size, 0)
            block = [
                g if _is_complex(v) else bind(_OF_PARTS, (g, part))
                for g, part, v in zip(block, parts, values, strict=True)
            ]
        rows += block
    return rows


def jacfwd(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., PyTree]:
    """The Jacobian of ``f``, column by column in forward mode.

    Arguments, result and errors are those of `jacrev`; outputs may have any dtype.
    Cheaper than `jacrev` where there are more outputs than inputs.

    Source: ``torch.func.jacfwd``, ``jax.jacfwd``.

    >>> import fad, fad.numpy as fnp
    >>> fad.jacfwd(fad.jacfwd(fnp.sin))(0.0).item()
    -0.0
    """
    return forward_jacobian(f, argnums, has_aux, chunk_size, "jacfwd")


def forward_jacobian(
    f: Callable[..., PyTree], argnums: PyTree, has_aux: bool, chunk_size: int | None, who: str
) -> Callable[..., PyTree]:
    """`jacfwd`, under the name ``who`` in messages."""

    def blocks_of(call: Call) -> list[list[Value]]:
        values = call.values
        written: list[MaybeValue] = []

        @functools.wraps(f)
        def push(tangents: Sequence[Value]) -> list[Value]:
            with JvpLevel() as level:
                duals = [level.dual(v, t) for v, t in zip(values, tangents, strict=True)]
                pairs = [level.unpack(o) for o in call.outputs(call.run(f, level, duals, has_aux))]
                written[:] = call.written(duals, lambda d: level.unpack(d)[0])
            return filled([t for _, t in pairs], [p for p, _ in pairs])

        basis = basis_of(values)
        columns = _over_basis(push, basis, chunk_size, -1)
        complex_of = list(map(_is_complex, values))
        turned: Sequence[MaybeValue] = [None] * len(columns)
        if any(complex_of) and any(map(_is_real, columns)):
            imaginary = [
                1j * b if c else jnp.zeros_like(b) for b, c in zip(basis, complex_of, strict=True)
            ]
            turned = _over_basis(push, imaginary, chunk_size, -1)
        ends = list(itertools.accumulate([0, *[math.prod(v.shape) for v in values]]))
        blocks = []
        for j, t in zip(columns, turned, strict=True):
            row = []
            for v, c, part in zip(values, complex_of, itertools.pairwise(ends), strict=True):
                block = _columns(j, *part)
                if c and _is_real(j):
                    block = _conjugate(bind(_OF_PARTS, (block, _columns(t, *part))))
                row.append(_reshape(block, (*j.shape[:-1], *v.shape)))
            blocks.append(row)
        call.write_back(written)
        return blocks

    return _jacobian(f, argnums, chunk_size, who, blocks_of)


def hessian(f: Callable[..., PyTree], argnums: int | Sequence[int] = 0) -> Callable[..., PyTree]:
    """The matrix of second derivatives of a scalar function, ``jacfwd(jacrev(f))``.

    Arguments:
        f: a function; for scalar outputs the result is the Hessian, else one for each output.
        argnums: which positional arguments to differentiate.

    Returns:
        A function that returns arrays of shape ``output.shape + x.shape + x.shape``, nested in the
        structure of the arguments, twice.

    Source: ``torch.func.hessian``, ``jax.hessian``.

    >>> import fad
    >>> fad.hessian(lambda x: (x**3).sum())(fad.numpy.array([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    gradient = reverse_jacobian(f, argnums, False, None, "hessian")
    return forward_jacobian(gradient, argnums, False, None, "hessian")


def hvp(
    f: Callable[..., PyTree], primals: Sequence[PyTree], tangents: Sequence[PyTree]
) -> tuple[PyTree, PyTree]:
    """The gradient of a scalar function, and its Hessian times a vector.

    Arguments:
        f: returns a real scalar.
        primals: a tuple with the arguments of ``f``.
        tangents: a tuple of the same structure, the vector. None stands for zero, and is the only tangent of
            an argument with integers or bools.

    Returns:
        ``(gradient, product)``, each a tuple like ``primals``, with None for an argument that has integers
        or bools; by forward over reverse.

    Raises:
        StructureError: primals and tangents differ in structure, shape or dtype.
        ArgumentError: all arguments have integers or bools.

    >>> import fad
    >>> g, hv = fad.hvp(lambda x: (x**3).sum(), (fad.numpy.array([1.0, 2.0]),),
    ...                 (fad.numpy.array([1.0, 0.0]),))
    >>> g[0].tolist(), hv[0].tolist()
    ([3.0, 12.0], [6.0, 0.0])
    >>> w, k = fad.tensor([1.0, 2.0]), fad.tensor(1)  # k is an index, and has no derivative
    >>> fad.hvp(lambda w, k: w[k] ** 3, (w, k), (w, None))[1]
    (Tensor([ 0., 24.], dtype=float32), None)
    """
    if not isinstance(primals, (tuple, list)):
        raise ArgumentError(
            f"hvp: primals must be a tuple of arguments, got {describe(primals)}. "
            "Write hvp(f, (x,), (v,))."
        )
    every = range(len(primals))
    without = [k for k, tangent in enumerate(tangents) if tangent is None]
    left_out = [k for k in every if k in without and _is_discrete(primals[k])]
    nums = [k for k in every if k not in left_out] or every
    gradient = gradient_function(f, tuple(nums), False, "hvp", False)
    both = push_forward(gradient, primals, tangents, False, "hvp")
    if len(nums) == len(primals):
        return both
    of_gradient, of_product = [dict(zip(nums, part, strict=True)) for part in both]
    return tuple(map(of_gradient.get, every)), tuple(map(of_product.get, every))


def _is_discrete(argument: PyTree) -> bool:
    """Whether there are integers or bools in it, which have no derivatives."""
    leaves = trees.flatten(argument)[0]
    return any(
        [isinstance(x, int) or (hasattr(x, "dtype") and not is_inexact(x.dtype)) for x in leaves]
    )


def ggnvp(
    model: Callable[[PyTree], PyTree], loss: Callable[[PyTree], PyTree], params: PyTree, v: PyTree
) -> PyTree:
    """The generalized Gauss-Newton matrix of ``loss(model(params))``, times a vector.

    It is ``Jᵀ H J v``, with the Jacobian ``J`` of the model and the Hessian ``H`` of the loss in the
    outputs: the Hessian of the composition without the second derivatives of the model. If the loss is
    convex in the outputs, it is positive semidefinite. The model runs once and is linearized there; no
    matrix is formed.

    Arguments:
        model: from ``params`` to a pytree of outputs, of floating or complex dtype.
        loss: from these outputs to a real scalar.
        params: a pytree of arrays of floating or complex dtype.
        v: the vector, of the structure, shapes and dtypes of ``params``; None in it is zero.

    Returns:
        The product: a pytree like ``params``.

    Raises:
        GradientError: the loss is not a real scalar; an output of the model has no derivatives.
        StructureError: v differs from params in structure, shape or dtype.

    Source: N. Schraudolph, "Fast curvature matrix-vector products for second-order gradient descent", Neural
    Computation 14 (2002).

    >>> import fad, fad.numpy as fnp
    >>> x, y = fnp.array([1.0, 2.0, 3.0]), fnp.array([2.0, 4.0, 5.0])
    >>> model, loss = lambda w: w[0] * x + w[1], lambda z: ((z - y) ** 2).sum() / 2.0
    >>> fad.ggnvp(model, loss, fnp.array([0.5, 0.0]), fnp.array([1.0, 0.0])).tolist()
    [14.0, 6.0]
    """
    Call.check(model, "ggnvp")
    if not callable(loss):
        raise TypeError(
            f"ggnvp: loss must be a function of the outputs of the model, got {describe(loss)}. Write "
            "fad.ggnvp(model, loss, params, v)."
        )
    outputs, push = linearization_of(model, (params,), False, "ggnvp")
    for o, path in zip(trees.flatten(outputs)[0], trees.path_names(outputs), strict=True):
        dtype = aval_of(o).dtype
        if not is_inexact(dtype):
            raise GradientError(
                f"ggnvp: output{path} of the model has dtype {dtype}, which has no derivatives: leave it "
                "out, or convert it"
            )
    call, directions = call_along((params,), (v,), "ggnvp")
    tensors = has_tensor((params, v))
    (v,) = leave(call.argument(filled(directions, call.values)), tensors)
    pushed, pull = pullback_of(push, (v,), False, "ggnvp", "ggnvp")
    gradient = gradient_function(loss, 0, False, "ggnvp", False)
    _, curved = push_forward(gradient, (outputs,), (pushed,), False, "ggnvp")
    return pull(curved)[0]


def _check_outputs(outs: Sequence[Value], who: str) -> list[Value]:
    outs = [jnp.asarray(o) if isinstance(o, (float, complex, np.generic)) else o for o in outs]
    for k, o in enumerate(outs):
        if not is_inexact(o.dtype):
            raise GradientError(
                f"{who}: output {k} has dtype {o.dtype}, which has no derivatives: return it as aux "
                "(has_aux=True), or convert it"
            )
    return outs


def _is_complex(x: PyTree) -> bool:
    return bool(jnp.issubdtype(x.dtype, np.complexfloating))


def _is_real(x: PyTree) -> bool:
    return bool(jnp.issubdtype(x.dtype, np.floating))


def _conjugate(x: PyTree) -> PyTree:
    return bind(CONJUGATE, (x,)) if _is_complex(x) else x


def basis_of(values: Sequence[Value]) -> list[Value]:
    """The standard basis of the space of ``values``, stacked: an array for each value."""
    shapes = tuple([tuple(v.shape) for v in values])
    dtypes = tuple([v.dtype for v in values])
    total = sum([math.prod(shape) for shape in shapes])
    if total > SMALL:
        return _new_basis(shapes, dtypes)
    key = shapes, dtypes, jaxapi.trace_context()
    basis = _small_basis(*key)
    if any([b.is_deleted() for b in basis]):  # one was a result, and donated by the user
        _small_basis.cache_clear()
        basis = _small_basis(*key)
    return basis


SMALL = 64  # elements: the basis of so many is kept, and is a constant of compiled code


@functools.lru_cache(maxsize=256)
def _small_basis(
    shapes: tuple[Shape, ...], dtypes: tuple[DType, ...], settings: object
) -> list[Value]:
    with jax.ensure_compile_time_eval():
        return _new_basis(shapes, dtypes)


def _new_basis(shapes: Sequence[Shape], dtypes: Sequence[DType]) -> list[Value]:
    sizes = [math.prod(shape) for shape in shapes]
    total = sum(sizes)
    starts = itertools.accumulate([0, *sizes])
    return [
        jnp.eye(total, size, -start, dtype=dtype).reshape((total, *shape))
        for start, size, shape, dtype in zip(starts, sizes, shapes, dtypes, strict=False)
    ]


def _over_basis(
    run: Callable[[Sequence[Value]], Sequence[Value]],
    bases: list[Value],
    chunk_size: int | None,
    out_dim: int,
) -> list[Value]:
    """Map ``run`` over the leading dimension of ``bases``, which goes to ``out_dim``, 0 or -1.

    In chunks of 1 it is a loop, without vmap.
    """
    size = bases[0].shape[0]
    if chunk_size == 1 and size:
        parts = [run([b[k] for b in bases]) for k in range(size)]
        return [bind(_operation("stack", out_dim), group) for group in zip(*parts, strict=True)]

    def lanes(pieces: Sequence[Value], count: int, _: int) -> tuple[list[Value], list[int], None]:
        with BatchLevel(count, randomness="same") as level:
            rows = [level.mapped(b, 0) for b in pieces]
            begin_trace(level, rows, run)
            outs = run(rows)
            ends = [0 if out_dim == 0 else len(o.shape) for o in outs]
            outs = [level.unwrap(o, d) for o, d in zip(outs, ends, strict=True)]
        return outs, [out_dim] * len(outs), None

    return in_chunks(lanes, bases, [0] * len(bases), size, chunk_size)[0]


@functools.lru_cache(maxsize=4096)
def _operation(name: str, *numbers: int) -> Primitive:
    run = _RUN[name]
    return Primitive(name, lambda *xs: run(xs, numbers), deferrable=True)


_RUN: dict[str, Callable[[Sequence[Array], Shape], Array]] = {
    "reshape": lambda xs, shape: jnp.reshape(xs[0], shape),
    "slice": lambda xs, ends: xs[0][..., slice(*ends)],
    "stack": lambda xs, axes: jnp.stack(xs, axes[0]),
}


def _columns(x: PyTree, *ends: int) -> PyTree:
    return x if ends == (0, x.shape[-1]) else bind(_operation("slice", *ends), (x,))


def _reshape(x: PyTree, shape: Shape) -> PyTree:
    return x if tuple(x.shape) == shape else bind(_operation("reshape", *shape), (x,))
