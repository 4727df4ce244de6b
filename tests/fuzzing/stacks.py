"""Transforms in fad and in JAX under the same names, and stacks of them.

Each transform takes a function of pytrees to another function of the same arguments, and weighs,
stacks or chooses directions in the same way in both libraries; so any stack of them compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.lax
import fad.nn
import fad.numpy
import fad.scipy
from fad.compile.jit import jit
from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.tensor import Tensor
from fad.methods.functions import asarray
from fad.transforms.backward import grad as tape_grad
from fad.transforms.checkpoint import checkpoint
from fad.transforms.grad import grad, jacfwd, jacrev, value_and_grad, vjp
from fad.transforms.jvp import dual_level, jvp, linearize, make_dual, unpack_dual
from fad.transforms.vmap import vmap

__all__ = ["IN_FAD", "IN_JAX", "TRANSFORMS", "Library", "apply_stack", "inexact_leaves"]

F = Callable[..., Any]


class Library:
    """The names of fad, or of JAX, for programs that are written once for both."""

    np: Any
    lax: Any
    nn: Any
    scipy: Any
    grad: Callable[..., Any]
    value_and_grad: Callable[..., Any]
    vjp: Callable[..., Any]
    jvp: Callable[..., Any]
    linearize: Callable[..., Any]
    jacrev: Callable[..., Any]
    jacfwd: Callable[..., Any]
    vmap: Callable[..., Any]

    def __init__(self, name: str, **names: Any) -> None:
        self.name = name
        self.__dict__.update(names)

    def __repr__(self) -> str:
        return self.name


IN_FAD = Library(
    "fad",
    np=fad.numpy,
    lax=fad.lax,
    nn=fad.nn,
    scipy=fad.scipy,
    grad=grad,
    value_and_grad=value_and_grad,
    vjp=vjp,
    jvp=jvp,
    linearize=linearize,
    jacrev=jacrev,
    jacfwd=jacfwd,
    vmap=vmap,
)
IN_JAX = Library(
    "jax",
    np=jnp,
    lax=jax.lax,
    nn=jax.nn,
    scipy=jax.scipy,
    grad=jax.grad,
    value_and_grad=jax.value_and_grad,
    vjp=jax.vjp,
    jvp=jax.jvp,
    linearize=jax.linearize,
    jacrev=jax.jacrev,
    jacfwd=jax.jacfwd,
    vmap=jax.vmap,
)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a pytree, Tensors whole."""
    return trees.flatten(tree)[0]


def inexact_leaves(tree: Any) -> list[Any]:
    """The leaves of floating or complex dtype, which have derivatives."""
    return [v for v in leaves_of(tree) if hasattr(v, "dtype") and is_inexact(v.dtype)]


def is_complex(x: Any) -> bool:
    """Whether an array is complex."""
    return bool(jnp.issubdtype(x.dtype, np.complexfloating))


def weigh(lib: Library, out: Any) -> Any:
    """A real scalar from a pytree, which depends on every entry of it."""
    total: Any = 0.0
    for k, v in enumerate(inexact_leaves(out)):
        v = lib.np.real(v) + 0.5 * lib.np.imag(v) if is_complex(v) else v
        wide = jnp.promote_types(v.dtype, np.float32)
        total = total + (k + 1.0) * lib.np.sum(lib.np.sin(v.astype(wide)))
    return total


def conjugated(tree: Any) -> Any:
    """JAX's gradients in PyTorch's convention, which is fad's."""
    return jax.tree.map(jnp.conj, tree)


def direction(lib: Library, x: Any) -> Any:
    """A tangent for each leaf, None for integers."""
    return lib.np.cos(x).astype(x.dtype)


