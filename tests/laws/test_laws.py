"""Every derived operation, and every Function here, under the laws of `check_function`.

Without `--full` a sample of them, with other shapes and dtypes for each `--seed`.
"""

from __future__ import annotations

import enum
import functools
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import pytest
from operation_arguments import Arguments, U, V, arguments, found_in, names, on_arrays

import fad
import fad.lax
import fad.nn
import fad.scipy
from fad.testing import Report, check_function, difference
from tests.fuzzing.comparison import assert_same_program
from tests.fuzzing.functions import FUNCTIONS, Cube, Swish
from tests.fuzzing.stacks import IN_JAX, apply_stack


class Kind(enum.Enum):
    """What is checked instead for an operation with an excuse."""

    NO_DERIVATIVE = "under jax.vjp it raises: values are checked, alone and under vmap and jit"
    FORWARD_ONLY = "under jax.vjp it raises, under jax.jvp it does not: tangents are checked too"
    VALUES_ALONE = "under jax.vjp and jax.vmap it raises: values are checked, alone and under jit"
    NO_VMAP = "JAX's vmap raises, or is no loop: first derivatives are checked; vmap is JAX's"
    NO_SECOND = "a second derivative by JAX raises: all else is checked"
    LEAKS = "a second derivative by JAX raises, and the first may, once it is traced: see SKIPPED"
    AS_IN_JAX = "its derivatives are JAX's own, which finite differences do not know"


_STEPS = "JAX's derivative of a step is zero"
_BY_VALUE = "JAX's derivative of what is chosen by value is zero"
_NO_RULE = "JAX has no rule for it"
_SCHUR = "JAX has no rule for the Schur form"
_EIG = "JAX refuses derivatives of eigenvectors of what may be non-symmetric"
_LOOP = "JAX computes it by a while loop, which has no reverse mode"
_TRACER = "JAX's rule of expn keeps a tracer, and uses it again in the next trace"
_FLOAT0 = "JAX's rule of xlogy fails for an integer"
_NAN = "JAX's forward mode gives nan"
_SIMPLEX = "off the simplex it is -inf"
_SYMMETRIC = "JAX's derivative is that along symmetric matrices"

EXCUSES: dict[str, tuple[Kind, str]] = {
    "lax.betainc": (Kind.NO_DERIVATIVE, "JAX has no derivative in a and b, which must be arrays"),
    "lax.bitcast_convert_type": (Kind.AS_IN_JAX, "bits as numbers have no slope; JAX gives zero"),
    "lax.linalg.cholesky_update": (Kind.VALUES_ALONE, _NO_RULE),
    "lax.linalg.eig": (Kind.NO_DERIVATIVE, _EIG),
    "lax.linalg.hessenberg": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.linalg.householder_product": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.linalg.ormqr": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.linalg.qdwh": (Kind.FORWARD_ONLY, _LOOP),
    "lax.linalg.symmetric_product": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.linalg.tridiagonal": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.nextafter": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.polygamma": (Kind.NO_DERIVATIVE, "JAX has no derivative in m, which must be an array"),
    "lax.ragged_dot": (Kind.NO_VMAP, "JAX's rules want every operand batched, and stop at order 1"),
    "lax.ragged_dot_general": (Kind.NO_VMAP, "as lax.ragged_dot"),
    "lax.random_gamma_grad": (Kind.FORWARD_ONLY, _LOOP),
    "lax.rng_bit_generator": (Kind.NO_VMAP, "JAX draws the whole batch with the first key"),
    "lax.scaled_dot": (Kind.NO_DERIVATIVE, _NO_RULE),
    "lax.sign": (Kind.AS_IN_JAX, _STEPS),
    "lax.zeta": (Kind.NO_DERIVATIVE, _NO_RULE),
    "numpy.linalg.eig": (Kind.NO_DERIVATIVE, _EIG),
    "numpy.linalg.eigvals": (Kind.NO_SECOND, _EIG),
    "numpy.nextafter": (Kind.NO_DERIVATIVE, _NO_RULE),
    "numpy.roots": (Kind.NO_SECOND, _EIG),
    "numpy.setdiff1d": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.setxor1d": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.sign": (Kind.AS_IN_JAX, _STEPS),
    "numpy.spacing": (Kind.NO_DERIVATIVE, _NO_RULE),
    "numpy.union1d": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.unique": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.unique_all": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.unique_counts": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.unique_inverse": (Kind.AS_IN_JAX, _BY_VALUE),
    "numpy.unique_values": (Kind.AS_IN_JAX, _BY_VALUE),
    "scipy.linalg.cho_factor": (Kind.AS_IN_JAX, _SYMMETRIC),
    "scipy.linalg.cholesky": (Kind.AS_IN_JAX, _SYMMETRIC),
    "scipy.linalg.hessenberg": (Kind.NO_DERIVATIVE, _NO_RULE),
    "scipy.linalg.polar": (Kind.FORWARD_ONLY, _LOOP),
    "scipy.linalg.qr_multiply": (Kind.NO_DERIVATIVE, _NO_RULE),
    "scipy.linalg.rsf2csf": (Kind.NO_SECOND, _EIG),
    "scipy.linalg.schur": (Kind.NO_DERIVATIVE, _SCHUR),
    "scipy.linalg.solve_sylvester": (Kind.NO_DERIVATIVE, _SCHUR),
    "scipy.linalg.sqrtm": (Kind.NO_DERIVATIVE, _SCHUR),
    "scipy.special.exp1": (Kind.LEAKS, _TRACER),
    "scipy.special.expn": (Kind.LEAKS, _TRACER),
    "scipy.special.hyp1f1": (Kind.NO_SECOND, _LOOP),
    "scipy.special.hyp2f1": (Kind.NO_SECOND, _LOOP),
    "scipy.stats.dirichlet.logpdf": (Kind.AS_IN_JAX, _SIMPLEX),
    "scipy.stats.dirichlet.pdf": (Kind.AS_IN_JAX, _SIMPLEX),
    "scipy.stats.gumbel_l.ppf": (Kind.NO_DERIVATIVE, _FLOAT0),
    "scipy.stats.gumbel_r.ppf": (Kind.NO_DERIVATIVE, _FLOAT0),
    "scipy.stats.poisson.entropy": (Kind.AS_IN_JAX, _NAN),
}

