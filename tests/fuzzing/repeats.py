"""Random programs, each called several times: as training loops and debugging sessions run.

Repeated traces are replayed (`fad.replay`), but not in a block of 64-bit types, nor at the first call. So
here each program runs several times, in 32 bits or in a process of 64 bits, with everything compiled at
once; some calls read values, nodes or hooks in the middle. What is compiled gives the bits that the
operations give one by one, see `check_bits`.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

import fad.numpy as fnp
from fad.autograd.compiled import compiled
from fad.core import trees
from fad.core.jaxapi import x64_enabled
from fad.core.tensor import Tensor
from fad.errors import GradientError
from fad.methods.functions import asarray
from fad.tape.grad_mode import no_grad
from fad.testing.comparison import bare, difference
from fad.transforms.backward import grad
from tests.fuzzing.comparison import difference_in_bits
from tests.fuzzing.functions import forget_late_rules
from tests.fuzzing.programs import OPS, Program
from tests.fuzzing.stacks import IN_FAD, IN_JAX, Library, apply_stack, conjugated, leaves_of, weigh

__all__ = ["check_again", "check_bits", "check_training", "in_32_bits", "inputs_of", "with_bits"]

TOLERANCE = 2e-3
NARROW = {"float64": "float32", "complex128": "complex64"}


def with_bits(x64: bool, check: Callable[[], bool]) -> bool:
    """A check with 64-bit types on for the whole process, as ``JAX_ENABLE_X64=1`` has it; or as it is.

    In a thread of its own: what a check that fails leaves to be computed is not computed in other bits.
    """
    if not x64:
        return check()
    before = x64_enabled()
    jax.config.update("jax_enable_x64", True)
    try:
        with ThreadPoolExecutor(1) as worker:
            return worker.submit(check).result()
    finally:
        jax.config.update("jax_enable_x64", before)


def in_32_bits(program: Program) -> Program:
    """The same program for inputs of 32 bits.

    >>> in_32_bits(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,))).floats
    (((2,), 'float32'),)
    """
    floats = tuple([(shape, NARROW.get(dtype, dtype)) for shape, dtype in program.floats])
    steps = tuple([(name, operands, _narrow(name, k)) for name, operands, k in program.steps])
    return dataclasses.replace(program, floats=floats, steps=steps)


def _in_64_bits(program: Program) -> Program:
    """The same program for inputs of 64 bits, which are not rounded either."""
    wide = {narrow: dtype for dtype, narrow in NARROW.items()}
    floats = tuple([(shape, wide.get(dtype, dtype)) for shape, dtype in program.floats])
    return dataclasses.replace(program, floats=floats)


def _narrow(name: str, option: int) -> int:
    """The number of the options of 32 bits that stand for these."""
    options = OPS[name].options
    narrow = {
        key: NARROW.get(v, v) if isinstance(v, str) else v for key, v in options[option].items()
    }
    return options.index(narrow)


# Reads of the leaves of a result, in the middle of a transform or of a step


def _show(values: Sequence[Tensor]) -> None:
    assert all(map(repr, values))


def _nodes(values: Sequence[Tensor]) -> None:
    for v in values:
        node = v.grad_fn
        while node is not None:
            node = next((n for n, _ in node.next_functions if n is not None), None)


def _hook(values: Sequence[Tensor]) -> None:
    for v in values:
        if v.requires_grad:
            v.register_hook(lambda g: None)


def _aside(values: Sequence[Tensor]) -> None:
    with no_grad():
        assert all([fnp.equal(v, v).shape == v.shape for v in values])


def _from_thread(values: Sequence[Tensor]) -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend([len(repr(v)) for v in values]))
    thread.start()
    thread.join()
    assert len(found) == len(values)


GLANCES: dict[str, Callable[[Sequence[Tensor]], None]] = {
    "show": _show,
    "nodes": _nodes,
    "hook": _hook,
    "aside": _aside,
    "from thread": _from_thread,
}


def glance_of(program: Program, call: int) -> str | None:
    """Which of `GLANCES` a call uses; mostly None."""
    if call in (3, 6):
        return sorted(GLANCES)[(program.seed + call) % len(GLANCES)]
    return "keep" if call == 4 else None


CALLS = 8


class _Watch:
    """Reads results in the middle: the name of a glance, or "keep" to keep references to them."""

    def __init__(self) -> None:
        self.glance: str | None = None
        self.kept: list[Any] = []

    def look(self, out: Any) -> Any:
        """``out``, after the glance."""
        if self.glance == "keep":
            self.kept.append(out)
        elif self.glance is not None:
            GLANCES[self.glance]([v for v in leaves_of(out) if isinstance(v, Tensor)])
        return out


# Under these the function gets other values than those of the call, or traced ones.
BATCHED = frozenset({"vmap", "vmap_last", "jit", "linearize", "checkpoint"})


# Which of the inputs each call gets; what is compiled for one serves the others.
INPUT_OF_CALL = (0, 0, 1, 0, 1, 0, 0)


def check_bits(f: Callable[..., Any], *inputs: tuple[Any, ...]) -> None:
    """Check that a function gives the same bits at each of several calls, compiled or one by one.

    Arguments:
        f: a function of fad; it leaves its arguments as they are.
        inputs: the arguments of some calls, the first alternates with the others.

    Raises:
        AssertionError: a result differs from what the operations give one by one. The message says at which
            call, and where; or it raises something else.

    >>> check_bits(lambda x: fnp.sin(x) * x, (jnp.ones(2),), (jnp.zeros(2),))
    """
    with compiled(False):
        expected = [_outcome(f, given) for given in inputs]
    with compiled(wait=True):
        for call, which in enumerate(INPUT_OF_CALL, 1):
            which %= len(inputs)
            got, error = _outcome(f, inputs[which])
            want, refusal = expected[which]
            if type(error) is not type(refusal):
                raise AssertionError(f"call {call}: {error!r}, one by one {refusal!r}") from (
                    error or refusal
                )
            found = difference_in_bits(got, want)
            assert found is None, f"call {call}: {found}"


def _outcome(f: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """What a call returns, or raises."""
    forget_late_rules()
    try:
        return bare(f(*given)), None
    except GradientError as error:
        return None, error


def inputs_of(program: Program, count: int = 2) -> list[tuple[Any, Any]]:
    """Inputs of several calls."""
    return [dataclasses.replace(program, seed=program.seed + k).inputs() for k in range(count)]


def check_again(
    program: Program, names: Sequence[str] = (), x64: bool = False, exact: bool = False
) -> bool:
    """Check that a program under transforms gives what JAX gives, at each of several calls.

    Arguments:
        program: what to run.
        names: transforms of `tests.fuzzing.stacks.TRANSFORMS`, the innermost first.
        x64: whether 64-bit types are on for the process, and the program runs as it is, with what it has
            of 32 bits; if not, its numbers are narrowed to 32 bits.
        exact: whether the bits must also be those that the operations give one by one, see `check_bits`.

    Returns:
        Whether there was something to compare: JAX refuses some; some overflow, or are changed too much by
        rounding; some need what was overwritten.

    Raises:
        AssertionError: a result differs; the message says at which call, and with which glance.

    >>> check_again(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)), ("grad",))
    True
    """
    if program.is_complex and {"jacrev", "jacfwd"} & set(names):
        return False
    program = program if x64 else in_32_bits(program)
    return with_bits(x64, lambda: _check_again(program, names, exact))


def _check_again(program: Program, names: Sequence[str], exact: bool) -> bool:
    expected = _expected(
        program,
        lambda p: jax.jit(apply_stack(IN_JAX, functools.partial(p.run, IN_JAX), names))(
            *p.inputs()
        ),
    )
    if expected is None:
        return False
    inside = program.run(IN_JAX, *program.inputs())
    watch = _Watch()
    f = apply_stack(IN_FAD, lambda x, n: watch.look(program.run(IN_FAD, x, n)), names)
    with compiled(wait=True):
        for call in range(CALLS):
            watch.glance = glance_of(program, call)
            try:
                got = f(*program.inputs())
            except GradientError as error:
                if _is_overwritten(program, error):
                    return False
                raise
            _same(got, expected, call, watch.glance)
            if not BATCHED & set(names):
                for kept in watch.kept:
                    _same(trees.map_leaves(_alone, kept), inside, call, "kept")
            watch.kept.clear()
    if exact:
        watch.glance = None
        check_bits(f, *inputs_of(program))
    return True


def check_training(program: Program, x64: bool = False, exact: bool = False) -> bool:
    """Check that some steps of gradient descent on the eager tape end where JAX's end.

    Arguments:
        program: what to run; its floats are the parameters, and a weighed sum of its results the loss.
        x64: as for `check_again`.
        exact: whether each step must also end where it ends with the operations one by one, to the bit.

    Returns:
        Whether there was something to compare, as for `check_again`.

    Raises:
        AssertionError: a loss, or the parameters, differ.

    >>> check_training(Program((((2,), "float64"),), (), (("sin", (0,), 0),), (1,)))
    True
    """
    program = program if x64 else in_32_bits(program)
    return with_bits(x64, lambda: _check_training(program, exact))


def _check_training(program: Program, exact: bool) -> bool:
    expected = _expected(program, _trained_by_jax)
    if expected is None:
        return False
    with compiled(wait=True):
        try:
            got = _trained(program)
        except GradientError as error:
            if _is_overwritten(program, error):
                return False
            raise
    if got is None:
        return False
    for step, (a, b) in enumerate(zip(got, expected, strict=True)):
        _same(a, b, step, glance_of(program, step % CALLS))
    if exact:
        with compiled(False):
            alone = _trained(program)
        assert alone is not None
        for step, (a, b) in enumerate(zip(got, alone, strict=True)):
            found = difference_in_bits(a, b)
            assert found is None, f"step {step}: {found}"
    return True


STEPS = 10
RATE = 0.01


def _loss(program: Program, lib: Library, leaves: Any, n: Any, watch: _Watch | None = None) -> Any:
    out = program.run(lib, leaves, n)
    return weigh(lib, out if watch is None else watch.look(out))


def _trained_by_jax(program: Program) -> Any:
    x, n = program.inputs()
    leaves = leaves_of(x)
    found = []
    loss = lambda leaves: jnp.asarray(_loss(program, IN_JAX, leaves, n))
    step = jax.jit(jax.value_and_grad(loss))
    for _ in range(STEPS):
        value, grads = step(leaves)
        grads = conjugated(grads)
        leaves = [(v - RATE * g).astype(v.dtype) for v, g in zip(leaves, grads, strict=True)]
        found.append([value, *leaves])
    return found


def _trained(program: Program) -> Any:
    """Losses and parameters after each step; None if no gradient comes to them."""
    forget_late_rules()
    x, n = program.inputs()
    leaves = [asarray(v).clone().requires_grad_() for v in leaves_of(x)]
    update = UPDATES[program.seed % len(UPDATES)]
    watch = _Watch()
    found = []
    for k in range(STEPS):
        watch.glance = glance_of(program, k % CALLS)
        total = _loss(program, IN_FAD, leaves, n, watch)
        if not isinstance(total, Tensor) or not total.requires_grad:
            return None
        leaves = update(total, leaves)
        found.append([total.detach(), *[v.detach().clone() for v in leaves]])
        if k == STEPS - 1:
            assert all(map(repr, leaves_of(watch.kept)))
    return found


def _gradient(v: Tensor) -> Any:
    return fnp.zeros_like(v) if v.grad is None else v.grad


def _in_place(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """`backward`, and parameters changed in place."""
    for v in leaves:
        v.grad = None
    total.backward()
    with no_grad():
        for v in leaves:
            v -= (RATE * _gradient(v)).astype(v.dtype)
    return leaves


def _zeroed(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Gradients are added to what was set to zero in place; the graph is gone through twice."""
    for v in leaves:
        if v.grad is not None:
            v.grad.zero_()
    total.backward(retain_graph=True)
    total.backward()
    with no_grad():
        for v in leaves:
            v.sub_((0.5 * RATE * _gradient(v)).astype(v.dtype))
    return leaves


