"""What the tests share: comparing trees, and transforms as pairs of a fad and a JAX version."""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy

import fad
import fad.numpy as fnp
from fad.testing import assert_close as assert_close
from fad.testing.comparison import bare as bare
from tests.fuzzing.stacks import IN_FAD as IN_FAD
from tests.fuzzing.stacks import IN_JAX as IN_JAX

Fn = Callable[[Any], Any]

ROOT = Path(__file__).resolve().parents[2]  # of the project

# The modules of JAX that have counterparts in fad.
MODULES = [
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.lax",
    "jax.lax.linalg",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    "jax.scipy",
    *[m.name for m in pkgutil.walk_packages(jax.scipy.__path__, "jax.scipy.")],
]


def ramp(x: Any) -> jax.Array:
    """1, 1.5, 2, ... in the shape and dtype of ``x``: a direction without symmetry."""
    return (1.0 + 0.5 * jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape).astype(x.dtype)


def is_idle() -> bool:
    """Whether no level runs here and recording is on."""
    return fad.core.level.state.levels == () and fad.is_grad_enabled()


def modes() -> dict[str, Any]:
    """Every mode of this thread and of the process that a call must leave as it was."""
    state = fad.core.level.state
    found = {name: getattr(state, name) for name in fad.core.level.MODES}
    found["trace"] = None  # of the eager tape: deferred or not, the state counts as the same
    return {
        **found,
        "grad mode": fad.is_grad_enabled(),
        "inference mode": fad.autograd.is_inference_mode_enabled(),
        "anomaly mode": fad.tape.anomaly.mode.on,
        "64 bits": jax.config.jax_enable_x64,
    }


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


def leaf(data: Any) -> fad.Tensor:
    """A Tensor of the eager tape."""
    return fad.tensor(data, requires_grad=True)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, fad.Tensor)


class InFad:
    """fad under the names that code for both libraries reads."""

    lax, numpy = fad.lax, fnp
    vmap, grad, jvp, jacfwd, jacrev = fad.vmap, fad.grad, fad.jvp, fad.jacfwd, fad.jacrev


class InJax:
    """JAX under the same names."""

    lax, numpy = jax.lax, jnp
    grad, jvp, jacfwd, jacrev = jax.grad, jax.jvp, jax.jacfwd, jax.jacrev

    @staticmethod
    def vmap(f: Any, **kwargs: Any) -> Any:
        return jax.vmap(f, **kwargs)


def counted(f, **options):
    """``fad.jit`` of f, and a list that grows with every trace."""
    traces = []

    @functools.wraps(f)
    def body(*args, **kwargs):
        traces.append(1)
        return f(*args, **kwargs)

    return fad.jit(body, **options), traces
