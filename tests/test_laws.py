"""Every derived operation, and every Function here, under the laws of `check_function`.

Without `--full` a sample of them, with other shapes and dtypes for each `--seed`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import random
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest

import fad
import fad.lax
import fad.nn
import fad.scipy
from fad import twins
from fad.namespace import Op
from fad.testing import check_function
from fad.testing.comparison import difference
from fad.testing.functions import FUNCTIONS, Cube, Swish
from fad.testing.subjects import Case, Subject, Violation

MODULES = [
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.lax",
    "jax.lax.linalg",
    "jax.nn",
    *[m.name for m in pkgutil.walk_packages(jax.scipy.__path__, "jax.scipy.")],
]


def names() -> Iterator[str]:
    """The derived operations, without those that need the names of devices, or make constants."""
    for module in MODULES:
        skip = {
            *twins.COLLECTIVES.get(module, ()),
            *twins.FACTORIES.get(module, ()),
            *twins.BODIES.get(module, ()),
        }
        derived = importlib.import_module(module.replace("jax", "fad", 1))
        for name in dir(importlib.import_module(module)):
            if name.startswith("_") or name in skip:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = getattr(derived, name)
            except AttributeError:
                continue
            if isinstance(getattr(found, "op", None), Op):
                yield f"{module[4:]}.{name}"


V = np.array([0.31, 0.57])
U = np.array([0.72, 0.46])
S = np.array(0.37)
A = np.array([[1.7, 0.4], [0.4, 1.2]])
B = np.array([[0.3, 0.9, 0.5], [0.6, 0.2, 0.8]])
Z = V + 1j * U
N = np.array([1, 0])
ARGUMENTS: list[tuple[Any, ...]] = [
    (V,), (A,), (V, U), (A, A), (V, U, S), (A, V), (S, V), (V, 0), (A, 0), (V, 2), (A, 0, 1),
    (V, N), (A, A, A), ([V, U],), ([A, A],), (A, (0, 1)), (A, (4,)), (B, 1), (V, np.float32), (2, V),
    (A, [0, 0], [1, 2]), (A, (2, 2), (0, 1)), (V, U, U, U), (V, 1, 0), (V, U, 0, 0), ([V, U], 0),
    (B[None], B.T[None]), (N > 0, V, U), (V, N, U),
]  # fmt: skip
SHAPED: list[tuple[Any, ...]] = [(S,), (B,), (Z,), (B, B + 0.1), (Z, Z + 0.2), (B, U[:1])]


@functools.cache
def arguments(name: str, seed: int) -> tuple[Any, ...] | None:
    """Arguments that the twin accepts, for which it has an output with a derivative."""
    twin: Any = jax
    for part in name.split("."):
        twin = getattr(twin, part)
    first = random.Random(f"{name} {seed}").sample(SHAPED, 2)
    for args in (*first, *ARGUMENTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                leaves = jax.tree.leaves(twin(*jax.tree.map(_as_jax, args)))
        except Exception:
            continue
        if any(
            jnp.issubdtype(x.dtype, np.inexact) and np.isfinite(x).all() and x.size
            for x in leaves
            if isinstance(x, jax.Array)
        ):
            return args
    return None


def _as_jax(x: Any) -> Any:
    return jnp.asarray(x) if isinstance(x, np.ndarray) else x


def jax_says_so(violation: Violation, name: str, args: tuple[Any, ...]) -> bool:
    """Whether fad's derivative is JAX's own, which finite differences do not know.

    JAX gives zero for what is chosen by value (``union1d``), and one side's slope at a kink.
    """
    if violation.law not in ("vjp", "jvp"):
        return False
    twin, function = found_in(jax, name), found_in(fad, name)
    with jax.enable_x64(True):
        case = Case(Subject(function, args, {}), Subject(function, args, {}).arrays)
        jax_call = Subject(twin, args, {})
        f = lambda *xs: [jax_call.call(case.merged(xs))[k] for k in case.moving_outs]
        xs = [jnp.asarray(x) for x in case.xs]
        tangents = tuple([jnp.asarray(v) for v in case.vs])
        pull = jax.vjp(f, *xs)[1]
        grads = pull([jnp.conj(w).astype(w.dtype) for w in map(jnp.asarray, case.ws)])
        expected = (jax.jvp(f, tuple(xs), tangents)[1], [jnp.conj(g) for g in grads])
        return difference((case.push(case.vs), case.pull(case.ws)), expected, 1e-8, 1e-8) is None


# What JAX's own derivatives cannot do: it raises under jax.grad, jax.jvp or jax.jit too.
IN_JAX = {
    "not implemented": "JAX has no rule",
    "not supported": "JAX has no rule",
    "does not accept dtype": "JAX's rule is for real numbers",
    "UnexpectedTracerError": "JAX's rule of expn leaks a tracer under jit",
    "custom_linear_solve": "JAX's rule mixes up a tangent of zero",
}


def jax_cannot(violation: Violation) -> bool:
    """Whether the violation is an error of JAX's."""
    return any(words in violation.what for words in IN_JAX)


