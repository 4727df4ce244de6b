"""Bad input: the error's type, the words that its message must hold, and that no mode is left changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError, LevelError, StructureError

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


def unpack_inside_another_level() -> Any:
    x, _ = finished_dual()
    with fad.dual_level():
        return fad.unpack_dual(x)


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
            (fad.vmap, ("vmap: chunk_size", "positive", "got 0")),
            (fad.jacrev, ("jacrev: chunk_size", "positive", "got 0")),
            (fad.jacfwd, ("jacfwd: chunk_size", "positive", "got 0")),
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
        "unpack_dual outside",
        lambda: fad.unpack_dual(X),
        LevelError,
        ("unpack_dual was called outside of a dual_level", "with fad.dual_level()"),
    ),
    Case(
        "unpack_dual after the level",
        lambda: fad.unpack_dual(finished_dual()[0]),
        LevelError,
        ("unpack_dual:", "finished", "inside of the with block"),
    ),
    Case(
        "unpack_dual after the level, in another one",
        unpack_inside_another_level,
        LevelError,
        ("unpack_dual:", "finished", "inside of the with block"),
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
            ("numpy() under vmap", lambda: fad.vmap(lambda v: v.numpy())(X)),
            ("range() under vmap", lambda: fad.vmap(lambda n: list(range(n)))(N)),
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


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bad_input(case: Case) -> None:
    with pytest.raises(case.error) as caught:
        case.call()
    message = str(caught.value)
    for word in case.words:
        assert word in message, f"{word!r} is not in: {message}"
    assert is_idle()


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
