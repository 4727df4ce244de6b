"""Bad input: the error's type, the words that its message must contain, and that no mode is left changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle, modes

import fad
import fad.numpy as fnp
from fad import testing
from fad.errors import (
    FadError,
    GradientError,
    HostValueError,
    LevelError,
    RuleError,
    StructureError,
)

X = jnp.arange(3.0)
W = jnp.ones((2, 3))
N = jnp.arange(3)


@dataclasses.dataclass(frozen=True)
class Case:
    """A call that fails, the error it must raise, and what the message must say."""

    name: str
    call: Callable[[], Any]
    error: type[Exception]
    words: tuple[str, ...]


def dual(x: Any, t: Any) -> Any:
    with fad.dual_level():
        return fad.make_dual(x, t)


def finished_dual() -> tuple[Any, Any]:
    with fad.dual_level() as level:
        return fad.make_dual(X, X), level


def tangent_with_a_tangent() -> Any:
    with fad.dual_level():
        return fad.make_dual(X, fad.make_dual(X, X))


def exit_an_outer_level() -> Any:
    with fad.dual_level() as outer, fad.dual_level():
        fad.autograd.forward_ad.exit_dual_level(level=outer)


def levels_left_in_another_order() -> Any:
    outer, inner = fad.dual_level(), fad.dual_level()
    outer.__enter__()
    inner.__enter__()
    try:
        outer.__exit__(None, None, None)
    finally:
        inner.__exit__(None, None, None)


def dual_of_an_inner_value() -> Any:
    with fad.dual_level() as level:
        return fad.vmap(lambda v: fad.make_dual(v, v, level))(X)


def two_duals_at_one_level() -> Any:
    with fad.dual_level():
        return fad.make_dual(fad.make_dual(X, X), X)


CASES = [
    # grad of what is no real scalar
    *[
        Case(f"{name} of a vector", lambda t=t: t(lambda x: x * 2.0)(X), GradientError, words)
        for name, t, words in [
            ("grad", fad.grad, ("grad:", "real scalar", "(3,)", ".sum()", "fad.jacrev")),
            ("value_and_grad", fad.value_and_grad, ("value_and_grad:", "real scalar", "(3,)")),
        ]
    ],
    Case(
        "hvp of a vector",
        lambda: fad.hvp(lambda x: x, (X,), (X,)),
        GradientError,
        ("hvp:", "real scalar", "(3,)"),
    ),
    Case(
        "ggnvp with a loss that is a vector",
        lambda: fad.ggnvp(fnp.sin, lambda z: z, X, X),
        GradientError,
        ("ggnvp:", "real scalar", "(3,)"),
    ),
    Case(
        "ggnvp with the parameters in the place of the loss",
        lambda: fad.ggnvp(lambda x: fnp.sum(x), X, X, X),
        TypeError,
        ("ggnvp:", "loss must be a function", "fad.ggnvp(model, loss, params, v)"),
    ),
    Case(
        "ggnvp with a vector of another shape",
        lambda: fad.ggnvp(lambda p: fnp.sin(p["w"]), fnp.sum, {"w": X}, {"w": jnp.ones(2)}),
        StructureError,
        ("ggnvp:", "'w'", "float32[3]", "float32[2]"),
    ),
    Case(
        "ggnvp with parameters that are integers",
        lambda: fad.ggnvp(fnp.sin, fnp.sum, jnp.arange(3), X),
        TypeError,
        ("ggnvp:", "floating or complex", "int32"),
    ),
    Case(
        "laplacian of an array",
        lambda: fad.laplacian(X),
        TypeError,
        ("laplacian:", "must be a function", "write laplacian(f)(x)"),
    ),
    Case(
        "laplacian in complex coordinates",
        lambda: fad.laplacian(fnp.sum)(1j * X),
        TypeError,
        ("laplacian:", "argument 0", "floating dtype", "complex64", "real and the imaginary part"),
    ),
    Case(
        "laplacian in integers",
        lambda: fad.value_and_laplacian(fnp.sum)({"n": jnp.arange(3)}),
        TypeError,
        ("value_and_laplacian:", "'n'", "int32", "x.astype(float)"),
    ),
    Case(
        "laplacian with an argument that is not there",
        lambda: fad.laplacian(fnp.sum, 1)(X),
        StructureError,
        ("laplacian:", "argnums=1", "out of range"),
    ),
    Case(
        "laplacian of what is no array",
        lambda: fad.laplacian(lambda x: "x")(X),
        TypeError,
        ("laplacian:", "output 0", "must be an array"),
    ),
    Case(
        "grad of an integer",
        lambda: fad.grad(fnp.argmax)(X),
        GradientError,
        ("grad:", "real scalar", "int32"),
    ),
    Case(
        "grad of a complex number",
        lambda: fad.grad(lambda x: fnp.sum(x) * 1j)(X),
        GradientError,
        ("grad:", "complex64", "real part"),
    ),
    Case(
        "grad of a tuple",
        lambda: fad.grad(lambda x: (fnp.sum(x), 1))(X),
        GradientError,
        ("grad:", "real scalar", "tuple", "has_aux=True"),
    ),
    Case("grad of None", lambda: fad.grad(lambda x: None)(X), GradientError, ("grad:", "got None")),
    Case(
        "has_aux without aux",
        lambda: fad.grad(fnp.sum, has_aux=True)(X),
        TypeError,
        ("grad:", "pair (output, aux)", "Tensor float32[]"),
    ),
    Case(
        "jacrev of integers",
        lambda: fad.jacrev(fnp.argsort)(X),
        GradientError,
        ("jacrev:", "output 0", "int32", "has_aux=True"),
    ),
    # argnums
    *[
        Case(
            f"{name} with argnums out of range",
            lambda t=t: t(lambda x: fnp.sum(x), 1)(X),
            StructureError,
            (f"{name}:", "argnums=1 is out of range", "1 positional arguments"),
        )
        for name, t in [
            ("grad", fad.grad),
            ("value_and_grad", fad.value_and_grad),
            ("jacrev", fad.jacrev),
            ("jacfwd", fad.jacfwd),
        ]
    ],
    Case(
        "argnums below the range",
        lambda: fad.grad(fnp.sum, -2)(X),
        StructureError,
        ("grad:", "argnums=-2", "1 positional"),
    ),
    Case(
        "argnums of a keyword argument",
        lambda: fad.grad(lambda x: fnp.sum(x))(x=X),
        StructureError,
        ("argnums=0", "0 positional", "by position"),
    ),
    Case(
        "argnums of a name",
        lambda: fad.grad(fnp.sum, "x")(X),  # type: ignore[arg-type]
        TypeError,
        ("grad: argnums", "int or a tuple of ints", "'x'"),
    ),
    Case(
        "argnums twice",
        lambda: fad.grad(lambda x, y: fnp.sum(x), (0, -2))(X, X),
        StructureError,
        ("argnums=(0, -2)", "twice"),
    ),
    Case("no argnums", lambda: fad.grad(fnp.sum, ())(X), StructureError, ("argnums is empty",)),
    # Inputs without derivatives
    *[
        Case(
            f"integer input of {name}",
            call,
            TypeError,
            (f"{name}:", "argument 0", "floating or complex", "Array int32[3]", "x.astype(float)"),
        )
        for name, call in [
            ("grad", lambda: fad.grad(lambda x: fnp.sum(x) * 1.0)(N)),
            ("value_and_grad", lambda: fad.value_and_grad(lambda x: fnp.sum(x) * 1.0)(N)),
            ("jacrev", lambda: fad.jacrev(lambda x: x * 1.0)(N)),
            ("jacfwd", lambda: fad.jacfwd(lambda x: x * 1.0)(N)),
            ("vjp", lambda: fad.vjp(lambda x: x * 1.0, N)),
            ("linearize", lambda: fad.linearize(lambda x: x * 1.0, N)),
        ]
    ],
    Case("grad of a Python int", lambda: fad.grad(lambda x: x * 1.0)(3), TypeError, ("got int 3",)),
    Case(
        "an integer deep in a tree",
        lambda: fad.grad(lambda p: p["a"])({"a": 1.0, "n": [2.0, N]}),
        TypeError,
        ("grad:", "argument 0['n'][1]", "int32[3]"),
    ),
    Case(
        "a string in a tree",
        lambda: fad.grad(lambda p: p["a"])({"a": 1.0, "n": "s"}),
        TypeError,
        ("grad:", "argument 0['n']", "must be an array", "str 's'"),
    ),
    # Loops, Taylor mode, sparse derivatives, functions that are not taken
    Case(
        "a negative order",
        lambda: fad.derivatives(fnp.sin, X, -1),
        ValueError,
        ("derivatives:", "order", "at least 0", "int -1"),
    ),
    Case(
        "a series too many",
        lambda: fad.jet(fnp.sin, (X,), ([X], [X])),
        StructureError,
        ("jet:", "one entry for each of the 1 primals", "got 2"),
    ),
    Case(
        "a series of another shape",
        lambda: fad.jet(fnp.sin, (X,), ([jnp.ones(2)],)),
        StructureError,
        ("jet:", "argument 0", "float32[3]", "float32[2]", "broadcast_to"),
    ),
    Case(
        "a sparse Jacobian by a pattern of another shape",
        lambda: fad.sparse_jacobian(fnp.sin, pattern=np.eye(2))(X),
        StructureError,
        ("sparse_jacobian:", "the pattern", "(2, 2)", "(3, 3)"),
    ),
    Case(
        "a sparse Jacobian by a pattern of another structure",
        lambda: fad.sparse_jacobian(fnp.sin, pattern=[np.eye(3)])(X),
        StructureError,
        ("sparse_jacobian:", "the pattern", "expected a matrix", "fad.sparsity(f)(*args)"),
    ),
    Case(
        "a sparse Jacobian in chunks of nothing",
        lambda: fad.sparse_jacobian(fnp.sin, chunk_size=0)(X),
        ValueError,
        ("sparse_jacobian:", "chunk_size", "greater than 0", "got 0"),
    ),
    Case(
        "a sparse Jacobian in a format that there is not",
        lambda: fad.sparse_jacobian(fnp.sin, format="csr")(X),
        ValueError,
        ("sparse_jacobian:", "format", "'bcoo', 'bcsr' or 'scipy'", "'csr'"),
    ),
    Case(
        "a sparse Jacobian of integers",
        lambda: fad.sparse_jacobian(fnp.sin)(N),
        TypeError,
        ("sparse_jacobian:", "argument 0", "int32[3]", "x.astype(float)"),
    ),
    Case(
        "a sparse Hessian of a vector",
        lambda: fad.sparse_hessian(fnp.sin)(X),
        GradientError,
        ("sparse_hessian:", "real scalar", "shape (3,)", ".sum()"),
    ),
    Case(
        "safe_where with a constant",
        lambda: fad.safe_where(X > 0, fnp.sqrt, 1.0, X),
        TypeError,
        ("safe_where:", "g must be a function", "lambda x: 1.0"),
    ),
    Case(
        "safe_where of numbers",
        lambda: fad.safe_where(X, fnp.sqrt, fnp.sin, X),
        TypeError,
        ("safe_where:", "expected bools", "x > 0"),
    ),
    Case(
        "a negative number of steps",
        lambda: fad.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, 0.0, max_steps=-1),
        ValueError,
        ("while_loop:", "max_steps", "int -1", "cond_fun"),
    ),
    Case(
        "checkpoints by name",
        lambda: fad.lax.while_loop(lambda x: x < 3.0, lambda x: x + 1.0, 0.0, checkpoints="some"),
        ValueError,
        ("while_loop:", "checkpoints", '"auto"', "'some'"),
    ),
    # vmap
    Case(
        "vmap over different sizes",
        lambda: fad.vmap(lambda x, y: x)(X, jnp.ones(4)),
        StructureError,
        ("vmap:", "argument 0: 3", "argument 1: 4", "in_dims"),
    ),
    Case(
        "vmap over different sizes in a tree",
        lambda: fad.vmap(lambda p, *, k: p)({"a": X, "b": [W]}, k=jnp.ones(5)),
        StructureError,
        ("argument 0['a']: 3", "argument 0['b'][0]: 2", "argument 'k': 5"),
    ),
    Case(
        "vmap with another axis_size",
        lambda: fad.vmap(lambda x: x, axis_size=4)(X),
        StructureError,
        ("vmap:", "argument 0: 3", "axis_size: 4"),
    ),
    Case(
        "vmap over nothing",
        lambda: fad.vmap(lambda x: x, in_dims=None)(X),
        StructureError,
        ("vmap: no argument is mapped", "axis_size"),
    ),
    Case(
        "vmap over a Python number",
        lambda: fad.vmap(lambda x: x)(3.0),
        StructureError,
        ("vmap: argument 0", "float 3.0", "in_dims None"),
    ),
    Case(
        "vmap over a scalar",
        lambda: fad.vmap(lambda x: x)(jnp.float32(3.0)),
        StructureError,
        ("vmap: argument 0", "shape ()", "no dimension 0", "in_dims"),
    ),
    *[
        Case(
            f"vmap over dimension {d} of a matrix",
            lambda d=d: fad.vmap(lambda x: x, in_dims=d)(W),
            StructureError,
            ("vmap: argument 0", "(2, 3)", f"no dimension {d}", "in_dims"),
        )
        for d in (2, -3)
    ],
    Case(
        "too few in_dims",
        lambda: fad.vmap(lambda x, y: x, in_dims=(0,))(X, X),
        StructureError,
        ("vmap: in_dims has 1 entries for 2 positional arguments",),
    ),
    *[
        Case(
            f"in_dims {bad!r}",
            lambda bad=bad: fad.vmap(lambda x: x, in_dims=bad)(X),
            StructureError,
            ("vmap: in_dims entries must be ints or None", repr(bad)),
        )
        for bad in ("a", 0.5, True)
    ],
    *[
        Case(
            f"in_dims of another structure: {bad}",
            lambda bad=bad: fad.vmap(lambda p: p["a"], in_dims=(bad,))({"a": X, "b": X}),
            StructureError,
            ("vmap: in_dims", "pytree prefix of the arguments", repr(bad), "{'a': *, 'b': *}"),
        )
        for bad in ({"a": 0}, (0, 0), {"a": 0, "b": 0, "c": 0}, {"a": (0,), "b": 0})
    ],
    Case(
        "out_dims None for what differs",
        lambda: fad.vmap(lambda x: x, out_dims=None)(X),
        StructureError,
        ("vmap: out_dims is None", "differs between lanes"),
    ),
    Case(
        "out_dims out of range",
        lambda: fad.vmap(lambda x: x, out_dims=1)(X),
        StructureError,
        ("vmap: out_dims 1", "output 0", "0 dimensions"),
    ),
    Case(
        "out_dims of another structure",
        lambda: fad.vmap(lambda x: (x, x), out_dims=(0,))(X),
        StructureError,
        ("vmap: out_dims", "pytree prefix of the outputs", "(0,)", "(*, *)"),
    ),
    Case(
        "vmap of a string",
        lambda: fad.vmap(lambda x: "s")(X),
        StructureError,
        ("vmap: output 0", "str 's'", "arrays only"),
    ),
    Case("randomness", lambda: fad.vmap(fnp.sin, randomness="maybe"), ValueError, ("'different'",)),
    *[
        Case(f"chunk_size of {t.__name__}", lambda t=t: t(fnp.sin, chunk_size=0), ValueError, words)
        for t, words in [
            (fad.vmap, ("vmap: chunk_size", "greater than 0", "got 0")),
            (fad.jacrev, ("jacrev: chunk_size", "greater than 0", "got 0")),
            (fad.jacfwd, ("jacfwd: chunk_size", "greater than 0", "got 0")),
        ]
    ],
    Case(
        "an output that differs under vmap, stored and used later",
        lambda: (lambda kept: (fad.vmap(lambda v: kept.append(v) or v)(X), kept[0] + 1))([]),
        LevelError,
        ("batched Tensor", "after its vmap had finished", "return it"),
    ),
    # Tangents
    *[
        Case(
            f"{name} with a tangent of another shape",
            call,
            StructureError,
            (f"{name}: the tangent of", "float32[3]", "float32[2]", "broadcast_to"),
        )
        for name, call in [
            ("jvp", lambda: fad.jvp(fnp.sin, (X,), (jnp.ones(2),))),
            ("hvp", lambda: fad.hvp(fnp.sum, (X,), (jnp.ones(2),))),
            ("jvp_fn", lambda: fad.linearize(fnp.sin, X)[1](jnp.ones(2))),
            ("make_dual", lambda: dual(X, jnp.ones(2))),
        ]
    ],
    *[
        Case(
            f"{name} with a tangent of dtype {dtype}",
            lambda call=call, dtype=dtype: call(jnp.ones(3, dtype)),
            StructureError,
            (f"{name}: the tangent of", "float32[3]", f"{dtype}[3]", "t.astype('float32')"),
        )
        for name, call in [
            ("jvp", lambda t: fad.jvp(fnp.sin, (X,), (t,))),
            ("make_dual", lambda t: dual(X, t)),
        ]
        for dtype in ("int32", "float16", "complex64")
    ],
    Case(
        "a complex tangent of a Python float",
        lambda: fad.jvp(fnp.sin, (1.0,), (1j,)),
        StructureError,
        ("jvp: the tangent of argument 0", "float32[]", "complex64[]"),
    ),
    Case(
        "a tangent for an integer",
        lambda: fad.jvp(lambda n: n * 1.0, (N,), (N,)),
        StructureError,
        ("jvp: argument 0", "int32", "must be None"),
    ),
    Case(
        "too many tangents",
        lambda: fad.jvp(fnp.sin, (X,), (X, X)),
        StructureError,
        ("jvp: tangents must have the structure of the primals", "(*,)", "(*, *)"),
    ),
    Case(
        "tangents of another structure",
        lambda: fad.jvp(lambda p: p["a"], ({"a": X},), ({"b": X},)),
        StructureError,
        ("jvp: tangents", "{'a': *}", "{'b': *}"),
    ),
    Case(
        "primals that are no tuple",
        lambda: fad.jvp(fnp.sin, X, X),
        TypeError,
        ("jvp: primals and tangents must be tuples", "jvp(f, (x,), (t,))"),
    ),
    # Cotangents
    Case(
        "a cotangent of another shape",
        lambda: fad.vjp(fnp.sin, X)[1](jnp.ones(2)),
        StructureError,
        ("vjp_fn: cotangent 0", "(3,)", "Array float32[2]"),
    ),
    Case(
        "a cotangent of another structure",
        lambda: fad.vjp(lambda x: {"a": x}, X)[1](X),
        StructureError,
        ("vjp_fn: the cotangent", "{'a': *}", "PyTreeDef(*)"),
    ),
    Case(
        "a complex cotangent of a real output",
        lambda: fad.vjp(fnp.sin, X)[1](X * 1j),
        StructureError,
        ("vjp_fn: cotangent 0 is complex", "float32", "real part"),
    ),
    # Dual levels
    Case(
        "make_dual outside",
        lambda: fad.make_dual(X, X),
        LevelError,
        ("make_dual was called outside of a dual_level", "with fad.dual_level()"),
    ),
    Case(
        "a tangent with a tangent",
        tangent_with_a_tangent,
        LevelError,
        ("make_dual: the tangent has itself a tangent at this level", "another dual_level"),
    ),
    Case(
        "exit_dual_level outside",
        lambda: fad.autograd.forward_ad.exit_dual_level(),
        LevelError,
        ("exit_dual_level was called outside of a dual_level", "with fad.dual_level()"),
    ),
    Case(
        "exit_dual_level of an outer level",
        exit_an_outer_level,
        LevelError,
        ("exit_dual_level:", "not the last one that was entered", "leave that one first"),
    ),
    Case(
        "dual levels left in another order",
        levels_left_in_another_order,
        LevelError,
        ("dual level", "was left before", "inside of it", "entered last first"),
    ),
    Case(
        "unpack_dual at a finished level",
        lambda: fad.unpack_dual(*finished_dual()),
        LevelError,
        ("unpack_dual: level must be a running dual level", "(finished)"),
    ),
    Case(
        "make_dual at a finished level",
        lambda: fad.make_dual(X, X, finished_dual()[1]),
        LevelError,
        ("make_dual: level must be a running dual level", "(finished)"),
    ),
    Case(
        "make_dual at a number",
        lambda: fad.make_dual(X, X, level=3),
        LevelError,
        ("make_dual: level must be a running dual level", "int 3"),
    ),
    Case(
        "make_dual of integers",
        lambda: dual(N, N),
        TypeError,
        ("make_dual: the primal", "floating or complex", "Array int32[3]", "astype"),
    ),
    Case("make_dual of a string", lambda: dual("s", X), TypeError, ("make_dual:", "str 's'")),
    Case(
        "make_dual of a value of an inner transform",
        dual_of_an_inner_value,
        LevelError,
        ("make_dual:", "belongs to vmap level", "inside of dual level"),
    ),
    Case(
        "a second tangent at one level",
        two_duals_at_one_level,
        LevelError,
        ("make_dual:", "already has a tangent", "another dual_level"),
    ),
    # Tensors in plain JAX and NumPy
    *[
        Case(
            name, call, TypeError, ("fad.Tensor", "fad.numpy.f(x)", "fad.from_jax(f)(x)", "x.array")
        )
        for name, call in [
            ("jnp.sin", lambda: jnp.sin(fad.tensor(X))),
            ("jnp.add", lambda: jnp.add(fad.tensor(X), 1.0)),
            ("jnp.stack", lambda: jnp.stack([fad.tensor(X)])),
            ("jax.lax.sin", lambda: jax.lax.sin(fad.tensor(X))),
            ("jnp.sum inside grad", lambda: fad.grad(lambda v: jnp.sum(v))(X)),
            ("jnp.sin inside jvp", lambda: fad.jvp(lambda v: jnp.sin(v), (X,), (X,))),
            ("jnp.sin inside vmap", lambda: fad.vmap(lambda v: jnp.sin(v))(X)),
            ("jnp.sin inside both", lambda: fad.vmap(fad.grad(lambda v: jnp.sin(v)))(X)),
            ("jnp.sin inside jit", lambda: fad.jit(lambda v: jnp.sin(v))(X)),
        ]
    ],
    *[
        Case(name, call, GradientError, ("numpy()", "derivative", "x.detach()"))
        for name, call in [
            (
                "np.asarray of a tracked Tensor",
                lambda: np.asarray(fad.tensor(X, requires_grad=True)),
            ),
            ("jnp.asarray inside grad", lambda: fad.grad(lambda v: jnp.asarray(v).sum())(X)),
            ("np.asarray inside grad", lambda: fad.grad(lambda v: np.asarray(v).sum())(X)),
            ("np.asarray inside jvp", lambda: fad.jvp(lambda v: np.asarray(v), (X,), (X,))),
        ]
    ],
    # Values that are not there
    *[
        Case(name, call, HostValueError, ("batched Tensor", "for each lane", "fad.numpy.where"))
        for name, call in [
            ("a branch under vmap", lambda: fad.vmap(lambda v: v if v > 0 else -v)(X)),
            ("bool() under vmap", lambda: fad.vmap(lambda v: bool(v))(X)),
            ("float() under vmap", lambda: fad.vmap(lambda v: float(v))(X)),
            ("item() under vmap", lambda: fad.vmap(lambda v: v.item())(X)),
            ("tolist() under vmap", lambda: fad.vmap(lambda v: v.tolist())(X)),
            (
                "a branch under vmap of grad",
                lambda: fad.vmap(fad.grad(lambda v: v if v > 0 else -v))(X),
            ),
            (
                "a branch under grad of vmap",
                lambda: fad.grad(lambda x: fad.vmap(lambda v: v if v > 0 else -v)(x).sum())(X),
            ),
        ]
    ],
    Case(
        "numpy() under vmap",
        lambda: fad.vmap(lambda v: v.numpy())(X),
        HostValueError,
        ("batched Tensor", "for each lane", "fad.numpy.f(x) instead of numpy.f(x)"),
    ),
    Case(
        "range() under vmap",
        lambda: fad.vmap(lambda n: list(range(n)))(N),
        HostValueError,
        ("batched Tensor", "for each lane", "in_dims None", "fad.lax.fori_loop"),
    ),
    Case(
        "a mask under vmap",
        lambda: fad.vmap(lambda v: v[v > 0])(W),
        HostValueError,
        ("mask", "vmap", "fad.numpy.where(mask, x, y)"),
    ),
    Case(
        "a branch under jit",
        lambda: fad.jit(lambda v: v if v.sum() > 0 else -v)(X),
        HostValueError,
        ("no value yet", "fad.numpy.where", "fad.lax.cond"),
    ),
    # Static arguments
    Case(
        "an unhashable static argument of jit",
        lambda: fad.jit(lambda x, c: x, static_argnums=1)(X, [1, {}]),
        TypeError,
        ("jit: a static argument must be hashable", "list [1, {}]", "tuple", "__hash__"),
    ),
    Case(
        "an unhashable static argument of from_jax",
        lambda: fad.from_jax(lambda x, c: x, static_argnums=1)(X, {1: 2}),
        TypeError,
        ("from_jax: a static argument must be hashable", "dict {1: 2}"),
    ),
    # What is no function, and what is no constructor
    *[
        Case(
            f"{name} of a number",
            call,
            TypeError,
            (f"{name}: the first argument must be a function", "float 3.0"),
        )
        for name, call in [
            ("grad", lambda: fad.grad(3.0)),
            ("value_and_grad", lambda: fad.value_and_grad(3.0)),
            ("vjp", lambda: fad.vjp(3.0, X)),
            ("jvp", lambda: fad.jvp(3.0, (X,), (X,))),
            ("linearize", lambda: fad.linearize(3.0, X)),
            ("jacrev", lambda: fad.jacrev(3.0)),
            ("jacfwd", lambda: fad.jacfwd(3.0)),
            ("vmap", lambda: fad.vmap(3.0)),
            ("checkpoint", lambda: fad.checkpoint(3.0)),
            ("functionalize", lambda: fad.functionalize(3.0)),
            ("jit", lambda: fad.jit(3.0)),
        ]
    ],
    Case("Tensor()", lambda: fad.Tensor(3.0), TypeError, ("fad.tensor(data)", "fad.asarray(x)")),
]


# The eager tape, Tensors, hooks and Functions


def leaf() -> Any:
    return fad.tensor(X, requires_grad=True)


def changed(write: Callable[[Any], Any]) -> Callable[[], Any]:
    """A write to a leaf that requires grad, which must not be half done."""

    def call() -> None:
        x = leaf()
        try:
            write(x)
        finally:
            assert x.version == 0
            assert_close(x.detach(), X)

    return call


def backward_twice() -> None:
    y = (leaf() * 2.0 * leaf()).sum()
    y.backward()
    y.backward()


def saved_then_changed() -> None:
    a = leaf() * 1.0
    y = (a * a).sum()
    a.add_(1.0)
    y.backward()


def with_inference_tensor(use: Callable[[Any], Any]) -> Callable[[], Any]:
    def call() -> None:
        with fad.inference_mode():
            x = fad.tensor(X)
        use(x)

    return call


def with_hook(hook: Any) -> Callable[[], Any]:
    def call() -> None:
        x = leaf()
        x.register_hook(hook)
        x.sum().backward()

    return call


def nan_in_anomaly_mode() -> None:
    with fad.autograd.detect_anomaly():
        fnp.sqrt(leaf() * 0.0 - 1.0).sum().backward()


class Multiply(fad.Function):
    """For calls that do not fit."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return ctx.result