def found_in(root: Any, name: str) -> Any:
    for part in name.split("."):
        root = getattr(root, part)
    return root


NAMES = sorted(set(names()))


@pytest.mark.sweep("name", NAMES, sample=8)
def test_a_derived_operation_obeys_the_laws(name: str, request: pytest.FixtureRequest) -> None:
    args = arguments(name, request.config.getoption("--seed"))
    if args is None:
        pytest.skip("no arguments here that it takes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Other shapes meet kinks and 0/0; how rules fit shapes is JAX's part in a derived rule.
        report = check_function(
            found_in(fad, name), *args, skip=("shapes", "broadcasting"), raise_exception=False
        )
        left = [
            v for v in report.violations if not jax_cannot(v) and not jax_says_so(v, name, args)
        ]
    assert not left, report
    assert report.passed or report.violations


FAD_FUNCTIONS = [*FUNCTIONS.values(), Swish, Cube]


@pytest.mark.sweep("function", FAD_FUNCTIONS, sample=3, ids=lambda f: f.__name__)
def test_the_functions_of_the_fuzzer_obey_the_laws(function: Any) -> None:
    # They are only given operands of one shape.
    assert check_function(function, V, U, skip=("broadcasting",)).ok


BUILT: dict[str, Any] = {
    "checkpoint": fad.checkpoint(lambda x, y: fad.numpy.sin(x) * y),
    "from_jax": fad.from_jax(lambda x, y: jnp.sin(x) * y),
    "jit": fad.jit(lambda x, y: fad.numpy.sin(x) * y),
    "functionalize": fad.functionalize(lambda x, y: fad.numpy.sin(x) * y),
    "scan": lambda x, y: fad.lax.scan(lambda c, v: (c * v, c + v), y[0], x)[1],
    "cond": lambda x, y: fad.lax.cond(x[0] > 0, lambda x, y: x * y, lambda x, y: x, x, y),
    "grad": lambda x, y: fad.grad(lambda x: fad.numpy.sum(fad.numpy.sin(x) * y))(x),
    "jvp": lambda x, y: fad.jvp(lambda x: fad.numpy.sin(x) * y, (x,), (y,))[1],
    "vmap": lambda x, y: fad.vmap(lambda x: fad.numpy.sin(x) * y)(x),
    "item": lambda x, y: written(x, lambda z: z.__setitem__(0, y[1])),
    "view": lambda x, y: written(x, lambda z: z[:1].mul_(y[1:])),
    "add_": lambda x, y: written(x, lambda z: z.add_(y).sin_()),
}


def written(x: Any, write: Any) -> Any:
    """A copy of ``x`` that was written to."""
    z = fad.asarray(x).clone()
    write(z)
    return z


@pytest.mark.sweep("name", list(BUILT), sample=4)
def test_what_fad_builds_obeys_the_laws(name: str) -> None:
    assert check_function(BUILT[name], V, U, skip=("shapes", "broadcasting")).ok


def test_there_are_many_operations_to_check() -> None:
    assert len(NAMES) > 600