def _anew(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """New parameters at each step."""
    total.backward()
    return [
        (v - RATE * _gradient(v)).astype(v.dtype).detach().clone().requires_grad_() for v in leaves
    ]


def _asked(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """`fad.autograd.grad`, and values set."""
    grads = grad(total, leaves, allow_unused=True, materialize_grads=True)
    with no_grad():
        for v, g in zip(leaves, grads, strict=True):
            assert g is not None
            v.copy_((v - RATE * g).astype(v.dtype))
    return leaves


UPDATES = (_in_place, _zeroed, _anew, _asked)


def _expected(program: Program, reference: Callable[[Program], Any]) -> Any:
    """What JAX gives; None where it is not near to what it gives in 64 bits throughout."""
    expected = reference(program)
    if program.tolerance() > TOLERANCE:
        return None
    largest = max([float(jnp.max(jnp.abs(v), initial=0.0)) for v in leaves_of(expected)])
    if not largest < 1e6:  # or not a number
        return None
    with jax.enable_x64(True):
        exact = reference(_in_64_bits(program))
        cast = jax.tree.map(lambda v, like: v.astype(like.dtype), exact, expected)
    close = difference(expected, cast, TOLERANCE / 20, TOLERANCE / 20) is None
    return expected if close else None


def _alone(x: Any) -> Any:
    """A value of a finished level, as an operand of an operation."""
    return bare(x + 0) if isinstance(x, Tensor) and x.dtype != bool else x


def _same(got: Any, expected: Any, call: int, glance: str | None) -> None:
    found = difference(got, expected, TOLERANCE, TOLERANCE)
    assert found is None, f"call {call}{f' ({glance})' if glance else ''}: {found}"


def _is_overwritten(program: Program, error: GradientError) -> bool:
    """Whether a write has overwritten what a derivative needs."""
    return program.writes and "inplace operation" in str(error)
