"""What the tests share: comparing trees, and transforms as pairs of a fad and a JAX version."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp

Fn = Callable[[Any], Any]


def bare(tree: Any) -> Any:
    """``tree`` with its Tensors as NumPy arrays."""
    return jax.tree.map(
        lambda x: np.asarray(x.array if isinstance(x, fad.Tensor) else x),
        tree,
        is_leaf=lambda x: isinstance(x, fad.Tensor),
    )


def assert_close(actual: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Both trees have the same structure, shapes and dtypes, and values that agree."""
    got, want = bare(actual), bare(expected)
    assert jax.tree.structure(got) == jax.tree.structure(want), (
        f"structure {jax.tree.structure(got)}, expected {jax.tree.structure(want)}"
    )
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.shape == w.shape, f"shape {g.shape}, expected {w.shape}"
        assert g.dtype == w.dtype, f"dtype {g.dtype}, expected {w.dtype}"
        scale = float(np.max(np.abs(w), initial=0.0)) if w.dtype.kind in "fc" else 0.0
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol * max(1.0, scale))


class Library:
    """The names of fad, or of JAX, that programs written for both use."""

    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


_SHARED = ("grad", "value_and_grad", "vjp", "jvp", "linearize", "jacrev", "jacfwd", "vmap")
IN_FAD = Library(
    np=fnp,
    lax=fad.lax,
    nn=fad.nn,
    scipy=fad.scipy,
    **{name: getattr(fad, name) for name in _SHARED},
)
IN_JAX = Library(
    np=jnp,
    lax=jax.lax,
    nn=jax.nn,
    scipy=jax.scipy,
    **{name: getattr(jax, name) for name in _SHARED},
)


def ramp(x: Any) -> jax.Array:
    """1, 1.5, 2, ... in the shape and dtype of ``x``: a direction without symmetry."""
    return (1.0 + 0.5 * jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape).astype(x.dtype)


def is_idle() -> bool:
    """Whether no level runs here and recording is on."""
    return fad.dispatch.active_levels() == () and fad.is_grad_enabled()


@dataclasses.dataclass(frozen=True)
class Transform:
    """A transform of functions of one array, in fad and in JAX.

    ``mode`` says which rule of a Function it uses: "reverse", "forward", or "" for neither.
    """

    name: str
    fad: Callable[[Fn], Fn]
    jax: Callable[[Fn], Fn]
    mode: str = ""

    def __repr__(self) -> str:
        return self.name


def _dual(direction: Fn) -> Callable[[Fn], Fn]:
    def transform(f: Fn) -> Fn:
        def tangent(x: Any) -> Any:
            with fad.dual_level():
                out, out_t = fad.unpack_dual(f(fad.make_dual(x, direction(x))))
                return fnp.zeros_like(out) if out_t is None else out_t

        return tangent

    return transform


def _eager(weigh: Fn) -> Callable[[Fn], Fn]:
    def transform(f: Fn) -> Fn:
        def gradient(x: Any) -> Any:
            x = fad.asarray(x).clone().requires_grad_()
            return fad.autograd.grad(weigh(f(x)), x, create_graph=True)[0]

        return gradient

    return transform


def transforms(weigh: Callable[[Any], Fn], direction: Callable[[Any], Fn]) -> dict[str, Transform]:
    """The transforms of the composition tests.

    Arguments:
        weigh: given a namespace (`fad.numpy` or `jax.numpy`), a function from an output to the
            scalar that reverse mode differentiates.
        direction: given a namespace, a function from an input to the tangent that goes in.
    """
    fw, jw = weigh(fnp), weigh(jnp)
    fd, jd = direction(fnp), direction(jnp)

    def jax_grad(f: Fn) -> Fn:
        return jax.grad(lambda x: jw(f(x)))

    def jax_jvp(f: Fn) -> Fn:
        return lambda x: jax.jvp(f, (x,), (jd(x),))[1]

    table = [
        Transform("grad", lambda f: fad.grad(lambda x: fw(f(x))), jax_grad, "reverse"),
        Transform("jvp", lambda f: lambda x: fad.jvp(f, (x,), (fd(x),))[1], jax_jvp, "forward"),
        Transform("dual_level", _dual(fd), jax_jvp, "forward"),
        Transform("vmap", fad.vmap, jax.vmap),
        Transform("jacrev", fad.jacrev, jax.jacrev, "reverse"),
        Transform("jacfwd", fad.jacfwd, jax.jacfwd, "forward"),
        Transform(
            "linearize", lambda f: lambda x: fad.linearize(f, x)[1](fd(x)), jax_jvp, "forward"
        ),
        Transform("checkpoint", lambda f: fad.checkpoint(f), lambda f: f),
        Transform("autograd", _eager(fw), jax_grad, "reverse"),
    ]
    return {t.name: t for t in table}