_CONSTANT = "it makes a constant: there is nothing to transform"
NOTHING_TO_CHECK: dict[str, str] = {
    "lax.after_all": "it takes tokens, which have no value",
    "lax.dce_sink": "it returns nothing",
    "lax.rng_uniform": "it draws from a state of XLA's own: no two calls are alike",
    "lax.with_sharding_constraint": "it needs devices; tests/laws/test_devices.py has it",
    "nn.scaled_dot_general": "JAX has it on GPUs only",
    "nn.scaled_matmul": "JAX has it on GPUs only",
    **dict.fromkeys(
        """lax.broadcasted_iota lax.empty lax.iota numpy.arange numpy.bartlett numpy.blackman
        numpy.empty numpy.eye numpy.hamming numpy.hanning numpy.identity numpy.indices numpy.ones
        numpy.tri numpy.tril_indices numpy.triu_indices numpy.zeros scipy.linalg.dft
        scipy.linalg.hadamard scipy.linalg.helmert scipy.linalg.hilbert scipy.linalg.invhilbert
        scipy.linalg.invpascal scipy.linalg.pascal scipy.special.bernoulli""".split(),
        _CONSTANT,
    ),
}
ALL_NAMES = sorted(set(names()))
NAMES = [name for name in ALL_NAMES if name not in NOTHING_TO_CHECK]

# Other shapes have kinks and 0/0; how rules fit shapes is JAX's part in a derived rule.
NOT_HERE = ("shapes", "broadcasting")
TANGENTS = ("jvp", "vmap of jvp", "jvp of vmap")
VMAP = ("vmap", "nested vmap", "vmap of vjp", "vmap of jvp", "vjp of vmap", "jvp of vmap")
SKIPPED = {
    Kind.VALUES_ALONE: VMAP,
    Kind.NO_VMAP: (*VMAP, "second order"),
    Kind.NO_SECOND: ("second order",),
    Kind.LEAKS: ("second order", "eager tape", "jit", "vmap of vjp", "vmap of jvp"),
    Kind.AS_IN_JAX: ("vjp", "jvp", "adjoint", "second order"),
}