def _split(args: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """The leaves of ``args`` that are differentiated, and how to put others in their place."""
    leaves, structure = trees.flatten(tuple(args))
    differentiable = [
        k for k, v in enumerate(leaves) if hasattr(v, "dtype") and is_inexact(v.dtype)
    ]

    def join(new: Sequence[Any]) -> tuple[Any, ...]:
        found = list(leaves)
        for k, v in zip(differentiable, new, strict=True):
            found[k] = v
        joined: tuple[Any, ...] = trees.unflatten(structure, found)
        return joined

    return [leaves[k] for k in differentiable], join


def _inner(f: F, args: Sequence[Any]) -> tuple[list[Any], F]:
    """The differentiated leaves, and ``f`` as a function of their list to inexact outputs."""
    xs, join = _split(args)
    return xs, lambda xs: inexact_leaves(f(*join(xs)))


def t_grad(lib: Library, f: F) -> F:
    """The gradient of a weighed sum of the outputs."""

    def run(*args: Any) -> Any:
        xs, join = _split(args)
        g = lib.grad(lambda xs: weigh(lib, f(*join(xs))))(xs)
        return g if lib is IN_FAD else conjugated(g)

    return run


def t_value_and_grad(lib: Library, f: F) -> F:
    """The weighed sum and its gradient."""

    def run(*args: Any) -> Any:
        xs, join = _split(args)
        value, g = lib.value_and_grad(lambda xs: weigh(lib, f(*join(xs))))(xs)
        return {"value": value, "grad": g if lib is IN_FAD else conjugated(g)}

    return run


def t_autograd(lib: Library, f: F) -> F:
    """The gradient, by the eager tape."""
    if lib is not IN_FAD:
        return t_grad(lib, f)

    def run(*args: Any) -> Any:
        xs, join = _split(args)
        xs = [asarray(v).clone().requires_grad_() for v in xs]
        total = weigh(lib, f(*join(xs)))
        if (
            not isinstance(total, Tensor) or not total.requires_grad
        ):  # an error there, as in PyTorch
            return [fad.numpy.zeros_like(x) for x in xs]
        return list(tape_grad(total, xs, create_graph=True, materialize_grads=True))

    return run


def t_vjp(lib: Library, f: F) -> F:
    """The pullback of a fixed cotangent."""

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        outs, pull = lib.vjp(inner, xs)
        cts = [direction(lib, v) for v in outs]
        if lib is IN_FAD:
            return pull(cts)[0]
        return conjugated(pull(conjugated(cts))[0])

    return run


def t_jvp(lib: Library, f: F) -> F:
    """The pushforward of a fixed tangent."""

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        return lib.jvp(inner, (xs,), ([direction(lib, v) for v in xs],))[1]

    return run


def t_linearize(lib: Library, f: F) -> F:
    """The same, by linearize."""

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        return lib.linearize(inner, xs)[1]([direction(lib, v) for v in xs])

    return run


def t_dual_level(lib: Library, f: F) -> F:
    """The same, by dual Tensors."""
    if lib is not IN_FAD:
        return t_jvp(lib, f)

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        with dual_level():
            duals = [make_dual(v, direction(lib, v)) for v in xs]
            pairs = [unpack_dual(v) for v in inner(duals)]
            return [fad.numpy.zeros_like(p) if t is None else t for p, t in pairs]

    return run


def t_jacrev(lib: Library, f: F) -> F:
    """The Jacobian, by reverse mode."""

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        return lib.jacrev(inner)(xs)

    return run


def t_jacfwd(lib: Library, f: F) -> F:
    """The Jacobian, by forward mode."""

    def run(*args: Any) -> Any:
        xs, inner = _inner(f, args)
        return lib.jacfwd(inner)(xs)

    return run


def _lanes(lib: Library, x: Any, dim: int) -> Any:
    return lib.np.stack([x, (x * 0.5 + 0.1).astype(x.dtype)], dim)


def t_vmap(lib: Library, f: F) -> F:
    """Two lanes along dimension 0 of every differentiated leaf."""

    def run(*args: Any) -> Any:
        xs, join = _split(args)
        return lib.vmap(lambda xs: f(*join(xs)))([_lanes(lib, v, 0) for v in xs])

    return run


def t_vmap_last(lib: Library, f: F) -> F:
    """Lanes along the last dimension, in and out; integers have lanes too."""

    def run(*args: Any) -> Any:
        leaves, structure = trees.flatten(args)
        spread = [
            (_lanes(lib, v, -1) if is_inexact(v.dtype) else lib.np.stack([v, v], -1))
            for v in leaves
        ]
        return lib.vmap(lambda vs: f(*trees.unflatten(structure, vs)), -1, -1)(spread)

    return run


def t_checkpoint(lib: Library, f: F) -> F:
    """The function itself, with its intermediate values computed again."""
    return checkpoint(f) if lib is IN_FAD else f


def t_jit(lib: Library, f: F) -> F:
    """The function itself, compiled (with arrays for arguments; JAX's side stays as it is)."""
    return jit(f) if lib is IN_FAD else f


TRANSFORMS: dict[str, Callable[[Library, F], F]] = {
    "grad": t_grad,
    "value_and_grad": t_value_and_grad,
    "autograd": t_autograd,
    "vjp": t_vjp,
    "jvp": t_jvp,
    "linearize": t_linearize,
    "dual_level": t_dual_level,
    "jacrev": t_jacrev,
    "jacfwd": t_jacfwd,
    "vmap": t_vmap,
    "vmap_last": t_vmap_last,
    "checkpoint": t_checkpoint,
    "jit": t_jit,
}


def apply_stack(lib: Library, f: F, names: Sequence[str]) -> F:
    """``f`` under transforms of `TRANSFORMS`, the first name innermost.

    >>> import fad
    >>> df = apply_stack(IN_FAD, fad.numpy.sin, ("jvp", "vmap"))
    >>> [t.shape for t in df(jnp.zeros(3))]
    [(2, 3)]
    """
    for name in names:
        f = TRANSFORMS[name](lib, f)
    return f


def as_tensors(tree: Any) -> Any:
    """``tree`` with its arrays as Tensors."""
    return trees.map_leaves(
        lambda x: x if isinstance(x, Tensor) or not hasattr(x, "dtype") else asarray(x), tree
    )