class Once(fad.Function):
    """Its gradient must not be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @fad.autograd.once_differentiable
    def vjp(ctx: Any, g: Any) -> Any:
        return 2.0 * ctx.saved_tensors[0] * g


def returned(rule: str, value: Any) -> Callable[[], Any]:
    """Use a Function whose rule returns this."""

    def call() -> None:
        body = staticmethod(lambda *args: value)
        forward = staticmethod(lambda x: x * 2.0)
        bad = type("Bad", (fad.Function,), {"forward": forward, rule: body})
        if rule == "jvp":
            fad.jvp(bad.apply, (X,), (X,))
        elif rule == "vmap":
            fad.vmap(bad.apply)(W)
        else:
            fad.vjp(bad.apply, X)[1](X)

    return call


AUTOGRAD = fad.autograd
CASES += [
    # backward and autograd.grad
    Case(
        "backward of a vector",
        lambda: (leaf() * 2).backward(),
        GradientError,
        ("scalar outputs", "(3,)", ".sum()"),
    ),
    Case(
        "backward of a constant",
        lambda: fad.tensor(X).sum().backward(),
        GradientError,
        ("does not require grad",),
    ),
    Case("backward twice", backward_twice, GradientError, ("second time", "retain_graph=T")),
    Case(
        "backward of a wrong shape",
        lambda: (leaf() * 2).backward(jnp.ones(2)),
        GradientError,
        ("backward():", "(2,)", "(3,)"),
    ),
    Case(
        "backward of complex",
        lambda: (leaf() * 2).backward(1j * X),
        GradientError,
        ("complex", "real part"),
    ),
    Case(
        "backward of a string",
        lambda: (leaf() * 2).backward("s"),
        TypeError,
        ("Tensors or None", "str 's'"),
    ),
    Case(
        "autograd.grad of what is unused",
        lambda: AUTOGRAD.grad(leaf().sum(), leaf()),
        GradientError,
        ("not have been used", "allow_unused=True"),
    ),
    Case(
        "autograd.grad in an array",
        lambda: AUTOGRAD.grad(leaf().sum(), X),
        TypeError,
        ("input 0 must be a Tensor", "Array float32[3]"),
    ),
    Case(
        "autograd.grad with too many gradients",
        lambda: AUTOGRAD.grad([leaf().sum()], leaf(), [1.0, 2.0]),
        GradientError,
        ("1 tensors and 2 gradients",),
    ),
    Case(
        "autograd.grad of no inputs",
        lambda: AUTOGRAD.grad(leaf().sum(), []),
        GradientError,
        ("inputs", "cannot be empty"),
    ),
    Case(
        "a saved value that was changed",
        saved_then_changed,
        GradientError,
        ("modified by an inplace operation", "version 1", "x.clone()"),
    ),
    Case("nan in anomaly mode", nan_in_anomaly_mode, GradientError, ("sqrt", "nan")),
    Case(
        "the edge of a constant",
        lambda: AUTOGRAD.get_gradient_edge(fad.tensor(X)),
        GradientError,
        ("gradient edge",),
    ),
    Case(
        "a callback outside of a pass",
        lambda: AUTOGRAD.queue_callback(print),
        GradientError,
        ("during backward pass",),
    ),
    # Writes in place
    Case(
        "a write to a leaf",
        changed(lambda x: x.add_(1.0)),
        GradientError,
        ("a leaf Variable that requires grad", "x.clone()", "no_grad"),
    ),
    Case(
        "an item of a leaf",
        changed(lambda x: x.__setitem__(0, 1.0)),
        GradientError,
        ("x[i] = v", "leaf"),
    ),
    Case(
        "a write to a view of a leaf",
        changed(lambda x: x[:2].add_(1.0)),
        GradientError,
        ("add_:", "a view of a leaf"),
    ),
    Case(
        "a write that needs another shape",
        lambda: fad.tensor(X).add_(W),
        ValueError,
        ("add_:", "[3]", "[2, 3]", "cannot change the shape"),
    ),
    Case(
        "a write that does not broadcast",
        lambda: fad.tensor(X).add_(jnp.ones(4)),
        TypeError,
        ("add", "(3,)", "(4,)"),
    ),
    Case(
        "an item of another shape",
        lambda: fad.tensor(X).__setitem__(0, W),
        ValueError,
        ("broadcast", "(2, 3)", "()"),
    ),
    Case(
        "a write of floats into integers",
        lambda: fad.tensor(N).add_(1.5),
        TypeError,
        ("add_:", "float32", "int32", "astype"),
    ),
    Case(
        "a write of complex into floats",
        lambda: fad.tensor(X).mul_(1j),
        TypeError,
        ("complex64", "float32"),
    ),
    Case(
        "a write to what was broadcast",
        lambda: fnp.broadcast_to(fad.tensor(X), (2, 3)).add_(1.0),
        ValueError,
        ("single memory location", "clone()"),
    ),
    Case(
        "fill_ with a vector",
        lambda: fad.tensor(X).fill_(X),
        ValueError,
        ("fill_:", "no dimensions", "float32[3]"),
    ),
    Case("copy_ of None", lambda: fad.tensor(X).copy_(None), ValueError, ("None",)),
    # Indexing
    Case(
        "an index out of range",
        lambda: fad.tensor(X)[5],
        IndexError,
        ("index 5", "size 3", "Tensor float32[3]"),
    ),
    Case(
        "too many indices",
        lambda: fad.tensor(X)[0, 0],
        IndexError,
        ("too many indices", "1 dimensions", "2"),
    ),
    Case(
        "an index that is a float",
        lambda: fad.tensor(X)[1.5],
        IndexError,
        ("integers, slices", "float 1.5"),
    ),
    Case(
        "a written index out of range",
        lambda: fad.tensor(X).__setitem__((0, 0), 1.0),
        IndexError,
        ("too many indices",),
    ),
    # requires_grad and .grad
    Case(
        "an integer that requires grad",
        lambda: fad.tensor(N, requires_grad=True),
        TypeError,
        ("floating or complex", "int32", "astype(float)"),
    ),
    Case(
        "requires_grad_ of an integer",
        lambda: fad.tensor(N).requires_grad_(),
        TypeError,
        ("floating or complex", "int32"),
    ),
    Case(
        "requires_grad_ of what is computed",
        lambda: (leaf() * 2).requires_grad_(False),
        GradientError,
        ("leaf", "x.detach()"),
    ),
    Case(
        "requires_grad_ of an inference Tensor",
        with_inference_tensor(lambda x: x.requires_grad_()),
        GradientError,
        ("inference tensor", "x.clone()"),
    ),
    Case(
        "an inference Tensor on the tape",
        with_inference_tensor(lambda x: x * leaf()),
        GradientError,
        ("Inference tensors cannot be saved", "clone"),
    ),
    Case(
        "a .grad of another shape",
        lambda: setattr(leaf(), "grad", fad.tensor(jnp.ones(2))),
        GradientError,
        ("grad must have the shape", "float32[3]", "float32[2]"),
    ),
    Case(
        "a .grad of another dtype",
        lambda: setattr(leaf(), "grad", fad.tensor(N)),
        GradientError,
        ("float32[3]", "int32[3]"),
    ),
    Case("a .grad that is a string", lambda: setattr(leaf(), "grad", "s"), TypeError, ("'s'",)),
    Case(
        "retain_grad of a constant",
        lambda: fad.tensor(X).retain_grad(),
        GradientError,
        ("retain_grad", "requires_grad=False"),
    ),
    # Hooks and modes
    Case(
        "a hook on a constant",
        lambda: fad.tensor(X).register_hook(print),
        GradientError,
        ("hook", "doesn't require gradient"),
    ),
    Case(
        "a hook that is no function",
        lambda: leaf().register_hook(3),
        TypeError,
        ("a hook must be callable", "int 3"),
    ),
    Case(
        "a hook that changes the shape",
        with_hook(lambda g: jnp.ones(2)),
        GradientError,
        ("changed the size", "[3]", "[2]"),
    ),
    Case("a hook that returns a string", with_hook(lambda g: "s"), Exception, ("s",)),
    Case(
        "a post hook on what is computed",
        lambda: (leaf() * 2).register_post_accumulate_grad_hook(print),
        GradientError,
        ("non-leaf",),
    ),
    Case(
        "a multi hook that is no function",
        lambda: AUTOGRAD.register_multi_grad_hook([leaf()], 3),
        TypeError,
        ("register_multi_grad_hook", "int 3"),
    ),
    Case(
        "a multi hook in another mode",
        lambda: AUTOGRAD.register_multi_grad_hook([leaf()], print, mode="some"),
        ValueError,
        ("'all', 'any'", "some"),
    ),
    Case(
        "saved hooks that are no functions",
        lambda: AUTOGRAD.saved_tensors_hooks(1, 2),
        TypeError,
        ("saved_tensors_hooks", "int 1"),
    ),
    Case(
        "no_grad around a number",
        lambda: fad.no_grad(3),
        TypeError,
        ("no_grad", "only functions", "int 3"),
    ),
    Case(
        "no_grad around a class",
        lambda: fad.no_grad(Multiply),
        TypeError,
        ("no_grad", "methods of Multiply"),
    ),
    # Making Tensors, and taking them apart
    Case("a Tensor of a string", lambda: fad.tensor("s"), TypeError, ("'s'",)),
    Case(
        "a Tensor of a ragged list",
        lambda: fad.tensor([[1], [2, 3]]),
        ValueError,
        ("inhomogeneous",),
    ),
    Case("a Tensor of an object", lambda: fad.tensor(object()), TypeError, ("object",)),
    Case("a Tensor of an unknown dtype", lambda: fad.tensor(X, dtype="no"), TypeError, ("'no'",)),
    Case("a Tensor to nowhere", lambda: fad.tensor(X).to("nowhere"), TypeError, ("'nowhere'",)),
    Case("item of a vector", lambda: fad.tensor(X).item(), ValueError, ("write x[i].item()",)),
    Case(
        "the truth of a vector", lambda: bool(fad.tensor(X)), ValueError, ("ambiguous", "a.any()")
    ),
    Case("float of a vector", lambda: float(fad.tensor(X)), TypeError, ("Scalar",)),
    Case("the length of a scalar", lambda: len(fad.tensor(1.0)), TypeError, ("0-d Tensor",)),
    Case("iteration over a scalar", lambda: list(fad.tensor(1.0)), TypeError, ("0-d Tensor",)),
    Case(
        "an attribute that is not there",
        lambda: fad.tensor(X).nothing,
        AttributeError,
        ("Tensor has no", "nothing"),
    ),
    # Operations
    Case(
        "operands that do not broadcast",
        lambda: fad.tensor(X) + fad.tensor(jnp.ones(2)),
        TypeError,
        ("(3,)", "(2,)"),
    ),
    Case("a Tensor and a string", lambda: fad.tensor(X) + "s", TypeError, ("'Tensor' and 'str'",)),
    Case("a Tensor and None", lambda: None + fad.tensor(X), TypeError, ("NoneType",)),
    Case(
        "matmul of shapes that do not fit",
        lambda: fad.tensor(X) @ fad.tensor(W),
        TypeError,
        ("(3,)", "(2,)"),
    ),
    Case(
        "a reshape to another size",
        lambda: fad.tensor(X).reshape(2, 2),
        TypeError,
        ("(3,)", "(2, 2)"),
    ),
    Case(
        "a name that numpy has not", lambda: fnp.nothing, AttributeError, ("fad.numpy", "nothing")
    ),
    Case(
        "an axis out of range",
        lambda: fnp.sum(fad.tensor(X), axis=3),
        ValueError,
        ("axis 3", "dimension 1"),
    ),
    Case(
        "a keyword that is not there",
        lambda: fnp.sum(fad.tensor(X), ax=3),
        TypeError,
        ("fad.numpy.sum()", "'ax'"),
    ),
    Case("a missing argument", lambda: fnp.sin(), TypeError, ("sin()", "'x'")),
    Case("an integer for lax", lambda: fad.lax.sin(fad.tensor(N)), TypeError, ("sin", "int32")),
    Case(
        "an einsum that does not fit",
        lambda: fnp.einsum("ij,jk", fad.tensor(W), fad.tensor(W)),
        ValueError,
        ("'j'",),
    ),
    Case(
        "the inverse of what is not square",
        lambda: fnp.linalg.inv(fad.tensor(W)),
        ValueError,
        ("inv", "(2, 3)"),
    ),
    Case("a key that is a number", lambda: fad.random.normal(3, (2,)), TypeError, ("key",)),
    Case(
        "a scan body without a pair",
        lambda: fad.lax.scan(lambda c, x: (c,), 0.0, X),
        TypeError,
        ("scan", "pair"),
    ),
    Case(
        "a carry that changes",
        lambda: fad.lax.scan(lambda c, x: (jnp.ones(2), x), 0.0, X),
        TypeError,
        ("carry", "float32[2]"),
    ),
    Case(
        "branches that differ",
        lambda: fad.lax.cond(True, lambda: 1.0, lambda: X),
        TypeError,
        ("cond", "float32[3]"),
    ),
    Case(
        "a key that all lanes share",
        lambda: fad.vmap(lambda x: x + fad.random.normal(jax.random.key(0)))(X),
        LevelError,
        ("fad.random.normal", "randomness='different'"),
    ),
    # Functions
    Case("a Function as a call", lambda: Multiply(X, X), TypeError, ("Multiply.apply",)),
    Case(
        "too few arguments of apply",
        lambda: Multiply.apply(X),
        TypeError,
        ("Multiply.apply(x", "missing a required argument", "'y'"),
    ),
    Case(
        "a Function without forward",
        lambda: type("Empty", (fad.Function,), {}).apply(X),
        RuleError,
        ("Empty has no forward",),
    ),
    Case(
        "a second derivative of once_differentiable",
        lambda: fad.grad(fad.grad(Once.apply))(2.0),
        GradientError,
        ("Once.vjp", "@once_differentiable"),
    ),
    Case(
        "a gradient of another shape",
        returned("vjp", jnp.ones(2)),
        RuleError,
        ("Bad.vjp", "argument 'x'", "(2,)", "(3,)"),
    ),
    Case(
        "two gradients for one argument",
        returned("vjp", (X, X)),
        RuleError,
        ("Bad.vjp", "2 gradients", "expected 1", "(x)"),
    ),
    Case(
        "a gradient that is a string",
        returned("backward", "g"),
        RuleError,
        ("Bad.backward", "argument 'x'", "str 'g'"),
    ),
    Case(
        "a tangent of another shape",
        returned("jvp", jnp.ones(2)),
        RuleError,
        ("Bad.jvp", "output 0", "(2,)", "(3,)"),
    ),
    Case(
        "a tangent that is a string",
        returned("jvp", "t"),
        RuleError,
        ("Bad.jvp", "output 0", "str 't'"),
    ),
    Case(
        "a vmap rule without out_dims",
        returned("vmap", X),
        RuleError,
        ("Bad.vmap", "pair (output, out_dims)"),
    ),
    Case(
        "out_dims without a batch",
        returned("vmap", (X, 0)),
        RuleError,
        ("Bad.vmap", "(3,)", "batch of 2", "out_dims 0"),
    ),
    # The bridge
    Case(
        "to_jax of a number",
        lambda: fad.to_jax(3),
        TypeError,
        ("to_jax: the first argument must be a function", "int 3"),
    ),
    Case(
        "from_jax of a number",
        lambda: fad.from_jax(3),
        TypeError,
        ("from_jax: the first argument must be a function", "int 3"),
    ),
    Case(
        "to_jax that returns a tracked Tensor",
        lambda: (lambda w: fad.to_jax(lambda x: w * x)(X))(leaf()),
        LevelError,
        ("to_jax:", "lose its derivative", "stop_gradient"),
    ),
    Case(
        "jit with hooks that are not a bool",
        lambda: fad.jit(lambda x: x, hooks="all"),
        TypeError,
        ("jit: hooks must be True or False", "'all'"),
    ),
    Case("jit that returns a string", lambda: fad.jit(lambda x: "s")(X), TypeError, ("str",)),
    Case(
        "jvp with too few primals", lambda: fad.jvp(lambda x, y: x, (X,), (X,)), TypeError, ("'y'",)
    ),
    Case(
        "grad of a function without arguments",
        lambda: fad.grad(lambda: 1.0)(),
        StructureError,
        ("argnums=0", "0 positional"),
    ),
    Case(
        "too many tangents for linearize",
        lambda: fad.linearize(fnp.sin, X)[1](X, X),
        StructureError,
        ("jvp_fn:", "(*, *)"),
    ),
    Case(
        "vjp without aux",
        lambda: fad.vjp(lambda x: x, X, has_aux=True),
        TypeError,
        ("vjp:", "pair (output, aux)"),
    ),
    Case(
        "functional.jacobian of a number",
        lambda: AUTOGRAD.functional.jacobian(3, X),
        TypeError,
        ("must be a function", "int 3"),
    ),
    Case(
        "functional.hessian of a vector",
        lambda: AUTOGRAD.functional.hessian(lambda x: x, X),
        GradientError,
        ("real scalar", "(3,)"),
    ),
    Case(
        "functional.vjp of a vector without v",
        lambda: AUTOGRAD.functional.vjp(lambda x: x, X),
        GradientError,
        ("vector v", "single element"),
    ),
    Case(
        "functional.hvp with another shape",
        lambda: AUTOGRAD.functional.hvp(fnp.sum, X, jnp.ones(2)),
        StructureError,
        ("float32[3]", "float32[2]"),
    ),
    # Checkers
    Case(
        "gradcheck of a number",
        lambda: testing.gradcheck(3.0, X),
        TypeError,
        ("gradcheck:", "float 3.0"),
    ),
    Case(
        "gradcheck of integers",
        lambda: testing.gradcheck(fnp.sin, N),
        ValueError,
        ("gradcheck", "floating or complex"),
    ),
    Case(
        "an unknown law",
        lambda: testing.check_function(Once, X, skip=("speed",)),
        StructureError,
        ("'speed' is no law", "deterministic"),
    ),
    Case(
        "check_function of a number",
        lambda: testing.check_function(3.0, X),
        TypeError,
        ("check_function:", "float 3.0"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bad_input(case: Case) -> None:
    before = modes()
    with pytest.raises(case.error) as caught:
        case.call()
    message = str(caught.value)
    for word in case.words:
        assert word in message, f"{word!r} is not in: {message}"
    assert modes() == before


def test_there_are_enough_bad_calls() -> None:
    assert len(CASES) >= 180
    assert len({case.name for case in CASES}) == len(CASES)


NESTINGS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "grad": lambda call: fad.grad(lambda x: (call(), fnp.sum(x))[1])(X),
    "vmap of grad": lambda call: fad.vmap(fad.grad(lambda x: (call(), x)[1]))(X),
    "jacfwd of jacrev": lambda call: fad.jacfwd(fad.jacrev(lambda x: (call(), x)[1]))(X),
    "linearize": lambda call: fad.linearize(lambda x: (call(), x)[1], X),
    "checkpoint": lambda call: fad.checkpoint(lambda x: (call(), x)[1])(X),
    "jit": lambda call: fad.jit(lambda x: (call(), x)[1])(X),
    "scan": lambda call: fad.lax.scan(lambda c, x: (call(), (c, x))[1], 0.0, X),
    "chunks": lambda call: fad.vmap(lambda x: (call(), x)[1], chunk_size=1)(X),
}


def _in_modes(call: Callable[[], Any]) -> None:
    with fad.no_grad(), fad.dual_level(), fad.enable_grad(), fad.inference_mode():
        call()


def _backward(call: Callable[[], Any]) -> None:
    class Failing(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            call()
            return g

    x = fad.tensor(X, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        Failing.apply(x).sum().backward()
    assert is_idle()
    with pytest.raises(ZeroDivisionError):
        fad.vmap(fad.grad(Failing.apply))(X)
    assert is_idle()
    fad.autograd.grad(Failing.apply(x).sum(), x, create_graph=True)


@pytest.mark.parametrize(
    "around", [*NESTINGS.values(), _in_modes, _backward], ids=[*NESTINGS, "modes", "backward"]
)
def test_an_exception_inside_leaves_no_trace(around: Callable[[Callable[[], Any]], Any]) -> None:
    def call() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        around(call)
    assert is_idle()
    # And everything still works.
    assert_close(fad.grad(lambda x: fnp.sum(x * x))(X), 2.0 * X)
    x = fad.tensor(X, requires_grad=True)
    (x * x).sum().backward()
    assert_close(x.grad, 2.0 * X)


def test_a_branch_on_a_value_is_fine_where_there_is_one() -> None:
    branch = lambda v: v * v if v.sum() > 0 else -v
    assert_close(fad.grad(lambda v: branch(v).sum())(X), 2.0 * X)
    assert_close(fad.jvp(branch, (X,), (X,))[1], 2.0 * X * X)
    assert_close(fad.jacrev(branch)(X), jnp.diag(2.0 * X))
    assert_close(fad.jacfwd(branch)(X), jnp.diag(2.0 * X))
    assert_close(fad.hessian(lambda v: branch(v).sum())(X), 2.0 * jnp.eye(3))
    assert_close(fad.linearize(branch, X)[1](X), 2.0 * X * X)


def test_every_error_of_the_tape_is_fads() -> None:
    assert issubclass(GradientError, FadError) and issubclass(GradientError, RuntimeError)