def checked(name: str, args: Arguments, function: Any = None, **options: Any) -> Report:
    """The report on an operation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_function(
            function or found_in(fad, name), *args[0], kwargs=args[1], raise_exception=False,
            **options,
        )  # fmt: skip


def still(name: str) -> Any:
    """An operation whose arguments are constants, so that its values alone are looked at."""
    function = found_in(fad, name)
    return functools.wraps(function)(
        lambda *args, **kwargs: function(*fad.stop_gradient(args), **fad.stop_gradient(kwargs))
    )


_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """The programs that a whole sweep compiles are more than one process may keep."""
    yield
    if next(_tests) % 20 == 0:
        jax.clear_caches()


@pytest.mark.sweep("name", NAMES, sample=3)
def test_a_derived_operation_obeys_the_laws(name: str, request: pytest.FixtureRequest) -> None:
    args = arguments(name, request.config.getoption("--seed"))
    assert args is not None, f"write a row for {name} in operation_arguments.py"
    kind = EXCUSES[name][0] if name in EXCUSES else None
    skip = (*NOT_HERE, *SKIPPED.get(kind, ()))
    constant = kind in (Kind.NO_DERIVATIVE, Kind.FORWARD_ONLY, Kind.VALUES_ALONE)
    report = checked(name, args, still(name) if constant else None, skip=skip)
    assert report.ok and len(report.passed) >= 3, report
    if kind is Kind.FORWARD_ONLY:
        report = checked(name, args, laws=TANGENTS)
        assert report.ok and set(report.passed) == set(TANGENTS), report


ORDERS = ((), ("vjp",), ("jvp",), ("vjp", "vjp"), ("vjp", "jvp"), ("jvp", "vjp"), ("jvp", "jvp"))


def raises_in_jax(name: str, args: Arguments, orders: tuple[str, ...]) -> bool:
    """Whether JAX has no such derivative."""
    f, arrays = on_arrays(found_in(jax, name), args)
    try:
        apply_stack(IN_JAX, f, orders)(*arrays)
    except (NotImplementedError, TypeError, ValueError):
        return True
    return False


def vmapped(root: Any, name: str, args: Arguments, dims: tuple[int | None, ...]) -> Any:
    """Outputs for lanes that are alike; None where it raises."""
    f, arrays = on_arrays(found_in(root, name), args)
    given = [a if d is None else jnp.stack([a, a]) for a, d in zip(arrays, dims, strict=True)]
    try:
        return root.vmap(f, dims)(*given)
    except NotImplementedError:
        return None


@pytest.mark.sweep("name", sorted(EXCUSES), sample=2)
def test_an_excuse_holds(name: str, request: pytest.FixtureRequest) -> None:
    args = arguments(name, request.config.getoption("--seed"))
    assert args is not None
    kind = EXCUSES[name][0]
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind is Kind.AS_IN_JAX:
            assert not checked(name, args, laws=SKIPPED[kind]).ok
            f, jax_function = (on_arrays(found_in(root, name), args)[0] for root in (fad, jax))
            assert_same_program(f, jax_function, *on_arrays(jax_function, args)[1], stacks=ORDERS)
            return
        if kind in (Kind.NO_VMAP, Kind.VALUES_ALONE):
            count = len(on_arrays(None, args)[1])
            assert not checked(name, args, still(name), laws=("vmap",)).ok
            for dims in set(itertools.product((0, None), repeat=count)) - {(None,) * count}:
                ours, theirs = (vmapped(root, name, args, dims) for root in (fad, jax))
                assert difference(ours, theirs) is None, dims
        if kind is Kind.NO_VMAP:
            return
        first = raises_in_jax(name, args, ("vjp",))
        second_alone = kind in (Kind.NO_SECOND, Kind.LEAKS)
        assert first != second_alone
        if second_alone:
            assert any(raises_in_jax(name, args, two) for two in ORDERS[3:])


@pytest.mark.sweep("name", NAMES, sample=3)
def test_an_operation_on_data_of_both_widths(name: str, request: pytest.FixtureRequest) -> None:
    """In 64 bits, of arguments every other one in 32: values and derivatives are JAX's, dtypes too."""
    args = arguments(name, request.config.getoption("--seed"))
    assert args is not None
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (on_arrays(found_in(root, name), args)[0] for root in (fad, jax))
        arrays = [jnp.asarray(a) for a in on_arrays(None, args)[1]]
        for first in (0, 1):
            given = [a.astype(_of_width(a, (k + first) % 2)) for k, a in enumerate(arrays)]
            for order in ((), ("vjp",), ("jvp",)):
                try:
                    apply_stack(IN_JAX, theirs, order)(*given)
                except (NotImplementedError, TypeError, ValueError):
                    continue  # JAX has no such derivative, or wants arguments of one dtype
                assert_same_program(ours, theirs, *given, stacks=[order])


def _of_width(a: Any, wide: int) -> Any:
    """The dtype of ``a`` in 32 bits or in 64, where it has a derivative."""
    kinds = {"f": ("float32", "float64"), "c": ("complex64", "complex128")}
    return kinds[a.dtype.kind][wide] if a.dtype.kind in kinds else a.dtype


FAD_FUNCTIONS = [*FUNCTIONS.values(), Swish, Cube]


@pytest.mark.sweep("function", FAD_FUNCTIONS, sample=2, ids=lambda f: f.__name__)
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


@pytest.mark.sweep("name", list(BUILT), sample=2)
def test_what_fad_builds_obeys_the_laws(name: str) -> None:
    assert check_function(BUILT[name], V, U, skip=("shapes", "broadcasting")).ok


def test_there_are_many_operations_to_check() -> None:
    assert len(NAMES) > 600
    assert set(EXCUSES) < set(NAMES) and set(NOTHING_TO_CHECK) < set(ALL_NAMES)
